//! What a window looked like: second by second, and by how long requests took.
//!
//! Everything here is computed from the window's raw evidence, its
//! [`Interval`]s, so that it agrees with the figures to within a bucket's width.

use super::{Interval, Latencies, LatencyFigures, Outcome, WindowSummary};

/// One second of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Second {
    /// Since the left edge, from 0.
    pub second: u32,
    /// Requests of that second by how they ended; a request belongs to the second
    /// it was sent in (closed loop) or due in (open loop).
    pub successes: u64,
    /// Busy by design.
    pub refused: u64,
    /// Failed, of any class.
    pub errors: u64,
    /// Still in flight when the drain was over.
    pub abandoned: u64,
    /// Due and never sent.
    pub unsent: u64,
    /// Latency of its successes.
    pub latency_ms: LatencyFigures,
}

impl Second {
    /// Requests that did not succeed and were not refused.
    pub fn failed(&self) -> u64 {
        self.errors + self.abandoned + self.unsent
    }
}

/// Successes that took from `from_ns` to less than `to_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyBucket {
    /// Lower bound, included. **Units**: nanoseconds.
    pub from_ns: u64,
    /// Upper bound, not included. **Units**: nanoseconds.
    pub to_ns: u64,
    /// How many.
    pub count: u64,
}

/// Bounds within a decade, in hundredths. **Source**: Renard's series R20 of ISO 3,
/// rounded; every second is R10, every fourth R5, and 1, 2 and 5 are in it.
const BOUNDS: [u64; 20] = [
    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800,
    900,
];

/// Bounds for every decade of what histograms hold, ascending. **Units**: nanoseconds.
fn latency_bounds() -> impl Iterator<Item = u64> {
    // From 1 us to beyond 600 s.
    let decades = (0..9).map(|decade| 10 * 10_u64.pow(decade));
    decades.flat_map(|hundredth| BOUNDS.map(|bound| bound * hundredth))
}

impl WindowSummary {
    /// Second by second, in order; those without a request are there too.
    ///
    /// **Shape**: one for each second of the nominal length, a last part of one included.
    pub fn seconds(&self) -> Vec<Second> {
        let n = self.length.as_secs() + u64::from(self.length.subsec_nanos() > 0);
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let mut latencies: Vec<Latencies> = Vec::new();
        latencies.resize_with(n as usize, Latencies::default);
        let mut seconds: Vec<Second> = (0..n)
            .map(|second| Second {
                second,
                ..Second::default()
            })
            .collect();
        for interval in &self.intervals {
            let Some(second) = seconds.get_mut(interval.second as usize) else {
                continue;
            };
            let count: u64 = interval.values().iter().map(|(_, n)| u64::from(*n)).sum();
            *match outcome_of(&interval.tag) {
                code if code == Outcome::Success.code() => &mut second.successes,
                code if code == Outcome::Refused.code() => &mut second.refused,
                code if code == Outcome::Abandoned.code() => &mut second.abandoned,
                code if code == Outcome::Unsent.code() => &mut second.unsent,
                _ => &mut second.errors,
            } += count;
            if is_success(&interval.tag) {
                for (value, n) in interval.values() {
                    latencies[interval.second as usize].record_n(*value, u64::from(*n));
                }
            }
        }
        for (second, latencies) in seconds.iter_mut().zip(latencies) {
            second.latency_ms = latencies.figures();
        }
        seconds
    }

    /// The successes by latency, between fixed bounds, so that two windows can be compared.
    ///
    /// **Shape**: ascending and without gaps from the first to the last that holds any;
    /// empty without a success.
    pub fn latency_buckets(&self) -> Vec<LatencyBucket> {
        let values = self.success_values();
        let bounds: Vec<u64> = latency_bounds().collect();
        let mut buckets: Vec<LatencyBucket> = bounds
            .windows(2)
            .map(|pair| LatencyBucket {
                from_ns: pair[0],
                to_ns: pair[1],
                count: 0,
            })
            .collect();
        for (value, count) in values {
            // What is clamped to the lowest bound may lie a part of a bucket below it.
            let index = bounds.partition_point(|bound| *bound <= value);
            let last = buckets.len() - 1;
            buckets[index.saturating_sub(1).min(last)].count += count;
        }
        let holds_any = |bucket: &LatencyBucket| bucket.count > 0;
        let Some(first) = buckets.iter().position(holds_any) else {
            return Vec::new();
        };
        let last = buckets.iter().rposition(holds_any).unwrap_or(first);
        buckets[first..=last].to_vec()
    }

    /// The 99th percentile of everything due but what was refused, had so many more been due and
    /// never answered. **Units**: milliseconds. **Shape**: as of [`Latencies::percentile_with_infinite`].
    pub fn p99_due_ms_with(&self, n_more: u64) -> Option<f64> {
        let mut latencies = Latencies::default();
        for (value, count) in self.success_values() {
            latencies.record_n(value, count);
        }
        let counts = &self.total.counts;
        let n_infinite = counts.failed();
        latencies.percentile_with_infinite(990, n_infinite + n_more)
    }

    /// About the p99 that a closed loop's users hid by waiting, of requests sent at an
    /// even rate instead.
    ///
    /// A user that waits a second for one answer does not send what it would have sent in
    /// that second. Here those are put in: each answer stands for itself and for one
    /// request less late after each of the user's mean intervals.
    /// **Source**: Tene's correction for coordinated omission, as in
    /// `HdrHistogram::recordValueWithExpectedInterval`. **Units**: milliseconds.
    pub fn p99_if_open_ms(&self) -> Option<f64> {
        let values = self.success_values();
        let n_sent = self.total.counts.requests;
        if values.is_empty() || n_sent == 0 {
            return None;
        }
        let interval_ns = self.in_flight * self.length.as_nanos() as f64 / n_sent as f64;
        let interval_ns = interval_ns.max(1.0);
        // How many, hidden ones included, took longer than so long.
        let above = |limit_ns: f64| -> f64 {
            let of_value = |(value, count): &(u64, u64)| {
                let beyond = *value as f64 - limit_ns;
                let n_each = if beyond > 0.0 {
                    1.0 + (beyond / interval_ns).floor()
                } else {
                    0.0
                };
                // Those less late than an interval stand for no request.
                let most = (*value as f64 / interval_ns).floor().max(1.0);
                n_each.min(most) * *count as f64
            };
            values.iter().map(of_value).sum()
        };
        let allowed = above(0.0) / 100.0;
        let (mut low, mut high) = (0.0, values.last()?.0 as f64);
        // Halved until a thousandth of a microsecond is left of ten minutes.
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if above(middle) <= allowed {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(high / 1e6)
    }

    /// (latency, count) of all successes, ascending, equal ones once. **Units**: nanoseconds.
    fn success_values(&self) -> Vec<(u64, u64)> {
        let successes = self.intervals.iter().filter(|own| is_success(&own.tag));
        let mut values: Vec<(u64, u64)> = successes
            .flat_map(Interval::values)
            .map(|(value, count)| (*value, u64::from(*count)))
            .collect();
        values.sort_unstable();
        values.dedup_by(|next, kept| {
            let is_equal = next.0 == kept.0;
            if is_equal {
                kept.1 += next.1;
            }
            is_equal
        });
        values
    }
}

fn outcome_of(tag: &str) -> &str {
    tag.rsplit_once('|').map_or("", |(_, outcome)| outcome)
}

fn is_success(tag: &str) -> bool {
    outcome_of(tag) == Outcome::Success.code()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::{ErrorClass, LatencyFrom, Recorder, Sample};

    const MS: u64 = 1_000_000;

    /// (second, outcome, latency, how many)
    fn window(length: Duration, samples: &[(u32, Outcome, u64, u32)]) -> WindowSummary {
        let mut recorder = Recorder::new(vec!["read".into(), "a|b".into()], LatencyFrom::Send);
        for (second, outcome, latency_ns, n) in samples {
            for index in 0..*n {
                recorder.record(&Sample {
                    operation: index % 2,
                    outcome: *outcome,
                    second: *second,
                    sent_second: *second,
                    latency_ns: *latency_ns,
                    service_ns: *latency_ns,
                    lag_ns: 0,
                    generator_lag_ns: 0,
                    is_sent_inside: true,
                });
            }
        }
        let total = recorder.total(length);
        WindowSummary {
            intervals: recorder.into_intervals(),
            ..WindowSummary::quiet(total, length)
        }
    }

    #[test]
    fn seconds_hold_every_request_once_and_silence_is_a_second() {
        let error = Outcome::Error(ErrorClass::Status);
        let summary = window(
            Duration::from_millis(3_500),
            &[
                (0, Outcome::Success, 2 * MS, 99),
                (0, Outcome::Success, 50 * MS, 2),
                (0, error, MS, 3),
                (2, Outcome::Refused, MS, 1),
                (3, Outcome::Abandoned, 5_000 * MS, 1),
                (3, Outcome::Unsent, MS, 4),
                (3, Outcome::Error(ErrorClass::Reset), MS, 2),
            ],
        );
        let seconds = summary.seconds();
        assert_eq!(seconds.len(), 4);
        assert_eq!((seconds[0].successes, seconds[0].errors), (101, 3));
        let p99 = seconds[0].latency_ms.p99.unwrap();
        assert!((49.9..50.1).contains(&p99), "{p99}");
        assert_eq!(
            seconds[1],
            Second {
                second: 1,
                ..Second::default()
            }
        );
        assert_eq!(seconds[2].refused, 1);
        assert_eq!(seconds[3].failed(), 7);
        let all: u64 = seconds.iter().map(|own| own.successes + own.failed()).sum();
        assert_eq!(
            all + seconds[2].refused,
            summary.total.counts.due,
            "none is lost"
        );
    }

    #[test]
    fn buckets_are_whole_and_hold_every_success() {
        let samples = [
            (0, Outcome::Success, 1, 1),
            (0, Outcome::Success, 1_130 * 1_000, 7),
            (1, Outcome::Success, 1_990 * 1_000, 5),
            (1, Outcome::Refused, 5 * MS, 5),
        ];
        let buckets = window(Duration::from_secs(2), &samples).latency_buckets();
        assert_eq!(buckets[0].from_ns, 1_000, "clamped values are in the first");
        assert!(
            buckets
                .windows(2)
                .all(|pair| pair[0].to_ns == pair[1].from_ns)
        );
        let filled: Vec<_> = buckets
            .iter()
            .filter(|bucket| bucket.count > 0)
            .map(|bucket| (bucket.from_ns / 1_000, bucket.to_ns / 1_000, bucket.count))
            .collect();
        assert_eq!(filled, [(1, 1, 1), (1_120, 1_250, 7), (1_800, 2_000, 5)]);
        assert_eq!(window(Duration::ZERO, &samples[3..]).latency_buckets(), []);
        let largest = [(0, Outcome::Success, u64::MAX, 1)];
        let buckets = window(Duration::from_secs(1), &largest).latency_buckets();
        assert_eq!(buckets.len(), 1);
        assert_eq!(buckets[0].to_ns, 630 * 1_000 * MS);
    }

    #[test]
    fn what_waiting_users_hid_is_put_in() {
        // One user, an answer every 1.1 ms, frozen for one second of ten: 9,000 answers and one
        // of a second, which hides 900 requests. 1 % of all 9,900 is 99: they waited 890 ms
        // at least.
        let frozen = [
            (0, Outcome::Success, MS, 9_000),
            (9, Outcome::Success, 1_000 * MS, 1),
        ];
        let summary = window(Duration::from_secs(10), &frozen);
        assert!(summary.total.latency_ms.p99.unwrap() < 1.1);
        let p99 = summary.p99_if_open_ms().unwrap();
        assert!((885.0..905.0).contains(&p99), "{p99}");
        // Even answers hide nothing.
        let even = [(0, Outcome::Success, MS, 10_000)];
        let p99 = window(Duration::from_secs(10), &even).p99_if_open_ms();
        assert!((0.9..1.1).contains(&p99.unwrap()), "{p99:?}");
        assert_eq!(window(Duration::from_secs(1), &[]).p99_if_open_ms(), None);
    }
}
