//! What the engine says about itself, judged.

use crate::engine::{DockerEngine, Engine, EngineError, Examination, HostFacts};
use crate::problem::chain;
use crate::report::Check;
use crate::units::format_bytes;

/// Below this an evening's images and databases fill the disk.
const LEAST_FREE_BYTES: u64 = 10 << 30;

/// Looks at the engine; what it does not answer is a check that failed.
pub(super) async fn checks(engine: &DockerEngine) -> Vec<Check> {
    let facts = match engine.describe().await {
        Ok(facts) => facts,
        Err(error) => return vec![failed(&error)],
    };
    let seen = engine.examine(facts.direct).await;
    let folder = seen.as_ref().ok().and_then(|seen| seen.data_folder.clone());
    let free_bytes = folder.as_deref().and_then(free_bytes);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    judge(&facts, seen.as_ref(), free_bytes, cores)
}

/// A call that failed, as a check.
pub(super) fn failed(error: &EngineError) -> Check {
    let hint = error.hint().unwrap_or("see the engine's own log");
    Check::fail("engine", chain(error), hint)
}

/// Judges what was seen. Pure.
fn judge(
    facts: &HostFacts,
    seen: Result<&Examination, &EngineError>,
    free_bytes: Option<u64>,
    cores_here: usize,
) -> Vec<Check> {
    let mut checks = vec![endpoint(facts), version(facts)];
    match seen {
        Ok(seen) => {
            let warnings = seen.warnings.iter();
            let see = "see the engine's manual";
            checks.extend(warnings.map(|warning| Check::warn("engine", warning, see)));
        }
        Err(error) => checks.push(failed(error)),
    }
    checks.push(storage(facts));
    let groups = format!("version {}", facts.cgroup_version);
    checks.push(Check::ok("control groups", groups));
    checks.extend(seen.ok().map(proof));
    checks.extend([
        path(facts),
        cpus(facts, cores_here),
        Check::ok("memory", format_bytes(facts.memory_bytes)),
    ]);
    if let Ok(seen) = seen {
        checks.extend([disk(seen, free_bytes), others(seen)]);
    }
    checks
}

fn endpoint(facts: &HostFacts) -> Check {
    let mut words = format!("{} ({})", facts.endpoint, facts.endpoint_reason);
    for passed_over in &facts.endpoint_passed_over {
        words.push_str("\nnot ");
        words.push_str(passed_over);
    }
    Check::ok("endpoint", words)
}

fn version(facts: &HostFacts) -> Check {
    let words = format!(
        "{}, API {}, {}, kernel {}",
        facts.engine_version, facts.api_version, facts.operating_system, facts.kernel
    );
    Check::ok("engine", words)
}

fn storage(facts: &HostFacts) -> Check {
    let driver = facts.storage_driver.as_str();
    match driver {
        "vfs" | "fuse-overlayfs" => Check::warn(
            "storage driver",
            format!("{driver}: slow in a container's own files"),
            "keep databases on volumes; `overlay2` where the engine's file system allows it",
        ),
        _ => Check::ok("storage driver", driver),
    }
}

fn proof(seen: &Examination) -> Check {
    if seen.kernel_is_readable {
        Check::ok("proof", "limits can be read from the kernel")
    } else {
        Check::warn(
            "proof",
            "limits can be read by inspect alone",
            "run nightsweep on the engine's own host to read them from the kernel",
        )
    }
}

fn path(facts: &HostFacts) -> Check {
    match (facts.direct, facts.local) {
        (true, _) => Check::ok("path", "containers are reached at their own addresses"),
        (false, true) => Check::warn(
            "path",
            "containers are reached through published ports, by a proxy",
            "run nightsweep on the engine's own host: the proxy takes CPU time and adds latency",
        ),
        (false, false) => Check::fail(
            "path",
            "containers of this engine cannot be reached from here",
            "run nightsweep on the engine's own host",
        ),
    }
}

fn cpus(facts: &HostFacts, cores_here: usize) -> Check {
    let words = format!("{} of the engine, {cores_here} here", facts.cpus);
    if facts.cpus >= 4 {
        Check::ok("CPUs", words)
    } else {
        Check::warn(
            "CPUs",
            words,
            "load, database and service share them: on 4 or more they can be kept apart",
        )
    }
}

fn disk(seen: &Examination, free_bytes: Option<u64>) -> Check {
    match (&seen.data_folder, free_bytes) {
        (Some(folder), Some(bytes)) => {
            let words = format!("{} free in {}", format_bytes(bytes), folder.display());
            if bytes >= LEAST_FREE_BYTES {
                Check::ok("disk", words)
            } else {
                Check::warn("disk", words, "`docker system df` shows what fills it")
            }
        }
        // Nothing is wrong with that: it is just not known.
        _ => Check::ok("disk", "what is free cannot be seen from here"),
    }
}

fn others(seen: &Examination) -> Check {
    if seen.others.is_empty() {
        Check::ok("other containers", "none runs")
    } else {
        Check::warn(
            "other containers",
            format!("{} run: {}", seen.others.len(), seen.others.join(", ")),
            "stop them while you measure: they share CPU, disk and memory",
        )
    }
}

fn free_bytes(folder: &std::path::Path) -> Option<u64> {
    let seen = rustix::fs::statvfs(folder).ok()?;
    seen.f_bavail.checked_mul(seen.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{CheckState, doctor_text};

    fn facts() -> HostFacts {
        HostFacts {
            endpoint: "unix:///var/run/docker.sock".to_owned(),
            endpoint_reason: "the usual socket of the Docker Engine".to_owned(),
            engine_version: "28.1".to_owned(),
            api_version: "1.49".to_owned(),
            operating_system: "Debian".to_owned(),
            kernel: "6.1".to_owned(),
            storage_driver: "overlay2".to_owned(),
            cgroup_version: "2".to_owned(),
            cpus: 16,
            memory_bytes: 64 << 30,
            direct: true,
            local: true,
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_fit_engine_is_all_ok() {
        let seen = Examination {
            data_folder: Some("/var/lib/docker".into()),
            kernel_is_readable: true,
            ..Examination::default()
        };
        let checks = judge(&facts(), Ok(&seen), Some(100 << 30), 16);
        insta::assert_snapshot!(doctor_text(&checks), @r"
        ok    endpoint          unix:///var/run/docker.sock (the usual socket of the Docker Engine)
        ok    engine            28.1, API 1.49, Debian, kernel 6.1
        ok    storage driver    overlay2
        ok    control groups    version 2
        ok    proof             limits can be read from the kernel
        ok    path              containers are reached at their own addresses
        ok    CPUs              16 of the engine, 16 here
        ok    memory            64.0 GiB
        ok    disk              100 GiB free in /var/lib/docker
        ok    other containers  none runs
        this host is fit to measure on
        ");
    }

    #[test]
    fn what_the_engine_does_not_answer_is_a_check_that_failed() {
        let error =
            EngineError::timed_out("list", "containers", std::time::Duration::from_secs(30));
        let checks = judge(&facts(), Err(&error), None, 16);
        insta::assert_snapshot!(doctor_text(&checks), @r"
        ok    endpoint        unix:///var/run/docker.sock (the usual socket of the Docker Engine)
        ok    engine          28.1, API 1.49, Debian, kernel 6.1
        FAIL  engine          list containers: no answer within 30s
                              hint: the engine hangs or is overloaded: see its own log, then try again
        ok    storage driver  overlay2
        ok    control groups  version 2
        ok    path            containers are reached at their own addresses
        ok    CPUs            16 of the engine, 16 here
        ok    memory          64.0 GiB
        1 of 8 checks fail: no sweep can run
        ");
    }

    #[test]
    fn everything_that_figures_suffer_from_warns_and_says_what_to_do() {
        let facts = HostFacts {
            endpoint_passed_over: vec!["context `far`: DOCKER_HOST goes before it".to_owned()],
            storage_driver: "vfs".to_owned(),
            cpus: 2,
            direct: false,
            ..facts()
        };
        let seen = Examination {
            data_folder: Some("/d".into()),
            others: vec!["web".to_owned()],
            kernel_is_readable: false,
            warnings: vec!["WARNING: no swap limit support".to_owned()],
        };
        let checks = judge(&facts, Ok(&seen), Some(1 << 30), 2);
        let warned: Vec<&str> = checks
            .iter()
            .filter(|check| check.state == CheckState::Warn && check.hint.is_some())
            .map(|check| check.name)
            .collect();
        assert_eq!(
            warned,
            [
                "engine",
                "storage driver",
                "proof",
                "path",
                "CPUs",
                "disk",
                "other containers"
            ]
        );
        assert!(checks[0].words.contains("\nnot context `far`"));
        let remote = HostFacts {
            local: false,
            ..facts
        };
        assert_eq!(path(&remote).state, CheckState::Fail);
    }
}
