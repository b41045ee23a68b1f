//! What happened in a sweep, as plain data.
//!
//! The sweep emits [`Event`]s through one callback; reporters turn them into a
//! progress line, plain lines or JSON lines. An event holds ids, numbers and
//! summaries: no text for people, no colour, no policy of what to show.
//!
//! To add one: a variant here, then an arm in each reporter (they match without
//! a wildcard, so the compiler names the places).

use std::time::Duration;

use indexmap::IndexMap;
use serde::Serialize;

/// Something that happened, with its time.
#[derive(Debug, Clone)]
pub struct Event {
    /// Wall clock, RFC 3339 in UTC.
    pub at: String,
    /// Since the sweep began, by the monotonic clock.
    pub elapsed: Duration,
    /// What happened.
    pub kind: EventKind,
}

/// Which trial an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrialRef {
    /// Index in the plan, from 1.
    pub trial: u32,
    /// Trials planned.
    pub n_trials: u32,
    /// Attempt, from 1.
    pub attempt: u32,
    /// The cell it measures.
    pub cell_id: String,
}

/// The kinds of events, in the order of a sweep.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The run's folder exists and the first trial is next.
    RunStarted {
        /// The run's id.
        run_id: String,
        /// Its folder.
        folder: String,
        /// Trials planned.
        n_trials: u32,
        /// Of these, not launched: they get `skipped` rows.
        n_skipped: u32,
        /// Whose CPUs are whose, one line each.
        cpus: Vec<String>,
        /// Expected length. **Units**: seconds.
        estimate_s: f64,
    },
    /// The next step of preparing golden volumes.
    StatePreparing {
        /// Where their content comes from, as the matrix says it.
        source: String,
        /// In words.
        step: String,
    },
    /// Golden volumes are there; trials are given clones of them.
    StateReady {
        /// Where their content came from.
        source: String,
        /// Salted: tells goldens of one run apart, and nothing from run to run.
        key: String,
        /// Whether they were there already.
        reused: bool,
        /// What tells their content. **Shape**: 12 hexadecimal digits.
        fingerprint: String,
        /// Sizes of all files.
        bytes: u64,
        /// Files.
        files: u64,
        /// Preparing them, whenever that was. **Units**: seconds.
        prepared_s: f64,
        /// When that was, RFC 3339 in UTC.
        made_at: String,
        /// Clones that the sweep makes of them.
        clones: u64,
    },
    /// A trial's turn: the one before is gone, and its stack is launched or on its way up already.
    TrialStarted {
        /// Which.
        #[serde(flatten)]
        trial: TrialRef,
        /// Expected rest of the sweep, this trial included. **Units**: seconds.
        left_s: f64,
    },
    /// The stack is up, the target answers and the limits are proven.
    TrialReady {
        /// Which.
        #[serde(flatten)]
        trial: TrialRef,
        /// From its first call to the engine, or from its start where it was created ahead.
        /// **Units**: seconds.
        after_s: f64,
        /// Where the target is reached.
        target: String,
    },
    /// The first stack that came up was asked what runs in it.
    VersionsSeen {
        /// What each service says of its version, where it could be asked.
        versions: IndexMap<String, String>,
        /// Median time to open a connection to the idle target. **Units**: milliseconds.
        idle_connect_ms: Option<f64>,
    },
    /// A stretch of load begins.
    PhaseStarted {
        /// Which.
        #[serde(flatten)]
        trial: TrialRef,
        /// Its name in the matrix.
        phase: String,
        /// Step of a ladder that it is, or that its ramp leads to.
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        /// Whether the load is on its way to what it will be.
        ramp: bool,
        /// Whether it is measured.
        window: bool,
        /// Nominal length. **Units**: seconds.
        length_s: f64,
        /// Expected rest of the sweep. **Units**: seconds.
        left_s: f64,
    },
    /// A second of load went by. May be lost, never late.
    Ticked {
        /// Which.
        #[serde(flatten)]
        trial: TrialRef,
        /// Seconds since the phase began.
        second: u64,
        /// Successes in that second.
        successes: u64,
        /// Errors in that second.
        errors: u64,
        /// p99 of its successes. **Units**: milliseconds.
        p99_ms: Option<f64>,
        /// Expected rest of the sweep. **Units**: seconds.
        left_s: f64,
    },
    /// A window and its drain are over.
    WindowMeasured {
        /// Which.
        #[serde(flatten)]
        trial: TrialRef,
        /// Name of the window's phase.
        window: String,
        /// Step of a ladder.
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        /// Successes per second.
        throughput_rps: f64,
        /// p99 of successes. **Units**: milliseconds.
        p99_ms: Option<f64>,
        /// Failed requests.
        errors: u64,
    },
    /// The trial is torn down and its rows are written.
    TrialFinished {
        /// Which.
        #[serde(flatten)]
        trial: TrialRef,
        /// Worst verdict of its windows.
        verdict: String,
        /// Code of the reason, where there is one.
        reason: Option<String>,
        /// The reason in words, secrets taken out.
        detail: Option<String>,
        /// Flags of its windows.
        flags: Vec<String>,
        /// Expected rest of the sweep. **Units**: seconds.
        left_s: f64,
    },
    /// Something a reader should know; the sweep goes on.
    Warned {
        /// In words.
        text: String,
    },
    /// The last row is written.
    RunFinished {
        /// The run's id.
        run_id: String,
        /// Its folder.
        folder: String,
        /// Trials by worst verdict.
        valid: u32,
        /// Measured by an instrument or on a host that cannot be trusted.
        suspect: u32,
        /// Without a measurement.
        failed: u32,
        /// Not run.
        skipped: u32,
        /// Why it ended before the plan did, where it did.
        ended_early: Option<String>,
        /// Length. **Units**: seconds.
        took_s: f64,
    },
}
