//! Follows a k6 that runs: says when its phases begin and end, and sums them up.
//!
//! Set-up is over when k6 says that it starts its executors, or, where it does not,
//! when the first request of a scenario was sent. From then on the edges come by
//! the clock, and what k6 tells is put where it belongs.
//!
//! **Invariant**: lifecycle signals are never lost, ticks may be; k6 is ended on
//! every way out.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc as signals;

use super::ending::ScriptReport;
use super::journeys::Journeys;
use super::process::Process;
use super::run::ScriptPlan;
use super::samples::{Point, PointKind};
use super::windows::Windows;
use crate::cpus::CpuSet;
use crate::load::generator::LoadError;
use crate::load::plan::LoadSignal;
use crate::load::thread_time::ThreadTime;

/// What comes from k6, and from whoever directs the load.
#[derive(Debug)]
pub(in crate::load) enum Heard {
    /// Samples, in the order k6 took them.
    Points(Vec<Point>),
    /// The stream of samples cannot be read.
    BadSample(String),
    /// Thresholds that nothing was measured for; said at the end of the stream.
    Unjudged(Vec<String>),
    /// Set-up is over.
    Started,
    /// An iteration of a scenario threw.
    Threw { scenario: String, words: String },
    /// Metrics whose thresholds were crossed.
    Crossed(String),
    /// So many iterations were cut off so far.
    Interrupted(u64),
    /// An error or warning.
    Said(String),
    /// k6 has ended, and nothing more comes from it.
    Exited(i32),
    /// The load is to end at once.
    Stop,
}

/// k6 writes its samples five times a second: what ended in a window is heard by then.
const SHORTEST_DRAIN: Duration = Duration::from_millis(500);
/// An edge that is this near when k6 ends is waited for: clocks are read one after the other.
const EDGE_SLACK: Duration = Duration::from_millis(250);
/// A wall clock that jumps further puts samples into the wrong second. **Units**: nanoseconds.
const MOST_JUMP_NS: i64 = 100_000_000;
/// Nothing is due; something is heard sooner.
const LONG: Duration = Duration::from_hours(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    // In the order in which those of one moment are said.
    Summed,
    Ended,
    Started,
}

pub(super) struct Conductor {
    plan: ScriptPlan,
    process: Process,
    heard: Receiver<Heard>,
    signals: signals::Sender<LoadSignal>,
    /// Places that ticks must leave free.
    n_lifecycle: usize,
    journeys: Journeys,
    report: ScriptReport,
    running: Option<Running>,
    bad_sample: Option<String>,
}

/// What is known since set-up is over.
struct Running {
    started: Instant,
    windows: Windows,
    /// What is due next, soonest first: time since `started`, edge, phase.
    due: VecDeque<(Duration, Edge, usize)>,
    next_tick: Duration,
    /// The phase under way and when it began.
    phase: (usize, Duration),
    /// The wall clock when set-up was over, as it was last reckoned. **Units**: nanoseconds.
    zero_ns: i64,
    time_at_start: ThreadTime,
    time: ThreadTime,
}

impl Conductor {
    pub(super) fn new(
        plan: ScriptPlan,
        process: Process,
        heard: Receiver<Heard>,
        signals: signals::Sender<LoadSignal>,
    ) -> Self {
        Self {
            n_lifecycle: n_lifecycle(plan.phases.len()),
            plan,
            process,
            heard,
            signals,
            journeys: Journeys::default(),
            report: ScriptReport::default(),
            running: None,
            bad_sample: None,
        }
    }

    /// Runs until k6 has ended or the load is stopped.
    pub(super) fn run(mut self) -> Result<(), LoadError> {
        loop {
            self.do_what_is_due();
            let wait = self.running.as_ref().map_or(LONG, Running::wait);
            match self.heard.recv_timeout(wait) {
                Ok(Heard::Stop) => {
                    self.process.end();
                    return Ok(());
                }
                Ok(Heard::Exited(code)) => {
                    self.process.has_exited();
                    self.report.exit_code = code;
                    return self.end();
                }
                Ok(heard) => self.hear(heard)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(LoadError::ConductorBroken),
            }
        }
    }

    fn hear(&mut self, heard: Heard) -> Result<(), LoadError> {
        match heard {
            Heard::Points(points) => return self.take(points),
            Heard::Started if self.running.is_none() => self.begin(Instant::now()),
            Heard::Threw { scenario, words } => match &mut self.running {
                Some(running) => running.windows.threw(Instant::now(), &scenario, &words),
                None => self.report.say(words),
            },
            Heard::Crossed(metrics) => self.report.crossed = Some(metrics),
            Heard::Interrupted(n) => self.report.interrupted = n,
            Heard::Unjudged(thresholds) => self.report.unjudged = thresholds,
            Heard::BadSample(words) => self.bad_sample = Some(words),
            Heard::Said(words) => self.report.say(words),
            Heard::Started | Heard::Exited(_) | Heard::Stop => {}
        }
        Ok(())
    }

    fn begin(&mut self, started: Instant) {
        let phases = &self.plan.phases;
        let drain = self.plan.drain.max(SHORTEST_DRAIN);
        let mut due = Vec::new();
        for (index, (_, stretch)) in phases.iter().enumerate() {
            // The next phase ends only when the figures of this one were handed over.
            let next_end = phases
                .get(index + 1)
                .map_or(Duration::MAX, |(_, next)| next.to);
            due.push((stretch.from, Edge::Started, index));
            due.push((stretch.to, Edge::Ended, index));
            due.push(((stretch.to + drain).min(next_end), Edge::Summed, index));
        }
        due.sort_unstable();
        let stretches: Vec<_> = phases.iter().map(|(_, stretch)| stretch.clone()).collect();
        self.running = Some(Running {
            windows: Windows::new(&stretches, started),
            due: due.into(),
            next_tick: Duration::from_secs(1),
            phase: (0, Duration::ZERO),
            zero_ns: wall_ns(started),
            time_at_start: ThreadTime::default(),
            time: ThreadTime::default(),
            started,
        });
    }

    /// Puts samples where they belong.
    fn take(&mut self, points: Vec<Point>) -> Result<(), LoadError> {
        if self.running.is_none()
            && let Some(first) = points.first()
        {
            let began_ns = match first.kind {
                PointKind::Request { duration_ns, .. } | PointKind::Iteration { duration_ns } => {
                    first.at_ns.saturating_sub_unsigned(duration_ns)
                }
                PointKind::Check { .. } | PointKind::Dropped { .. } => first.at_ns,
            };
            let now = Instant::now();
            let ago_ns = u64::try_from(wall_ns(now).saturating_sub(began_ns)).unwrap_or(0);
            let started = now.checked_sub(Duration::from_nanos(ago_ns));
            self.begin(started.unwrap_or(now));
        }
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let zero_ns = wall_ns(running.started);
        if (zero_ns - running.zero_ns).abs() > MOST_JUMP_NS {
            return Err(LoadError::Samples(
                "the host's clock was set while the script ran".to_owned(),
            ));
        }
        running.zero_ns = zero_ns;
        let windows = &mut running.windows;
        for mut point in points {
            point.at_ns = point.at_ns.saturating_sub(zero_ns);
            self.journeys.take(point, &mut |ended| windows.add(ended));
        }
        Ok(())
    }

    fn do_what_is_due(&mut self) {
        while let Some(running) = &mut self.running {
            let now = running.started.elapsed();
            if now >= running.next_tick {
                running.next_tick += Duration::from_secs(1);
                if let Some(time) = self.process.time() {
                    running.time = running.time.max(time);
                }
                running.windows.settle(told_by_now());
                let (phase, began) = running.phase;
                let second = now.saturating_sub(began).as_secs().saturating_sub(1);
                let tick = running.windows.tick(phase, second);
                if self.signals.capacity() > self.n_lifecycle {
                    // Lost when the reader is behind.
                    let _ = self.signals.try_send(LoadSignal::Tick(tick));
                }
                continue;
            }
            match running.due.front() {
                Some((at, edge, phase)) if *at <= now => {
                    let (edge, phase) = (*edge, *phase);
                    running.due.pop_front();
                    self.pass(edge, phase);
                }
                _ => return,
            }
        }
    }

    /// Says that an edge was reached.
    fn pass(&mut self, edge: Edge, phase: usize) {
        let n_cpus = self.n_cpus();
        let Some(running) = &mut self.running else {
            return;
        };
        if let Some(time) = self.process.time() {
            running.time = running.time.max(time);
        }
        running.windows.settle(told_by_now());
        let (begins, ends) = running.windows.edges(phase);
        let signal = match edge {
            Edge::Started => {
                running.phase = (phase, begins.saturating_duration_since(running.started));
                running.time_at_start = running.time;
                LoadSignal::PhaseStarted { phase, at: begins }
            }
            Edge::Ended => {
                let time = running.time.since(running.time_at_start);
                running.windows.set_time(phase, time);
                LoadSignal::PhaseEnded { phase, at: ends }
            }
            Edge::Summed => LoadSignal::PhaseSummed {
                phase,
                summary: Box::new(running.windows.sum(phase, n_cpus)),
            },
        };
        self.signal(signal);
    }

    /// Says how it went, when k6 has ended.
    fn end(mut self) -> Result<(), LoadError> {
        if let Some(words) = self.bad_sample.take() {
            return Err(LoadError::Samples(words));
        }
        let n_cpus = self.n_cpus();
        self.wait_for_near_edges();
        let Some(mut running) = self.running.take() else {
            self.report.end_short(None);
            self.signal(LoadSignal::ScriptEnded(Box::new(self.report.clone())));
            return Ok(());
        };
        self.journeys.end(&mut |ended| running.windows.add(ended));
        // Nothing more is told.
        running.windows.settle(Instant::now());
        let now = running.started.elapsed();
        for (phase, (_, stretch)) in self.plan.phases.iter().enumerate() {
            let is_ended = !running.due.contains(&(stretch.to, Edge::Ended, phase));
            let is_summed = !running
                .due
                .iter()
                .any(|(_, edge, index)| (*edge, *index) == (Edge::Summed, phase));
            if is_ended && (!is_summed || running.windows.has_more(phase)) {
                let summary = Box::new(running.windows.sum(phase, n_cpus));
                self.signal(LoadSignal::PhaseSummed { phase, summary });
            }
        }
        self.report.windows = (0..self.plan.phases.len())
            .map(|phase| running.windows.notes(phase))
            .collect();
        self.report.outside = running.windows.n_outside();
        let windows = self.plan.phases.iter().filter(|(_, one)| one.cut.is_some());
        let mut open = windows.filter(|(_, stretch)| stretch.to > now);
        match open.next() {
            Some((name, stretch)) => {
                let before = stretch.to.saturating_sub(now);
                self.report.end_short(Some((name, before)));
            }
            None => self.report.end(),
        }
        self.signal(LoadSignal::ScriptEnded(Box::new(self.report.clone())));
        Ok(())
    }

    /// k6 may end a moment before the edge that its own end is.
    fn wait_for_near_edges(&mut self) {
        while let Some(running) = &self.running
            && let Some((at, ..)) = running.due.front()
        {
            let wait = at.saturating_sub(running.started.elapsed());
            if wait > EDGE_SLACK {
                return;
            }
            // Nothing but a wish to stop can come, and it has stopped.
            let _ = self.heard.recv_timeout(wait);
            self.do_what_is_due();
        }
    }

    /// CPUs k6 may use.
    fn n_cpus(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.plan.cpus.as_ref().map_or_else(all, CpuSet::len)
    }

    fn signal(&self, signal: LoadSignal) {
        // The channel has room for every lifecycle signal; when the reader has
        // gone, the load is about to be stopped.
        let _ = self.signals.try_send(signal);
    }
}

impl Running {
    /// Until something is due.
    fn wait(&self) -> Duration {
        let edge = self.due.front().map_or(LONG, |(at, ..)| *at);
        edge.min(self.next_tick)
            .saturating_sub(self.started.elapsed())
    }
}

/// What ended before has been told.
fn told_by_now() -> Instant {
    let now = Instant::now();
    now.checked_sub(SHORTEST_DRAIN).unwrap_or(now)
}

/// Signals of a run: each phase begins, ends and is summed at most twice, and k6 ends.
pub(in crate::load) fn n_lifecycle(n_phases: usize) -> usize {
    4 * n_phases + 1
}

/// So long apart two clocks may be read to be called read at once.
const AT_ONCE: Duration = Duration::from_micros(200);
/// So often they are read until that is so.
const MOST_READINGS: usize = 16;

/// The wall clock at a moment, as it is reckoned now. **Units**: nanoseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "k6 tells moments by the wall clock, at any time of the run"
)]
fn wall_ns(at: Instant) -> i64 {
    let mut best = (Duration::MAX, Duration::ZERO);
    for _ in 0..MOST_READINGS {
        let before = at.elapsed();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let apart = at.elapsed().saturating_sub(before);
        // A thread that waited for a CPU in between would set the clock by its wait.
        if apart < best.0 {
            best = (apart, wall.unwrap_or_default().saturating_sub(before));
        }
        if apart <= AT_ONCE {
            break;
        }
    }
    i64::try_from(best.1.as_nanos()).unwrap_or(i64::MAX)
}
