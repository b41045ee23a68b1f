//! Whose CPUs are whose in a sweep: the plan, and the stacks with it written in.

use std::sync::Arc;

use indexmap::IndexMap;

use super::error::AppError;
use super::inputs::Inputs;
use super::jobs::default_load_threads;
use crate::cpus::CpuMode;
use crate::engine::{CpuPlan, CpuProblem, CpuRequest, HostFacts, TierStacks, Topology, plan_cpus};
use crate::problem::{Problem, Problems};
use crate::stack::Stack;

/// Up to so many cells are all resolved to plan without an engine; of more, the first of
/// each tier, whose limits are nearly always the tier's own.
const RESOLVED_CELLS: usize = 2_000;

/// The plan, and each cell's stack as it is launched.
#[derive(Debug)]
pub(super) struct Isolated {
    pub(super) plan: CpuPlan,
    /// In the order of the cells.
    pub(super) stacks: Vec<Arc<Stack>>,
}

/// Plans the CPUs of all cells on the engine's host.
///
/// **Errors**: a `cpuset` mode that the limits or the engine do not allow.
pub(super) fn isolate(
    inputs: &Inputs,
    stacks: &[Arc<Stack>],
    facts: &HostFacts,
    mode: Option<CpuMode>,
) -> Result<Isolated, AppError> {
    let cells: Vec<(usize, Arc<Stack>)> = stacks.iter().cloned().enumerate().collect();
    let plan = plan_for(inputs, &cells, Some(facts), mode)?;
    let stacks = cells
        .iter()
        .map(|(cell, stack)| {
            let tier = inputs.plan.tier_of(*cell).to_string();
            Arc::new(plan.apply(&tier, stack))
        })
        .collect();
    Ok(Isolated { plan, stacks })
}

/// Plans the CPUs as they would be with an engine on this host; asks none.
///
/// **Errors**: as [`isolate`], and problems of the Compose files.
pub(super) fn plan_here(inputs: &mut Inputs, mode: Option<CpuMode>) -> Result<CpuPlan, AppError> {
    let n_cells = inputs.plan.cells.len();
    let mut seen = std::collections::BTreeSet::new();
    let mut cells = Vec::new();
    for cell in 0..n_cells {
        let is_first = seen.insert(inputs.plan.tier_of(cell).to_string());
        if is_first || n_cells <= RESOLVED_CELLS {
            cells.push((cell, Arc::new(inputs.resolve(cell)?)));
        }
    }
    plan_for(inputs, &cells, None, mode)
}

fn plan_for(
    inputs: &Inputs,
    cells: &[(usize, Arc<Stack>)],
    facts: Option<&HostFacts>,
    mode: Option<CpuMode>,
) -> Result<CpuPlan, AppError> {
    let mut tiers: IndexMap<String, Vec<&Stack>> = IndexMap::new();
    for (cell, stack) in cells {
        let tier = inputs.plan.tier_of(*cell).to_string();
        tiers.entry(tier).or_default().push(stack);
    }
    let sweep = &inputs.sweep;
    let in_file = sweep.host.cpu_mode.as_ref();
    let request = CpuRequest {
        topology: facts.map_or_else(|| Topology::of_this_host(None), Topology::of_engine),
        mode: mode.or(in_file.map(|mode| mode.value)).unwrap_or_default(),
        reserve_cpus: sweep.host.reserve_cpus,
        load_threads: sweep.load.threads.unwrap_or_else(default_load_threads),
        subject: &sweep.subject.value,
        has_cpusets: facts.is_none_or(|facts| facts.has_cpusets),
        tiers: tiers
            .into_iter()
            .map(|(tier, stacks)| TierStacks { tier, stacks })
            .collect(),
    };
    plan_cpus(&request).map_err(|problem| match problem {
        CpuProblem::NotHere { .. } => {
            let hint = problem.hint();
            AppError::environment(problem).hint(hint)
        }
        CpuProblem::Fraction { .. } | CpuProblem::NoLimit { .. } => {
            let location = match (mode, in_file) {
                (None, Some(in_file)) => &in_file.location,
                _ => &sweep.subject.location,
            };
            let hint = problem.hint();
            let problem = Problem::new(location.clone(), problem.to_string()).with_hint(hint);
            Problems(vec![problem]).into()
        }
    })
}
