//! `up` and `down`: one cell launched and kept up, to look around in it.

use std::sync::Arc;

use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::images;
use super::inputs::Inputs;
use super::interrupt::Interrupts;
use super::isolation::isolate;
use super::jobs::{Choices, sweep_plan};
use super::plan::refuse_unsupported;
use super::reachable::refuse_unreachable;
use crate::cli::UpArgs;
use crate::engine::{
    DockerEngine, Engine, LABEL_RUN, Launch, Launched, Lease, Owner, TrialTag, Unhealthy, launch,
    remove_run, watch_exits,
};
use crate::matrix::{Plan, State};
use crate::problem::nearest;
use crate::report::Printer;
use crate::sweep::{SweepPlan, Wanted, await_remote};

/// Run ids of `up` begin so; no sweep's does, since sweeps are named by letters and a date.
const UP_PREFIX: &str = "up--";

/// Launches one cell, prints where it is, waits or comes back.
pub(super) async fn up(
    arguments: &UpArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let mut inputs = one_cell(arguments, environment)?;
    let stacks = inputs.resolve_all()?;
    refuse_unsupported(&stacks)?;
    let engine = Arc::new(DockerEngine::find(environment.variables()).await?);
    let facts = engine.describe().await?;
    refuse_unreachable(&inputs, &facts)?;
    let id = run_id(environment);
    let mut isolated = isolate(&inputs, &stacks, &facts, arguments.cpu_mode)?;
    let choices = Choices::default();
    let mut plan = sweep_plan(&mut inputs, &isolated, id.clone(), facts.cpus, choices).await?;
    images::prepare(
        &*engine,
        &mut isolated.stacks,
        &mut plan,
        &mut inputs.secrets,
        environment,
        printer,
    )
    .await?;
    let stack = &isolated.stacks[0];

    let mut interrupts = Interrupts::listen()?;
    let owner = Owner::current().map_err(AppError::environment)?;
    let tag = TrialTag {
        run_id: id,
        trial: "1".to_owned(),
        cell_id: arguments.cell.clone(),
        owner,
    };
    let lease = Lease::take(Arc::clone(&engine), tag);
    let wanted = Wanted::of(&plan);
    let request = Launch {
        asked: &plan.jobs[0].asked,
        stack,
        subject: &plan.subject,
        target: wanted.target.as_ref(),
        ready: wanted.ready.as_ref(),
        deadline: plan.settings.ready_timeout,
        facts: &facts,
        state: None,
    };
    if inputs.sweep.trials.state != State::Fresh {
        printer.note("its volumes are new: `up` clones and keeps none");
    }
    printer.note(&format!("launching {}", arguments.cell));
    for line in &plan.cpu_lines {
        printer.note(&format!("  {line}"));
    }
    let launching = bring_up(&lease, &request, &plan, &wanted);
    let launched = tokio::select! {
        launched = launching => launched,
        () = interrupts.wait() => {
            release(lease, printer).await;
            return Ok(Outcome::Interrupted);
        }
    };
    let launched = match launched {
        Ok(launched) => launched,
        Err(error) => {
            release(lease, printer).await;
            return Err(error);
        }
    };
    let scheme = inputs.wire_to(&inputs.sweep.load.target.value).scheme();
    describe(&launched, scheme, printer);
    if arguments.detach {
        lease.keep();
        printer.note("it stays up until `nightsweep down`");
        return Ok(Outcome::Done);
    }
    printer.note("Ctrl-C takes it down (so does `nightsweep down` from another terminal)");
    tokio::select! {
        () = interrupts.wait() => {}
        () = until_one_ends(&engine, &launched, printer) => {}
    }
    release(lease, printer).await;
    Ok(Outcome::Done)
}

fn run_id(environment: &Environment) -> String {
    format!(
        "{UP_PREFIX}{:04x}{:04x}",
        environment.now().as_second() & 0xffff,
        environment.random_id()
    )
}

/// The sweep with no cell but the one that was asked for.
fn one_cell(arguments: &UpArgs, environment: &Environment) -> Result<Inputs, AppError> {
    let mut inputs = Inputs::read(&arguments.matrix, None, environment)?;
    let cell = inputs
        .plan
        .cell_index(&arguments.cell)
        .ok_or_else(|| unknown_cell(&inputs.plan, &arguments.cell))?;
    inputs.plan.keep_cell(cell);
    Ok(inputs)
}

/// Launches, and waits for a target outside the stack, too.
async fn bring_up(
    lease: &Lease<DockerEngine>,
    request: &Launch<'_>,
    plan: &SweepPlan,
    wanted: &Wanted,
) -> Result<Launched, AppError> {
    let launched = launch(lease, request).await.map_err(|error| {
        let hint = error.hint();
        let error = AppError::environment(error);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })?;
    await_remote(&**lease.engine(), plan, wanted)
        .await
        .map_err(|reason| AppError::environment(anyhow::anyhow!(reason.words)))?;
    Ok(launched)
}

async fn until_one_ends(engine: &DockerEngine, launched: &Launched, printer: Printer) {
    if let Ok(exit) = watch_exits(engine, launched, &Unhealthy::default()).await {
        let code = exit.exit_code.map_or_else(
            || "without a code".to_owned(),
            |code| format!("with code {code}"),
        );
        let memory = if exit.oom_killed {
            ", killed for memory"
        } else {
            ""
        };
        printer.note(&format!("service `{}` ended {code}{memory}", exit.name));
    }
}

/// Takes down whatever `up` launched and left, running or not.
pub(super) async fn down(environment: &Environment, printer: Printer) -> Result<Outcome, AppError> {
    let engine = DockerEngine::find(environment.variables()).await?;
    let found = engine.list_ours(&[LABEL_RUN.to_owned()]).await?;
    let mut runs: Vec<String> = found
        .iter()
        .filter_map(|thing| thing.labels.get(LABEL_RUN))
        .filter(|run| is_up(run))
        .cloned()
        .collect();
    runs.sort();
    runs.dedup();
    if runs.is_empty() {
        printer.note("nothing is up");
        return Ok(Outcome::Done);
    }
    for run in runs {
        let report = remove_run(&engine, &run).await;
        if !report.is_complete() {
            return Err(
                AppError::environment(anyhow::anyhow!("{run} could not be removed whole"))
                    .hint(format!("`nightsweep clean --run {run}` says what is left")),
            );
        }
        printer.note(&format!("took down {run}: {} things", report.removed.len()));
    }
    Ok(Outcome::Done)
}

/// Whether a run id is one of ours: the prefix and eight hexadecimal digits.
fn is_up(run: &str) -> bool {
    run.strip_prefix(UP_PREFIX)
        .is_some_and(|rest| rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

async fn release(lease: Lease<DockerEngine>, printer: Printer) {
    let run = lease.tag().run_id.clone();
    if !lease.release().await.is_complete() {
        printer.note(&format!(
            "warning: something is left; `nightsweep clean --run {run}` removes it"
        ));
    }
}

fn describe(launched: &Launched, scheme: &str, printer: Printer) {
    for target in &launched.targets {
        printer.data(&format!("{scheme}://{target}"));
    }
    for warning in &launched.warnings {
        printer.note(&format!("warning: {warning}"));
    }
    printer.note(&format!(
        "ready after {:.1} s",
        launched.ready_after.as_secs_f64()
    ));
    for replica in launched.replicas() {
        let short: String = replica.id.0.chars().take(12).collect();
        printer.note(&format!("  {}  {short}", replica.name()));
    }
}

/// There is no such cell; the nearest one is named.
pub(super) fn unknown_cell(plan: &Plan, cell: &str) -> AppError {
    let ids = plan.cells.iter().map(|cell| cell.id().as_str());
    let hint = match nearest(cell, ids) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`nightsweep plan` lists the cells".to_owned(),
    };
    AppError::input(anyhow::anyhow!("the plan has no cell `{cell}`")).hint(hint)
}
