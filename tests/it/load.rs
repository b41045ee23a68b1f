//! `nightsweep load` against a server on this machine.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::{Sandbox, repository};

/// Answers every request of every connection with a status, for as long as the test lives.
fn server(status: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4_096];
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
                // Requests of these tests are short: one arrives in one piece.
                while stream.read(&mut buffer).is_ok_and(|n| n > 0)
                    && stream.write_all(answer.as_bytes()).is_ok()
                {}
            });
        }
    });
    url
}

#[test]
fn thresholds_decide_the_exit_code() {
    let sandbox = Sandbox::new();
    let url = server(200);
    let load = |more: &[&str]| {
        let fixed = [
            "load",
            &url,
            "--open",
            "50",
            "--arrivals",
            "poisson",
            "--duration",
            "2s",
        ];
        sandbox.run(&[&fixed, more].concat())
    };
    load(&[
        "--threshold",
        "error_rate < 1 %",
        "--threshold",
        "GET /x: p50 < 2s",
    ])
    .exits(0);
    let broken = load(&[
        "--threshold",
        "throughput > 1000/s",
        "--threshold",
        "p50 < 2s",
    ])
    .exits(5);
    assert!(
        broken.stdout.contains("crossed: throughput > 1000/s ("),
        "{}",
        broken.stdout
    );
    assert!(!broken.stdout.contains("crossed: p50"), "{}", broken.stdout);
    let json = load(&["--threshold", "max < 1 us", "--json"]).exits(5);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["thresholds"][0]["rule"], "max < 1 us");
    assert_eq!(report["thresholds"][0]["crossed"], true);
    // A busy host makes it suspect; a crossed threshold never decides.
    assert_ne!(report["verdict"], "failed", "{report}");
    let flags = report["flags"].as_array().unwrap();
    assert!(flags.contains(&"threshold_crossed".into()), "{report}");
}

#[test]
fn a_load_that_is_told_to_ends_early() {
    let sandbox = Sandbox::new();
    let url = server(503);
    let arguments = |json: &'static str| {
        let fixed = [
            "load",
            &url,
            "--open",
            "200",
            "--duration",
            "1m",
            "--abort-after",
            "1s",
        ];
        let rule = ["--threshold", "error_rate < 10 %", json];
        sandbox.run(&[&fixed[..], &rule[..if json.is_empty() { 2 } else { 3 }]].concat())
    };
    let text = arguments("").exits(5).stdout;
    assert!(text.starts_with("the load was ended after "), "{text}");
    assert!(
        text.contains("error_rate < 10 % (100 %) was crossed"),
        "{text}"
    );
    let report: serde_json::Value =
        serde_json::from_str(&arguments("--json").exits(5).stdout).unwrap();
    assert_eq!(report["verdict"], "failed");
    assert_eq!(report["reasons"][0], "threshold_crossed");
    assert!(report["aborted_after_s"].as_f64().unwrap() < 30.0);
}

#[test]
fn thresholds_that_cannot_be_meant_are_refused_before_anything_is_sent() {
    let sandbox = Sandbox::new();
    let refused = |rule: &str| {
        let ended = sandbox.run(&["load", "http://127.0.0.1:9/x", "--threshold", rule]);
        ended.exits(2).stderr
    };
    assert!(refused("p95 < 5").contains("allowed: a time such as 500 ms"));
    assert!(refused("p59 < 5 ms").contains("did you mean p50?"));
    let unknown = refused("GET /y: p95 < 5 ms");
    assert!(unknown.contains("its operations are GET /x"), "{unknown}");
}

/// The same as `server` over TLS, with a test certificate for this address.
fn tls_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/x", listener.local_addr().unwrap());
    let certificate = CertificateDer::from_pem_file(certificate_file("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificate_file("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            std::thread::spawn(move || {
                let mut buffer = [0; 4_096];
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                while stream.read(&mut buffer).is_ok_and(|n| n > 0)
                    && stream.write_all(answer).is_ok()
                {}
            });
        }
    });
    url
}

fn certificate_file(name: &str) -> String {
    let folder = repository().join("tests/fixtures/certificates");
    folder.join(name).display().to_string()
}

#[test]
fn a_load_over_tls_trusts_whom_it_is_told_to() {
    let sandbox = Sandbox::new();
    let url = tls_server();
    let once = |more: &[&str]| sandbox.run(&[&["load", &url, "--once"], more].concat());
    let (ours, others) = (certificate_file("ca.pem"), certificate_file("own.pem"));
    once(&["--ca", &ours]).exits(0);
    once(&["--insecure"]).exits(0);
    let unknown = once(&["--ca", &others]).exits(4);
    assert!(
        unknown
            .stdout
            .contains("TLS: nobody we trust has signed the server's certificate"),
        "{}",
        unknown.stdout
    );
    let json = sandbox
        .run(&["load", &url, "--ca", &ours, "--duration", "1s", "--json"])
        .exits(0);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(report["successes"], report["due"], "{report}");
}

#[test]
fn flags_of_tls_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let sandbox = Sandbox::new();
    let refused = |arguments: &[&str]| sandbox.run(arguments).exits(2).stderr;
    let plain = refused(&["load", "http://127.0.0.1:9/x", "--insecure"]);
    assert!(plain.contains("has no TLS to set up"), "{plain}");
    let missing = refused(&["load", "https://127.0.0.1:9/x", "--ca", "none.pem"]);
    assert!(missing.contains("none.pem"), "{missing}");
}
