//! Who gets which CPUs. Pure: topology and limits in, sets out.
//!
//! The subject comes first and gets whole cores from the end of the list, so that CPU 0,
//! which serves most interrupts, stays with the others; then the generator. One plan holds
//! for all cells of a tier, and other services and generator get the same CPUs in all tiers
//! that leave them any.
//!
//! **Invariant**: in mode `quota` all three are apart or nobody is confined. To press the
//! database and the generator onto one CPU while the subject's idles makes them the limit
//! of what is measured: on two cores it took 40 % of the throughput that the same quota
//! gave without it. In mode `cpuset` the subject's CPUs are what was asked for, and the
//! others share what is left. Read `words.rs` next.

use indexmap::IndexMap;
use serde::Serialize;

use super::hand_out::{Cores, joined, last_cpus};
use super::topology::Topology;
use super::words;
use crate::cpus::{CpuMode, CpuSet};
use crate::stack::{Service, Stack};

/// What is to be planned for.
#[derive(Debug, Clone)]
pub struct CpuRequest<'a> {
    /// The CPUs there are.
    pub topology: Topology,
    /// How the subject's limit is put into force.
    pub mode: CpuMode,
    /// CPUs that the generator is to have; its load threads unless the user says so.
    pub reserve_cpus: Option<u32>,
    /// Load threads.
    pub load_threads: usize,
    /// The service that is being sized.
    pub subject: &'a str,
    /// Whether the engine can confine a container to CPUs.
    pub has_cpusets: bool,
    /// The stacks of the cells, by tier.
    pub tiers: Vec<TierStacks<'a>>,
}

/// The cells of one tier.
#[derive(Debug, Clone)]
pub struct TierStacks<'a> {
    /// Its value, as text.
    pub tier: String,
    /// What its cells launch.
    pub stacks: Vec<&'a Stack>,
}

/// Who gets which CPUs.
#[derive(Debug, Clone, Serialize)]
pub struct CpuPlan {
    /// How the subject's limit is put into force.
    pub mode: CpuMode,
    /// The CPUs there are.
    pub topology: Topology,
    /// CPUs of the generator wherever it has its own place; `None` where it is nowhere pinned.
    pub generator: Option<CpuSet>,
    /// By tier, in the order of the request.
    pub tiers: IndexMap<String, TierCpus>,
    /// The service that is being sized.
    #[serde(skip)]
    pub(super) subject: String,
    /// Further things to know, in words.
    pub notes: Vec<String>,
}

/// The CPUs of one tier. `None` is: not confined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TierCpus {
    /// CPUs of the subject, the largest of the tier's cells.
    pub subject: Option<CpuSet>,
    /// CPUs of each other service that has no `cpuset` of its own.
    pub others: Option<CpuSet>,
    /// CPUs of the load threads.
    pub generator: Option<CpuSet>,
    /// Whether the subject shares CPUs or a core with the generator or other services.
    pub subject_shares: bool,
    /// What is shared, in words.
    pub shared: Vec<String>,
    /// Further things to know, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// More than there is, in words.
    #[serde(skip)]
    pub(super) overcommitted: Option<String>,
    /// Whether there are other services that the plan may place.
    #[serde(skip)]
    pub(super) has_others: bool,
    /// Cores the subject's CPUs are taken from; empty where it is not confined by us.
    #[serde(skip)]
    pub(super) area: Vec<CpuSet>,
}

/// Why a mode cannot be carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CpuProblem {
    /// CPUs are whole.
    #[error(
        "cpu_mode = cpuset gives whole CPUs, and service `{service}` is limited to {cpus} in tier {tier}"
    )]
    Fraction {
        /// The subject.
        service: String,
        /// Its limit. **Units**: cores.
        cpus: f64,
        /// The tier it is so in.
        tier: String,
    },
    /// There is nothing to give.
    #[error(
        "cpu_mode = cpuset gives as many CPUs as the limit says, and service `{service}` has no `cpus`"
    )]
    NoLimit {
        /// The subject.
        service: String,
    },
    /// The engine cannot.
    #[error("cpu_mode = cpuset: {why}")]
    NotHere {
        /// Why.
        why: String,
    },
}

impl CpuProblem {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Fraction { .. } => "sweep whole numbers of CPUs, or use cpu_mode = \"quota\"",
            Self::NoLimit { .. } => "limit it: `cpus: ${cpus}` in the Compose file or an override",
            Self::NotHere { .. } => "use cpu_mode = \"quota\", or an engine on a host that can",
        }
    }
}

/// Plans the CPUs of every tier.
///
/// **Errors**: in mode `cpuset`, a subject without a limit or with a fraction of a CPU, and
/// an engine that cannot confine containers. In mode `quota` what cannot be is said.
pub fn plan_cpus(request: &CpuRequest<'_>) -> Result<CpuPlan, CpuProblem> {
    let needs: Vec<Need> = request
        .tiers
        .iter()
        .map(|tier| need_of(request, tier))
        .collect();
    if request.mode == CpuMode::Cpuset {
        check_cpuset_mode(request)?;
    }
    let mut notes = request.topology.notes.clone();
    let why_shared = words::why_nothing_is_separate(request);
    let layout = match &why_shared {
        Some(why) => {
            notes.push(why.clone());
            None
        }
        None => Layout::of(request, &needs),
    };
    if let (Some(wanted), None) = (request.reserve_cpus, &why_shared) {
        let generator = layout.as_ref().and_then(|layout| layout.generator.as_ref());
        let is_split = layout.as_ref().is_some_and(|layout| layout.is_split);
        notes.extend(words::unmet_reserve(wanted, generator, is_split));
    }
    let tiers = request.tiers.iter().zip(&needs).map(|(tier, need)| {
        let fitting = layout.as_ref().filter(|layout| layout.fits(need));
        let cpus = match fitting {
            Some(layout) => layout.tier(request, need),
            None => together(request, need, why_shared.is_some()),
        };
        (
            tier.tier.clone(),
            words::with_words(cpus, request, need, why_shared.is_some()),
        )
    });
    Ok(CpuPlan {
        mode: request.mode,
        tiers: tiers.collect(),
        topology: request.topology.clone(),
        generator: layout.and_then(|layout| layout.generator),
        subject: request.subject.to_owned(),
        notes,
    })
}

/// What the cells of a tier ask for.
#[derive(Debug, Clone, Default)]
pub(super) struct Need {
    /// Whole CPUs of the subject, the largest of the cells; `None` where one has no limit.
    pub(super) subject: Option<usize>,
    /// Largest limit of the subject. **Units**: cores.
    pub(super) most_cores: f64,
    /// `cpuset` of the subject in the files, of all cells together.
    pub(super) own_set: Option<CpuSet>,
    /// `cpuset`s of other services in the files.
    pub(super) other_sets: CpuSet,
    /// Whole CPUs that the limits of the free other services come to.
    pub(super) others: usize,
    /// What all limits of a stack come to, the largest of the cells. **Units**: cores.
    pub(super) all_cores: f64,
    /// Whether a free other service has no limit.
    pub(super) is_open_ended: bool,
    /// Other services that have no `cpuset` in the files.
    pub(super) free_others: Vec<String>,
}

/// CPUs that all containers of a service may use together, by its limit. **Units**: cores.
pub fn cpu_limit(service: &Service) -> Option<f64> {
    let replicas = f64::from(service.replicas.unwrap_or(1).max(1));
    service
        .cpu_cores()
        .filter(|cpus| *cpus > 0.0)
        .map(|cpus| cpus * replicas)
}

fn set_of(service: &Service) -> Option<CpuSet> {
    let text = service.cpuset.as_deref().filter(|text| !text.is_empty())?;
    // What is no list is for the engine to refuse; it takes no CPU away from anybody.
    Some(text.parse().unwrap_or_default())
}

fn need_of(request: &CpuRequest<'_>, tier: &TierStacks<'_>) -> Need {
    let mut need = Need::default();
    let mut is_limited = true;
    for stack in &tier.stacks {
        let (mut others, mut is_open_ended) = (0, false);
        let all_cores: f64 = stack.services.values().filter_map(cpu_limit).sum();
        need.all_cores = need.all_cores.max(all_cores);
        for (name, service) in &stack.services {
            let limit = cpu_limit(service);
            let whole = limit.map(|cpus| cpus.ceil() as usize);
            if name == request.subject {
                match set_of(service) {
                    Some(set) => {
                        need.own_set = Some(need.own_set.take().unwrap_or_default().joined(&set));
                    }
                    None => is_limited &= whole.is_some(),
                }
                need.subject = need.subject.max(whole);
                need.most_cores = need.most_cores.max(limit.unwrap_or(0.0));
                continue;
            }
            if let Some(set) = set_of(service) {
                need.other_sets = need.other_sets.joined(&set);
                continue;
            }
            if !need.free_others.contains(name) {
                need.free_others.push(name.clone());
            }
            others += whole.unwrap_or(0);
            is_open_ended |= whole.is_none();
        }
        need.others = need.others.max(others);
        need.is_open_ended |= is_open_ended;
    }
    need.subject = need.subject.filter(|_| is_limited);
    need
}

fn check_cpuset_mode(request: &CpuRequest<'_>) -> Result<(), CpuProblem> {
    for tier in &request.tiers {
        for stack in &tier.stacks {
            let Some(service) = stack.services.get(request.subject) else {
                continue;
            };
            // Whoever chose the CPUs in the file has said how the limit is meant.
            if set_of(service).is_some() {
                continue;
            }
            let service_name = || request.subject.to_owned();
            let Some(cpus) = cpu_limit(service) else {
                return Err(CpuProblem::NoLimit {
                    service: service_name(),
                });
            };
            if cpus.fract() != 0.0 {
                return Err(CpuProblem::Fraction {
                    service: service_name(),
                    cpus,
                    tier: tier.tier.clone(),
                });
            }
        }
    }
    match words::why_no_cpusets(request) {
        Some(why) => Err(CpuProblem::NotHere { why }),
        None => Ok(()),
    }
}

/// The places of subject, generator and others that hold for all tiers that fit.
#[derive(Debug)]
struct Layout {
    /// Largest subject that fits.
    most: usize,
    area: Vec<CpuSet>,
    generator: Option<CpuSet>,
    others: Option<CpuSet>,
    /// Whether generator and others are apart.
    is_split: bool,
}

impl Layout {
    /// `None` where no tier leaves a CPU to anybody else.
    fn of(request: &CpuRequest<'_>, needs: &[Need]) -> Option<Self> {
        let topology = &request.topology;
        let all = |of: fn(&Need) -> CpuSet| {
            needs
                .iter()
                .fold(CpuSet::default(), |all, need| all.joined(&of(need)))
        };
        let own_sets = all(|need| need.own_set.clone().unwrap_or_default());
        let taken = all(|need| need.other_sets.clone()).joined(&own_sets);
        let mut cores = Cores::new(&topology.cores, &taken);
        if topology.has_generator() {
            cores = cores.with_first(&topology.own);
        }
        let has_others = needs.iter().any(|need| !need.free_others.is_empty());
        let rest = usize::from(has_others || topology.has_generator());
        let fitting = needs.iter().filter(|need| need.own_set.is_none());
        let mut sizes: Vec<usize> = fitting.filter_map(|need| need.subject).collect();
        sizes.sort_unstable_by(|left, right| right.cmp(left));
        let has_own = needs.iter().any(|need| need.own_set.is_some());
        let with = |most: usize| {
            let mut cores = cores.clone();
            let area = match cores.take_cores(most, rest) {
                Some(area) => area,
                None => cores.take_cpus(most, rest)?,
            };
            let mut layout = Self {
                most,
                area,
                generator: None,
                others: None,
                is_split: false,
            };
            layout.place_rest(request, needs, cores, has_others);
            Some(layout)
        };
        let is_kept = |layout: &Self| layout.is_split || request.mode == CpuMode::Cpuset;
        let layout = sizes.into_iter().filter_map(&with).find(is_kept);
        // Whoever chose the subject's CPUs in the file keeps everybody else away from them.
        layout.or_else(|| has_own.then(|| with(0)).flatten())
    }

    /// Generator and other services on what the subject leaves.
    fn place_rest(
        &mut self,
        request: &CpuRequest<'_>,
        needs: &[Need],
        mut cores: Cores,
        has_others: bool,
    ) {
        let own = &request.topology.own;
        if !has_others {
            // What nobody asked for stays idle; the generator has no use for more.
            let n = request.generator_cpus().min(cores.len());
            self.generator = request
                .topology
                .has_generator()
                .then(|| {
                    cores
                        .take_among(n, own, 0)
                        .unwrap_or_else(|| cores.set().common(own))
                })
                .filter(|set| !set.is_empty());
            self.is_split = true;
            return;
        }
        if !request.topology.has_generator() {
            self.others = Some(cores.set());
            self.is_split = true;
            return;
        }
        let least = needs.iter().map(|need| need.others).max().unwrap_or(0);
        // How much a service without a limit wants is not known: half of what the subject
        // has is the least that is not obviously too little for a database behind it.
        let open_ended = needs.iter().any(|need| need.is_open_ended);
        let least = least
            + if open_ended {
                self.most.div_ceil(2).max(1)
            } else {
                0
            };
        let wanted = request.generator_cpus();
        let fewest = request.reserve_cpus.map_or(1, |_| wanted);
        let split = (fewest..=wanted)
            .rev()
            .find_map(|n| cores.take_among(n, own, least.max(1)));
        self.is_split = split.is_some();
        let shared = || Some(cores.set().common(own)).filter(|set| !set.is_empty());
        self.generator = split.or_else(shared);
        self.others = Some(cores.set());
    }

    fn fits(&self, need: &Need) -> bool {
        need.own_set.is_some() || need.subject.is_some_and(|n| n <= self.most)
    }

    fn tier(&self, request: &CpuRequest<'_>, need: &Need) -> TierCpus {
        let area = if need.own_set.is_some() {
            Vec::new()
        } else {
            self.area.clone()
        };
        let subject = match (&need.own_set, request.mode, need.subject) {
            (Some(set), _, _) => Some(set.clone()),
            (None, CpuMode::Cpuset, Some(n)) => last_cpus(&area, n),
            (None, _, _) => Some(joined(&area)),
        };
        TierCpus {
            subject,
            others: self.others.clone().filter(|_| !need.free_others.is_empty()),
            generator: self.generator.clone(),
            area,
            ..TierCpus::default()
        }
    }
}

impl CpuRequest<'_> {
    fn generator_cpus(&self) -> usize {
        self.reserve_cpus
            .map_or(self.load_threads, |n| n as usize)
            .max(1)
    }
}

/// A tier whose subject leaves nothing: nobody is confined but by the user, and in mode
/// `cpuset` the subject to its number of CPUs.
fn together(request: &CpuRequest<'_>, need: &Need, is_everywhere: bool) -> TierCpus {
    let topology = &request.topology;
    let area = match (request.mode, &need.own_set) {
        (CpuMode::Cpuset, None) => topology.cores.clone(),
        _ => Vec::new(),
    };
    TierCpus {
        subject: match (&need.own_set, need.subject) {
            (Some(set), _) => Some(set.clone()),
            (None, Some(n)) if !area.is_empty() => last_cpus(&area, n),
            (None, _) => None,
        },
        others: None,
        // Load threads begin on the CPUs of whoever starts them: said outright where those
        // differ from tier to tier.
        generator: (topology.has_generator() && !is_everywhere).then(|| topology.own.clone()),
        area,
        ..TierCpus::default()
    }
}

impl CpuPlan {
    /// The stack of a cell with its CPUs written in.
    ///
    /// A `cpuset` of the file stays as it is. In mode `cpuset` the subject gets as many CPUs
    /// as its limit says and loses the quota.
    #[must_use]
    pub fn apply(&self, tier: &str, stack: &Stack) -> Stack {
        let mut stack = stack.clone();
        let Some(cpus) = self.tiers.get(tier) else {
            return stack;
        };
        for (name, service) in &mut stack.services {
            if set_of(service).is_some() {
                continue;
            }
            if *name != self.subject {
                service.cpuset = cpus.others.as_ref().map(ToString::to_string);
                continue;
            }
            if cpus.area.is_empty() {
                continue;
            }
            let set = match (self.mode, cpu_limit(service)) {
                (CpuMode::Cpuset, Some(limit)) => last_cpus(&cpus.area, limit.ceil() as usize),
                _ => Some(joined(&cpus.area)),
            };
            let Some(set) = set else {
                // More than there is: refused or skipped by whoever launches.
                continue;
            };
            service.cpuset = Some(set.to_string());
            if self.mode == CpuMode::Cpuset {
                service.cpus = None;
                service.cpu_quota = None;
                service.cpu_period = None;
            }
        }
        stack
    }

    /// Whether a service of a stack with its CPUs written in should have CPUs of its own and
    /// was given none, since there are too few: what is left is its quota.
    pub fn owes_cpus_to(&self, name: &str, service: &Service) -> bool {
        self.mode == CpuMode::Cpuset && name == self.subject && set_of(service).is_none()
    }

    /// Whether subject, generator and other services are not all apart in a tier.
    pub fn is_shared(&self, tier: &str) -> bool {
        let cpus = self.tiers.get(tier);
        cpus.is_some_and(|cpus| !cpus.shared.is_empty())
    }

    /// CPUs of the load threads in a tier; `None` leaves them where they are.
    pub fn generator_of(&self, tier: &str) -> Option<&CpuSet> {
        self.tiers.get(tier)?.generator.as_ref()
    }
}
