//! How busy the whole host is, from the kernel's own counters.
//!
//! Parsing and arithmetic are pure; [`read_host_cpu`] alone opens a file.
//! Read `telemetry.rs` next for the same of single containers.

/// CPU time of the whole host since boot. **Units**: clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCpu {
    /// Time spent working, for anybody on this host.
    pub busy_ticks: u64,
    /// Time with nothing to do, waiting for disks included.
    pub idle_ticks: u64,
    /// Time the hypervisor gave to other guests.
    pub stolen_ticks: u64,
    /// CPUs that are online.
    pub cpus: u32,
}

/// Use of the host between two readings. **Units**: cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostUse {
    /// Cores that worked.
    pub busy_cores: f64,
    /// Cores that the hypervisor took away.
    pub stolen_cores: f64,
}

/// Reads `/proc/stat`; `None` where there is none or its form is unknown.
pub fn read_host_cpu() -> Option<HostCpu> {
    parse_host_cpu(&fs_err::read_to_string("/proc/stat").ok()?)
}

/// The counters in the text of `/proc/stat`.
///
/// **Source**: proc(5); guest time is already inside user and nice.
pub fn parse_host_cpu(text: &str) -> Option<HostCpu> {
    let total = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = total
        .split_ascii_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let [user, nice, system, idle, iowait, irq, softirq] = ticks.get(..7)?.try_into().ok()?;
    let cpus = text
        .lines()
        .filter(|line| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .count();
    Some(HostCpu {
        busy_ticks: user + nice + system + irq + softirq,
        idle_ticks: idle + iowait,
        // Kernels before 2.6.11 have no such column.
        stolen_ticks: ticks.get(7).copied().unwrap_or(0),
        cpus: u32::try_from(cpus).ok().filter(|cpus| *cpus > 0)?,
    })
}

/// Use of the host from one reading to a later one.
///
/// `None` when no time passed or CPUs came or went. It is a share of the ticks
/// that passed, so the length of a tick need not be known.
pub fn host_use(before: HostCpu, after: HostCpu) -> Option<HostUse> {
    let busy = after.busy_ticks.checked_sub(before.busy_ticks)?;
    let stolen = after.stolen_ticks.checked_sub(before.stolen_ticks)?;
    // Idle may step back a little on some kernels: their own documentation says so.
    let idle = after.idle_ticks.saturating_sub(before.idle_ticks);
    let total = busy + idle + stolen;
    if total == 0 || before.cpus != after.cpus {
        return None;
    }
    let cores_per_tick = f64::from(after.cpus) / total as f64;
    Some(HostUse {
        busy_cores: busy as f64 * cores_per_tick,
        stolen_cores: stolen as f64 * cores_per_tick,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cpu  100 10 50 800 20 5 15 7 3 1\n\
        cpu0 50 5 25 400 10 2 8 4 1 0\n\
        cpu1 50 5 25 400 10 3 7 3 2 1\n\
        intr 1 2 3\nctxt 9\n";

    #[test]
    fn guest_time_is_not_counted_twice() {
        let cpu = parse_host_cpu(TEXT).unwrap();
        assert_eq!(
            cpu,
            HostCpu {
                busy_ticks: 180,
                idle_ticks: 820,
                stolen_ticks: 7,
                cpus: 2
            }
        );
    }

    #[test]
    fn half_the_ticks_of_two_cores_are_one_core() {
        let before = parse_host_cpu(TEXT).unwrap();
        let after = HostCpu {
            busy_ticks: before.busy_ticks + 50,
            idle_ticks: before.idle_ticks + 40,
            stolen_ticks: before.stolen_ticks + 10,
            cpus: 2,
        };
        let used = host_use(before, after).unwrap();
        assert!((used.busy_cores - 1.0).abs() < 1e-12);
        assert!((used.stolen_cores - 0.2).abs() < 1e-12);
    }

    #[test]
    fn no_figure_is_made_up_where_none_can_be_had() {
        let reading = parse_host_cpu(TEXT).unwrap();
        assert_eq!(host_use(reading, reading), None);
        let fewer = HostCpu {
            busy_ticks: reading.busy_ticks + 1,
            cpus: 1,
            ..reading
        };
        assert_eq!(host_use(reading, fewer), None);
        let backwards = HostCpu {
            busy_ticks: reading.busy_ticks - 1,
            ..reading
        };
        assert_eq!(host_use(reading, backwards), None);
        for text in ["", "cpu 1 2 3\ncpu0 1 2 3", "cpu  a b c d e f g\n"] {
            assert_eq!(parse_host_cpu(text), None, "{text}");
        }
    }

    #[test]
    fn this_host_can_be_read() {
        assert!(read_host_cpu().unwrap().busy_ticks > 0);
    }
}
