//! Plain lines on stderr: for logs, CI, and as the lasting part of the console.

use std::fmt::Write as _;
use std::time::Duration;

use super::table::{count, latency_ms, rate};
use super::{Printer, Reporter};
use crate::event::{Event, EventKind, TrialRef};
use crate::units::{format_bytes, format_duration};

/// Writes a line for what lasts; seconds of load are left out.
#[derive(Debug)]
pub struct PlainReporter {
    printer: Printer,
}

impl PlainReporter {
    /// A reporter that writes to stderr.
    pub fn new(printer: Printer) -> Self {
        Self { printer }
    }
}

impl Reporter for PlainReporter {
    fn event(&mut self, event: &Event) {
        if let Some(line) = line_of(&event.kind) {
            self.printer
                .note(&format!("{}  {line}", clock(event.elapsed)));
        }
    }
}

/// Golden volumes that are there.
fn state_ready(kind: &EventKind) -> Option<String> {
    let EventKind::StateReady {
        source,
        reused,
        fingerprint,
        bytes,
        files,
        prepared_s,
        clones,
        ..
    } = kind
    else {
        return None;
    };
    let how = if *reused {
        "used again".to_owned()
    } else {
        format!("prepared in {}", seconds(*prepared_s))
    };
    Some(format!(
        "golden volumes ({source}): {how}, {} in {files} files, fingerprint {fingerprint}; {clones} clones are {}",
        format_bytes(*bytes),
        format_bytes(bytes.saturating_mul(*clones)),
    ))
}

/// What a phase, or a part of one that has several loads, is called.
pub(super) fn part_of(phase: &str, step: Option<u32>, is_ramp: bool) -> String {
    match (step, is_ramp) {
        (Some(step), true) => format!("{phase}, ramp to step {step}"),
        (Some(step), false) => format!("{phase}, step {step}"),
        (None, true) => format!("{phase}, ramp"),
        (None, false) => phase.to_owned(),
    }
}

/// The line an event leaves behind; `None` where it leaves none.
pub(super) fn line_of(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::RunStarted { .. } => return run_started(kind),
        EventKind::StatePreparing { source, step } => {
            format!("golden volumes ({source}): {step}")
        }
        EventKind::StateReady { .. } => return state_ready(kind),
        EventKind::TrialStarted { trial, left_s } => {
            format!("{} launching, {} left", name_of(trial), seconds(*left_s))
        }
        EventKind::TrialReady {
            trial,
            after_s,
            target,
        } => {
            format!("{} ready at {target} after {after_s:.1} s", name_of(trial))
        }
        EventKind::PhaseStarted {
            trial,
            phase,
            step,
            ramp,
            window,
            length_s,
            ..
        } => {
            let what = if *window { "window" } else { "phase" };
            let phase = part_of(phase, *step, *ramp);
            format!("{} {what} {phase}, {}", name_of(trial), seconds(*length_s))
        }
        EventKind::Ticked { .. } => return None,
        EventKind::VersionsSeen { versions, .. } => {
            if versions.is_empty() {
                return None;
            }
            let seen: Vec<String> = versions
                .iter()
                .map(|(service, version)| format!("{service}: {version}"))
                .collect();
            format!("runs {}", seen.join("; "))
        }
        EventKind::WindowMeasured {
            trial,
            window,
            step,
            throughput_rps,
            p99_ms,
            errors,
        } => {
            let window = part_of(window, *step, false);
            let p99 = p99_ms.map_or(String::new(), |p99| format!(", p99 {} ms", latency_ms(p99)));
            let failures = if *errors > 0 {
                format!(", {} errors", count(*errors))
            } else {
                String::new()
            };
            format!(
                "{} {window}: {} successes/s{p99}{failures}",
                name_of(trial),
                rate(*throughput_rps)
            )
        }
        EventKind::TrialFinished {
            trial,
            verdict,
            reason,
            detail,
            flags,
            ..
        } => trial_finished(trial, verdict, reason.as_deref(), detail.as_deref(), flags),
        EventKind::Warned { text } => format!("warning: {text}"),
        EventKind::RunFinished { .. } => return run_finished(kind),
    })
}

fn run_started(kind: &EventKind) -> Option<String> {
    let EventKind::RunStarted {
        run_id,
        folder,
        n_trials,
        n_skipped,
        cpus,
        estimate_s,
    } = kind
    else {
        return None;
    };
    let skipped = if *n_skipped > 0 {
        format!(", {n_skipped} skipped")
    } else {
        String::new()
    };
    let about = seconds(*estimate_s);
    let cpus: String = cpus.iter().flat_map(|line| ["\n        ", line]).collect();
    Some(format!(
        "run {run_id}: {n_trials} trials{skipped}, about {about}, rows go to {folder}{cpus}"
    ))
}

fn run_finished(kind: &EventKind) -> Option<String> {
    let EventKind::RunFinished {
        run_id,
        valid,
        suspect,
        failed,
        skipped,
        ended_early,
        took_s,
        ..
    } = kind
    else {
        return None;
    };
    let early = ended_early
        .as_ref()
        .map_or(String::new(), |why| format!("; ended early: {why}"));
    Some(format!(
        "run {run_id} ended after {}: {valid} valid, {suspect} suspect, {failed} failed, {skipped} skipped{early}",
        seconds(*took_s)
    ))
}

fn trial_finished(
    trial: &TrialRef,
    verdict: &str,
    reason: Option<&str>,
    detail: Option<&str>,
    flags: &[String],
) -> String {
    let mut line = format!("{} {verdict}", name_of(trial));
    // Writing to a String cannot fail.
    if let Some(reason) = reason {
        let _ = write!(line, " ({reason})");
    }
    if let Some(detail) = detail {
        let _ = write!(line, ": {}", detail.trim().replace('\n', "\n          "));
    }
    if !flags.is_empty() {
        let _ = write!(line, " [{}]", flags.join(", "));
    }
    line
}

/// `[3/8] cpus-1__web-2`, with the attempt where it is not the first.
pub(super) fn name_of(trial: &TrialRef) -> String {
    let attempt = if trial.attempt > 1 {
        format!(" attempt {}", trial.attempt)
    } else {
        String::new()
    };
    format!(
        "[{}/{}] {}{attempt}",
        trial.trial, trial.n_trials, trial.cell_id
    )
}

/// Seconds in people's units.
pub(super) fn seconds(seconds: f64) -> String {
    format_duration(Duration::from_secs_f64(seconds.max(0.0)))
}

fn clock(elapsed: Duration) -> String {
    let total = elapsed.as_secs();
    format!(
        "{:02}:{:02}:{:02}",
        total / 3600,
        total / 60 % 60,
        total % 60
    )
}
