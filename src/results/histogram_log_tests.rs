use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::*;
use crate::measure::{Latencies, LatencyFrom, Outcome, Recorder, Sample};
use crate::results::histogram_reader::parse;

#[test]
fn totals_and_p99_survive_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0001-1-stress.hlog");
    let mut intervals = Vec::new();
    let mut expected: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
    for second in 0..5_u32 {
        for (tag, step_ns) in [
            ("create%20Patient%7Csuccess", 7_919),
            ("read%7Cerror", 104_729),
        ] {
            let mut histogram =
                Histogram::<u64>::new_with_bounds(1_000, 600_000_000_000, 3).unwrap();
            for k in 0..500 {
                histogram
                    .record(1_000 + u64::from(second + 1) * k * step_ns)
                    .unwrap();
            }
            expected
                .entry(tag.to_owned())
                .and_modify(|all| all.add(&histogram).unwrap())
                .or_insert_with(|| histogram.clone());
            let values = histogram
                .iter_recorded()
                .map(|step| {
                    let count = step.count_at_value();
                    (step.value_iterated_to(), u32::try_from(count).unwrap())
                })
                .collect();
            intervals.push(Interval::new(second, tag.to_owned(), values));
        }
    }
    let length = Duration::from_millis(4_500);
    write_histogram_log(&path, &intervals, length, 1_700_000_000.25).unwrap();

    let bytes = fs_err::read(&path).unwrap();
    let mut found: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
    let mut deserializer = Deserializer::new();
    let (mut starts, mut seconds) = (Vec::new(), Vec::new());
    for entry in IntervalLogIterator::new(&bytes) {
        match entry.unwrap() {
            LogEntry::StartTime(at) | LogEntry::BaseTime(at) => starts.push(at),
            LogEntry::Interval(interval) => {
                let second = interval.start_timestamp().as_secs();
                // The last one ends with the window.
                let length_ms = if second == 4 { 500 } else { 1_000 };
                assert_eq!(interval.duration(), Duration::from_millis(length_ms));
                seconds.push(second);
                let raw = STANDARD.decode(interval.encoded_histogram()).unwrap();
                let histogram: Histogram<u64> =
                    deserializer.deserialize(&mut raw.as_slice()).unwrap();
                let tag = interval.tag().unwrap().as_str().to_owned();
                found
                    .entry(tag)
                    .and_modify(|all| all.add(&histogram).unwrap())
                    .or_insert_with(|| histogram.clone());
            }
        }
    }
    assert_eq!(starts, [Duration::from_millis(1_700_000_000_250); 2]);
    assert_eq!(seconds, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    assert_eq!(found.len(), 2);
    for (tag, histogram) in &expected {
        assert_eq!(found[tag].len(), histogram.len());
        for quantile in [0.5, 0.99, 1.0] {
            assert_eq!(
                found[tag].value_at_quantile(quantile),
                histogram.value_at_quantile(quantile)
            );
        }
    }
}

#[test]
fn a_tag_the_format_cannot_hold_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.hlog");
    let interval = Interval::new(0, "create Patient|success".into(), Vec::new());
    let error = write_histogram_log(&path, &[interval], Duration::from_secs(1), 0.0).unwrap_err();
    assert!(error.to_string().contains("create Patient|success"));
    assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
}

/// What reading the log with the Java tools was checked with: see `docs/proofs/2026-11-30-hlog.md`.
const GOLDEN: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/hlog/golden.hlog"
));

/// A window of 3.5 s whose latencies go from 1 ms up in steps that differ by operation and
/// second; of every hundred one leaves a second late, one in the drain, one fails, one never leaves.
fn golden_intervals() -> Vec<Interval> {
    let names = ["create Patient".to_owned(), "read, ü|100%".to_owned()];
    let mut recorder = Recorder::new(names.to_vec(), LatencyFrom::Due);
    for second in 0..4 {
        for (operation, step_ns) in [(0, 7_919), (1, 104_729)] {
            for k in 0..500 {
                let outcome = match k % 100 {
                    97 => Outcome::Error(crate::measure::ErrorClass::Status),
                    98 => Outcome::Unsent,
                    _ => Outcome::Success,
                };
                let latency_ns = 1_000_000 + u64::from(second + 1) * k * step_ns;
                recorder.record(&Sample {
                    operation,
                    outcome,
                    second,
                    sent_second: second + u32::from(k % 100 == 50 && second < 3),
                    latency_ns,
                    service_ns: latency_ns,
                    lag_ns: 0,
                    generator_lag_ns: 0,
                    is_sent_inside: k % 100 != 51 && outcome != Outcome::Unsent,
                });
            }
        }
    }
    recorder.into_intervals()
}

#[test]
fn the_log_that_other_tools_were_given_is_still_written_byte_for_byte() {
    let mut bytes = Vec::new();
    let length = Duration::from_millis(3_500);
    let intervals = golden_intervals();
    encode(
        &mut bytes,
        Path::new("golden.hlog"),
        &intervals,
        length,
        1_700_000_000.25,
    )
    .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&bytes),
        String::from_utf8_lossy(GOLDEN)
    );
    let log = parse(Path::new("golden.hlog"), GOLDEN).unwrap();
    assert!(log.tells_left_later);
    assert_eq!(log.intervals, intervals);
}

#[test]
fn the_log_reads_as_it_does_in_other_tools() {
    let log = parse(Path::new("golden.hlog"), GOLDEN).unwrap();
    let of = |tag: &str, seconds: std::ops::Range<u32>| {
        let mut latencies = Latencies::default();
        let mut n = 0;
        for interval in &log.intervals {
            if interval.tag == tag && seconds.contains(&interval.second) {
                for (ns, count) in interval.values() {
                    latencies.record_n(*ns, u64::from(*count));
                }
                n += interval.n_requests();
            }
        }
        let figures = latencies.figures();
        let shown = [figures.mean, figures.p50, figures.p99, figures.max]
            .map(|value| format!("{:.3}", value.unwrap()));
        (n, shown.join(" "))
    };
    let read = "read%2C%20%C3%BC%7C100%25|success";
    // Count, then mean, p50, p99 and maximum in milliseconds, as Java's reader has them.
    for (tag, seconds, n, figures) in [
        (
            "create%20Patient|success",
            0..4,
            1_960,
            "5.920 4.780 16.146 16.810",
        ),
        (
            "create%20Patient|success",
            1..3,
            980,
            "5.920 5.738 12.599 12.861",
        ),
        (read, 0..4, 1_960, "66.068 50.987 201.327 210.108"),
        (read, 3..4, 490, "105.110 104.923 207.618 210.108"),
        (
            "create%20Patient|error.status",
            0..4,
            20,
            "6.880 5.681 16.744 16.744",
        ),
        (
            "create%20Patient|unsent",
            1..3,
            10,
            "6.900 5.722 12.837 12.837",
        ),
    ] {
        assert_eq!(
            of(tag, seconds.clone()),
            (n, figures.to_owned()),
            "{tag} {seconds:?}"
        );
    }
}
