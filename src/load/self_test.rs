//! What one load core can do, measured against a server of our own.
//!
//! An open loop may ask for half of it: beyond that, waits of the generator's own would be
//! part of what is measured. The figure is CPU time per request, not what was reached
//! beside whoever else is at work on the host, so that a busy moment does not change it.
//!
//! **Source**: k6's guide to large tests asks for idle CPU; public comparisons have been
//! found to sit on their generator's own ceiling. Half leaves room for requests that are
//! dearer than a plain GET.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::{LoadError, LoadModel, LoadPlan, LoadSignal, PhasePlan, RunningLoad, Target, Workload};
use crate::cpus::CpuSet;
use crate::measure::WindowSummary;
use crate::tls::Wire;

/// Connections: as many as the comparison with other generators has.
const USERS: u32 = 32;
/// Until connections are open and code is warm.
const WARM_UP: Duration = Duration::from_millis(50);
/// Thousands of requests, and over before anybody wonders.
const WINDOW: Duration = Duration::from_millis(200);
/// Longest wait for the last answers, and for any.
const DRAIN: Duration = Duration::from_millis(500);
/// Fewer say nothing: the host left the generator hardly any CPU.
const LEAST_REQUESTS: u64 = 100;
/// A host that was busy is asked again.
const TRIES: u32 = 3;
/// The part of what it can do that a generator may be asked for.
const OPEN_SHARE: f64 = 0.5;

/// What one load core did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfTest {
    /// Requests in the window.
    pub requests: u64,
    /// CPU the load thread used for them.
    pub cpu: Duration,
    /// Length of the window.
    pub length: Duration,
}

impl SelfTest {
    fn of(summary: &WindowSummary) -> Option<Self> {
        let requests = summary.total.counts.successes;
        let is_told = requests >= LEAST_REQUESTS && !summary.generator_cpu.is_zero();
        is_told.then_some(Self {
            requests,
            cpu: summary.generator_cpu,
            length: summary.length,
        })
    }

    /// CPU of one request. **Units**: microseconds.
    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }

    /// What one load core can do by its CPU per request. **Units**: requests per second.
    pub fn core_rps(&self) -> f64 {
        self.requests as f64 / self.cpu.as_secs_f64()
    }

    /// What it reached beside the server and everybody else. **Units**: requests per second.
    pub fn reached_rps(&self) -> f64 {
        self.requests as f64 / self.length.as_secs_f64()
    }

    /// The highest rate that so many load cores may be asked for. **Units**: requests per second.
    pub fn most_rps(&self, n_cores: usize) -> f64 {
        OPEN_SHARE * self.core_rps() * n_cores as f64
    }
}

/// Sends plain requests from one load thread for less than half a second.
///
/// **Shape**: `None` where too little was sent to tell anything, three times in a row.
/// **Errors**: no thread or socket to be had, or a load that broke down.
pub async fn self_test(cpus: Option<CpuSet>) -> Result<Option<SelfTest>, LoadError> {
    for _ in 0..TRIES {
        let told = try_once(cpus.clone()).await?;
        if told.is_some() {
            return Ok(told);
        }
    }
    Ok(None)
}

async fn try_once(cpus: Option<CpuSet>) -> Result<Option<SelfTest>, LoadError> {
    let server = EchoServer::start().map_err(|source| LoadError::Thread { thread: 0, source })?;
    let phase = |name: &str, window: bool, duration: Duration| PhasePlan {
        name: name.to_owned(),
        window,
        model: LoadModel::Closed { users: USERS },
        ramp_from: None,
        duration,
        abort_on: Vec::new(),
        beside: Vec::new(),
        held: false,
    };
    let plan = LoadPlan {
        target: Target {
            addresses: vec![server.address],
            host: server.address.to_string(),
            base_path: String::new(),
            wire: Wire::default(),
        },
        workload: Arc::new(Workload::get("/")),
        variables: IndexMap::new(),
        phases: vec![
            phase("warm-up", false, WARM_UP),
            phase("window", true, WINDOW),
        ],
        threads: 1,
        cpus,
        timeout: DRAIN,
        drain: DRAIN,
        seed: 1,
    };
    let mut load = RunningLoad::start(plan)?;
    let mut measured = None;
    while let Some(signal) = load.next().await {
        if let LoadSignal::PhaseSummed { phase: 1, summary } = signal {
            measured = SelfTest::of(&summary);
        }
    }
    load.stop().await?;
    Ok(measured)
}

/// Answers every request with the same few bytes.
struct EchoServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EchoServer {
    fn start() -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("self-test".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! { () = accept(listener) => {}, _ = stopped => {} }
                });
            })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        // A server that has ended by itself hears nothing and is joined all the same.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Serves until it is dropped; where no connection can be had, requests fail and say so.
async fn accept(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            // A connection that breaks is the end of it.
            let _ = answer(stream).await;
        });
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const END: &[u8] = b"\r\n\r\n";
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(1_024);
    while stream.read_buf(&mut request).await? > 0 {
        // One request at a time on a connection, without a body.
        if request.ends_with(END) {
            stream.write_all(ANSWER).await?;
            request.clear();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn run(cpus: Option<&str>) -> Option<SelfTest> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let cpus = cpus.map(|cpus| cpus.parse().unwrap());
        runtime.block_on(self_test(cpus)).unwrap()
    }

    #[test]
    fn it_tells_what_a_core_can_do_and_is_over_soon() {
        let begun = Instant::now();
        let test = run(None).expect("a thread can send a hundred requests in 200 ms");
        // Idle hosts need 0.3 s; the edges bound the rest.
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        let us = test.cpu_us_per_request();
        assert!((1.0..20_000.0).contains(&us), "{us}");
        assert!((test.core_rps() * us / 1e6 - 1.0).abs() < 1e-9);
        // It cannot have reached more than its thread's CPU carries, but for the edges.
        assert!(test.reached_rps() < 1.5 * test.core_rps(), "{test:?}");
    }

    #[test]
    fn half_of_the_cores_is_the_most_that_may_be_asked_for() {
        let test = SelfTest {
            requests: 6_000,
            cpu: Duration::from_millis(150),
            length: Duration::from_millis(300),
        };
        assert!((test.core_rps() - 40_000.0).abs() < 1e-6);
        assert!((test.reached_rps() - 20_000.0).abs() < 1e-6);
        assert!((test.cpu_us_per_request() - 25.0).abs() < 1e-9);
        assert!((test.most_rps(2) - 40_000.0).abs() < 1e-6);
    }

    #[test]
    fn cpus_that_are_not_there_are_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let beyond: CpuSet = "60000".parse().unwrap();
        assert!(runtime.block_on(self_test(Some(beyond))).is_err());
    }
}
