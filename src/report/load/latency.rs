//! How long requests took: the usual points, and the whole distribution.

use super::held::HeldLoad;
use super::words::{bound, fine_ms, share};
use crate::measure::{LatencyBucket, LatencyFigures};
use crate::report::screen::{Ink, Screen, bar};
use crate::report::table::{Align, Table, count};

/// Most lines of a histogram; from there on buckets are taken together.
const MOST_LINES: usize = 14;
/// Fewest columns of the longest bar.
const FEWEST_COLUMNS: usize = 10;

/// The usual points of everything that is timed; empty without a success.
pub(super) fn points(held: &HeldLoad, is_journey: bool) -> Vec<String> {
    let summary = &held.summary;
    if summary.total.counts.successes == 0 {
        return Vec::new();
    }
    let mut table = Table::new(&[
        ("ms", Align::Left),
        ("mean", Align::Right),
        ("p50", Align::Right),
        ("p90", Align::Right),
        ("p95", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("max", Align::Right),
    ]);
    let total = &summary.total;
    if held.is_open() {
        table.row(row("latency, from due", &total.latency_ms));
        table.row(row("service time, from send", &total.service_ms));
        table.row(row("send lag, from due to send", &total.send_lag_ms));
    } else {
        table.row(row("latency, from send", &total.latency_ms));
    }
    if is_journey {
        table.row(row("whole journeys", &summary.journeys.latency_ms));
    }
    table.lines()
}

fn row(name: &str, figures: &LatencyFigures) -> Vec<String> {
    let LatencyFigures {
        mean,
        p50,
        p90,
        p95,
        p99,
        p999,
        max,
    } = *figures;
    let points = [mean, p50, p90, p95, p99, p999, max].map(fine_ms);
    [name.to_owned()].into_iter().chain(points).collect()
}

/// The successes by latency, on a logarithmic scale.
pub(super) fn histogram(held: &HeldLoad, screen: Screen) -> Vec<String> {
    let buckets = coarsened(&held.summary.latency_buckets());
    let all: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let most = buckets.iter().map(|bucket| bucket.count).max();
    let Some(most) = most.filter(|most| *most > 0) else {
        return Vec::new();
    };
    let mut table = Table::new(&[
        ("from", Align::Right),
        ("to", Align::Right),
        ("successes", Align::Right),
        ("share", Align::Right),
        ("up to", Align::Right),
    ]);
    let mut so_far = 0;
    for bucket in &buckets {
        so_far += bucket.count;
        table.row(vec![
            bound(bucket.from_ns),
            bound(bucket.to_ns),
            count(bucket.count),
            share(bucket.count, all),
            share(so_far, all),
        ]);
    }
    let mut lines = table.lines();
    let width = lines.first().map_or(0, |line| line.chars().count());
    let room = screen.columns.saturating_sub(width + 4).max(FEWEST_COLUMNS);
    for (line, bucket) in lines.iter_mut().skip(2).zip(&buckets) {
        let bar = bar(bucket.count as f64 / most as f64, room);
        if !bar.is_empty() {
            line.push_str("  ");
            line.push_str(&screen.paint(Ink::Good, &bar));
        }
    }
    lines
}

/// Neighbours taken together until few enough are left: the bounds of a coarser scale are
/// always bounds of the finer one.
fn coarsened(buckets: &[LatencyBucket]) -> Vec<LatencyBucket> {
    let scales: [&dyn Fn(u64) -> bool; 5] = [
        &|_| true,
        &|first| [100, 125, 160, 200, 250, 315, 400, 500, 630, 800].contains(&first),
        &|first| [100, 160, 250, 400, 630].contains(&first),
        &|first| [100, 200, 500].contains(&first),
        &|first| first == 100,
    ];
    let at = |is_bound: &dyn Fn(u64) -> bool| {
        let mut joined: Vec<LatencyBucket> = Vec::new();
        for bucket in buckets {
            match joined.last_mut() {
                Some(last) if !is_bound(first_digits(bucket.from_ns)) => {
                    last.to_ns = bucket.to_ns;
                    last.count += bucket.count;
                }
                _ => joined.push(*bucket),
            }
        }
        joined
    };
    let mut joined = at(scales[0]);
    for scale in &scales[1..] {
        if joined.len() <= MOST_LINES {
            break;
        }
        joined = at(scale);
    }
    joined
}

/// The first three digits: 315 of 3,150,000.
fn first_digits(mut number: u64) -> u64 {
    while number >= 1_000 {
        number /= 10;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from_ns: u64, to_ns: u64, count: u64) -> LatencyBucket {
        LatencyBucket {
            from_ns,
            to_ns,
            count,
        }
    }

    #[test]
    fn a_scale_is_as_fine_as_the_lines_allow() {
        let few = [bucket(100_000, 112_000, 1), bucket(112_000, 125_000, 2)];
        assert_eq!(coarsened(&few), few);
        assert_eq!(coarsened(&[]), []);
        let bounds: Vec<u64> = (0..6)
            .flat_map(|decade| {
                [
                    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560,
                    630, 710, 800, 900,
                ]
                .map(|bound| bound * 10_u64.pow(decade))
            })
            .collect();
        let many: Vec<LatencyBucket> = bounds
            .windows(2)
            .map(|pair| bucket(pair[0], pair[1], 1))
            .collect();
        let all = |buckets: &[LatencyBucket]| buckets.iter().map(|own| own.count).sum::<u64>();
        for n in [14, 15, 40, 60, many.len()] {
            let joined = coarsened(&many[3..3 + n.min(many.len() - 3)]);
            assert!(joined.len() <= MOST_LINES, "{n}: {}", joined.len());
            assert_eq!(all(&joined), n.min(many.len() - 3) as u64);
            assert!(
                joined
                    .windows(2)
                    .all(|pair| pair[0].to_ns == pair[1].from_ns)
            );
        }
    }
}
