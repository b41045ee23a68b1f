//! What the CPU plan says to people: what is shared, with whom, and why.

use std::fmt::Write as _;

use indexmap::IndexMap;
use itertools::Itertools;

use super::plan::{CpuPlan, CpuRequest, Need, TierCpus};
use super::topology::{Known, Topology};
use crate::cpus::{CpuMode, CpuSet};

/// Tiers named in one line; more are counted.
const SHOWN: usize = 6;

/// Why no container can be confined, where that is so.
pub(super) fn why_no_cpusets(request: &CpuRequest<'_>) -> Option<String> {
    if !request.has_cpusets {
        return Some("the engine cannot confine a container to CPUs".to_owned());
    }
    request.topology.cores.is_empty().then(|| {
        let why = request.topology.notes.last().cloned();
        why.unwrap_or_else(|| "the CPUs of the engine's host are not known".to_owned())
    })
}

/// Why nothing is kept apart in any tier, where that is so.
pub(super) fn why_nothing_is_separate(request: &CpuRequest<'_>) -> Option<String> {
    why_no_cpusets(request).map(|why| format!("nothing is kept on CPUs of its own: {why}"))
}

/// What became of a wish for CPUs that could not be met.
pub(super) fn unmet_reserve(
    wanted: u32,
    generator: Option<&CpuSet>,
    is_split: bool,
) -> Option<String> {
    let found = generator.map_or(0, CpuSet::len);
    if found == 0 {
        Some(format!(
            "reserve_cpus = {wanted}, and the generator gets none of its own: the host has too few CPUs for that"
        ))
    } else if found < wanted as usize {
        Some(format!(
            "reserve_cpus = {wanted}, and the generator gets {found}: the host has no more beside the subject"
        ))
    } else {
        (!is_split).then(|| {
            format!(
                "reserve_cpus = {wanted}, and other services use them too: the host has no more"
            )
        })
    }
}

/// Compares the sets of a tier and puts what they share into words.
///
/// `is_everywhere`: nothing is kept apart in any tier, which is said once and elsewhere.
pub(super) fn with_words(
    mut cpus: TierCpus,
    request: &CpuRequest<'_>,
    need: &Need,
    is_everywhere: bool,
) -> TierCpus {
    let topology = &request.topology;
    let all = &topology.cpus;
    let subject = cpus.subject.clone().unwrap_or_else(|| all.clone());
    let generator = topology.has_generator().then(|| {
        cpus.generator
            .clone()
            .unwrap_or_else(|| topology.own.clone())
    });
    let free = if need.free_others.is_empty() {
        CpuSet::default()
    } else {
        cpus.others.clone().unwrap_or_else(|| all.clone())
    };
    let others = free.joined(&need.other_sets);
    let why = match (cpus.subject.is_some() || is_everywhere, need.subject) {
        (true, _) => String::new(),
        (false, None) => "; it has no CPU limit, so it can use all".to_owned(),
        (false, Some(n)) if n >= all.len() => {
            "; its limit leaves no CPU to anybody else".to_owned()
        }
        (false, Some(_)) => "; the cores are too few to keep them apart".to_owned(),
    };
    let with_generator = generator
        .as_ref()
        .map(|set| subject.common(set))
        .filter(|set| !set.is_empty());
    let with_others = Some(subject.common(&others)).filter(|set| !set.is_empty());
    if request.mode == CpuMode::Quota
        && let (Some(set), None) = (&cpus.subject, &need.own_set)
        && set.len() as f64 <= need.most_cores
    {
        cpus.notes.push(
            "the subject may run on no more CPUs than its limit, so its quota hardly ever stops it"
                .to_owned(),
        );
    }
    if !all.is_empty() && need.all_cores > all.len() as f64 {
        let words = format!(
            "limits of the stack add up to {} of {} CPUs",
            need.all_cores,
            all.len()
        );
        cpus.notes.push(words.clone());
        cpus.overcommitted = Some(words);
    }
    cpus.has_others = !need.free_others.is_empty();
    cpus.subject_shares = with_generator.is_some() || with_others.is_some();
    match (&with_generator, &with_others) {
        (Some(left), Some(right)) if left == right => cpus.shared.push(format!(
            "the subject shares {} with the generator and other services{why}",
            named(left)
        )),
        _ => {
            for (set, whom) in [
                (&with_generator, "the generator"),
                (&with_others, "other services"),
            ] {
                if let Some(set) = set {
                    cpus.shared.push(format!(
                        "the subject shares {} with {whom}{why}",
                        named(set)
                    ));
                }
            }
        }
    }
    if !cpus.subject_shares {
        let beside = generator.clone().unwrap_or_default().joined(&others);
        let siblings = siblings_in(topology, &subject, &beside);
        if !siblings.is_empty() {
            cpus.subject_shares = true;
            cpus.shared.push(format!(
                "the subject shares a core with the generator or other services, who run on its sibling {siblings}"
            ));
        }
    }
    if let Some(generator) = &generator {
        let both = generator.common(&others);
        // Said already where all three share.
        if !both.is_empty() && cpus.subject.is_some() {
            cpus.shared.push(format!(
                "the generator shares {} with other services",
                named(&both)
            ));
        }
    }
    cpus
}

/// CPUs of others that run on a core of the subject's.
fn siblings_in(topology: &Topology, subject: &CpuSet, others: &CpuSet) -> CpuSet {
    let cores = topology.cores.iter();
    let halved = cores.filter(|core| !core.common(subject).is_empty());
    halved.fold(CpuSet::default(), |all, core| {
        all.joined(&core.common(others))
    })
}

/// `CPU 0` or `CPUs 0-1`.
pub(super) fn named(set: &CpuSet) -> String {
    let what = if set.len() == 1 { "CPU" } else { "CPUs" };
    format!("{what} {set}")
}

impl CpuPlan {
    /// The plan's facts, one line each: the host's CPUs, who gets which, what is shared.
    ///
    /// `tier` is the name of the tier, as `cpus`.
    pub fn lines(&self, tier: &str) -> Vec<String> {
        let mut lines = vec![self.topology.line()];
        lines.push(match self.mode {
            CpuMode::Quota => {
                "cpu_mode quota: the subject's limit is a quota per period".to_owned()
            }
            CpuMode::Cpuset => {
                "cpu_mode cpuset: the subject gets as many CPUs as its limit says, and no quota"
                    .to_owned()
            }
        });
        let groups = self.tiers.iter().chunk_by(|(_, cpus)| *cpus);
        for (cpus, group) in &groups {
            let names = group.map(|(name, _)| name.clone()).collect_vec();
            lines.push(format!(
                "{tier} = {}: {}",
                listed(&names),
                self.places(cpus)
            ));
            lines.extend(cpus.shared.iter().map(|words| format!("  shared: {words}")));
            lines.extend(cpus.notes.iter().map(|words| format!("  note: {words}")));
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// What is shared, one sentence each, with the tiers it is so in.
    pub fn warnings(&self, tier: &str) -> Vec<String> {
        let shared = self.by_tiers(|cpus| cpus.shared.iter().collect());
        let shared = shared.into_iter().map(|(words, names)| {
            if names.len() == self.tiers.len() {
                format!("shared CPUs: {words}")
            } else {
                format!("shared CPUs in {tier} = {}: {words}", listed(&names))
            }
        });
        let over = self.by_tiers(|cpus| cpus.overcommitted.iter().collect());
        let over = over.into_iter().map(|(words, names)| {
            if names.len() == self.tiers.len() {
                words.clone()
            } else {
                format!("{tier} = {}: {words}", listed(&names))
            }
        });
        shared
            .chain(over)
            .chain(self.notes.iter().cloned())
            .collect()
    }

    /// Sentences with the tiers they are said of.
    fn by_tiers<'p>(
        &'p self,
        of: impl Fn(&'p TierCpus) -> Vec<&'p String>,
    ) -> IndexMap<&'p String, Vec<String>> {
        let mut tiers_of = IndexMap::<&String, Vec<String>>::new();
        for (name, cpus) in &self.tiers {
            for words in of(cpus) {
                tiers_of.entry(words).or_default().push(name.clone());
            }
        }
        tiers_of
    }

    fn places(&self, cpus: &TierCpus) -> String {
        let place = |set: &Option<CpuSet>| {
            set.as_ref()
                .map_or_else(|| "anywhere".to_owned(), |set| format!("on {}", named(set)))
        };
        let mut parts = vec![format!("subject {}", place(&cpus.subject))];
        if cpus.has_others {
            parts.push(format!("other services {}", place(&cpus.others)));
        }
        parts.push(if self.topology.has_generator() {
            format!("generator {}", place(&cpus.generator))
        } else {
            "generator on another kernel".to_owned()
        });
        parts.join(", ")
    }
}

impl Topology {
    /// What there is, in one line.
    pub fn line(&self) -> String {
        let n = self.cpus.len();
        match self.known {
            Known::Count => format!("{n} CPUs of an engine whose topology is not known"),
            Known::Host => {
                let mut line = format!("{} of this host in ", named(&self.cpus));
                let _ = match self.cores.len() {
                    1 => write!(line, "1 core"),
                    n => write!(line, "{n} cores"),
                };
                if self.has_siblings() {
                    line.push_str(" with siblings");
                }
                // Writing to a String cannot fail.
                if self.packages > 1 {
                    let _ = write!(line, ", {} packages", self.packages);
                }
                if self.nodes > 1 {
                    let _ = write!(line, ", {} NUMA nodes", self.nodes);
                }
                line
            }
        }
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
