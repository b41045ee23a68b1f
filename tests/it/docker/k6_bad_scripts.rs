//! Scripts that k6 itself ends with content, each in a cell of its own on the real testbed: their
//! rows say what they are worth.

use std::io::Read as _;
use std::net::TcpListener;

use serde_json::Value;

use super::{Row, Testbed};

/// The one row of a script, after the exit code the sweep must have.
fn row_of(script: &str, exit_code: i32) -> Row {
    ran(script, exit_code).0
}

/// The same, and what k6 wrote.
fn ran(script: &str, exit_code: i32) -> (Row, Vec<Value>) {
    let testbed = Testbed::beside_others();
    let own = testbed.sandbox.path().join("own.json");
    testbed.sandbox.write("script.js", script);
    testbed.script_matrix("script.js", "from = \"0s\"", &own);
    testbed.run(&["run"]).exits(exit_code);
    testbed.assert_nothing_left();
    let mut rows = testbed.rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let text = std::fs::read_to_string(&own).unwrap();
    let points = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let points = points.filter(|line: &Value| line["type"] == "Point");
    (rows.remove(0), points.collect())
}

fn verdict(row: &Row) -> (&str, &str) {
    (row.text("verdict"), row.text("reason"))
}

#[test]
fn a_script_that_throws_at_every_turn_is_no_measurement() {
    let script = "import http from 'k6/http';\nimport { sleep } from 'k6';\n\
        export const options = { vus: 2, duration: '2s' };\n\
        export default function () {\n  const res = http.get(`${__ENV.BASE_URL}/health`);\n  sleep(0.05);\n  res.json().there.is.nothing;\n}\n";
    let row = row_of(script, 4);
    assert_eq!(verdict(&row), ("failed", "script_failed"), "{row:?}");
    assert!(
        row.text("detail")
            .contains("iterations of the script threw"),
        "{row:?}"
    );
}

#[test]
fn a_script_whose_server_is_not_there_is_no_measurement() {
    // Nobody listens on port 9, and k6 calls thousands of refusals a second a fine result.
    let script = "import http from 'k6/http';\nexport const options = { vus: 2, duration: '2s' };\n\
        export default function () { http.get('http://127.0.0.1:9/'); }\n";
    let row = row_of(script, 4);
    assert_eq!(verdict(&row), ("failed", "no_success"), "{row:?}");
    assert!(
        row.number("errors") > 100.0 && row.text("p99_ms").is_empty(),
        "{row:?}"
    );
}

#[test]
fn a_script_that_gives_up_before_its_window_is_over_has_no_figures() {
    let script = "import http from 'k6/http';\nimport exec from 'k6/execution';\nimport { sleep } from 'k6';\n\
        export const options = { vus: 1, duration: '20s' };\n\
        export default function () {\n  http.get(`${__ENV.BASE_URL}/health`);\n  sleep(0.1);\n  if (__ITER === 9) exec.test.abort('enough');\n}\n";
    let row = row_of(script, 4);
    assert_eq!(verdict(&row), ("failed", "script_ended"), "{row:?}");
    assert!(
        row.text("throughput_rps").is_empty() && row.text("p99_ms").is_empty(),
        "{row:?}"
    );
}

#[test]
fn iterations_that_are_dropped_are_unsent_and_the_p99_of_all_due_is_endless() {
    let script = "import http from 'k6/http';\nimport { sleep } from 'k6';\n\
        export const options = { scenarios: { much: { executor: 'constant-arrival-rate', rate: 100, duration: '3s', preAllocatedVUs: 2, maxVUs: 2 } } };\n\
        export default function () {\n  http.get(`${__ENV.BASE_URL}/health`);\n  sleep(0.2);\n}\n";
    let (row, points) = ran(script, 0);
    assert_eq!(
        row.text("verdict"),
        "valid",
        "the service is not to blame: {row:?}"
    );
    let dropped = points
        .iter()
        .filter(|point| point["metric"] == "dropped_iterations");
    let dropped: f64 = dropped
        .map(|point| point["data"]["value"].as_f64().unwrap())
        .sum();
    assert!(dropped > 200.0);
    assert!(
        (row.number("unsent") - dropped).abs() <= 1.0,
        "{dropped} dropped: {row:?}"
    );
    assert_eq!(row.text("p99_due_ms"), "inf");
    assert!(row.text("flags").contains("overloaded"), "{row:?}");
}

#[test]
fn iterations_that_hang_to_the_end_leave_the_p99_of_all_due_unknown() {
    // It takes connections, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hanging = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 1];
        stream.read_exact(&mut head).unwrap();
        // Until k6 hangs up.
        stream.read_to_end(&mut Vec::new()).unwrap_or_default()
    });
    let script = format!(
        "import http from 'k6/http';\nimport {{ sleep }} from 'k6';\n\
        export const options = {{ scenarios: {{ all: {{ executor: 'constant-vus', vus: 4, duration: '3s', gracefulStop: '0s' }} }} }};\n\
        export default function () {{\n  if (__VU === 1) http.get('http://{address}/');\n  http.get(`${{__ENV.BASE_URL}}/health`);\n  sleep(0.1);\n}}\n"
    );
    let (row, points) = ran(&script, 0);
    assert!(hanging.join().unwrap() > 0, "a request was sent to it");
    let told = points.iter().filter(|point| point["metric"] == "http_reqs");
    let is_hung = |point: &&Value| {
        point["data"]["tags"]["url"]
            .to_string()
            .contains(&address.to_string())
    };
    assert_eq!(told.filter(is_hung).count(), 0, "k6 says nothing of it");
    assert_eq!(
        verdict(&row),
        ("suspect", "iterations_interrupted"),
        "{row:?}"
    );
    assert!(row.text("p99_due_ms").is_empty(), "{row:?}");
    assert!(
        row.text("flags").contains("iterations_interrupted"),
        "{row:?}"
    );
    assert!(row.text("detail").contains("may have hung"), "{row:?}");
}

#[test]
fn an_expected_answer_that_fails_its_check_is_an_error_and_all_else_is_as_k6_wrote_it() {
    // Nothing is sent near the edges of the window, so that every request is surely in it.
    let script = "import http from 'k6/http';\nimport exec from 'k6/execution';\nimport { check, sleep } from 'k6';\n\
        export const options = { vus: 3, duration: '4s' };\n\
        export default function () {\n  sleep(0.05);\n  if (exec.scenario.progress > 0.9) { sleep(0.1); return; }\n\
        \x20 const res = http.get(`${__ENV.BASE_URL}/health`);\n\
        \x20 check(res, { 'is up': (r) => r.status === 200, 'not every third': () => __ITER % 3 !== 0 });\n}\n";
    let (row, points) = ran(script, 0);
    let of = |metric: &str| {
        points
            .iter()
            .filter(|point| point["metric"] == metric)
            .collect::<Vec<_>>()
    };
    let requests = of("http_reqs").len() as f64;
    let failed = of("checks");
    let failed = failed
        .iter()
        .filter(|point| point["data"]["value"] == 0.0 || point["data"]["value"] == 0);
    let failed = failed.count() as f64;
    assert!(
        requests > 100.0 && failed > 30.0,
        "{requests} requests, {failed} failed"
    );
    assert_eq!(
        (
            row.number("requests"),
            row.number("errors"),
            row.number("successes")
        ),
        (requests, failed, requests - failed),
        "{row:?}"
    );
    assert_eq!((row.number("abandoned"), row.number("unsent")), (0.0, 0.0));
    assert_eq!(row.text("verdict"), "valid");
    assert!(row.text("flags").contains("errors"), "{row:?}");
}
