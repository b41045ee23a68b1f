//! One distribution of times, and exact nearest-rank points of it.
//!
//! **Invariant**: a percentile here is the `ceil(p * n)`-th smallest value, with
//! the rank computed in whole numbers; no interpolation, no floating rank.
//! Bounds and digits of every histogram of the project are declared here once.

use hdrhistogram::Histogram;
use itertools::Itertools as _;

use super::LatencyFigures;

/// Smallest time told apart from zero. **Units**: nanoseconds.
///
/// Loopback answers take tens of microseconds; a step of about half a
/// microsecond at the bottom is finer than anything a network shows.
pub const LOWEST_NS: u64 = 1_000;
/// Largest time recorded as it is. **Units**: nanoseconds. Ten minutes: no time-out is longer.
pub const HIGHEST_NS: u64 = 600_000_000_000;
/// Significant decimal digits: a bucket is never wider than 0.1 % of its value.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Bits of a value that a bucket keeps: 2,048 steps give three decimal digits.
const BUCKET_BITS: u32 = 11;
/// Smallest shift: 2^9 ns is the largest power of two not above [`LOWEST_NS`].
const LOWEST_SHIFT: u32 = 9;

/// A distribution of times; empty ones take no memory.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Option<Box<Histogram<u32>>>);

impl Latencies {
    /// Records one time and says whether it had to be clamped to the bounds.
    ///
    /// **Units**: nanoseconds.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the histogram grows with what it is given, so recording cannot fail"
    )]
    pub fn record(&mut self, ns: u64) -> bool {
        let clamped = ns.clamp(LOWEST_NS, HIGHEST_NS);
        self.histogram_mut()
            .record(clamped)
            .expect("the value is within the bounds up to which it grows");
        clamped != ns
    }

    /// Records so many equal times, clamped to the bounds. **Units**: nanoseconds.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the histogram grows with what it is given, so recording cannot fail"
    )]
    pub fn record_n(&mut self, ns: u64, n: u64) {
        self.histogram_mut()
            .record_n(ns.clamp(LOWEST_NS, HIGHEST_NS), saturated(n))
            .expect("the value is within the bounds up to which it grows");
    }

    /// Adds all values of another distribution.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the histogram grows with what it is given, so adding cannot fail"
    )]
    pub fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            self.histogram_mut()
                .add(other.as_ref())
                .expect("both histograms have the same bounds");
        }
    }

    /// How many values it holds.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |histogram| histogram.len())
    }

    /// The usual points. **Units**: milliseconds.
    pub fn figures(&self) -> LatencyFigures {
        let Some(histogram) = self.0.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return LatencyFigures::default();
        };
        let n = histogram.len();
        let ranks = [500, 900, 950, 990, 999].map(|per_mille| rank(n, per_mille));
        let [p50, p90, p95, p99, p999] = at_ranks(histogram, ranks).map(Some);
        LatencyFigures {
            mean: Some(histogram.mean() / 1e6),
            p50,
            p90,
            p95,
            p99,
            p999,
            max: Some(histogram.max() as f64 / 1e6),
        }
    }

    /// The percentile over these values and `n_infinite` further, infinite ones.
    ///
    /// **Units**: `per_mille` is 990 for p99; the answer is in milliseconds.
    /// **Shape**: `None` when there is no value at all.
    pub fn percentile_with_infinite(&self, per_mille: u64, n_infinite: u64) -> Option<f64> {
        let n = self.count() + n_infinite;
        if n == 0 {
            return None;
        }
        let rank = rank(n, per_mille);
        match &self.0 {
            Some(histogram) if rank <= histogram.len() => Some(at_ranks(histogram, [rank])[0]),
            _ => Some(f64::INFINITY),
        }
    }

    fn histogram_mut(&mut self) -> &mut Histogram<u32> {
        self.0.get_or_insert_with(|| {
            // It starts small and grows with what it is given: a distribution
            // of fast answers takes a third of one that may hold ten minutes.
            let mut histogram =
                Histogram::new_with_bounds(LOWEST_NS, 2 * LOWEST_NS, SIGNIFICANT_DIGITS)
                    .expect("the bounds and digits are constants that hdrhistogram takes");
            histogram.auto(true);
            Box::new(histogram)
        })
    }
}

/// The nearest rank, from 1: `ceil(per_mille / 1000 * n)`.
fn rank(n: u64, per_mille: u64) -> u64 {
    let product = u128::from(n) * u128::from(per_mille);
    u64::try_from(product.div_ceil(1000))
        .expect("a share of a count fits where the count fits")
        .max(1)
}

/// The values at ascending ranks. **Units**: milliseconds.
fn at_ranks<const N: usize>(histogram: &Histogram<u32>, ranks: [u64; N]) -> [f64; N] {
    let mut values = [0.0; N];
    let mut reached = 0;
    let mut next = 0;
    for step in histogram.iter_recorded() {
        reached += step.count_since_last_iteration();
        while next < N && ranks[next] <= reached {
            // The bucket's upper edge, as every HdrHistogram tool reports it.
            values[next] = histogram.highest_equivalent(step.value_iterated_to()) as f64 / 1e6;
            next += 1;
        }
    }
    values
}

/// Counts of times in histogram buckets, kept sparse.
///
/// A full histogram takes 170 KB whatever it holds; a second of one operation
/// holds tens to thousands of values. This keeps 8 bytes per distinct bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparseCounts {
    /// Buckets not yet sorted into `counts`.
    pending: Vec<u32>,
    /// (bucket, count), ascending by bucket.
    counts: Vec<(u32, u32)>,
}

/// So many values wait at least before they are sorted in: 2 KB. As many as there are
/// buckets may, so that sorting in costs the same for each value, however many there are.
const PENDING_VALUES: usize = 512;

impl SparseCounts {
    /// Records one time, clamped to the bounds. **Units**: nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.pending
            .push(bucket_of(ns.clamp(LOWEST_NS, HIGHEST_NS)));
        if self.pending.len() >= PENDING_VALUES.max(self.counts.len()) {
            self.settle();
        }
    }

    /// Records so many equal times, clamped to the bounds. **Units**: nanoseconds.
    pub fn record_n(&mut self, ns: u64, n: u64) {
        let bucket = bucket_of(ns.clamp(LOWEST_NS, HIGHEST_NS));
        self.merge(&Self {
            pending: Vec::new(),
            counts: vec![(bucket, saturated(n))],
        });
    }

    /// Adds all counts of another.
    pub fn merge(&mut self, other: &Self) {
        self.pending.extend_from_slice(&other.pending);
        self.settle();
        self.counts = merged(&self.counts, other.counts.iter().copied());
    }

    /// (lowest value of the bucket, count), ascending. **Units**: nanoseconds.
    pub fn into_values(mut self) -> Vec<(u64, u32)> {
        self.settle();
        self.counts
            .iter()
            .map(|(bucket, count)| (value_of(*bucket), *count))
            .collect()
    }

    fn settle(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.pending.sort_unstable();
        self.counts = merged(
            &self.counts,
            self.pending.drain(..).map(|bucket| (bucket, 1)),
        );
    }
}

/// Counts are of 32 bits: four billion equal times are forty seconds at the highest rate.
fn saturated(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Both as one, ascending, with equal buckets summed; both must be ascending.
fn merged(
    counts: &[(u32, u32)],
    more: impl ExactSizeIterator<Item = (u32, u32)>,
) -> Vec<(u32, u32)> {
    let mut sums: Vec<(u32, u32)> = Vec::with_capacity(counts.len() + more.len());
    for (bucket, count) in counts.iter().copied().merge(more) {
        match sums.last_mut() {
            Some(last) if last.0 == bucket => last.1 = last.1.saturating_add(count),
            _ => sums.push((bucket, count)),
        }
    }
    sums.shrink_to_fit();
    sums
}

/// The bucket an HdrHistogram of our bounds and digits would use, as shift and step.
fn bucket_of(ns: u64) -> u32 {
    let bits = u64::BITS - ns.leading_zeros();
    let shift = bits.saturating_sub(BUCKET_BITS).max(LOWEST_SHIFT);
    let step = u32::try_from(ns >> shift).expect("a bucket's step has eleven bits");
    (shift << BUCKET_BITS) | step
}

fn value_of(bucket: u32) -> u64 {
    let step = bucket & ((1 << BUCKET_BITS) - 1);
    u64::from(step) << (bucket >> BUCKET_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn of(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        for value in values {
            latencies.record(value);
        }
        latencies
    }

    fn near(value: Option<f64>, expected_ms: f64) -> bool {
        value.is_some_and(|value| (value / expected_ms - 1.0).abs() < 0.001)
    }

    #[test]
    fn the_99th_of_990_fast_and_10_slow_is_fast() {
        let repeat = |fast, slow| {
            of(std::iter::repeat_n(MS, fast).chain(std::iter::repeat_n(500 * MS, slow)))
        };
        assert!(near(repeat(990, 10).figures().p99, 1.0));
        assert!(near(repeat(989, 11).figures().p99, 500.0));
    }

    #[test]
    fn the_rank_is_not_lifted_by_floating_point() {
        // 0.99 x 1,100 is 1,089.0000000000002 in floating point, whose ceiling is one too many.
        let latencies = of(std::iter::repeat_n(MS, 1_089).chain(std::iter::repeat_n(500 * MS, 11)));
        assert!(near(latencies.figures().p99, 1.0));
    }

    #[test]
    fn infinite_values_come_last_and_count() {
        let latencies = of(std::iter::repeat_n(MS, 990));
        assert!(near(latencies.percentile_with_infinite(990, 10), 1.0));
        assert_eq!(
            latencies.percentile_with_infinite(990, 11),
            Some(f64::INFINITY)
        );
        let empty = Latencies::default();
        assert_eq!(empty.percentile_with_infinite(990, 1), Some(f64::INFINITY));
        assert_eq!(empty.percentile_with_infinite(990, 0), None);
        assert_eq!(empty.figures(), LatencyFigures::default());
    }

    #[test]
    fn values_beyond_the_bounds_are_clamped_and_said_to_be() {
        let mut latencies = Latencies::default();
        assert!(latencies.record(1));
        assert!(latencies.record(HIGHEST_NS + 1));
        assert!(!latencies.record(LOWEST_NS));
        assert!(!latencies.record(HIGHEST_NS));
        assert_eq!(latencies.count(), 4);
        assert!(near(latencies.figures().max, 600_000.0));
    }

    proptest! {
        #[test]
        fn percentiles_are_the_nearest_rank_of_the_sorted_values(
            mut values in prop::collection::vec(LOWEST_NS..20_000 * MS, 1..400)
        ) {
            let figures = of(values.iter().copied()).figures();
            values.sort_unstable();
            for (point, per_mille) in [(figures.p50, 500), (figures.p99, 990), (figures.p999, 999)] {
                let k = (values.len() * per_mille).div_ceil(1000);
                let truth = values[k - 1] as f64 / 1e6;
                let point = point.unwrap();
                // One bucket: 0.1 % or 512 ns, whichever is wider.
                prop_assert!(point >= truth - 1e-9 && point <= truth * 1.001 + 0.000_512);
            }
        }

        #[test]
        fn sparse_buckets_are_those_of_the_histogram(value in LOWEST_NS..=HIGHEST_NS) {
            let histogram =
                Histogram::<u64>::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS).unwrap();
            prop_assert_eq!(value_of(bucket_of(value)), histogram.lowest_equivalent(value));
        }

        #[test]
        fn sparse_counts_merge_to_the_same_whatever_the_split(
            values in prop::collection::vec(LOWEST_NS..HIGHEST_NS, 0..1500), cut in 0.0..1.0f64
        ) {
            let cut = (values.len() as f64 * cut) as usize;
            let record = |values: &[u64]| {
                let mut counts = SparseCounts::default();
                for value in values { counts.record(*value); }
                counts
            };
            let mut merged = record(&values[..cut]);
            merged.merge(&record(&values[cut..]));
            prop_assert_eq!(merged.into_values(), record(&values).into_values());
        }
    }
}
