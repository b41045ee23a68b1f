//! What is done to a sweep behind its back.

use std::time::Duration;

use super::{Phases, Testbed, docker, wait_until};

const LIMIT: Duration = Duration::from_mins(2);

/// Waits until the sweep's own events say that a phase has begun.
pub(super) fn wait_for_phase(testbed: &Testbed, phase: &str) {
    let events = testbed.sandbox.path().join("events.jsonl");
    let wanted = format!("\"phase\":\"{phase}\"");
    wait_until(Duration::from_mins(1), || {
        std::fs::read_to_string(&events).is_ok_and(|text| {
            text.lines()
                .any(|line| line.contains("phase_started") && line.contains(&wanted))
        })
    });
}

/// Starts a sweep whose events go to a file.
pub(super) fn start(testbed: &Testbed) -> super::Running {
    let events = std::fs::File::create(testbed.sandbox.path().join("events.jsonl")).unwrap();
    let child = testbed
        .command(&["run", "--json"])
        .stdout(events)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    super::Running::new(child)
}

#[test]
fn a_subject_killed_in_its_window_is_a_failed_row_and_the_next_trial_runs() {
    let testbed = Testbed::beside_others();
    testbed.matrix(
        "cpus = [1]\nweb = [2, 3]",
        Phases {
            warm_up: 2,
            latency: None,
            stress: 6,
        },
        "",
    );
    let running = start(&testbed);
    wait_for_phase(&testbed, "stress");
    docker(&["kill", &testbed.container_of("app")]);
    running.end(LIMIT).exits(4);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].text("verdict"), rows[0].text("reason")),
        ("failed", "exited")
    );
    assert!(
        rows[0].text("detail").contains("137"),
        "{}",
        rows[0].text("detail")
    );
    assert_eq!(
        rows[0].text("throughput_rps"),
        "",
        "half a window is no throughput"
    );
    let log =
        std::fs::read_to_string(testbed.run_folder().join("logs").join("0001-1-app.log")).unwrap();
    assert!(!log.is_empty());
    assert_eq!(rows[1].text("verdict"), "valid");
    let events = std::fs::read_to_string(testbed.sandbox.path().join("events.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(
        (
            last["event"].as_str(),
            last["failed"].as_u64(),
            last["valid"].as_u64()
        ),
        (Some("run_finished"), Some(1), Some(1))
    );
}

#[test]
fn limits_changed_during_warm_up_or_window_fail_the_trial_with_both_values() {
    let testbed = Testbed::beside_others();
    testbed.matrix(
        "cpus = [1]\nweb = [2, 3]",
        Phases {
            warm_up: 3,
            latency: None,
            stress: 4,
        },
        "",
    );
    let running = start(&testbed);
    wait_for_phase(&testbed, "warm-up");
    let first = testbed.container_of("app");
    docker(&["update", "--cpus", "0.7", &first]);
    // The second trial: changed inside the window, seen at its right edge.
    wait_until(LIMIT, || {
        let now = testbed.running("app");
        !now.is_empty() && now != first
    });
    wait_for_phase(&testbed, "stress");
    docker(&["update", "--cpus", "0.6", &testbed.container_of("app")]);
    running.end(LIMIT).exits(4);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    for (row, found) in rows.iter().zip(["0.7", "0.6"]) {
        assert_eq!(
            (row.text("verdict"), row.text("reason")),
            ("failed", "limits_not_applied"),
            "{row:?}"
        );
        let detail = row.text("detail");
        assert!(detail.contains(" 1 ") && detail.contains(found), "{detail}");
        assert_eq!(row.text("throughput_rps"), "");
    }
}

#[test]
fn a_killed_sweep_is_cleaned_up_by_label_and_a_living_one_is_not() {
    let testbed = Testbed::new();
    testbed.matrix(
        "cpus = [1]\nweb = [2]",
        Phases {
            warm_up: 60,
            latency: None,
            stress: 5,
        },
        "",
    );
    let running = testbed.start(&["run"]);
    testbed.container_of("app");
    let kept = testbed.sandbox.run(&["clean"]).exits(0);
    assert!(
        kept.stdout.contains("kept"),
        "its owner lives: {}",
        kept.stdout
    );
    testbed.container_of("app");

    running.signal("KILL");
    assert_eq!(running.end(LIMIT).code, -1);
    let dry = testbed.sandbox.run(&["clean", "--dry-run"]).exits(0);
    assert!(dry.stdout.contains("would be removed"), "{}", dry.stdout);
    testbed.container_of("app");
    testbed.sandbox.run(&["clean"]).exits(0);
    testbed.assert_nothing_left();
}

#[test]
fn a_container_frozen_by_somebody_is_no_measurement() {
    let testbed = Testbed::beside_others();
    testbed.matrix(
        "cpus = [1]\nweb = [2]",
        Phases {
            warm_up: 2,
            latency: None,
            stress: 3,
        },
        "",
    );
    let running = start(&testbed);
    wait_for_phase(&testbed, "stress");
    docker(&["pause", &testbed.container_of("app")]);
    running.end(LIMIT).exits(4);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(
        (rows[0].text("verdict"), rows[0].text("reason")),
        ("failed", "disturbed")
    );
    assert!(rows[0].text("detail").contains("paused"));
}
