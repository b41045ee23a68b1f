//! Trials whose load a k6 script makes: how it is started, and what its end says of rows.

use std::sync::Arc;
use std::time::Duration;

use super::loading::THRESHOLD_CROSSED;
use super::target::{addresses_of, base_path_of, host_of};
use super::{Job, Reason, SweepPlan};
use crate::engine::Launched;
use crate::load::k6::{Script, ScriptPlan, ScriptReport, Stretch};
use crate::load::{LoadError, RunningLoad, Target};
use crate::measure::WindowSummary;
use crate::results::{TrialRow, Verdict};

/// A script as a trial runs it.
#[derive(Debug, Clone)]
pub struct JobScript {
    /// The script, as it was read with the cell's values.
    pub script: Arc<Script>,
    /// Hosts and ports it has written in that lead to the target.
    pub hosts: Vec<String>,
    /// What of the script each phase of the job is.
    pub stretches: Vec<Stretch>,
}

impl JobScript {
    /// Longest time beside the phases: set-up, last iterations, tear-down.
    pub(super) fn longest_around(&self) -> Duration {
        self.script.options.longest_around()
    }

    /// Starts it against what was launched.
    pub(super) fn start(
        &self,
        plan: &SweepPlan,
        job: &Job,
        launched: &Launched,
    ) -> Result<RunningLoad, LoadError> {
        let names = job.phases.iter().map(|phase| phase.plan.name.clone());
        RunningLoad::start_script(ScriptPlan {
            script: Arc::clone(&self.script),
            target: Target {
                addresses: addresses_of(&plan.target, launched),
                host: host_of(&plan.target),
                base_path: base_path_of(&plan.target),
                wire: plan.target.wire().clone(),
            },
            hosts: self.hosts.clone(),
            phases: names.zip(self.stretches.iter().cloned()).collect(),
            drain: plan.settings.drain,
            cpus: job.generator_cpus.clone(),
        })
    }
}

/// What broke the trial, where k6 ended too soon.
pub(super) fn reason_of(report: &ScriptReport) -> Option<Reason> {
    let words = report.cut_short.clone()?;
    Some(Reason::new("script_ended", words))
}

/// A threshold that nothing was measured for.
pub(super) const THRESHOLDS_UNJUDGED: &str = "thresholds_unjudged";

/// k6 cut iterations off when their time was over.
const INTERRUPTED: &str = "iterations_interrupted";
/// So much higher the 99th percentile of what was due may be, had all that was cut off hung in one
/// window, before that window's is not known.
const MOST_HIDDEN: f64 = 1.1;

/// Flags that are known before anything is measured.
const OF_THE_PLAN: [&str; 2] = ["load_tied_to_knob", "shared_cpus"];

/// Puts what k6's end says into the row of a window.
pub(super) fn annotate(
    row: &mut TrialRow,
    report: &ScriptReport,
    phase: usize,
    summary: &WindowSummary,
) {
    if row.verdict == Verdict::Failed {
        return;
    }
    let notes = report.windows.iter().find(|notes| notes.phase == phase);
    let notes = notes.copied().unwrap_or_default();
    let mut words = Vec::new();
    if notes.threw > 0 {
        words.push(format!(
            "{} of {} iterations of the script threw",
            notes.threw,
            notes.iterations()
        ));
    }
    let has_success = summary.journeys.counts.successes > 0;
    if notes.is_script_failed() || (notes.threw > 0 && !has_success) {
        // Its requests may have been fine, and were not those it was written for.
        row.verdict = Verdict::Failed;
        row.reason = Some("script_failed".to_owned());
        row.thresholds_crossed = None;
        row.flags
            .retain(|flag| OF_THE_PLAN.contains(&flag.as_str()));
    }
    let is_measured = row.verdict != Verdict::Failed;
    let mut flag = |is_so: bool, flag: &str| {
        if is_so && is_measured && !row.flags.iter().any(|known| known == flag) {
            row.flags.push(flag.to_owned());
        }
    };
    flag(
        notes.threw > 0 || report.ended_badly.is_some(),
        "script_errors",
    );
    flag(report.interrupted > 0, INTERRUPTED);
    flag(report.crossed.is_some(), THRESHOLD_CROSSED);
    flag(!report.unjudged.is_empty(), THRESHOLDS_UNJUDGED);
    if let Some(ending) = &report.ended_badly {
        words.push(format!("k6 ended with {ending}"));
    }
    if report.interrupted > 0 {
        words.push(interrupted(row, summary, report.interrupted));
    }
    if let Some(metrics) = &report.crossed
        && is_measured
    {
        let theirs = format!("of the script, over its whole run: {metrics}");
        let ours = row.thresholds_crossed.take();
        let all: Vec<String> = ours.into_iter().chain([theirs]).collect();
        row.thresholds_crossed = Some(all.join("; "));
    }
    if !report.unjudged.is_empty() {
        let metrics = report.unjudged.join(", ");
        words.push(format!(
            "thresholds that nothing was measured for: {metrics}"
        ));
    }
    if !words.is_empty() {
        let words: Vec<String> = row.detail.take().into_iter().chain(words).collect();
        row.detail = Some(words.join("; "));
    }
}

/// What iterations that were cut off mean for a row, in words.
///
/// k6 writes no sample of a request that was never answered when its iteration was cut off, nor does it say
/// when that was sent: each may have been one of this window, and hung.
fn interrupted(row: &mut TrialRow, summary: &WindowSummary, n: u64) -> String {
    let mut words = format!(
        "{n} iterations of the whole run were cut off in the middle, and their last requests are not counted"
    );
    // Those would be failures of any operation, too: what is met without them may be missed.
    row.slo_met = row.slo_met.filter(|is_met| !is_met);
    let (known, worst) = (summary.total.p99_due_ms, summary.p99_due_ms_with(n));
    let is_known =
        matches!((known, worst), (Some(known), Some(worst)) if worst <= known * MOST_HIDDEN);
    if !is_known {
        if row.verdict == Verdict::Valid {
            row.verdict = Verdict::Suspect;
            row.reason = Some("iterations_interrupted".to_owned());
        }
        row.p99_due_ms = None;
        words.push_str(
            ", but may have hung and hide the p99 of what was due; a longer gracefulStop waits for their end",
        );
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::k6::WindowNotes;
    use crate::measure::{Figures, LatencyFrom, Outcome, Recorder, Sample};

    fn annotated(report: &ScriptReport, successes: u64) -> TrialRow {
        annotated_of(report, successes, &[(7, 1_000)])
    }

    /// The row of a window with so many journeys that succeeded, and so many requests that
    /// took so many milliseconds.
    fn annotated_of(report: &ScriptReport, successes: u64, requests: &[(u64, u32)]) -> TrialRow {
        let mut recorder = Recorder::new(vec!["read".to_owned()], LatencyFrom::Send);
        for (ms, n) in requests {
            for _ in 0..*n {
                let ns = ms * 1_000_000;
                recorder.record(&Sample {
                    operation: 0,
                    outcome: Outcome::Success,
                    second: 0,
                    sent_second: 0,
                    latency_ns: ns,
                    service_ns: ns,
                    lag_ns: 0,
                    generator_lag_ns: 0,
                    is_sent_inside: true,
                });
            }
        }
        let length = Duration::from_secs(10);
        let total = recorder.total(length);
        let mut row = TrialRow {
            verdict: Verdict::Valid,
            p99_due_ms: total.p99_due_ms,
            slo_met: Some(true),
            ..TrialRow::default()
        };
        let mut summary = WindowSummary {
            intervals: recorder.into_intervals(),
            ..WindowSummary::quiet(total, length)
        };
        summary.journeys.counts.successes = successes;
        annotate(&mut row, report, 1, &summary);
        row
    }

    /// A row of a window in which so many of the iterations threw.
    fn threw(threw: u64, ended: u64, successes: u64) -> TrialRow {
        let notes = |phase, threw| WindowNotes {
            phase,
            ended,
            threw,
            ..WindowNotes::default()
        };
        // What threw in another window says nothing of this one.
        let report = ScriptReport {
            windows: vec![notes(0, ended), notes(1, threw), notes(2, ended)],
            ..ScriptReport::default()
        };
        annotated(&report, successes)
    }

    #[test]
    fn a_clean_end_says_nothing() {
        let row = annotated(&ScriptReport::default(), 9);
        assert_eq!((row.verdict, row.detail), (Verdict::Valid, None));
        assert!(row.flags.is_empty());
    }

    #[test]
    fn iterations_that_threw_are_flagged_and_when_most_did_there_is_no_measurement() {
        for (n_threw, ended, flags) in [
            (0, 0, vec![]),
            (0, 100, vec![]),
            (1, 1_000, vec!["script_errors"]),
            (2, 100, vec!["script_errors"]),
            (50, 100, vec!["script_errors"]),
        ] {
            let row = threw(n_threw, ended, 9);
            assert_eq!(
                (row.verdict, row.flags),
                (
                    Verdict::Valid,
                    flags.into_iter().map(str::to_owned).collect()
                ),
                "{n_threw} of {ended}"
            );
            assert_eq!(row.detail.is_some(), n_threw > 0);
        }
        // One stray success changes nothing, nor do iterations whose end was never told; and
        // where what did not throw failed by itself there is no measurement either.
        for (n_threw, ended, successes) in [
            (51, 100, 49),
            (1, 1, 0),
            (7, 7, 0),
            (99, 100, 1),
            (3, 2, 0),
            (3, 0, 0),
            (40, 100, 0),
        ] {
            let row = threw(n_threw, ended, successes);
            assert_eq!(
                (row.verdict, row.reason.as_deref()),
                (Verdict::Failed, Some("script_failed")),
                "{n_threw} of {ended}"
            );
            assert!(row.flags.is_empty() && row.thresholds_crossed.is_none());
            assert!(
                row.detail
                    .unwrap()
                    .ends_with("iterations of the script threw")
            );
        }
        assert_eq!(
            threw(99, 100, 1).detail.unwrap(),
            "99 of 100 iterations of the script threw"
        );
    }

    #[test]
    fn iterations_cut_off_make_a_window_suspect_once_they_may_hide_its_p99() {
        let cut_off = |interrupted| ScriptReport {
            interrupted,
            ..ScriptReport::default()
        };
        // Of a thousand alike, ten more leave the p99 where it is; eleven make it endless.
        let few = annotated(&cut_off(10), 9);
        assert_eq!((few.verdict, few.reason), (Verdict::Valid, None));
        assert!(few.p99_due_ms.is_some());
        assert_eq!(few.flags, [INTERRUPTED]);
        assert_eq!(few.slo_met, None, "they may have failed");
        let many = annotated(&cut_off(11), 9);
        assert_eq!(
            (many.verdict, many.reason.as_deref()),
            (Verdict::Suspect, Some(INTERRUPTED))
        );
        assert_eq!((many.p99_due_ms, many.slo_met), (None, None));
        assert!(many.detail.as_ref().unwrap().contains("may have hung"));
        // One more moves the rank to the slow ones, which are just beyond it.
        let tail = annotated_of(&cut_off(1), 9, &[(7, 990), (50, 10)]);
        assert_eq!((tail.verdict, tail.p99_due_ms), (Verdict::Suspect, None));
    }

    #[test]
    fn what_is_bad_without_those_cut_off_stays_as_bad() {
        let quiet = || WindowSummary::quiet(Figures::default(), Duration::from_secs(10));
        // More than 1 % failed: the p99 is endless, and known to be.
        let mut summary = quiet();
        summary.total.counts.due = 100;
        summary.total.counts.errors.status = 100;
        summary.total.p99_due_ms = Some(f64::INFINITY);
        let mut row = TrialRow {
            verdict: Verdict::Valid,
            p99_due_ms: Some(f64::INFINITY),
            slo_met: Some(false),
            ..TrialRow::default()
        };
        interrupted(&mut row, &summary, 5);
        assert_eq!(row.verdict, Verdict::Valid);
        assert_eq!(
            (row.p99_due_ms, row.slo_met),
            (Some(f64::INFINITY), Some(false))
        );
        // A reason that is there already stays.
        row.verdict = Verdict::Suspect;
        row.reason = Some("generator_saturated".to_owned());
        interrupted(&mut row, &quiet(), 5);
        assert_eq!(row.reason.as_deref(), Some("generator_saturated"));
    }

    #[test]
    fn what_else_is_known_is_a_flag_with_words() {
        let report = ScriptReport {
            crossed: Some("http_req_duration".to_owned()),
            unjudged: vec!["http_reqs{name:x}".to_owned()],
            interrupted: 3,
            ended_badly: Some("exit code 108".to_owned()),
            ..ScriptReport::default()
        };
        let row = annotated(&report, 9);
        let flags = [
            "script_errors",
            "iterations_interrupted",
            THRESHOLD_CROSSED,
            "thresholds_unjudged",
        ];
        assert_eq!(row.flags, flags);
        assert_eq!(
            row.thresholds_crossed.as_deref(),
            Some("of the script, over its whole run: http_req_duration")
        );
        insta::assert_snapshot!(row.detail.unwrap(), @"k6 ended with exit code 108; 3 iterations of the whole run were cut off in the middle, and their last requests are not counted; thresholds that nothing was measured for: http_reqs{name:x}");
    }
}
