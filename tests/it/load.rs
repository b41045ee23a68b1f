//! `nightsweep load` against a server on this machine.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::{Ended, Sandbox, repository};

/// Answers every request of every connection with a status, for as long as the test lives.
fn server(status: u16) -> String {
    server_after(status, Duration::ZERO)
}

/// The same, each answer after so long.
fn server_after(status: u16, wait: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4_096];
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
                // Requests of these tests are short: one arrives in one piece.
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                    std::thread::sleep(wait);
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
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
        broken
            .stdout
            .contains("crossed         throughput > 1000/s ("),
        "{}",
        broken.stdout
    );
    assert!(
        !broken.stdout.contains("crossed         p50"),
        "{}",
        broken.stdout
    );
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
    assert!(text.contains("\nthe load was ended after "), "{text}");
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
fn a_service_that_cannot_keep_up_is_overloaded_and_the_measurement_is_valid() {
    let url = server_after(200, Duration::from_millis(100));
    // Five at a time are 50/s.
    let words = [
        "--open",
        "500",
        "--max-in-flight",
        "5",
        "--duration",
        "2s",
        "--json",
    ];
    let ended = Sandbox::new().run(&[&["load", url.as_str()], &words[..]].concat());
    let report: serde_json::Value = serde_json::from_str(&ended.exits(0).stdout).unwrap();
    assert_eq!(report["verdict"], "valid", "{report}");
    let flags = report["flags"].as_array().unwrap();
    assert!(flags.iter().any(|flag| flag == "overloaded"), "{report}");
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("due"), 1_000, "{report}");
    // What waits at the end has the drain to leave in.
    assert!(count("unsent") > 500, "{report}");
    assert!(
        report["achieved_rate_rps"].as_f64().unwrap() < 60.0,
        "{report}"
    );
    assert_eq!(report["p99_due_ms"], "inf", "{report}");
}

#[test]
fn a_generator_that_is_kept_from_its_cpu_says_so_itself() {
    let url = server(200);
    let words = ["--open", "500", "--duration", "2s", "--json"];
    let sandbox = Sandbox::new();
    let child = sandbox
        .command(&[&["load", url.as_str()], &words[..]].concat())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &id]).status().unwrap();
    // It may run for a fifth of the time.
    for _ in 0..9 {
        std::thread::sleep(Duration::from_millis(50));
        signal("-STOP");
        std::thread::sleep(Duration::from_millis(200));
        signal("-CONT");
    }
    let ended = Ended::of(&child.wait_with_output().unwrap());
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["verdict"], "suspect", "{report}");
    assert_eq!(report["reasons"][0], "generator_saturated", "{report}");
    // The service answered at once, and the latency from due says when.
    assert!(
        report["latency_ms"]["p99"].as_f64().unwrap() > 100.0,
        "{report}"
    );
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
    // A name that holds a value is known once the value is.
    let file = sandbox.write(
        "w.toml",
        "[[step]]\nname = \"read ${kind}\"\npath = \"/${kind}\"\n",
    );
    let target = ["--target", "http://127.0.0.1:9", "--set", "kind=cat"];
    let rule = ["--threshold", "read dog: p95 < 5 ms"];
    let words = [&["load", file.to_str().unwrap()], &target[..], &rule[..]].concat();
    let unknown = sandbox.run(&words).exits(2).stderr;
    assert!(unknown.contains("its operations are read cat"), "{unknown}");
}

#[test]
fn a_rate_above_half_of_what_the_generator_can_do_is_refused_before_anything_is_sent() {
    // Nobody listens on port 1.
    let ended = Sandbox::new()
        .run(&["load", "http://127.0.0.1:1/", "--open", "50000000"])
        .exits(2);
    assert!(
        ended.stderr.contains("asks for 50,000,000 requests/s")
            && ended.stderr.contains("self-test")
            && ended.stderr.contains("hint:"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_url_is_sent_what_the_flags_say() {
    let sandbox = Sandbox::new();
    let url = server(200);
    let sent = |more: &[&str]| -> serde_json::Value {
        let fixed = ["load", &url, "--once", "--json"];
        let ended = sandbox.run(&[&fixed, more].concat()).exits(0);
        let exchanges: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        exchanges[0]["request"].clone()
    };
    let has = |request: &serde_json::Value, name: &str, value: &str| {
        let headers = request["headers"].as_array().unwrap();
        headers.contains(&serde_json::json!([name, value]))
    };
    let json = sent(&["-d", "{\"a\": \"$5\"}", "-H", "X-Key: 7"]);
    assert_eq!(json["method"], "POST");
    assert_eq!(json["body"], "{\"a\": \"$5\"}");
    assert!(has(&json, "content-type", "application/json"), "{json}");
    assert!(has(&json, "x-key", "7"), "{json}");
    sandbox.write("body.txt", "from a file");
    let text = sent(&["-m", "put", "-d", "@body.txt"]);
    assert_eq!(text["method"], "PUT");
    assert_eq!(text["body"], "from a file");
    assert!(!text.to_string().contains("content-type"), "{text}");
    std::fs::write(sandbox.path().join("body.bin"), [b'a', 0, 0xff, b'\n']).unwrap();
    let bytes = sent(&["-d", "@body.bin"]);
    assert!(has(&bytes, "content-length", "4"), "{bytes}");
    assert_eq!(sent(&[])["method"], "GET");
    // user:pa:ss
    let known = sent(&["-a", "user:pa:ss"]).to_string();
    assert!(
        known.contains("\"authorization\"") && !known.contains("pa:ss"),
        "{known}"
    );
    assert!(
        !known.contains("dXNlcjpwYTpzcw=="),
        "it says the password: {known}"
    );
    sandbox.write("w.toml", "[[step]]\npath = '/'");
    let mixed = [
        "load",
        "w.toml",
        "--target",
        "http://127.0.0.1:9",
        "-d",
        "x",
    ];
    let refused = sandbox.run(&mixed).exits(2).stderr;
    assert!(refused.contains("belong to a URL"), "{refused}");
}

#[test]
fn steps_are_held_one_after_the_other_and_each_makes_a_row() {
    let sandbox = Sandbox::new();
    let url = server(200);
    let stages = [
        "--stage",
        "2 users, hold 500ms",
        "--stage",
        "4 users, ramp 200ms, hold 500ms",
        "--threshold",
        "throughput > 1/s",
    ];
    let load = |more: &[&str]| sandbox.run(&[&["load", url.as_str()], &stages[..], more].concat());
    let report: serde_json::Value =
        serde_json::from_str(&load(&["--json", "--quiet"]).exits(0).stdout).unwrap();
    let steps = report["steps"].as_array().unwrap();
    let users: Vec<_> = steps.iter().map(|step| &step["load"]["users"]).collect();
    assert_eq!(users, [2, 4]);
    assert_eq!(steps[1]["step"], 2);
    let due = |step: &serde_json::Value| step["due"].as_u64().unwrap();
    assert_eq!(due(&report), steps.iter().map(due).sum::<u64>());
    let held_s = report["duration_s"].as_f64().unwrap();
    assert!(
        (held_s - 1.0).abs() < 1e-9,
        "ramps are not measured: {held_s}"
    );
    let text = load(&[]).exits(0).stdout;
    assert!(
        text.contains("\n   1  2 users") && text.contains("\n   2  4 users"),
        "{text}"
    );
}

#[test]
fn loads_that_cannot_be_meant_are_refused_with_a_way_out() {
    let sandbox = Sandbox::new();
    let refused = |more: &[&str]| {
        let ended = sandbox.run(&[&["load", "http://127.0.0.1:9/x"], more].concat());
        ended.exits(2).stderr
    };
    let cases: [(&[&str], &str); 6] = [
        (&["-n", "100"], "-n needs --open"),
        (&["-c", "0"], "which is no number of virtual users"),
        (&["-q", "-5"], "-5"),
        (
            &["--stage", "5 users, hold 1s", "--stage", "5/s, hold 1s"],
            "make two loads of them",
        ),
        (
            &["--stage", "5 users, ramp 1s"],
            "nothing would be measured",
        ),
        (
            &["--profile", "breakpoint", "-c", "9"],
            "none ends the load",
        ),
    ];
    for (flags, told) in cases {
        let said = refused(flags);
        assert!(said.contains(told), "{flags:?}: {said}");
    }
}

#[test]
fn a_number_of_requests_is_sent_at_its_rate() {
    let sandbox = Sandbox::new();
    let url = server(200);
    let ended = sandbox.run(&["load", &url, "-q", "80", "-n", "40", "--json", "--quiet"]);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["due"], 40);
    assert_eq!(report["duration_s"], 0.5);
    assert_eq!(ended.stderr, "");
}

#[test]
fn an_interrupted_load_says_what_it_saw_and_gives_no_figures() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let sandbox = Sandbox::new();
    let child = sandbox
        .command(&["load", &url, "-c", "1", "-z", "10m"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The load is on its way once its user is here.
    let (mut user, _) = listener.accept().unwrap();
    assert!(user.read(&mut [0; 4_096]).unwrap() > 0);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = Ended::of(&child.wait_with_output().unwrap()).exits(130);
    assert_eq!(ended.stdout, "");
    assert!(
        ended.stderr.contains("into window (10 min 00 s)"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("this is no measurement"),
        "{}",
        ended.stderr
    );
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
