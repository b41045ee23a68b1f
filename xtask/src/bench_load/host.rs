//! The host as it is now: what it is, and what else it does.

use fs_err as fs;

use crate::steps::{StepError, Steps, program};

/// Clock ticks a second in /proc, on every architecture Rust's Linux has std for.
const TICKS_PER_S: f64 = 100.0;

/// CPU time of the whole host since it started. **Units**: seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostCpu {
    /// In programs and in the kernel on their behalf.
    pub(super) busy_s: f64,
    /// Wanted, and given to another machine on the same hardware.
    pub(super) stolen_s: f64,
}

impl HostCpu {
    /// Reads /proc/stat.
    pub(super) fn now() -> Result<Self, StepError> {
        let text = fs::read_to_string("/proc/stat")?;
        Self::parsed(&text)
            .ok_or_else(|| StepError::new("/proc/stat does not say the host's CPU time"))
    }

    fn parsed(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .map_while(|word| word.parse().ok())
            .collect();
        // user, nice, system, idle, iowait, irq, softirq, steal.
        Some(Self {
            busy_s: (ticks.first()? + ticks.get(1)? + ticks.get(2)?) / TICKS_PER_S,
            stolen_s: ticks.get(7).unwrap_or(&0.0) / TICKS_PER_S,
        })
    }

    /// What went by since an earlier look.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            busy_s: self.busy_s - earlier.busy_s,
            stolen_s: self.stolen_s - earlier.stolen_s,
        }
    }
}

/// User and system time of a process that runs, its threads included. **Units**: seconds.
pub(super) fn cpu_of(pid: u32) -> Result<f64, StepError> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    cpu_in_stat(&text)
        .ok_or_else(|| StepError::new(format!("/proc/{pid}/stat does not say the CPU time")))
}

fn cpu_in_stat(text: &str) -> Option<f64> {
    // The name may hold spaces and brackets; what follows its last bracket is the third field.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

/// One number of /proc/PID/status, such as `VmHWM`; nothing where the process is gone.
pub(super) fn status_kib(pid: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status_line(&text, name)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn status_line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// Which CPUs the threads of a process may use, where they are not as they should be.
pub(super) fn stray_cpus(pid: u32, allowed: &str) -> Option<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads.filter_map(Result::ok).find_map(|thread| {
        let text = fs::read_to_string(thread.path().join("status")).ok()?;
        let cpus = status_line(&text, "Cpus_allowed_list")?;
        (cpus != allowed).then(|| cpus.to_owned())
    })
}

/// The load averages and the number of processes.
pub(super) fn load_average() -> String {
    fs::read_to_string("/proc/loadavg")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Commit, CPU, cores, kernel and limits, as a list.
pub(super) fn about(steps: &Steps) -> String {
    let ask = |name: &str, words: &[&str]| {
        steps
            .ask(&mut program(name, words))
            .unwrap_or_else(|| "unknown".to_owned())
    };
    let commit = ask("git", &["rev-parse", "--short", "HEAD"]);
    let changed = match ask("git", &["status", "--porcelain"]).as_str() {
        "" => "",
        _ => ", with changes that are not committed",
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let model = fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown CPU".to_owned());
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        .map_or_else(
            |_| "not to be seen".to_owned(),
            |text| text.trim().to_owned(),
        );
    let kernel = ask("uname", &["-sr"]);
    format!(
        "- commit {commit}{changed}\n- {model}, {cores} cores; frequency governor {governor}\n- {kernel}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let text = "42 (a b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 75 9 9 20 0 3 0 100 1 2";
        assert_eq!(cpu_in_stat(text), Some(3.25));
        assert_eq!(cpu_in_stat("42 (cut off) S 1"), None);
    }

    #[test]
    fn waiting_and_interrupts_are_not_busy() {
        let text = "cpu  100 20 30 4000 50 6 7 80 0 0\ncpu0 1 1 1 1\n";
        let cpu = HostCpu::parsed(text).expect("a line of the whole host");
        assert!((cpu.busy_s - 1.5).abs() < 1e-9);
        assert!((cpu.stolen_s - 0.8).abs() < 1e-9);
    }

    #[test]
    fn a_status_line_is_found_by_its_whole_name() {
        let text = "VmHWMx:\t1 kB\nVmHWM:\t  5212 kB\nCpus_allowed_list:\t0\n";
        assert_eq!(status_line(text, "VmHWM"), Some("5212 kB"));
        assert_eq!(status_line(text, "Cpus_allowed_list"), Some("0"));
        assert_eq!(status_line(text, "Threads"), None);
    }
}
