//! A subject with several containers, driven by an axis.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{Phases, Testbed, docker, wait_until};

const LIMIT: Duration = Duration::from_mins(2);
const REPLICAS: &str = "\n[override.services.app]\ndeploy = { replicas = \"${n}\" }\n";

/// Requests that a container of the testbed has answered, by its own count.
fn requests_of(container: &str) -> Option<u64> {
    let networks = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    let output = std::process::Command::new("docker")
        .args(["inspect", "--format", networks, container])
        .output()
        .unwrap();
    let address = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut stream = TcpStream::connect((address, 8080)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: app:8080\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let counts = text
        .lines()
        .filter(|line| line.starts_with("http_requests_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Some(counts.sum::<f64>() as u64)
}

#[test]
fn an_axis_drives_the_replicas_and_each_has_its_share_of_the_requests() {
    let testbed = Testbed::new();
    let phases = Phases {
        warm_up: 1,
        latency: Some(3),
        stress: 3,
    };
    testbed.matrix("cpus = [0.3]\nweb = [8]\nn = [2, 3]", phases, REPLICAS);
    // Six users are whole numbers of connections for two and for three.
    let path = testbed.sandbox.path().join("matrix.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    testbed.sandbox.write(
        "matrix.toml",
        &text.replace("closed = { users = 4 }", "closed = { users = 6 }"),
    );
    let running = testbed.start(&["run"]);
    // The last counts before each trial's containers go.
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut trials: BTreeMap<String, Vec<String>> = BTreeMap::new();
    wait_until(LIMIT, || {
        let containers = testbed.running("app");
        for container in containers.lines() {
            let trial = docker_label(container, "nightsweep.trial");
            if let (Some(trial), Some(count)) = (trial, requests_of(container)) {
                let known = trials.entry(trial).or_default();
                if !known.contains(&container.to_owned()) {
                    known.push(container.to_owned());
                }
                counts.insert(container.to_owned(), count);
            }
        }
        containers.is_empty() && trials.len() == 2
    });
    running.end(LIMIT).exits(0);
    testbed.assert_nothing_left();

    let rows = testbed.rows();
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert_eq!(row.text("verdict"), "valid", "{row:?}");
        assert_eq!(row.text("proof"), "kernel");
        assert_eq!(row.text("replicas"), row.text("axis_n"));
        let n = row.number("replicas");
        assert!((row.number("subject_cpu_limit_cores") - 0.3 * n).abs() < 1e-9);
        assert!(row.number("subject_cpu_cores") > 0.0);
        assert!(
            (1.0..1.5).contains(&row.number("replica_imbalance")),
            "{row:?}"
        );
    }
    for (trial, containers) in &trials {
        let requests: Vec<u64> = containers.iter().map(|id| counts[id]).collect();
        println!("trial {trial}: requests by replica {requests:?}");
        let total: u64 = requests.iter().sum();
        let n = containers.len() as u64;
        // Even within what one of the six connections carries.
        for count in &requests {
            assert!(count.abs_diff(total / n) <= total / 6, "{requests:?}");
        }
    }
    let n_of_trials: Vec<usize> = trials.values().map(Vec::len).collect();
    assert_eq!(n_of_trials, [2, 3]);
}

fn docker_label(container: &str, label: &str) -> Option<String> {
    let format = format!("{{{{index .Config.Labels \"{label}\"}}}}");
    let output = std::process::Command::new("docker")
        .args(["inspect", "--format", &format, container])
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn a_killed_replica_is_named_in_the_row_and_the_next_trial_runs() {
    let testbed = Testbed::beside_others();
    let phases = Phases {
        warm_up: 1,
        latency: None,
        stress: 5,
    };
    testbed.matrix("cpus = [0.3]\nweb = [8, 9]\nn = [2]", phases, REPLICAS);
    let running = super::faults::start(&testbed);
    super::faults::wait_for_phase(&testbed, "stress");
    let containers = testbed.running("app");
    let second = containers
        .lines()
        .find(|id| docker_label(id, "nightsweep.replica").as_deref() == Some("2"))
        .expect("the second replica runs");
    docker(&["kill", second]);
    running.end(LIMIT).exits(4);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(
        (rows[0].text("verdict"), rows[0].text("reason")),
        ("failed", "exited")
    );
    assert_eq!(
        rows[0].text("detail"),
        "service `app#2` exited with code 137 while it was measured"
    );
    assert_eq!(rows[1].text("verdict"), "valid", "{:?}", rows[1]);
    let logs = testbed.run_folder().join("logs");
    for number in 1..=2 {
        assert!(logs.join(format!("0001-1-app#{number}.log")).exists());
    }
}
