//! From trial to trial: runs each job, writes its rows, decides whether to go on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::ahead::{Before, Coming};
use super::launching::Wanted;
use super::outcome::TrialOutcome;
use super::progress::{Progress, load_of};
use super::rows::{rows_of, skipped_rows};
use super::shell::{Shared, Trial, left_behind, until_asked};
use super::state::prepare_state;
use super::{Clock, Job, Reason, SweepPlan};
use crate::engine::{Engine, HostFacts, Owner};
use crate::event::{Event, EventKind, TrialRef};
use crate::problem::chain;
use crate::results::{
    OperationKey, OperationsCsv, ProofsJsonl, ResultsError, RunFolder, TrialRow, TrialsCsv,
    Verdict, write_histogram_log,
};
use crate::secret::Secrets;
use crate::units::format_duration;

/// A daemon that is upgraded or restarted is back well within this.
const ENGINE_PATIENCE: Duration = if cfg!(test) {
    Duration::from_secs(3)
} else {
    Duration::from_mins(1)
};
const ENGINE_RETRY: Duration = Duration::from_secs(2);

/// Where a sweep writes to.
#[derive(Debug)]
pub struct Sinks {
    /// The run's folder.
    pub folder: RunFolder,
    /// Rows of trials.
    pub trials: TrialsCsv,
    /// Rows of operations.
    pub operations: OperationsCsv,
    /// What was planned and what was read.
    pub proofs: ProofsJsonl,
    /// What must not be written.
    pub secrets: Secrets,
}

/// A sweep that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Results could not be written: going on would lose the night.
    #[error("keep the results of trial {trial} (cell {cell_id})")]
    Results {
        /// Index of the trial.
        trial: u32,
        /// Its cell.
        cell_id: String,
        /// Why.
        #[source]
        source: ResultsError,
    },
}

/// What a sweep came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepSummary {
    /// Trials whose windows are all valid.
    pub valid: u32,
    /// Trials with a suspect window and no failed one.
    pub suspect: u32,
    /// Trials with a failed window.
    pub failed: u32,
    /// Trials that were not run.
    pub skipped: u32,
    /// Of these, trials that were to be run and could not be, though the sweep went on.
    pub lost: u32,
    /// Whether the user asked to stop.
    pub interrupted: bool,
    /// Why it ended before the plan did, where it did.
    pub ended_early: Option<String>,
    /// Whether it ended because the engine no longer answers.
    pub engine_lost: bool,
}

impl SweepSummary {
    fn ends_early(&mut self, reason: &Reason) {
        self.interrupted = reason.code == "interrupted";
        self.engine_lost = reason.code == "engine_lost";
        self.ended_early = Some(reason.words.clone());
    }

    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Valid => self.valid += 1,
            Verdict::Suspect => self.suspect += 1,
            Verdict::Failed | Verdict::Skipped => self.failed += 1,
        }
    }
}

/// Runs every job of the plan and writes a row for every window of each.
///
/// **Errors**: only when results cannot be written; a trial that fails is a row.
/// **Cancel**: dropping the future queues the removal of the trials under way.
pub async fn run<E: Engine>(
    engine: &Arc<E>,
    plan: &SweepPlan,
    host: (&HostFacts, &Owner),
    sinks: &mut Sinks,
    clock: Clock,
    interrupted: watch::Receiver<u32>,
    emit: &mut dyn FnMut(Event),
) -> Result<SweepSummary, SweepError> {
    let secrets = sinks.secrets.clone();
    let shared_secrets = secrets.clone();
    let mut emit = |kind: EventKind| {
        let kind = redacted(kind, &secrets);
        emit(Event {
            at: clock.now_text(),
            elapsed: clock.elapsed(),
            kind,
        });
    };
    let mut shared = Shared {
        engine,
        plan,
        wanted: Wanted::of(plan),
        facts: host.0,
        owner: host.1,
        clock,
        secrets: &shared_secrets,
        interrupted,
        versions_seen: AtomicBool::new(false),
        states: Vec::new(),
    };
    let begun = Instant::now();
    let progress = Progress::new(&plan.jobs, &plan.settings);
    emit(started(plan, sinks, &progress));
    let mut summary = SweepSummary::default();
    let mut rest = None;
    let kept_for_run = prepare_state(&shared, &mut emit)
        .await
        .map_err(|reason| {
            summary.ends_early(&reason);
            rest = Some(reason);
        })
        .ok();
    shared.states = kept_for_run
        .as_ref()
        .map_or_else(Vec::new, |state| state.states.clone());
    let mut sweep = Sweep {
        shared: &shared,
        progress,
        summary,
        failures_in_a_row: 0,
        is_unclean: false,
        rest,
        coming: None,
        sinks,
        emit: &mut emit,
    };
    let mut result = Ok(());
    for index in 0..plan.jobs.len() {
        result = sweep.take_up(index).await;
        if result.is_err() {
            break;
        }
    }
    sweep.give_up_next().await;
    if let Some(state) = kept_for_run {
        state.release(&plan.run_id, &mut sweep.emit).await;
    }
    result?;
    (sweep.emit)(ended(plan, sweep.sinks, &sweep.summary, begun.elapsed()));
    Ok(sweep.summary)
}

/// A sweep between two trials.
struct Sweep<'a, E: Engine> {
    shared: &'a Shared<'a, E>,
    progress: Progress,
    summary: SweepSummary,
    failures_in_a_row: u32,
    /// Whether the trial before left kept volumes that may be torn.
    is_unclean: bool,
    /// Why the rest is not run, once that is so.
    rest: Option<Reason>,
    /// The next trial, where it is on its way already.
    coming: Option<Coming<'a, E>>,
    sinks: &'a mut Sinks,
    emit: &'a mut dyn FnMut(EventKind),
}

impl<E: Engine> Sweep<'_, E> {
    /// Runs one job, or writes down why it is not run.
    async fn take_up(&mut self, index: usize) -> Result<(), SweepError> {
        let plan = self.shared.plan;
        let job = &plan.jobs[index];
        let why_skipped = self.shared.why_skipped(job).or(self.rest.as_ref()).cloned();
        if let Some(reason) = why_skipped {
            self.give_up_next().await;
            // What the user is told before the sweep is no news; what failed in it is.
            if job.skip.is_none() && self.rest.is_none() {
                self.summary.lost += 1;
            }
            keep_rows(self.sinks, job, skipped_rows(&plan.run_id, job, &reason))?;
            self.summary.skipped += 1;
            return Ok(());
        }
        let name = TrialRef {
            trial: job.trial,
            n_trials: u32::try_from(plan.jobs.len()).unwrap_or(u32::MAX),
            attempt: 1,
            cell_id: job.cell_id.clone(),
        };
        self.progress.begin(job);
        let ahead = self.progress.dead_time() + load_of(job);
        (self.emit)(EventKind::TrialStarted {
            trial: name.clone(),
            left_s: self.progress.left_s(ahead),
        });
        let coming = self.coming.take();
        let coming = coming.unwrap_or_else(|| Coming::new(self.shared, job, Before::Gone));
        // Rows are in the order of the plan: what is not run waits for its turn, too.
        let is_run = |job: &&Job| self.shared.why_skipped(job).is_none();
        let next = plan.jobs.get(index + 1).filter(is_run);
        let mut trial = Trial::new(self.shared, job, name.clone(), &self.progress, self.emit);
        trial.is_unclean_start = self.is_unclean;
        let (outcome, coming) = trial.run(coming, next).await;
        self.coming = coming;
        // What failed on its way up says little of how long the others take.
        let is_launched = outcome.target_path.is_some();
        self.progress.end(is_launched.then_some(outcome.dead_time));
        self.write_down(job, name, &outcome).await
    }

    async fn write_down(
        &mut self,
        job: &Job,
        name: TrialRef,
        outcome: &TrialOutcome,
    ) -> Result<(), SweepError> {
        let plan = self.shared.plan;
        let rows = rows_of(plan, job, outcome);
        let verdict = worst(&rows);
        keep_trial(self.sinks, self.shared.clock, job, outcome, &rows)?;
        let left_s = self.progress.left_s(Duration::ZERO);
        finished(self.emit, name, verdict, &rows, left_s);
        if let Some(left) = &outcome.left_behind {
            self.warn_of_leftovers(&format!("trial {}", job.trial), left);
        }
        if let Some(words) = &outcome.unclean {
            (self.emit)(EventKind::Warned {
                text: format!(
                    "trial {} could not be stopped cleanly, and the next one is flagged unclean_start: {words}",
                    job.trial
                ),
            });
        }
        self.is_unclean = outcome.unclean.is_some();
        self.summary.count(verdict);
        // A load that was ended on purpose is a result.
        let is_failed = verdict == Verdict::Failed && outcome.aborted_in.is_none();
        self.failures_in_a_row = if is_failed {
            self.failures_in_a_row + 1
        } else {
            0
        };
        let still_runs = outcome.still_runs.as_deref();
        self.rest = why_stop(self.shared, self.failures_in_a_row, is_failed, still_runs).await;
        if let Some(reason) = &self.rest {
            self.summary.ends_early(reason);
        }
        Ok(())
    }

    /// Removes what was created for a trial that is not run after all.
    async fn give_up_next(&mut self) {
        let Some(coming) = self.coming.take() else {
            return;
        };
        let mut asked = self.shared.interrupted.clone();
        let left = tokio::select! {
            biased;
            report = coming.give_up() => report
                .filter(|report| !report.is_complete())
                .map(|report| left_behind(&report)),
            // Who asks twice does not wait.
            () = until_asked(&mut asked, 2) => Some("asked twice to stop".to_owned()),
        };
        if let Some(left) = left {
            self.warn_of_leftovers("the trial after it", &left);
        }
    }

    fn warn_of_leftovers(&mut self, whose: &str, left: &str) {
        let run = &self.shared.plan.run_id;
        (self.emit)(EventKind::Warned {
            text: format!(
                "{whose} left something behind: {left}; `nightsweep clean --run {run}` removes it"
            ),
        });
    }
}

/// Texts that come from containers and the engine leave without secrets.
///
/// Every kind is named, so that a new one has to be thought of here.
fn redacted(mut kind: EventKind, secrets: &Secrets) -> EventKind {
    let hide = |text: &mut String| *text = secrets.redact(text);
    match &mut kind {
        EventKind::Warned { text } => hide(text),
        EventKind::VersionsSeen { versions, .. } => versions.values_mut().for_each(hide),
        EventKind::StatePreparing { source, step } => {
            hide(source);
            hide(step);
        }
        EventKind::StateReady { source, .. } => hide(source),
        EventKind::RunFinished { ended_early, .. } => ended_early.iter_mut().for_each(hide),
        EventKind::TrialFinished { detail, .. } => detail.iter_mut().for_each(hide),
        // Ids, numbers, and names that results are told by.
        EventKind::RunStarted { .. }
        | EventKind::TrialStarted { .. }
        | EventKind::TrialReady { .. }
        | EventKind::PhaseStarted { .. }
        | EventKind::Ticked { .. }
        | EventKind::WindowMeasured { .. } => {}
    }
    kind
}

fn started(plan: &SweepPlan, sinks: &Sinks, progress: &Progress) -> EventKind {
    let n_skipped = plan.jobs.iter().filter(|job| job.skip.is_some()).count();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    EventKind::RunStarted {
        run_id: plan.run_id.clone(),
        folder: sinks.folder.path().display().to_string(),
        n_trials: count(plan.jobs.len()),
        n_skipped: count(n_skipped),
        cpus: plan.cpu_lines.clone(),
        estimate_s: progress.left_s(Duration::ZERO),
    }
}

fn ended(plan: &SweepPlan, sinks: &Sinks, summary: &SweepSummary, took: Duration) -> EventKind {
    EventKind::RunFinished {
        run_id: plan.run_id.clone(),
        folder: sinks.folder.path().display().to_string(),
        valid: summary.valid,
        suspect: summary.suspect,
        failed: summary.failed,
        skipped: summary.skipped,
        ended_early: summary.ended_early.clone(),
        took_s: took.as_secs_f64(),
    }
}

/// Why the trials after this one are not run, where they are not.
async fn why_stop<E: Engine>(
    shared: &Shared<'_, E>,
    failures_in_a_row: u32,
    is_failed: bool,
    still_runs: Option<&str>,
) -> Option<Reason> {
    let settings = &shared.plan.settings;
    if shared.is_interrupted() {
        return Some(Reason::new("interrupted", "the sweep was interrupted"));
    }
    if (is_failed || still_runs.is_some())
        && let Err(words) = engine_answers(shared).await
    {
        return Some(Reason::new("engine_lost", words));
    }
    if let Some(left) = still_runs {
        // Beside it nothing could be measured.
        let words = format!("a trial's containers could not be removed: {left}");
        return Some(Reason::new("not_removed", words));
    }
    if settings.fail_fast && is_failed {
        return Some(Reason::new(
            "fail_fast",
            "a trial failed and --fail-fast was given",
        ));
    }
    let most = settings.max_consecutive_failures;
    if most > 0 && failures_in_a_row >= most {
        let words = format!(
            "{failures_in_a_row} trials failed in a row ([trials] max_consecutive_failures = {most})"
        );
        return Some(Reason::new("too_many_failures", words));
    }
    None
}

/// Waits for an engine that is being started again; what it said last when it stays away.
async fn engine_answers<E: Engine>(shared: &Shared<'_, E>) -> Result<(), String> {
    let begun = tokio::time::Instant::now();
    loop {
        let Err(error) = shared.engine.describe().await else {
            return Ok(());
        };
        if begun.elapsed() >= ENGINE_PATIENCE || shared.is_interrupted() {
            let waited = format_duration(begun.elapsed());
            return Err(format!(
                "the engine did not answer for {waited}: {}",
                chain(&error)
            ));
        }
        tokio::time::sleep(ENGINE_RETRY).await;
    }
}

/// The gravest verdict of a trial's windows; one that was not tried says nothing of the others.
fn worst(rows: &[TrialRow]) -> Verdict {
    let grave = |verdict: &Verdict| match verdict {
        Verdict::Skipped | Verdict::Valid => 0,
        Verdict::Suspect => 1,
        Verdict::Failed => 2,
    };
    let is_tried = |verdict: &Verdict| *verdict != Verdict::Skipped;
    rows.iter()
        .map(|row| row.verdict)
        .filter(is_tried)
        .max_by_key(grave)
        .or_else(|| rows.first().map(|row| row.verdict))
        .unwrap_or(Verdict::Failed)
}

fn finished(
    emit: &mut dyn FnMut(EventKind),
    trial: TrialRef,
    verdict: Verdict,
    rows: &[TrialRow],
    left_s: f64,
) {
    let row = rows.iter().find(|row| row.verdict == verdict);
    let mut flags: Vec<String> = rows.iter().flat_map(|row| row.flags.clone()).collect();
    flags.sort();
    flags.dedup();
    emit(EventKind::TrialFinished {
        trial,
        verdict: verdict.as_str().to_owned(),
        reason: row.and_then(|row| row.reason.clone()),
        detail: row.and_then(|row| row.detail.clone()),
        flags,
        left_s,
    });
}

/// Everything of one trial, evidence before rows: a row never points at nothing.
fn keep_trial(
    sinks: &mut Sinks,
    clock: Clock,
    job: &Job,
    outcome: &TrialOutcome,
    rows: &[TrialRow],
) -> Result<(), SweepError> {
    let failed = |source| failure(job, source);
    for window in &outcome.windows {
        let phase = &job.phases[window.phase];
        let name = &phase.plan.name;
        let path = sinks.folder.histogram_log(job.trial, 1, name, phase.step);
        write_histogram_log(
            &path,
            &window.summary.intervals,
            window.summary.length,
            clock.epoch_s(window.summary.started),
        )
        .map_err(failed)?;
        let key = OperationKey {
            run_id: rows
                .first()
                .map(|row| row.run_id.clone())
                .unwrap_or_default(),
            trial: job.trial,
            attempt: 1,
            cell_id: job.cell_id.clone(),
            window: name.clone(),
            step: phase.step,
        };
        sinks
            .operations
            .append(&key, &window.summary)
            .map_err(failed)?;
    }
    let kept = sinks.proofs.append(&outcome.proofs, &sinks.secrets);
    kept.map_err(failed)?;
    for (service, text) in &outcome.logs {
        sinks
            .folder
            .write_log(job.trial, 1, service, text, &sinks.secrets)
            .map_err(failed)?;
    }
    keep_rows(sinks, job, rows.to_vec())
}

fn keep_rows(sinks: &mut Sinks, job: &Job, mut rows: Vec<TrialRow>) -> Result<(), SweepError> {
    for row in &mut rows {
        row.detail = row
            .detail
            .as_ref()
            .map(|detail| sinks.secrets.redact(detail));
    }
    sinks
        .trials
        .append(&rows)
        .map_err(|source| failure(job, source))
}

fn failure(job: &Job, source: ResultsError) -> SweepError {
    SweepError::Results {
        trial: job.trial,
        cell_id: job.cell_id.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_words_of_an_event_hold_a_secret() {
        let mut secrets = Secrets::new([0; 16]);
        secrets.hide("hunter2-hunter2");
        let words = || "it said hunter2-hunter2".to_owned();
        let kinds = [
            EventKind::Warned { text: words() },
            EventKind::StatePreparing {
                source: words(),
                step: words(),
            },
            EventKind::StateReady {
                source: words(),
                key: String::new(),
                reused: false,
                fingerprint: String::new(),
                bytes: 0,
                files: 0,
                prepared_s: 0.0,
                made_at: String::new(),
                clones: 0,
            },
            EventKind::RunFinished {
                run_id: String::new(),
                folder: String::new(),
                valid: 0,
                suspect: 0,
                failed: 0,
                skipped: 0,
                ended_early: Some(words()),
                took_s: 0.0,
            },
        ];
        for kind in kinds {
            let told = format!("{:?}", redacted(kind, &secrets));
            assert!(
                !told.contains("hunter2") && told.contains("secret:"),
                "{told}"
            );
        }
    }
}
