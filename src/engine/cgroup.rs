//! What the kernel itself holds for a container: limits and counters.
//!
//! The engine's answer says what was asked for; the control group's files say
//! what is in force. Both versions of control groups are read. Parsing is pure;
//! [`find_cgroup`] and the two readers open files, and only files.
//! **Invariant**: files are read only when the control group's path carries the
//! container's own id. A pid that belongs to another host or namespace would
//! otherwise lead to a stranger's figures. Read `proof.rs` next.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::{ContainerId, Counters};

/// Limits in force in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KernelLimits {
    /// CPU quota per period.
    pub cpu: KernelLimit<CpuQuota>,
    /// The smallest quota of the groups that hold the container's group: it
    /// binds too, whatever the container's own says.
    pub outer_cpu: Option<CpuQuota>,
    /// CPUs it may run on, in the kernel's list form; `None` when it cannot be read.
    pub cpuset: Option<String>,
    /// Memory limit. **Units**: bytes.
    pub memory_bytes: KernelLimit<u64>,
    /// Process limit.
    pub pids: KernelLimit<i64>,
}

/// The part of the limits that decides throughput, cheap enough to read once a second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelCpu {
    /// CPU quota per period.
    pub quota: KernelLimit<CpuQuota>,
    /// CPUs it may run on; `None` when it cannot be read.
    pub cpuset: Option<String>,
}

/// One limit as the kernel's file shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KernelLimit<T> {
    /// Its file is not there or cannot be read.
    #[default]
    Unreadable,
    /// There is none.
    Unlimited,
    /// It is this.
    At(T),
}

/// `unreadable`, `unlimited`, or the limit.
impl<T: Serialize> Serialize for KernelLimit<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unreadable => serializer.serialize_str("unreadable"),
            Self::Unlimited => serializer.serialize_str("unlimited"),
            Self::At(limit) => limit.serialize(serializer),
        }
    }
}

/// A CPU quota as the kernel keeps it. **Units**: microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuQuota {
    /// CPU time per period.
    pub quota_us: i64,
    /// Length of a period.
    pub period_us: i64,
}

impl CpuQuota {
    /// The same in cores.
    pub fn cores(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// Where the files of one container's control group are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroup {
    /// Version 1: a folder per controller.
    V1 {
        /// Quota and throttling.
        cpu: PathBuf,
        /// CPU time.
        cpuacct: PathBuf,
        /// CPUs; not on every host.
        cpuset: Option<PathBuf>,
        /// Memory; not on every host.
        memory: Option<PathBuf>,
        /// Processes; not on every host.
        pids: Option<PathBuf>,
    },
    /// Version 2: one folder.
    V2 {
        /// Everything.
        unified: PathBuf,
    },
}

/// Limits of a container as the kernel holds them.
///
/// `None` when they cannot be read from here: another host, another namespace,
/// a container that does not run.
pub fn read_kernel_limits(pid: i64, id: &ContainerId) -> Option<KernelLimits> {
    Some(find_cgroup(pid, id)?.limits())
}

/// The control group of a container's first process.
pub fn find_cgroup(pid: i64, id: &ContainerId) -> Option<Cgroup> {
    if pid <= 0 {
        return None;
    }
    let membership = fs_err::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = fs_err::read_to_string("/proc/self/mountinfo").ok()?;
    let cgroup = locate(&membership, &mounts, id)?;
    let exists = match &cgroup {
        Cgroup::V1 { cpu, cpuacct, .. } => cpu.is_dir() && cpuacct.is_dir(),
        Cgroup::V2 { unified } => unified.is_dir(),
    };
    exists.then_some(cgroup)
}

/// The folders of a control group, from the texts of `/proc/<pid>/cgroup` and
/// `/proc/self/mountinfo`.
///
/// **Source**: cgroups(7) and proc(5). A mount may show only a part of the tree;
/// its root is taken off the path.
fn locate(membership: &str, mountinfo: &str, id: &ContainerId) -> Option<Cgroup> {
    let mounts: Vec<Mount> = mountinfo.lines().filter_map(parse_mount).collect();
    let folder = |controller: &str| -> Option<PathBuf> {
        let path = membership.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let matches = if controller.is_empty() {
                hierarchy == "0" && controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == controller)
            };
            matches.then_some(path)
        })?;
        let mount = mounts.iter().find(|mount| mount.shows(controller))?;
        if id.0.is_empty() || !path.contains(&id.0) {
            return None;
        }
        let below = Path::new(path).strip_prefix(mount.root).ok()?;
        Some(Path::new(mount.point).join(below))
    };
    // A hybrid host mounts both; the controllers then sit in version 1.
    if let (Some(cpu), Some(cpuacct)) = (folder("cpu"), folder("cpuacct")) {
        return Some(Cgroup::V1 {
            cpu,
            cpuacct,
            cpuset: folder("cpuset"),
            memory: folder("memory"),
            pids: folder("pids"),
        });
    }
    folder("").map(|unified| Cgroup::V2 { unified })
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    is_v2: bool,
    options: &'a str,
}

impl Mount<'_> {
    fn shows(&self, controller: &str) -> bool {
        if controller.is_empty() {
            return self.is_v2;
        }
        !self.is_v2 && self.options.split(',').any(|name| name == controller)
    }
}

fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut file_system = file_system.split(' ');
    let is_v2 = match file_system.next()? {
        "cgroup" => false,
        "cgroup2" => true,
        _ => return None,
    };
    Some(Mount {
        root,
        point,
        is_v2,
        options: file_system.nth(1)?,
    })
}

impl Cgroup {
    /// Quota and CPUs in force now: two or three small files.
    pub fn cpu_now(&self) -> KernelCpu {
        match self {
            Self::V1 { cpu, cpuset, .. } => KernelCpu {
                quota: quota_v1(cpu),
                cpuset: cpuset.as_deref().and_then(cpuset_v1),
            },
            Self::V2 { unified } => KernelCpu {
                quota: quota_v2(unified),
                cpuset: cpuset_v2(unified),
            },
        }
    }

    /// The limits in force; a file that cannot be read leaves its field `None`.
    pub fn limits(&self) -> KernelLimits {
        match self {
            Self::V1 {
                cpu,
                cpuset,
                memory,
                pids,
                ..
            } => KernelLimits {
                cpu: quota_v1(cpu),
                outer_cpu: outer_quota(cpu, |dir| {
                    let (quota, period) =
                        read(dir, "cpu.cfs_quota_us").zip(read(dir, "cpu.cfs_period_us"))?;
                    Some(parse_quota_v1(&quota, &period))
                }),
                cpuset: cpuset.as_deref().and_then(cpuset_v1),
                memory_bytes: memory
                    .as_deref()
                    .and_then(|dir| read(dir, "memory.limit_in_bytes"))
                    .map_or(KernelLimit::Unreadable, |text| parse_memory_limit(&text)),
                pids: pids
                    .as_deref()
                    .and_then(|dir| read(dir, "pids.max"))
                    .map_or(KernelLimit::Unreadable, |text| parse_max(&text)),
            },
            Self::V2 { unified } => KernelLimits {
                cpu: quota_v2(unified),
                outer_cpu: outer_quota(unified, |dir| Some(parse_quota_v2(&read(dir, "cpu.max")?))),
                cpuset: cpuset_v2(unified),
                memory_bytes: read(unified, "memory.max")
                    .map_or(KernelLimit::Unreadable, |text| parse_memory_limit(&text)),
                pids: read(unified, "pids.max")
                    .map_or(KernelLimit::Unreadable, |text| parse_max(&text)),
            },
        }
    }

    /// The counters since the container started; `None` once it is gone.
    pub fn counters(&self) -> Option<Counters> {
        match self {
            Self::V1 {
                cpu,
                cpuacct,
                memory,
                ..
            } => {
                let mut counters = parse_cpu_stat_v1(&read(cpu, "cpu.stat")?)?;
                counters.cpu_ns = read(cpuacct, "cpuacct.usage")?.parse().ok()?;
                if let Some(memory) = memory {
                    let used: u64 = read(memory, "memory.usage_in_bytes")?.parse().ok()?;
                    let stat = read(memory, "memory.stat")?;
                    counters.memory_bytes = without_cache(used, &stat, "total_inactive_file");
                    counters.memory_peak_bytes = read(memory, "memory.max_usage_in_bytes")
                        .and_then(|text| text.parse().ok());
                }
                Some(counters)
            }
            Self::V2 { unified } => {
                let mut counters = parse_cpu_stat_v2(&read(unified, "cpu.stat")?)?;
                let used: u64 = read(unified, "memory.current")?.parse().ok()?;
                let stat = read(unified, "memory.stat")?;
                counters.memory_bytes = without_cache(used, &stat, "inactive_file");
                // Kernels before 5.19 do not keep it.
                counters.memory_peak_bytes =
                    read(unified, "memory.peak").and_then(|text| text.parse().ok());
                Some(counters)
            }
        }
    }
}

/// The smallest quota among the folders above, up to where the files end.
fn outer_quota(
    folder: &Path,
    quota_in: impl Fn(&Path) -> Option<KernelLimit<CpuQuota>>,
) -> Option<CpuQuota> {
    // The top of the tree has no quota file in version 2, -1 in version 1; above the
    // mount there is none either.
    let outer = folder.ancestors().skip(1).map_while(quota_in);
    outer
        .filter_map(|limit| match limit {
            KernelLimit::At(quota) => Some(quota),
            KernelLimit::Unlimited | KernelLimit::Unreadable => None,
        })
        .min_by(|a, b| a.cores().total_cmp(&b.cores()))
}

fn read(folder: &Path, file: &str) -> Option<String> {
    let text = fs_err::read_to_string(folder.join(file)).ok()?;
    Some(text.trim().to_owned())
}

fn quota_v1(cpu: &Path) -> KernelLimit<CpuQuota> {
    read(cpu, "cpu.cfs_quota_us")
        .zip(read(cpu, "cpu.cfs_period_us"))
        .map_or(KernelLimit::Unreadable, |(quota, period)| {
            parse_quota_v1(&quota, &period)
        })
}

fn quota_v2(unified: &Path) -> KernelLimit<CpuQuota> {
    read(unified, "cpu.max").map_or(KernelLimit::Unreadable, |text| parse_quota_v2(&text))
}

fn cpuset_v1(folder: &Path) -> Option<String> {
    read(folder, "cpuset.effective_cpus").or_else(|| read(folder, "cpuset.cpus"))
}

fn cpuset_v2(unified: &Path) -> Option<String> {
    read(unified, "cpuset.cpus.effective").or_else(|| read(unified, "cpuset.cpus"))
}

fn parse_quota_v1(quota: &str, period: &str) -> KernelLimit<CpuQuota> {
    match (quota.parse::<i64>(), period.parse::<i64>()) {
        (Ok(quota_us), Ok(period_us)) if quota_us > 0 && period_us > 0 => {
            KernelLimit::At(CpuQuota {
                quota_us,
                period_us,
            })
        }
        (Ok(_), Ok(_)) => KernelLimit::Unlimited,
        _ => KernelLimit::Unreadable,
    }
}

fn parse_quota_v2(text: &str) -> KernelLimit<CpuQuota> {
    match text.split_once(' ') {
        Some(("max", _)) => KernelLimit::Unlimited,
        Some((quota, period)) => parse_quota_v1(quota, period),
        None => KernelLimit::Unreadable,
    }
}

/// Version 1 writes no limit as the largest multiple of a page below 2^63.
fn parse_memory_limit(text: &str) -> KernelLimit<u64> {
    const NO_LIMIT_FROM_BYTES: u64 = 1 << 62;
    match parse_max(text) {
        KernelLimit::At(bytes) if bytes >= NO_LIMIT_FROM_BYTES => KernelLimit::Unlimited,
        limit => limit,
    }
}

fn parse_max<T: FromStr>(text: &str) -> KernelLimit<T> {
    if text == "max" {
        return KernelLimit::Unlimited;
    }
    text.parse()
        .map_or(KernelLimit::Unreadable, KernelLimit::At)
}

/// **Source**: kernel documentation, CFS bandwidth control: `throttled_time` is in nanoseconds.
fn parse_cpu_stat_v1(text: &str) -> Option<Counters> {
    Some(Counters {
        periods: field(text, "nr_periods")?,
        throttled_periods: field(text, "nr_throttled")?,
        throttled_ns: field(text, "throttled_time")?,
        ..Counters::default()
    })
}

/// **Source**: kernel documentation, control group v2: times are in microseconds; the
/// throttling lines are there only while the CPU controller is on.
fn parse_cpu_stat_v2(text: &str) -> Option<Counters> {
    Some(Counters {
        cpu_ns: field(text, "usage_usec")?.checked_mul(1_000)?,
        periods: field(text, "nr_periods").unwrap_or(0),
        throttled_periods: field(text, "nr_throttled").unwrap_or(0),
        throttled_ns: field(text, "throttled_usec")
            .unwrap_or(0)
            .checked_mul(1_000)?,
        ..Counters::default()
    })
}

/// Memory in use without file cache that the kernel may drop, as `docker stats` shows it.
fn without_cache(used: u64, stat: &str, inactive_file: &str) -> u64 {
    used.saturating_sub(field(stat, inactive_file).unwrap_or(0))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        if key == name {
            value.trim().parse().ok()
        } else {
            None
        }
    })
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
