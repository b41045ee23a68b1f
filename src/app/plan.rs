//! `check` and `plan`: reading without starting anything.

use std::sync::Arc;
use std::time::Duration;

use super::contents::size_of;
use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::inputs::Inputs;
use super::isolation::plan_here;
use super::journeys::journeys_text;
use super::state::state_plan;
use crate::cli::{CheckArgs, PlanArgs};
use crate::engine::{CloneWay, DockerEngine, GoldenFacts, Unsupported, check_builds, check_stack};
use crate::matrix::{ClonesCost, Plan, State};
use crate::report::{Printer, plan_text};
use crate::stack::Stack;
use crate::sweep::{GoldenPlan, GoldenSource, KnownGolden, StatePlan, known_goldens};
use crate::tree::CloneMode;
use crate::units::format_duration;

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
        "{}: {}, {}, {}, no problems",
        arguments.matrix.matrix.display(),
        counted(inputs.plan.cells.len(), "cell"),
        counted(services, "service"),
        match (&inputs.workload, &inputs.scripts.binary) {
            (Some(workload), _) => journeys_text(workload),
            (None, Some(binary)) => format!("a script for k6 {}", binary.version),
            (None, None) => "nothing to send".to_owned(),
        },
    ));
    Ok(Outcome::Done)
}

/// Longest wait for an engine that may know golden volumes; `plan` does well without.
const ENGINE_PATIENCE: Duration = Duration::from_secs(2);
/// Longest time of reading what services mount; beyond it the sizes are not known.
const READ_PATIENCE: Duration = Duration::from_secs(30);

/// Counts what the clones of golden volumes take, as far as it is known.
///
/// **Errors**: those that `run` would end with before it starts anything.
async fn count_clones(inputs: &mut Inputs, environment: &Environment) -> Result<(), AppError> {
    if inputs.sweep.trials.state != State::Golden {
        return Ok(());
    }
    let stacks = inputs.resolve_all()?;
    let planned = tokio::time::timeout(READ_PATIENCE, state_plan(inputs, &stacks, |_| true)).await;
    let Ok(planned) = planned else {
        inputs.plan.warnings.push(format!(
            "reading what services mount takes longer than {}: whether the golden volumes are there is not known",
            format_duration(READ_PATIENCE)
        ));
        return Ok(());
    };
    let (StatePlan::Golden(golden), of_cell) = planned? else {
        return Ok(());
    };
    let asked = async {
        let engine = DockerEngine::find(environment.variables()).await.ok()?;
        known_goldens(&engine, &golden).await.ok()
    };
    let known = tokio::time::timeout(ENGINE_PATIENCE, asked).await;
    let known = known.ok().flatten().unwrap_or_default();
    let cost = match cost_of(&inputs.plan, &golden, &known, &of_cell) {
        Some(cost) => Some(cost),
        None => cost_of_folder(&inputs.plan, &golden).await,
    };
    if let Some(cost) = cost {
        inputs.plan.count_clones(cost);
    }
    Ok(())
}

/// What the clones take, where every golden of the plan is known. Pure.
fn cost_of(
    plan: &Plan,
    golden: &GoldenPlan,
    known: &[Option<KnownGolden>],
    of_cell: &[usize],
) -> Option<ClonesCost> {
    let mut cost = ClonesCost {
        golden_bytes: 0,
        bytes: 0,
        duration: Some(Duration::ZERO),
        is_prepared: true,
    };
    for trial in &plan.trials {
        let known = known.get(of_cell[trial.cell])?.as_ref()?;
        let facts = &known.golden.facts;
        cost.golden_bytes = cost.golden_bytes.max(facts.bytes());
        cost.bytes = cost.bytes.saturating_add(written_by(golden.way, facts));
        let seconds = facts
            .clone_s
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        cost.duration = cost
            .duration
            .zip(seconds)
            .map(|(all, one)| all.saturating_add(one));
        cost.is_prepared &= known.is_current;
    }
    Some(cost)
}

/// What one clone writes. **Units**: bytes.
fn written_by(way: CloneWay, facts: &GoldenFacts) -> u64 {
    match way {
        // As the copy that made the golden, which lies on the same disk.
        CloneWay::Files(CloneMode::Auto) => facts.written_bytes(),
        CloneWay::Files(CloneMode::Reflink) => 0,
        // Below an overlay each file is copied whole when it is first written to: at most all.
        CloneWay::Files(CloneMode::Copy) | CloneWay::Overlay => facts.bytes(),
    }
}

/// The same of a folder that was never copied: its size is known, the time is not.
async fn cost_of_folder(plan: &Plan, golden: &GoldenPlan) -> Option<ClonesCost> {
    let GoldenSource::Folder(path) = &golden.specs.first()?.source else {
        return None;
    };
    let bytes = size_of(path.clone(), READ_PATIENCE).await?;
    let one = match golden.way {
        CloneWay::Files(CloneMode::Reflink) => 0,
        CloneWay::Files(_) | CloneWay::Overlay => bytes,
    };
    Some(ClonesCost {
        golden_bytes: bytes,
        bytes: one.saturating_mul(plan.trials.len() as u64),
        duration: None,
        is_prepared: false,
    })
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
    count_clones(&mut inputs, environment).await?;
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
pub(super) fn counted(n: usize, what: &str) -> String {
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

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use crate::engine::{GoldenKey, SealedGolden};
    use crate::tree::TreeReport;

    fn facts(bytes: u64, method: CloneMode, clone_s: Option<f64>) -> GoldenFacts {
        let tree = TreeReport {
            bytes,
            method: Some(method),
            ..TreeReport::default()
        };
        GoldenFacts {
            source: "prepare".to_owned(),
            made_at: "2026-11-30T00:00:00Z".to_owned(),
            prepared_s: 60.0,
            trees: IndexMap::from([("d".to_owned(), tree)]),
            clone_s,
        }
    }

    fn known(facts: GoldenFacts) -> KnownGolden {
        KnownGolden {
            golden: SealedGolden {
                key: GoldenKey::of("x"),
                data: "data".to_owned(),
                facts,
            },
            is_current: true,
        }
    }

    /// Two cells, two trials each.
    fn plan() -> Plan {
        let text = "format = 1\n[sweep]\nname = 's'\nstack = ['c.yaml']\nsubject = 'app'\ntier = 'cpus'\n\
            [axes]\ncpus = [1, 2]\n[trials]\nrepeats = 2\nstate = 'golden'\n[golden]\nvolumes = ['d']\n\
            [load]\nworkload = 'w.toml'\ntarget = 'http://app:80'\n\
            [[phase]]\nname = 'stress'\nwindow = true\nanswers = 'capacity'\nclosed = { users = 2 }\nduration = '1s'\n";
        let sweep = crate::matrix::read(std::path::Path::new("m.toml"), text).unwrap();
        crate::matrix::plan(&sweep, &["cpus".to_owned()].into()).unwrap()
    }

    fn golden(mode: CloneMode) -> GoldenPlan {
        GoldenPlan {
            way: CloneWay::Files(mode),
            specs: Vec::new(),
        }
    }

    #[test]
    fn each_trial_counts_the_golden_of_its_cell() {
        let goldens = [
            Some(known(facts(1_000, CloneMode::Copy, Some(1.5)))),
            Some(known(facts(300, CloneMode::Copy, Some(0.5)))),
        ];
        let cost = cost_of(&plan(), &golden(CloneMode::Auto), &goldens, &[0, 1]).unwrap();
        assert_eq!((cost.golden_bytes, cost.bytes), (1_000, 2_600));
        assert_eq!(cost.duration, Some(Duration::from_secs(4)));
        let one_unknown = [goldens[0].clone(), None];
        let cost = cost_of(&plan(), &golden(CloneMode::Auto), &one_unknown, &[0, 1]);
        assert_eq!(cost, None);
    }

    #[test]
    fn shared_blocks_are_not_written_and_old_goldens_have_no_time() {
        let cost = |mode, method| {
            let goldens = [Some(known(facts(1_000, method, None)))];
            cost_of(&plan(), &golden(mode), &goldens, &[0, 0]).unwrap()
        };
        let shared = cost(CloneMode::Auto, CloneMode::Reflink);
        assert_eq!((shared.bytes, shared.duration), (0, None));
        assert_eq!(cost(CloneMode::Copy, CloneMode::Reflink).bytes, 4_000);
        assert_eq!(cost(CloneMode::Auto, CloneMode::Copy).bytes, 4_000);
    }

    #[test]
    fn the_text_tells_bytes_and_time_or_that_they_are_unknown() {
        let text = |cost: Option<ClonesCost>| {
            let mut plan = plan();
            if let Some(cost) = cost {
                plan.count_clones(cost);
            }
            let sweep = crate::matrix::read(
                std::path::Path::new("m.toml"),
                "format = 1\n[sweep]\nname = 's'\nstack = ['c.yaml']\nsubject = 'app'\ntier = 'cpus'\n[axes]\ncpus = [1, 2]\n[load]\nworkload = 'w.toml'\ntarget = 'http://app:80'\n[[phase]]\nname = 'stress'\nwindow = true\nanswers = 'capacity'\nclosed = { users = 2 }\nduration = '1s'\n",
            )
            .unwrap();
            let text = plan_text(&plan, &sweep, &[], &[], &[]);
            let is_wanted = |line: &&str| {
                ["time", "written", "disk"]
                    .iter()
                    .any(|word| line.starts_with(word))
            };
            text.lines()
                .filter(is_wanted)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let cost = ClonesCost {
            golden_bytes: 300_000_000,
            bytes: 1_200_000_000,
            duration: Some(Duration::from_secs(8)),
            is_prepared: true,
        };
        let shared = ClonesCost { bytes: 0, ..cost };
        let unknown = ClonesCost {
            duration: None,
            is_prepared: false,
            ..cost
        };
        insta::assert_snapshot!(text(Some(cost)), @"
        time          about 1 min 04 s, clones included
        written       4 clones of 286 MiB are 1.1 GiB, 8 s in all
        disk          about 104 KiB of results
        ");
        insta::assert_snapshot!(text(Some(shared)), @"
        time          about 1 min 04 s, clones included
        written       4 clones of 286 MiB share its blocks: nothing but what trials write, 8 s in all
        disk          about 104 KiB of results
        ");
        insta::assert_snapshot!(text(Some(unknown)), @"
        time          about 56 s, plus preparing once and the clones; unknown until then
        written       4 clones of 286 MiB are 1.1 GiB
        disk          about 104 KiB of results
        ");
        insta::assert_snapshot!(text(None), @"
        time          about 56 s, plus preparing once and the clones; unknown until then
        written       4 clones, plus preparing once; unknown until then
        disk          about 104 KiB of results
        ");
    }
}
