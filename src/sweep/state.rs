//! What trials find in the stack's volumes, made ready before the first trial.
//!
//! `fresh` needs nothing. `keep` makes the volumes once, for the whole run. `golden`
//! finds the golden volumes on the engine or has them prepared (`golden.rs`). What
//! belongs to the run hangs on a lease of its own, apart from any trial's.

use std::sync::Arc;

use indexmap::IndexMap;

use super::golden::golden_of;
use super::shell::{Shared, until_asked};
use super::{GoldenPlan, Reason, StatePlan};
use crate::engine::{
    CloneSource, Engine, Lease, TrialState, TrialTag, ensure_helper_image, register_use,
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
    /// By golden; one for all with `keep`; none with `fresh`.
    pub(super) states: Vec<TrialState>,
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
/// **Errors**: `golden_failed`, `keep_failed`, `interrupted`; nothing is left behind then.
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
        StatePlan::Keep => keep(shared, &tag).await.map(|state| vec![state]),
        StatePlan::Golden(plan) => goldens(shared, plan, &tag, emit).await,
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
    tag: &TrialTag,
    emit: &mut dyn FnMut(EventKind),
) -> Result<Vec<TrialState>, Reason> {
    let mut interrupted = shared.interrupted.clone();
    let image = tokio::select! {
        biased;
        () = until_asked(&mut interrupted, 1) => return Err(interrupted_reason()),
        image = ensure_helper_image(&**shared.engine, &shared.facts.architecture) => image,
    };
    let image = image.map_err(|error| Reason::new("golden_failed", chain(&error)))?;
    let mut states = Vec::new();
    for (index, spec) in plan.specs.iter().enumerate() {
        let key = super::golden::key_of(shared, spec, &image, tag, emit).await?;
        // It is a digest over the stack's variables, and names and labels of the engine hold it.
        shared.secrets.hide_everywhere(key.as_str());
        // Said first: whoever cleans from now on sees that it is used.
        register_use(&**shared.engine, &key, tag)
            .await
            .map_err(|error| Reason::new("golden_failed", chain(&error)))?;
        let golden = golden_of(shared, index, spec, &key, &image, emit).await?;
        states.push(TrialState {
            kept: IndexMap::new(),
            clone: Some(CloneSource {
                golden,
                way: plan.way,
                image: image.clone(),
            }),
        });
    }
    Ok(states)
}

pub(super) fn interrupted_reason() -> Reason {
    Reason::new("interrupted", "the sweep was interrupted")
}
