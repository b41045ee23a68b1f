//! Hosts and stacks that cannot be measured: the rows and exit codes.

use std::time::Duration;

use super::{Phases, Testbed};
use crate::support::repository;

const SHORT: Phases = Phases {
    warm_up: 1,
    latency: None,
    stress: 3,
};

#[test]
fn tiers_larger_than_the_host_are_refused_before_anything_starts() {
    let testbed = Testbed::beside_others();
    let cores = std::thread::available_parallelism().unwrap().get();
    let too_large = cores * 2;
    testbed.matrix(&format!("cpus = [1, {too_large}]\nweb = [2]"), SHORT, "");
    let ended = testbed.run(&["run"]).exits(3);
    let tier = format!("cpus = {too_large}");
    assert!(ended.stderr.contains(&tier), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--skip-too-large"),
        "{}",
        ended.stderr
    );
    assert!(!testbed.sandbox.path().join("results").exists());
    testbed.assert_nothing_left();

    // The flag cannot help where no tier fits.
    testbed.matrix(&format!("cpus = [{too_large}]\nweb = [2]"), SHORT, "");
    testbed.run(&["run", "--skip-too-large"]).exits(3);
}

#[test]
fn skipped_tiers_have_rows_that_say_why() {
    let testbed = Testbed::beside_others();
    testbed.matrix("cpus = [1, 64]\nweb = [2]", SHORT, "");
    testbed.run(&["run"]).exits(3);
    testbed.run(&["run", "--skip-too-large"]).exits(0);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    let verdicts: Vec<(&str, &str, &str)> = rows
        .iter()
        .map(|row| {
            (
                row.text("axis_cpus"),
                row.text("verdict"),
                row.text("reason"),
            )
        })
        .collect();
    assert_eq!(
        verdicts,
        [("1", "valid", ""), ("64", "skipped", "cpus_exceed_host")]
    );
    assert_eq!(rows[1].text("throughput_rps"), "", "missing is empty");
}

#[test]
fn a_service_that_never_gets_ready_is_a_row_with_what_was_seen_last() {
    let testbed = Testbed::beside_others();
    testbed.matrix("cpus = [1]\nweb = [2]", SHORT, "\n[override.services.app.environment]\nNEVER_READY = \"true\"\n[override.services.app.healthcheck]\ndisable = true\n");
    let text = std::fs::read_to_string(testbed.sandbox.path().join("matrix.toml")).unwrap();
    testbed.sandbox.write(
        "matrix.toml",
        // Long enough for a database on a slow disk: it must be the service that is not ready.
        &text.replace("ready_timeout = \"60s\"", "ready_timeout = \"25s\""),
    );
    testbed.run(&["run"]).exits(4);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(
        (rows[0].text("verdict"), rows[0].text("reason")),
        ("failed", "not_ready")
    );
    assert!(
        rows[0].text("detail").contains("503"),
        "{}",
        rows[0].text("detail")
    );
    assert!(
        testbed
            .run_folder()
            .join("logs")
            .join("0001-1-app.log")
            .exists()
    );
}

#[test]
fn a_wrong_path_is_no_throughput() {
    let testbed = Testbed::beside_others();
    testbed.matrix("cpus = [1]\nweb = [2]", SHORT, "");
    let workload = testbed.sandbox.write(
        "wrong.toml",
        "[[step]]\nname = \"read\"\nmethod = \"GET\"\npath = \"/no/such/path\"\nexpect = { status = 200 }\n",
    );
    let text = std::fs::read_to_string(testbed.sandbox.path().join("matrix.toml")).unwrap();
    let bundled = format!("{}/compose/testbed/workload.toml", repository().display());
    testbed.sandbox.write(
        "matrix.toml",
        &text.replace(&bundled, workload.to_str().unwrap()),
    );
    testbed.run(&["run"]).exits(4);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(
        (rows[0].text("verdict"), rows[0].text("reason")),
        ("failed", "no_success")
    );
    assert_eq!(rows[0].number("successes"), 0.0);
    assert!(rows[0].number("errors") > 10.0);
    let operations = std::fs::read_to_string(testbed.run_folder().join("operations.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(operations.as_bytes());
    let column = reader
        .headers()
        .unwrap()
        .iter()
        .position(|name| name == "errors_status")
        .unwrap();
    let first = reader.records().next().unwrap().unwrap();
    assert_eq!(
        first[column].parse::<f64>().unwrap(),
        rows[0].number("errors"),
        "all of them by status"
    );
    assert!(
        rows[0].text("detail").contains("404"),
        "{}",
        rows[0].text("detail")
    );
}

#[test]
fn ctrl_c_tears_the_trial_down_and_leaves_a_row_for_every_trial() {
    let testbed = Testbed::beside_others();
    testbed.matrix(
        "cpus = [1]\nweb = [2, 3]",
        Phases {
            warm_up: 30,
            latency: None,
            stress: 30,
        },
        "",
    );
    let running = testbed.start(&["run"]);
    testbed.container_of("app");
    running.signal("INT");
    let ended = running.end(Duration::from_secs(30)).exits(130);
    testbed.assert_nothing_left();
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    let rows = testbed.rows();
    let reasons: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row.text("verdict"), row.text("reason")))
        .collect();
    assert_eq!(
        reasons,
        [("failed", "interrupted"), ("skipped", "interrupted")]
    );
}

#[test]
fn an_image_that_nobody_has_is_an_environment_error() {
    let testbed = Testbed::beside_others();
    testbed.matrix(
        "cpus = [1]\nweb = [2]",
        SHORT,
        "\n[override.services.app]\nimage = \"nightsweep/does-not-exist:1\"\n",
    );
    let ended = testbed.run(&["run"]).exits(3);
    assert!(
        ended.stderr.contains("nightsweep/does-not-exist:1"),
        "{}",
        ended.stderr
    );
    assert!(!testbed.sandbox.path().join("results").exists());
}
