//! Directs the phases and sums up what the load threads report.
//!
//! Per phase: tell the threads its edges a moment ahead; at the right edge wait
//! until nothing of it is in flight or the drain is over; have the rest given
//! up; sum. Between two phases load goes on and nothing is recorded.
//!
//! **Invariant**: lifecycle signals are never lost, ticks may be.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc as signals;

use super::closed::most_users;
use super::generator::{LEAD, LoadError};
use super::plan::{AbortRule, LoadModel, LoadSignal, PhasePlan, Tick};
use super::setup::set_up_load;
use super::thread::{Batch, Command, PhaseClock, Report, Totals};
use super::thread_plan::ThreadPlan;
use super::workload::SetupScope;
use crate::measure::{
    BesideSummary, Counts, Crossed, Latencies, LatencyFrom, Outcome, Recorder, WindowSummary,
    crossed, crossed_so_far,
};
use crate::threshold::Threshold;

/// So many of the last failures are kept.
const FAILURES_KEPT: usize = 10;

/// How long a thread may take to give its last word on a phase. It looks every
/// 10 ms; a host that leaves it no CPU for this long has no measurement.
const CLOSE_LIMIT: Duration = Duration::from_mins(1);

pub(super) struct Conductor {
    pub(super) plan: Arc<ThreadPlan>,
    pub(super) phases: Vec<PhasePlan>,
    pub(super) drain: Duration,
    pub(super) commands: Vec<signals::UnboundedSender<Command>>,
    pub(super) inbox: Receiver<Report>,
    pub(super) signals: signals::Sender<LoadSignal>,
    /// Places that ticks must leave free.
    pub(super) n_lifecycle: usize,
    pub(super) set_ups: SetUps,
}

/// How often a set-up of the whole load looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether to go on.
enum Flow {
    GoOn,
    /// Stopped from outside.
    Stop,
    /// A threshold was crossed while the phase goes on.
    Abort(Crossed),
}

/// What is known of the phase under way.
struct Collected {
    clock: PhaseClock,
    recorder: Recorder,
    tick: Tick,
    tick_latencies: Latencies,
    next_tick: Instant,
    n_drained: usize,
    /// By thread; present once it has closed the phase.
    totals: Vec<Option<Totals>>,
    failures: Vec<String>,
    first_failures: Vec<(Outcome, String)>,
    /// Requests under way, by thread, as it said last.
    in_flight: Vec<u32>,
}

/// Set-ups of users so far, in all phases.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SetUps {
    done: u64,
    failed: u64,
}

impl Conductor {
    /// Runs all phases.
    pub(super) fn run(mut self) -> Result<(), LoadError> {
        if !matches!(self.set_up()?, Flow::GoOn) {
            return Ok(());
        }
        for index in 0..self.phases.len() {
            if self.phases[index].held && !matches!(self.hold(index)?, Flow::GoOn) {
                return Ok(());
            }
            if !matches!(self.run_phase(index)?, Flow::GoOn) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Does what comes once before all journeys.
    fn set_up(&self) -> Result<Flow, LoadError> {
        let mut setups = self.plan.prepared.setups.iter();
        if !setups.any(|setup| setup.scope == SetupScope::Trial) {
            return Ok(Flow::GoOn);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| LoadError::Thread {
                thread: self.commands.len(),
                source,
            })?;
        runtime.block_on(async {
            let mut setting_up = std::pin::pin!(set_up_load(&self.plan));
            loop {
                match tokio::time::timeout(LOOK_EVERY, setting_up.as_mut()).await {
                    Ok(Ok(captured)) => {
                        // Set once: the conductor runs once.
                        let _ = self.plan.of_trial.set(captured);
                        return Ok(Flow::GoOn);
                    }
                    Ok(Err(why)) => return Err(LoadError::SetUp(why)),
                    Err(_) => match self.inbox.try_recv() {
                        Ok(Report::Stop) => return Ok(Flow::Stop),
                        Ok(Report::Broken { thread, message }) => {
                            return Err(LoadError::Broken { thread, message });
                        }
                        // Nothing else is said before the first phase.
                        _ => {}
                    },
                }
            }
        })
    }

    /// Waits for leave to begin a phase. What the threads report meanwhile belongs to
    /// no phase: the one before is closed, and they say so of each sample themselves.
    fn hold(&self, index: usize) -> Result<Flow, LoadError> {
        self.signal(LoadSignal::PhaseHeld { phase: index });
        loop {
            match self.inbox.recv() {
                Ok(Report::GoOn) => return Ok(Flow::GoOn),
                Ok(Report::Stop) => return Ok(Flow::Stop),
                Ok(Report::Broken { thread, message }) => {
                    return Err(LoadError::Broken { thread, message });
                }
                Ok(Report::Batch(_) | Report::Drained { .. } | Report::Closed { .. }) => {}
                Err(_) => return Err(LoadError::ConductorBroken),
            }
        }
    }

    fn run_phase(&mut self, index: usize) -> Result<Flow, LoadError> {
        let phase = &self.phases[index];
        let (model, length) = (phase.model, phase.duration);
        let start = Instant::now() + LEAD;
        let clock = PhaseClock {
            index,
            start,
            end: start + length,
            model,
            ramp_from: phase.ramp_from,
        };
        let mut collected = Collected::new(clock, &self.plan, self.commands.len());
        self.tell(|| Command::Begin(clock));
        let stopped = |flow| !matches!(flow, Flow::GoOn);
        if stopped(self.collect(&mut collected, clock.start, |_| false)?) {
            return Ok(Flow::Stop);
        }
        self.signal(LoadSignal::PhaseStarted {
            phase: index,
            at: clock.start,
        });
        match self.collect(&mut collected, clock.end, |_| false)? {
            Flow::GoOn => {}
            Flow::Stop => return Ok(Flow::Stop),
            Flow::Abort(crossed) => {
                self.signal(LoadSignal::Aborted {
                    phase: index,
                    after: Instant::now().saturating_duration_since(clock.start),
                    crossed: Box::new(crossed),
                    is_whole: false,
                });
                return Ok(Flow::Stop);
            }
        }
        self.signal(LoadSignal::PhaseEnded {
            phase: index,
            at: clock.end,
        });
        let n_threads = self.commands.len();
        let drained = |collected: &Collected| collected.n_drained == n_threads;
        if stopped(self.collect(&mut collected, clock.end + self.drain, drained)?) {
            return Ok(Flow::Stop);
        }
        let is_last = index + 1 == self.phases.len();
        self.tell(|| Command::Close { is_last });
        let open_thread = |collected: &Collected| collected.totals.iter().position(Option::is_none);
        let limit = Instant::now() + CLOSE_LIMIT;
        if stopped(self.collect(&mut collected, limit, |collected| {
            open_thread(collected).is_none()
        })?) {
            return Ok(Flow::Stop);
        }
        if let Some(thread) = open_thread(&collected) {
            return Err(LoadError::Broken {
                thread,
                message: format!("it did not close the phase within {CLOSE_LIMIT:?}"),
            });
        }
        self.count_set_ups(&collected)?;
        let summary = summarise(collected, length, &self.plan);
        let rules = self.abort_rules(index).map(|rule| &rule.threshold);
        let crossed = crossed(&summary, rules).into_iter().next();
        self.signal(LoadSignal::PhaseSummed {
            phase: index,
            summary: Box::new(summary),
        });
        // After the last phase there is nothing to end.
        let Some(crossed) = crossed.filter(|_| !is_last) else {
            return Ok(Flow::GoOn);
        };
        self.signal(LoadSignal::Aborted {
            phase: index,
            after: length,
            crossed: Box::new(crossed),
            is_whole: true,
        });
        Ok(Flow::Stop)
    }

    /// A load whose users have never been ready has measured nothing but that.
    fn count_set_ups(&mut self, collected: &Collected) -> Result<(), LoadError> {
        for totals in collected.totals.iter().flatten() {
            self.set_ups.done += totals.setups;
            self.set_ups.failed += totals.setups_failed;
        }
        let SetUps { done, failed } = self.set_ups;
        if done > 0 || failed == 0 {
            return Ok(());
        }
        let last = collected.failures.last().map_or("", String::as_str);
        Err(LoadError::SetUp(format!(
            "no virtual user was ever ready, {failed} tries failed, the last: {last}"
        )))
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for thread in &self.commands {
            // A thread that has ended has said why in its last report.
            let _ = thread.send(command());
        }
    }

    fn signal(&self, signal: LoadSignal) {
        // The channel has room for every lifecycle signal; when the reader has
        // gone, the load is about to be stopped.
        let _ = self.signals.try_send(signal);
    }

    /// Takes reports in until a moment, or until `is_done`.
    fn collect(
        &self,
        collected: &mut Collected,
        until: Instant,
        is_done: impl Fn(&Collected) -> bool,
    ) -> Result<Flow, LoadError> {
        while !is_done(collected) {
            let now = Instant::now();
            if now >= until {
                break;
            }
            if now >= collected.next_tick {
                self.tick(collected);
                if let Some(crossed) = self.look_at_thresholds(collected, now) {
                    return Ok(Flow::Abort(crossed));
                }
            }
            let wait = until
                .min(collected.next_tick)
                .saturating_duration_since(now);
            match self.inbox.recv_timeout(wait) {
                Ok(Report::Batch(batch)) => collected.add(batch),
                Ok(Report::Drained { phase }) => {
                    // One that was on its way when its phase was closed says nothing.
                    if phase == collected.clock.index {
                        collected.n_drained += 1;
                    }
                }
                Ok(Report::Closed { thread, totals }) => collected.totals[thread] = Some(totals),
                Ok(Report::Broken { thread, message }) => {
                    return Err(LoadError::Broken { thread, message });
                }
                Ok(Report::Stop) => return Ok(Flow::Stop),
                // Said twice, or of a phase that is not held.
                Ok(Report::GoOn) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(LoadError::ConductorBroken),
            }
        }
        Ok(Flow::GoOn)
    }

    /// What ends the load when this phase crosses it: only windows have figures.
    fn abort_rules(&self, index: usize) -> impl Iterator<Item = &AbortRule> {
        let phase = &self.phases[index];
        phase.abort_on.iter().filter(|_| phase.window)
    }

    /// The threshold that the phase under way crosses, if it is one that ends the load.
    fn look_at_thresholds(&self, collected: &Collected, now: Instant) -> Option<Crossed> {
        let clock = collected.clock;
        // In the drain the whole is nearly there, and is judged as such.
        if now >= clock.end {
            return None;
        }
        let so_far = now.saturating_duration_since(clock.start);
        let due: Vec<&Threshold> = self
            .abort_rules(clock.index)
            .filter(|rule| rule.after <= so_far)
            .map(|rule| &rule.threshold)
            .collect();
        if due.is_empty() {
            return None;
        }
        crossed_so_far(&collected.recorder, so_far, due)
    }

    fn tick(&self, collected: &mut Collected) {
        let since_start = collected
            .next_tick
            .saturating_duration_since(collected.clock.start);
        let phase = collected.clock.index;
        let mut tick = std::mem::replace(
            &mut collected.tick,
            Tick {
                phase,
                ..Tick::default()
            },
        );
        tick.second = since_start.as_secs().saturating_sub(1);
        let latencies = std::mem::take(&mut collected.tick_latencies);
        tick.p50_ms = latencies.percentile_with_infinite(500, 0);
        tick.p99_ms = latencies.percentile_with_infinite(990, 0);
        tick.in_flight = Some(collected.in_flight.iter().sum());
        collected.next_tick += Duration::from_secs(1);
        if self.signals.capacity() > self.n_lifecycle {
            // Lost when the reader is behind.
            let _ = self.signals.try_send(LoadSignal::Tick(tick));
        }
    }
}

impl Collected {
    fn new(clock: PhaseClock, plan: &ThreadPlan, n_threads: usize) -> Self {
        let latency_from = match clock.model {
            LoadModel::Closed { .. } | LoadModel::Script { .. } => LatencyFrom::Send,
            LoadModel::Open { .. } => LatencyFrom::Due,
        };
        Self {
            clock,
            recorder: recorder(clock.index, plan, latency_from),
            tick: Tick {
                phase: clock.index,
                ..Tick::default()
            },
            tick_latencies: Latencies::default(),
            next_tick: clock.start + Duration::from_secs(1),
            n_drained: 0,
            totals: vec![None; n_threads],
            failures: Vec::new(),
            first_failures: Vec::new(),
            in_flight: vec![0; n_threads],
        }
    }

    fn add(&mut self, batch: Batch) {
        for sample in &batch.samples {
            self.recorder.record(sample);
            self.tick.counts.add(sample.outcome);
            if sample.outcome == Outcome::Success {
                self.tick_latencies.record(sample.latency_ns);
            }
        }
        for unpaced in &batch.unpaced {
            self.recorder.record_unpaced(unpaced);
            self.tick.counts.add_n(Outcome::Unsent, unpaced.n);
        }
        for (journey, outcome, latency_ns) in batch.journeys {
            self.recorder
                .record_journey_of(journey, outcome, latency_ns);
        }
        let (thread, n_in_flight) = batch.in_flight;
        self.in_flight[thread] = n_in_flight;
        for (outcome, words) in batch.failures {
            let is_known =
                |outcome| (self.first_failures.iter()).any(|(known, _)| *known == outcome);
            if let Some(outcome) = outcome.filter(|outcome| !is_known(*outcome)) {
                self.first_failures.push((outcome, words.clone()));
            }
            self.failures.push(words);
        }
        let n_old = self.failures.len().saturating_sub(FAILURES_KEPT);
        self.failures.drain(..n_old);
    }
}

fn recorder(phase: usize, plan: &ThreadPlan, latency_from: LatencyFrom) -> Recorder {
    let prepared = &plan.prepared;
    let loads = &plan.phases[phase];
    let is_beside: Vec<bool> = (0..prepared.journeys.len())
        .map(|journey| loads.has_beside(journey))
        .collect();
    let operations = loads.beside.iter().flat_map(|beside| {
        let steps = prepared.of_journey(beside.journey).iter();
        steps.map(|step| step.name as usize)
    });
    let names = prepared.journeys.iter();
    let names = names.map(|journey| journey.name.clone()).collect();
    Recorder::new(prepared.names.clone(), latency_from)
        .with_journeys(names, is_beside)
        .with_operations_beside(operations)
}

fn summarise(collected: Collected, length: Duration, plan: &ThreadPlan) -> WindowSummary {
    let Collected {
        clock,
        recorder,
        totals,
        failures,
        first_failures,
        ..
    } = collected;
    let totals: Vec<Totals> = totals.into_iter().flatten().collect();
    let sum = |part: fn(&Totals) -> u64| totals.iter().map(part).sum();
    let time = |part: fn(&Totals) -> Duration| totals.iter().map(part).sum::<Duration>();
    let mean = |time: Duration| time.as_secs_f64() / length.as_secs_f64();
    let most_threads = match clock.model {
        LoadModel::Closed { users } => most_users(users, clock.ramp_from),
        LoadModel::Open { max_in_flight, .. } => max_in_flight,
        LoadModel::Script { .. } => 0,
    };
    let total = recorder.total(length);
    debug_assert!(is_consistent(&total.counts), "{:?}", total.counts);
    WindowSummary {
        started: clock.start,
        length,
        total,
        operations: recorder.operations(length),
        journeys: recorder.journeys(length),
        journeys_by_name: recorder.journeys_by_name(length),
        beside: plan.phases[clock.index]
            .beside
            .iter()
            .map(|beside| {
                let steps = plan.prepared.of_journey(beside.journey).iter();
                BesideSummary {
                    journey: plan.prepared.journeys[beside.journey].name.clone(),
                    planned_rate_rps: beside.requests_per_second,
                    requests: recorder.together(steps.map(|step| step.name), length),
                }
            })
            .collect(),
        arrivals: sum(|totals| totals.arrivals),
        not_attempted: sum(|totals| totals.not_attempted),
        body_bytes: Some(sum(|totals| totals.body_bytes)),
        generator_cpu: time(|totals| totals.cpu),
        generator_wait: totals.iter().map(|totals| totals.waited).sum(),
        threads: totals.len().min(most_threads as usize),
        generator_lag_ms: recorder.generator_lag_ms(),
        held_back: sum(|totals| totals.held_back),
        outside: sum(|totals| totals.outside),
        in_flight: match clock.model {
            LoadModel::Closed { users } => {
                let to = f64::from(users);
                f64::midpoint(clock.ramp_from.unwrap_or(to), to)
            }
            LoadModel::Open { .. } | LoadModel::Script { .. } => {
                mean(time(|totals| totals.under_way))
            }
        },
        in_flight_recorded: mean(time(|totals| totals.recorded)),
        retry_after: totals.iter().map(|totals| totals.retry_after).sum(),
        intervals: recorder.into_intervals(),
        failures,
        first_failures,
    }
}

fn is_consistent(counts: &Counts) -> bool {
    counts.due == counts.requests + counts.unsent
        && counts.requests
            == counts.successes + counts.refused + counts.errors.total() + counts.abandoned
}
