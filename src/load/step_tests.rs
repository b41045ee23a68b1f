//! What one step can say, over real sockets: bodies, credentials, rules, time limits.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use indexmap::IndexMap;

use super::test_load::{closed, ms, plan, run_one, workload};
use super::test_server::{Got, Reply, TestServer, ok};
use super::workload::Workload;
use super::{Exchange, once};
use crate::measure::ErrorClass::{Body, Status, Timeout};
use crate::measure::Outcome;

/// One journey; cell values and environment as given.
fn exchanges(server: &TestServer, workload: &Workload, values: &[(&str, &str)]) -> Vec<Exchange> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let values: IndexMap<String, String> = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    runtime
        .block_on(once(&server.target, workload, &values, ms(5_000)))
        .unwrap()
}

/// What the server got of a journey that must succeed.
fn got(server: &TestServer, text: &str, values: &[(&str, &str)]) -> Vec<Got> {
    for exchange in exchanges(server, &workload(text), values) {
        assert_eq!(exchange.outcome, Outcome::Success, "{exchange:?}");
    }
    server.log().into_iter().map(|(_, got)| got).collect()
}

fn header<'g>(got: &'g Got, name: &str) -> Option<&'g str> {
    let mut lines = got.head.lines().filter_map(|line| line.split_once(": "));
    lines
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

/// The outcome of one step with these lines, and why.
fn outcome_of(reply: &Reply, step: &str) -> (Outcome, String) {
    let reply = reply.clone();
    let server = TestServer::start(move |_| reply.clone());
    let workload = workload(&format!("[[step]]\npath = \"/\"\n{step}"));
    let exchange = exchanges(&server, &workload, &[]).remove(0);
    (exchange.outcome, exchange.why.unwrap_or_default())
}

/// The problems of a file, a line each.
fn problems(text: &str) -> String {
    match Workload::parse(Path::new("w.toml"), text) {
        Ok(workload) => panic!("accepted: {workload:?}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn a_form_is_sent_as_a_browser_sends_it() {
    let server = TestServer::start(|_| Reply::Answer(200, "{\"csrf\": \"a+b/c=\"}".into()));
    let log = got(
        &server,
        r#"headers = { content-type = "application/fhir+json" }
[[step]]
path = "/login"
capture = { csrf = "$.csrf" }
[[step]]
method = "POST"
path = "/login"
form = { "user name" = "Ana & Bo", csrf = "${csrf}", n = 7, on = true, tag = ["x", "${env.T}"], "a&b" = "" }
[[step]]
method = "POST"
path = "/own"
headers = { content-type = "text/x-form" }
form = { a = "1" }
[[step]]
method = "POST"
path = "/none"
form = {}
"#,
        &[("env.T", "é=")],
    );
    assert_eq!(
        log[1].body,
        "user+name=Ana+%26+Bo&csrf=a%2Bb%2Fc%3D&n=7&on=true&tag=x&tag=%C3%A9%3D&a%26b="
    );
    let types = log.iter().map(|got| header(got, "content-type"));
    let form = Some("application/x-www-form-urlencoded");
    assert_eq!(
        types.collect::<Vec<_>>(),
        [
            Some("application/fhir+json"),
            form,
            Some("text/x-form"),
            form
        ]
    );
    assert_eq!((log[2].body.as_str(), log[3].body.as_str()), ("a=1", ""));
    let wrong = problems(
        "[[step]]\npath = \"/\"\nform = { a = [[1]], b = { c = 1 }, d = \"${\" }\n[[step]]\npath = \"/\"\nform = 3",
    );
    insta::assert_snapshot!(wrong, @r#"
    w.toml:3:15: `a` in `form` of [[step]] number 1 must be a single value or a list of them, not a list
    w.toml:3:25: `b` in `form` of [[step]] number 1 must be a single value or a list of them, not a table
    w.toml:3:41: `${` without its `}`
    w.toml:6:8: `form` of [[step]] number 2 must be a table, not the number 3
    "#);
}

#[test]
fn a_file_that_is_no_text_is_sent_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = b"\xff\xd8${uuid} $$\r\n\r\n\0".to_vec();
    // Larger than what a socket takes at once.
    bytes.extend((0..3_000_000_u32).map(|n| (n % 251) as u8));
    fs_err::write(folder.path().join("a.jpg"), &bytes).unwrap();
    let file = folder.path().join("w.toml");
    let text = "[[step]]\nmethod = \"PUT\"\npath = \"/fixed\"\nbody_file = \"a.jpg\"\n\
        [[step]]\nmethod = \"PUT\"\npath = \"/${uuid}\"\nbody_file = \"a.jpg\"\n\
        headers = { content-type = \"image/jpeg\", x = \"${counter}\" }";
    let workload = Workload::parse(&file, text).unwrap();
    assert_eq!(workload.files(), [folder.path().join("a.jpg")]);
    let server = TestServer::start(|_| ok());
    for exchange in exchanges(&server, &workload, &[]) {
        assert_eq!(exchange.outcome, Outcome::Success);
    }
    let log = server.log();
    assert_eq!(log.len(), 2);
    for (_, got) in log {
        assert!(got.bytes == bytes, "{} bytes came", got.bytes.len());
    }
}

#[test]
fn credentials_are_made_for_every_step_and_a_steps_own_go_first() {
    let server = TestServer::start(|_| Reply::Answer(200, "{\"token\": \"t1\"}".into()));
    let log = got(
        &server,
        r#"bearer = "${token}"
[[step]]
path = "/login"
basic = { user = "ana", password = "${env.P}:${cpus}" }
capture = { token = "$.token" }
[[step]]
path = "/api"
[[step]]
path = "/open"
auth = "none"
[[step]]
path = "/by-hand"
headers = { authorization = "Key 1" }
[[step]]
path = "/captured"
basic = { user = "${token}", password = "" }
"#,
        &[("env.P", "é"), ("cpus", "2")],
    );
    let sent: Vec<_> = log.iter().map(|got| header(got, "authorization")).collect();
    assert_eq!(
        sent,
        [
            // ana:é:2 and t1:
            Some("Basic YW5hOsOpOjI="),
            Some("Bearer t1"),
            None,
            Some("Key 1"),
            Some("Basic dDE6"),
        ]
    );
    insta::assert_snapshot!(problems(
        r#"bearer = "${token}"
headers = { authorization = "x" }
[[step]]
path = "/login"
capture = { token = "$.token" }
[[step]]
path = "/b"
basic = { user = "a:b", passwort = "" }
bearer = ""
[[step]]
path = "/c"
basic = { user = "a:b", passwort = "" }
[[step]]
path = "/d"
bearer = "a"
auth = "none"
headers = { Authorization = "x" }
[[step]]
path = "/e"
auth = "some"
"#
    ), @r#"
    w.toml:1:1: `bearer` in the workload sets the header `authorization`, and `headers` has one too
      hint: keep one of them
    w.toml:1:11: `${token}` is used before the step that captures it has been answered
      hint: a step that needs no credentials says so with `auth = "none"`
    w.toml:9:1: [[step]] number 2 has both `basic` and `bearer` (allowed: one of them)
    w.toml:12:20: the user of `basic` cannot hold a colon
    w.toml:12:25: unknown key `passwort` in `basic` of [[step]] number 3
      hint: did you mean `password`?
    w.toml:15:1: `bearer` in [[step]] number 4 sets the header `authorization`, and `headers` has one too
      hint: keep one of them
    w.toml:16:1: [[step]] number 4 has credentials of its own and `auth = "none"`
    w.toml:20:8: `auth` in [[step]] number 5 must be "none", not the text "some"
    "#);
}

#[test]
fn a_step_can_have_a_time_limit_of_its_own() {
    let server = TestServer::start(|got| {
        if got.path == "/slow" {
            Reply::After(ms(150), Box::new(ok()))
        } else {
            Reply::Never
        }
    });
    let text = "on_failure = \"continue\"\n[[step]]\npath = \"/slow\"\ntimeout = \"10s\"\n\
        [[step]]\npath = \"/never\"\ntimeout = \"40ms\"";
    let steps = exchanges(&server, &workload(text), &[]);
    assert_eq!(steps[0].outcome, Outcome::Success);
    assert_eq!(
        (steps[1].outcome, steps[1].why.as_deref()),
        (Outcome::Error(Timeout), Some("no whole answer within 40ms"))
    );
    // The same under load, where the load's own limit is below the one and above the other.
    let mut plan = plan(&server.target, workload(text), &[(closed(1), 500)]);
    plan.timeout = ms(60);
    let counts = run_one(plan).total.counts;
    assert!(counts.successes >= 1, "{counts:?}");
    assert!(counts.errors.timeout >= 1, "{counts:?}");
    assert_eq!(counts.errors.total(), counts.errors.timeout);
    assert!(problems("[[step]]\npath = \"/\"\ntimeout = \"0s\"").contains("must be longer than 0"));
}

#[test]
fn every_rule_of_expect_is_met_or_says_why_not() {
    let json = r#"{"id": "p-17", "n": 12, "gone": null, "list": [{"a": true}]}"#;
    let head = "HTTP/1.1 200 OK\r\nETag: W/\"1\"\r\nVia: a\r\nVia: b\r\n";
    let reply = Reply::Raw(format!(
        "{head}content-length: {}\r\n\r\n{json}",
        json.len()
    ));
    for (expect, why) in [
        (
            "json_matches = { \"$.id\" = '^p-\\d+$', \"$.n\" = \"^12$\" }",
            "",
        ),
        (
            "json_matches = { \"$.id\" = '^\\d+$' }",
            "`$.id` is \"p-17\", which does not match `^\\d+$`",
        ),
        ("json_matches = { \"$.x\" = \"\" }", "the body has no `$.x`"),
        ("json_matches = { \"$.list\" = '\"a\":true' }", ""),
        ("exists = [\"$.list[0].a\", \"$.gone\"]", ""),
        ("exists = \"$.list[1]\"", "the body has no `$.list[1]`"),
        ("absent = [\"$.error\", \"$.list[1]\"]", ""),
        (
            "absent = \"$.gone\"",
            "`$.gone` is null where nothing was expected",
        ),
        ("contains = [\"p-17\", \"list\"]", ""),
        (
            "contains = [\"p-17\", \"p-18\"]",
            "the body does not contain \"p-18\"",
        ),
        ("not_contains = \"error\"", ""),
        (
            "not_contains = [\"x\", \"p-17\"]",
            "the body contains \"p-17\"",
        ),
        ("matches = '(?i)\"ID\":\\s*\"p-'", ""),
        ("matches = ['id', '^$']", "the body does not match `^$`"),
        ("size = 60", ""),
        ("size = { min = 10, max = \"1 KB\" }", ""),
        (
            "size = { min = \"1 KB\" }",
            "the body is 60 bytes long where at least 1024 (1.0 KiB) was expected",
        ),
        (
            "size = { max = 59 }",
            "the body is 60 bytes long where at most 59 was expected",
        ),
        (
            "size = { min = 1, max = 2 }",
            "the body is 60 bytes long where 1 to 2 was expected",
        ),
        ("headers = { etag = 'W/\"1\"', via = \"b\" }", ""),
        (
            "headers = { via = \"c\" }",
            "the header `via` is \"a\" where \"c\" was expected",
        ),
        (
            "headers = { x-y = \"c\" }",
            "the answer has no header `x-y`",
        ),
        ("header_matches = { etag = '^W/', via = \"b\" }", ""),
        (
            "header_matches = { etag = '^S/' }",
            "the header `etag` is \"W/\"1\"\", which does not match `^S/`",
        ),
    ] {
        let (outcome, found) = outcome_of(&reply, &format!("expect = {{ {expect} }}"));
        let is_met = outcome == Outcome::Success;
        assert_eq!(is_met, why.is_empty(), "{expect}: {found}");
        assert!(is_met || outcome == Outcome::Error(Body), "{expect}");
        assert!(found.starts_with(why), "{expect}: {found}");
    }
}

#[test]
fn what_expect_cannot_mean_is_told_with_its_place() {
    insta::assert_snapshot!(problems(
        r#"[[step]]
path = "/"
expect = { matches = '(a', json_matches = { id = "a", "$.a" = "${cpus}" }, exists = [7, "a"] }
[[step]]
path = "/"
expect = { not_contains = "", contains = { a = 1 }, size = "big", headers = { "a b" = "c" } }
[[step]]
path = "/"
expect = { size = { least = 1 }, header_matches = { etag = "[" }, matches = "(a{1000}){1000}" }
[[step]]
path = "/"
expect = { size = { min = 2, max = 1 }, not_exists = "$.a" }
[[step]]
path = "/"
expect = { size = -1, status = 7 }
refused = 1000
"#
    ), @r#"
    w.toml:3:22: `(a` is not a pattern: unclosed group
      hint: patterns are regular expressions; a text in single quotes needs no second backslash
    w.toml:3:45: `id` is not a JSON path: it does not start with `$` (allowed: `$.name`, `$['a name']`, `$[0]`)
    w.toml:3:64: a pattern cannot hold `${}`
    w.toml:3:86: `exists` in `expect` of [[step]] number 1 must be a text in quotes, not the number 7
    w.toml:3:89: `a` is not a JSON path: it does not start with `$` (allowed: `$.name`, `$['a name']`, `$[0]`)
    w.toml:6:27: `not_contains` in `expect` of [[step]] number 2 must not be empty
    w.toml:6:42: `contains` in `expect` of [[step]] number 2 must be a text in quotes, not a table
    w.toml:6:60: `size` in `expect` of [[step]] number 2: `big` is not a size (allowed: a number with b, k, m or g, such as 512m or 1.5g)
    w.toml:6:79: `a b` is not the name of a header
    w.toml:9:12: `size` in `expect` of [[step]] number 3 has neither `min` nor `max`
    w.toml:9:21: unknown key `least` in `size` in `expect` of [[step]] number 3
      hint: allowed here: min, max
    w.toml:9:60: `[` is not a pattern: unclosed character class
      hint: patterns are regular expressions; a text in single quotes needs no second backslash
    w.toml:9:77: `(a{1000}){1000}` is not a pattern: Compiled regex exceeds size limit of 4194304 bytes
      hint: patterns are regular expressions; a text in single quotes needs no second backslash
    w.toml:12:12: `size` in `expect` of [[step]] number 4 has a `min` above its `max`
    w.toml:12:41: unknown key `not_exists` in `expect` of [[step]] number 4
      hint: allowed here: status, json, json_matches, exists, absent, contains, not_contains, matches, size, headers, header_matches
    w.toml:15:19: `size` in `expect` of [[step]] number 5 must be a size such as 512 or "1 KB", not the number -1
    w.toml:15:32: `status` in `expect` of [[step]] number 5 must be an HTTP status from 100 to 599 or a list of them, not the number 7
    w.toml:16:11: `refused` in [[step]] number 5 must be an HTTP status from 100 to 599 or a list of them, not the number 1000
    "#);
}

#[test]
fn a_step_has_its_own_statuses_that_mean_refused() {
    let text = "on_failure = \"continue\"\n[[step]]\npath = \"/503\"\nrefused = [503, 507]\n\
        [[step]]\npath = \"/429\"\nrefused = 503\n[[step]]\npath = \"/503\"";
    let server =
        TestServer::start(|got| Reply::Answer(got.path[1..].parse().unwrap(), String::new()));
    let outcomes: Vec<_> = exchanges(&server, &workload(text), &[])
        .iter()
        .map(|exchange| exchange.outcome)
        .collect();
    let refused = Outcome::Refused;
    assert_eq!(outcomes, [refused, refused, Outcome::Error(Status)]);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn encoded(coding: &str, body: &[u8]) -> Reply {
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    Reply::Bytes(bytes)
}

#[test]
fn an_answer_that_came_compressed_is_looked_at_as_what_it_is() {
    let json = b"{\"id\": 7}";
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(json).unwrap();
    let zlib = zlib.finish().unwrap();
    let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
    bare.write_all(json).unwrap();
    let bare = bare.finish().unwrap();
    let members = [gzip(&json[..4]), gzip(&json[4..])].concat();
    let cut = &gzip(json)[..12];
    let look = "expect = { json = { \"$.id\" = 7 } }";
    for (reply, step, why) in [
        (encoded("gzip", &gzip(json)), look, ""),
        (encoded("gzip", &members), look, ""),
        (
            encoded("X-GZIP", &gzip(json)),
            "capture = { id = \"$.id\" }",
            "",
        ),
        (encoded("deflate", &zlib), look, ""),
        (encoded("deflate", &bare), look, ""),
        (encoded("identity", json), look, ""),
        (encoded("deflate, gzip", &gzip(&zlib)), look, ""),
        (encoded("gzip", b""), "", ""),
        (encoded("gzip", cut), look, "the body is not gzip: "),
        (encoded("gzip", b"plain"), look, "the body is not gzip: "),
        (encoded("deflate", b"{}"), look, "the body is not deflate: "),
        (
            encoded("br", b"x"),
            look,
            "the body is encoded as `br`, which is not understood",
        ),
        (
            encoded("gzip,gzip,gzip,gzip,gzip", b"x"),
            look,
            "the body is encoded more than 4",
        ),
        // Nobody looks: nothing can be wrong with it.
        (encoded("br", b"x"), "expect = { size = 1 }", ""),
        (encoded("gzip", cut), "", ""),
        (
            encoded("gzip", &gzip(b"no such patient")),
            "expect = { status = 201 }",
            "status 200 where 201 was expected: no such patient",
        ),
    ] {
        let (outcome, found) = outcome_of(&reply, step);
        assert_eq!(
            outcome == Outcome::Success,
            why.is_empty(),
            "{step}: {found}"
        );
        assert!(found.starts_with(why), "{why}: {found}");
    }
}

#[test]
fn compression_is_asked_for_where_the_file_says_so() {
    let server = TestServer::start(|_| encoded("gzip", &gzip(b"hello")));
    let log = got(
        &server,
        "gzip = true\n[[step]]\npath = \"/\"\nexpect = { contains = \"hello\" }\n\
         [[step]]\npath = \"/\"\ngzip = false\n\
         [[step]]\npath = \"/\"\nheaders = { accept-encoding = \"br\" }",
        &[],
    );
    let asked = log.iter().map(|got| header(got, "accept-encoding"));
    assert_eq!(
        asked.collect::<Vec<_>>(),
        [Some("gzip, deflate"), None, Some("br")]
    );
    let shown = exchanges(&server, &workload("[[step]]\npath = \"/\""), &[]);
    assert_eq!(shown[0].answer.as_ref().unwrap().body, "hello");
    assert!(
        problems("headers = { accept-encoding = \"br\" }\ngzip = true\n[[step]]\npath = \"/\"")
            .starts_with("w.toml:2:1: `gzip` in the workload sets the header `accept-encoding`")
    );
}

#[test]
fn a_busy_service_that_says_when_to_come_again_is_heard() {
    let server = TestServer::start(|got| {
        let (status, after) = match got.index % 4 {
            0 => (429, "Retry-After: 7\r\n"),
            1 => (
                503,
                "retry-after: Sun, 06 Nov 1994 08:50:07 GMT\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            ),
            2 => (429, "retry-after: soon\r\n"),
            _ => (200, "retry-after: 99\r\n"),
        };
        Reply::Raw(format!(
            "HTTP/1.1 {status} X\r\n{after}content-length: 0\r\n\r\n"
        ))
    });
    let text = "on_failure = \"continue\"\n[[step]]\npath = \"/\"\nthink = \"5ms\"";
    let shown = exchanges(&server, &workload(text), &[]);
    assert_eq!(
        shown[0].why.as_deref(),
        Some("status 429, which means refused, asking to wait 7 s")
    );
    let summary = run_one(plan(&server.target, workload(text), &[(closed(1), 400)]));
    let found = summary.retry_after;
    let counts = summary.total.counts;
    // One of two refused answers says it, and every 503.
    let wanted = counts.errors.status + counts.refused / 2;
    assert!(found.answers.abs_diff(wanted) <= 1, "{found:?} {counts:?}");
    assert_eq!((found.shortest.as_secs(), found.longest.as_secs()), (7, 30));
    assert_eq!(
        found.words().unwrap(),
        format!(
            "{} answers asked to wait 7 to 30 s (Retry-After)",
            found.answers
        )
    );
    let none = run_one(plan(
        &TestServer::start(|_| ok()).target,
        workload("[[step]]\npath = \"/\""),
        &[(closed(1), 50)],
    ));
    assert_eq!(none.retry_after.words(), None);
}

#[test]
fn bytes_of_bodies_are_counted_as_they_came() {
    let chunked = "transfer-encoding: chunked\r\n\r\n4\r\nfour\r\n3;x=y\r\nsix\r\n0\r\n\r\n";
    let server = TestServer::start(move |got| match got.index % 3 {
        0 => Reply::Answer(200, "abc".into()),
        1 => Reply::Raw(format!("HTTP/1.1 200 OK\r\n{chunked}")),
        _ => Reply::Answer(404, "no".into()),
    });
    let step = "on_failure = \"continue\"\n[[step]]\npath = \"/\"\nthink = \"5ms\"";
    let summary = run_one(plan(&server.target, workload(step), &[(closed(1), 400)]));
    let counts = summary.total.counts;
    // One connection: three and seven bytes take turns; whichever began the window is one more.
    let errors = counts.errors.status;
    let found = summary.body_bytes.unwrap() - 2 * errors;
    assert!(errors > 5, "{counts:?}");
    assert!(
        found.abs_diff(5 * counts.successes) <= 2,
        "{found} of {counts:?}"
    );
    let server = TestServer::start(|_| Reply::AnswerThenClose(204, String::new()));
    let step = "[[step]]\npath = \"/\"\nthink = \"5ms\"";
    let nothing = run_one(plan(&server.target, workload(step), &[(closed(1), 50)]));
    assert_eq!(nothing.body_bytes, Some(0));
}

#[test]
fn the_example_of_the_readme_is_a_workload() {
    let readme = include_str!("../../README.md");
    let start = readme.find("bearer    = ").unwrap();
    let example = readme[start..].split("```").next().unwrap();
    let workload = workload(example);
    assert_eq!(workload.requests_once(), 1);
    assert_eq!(workload.environment().len(), 1);
}
