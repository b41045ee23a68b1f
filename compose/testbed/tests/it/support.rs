//! The running binary and the smallest HTTP client that will do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) const TESTBED: &str = env!("CARGO_BIN_EXE_testbed");

/// A running testbed; killed when dropped.
pub(crate) struct App {
    child: Child,
    /// Where it listens.
    pub(crate) port: u16,
    log: mpsc::Receiver<String>,
}

impl App {
    /// Starts it with nothing but these variables, on a free port.
    pub(crate) fn start(env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(TESTBED)
            .env_clear()
            .env("PORT", "0")
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, log) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| lines.send(line))
        });
        let first = log.recv_timeout(Duration::from_secs(20)).unwrap();
        let address = first
            .split_once("listening on ")
            .unwrap()
            .1
            .split(',')
            .next()
            .unwrap();
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { child, port, log }
    }

    /// The exit status and the rest of the log.
    pub(crate) fn wait(mut self, limit: Duration) -> (Option<i32>, String) {
        let mut status = None;
        eventually("the process has ended", limit, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (
            status.unwrap().code(),
            self.log.iter().collect::<Vec<_>>().join("\n"),
        )
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// What `testbed healthcheck` says of it.
    pub(crate) fn healthcheck(&self) -> Option<i32> {
        let mut probe = Command::new(TESTBED);
        probe
            .arg("healthcheck")
            .env_clear()
            .env("PORT", self.port.to_string());
        probe.stderr(Stdio::null()).status().unwrap().code()
    }

    /// Names of its threads.
    #[cfg(feature = "docker-tests")]
    pub(crate) fn threads(&self) -> Vec<String> {
        fs_err::read_dir(format!("/proc/{}/task", self.child.id()))
            .unwrap()
            .map(|task| {
                fs_err::read_to_string(task.unwrap().path().join("comm"))
                    .unwrap()
                    .trim()
                    .to_owned()
            })
            .collect()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The header lines, names in lower case.
    #[cfg_attr(
        not(feature = "docker-tests"),
        expect(dead_code, reason = "only database tests look at headers")
    )]
    pub(crate) head: String,
    /// The body.
    pub(crate) body: String,
}

/// GET on this host.
pub(crate) fn get(port: u16, path: &str) -> Answer {
    request(port, "GET", path, "", "")
}

/// One request on a connection of its own; `headers` are whole lines.
pub(crate) fn request(port: u16, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

/// Polls until it is so, or fails saying what did not come about.
pub(crate) fn eventually(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}
