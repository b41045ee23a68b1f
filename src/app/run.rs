//! `run`: the whole job.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::images;
use super::inputs::Inputs;
use super::interrupt::Interrupts;
use super::isolation::isolate;
use super::jobs::{Choices, sweep_plan};
use super::manifest::manifest;
use super::plan::{deduplicated, refuse_unsupported};
use super::reachable::refuse_unreachable;
use super::report::draw;
use super::self_test::{refuse_too_fast, self_test_json, test_generator};
use crate::cli::RunArgs;
use crate::cpus::CpuSet;
use crate::engine::{DockerEngine, Engine, HostFacts, Owner};
use crate::event::{Event, EventKind};
use crate::load::pin_all_threads;
use crate::report::{ConsoleReporter, JsonReporter, PlainReporter, Printer, Reporter};
use crate::results::{
    OperationsCsv, ProofsJsonl, RunFolder, RunsFolder, TrialColumns, TrialsCsv, run_id,
    write_manifest,
};
use crate::secret::Secrets;
use crate::stack::Stack;
use crate::sweep::{Sinks, SweepError, SweepPlan, SweepSummary, run as run_sweep};

/// After being asked twice to stop, rows must be written within this.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// Everything that is known before the first trial begins.
struct Prepared {
    inputs: Inputs,
    stacks: Vec<Arc<Stack>>,
    /// CPUs of the generator, where it has a place of its own.
    generator: Option<CpuSet>,
    engine: Arc<DockerEngine>,
    facts: HostFacts,
    owner: Owner,
    plan: SweepPlan,
    record: Value,
    sinks: Sinks,
}

/// Reads, checks the host, sweeps, draws.
pub(super) async fn run(
    arguments: &RunArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let mut interrupts = Interrupts::listen()?;
    let prepared = tokio::select! {
        biased;
        // Nothing has been created yet.
        () = interrupts.wait() => return Ok(Outcome::Interrupted),
        prepared = Box::pin(prepare(arguments, environment, printer)) => prepared?,
    };
    let folder = prepared.sinks.folder.clone();
    let mut reporter = reporter_of(arguments.json, printer);
    warn(
        &prepared.inputs,
        &prepared.stacks,
        environment,
        &mut *reporter,
    );
    let sweeping = sweep(
        prepared,
        environment,
        &mut *reporter,
        &mut interrupts,
        printer,
    );
    let Some(summary) = Box::pin(sweeping).await? else {
        return Ok(Outcome::Interrupted);
    };
    let outcome = outcome_of(&summary);
    match draw(&folder, printer, !arguments.json) {
        Ok(()) => Ok(outcome),
        Err(error) if outcome == Outcome::Done => Err(error),
        // How the sweep ended is the graver news.
        Err(error) => {
            printer.note(&error.text());
            Ok(outcome)
        }
    }
}

/// Reads the files, asks the engine, gets the images, makes the run's folder.
async fn prepare(
    arguments: &RunArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Prepared, AppError> {
    let mut inputs = Inputs::read(&arguments.matrix, arguments.only.as_deref(), environment)?;
    let stacks = inputs.resolve_all()?;
    refuse_unsupported(&stacks)?;
    let engine = Arc::new(DockerEngine::find(environment.variables()).await?);
    let facts = engine.describe().await?;
    refuse_unreachable(&inputs, &facts)?;
    let owner = Owner::current().map_err(AppError::environment)?;
    let id = run_id(
        &inputs.sweep.name,
        environment.now(),
        environment.random_id(),
    );
    let choices = Choices {
        fail_fast: arguments.fail_fast,
        skip_too_large: arguments.skip_too_large,
    };
    let mut isolated = isolate(&inputs, &stacks, &facts, arguments.cpu_mode)?;
    let mut plan = sweep_plan(&mut inputs, &isolated, id, facts.cpus, choices).await?;
    // A script's rates are k6's business.
    let tested = if inputs.workload.is_some() {
        let cpus = isolated.plan.generator.as_ref();
        let tested = test_generator(cpus).await?;
        let phases = plan.jobs.iter().flat_map(|job| &job.phases);
        let phases = phases.map(|phase| &phase.plan);
        let n_threads = plan.settings.load_threads;
        let warning = refuse_too_fast(tested.as_ref(), n_threads, cpus, phases)?;
        inputs.plan.warnings.extend(warning);
        tested
    } else {
        None
    };
    let images = images::prepare(
        &*engine,
        &mut isolated.stacks,
        &mut plan,
        &mut inputs.secrets,
        environment,
        printer,
    )
    .await?;

    let folder = RunsFolder::under(&arguments.out).create(&plan.run_id)?;
    let mut record = manifest(&inputs, &plan, &isolated, environment, &facts, &images);
    record["generator_self_test"] = self_test_json(tested.as_ref());
    write_manifest(&folder.manifest(), &record, &inputs.secrets)?;
    keep_inputs(&inputs, &folder, &arguments.matrix.matrix)?;
    let sinks = open_sinks(&inputs, &stacks, folder)?;
    Ok(Prepared {
        inputs,
        stacks: isolated.stacks,
        generator: isolated.plan.generator,
        engine,
        facts,
        owner,
        plan,
        record,
        sinks,
    })
}

/// Runs the trials; `None` when the user left without waiting for the end.
async fn sweep(
    prepared: Prepared,
    environment: &Environment,
    reporter: &mut dyn Reporter,
    interrupts: &mut Interrupts,
    printer: Printer,
) -> Result<Option<SweepSummary>, AppError> {
    let Prepared {
        engine,
        facts,
        owner,
        plan,
        mut record,
        mut sinks,
        generator,
        ..
    } = prepared;
    if let Some(cpus) = &generator {
        // The threads that write and wait stay off the subject's CPUs as well.
        pin_all_threads(cpus).map_err(|error| {
            AppError::environment(
                anyhow::Error::new(error).context(format!("keep nightsweep on CPUs {cpus}")),
            )
        })?;
    }
    let secrets = sinks.secrets.clone();
    let manifest_path = sinks.folder.manifest();
    let mut manifest_error = None;
    let mut emit = |event: Event| {
        if let EventKind::StateReady { .. } = &event.kind
            && let Some(goldens) = record["state"]["goldens"].as_array_mut()
        {
            goldens.push(json!(event.kind));
            manifest_error = write_manifest(&manifest_path, &record, &secrets).err();
        }
        if let EventKind::VersionsSeen {
            versions,
            idle_connect_ms,
        } = &event.kind
        {
            record["versions"] = json!(versions);
            record["idle_connect_ms"] = json!(idle_connect_ms);
            manifest_error = write_manifest(&manifest_path, &record, &secrets).err();
        }
        reporter.event(&event);
    };
    let asked = interrupts.asked();
    let clock = environment.clock();
    let host = (&facts, &owner);
    let trials = run_sweep(&engine, &plan, host, &mut sinks, clock, asked, &mut emit);
    let summary = Box::pin(until_done(trials, interrupts, &plan, printer)).await?;
    match manifest_error {
        Some(error) => Err(error.into()),
        None => Ok(summary),
    }
}

/// The sweep's end; `None` when the user left without waiting for it.
async fn until_done(
    sweep: impl Future<Output = Result<SweepSummary, SweepError>>,
    interrupts: &mut Interrupts,
    plan: &SweepPlan,
    printer: Printer,
) -> Result<Option<SweepSummary>, AppError> {
    let mut sweep = std::pin::pin!(sweep);
    let mut leave_by = std::pin::pin!(tokio::time::sleep(Duration::MAX));
    let mut n_asked = 0;
    loop {
        tokio::select! {
            done = &mut sweep => return done.map(Some).map_err(results_lost),
            () = interrupts.wait() => {
                n_asked += 1;
                printer.clear_progress();
                match n_asked {
                    1 => printer.note("interrupted: tearing the trial down; once more leaves at once"),
                    2 => {
                        printer.note(&format!(
                            "leaving; `nightsweep clean --run {}` removes what is still there",
                            plan.run_id
                        ));
                        leave_by.as_mut().reset(tokio::time::Instant::now() + LEAVE_LIMIT);
                    }
                    _ => return Ok(None),
                }
            }
            // Rows are written in a moment; what hangs is not waited for.
            () = &mut leave_by => return Ok(None),
        }
    }
}

fn results_lost(error: SweepError) -> AppError {
    let SweepError::Results { source, .. } = &error;
    let hint = source.hint();
    let error = AppError::environment(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn outcome_of(summary: &SweepSummary) -> Outcome {
    if summary.interrupted {
        Outcome::Interrupted
    } else if summary.engine_lost {
        Outcome::EngineLost
    } else if summary.failed > 0 || summary.lost > 0 || summary.ended_early.is_some() {
        Outcome::SomeFailed
    } else {
        Outcome::Done
    }
}

fn open_sinks(
    inputs: &Inputs,
    stacks: &[Arc<Stack>],
    folder: RunFolder,
) -> Result<Sinks, AppError> {
    let services = stacks
        .iter()
        .flat_map(|stack| stack.services.keys().cloned())
        .collect();
    let columns = TrialColumns {
        axes: inputs
            .sweep
            .axes
            .iter()
            .map(|axis| axis.name.clone())
            .collect(),
        variables: inputs
            .sweep
            .derived
            .iter()
            .map(|derived| derived.name.clone())
            .collect(),
        services: deduplicated(services),
    };
    Ok(Sinks {
        trials: TrialsCsv::open(&folder.trials_csv(), columns)?,
        operations: OperationsCsv::open(&folder.operations_csv())?,
        proofs: ProofsJsonl::open(&folder.proofs())?,
        secrets: inputs.secrets.clone(),
        folder,
    })
}

/// The files as they were read, secrets taken out.
fn keep_inputs(inputs: &Inputs, folder: &RunFolder, matrix: &Path) -> Result<(), AppError> {
    let secrets: &Secrets = &inputs.secrets;
    folder.write_input(matrix, inputs.matrix_text.as_bytes(), secrets)?;
    for (path, text) in inputs.compose.texts() {
        folder.write_input(path, text.as_bytes(), secrets)?;
    }
    for (path, bytes) in inputs.workload_bytes.iter().chain(&inputs.seed_bytes) {
        folder.write_input(path, bytes, secrets)?;
    }
    Ok(())
}

fn reporter_of(is_json: bool, printer: Printer) -> Box<dyn Reporter> {
    if is_json {
        Box::new(JsonReporter::new(printer))
    } else if printer.is_interactive() {
        Box::new(ConsoleReporter::new(printer))
    } else {
        Box::new(PlainReporter::new(printer))
    }
}

fn warn(
    inputs: &Inputs,
    stacks: &[Arc<Stack>],
    environment: &Environment,
    reporter: &mut dyn Reporter,
) {
    let mut warnings: Vec<String> = inputs.plan.warnings.clone();
    warnings.extend(stacks.iter().flat_map(|stack| stack.warnings.clone()));
    let clock = environment.clock();
    for text in deduplicated(warnings) {
        let text = inputs.secrets.redact(&text);
        reporter.event(&Event {
            at: clock.now_text(),
            elapsed: clock.elapsed(),
            kind: EventKind::Warned { text },
        });
    }
}
