//! The stretches of a run: requests and journeys into figures, by when they began.
//!
//! A request belongs to the stretch in which it was sent, a journey to the one in
//! which it ended, as with our own closed loop. k6 tells of a request when it has
//! ended, so a stretch is summed at its end and again when everything was heard.
//!
//! **Units**: nanoseconds since the end of set-up.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::ending::WindowNotes;
use super::journeys::Ended;
use super::stretches::Stretch;
use super::throws::Throws;
use crate::load::plan::Tick;
use crate::load::thread_time::ThreadTime;
use crate::measure::{
    Counts, Latencies, LatencyFigures, LatencyFrom, Outcome, Recorder, RetryAfter, Sample, Unpaced,
    WindowSummary,
};

/// So many of the last failures are kept.
const FAILURES_KEPT: usize = 10;
/// Most operations of a script; requests of further ones are counted together.
const MOST_OPERATIONS: usize = 500;
/// What these are called.
const OTHERS: &str = "(other operations)";

/// All stretches of a run.
#[derive(Debug)]
pub(super) struct Windows {
    /// The end of set-up.
    started: Instant,
    stretches: Vec<Recorded>,
    throws: Throws,
    /// Requests of none of them.
    outside: u64,
    tick: Counts,
    tick_latencies: Latencies,
}

#[derive(Debug)]
struct Recorded {
    stretch: Stretch,
    recorder: Recorder,
    operations: HashMap<Box<str>, u32>,
    arrivals: u64,
    dropped: u64,
    threw: u64,
    /// Those that were counted as successes by their requests.
    threw_successes: u64,
    under_way_ns: u128,
    failures: VecDeque<String>,
    time: ThreadTime,
    /// Whether anything came after it was summed.
    has_more: bool,
}

impl Windows {
    /// Nothing recorded; `started` is the end of set-up.
    pub(super) fn new(stretches: &[Stretch], started: Instant) -> Self {
        let stretches = stretches.iter().map(|stretch| Recorded {
            stretch: stretch.clone(),
            recorder: Recorder::new(Vec::new(), LatencyFrom::Send),
            operations: HashMap::new(),
            arrivals: 0,
            dropped: 0,
            threw: 0,
            threw_successes: 0,
            under_way_ns: 0,
            failures: VecDeque::new(),
            time: ThreadTime::default(),
            has_more: false,
        });
        Self {
            started,
            stretches: stretches.collect(),
            throws: Throws::default(),
            outside: 0,
            tick: Counts::default(),
            tick_latencies: Latencies::default(),
        }
    }

    /// When a stretch begins and ends.
    pub(super) fn edges(&self, index: usize) -> (Instant, Instant) {
        let stretch = &self.stretches[index].stretch;
        (self.started + stretch.from, self.started + stretch.to)
    }

    /// Takes in what ended.
    pub(super) fn add(&mut self, ended: Ended) {
        match ended {
            Ended::Request {
                scenario,
                operation,
                sent_ns,
                duration_ns,
                outcome,
                words,
            } => {
                self.tick.add(outcome);
                if outcome == Outcome::Success {
                    self.tick_latencies.record(duration_ns);
                }
                let words = words.map(|words| format!("{operation}: {words}"));
                if let Some((at, recorded)) = self.at(sent_ns, &scenario) {
                    recorded.record(&operation, outcome, at, duration_ns);
                    recorded.failures.extend(words);
                    if recorded.failures.len() > FAILURES_KEPT {
                        recorded.failures.pop_front();
                    }
                } else {
                    self.outside += 1;
                }
            }
            Ended::Journey {
                scenario,
                ended_ns,
                duration_ns,
                outcome,
            } => {
                self.add_time(&scenario, ended_ns, duration_ns);
                let is_success = outcome == Outcome::Success;
                self.throws.ended(ended_ns, &scenario, is_success);
                let began_ns = ended_ns.saturating_sub_unsigned(duration_ns);
                if let Some((_, recorded)) = self.at(began_ns, &scenario) {
                    recorded.arrivals += 1;
                }
                if let Some((_, recorded)) = self.at(ended_ns, &scenario) {
                    recorded.recorder.record_journey(outcome, duration_ns);
                }
            }
            Ended::Dropped { scenario, at_ns, n } => {
                self.tick.add_n(Outcome::Unsent, n);
                if let Some((at, recorded)) = self.at(at_ns, &scenario) {
                    recorded.arrivals += n;
                    recorded.dropped += n;
                    let name = format!("dropped iteration of {scenario}");
                    let operation = recorded.operation(&name);
                    recorded.recorder.record_unpaced(&Unpaced {
                        operation,
                        second: second_of(at),
                        n,
                        waited_ns: 0,
                    });
                }
            }
        }
    }

    /// It was heard at that moment that an iteration of a scenario threw.
    pub(super) fn threw(&mut self, heard: Instant, scenario: &str, words: &str) {
        let heard_ns = self.since_start(heard);
        self.throws.heard(heard_ns, scenario, words);
    }

    /// Counts the throws that were heard up to a moment, of which every end has been told.
    pub(super) fn settle(&mut self, until: Instant) {
        for threw in self.throws.settle(self.since_start(until)) {
            let Some((_, recorded)) = self.at(threw.at_ns, &threw.scenario) else {
                continue;
            };
            recorded.threw += 1;
            recorded.threw_successes += u64::from(threw.was_success);
            recorded
                .failures
                .push_back(format!("threw: {}", threw.words));
            if recorded.failures.len() > FAILURES_KEPT {
                recorded.failures.pop_front();
            }
        }
    }

    /// What is known of a stretch beside its figures.
    pub(super) fn notes(&self, index: usize) -> WindowNotes {
        let recorded = &self.stretches[index];
        // Counts do not depend on the length.
        let length = Duration::from_secs(1);
        WindowNotes {
            phase: index,
            requests: recorded.recorder.total(length).counts.requests,
            ended: recorded.recorder.journeys(length).counts.requests,
            threw: recorded.threw,
        }
    }

    /// Requests that belong to no stretch.
    pub(super) fn n_outside(&self) -> u64 {
        self.outside
    }

    /// CPU time k6 used in a stretch.
    pub(super) fn set_time(&mut self, index: usize, time: ThreadTime) {
        self.stretches[index].time = time;
    }

    /// What ended since the last tick.
    pub(super) fn tick(&mut self, phase: usize, second: u64) -> Tick {
        let latencies = std::mem::take(&mut self.tick_latencies);
        Tick {
            phase,
            second,
            counts: std::mem::take(&mut self.tick),
            p50_ms: latencies.percentile_with_infinite(500, 0),
            p99_ms: latencies.percentile_with_infinite(990, 0),
            in_flight: None,
        }
    }

    /// Whether a stretch that was summed has got more since.
    pub(super) fn has_more(&self, index: usize) -> bool {
        self.stretches[index].has_more
    }

    /// The figures of a stretch by now. `n_cpus` is how many k6 may use.
    pub(super) fn sum(&mut self, index: usize, n_cpus: usize) -> WindowSummary {
        let (started, _) = self.edges(index);
        let recorded = &mut self.stretches[index];
        recorded.has_more = false;
        let length = recorded.stretch.to.saturating_sub(recorded.stretch.from);
        let under_way = recorded.under_way_ns as f64 / (length.as_nanos() as f64).max(1.0);
        let by_operation = &recorded.recorder;
        let mut journeys = by_operation.journeys(length);
        // They were counted by their requests alone.
        journeys.counts.successes -= recorded.threw_successes;
        journeys.counts.errors.template += recorded.threw_successes;
        WindowSummary {
            started,
            length,
            total: by_operation.total(length),
            operations: by_operation.operations(length),
            journeys,
            journeys_by_name: Vec::new(),
            beside: Vec::new(),
            arrivals: recorded.arrivals,
            not_attempted: 0,
            // k6 counts what it received by the second, not by the request.
            body_bytes: None,
            generator_cpu: recorded.time.cpu,
            generator_wait: recorded.time.waited,
            threads: n_cpus,
            // When a request should have left k6 does not tell.
            generator_lag_ms: LatencyFigures::default(),
            // k6 drops an iteration when all its virtual users wait for answers.
            held_back: recorded.dropped,
            outside: 0,
            retry_after: RetryAfter::default(),
            // There is no second source for this: k6's own count of users holds idle ones.
            in_flight: under_way,
            in_flight_recorded: under_way,
            intervals: by_operation.clone().into_intervals(),
            failures: recorded.failures.iter().cloned().collect(),
            // k6 says why, not of which class.
            first_failures: Vec::new(),
        }
    }

    /// The stretch that holds a moment of a scenario, and the time into it.
    fn at(&mut self, at_ns: i64, scenario: &str) -> Option<(u64, &mut Recorded)> {
        let index = self.index_at(at_ns)?;
        let since_zero = u64::try_from(at_ns).ok()?;
        let recorded = &mut self.stretches[index];
        let only = recorded.stretch.scenario.as_deref();
        if only.is_some_and(|only| only != scenario) {
            return None;
        }
        recorded.has_more = true;
        let from = u64::try_from(recorded.stretch.from.as_nanos()).ok()?;
        Some((since_zero.saturating_sub(from), recorded))
    }

    fn since_start(&self, at: Instant) -> i64 {
        let since = at.saturating_duration_since(self.started);
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn index_at(&self, at_ns: i64) -> Option<usize> {
        let at = Duration::from_nanos(u64::try_from(at_ns).ok()?);
        let behind = |recorded: &Recorded| recorded.stretch.to <= at;
        let index = self.stretches.partition_point(behind);
        let recorded = self.stretches.get(index)?;
        (recorded.stretch.from <= at).then_some(index)
    }

    /// Counts a journey's time in every stretch it went through.
    fn add_time(&mut self, scenario: &str, ended_ns: i64, duration_ns: u64) {
        let to = i128::from(ended_ns);
        let from = to - i128::from(duration_ns);
        for recorded in &mut self.stretches {
            let only = recorded.stretch.scenario.as_deref();
            if only.is_some_and(|only| only != scenario) {
                continue;
            }
            let edge = |edge: Duration| i128::try_from(edge.as_nanos()).unwrap_or(i128::MAX);
            let inside = to.min(edge(recorded.stretch.to)) - from.max(edge(recorded.stretch.from));
            if let Ok(inside) = u128::try_from(inside)
                && inside > 0
            {
                recorded.under_way_ns += inside;
                recorded.has_more = true;
            }
        }
    }
}

impl Recorded {
    fn record(&mut self, operation: &str, outcome: Outcome, at_ns: u64, duration_ns: u64) {
        let operation = self.operation(operation);
        self.recorder.record(&Sample {
            operation,
            outcome,
            second: second_of(at_ns),
            sent_second: second_of(at_ns),
            latency_ns: duration_ns,
            service_ns: duration_ns,
            lag_ns: 0,
            generator_lag_ns: 0,
            is_sent_inside: true,
        });
    }

    fn operation(&mut self, name: &str) -> u32 {
        if let Some(index) = self.operations.get(name) {
            return *index;
        }
        if self.operations.len() >= MOST_OPERATIONS {
            return self.recorder.operation(OTHERS);
        }
        let index = self.recorder.operation(name);
        self.operations.insert(name.into(), index);
        index
    }
}

fn second_of(at_ns: u64) -> u32 {
    u32::try_from(at_ns / 1_000_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
