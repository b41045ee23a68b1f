use std::collections::HashSet;

use super::*;
use crate::load::test_load::{closed, ms, plan, run_one, workload};
use crate::load::test_server::{Got, Reply, TestServer, answer, ok};
use crate::measure::ErrorClass::{Body, Protocol, Reset, Status, Timeout};

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

/// Checks a list of (reply, the step's own lines, outcome).
fn assert_outcomes<const N: usize>(cases: [(Reply, &str, Outcome); N]) {
    for (reply, step, outcome) in cases {
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
fn status_and_body_decide_the_outcome() {
    let json = |text: &str| Reply::Answer(200, text.to_owned());
    let want_id = "capture = { id = \"$.id\" }";
    assert_outcomes([
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
        // Present is present; `/${id}` cannot be sent with it.
        (json("{\"id\": null}"), want_id, Outcome::Success),
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
    ]);
}

#[test]
fn a_null_is_captured_and_a_missing_capture_leaves_the_others() {
    let server = TestServer::start(|_| Reply::Answer(200, "{\"n\": null, \"z\": 7}".into()));
    let workload = workload(
        "on_failure = \"continue\"\n\
         [[step]]\npath = \"/\"\ncapture = { a = \"$.a\", n = \"$.n\", z = \"$.z\" }\n\
         [[step]]\nmethod = \"POST\"\npath = \"/${z}\"\njson = { n = \"${n}\", z = \"${z}\" }\n\
         expect = { json = { \"$.n\" = \"${n}\" } }\n\
         [[step]]\npath = \"/${n}\"\n[[step]]\npath = \"/${a}\"",
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let exchanges = runtime
        .block_on(once(&server.target, &workload, &IndexMap::new(), ms(2_000)))
        .unwrap();
    let why: Vec<&str> = exchanges
        .iter()
        .map(|exchange| exchange.why.as_deref().unwrap_or_default())
        .collect();
    assert!(why[0].contains("the body has no `$.a`"), "{why:?}");
    assert_eq!(
        why[1..],
        [
            "",
            "`${n}` was captured as null, which is no text",
            "`${a}` was not captured"
        ]
    );
    let sent = exchanges[1].request.as_ref().unwrap();
    assert_eq!(sent.path, "/7");
    assert_eq!(sent.body, "{\"n\":null,\"z\":7}");
}

#[test]
fn an_answer_that_is_not_whole_or_not_http_is_an_error_of_its_class() {
    let raw = |text: &str| Reply::RawThenClose(text.to_owned());
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let slow = |wait| {
        let parts = ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab", "cd"];
        Reply::Slow(parts.map(str::to_owned).to_vec(), wait)
    };
    assert_outcomes([
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
    ]);
}

#[test]
fn captures_flow_from_step_to_step_and_numbers_are_unique() {
    let server = TestServer::start(|got: &Got| {
        if got.method == "POST" {
            let id = got.index;
            let body = format!("{{\"id\":\"{id}\"}}");
            let length = body.len();
            Reply::Raw(format!(
                "HTTP/1.1 201 X\r\nETag: W/\"{id}\"\r\nContent-Length: {length}\r\n\r\n{body}"
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
            let body: Value = serde_json::from_str(&got.body).unwrap();
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
