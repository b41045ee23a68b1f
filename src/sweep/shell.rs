//! Performs one trial: loads, reads the edges, tears down.
//!
//! All decisions are in `trial.rs`; here its actions are carried out and what
//! happens is turned into its signals (`ahead.rs` and `launching.rs` bring it up,
//! `loading.rs` and `edge.rs` load and read it). **Invariant**: a lease is taken before
//! anything is created and released before the trial ends.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use indexmap::IndexMap;
use serde_json::Value;
use tokio::sync::watch;

use super::ahead::{Before, Came, Coming, Word};
use super::edge::Edge;
use super::launching::Wanted;
use super::loading::{Loaded, Watched, pacing_of};
use super::outcome::{TrialOutcome, WindowOutcome};
use super::progress::Progress;
use super::stopping::stop_trial;
use super::target::addresses_of;
use super::{Action, Clock, Ending, Job, Reason, Signal, State, SweepPlan, step};
use crate::engine::{
    Engine, HostFacts, Launched, Lease, Owner, TargetPath, TeardownReport, TrialState, TrialTag,
    Unhealthy, collect_logs, collect_trial_logs,
};
use crate::event::{EventKind, TrialRef};
use crate::load::k6::ScriptReport;
use crate::measure::{Judgement, judge};
use crate::problem::chain;
use crate::secret::Secrets;

/// What every trial of a sweep shares.
pub(super) struct Shared<'a, E: Engine> {
    pub(super) engine: &'a Arc<E>,
    pub(super) plan: &'a SweepPlan,
    pub(super) wanted: Wanted,
    pub(super) facts: &'a HostFacts,
    pub(super) owner: &'a Owner,
    pub(super) clock: Clock,
    /// What must not be written.
    pub(super) secrets: &'a Secrets,
    /// How often the user has asked to stop.
    pub(super) interrupted: watch::Receiver<u32>,
    /// Whether a stack of this run has been asked what runs in it.
    pub(super) versions_seen: AtomicBool,
    /// What trials find in their volumes, by golden, or why they cannot be run; one for all
    /// with `keep`, empty where volumes are simply new.
    pub(super) states: Vec<Result<TrialState, Reason>>,
}

impl<E: Engine> Shared<'_, E> {
    pub(super) fn is_interrupted(&self) -> bool {
        *self.interrupted.borrow() > 0
    }

    /// What a trial finds in its volumes, where they are not simply new.
    pub(super) fn state_of(&self, job: &Job) -> Option<&TrialState> {
        let state = self.states.get(job.golden).or(self.states.first());
        state?.as_ref().ok()
    }

    /// Why a job of the plan is not run, whatever comes of the others.
    pub(super) fn why_skipped<'j>(&'j self, job: &'j Job) -> Option<&'j Reason> {
        let state = self.states.get(job.golden).or(self.states.first());
        let failed = state.and_then(|state| state.as_ref().err());
        job.skip.as_ref().or(failed)
    }
}

/// One trial under way.
///
/// The sweep `'s` outlives it: the next trial may be on its way when this one ends.
pub(super) struct Trial<'s, 't, E: Engine> {
    pub(super) shared: &'s Shared<'s, E>,
    pub(super) job: &'s Job,
    pub(super) name: TrialRef,
    pub(super) progress: &'t Progress,
    pub(super) emit: &'t mut dyn FnMut(EventKind),
    pub(super) windows: Vec<WindowOutcome>,
    /// Lines of proofs.jsonl.
    pub(super) proofs: Vec<Value>,
    pub(super) left_edge: Option<Edge>,
    /// The phase in which a threshold ended the load.
    pub(super) aborted_in: Option<usize>,
    pub(super) closed: Option<Closed>,
    /// How its k6 script ended, where one made its load.
    pub(super) script: Option<ScriptReport>,
    pub(super) unhealthy: Arc<Unhealthy>,
    /// What hooks wrote, by name.
    pub(super) hook_logs: Vec<(String, String)>,
    /// Whether the services could not be asked for their knobs when the load had ended.
    pub(super) is_knob_not_asked: bool,
    /// Whether the trial before left kept volumes that may be torn.
    pub(super) is_unclean_start: bool,
}

/// A window between its right edge and the end of its drain.
pub(super) struct Closed {
    /// Index of its phase.
    pub(super) phase: usize,
    pub(super) left: Edge,
    pub(super) right: Edge,
    /// Containers whose healthcheck failed in it, with the last output.
    pub(super) unhealthy: IndexMap<String, String>,
}

impl<'s, 't, E: Engine> Trial<'s, 't, E> {
    pub(super) fn new(
        shared: &'s Shared<'s, E>,
        job: &'s Job,
        name: TrialRef,
        progress: &'t Progress,
        emit: &'t mut dyn FnMut(EventKind),
    ) -> Self {
        Self {
            shared,
            job,
            name,
            progress,
            emit,
            windows: Vec::new(),
            proofs: Vec::new(),
            left_edge: None,
            aborted_in: None,
            closed: None,
            script: None,
            hook_logs: Vec::new(),
            is_knob_not_asked: false,
            is_unclean_start: false,
            unhealthy: Arc::default(),
        }
    }

    /// Runs the trial to its end, whatever happens.
    ///
    /// `coming` is the trial itself on its way up. The trial after it, where it may
    /// follow at once, comes back on its way, with nothing of this one left.
    pub(super) async fn run(
        mut self,
        coming: Coming<'s, E>,
        next: Option<&'s Job>,
    ) -> (TrialOutcome, Option<Coming<'s, E>>) {
        let turn = Instant::now();
        let Came {
            lease,
            launched,
            started_at,
            begun,
            not_ahead,
        } = coming.came().await;
        if let Some(why) = not_ahead {
            (self.emit)(EventKind::Warned {
                text: format!(
                    "trial {} could not be created ahead and was created at its turn: {why}",
                    self.job.trial
                ),
            });
        }
        let (until_load, loaded, launched) = match launched {
            Ok(launched) => {
                self.tell_ready(&launched, begun);
                let (until_load, loaded) = self.measure(&launched, turn).await;
                (until_load, loaded, Some(launched))
            }
            Err(signal) => {
                let loaded = Loaded::at_once(State::Launching, signal, None);
                (turn.elapsed(), loaded, None)
            }
        };

        let mut follower = next
            .filter(|_| loaded.action == Action::HandOver && !self.shared.is_interrupted())
            .map(|job| Coming::new(self.shared, job, Before::Runs));
        let words = follower.as_ref().map(Coming::words);
        let parting = self.part(lease, launched.as_ref(), loaded.state, words);
        let parted = tokio::select! {
            biased;
            never = drive(&mut follower) => match never {},
            parted = parting => parted,
        };
        let subject = parted.subject;
        let outcome = TrialOutcome {
            ending: parted.ending,
            windows: std::mem::take(&mut self.windows),
            script: self.script.take(),
            aborted_in: self.aborted_in,
            proofs: std::mem::take(&mut self.proofs),
            started_at,
            target_path: launched
                .as_ref()
                .map(|launched| launched.target_path.map_or("remote", TargetPath::as_str)),
            dead_time: until_load + loaded.ended.elapsed(),
            restarts: subject.map(|(restarts, _)| restarts),
            oom_killed: loaded
                .oom_killed
                .or(subject.map(|(_, oom_killed)| oom_killed)),
            logs: parted
                .logs
                .into_iter()
                .chain(std::mem::take(&mut self.hook_logs))
                .collect(),
            cloned: launched.and_then(|launched| launched.cloned),
            is_knob_not_asked: self.is_knob_not_asked,
            is_unclean_start: self.is_unclean_start,
            left_behind: parted.left_behind,
            still_runs: parted.still_runs,
            unclean: parted.unclean,
        };
        (outcome, follower)
    }

    /// Asks and loads a stack that is up; the time from the trial's turn to its load, and
    /// what came of it.
    async fn measure(&mut self, launched: &Launched, turn: Instant) -> (Duration, Loaded) {
        let (state, _) = step(State::Launching, Signal::Launched);
        let (engine, unhealthy) = (&**self.shared.engine, Arc::clone(&self.unhealthy));
        let mut watched = Watched::new(engine, launched, &unhealthy);
        let mut asked = self.shared.interrupted.clone();
        tokio::select! {
            biased;
            () = until_asked(&mut asked, 1) => {}
            () = self.ask_versions(launched) => {}
        }
        let wrong = self.ask_when_ready(launched, &mut watched).await;
        let until_load = turn.elapsed();
        let loaded = match wrong {
            None => self.load(launched, state, &mut watched).await,
            Some(signal) => Loaded::at_once(state, signal, watched.oom_killed),
        };
        (until_load, loaded)
    }

    fn tell_ready(&mut self, launched: &Launched, begun: Instant) {
        let after_s = begun.elapsed().as_secs_f64();
        for text in &launched.warnings {
            (self.emit)(EventKind::Warned { text: text.clone() });
        }
        let addresses = addresses_of(&self.shared.plan.target, launched);
        let target = addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        (self.emit)(EventKind::TrialReady {
            trial: self.name.clone(),
            after_s,
            target,
        });
    }

    /// Looks at what is left of the trial and removes it; lets the next one start in between.
    async fn part(
        &self,
        lease: Lease<E>,
        launched: Option<&Launched>,
        mut state: State,
        next: Option<watch::Sender<Word>>,
    ) -> Parted {
        let keeps_logs = needs_logs(&state, self.job, &self.windows);
        let engine = &**self.shared.engine;
        let looked = async {
            let subject = match launched {
                Some(launched) => look_at_subject(engine, launched).await,
                None => None,
            };
            let logs = if keeps_logs {
                logs_of(engine, launched, lease.tag()).await
            } else {
                Vec::new()
            };
            (subject, logs)
        };
        let mut interrupted = self.shared.interrupted.clone();
        let (subject, logs) = tokio::select! {
            biased;
            // An engine that hangs must not cost who leaves what was measured.
            () = until_asked(&mut interrupted, 2) => (None, Vec::new()),
            looked = looked => looked,
        };
        let removing = async {
            let unclean = self.stop_for_next(lease.tag()).await;
            // Without a next one, all is removed in one go.
            if let Some(next) = &next
                && lease.stop().await
            {
                let (stopped, action) = step(state.clone(), Signal::Stopped);
                state = stopped;
                if action == Action::StartNext && !self.shared.is_interrupted() {
                    next.send_replace(Word::Before(Before::Stopped));
                }
            }
            (unclean, lease.release().await)
        };
        let (unclean, left_behind, still_runs) = tokio::select! {
            biased;
            (unclean, report) = removing => {
                let left = (!report.is_complete()).then(|| left_behind(&report));
                let still_runs = left.clone().filter(|_| report.may_still_run());
                (unclean, left, still_runs)
            }
            // Who asks twice does not wait; what was measured is still written.
            () = until_asked(&mut interrupted, 2) => {
                (None, Some("asked twice to stop".to_owned()), None)
            }
        };
        let (state, _) = step(state, Signal::TornDown);
        let ending = match state {
            State::Done(ending) => ending,
            other => Ending::Failed(Reason::new(
                "bug",
                format!("the trial ended while {other:?}"),
            )),
        };
        Parted {
            ending,
            subject,
            logs,
            left_behind,
            still_runs,
            unclean,
        }
    }

    /// Stops the services in order where a later trial begins with what they wrote; why
    /// their volumes may be torn all the same.
    async fn stop_for_next(&self, tag: &TrialTag) -> Option<String> {
        let kept = &self.shared.state_of(self.job)?.kept;
        let is_last = |job: &Job| job.trial <= self.job.trial || job.skip.is_some();
        let has_next = !self.shared.plan.jobs.iter().all(is_last);
        if kept.is_empty() || !has_next || self.shared.is_interrupted() {
            return None;
        }
        let volumes: Vec<String> = kept.keys().cloned().collect();
        let engine = &**self.shared.engine;
        let wrong = stop_trial(engine, tag, &self.job.stack, &volumes).await;
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }
}

/// What was learned while a trial was torn down.
struct Parted {
    ending: Ending,
    /// Restarts of the subject, and whether memory ended it.
    subject: Option<(u32, bool)>,
    logs: Vec<(String, String)>,
    left_behind: Option<String>,
    /// What of it may still run.
    still_runs: Option<String>,
    /// Why kept volumes may be torn.
    unclean: Option<String>,
}

/// Lets the next trial go on, where there is one; never comes back.
async fn drive<E: Engine>(coming: &mut Option<Coming<'_, E>>) -> Infallible {
    match coming {
        Some(coming) => coming.drive().await,
        None => std::future::pending().await,
    }
}

/// Restarts of the subject's containers together, and whether memory ended any of them.
async fn look_at_subject<E: Engine>(engine: &E, launched: &Launched) -> Option<(u32, bool)> {
    let looks = launched.subject_ids().iter().map(|id| engine.inspect(id));
    let seen = try_join_all(looks).await.ok()?;
    let restarts: i64 = seen.iter().map(|one| one.restarts).sum();
    let oom_killed = seen.iter().any(|one| one.oom_killed);
    Some((u32::try_from(restarts).ok()?, oom_killed))
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
pub(super) fn left_behind(report: &TeardownReport) -> String {
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
