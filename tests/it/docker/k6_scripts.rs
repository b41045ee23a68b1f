//! Scripts of every kind that teams write, each in a cell of its own on the real testbed,
//! held against what k6 itself wrote of the same run.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::{Row, Testbed};
use crate::support::repository;

/// The window's edges are known to the millisecond: what was sent so near one may be on either
/// side of it.
const NEAR_NS: i128 = 2_000_000;

/// One script, and what its row must say.
struct Case {
    script: &'static str,
    /// Operations of the window, in any order. What set-up and tear-down sent is not among them.
    operations: &'static [&'static str],
    flags: &'static [&'static str],
    /// Where its window is.
    window: &'static str,
}

const WHOLE: &str = "from = \"0s\"";

/// One request as k6 wrote it.
#[derive(Debug, Clone)]
struct Truth {
    sent_ns: i128,
    ms: f64,
    is_expected: bool,
    scenario: String,
}

#[test]
fn constant_users_with_groups_and_checks() {
    agrees_with_k6(&Case {
        script: "groups.js",
        operations: &[
            "POST /fhir/Patient",
            "read patient",
            "search",
            "GET /fhir/Patient/nobody",
        ],
        flags: &["errors"],
        window: WHOLE,
    });
}

#[test]
fn ramping_stages_with_thresholds() {
    agrees_with_k6(&Case {
        script: "stages.js",
        operations: &["new ward"],
        flags: &["threshold_crossed"],
        window: WHOLE,
    });
}

#[test]
fn arrivals_at_a_rate() {
    agrees_with_k6(&Case {
        script: "arrivals.js",
        operations: &[
            "POST /fhir/MedicationRequest",
            "GET /fhir/MedicationRequest/${}",
        ],
        flags: &[],
        window: WHOLE,
    });
}

#[test]
fn one_of_several_scenarios() {
    agrees_with_k6(&Case {
        script: "scenarios.js",
        operations: &["POST /fhir/Claim"],
        flags: &[],
        window: "scenario = \"writers\"",
    });
}

#[test]
fn set_up_with_a_token() {
    agrees_with_k6(&Case {
        script: "token.js",
        operations: &["POST /fhir/Observation"],
        flags: &[],
        window: WHOLE,
    });
}

#[test]
fn batches_by_iterations() {
    agrees_with_k6(&Case {
        script: "batch.js",
        operations: &["GET /fhir/Patient", "GET /fhir/Encounter", "photo"],
        flags: &[],
        // It ends by its iterations, of at least 50 ms each.
        window: "from = \"0s\"\nduration = \"1s\"",
    });
}

#[test]
fn a_base_url_that_is_written_in() {
    agrees_with_k6(&Case {
        script: "localhost.js",
        operations: &["POST /fhir/Organization", "GET /fhir/Organization"],
        flags: &[],
        window: WHOLE,
    });
}

/// Runs it in one cell and holds its row against what k6 wrote.
fn agrees_with_k6(case: &Case) {
    let testbed = Testbed::beside_others();
    let own = testbed.sandbox.path().join("own.json");
    for script in [case.script, "lib/claims.js"] {
        testbed.sandbox.write(script, &text_of(script));
    }
    testbed.script_matrix(case.script, case.window, &own);
    testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    let folder = testbed.run_folder();
    let kept = std::fs::read_to_string(folder.join("inputs").join(case.script));
    assert_eq!(kept.unwrap(), text_of(case.script), "unchanged");

    let mut truth = truth(&own);
    truth.retain(|one| !case.window.contains("scenario") || case.window.contains(&one.scenario));
    let rows = testbed.rows();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_agrees(case, row, &truth, starts_at_ns(&folder));
    assert_operations(case, &folder, row);
}

fn text_of(script: &str) -> String {
    std::fs::read_to_string(repository().join("compose/testbed/k6").join(script)).unwrap()
}

impl Testbed {
    /// One cell; the k6 of the tests, which also writes its samples into a file.
    pub(super) fn script_matrix(&self, script: &str, window: &str, own: &Path) {
        let real = std::env::var("NIGHTSWEEP_TEST_K6").unwrap_or_else(|_| "k6".to_owned());
        let wrapper = self.sandbox.write(
            "k6",
            &format!(
                "#!/bin/sh\ncase \" $* \" in *\" run \"*) exec {real} \"$@\" --out json={} ;; esac\nexec {real} \"$@\"\n",
                own.display()
            ),
        );
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "format = 1\n\n[sweep]\nname = \"test\"\nstack = [\"{0}/compose.yaml\"]\nsubject = \"app\"\ntier = \"cpus\"\n\n\
             [axes]\ncpus = [1]\nweb = [4]\n\n[derived]\nweb_threads = \"max(1, round(cpus * web))\"\ndb_pool = \"web_threads + 1\"\n\n\
             [trials]\nrepeats = 1\norder = \"listed\"\nready_timeout = \"60s\"\n\n\
             [load]\nk6 = \"{script}\"\nk6_binary = \"{1}\"\ntarget = \"http://app:8080\"\n\
             ready = {{ path = \"/health\", status = 200 }}\n\n\
             [[phase]]\nname = \"all\"\nwindow = true\nanswers = \"capacity\"\n{window}\n",
            repository().join("compose/testbed").display(),
            wrapper.display(),
        );
        self.sandbox.write("matrix.toml", &text);
    }
}

/// Every request of a scenario that k6 wrote down; those of set-up and tear-down are of none.
fn truth(own: &Path) -> Vec<Truth> {
    let text = std::fs::read_to_string(own).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let points = lines
        .filter(|line: &Value| line["type"] == "Point" && line["metric"] == "http_req_duration");
    points
        .filter_map(|line| {
            let data = &line["data"];
            let scenario = data["tags"]["scenario"].as_str()?.to_owned();
            let at: jiff::Timestamp = data["time"].as_str().unwrap().parse().unwrap();
            let ms = data["value"].as_f64().unwrap();
            Some(Truth {
                sent_ns: at.as_nanosecond() - (ms * 1e6).round() as i128,
                ms,
                is_expected: data["tags"]["expected_response"] == "true",
                scenario,
            })
        })
        .collect()
}

/// The left edge of the only window, by its histogram log.
fn starts_at_ns(folder: &Path) -> i128 {
    let logs = std::fs::read_dir(folder.join("histograms")).unwrap();
    let log = logs.map(|entry| entry.unwrap().path()).next().unwrap();
    let text = std::fs::read_to_string(log).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("#[StartTime: "))
        .unwrap();
    let seconds = line.trim_start_matches("#[StartTime: ");
    let seconds: f64 = seconds.split(' ').next().unwrap().parse().unwrap();
    (seconds * 1e9).round() as i128
}

fn assert_agrees(case: &Case, row: &Row, truth: &[Truth], from: i128) {
    let script = case.script;
    let to = from + (row.number("window_s") * 1e9).round() as i128;
    let is_near =
        |one: &&Truth| (one.sent_ns - from).abs() < NEAR_NS || (one.sent_ns - to).abs() < NEAR_NS;
    let near: Vec<&Truth> = truth.iter().filter(is_near).collect();
    let sure = truth.iter().filter(|one| !is_near(one));
    let sure: Vec<&Truth> = sure
        .filter(|one| from < one.sent_ns && one.sent_ns < to)
        .collect();
    assert!(
        near.len() < 20 && sure.len() > 40,
        "{script}: {} at the edges, {} sure",
        near.len(),
        sure.len()
    );
    let requests = row.number("requests") as usize;
    assert!(
        (sure.len()..=sure.len() + near.len()).contains(&requests),
        "{script}: {requests} requests, k6 wrote {} and {} at the edges",
        sure.len(),
        near.len()
    );
    let n_failed = |of: &[&Truth]| of.iter().filter(|one| !one.is_expected).count();
    let failed = (row.number("errors") + row.number("refused")) as usize;
    assert!(
        (n_failed(&sure)..=n_failed(&sure) + n_failed(&near)).contains(&failed),
        "{script}: {failed} failed, {row:?}"
    );
    assert_eq!(
        row.number("successes") as usize + failed,
        requests,
        "{script}"
    );

    // Whichever of those at the edges are in, the percentile is between these two.
    let p99 = |but_fast: bool| {
        let ms = |of: &[&Truth]| -> Vec<f64> {
            let good = of.iter().filter(|one| one.is_expected);
            good.map(|one| one.ms).collect()
        };
        let mut edge = ms(&near);
        edge.sort_by(f64::total_cmp);
        let mut bounds = Vec::new();
        for taken in 0..=edge.len() {
            let chosen = if but_fast {
                &edge[edge.len() - taken..]
            } else {
                &edge[..taken]
            };
            let mut all = [ms(&sure), chosen.to_vec()].concat();
            all.sort_by(f64::total_cmp);
            bounds.push(all[(all.len() * 99).div_ceil(100) - 1]);
        }
        bounds
    };
    let least = p99(false).into_iter().fold(f64::INFINITY, f64::min);
    let most = p99(true).into_iter().fold(0.0, f64::max);
    let found = row.number("p99_ms");
    assert!(
        (least * 0.999..=most * 1.001).contains(&found),
        "{script}: p99 {found} ms, of k6's samples {least} to {most} ms"
    );
    assert_eq!(
        (row.text("verdict"), row.text("proof")),
        ("valid", "kernel"),
        "{script}: {row:?}"
    );
    let flags: Vec<&str> = row.text("flags").split(';').collect();
    for flag in [
        "errors",
        "threshold_crossed",
        "script_errors",
        "thresholds_unjudged",
    ] {
        assert_eq!(
            flags.contains(&flag),
            case.flags.contains(&flag),
            "{script}: {flags:?}"
        );
    }
}

/// Operations of the first window: those of the script, and nothing of set-up and tear-down.
fn assert_operations(case: &Case, folder: &Path, row: &Row) {
    let mut reader = csv::Reader::from_path(folder.join("operations.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|it| it == name).unwrap();
    let (window, name, requests) = (column("window"), column("name"), column("requests"));
    let kind = column("kind");
    let mut names = Vec::new();
    let mut sum = 0.0;
    for record in reader.records() {
        let record = record.unwrap();
        if record[window] == *row.text("window") && &record[kind] == "operation" {
            names.push(record[name].to_owned());
            sum += record[requests].parse::<f64>().unwrap();
        }
    }
    let mut expected = case.operations.to_vec();
    names.sort();
    expected.sort_unstable();
    assert_eq!(names, expected, "{}", case.script);
    assert_eq!(sum, row.number("requests"), "{}", case.script);
}
