//! What a person at a terminal sees: lasting lines, and one live line below.
//!
//! The live line is redrawn at most once an event; it is cut to the width it
//! was given, so it never wraps and leaves remains behind.

use super::plain::{line_of, name_of, part_of, seconds};
use super::table::{count, latency_ms};
use super::{Printer, Reporter};
use crate::event::{Event, EventKind};

/// Terminals narrower than this are rare, and a line cut here still says the trial.
const LIVE_LINE_COLUMNS: usize = 100;
const BAR_COLUMNS: usize = 20;

/// Lasting lines and one live line.
#[derive(Debug)]
pub struct ConsoleReporter {
    printer: Printer,
    phase: String,
    phase_length_s: f64,
}

impl ConsoleReporter {
    /// A reporter for a terminal on stderr.
    pub fn new(printer: Printer) -> Self {
        Self {
            printer,
            phase: String::new(),
            phase_length_s: 0.0,
        }
    }

    fn live(&self, text: &str) {
        let cut: String = text.chars().take(LIVE_LINE_COLUMNS).collect();
        self.printer.progress(&cut);
    }
}

impl Reporter for ConsoleReporter {
    fn event(&mut self, event: &Event) {
        let lasting = match &event.kind {
            EventKind::TrialStarted { trial, left_s } => {
                self.live(&format!(
                    "{} launching · {} left",
                    name_of(trial),
                    seconds(*left_s)
                ));
                return;
            }
            EventKind::TrialReady { trial, after_s, .. } => {
                self.live(&format!("{} ready after {after_s:.1} s", name_of(trial)));
                return;
            }
            EventKind::PhaseStarted {
                trial,
                phase,
                step,
                ramp,
                length_s,
                left_s,
                ..
            } => {
                let phase = part_of(phase, *step, *ramp);
                self.phase.clone_from(&phase);
                self.phase_length_s = *length_s;
                self.live(&format!(
                    "{} {phase} · {} left",
                    name_of(trial),
                    seconds(*left_s)
                ));
                return;
            }
            EventKind::Ticked {
                trial,
                second,
                successes,
                errors,
                p99_ms,
                left_s,
            } => {
                let share = ((second + 1) as f64 / self.phase_length_s.max(1.0)).min(1.0);
                let p99 = p99_ms.map_or("–".to_owned(), latency_ms);
                let failures = if *errors > 0 {
                    format!(" · {errors} errors/s")
                } else {
                    String::new()
                };
                self.live(&format!(
                    "{} {} {} {}/s · p99 {p99} ms{failures} · {} left",
                    name_of(trial),
                    self.phase,
                    bar(share),
                    count(*successes),
                    seconds(*left_s)
                ));
                return;
            }
            EventKind::TrialFinished { .. }
            | EventKind::RunStarted { .. }
            | EventKind::StatePreparing { .. }
            | EventKind::StateReady { .. }
            | EventKind::WindowMeasured { .. }
            | EventKind::Warned { .. }
            | EventKind::VersionsSeen { .. }
            | EventKind::RunFinished { .. } => line_of(&event.kind),
        };
        if let Some(line) = lasting {
            self.printer.clear_progress();
            self.printer.note(&line);
        }
    }
}

fn bar(share: f64) -> String {
    let full = (share * BAR_COLUMNS as f64).round() as usize;
    format!("▕{}{}▏", "█".repeat(full), " ".repeat(BAR_COLUMNS - full))
}
