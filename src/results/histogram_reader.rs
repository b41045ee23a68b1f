//! Reads the interval logs that runs keep.
//!
//! **Invariant**: what was written is read back to the last bucket; whatever is not
//! understood is a problem with its line, never left out in silence.

use std::io;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogHistogram, IntervalLogIterator, LogEntry,
};

use super::histogram_log::{LEFT_LATER, TELLS_LEFT_LATER};
use crate::measure::{Interval, SentIn, parse_tag};
use crate::problem::{Location, Problem};

/// More than this and the file is another kind of file.
const MOST_PROBLEMS: usize = 10;

/// What a log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HistogramLog {
    /// In file order: by second, then operation.
    pub(super) intervals: Vec<Interval>,
    /// Whether it says which requests left later than they were due.
    pub(super) tells_left_later: bool,
}

/// Reads a log; `None` where there is none.
///
/// **Errors**: all that is wrong with the file, each with its line.
pub(super) fn read_histogram_log(path: &Path) -> Result<Option<HistogramLog>, Vec<Problem>> {
    match fs_err::read(path) {
        Ok(bytes) => parse(path, &bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let message = format!("the file cannot be read: {error}");
            Err(vec![Problem::new(Location::start_of(path), message)])
        }
    }
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<HistogramLog, Vec<Problem>> {
    let mut log = HistogramLog {
        intervals: Vec::new(),
        tells_left_later: false,
    };
    let mut deserializer = Deserializer::new();
    let mut problems = Vec::new();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if let Err(message) = log.take_line(line, &mut deserializer) {
            let location = Location {
                line: index + 1,
                ..Location::start_of(path)
            };
            problems.push(Problem::new(location, message));
        }
        if problems.len() >= MOST_PROBLEMS {
            break;
        }
    }
    if problems.is_empty() {
        Ok(log)
    } else {
        Err(problems)
    }
}

impl HistogramLog {
    fn take_line(&mut self, line: &[u8], deserializer: &mut Deserializer) -> Result<(), String> {
        if let Some(comment) = line.strip_prefix(b"#") {
            // Other comments are for people; a broken one of ours is a problem.
            let comment = String::from_utf8_lossy(comment);
            let comment = comment.trim_end();
            if comment == TELLS_LEFT_LATER {
                self.tells_left_later = true;
            } else if let Some(rest) = comment.strip_prefix(LEFT_LATER) {
                return self.take_left_later(rest);
            }
            return Ok(());
        }
        match IntervalLogIterator::new(line).next() {
            Some(Ok(LogEntry::Interval(entry))) => {
                self.intervals.push(interval_of(&entry, deserializer)?);
                Ok(())
            }
            Some(Ok(LogEntry::StartTime(_) | LogEntry::BaseTime(_))) | None => Ok(()),
            Some(Err(_)) => Err("the line is no whole interval of a histogram log".to_owned()),
        }
    }

    /// `read|success,3 4=17 end=2]`, of the interval above.
    fn take_left_later(&mut self, rest: &str) -> Result<(), String> {
        let (key, left_later) = parse_left_later(rest)
            .ok_or_else(|| "the line is no whole [LeftLater …]".to_owned())?;
        let is_its = |above: &Interval| format!("{},{}", above.tag, above.second) == key;
        let n: u64 = left_later.iter().map(|(_, n)| u64::from(*n)).sum();
        match self.intervals.pop_if(|above| is_its(above)) {
            Some(above) if above.n_requests() >= n => {
                self.intervals.push(above.with_left_later(left_later));
                Ok(())
            }
            Some(above) => Err(format!(
                "{n} requests of `{key}` left later, of {} that it holds",
                above.n_requests()
            )),
            None => Err(format!("the interval above is not that of `{key}`")),
        }
    }
}

fn parse_left_later(rest: &str) -> Option<(&str, Vec<(SentIn, u32)>)> {
    let mut words = rest.strip_suffix(']')?.split(' ');
    let key = words.next()?;
    let one = |word: &str| {
        let (sent, n) = word.split_once('=')?;
        let sent = match sent {
            "end" => SentIn::Drain,
            second => SentIn::Second(second.parse().ok()?),
        };
        Some((sent, n.parse().ok()?))
    };
    Some((key, words.map(one).collect::<Option<_>>()?))
}

fn interval_of(
    entry: &IntervalLogHistogram<'_>,
    deserializer: &mut Deserializer,
) -> Result<Interval, String> {
    let tag = entry.tag().map(|tag| tag.as_str()).unwrap_or_default();
    if parse_tag(tag).is_none() {
        return Err(format!(
            "the tag `{tag}` is not `operation|outcome`, percent-encoded"
        ));
    }
    let start = entry.start_timestamp();
    let second = u32::try_from(start.as_secs())
        .ok()
        .filter(|second| start == Duration::from_secs(u64::from(*second)))
        .ok_or_else(|| format!("the interval begins at {start:?}, which is no whole second"))?;
    let raw = STANDARD
        .decode(entry.encoded_histogram())
        .map_err(|error| format!("the histogram is not base64: {error}"))?;
    let histogram: Histogram<u64> = deserializer
        .deserialize(&mut raw.as_slice())
        .map_err(|error| format!("the histogram cannot be read: {error}"))?;
    let values = histogram
        .iter_recorded()
        .map(|step| {
            let lowest = histogram.lowest_equivalent(step.value_iterated_to());
            let n = u32::try_from(step.count_at_value())
                .map_err(|_| "a count is beyond four billion".to_owned())?;
            Ok((lowest, n))
        })
        .collect::<Result<_, String>>()?;
    Ok(Interval::new(second, tag.to_owned(), values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse(Path::new("w.hlog"), text.as_bytes())
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    const WHOLE: &str = "Tag=read|success,0.000,1.000,11.248,HISTFAAAAFp4nC2IsQ1AUBQA3zs/ElqtESgVKhMYRGcBne5HJRaRqBRqExhAQYcNSL4r7pKL2z4SkVQc3p/zkx3XWorbnSFhMuQ8yqJkdNBglQMCNmX2KdkNFVfIC23yEHw=\n";

    #[test]
    fn every_broken_line_is_a_problem_with_its_number() {
        let text = format!(
            "#a comment\n\
             Tag=read,0.000,1.000,1.0,{0}\n\
             Tag=read|success,0.500,1.000,1.0,{0}\n\
             Tag=read|success,0.000,1.000,1.0,!!!!\n\
             Tag=read|success,0.000,1.000,1.0,QUJDREVGRw==\n\
             nonsense\n\
             {WHOLE}\
             #[LeftLater Tag=read|success,1 2=1]\n\
             #[LeftLater Tag=read|success,0 2=x]\n\
             #[LeftLater Tag=read|success,0 2=1000000]\n\
             Tag=read|success,1.000,1.000,11.2",
            WHOLE.trim_end().rsplit(',').next().unwrap()
        );
        insta::assert_snapshot!(problems(&text).join("\n"), @"
        w.hlog:2:1: the tag `read` is not `operation|outcome`, percent-encoded
        w.hlog:3:1: the interval begins at 500ms, which is no whole second
        w.hlog:4:1: the histogram is not base64: Invalid symbol 33, offset 0.
        w.hlog:5:1: the histogram cannot be read: The cookie (first 4 bytes) did not match that for any supported format
        w.hlog:6:1: the line is no whole interval of a histogram log
        w.hlog:8:1: the interval above is not that of `read|success,1`
        w.hlog:9:1: the line is no whole [LeftLater …]
        w.hlog:10:1: 1000000 requests of `read|success,0` left later, of 17 that it holds
        w.hlog:11:1: the line is no whole interval of a histogram log
        ");
    }

    #[test]
    fn no_byte_that_is_changed_makes_it_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let mut bytes = WHOLE.as_bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(32..127);
            }
            let _ = parse(Path::new("w.hlog"), &bytes);
        }
        assert_eq!(
            parse(Path::new("w.hlog"), WHOLE.as_bytes())
                .unwrap()
                .intervals
                .len(),
            1
        );
    }
}
