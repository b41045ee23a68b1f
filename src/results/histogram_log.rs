//! Raw evidence: one HdrHistogram interval log per window.
//!
//! Any window or percentile can be cut again from it, years later, with the
//! tools of HdrHistogram in any language; `histogram_reader` is ours.
//!
//! Requests of an open loop that left in a later second than they were due in, or
//! after the window's end, stand in a comment below their interval, which other tools
//! pass over: throughput counts what left in a second, histograms what was due in it.
//!
//! **Source**: the interval log format 1.3 of HdrHistogram; entries are V2
//! histograms, deflated and in base64. How its Java and Python tools read these logs is
//! in `docs/proofs/2026-11-30-hlog.md`.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use super::ResultsError;
use super::manifest::write_whole;
use crate::measure::{Interval, SentIn};

/// What the maximum of an entry is divided by: the log shows milliseconds, the histogram holds nanoseconds.
const NANOSECONDS_PER_MILLISECOND: f64 = 1e6;

/// Says that lines of [`LEFT_LATER`] are there where they are due: logs of early versions lack them.
pub(super) const TELLS_LEFT_LATER: &str = "[LeftLater: below an interval, second=requests of it that left in another second, end= after the window]";
/// Begins such a line.
pub(super) const LEFT_LATER: &str = "[LeftLater Tag=";

/// Writes a window's intervals; the file is whole when it has its name.
///
/// **Units**: `length` is the window's; `start_epoch_s` is the wall-clock time of its left edge,
/// in seconds since 1970. Timestamps in the log count from it.
///
/// **Errors**: the file system's, and [`ResultsError::Histogram`] for a
/// histogram or a tag that the format cannot hold.
pub fn write_histogram_log(
    path: &Path,
    intervals: &[Interval],
    length: Duration,
    start_epoch_s: f64,
) -> Result<(), ResultsError> {
    let mut bytes = Vec::new();
    encode(&mut bytes, path, intervals, length, start_epoch_s)?;
    write_whole(path, &bytes)
}

pub(super) fn encode(
    bytes: &mut Vec<u8>,
    path: &Path,
    intervals: &[Interval],
    length: Duration,
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
        .add_comment(TELLS_LEFT_LATER)
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
        let start = Duration::from_secs(u64::from(interval.second));
        writer
            .write_histogram(
                &interval.histogram(),
                start,
                // The last one ends with the window.
                length.saturating_sub(start).min(Duration::from_secs(1)),
                Some(tag),
            )
            .map_err(|error| match error {
                IntervalLogWriterError::IoError(error) => failed(error),
                IntervalLogWriterError::SerializeError(error) => failed(io::Error::other(error)),
            })?;
        if !interval.left_later().is_empty() {
            writer
                .write_comment(&left_later_line(interval))
                .map_err(failed)?;
        }
    }
    Ok(())
}

/// `[LeftLater Tag=read|success,3 4=17 end=2]`
fn left_later_line(interval: &Interval) -> String {
    let mut line = format!("{LEFT_LATER}{},{}", interval.tag, interval.second);
    for (sent, n) in interval.left_later() {
        let sent = match sent {
            SentIn::Second(second) => second.to_string(),
            SentIn::Drain => "end".to_owned(),
        };
        line.extend([" ", &sent, "=", &n.to_string()]);
    }
    line.push(']');
    line
}

#[cfg(test)]
#[path = "histogram_log_tests.rs"]
mod tests;
