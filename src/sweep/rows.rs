//! From what a trial came to, to its rows. Pure.
//!
//! **Invariant**: one row for every planned window, whatever happened. A window
//! that was not held to its end has the reason and no figures.

use std::time::Duration;

use indexmap::IndexMap;

use super::loading::{THRESHOLD_CROSSED, pacing_of};
use super::outcome::{TrialOutcome, WindowOutcome};
use super::script::{THRESHOLDS_UNJUDGED, annotate};
use super::{Ending, Job, JobPhase, Reason, Slo, SweepPlan};
use crate::cpus::CpuSet;
use crate::engine::{ServiceUse, cpu_limit};
use crate::load::LoadModel;
use crate::measure::{
    Crossed, Figures, Judgement, Pacing, WindowSummary, WindowVerdict, crossed, judge, unjudged,
};
use crate::results::{SCHEMA_VERSION, TrialRow, Verdict};
use crate::stack::Service;
use crate::threshold::Threshold;

/// The rows of a trial, in the order of its windows.
pub(super) fn rows_of(plan: &SweepPlan, job: &Job, outcome: &TrialOutcome) -> Vec<TrialRow> {
    windows(job)
        .map(|(index, phase)| {
            let mut row = base_row(&plan.run_id, job, phase);
            row.started_at = Some(outcome.started_at.clone());
            row.target_path = outcome.target_path.map(str::to_owned);
            row.dead_time_s = Some(outcome.dead_time.as_secs_f64());
            row.restarts = outcome.restarts;
            row.oom_killed = outcome.oom_killed;
            let subject = job.stack.services.get(&plan.subject);
            row.subject_cpu_limit_cores = subject.and_then(launched_limit);
            row.replicas = subject.map(|subject| subject.replicas.unwrap_or(1));
            row.state = Some(plan.state.as_str().to_owned());
            if let Some(cloned) = &outcome.cloned {
                row.state_fingerprint = Some(cloned.fingerprint.clone());
                row.clone_s = Some(cloned.seconds);
                row.clone_method = Some(cloned.method.to_owned());
                if cloned.method == "overlay" {
                    row.flags.push("overlay_clone".to_owned());
                }
            }
            if outcome.is_unclean_start {
                row.flags.push("unclean_start".to_owned());
            }
            row.warmup_s = Some(warm_up_before(job, index).as_secs_f64());
            if let Some(window) = outcome.windows.iter().find(|window| window.phase == index) {
                fill(&mut row, window, phase, plan);
                if let Some(report) = &outcome.script {
                    annotate(&mut row, report, index, &window.summary);
                }
                if outcome.is_knob_not_asked && row.verdict != Verdict::Failed {
                    row.flags.push("knob_not_asked".to_owned());
                }
            } else {
                // What comes after a load that was ended on purpose was not tried.
                let is_after = outcome.aborted_in.is_some_and(|aborted| index > aborted);
                let reason = match &outcome.ending {
                    Ending::Failed(reason) => reason.clone(),
                    Ending::Measured => Reason::new("load_failed", "the window was never held"),
                };
                row.verdict = if is_after {
                    Verdict::Skipped
                } else {
                    Verdict::Failed
                };
                row.reason = Some(reason.code.to_owned());
                row.detail = Some(reason.words);
            }
            row
        })
        .collect()
}

/// The rows of a trial that was not run.
pub(super) fn skipped_rows(run_id: &str, job: &Job, reason: &Reason) -> Vec<TrialRow> {
    windows(job)
        .map(|(_, phase)| TrialRow {
            verdict: Verdict::Skipped,
            reason: Some(reason.code.to_owned()),
            detail: Some(reason.words.clone()),
            ..base_row(run_id, job, phase)
        })
        .collect()
}

/// The windows of a trial with their place among its phases.
pub(super) fn windows(job: &Job) -> impl Iterator<Item = (usize, &JobPhase)> {
    job.phases
        .iter()
        .enumerate()
        .filter(|(_, phase)| phase.plan.window)
}

/// The CPU limit a service is launched with, over all its containers: the quota, else the
/// CPUs. **Units**: cores.
fn launched_limit(service: &Service) -> Option<f64> {
    let n_cpus = || {
        let cpus: CpuSet = service.cpuset.as_deref()?.parse().ok()?;
        Some(cpus.len() as f64).filter(|n| *n > 0.0)
    };
    cpu_limit(service).or_else(n_cpus)
}

/// Load that ran before a window without being measured.
fn warm_up_before(job: &Job, window: usize) -> Duration {
    job.phases[..window]
        .iter()
        .filter(|phase| !phase.plan.window)
        .map(|phase| phase.plan.duration)
        .sum()
}

fn base_row(run_id: &str, job: &Job, phase: &JobPhase) -> TrialRow {
    let (users, planned_rate_rps) = match phase.plan.model {
        LoadModel::Closed { users } => (Some(users), None),
        LoadModel::Script { .. } => (None, None),
        LoadModel::Open {
            requests_per_second,
            ..
        } => (None, Some(requests_per_second)),
    };
    let is_open = planned_rate_rps.is_some();
    TrialRow {
        schema_version: SCHEMA_VERSION,
        run_id: run_id.to_owned(),
        trial: job.trial,
        attempt: 1,
        role: job.role.to_owned(),
        counted: true,
        block: job.block,
        cell_id: job.cell_id.clone(),
        axes: job.axes.clone(),
        variables: job.derived.clone(),
        window: phase.plan.name.clone(),
        answers: phase.answers.map(str::to_owned),
        step: phase.step,
        load_model: Some(phase.load_model().to_owned()),
        latency_from: Some(if is_open { "due" } else { "send" }.to_owned()),
        users,
        planned_rate_rps,
        window_s: Some(phase.plan.duration.as_secs_f64()),
        flags: [
            (phase.load_tied_to_knob, "load_tied_to_knob"),
            (job.shares_cpus, "shared_cpus"),
        ]
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, flag)| flag.to_owned())
        .collect(),
        service_cpu_cores: job
            .stack
            .services
            .keys()
            .map(|name| (name.clone(), None))
            .collect(),
        ..TrialRow::default()
    }
}

fn fill(row: &mut TrialRow, window: &WindowOutcome, phase: &JobPhase, plan: &SweepPlan) {
    fill_verdict(row, window, phase);
    fill_figures(row, window);
    fill_host(row, window, &plan.subject);
    row.slo_met = slo_met(&plan.settings.slo, phase, &window.summary);
}

fn fill_verdict(row: &mut TrialRow, window: &WindowOutcome, phase: &JobPhase) {
    let verdict = judge(&window.summary, pacing_of(phase));
    row.verdict = match verdict.judgement {
        Judgement::Valid => Verdict::Valid,
        Judgement::Suspect => Verdict::Suspect,
        Judgement::Failed => Verdict::Failed,
    };
    row.reason = verdict
        .reasons
        .first()
        .map(|reason| reason.code().to_owned());
    row.detail = window_detail(&window.summary, &verdict, pacing_of(phase));
    // Flags are said of a measurement; where there is none the reason says it all.
    if verdict.judgement != Judgement::Failed {
        row.flags
            .extend(verdict.flags.iter().map(|flag| flag.code().to_owned()));
        if window.is_environment_changed {
            row.flags.push("environment_changed".to_owned());
        }
    }
    if verdict.judgement != Judgement::Failed && !window.unhealthy.is_empty() {
        row.flags.push("unhealthy".to_owned());
        let words = window.unhealthy.iter().map(|(name, output)| {
            format!("the healthcheck of service `{name}` failed in the window ({output})")
        });
        let words: Vec<String> = row.detail.take().into_iter().chain(words).collect();
        row.detail = Some(words.join("; "));
    }
    if let Some(asked) = window.summary.retry_after.words() {
        let words: Vec<String> = row.detail.take().into_iter().chain([asked]).collect();
        row.detail = Some(words.join("; "));
    }
    if verdict.judgement != Judgement::Failed {
        fill_thresholds(row, &window.summary, &phase.thresholds);
    }
}

/// What the window's figures say of the user's rules, and which of them they say nothing of.
fn fill_thresholds(row: &mut TrialRow, summary: &WindowSummary, thresholds: &[Threshold]) {
    let crossed = crossed(summary, thresholds);
    if !crossed.is_empty() {
        row.flags.push(THRESHOLD_CROSSED.to_owned());
        let words: Vec<String> = crossed.iter().map(Crossed::words).collect();
        row.thresholds_crossed = Some(words.join("; "));
    }
    let unjudged = unjudged(summary, thresholds);
    if !unjudged.is_empty() {
        row.flags.push(THRESHOLDS_UNJUDGED.to_owned());
        let rules: Vec<String> = unjudged.iter().map(ToString::to_string).collect();
        let words = format!("thresholds of operations never sent: {}", rules.join(", "));
        let words: Vec<String> = row.detail.take().into_iter().chain([words]).collect();
        row.detail = Some(words.join("; "));
    }
}

fn fill_figures(row: &mut TrialRow, window: &WindowOutcome) {
    let Figures {
        counts,
        throughput_rps,
        achieved_rate_rps,
        latency_ms,
        service_ms,
        send_lag_ms,
        p99_due_ms,
    } = &window.summary.total;
    row.achieved_rate_rps = Some(*achieved_rate_rps);
    row.arrivals = Some(window.summary.arrivals);
    row.journeys = Some(window.summary.journeys.counts.successes);
    row.due = Some(counts.due);
    row.requests = Some(counts.requests);
    row.successes = Some(counts.successes);
    row.refused = Some(counts.refused);
    row.errors = Some(counts.errors.total());
    row.abandoned = Some(counts.abandoned);
    row.unsent = Some(counts.unsent);
    row.throughput_rps = Some(*throughput_rps);
    row.mean_ms = latency_ms.mean;
    row.p50_ms = latency_ms.p50;
    row.p90_ms = latency_ms.p90;
    row.p95_ms = latency_ms.p95;
    row.p99_ms = latency_ms.p99;
    row.p999_ms = latency_ms.p999;
    row.max_ms = latency_ms.max;
    row.p99_due_ms = *p99_due_ms;
    row.service_p99_ms = service_ms.p99;
    row.journey_p99_ms = window.summary.journeys.latency_ms.p99;
    row.send_lag_p99_ms = send_lag_ms.p99;
}

fn fill_host(row: &mut TrialRow, window: &WindowOutcome, subject: &str) {
    let cores = |used: &ServiceUse| Some(used.total.cpu_cores);
    row.service_cpu_cores = row
        .service_cpu_cores
        .keys()
        .map(|name| (name.clone(), window.counters.get(name).and_then(cores)))
        .collect::<IndexMap<_, _>>();
    if let Some(used) = window.counters.get(subject) {
        let delta = &used.total;
        row.replica_imbalance = used.imbalance();
        if used.is_imbalanced() {
            row.flags.push("imbalanced".to_owned());
        }
        row.subject_cpu_cores = Some(delta.cpu_cores);
        row.throttled_ratio = delta.throttled_ratio;
        row.subject_memory_peak_bytes = delta.memory_peak_bytes;
        let requests = window.summary.total.counts.requests;
        if requests > 0 {
            let cpu_ms = delta.cpu_cores * window.summary.length.as_secs_f64() * 1e3;
            row.cpu_ms_per_request = Some(cpu_ms / requests as f64);
        }
    }
    let length_s = window.summary.length.as_secs_f64();
    row.generator_cpu_cores =
        (length_s > 0.0).then(|| window.summary.generator_cpu.as_secs_f64() / length_s);
    let threads_s = length_s * window.summary.threads as f64;
    row.generator_wait_ratio = window
        .summary
        .generator_wait
        .filter(|_| threads_s > 0.0)
        .map(|waited| waited.as_secs_f64() / threads_s);
    row.host_busy_cores = window.host_busy_cores;
    row.proof = Some(window.proof.to_owned());
}

/// The service level is asked of latency windows and of a ladder's steps; a saturating
/// loop would fail any level by design. Every part of it must be met: an operation that
/// the window has nothing of has met nothing.
fn slo_met(slo: &[Slo], phase: &JobPhase, summary: &WindowSummary) -> Option<bool> {
    if slo.is_empty() || !matches!(phase.answers, Some("latency" | "ladder")) {
        return None;
    }
    let is_met = |slo: &Slo| {
        let Some(name) = &slo.operation else {
            return meets(slo, &summary.total);
        };
        let mut own = summary.operations.iter();
        own.any(|(found, figures)| found == name && meets(slo, figures))
    };
    Some(slo.iter().all(is_met))
}

fn meets(slo: &Slo, figures: &Figures) -> bool {
    let p99_is_met = slo
        .p99_ms
        .is_none_or(|limit| figures.p99_due_ms.is_some_and(|p99| p99 <= limit));
    let counts = &figures.counts;
    let n_failed = counts.failed();
    let rate = n_failed as f64 / counts.due.max(1) as f64;
    p99_is_met
        && slo
            .error_rate
            .is_none_or(|limit| counts.due > 0 && rate <= limit)
}

/// How requests ended where the figures do not stand, and what the rules fired by.
fn window_detail(
    summary: &WindowSummary,
    verdict: &WindowVerdict,
    pacing: Pacing,
) -> Option<String> {
    let counts = &summary.total.counts;
    let mut parts = Vec::new();
    if verdict.judgement != Judgement::Valid {
        parts.push(format!(
            "{} of {} requests succeeded ({} refused, {} errors, {} abandoned, {} unsent)",
            counts.successes,
            counts.due,
            counts.refused,
            counts.errors.total(),
            counts.abandoned,
            counts.unsent
        ));
    }
    let evidence = verdict.evidence(summary, pacing);
    parts.extend(
        evidence
            .into_iter()
            .map(|own| format!("{}: {}", own.code, own.words)),
    );
    let last = summary.failures.last();
    if let Some(last) = last.filter(|_| verdict.judgement != Judgement::Valid) {
        parts.push(format!("last failure: {last}"));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
