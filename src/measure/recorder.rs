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
            self.last.resize(operation + 1, usize::MAX);
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
        let n_infinite = counts.errors.total() + counts.abandoned + counts.unsent;
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measure::ErrorClass;

    const MS: u64 = 1_000_000;
    const LENGTH: Duration = Duration::from_secs(10);

    fn names() -> Vec<String> {
        vec!["create Patient".into(), "read".into(), "drop|it".into()]
    }

    fn sample(operation: u32, outcome: Outcome, second: u32, latency_ns: u64) -> Sample {
        Sample {
            operation,
            outcome,
            second,
            sent_second: second,
            latency_ns,
            service_ns: latency_ns / 2,
            lag_ns: latency_ns / 4,
            generator_lag_ns: latency_ns / 8,
            is_sent_inside: outcome != Outcome::Unsent,
        }
    }

    fn any_sample() -> impl Strategy<Value = Sample> {
        let outcome = prop::sample::select(Outcome::ALL.to_vec());
        let latency_ns = 100u64..900_000 * MS;
        (
            0u32..3,
            outcome,
            0u32..5,
            0u32..3,
            latency_ns,
            any::<bool>(),
        )
            .prop_map(
                |(operation, outcome, second, later, latency_ns, is_sent_inside)| Sample {
                    is_sent_inside,
                    sent_second: second + later,
                    ..sample(operation, outcome, second, latency_ns)
                },
            )
    }

    fn record(samples: &[Sample]) -> Recorder {
        let mut recorder = Recorder::new(names(), LatencyFrom::Due);
        for sample in samples {
            recorder.record(sample);
            recorder.record_journey(sample.outcome, sample.latency_ns);
        }
        recorder
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn two_three_and_eight_recorders_merge_to_the_single_truth(
            samples in prop::collection::vec(any_sample(), 0..600)
        ) {
            let truth = record(&samples);
            for n_recorders in [2, 3, 8] {
                let mut merged = Recorder::new(names(), LatencyFrom::Due);
                for index in 0..n_recorders {
                    let part: Vec<Sample> =
                        samples.iter().skip(index).step_by(n_recorders).copied().collect();
                    merged.merge(&record(&part));
                }
                prop_assert_eq!(merged.total(LENGTH), truth.total(LENGTH));
                prop_assert_eq!(merged.operations(LENGTH), truth.operations(LENGTH));
                prop_assert_eq!(merged.journeys(LENGTH), truth.journeys(LENGTH));
                prop_assert_eq!(merged.generator_lag_ms(), truth.generator_lag_ms());
                prop_assert_eq!(merged.into_intervals(), truth.clone().into_intervals());
            }
            let counts = truth.total(LENGTH).counts;
            prop_assert_eq!(counts.due, counts.requests + counts.unsent);
            prop_assert_eq!(
                counts.requests,
                counts.successes + counts.refused + counts.errors.total() + counts.abandoned
            );
            prop_assert_eq!(counts.due, samples.len() as u64);
        }
    }

    #[test]
    fn an_operation_is_added_once() {
        let mut recorder = Recorder::new(Vec::new(), LatencyFrom::Send);
        let indexes = ["a", "b", "a"].map(|name| recorder.operation(name));
        assert_eq!(indexes, [0, 1, 0]);
        recorder.record(&sample(1, Outcome::Success, 0, MS));
        let counts: Vec<_> = recorder
            .operations(LENGTH)
            .into_iter()
            .map(|(name, figures)| (name, figures.counts.due))
            .collect();
        assert_eq!(counts, [("a".to_owned(), 0), ("b".to_owned(), 1)]);
    }

    #[test]
    fn every_error_class_is_counted_on_its_own_and_added_by_a_merge() {
        let errors = |classes: &[ErrorClass]| {
            let samples: Vec<Sample> = classes
                .iter()
                .map(|class| sample(0, Outcome::Error(*class), 0, MS))
                .collect();
            record(&samples)
        };
        let mut merged = errors(&[ErrorClass::Connect, ErrorClass::Reset, ErrorClass::Reset]);
        merged.merge(&errors(&[ErrorClass::Connect, ErrorClass::Status]));
        let counts = merged.total(LENGTH).counts.errors;
        assert_eq!((counts.connect, counts.reset, counts.status), (2, 2, 1));
        assert_eq!(counts.total(), 5);
    }

    #[test]
    fn percentiles_over_everything_due_leave_out_refused_only() {
        let mut samples = vec![sample(1, Outcome::Success, 0, MS); 980];
        samples.extend(vec![sample(1, Outcome::Refused, 0, MS); 1_000]);
        samples.extend(vec![sample(1, Outcome::Unsent, 0, MS); 9]);
        let figures = record(&samples).total(LENGTH);
        assert!(figures.p99_due_ms.is_some_and(f64::is_finite));
        samples.push(sample(1, Outcome::Abandoned, 0, MS));
        assert_eq!(
            record(&samples).total(LENGTH).p99_due_ms,
            Some(f64::INFINITY)
        );
    }

    #[test]
    fn what_left_during_the_drain_is_counted_but_is_no_part_of_the_rates() {
        // 3,000/s for 2 s at a service of 500/s: 1,740 successes/s were reported.
        let mut samples = vec![sample(1, Outcome::Success, 0, MS); 1_000];
        samples.push(sample(1, Outcome::Error(ErrorClass::Status), 0, MS));
        let late = Sample {
            is_sent_inside: false,
            ..sample(1, Outcome::Success, 1, 3_000 * MS)
        };
        samples.extend(vec![late; 2_480]);
        samples.extend(vec![sample(1, Outcome::Unsent, 1, MS); 2_519]);
        let recorder = record(&samples);
        let length = Duration::from_secs(2);
        for figures in [
            recorder.total(length),
            recorder.operations(length)[1].1.clone(),
        ] {
            assert_eq!(figures.counts.due, 6_000);
            assert_eq!(figures.counts.successes, 3_480);
            let rates = [figures.throughput_rps, figures.achieved_rate_rps];
            assert_eq!(rates.map(|rate| rate.to_string()), ["500", "500.5"]);
            assert!(figures.latency_ms.p99 > Some(2_900.0), "{figures:?}");
        }
    }

    #[test]
    fn a_figure_of_nothing_is_missing_not_zero() {
        let figures = record(&[sample(0, Outcome::Refused, 0, MS)]).total(LENGTH);
        assert_eq!(figures.latency_ms.p99, None);
        assert_eq!(figures.p99_due_ms, None);
    }

    #[test]
    fn the_intervals_hold_what_the_total_holds() {
        let samples: Vec<Sample> = (0..5_000_u64)
            .map(|index| {
                let second = u32::try_from(index % 3).unwrap();
                sample(0, Outcome::Success, second, MS + index * 1_000)
            })
            .collect();
        let recorder = record(&samples);
        let total = recorder.total(LENGTH);
        let intervals = recorder.into_intervals();
        assert_eq!(intervals.len(), 3);
        let mut merged = intervals[0].histogram();
        for interval in &intervals[1..] {
            merged.add(interval.histogram()).unwrap();
        }
        assert_eq!(merged.len(), total.counts.successes);
        let p99_ms = merged.value_at_quantile(0.99) as f64 / 1e6;
        assert_eq!(Some(p99_ms), total.latency_ms.p99);
    }
}
