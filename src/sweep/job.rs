//! What a sweep is told: the trials to run, each with all it needs.
//!
//! Built by `app` from the matrix, the Compose files and the workload. Nothing
//! is resolved later: what the night runs was checked in the evening.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use super::{JobScript, Knob, Reason, StatePlan};
use crate::cpus::CpuSet;
use crate::engine::LaunchTarget;
use crate::load::{LoadModel, PhasePlan, Workload};
use crate::scalar::Scalar;
use crate::stack::Stack;
use crate::threshold::Threshold;
use crate::tls::Wire;

/// A whole sweep.
#[derive(Debug)]
pub struct SweepPlan {
    /// The run's id.
    pub run_id: String,
    /// The trials, in the order they are run.
    pub jobs: Vec<Job>,
    /// The service that is being sized.
    pub subject: String,
    /// Whose CPUs are whose, one line each.
    pub cpu_lines: Vec<String>,
    /// Where load goes.
    pub target: TargetSpec,
    /// What is sent; `None` where every job has a script.
    pub workload: Option<Arc<Workload>>,
    /// What trials find in the stack's volumes.
    pub state: StatePlan,
    /// The rest.
    pub settings: Settings,
}

/// One trial to run.
#[derive(Debug, Clone)]
pub struct Job {
    /// Index in the plan, from 1.
    pub trial: u32,
    /// Block, from 1.
    pub block: u32,
    /// `cell`.
    pub role: &'static str,
    /// The cell's id.
    pub cell_id: String,
    /// Axis values in file order.
    pub axes: IndexMap<String, Scalar>,
    /// Derived values in file order.
    pub derived: IndexMap<String, Scalar>,
    /// What the workload may name: axes, derived values, `env.X`.
    pub variables: IndexMap<String, String>,
    /// What is launched.
    pub stack: Arc<Stack>,
    /// CPUs of the load threads; `None` leaves them where they are.
    pub generator_cpus: Option<CpuSet>,
    /// Whether subject, generator and other services are not all on CPUs of their own.
    pub shares_cpus: bool,
    /// Places beside the target that are asked things.
    pub asked: Vec<LaunchTarget>,
    /// What services must say of their own knobs.
    pub knobs: Vec<Knob>,
    /// The k6 script that makes its load, where one does.
    pub script: Option<JobScript>,
    /// Stretches of load, in order.
    pub phases: Vec<JobPhase>,
    /// Which of the sweep's goldens it is cloned from, where it is.
    pub golden: usize,
    /// Why it is not run, where it is not.
    pub skip: Option<Reason>,
}

/// A phase of a trial.
#[derive(Debug, Clone)]
pub struct JobPhase {
    /// What the generator is told.
    pub plan: PhasePlan,
    /// `latency`, `capacity` or `ladder`, for a window.
    pub answers: Option<&'static str>,
    /// Step of a ladder, from 1; a ramp has that of the step it leads to.
    pub step: Option<u32>,
    /// What must hold of it.
    pub thresholds: Vec<Threshold>,
    /// Whether its load differs between the cells of a tier.
    pub load_tied_to_knob: bool,
    /// Commands that are run before it begins, in order.
    pub hooks: Vec<Hook>,
}

/// A command in the container of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The service.
    pub service: String,
    /// Command and arguments.
    pub exec: Vec<String>,
    /// Longest time it may take.
    pub timeout: Duration,
}

impl JobPhase {
    /// `closed`, `open` or `script`.
    pub fn load_model(&self) -> &'static str {
        match self.plan.model {
            LoadModel::Closed { .. } => "closed",
            LoadModel::Open { .. } => "open",
            LoadModel::Script { .. } => "script",
        }
    }
}

/// Where load goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSpec {
    /// A service of the stack.
    Service {
        /// Its Compose name.
        service: String,
        /// Its port inside the container.
        port: u16,
        /// Put before every path.
        base_path: String,
        /// What stands between us and it.
        wire: Wire,
    },
    /// An address outside the stack.
    Remote {
        /// Where it is.
        address: std::net::SocketAddr,
        /// `Host` header.
        host: String,
        /// Put before every path.
        base_path: String,
        /// What stands between us and it.
        wire: Wire,
    },
}

impl TargetSpec {
    /// What stands between us and it.
    pub fn wire(&self) -> &Wire {
        match self {
            Self::Service { wire, .. } | Self::Remote { wire, .. } => wire,
        }
    }
}

/// When the target counts as ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadySpec {
    /// Path to get.
    pub path: String,
    /// Status it must answer.
    pub status: u16,
}

/// What holds for every trial.
#[derive(Debug, Clone)]
pub struct Settings {
    /// When the target counts as ready; `None` is 'it accepts a connection'.
    pub ready: Option<ReadySpec>,
    /// Longest time from launch to ready.
    pub ready_timeout: Duration,
    /// Longest wait for one answer.
    pub request_timeout: Duration,
    /// Longest wait for a window's last answers.
    pub drain: Duration,
    /// Load threads.
    pub load_threads: usize,
    /// Seed of random values and arrivals.
    pub seed: u64,
    /// Failures in a row that end the sweep; 0 never does.
    pub max_consecutive_failures: u32,
    /// Whether the first failure ends the sweep.
    pub fail_fast: bool,
    /// The service level, as far as the matrix has one; all of it must be met.
    pub slo: Vec<Slo>,
    /// Launch and tear-down of one trial until some have been measured.
    pub assumed_dead_time: Duration,
}

/// A part of the service level that latency windows are judged by.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo {
    /// Of which operation; `None` is of all together.
    pub operation: Option<String>,
    /// Highest allowed p99 over everything due. **Units**: milliseconds.
    pub p99_ms: Option<f64>,
    /// Highest allowed share of errors.
    pub error_rate: Option<f64>,
}
