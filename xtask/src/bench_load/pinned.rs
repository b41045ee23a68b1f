//! One program on one CPU, and what it took.
//!
//! CPU time is what the kernel hands to the parent when a child has ended (`wait4`), read by
//! bash's `time`: user and system time of the program and all its threads, from start to end,
//! to the millisecond. Peak memory is `VmHWM`, which only grows, so the last look before the
//! end is short of it by what came after that look alone.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fs_err as fs;

use super::host;
use crate::steps::{StepError, program};

/// The CPU that load is generated on.
pub(super) const GENERATOR_CPU: &str = "0";

/// The small shell becomes the program, once it has said its id.
const SCRIPT: &str = r#"
ulimit -n "$(ulimit -Hn)"
pid=$1 out=$2 err=$3 cpu=$4
shift 4
TIMEFORMAT='%R %U %S'
time taskset --cpu-list "$cpu" sh -c 'echo "$$" >"$0"; exec "$@"' "$pid" "$@" >"$out" 2>"$err" </dev/null
"#;

/// What a program took, and said.
#[derive(Debug)]
pub(super) struct Taken {
    /// From start to end. **Units**: seconds.
    pub(super) wall_s: f64,
    /// User and system time. **Units**: seconds.
    pub(super) cpu_s: f64,
    /// Highest resident memory seen. **Units**: KiB.
    pub(super) peak_kib: u64,
    /// Its standard output.
    pub(super) said: String,
}

/// How closely a program is watched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    /// Time between two looks.
    pub(super) every: Duration,
    /// After this it is ended, and that is an error.
    pub(super) limit: Duration,
}

/// Runs a program to its end; `look` is called at every look.
pub(super) fn run(
    words: &[String],
    folder: &Path,
    watch: Watch,
    mut look: impl FnMut() -> Result<(), StepError>,
) -> Result<Taken, StepError> {
    let name = words.first().cloned().unwrap_or_default();
    let [pid_file, out, err] = ["pid", "out", "err"].map(|file| folder.join(file));
    for file in [&pid_file, &out, &err] {
        fs::write(file, "")?;
    }
    let child = Command::new("bash")
        .args(["-c", SCRIPT, "bench-load"])
        .args([&pid_file, &out, &err])
        .arg(GENERATOR_CPU)
        .args(words)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| StepError::new(format!("cannot start bash: {error}")))?;
    let begun = Instant::now();
    let (sender, ended) = channel();
    let waiter = std::thread::spawn(move || sender.send(child.wait_with_output()));
    let (mut peak_kib, mut trouble) = (0, None);
    let output: Output = loop {
        match ended.recv_timeout(watch.every) {
            Ok(output) => break output?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(StepError::new(format!("nobody waited for `{name}`")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let Some(pid) = pid_in(&pid_file) else {
            continue;
        };
        peak_kib = peak_kib.max(host::status_kib(pid, "VmHWM").unwrap_or(0));
        if trouble.is_none() {
            trouble = look()
                .err()
                .or_else(|| trouble_of(pid, &name, begun, watch));
            if trouble.is_some() {
                end(pid);
            }
        }
    };
    let _ = waiter.join();
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    let said = fs::read_to_string(&out)?;
    let times = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let complaint = fs::read_to_string(&err)?;
        return Err(StepError::new(format!(
            "`{}` ended with {}:\n{said}{complaint}",
            words.join(" "),
            output.status
        )));
    }
    let (wall_s, cpu_s) = times_in(&times)
        .ok_or_else(|| StepError::new(format!("bash says no times of `{name}`: {times}")))?;
    Ok(Taken {
        wall_s,
        cpu_s,
        peak_kib,
        said,
    })
}

fn pid_in(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Why a program must be ended early.
fn trouble_of(pid: u32, name: &str, begun: Instant, watch: Watch) -> Option<StepError> {
    if begun.elapsed() > watch.limit {
        return Some(StepError::new(format!(
            "`{name}` was still running after {:.0} s",
            begun.elapsed().as_secs_f64()
        )));
    }
    host::stray_cpus(pid, GENERATOR_CPU).map(|cpus| {
        StepError::new(format!(
            "`{name}` has threads on CPU {cpus}, not on {GENERATOR_CPU} alone: its figures would not compare"
        ))
    })
}

fn end(pid: u32) {
    let _ = program("kill", &[&pid.to_string()]).status();
}

/// Wall and CPU time of bash's last line.
fn times_in(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    let times: Vec<f64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let [wall_s, user_s, system_s] = times.as_slice() else {
        return None;
    };
    Some((*wall_s, user_s + system_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCH: Watch = Watch {
        every: Duration::from_millis(20),
        limit: Duration::from_secs(20),
    };

    fn folder(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("xtask-pinned-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        path
    }

    fn bash(script: &str) -> Vec<String> {
        ["bash", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn times_are_the_last_line_and_user_and_system_are_summed() {
        assert_eq!(times_in("warning\n2.000 0.250 0.500\n"), Some((2.0, 0.75)));
        assert_eq!(times_in("2.000 0.250\n"), None);
        assert_eq!(times_in(""), None);
    }

    #[test]
    fn cpu_time_of_grandchildren_that_were_waited_for_is_counted() {
        let folder = folder("cpu");
        // A program that spins for a time of its own, in a child.
        let spin = "bash -c 'for ((i = 0; i < 200000; i++)); do :; done'; echo done";
        let taken = run(&bash(spin), &folder, WATCH, || Ok(())).expect("a run");
        let idle = run(&bash("sleep 0.2"), &folder, WATCH, || Ok(())).expect("a run");
        fs::remove_dir_all(&folder).expect("the folder");
        assert_eq!(taken.said, "done\n");
        assert!(taken.cpu_s > 5.0 * idle.cpu_s, "{taken:?} {idle:?}");
        assert!(idle.wall_s >= 0.2, "{idle:?}");
        assert!(idle.peak_kib > 0, "{idle:?}");
    }

    #[test]
    fn a_program_that_fails_or_does_not_end_is_an_error() {
        let folder = folder("fail");
        let error =
            run(&bash("echo why >&2; exit 3"), &folder, WATCH, || Ok(())).expect_err("it failed");
        assert!(error.message.contains("why"), "{}", error.message);
        let watch = Watch {
            limit: Duration::from_millis(50),
            ..WATCH
        };
        let error =
            run(&bash("exec sleep 15"), &folder, watch, || Ok(())).expect_err("it takes too long");
        assert!(error.message.contains("still running"), "{}", error.message);
        fs::remove_dir_all(&folder).expect("the folder");
    }
}
