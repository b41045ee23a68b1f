//! Raw evidence: one HdrHistogram interval log per window.
//!
//! Any window or percentile can be cut again from it, years later, with the
//! tools of HdrHistogram in any language.
//!
//! **Source**: the interval log format 1.3 of HdrHistogram; entries are V2
//! histograms, deflated and in base64.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use super::ResultsError;
use super::manifest::write_whole;
use crate::measure::Interval;

/// What the maximum of an entry is divided by: the log shows milliseconds, the histogram holds nanoseconds.
const NANOSECONDS_PER_MILLISECOND: f64 = 1e6;

/// Writes a window's intervals; the file is whole when it has its name.
///
/// **Units**: `start_epoch_s` is the wall-clock time of the window's left edge,
/// in seconds since 1970. Timestamps in the log count from it.
///
/// **Errors**: the file system's, and [`ResultsError::Histogram`] for a
/// histogram or a tag that the format cannot hold.
pub fn write_histogram_log(
    path: &Path,
    intervals: &[Interval],
    start_epoch_s: f64,
) -> Result<(), ResultsError> {
    let mut bytes = Vec::new();
    encode(&mut bytes, path, intervals, start_epoch_s)?;
    write_whole(path, &bytes)
}

fn encode(
    bytes: &mut Vec<u8>,
    path: &Path,
    intervals: &[Interval],
    start_epoch_s: f64,
) -> Result<(), ResultsError> {
    // A clock before 1970 or a broken number is no start; the log then counts from 0.
    let start = Duration::try_from_secs_f64(start_epoch_s).unwrap_or_default();
    let start = SystemTime::UNIX_EPOCH + start;
    let mut serializer = V2DeflateSerializer::new();
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(
            "[latencies in nanoseconds; tag = percent-encoded operation|outcome; one interval a second]",
        )
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NANOSECONDS_PER_MILLISECOND)
        .begin_log_with(bytes, &mut serializer)
        .map_err(ResultsError::file("write", path))?;
    for (index, interval) in intervals.iter().enumerate() {
        let failed = |source: io::Error| ResultsError::Histogram {
            path: path.to_owned(),
            index,
            tag: interval.tag.clone(),
            source,
        };
        let tag = Tag::new(&interval.tag)
            .ok_or_else(|| failed(io::Error::other("the tag is not percent-encoded")))?;
        writer
            .write_histogram(
                &interval.histogram(),
                Duration::from_secs(u64::from(interval.second)),
                Duration::from_secs(1),
                Some(tag),
            )
            .map_err(|error| match error {
                IntervalLogWriterError::IoError(error) => failed(error),
                IntervalLogWriterError::SerializeError(error) => failed(io::Error::other(error)),
            })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    /// Base64 as the log holds it, decoded without a library of our own.
    fn decode_base64(text: &str) -> Vec<u8> {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = Vec::new();
        let (mut bits, mut held) = (0_u32, 0);
        for byte in text.bytes().filter(|byte| *byte != b'=') {
            let value = alphabet.iter().position(|letter| *letter == byte).unwrap();
            bits = bits << 6 | value as u32;
            held += 6;
            if held >= 8 {
                held -= 8;
                out.push((bits >> held & 0xff) as u8);
            }
        }
        out
    }

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
        write_histogram_log(&path, &intervals, 1_700_000_000.25).unwrap();

        let bytes = fs_err::read(&path).unwrap();
        let mut found: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
        let mut deserializer = Deserializer::new();
        let (mut starts, mut seconds) = (Vec::new(), Vec::new());
        for entry in IntervalLogIterator::new(&bytes) {
            match entry.unwrap() {
                LogEntry::StartTime(at) | LogEntry::BaseTime(at) => starts.push(at),
                LogEntry::Interval(interval) => {
                    assert_eq!(interval.duration(), Duration::from_secs(1));
                    seconds.push(interval.start_timestamp().as_secs());
                    let raw = decode_base64(interval.encoded_histogram());
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
        let error = write_histogram_log(&path, &[interval], 0.0).unwrap_err();
        assert!(error.to_string().contains("create Patient|success"));
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
    }
}
