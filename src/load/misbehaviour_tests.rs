//! Servers that misbehave: one table, run as journeys in a closed and an open loop.
//!
//! Every step visits one misbehaviour and is followed by a healthy request of the same user:
//! whatever happened before must not reach it. Those that need a server of their own
//! are in `rude_server_tests`.

use std::sync::Arc;
use std::time::Instant;

use super::LoadModel;
use super::test_http2::server_config;
use super::test_load::{closed, ms, open, plan, run_one, workload};
use super::test_server::{Got, Over, Reply, TestServer, answer};
use super::wire_tests::wire_to;
use crate::measure::ErrorClass::{Body, Connect, Protocol, Reset, Status, Timeout};
use crate::measure::Outcome::{Error, Refused, Success};
use crate::measure::{Counts, Outcome, WindowSummary};

/// Longest wait for an answer where some do not come. **Units**: milliseconds.
const SHORT_TIMEOUT_MS: u64 = 400;

struct Case {
    name: &'static str,
    reply: Reply,
    /// The step's own lines.
    step: &'static str,
    outcome: Outcome,
}

fn case(name: &'static str, outcome: Outcome, reply: Reply) -> Case {
    Case {
        name,
        reply,
        step: "",
        outcome,
    }
}

impl Case {
    fn step(mut self, step: &'static str) -> Self {
        self.step = step;
        self
    }
}

fn raw(text: &str) -> Reply {
    Reply::Raw(text.to_owned())
}

fn then_close(text: &str) -> Reply {
    Reply::RawThenClose(text.to_owned())
}

fn then_reset(text: &str) -> Reply {
    Reply::Reset(text.to_owned())
}

fn slow(parts: &[&str], wait_ms: u64) -> Reply {
    let parts = parts.iter().map(|part| (*part).to_owned()).collect();
    Reply::Slow(parts, ms(wait_ms))
}

fn json(text: &str) -> Reply {
    Reply::Answer(200, text.to_owned())
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const WANTS_ABC: &str = "expect = { contains = \"abc\" }";
const WANTS_ID: &str = "capture = { id = \"$.id\" }";
/// Long enough to see what comes behind the answer before the next request leaves.
const THINKS: &str = "think = \"60ms\"";

/// Answers without a body, and those that break off.
fn broken_off() -> Vec<Case> {
    vec![
        case("204", Success, raw("HTTP/1.1 204 No Content\r\n\r\n")),
        case(
            "304 with a length",
            Success,
            raw("HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n"),
        )
        .step("expect = { status = 304 }"),
        case(
            "answer to HEAD",
            Success,
            raw("HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n"),
        )
        .step("method = \"HEAD\""),
        case("length 0", Success, Reply::Answer(200, String::new())),
        case("closed without an answer", Error(Reset), then_close("")),
        case("reset without an answer", Error(Reset), then_reset("")),
        case(
            "closed in the head",
            Error(Reset),
            then_close("HTTP/1.1 200 OK\r\nConten"),
        ),
        case(
            "reset in the body",
            Error(Reset),
            then_reset("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        ),
        case(
            "length too long",
            Error(Reset),
            then_close("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        ),
        case(
            "length beyond all measure",
            Error(Reset),
            then_close("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nabc"),
        ),
        case(
            "slow body",
            Success,
            slow(
                &["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", "cd"],
                50,
            ),
        )
        .step("expect = { contains = \"abcd\" }"),
    ]
}

/// Answers that are not whole in time.
fn too_late() -> Vec<Case> {
    vec![
        case("never answers", Error(Timeout), Reply::Never),
        case(
            "head never ends",
            Error(Timeout),
            raw("HTTP/1.1 200 OK\r\nx: "),
        ),
        case(
            "slower than the timeout",
            Error(Timeout),
            slow(
                &["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", "cd"],
                1_000,
            ),
        ),
        case(
            "body drips without an end",
            Error(Timeout),
            slow(
                &[&["HTTP/1.1 200 OK\r\n\r\n"][..], &["x"; 90][..]].concat(),
                10,
            ),
        ),
    ]
}

/// Lengths that are wrong, connections that end or go on where they should not.
fn wrong_ends() -> Vec<Case> {
    let other = "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n";
    let surplus = format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc{other}");
    let abc = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    vec![
        case("length too short", Success, raw(&surplus)).step(WANTS_ABC),
        case("more behind the body", Success, slow(&[abc, other], 15)).step(THINKS),
        case(
            "408 on an idle connection",
            Success,
            slow(
                &[
                    abc,
                    "HTTP/1.1 408 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                ],
                15,
            ),
        )
        .step(THINKS),
        case(
            "closes unannounced",
            Success,
            Reply::AnswerThenClose(200, "bye".into()),
        )
        .step(THINKS),
        case("resets unannounced", Success, then_reset(abc)).step(THINKS),
        case(
            "closes as announced",
            Success,
            then_close("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"),
        ),
        case(
            "does not close as announced",
            Success,
            raw("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"),
        ),
        case(
            "body to the end of the connection",
            Success,
            then_close("HTTP/1.1 200 OK\r\n\r\nabc"),
        )
        .step(WANTS_ABC),
        case(
            "HTTP/1.0",
            Success,
            then_close("HTTP/1.0 200 OK\r\n\r\nabc"),
        )
        .step(WANTS_ABC),
        case(
            "HTTP/1.0 that keeps the connection",
            Success,
            raw("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc"),
        )
        .step(WANTS_ABC),
        case(
            "two lengths",
            Error(Protocol),
            raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        ),
        case(
            "length below zero",
            Error(Protocol),
            raw("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        ),
    ]
}

/// Chunks, good ones and bad ones.
fn chunks() -> Vec<Case> {
    let chunked = |rest: &str| raw(&format!("{CHUNKED}{rest}"));
    let tiny: String = (0..200).map(|_| "1\r\na\r\n").collect();
    vec![
        case(
            "chunks",
            Success,
            chunked("2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n"),
        )
        .step(WANTS_ABC),
        case(
            "chunks with trailers",
            Success,
            chunked("3\r\nabc\r\n0\r\nexpires: never\r\ny: z\r\n\r\n"),
        )
        .step(WANTS_ABC),
        case(
            "tiny chunks",
            Success,
            chunked(&format!("{tiny}3\r\nabc\r\n0\r\n\r\n")),
        )
        .step(WANTS_ABC),
        case(
            "chunks that drip",
            Success,
            slow(&[CHUNKED, "3", "\r\na", "bc\r", "\n0\r\n", "\r\n"], 3),
        )
        .step(WANTS_ABC),
        case(
            "no size of a chunk",
            Error(Protocol),
            chunked("xyz\r\nabc\r\n0\r\n\r\n"),
        ),
        case(
            "chunk below zero",
            Error(Protocol),
            chunked("-3\r\nabc\r\n0\r\n\r\n"),
        ),
        case(
            "chunk too long",
            Error(Protocol),
            chunked("2\r\nabc\r\n0\r\n\r\n"),
        ),
        case(
            "chunk beyond all measure",
            Error(Protocol),
            chunked("fffffffffffffffff\r\n"),
        ),
        case(
            "closed between chunks",
            Error(Reset),
            then_close(&format!("{CHUNKED}3\r\nabc\r\n")),
        ),
    ]
}

/// Interim answers, heads beyond all measure, other protocols.
fn heads() -> Vec<Case> {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
    vec![
        case(
            "100-continue",
            Success,
            raw(&format!(
                "HTTP/1.1 100 Continue\r\n\r\n{}",
                String::from_utf8(answer(200, "abc")).unwrap()
            )),
        )
        .step(WANTS_ABC),
        case(
            "103 and then the answer",
            Success,
            slow(
                &[interim, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"],
                5,
            ),
        )
        .step(WANTS_ABC),
        case(
            "interim answers without an end",
            Error(Protocol),
            raw(&interim.repeat(50)),
        ),
        case(
            "101",
            Error(Protocol),
            raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
        ),
        case(
            "header of 300 KB",
            Error(Protocol),
            raw(&format!(
                "HTTP/1.1 200 OK\r\nx: {}\r\n\r\n",
                "y".repeat(300_000)
            )),
        ),
        case(
            "500 headers",
            Error(Protocol),
            raw(&format!(
                "HTTP/1.1 200 OK\r\n{}\r\n",
                "x: y\r\n".repeat(500)
            )),
        ),
        case(
            "another protocol",
            Error(Protocol),
            raw("SSH-2.0-OpenSSH_9\r\n"),
        ),
        case(
            "noise",
            Error(Protocol),
            Reply::Bytes((0..=255).rev().collect()),
        ),
    ]
}

/// Whole answers that say no.
fn unwelcome() -> Vec<Case> {
    let busy = |status: u16| {
        raw(&format!(
            "HTTP/1.1 {status} X\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
        ))
    };
    vec![
        case("429", Refused, Reply::Answer(429, String::new())),
        case("429 with retry-after", Refused, busy(429)),
        case("503 with retry-after", Error(Status), busy(503)),
        case("500", Error(Status), Reply::Answer(500, "broken".into())),
        case("599 and a header too much", Error(Status), busy(599)),
        case("JSON", Success, json("{\"id\": 1}")).step(WANTS_ID),
        case("JSON cut short", Error(Body), json("{\"id\": ")).step(WANTS_ID),
        case(
            "JSON with more behind it",
            Error(Body),
            json("{\"id\": 1} x"),
        )
        .step(WANTS_ID),
        case("JSON without the field", Error(Body), json("{\"it\": 1}")).step(WANTS_ID),
        case(
            "JSON that is no text",
            Error(Body),
            Reply::Bytes(
                [
                    &b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"id\": \"\xff\xfe"[..],
                    b"\"",
                ]
                .concat(),
            ),
        )
        .step(WANTS_ID),
        case(
            "page where JSON was expected",
            Error(Body),
            json("<html>busy</html>"),
        )
        .step(WANTS_ID),
    ]
}

/// The table, in parts that are visited at the same time.
fn table() -> [Vec<Case>; 6] {
    [
        broken_off(),
        too_late(),
        wrong_ends(),
        chunks(),
        heads(),
        unwelcome(),
    ]
}

/// The step `N` of the table at `/N`, each followed by a healthy one.
fn visit_all(cases: &[Case]) -> String {
    let step = |(index, case): (usize, &Case)| {
        let (name, step) = (case.name, case.step);
        format!(
            "[[step]]\nname = \"{name}\"\npath = \"/{index}\"\n{step}\n\
             [[step]]\nname = \"after {name}\"\npath = \"/ok\"\n{WANTS_ABC}\n"
        )
    };
    let steps: String = cases.iter().enumerate().map(step).collect();
    format!("on_failure = \"continue\"\nrefused = [429]\n{steps}")
}

fn n_of(counts: &Counts, outcome: Outcome) -> u64 {
    match outcome {
        Success => counts.successes,
        Refused => counts.refused,
        Error(Connect) => counts.errors.connect,
        Error(Reset) => counts.errors.reset,
        Error(Timeout) => counts.errors.timeout,
        Error(Status) => counts.errors.status,
        Error(Body) => counts.errors.body,
        Error(Protocol) => counts.errors.protocol,
        other => panic!("nothing in the table ends as {other:?}"),
    }
}

fn assert_all(summary: &WindowSummary, operation: &str, outcome: Outcome) {
    let found = summary
        .operations
        .iter()
        .find(|(name, _)| name == operation);
    let counts = found.map(|(_, figures)| figures.counts).unwrap_or_default();
    assert!(counts.due > 0, "{operation}: it was never sent");
    assert_eq!(
        n_of(&counts, outcome),
        counts.due,
        "{operation}: {outcome:?} was expected, not {counts:?}; {:?}",
        summary.failures
    );
}

/// Visits a part of the table; some users, or arrivals, visit it at the same time.
fn assert_outcomes(cases: &[Case], model: LoadModel, over: Over) {
    let replies: Vec<Reply> = cases.iter().map(|case| case.reply.clone()).collect();
    let wire = wire_to(&over);
    let server = TestServer::start_over(over, move |got: &Got| match got.path[1..].parse() {
        Ok::<usize, _>(index) => replies[index].clone(),
        Err(_) => Reply::Answer(200, "abc".into()),
    });
    let n_late = cases
        .iter()
        .filter(|case| case.outcome == Error(Timeout))
        .count() as u64;
    // So long that a journey fits on a busy host too.
    let window = ms(1_200 + n_late * SHORT_TIMEOUT_MS * 3 / 4);
    let workload = workload(&visit_all(cases));
    let mut plan = plan(&server.target, workload, &[(model, 0)]);
    plan.target.wire = wire;
    plan.phases[0].duration = window;
    plan.timeout = ms(if n_late > 0 { SHORT_TIMEOUT_MS } else { 10_000 });
    plan.drain = ms(10_000);
    let began = Instant::now();
    let summary = run_one(plan);
    assert!(began.elapsed() < window + ms(10_000));
    for case in cases {
        assert_all(&summary, case.name, case.outcome);
        assert_all(&summary, &format!("after {}", case.name), Success);
    }
    let counts = summary.total.counts;
    assert_eq!((counts.abandoned, counts.unsent), (0, 0), "{counts:?}");
    let operations = &summary.operations;
    if let Some((_, slow)) = operations.iter().find(|(name, _)| name == "slow body") {
        assert!(slow.latency_ms.p50.unwrap() >= 50.0, "{slow:?}");
    }
    // Nothing is sent twice. Those after the window may be cut off before they are sent.
    let seen = server.requests();
    let sent = counts.requests + summary.outside;
    assert!(
        (counts.requests..=sent).contains(&seen),
        "{seen} {counts:?}"
    );
}

#[test]
fn a_user_meets_every_misbehaviour_and_the_next_request_is_unharmed() {
    std::thread::scope(|scope| {
        for part in table() {
            scope.spawn(move || assert_outcomes(&part, closed(2), Over::Plain));
        }
    });
}

#[test]
fn arrivals_meet_every_misbehaviour_and_the_next_request_is_unharmed() {
    std::thread::scope(|scope| {
        for part in table() {
            // Two journeys a second, the first at once.
            let rate = 2.0 * 2.0 * part.len() as f64;
            scope.spawn(move || assert_outcomes(&part, open(rate, 20), Over::Plain));
        }
    });
}

#[test]
fn over_tls_every_misbehaviour_is_the_same() {
    let config = server_config("server", "http/1.1", false);
    std::thread::scope(|scope| {
        for part in table() {
            let over = Over::Tls(Arc::clone(&config));
            scope.spawn(move || assert_outcomes(&part, closed(1), over));
        }
    });
}

#[test]
fn nothing_in_the_table_has_the_name_of_another() {
    let mut names: Vec<&str> = table().iter().flatten().map(|case| case.name).collect();
    let n_names = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n_names);
}
