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

#[test]
fn slices_are_told_apart_however_they_alternate() {
    let mut recorder = Recorder::new(names(), LatencyFrom::Send);
    let slow = Outcome::Error(ErrorClass::Timeout);
    // The slice that was asked for last is remembered by operation: each key follows every
    // other one here.
    let keys = [
        (0, Outcome::Success, 0),
        (0, slow, 0),
        (1, Outcome::Success, 0),
        (0, Outcome::Success, 1),
        (1, slow, 1),
    ];
    for first in keys {
        for second in keys {
            for (operation, outcome, at) in [first, second] {
                recorder.record(&sample(operation, outcome, at, MS));
            }
        }
    }
    let counts: Vec<_> = recorder
        .into_intervals()
        .iter()
        .map(|interval| (interval.second, interval.histogram().len()))
        .collect();
    assert_eq!(counts, [(0, 10), (0, 10), (0, 10), (1, 10), (1, 10)]);
}
