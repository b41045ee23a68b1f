//! What a careful reader of the results would ask about the plan.
//!
//! A warning never stops anything and changes no number: each is true of the
//! plan as it is. One sentence each, without a final stop.

use std::collections::BTreeSet;

use itertools::Itertools;

use super::cell::Cell;
use super::expand::{Expansion, reaching_slots};
use super::state::CloneWay;
use super::sweep::{Answers, PhaseLoad, Stage, Sweep};
use crate::scalar::Scalar;

/// Tiers named in one warning; more are counted.
const SHOWN: usize = 5;

/// All warnings, in the order of the file's sections.
pub(super) fn warnings(
    sweep: &Sweep,
    expansion: &Expansion,
    reached: &BTreeSet<String>,
) -> Vec<String> {
    let tiers = by_tier(&expansion.cells);
    let mut warnings = Vec::new();
    warnings.extend(idle_derived(sweep, reached));
    warnings.extend(empty_tiers(sweep, &expansion.empty_tiers));
    warnings.extend(lonely_tiers(sweep, &tiers));
    if sweep.trials.repeats == 1 {
        warnings.push(
            "every cell is launched once: without a second launch nobody can tell a difference from chance"
                .to_owned(),
        );
    }
    warnings.extend(overlay(sweep));
    warnings.extend(questions(sweep));
    warnings.extend(late_latency(sweep));
    warnings.extend(tied_loads(sweep, &tiers));
    warnings.extend(few_users(sweep, &tiers));
    warnings
}

/// Cheap to make, paid for by the first write to each file.
fn overlay(sweep: &Sweep) -> Option<String> {
    let is_overlay = sweep.golden.as_ref()?.clone == CloneWay::Overlay;
    is_overlay.then(|| {
        "an overlay clone copies a whole file up on its first write: a database copies each \
         segment of up to 1 GB while it is measured, and the rows are flagged overlay_clone"
            .to_owned()
    })
}

/// Cells by tier, tiers in order of appearance.
fn by_tier(cells: &[Cell]) -> Vec<(String, Vec<&Cell>)> {
    let mut tiers = indexmap::IndexMap::<String, Vec<&Cell>>::new();
    for cell in cells {
        tiers.entry(cell.tier().to_string()).or_default().push(cell);
    }
    tiers.into_iter().collect()
}

fn listed(tiers: &[&str]) -> String {
    let shown = tiers.iter().take(SHOWN).join(", ");
    match tiers.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A derived value that nothing reads is most often a mistyped variable.
fn idle_derived(sweep: &Sweep, reached: &BTreeSet<String>) -> Option<String> {
    let mut used = reaching_slots(sweep, reached);
    for constraint in &sweep.constraints {
        used.extend(constraint.expression.slots());
    }
    used.insert(sweep.tier);
    used.extend(
        sweep
            .cost
            .iter()
            .filter_map(|cost| sweep.names.iter().position(|name| *name == cost.value)),
    );
    // Derived values read earlier ones only, so one pass from the last is enough.
    for (index, derived) in sweep.derived.iter().enumerate().rev() {
        if used.contains(&(sweep.axes.len() + index)) {
            used.extend(derived.expression.slots());
        }
    }
    let idle = sweep
        .derived
        .iter()
        .enumerate()
        .filter(|(index, _)| !used.contains(&(sweep.axes.len() + index)))
        .map(|(_, derived)| derived.name.as_str())
        .collect_vec();
    (!idle.is_empty()).then(|| {
        format!(
            "nothing uses the derived value {}: no Compose file, override, workload, phase, constraint or cost",
            idle.join(", ")
        )
    })
}

fn empty_tiers(sweep: &Sweep, empty: &[String]) -> Option<String> {
    let names = empty.iter().map(String::as_str).collect_vec();
    (!names.is_empty()).then(|| {
        format!(
            "the constraints leave no cell of tier {} = {}",
            sweep.tier(),
            listed(&names)
        )
    })
}

fn lonely_tiers(sweep: &Sweep, tiers: &[(String, Vec<&Cell>)]) -> Option<String> {
    let lonely = tiers
        .iter()
        .filter(|(_, cells)| cells.len() == 1)
        .map(|(tier, _)| tier.as_str())
        .collect_vec();
    (!lonely.is_empty()).then(|| {
        format!(
            "there is one cell only in tier {} = {}: it has nothing to be compared with",
            sweep.tier(),
            listed(&lonely)
        )
    })
}

/// Windows whose load cannot answer their question.
///
/// **Source**: Little's law: in a saturated closed loop mean latency is users /
/// throughput, so its p99 says the throughput again; an open loop sends what it
/// was told, so its throughput is that rate until the service breaks down.
fn questions(sweep: &Sweep) -> Vec<String> {
    sweep
        .phases
        .iter()
        .filter_map(|phase| match (&phase.stages.first()?.load, phase.answers?) {
            (PhaseLoad::Closed { .. }, Answers::Latency) => Some(format!(
                "window `{}` answers latency under a closed load, whose latency is the number of users over the throughput: ask it of an open load",
                phase.name
            )),
            (PhaseLoad::Open { .. }, Answers::Capacity) => Some(format!(
                "window `{}` answers capacity under an open load, which never sends more than its rate: ask it of a closed load",
                phase.name
            )),
            _ => None,
        })
        .collect()
}

/// Fast cells write more rows at full speed, and would meet a larger database.
fn late_latency(sweep: &Sweep) -> Option<String> {
    let first_closed = sweep
        .phases
        .iter()
        .position(|phase| phase.stages.iter().any(is_closed))?;
    let late = sweep
        .phases
        .iter()
        .skip(first_closed + 1)
        .find(|phase| phase.answers == Some(Answers::Latency))?;
    Some(format!(
        "window `{}` comes after phase `{}`, which saturates the service: faster cells will have written more and meet a larger database; put it before",
        late.name, sweep.phases[first_closed].name
    ))
}

fn is_closed(stage: &Stage) -> bool {
    matches!(stage.load, PhaseLoad::Closed { .. })
}

fn tied_loads(sweep: &Sweep, tiers: &[(String, Vec<&Cell>)]) -> Vec<String> {
    let mut told = BTreeSet::new();
    sweep
        .stages()
        .enumerate()
        .filter_map(|(index, (phase, _))| {
            let tied = tiers
                .iter()
                .filter(|(_, cells)| cells.iter().any(|cell| cell.loads[index].is_tied))
                .map(|(tier, _)| tier.as_str())
                .collect_vec();
            (!tied.is_empty() && told.insert(&phase.name)).then(|| {
                format!(
                    "load_tied_to_knob: the load of phase `{}` differs between cells of tier {} = {}, so throughput and p99 move with the knob by themselves",
                    phase.name,
                    sweep.tier(),
                    listed(&tied)
                )
            })
        })
        .collect()
}

/// Windows with too few virtual users to keep the pools full.
///
/// Work passes the pools one behind the other, so the narrowest one of a cell
/// is what the load has to fill; with fewer users than twice that, some of its
/// places stand empty whenever an answer is on its way, and the cell looks
/// worse than it is. Pools are what `[cost]` names, else all values that feed no
/// other; only those count that are whole numbers and differ inside the tier.
fn few_users(sweep: &Sweep, tiers: &[(String, Vec<&Cell>)]) -> Vec<String> {
    let candidates = pool_candidates(sweep);
    // A ladder begins with few users on purpose.
    let windows = sweep
        .stages()
        .enumerate()
        .filter(|(_, (phase, stage))| phase.is_window() && !phase.is_ladder() && is_closed(stage));
    windows
        .filter_map(|(index, (phase, _))| {
            let mut worst: Option<Shortage<'_>> = None;
            for (_, cells) in tiers {
                let pools = candidates
                    .iter()
                    .copied()
                    .filter(|slot| is_pool(*slot, cells))
                    .collect_vec();
                for cell in cells {
                    let narrowest = pools
                        .iter()
                        .filter_map(|slot| Some((*slot, cell.values[*slot].as_number()?)))
                        .min_by(|left, right| left.1.total_cmp(&right.1));
                    let Some((pool, size)) = narrowest else {
                        continue;
                    };
                    let users = cell.loads[index].number;
                    let is_worse = worst
                        .as_ref()
                        .is_none_or(|worst| size / users > worst.size / worst.users);
                    if users < 2.0 * size && is_worse {
                        worst = Some(Shortage {
                            users,
                            pool,
                            size,
                            cell,
                        });
                    }
                }
            }
            worst.map(|worst| {
                format!(
                    "window `{}` has {} users, fewer than twice {} = {} in cell {}: the load may be what holds it back",
                    phase.name,
                    worst.users,
                    sweep.names[worst.pool],
                    worst.size,
                    worst.cell.id()
                )
            })
        })
        .collect()
}

struct Shortage<'a> {
    users: f64,
    pool: usize,
    size: f64,
    cell: &'a Cell,
}

fn pool_candidates(sweep: &Sweep) -> Vec<usize> {
    if !sweep.cost.is_empty() {
        return (0..sweep.names.len())
            .filter(|slot| {
                let name = &sweep.names[*slot];
                sweep.cost.iter().any(|cost| cost.value == *name)
            })
            .collect();
    }
    let n_axes = sweep.axes.len();
    let feeds = |slot: &usize| {
        *slot < n_axes
            && sweep
                .derived
                .iter()
                .any(|derived| derived.expression.slots().contains(slot))
    };
    (0..sweep.names.len()).filter(|slot| !feeds(slot)).collect()
}

/// Whether a value is a whole number of at least 1 in all cells, and not the same in all.
fn is_pool(slot: usize, cells: &[&Cell]) -> bool {
    let is_size = |cell: &&Cell| matches!(cell.values[slot], Scalar::Integer(size) if size >= 1);
    cells.iter().all(is_size) && !cells.iter().map(|cell| &cell.values[slot]).all_equal()
}
