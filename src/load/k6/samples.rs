//! The stream of samples that `k6 run --out json` writes, read line by line.
//!
//! Of some dozen samples of a request one is enough: its duration carries status,
//! error and what the script expected as tags. Samples without a scenario are of
//! set-up and tear-down, and a script's own metrics of the same names have no
//! method: both are left out.
//!
//! **Invariant**: a line that cannot be understood is told, never passed over.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::Sender;

use serde::Deserialize;

use super::conductor::Heard;
use crate::measure::ErrorClass;

/// Longest line. **Units**: bytes.
const MAX_LINE: u64 = 4 << 20;
/// So many points are passed on together at most.
const BATCH: usize = 4_096;
/// What the pipe is read in. **Units**: bytes.
const BUFFER: usize = 256 * 1024;

/// One thing that happened.
///
/// **Units**: nanoseconds; a moment is read as one since 1970 and made one since the end
/// of set-up by whoever takes it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::load) struct Point {
    pub(super) at_ns: i64,
    /// Virtual user and iteration of it; 0 where k6 does not say.
    pub(super) user: u64,
    pub(super) iteration: u64,
    pub(super) scenario: Box<str>,
    pub(super) kind: PointKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::load) enum PointKind {
    /// A request that ended.
    Request {
        operation: Box<str>,
        duration_ns: u64,
        fate: Fate,
    },
    /// A check; those of one call have the same moment.
    Check { name: Box<str>, has_passed: bool },
    /// An iteration that came to its end.
    Iteration { duration_ns: u64 },
    /// Iterations that were due and never began.
    Dropped { n: u64 },
}

/// What the script says of a request, its checks apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::load) enum Fate {
    Expected,
    /// Status 429, unless the script expects it.
    Refused,
    Failed(ErrorClass, Box<str>),
}

#[derive(Debug, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Debug, Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    value: f64,
    #[serde(borrow, default)]
    tags: Option<Tags<'a>>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Tags<'a> {
    #[serde(borrow)]
    scenario: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error_code: Option<Cow<'a, str>>,
    #[serde(borrow)]
    expected_response: Option<Cow<'a, str>>,
    #[serde(borrow)]
    check: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    vu: Option<Cow<'a, str>>,
    #[serde(borrow)]
    iter: Option<Cow<'a, str>>,
}

/// Reads one line; `None` where nobody needs it. The error is what is wrong with it.
pub(super) fn read_point(line: &[u8]) -> Result<Option<Point>, String> {
    let Some(metric) = metric_of(line)? else {
        return Ok(None);
    };
    if !matches!(
        metric,
        b"http_req_duration" | b"checks" | b"iteration_duration" | b"dropped_iterations"
    ) {
        return Ok(None);
    }
    let Line { data } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let tags = data.tags.unwrap_or_default();
    let Some(scenario) = &tags.scenario else {
        return Ok(None);
    };
    let value = data.value.max(0.0);
    let duration_ns = (value * 1e6).round() as u64;
    let kind = match metric {
        b"http_req_duration" => match (&tags.method, &tags.name) {
            (Some(method), Some(name)) => PointKind::Request {
                operation: operation(method, name),
                duration_ns,
                fate: fate(&tags),
            },
            // A metric of the script's own.
            _ => return Ok(None),
        },
        b"checks" => match &tags.check {
            Some(name) => PointKind::Check {
                name: (&**name).into(),
                has_passed: data.value != 0.0,
            },
            None => return Ok(None),
        },
        b"iteration_duration" => PointKind::Iteration { duration_ns },
        _ => PointKind::Dropped {
            n: value.round() as u64,
        },
    };
    let metadata = data.metadata.unwrap_or_default();
    let number = |text: Option<Cow<'_, str>>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Some(Point {
        at_ns: moment(&data.time)?,
        user: number(metadata.vu),
        iteration: number(metadata.iter),
        scenario: (&**scenario).into(),
        kind,
    }))
}

/// The metric of a sample's line; `None` for a line that says what a metric is.
fn metric_of(line: &[u8]) -> Result<Option<&[u8]>, String> {
    if line.starts_with(br#"{"type":"Metric""#) || line.is_empty() {
        return Ok(None);
    }
    let strange = || {
        let start = String::from_utf8_lossy(&line[..line.len().min(80)]);
        format!("a sample of another form: {start}")
    };
    let rest = line.strip_prefix(br#"{"metric":""#).ok_or_else(strange)?;
    let end = rest
        .iter()
        .position(|byte| *byte == b'"')
        .ok_or_else(strange)?;
    let (metric, rest) = rest.split_at(end);
    if rest.starts_with(br#"","type":"Point","#) {
        Ok(Some(metric))
    } else {
        Err(strange())
    }
}

fn moment(text: &str) -> Result<i64, String> {
    let moment: jiff::Timestamp = text.parse().map_err(|_| format!("`{text}` is no time"))?;
    i64::try_from(moment.as_nanosecond()).map_err(|_| format!("`{text}` is no time of ours"))
}

/// A name as the script gave it; else the method and the URL's path, since the address
/// differs from trial to trial and a query from request to request.
fn operation(method: &str, name: &str) -> Box<str> {
    // A template (`http.url`) begins with the address as well.
    if let Some(path) = name
        .strip_prefix("${}")
        .filter(|path| path.starts_with('/'))
    {
        return format!("{method} {path}").into();
    }
    let Some((scheme, rest)) = name.split_once("://") else {
        return name.into();
    };
    if !matches!(scheme, "http" | "https") {
        return name.into();
    }
    let path = rest.find(['/', '?', '#']).map_or("/", |at| &rest[at..]);
    let path = path.split(['?', '#']).next().unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{method} {slash}{path}").into()
}

/// **Source**: k6's documentation of error codes.
fn fate(tags: &Tags<'_>) -> Fate {
    let code: u32 = tags
        .error_code
        .as_ref()
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    let is_expected = match tags.expected_response.as_deref() {
        Some(expected) => expected == "true",
        // The script judges no answers; one that never came is a failure still.
        None => !(1_000..1_400).contains(&code) && code < 1_600,
    };
    let status = tags.status.as_deref().unwrap_or("0");
    if is_expected {
        return Fate::Expected;
    }
    if status == "429" {
        return Fate::Refused;
    }
    let error = tags.error.as_deref().unwrap_or_default();
    let class = match code {
        1_050 => ErrorClass::Timeout,
        1_100..1_200 | 1_210..1_220 | 1_300..1_400 => ErrorClass::Connect,
        1_200..1_300 => ErrorClass::Reset,
        1_000 if error.contains("EOF") => ErrorClass::Reset,
        0 | 1_400..1_600 => ErrorClass::Status,
        _ => ErrorClass::Protocol,
    };
    let words = match class {
        ErrorClass::Status => format!("status {status}"),
        _ if error.is_empty() => format!("error code {code}"),
        _ => error.to_owned(),
    };
    Fate::Failed(class, words.into())
}

/// A metric with a threshold, until its first sample: k6 lets one without any pass.
#[derive(Debug)]
struct Watched {
    text: String,
    metric: String,
    tags: Vec<(String, String)>,
}

impl Watched {
    /// Reads `http_reqs` or `http_reqs{name:x,status:200}`.
    fn new(text: &str) -> Self {
        let (metric, tags) = match text.split_once('{') {
            Some((metric, tags)) => (metric, tags.trim_end_matches('}')),
            None => (text, ""),
        };
        let bare = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
        let pairs = tags.split(',').filter_map(|pair| pair.split_once(':'));
        Self {
            text: text.to_owned(),
            metric: metric.trim().to_owned(),
            tags: pairs.map(|(key, value)| (bare(key), bare(value))).collect(),
        }
    }

    fn is_in(&self, metric: &[u8], line: &[u8]) -> bool {
        if metric != self.metric.as_bytes() {
            return false;
        }
        if self.tags.is_empty() {
            return true;
        }
        let Ok(line) = serde_json::from_slice::<serde_json::Value>(line) else {
            return false;
        };
        let tags = &line["data"]["tags"];
        let mut wanted = self.tags.iter();
        wanted.all(|(key, value)| tags[key].as_str().unwrap_or_default() == value)
    }
}

/// Reads a stream of samples to its end.
#[derive(Debug)]
pub(super) struct SampleReader<R> {
    input: BufReader<R>,
    heard: Sender<Heard>,
    /// Thresholds whose metric has had no sample yet.
    watched: Vec<Watched>,
}

impl<R: Read> SampleReader<R> {
    pub(super) fn new(input: R, thresholds: &[String], heard: Sender<Heard>) -> Self {
        Self {
            input: BufReader::with_capacity(BUFFER, input),
            heard,
            watched: thresholds.iter().map(|text| Watched::new(text)).collect(),
        }
    }

    /// Passes on every point; at the end the thresholds that nothing was measured for.
    pub(super) fn run(mut self) {
        let mut points = Vec::new();
        let mut line = Vec::new();
        let mut wrong = None;
        loop {
            line.clear();
            let mut limited = (&mut self.input).take(MAX_LINE);
            match limited.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    wrong.get_or_insert_with(|| error.to_string());
                    break;
                }
            }
            if line.pop_if(|last| *last == b'\n').is_none() {
                // k6 was ended in the middle of a line, or never ends one.
                if line.len() as u64 >= MAX_LINE {
                    wrong.get_or_insert_with(|| format!("a line longer than {MAX_LINE} bytes"));
                }
                continue;
            }
            self.watch(&line);
            match read_point(&line) {
                Ok(Some(point)) => points.push(point),
                Ok(None) => {}
                // The rest is read all the same: k6 must not wait for a full pipe.
                Err(message) => drop(wrong.get_or_insert(message)),
            }
            let may_wait = !self.input.buffer().contains(&b'\n');
            if points.len() >= BATCH || (may_wait && !points.is_empty()) {
                drop(self.heard.send(Heard::Points(std::mem::take(&mut points))));
            }
        }
        drop(self.heard.send(Heard::Points(points)));
        if let Some(message) = wrong {
            drop(self.heard.send(Heard::BadSample(message)));
        }
        let unjudged = self.watched.into_iter().map(|watched| watched.text);
        drop(self.heard.send(Heard::Unjudged(unjudged.collect())));
    }

    fn watch(&mut self, line: &[u8]) {
        if self.watched.is_empty() {
            return;
        }
        if let Ok(Some(metric)) = metric_of(line) {
            self.watched.retain(|watched| !watched.is_in(metric, line));
        }
    }
}

#[cfg(test)]
#[path = "samples_tests.rs"]
mod tests;
