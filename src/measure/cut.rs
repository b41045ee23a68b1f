//! Figures of a part of a window, from its raw evidence.
//!
//! **Invariant**: the part that is the whole window has the window's own figures,
//! to the last digit, since both come from the same buckets; parts that touch
//! add up to what they are parts of. What the evidence does not hold (journeys,
//! how late requests left, service times of an open loop) stays missing.

use std::time::Duration;

use indexmap::IndexMap;

use super::recorder::OperationRecord;
use super::{Figures, Interval, LatencyFrom, Outcome, SentIn, parse_tag};

/// Figures of a part of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CutFigures {
    /// All operations together.
    pub total: Figures,
    /// By operation, in the order in which they first ended; all of the window's, also those
    /// of which nothing is in the part.
    pub operations: Vec<(String, Figures)>,
}

/// Cuts the seconds `from..to` out of a window.
///
/// A request is in the part whose seconds hold the moment it belongs to (its send in a closed
/// loop, its due time in an open one); rates are of what *left* in the part. So throughput is
/// that of those seconds also where a backlog is being worked off.
///
/// **Units**: `from` and `to` in whole seconds from the left edge; `length` is the part's own,
/// shorter than `to - from` where the window ends in the middle of a second.
pub fn cut(
    intervals: &[Interval],
    (from, to): (u32, u32),
    length: Duration,
    latency_from: LatencyFrom,
) -> CutFigures {
    let holds = |second: u32| from <= second && second < to;
    let mut operations: IndexMap<String, OperationRecord> = IndexMap::new();
    for interval in intervals {
        // Readers refuse tags that are not ours.
        let Some((operation, outcome)) = parse_tag(&interval.tag) else {
            continue;
        };
        let record = operations.entry(operation).or_default();
        if holds(interval.second) {
            for (ns, n) in interval.values() {
                record.counts.add_n(outcome, u64::from(*n));
                if outcome == Outcome::Success {
                    record.latency.record_n(*ns, u64::from(*n));
                }
            }
        }
        if outcome != Outcome::Unsent {
            let n_sent = sent_in(interval, holds);
            record.sent_inside += n_sent;
            if outcome == Outcome::Success {
                record.successes_inside += n_sent;
            }
        }
    }
    let mut total = OperationRecord::default();
    for record in operations.values() {
        total.merge(record);
    }
    CutFigures {
        total: total.figures(length, latency_from),
        operations: operations
            .into_iter()
            .map(|(name, record)| (name, record.figures(length, latency_from)))
            .collect(),
    }
}

/// How many of an interval's requests left in the part.
fn sent_in(interval: &Interval, holds: impl Fn(u32) -> bool) -> u64 {
    let later = interval.left_later().iter();
    let n_later: u64 = later.map(|(_, n)| u64::from(*n)).sum();
    let in_its_own = if holds(interval.second) {
        interval.n_requests().saturating_sub(n_later)
    } else {
        0
    };
    let later = interval.left_later().iter().map(|(sent, n)| match sent {
        SentIn::Second(second) if holds(*second) => u64::from(*n),
        SentIn::Second(_) | SentIn::Drain => 0,
    });
    in_its_own + later.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::measure::{LatencyFigures, Recorder, Sample};

    const LENGTH_S: u32 = 6;

    fn any_sample() -> impl Strategy<Value = Sample> {
        let outcome = prop::sample::select(Outcome::ALL.to_vec());
        // Seconds 6 and 7 are the drain's.
        (
            0..3u32,
            outcome,
            0..LENGTH_S,
            0..3u32,
            1_000u64..20_000_000_000,
        )
            .prop_map(|(operation, outcome, second, later, latency_ns)| Sample {
                operation,
                outcome,
                second,
                sent_second: second + later,
                latency_ns,
                service_ns: latency_ns,
                lag_ns: 0,
                generator_lag_ns: 0,
                is_sent_inside: second + later < LENGTH_S && outcome != Outcome::Unsent,
            })
    }

    fn recorder_of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Recorder {
        let names = ["create Patient", "read", "drop|it"].map(str::to_owned);
        let mut recorder = Recorder::new(names.to_vec(), LatencyFrom::Due);
        for sample in samples {
            recorder.record(sample);
        }
        recorder
    }

    /// What the evidence cannot tell is taken out.
    fn known(figures: &Figures) -> Figures {
        let mut counts = figures.counts;
        counts.clamped = 0;
        Figures {
            counts,
            service_ms: LatencyFigures::default(),
            send_lag_ms: LatencyFigures::default(),
            ..figures.clone()
        }
    }

    fn seconds(n: u32) -> Duration {
        Duration::from_secs(u64::from(n))
    }

    /// Successes and requests that its rates are made of.
    fn n_of_rates(part: &CutFigures, length: u32) -> (u64, u64) {
        let n = |rate: f64| (rate * f64::from(length)).round() as u64;
        let total = &part.total;
        (n(total.throughput_rps), n(total.achieved_rate_rps))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn any_part_has_the_figures_of_its_samples_and_parts_add_up(
            samples in prop::collection::vec(any_sample(), 0..300), edge in 1..LENGTH_S
        ) {
            let whole = recorder_of(&samples);
            let intervals = whole.clone().into_intervals();
            let of = |from, to| {
                cut(&intervals, (from, to), seconds(to - from), LatencyFrom::Due)
            };
            let all = of(0, LENGTH_S);
            prop_assert_eq!(&known(&all.total), &known(&whole.total(seconds(LENGTH_S))));
            for (name, truth) in whole.operations(seconds(LENGTH_S)) {
                let found = all.operations.iter().find(|(found, _)| *found == name);
                let found = found.map(|(_, figures)| known(figures)).unwrap_or_default();
                prop_assert_eq!(found, known(&truth));
            }
            let (left, right) = (of(0, edge), of(edge, LENGTH_S));
            // Straight from the samples: belonging by `second`, rates by `sent_second`.
            for (part, from, to) in [(&left, 0, edge), (&right, edge, LENGTH_S)] {
                let holds = |second: u32| from <= second && second < to;
                let own = recorder_of(samples.iter().filter(|sample| holds(sample.second)));
                let truth = known(&own.total(seconds(to - from)));
                prop_assert_eq!(part.total.counts, truth.counts);
                prop_assert_eq!(part.total.latency_ms, truth.latency_ms);
                prop_assert_eq!(part.total.p99_due_ms, truth.p99_due_ms);
                let n_left = |is_wanted: fn(Outcome) -> bool| samples
                    .iter()
                    .filter(|s| s.is_sent_inside && holds(s.sent_second) && is_wanted(s.outcome))
                    .count() as u64;
                let (throughput, achieved) = n_of_rates(part, to - from);
                prop_assert_eq!(throughput, n_left(|outcome| outcome == Outcome::Success));
                prop_assert_eq!(achieved, n_left(|_| true));
            }
            let mut counts = left.total.counts;
            counts.merge(&right.total.counts);
            prop_assert_eq!(counts, all.total.counts);
            let (of_left, of_right) = (n_of_rates(&left, edge), n_of_rates(&right, LENGTH_S - edge));
            prop_assert_eq!(
                (of_left.0 + of_right.0, of_left.1 + of_right.1),
                n_of_rates(&all, LENGTH_S)
            );
        }
    }

    #[test]
    fn a_closed_loop_tells_service_times_and_a_part_without_requests_tells_nothing() {
        let samples = [Sample {
            operation: 0,
            outcome: Outcome::Success,
            second: 1,
            sent_second: 1,
            latency_ns: 2_000_000,
            service_ns: 2_000_000,
            lag_ns: 0,
            generator_lag_ns: 0,
            is_sent_inside: true,
        }];
        let intervals = recorder_of(&samples).into_intervals();
        let closed = cut(&intervals, (1, 2), seconds(1), LatencyFrom::Send);
        assert_eq!(closed.total.service_ms, closed.total.latency_ms);
        let empty = cut(&intervals, (0, 1), seconds(1), LatencyFrom::Send);
        assert_eq!(empty.total, Figures::default());
        assert_eq!(
            empty.operations,
            [("create Patient".to_owned(), Figures::default())]
        );
    }
}
