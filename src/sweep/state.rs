//! What trials find in the stack's volumes, made ready before the first trial.
//!
//! `fresh` needs nothing. `keep` makes the volumes once, for the whole run. `golden`
//! finds the golden volumes on the engine or has them prepared (`golden.rs`). What
//! belongs to the run hangs on a lease of its own, apart from any trial's.

use std::sync::Arc;

use indexmap::IndexMap;

use super::golden::golden_of;
use super::shell::{Shared, until_asked};
use super::{GoldenPlan, GoldenSpec, Reason, StatePlan};
use crate::engine::{
    CloneSource, Engine, HelperImage, Lease, SealedGolden, TrialState, TrialTag,
    ensure_helper_image, register_use,
};
use crate::event::EventKind;
use crate::problem::chain;

/// The trial part of the labels of what belongs to the whole run.
const WHOLE_RUN: &str = "run";

/// What was made ready.
#[derive(Debug)]
pub(super) struct RunState<E: Engine> {
    /// The duty to remove what belongs to the run.
    lease: Option<Lease<E>>,
    /// By golden, or why there is none; one for all with `keep`; none with `fresh`.
    pub(super) states: Vec<Result<TrialState, Reason>>,
}

impl<E: Engine> RunState<E> {
    /// Removes what belongs to the run, and says what could not be.
    pub(super) async fn release(self, run_id: &str, emit: &mut dyn FnMut(EventKind)) {
        let Some(lease) = self.lease else {
            return;
        };
        let report = lease.release().await;
        if !report.is_complete() {
            let names = report.left.iter().map(|(thing, _)| thing.name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            emit(EventKind::Warned {
                text: format!(
                    "the run left something behind: {names}; `nightsweep clean --run {run_id}` removes it"
                ),
            });
        }
    }
}

/// Makes ready what the trials begin with.
///
/// A golden that cannot be had costs the trials that are cloned from it, no others.
///
/// **Errors**: `golden_failed` where no trial is left, `keep_failed`, `interrupted`,
/// `not_removed`; nothing else is left behind then.
pub(super) async fn prepare_state<E: Engine>(
    shared: &Shared<'_, E>,
    emit: &mut dyn FnMut(EventKind),
) -> Result<RunState<E>, Reason> {
    let has_jobs = shared.plan.jobs.iter().any(|job| job.skip.is_none());
    if matches!(shared.plan.state, StatePlan::Fresh) || !has_jobs {
        return Ok(RunState {
            lease: None,
            states: Vec::new(),
        });
    }
    let tag = TrialTag {
        run_id: shared.plan.run_id.clone(),
        trial: WHOLE_RUN.to_owned(),
        cell_id: WHOLE_RUN.to_owned(),
        owner: shared.owner.clone(),
    };
    let lease = Lease::take(Arc::clone(shared.engine), tag.clone());
    let states = match &shared.plan.state {
        StatePlan::Fresh => Ok(Vec::new()),
        StatePlan::Keep => keep(shared, &tag).await.map(|state| vec![Ok(state)]),
        StatePlan::Golden(plan) => goldens(shared, plan, &lease, emit).await,
    };
    match states {
        Ok(states) => Ok(RunState {
            lease: Some(lease),
            states,
        }),
        Err(reason) => {
            lease.release().await;
            Err(reason)
        }
    }
}

/// The volumes of all stacks, each once.
async fn keep<E: Engine>(shared: &Shared<'_, E>, tag: &TrialTag) -> Result<TrialState, Reason> {
    let mut kept: IndexMap<String, String> = IndexMap::new();
    let jobs = shared.plan.jobs.iter().filter(|job| job.skip.is_none());
    let volumes = jobs
        .flat_map(|job| &job.stack.volumes)
        .filter(|(_, volume)| volume.external.is_none());
    for (name, volume) in volumes {
        if kept.contains_key(name) {
            continue;
        }
        let engine_name = tag.name(name);
        shared
            .engine
            .create_volume(&engine_name, volume, &tag.labels())
            .await
            .map_err(|error| Reason::new("keep_failed", chain(&error)))?;
        kept.insert(name.clone(), engine_name);
    }
    Ok(TrialState { kept, clone: None })
}

async fn goldens<E: Engine>(
    shared: &Shared<'_, E>,
    plan: &GoldenPlan,
    lease: &Lease<E>,
    emit: &mut dyn FnMut(EventKind),
) -> Result<Vec<Result<TrialState, Reason>>, Reason> {
    let mut interrupted = shared.interrupted.clone();
    let image = tokio::select! {
        biased;
        () = until_asked(&mut interrupted, 1) => return Err(interrupted_reason()),
        image = ensure_helper_image(&**shared.engine, &shared.facts.architecture) => image,
    };
    let image = image.map_err(|error| Reason::new("golden_failed", chain(&error)))?;
    let mut states = Vec::new();
    let mut failures = Vec::new();
    for (index, spec) in plan.specs.iter().enumerate() {
        let mut jobs = shared.plan.jobs.iter();
        if !jobs.any(|job| job.golden == index && job.skip.is_none()) {
            let unused = Reason::new("golden_failed", "no trial that is run is cloned from it");
            states.push(Err(unused));
            continue;
        }
        let made = golden(shared, (index, spec), &image, lease, emit).await;
        let state = made.map(|golden| TrialState {
            kept: IndexMap::new(),
            clone: Some(CloneSource {
                golden,
                way: plan.way,
                image: image.clone(),
            }),
        });
        if let Err(reason) = &state {
            if reason.code != "golden_failed" {
                return Err(reason.clone());
            }
            failures.push((spec, reason.clone()));
        }
        states.push(state);
    }
    if states.iter().all(Result::is_err)
        && let Some((_, reason)) = failures.first()
    {
        return Err(reason.clone());
    }
    for (spec, reason) in failures {
        emit(EventKind::Warned {
            text: format!(
                "the golden volumes of cell {} could not be prepared, and trials that are cloned from them are skipped: {}",
                spec.cell_id, reason.words
            ),
        });
    }
    Ok(states)
}

/// One golden, said to be used and then found or made.
async fn golden<E: Engine>(
    shared: &Shared<'_, E>,
    (index, spec): (usize, &GoldenSpec),
    image: &HelperImage,
    lease: &Lease<E>,
    emit: &mut dyn FnMut(EventKind),
) -> Result<SealedGolden, Reason> {
    let key = super::golden::key_of(shared, spec, image, lease, emit).await?;
    // It is a digest over the stack's variables, and names and labels of the engine hold it.
    shared.secrets.hide_everywhere(key.as_str());
    // Said first: whoever cleans from now on sees that it is used.
    register_use(&**shared.engine, &key, lease.tag())
        .await
        .map_err(|error| Reason::new("golden_failed", chain(&error)))?;
    golden_of(shared, index, spec, &key, image, emit).await
}

pub(super) fn interrupted_reason() -> Reason {
    Reason::new("interrupted", "the sweep was interrupted")
}
