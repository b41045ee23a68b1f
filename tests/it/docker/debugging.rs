//! What gets a first workload right: `up`, `down`, `load`; and whether the
//! generator's figures agree with the service's own.

use super::{Phases, Testbed};
use crate::support::repository;

const NONE: Phases = Phases {
    warm_up: 1,
    latency: None,
    stress: 2,
};

/// The value of every series of a Prometheus text, summed.
fn sum_of(metrics: &str, series: &str) -> f64 {
    metrics
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(series))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

fn get(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let host = address.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_cell_is_brought_up_looked_at_and_taken_down() {
    let testbed = Testbed::new();
    testbed.matrix("cpus = [1]\nweb = [4]", NONE, "");
    let wrong = testbed.run(&["up", "--cell", "cpus-1__web-5"]).exits(2);
    assert!(wrong.stderr.contains("cpus-1__web-4"), "{}", wrong.stderr);

    let up = testbed
        .run(&["up", "--cell", "cpus-1__web-4", "--detach"])
        .exits(0);
    let address = up.stdout.trim().to_owned();
    let workload = repository().join("compose/testbed/workload.toml");
    let workload = workload.to_str().unwrap();

    let once = testbed
        .sandbox
        .run(&[
            "load",
            workload,
            "--target",
            &address,
            "--once",
            "--verbose",
        ])
        .exits(0);
    assert_eq!(
        once.stdout.matches("HTTP 201").count(),
        9,
        "{}",
        once.stdout
    );
    assert!(once.stdout.contains("create Patient"), "{}", once.stdout);
    assert!(once.stdout.contains("delete Patient"), "{}", once.stdout);

    generator_and_service_agree(&testbed, &address, workload);

    testbed.sandbox.run(&["down"]).exits(0);
    testbed.assert_nothing_left();
}

/// Six users, each with at most one request cut off when the load ends; the open loop
/// has fewer journeys under way.
const MOST_IN_FLIGHT: f64 = 6.0;

/// Every request the generator sent is one the service counted, by its own counter.
fn generator_and_service_agree(testbed: &Testbed, address: &str, workload: &str) {
    for pacing in [["--closed", "6"], ["--open", "300"]] {
        let before = sum_of(&get(address, "/metrics"), "http_requests_total");
        let arguments = [
            "load",
            workload,
            "--target",
            address,
            pacing[0],
            pacing[1],
            "--duration",
            "4s",
            "--json",
        ];
        let ended = testbed.sandbox.run(&arguments).exits(0);
        let after = sum_of(&get(address, "/metrics"), "http_requests_total");
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let number = |key: &str| report[key].as_f64().unwrap();
        assert_eq!(
            number("errors") + number("refused") + number("abandoned"),
            0.0,
            "{}",
            ended.stdout
        );
        assert_eq!(number("successes"), number("requests"));
        // Load goes on unrecorded while the window's last answers come in; what is in
        // flight when it stops may be in the service's count or in ours alone.
        let counted = after - before;
        let outside = number("outside_window");
        let gap = (counted - number("successes") - outside).abs();
        assert!(
            gap <= MOST_IN_FLIGHT,
            "a gap of {gap}, {pacing:?}: {}",
            ended.stdout
        );
        assert!(
            outside < 0.05 * counted,
            "{outside} of {counted} outside the window"
        );
        assert_eq!(report["verdict"], "valid", "{}", ended.stdout);
    }
}
