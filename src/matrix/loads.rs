//! How much load each stage of each phase means in each cell.
//!
//! Needs all cells of a tier, since a load may ask for the largest value of its
//! tier, and since a load that differs between cells of a tier is flagged.

use super::amount;
use super::cell::{Cell, FixedLoad};
use super::expression::{Failure, Value};
use super::failures::Failures;
use super::sweep::{AmountKind, Phase, PhaseLoad, Stage, Sweep};

/// Fixes the loads of all cells; a load that is none is noted.
///
/// `cell_tiers` holds the tier of each cell, `tier_max` by tier and slot the
/// largest value, `None` where some cell has no number.
pub(super) fn fix_loads(
    sweep: &Sweep,
    cells: &mut [Cell],
    cell_tiers: &[usize],
    tier_max: &[Vec<Option<f64>>],
    failures: &mut Failures,
) {
    let stages: Vec<(&Phase, &Stage)> = sweep.stages().collect();
    // Smallest and largest load by tier and stage.
    let mut spread = vec![(f64::INFINITY, f64::NEG_INFINITY); tier_max.len() * stages.len()];
    for (cell, tier) in cells.iter_mut().zip(cell_tiers) {
        let values: Vec<Value> = cell.values.iter().map(Value::from).collect();
        let mut loads = Vec::with_capacity(stages.len());
        for (index, (phase, stage)) in stages.iter().enumerate() {
            let load = load_of(phase, stage, &values, &tier_max[*tier]);
            let number = load.unwrap_or_else(|failure| {
                failures.add(&failure.location, || failure.message, || cell.id.clone());
                f64::NAN
            });
            let (least, most) = &mut spread[tier * stages.len() + index];
            *least = least.min(number);
            *most = most.max(number);
            loads.push(FixedLoad {
                number,
                is_tied: false,
            });
        }
        cell.loads = loads.into();
    }
    for (cell, tier) in cells.iter_mut().zip(cell_tiers) {
        for (index, load) in cell.loads.iter_mut().enumerate() {
            let (least, most) = spread[tier * stages.len() + index];
            load.is_tied = least < most;
        }
    }
}

/// The load of a stage in a cell, checked and rounded.
pub(super) fn load_of(
    phase: &Phase,
    stage: &Stage,
    values: &[Value],
    tier_max: &[Option<f64>],
) -> Result<f64, Failure> {
    let Some(amount) = stage.load.amount() else {
        return Ok(0.0);
    };
    let fail = |message: String| Failure {
        location: amount.location.clone(),
        message: format!("in phase `{}`, {message}", phase.name),
    };
    let number = match &amount.kind {
        AmountKind::Number(number) => *number,
        AmountKind::Expression(expression) => match expression.evaluate(values, tier_max)? {
            Value::Number(number) => number,
            other => return Err(fail(format!("the load is {other}, not a number"))),
        },
    };
    let share = stage.share;
    match stage.load {
        PhaseLoad::Closed { .. } => amount::users(number)
            // A small share of few users is one user, not none.
            .and_then(|users| amount::users((f64::from(users) * share).max(1.0)))
            .map(f64::from),
        PhaseLoad::Open { arrivals, .. } => amount::rate_rps(number, arrivals)
            .and_then(|rate_rps| amount::rate_rps(rate_rps * share, arrivals)),
        PhaseLoad::Script { .. } => Ok(number),
    }
    .map_err(fail)
}
