//! What this host's kernel says, judged. Linux only: elsewhere nothing is known.

use crate::report::Check;
use crate::units::format_bytes;

/// Above this share of the CPUs somebody else is at work.
const BUSY_SHARE: f64 = 0.1;

/// What was read; `None` is what this kernel does not tell.
#[derive(Debug, Clone, Default)]
pub(super) struct Host {
    /// Processes that wanted to run in the last minute, and CPUs.
    load: Option<(f64, usize)>,
    governor: Option<String>,
    turbo_is_on: Option<bool>,
    smt_is_on: Option<bool>,
    /// Swap in use and in all. **Units**: bytes.
    swap: Option<(u64, u64)>,
}

impl Host {
    /// Reads the kernel's files.
    pub(super) fn read() -> Self {
        let line = |path: &str| {
            let text = fs_err::read_to_string(path).ok()?;
            Some(text.trim().to_owned())
        };
        let cpu = "/sys/devices/system/cpu";
        let cores = std::thread::available_parallelism().ok();
        let load = line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok());
        let no_turbo = line(&format!("{cpu}/intel_pstate/no_turbo")).map(|text| text == "0");
        let boost = line(&format!("{cpu}/cpufreq/boost")).map(|text| text == "1");
        Self {
            load: load.zip(cores.map(std::num::NonZero::get)),
            governor: line(&format!("{cpu}/cpu0/cpufreq/scaling_governor")),
            turbo_is_on: no_turbo.or(boost),
            smt_is_on: line(&format!("{cpu}/smt/active")).map(|text| text == "1"),
            swap: line("/proc/meminfo").as_deref().and_then(swap_of),
        }
    }
}

/// Swap in use and in all, from the text of `/proc/meminfo`.
fn swap_of(text: &str) -> Option<(u64, u64)> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    let (total, free) = (bytes("SwapTotal:")?, bytes("SwapFree:")?);
    Some((total.checked_sub(free)?, total))
}

/// The checks of this host, in the order they are told. Pure.
pub(super) fn checks(host: &Host) -> Vec<Check> {
    vec![
        load(host),
        governor(host),
        turbo(host),
        smt(host),
        swap(host),
    ]
}

fn unknown(name: &'static str) -> Check {
    Check::ok(name, "this kernel does not tell")
}

fn load(host: &Host) -> Check {
    const NAME: &str = "load average";
    let Some((load, cores)) = host.load else {
        return unknown(NAME);
    };
    let words = format!("{load:.2} on {cores} CPUs over the last minute");
    if load <= BUSY_SHARE * cores as f64 {
        Check::ok(NAME, words)
    } else {
        Check::warn(
            NAME,
            words,
            "`top` shows who is at work; wait for it or stop it",
        )
    }
}

fn governor(host: &Host) -> Check {
    const NAME: &str = "governor";
    match host.governor.as_deref() {
        None => unknown(NAME),
        Some("performance") => Check::ok(NAME, "performance"),
        Some(other) => Check::warn(
            NAME,
            format!("{other}: the clock follows the load, and latency the clock"),
            "`cpupower frequency-set -g performance`",
        ),
    }
}

fn turbo(host: &Host) -> Check {
    const NAME: &str = "turbo";
    match host.turbo_is_on {
        None => unknown(NAME),
        Some(false) => Check::ok(NAME, "off"),
        Some(true) => Check::warn(
            NAME,
            "on: the clock depends on heat and on how many cores are busy",
            "write 1 to intel_pstate/no_turbo, or 0 to cpufreq/boost, in /sys/devices/system/cpu",
        ),
    }
}

fn smt(host: &Host) -> Check {
    const NAME: &str = "SMT";
    match host.smt_is_on {
        None => unknown(NAME),
        Some(false) => Check::ok(NAME, "off: every CPU is a core"),
        // Servers run with it: what is measured is what they will have.
        Some(true) => Check::ok(
            NAME,
            "on: two CPUs share a core, so one of them is less than one",
        ),
    }
}

fn swap(host: &Host) -> Check {
    const NAME: &str = "swap";
    match host.swap {
        None => unknown(NAME),
        Some((_, 0)) => Check::ok(NAME, "none"),
        Some((0, total)) => Check::ok(NAME, format!("unused of {}", format_bytes(total))),
        Some((used, total)) => Check::warn(
            NAME,
            format!("{} of {} in use", format_bytes(used), format_bytes(total)),
            "`swapoff -a` while you measure: a page that must be read back looks like a slow service",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::CheckState;

    fn warned(host: &Host) -> Vec<&'static str> {
        let checks = checks(host).into_iter();
        checks
            .filter(|check| check.state == CheckState::Warn)
            .map(|check| check.name)
            .collect()
    }

    #[test]
    fn what_makes_figures_waver_warns() {
        let quiet = Host {
            load: Some((0.2, 2)),
            governor: Some("performance".to_owned()),
            turbo_is_on: Some(false),
            smt_is_on: Some(true),
            swap: Some((0, 1 << 30)),
        };
        assert_eq!(warned(&quiet), [""; 0]);
        let restless = Host {
            load: Some((0.21, 2)),
            governor: Some("powersave".to_owned()),
            turbo_is_on: Some(true),
            smt_is_on: Some(true),
            swap: Some((1, 1 << 30)),
        };
        assert_eq!(
            warned(&restless),
            ["load average", "governor", "turbo", "swap"]
        );
        assert_eq!(warned(&Host::default()), [""; 0]);
    }

    #[test]
    fn swap_is_read_from_the_kernel_s_text_or_not_at_all() {
        let text = "MemTotal: 1 kB\nSwapTotal:     2048 kB\nSwapFree:      1024 kB\n";
        assert_eq!(swap_of(text), Some((1 << 20, 2 << 20)));
        assert_eq!(swap_of("SwapTotal: 5 kB\nSwapFree: 6 kB"), None);
        assert_eq!(swap_of("SwapTotal: 5 kB"), None);
    }
}
