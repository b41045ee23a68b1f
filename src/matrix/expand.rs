//! Axes to cells: values, constraints, collapsing, loads.
//!
//! Combinations come in nested order, the first axis slowest. One pass over
//! them computes values, drops what breaks a constraint and joins what is the
//! same configuration; loads follow when the tiers are known. Every failure of
//! an expression is told once, with the first cell it happens in.
//!
//! Next: `plan`, which orders the cells into trials.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::cell::{Cell, CellId, Dropped, Names, escape};
use super::expression::{Failure, Value};
use super::failures::Failures;
use super::loads::fix_loads;
use super::sweep::Sweep;
use crate::problem::{Location, Problem, Problems};
use crate::scalar::Scalar;

/// The cells of a sweep.
pub(super) struct Expansion {
    pub(super) names: Arc<Names>,
    pub(super) cells: Vec<Cell>,
    pub(super) dropped: Vec<Dropped>,
    /// Tiers whose every combination was dropped, in order of appearance.
    pub(super) empty_tiers: Vec<String>,
}

/// Expands a sweep whose names `reached` are used by stack or workload.
pub(super) fn expand(sweep: &Sweep, reached: &BTreeSet<String>) -> Result<Expansion, Problems> {
    let unreached = unreached_axes(sweep, reached);
    if !unreached.is_empty() {
        return Err(Problems(unreached));
    }
    let mut walk = Walk::new(sweep, reached);
    walk.all_combinations();
    walk.loads();
    walk.costs();
    walk.finish()
}

/// Slots whose values make a configuration: those that stack or load read.
fn configuration_slots(sweep: &Sweep, reached: &BTreeSet<String>) -> BTreeSet<usize> {
    let by_name = sweep
        .names
        .iter()
        .enumerate()
        .filter(|(_, name)| reached.contains(*name))
        .map(|(slot, _)| slot);
    let by_load = sweep
        .stages()
        .filter_map(|(_, stage)| stage.load.amount()?.expression())
        .flat_map(|load| load.slots().iter().copied());
    by_name.chain(by_load).collect()
}

/// Slots that reach stack or load, directly or through a derived value.
pub(super) fn reaching_slots(sweep: &Sweep, reached: &BTreeSet<String>) -> BTreeSet<usize> {
    let mut reaching = configuration_slots(sweep, reached);
    // The largest value of a tier is a load as well, though the same for all its cells.
    reaching.extend(
        sweep
            .stages()
            .filter_map(|(_, stage)| stage.load.amount()?.expression())
            .flat_map(|load| load.tier_max_slots().iter().copied()),
    );
    // Derived values read earlier ones only, so one pass from the last is enough.
    for (index, derived) in sweep.derived.iter().enumerate().rev() {
        if reaching.contains(&(sweep.axes.len() + index)) {
            reaching.extend(derived.expression.slots());
        }
    }
    reaching
}

fn unreached_axes(sweep: &Sweep, reached: &BTreeSet<String>) -> Vec<Problem> {
    let reaching = reaching_slots(sweep, reached);
    sweep
        .axes
        .iter()
        .enumerate()
        .filter(|(slot, _)| !reaching.contains(slot))
        .map(|(_, axis)| {
            Problem::new(
                axis.location.clone(),
                format!("axis `{}` reaches neither the stack nor the load", axis.name),
            )
            .with_hint(format!(
                "use ${{{0}}}, or a value derived from it, in a Compose file, [override], the workload or a phase",
                axis.name
            ))
        })
        .collect()
}

/// What is known of a tier while combinations are walked.
struct Tier {
    name: String,
    has_cell: bool,
    /// By slot, for slots under `tier_max`; not-a-number once a value was none.
    max: Vec<f64>,
}

/// The state of one expansion.
struct Walk<'a> {
    sweep: &'a Sweep,
    names: Arc<Names>,
    constraint_names: Vec<Arc<str>>,
    /// Levels by axis, as values to compute with and as ids write them.
    levels: Vec<Vec<(Value, String)>>,
    configuration: Vec<usize>,
    /// Whether two combinations can be the same configuration at all.
    can_collapse: bool,
    tier_max_slots: BTreeSet<usize>,
    tiers: Vec<Tier>,
    tier_by_name: HashMap<String, usize>,
    cells: Vec<Cell>,
    /// Tier of each cell.
    cell_tiers: Vec<usize>,
    cell_by_configuration: HashMap<Box<[u8]>, usize>,
    ids: HashSet<CellId>,
    dropped: Vec<Dropped>,
    /// How many combinations each constraint drops.
    n_broken: Vec<usize>,
    failures: Failures,
}

impl<'a> Walk<'a> {
    fn new(sweep: &'a Sweep, reached: &BTreeSet<String>) -> Self {
        let configuration = configuration_slots(sweep, reached);
        let n_axes = sweep.axes.len();
        Self {
            sweep,
            names: Arc::new(Names {
                all: sweep.names.clone(),
                n_axes,
                tier: sweep.tier,
            }),
            constraint_names: sweep
                .constraints
                .iter()
                .map(|constraint| constraint.name.as_str().into())
                .collect(),
            levels: sweep
                .axes
                .iter()
                .map(|axis| {
                    let both = |level: &Scalar| (Value::from(level), escape(level));
                    axis.levels.iter().map(both).collect()
                })
                .collect(),
            can_collapse: (0..n_axes).any(|axis| !configuration.contains(&axis)),
            configuration: configuration.into_iter().collect(),
            tier_max_slots: sweep
                .stages()
                .filter_map(|(_, stage)| stage.load.amount()?.expression())
                .flat_map(|load| load.tier_max_slots().iter().copied())
                .collect(),
            tiers: Vec::new(),
            tier_by_name: HashMap::new(),
            cells: Vec::new(),
            cell_tiers: Vec::new(),
            cell_by_configuration: HashMap::new(),
            ids: HashSet::new(),
            dropped: Vec::new(),
            n_broken: vec![0; sweep.constraints.len()],
            failures: Failures::default(),
        }
    }

    fn all_combinations(&mut self) {
        let mut chosen = vec![0_usize; self.levels.len()];
        let mut values: Vec<Value> = vec![Value::Boolean(false); self.sweep.names.len()];
        for (value, levels) in values.iter_mut().zip(&self.levels) {
            *value = levels[0].0.clone();
        }
        loop {
            self.combination(&chosen, &mut values);
            // The next combination: the last axis that has another level moves on.
            let Some(axis) = (0..chosen.len())
                .rev()
                .find(|axis| chosen[*axis] + 1 < self.levels[*axis].len())
            else {
                return;
            };
            chosen[axis] += 1;
            chosen[axis + 1..].fill(0);
            for moved in axis..chosen.len() {
                values[moved] = self.levels[moved][chosen[moved]].0.clone();
            }
        }
    }

    fn id(&self, chosen: &[usize]) -> CellId {
        id(self.sweep, &self.levels, chosen)
    }

    fn axis_levels(&self, chosen: &[usize]) -> Box<[Scalar]> {
        self.sweep
            .axes
            .iter()
            .zip(chosen)
            .map(|(axis, level)| axis.levels[*level].clone())
            .collect()
    }

    fn combination(&mut self, chosen: &[usize], values: &mut [Value]) {
        let n_axes = chosen.len();
        // A derived value may have no value in a cell that a constraint drops
        // anyway, so its failure counts only if the cell stays.
        let mut without: Vec<usize> = Vec::new();
        let mut failed: Vec<Failure> = Vec::new();
        for (index, derived) in self.sweep.derived.iter().enumerate() {
            let slot = n_axes + index;
            if reads_any(derived.expression.slots(), &without) {
                without.push(slot);
                continue;
            }
            match derived.expression.evaluate(values, &[]) {
                Ok(value) => values[slot] = value,
                Err(failure) => {
                    without.push(slot);
                    failed.push(failure);
                }
            }
        }
        let mut broken = Vec::new();
        for (index, constraint) in self.sweep.constraints.iter().enumerate() {
            if reads_any(constraint.expression.slots(), &without) {
                continue;
            }
            match constraint.expression.evaluate(values, &[]) {
                Ok(Value::Boolean(true)) => {}
                Ok(Value::Boolean(false)) => broken.push(index),
                Ok(other) => failed.push(Failure {
                    location: constraint.expression.location().clone(),
                    message: format!(
                        "constraint `{}` gives {other}, not true or false",
                        constraint.name
                    ),
                }),
                Err(failure) => failed.push(failure),
            }
        }
        let tier = (!without.contains(&self.sweep.tier))
            .then(|| self.tier(values[self.sweep.tier].to_scalar().to_string()));
        if !broken.is_empty() {
            self.drop_combination(chosen, &broken);
            return;
        }
        for failure in failed {
            let (sweep, levels) = (self.sweep, &self.levels);
            self.failures.add(
                &failure.location,
                || failure.message,
                || id(sweep, levels, chosen),
            );
        }
        if let (Some(tier), true) = (tier, without.is_empty()) {
            self.keep(chosen, values, tier);
        }
    }

    fn drop_combination(&mut self, chosen: &[usize], broken: &[usize]) {
        for index in broken {
            self.n_broken[*index] += 1;
        }
        self.dropped.push(Dropped {
            names: Arc::clone(&self.names),
            levels: self.axis_levels(chosen),
            constraints: broken
                .iter()
                .map(|index| Arc::clone(&self.constraint_names[*index]))
                .collect(),
        });
    }

    fn tier(&mut self, name: String) -> usize {
        if let Some(index) = self.tier_by_name.get(&name) {
            return *index;
        }
        let index = self.tiers.len();
        self.tiers.push(Tier {
            name: name.clone(),
            has_cell: false,
            max: if self.tier_max_slots.is_empty() {
                Vec::new()
            } else {
                vec![f64::NEG_INFINITY; self.sweep.names.len()]
            },
        });
        self.tier_by_name.insert(name, index);
        index
    }

    fn keep(&mut self, chosen: &[usize], values: &[Value], tier: usize) {
        let about = &mut self.tiers[tier];
        about.has_cell = true;
        for slot in &self.tier_max_slots {
            about.max[*slot] = match &values[*slot] {
                // `f64::max` would forget an earlier not-a-number.
                Value::Number(number) if !about.max[*slot].is_nan() => {
                    about.max[*slot].max(*number)
                }
                _ => f64::NAN,
            };
        }
        if self.can_collapse {
            let key = configuration_key(tier, &self.configuration, values);
            if let Some(first) = self.cell_by_configuration.get(&key) {
                let levels = self.axis_levels(chosen);
                self.cells[*first].aliases.push(levels);
                return;
            }
            self.cell_by_configuration.insert(key, self.cells.len());
        }
        let id = self.id(chosen);
        if !self.ids.insert(id.clone()) {
            self.failures.add(
                &self.sweep.axes[0].location,
                || "two cells have the same id: shorten the names or levels of the axes".to_owned(),
                || id.clone(),
            );
        }
        let mut all = self.axis_levels(chosen).into_vec();
        all.extend(values[chosen.len()..].iter().map(Value::to_scalar));
        self.cells.push(Cell {
            id,
            names: Arc::clone(&self.names),
            values: all.into(),
            aliases: Vec::new(),
            loads: Box::new([]),
        });
        self.cell_tiers.push(tier);
    }

    /// Fixes the load of every phase in every cell.
    fn loads(&mut self) {
        let tier_max: Vec<Vec<Option<f64>>> = self
            .tiers
            .iter()
            .map(|tier| {
                let number = |max: &f64| Some(*max).filter(|max| max.is_finite());
                tier.max.iter().map(number).collect()
            })
            .collect();
        fix_loads(
            self.sweep,
            &mut self.cells,
            &self.cell_tiers,
            &tier_max,
            &mut self.failures,
        );
    }

    /// What is cheaper must be a number in every cell.
    fn costs(&mut self) {
        for cost in &self.sweep.cost {
            let Some(slot) = self.names.slot(&cost.value) else {
                continue;
            };
            for cell in &self.cells {
                let value = &cell.values[slot];
                if value.as_number().is_none() {
                    self.failures.add(
                        &cost.location,
                        || {
                            format!(
                                "`order` in [cost] names `{}`, which is {} and no number",
                                cost.value,
                                Value::from(value)
                            )
                        },
                        || cell.id.clone(),
                    );
                }
            }
        }
    }

    fn finish(self) -> Result<Expansion, Problems> {
        let mut problems = self.failures.into_problems();
        if problems.is_empty() && self.cells.is_empty() {
            problems.push(nothing_left(self.sweep, &self.n_broken, self.dropped.len()));
        }
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
        Ok(Expansion {
            names: self.names,
            cells: self.cells,
            dropped: self.dropped,
            empty_tiers: self
                .tiers
                .into_iter()
                .filter(|tier| !tier.has_cell)
                .map(|tier| tier.name)
                .collect(),
        })
    }
}

fn id(sweep: &Sweep, levels: &[Vec<(Value, String)>], chosen: &[usize]) -> CellId {
    CellId::of(
        sweep
            .axes
            .iter()
            .zip(levels.iter().zip(chosen))
            .map(|(axis, (levels, level))| (axis.name.as_str(), levels[*level].1.as_str())),
    )
}

fn reads_any(slots: &BTreeSet<usize>, without: &[usize]) -> bool {
    without.iter().any(|slot| slots.contains(slot))
}

/// Bytes that are equal for equal configurations of one tier, and only for them.
fn configuration_key(tier: usize, slots: &[usize], values: &[Value]) -> Box<[u8]> {
    let mut key = Vec::with_capacity(8 + slots.len() * 9);
    key.extend_from_slice(&tier.to_le_bytes());
    for slot in slots {
        match &values[*slot] {
            Value::Number(number) => {
                key.push(0);
                // Adding zero makes minus zero plus zero, which is written the same.
                key.extend_from_slice(&(number + 0.0).to_bits().to_le_bytes());
            }
            Value::Boolean(truth) => key.push(1 + u8::from(*truth)),
            Value::Text(text) => {
                key.push(3);
                key.extend_from_slice(&text.len().to_le_bytes());
                key.extend_from_slice(text.as_bytes());
            }
        }
    }
    key.into()
}

fn nothing_left(sweep: &Sweep, n_broken: &[usize], n_combinations: usize) -> Problem {
    let alone = sweep
        .constraints
        .iter()
        .zip(n_broken)
        .find(|(_, n_broken)| **n_broken == n_combinations);
    if let Some((constraint, _)) = alone {
        return Problem::new(
            constraint.location.clone(),
            format!(
                "constraint `{}` drops all {n_combinations} combinations: no cell is left",
                constraint.name
            ),
        );
    }
    let each = sweep
        .constraints
        .iter()
        .zip(n_broken)
        .map(|(constraint, n_broken)| format!("{} {n_broken}", constraint.name))
        .collect::<Vec<_>>()
        .join(", ");
    let place = sweep.constraints.first().map_or_else(
        || Location::start_of(&sweep.file),
        |first| first.location.clone(),
    );
    Problem::new(
        place,
        format!("the constraints together drop all {n_combinations} combinations: no cell is left"),
    )
    .with_hint(format!("dropped by each: {each}"))
}
