//! Reads trials.csv, ours or somebody else's.
//!
//! Needed are `cell_id`, at least one `axis_*`, `verdict` and `throughput_rps`;
//! everything else is optional, columns are found by name in any order, and
//! unknown ones are left alone. All problems of a file are collected, each with
//! its line. A last line that a crash tore is told apart from a wrong file: the
//! rows before it stand.

use std::io;
use std::path::{Path, PathBuf};

use super::columns::{Cell, is_plain, read_plain, service_of_column};
use super::{SCHEMA_VERSION, TrialRow, Verdict};
use crate::problem::{Location, Problem, Problems};
use crate::scalar::Scalar;

/// More than this and the rest is counted, not listed: the file is another kind of file.
const MOST_PROBLEMS: usize = 50;

/// Why rows could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not there or cannot be read.
    #[error("read `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not what it should be; every problem has its line.
    #[error("understand the rows ({} problems)", .0.0.len())]
    Rows(#[source] Problems),
}

/// What a file held.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialsRead {
    /// Rows in file order.
    pub rows: Vec<TrialRow>,
    /// A last line that a crash tore; it is not among the rows.
    pub torn_line: Option<Problem>,
}

/// Reads a trials.csv from the disk.
///
/// **Errors**: [`ReadError::File`] and [`ReadError::Rows`].
pub fn read_trials(path: &Path) -> Result<TrialsRead, ReadError> {
    let bytes = fs_err::read(path).map_err(|source| ReadError::File {
        path: path.to_owned(),
        source,
    })?;
    parse_trials(path, &bytes)
}

/// Reads the bytes of a trials.csv; `file` is only named in problems.
///
/// **Errors**: [`ReadError::Rows`].
pub fn parse_trials(file: &Path, bytes: &[u8]) -> Result<TrialsRead, ReadError> {
    // Spreadsheets put a byte order mark before the first column's name.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let mut problems = Vec::new();
    let header: Vec<String> = match reader.headers() {
        Ok(header) => header.iter().map(|name| name.trim().to_owned()).collect(),
        Err(error) => {
            problems.push(Problem::new(Location::start_of(file), not_text(&error)));
            return Err(ReadError::Rows(Problems(problems)));
        }
    };
    problems.extend(header_problems(file, &header));
    if !problems.is_empty() {
        return Err(ReadError::Rows(Problems(problems)));
    }
    let ends_whole = bytes.last() == Some(&b'\n');
    // Our writer ends every row with a line break: without one even a row of the
    // right length may lack the last digits of a figure. Other tools may leave it out.
    let is_ours = header.iter().any(|name| name == "schema_version");
    let mut rows = Vec::new();
    let mut torn_line = None;
    let mut lines = Lines::of(bytes);
    let mut records = reader.records().peekable();
    let mut left_out = 0_usize;
    while let Some(record) = records.next() {
        let is_last = records.peek().is_none();
        let position = match &record {
            Ok(record) => record.position(),
            Err(error) => error.position(),
        };
        let line = lines.line_of(position.map_or(0, csv::Position::byte));
        let found = record
            .map_err(|error| vec![not_text(&error)])
            .and_then(|record| row_of(&header, &record, rows.len()));
        let place = |message: String| Problem::new(line_of(file, line), message);
        let may_be_torn = is_last && !ends_whole;
        match found {
            Ok(row) if !(may_be_torn && is_ours) => rows.push(row),
            Ok(_) | Err(_) if may_be_torn => {
                let message = "the last line is not whole; it is left out".to_owned();
                torn_line = Some(place(message).with_hint(
                    "the writer was interrupted in the middle of it; the rows before it stand",
                ));
            }
            Err(messages) if problems.len() >= MOST_PROBLEMS => left_out += messages.len(),
            Err(messages) => problems.extend(messages.into_iter().map(place)),
            Ok(_) => {}
        }
    }
    if left_out > 0 {
        let message = format!("and {left_out} more problems");
        problems.push(Problem::new(Location::start_of(file), message));
    }
    if problems.is_empty() {
        Ok(TrialsRead { rows, torn_line })
    } else {
        Err(ReadError::Rows(Problems(problems)))
    }
}

/// Counts lines as editors do, from the start of the file on.
///
/// The CSV reader's own count stands before the line feed of a `\r\n` and before
/// empty lines, and so names the line above.
struct Lines<'a> {
    bytes: &'a [u8],
    counted: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            counted: 0,
            line: 1,
        }
    }

    /// The line of the record that starts at or behind this byte; bytes only grow.
    fn line_of(&mut self, byte: u64) -> usize {
        let byte = usize::try_from(byte).unwrap_or(usize::MAX);
        while let Some(at) = self.bytes.get(self.counted) {
            let is_break = matches!(at, b'\r' | b'\n');
            if self.counted >= byte && !is_break {
                break;
            }
            let ends_line =
                *at == b'\n' || (is_break && self.bytes.get(self.counted + 1) != Some(&b'\n'));
            self.line += usize::from(ends_line);
            self.counted += 1;
        }
        self.line
    }
}

fn line_of(file: &Path, line: usize) -> Location {
    Location {
        file: file.to_owned(),
        line,
        column: 1,
    }
}

fn not_text(error: &csv::Error) -> String {
    if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) {
        "the line is not UTF-8 text".to_owned()
    } else {
        "the line is not CSV".to_owned()
    }
}

fn header_problems(file: &Path, header: &[String]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut problem = |message: String, hint: &str| {
        problems.push(Problem::new(Location::start_of(file), message).with_hint(hint));
    };
    for needed in ["cell_id", "verdict", "throughput_rps"] {
        if !header.iter().any(|name| name == needed) {
            problem(
                format!("column `{needed}` is missing"),
                "needed are cell_id, at least one axis_<name>, verdict and throughput_rps",
            );
        }
    }
    if !header.iter().any(|name| name.starts_with("axis_")) {
        problem(
            "there is no `axis_<name>` column".to_owned(),
            "each knob that was varied is a column, such as axis_cpus",
        );
    }
    for (index, name) in header.iter().enumerate() {
        if !name.is_empty() && header[..index].contains(name) {
            problem(
                format!("column `{name}` is there twice"),
                "remove or rename one of them",
            );
        }
    }
    problems
}

/// One record as a row, or everything that is wrong with it.
fn row_of(
    header: &[String],
    record: &csv::StringRecord,
    index: usize,
) -> Result<TrialRow, Vec<String>> {
    if record.len() != header.len() {
        return Err(vec![format!(
            "{} cells where the header has {} columns",
            record.len(),
            header.len()
        )]);
    }
    let mut row = foreign_row(index);
    let mut messages = Vec::new();
    for (column, text) in header.iter().zip(record) {
        let text = text.trim();
        if let Some(axis) = column.strip_prefix("axis_") {
            if !text.is_empty() {
                row.axes.insert(axis.to_owned(), Scalar::from_text(text));
            }
        } else if let Some(name) = column.strip_prefix("var_") {
            if !text.is_empty() {
                row.variables
                    .insert(name.to_owned(), Scalar::from_text(text));
            }
        } else if let Some(service) = service_of_column(column) {
            match Option::<f64>::read(text) {
                _ if text.is_empty() => {
                    row.service_cpu_cores.insert(service.to_owned(), None);
                }
                Ok(cores) => {
                    row.service_cpu_cores.insert(service.to_owned(), cores);
                }
                Err(allowed) => messages.push(wrong_cell(column, text, &allowed)),
            }
        } else if is_plain(column)
            && let Err(allowed) = read_plain(&mut row, column, text)
        {
            messages.push(wrong_cell(column, text, &allowed));
        }
    }
    for (needed, is_there) in [
        ("cell_id", !row.cell_id.is_empty()),
        ("verdict", cell_of(header, record, "verdict").is_some()),
    ] {
        if !is_there {
            messages.push(format!("`{needed}` is empty"));
        }
    }
    if row.schema_version > SCHEMA_VERSION {
        messages.push(format!(
            "schema_version {} is newer than this program knows ({SCHEMA_VERSION})",
            row.schema_version
        ));
    }
    if messages.is_empty() {
        Ok(row)
    } else {
        Err(messages)
    }
}

fn wrong_cell(column: &str, text: &str, allowed: &str) -> String {
    format!("`{column}` is `{text}` (allowed: {allowed})")
}

fn cell_of<'r>(header: &[String], record: &'r csv::StringRecord, name: &str) -> Option<&'r str> {
    let at = header.iter().position(|column| column == name)?;
    record.get(at).filter(|text| !text.trim().is_empty())
}

/// What a row says when its file has only the needed columns.
///
/// Every line is then a trial of its own, a cell of the sweep, and counted.
fn foreign_row(index: usize) -> TrialRow {
    TrialRow {
        schema_version: SCHEMA_VERSION,
        run_id: String::new(),
        trial: u32::try_from(index + 1).unwrap_or(u32::MAX),
        attempt: 1,
        role: "cell".to_owned(),
        counted: true,
        block: 1,
        cell_id: String::new(),
        axes: indexmap::IndexMap::new(),
        variables: indexmap::IndexMap::new(),
        window: String::new(),
        answers: None,
        step: None,
        load_model: None,
        latency_from: None,
        users: None,
        planned_rate_rps: None,
        achieved_rate_rps: None,
        verdict: Verdict::Failed,
        reason: None,
        flags: Vec::new(),
        slo_met: None,
        started_at: None,
        warmup_s: None,
        steady: None,
        window_s: None,
        arrivals: None,
        journeys: None,
        due: None,
        requests: None,
        successes: None,
        refused: None,
        errors: None,
        abandoned: None,
        unsent: None,
        throughput_rps: None,
        mean_ms: None,
        p50_ms: None,
        p90_ms: None,
        p95_ms: None,
        p99_ms: None,
        p999_ms: None,
        max_ms: None,
        p99_due_ms: None,
        service_p99_ms: None,
        journey_p99_ms: None,
        send_lag_p99_ms: None,
        subject_cpu_cores: None,
        subject_cpu_limit_cores: None,
        throttled_ratio: None,
        cpu_ms_per_request: None,
        subject_memory_peak_bytes: None,
        restarts: None,
        oom_killed: None,
        service_cpu_cores: indexmap::IndexMap::new(),
        generator_cpu_cores: None,
        host_busy_cores: None,
        proof: None,
        target_path: None,
        replicas: None,
        replica_imbalance: None,
        dead_time_s: None,
        state: None,
        state_fingerprint: None,
        clone_s: None,
        clone_method: None,
        detail: None,
        thresholds_crossed: None,
        generator_wait_ratio: None,
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
