//! Several journeys, set-ups, data and steps that repeat, on the real testbed.

use super::Testbed;
use crate::support::repository;

/// Writes one of the worked examples into the sandbox, with shorter phases.
fn example(testbed: &Testbed, name: &str, shorter: &[(&str, &str)]) {
    let folder = repository().join("compose/testbed/workloads");
    let text = std::fs::read_to_string(folder.join(format!("{name}-matrix.toml"))).unwrap();
    let mut text = text
        .replace(
            "../compose.yaml",
            &format!("{}/../compose.yaml", folder.display()),
        )
        .replace(
            &format!("{name}.toml"),
            &format!("{}/{name}.toml", folder.display()),
        );
    for (from, to) in shorter {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    testbed.sandbox.write("matrix.toml", &text);
}

/// Rows of operations.csv as (window and step, kind, name, successes, errors).
fn operations(testbed: &Testbed) -> Vec<(String, String, String, u64, u64)> {
    let text = std::fs::read_to_string(testbed.run_folder().join("operations.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|column| column == name).unwrap();
    let columns = [
        at("step"),
        at("kind"),
        at("name"),
        at("successes"),
        at("errors"),
    ];
    let records = reader.records();
    records
        .map(|record| {
            let record = record.unwrap();
            let [step, kind, name, successes, errors] =
                columns.map(|index| record[index].to_owned());
            (
                step,
                kind,
                name,
                successes.parse().unwrap(),
                errors.parse().unwrap(),
            )
        })
        .collect()
}

#[test]
fn editors_readers_and_workers_run_side_by_side() {
    let testbed = Testbed::new();
    let shorter = [
        ("cpus = [0.5, 1]", "cpus = [1]"),
        ("duration = \"5s\"", "duration = \"2s\""),
        ("hold = \"10s\"", "hold = \"3s\""),
    ];
    example(&testbed, "editors", &shorter);
    testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    for row in testbed.rows() {
        assert_ne!(row.text("verdict"), "failed", "{row:?}");
        assert_eq!(row.number("errors"), 0.0, "{row:?}");
    }
    let all = operations(&testbed);
    for journey in ["editor", "reader", "worker"] {
        let own = |(step, kind, name, successes, errors): &(String, String, String, u64, u64)| {
            (step == "2" && kind == "journey" && name == journey).then_some((*successes, *errors))
        };
        let (successes, errors) = all.iter().find_map(own).unwrap();
        assert!(successes > 0 && errors == 0, "{journey}: {all:?}");
    }
    assert!(
        !all.iter().any(|(_, _, name, ..)| name == "sign in"),
        "{all:?}"
    );
}

#[test]
fn a_mix_of_endpoints_runs_with_a_journey_beside_it() {
    let testbed = Testbed::new();
    let shorter = [
        ("web  = [2, 4]", "web  = [4]"),
        ("duration = \"5s\"", "duration = \"1s\""),
        ("[100, 200, 400]", "[50, 100]"),
        (
            "ramp = \"5s\", hold = \"15s\"",
            "ramp = \"1s\", hold = \"4s\"",
        ),
    ];
    example(&testbed, "endpoints", &shorter);
    testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(rows.len(), 2);
    for (row, rate) in rows.iter().zip([50.0, 100.0]) {
        assert_eq!(row.number("planned_rate_rps"), rate);
        let due = row.number("due");
        assert!(
            (due / (4.0 * rate) - 1.0).abs() < 0.4,
            "its own load alone: {row:?}"
        );
        assert_eq!(row.number("errors"), 0.0, "{row:?}");
        assert!(row.number("successes") > 0.9 * due, "{row:?}");
        assert_ne!(row.text("verdict"), "failed", "{row:?}");
    }
    let all = operations(&testbed);
    let beside = all
        .iter()
        .filter(|(_, kind, name, ..)| kind == "operation" && name == "health");
    let beside: Vec<u64> = beside.map(|(_, _, _, successes, _)| *successes).collect();
    assert_eq!(beside, [20, 20], "five a second, whatever the rest does");
}

#[test]
fn a_decision_of_three_calls_climbs_its_ladder_of_users() {
    let testbed = Testbed::new();
    let shorter = [
        ("web  = [2, 4]", "web  = [4]"),
        ("duration = \"10s\"", "duration = \"1s\""),
        (
            "ramp = \"5s\", hold = \"20s\"",
            "ramp = \"500ms\", hold = \"2s\"",
        ),
    ];
    example(&testbed, "decision", &shorter);
    testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(rows.len(), 4, "a row for each step");
    for (row, users) in rows.iter().zip([50.0, 100.0, 150.0, 200.0]) {
        assert_eq!(row.number("users"), users, "{row:?}");
        assert_eq!(row.number("errors"), 0.0, "every body was checked: {row:?}");
        assert!(row.number("successes") > users, "{row:?}");
        assert_ne!(row.text("verdict"), "failed", "{row:?}");
    }
    let all = operations(&testbed);
    let calls: Vec<_> = all
        .iter()
        .filter(|(_, kind, ..)| kind == "operation")
        .collect();
    assert_eq!(calls.len(), 12, "three calls in four steps: {all:?}");
    for (_, _, name, successes, _) in calls {
        assert!(*successes > 10, "{name}: {successes}");
    }
}
