//! Parts of a run's windows, cut out of their interval logs.
//!
//! **Invariant**: every row of the run has its entry: figures, or why there are none.
//! Nothing but the run's folder is read.

use std::time::Duration;

use super::histogram_reader::{HistogramLog, read_histogram_log};
use super::{RunFolder, TrialRow};
use crate::measure::{CutFigures, LatencyFrom, cut};
use crate::problem::Problems;

/// Which part of each window.
///
/// **Units**: whole seconds from the window's left edge, as the logs are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The first second of it.
    pub from_s: u32,
    /// The second before which it ends; `None` is the window's end.
    pub to_s: Option<u32>,
}

/// The part of one window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowCut<'a> {
    /// The row of the window, with what was judged of the whole.
    pub row: &'a TrialRow,
    /// The part, or why there is none.
    pub part: Result<Part, String>,
}

/// Figures of a part of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Where it begins. **Units**: seconds from the window's left edge.
    pub from_s: f64,
    /// Where it ends.
    pub to_s: f64,
    /// Whether the window ends before the part that was asked for.
    pub is_shortened: bool,
    /// Whether rates are known: logs of early versions do not tell when requests of an open loop left.
    pub knows_rates: bool,
    /// Counts and percentiles.
    pub figures: CutFigures,
}

/// Cuts the same part out of every window of a run.
///
/// **Errors**: logs that are there and cannot be understood, each line of them.
pub fn cut_windows<'a>(
    folder: &RunFolder,
    rows: &'a [TrialRow],
    asked: Cut,
) -> Result<Vec<WindowCut<'a>>, Problems> {
    let mut problems = Vec::new();
    let mut cuts = Vec::with_capacity(rows.len());
    for row in rows {
        let path = folder.histogram_log(row.trial, row.attempt, &row.window, row.step);
        let part = match read_histogram_log(&path) {
            Ok(Some(log)) => part_of(row, &log, asked),
            Ok(None) => Err(why_none(row)),
            Err(of_file) => {
                problems.extend(of_file);
                continue;
            }
        };
        cuts.push(WindowCut { row, part });
    }
    if problems.is_empty() {
        Ok(cuts)
    } else {
        Err(Problems(problems))
    }
}

fn part_of(row: &TrialRow, log: &HistogramLog, asked: Cut) -> Result<Part, String> {
    let last = log.intervals.iter().map(|interval| interval.second).max();
    let length_s = row
        .window_s
        .unwrap_or_else(|| last.map_or(0.0, |second| f64::from(second) + 1.0));
    let from_s = f64::from(asked.from_s);
    if from_s >= length_s {
        return Err(format!("the window ends after {length_s} s"));
    }
    let length = Duration::try_from_secs_f64(length_s);
    let length = length.map_err(|_| format!("its length of {length_s} s cannot be"))?;
    let asked_to_s = asked.to_s.map_or(length_s, f64::from);
    let to_s = asked_to_s.min(length_s);
    let to = asked.to_s.map_or(length, |to_s| {
        length.min(Duration::from_secs(u64::from(to_s)))
    });
    let latency_from = match row.latency_from.as_deref() {
        Some("due") => LatencyFrom::Due,
        _ => LatencyFrom::Send,
    };
    Ok(Part {
        from_s,
        to_s,
        is_shortened: asked_to_s > length_s,
        knows_rates: log.tells_left_later || latency_from == LatencyFrom::Send,
        figures: cut(
            &log.intervals,
            (asked.from_s, to_s.ceil() as u32),
            to.saturating_sub(Duration::from_secs(u64::from(asked.from_s))),
            latency_from,
        ),
    })
}

fn why_none(row: &TrialRow) -> String {
    let verdict = row.verdict.as_str();
    match (&row.reason, row.requests) {
        (_, Some(_)) => "its histograms are not in the run's folder".to_owned(),
        (Some(reason), None) => format!("{verdict}: {reason}"),
        (None, None) => verdict.to_owned(),
    }
}

#[cfg(test)]
#[path = "cuts_tests.rs"]
mod tests;
