//! How much load each phase means in each cell.
//!
//! Needs all cells of a tier, since a load may ask for the largest value of its
//! tier, and since a load that differs between cells of a tier is flagged.

use super::amount;
use super::cell::{Cell, FixedLoad};
use super::expression::{Failure, Value};
use super::failures::Failures;
use super::sweep::{AmountKind, Phase, PhaseLoad};

/// Fixes the loads of all cells; a load that is none is noted.
///
/// `cell_tiers` holds the tier of each cell, `tier_max` by tier and slot the
/// largest value, `None` where some cell has no number.
pub(super) fn fix_loads(
    phases: &[Phase],
    cells: &mut [Cell],
    cell_tiers: &[usize],
    tier_max: &[Vec<Option<f64>>],
    failures: &mut Failures,
) {
    // Smallest and largest load by tier and phase.
    let mut spread = vec![(f64::INFINITY, f64::NEG_INFINITY); tier_max.len() * phases.len()];
    for (cell, tier) in cells.iter_mut().zip(cell_tiers) {
        let values: Vec<Value> = cell.values.iter().map(Value::from).collect();
        let mut loads = Vec::with_capacity(phases.len());
        for (index, phase) in phases.iter().enumerate() {
            let number = load_of(phase, &values, &tier_max[*tier]).unwrap_or_else(|failure| {
                failures.add(&failure.location, || failure.message, || cell.id.clone());
                f64::NAN
            });
            let (least, most) = &mut spread[tier * phases.len() + index];
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
            let (least, most) = spread[tier * phases.len() + index];
            load.is_tied = least < most;
        }
    }
}

/// The load of a phase in a cell, checked and rounded.
fn load_of(phase: &Phase, values: &[Value], tier_max: &[Option<f64>]) -> Result<f64, Failure> {
    let amount = phase.load.amount();
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
    match phase.load {
        PhaseLoad::Closed { .. } => amount::users(number).map(f64::from),
        PhaseLoad::Open { arrivals, .. } => amount::rate_rps(number, arrivals),
    }
    .map_err(fail)
}
