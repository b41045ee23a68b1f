//! `check` and `plan`: reading without starting anything.

use std::sync::Arc;
use std::time::Duration;

use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::inputs::Inputs;
use super::isolation::plan_here;
use super::state::state_plan;
use crate::cli::{CheckArgs, PlanArgs};
use crate::engine::{DockerEngine, Unsupported, check_builds, check_stack};
use crate::matrix::State;
use crate::report::{Printer, plan_text};
use crate::stack::Stack;
use crate::sweep::known_goldens;

/// Reads everything, resolves every cell, reports every problem.
pub(super) fn check(
    arguments: &CheckArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let mut inputs = Inputs::read(&arguments.matrix, None, environment)?;
    let stacks = inputs.resolve_all()?;
    refuse_unsupported(&stacks)?;
    plan_here(&mut inputs, None)?;
    let mut warnings: Vec<String> = inputs.plan.warnings.clone();
    warnings.extend(stacks.iter().flat_map(|stack| stack.warnings.clone()));
    for warning in deduplicated(warnings) {
        printer.note(&format!("warning: {}", inputs.secrets.redact(&warning)));
    }
    let services = stacks.first().map_or(0, |stack| stack.services.len());
    printer.data(&format!(
        "{}: {}, {}, {} a journey, no problems",
        arguments.matrix.matrix.display(),
        counted(inputs.plan.cells.len(), "cell"),
        counted(services, "service"),
        counted(inputs.workload.requests_per_journey(), "request"),
    ));
    Ok(Outcome::Done)
}

/// Longest wait for an engine that may know golden volumes; `plan` does well without.
const ENGINE_PATIENCE: Duration = Duration::from_secs(2);

/// Size of the golden volumes of a plan, where all of them are there and an engine says so.
async fn golden_bytes(inputs: &mut Inputs, environment: &Environment) -> Option<u64> {
    if inputs.sweep.trials.state != State::Golden {
        return None;
    }
    let stacks = inputs.resolve_all().ok()?;
    let (state, _) = state_plan(inputs, &stacks).await.ok()?;
    let engine = DockerEngine::connect(environment.variable("DOCKER_HOST"))
        .await
        .ok()?;
    let known = known_goldens(&engine, &state).await.ok()?;
    // Of several, trials get the one or the other: the largest is the safe word.
    let sizes: Option<Vec<u64>> = known
        .into_iter()
        .map(|golden| golden.map(|golden| golden.facts.bytes()))
        .collect();
    sizes?.into_iter().max()
}

/// Shows what `run` would do.
pub(super) async fn plan(
    arguments: &PlanArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let mut inputs = Inputs::read(&arguments.matrix, arguments.only.as_deref(), environment)?;
    let cpus = plan_here(&mut inputs, arguments.cpu_mode)?;
    let tier = inputs.sweep.tier().to_owned();
    inputs.plan.warnings.extend(cpus.warnings(&tier));
    let asked = golden_bytes(&mut inputs, environment);
    let bytes = tokio::time::timeout(ENGINE_PATIENCE, asked).await;
    inputs.plan.state.golden_bytes = bytes.ok().flatten();
    if arguments.json {
        let mut out = Vec::new();
        inputs
            .plan
            .write_json(&mut out, &cpus)
            .map_err(AppError::bug)?;
        printer.data(String::from_utf8_lossy(&out).trim_end());
        return Ok(Outcome::Done);
    }
    let stack = inputs.resolve(0)?;
    let started: Vec<String> = stack.services.keys().cloned().collect();
    printer.data(&plan_text(
        &inputs.plan,
        &inputs.sweep,
        &started,
        &stack.not_started,
        &cpus.lines(&tier),
    ));
    Ok(Outcome::Done)
}

/// Refuses what the engine cannot launch, and builds that cannot be read, before anything is started.
///
/// **Errors**: every such key of any cell, each once.
pub(super) fn refuse_unsupported(stacks: &[Arc<Stack>]) -> Result<(), AppError> {
    let found = stacks.iter().filter_map(|stack| check_stack(stack).err());
    let mut lines: Vec<String> = found.flat_map(|unsupported| unsupported.0).collect();
    lines.extend(check_builds(stacks));
    let lines = deduplicated(lines);
    if lines.is_empty() {
        Ok(())
    } else {
        Err(AppError::input(Unsupported(lines)))
    }
}

/// `1 cell`, `2 cells`.
fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Each line once, in the order of its first appearance.
pub(super) fn deduplicated(lines: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    lines
        .into_iter()
        .filter(|line| seen.insert(line.clone()))
        .collect()
}
