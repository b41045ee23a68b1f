//! One row of trials.csv: the contract with every reader.
//!
//! **Shape**: one row per trial, attempt, window and step. Missing is `None` and
//! is written as an empty cell, never as 0.

use indexmap::IndexMap;

use crate::scalar::Scalar;

/// Bumped when the meaning of a column changes.
pub const SCHEMA_VERSION: u32 = 1;

/// What became of a measurement. It judges the measurement, never the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The figures stand.
    Valid,
    /// The instrument or the host cannot be trusted.
    Suspect,
    /// There is no measurement; the reason is a result.
    #[default]
    Failed,
    /// Not run; the reason says why.
    Skipped,
}

impl Verdict {
    /// As rows spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Suspect => "suspect",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One window of one attempt of one trial.
///
/// Fields are in column order; `axes` become `axis_*`, `variables` become `var_*`.
/// The default is a row about which nothing is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialRow {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The run's id.
    pub run_id: String,
    /// Index of the trial in the plan, from 1.
    pub trial: u32,
    /// Attempt, from 1.
    pub attempt: u32,
    /// `cell`, `baseline`, `pilot` or `confirm`.
    pub role: String,
    /// Whether analysis may use the row.
    pub counted: bool,
    /// Block, from 1; 0 is the pilot.
    pub block: u32,
    /// The cell's id.
    pub cell_id: String,
    /// Axis values in file order.
    pub axes: IndexMap<String, Scalar>,
    /// Derived values in file order.
    pub variables: IndexMap<String, Scalar>,
    /// Name of the window's phase.
    pub window: String,
    /// `latency`, `capacity` or `ladder`.
    pub answers: Option<String>,
    /// Step of a ladder.
    pub step: Option<u32>,
    /// `closed` or `open`.
    pub load_model: Option<String>,
    /// `send` (closed) or `due` (open).
    pub latency_from: Option<String>,
    /// Virtual users of a closed loop.
    pub users: Option<u32>,
    /// Asked of an open loop. **Units**: requests per second.
    pub planned_rate_rps: Option<f64>,
    /// Sent. **Units**: requests per second.
    pub achieved_rate_rps: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
    /// Code of the reason; empty for a plain valid row.
    pub reason: Option<String>,
    /// Codes of what a reader must know, joined by `;`.
    pub flags: Vec<String>,
    /// Whether the service level was met.
    pub slo_met: Option<bool>,
    /// Start of the trial, RFC 3339 in UTC.
    pub started_at: Option<String>,
    /// Length of the warm-up. **Units**: seconds.
    pub warmup_s: Option<f64>,
    /// Whether it ended steady.
    pub steady: Option<bool>,
    /// Nominal length of the window. **Units**: seconds.
    pub window_s: Option<f64>,
    /// Journeys that arrived or began.
    pub arrivals: Option<u64>,
    /// Journeys that ended whole.
    pub journeys: Option<u64>,
    /// Requests of the window.
    pub due: Option<u64>,
    /// Of these, sent.
    pub requests: Option<u64>,
    /// Met the expectation.
    pub successes: Option<u64>,
    /// Busy by design.
    pub refused: Option<u64>,
    /// Failed.
    pub errors: Option<u64>,
    /// In flight after the drain.
    pub abandoned: Option<u64>,
    /// Due, never sent.
    pub unsent: Option<u64>,
    /// Successes per second.
    pub throughput_rps: Option<f64>,
    /// Mean latency of successes. **Units**: milliseconds, as all `_ms`.
    pub mean_ms: Option<f64>,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 90th percentile.
    pub p90_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile.
    pub p999_ms: Option<f64>,
    /// Largest.
    pub max_ms: Option<f64>,
    /// 99th percentile of everything due except refused; may be infinite, written `inf`.
    pub p99_due_ms: Option<f64>,
    /// 99th percentile from the actual send.
    pub service_p99_ms: Option<f64>,
    /// 99th percentile of whole journeys.
    pub journey_p99_ms: Option<f64>,
    /// 99th percentile of how late requests left.
    pub send_lag_p99_ms: Option<f64>,
    /// CPU the subject used. **Units**: cores.
    pub subject_cpu_cores: Option<f64>,
    /// CPU the subject may use. **Units**: cores.
    pub subject_cpu_limit_cores: Option<f64>,
    /// Share of quota periods in which it was throttled.
    pub throttled_ratio: Option<f64>,
    /// The subject's CPU per sent request. **Units**: milliseconds.
    pub cpu_ms_per_request: Option<f64>,
    /// Most memory it used. **Units**: bytes.
    pub subject_memory_peak_bytes: Option<u64>,
    /// Restarts the engine made.
    pub restarts: Option<u32>,
    /// Whether the kernel killed it for memory.
    pub oom_killed: Option<bool>,
    /// CPU by service: `svc_<name>_cpu_cores`.
    pub service_cpu_cores: IndexMap<String, Option<f64>>,
    /// CPU the generator used. **Units**: cores.
    pub generator_cpu_cores: Option<f64>,
    /// CPU the whole host used. **Units**: cores.
    pub host_busy_cores: Option<f64>,
    /// `kernel`, `inspect` or `none`.
    pub proof: Option<String>,
    /// `direct`, `published` or `remote`.
    pub target_path: Option<String>,
    /// Time without load: launch to ready, from when the trial before was gone, plus
    /// teardown. What overlaps is counted once. **Units**: seconds.
    pub dead_time_s: Option<f64>,
    /// Containers of the subject.
    pub replicas: Option<u32>,
    /// Where it has several: the most CPU that one of them used over the mean of all; 1 is even.
    pub replica_imbalance: Option<f64>,
    /// `fresh`, `golden` or `keep`.
    pub state: Option<String>,
    /// What tells the content of the golden volumes it was given. **Shape**: 12 hexadecimal digits.
    pub state_fingerprint: Option<String>,
    /// Cloning and comparing them. **Units**: seconds.
    pub clone_s: Option<f64>,
    /// `reflink`, `copy` or `overlay`.
    pub clone_method: Option<String>,
    /// The reason in words, secrets taken out.
    pub detail: Option<String>,
    /// Thresholds that its figures cross, with the figures.
    pub thresholds_crossed: Option<String>,
    /// Share of the window in which a load thread was ready and had no CPU.
    pub generator_wait_ratio: Option<f64>,
}
