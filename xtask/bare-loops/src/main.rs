//! A client library in a bare loop: `bare-loops reqwest|hyper URL CONNECTIONS SECONDS`.
//!
//! One thread, one task a connection, GET after GET, the body read to its end. It stands
//! for what a load generator written in an afternoon would take, so it does nothing beside:
//! no body check, no operations, no windows. Prints one JSON object; latencies are counted
//! in steps of 10 us. What starts it and reads its answer is xtask's `bench_load`.

#![expect(
    clippy::print_stdout,
    reason = "the one line printed is what the caller reads"
)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// Resolution of latencies. **Units**: microseconds.
const STEP_US: u128 = 10;
/// Longest latency that is told apart: one second.
const N_STEPS: usize = 100_000;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [library, url, connections, seconds] = words.as_slice() else {
        bail!("usage: bare-loops reqwest|hyper URL CONNECTIONS SECONDS");
    };
    let connections: usize = connections.parse().context("CONNECTIONS is no count")?;
    let seconds: f64 = seconds.parse().context("SECONDS is no number")?;
    let seconds = Duration::try_from_secs_f64(seconds).context("SECONDS is out of range")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = LocalSet::new();
    let counted = tasks.block_on(&runtime, async {
        match library.as_str() {
            "reqwest" => reqwest_loops(url, connections, seconds).await,
            "hyper" => hyper_loops(url, connections, seconds).await,
            other => bail!("no loop is called `{other}`: reqwest or hyper"),
        }
    })?;
    println!("{}", counted.json(seconds));
    Ok(())
}

/// What all loops counted together; they share one thread.
struct Counted {
    requests: u64,
    failed: u64,
    steps: Vec<u64>,
}

impl Counted {
    fn shared() -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            requests: 0,
            failed: 0,
            steps: vec![0; N_STEPS],
        }))
    }

    fn record(&mut self, latency: Duration, is_success: bool) {
        self.requests += 1;
        self.failed += u64::from(!is_success);
        let step = usize::try_from(latency.as_micros() / STEP_US).unwrap_or(usize::MAX);
        self.steps[step.min(N_STEPS - 1)] += 1;
    }

    /// Nearest rank. **Units**: milliseconds.
    fn percentile_ms(&self, share: f64) -> f64 {
        let rank = (self.requests as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (step, count) in self.steps.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return (step + 1) as f64 * STEP_US as f64 / 1000.0;
            }
        }
        0.0
    }

    fn json(&self, seconds: Duration) -> String {
        format!(
            "{{\"requests\":{},\"rps\":{:.1},\"p50_ms\":{:.3},\"p99_ms\":{:.3},\"failed\":{}}}",
            self.requests,
            self.requests as f64 / seconds.as_secs_f64(),
            self.percentile_ms(0.5),
            self.percentile_ms(0.99),
            self.failed
        )
    }
}

async fn reqwest_loops(
    url: &str,
    connections: usize,
    seconds: Duration,
) -> anyhow::Result<Counted> {
    let url = reqwest::Url::parse(url).context("URL is none")?;
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(connections)
        .build()?;
    let end = Instant::now() + seconds;
    let counted = Counted::shared();
    let loops: Vec<_> = (0..connections)
        .map(|_| {
            let (client, url, counted) = (client.clone(), url.clone(), Rc::clone(&counted));
            tokio::task::spawn_local(async move {
                loop {
                    let sent = Instant::now();
                    if sent >= end {
                        return Ok::<(), reqwest::Error>(());
                    }
                    let answer = client.get(url.clone()).send().await?;
                    let is_success = answer.status().is_success();
                    answer.bytes().await?;
                    counted.borrow_mut().record(sent.elapsed(), is_success);
                }
            })
        })
        .collect();
    for one in loops {
        one.await??;
    }
    taken(counted)
}

async fn hyper_loops(url: &str, connections: usize, seconds: Duration) -> anyhow::Result<Counted> {
    let uri: Uri = url.parse().context("URL is none")?;
    let authority = uri.authority().context("URL names no host")?.to_string();
    let mut senders = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(&authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with its sender; what went wrong is seen by the request that met it.
        tokio::task::spawn_local(connection);
        senders.push(sender);
    }
    let end = Instant::now() + seconds;
    let counted = Counted::shared();
    let loops: Vec<_> = senders
        .into_iter()
        .map(|sender| {
            let path = uri.path().to_owned();
            let (authority, counted) = (authority.clone(), Rc::clone(&counted));
            tokio::task::spawn_local(hyper_loop(sender, path, authority, end, counted))
        })
        .collect();
    for one in loops {
        one.await??;
    }
    taken(counted)
}

async fn hyper_loop(
    mut sender: SendRequest<Empty<Bytes>>,
    path: String,
    authority: String,
    end: Instant,
    counted: Rc<RefCell<Counted>>,
) -> anyhow::Result<()> {
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(());
        }
        let request = Request::get(path.as_str())
            .header("host", authority.as_str())
            .body(Empty::<Bytes>::new())?;
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        let is_success = answer.status().is_success();
        answer.into_body().collect().await?;
        counted.borrow_mut().record(sent.elapsed(), is_success);
    }
}

fn taken(counted: Rc<RefCell<Counted>>) -> anyhow::Result<Counted> {
    let counted = Rc::into_inner(counted).context("a loop has not ended")?;
    Ok(counted.into_inner())
}
