//! Rows gathered by cell: which window, which repeats, and what is missing why. Pure.
//!
//! **Invariant**: only valid, counted rows of role `cell` give a figure. A cell
//! without one keeps its place, with the reason. Charts and the table of best
//! cells both start here, so they cannot disagree.

use std::collections::{BTreeMap, HashSet};

use indexmap::IndexMap;

use super::{TrialRow, Verdict};
use crate::scalar::Scalar;

/// What is asked of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Successes per second, from windows that answer `capacity`, else the first window.
    Throughput,
    /// 99th percentile of latency, from windows that answer `latency`, else the first window.
    P99,
}

/// Which requests a percentile is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PercentileBasis {
    /// Everything due except refused; failures are infinite (`p99_due_ms`).
    Due,
    /// Successes alone (`p99_ms`).
    Successes,
}

/// The window that answers a measure: the same for every cell of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowChoice {
    /// Name of its phase; empty in rows from elsewhere.
    pub window: String,
    /// What it answers, where the rows say.
    pub answers: Option<String>,
    /// Step, of a ladder.
    pub step: Option<u32>,
    /// `closed` or `open`, where all its rows agree.
    pub load_model: Option<String>,
}

/// One launch's figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repeat {
    /// Trial of the launch.
    pub trial: u32,
    /// The figure; a percentile may be infinite.
    pub value: f64,
}

/// A launch that gave no figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRepeat {
    /// Trial of the launch.
    pub trial: u32,
    /// Why, as `exited` or `suspect: neighbours`.
    pub reason: String,
}

/// All that the rows say about one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellFigures {
    /// The cell's id.
    pub cell_id: String,
    /// Level of the tier axis; `None` where the run has none.
    pub tier: Option<Scalar>,
    /// Axis values in file order.
    pub axes: IndexMap<String, Scalar>,
    /// Derived values in file order.
    pub variables: IndexMap<String, Scalar>,
    /// Figures by trial, in trial order.
    pub repeats: Vec<Repeat>,
    /// Launches without a figure, in trial order.
    pub lost: Vec<LostRepeat>,
}

impl CellFigures {
    /// Arithmetic mean over the repeats; infinite when one is; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        if self.repeats.is_empty() {
            return None;
        }
        let sum: f64 = self.repeats.iter().map(|repeat| repeat.value).sum();
        Some(sum / self.repeats.len() as f64)
    }

    /// Smallest and largest repeat.
    pub fn range(&self) -> Option<(f64, f64)> {
        let values = || self.repeats.iter().map(|repeat| repeat.value);
        Some((values().reduce(f64::min)?, values().reduce(f64::max)?))
    }

    /// Why there is no figure: the last launch's reason.
    pub fn missing_because(&self) -> Option<&str> {
        if self.repeats.is_empty() {
            Some(self.lost.last().map_or("no row", |lost| &lost.reason))
        } else {
            None
        }
    }
}

/// Cells in order of first appearance, and the window they were taken from.
#[derive(Debug, Clone, PartialEq)]
pub struct Gathered {
    /// What was asked.
    pub measure: Measure,
    /// The window; `None` when no row is of a cell.
    pub choice: Option<WindowChoice>,
    /// Which percentile, for [`Measure::P99`].
    pub basis: PercentileBasis,
    /// The cells.
    pub cells: Vec<CellFigures>,
}

/// Gathers one measure by cell.
///
/// `tier` is the axis, or the derived value, that groups charts and advice.
///
/// **Shape**: every cell that has a row of role `cell` is there, whatever its
/// verdict; of several attempts at one trial the last valid one gives the figure.
pub fn gather(rows: &[TrialRow], measure: Measure, tier: Option<&str>) -> Gathered {
    let of_cells: Vec<&TrialRow> = rows.iter().filter(|row| row.role == "cell").collect();
    let choice = choose_window(&of_cells, measure);
    let chosen: Vec<&TrialRow> = of_cells
        .iter()
        .copied()
        .filter(|row| choice.as_ref().is_some_and(|choice| belongs(row, choice)))
        .collect();
    // A percentile of successes beside one over everything due would compare
    // two things, so that one basis is taken for all.
    let basis = if chosen
        .iter()
        .any(|row| counts(row) && row.p99_due_ms.is_some())
    {
        PercentileBasis::Due
    } else {
        PercentileBasis::Successes
    };
    let mut cells: IndexMap<&str, CellFigures> = IndexMap::new();
    for row in &of_cells {
        cells.entry(&row.cell_id).or_insert_with(|| CellFigures {
            cell_id: row.cell_id.clone(),
            tier: tier.and_then(|tier| tier_level(row, tier)).cloned(),
            axes: row.axes.clone(),
            variables: row.variables.clone(),
            repeats: Vec::new(),
            lost: Vec::new(),
        });
    }
    let mut trials: IndexMap<(&str, &str, u32), Vec<&TrialRow>> = IndexMap::new();
    for row in chosen {
        trials
            .entry((&row.cell_id, &row.run_id, row.trial))
            .or_default()
            .push(row);
    }
    for ((cell_id, _, trial), mut attempts) in trials {
        attempts.sort_by_key(|row| row.attempt);
        let cell = &mut cells[cell_id];
        let valued = attempts
            .iter()
            .rev()
            .filter(|row| counts(row))
            .find_map(|row| figure(row, measure, basis));
        match (valued, attempts.last()) {
            (Some(value), _) => cell.repeats.push(Repeat { trial, value }),
            (None, Some(last)) => cell.lost.push(LostRepeat {
                trial,
                reason: why_lost(last, measure),
            }),
            (None, None) => {}
        }
    }
    let mut cells: Vec<CellFigures> = cells.into_values().collect();
    for cell in &mut cells {
        cell.repeats.sort_by_key(|repeat| repeat.trial);
        cell.lost.sort_by_key(|lost| lost.trial);
    }
    Gathered {
        measure,
        choice,
        basis,
        cells,
    }
}

/// The level of the tier: an axis of that name, else a derived value.
pub fn tier_level<'r>(row: &'r TrialRow, tier: &str) -> Option<&'r Scalar> {
    row.axes.get(tier).or_else(|| row.variables.get(tier))
}

/// Puts levels in the order people expect: numbers by size, all else as they first came.
pub fn sort_levels(levels: &mut [Scalar]) {
    if levels.iter().all(|level| level.as_number().is_some()) {
        levels.sort_by(|a, b| {
            let number = |level: &Scalar| level.as_number().unwrap_or_default();
            number(a).total_cmp(&number(b))
        });
    }
}

fn counts(row: &TrialRow) -> bool {
    row.verdict == Verdict::Valid && row.counted
}

fn belongs(row: &TrialRow, choice: &WindowChoice) -> bool {
    row.window == choice.window && row.answers == choice.answers && row.step == choice.step
}

/// The first window that answers the question, else the first that has a figure, else the first.
///
/// Of a ladder the highest step that every cell was measured at: its first loads are there to
/// be small, and a step that some cell could not carry would compare only the others.
fn choose_window(rows: &[&TrialRow], measure: Measure) -> Option<WindowChoice> {
    let wanted = match measure {
        Measure::Throughput => "capacity",
        Measure::P99 => "latency",
    };
    let first = rows
        .iter()
        .find(|row| row.answers.as_deref() == Some(wanted))
        .or_else(|| rows.iter().find(|row| counts(row)))
        .or_else(|| rows.first())?;
    let mut choice = WindowChoice {
        window: first.window.clone(),
        answers: first.answers.clone(),
        step: first
            .step
            .map(|step| common_step(rows, first).unwrap_or(step)),
        load_model: first.load_model.clone(),
    };
    let agree = rows
        .iter()
        .filter(|row| belongs(row, &choice) && row.load_model.is_some())
        .all(|row| row.load_model == choice.load_model);
    if !agree {
        choice.load_model = None;
    }
    Some(choice)
}

/// The highest step of a ladder with a counted row in every cell that has any.
fn common_step(rows: &[&TrialRow], ladder: &TrialRow) -> Option<u32> {
    let mut cells: HashSet<&str> = HashSet::new();
    let mut measured: BTreeMap<u32, HashSet<&str>> = BTreeMap::new();
    let is_of_ladder = |row: &&&TrialRow| row.window == ladder.window && counts(row);
    for row in rows.iter().filter(is_of_ladder) {
        if let Some(step) = row.step {
            cells.insert(&row.cell_id);
            measured.entry(step).or_default().insert(&row.cell_id);
        }
    }
    let mut from_top = measured.into_iter().rev();
    from_top.find_map(|(step, own)| (own.len() == cells.len()).then_some(step))
}

fn figure(row: &TrialRow, measure: Measure, basis: PercentileBasis) -> Option<f64> {
    match (measure, basis) {
        (Measure::Throughput, _) => row.throughput_rps.filter(|value| value.is_finite()),
        (Measure::P99, PercentileBasis::Due) => row.p99_due_ms,
        (Measure::P99, PercentileBasis::Successes) => row.p99_ms,
    }
    .filter(|value| !value.is_nan())
}

fn why_lost(row: &TrialRow, measure: Measure) -> String {
    let reason = row.reason.as_deref();
    match row.verdict {
        Verdict::Failed => reason.unwrap_or("failed").to_owned(),
        Verdict::Suspect | Verdict::Skipped => {
            let verdict = if row.verdict == Verdict::Suspect {
                "suspect"
            } else {
                "skipped"
            };
            reason.map_or_else(
                || verdict.to_owned(),
                |reason| format!("{verdict}: {reason}"),
            )
        }
        Verdict::Valid if !row.counted => "not counted".to_owned(),
        Verdict::Valid => match measure {
            Measure::Throughput => "no throughput in the row".to_owned(),
            Measure::P99 => "no p99 in the row".to_owned(),
        },
    }
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
