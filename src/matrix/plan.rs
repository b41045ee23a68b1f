//! Cells to trials: what is launched, in which order, and what it may take.
//!
//! A plan is data: it launches nothing and draws nothing. Trials name cells by
//! index, so that a hundred thousand of them stay small. `json` writes it,
//! `warnings` says what a reader of the results would ask about.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::cell::{Cell, Dropped, FixedLoad, Names};
use super::expand::{Expansion, expand};
use super::expression::{Expression, Known, Value};
use super::order::shuffled;
use super::state::{Golden, State};
use super::sweep::{Answers, Arrivals, Beside, Order, Phase, PhaseLoad, Stage, Sweep};
use super::warnings::warnings;
use crate::problem::{Location, Problem, Problems};
use crate::scalar::Scalar;
use crate::toml_file::Content;

/// Most trials of a plan: at half a minute each, a year.
const MAX_TRIALS: u64 = 1_000_000;

/// Launch to ready plus teardown, assumed until a pilot has measured it.
///
/// A small service on a database starts in about five seconds and is removed in
/// about three.
pub const ASSUMED_DEAD_TIME: Duration = Duration::from_secs(8);

/// Room for the rows of one window: a trial's, and those of some forty operations.
const BYTES_PER_WINDOW: u64 = 16 * 1024;

/// Room for one second of load: its row, and one compressed histogram for each
/// of some forty operations.
const BYTES_PER_SECOND: u64 = 10 * 1024;

/// What a sweep launches.
///
/// **Shape**: cells in nested order, first axis slowest; trials in the order
/// they are launched.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cells that are run. **Shape**: at least one.
    pub cells: Vec<Cell>,
    /// The combinations that a constraint drops.
    pub dropped: Vec<Dropped>,
    /// The launches.
    pub trials: Vec<PlannedTrial>,
    /// What a reader of the results would ask about, one sentence each.
    pub warnings: Vec<String>,
    /// What it may take.
    pub estimate: Estimate,
    /// What trials find in the stack's volumes.
    pub state: PlannedState,
    names: Arc<Names>,
    stages: Vec<StageShape>,
    trial_cost: Estimate,
}

/// One launch of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedTrial {
    /// Place in the plan, from 1.
    pub index: u32,
    /// Block, from 1; 0 is kept for the pilot.
    pub block: u32,
    /// Index in [`Plan::cells`].
    pub cell: usize,
    /// What it is for.
    pub role: Role,
}

/// What a trial is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One of the repeats of a cell.
    Cell,
}

impl Role {
    /// As in plans and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cell => "cell",
        }
    }
}

/// What a plan may take, before anything was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Wall time.
    pub duration: Duration,
    /// Room for results, and what the clones of golden volumes write where that is known.
    /// **Units**: bytes.
    pub bytes: u64,
}

/// What trials find in the stack's volumes, and what that writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedState {
    /// Which of the three.
    pub kind: State,
    /// Volumes that are cloned, with `State::Golden`.
    pub golden: Option<Golden>,
    /// What the clones take, where the engine or the source told.
    pub clones: Option<ClonesCost>,
}

/// What all clones of golden volumes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClonesCost {
    /// Size of the golden volumes; of several the largest. **Units**: bytes.
    pub golden_bytes: u64,
    /// What making all clones writes; blocks that are shared are not written. **Units**: bytes.
    pub bytes: u64,
    /// Making all clones; `None` where none was ever made.
    pub duration: Option<Duration>,
    /// Whether the golden volumes are there, so that none is prepared first.
    pub is_prepared: bool,
}

/// One phase as a cell runs it; of a phase with stages one ramp or hold.
#[derive(Debug, Clone, PartialEq)]
pub struct CellPhase {
    /// Name of the phase.
    pub name: String,
    /// Whether it is the first part of its phase.
    pub is_first: bool,
    /// Whether the phase is measured; its ramps are not.
    pub is_of_window: bool,
    /// For a ramp, the load it begins with.
    pub ramp_from: Option<f64>,
    /// Number of a ladder's step, from 1; a ramp has that of the step it leads to.
    pub step: Option<u32>,
    /// Which question it answers; `None` for a phase that is not measured.
    pub answers: Option<Answers>,
    /// How requests are paced.
    pub model: CellLoad,
    /// What arrives beside it at a constant rate.
    pub beside: Vec<Beside>,
    /// How long.
    pub duration: Duration,
    /// Whether another cell of the tier has another load: p99 then rises with
    /// the knob by itself.
    pub load_tied_to_knob: bool,
}

impl CellPhase {
    /// Whether it is measured.
    pub fn is_window(&self) -> bool {
        self.answers.is_some()
    }
}

/// How requests of a phase are paced in a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CellLoad {
    /// So many virtual users, each sending its next request when the last is answered.
    Closed {
        /// Virtual users; at least 1.
        users: u32,
    },
    /// Requests at a rate of their own, whatever the service does.
    Open {
        /// Requests per second; finite and above 0.
        requests_per_second: f64,
        /// How they are spaced.
        arrivals: Arrivals,
        /// Most journeys under way at once.
        max_in_flight: u32,
    },
    /// As a k6 script's own options say.
    Script {
        /// Whether iterations arrive in it, whatever the service does.
        is_open: bool,
    },
}

/// How a phase is paced, its number apart.
#[derive(Debug, Clone, Copy)]
enum Pacing {
    Closed,
    Open {
        arrivals: Arrivals,
        max_in_flight: u32,
    },
    Script {
        is_open: bool,
    },
}

/// What is the same for a stage of a phase in all cells.
#[derive(Debug, Clone)]
pub(super) struct StageShape {
    name: String,
    answers: Option<Answers>,
    is_first: bool,
    /// Of a ladder.
    step: Option<u32>,
    pacing: Pacing,
    beside: Vec<Beside>,
    ramp: Duration,
    hold: Duration,
}

/// Plans a sweep whose names `reached` are used by stack or workload.
///
/// The names that the sweep's own phases use are added to them. Combinations
/// of one tier with the same configuration become one cell, the first; a
/// configuration is the tier and the values of all reached names.
///
/// **Errors**: an axis that reaches nothing; expressions without a value in some
/// cell; loads that are none; constraints that leave no cell; too many trials.
pub fn plan(sweep: &Sweep, reached: &BTreeSet<String>) -> Result<Plan, Problems> {
    let expansion = expand(sweep, reached)?;
    let n_trials = expansion.cells.len() as u64 * u64::from(sweep.trials.repeats);
    if n_trials > MAX_TRIALS {
        let message = format!(
            "{} cells, {} times each, are {n_trials} trials (allowed: {MAX_TRIALS})",
            expansion.cells.len(),
            sweep.trials.repeats
        );
        return Err(Problems(vec![
            Problem::new(sweep.axes[0].location.clone(), message)
                .with_hint("sweep fewer levels, or lower `repeats` in [trials]"),
        ]));
    }
    let warnings = warnings(sweep, &expansion, reached);
    let Expansion {
        names,
        cells,
        dropped,
        ..
    } = expansion;
    let trials = trials(sweep, cells.len());
    let trial_cost = trial_cost(sweep);
    Ok(Plan {
        estimate: trial_cost.times(trials.len()),
        cells,
        dropped,
        trials,
        warnings,
        names,
        stages: sweep.phases.iter().flat_map(stage_shapes).collect(),
        trial_cost,
        state: PlannedState {
            kind: sweep.trials.state,
            golden: sweep.golden.clone(),
            clones: None,
        },
    })
}

pub(super) fn stage_shapes(phase: &Phase) -> Vec<StageShape> {
    let mut n_holds = 0;
    let shape = |(index, stage): (usize, &Stage)| {
        let is_held = !stage.hold.is_zero();
        n_holds += u32::from(is_held);
        StageShape {
            name: phase.name.clone(),
            answers: phase.answers,
            is_first: index == 0,
            step: (phase.is_ladder() && is_held).then_some(n_holds),
            beside: phase.beside.clone(),
            pacing: match stage.load {
                PhaseLoad::Closed { .. } => Pacing::Closed,
                PhaseLoad::Open {
                    arrivals,
                    max_in_flight,
                    ..
                } => Pacing::Open {
                    arrivals,
                    max_in_flight,
                },
                PhaseLoad::Script { is_open, .. } => Pacing::Script { is_open },
            },
            ramp: stage.ramp,
            hold: stage.hold,
        }
    };
    phase.stages.iter().enumerate().map(shape).collect()
}

fn trials(sweep: &Sweep, n_cells: usize) -> Vec<PlannedTrial> {
    let mut trials = Vec::with_capacity(n_cells * sweep.trials.repeats as usize);
    for block in 1..=sweep.trials.repeats {
        let order = match sweep.trials.order {
            Order::Blocks => shuffled(n_cells, sweep.trials.seed, block),
            Order::Listed => (0..n_cells).collect(),
        };
        for cell in order {
            trials.push(PlannedTrial {
                index: u32::try_from(trials.len() + 1).expect("far fewer trials than that"),
                block,
                cell,
                role: Role::Cell,
            });
        }
    }
    trials
}

fn trial_cost(sweep: &Sweep) -> Estimate {
    let load: Duration = sweep.phases.iter().map(Phase::duration).sum();
    let is_window = |(phase, stage): &(&Phase, &Stage)| phase.is_window() && !stage.hold.is_zero();
    let n_windows = sweep.stages().filter(is_window).count() as u64;
    Estimate {
        duration: load + sweep.load.drain + ASSUMED_DEAD_TIME,
        bytes: n_windows * BYTES_PER_WINDOW + (load.as_secs_f64() * BYTES_PER_SECOND as f64) as u64,
    }
}

impl Estimate {
    fn times(self, n_trials: usize) -> Self {
        let n_trials = u32::try_from(n_trials).expect("far fewer trials than that");
        Self {
            duration: self.duration.saturating_mul(n_trials),
            bytes: self.bytes.saturating_mul(u64::from(n_trials)),
        }
    }
}

impl Plan {
    /// The cell with an id.
    pub fn cell_by_id(&self, id: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.id().as_str() == id)
    }

    /// Index of the cell with an id.
    pub fn cell_index(&self, id: &str) -> Option<usize> {
        self.cells.iter().position(|cell| cell.id().as_str() == id)
    }

    /// Name of the axis or derived value that groups charts and advice.
    pub fn tier(&self) -> &str {
        &self.names.all[self.names.tier]
    }

    /// Names of the axes, in file order.
    pub fn axis_names(&self) -> &[String] {
        &self.names.all[..self.names.n_axes]
    }

    /// Names of the derived values, in file order.
    pub fn derived_names(&self) -> &[String] {
        &self.names.all[self.names.n_axes..]
    }

    /// The tier of a cell, by its index.
    ///
    /// **Panics**: where there is no such cell.
    pub fn tier_of(&self, cell: usize) -> &Scalar {
        self.cells[cell].tier()
    }

    /// The phases as a cell of this plan runs them, in order, with stages taken apart.
    ///
    /// The first ramp of a phase begins with the load of the phase before where that is of
    /// the same kind, else with none.
    pub fn phases(&self, cell: &Cell) -> Vec<CellPhase> {
        Self::taken_apart(&self.stages, &cell.loads)
    }

    /// Stages with their loads as ramps and holds.
    pub(super) fn taken_apart(stages: &[StageShape], loads: &[FixedLoad]) -> Vec<CellPhase> {
        let mut phases = Vec::with_capacity(stages.len());
        let mut before: Option<(bool, f64)> = None;
        for (stage, load) in stages.iter().zip(loads) {
            let is_open = matches!(stage.pacing, Pacing::Open { .. });
            let from = before.filter(|(was_open, _)| *was_open == is_open);
            before = Some((is_open, load.number));
            let hold = CellPhase {
                name: stage.name.clone(),
                is_first: stage.is_first && stage.ramp.is_zero(),
                is_of_window: stage.answers.is_some(),
                ramp_from: None,
                step: stage.step,
                answers: stage.answers,
                model: match stage.pacing {
                    Pacing::Closed => CellLoad::Closed {
                        // `expand` has rounded and checked it.
                        users: load.number as u32,
                    },
                    Pacing::Script { is_open } => CellLoad::Script { is_open },
                    Pacing::Open {
                        arrivals,
                        max_in_flight,
                    } => CellLoad::Open {
                        requests_per_second: load.number,
                        arrivals,
                        max_in_flight,
                    },
                },
                beside: stage.beside.clone(),
                duration: stage.hold,
                load_tied_to_knob: load.is_tied,
            };
            if !stage.ramp.is_zero() {
                phases.push(CellPhase {
                    is_first: stage.is_first,
                    ramp_from: Some(from.map_or(0.0, |(_, number)| number)),
                    answers: None,
                    duration: stage.ramp,
                    ..hold.clone()
                });
            }
            if !stage.hold.is_zero() {
                phases.push(hold);
            }
        }
        phases
    }

    /// Keeps the cells for which an expression over axes and derived values is true.
    ///
    /// The others are not planned. Their loads and the order of the rest stay as
    /// they were, so that a part of a sweep can be compared with the whole;
    /// trials are numbered anew. Returns how many cells are left.
    ///
    /// **Errors**: the expression is wrong, is not true or false in every cell,
    /// or selects none; the plan is then as it was. `name` stands for the
    /// expression's file, as `--only`.
    pub fn retain(&mut self, name: &str, expression: &str) -> Result<usize, Problems> {
        let name = Path::new(name);
        let known = Known {
            names: &self.names.all,
            visible: self.names.all.len(),
            is_load: false,
        };
        let parsed =
            Expression::parse(expression, &Content::Plain { name }, known).map_err(Problems)?;
        let mut kept = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
            let values: Vec<Value> = cell.values.iter().map(Value::from).collect();
            let problem = |location: Location, message: String| {
                let message = format!("{message}, in cell {}", cell.id());
                Problems(vec![Problem::new(location, message)])
            };
            match parsed.evaluate(&values, &[]) {
                Ok(Value::Boolean(is_selected)) => kept.push(is_selected),
                Ok(other) => {
                    let message = format!("the selection gives {other}, not true or false");
                    return Err(problem(parsed.location().clone(), message));
                }
                Err(failure) => return Err(problem(failure.location, failure.message)),
            }
        }
        let n_kept = kept.iter().filter(|is_selected| **is_selected).count();
        if n_kept == 0 {
            let message = format!("`{expression}` selects none of {} cells", self.cells.len());
            return Err(Problems(vec![Problem::new(
                parsed.location().clone(),
                message,
            )]));
        }
        self.keep_only(&kept);
        Ok(n_kept)
    }

    /// Counts what the clones of golden volumes take in the estimate.
    pub fn count_clones(&mut self, cost: ClonesCost) {
        self.estimate = self.without_clones();
        self.state.clones = Some(cost);
        self.estimate.bytes = self.estimate.bytes.saturating_add(cost.bytes);
        let duration = cost.duration.unwrap_or_default();
        self.estimate.duration = self.estimate.duration.saturating_add(duration);
    }

    /// What it may take without cloning.
    pub fn without_clones(&self) -> Estimate {
        self.trial_cost.times(self.trials.len())
    }

    /// Keeps one cell, by its index; trials are numbered anew.
    pub fn keep_cell(&mut self, cell: usize) {
        let kept: Vec<bool> = (0..self.cells.len()).map(|index| index == cell).collect();
        self.keep_only(&kept);
    }

    fn keep_only(&mut self, kept: &[bool]) {
        let mut next = 0;
        let moved: Vec<Option<usize>> = kept
            .iter()
            .map(|is_selected| {
                is_selected.then(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        let mut selected = kept.iter();
        self.cells
            .retain(|_| *selected.next().expect("one for each cell"));
        self.trials = self
            .trials
            .iter()
            .filter_map(|trial| moved[trial.cell].map(|cell| PlannedTrial { cell, ..*trial }))
            .zip(1..)
            .map(|(trial, index)| PlannedTrial { index, ..trial })
            .collect();
        self.estimate = self.without_clones();
        self.state.clones = None;
    }
}
