//! From trial to trial: runs each job, writes its rows, decides whether to go on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::outcome::TrialOutcome;
use super::progress::{Progress, load_of};
use super::rows::{rows_of, skipped_rows};
use super::shell::{Shared, run_trial};
use super::state::prepare_state;
use super::{Clock, Job, Reason, SweepPlan};
use crate::engine::{Engine, HostFacts, Owner};
use crate::event::{Event, EventKind, TrialRef};
use crate::problem::chain;
use crate::results::{
    OperationKey, OperationsCsv, ResultsError, RunFolder, TrialRow, TrialsCsv, Verdict,
    write_histogram_log,
};
use crate::secret::Secrets;
use crate::units::format_duration;

/// A daemon that is upgraded or restarted is back well within this.
const ENGINE_PATIENCE: Duration = Duration::from_mins(1);
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
/// **Cancel**: dropping the future queues the removal of the trial under way.
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
        facts: host.0,
        owner: host.1,
        clock,
        interrupted,
        versions_seen: AtomicBool::new(false),
        states: Vec::new(),
    };
    let mut progress = Progress::new(&plan.jobs, &plan.settings);
    let n_trials = u32::try_from(plan.jobs.len()).unwrap_or(u32::MAX);
    emit(started(plan, sinks, &progress));

    let begun = Instant::now();
    let mut summary = SweepSummary::default();
    let mut failures_in_a_row = 0;
    // Why the rest is not run, once that is so.
    let mut rest: Option<Reason> = None;
    let prepared = prepare_state(&shared, &mut emit).await;
    let kept_for_run = prepared
        .map_err(|reason| {
            summary.ends_early(&reason);
            rest = Some(reason);
        })
        .ok();
    shared.states = kept_for_run
        .as_ref()
        .map_or_else(Vec::new, |state| state.states.clone());
    for job in &plan.jobs {
        let name = TrialRef {
            trial: job.trial,
            n_trials,
            attempt: 1,
            cell_id: job.cell_id.clone(),
        };
        if let Some(reason) = job.skip.as_ref().or(rest.as_ref()) {
            let rows = skipped_rows(&plan.run_id, job, reason);
            keep_rows(sinks, job, rows)?;
            summary.skipped += 1;
            continue;
        }
        progress.begin(job);
        let left_s = progress.left_s(progress.dead_time() + load_of(job));
        emit(EventKind::TrialStarted {
            trial: name.clone(),
            left_s,
        });
        let outcome = run_trial(&shared, job, name.clone(), &progress, &mut emit).await;
        progress.end(outcome.dead_time);
        let rows = rows_of(plan, job, &outcome);
        let verdict = worst(&rows);
        keep_trial(sinks, clock, job, &outcome, &rows)?;
        finished(
            &mut emit,
            name,
            verdict,
            &rows,
            sinks,
            progress.left_s(Duration::ZERO),
        );
        if let Some(left) = &outcome.left_behind {
            emit(EventKind::Warned {
                text: format!(
                    "trial {} left something behind: {left}; `nightsweep clean --run {}` removes it",
                    job.trial, plan.run_id
                ),
            });
        }
        summary.count(verdict);
        failures_in_a_row = if verdict == Verdict::Failed {
            failures_in_a_row + 1
        } else {
            0
        };
        rest = why_stop(&shared, failures_in_a_row, verdict).await;
        if let Some(reason) = &rest {
            summary.ends_early(reason);
        }
    }
    if let Some(state) = kept_for_run {
        state.release(&plan.run_id, &mut emit).await;
    }
    emit(ended(plan, sinks, &summary, begun.elapsed()));
    Ok(summary)
}

/// Texts that come from containers and the engine leave without secrets.
fn redacted(kind: EventKind, secrets: &Secrets) -> EventKind {
    match kind {
        EventKind::Warned { text } => EventKind::Warned {
            text: secrets.redact(&text),
        },
        EventKind::VersionsSeen {
            versions,
            idle_connect_ms,
        } => EventKind::VersionsSeen {
            versions: versions
                .into_iter()
                .map(|(service, text)| (service, secrets.redact(&text)))
                .collect(),
            idle_connect_ms,
        },
        other => other,
    }
}

fn started(plan: &SweepPlan, sinks: &Sinks, progress: &Progress) -> EventKind {
    let n_skipped = plan.jobs.iter().filter(|job| job.skip.is_some()).count();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    EventKind::RunStarted {
        run_id: plan.run_id.clone(),
        folder: sinks.folder.path().display().to_string(),
        n_trials: count(plan.jobs.len()),
        n_skipped: count(n_skipped),
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
    verdict: Verdict,
) -> Option<Reason> {
    let settings = &shared.plan.settings;
    if *shared.interrupted.borrow() > 0 {
        return Some(Reason::new("interrupted", "the sweep was interrupted"));
    }
    if verdict == Verdict::Failed
        && let Err(words) = engine_answers(shared).await
    {
        return Some(Reason::new("engine_lost", words));
    }
    if settings.fail_fast && verdict == Verdict::Failed {
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
        if begun.elapsed() >= ENGINE_PATIENCE || *shared.interrupted.borrow() > 0 {
            let waited = format_duration(begun.elapsed());
            return Err(format!(
                "the engine did not answer for {waited}: {}",
                chain(&error)
            ));
        }
        tokio::time::sleep(ENGINE_RETRY).await;
    }
}

/// The gravest verdict of a trial's windows.
fn worst(rows: &[TrialRow]) -> Verdict {
    let grave = |verdict: &Verdict| match verdict {
        Verdict::Valid => 0,
        Verdict::Suspect => 1,
        Verdict::Skipped => 2,
        Verdict::Failed => 3,
    };
    rows.iter()
        .map(|row| row.verdict)
        .max_by_key(grave)
        .unwrap_or(Verdict::Failed)
}

fn finished(
    emit: &mut impl FnMut(EventKind),
    trial: TrialRef,
    verdict: Verdict,
    rows: &[TrialRow],
    sinks: &Sinks,
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
        detail: row
            .and_then(|row| row.detail.as_ref())
            .map(|detail| sinks.secrets.redact(detail)),
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
        let name = &job.phases[window.phase].plan.name;
        let path = sinks.folder.histogram_log(job.trial, 1, name);
        write_histogram_log(
            &path,
            &window.summary.intervals,
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
            step: None,
        };
        sinks
            .operations
            .append(&key, &window.summary)
            .map_err(failed)?;
    }
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
