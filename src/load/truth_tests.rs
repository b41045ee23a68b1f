//! Loads whose figures are known beforehand, and what is said of generators and services
//! that cannot keep up.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Workload;
use super::crowd::Crowd;
use super::plan::Target;
use super::test_load::{closed, ms, open, plan, run, run_one, workload};
use super::test_server::{Got, Reply, TestServer, answer, ok};
use crate::cpus::CpuSet;
use crate::measure::{
    Figures, Flag, Judgement, Latencies, LatencyFigures, LatencyFrom, Pacing, Reason,
    WindowSummary, cut, judge,
};
use crate::tls::Wire;

/// Held by each of these tests: their figures would be those of a host that runs several.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // One that failed has said so itself.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers in a millisecond, but stands still for a second of every ten.
///
/// A thread for each connection, since the timers of an event loop round a millisecond up to two.
struct FreezingServer {
    target: Target,
    /// How much later than meant it answered, which is the host's doing.
    lateness: Arc<Mutex<Latencies>>,
    is_over: Arc<AtomicBool>,
}

impl FreezingServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let accepts = Arc::clone(&is_over);
        let lateness = Arc::new(Mutex::new(Latencies::default()));
        let kept = Arc::clone(&lateness);
        let begun = Instant::now();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepts.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer_all(stream, begun, &kept));
            }
        });
        Self {
            target: Target {
                addresses: vec![address],
                host: address.to_string(),
                base_path: String::new(),
                wire: Wire::default(),
            },
            lateness,
            is_over,
        }
    }
}

impl Drop for FreezingServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The one that waits for a connection gets one.
        let _ = TcpStream::connect(self.target.addresses[0]);
    }
}

fn answer_all(mut stream: TcpStream, begun: Instant, lateness: &Mutex<Latencies>) {
    let mut buffer = [0; 4_096];
    // A request without a body arrives in one piece.
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
        let got = begun.elapsed();
        let into_cycle = got.as_millis() % 10_000;
        let freeze = match into_cycle {
            5_000..6_000 => 6_000 - u64::try_from(into_cycle).unwrap(),
            _ => 0,
        };
        let until = begun + got + ms(freeze + 1);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        let late_ns = until.elapsed().as_nanos();
        let late_ns = u64::try_from(late_ns).unwrap();
        lateness.lock().unwrap().record(late_ns);
        if stream.write_all(&answer(200, "ok")).is_err() {
            return;
        }
    }
}

#[test]
fn a_service_that_freezes_shows_in_an_open_loop_and_hides_in_a_closed_one() {
    let _alone = alone();
    let server = FreezingServer::start();
    // Whole cycles, each with the same shares: `cargo xtask prove freeze` holds it for a minute.
    let seconds: u64 = std::env::var("NIGHTSWEEP_TEST_FREEZE_SECONDS")
        .map_or(20, |seconds| seconds.parse().unwrap());
    let phases = [(open(100.0, 300), seconds * 1_000), (closed(2), 10_000)];
    let mut plan = plan(&server.target, Workload::get("/"), &phases);
    plan.timeout = Duration::from_secs(10);
    plan.drain = Duration::from_secs(3);
    let summaries = run(plan);
    let open_loop = summaries[0].total.latency_ms;
    let [p50, p95, p99] = [open_loop.p50, open_loop.p95, open_loop.p99].map(Option::unwrap);
    assert_eq!(summaries[0].total.counts.successes, 100 * seconds);
    // Both sides wake up twice for a request: what they are late by on a busy host is
    // measured, and allowed beside the 2 %. An idle one adds about a millisecond.
    let server_late = server.lateness.lock().unwrap().figures();
    let own_late = summaries[0].generator_lag_ms;
    let noise = |of: fn(&LatencyFigures) -> Option<f64>| {
        2.0 * [server_late, own_late].iter().filter_map(of).sum::<f64>()
    };
    let (usual, worst) = (noise(|late| late.p50), noise(|late| late.p99));
    // A proof allows for an idle host alone.
    assert!(
        seconds < 60 || worst < 10.0,
        "the host is too busy: {worst} ms late"
    );
    assert!(p50 < 3.0 + usual, "{p50}, {usual} of it the host's");
    // A tenth of all requests waits for the rest of a freeze, evenly from 0 to 1 s.
    for (figure, known) in [(p95, 501.0), (p99, 901.0)] {
        assert!(
            (figure - known).abs() < 0.02 * known + worst,
            "{figure} of {known}, {worst} of it the host's"
        );
    }
    assert_eq!(summaries[0].total.p99_due_ms, Some(p99));
    eprintln!(
        "{seconds} s open at 100/s: p50 {p50} ms, p95 {p95} ms, p99 {p99} ms; late by the host {usual:.2} ms, at most {worst:.2} ms"
    );
    eprintln!("10 s closed, 2 users: {:?}", summaries[1].total.latency_ms);
    // Two users meet each freeze once: thousands of quick answers bury it.
    let closed_loop = summaries[1].total.latency_ms;
    assert!(closed_loop.p99.unwrap() < 50.0 + worst, "{closed_loop:?}");
    assert!(closed_loop.max.unwrap() > 800.0, "{closed_loop:?}");
}

/// Debug builds hold less; the rates that are promised are those of a release build.
const RATES_RPS: &[u32] = if cfg!(debug_assertions) {
    &[1_000]
} else {
    &[1_000, 5_000, 20_000]
};

#[test]
fn the_scheduled_rate_is_held_within_half_a_percent() {
    let _alone = alone();
    let server = TestServer::start(|_| ok());
    for whole in RATES_RPS {
        let rate = f64::from(*whole);
        let phases = [(open(rate, 500), 500), (open(rate, 500), 4_000)];
        let summary = run(plan(&server.target, Workload::get("/"), &phases))
            .pop()
            .unwrap();
        let total = &summary.total;
        assert_eq!(total.counts.due, 4 * u64::from(*whole));
        assert!(
            (total.achieved_rate_rps / rate - 1.0).abs() < 0.005,
            "{rate}: {} were sent a second",
            total.achieved_rate_rps
        );
    }
}

/// Counts and percentiles that follow from the raw evidence of a window, request by request.
fn truth_of(summary: &WindowSummary) -> (HashMap<String, u64>, Latencies) {
    let mut by_outcome = HashMap::new();
    let mut successes = Latencies::default();
    for interval in &summary.intervals {
        let (_, outcome) = interval.tag.split_once('|').unwrap();
        for (ns, n) in interval.values() {
            *by_outcome.entry(outcome.to_owned()).or_default() += u64::from(*n);
            if outcome == "success" {
                for _ in 0..*n {
                    successes.record(*ns);
                }
            }
        }
    }
    (by_outcome, successes)
}

#[test]
fn any_number_of_threads_adds_up_to_what_the_server_did() {
    let _alone = alone();
    // Each user asks a path of its own, and each path has its own latency and outcome: users
    // are dealt out to threads, so that every thread sees something else.
    for threads in [1, 2, 3, 8] {
        let answered = Arc::new(Mutex::new(HashMap::<&str, u64>::new()));
        let count = Arc::clone(&answered);
        let server = TestServer::start(move |got: &Got| {
            let user: u64 = got.path.trim_start_matches("/u").parse().unwrap();
            let (outcome, reply) = match user % 8 {
                1 => ("error.status", Reply::Answer(500, String::new())),
                3 => ("refused", Reply::Answer(429, String::new())),
                6 => ("error.body", Reply::Answer(200, "no".into())),
                _ => ("success", ok()),
            };
            *count.lock().unwrap().entry(outcome).or_default() += 1;
            Reply::After(ms(4 + 5 * (user % 8)), Box::new(reply))
        });
        let text = "on_failure = \"continue\"\nrefused = [429]\n[[step]]\npath = \"/u${user}\"\n\
            expect = { contains = \"ok\" }\n";
        // All users begin in the window and are waited for, so that nothing is outside of it.
        let mut plan = plan(&server.target, workload(text), &[(closed(16), 1_000)]);
        plan.threads = threads;
        let summary = run_one(plan);
        assert_eq!(summary.threads, threads);
        let counts = summary.total.counts;
        let (by_outcome, successes) = truth_of(&summary);
        let of = |outcome: &str| by_outcome.get(outcome).copied().unwrap_or_default();
        assert_eq!(of("success"), counts.successes);
        assert_eq!(of("refused"), counts.refused);
        assert_eq!(of("error.status"), counts.errors.status);
        assert_eq!(of("error.body"), counts.errors.body);
        assert_eq!(by_outcome.values().sum::<u64>(), counts.due);
        assert_eq!(successes.figures(), summary.total.latency_ms);
        let of_evidence = cut(
            &summary.intervals,
            (0, 1),
            summary.length,
            LatencyFrom::Send,
        );
        assert_eq!(of_evidence.total.service_ms, summary.total.service_ms);
        let known = |figures: &Figures| Figures {
            send_lag_ms: LatencyFigures::default(),
            ..figures.clone()
        };
        assert_eq!(of_evidence.total, known(&summary.total));
        // What the server answered is in the window, but for what was sent beside it.
        let answered = answered.lock().unwrap();
        let n_answered: u64 = answered.values().sum();
        assert_eq!(
            n_answered,
            counts.requests + summary.outside,
            "{threads} threads"
        );
        for (outcome, n) in answered.iter() {
            assert!(n - of(outcome) <= summary.outside, "{outcome}: {n}");
        }
        // Users wait 4 ms (users 0 and 8), 14, 24, 29 or 39 ms: each kind is there.
        let latency = summary.total.latency_ms;
        assert!(
            latency.p50.unwrap() < 24.0 && latency.max.unwrap() >= 39.0,
            "{latency:?}"
        );
    }
}

#[test]
fn a_generator_held_to_a_sliver_of_cpu_says_so() {
    let _alone = alone();
    let cpu: CpuSet = "0".parse().unwrap();
    let server = TestServer::start(|_| ok());
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(open(2_000.0, 500), 3_000)],
    );
    plan.cpus = Some(cpu.clone());
    plan.threads = 1;
    let _crowd = Crowd::on(&cpu, 6);
    let summary = run_one(plan);
    let verdict = judge(&summary, Pacing::Open);
    assert_eq!(verdict.judgement, Judgement::Suspect, "{verdict:?}");
    assert_eq!(verdict.reasons.first(), Some(&Reason::GeneratorSaturated));
    assert!(
        !verdict.flags.contains(&Flag::Overloaded),
        "the service is not blamed for it: {verdict:?}"
    );
}

#[test]
fn a_closed_loop_that_waits_for_its_cpu_says_so() {
    let _alone = alone();
    let cpu: CpuSet = "0".parse().unwrap();
    // Three users that wait 2 ms each: a small part of a core.
    let server = TestServer::start(|_| Reply::After(ms(2), Box::new(ok())));
    let mut plan = plan(&server.target, Workload::get("/"), &[(closed(3), 2_000)]);
    plan.cpus = Some(cpu.clone());
    plan.threads = 1;
    let _crowd = Crowd::on(&cpu, 6);
    let summary = run_one(plan);
    let waited = summary.generator_wait.expect("this kernel tells");
    assert!(waited > summary.length / 20, "{waited:?}");
    assert!(waited < summary.length * 2, "{waited:?}");
    let verdict = judge(&summary, Pacing::Closed);
    assert!(verdict.flags.contains(&Flag::GeneratorBound), "{verdict:?}");
}

#[test]
fn an_overloaded_service_under_a_healthy_generator_is_a_valid_measurement() {
    let _alone = alone();
    // Ten at once for 20 ms each: at most 500/s, and 800 are due.
    let server = TestServer::start(|_| Reply::After(ms(20), Box::new(ok())));
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(open(800.0, 10), 3_000)],
    );
    plan.drain = ms(200);
    let summary = run_one(plan);
    let counts = summary.total.counts;
    assert_eq!(counts.due, 2_400);
    assert!(counts.unsent > 400, "{counts:?}");
    assert_eq!(counts.requests + counts.unsent, counts.due);
    assert_eq!(summary.total.p99_due_ms, Some(f64::INFINITY));
    assert!(summary.total.latency_ms.p99.unwrap().is_finite());
    // From the evidence alone: the whole, and seconds of it, whose rates are what left in them.
    let part = |from, to| {
        let length = Duration::from_secs(u64::from(to - from));
        cut(&summary.intervals, (from, to), length, LatencyFrom::Due).total
    };
    let whole = part(0, 3);
    assert_eq!(whole.counts, counts);
    assert_eq!(whole.latency_ms, summary.total.latency_ms);
    assert_eq!(whole.p99_due_ms, summary.total.p99_due_ms);
    let rates = |figures: &Figures| [figures.throughput_rps, figures.achieved_rate_rps];
    assert_eq!(rates(&whole).map(Some), rates(&summary.total).map(Some));
    let last = part(2, 3);
    assert!(
        last.throughput_rps > 50.0 && last.throughput_rps <= 520.0,
        "{last:?}"
    );
    assert!(
        last.counts.successes < 400,
        "most of what was due in it never left: {last:?}"
    );
    let verdict = judge(&summary, Pacing::Open);
    assert_eq!(verdict.judgement, Judgement::Valid, "{verdict:?}");
    assert!(verdict.flags.contains(&Flag::Overloaded), "{verdict:?}");
}
