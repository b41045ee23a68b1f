//! What the generator is told, and what it tells while it runs.
//!
//! **Invariant**: nothing here knows Docker or the matrix; an address, a
//! workload and phases are all there is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::Workload;
use super::k6::ScriptReport;
use crate::cpus::CpuSet;
use crate::measure::{Counts, Crossed, WindowSummary};
use crate::threshold::Threshold;
use crate::tls::Wire;

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Addresses to connect to, at least one; several are alike, and connections are
    /// spread over them evenly.
    pub addresses: Vec<SocketAddr>,
    /// `Host` header, as `app:8080`.
    pub host: String,
    /// Put before every step's path; empty or starting with `/`, never ending with one.
    pub base_path: String,
    /// What stands between us and the target.
    pub wire: Wire,
}

/// How requests are paced in a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadModel {
    /// So many virtual users, each sending its next request when the last is answered.
    Closed {
        /// Virtual users, one connection each; at least 1.
        users: u32,
    },
    /// Journeys arrive at a rate of their own, whatever the service does.
    Open {
        /// Requests per second = journeys per second x requests of a journey in the mean.
        requests_per_second: f64,
        /// How the arrivals are spaced.
        arrivals: Arrivals,
        /// Most journeys under way at once; beyond it arrivals wait, timed from due.
        max_in_flight: u32,
    },
    /// As a k6 script's own options say.
    Script {
        /// Whether iterations arrive in it, whatever the service does.
        is_open: bool,
    },
}

/// How the arrivals of an open loop are spaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Uniform,
    /// At random and independently of each other, as those of many users who know
    /// nothing of each other: gaps are exponential, drawn from the plan's seed.
    Poisson,
}

/// A journey that arrives at a rate of its own beside a phase's load.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// Its name in the workload; in this phase it is not drawn by weight.
    pub journey: String,
    /// Requests per second = journeys per second x requests of the journey.
    pub requests_per_second: f64,
    /// How the arrivals are spaced.
    pub arrivals: Arrivals,
    /// Most of its journeys under way at once; beyond it arrivals wait, timed from due.
    pub max_in_flight: u32,
}

/// One stretch of load.
#[derive(Debug, Clone, PartialEq)]
pub struct PhasePlan {
    /// Name of the phase in the matrix.
    pub name: String,
    /// Whether it is measured.
    pub window: bool,
    /// How requests are paced.
    pub model: LoadModel,
    /// For a ramp, the users or requests per second it begins with: from there the load
    /// goes evenly to the model's, which it reaches at the end. `None` holds the model's
    /// load all the time. A ramp cannot be a window.
    pub ramp_from: Option<f64>,
    /// What arrives beside it at a constant rate, and is in none of its totals.
    pub beside: Vec<Beside>,
    /// Nominal length.
    pub duration: Duration,
    /// What ends the load when a window crosses it.
    pub abort_on: Vec<AbortRule>,
    /// Whether it begins only when [`RunningLoad::go_on`](super::RunningLoad::go_on) says so.
    pub held: bool,
}

/// A threshold that ends the load.
#[derive(Debug, Clone, PartialEq)]
pub struct AbortRule {
    /// What must hold.
    pub threshold: Threshold,
    /// How long after the window's beginning it is looked at for the first time.
    pub after: Duration,
}

/// Everything the generator needs.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// Where requests go.
    pub target: Target,
    /// What is sent.
    pub workload: Arc<Workload>,
    /// Values for the workload's `${}` beside its own: axes, derived values, `env.X`.
    pub variables: IndexMap<String, String>,
    /// Stretches of load, in order; connections live across them.
    pub phases: Vec<PhasePlan>,
    /// Load threads; at least 1.
    pub threads: usize,
    /// CPUs that load threads and conductor are kept on; `None` leaves them where they are.
    pub cpus: Option<CpuSet>,
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// Longest wait for a window's last answers after its end.
    pub drain: Duration,
    /// Same seed, same random values and arrival sequence.
    pub seed: u64,
}

/// What the generator says while it runs.
#[derive(Debug)]
pub enum LoadSignal {
    /// Phase `phase` waits to be let go; the load of the phase before goes on, unrecorded.
    PhaseHeld {
        /// Index in [`LoadPlan::phases`].
        phase: usize,
    },
    /// Phase `phase` begins at `at`; for a window this is its left edge.
    PhaseStarted {
        /// Index in [`LoadPlan::phases`].
        phase: usize,
        /// When.
        at: Instant,
    },
    /// At most once a second; may be lost when nobody reads.
    Tick(Tick),
    /// The nominal end of phase `phase` was at `at`; for a window this is its
    /// right edge. The drain follows.
    PhaseEnded {
        /// Index in [`LoadPlan::phases`].
        phase: usize,
        /// When.
        at: Instant,
    },
    /// The drain of phase `phase` is over and its figures are final.
    PhaseSummed {
        /// Index in [`LoadPlan::phases`].
        phase: usize,
        /// Figures; warm-ups have them too, they make no rows.
        summary: Box<WindowSummary>,
    },
    /// A k6 script has ended. A phase of it may have been summed twice: the later figures
    /// hold what was heard of it since.
    ScriptEnded(Box<ScriptReport>),
    /// The load ends here, since a threshold was crossed; no phase follows.
    Aborted {
        /// Index in [`LoadPlan::phases`].
        phase: usize,
        /// Into the phase.
        after: Duration,
        /// Which threshold, and by what.
        crossed: Box<Crossed>,
        /// Whether the phase had come to its end, so that its figures stand: they were signalled before.
        is_whole: bool,
    },
}

/// The last second, for people to watch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tick {
    /// Index in [`LoadPlan::phases`].
    pub phase: usize,
    /// Whole seconds since the phase began.
    pub second: u64,
    /// Requests of the phase that ended in that second.
    pub counts: Counts,
    /// Median of the successes among them. **Units**: milliseconds.
    pub p50_ms: Option<f64>,
    /// p99 of the successes among them. **Units**: milliseconds.
    pub p99_ms: Option<f64>,
    /// Requests under way at its end; `None` where nobody counts them.
    pub in_flight: Option<u32>,
}
