//! Proofs that nothing but the service itself, or a look inside a window, can give.

use std::time::Duration;

use super::faults::{start, wait_for_phase};
use super::{Phases, Testbed, docker};
use crate::support::repository;

const SHORT: Phases = Phases {
    warm_up: 1,
    latency: None,
    stress: 3,
};

const PROVE: &str = "\n[[prove]]\nurl = \"http://app:8080/metrics\"\nseries = \"web_threads\"\nequals = \"${web_threads}\"\n\
    [[prove]]\nurl = \"http://app:8080/metrics\"\nseries = \"db_pool_size\"\nequals = \"${db_pool}\"\n";

#[test]
fn a_misspelt_variable_passes_every_other_proof_and_fails_as_a_knob() {
    let testbed = Testbed::beside_others();
    let stack = repository().join("compose/testbed");
    let text = std::fs::read_to_string(stack.join("compose.yaml")).unwrap();
    testbed.sandbox.write(
        "compose.yaml",
        &text.replace("WEB_THREADS:", "WEB_THREADZ:"),
    );
    // Two threads, where the testbed without the variable has another number of its own.
    let matrix = |more: &str| {
        testbed.matrix("cpus = [1]\nweb = [3]", SHORT, more);
        let path = testbed.sandbox.path().join("matrix.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let bundled = format!("{}/compose.yaml", stack.display());
        testbed
            .sandbox
            .write("matrix.toml", &text.replace(&bundled, "compose.yaml"));
    };
    matrix("");
    testbed.run(&["run"]).exits(0);
    for row in testbed.rows() {
        assert_eq!(
            (row.text("verdict"), row.text("proof")),
            ("valid", "kernel"),
            "{row:?}"
        );
    }
    std::fs::remove_dir_all(testbed.sandbox.path().join("results")).unwrap();

    matrix(PROVE);
    testbed.run(&["run"]).exits(4);
    testbed.assert_nothing_left();
    for row in testbed.rows() {
        assert_eq!(
            (row.text("verdict"), row.text("reason")),
            ("failed", "knob_not_applied")
        );
        let detail = row.text("detail");
        println!("{detail}");
        for word in [
            "`web_threads` at http://app:8080/metrics",
            "should be 3",
            "and it is",
        ] {
            assert!(detail.contains(word), "{detail}");
        }
        assert_eq!(row.text("throughput_rps"), "");
    }
}

#[test]
fn knobs_that_are_applied_are_asked_twice_and_kept_with_the_trial() {
    let testbed = Testbed::beside_others();
    testbed.matrix("cpus = [1]\nweb = [3]", SHORT, PROVE);
    testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    let text = std::fs::read_to_string(testbed.run_folder().join("proofs.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let edges: Vec<&str> = lines
        .iter()
        .map(|line| line["edge"].as_str().unwrap())
        .collect();
    assert_eq!(edges, ["ready", "start", "end", "end"], "{text}");
    assert_eq!(lines[0]["knobs"][0]["found"], "3");
    assert_eq!(lines[3]["knobs"][1]["found"], "4");
    let app = &lines[1]["services"]["app"];
    assert_eq!(
        app["environment"]["WEB_THREADS"]["process"], "3",
        "a value of the cell is the result"
    );
    let user = app["environment"]["PGUSER"]["inspect"].as_str().unwrap();
    assert!(user.starts_with("secret:"), "{user}");
    assert_eq!(app["image"]["planned"], app["image"]["inspect"]);
    assert_eq!(app["environment_changed"], serde_json::json!([]));
}

#[test]
fn a_limit_that_is_changed_and_changed_back_inside_a_window_fails_the_trial() {
    let testbed = Testbed::beside_others();
    let long = Phases { stress: 8, ..SHORT };
    testbed.matrix("cpus = [1]\nweb = [2]", long, "");
    let running = start(&testbed);
    wait_for_phase(&testbed, "stress");
    let app = testbed.container_of("app");
    std::thread::sleep(Duration::from_millis(1_500));
    docker(&["update", "--cpus", "2", &app]);
    std::thread::sleep(Duration::from_millis(1_500));
    // The trial may be over already: then there is nothing to change back.
    let _ = std::process::Command::new("docker")
        .args(["update", "--cpus", "1", &app])
        .output();
    running.end(Duration::from_mins(1)).exits(4);
    testbed.assert_nothing_left();
    let row = &testbed.rows()[0];
    assert_eq!(row.text("reason"), "limits_not_applied", "{row:?}");
    let detail = row.text("detail");
    assert!(
        detail.starts_with("while the window was open, service `app` should have cpus 1 and has 2"),
        "{detail}"
    );
}
