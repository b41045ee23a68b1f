use std::collections::HashSet;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use indexmap::IndexMap;

use super::*;
use crate::load::test_server::{Got, Reply, TestServer, answer, ok};
use crate::load::{PhasePlan, Target, Workload, once};
use crate::measure::{Judgement, Outcome, Pacing, WindowSummary, judge};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn closed(users: u32) -> LoadModel {
    LoadModel::Closed { users }
}

fn open(requests_per_second: f64, max_in_flight: u32) -> LoadModel {
    LoadModel::Open {
        requests_per_second,
        max_in_flight,
    }
}

fn workload(text: &str) -> Workload {
    Workload::parse(Path::new("workload.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

fn plan(target: &Target, workload: Workload, phases: &[(LoadModel, u64)]) -> LoadPlan {
    LoadPlan {
        target: target.clone(),
        workload: Arc::new(workload),
        variables: IndexMap::new(),
        phases: phases
            .iter()
            .enumerate()
            .map(|(index, (model, length_ms))| PhasePlan {
                name: format!("phase {index}"),
                window: true,
                model: *model,
                duration: ms(*length_ms),
            })
            .collect(),
        threads: 2,
        timeout: ms(2_000),
        drain: ms(1_000),
        seed: 1,
    }
}

/// Runs a plan to its end within a limit and returns the summaries.
fn run(plan: LoadPlan) -> Vec<WindowSummary> {
    let n_phases = plan.phases.len();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut load = RunningLoad::start(plan).unwrap();
        let mut summaries = Vec::new();
        let mut order = Vec::new();
        let limit = Duration::from_secs(30);
        while let Some(signal) = tokio::time::timeout(limit, load.next())
            .await
            .expect("a load ends")
        {
            match signal {
                LoadSignal::PhaseStarted { phase, .. } => order.push((phase, 0)),
                LoadSignal::PhaseEnded { phase, .. } => order.push((phase, 1)),
                LoadSignal::PhaseSummed { phase, summary } => {
                    order.push((phase, 2));
                    summaries.push(*summary);
                }
                LoadSignal::Tick(_) => {}
            }
        }
        load.stop().await.unwrap();
        let expected: Vec<_> = (0..n_phases)
            .flat_map(|phase| [0, 1, 2].map(|step| (phase, step)))
            .collect();
        assert_eq!(order, expected);
        summaries
    })
}

fn run_one(plan: LoadPlan) -> WindowSummary {
    run(plan).pop().unwrap()
}

/// Requests on the server's log within the window, by when the server saw them.
fn seen_within(server: &TestServer, summary: &WindowSummary) -> u64 {
    let end = summary.started + summary.length;
    let is_inside = |at: &Instant| *at >= summary.started && *at < end;
    server.log().iter().filter(|(at, _)| is_inside(at)).count() as u64
}

#[test]
fn a_closed_loop_counts_what_the_server_counts() {
    let server = TestServer::start(|_| Reply::After(ms(2), Box::new(ok())));
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(5), 600)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.successes, counts.due);
    assert!(counts.successes > 200, "{counts:?}");
    // Sent in the window and seen by the server differ by what was on its way.
    let seen = seen_within(&server, &summary);
    assert!(counts.requests.abs_diff(seen) <= 5, "{counts:?} {seen}");
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 5);
    assert_eq!(server.seen.most_open.load(Ordering::SeqCst), 5);
    let p50 = summary.total.latency_ms.p50.unwrap();
    assert!((2.0..20.0).contains(&p50), "{p50}");
    assert_eq!(summary.total.send_lag_ms.p99, None);
    let in_intervals: u64 = summary
        .intervals
        .iter()
        .map(|interval| interval.histogram().len())
        .sum();
    assert_eq!(in_intervals, counts.due);
    let verdict = judge(&summary, Pacing::Closed);
    assert_eq!(verdict.judgement, Judgement::Valid, "{summary:?}");
}

#[test]
fn every_request_of_all_phases_is_in_one_window_or_none() {
    let server = TestServer::start(|_| Reply::After(ms(1), Box::new(ok())));
    let phases = [(closed(4), 300), (closed(2), 300), (closed(6), 300)];
    let summaries = run(plan(&server.target, Workload::get("/"), &phases));
    let recorded: u64 = summaries
        .iter()
        .map(|summary| summary.total.counts.requests)
        .sum();
    let total = server.requests();
    // Between the windows load goes on unrecorded: some, but not much.
    assert!(
        recorded < total && recorded * 10 > total * 7,
        "{recorded} of {total}"
    );
    for (summary, users) in summaries.iter().zip([4.0, 2.0, 6.0]) {
        let seen = seen_within(&server, summary);
        assert!(summary.total.counts.requests.abs_diff(seen) <= 6);
        let gap = summary.in_flight_recorded / users - 1.0;
        assert!(
            gap.abs() < 0.05,
            "{users} users, {}",
            summary.in_flight_recorded
        );
    }
    assert_eq!(
        server.seen.connections.load(Ordering::SeqCst),
        6,
        "connections live across phases"
    );
}

#[test]
fn threads_with_different_errors_add_up() {
    for threads in [1, 2, 3] {
        let server = TestServer::start(|got: &Got| {
            let reply = match got.index % 5 {
                0 => Reply::Answer(500, "broken".into()),
                1 => Reply::Answer(429, String::new()),
                2 => Reply::RawThenClose("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".into()),
                3 => Reply::Raw("nonsense\r\n\r\n".into()),
                _ => ok(),
            };
            Reply::After(ms(1), Box::new(reply))
        });
        let mut plan = plan(
            &server.target,
            workload("on_failure = \"continue\"\n[[step]]\npath = \"/\""),
            &[(closed(6), 400)],
        );
        plan.threads = threads;
        let summary = run_one(plan);
        let counts = summary.total.counts;
        let seen = seen_within(&server, &summary);
        assert!(counts.requests.abs_diff(seen) <= 6, "{counts:?} {seen}");
        let fifth = counts.requests as f64 / 5.0;
        for (what, n) in [
            ("status", counts.errors.status),
            ("refused", counts.refused),
            ("reset", counts.errors.reset),
            ("protocol", counts.errors.protocol),
            ("successes", counts.successes),
        ] {
            assert!((n as f64 - fifth).abs() <= 8.0, "{what}: {counts:?}");
        }
        assert_eq!(
            counts.errors.total() + counts.refused + counts.successes,
            counts.due
        );
        assert!(!summary.failures.is_empty() && summary.failures.len() <= 10);
        assert!(
            summary
                .failures
                .iter()
                .all(|line| line.starts_with("GET /: "))
        );
    }
}

/// One request of one user, with the outcome the server's reply leads to.
fn outcome_of(reply: Reply, step: &str) -> (Outcome, String) {
    let server = TestServer::start(move |_| reply.clone());
    let workload = workload(&format!("[[step]]\npath = \"/\"\n{step}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let exchanges = runtime
        .block_on(once(&server.target, &workload, &IndexMap::new(), ms(300)))
        .unwrap();
    let exchange = exchanges.into_iter().next().unwrap();
    (exchange.outcome, exchange.why.unwrap_or_default())
}

#[test]
fn every_kind_of_answer_has_its_outcome() {
    use crate::measure::ErrorClass::{Body, Protocol, Reset, Status, Timeout};
    let raw = |text: &str| Reply::RawThenClose(text.to_owned());
    let json = |text: &str| Reply::Answer(200, text.to_owned());
    let want_id = "capture = { id = \"$.id\" }";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let slow = |wait| {
        Reply::Slow(
            vec![
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab".into(),
                "cd".into(),
            ],
            wait,
        )
    };
    for (reply, step, outcome) in [
        (ok(), "", Outcome::Success),
        (Reply::Answer(204, String::new()), "", Outcome::Success),
        (
            Reply::Answer(302, String::new()),
            "",
            Outcome::Error(Status),
        ),
        (
            Reply::Answer(404, String::new()),
            "",
            Outcome::Error(Status),
        ),
        (
            Reply::Answer(404, String::new()),
            "expect = { status = [404, 410] }",
            Outcome::Success,
        ),
        (Reply::Answer(429, String::new()), "", Outcome::Refused),
        (
            Reply::Answer(429, String::new()),
            "expect = { status = 429 }",
            Outcome::Success,
        ),
        (
            Reply::Answer(503, String::new()),
            "",
            Outcome::Error(Status),
        ),
        (json("{\"id\": 7}"), want_id, Outcome::Success),
        (json("{\"id\": 7"), want_id, Outcome::Error(Body)),
        (json("{\"it\": 7}"), want_id, Outcome::Error(Body)),
        (
            ok(),
            "capture = { a = \"header:etag\" }",
            Outcome::Error(Body),
        ),
        (ok(), "expect = { contains = \"k\" }", Outcome::Success),
        (ok(), "expect = { contains = \"no\" }", Outcome::Error(Body)),
        (
            json("{\"n\": 3.0}"),
            "expect = { json = { \"$.n\" = 3 } }",
            Outcome::Success,
        ),
        (
            json("{\"n\": 9007199254740993}"),
            "expect = { json = { \"$.n\" = 9007199254740992 } }",
            Outcome::Error(Body),
        ),
        (
            raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
            "",
            Outcome::Error(Reset),
        ),
        (raw(""), "", Outcome::Error(Reset)),
        (
            raw("HTTP/1.1 200 OK\r\n\r\nuntil the end"),
            "",
            Outcome::Success,
        ),
        (raw("SSH-2.0-OpenSSH_9\r\n"), "", Outcome::Error(Protocol)),
        (
            raw(&format!("{chunked}3\r\nabc\r\n0\r\n\r\n")),
            "expect = { contains = \"abc\" }",
            Outcome::Success,
        ),
        (
            raw(&format!("{chunked}3\r\nabc\r\n")),
            "",
            Outcome::Error(Reset),
        ),
        (
            raw(&format!("{chunked}xyz\r\nabc\r\n0\r\n\r\n")),
            "",
            Outcome::Error(Protocol),
        ),
        (
            slow(ms(20)),
            "expect = { contains = \"abcd\" }",
            Outcome::Success,
        ),
        (slow(ms(600)), "", Outcome::Error(Timeout)),
        (Reply::Never, "", Outcome::Error(Timeout)),
        // More than was promised: the answer itself is whole.
        (
            Reply::Raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcdef".into()),
            "",
            Outcome::Success,
        ),
        (
            Reply::Raw(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into(),
            ),
            "",
            Outcome::Success,
        ),
    ] {
        let shown = format!("{reply:?} {step}");
        let (found, why) = outcome_of(reply, step);
        assert_eq!(found, outcome, "{shown}: {why}");
        assert_eq!(
            why.is_empty(),
            outcome == Outcome::Success,
            "{shown}: {why}"
        );
    }
}

#[test]
fn surplus_bytes_after_an_answer_never_become_the_next_one() {
    let server = TestServer::start(|_| {
        Reply::Raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n".into())
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(2), 200)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.errors.status, 0, "{counts:?} {:?}", summary.failures);
    assert!(counts.successes > 0);
    assert_eq!(counts.due, counts.successes + counts.errors.total());
}

#[test]
fn a_connection_that_the_server_closes_is_opened_again() {
    let server = TestServer::start(|got: &Got| {
        let then = if got.index % 3 == 0 {
            Reply::Raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into())
        } else {
            ok()
        };
        Reply::After(ms(1), Box::new(then))
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(3), 400)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
    assert!(server.seen.connections.load(Ordering::SeqCst) > 20);

    // Without a word before: what was sent into the closing connection is lost
    // and counted, never sent twice.
    let server = TestServer::start(|got: &Got| {
        if got.index % 4 == 0 {
            Reply::AnswerThenClose(200, "bye".into())
        } else {
            Reply::After(ms(1), Box::new(ok()))
        }
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(3), 400)],
    ));
    let counts = summary.total.counts;
    assert_eq!(
        counts.due,
        counts.successes + counts.errors.reset,
        "{:?}",
        summary.failures
    );
    assert!(seen_within(&server, &summary) <= counts.requests + 3);
}

#[test]
fn a_refused_connection_does_not_spin() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = Target {
        address: unused,
        host: unused.to_string(),
        base_path: String::new(),
    };
    for on_failure in ["abort", "continue"] {
        let text = format!("on_failure = \"{on_failure}\"\n[[step]]\npath = \"/\"");
        let summary = run_one(plan(&target, workload(&text), &[(closed(4), 500)]));
        let counts = summary.total.counts;
        assert_eq!(counts.errors.connect, counts.due);
        assert!(
            (16..=24).contains(&counts.due),
            "a try per 100 ms and user: {counts:?}"
        );
        assert_eq!(summary.total.p99_due_ms, Some(f64::INFINITY));
        let verdict = judge(&summary, Pacing::Closed);
        assert_eq!(verdict.judgement, Judgement::Failed);
        assert!(
            summary.failures[0].contains("refused"),
            "{:?}",
            summary.failures
        );
    }
}

#[test]
fn timeouts_are_counted_and_the_next_request_uses_a_new_connection() {
    let server = TestServer::start(|got: &Got| {
        if got.index == 0 {
            Reply::Never
        } else {
            Reply::After(ms(5), Box::new(ok()))
        }
    });
    let mut plan = plan(&server.target, Workload::get("/"), &[(closed(1), 700)]);
    plan.timeout = ms(200);
    let summary = run_one(plan);
    let counts = summary.total.counts;
    assert_eq!(counts.errors.timeout, 1, "{counts:?}");
    assert!(counts.successes > 20, "{counts:?}");
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 2);
    assert!(summary.failures[0].contains("no whole answer within 200ms"));
}

#[test]
fn requests_in_flight_after_the_drain_are_abandoned_not_lost() {
    // The first window's last requests never end; the next window is healthy.
    let server = TestServer::start(|got: &Got| {
        if (20..24).contains(&got.index) {
            Reply::Never
        } else {
            Reply::After(ms(5), Box::new(ok()))
        }
    });
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(closed(4), 400), (closed(4), 300)],
    );
    plan.drain = ms(200);
    plan.timeout = Duration::from_secs(20);
    let begun = Instant::now();
    let summaries = run(plan);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "the drain bounds the wait"
    );
    let first = summaries[0].total.counts;
    assert_eq!((first.due, first.successes, first.abandoned), (24, 20, 4));
    assert_eq!(summaries[0].total.p99_due_ms, Some(f64::INFINITY));
    let second = summaries[1].total.counts;
    assert_eq!(second.successes, second.due);
    assert!(second.successes > 100, "all users are back: {second:?}");
    for summary in &summaries {
        let gap = summary.in_flight_recorded / 4.0 - 1.0;
        assert!(gap.abs() < 0.05, "{gap}");
    }
}

#[test]
fn users_that_a_phase_does_not_want_end_after_their_request() {
    let server = TestServer::start(|got: &Got| {
        let wait = if got.path == "/b" { 30 } else { 1 };
        Reply::After(ms(wait), Box::new(ok()))
    });
    let text = "[[step]]\npath = \"/a\"\n[[step]]\npath = \"/b\"\n[[step]]\npath = \"/c\"";
    let phases = [(closed(6), 200), (closed(1), 300), (open(100.0, 10), 300)];
    let summaries = run(plan(&server.target, workload(text), &phases));
    let second = &summaries[1];
    assert!(
        (second.in_flight_recorded - 1.0).abs() < 0.05,
        "{}",
        second.in_flight_recorded
    );
    assert_eq!(second.not_attempted, 0);
    assert!(second.total.counts.due < 60);
    assert_eq!(second.total.counts.errors.total(), 0);
    // The open phase carries its own rate and nothing of the user before it.
    assert!(
        (25..=35).contains(&summaries[2].total.counts.due),
        "{:?}",
        summaries[2].total.counts
    );
}

#[test]
fn an_open_loop_holds_its_rate() {
    for (rate, length_ms) in [(200.0, 3_000), (2_000.0, 2_000)] {
        let server = TestServer::start(|_| ok());
        let phases = [(open(rate, 100), 300), (open(rate, 100), length_ms)];
        let summary = run(plan(&server.target, Workload::get("/"), &phases))
            .pop()
            .unwrap();
        let counts = summary.total.counts;
        let planned = rate * length_ms as f64 / 1e3;
        assert!(
            (counts.requests as f64 / planned - 1.0).abs() < 0.005,
            "{counts:?}"
        );
        assert_eq!(counts.unsent, 0);
        assert_eq!(summary.arrivals, counts.due);
        assert_eq!(counts.successes, counts.due);
        let seen = seen_within(&server, &summary);
        assert!(seen.abs_diff(counts.requests) <= 4, "{seen} {counts:?}");
        assert!(
            (summary.in_flight_recorded - summary.in_flight).abs()
                < 0.05 * summary.in_flight + 0.05
        );
    }
}

#[test]
fn a_frozen_server_shows_in_latency_from_due_and_nothing_is_left_out() {
    // One worker that stands still for a second: what was due meanwhile waits.
    let frozen_until = Arc::new(Mutex::new(None::<Instant>));
    let server = TestServer::start(move |got: &Got| {
        let mut until = frozen_until.lock().unwrap();
        if got.index == 100 {
            *until = Some(Instant::now() + Duration::from_secs(1));
        }
        let wait = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        Reply::After(wait, Box::new(ok()))
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(open(200.0, 20), 2_500)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.due, 500);
    assert_eq!(counts.successes, 500, "{counts:?}");
    assert!(summary.held_back > 100, "twenty at once, the rest waits");
    let p99 = summary.total.p99_due_ms.unwrap();
    assert!((950.0..1_200.0).contains(&p99), "{p99}");
    // About 200 of 500 were due in the second; their mean wait is half of it.
    let mean = summary.total.latency_ms.mean.unwrap();
    assert!((150.0..300.0).contains(&mean), "{mean}");
    let lag = summary.total.send_lag_ms.p99.unwrap();
    assert!(lag > 800.0, "waiting for a connection is lag: {lag}");
    let own = summary.generator_lag_ms.p99.unwrap();
    assert!(own < 100.0, "but not the generator's: {own}");
    assert!((summary.in_flight_recorded / summary.in_flight - 1.0).abs() < 0.05);
}

#[test]
fn arrivals_that_never_leave_are_unsent_and_the_rest_abandoned() {
    let server = TestServer::start(|_| Reply::Never);
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(open(100.0, 10), 500), (closed(1), 100)],
    );
    plan.drain = ms(200);
    plan.timeout = Duration::from_secs(20);
    let summaries = run(plan);
    let counts = summaries[0].total.counts;
    assert_eq!(
        (counts.due, counts.requests, counts.abandoned, counts.unsent),
        (50, 10, 10, 40)
    );
    assert_eq!(summaries[0].held_back, 40);
    assert_eq!(summaries[0].arrivals, 50);
    assert_eq!(summaries[0].total.p99_due_ms, Some(f64::INFINITY));
    let tags: Vec<&str> = summaries[0]
        .intervals
        .iter()
        .map(|interval| interval.tag.as_str())
        .collect();
    assert_eq!(tags, ["GET%20%2F|abandoned", "GET%20%2F|unsent"]);
}

#[test]
fn fewer_places_than_threads_leave_no_arrival_waiting_for_ever() {
    let server = TestServer::start(|_| ok());
    let mut plan = plan(&server.target, Workload::get("/"), &[(open(100.0, 1), 500)]);
    plan.threads = 3;
    let summary = run_one(plan);
    assert_eq!(
        summary.total.counts.successes, 50,
        "{:?}",
        summary.total.counts
    );
    assert_eq!(summary.threads, 1);
}

#[test]
fn captures_flow_from_step_to_step_and_numbers_are_unique() {
    let server = TestServer::start(|got: &Got| {
        if got.method == "POST" {
            let id = got.index;
            Reply::Raw(format!(
                "HTTP/1.1 201 X\r\nETag: W/\"{id}\"\r\nContent-Length: {}\r\n\r\n{}",
                format!("{{\"id\":\"{id}\"}}").len(),
                format!("{{\"id\":\"{id}\"}}"),
            ))
        } else {
            Reply::Answer(200, format!("{{\"path\":\"{}\"}}", got.path))
        }
    });
    let text = r#"
headers = { x-user = "${user}" }
[[table.kind]]
type = "A"
[[table.kind]]
type = "B"
[[step]]
name = "create ${kind.type}"
each = "kind"
method = "POST"
path = "/${kind.type}"
json = { n = "${counter}", u = "${uuid}", r = "${random(1, 6)}", t = "n${counter}" }
expect = { status = 201 }
capture = { "id.${kind.type}" = "$.id", "tag.${kind.type}" = "header:etag" }
[[step]]
name = "read ${kind.type}"
each = "kind"
reverse = true
path = "/${kind.type}/${id.${kind.type}}"
headers = { if-match = "${tag.${kind.type}}" }
expect = { json = { "$.path" = "/${kind.type}/${id.${kind.type}}" } }
"#;
    let summary = run_one(plan(&server.target, workload(text), &[(closed(4), 300)]));
    let counts = summary.total.counts;
    assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
    let names: Vec<&str> = summary
        .operations
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["create A", "create B", "read B", "read A"]);
    let mut unique = HashSet::new();
    let mut users = HashSet::new();
    for (_, got) in server.log() {
        let user = got
            .head
            .lines()
            .find_map(|line| line.strip_prefix("x-user: ").map(str::to_owned));
        users.insert(user.expect("every request has the shared header"));
        if got.method == "POST" {
            let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
            assert!(body["n"].is_u64(), "a lone template keeps its type: {body}");
            assert!((1..=6).contains(&body["r"].as_i64().unwrap()));
            assert!(unique.insert(body["n"].to_string()));
            assert!(unique.insert(body["t"].as_str().unwrap()[1..].to_owned()));
            assert!(unique.insert(body["u"].to_string()));
            assert!(got.head.contains("content-type: application/json"));
        } else {
            assert!(got.head.contains("if-match: W/\""), "{}", got.head);
        }
    }
    assert_eq!(users.len(), 4);
}

#[test]
fn a_failed_step_ends_its_journey_or_not_as_the_workload_says() {
    let script = |got: &Got| match got.path.as_str() {
        "/a" => Reply::Answer(500, "down".into()),
        _ => Reply::After(ms(2), Box::new(ok())),
    };
    let steps = "[[step]]\npath = \"/first\"\n[[step]]\npath = \"/a\"\ncapture = { x = \"$.x\" }\n\
                 [[step]]\npath = \"/${x}\"\n[[step]]\npath = \"/last\"";
    let server = TestServer::start(script);
    let summary = run_one(plan(&server.target, workload(steps), &[(closed(2), 500)]));
    let counts = summary.total.counts;
    assert!(counts.errors.status.abs_diff(counts.successes) <= 2);
    assert_eq!(summary.not_attempted, counts.errors.status * 2);
    assert!(
        counts.due < 30,
        "100 ms after each aborted journey: {counts:?}"
    );
    assert!((summary.in_flight_recorded / 2.0 - 1.0).abs() < 0.05);
    assert_eq!(summary.journeys.counts.successes, 0);
    assert!(summary.journeys.counts.errors.status > 0);

    let server = TestServer::start(script);
    let text = format!("on_failure = \"continue\"\n{steps}");
    let summary = run_one(plan(&server.target, workload(&text), &[(closed(2), 300)]));
    let counts = summary.total.counts;
    assert_eq!(summary.not_attempted, 0);
    assert!(
        counts.errors.template.abs_diff(counts.errors.status) <= 2,
        "{counts:?}"
    );
    assert!(counts.successes > 50);
    assert!(
        summary
            .failures
            .iter()
            .any(|line| line.ends_with("`${x}` was not captured")
                || line.contains("status 500 where 200 to 299 was expected: down")),
        "{:?}",
        summary.failures
    );
    let seen = seen_within(&server, &summary);
    assert!((counts.requests - counts.errors.template).abs_diff(seen) <= 2);
}

#[test]
fn thinking_is_part_of_the_loop_and_of_littles_law() {
    let server = TestServer::start(|_| ok());
    let text = "[[step]]\npath = \"/a\"\nthink = \"20ms\"\n[[step]]\npath = \"/b\"";
    let phases = [(closed(10), 600), (open(200.0, 50), 600)];
    let summaries = run(plan(&server.target, workload(text), &phases));
    let per_user = summaries[0].total.counts.requests as f64 / 10.0;
    // Two requests per 20 ms and a little.
    assert!((45.0..=60.0).contains(&per_user), "{per_user}");
    assert!((summaries[0].in_flight_recorded / 10.0 - 1.0).abs() < 0.05);
    // A later step is due at the last answer plus think: its latency holds no think time.
    let open = &summaries[1];
    assert!(open.total.latency_ms.p50.unwrap() < 10.0);
    assert!((open.in_flight_recorded / open.in_flight - 1.0).abs() < 0.05);
    let journey_p50 = open.journeys.latency_ms.p50.unwrap();
    assert!((20.0..60.0).contains(&journey_p50), "{journey_p50}");
}

#[test]
fn stopping_and_dropping_end_the_load_at_once() {
    let server = TestServer::start(|_| Reply::After(ms(1), Box::new(ok())));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let long = || plan(&server.target, Workload::get("/"), &[(closed(4), 60_000)]);
    let begun = Instant::now();
    runtime.block_on(async {
        let mut load = RunningLoad::start(long()).unwrap();
        assert!(matches!(
            load.next().await,
            Some(LoadSignal::PhaseStarted { .. })
        ));
        assert!(
            matches!(load.next().await, Some(LoadSignal::Tick(tick)) if tick.counts.successes > 0)
        );
        load.stop().await.unwrap();
        let after_stop = server.requests();
        drop(RunningLoad::start(long()).unwrap());
        assert!(server.requests() < after_stop + 1_000);
    });
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(server.seen.most_open.load(Ordering::SeqCst), 4);
}

#[test]
fn a_task_that_panics_becomes_an_error() {
    let (reports, inbox) = mpsc::channel();
    let server = TestServer::start(|_| ok());
    let plan = plan(&server.target, Workload::get("/"), &[(closed(1), 100)]);
    let thread_plan = Arc::new(ThreadPlan {
        prepared: prepare(&plan.workload, &plan.target, &plan.variables).unwrap(),
        address: plan.target.address,
        timeout: plan.timeout,
        n_threads: 1,
        seed: 1,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    let (_commands, command_inbox) = signals::unbounded_channel();
    runtime.block_on(async {
        let thread = Thread::new(0, thread_plan, reports).unwrap();
        thread.spawn(async { panic!("as a test") });
        // Ends by itself although nobody tells it to stop.
        thread.run(command_inbox).await;
    });
    assert!(matches!(
        inbox.recv_timeout(Duration::from_secs(5)),
        Ok(Report::Broken { thread: 0, .. })
    ));
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_before_anything_starts() {
    let target = TestServer::start(|_| ok()).target.clone();
    let refused = |change: fn(&mut LoadPlan)| {
        let mut plan = plan(&target, Workload::get("/"), &[(closed(1), 100)]);
        change(&mut plan);
        RunningLoad::start(plan).unwrap_err().to_string()
    };
    assert!(refused(|plan| plan.phases.clear()).contains("no phase"));
    assert!(refused(|plan| plan.threads = 0).contains("no load thread"));
    assert!(refused(|plan| plan.phases[0].model = closed(0)).contains("no users"));
    assert!(refused(|plan| plan.phases[0].model = open(0.0, 1)).contains("the rate 0"));
    assert!(refused(|plan| plan.phases[0].model = open(f64::NAN, 1)).contains("the rate NaN"));
    assert!(refused(|plan| plan.phases[0].model = open(1.0, 0)).contains("in flight"));
    assert!(refused(|plan| plan.phases[0].duration = Duration::ZERO).contains("no duration"));
    let unset = refused(|plan| {
        let text = "[[step]]\npath = \"/${cpus}/${web}\"\nheaders = { a = \"${env.TOKEN}\" }";
        plan.workload = Arc::new(workload(text));
    });
    assert_eq!(
        unset,
        "the workload uses values that are not set: cpus, web, env.TOKEN"
    );
}

#[test]
fn once_shows_requests_and_answers_in_full() {
    let server = TestServer::start(|got: &Got| {
        Reply::Raw(
            String::from_utf8(answer(200, &format!("{{\"id\":\"{}\"}}", got.index))).unwrap(),
        )
    });
    let mut target = server.target.clone();
    target.base_path = "/api".into();
    let text = "[[step]]\nmethod = \"POST\"\npath = \"/a\"\nbody = \"cpus ${cpus}\"\ncapture = { id = \"$.id\" }\n\
                [[step]]\npath = \"/b/${id}\"\nexpect = { status = 418 }\n[[step]]\npath = \"/c\"";
    let variables = IndexMap::from([("cpus".to_owned(), "2".to_owned())]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let exchanges = runtime
        .block_on(once(&target, &workload(text), &variables, ms(1_000)))
        .unwrap();
    assert_eq!(exchanges.len(), 2, "the failed step ends the journey");
    let request = exchanges[0].request.as_ref().unwrap();
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/api/a")
    );
    assert_eq!(request.body, "cpus 2");
    assert!(
        request
            .headers
            .contains(&("host".into(), target.host.clone()))
    );
    assert_eq!(exchanges[0].answer.as_ref().unwrap().body, "{\"id\":\"0\"}");
    assert_eq!(exchanges[1].request.as_ref().unwrap().path, "/api/b/0");
    assert_eq!(
        exchanges[1].why.as_deref(),
        Some("status 200 where 418 was expected: {\"id\":\"1\"}")
    );
}
