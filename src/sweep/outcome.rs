//! What one trial came to, before it is put into rows.

use std::time::Duration;

use indexmap::IndexMap;
use serde_json::Value;

use super::Ending;
use crate::engine::{ClonedState, ServiceUse};
use crate::load::k6::ScriptReport;
use crate::measure::WindowSummary;

/// Everything the shell learned about a trial.
#[derive(Debug)]
pub(super) struct TrialOutcome {
    /// How it ended.
    pub(super) ending: Ending,
    /// Windows that were held to their end with their limits proven at both edges.
    pub(super) windows: Vec<WindowOutcome>,
    /// How its k6 script ended, where one made its load and came to its end.
    pub(super) script: Option<ScriptReport>,
    /// The phase in which a threshold ended the load, where one did.
    pub(super) aborted_in: Option<usize>,
    /// Lines of proofs.jsonl, in the order they were read.
    pub(super) proofs: Vec<Value>,
    /// RFC 3339 in UTC.
    pub(super) started_at: String,
    /// `direct`, `published` or `remote`, once launched.
    pub(super) target_path: Option<&'static str>,
    /// Time of the sweep in which this trial had no load: from its turn, when the one before
    /// was gone, to its load, and from the end of its load until it was gone. What of the
    /// next trial's launch overlaps with its tear-down is counted here, once, so that the
    /// dead times of a sweep add up.
    pub(super) dead_time: Duration,
    /// Restarts of the subject.
    pub(super) restarts: Option<u32>,
    /// Whether the kernel killed a container for memory.
    pub(super) oom_killed: Option<bool>,
    /// The clone it began with, where it did.
    pub(super) cloned: Option<ClonedState>,
    /// Container logs by service, when not every window is valid; what hooks wrote, always.
    pub(super) logs: Vec<(String, String)>,
    /// Whether the services could not be asked for their knobs when the load had ended.
    pub(super) is_knob_not_asked: bool,
    /// Whether it began with kept volumes that may be torn.
    pub(super) is_unclean_start: bool,
    /// What tear-down could not remove, in words.
    pub(super) left_behind: Option<String>,
    /// The same, where containers are among it or nobody can tell.
    pub(super) still_runs: Option<String>,
    /// Why volumes that the next trial begins with may be torn.
    pub(super) unclean: Option<String>,
}

/// One window that was held to its end.
#[derive(Debug)]
pub(super) struct WindowOutcome {
    /// Index of the phase.
    pub(super) phase: usize,
    /// The generator's figures.
    pub(super) summary: WindowSummary,
    /// What each service used between the edges.
    pub(super) counters: IndexMap<String, ServiceUse>,
    /// Containers whose healthcheck failed in it, with the last output.
    pub(super) unhealthy: IndexMap<String, String>,
    /// CPU the whole host used. **Units**: cores.
    pub(super) host_busy_cores: Option<f64>,
    /// Whether the subject's process had a variable otherwise than the stack says.
    pub(super) is_environment_changed: bool,
    /// `kernel` or `inspect`, the weaker of both edges.
    pub(super) proof: &'static str,
}
