//! The CPUs of a host: which are on, which are siblings, where they sit.
//!
//! **Source**: the kernel's documentation of /sys/devices/system/cpu (cputopology)
//! and /sys/devices/system/node. Reading is one function of path to text, so that
//! recorded layouts can be tested. Read `plan.rs` next.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cpus::CpuSet;
use crate::engine::HostFacts;

/// Where what is known of the CPUs comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The kernel of this host, which the engine shares.
    Host,
    /// The engine's count alone: it runs on another kernel.
    Count,
}

/// The CPUs that can be handed out, as whole cores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Where it comes from.
    pub known: Known,
    /// CPUs that containers may run on.
    pub cpus: CpuSet,
    /// CPUs that this process may run on; empty when the engine is elsewhere.
    pub own: CpuSet,
    /// The same CPUs by core: siblings share one. **Shape**: by NUMA node, package and
    /// lowest CPU, so that neighbours in the list are neighbours in the machine.
    pub cores: Vec<CpuSet>,
    /// Packages (sockets); 1 where nothing is known.
    pub packages: usize,
    /// NUMA nodes; 1 where nothing is known.
    pub nodes: usize,
    /// What is odd about it, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Reads one file of /sys or /proc; `None` where it is not there.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Topology {
    /// The CPUs of this host, as its kernel shows them.
    ///
    /// `engine_cpus` is what an engine on this host can hand out; `None` before one was
    /// asked. Where /sys says nothing, only the count is known.
    pub fn of_this_host(engine_cpus: Option<u32>) -> Self {
        let read = |path: &str| fs_err::read_to_string(path).ok();
        Self::parse(&read, engine_cpus).unwrap_or_else(|| {
            let here = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            Self::of_count(engine_cpus.unwrap_or(u32::try_from(here).unwrap_or(1)))
        })
    }

    /// The CPUs of an engine's host: this one's where both run on one kernel, else the count.
    pub fn of_engine(facts: &HostFacts) -> Self {
        let kernel = fs_err::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let is_here = facts.direct || (facts.local && facts.kernel == kernel.trim());
        if is_here {
            Self::of_this_host(Some(facts.cpus))
        } else {
            Self::of_count(facts.cpus)
        }
    }

    /// So many CPUs of an engine on another kernel.
    pub fn of_count(n_cpus: u32) -> Self {
        Self {
            known: Known::Count,
            cpus: (0..n_cpus).collect(),
            own: CpuSet::default(),
            cores: (0..n_cpus).map(|cpu| CpuSet::from_iter([cpu])).collect(),
            packages: 1,
            nodes: 1,
            notes: Vec::new(),
        }
    }

    /// Whether load is sent from these same CPUs.
    pub fn has_generator(&self) -> bool {
        self.known == Known::Host
    }

    /// Whether some core runs more than one CPU.
    pub fn has_siblings(&self) -> bool {
        self.cores.iter().any(|core| core.len() > 1)
    }

    /// From the texts of the kernel's files; `None` where they do not say which CPUs are on.
    pub(super) fn parse(read: Read<'_>, engine_cpus: Option<u32>) -> Option<Self> {
        let online: CpuSet = read("/sys/devices/system/cpu/online")?.parse().ok()?;
        if online.is_empty() {
            return None;
        }
        let own = allowed_of(read).map_or_else(|| online.clone(), |own| own.common(&online));
        let mut notes = Vec::new();
        if own.len() < online.len() {
            notes.push(format!(
                "this process may run on {} of the host's {} CPUs ({own})",
                own.len(),
                online.len()
            ));
        }
        let cpus = match engine_cpus.map(|n| n as usize) {
            // An engine in the same cage as this process has the same bars.
            Some(n) if n < online.len() && n == own.len() => own.clone(),
            // Which of them it hands out cannot be known: none is given away by number.
            Some(n) if n < online.len() => {
                return Some(Self::of_count(engine_cpus?).unknown(n, online.len()));
            }
            Some(_) => online,
            None => own.clone(),
        };
        let node_of = nodes_of(read, &cpus);
        let mut cores: BTreeMap<(u32, u32, u32), CpuSet> = BTreeMap::new();
        let mut packages = CpuSet::default();
        for cpu in cpus.iter() {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            let siblings = read(&format!("{folder}/thread_siblings_list"))
                .or_else(|| read(&format!("{folder}/core_cpus_list")))
                .and_then(|text| text.parse::<CpuSet>().ok())
                .filter(|siblings| siblings.contains(cpu))
                .unwrap_or_else(|| CpuSet::from_iter([cpu]));
            let package: u32 = read(&format!("{folder}/physical_package_id"))
                // -1 stands for 'not known'.
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0);
            packages = packages.joined(&CpuSet::from_iter([package]));
            let siblings = siblings.common(&cpus);
            let lowest = siblings.iter().next().unwrap_or(cpu);
            let node = node_of.get(&lowest).copied().unwrap_or(0);
            cores.insert((node, package, lowest), siblings);
        }
        let mut seen: Vec<u32> = cpus
            .iter()
            .filter_map(|cpu| node_of.get(&cpu).copied())
            .collect();
        seen.sort_unstable();
        seen.dedup();
        Some(Self {
            known: Known::Host,
            own,
            cores: cores.into_values().collect(),
            packages: packages.len(),
            nodes: seen.len().max(1),
            cpus,
            notes,
        })
    }

    /// The same count with nothing to hand out by number.
    fn unknown(mut self, n_engine: usize, n_online: usize) -> Self {
        self.cores.clear();
        self.notes.push(format!(
            "the engine hands out {n_engine} of this host's {n_online} CPUs, and which is not known"
        ));
        self
    }
}

/// The CPUs this process may run on. **Source**: proc(5), `Cpus_allowed_list`.
fn allowed_of(read: Read<'_>) -> Option<CpuSet> {
    let status = read("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    line.parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
}

/// NUMA node of each CPU, where the kernel knows of nodes.
fn nodes_of(read: Read<'_>, cpus: &CpuSet) -> BTreeMap<u32, u32> {
    let nodes: CpuSet = read("/sys/devices/system/node/online")
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let mut of_cpu = BTreeMap::new();
    for node in nodes.iter() {
        let list = read(&format!("/sys/devices/system/node/node{node}/cpulist"))
            .and_then(|text| text.parse::<CpuSet>().ok())
            .unwrap_or_default();
        of_cpu.extend(list.common(cpus).iter().map(|cpu| (cpu, node)));
    }
    of_cpu
}
