//! Performs one trial: launches, loads, reads the edges, tears down.
//!
//! All decisions are in `trial.rs`; here its actions are carried out and what
//! happens is turned into its signals (`launching.rs`, `loading.rs`, `edge.rs`). **Invariant**: a lease is taken before
//! anything is created and released before the trial ends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tokio::sync::watch;

use super::edge::Edge;
use super::loading::pacing_of;
use super::outcome::{TrialOutcome, WindowOutcome};
use super::progress::Progress;
use super::{Action, Clock, Ending, Job, Reason, Signal, State, SweepPlan, step};
use crate::engine::{
    Engine, HostFacts, Inspection, Launched, Lease, Owner, TargetPath, TeardownReport, TrialState,
    TrialTag, collect_logs, collect_trial_logs,
};
use crate::event::{EventKind, TrialRef};
use crate::measure::{Judgement, judge};
use crate::problem::chain;

/// What every trial of a sweep shares.
pub(super) struct Shared<'a, E: Engine> {
    pub(super) engine: &'a Arc<E>,
    pub(super) plan: &'a SweepPlan,
    pub(super) facts: &'a HostFacts,
    pub(super) owner: &'a Owner,
    pub(super) clock: Clock,
    /// How often the user has asked to stop.
    pub(super) interrupted: watch::Receiver<u32>,
    /// Whether a stack of this run has been asked what runs in it.
    pub(super) versions_seen: AtomicBool,
    /// What trials find in their volumes, by golden; empty where those are simply new.
    pub(super) states: Vec<TrialState>,
}

/// One trial under way.
pub(super) struct Trial<'a, E: Engine> {
    pub(super) shared: &'a Shared<'a, E>,
    pub(super) job: &'a Job,
    pub(super) name: TrialRef,
    pub(super) progress: &'a Progress,
    pub(super) emit: &'a mut dyn FnMut(EventKind),
    pub(super) windows: Vec<WindowOutcome>,
    pub(super) left_edge: Option<Edge>,
    pub(super) closed: Option<(usize, Edge, Edge)>,
    /// What hooks wrote, by name.
    pub(super) hook_logs: Vec<(String, String)>,
}

/// Runs one trial to its end, whatever happens.
pub(super) async fn run_trial<E: Engine>(
    shared: &Shared<'_, E>,
    job: &Job,
    name: TrialRef,
    progress: &Progress,
    emit: &mut dyn FnMut(EventKind),
) -> TrialOutcome {
    let started_at = shared.clock.now_text();
    let begun = Instant::now();
    let tag = TrialTag {
        run_id: shared.plan.run_id.clone(),
        trial: job.trial.to_string(),
        cell_id: job.cell_id.clone(),
        owner: shared.owner.clone(),
    };
    let lease = Lease::take(Arc::clone(shared.engine), tag.clone());
    let mut trial = Trial {
        shared,
        job,
        name,
        progress,
        emit,
        windows: Vec::new(),
        left_edge: None,
        closed: None,
        hook_logs: Vec::new(),
    };

    let (signal, launched) = trial.launch(&lease).await;
    let ready_after = begun.elapsed();
    let (mut state, action) = step(State::Launching, signal);
    let mut oom_killed = None;
    if let (Action::StartLoad, Some(launched)) = (action, &launched) {
        let mut asked = shared.interrupted.clone();
        tokio::select! {
            biased;
            () = until_asked(&mut asked, 1) => {}
            () = trial.ask_versions(launched) => {}
        }
        (state, oom_killed) = trial.load(launched, state).await;
    }
    let windows = std::mem::take(&mut trial.windows);
    let hook_logs = std::mem::take(&mut trial.hook_logs);
    let keeps_logs = needs_logs(&state, job, &windows);
    let engine = &**shared.engine;
    let looked = async {
        let subject = match &launched {
            Some(launched) => look_at_subject(engine, launched).await,
            None => None,
        };
        let logs = if keeps_logs {
            logs_of(engine, launched.as_ref(), &tag).await
        } else {
            Vec::new()
        };
        (subject, logs)
    };
    let mut interrupted = shared.interrupted.clone();
    let (subject, logs) = tokio::select! {
        biased;
        // An engine that hangs must not cost who leaves what was measured.
        () = until_asked(&mut interrupted, 2) => (None, Vec::new()),
        looked = looked => looked,
    };

    let tear_down = Instant::now();
    let left_behind = tokio::select! {
        biased;
        report = lease.release() => (!report.is_complete()).then(|| left_behind(&report)),
        // Who asks twice does not wait; what was measured is still written.
        () = until_asked(&mut interrupted, 2) => Some("asked twice to stop".to_owned()),
    };
    let (state, _) = step(state, Signal::TornDown);
    TrialOutcome {
        ending: match state {
            State::Done(ending) => ending,
            other => Ending::Failed(Reason::new(
                "bug",
                format!("the trial ended while {other:?}"),
            )),
        },
        windows,
        started_at,
        target_path: launched
            .as_ref()
            .map(|launched| launched.target_path.map_or("remote", TargetPath::as_str)),
        dead_time: launched
            .is_some()
            .then(|| ready_after + tear_down.elapsed()),
        restarts: subject
            .as_ref()
            .and_then(|seen| u32::try_from(seen.restarts).ok()),
        oom_killed: oom_killed.or(subject.map(|seen| seen.oom_killed)),
        logs: logs.into_iter().chain(hook_logs).collect(),
        cloned: launched.and_then(|launched| launched.cloned),
        left_behind,
    }
}

async fn look_at_subject<E: Engine>(engine: &E, launched: &Launched) -> Option<Inspection> {
    engine.inspect(launched.subject_id()?).await.ok()
}

async fn logs_of<E: Engine>(
    engine: &E,
    launched: Option<&Launched>,
    tag: &TrialTag,
) -> Vec<(String, String)> {
    match launched {
        Some(launched) => collect_logs(engine, launched).await,
        // Logs explain a failure; that they cannot be had must not hide it.
        None => collect_trial_logs(engine, tag).await.unwrap_or_default(),
    }
}

/// What tear-down could not remove, and why.
fn left_behind(report: &TeardownReport) -> String {
    let things = report
        .left
        .iter()
        .map(|(thing, error)| format!("{} ({})", thing.name, chain(error)));
    let unknown = report.unknown.iter().map(|error| chain(error));
    things.chain(unknown).collect::<Vec<_>>().join(", ")
}

/// Logs are kept for a trial in which anything is not valid, and not for an interrupted one.
fn needs_logs(state: &State, job: &Job, windows: &[WindowOutcome]) -> bool {
    match state {
        State::Stopping(Ending::Failed(reason)) => reason.code != "interrupted",
        _ => windows.iter().any(|window| {
            judge(&window.summary, pacing_of(&job.phases[window.phase])).judgement
                != Judgement::Valid
        }),
    }
}

/// Comes back once the user has asked to stop so many times.
pub(super) async fn until_asked(interrupted: &mut watch::Receiver<u32>, times: u32) {
    if interrupted.wait_for(|asked| *asked >= times).await.is_err() {
        // Nobody can ask any more.
        std::future::pending::<()>().await;
    }
}
