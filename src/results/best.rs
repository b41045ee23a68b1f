//! Best measured: the cells of each tier, ranked by the mean of their repeats. Pure.
//!
//! It says what was measured, not what is best: no confidence is computed here,
//! so every repeat and their number stand beside each mean.

use indexmap::IndexMap;

use super::{CellFigures, Measure, TrialRow, WindowChoice, gather, sort_levels};
use crate::scalar::Scalar;

/// A cell with its mean and the repeats it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedCell {
    /// The cell's id.
    pub cell_id: String,
    /// Axis values in file order.
    pub axes: IndexMap<String, Scalar>,
    /// Derived values in file order.
    pub variables: IndexMap<String, Scalar>,
    /// Mean of the repeats; a percentile may be infinite.
    pub mean: f64,
    /// Each repeat's figure, in trial order; never empty.
    pub repeats: Vec<f64>,
    /// Launches of the cell that gave no figure.
    pub n_lost: usize,
}

/// A cell without a single figure.
#[derive(Debug, Clone, PartialEq)]
pub struct UnmeasuredCell {
    /// The cell's id.
    pub cell_id: String,
    /// Axis values in file order.
    pub axes: IndexMap<String, Scalar>,
    /// Why.
    pub reason: String,
}

/// One tier's ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct TierBest {
    /// The tier's level; `None` where the run has no tier.
    pub tier: Option<Scalar>,
    /// Highest throughput first.
    pub by_throughput: Vec<RankedCell>,
    /// Lowest p99 first; infinite ones last.
    pub by_p99: Vec<RankedCell>,
    /// Cells without any throughput.
    pub unmeasured: Vec<UnmeasuredCell>,
    /// Cells without any p99.
    pub unmeasured_p99: Vec<UnmeasuredCell>,
}

/// All tiers.
#[derive(Debug, Clone, PartialEq)]
pub struct BestMeasured {
    /// Tiers in order of their level.
    pub tiers: Vec<TierBest>,
    /// The window the throughput is from.
    pub throughput_window: Option<WindowChoice>,
    /// The window the p99 is from.
    pub p99_window: Option<WindowChoice>,
}

/// Ranks the cells of every tier. Ties keep the order of the rows.
pub fn best_measured(rows: &[TrialRow], tier: Option<&str>) -> BestMeasured {
    let throughput = gather(rows, Measure::Throughput, tier);
    let p99 = gather(rows, Measure::P99, tier);
    let mut levels: Vec<Scalar> = Vec::new();
    let mut has_no_level = false;
    for cell in &throughput.cells {
        match &cell.tier {
            Some(level) if !levels.contains(level) => levels.push(level.clone()),
            Some(_) => {}
            None => has_no_level = true,
        }
    }
    sort_levels(&mut levels);
    let tiers = levels
        .into_iter()
        .map(Some)
        .chain(has_no_level.then_some(None))
        .map(|tier| {
            let (mut by_throughput, unmeasured) = split(&throughput.cells, tier.as_ref());
            let (mut by_p99, unmeasured_p99) = split(&p99.cells, tier.as_ref());
            by_throughput.sort_by(|a, b| b.mean.total_cmp(&a.mean));
            by_p99.sort_by(|a, b| a.mean.total_cmp(&b.mean));
            TierBest {
                tier,
                by_throughput,
                by_p99,
                unmeasured,
                unmeasured_p99,
            }
        })
        .collect();
    BestMeasured {
        tiers,
        throughput_window: throughput.choice,
        p99_window: p99.choice,
    }
}

fn split(cells: &[CellFigures], tier: Option<&Scalar>) -> (Vec<RankedCell>, Vec<UnmeasuredCell>) {
    let mut ranked = Vec::new();
    let mut unmeasured = Vec::new();
    for cell in cells.iter().filter(|cell| cell.tier.as_ref() == tier) {
        match cell.mean() {
            Some(mean) => ranked.push(RankedCell {
                cell_id: cell.cell_id.clone(),
                axes: cell.axes.clone(),
                variables: cell.variables.clone(),
                mean,
                repeats: cell.repeats.iter().map(|repeat| repeat.value).collect(),
                n_lost: cell.lost.len(),
            }),
            None => unmeasured.push(UnmeasuredCell {
                cell_id: cell.cell_id.clone(),
                axes: cell.axes.clone(),
                reason: cell.missing_because().unwrap_or("no row").to_owned(),
            }),
        }
    }
    (ranked, unmeasured)
}
