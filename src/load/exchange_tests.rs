use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use proptest::prelude::*;

use super::*;
use crate::load::test_load::{closed, ms, open, plan, run_one, workload};
use crate::load::test_server::{Got, Reply, TestServer, ok};
use crate::load::{Exchange, once};
use crate::measure::Outcome;
use crate::tls::Wire;

/// An answer with these lines in its head.
fn headed(status: u16, lines: &str) -> Reply {
    Reply::Raw(format!(
        "HTTP/1.1 {status} X\r\n{lines}content-length: 0\r\n\r\n"
    ))
}

fn to(status: u16, location: &str) -> Reply {
    headed(status, &format!("location: {location}\r\n"))
}

fn exchanges(server: &TestServer, text: &str) -> Vec<Exchange> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let workload = workload(text);
    runtime
        .block_on(once(&server.target, &workload, &IndexMap::new(), ms(5_000)))
        .unwrap()
}

fn seen(server: &TestServer) -> Vec<String> {
    let log = server.log();
    let line = |got: &Got| format!("{} {} {}", got.method, got.path, got.body);
    log.iter()
        .map(|(_, got)| line(got).trim().to_owned())
        .collect()
}

#[test]
fn a_redirect_is_an_answer_like_any_other_unless_it_is_to_be_followed() {
    let server = TestServer::start(|got| match got.path.as_str() {
        "/a" => to(302, "/b"),
        _ => ok(),
    });
    let steps = exchanges(
        &server,
        "on_failure = \"continue\"\nredirects = 2\n[[step]]\npath = \"/a\"\nredirects = 0\n\
         [[step]]\npath = \"/a\"\nexpect = { status = 302 }\n[[step]]\npath = \"/a\"",
    );
    assert_eq!(steps[0].outcome, Outcome::Error(ErrorClass::Status));
    // What `expect` names has been asked for.
    assert_eq!(steps[1].outcome, Outcome::Success);
    assert_eq!(steps[2].outcome, Outcome::Success);
    assert_eq!(seen(&server), ["GET /a", "GET /a", "GET /a", "GET /b"]);
    let followed = &steps[2].redirects[0];
    assert_eq!(
        (
            followed.status,
            followed.location.as_str(),
            followed.request.path.as_str()
        ),
        (302, "/b", "/b")
    );
    assert_eq!(steps[2].request.as_ref().unwrap().path, "/a");
    assert_eq!(steps[2].answer.as_ref().unwrap().body, "ok");
}

#[test]
fn methods_and_bodies_go_on_as_the_status_says() {
    let server = TestServer::start(|got| match got.path.strip_prefix("/r/") {
        Some(status) => to(status.parse().unwrap(), "/done"),
        None => ok(),
    });
    let mut text = String::from("redirects = 1\nbearer = \"t\"\n");
    for (method, status) in [
        ("POST", 301),
        ("PUT", 302),
        ("DELETE", 303),
        ("POST", 307),
        ("POST", 308),
    ] {
        let _ = write!(
            text,
            "[[step]]\nmethod = \"{method}\"\npath = \"/r/{status}\"\njson = {{ a = 1 }}\n"
        );
    }
    for step in exchanges(&server, &text) {
        assert_eq!(step.outcome, Outcome::Success, "{step:?}");
    }
    let all = seen(&server);
    let followed: Vec<&str> = all.iter().skip(1).step_by(2).map(String::as_str).collect();
    assert_eq!(
        followed,
        [
            "GET /done",
            "PUT /done {\"a\":1}",
            "GET /done",
            "POST /done {\"a\":1}",
            "POST /done {\"a\":1}",
        ]
    );
    for (_, got) in server.log() {
        // Credentials are for the target, and that is where it goes.
        assert!(got.head.contains("authorization: Bearer t"), "{}", got.head);
        let has_type = got.head.contains("content-type");
        assert_eq!(has_type, !got.body.is_empty(), "{}", got.head);
    }
}

#[test]
fn a_redirect_elsewhere_or_without_end_is_an_error_that_says_so() {
    let server = TestServer::start(|got| match got.path.as_str() {
        "/out" => to(302, "http://elsewhere.example/x"),
        "/tls" => to(301, "https://127.0.0.1/x"),
        "/self" => to(302, &format!("http://{}/end", host_of(got))),
        "/end" | "/none" => headed(if got.path == "/end" { 200 } else { 302 }, ""),
        _ => to(307, "/loop"),
    });
    let steps = exchanges(
        &server,
        "redirects = 3\non_failure = \"continue\"\n[[step]]\npath = \"/out\"\n[[step]]\npath = \"/tls\"\n\
         [[step]]\npath = \"/self\"\n[[step]]\npath = \"/none\"\n[[step]]\npath = \"/loop\"",
    );
    let host = &server.target.host;
    let why: Vec<_> = steps
        .iter()
        .map(|step| step.why.clone().unwrap_or_default())
        .collect();
    assert_eq!(
        why,
        [
            format!(
                "status 302 leads to http://elsewhere.example/x, which is not the target ({host}) and is not followed"
            ),
            format!(
                "status 301 leads to https://127.0.0.1/x, which is not the target ({host}) and is not followed"
            ),
            String::new(),
            "status 302 where 200 to 299 was expected".into(),
            "status 307 after 3 redirects, now to /loop".into(),
        ]
    );
    for (index, step) in steps.iter().enumerate() {
        let is_success = index == 2;
        let expected = if is_success {
            Outcome::Success
        } else {
            Outcome::Error(ErrorClass::Status)
        };
        assert_eq!(step.outcome, expected);
        assert!(step.answer.is_some(), "the answer that led astray is shown");
    }
    assert_eq!(steps[4].redirects.len(), 3);
}

fn host_of(got: &Got) -> &str {
    let mut lines = got.head.lines();
    lines.find_map(|line| line.strip_prefix("host: ")).unwrap()
}

#[test]
fn under_load_a_followed_redirect_is_one_operation_with_all_its_time() {
    let server = TestServer::start(|got| match got.path.as_str() {
        "/" => to(302, "/next"),
        _ => Reply::After(ms(20), Box::new(ok())),
    });
    let workload = workload("redirects = 1\n[[step]]\npath = \"/\"");
    let summary = run_one(plan(&server.target, workload, &[(open(20.0, 8), 500)]));
    let counts = summary.total.counts;
    assert_eq!((counts.successes, counts.due), (10, 10), "{counts:?}");
    assert!(summary.total.latency_ms.p50.unwrap() >= 20.0);
    let sent = seen(&server);
    let first = sent.iter().filter(|line| *line == "GET /").count();
    assert_eq!(first * 2, sent.len());
}

#[test]
fn each_user_keeps_its_own_cookies() {
    let n_users = Arc::new(AtomicU64::new(0));
    let server = TestServer::start(move |got| {
        let has = |cookie: &str| got.head.contains(cookie);
        match got.path.as_str() {
            "/login" if !has("sid=") => {
                let n = n_users.fetch_add(1, Ordering::SeqCst);
                headed(200, &format!("Set-Cookie: sid={n}; Path=/\r\n"))
            }
            "/move" => headed(
                302,
                "location: /home\r\nset-cookie: seen=yes; path=/home\r\n",
            ),
            "/home" if !has("cookie: seen=yes; sid=") => Reply::Answer(401, String::new()),
            _ if has("sid=") => ok(),
            _ => Reply::Answer(401, String::new()),
        }
    });
    let steps = "[[step]]\nname = \"login\"\npath = \"/login\"\n[[step]]\npath = \"/page\"\n\
        [[step]]\npath = \"/move\"\nredirects = 1\n";
    for (mode, each_user_logs_in) in [("true", 1), ("\"journey\"", 2)] {
        let before = logins(&server);
        let workload = workload(&format!("cookies = {mode}\n{steps}"));
        let summary = run_one(plan(&server.target, workload, &[(closed(3), 300)]));
        let counts = summary.total.counts;
        assert_eq!(
            counts.successes, counts.due,
            "{counts:?} {:?}",
            summary.failures
        );
        let fresh = logins(&server) - before;
        if each_user_logs_in == 1 {
            assert_eq!(fresh, 3, "one each, kept from journey to journey");
        } else {
            assert!(fresh > 3, "each journey begins without: {fresh}");
        }
    }
    // Off, nothing comes back.
    let off = exchanges(&server, &format!("on_failure = \"continue\"\n{steps}"));
    assert_eq!(off[1].outcome, Outcome::Error(ErrorClass::Status));
    // Shown as it was sent.
    let on = exchanges(&server, &format!("cookies = true\n{steps}"));
    let request = on[1].request.as_ref().unwrap();
    assert!(
        request
            .headers
            .iter()
            .any(|(name, value)| name == "cookie" && value.starts_with("sid="))
    );
    assert_eq!(on[2].outcome, Outcome::Success, "{:?}", on[2]);
}

/// Requests of the first step that came without a cookie.
fn logins(server: &TestServer) -> usize {
    let log = server.log();
    let is_fresh = |got: &Got| got.path == "/login" && !got.head.contains("cookie: ");
    log.iter().filter(|(_, got)| is_fresh(got)).count()
}

#[test]
fn references_lead_where_the_standard_says() {
    let hosts = ["app:8080", "proxy"];
    for (reference, path) in [
        ("/x", Some("/x")),
        ("http://app:8080/x?y#z", Some("/x?y")),
        ("HTTP://APP:8080", Some("/")),
        ("http://proxy:80?q", Some("/?q")),
        ("//app:8080/x", Some("/x")),
        ("g", Some("/b/c/g")),
        ("./g/", Some("/b/c/g/")),
        ("../g?x", Some("/b/g?x")),
        ("../../../g", Some("/g")),
        ("..", Some("/b/")),
        (".", Some("/b/c/")),
        ("", Some("/b/c/d?q")),
        ("#f", Some("/b/c/d?q")),
        ("?y", Some("/b/c/d?y")),
        ("/a/./b/../c", Some("/a/c")),
        ("/a b/é", Some("/a%20b/%C3%A9")),
        ("/x?u=http://other/../a", Some("/x?u=http://other/../a")),
        ("x:y", None),
        ("http:g", None),
        ("https://app:8080/x", None),
        ("http://app:8081/x", None),
        ("http://user@app:8080/x", None),
        ("///x", None),
        ("http:///x", None),
        ("mailto:a@b", None),
    ] {
        let found = resolve(reference, "/b/c/d?q", "http", &hosts);
        assert_eq!(found.as_deref(), path, "{reference}");
    }
    let over_tls = |reference| resolve(reference, "/b", "https", &["app", "app:8443"]);
    assert_eq!(over_tls("https://app:443/x").as_deref(), Some("/x"));
    assert_eq!(over_tls("//app:8443/x").as_deref(), Some("/x"));
    assert_eq!(
        over_tls("http://app/x"),
        None,
        "what was secret stays secret"
    );
}

proptest! {
    /// Whatever a server says, what is sent is one request of the load's own, for the target.
    #[test]
    fn no_location_can_become_another_request(
        location in proptest::collection::vec(any::<u8>(), 0..60),
        status in proptest::sample::select(vec![301_u16, 302, 303, 307, 308]),
    ) {
        let location = String::from_utf8_lossy(&location);
        let target = Target {
            addresses: Vec::new(),
            host: "h".into(),
            base_path: String::new(),
            wire: Wire::default(),
        };
        let redirects = Redirects::new(1, &target).unwrap();
        let request = b"POST /a/b HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nok";
        if let Ok(next) = redirects.next(status, &location, request, 0) {
            let (head, body) = split(&next);
            let head = str::from_utf8(head).unwrap();
            let mut lines = head.split_terminator("\r\n");
            let first: Vec<&str> = lines.next().unwrap().split(' ').collect();
            prop_assert_eq!((first.len(), first[2]), (3, "HTTP/1.1"));
            prop_assert!(first[1].starts_with('/') && !first[1].contains('#'));
            prop_assert!(first[1].bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(lines.all(|line| line == "host: h" || line == "content-length: 2"));
            prop_assert!(body.is_empty() || body == b"ok");
        }
    }
}
