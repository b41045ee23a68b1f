//! Samples in, figures out.
//!
//! A load thread notes one [`Sample`] per request into a plain list and hands
//! whole lists over; a [`Recorder`] on another thread turns them into counts and
//! histograms. So the load thread touches neither locks nor histograms, and
//! cutting the seconds apart costs it nothing.
//!
//! **Invariant**: merging recorders gives exactly what one recorder would have
//! given for all samples, in any order. See `summary` for what leaves here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::latencies::{Latencies, SparseCounts};
use super::tag::operation_tag;
use super::{Counts, Figures, Interval, LatencyFigures, Outcome, SentIn};

/// Where a request's latency is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyFrom {
    /// Its send: closed loop.
    Send,
    /// The moment it was due: open loop.
    Due,
}

/// One request of a phase, ended.
///
/// **Units**: nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Index of the operation.
    pub operation: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Second of the phase it belongs to.
    pub second: u32,
    /// Second of the phase in which it left; that one too unless it left later than it was due.
    pub sent_second: u32,
    /// From its due time (open loop) or its send (closed loop) to its end.
    pub latency_ns: u64,
    /// From its send to its end.
    pub service_ns: u64,
    /// Send minus due; 0 in a closed loop.
    pub lag_ns: u64,
    /// The generator's own part of the lag.
    pub generator_lag_ns: u64,
    /// Whether it left before the right edge. One that was due in the phase and
    /// left during the drain is the phase's own, but is no part of its rates.
    pub is_sent_inside: bool,
}

/// Requests of one second that were due and that the generator's pacing never
/// came to: too many to note one by one.
///
/// **Units**: nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpaced {
    /// Index of the operation.
    pub operation: u32,
    /// Second of the phase in which they were due.
    pub second: u32,
    /// How many.
    pub n: u64,
    /// From the beginning of the second to when they were given up.
    pub waited_ns: u64,
}

/// Counts and distributions of one phase, by operation.
#[derive(Debug, Clone)]
pub struct Recorder {
    latency_from: LatencyFrom,
    names: Vec<String>,
    operations: Vec<OperationRecord>,
    /// By operation: whether it is beside the phase's own load, and so in no total.
    is_beside: Vec<bool>,
    generator_lag: Latencies,
    journey_names: Vec<String>,
    journeys: Vec<JourneyRecord>,
    intervals: Intervals,
}

/// Second, operation and outcome.
type SliceKey = (u32, u32, Outcome);

/// The slices of a phase by second, operation and outcome.
///
/// Most samples belong to the slice of the sample before of their operation, which is
/// found without a hash.
#[derive(Debug, Clone, Default)]
struct Intervals {
    slices: Vec<(SliceKey, Slice)>,
    by_key: HashMap<SliceKey, usize>,
    /// By operation: the slice that was asked for last.
    last: Vec<usize>,
}

impl Intervals {
    fn slice(&mut self, key: SliceKey) -> &mut Slice {
        let operation = key.1 as usize;
        if self.last.len() <= operation {
            self.last.resize(operation + 1, 0);
        }
        let last = self.last[operation];
        let is_last = self
            .slices
            .get(last)
            .is_some_and(|(known, _)| *known == key);
        let index = if is_last {
            last
        } else {
            *self.by_key.entry(key).or_insert_with(|| {
                self.slices.push((key, Slice::default()));
                self.slices.len() - 1
            })
        };
        self.last[operation] = index;
        &mut self.slices[index].1
    }
}

/// What one interval is made of.
#[derive(Debug, Clone, Default)]
struct Slice {
    latencies: SparseCounts,
    /// By the second in which they left, `None` after the right edge: requests that did not
    /// leave in the second they belong to. Few, but for a service or generator that is behind.
    left_later: BTreeMap<SentIn, u32>,
}

/// Counts and distributions of the journeys of one name.
#[derive(Debug, Clone, Default)]
struct JourneyRecord {
    is_beside: bool,
    record: OperationRecord,
}

/// Counts and distributions of one operation.
#[derive(Debug, Clone, Default)]
pub(super) struct OperationRecord {
    pub(super) counts: Counts,
    /// Requests and, of these, successes that left before the right edge.
    pub(super) sent_inside: u64,
    pub(super) successes_inside: u64,
    pub(super) latency: Latencies,
    service: Latencies,
    lag: Latencies,
}

impl OperationRecord {
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.sent_inside += other.sent_inside;
        self.successes_inside += other.successes_inside;
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.lag.merge(&other.lag);
    }

    fn add(&mut self, outcome: Outcome, is_sent_inside: bool) {
        self.counts.add(outcome);
        if is_sent_inside && outcome != Outcome::Unsent {
            self.sent_inside += 1;
            self.successes_inside += u64::from(outcome == Outcome::Success);
        }
    }

    pub(super) fn figures(&self, length: Duration, from: LatencyFrom) -> Figures {
        let per_second = |count: u64| {
            if length.is_zero() {
                0.0
            } else {
                count as f64 / length.as_secs_f64()
            }
        };
        let counts = self.counts;
        let latency_ms = self.latency.figures();
        let n_infinite = counts.failed();
        Figures {
            counts,
            throughput_rps: per_second(self.successes_inside),
            achieved_rate_rps: per_second(self.sent_inside),
            latency_ms,
            service_ms: match from {
                // The same moments, so the same distribution; it is kept once.
                LatencyFrom::Send => latency_ms,
                LatencyFrom::Due => self.service.figures(),
            },
            send_lag_ms: self.lag.figures(),
            p99_due_ms: self.latency.percentile_with_infinite(990, n_infinite),
        }
    }
}

impl Recorder {
    /// An empty recorder for operations with these names.
    pub fn new(names: Vec<String>, latency_from: LatencyFrom) -> Self {
        Self {
            latency_from,
            operations: vec![OperationRecord::default(); names.len()],
            is_beside: vec![false; names.len()],
            names,
            generator_lag: Latencies::default(),
            journey_names: Vec::new(),
            journeys: vec![JourneyRecord::default()],
            intervals: Intervals::default(),
        }
    }

    /// The same for journeys with these names, of which those are beside the phase's load.
    ///
    /// **Shape**: both of the same length, at least 1.
    #[must_use]
    pub fn with_journeys(mut self, names: Vec<String>, is_beside: Vec<bool>) -> Self {
        let journey = |is_beside| JourneyRecord {
            is_beside,
            ..JourneyRecord::default()
        };
        self.journeys = is_beside.into_iter().map(journey).collect();
        self.journey_names = names;
        self
    }

    /// The same where these operations, by index, are beside the phase's load: they are
    /// timed from due, and in no total.
    #[must_use]
    pub fn with_operations_beside(mut self, operations: impl Iterator<Item = usize>) -> Self {
        for operation in operations {
            self.is_beside[operation] = true;
        }
        self
    }

    /// The index of an operation, which is added where it is new.
    #[expect(
        clippy::missing_panics_doc,
        reason = "no memory holds so many operations"
    )]
    pub fn operation(&mut self, name: &str) -> u32 {
        let known = self.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.operations.push(OperationRecord::default());
            self.is_beside.push(false);
            self.names.len() - 1
        });
        u32::try_from(index).expect("far fewer operations than that")
    }

    /// Records one request.
    ///
    /// **Panics**: when the operation's index is not one of the names'.
    pub fn record(&mut self, sample: &Sample) {
        let is_beside = self.is_beside[sample.operation as usize];
        let is_due = is_beside || self.latency_from == LatencyFrom::Due;
        let record = &mut self.operations[sample.operation as usize];
        record.add(sample.outcome, sample.is_sent_inside);
        if sample.outcome == Outcome::Success {
            if record.latency.record(sample.latency_ns) {
                record.counts.clamped += 1;
            }
            if is_due {
                record.service.record(sample.service_ns);
            }
        }
        if is_due && sample.outcome != Outcome::Unsent {
            record.lag.record(sample.lag_ns);
            if !is_beside {
                self.generator_lag.record(sample.generator_lag_ns);
            }
        }
        let key = (sample.second, sample.operation, sample.outcome);
        let slice = self.intervals.slice(key);
        slice.latencies.record(sample.latency_ns);
        let is_sent_in_it = sample.is_sent_inside && sample.sent_second == sample.second;
        if !is_sent_in_it && sample.outcome != Outcome::Unsent {
            let sent = if sample.is_sent_inside {
                SentIn::Second(sample.sent_second)
            } else {
                SentIn::Drain
            };
            *slice.left_later.entry(sent).or_default() += 1;
        }
    }

    /// Records requests that the pacing never came to: unsent, and late by the
    /// generator's own doing.
    ///
    /// **Panics**: when the operation's index is not one of the names'.
    pub fn record_unpaced(&mut self, unpaced: &Unpaced) {
        let record = &mut self.operations[unpaced.operation as usize];
        record.counts.add_n(Outcome::Unsent, unpaced.n);
        if !self.is_beside[unpaced.operation as usize] {
            self.generator_lag.record_n(unpaced.waited_ns, unpaced.n);
        }
        let key = (unpaced.second, unpaced.operation, Outcome::Unsent);
        self.intervals
            .slice(key)
            .latencies
            .record_n(unpaced.waited_ns, unpaced.n);
    }

    /// Records one journey that ended in the phase, where there is one kind of them.
    pub fn record_journey(&mut self, outcome: Outcome, latency_ns: u64) {
        self.record_journey_of(0, outcome, latency_ns);
    }

    /// Records one journey that ended in the phase.
    ///
    /// **Panics**: when its index is not one of the journeys'.
    pub fn record_journey_of(&mut self, journey: usize, outcome: Outcome, latency_ns: u64) {
        let record = &mut self.journeys[journey].record;
        record.add(outcome, true);
        if outcome == Outcome::Success && record.latency.record(latency_ns) {
            record.counts.clamped += 1;
        }
    }

    /// Adds everything another recorder of the same operations holds.
    ///
    /// # Panics
    ///
    /// When the two were made for different operations.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.names, other.names, "recorders of the same operations");
        for (record, other) in self.operations.iter_mut().zip(&other.operations) {
            record.merge(other);
        }
        self.generator_lag.merge(&other.generator_lag);
        for (journey, other) in self.journeys.iter_mut().zip(&other.journeys) {
            journey.record.merge(&other.record);
        }
        for (key, other) in &other.intervals.slices {
            let slice = self.intervals.slice(*key);
            slice.latencies.merge(&other.latencies);
            for (sent, n) in &other.left_later {
                *slice.left_later.entry(*sent).or_default() += n;
            }
        }
    }

    /// All operations of the phase's own load together.
    pub fn total(&self, length: Duration) -> Figures {
        let mut total = OperationRecord::default();
        for (record, is_beside) in self.operations.iter().zip(&self.is_beside) {
            if !is_beside {
                total.merge(record);
            }
        }
        total.figures(length, self.latency_from)
    }

    /// Operations beside the phase's own load together, by index.
    pub fn together(&self, operations: impl Iterator<Item = u32>, length: Duration) -> Figures {
        let mut indexes: Vec<usize> = operations.map(|index| index as usize).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let mut together = OperationRecord::default();
        for index in indexes {
            together.merge(&self.operations[index]);
        }
        together.figures(length, LatencyFrom::Due)
    }

    /// By operation, in the order of the names.
    pub fn operations(&self, length: Duration) -> Vec<(String, Figures)> {
        self.names
            .iter()
            .zip(self.operations.iter().zip(&self.is_beside))
            .map(|(name, (record, is_beside))| {
                let from = if *is_beside {
                    LatencyFrom::Due
                } else {
                    self.latency_from
                };
                (name.clone(), record.figures(length, from))
            })
            .collect()
    }

    /// Journeys of the phase's own load that ended in it; latency from arrival to last answer.
    pub fn journeys(&self, length: Duration) -> Figures {
        let mut total = OperationRecord::default();
        for journey in self.journeys.iter().filter(|journey| !journey.is_beside) {
            total.merge(&journey.record);
        }
        total.figures(length, LatencyFrom::Send)
    }

    /// Journeys by name, in order; empty where there is one kind of them.
    pub fn journeys_by_name(&self, length: Duration) -> Vec<(String, Figures)> {
        if self.journeys.len() < 2 {
            return Vec::new();
        }
        let names = self.journey_names.iter().zip(&self.journeys);
        let figures = names.map(|(name, journey)| {
            (
                name.clone(),
                journey.record.figures(length, LatencyFrom::Send),
            )
        });
        figures.collect()
    }

    /// The generator's own lag, over all requests sent.
    pub fn generator_lag_ms(&self) -> LatencyFigures {
        self.generator_lag.figures()
    }

    /// One interval per second, operation and outcome, in that order.
    pub fn into_intervals(self) -> Vec<Interval> {
        let mut intervals = self.intervals.slices;
        intervals.sort_unstable_by_key(|(key, _)| *key);
        intervals
            .into_iter()
            .map(|((second, operation, outcome), slice)| {
                let tag = operation_tag(&self.names[operation as usize], outcome);
                Interval::new(second, tag, slice.latencies.into_values())
                    .with_left_later(slice.left_later.into_iter().collect())
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
