//! Misbehaviour that needs a server of its own: what it reads, when it speaks, how it ends.
//! The rest is the table of `misbehaviour_tests`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::test_load::{closed, ms, open, plan, run_one, workload};
use super::test_server::{Got, Reply, TestServer, answer, ok};
use super::{Target, Workload};
use crate::tls::Wire;

/// A server that does with each connection what a test says, on a thread of its own.
pub(super) fn raw_server(serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> Target {
    let listener = little_listener();
    let address = listener.local_addr().unwrap();
    // Ends with the process of the tests: whoever connects last would have to be awaited.
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    Target {
        addresses: vec![address],
        host: address.to_string(),
        base_path: String::new(),
        wire: Wire::default(),
    }
}

/// Takes in little that nobody reads, so that a large request is not sent at once.
fn little_listener() -> TcpListener {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let listener = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(32 << 10).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.listen(128).unwrap().into_std().unwrap()
    });
    listener.set_nonblocking(false).unwrap();
    listener
}

/// Reads to the end of a request's head and leaves the rest where it is.
fn read_head(stream: &mut TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
        head.push(byte[0]);
    }
}

/// A request of 5 MB, more than the system takes in without a reader.
fn large_request() -> Workload {
    let body = "x".repeat(5 << 20);
    workload(&format!(
        "[[step]]\nmethod = \"POST\"\npath = \"/\"\nbody = \"{body}\"\nexpect = {{ status = 413 }}"
    ))
}

#[test]
fn an_answer_that_comes_before_the_request_was_sent_whole_is_heard() {
    const TOO_LARGE: &[u8] = b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n";
    let held = Arc::new(Mutex::new(Vec::new()));
    let keeps_open = move |mut stream: TcpStream| {
        read_head(&mut stream);
        let _ = stream.write_all(TOO_LARGE);
        // The rest is never read.
        held.lock().unwrap().push(stream);
    };
    let target = raw_server(keeps_open);
    let mut plan = plan(&target, large_request(), &[(closed(2), 300)]);
    (plan.timeout, plan.drain) = (ms(10_000), ms(10_000));
    for model in [closed(2), open(40.0, 20)] {
        plan.phases[0].model = model;
        let counts = run_one(plan.clone()).total.counts;
        assert!(counts.successes > 0, "{counts:?}");
        assert_eq!(counts.successes, counts.due, "{counts:?}");
    }
}

/// Reads whole requests of [`large_request`], a little at a time, and answers them.
fn reads_in_pieces(mut stream: TcpStream, n_served: &AtomicU64) {
    const LENGTH: usize = 5 << 20;
    loop {
        read_head(&mut stream);
        let (mut piece, mut n_read) = (vec![0; 16 << 10], 0);
        while n_read < LENGTH {
            match stream.read(&mut piece) {
                Ok(n) if n > 0 => {
                    assert!(
                        piece[..n].iter().all(|byte| *byte == b'x'),
                        "after {n_read}"
                    );
                    n_read += n;
                }
                _ => return,
            }
        }
        assert_eq!(n_read, LENGTH, "nothing follows before the answer");
        n_served.fetch_add(1, Ordering::SeqCst);
        let _ = stream.write_all(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n");
    }
}

#[test]
fn a_request_that_goes_out_in_pieces_is_whole_on_a_kept_connection_too() {
    let (n_served, n_connections) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let (served, connections) = (Arc::clone(&n_served), Arc::clone(&n_connections));
    let target = raw_server(move |stream| {
        connections.fetch_add(1, Ordering::SeqCst);
        reads_in_pieces(stream, &served);
    });
    let mut plan = plan(&target, large_request(), &[(closed(2), 1_500)]);
    (plan.timeout, plan.drain) = (ms(20_000), ms(20_000));
    let summary = run_one(plan);
    let counts = summary.total.counts;
    assert!(counts.due > 2, "more than one on a connection: {counts:?}");
    assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
    assert!(n_served.load(Ordering::SeqCst) >= counts.due);
    assert_eq!(n_connections.load(Ordering::SeqCst), 2);
}

#[test]
fn a_server_that_floods_and_does_not_read_keeps_no_thread() {
    let floods = |mut stream: TcpStream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let noise = vec![b'x'; 1 << 20];
        while stream.write_all(&noise).is_ok() {}
    };
    let target = raw_server(floods);
    let mut plan = plan(&target, large_request(), &[(closed(1), 300)]);
    (plan.timeout, plan.threads) = (ms(200), 1);
    let began = Instant::now();
    let counts = run_one(plan).total.counts;
    assert!(began.elapsed() < ms(10_000), "{:?}", began.elapsed());
    assert!(counts.errors.timeout > 0, "{counts:?}");
    assert_eq!(counts.errors.timeout, counts.due, "{counts:?}");
}

#[test]
fn a_greeting_of_another_protocol_is_told_as_such() {
    let greets = |mut stream: TcpStream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    };
    let target = raw_server(greets);
    let summary = run_one(plan(&target, Workload::get("/"), &[(closed(2), 250)]));
    let counts = summary.total.counts;
    assert!(counts.due > 0);
    assert_eq!(counts.errors.protocol, counts.due, "{:?}", summary.failures);
    assert!(summary.failures[0].contains("220 mail.example"));
}

#[test]
fn refused_connections_are_counted_as_they_were_due() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = Target {
        addresses: vec![unused],
        host: unused.to_string(),
        base_path: String::new(),
        wire: Wire::default(),
    };
    let summary = run_one(plan(&target, Workload::get("/"), &[(open(100.0, 10), 400)]));
    let counts = summary.total.counts;
    assert_eq!((counts.due, counts.errors.connect), (40, 40), "{counts:?}");
    assert_eq!(summary.total.p99_due_ms, Some(f64::INFINITY));
}

#[test]
fn a_burst_of_errors_ends_with_its_cause_and_costs_no_connection() {
    let server = TestServer::start(|got: &Got| match got.index {
        20..60 => Reply::Answer(503, "busy".into()),
        _ => Reply::After(ms(1), Box::new(ok())),
    });
    let text = "on_failure = \"continue\"\n[[step]]\npath = \"/\"";
    let summary = run_one(plan(&server.target, workload(text), &[(closed(2), 400)]));
    let counts = summary.total.counts;
    assert_eq!(counts.errors.status, 40, "{counts:?}");
    assert_eq!(counts.successes + 40, counts.due, "{counts:?}");
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 2);
}

/// Connections that are closed or reset at any moment: a request is sent once or, on a
/// connection that was known to be closed, on a new one.
#[test]
fn connections_closed_at_random_never_make_a_request_be_sent_twice() {
    let server = TestServer::start(|got: &Got| match (got.index * 7) % 11 {
        0 => Reply::AnswerThenClose(200, "bye".into()),
        1 => Reply::Reset(String::from_utf8(answer(200, "bye")).unwrap()),
        2 => Reply::RawThenClose(String::new()),
        3 => Reply::Reset(String::new()),
        4 => Reply::Raw(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
        _ => ok(),
    });
    let text = "on_failure = \"continue\"\n\
                [[step]]\nmethod = \"POST\"\npath = \"/${counter}\"\n\
                [[step]]\npath = \"/${counter}\"\nthink = \"2ms\"";
    let summary = run_one(plan(&server.target, workload(text), &[(closed(4), 500)]));
    let counts = summary.total.counts;
    assert_eq!(
        counts.successes + counts.errors.reset,
        counts.due,
        "{:?}",
        summary.failures
    );
    assert!(counts.errors.reset > 0 && counts.successes > counts.errors.reset);
    let mut paths: Vec<String> = server.log().into_iter().map(|(_, got)| got.path).collect();
    let n_seen = paths.len() as u64;
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len() as u64, n_seen, "a request was sent twice");
    assert!(n_seen <= counts.requests + summary.outside, "{counts:?}");
}
