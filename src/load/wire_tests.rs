//! Load over TLS and in HTTP/2: the same figures as without, and failures with their words.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use indexmap::IndexMap;

use super::rude_server_tests::raw_server;
use super::test_http2::{certificate_file, server_config};
use super::test_load::{closed, ms, open, plan, run_one, workload};
use super::test_server::{Got, Over, Reply, TestServer, ok};
use super::{Exchange, Target, once};
use crate::measure::ErrorClass::{Connect, Protocol, Reset};
use crate::measure::{ErrorClass, Outcome};
use crate::tls::{TlsClient, TlsSettings, Wire};

fn trusting(ca: &str) -> TlsSettings {
    TlsSettings {
        ca: Some(certificate_file(ca)),
        ..TlsSettings::default()
    }
}

fn over_tls(settings: TlsSettings, http2: bool) -> Wire {
    Wire {
        tls: Some(TlsClient::new(settings).unwrap()),
        http2,
    }
}

/// What a client needs for a server of the test authority.
pub(super) fn wire_to(over: &Over) -> Wire {
    let http2 = matches!(over, Over::Http2 | Over::Http2Tls(_));
    match over {
        Over::Plain | Over::Http2 => Wire { tls: None, http2 },
        Over::Tls(_) | Over::LateTls(..) | Over::Http2Tls(_) => over_tls(trusting("ca.pem"), http2),
    }
}

fn target_of(server: &TestServer, wire: Wire) -> Target {
    Target {
        wire,
        ..server.target.clone()
    }
}

fn all_wires() -> [Over; 3] {
    [
        Over::Tls(server_config("server", "http/1.1", false)),
        Over::Http2,
        Over::Http2Tls(server_config("server", "h2", false)),
    ]
}

/// One journey, and how its requests ended.
fn send_once(target: &Target, text: &str) -> Vec<Exchange> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (workload, variables) = (workload(text), IndexMap::new());
    let sent = once(target, &workload, &variables, ms(2_000));
    runtime.block_on(sent).unwrap()
}

fn assert_fails(target: &Target, class: ErrorClass, words: &str) {
    let exchange = send_once(target, "[[step]]\npath = \"/\"").remove(0);
    let why = exchange.why.unwrap_or_default();
    assert_eq!(exchange.outcome, Outcome::Error(class), "{words}: {why}");
    assert!(why.contains(words), "{words}: {why}");
}

#[test]
fn figures_rules_and_captures_are_the_same_over_every_wire() {
    let text = "headers = { x-user = \"u${user}\" }\n\
        [[step]]\nname = \"make\"\nmethod = \"POST\"\npath = \"/made?n=${counter}\"\n\
        json = { n = \"${counter}\" }\nexpect = { status = 201, json = { \"$.id\" = 7 } }\n\
        capture = { id = \"$.id\", tag = \"header:etag\" }\n\
        [[step]]\nname = \"read\"\npath = \"/read/${id}\"\nheaders = { if-match = \"${tag}\" }\n\
        [[step]]\nname = \"head\"\nmethod = \"HEAD\"\npath = \"/head\"\n";
    for over in all_wires() {
        let wire = wire_to(&over);
        let is_http2 = wire.http2;
        let server = TestServer::start_over(over, move |got: &Got| {
            let body = match got.method.as_str() {
                "POST" => return raw_or_answer(is_http2, 201, "{\"id\": 7}"),
                "HEAD" => "",
                _ => "read",
            };
            raw_or_answer(is_http2, 200, body)
        });
        for model in [closed(3), open(150.0, 20)] {
            let target = target_of(&server, wire.clone());
            let summary = run_one(plan(&target, workload(text), &[(model, 300)]));
            let counts = summary.total.counts;
            assert!(counts.due >= 20, "{counts:?}");
            assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
            if model == closed(3) {
                let connections = server.seen.connections.load(Ordering::SeqCst);
                assert_eq!(connections, 3, "a user is a connection");
            }
        }
        for (_, got) in server.log() {
            assert!(got.head.contains("x-user: u"), "{}", got.head);
            match got.method.as_str() {
                "POST" => assert!(got.body.starts_with("{\"n\":"), "{}", got.body),
                "GET" => {
                    assert_eq!(got.path, "/read/7");
                    assert!(got.head.contains("if-match: v7"), "{}", got.head);
                }
                _ => assert_eq!(got.path, "/head"),
            }
        }
    }
}

fn raw_or_answer(is_http2: bool, status: u16, body: &str) -> Reply {
    if is_http2 {
        return Reply::Answer(status, body.to_owned());
    }
    let length = body.len();
    Reply::Raw(format!(
        "HTTP/1.1 {status} X\r\nETag: v7\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

#[test]
fn a_certificate_that_is_not_to_be_trusted_says_why() {
    for (certificate, settings, words) in [
        ("expired", trusting("ca.pem"), "certificate has expired"),
        (
            "other",
            trusting("ca.pem"),
            "is for elsewhere.test, not for `127.0.0.1`",
        ),
        ("server", trusting("own.pem"), "nobody we trust has signed"),
        ("own", trusting("ca.pem"), "not to be trusted: "),
        (
            "server",
            TlsSettings {
                server_name: Some("far.test".to_owned()),
                ..trusting("ca.pem")
            },
            "not for `far.test`",
        ),
    ] {
        let config = server_config(certificate, "http/1.1", false);
        let server = TestServer::start_over(Over::Tls(config), |_| ok());
        let target = target_of(&server, over_tls(settings, false));
        assert_fails(&target, Connect, words);
        assert_eq!(server.requests(), 0);
    }
}

#[test]
fn whoever_the_user_trusts_is_trusted() {
    for (certificate, settings) in [
        ("server", trusting("ca.pem")),
        // One that is an authority of its own, as it is.
        ("own", trusting("own.pem")),
        (
            "other",
            TlsSettings {
                server_name: Some("elsewhere.test".to_owned()),
                ..trusting("ca.pem")
            },
        ),
        (
            "expired",
            TlsSettings {
                insecure: true,
                ..TlsSettings::default()
            },
        ),
    ] {
        let config = server_config(certificate, "http/1.1", false);
        let server = TestServer::start_over(Over::Tls(config), |_| ok());
        let target = target_of(&server, over_tls(settings, false));
        let exchange = send_once(&target, "[[step]]\npath = \"/\"").remove(0);
        assert_eq!(exchange.outcome, Outcome::Success, "{:?}", exchange.why);
    }
}

#[test]
fn a_server_that_asks_who_we_are_is_told_or_refuses() {
    let ours = TlsSettings {
        identity: Some((
            certificate_file("client.pem"),
            certificate_file("client.key"),
        )),
        ..trusting("ca.pem")
    };
    for (protocol, http2) in [("http/1.1", false), ("h2", true)] {
        let config = server_config("server", protocol, true);
        let over = if http2 {
            Over::Http2Tls(config)
        } else {
            Over::Tls(config)
        };
        let server = TestServer::start_over(over, |_| ok());
        let unknown = target_of(&server, over_tls(trusting("ca.pem"), http2));
        if http2 {
            // hyper writes before it reads: where the server has hung up by then, what it
            // said is lost.
            let why = send_once(&unknown, "[[step]]\npath = \"/\"").remove(0);
            let told = "TLS: received fatal alert: CertificateRequired";
            let is_told = why.why.as_deref().is_some_and(|why| why.contains(told));
            let class = if is_told { Connect } else { Reset };
            assert_eq!(why.outcome, Outcome::Error(class), "{:?}", why.why);
        } else {
            assert_fails(&unknown, Connect, "asks for a certificate of ours");
        }
        let known = target_of(&server, over_tls(ours.clone(), http2));
        let exchange = send_once(&known, "[[step]]\npath = \"/\"").remove(0);
        assert_eq!(exchange.outcome, Outcome::Success, "{:?}", exchange.why);
    }
}

#[test]
fn whoever_speaks_another_protocol_is_told_apart() {
    let plain = raw_server(|mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 9]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let plain = |wire| Target {
        wire,
        ..plain.clone()
    };
    let tls = TestServer::start_over(
        Over::Tls(server_config("server", "http/1.1", false)),
        |_| ok(),
    );
    let http2 = TestServer::start_over(Over::Http2, |_| ok());
    let secured = |http2| over_tls(trusting("ca.pem"), http2);
    let h2c = Wire {
        tls: None,
        http2: true,
    };
    assert_fails(&plain(secured(false)), Connect, "is no TLS");
    assert_fails(&plain(h2c), Protocol, "HTTP/2: ");
    assert_fails(&http2.target, Protocol, "is not HTTP/1.1");
    assert_fails(&target_of(&tls, secured(true)), Connect, "TLS: ");
    // TLS is spoken there, and the load speaks none.
    let exchange = send_once(&tls.target, "[[step]]\npath = \"/\"").remove(0);
    assert!(
        matches!(exchange.outcome, Outcome::Error(Protocol | Reset)),
        "{exchange:?}"
    );
}

#[test]
fn a_handshake_is_a_part_of_the_first_latency_and_of_the_timeout() {
    let config = server_config("server", "http/1.1", false);
    let server = TestServer::start_over(Over::LateTls(config, ms(60)), |_| ok());
    let wire = over_tls(trusting("ca.pem"), false);
    let target = target_of(&server, wire.clone());
    let text = "[[step]]\npath = \"/\"";
    let summary = run_one(plan(&target, workload(text), &[(closed(1), 300)]));
    let counts = summary.total.counts;
    assert!(
        counts.successes > 1 && counts.successes == counts.due,
        "{counts:?}"
    );
    assert!(summary.total.latency_ms.max.unwrap() >= 60.0);
    assert!(summary.total.latency_ms.p50.unwrap() < 60.0);

    // Accepts connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target {
        addresses: vec![silent.local_addr().unwrap()],
        ..target_of(&server, wire)
    };
    for model in [closed(1), open(20.0, 10)] {
        let mut plan = plan(&target, workload(text), &[(model, 300)]);
        plan.timeout = ms(100);
        let counts = run_one(plan).total.counts;
        assert!(counts.due > 0);
        assert_eq!(counts.errors.timeout, counts.due, "{counts:?}");
    }
}

#[test]
fn a_server_of_http2_that_misbehaves_fails_its_request_alone() {
    let text = "on_failure = \"continue\"\n\
        [[step]]\npath = \"/ok\"\n[[step]]\npath = \"/reset\"\n[[step]]\npath = \"/ok\"\n\
        [[step]]\npath = \"/never\"\n[[step]]\npath = \"/ok\"\n[[step]]\npath = \"/goes\"\n\
        [[step]]\npath = \"/ok\"\n[[step]]\npath = \"/503\"\n[[step]]\npath = \"/ok\"";
    for over in [
        Over::Http2,
        Over::Http2Tls(server_config("server", "h2", false)),
    ] {
        let wire = wire_to(&over);
        let server = TestServer::start_over(over, |got: &Got| match got.path.as_str() {
            "/reset" => Reply::Reset(String::new()),
            "/never" => Reply::Never,
            "/goes" => Reply::AnswerThenClose(200, "bye".to_owned()),
            "/503" => Reply::Answer(503, "busy".to_owned()),
            _ => ok(),
        });
        let target = target_of(&server, wire);
        let mut plan = plan(&target, workload(text), &[(closed(1), 500)]);
        plan.timeout = ms(150);
        let summary = run_one(plan);
        for (name, figures) in &summary.operations {
            let counts = figures.counts;
            let n = match name.as_str() {
                "GET /reset" => counts.errors.reset,
                "GET /never" => counts.errors.timeout,
                "GET /503" => counts.errors.status,
                _ => counts.successes,
            };
            assert_eq!(n, counts.due, "{name}: {counts:?}, {:?}", summary.failures);
        }
        assert!(summary.operations.len() >= 4, "{:?}", summary.operations);
        let counts = summary.total.counts;
        let sent = counts.requests + summary.outside;
        assert!((counts.requests..=sent).contains(&server.requests()));
    }
}

#[test]
fn a_body_that_only_the_end_of_the_stream_ends_is_whole_only_where_tls_says_so() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhalf of it";
    let sized = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhalf";
    for (reply, is_whole) in [
        (Reply::RawThenClose(until_close.to_owned()), true),
        // Anybody on the way may have cut it off there.
        (Reply::RawThenGone(until_close.to_owned()), false),
        (Reply::RawThenGone(sized.to_owned()), true),
        (Reply::RawThenGone(sized.replace('4', "5")), false),
    ] {
        let over = Over::Tls(server_config("server", "http/1.1", false));
        let wire = wire_to(&over);
        let shown = format!("{reply:?}");
        let server = TestServer::start_over(over, move |_| reply.clone());
        let target = target_of(&server, wire);
        let exchange = send_once(&target, "[[step]]\npath = \"/\"").remove(0);
        let expected = if is_whole {
            Outcome::Success
        } else {
            Outcome::Error(Reset)
        };
        assert_eq!(exchange.outcome, expected, "{shown}: {:?}", exchange.why);
    }
}

#[test]
fn connections_that_cannot_be_made_are_counted_as_without_tls() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for http2 in [false, true] {
        let target = Target {
            addresses: vec![unused],
            host: unused.to_string(),
            base_path: String::new(),
            wire: over_tls(trusting("ca.pem"), http2),
        };
        assert_fails(&target, Connect, "refused");
    }
    let config = server_config("expired", "http/1.1", false);
    let server = TestServer::start_over(Over::Tls(config), |_| ok());
    let target = target_of(&server, over_tls(trusting("ca.pem"), false));
    for model in [closed(2), open(50.0, 10)] {
        let text = "[[step]]\npath = \"/\"";
        let summary = run_one(plan(&target, workload(text), &[(model, 300)]));
        let counts = summary.total.counts;
        assert!(counts.due > 0);
        assert_eq!(counts.errors.connect, counts.due, "{counts:?}");
        assert_eq!(summary.total.p99_due_ms, Some(f64::INFINITY));
    }
}

#[test]
fn a_host_that_no_certificate_can_be_for_is_told_before_anything_starts() {
    let server = TestServer::start(|_| ok());
    let target = Target {
        host: "no name:443".to_owned(),
        ..target_of(&server, over_tls(trusting("ca.pem"), false))
    };
    let plan = plan(
        &target,
        workload("[[step]]\npath = \"/\""),
        &[(closed(1), 100)],
    );
    let error = super::RunningLoad::start(plan).unwrap_err().to_string();
    assert!(error.contains("no name"), "{error}");
}
