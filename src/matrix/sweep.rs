//! A matrix file after checking: what every other part of the tool reads.
//!
//! Values of these types come from `read` alone, which has checked each
//! of them by itself; what can only be known per cell (a load's number of
//! users, a constraint's truth) is checked by `plan`. Nothing here is a file:
//! paths are as the user wrote them, relative to the matrix file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::expression::Expression;
use super::read::target_url;
use super::state::{Golden, Hook, Seed, State};
use super::value_text::ValueText;
use crate::cpus::CpuMode;
use crate::placed::PlacedNode;
use crate::problem::Location;
use crate::reported::Reported;
use crate::scalar::Scalar;
use crate::threshold::Threshold;
use crate::tls::TlsSettings;
use crate::toml_file::Located;

/// A checked matrix file.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The matrix file as the user named it; relative paths start in its folder.
    pub file: PathBuf,
    /// The sweep's name; safe as a part of a file name.
    pub name: String,
    /// Compose files, merged in order. **Shape**: at least one.
    pub stack: Vec<Located<PathBuf>>,
    /// The service that is being sized.
    pub subject: Located<String>,
    /// Services to start; empty for what subject and target depend on.
    pub services: Vec<Located<String>>,
    /// Compose profiles that are on.
    pub profiles: Vec<Located<String>>,
    /// Environment variables whose values are never written.
    pub secrets: Vec<Located<String>>,
    /// The knobs, first one slowest. **Shape**: at least one.
    pub axes: Vec<Axis>,
    /// Values computed from the axes, in the order they are computed.
    pub derived: Vec<Derived>,
    /// What every cell must keep to.
    pub constraints: Vec<Constraint>,
    /// The inline Compose file that is merged last.
    pub overrides: Option<PlacedNode>,
    /// Names that say what is cheaper inside a tier; the first decides.
    pub cost: Vec<Located<String>>,
    /// How trials are repeated, ordered and given up.
    pub trials: Trials,
    /// Volumes that every trial gets a clone of, with `state = "golden"`.
    pub golden: Option<Golden>,
    /// What fills them.
    pub seed: Option<Seed>,
    /// What is sent, and where to.
    pub load: Load,
    /// Stretches of load in order. **Shape**: at least one is a window.
    pub phases: Vec<Phase>,
    /// Commands that are run in containers before phases, in file order.
    pub hooks: Vec<Hook>,
    /// The service level that latency windows are judged by.
    pub slo: Slo,
    /// What must hold of windows.
    pub thresholds: Vec<ThresholdRule>,
    /// Whose CPUs are whose.
    pub host: Host,
    /// Knobs as the service itself reports them.
    pub proves: Vec<Prove>,
    /// What the report says about itself.
    pub report: ReportText,
    /// All names, axes first: an index into it is a name's slot.
    pub(super) names: Vec<String>,
    /// Slot of the tier.
    pub(super) tier: usize,
}

impl Sweep {
    /// Name of the axis or derived value that groups charts and advice.
    pub fn tier(&self) -> &str {
        &self.names[self.tier]
    }

    /// Axes and derived values in file order, axes first.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The stages of all phases, in order: an index into them is a load's place.
    pub(super) fn stages(&self) -> impl Iterator<Item = (&Phase, &Stage)> {
        let of_phase = |phase| move |stage| (phase, stage);
        self.phases
            .iter()
            .flat_map(move |phase: &Phase| phase.stages.iter().map(of_phase(phase)))
    }

    /// Names that the loads of the phases read.
    ///
    /// The names inside the override's texts are found by the stack, which
    /// knows the syntax of its templates.
    pub fn used_names(&self) -> BTreeSet<String> {
        self.stages()
            .filter_map(|(_, stage)| stage.load.amount()?.expression())
            .flat_map(|load| load.slots().iter().chain(load.tier_max_slots()))
            .map(|slot| self.names[*slot].clone())
            .chain(self.names_in_hooks())
            .chain(self.names_in_k6())
            .collect()
    }

    /// Names that a script's environment is made of, beyond what is passed on by name.
    fn names_in_k6(&self) -> impl Iterator<Item = String> {
        let env = match &self.load.source {
            LoadSource::K6(k6) => &k6.env[..],
            LoadSource::Workload(_) => &[],
        };
        let names = env.iter().flat_map(|(_, value)| value.names());
        names
            .map(|(name, _)| name.to_owned())
            .filter(|name| self.names.contains(name))
    }

    /// Names that commands before phases are given: they shape what is measured.
    fn names_in_hooks(&self) -> impl Iterator<Item = String> {
        let words = self.hooks.iter().flat_map(|hook| &hook.exec);
        words.flat_map(|word| word.names().map(|(name, _)| name.to_owned()))
    }
}

/// A named knob.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Its name, usable as a Compose variable.
    pub name: String,
    /// Where it is.
    pub location: Location,
    /// Its values in file order. **Shape**: at least one, no two written alike.
    pub levels: Vec<Scalar>,
}

/// A value computed from axes and earlier derived values.
#[derive(Debug, Clone)]
pub struct Derived {
    /// Its name, usable as a Compose variable.
    pub name: String,
    /// Where it is.
    pub location: Location,
    /// How it is computed.
    pub expression: Expression,
}

/// A rule that every cell must keep to.
#[derive(Debug, Clone)]
pub struct Constraint {
    /// Its name, told with the cells it drops.
    pub name: String,
    /// Where it is.
    pub location: Location,
    /// True for the cells that stay.
    pub expression: Expression,
}

/// How trials are repeated, ordered and given up.
#[derive(Debug, Clone, PartialEq)]
pub struct Trials {
    /// Launches of every cell; at least 1.
    pub repeats: u32,
    /// Order of the cells in a block.
    pub order: Order,
    /// Same seed, same order.
    pub seed: u64,
    /// What a trial finds in the stack's volumes.
    pub state: State,
    /// Longest wait from launch to ready.
    pub ready_timeout: Duration,
    /// Failed trials in a row that end the sweep; `None` never does.
    pub max_consecutive_failures: Option<u32>,
    /// Mounts the user allows all trials to write to.
    pub shared: Vec<Located<String>>,
}

/// Order of the cells in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Every block is a random permutation of all cells.
    Blocks,
    /// Every block is in the order of the axes.
    Listed,
}

/// What is sent, and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// What makes the load.
    pub source: LoadSource,
    /// Where requests go.
    pub target: Located<TargetUrl>,
    /// What must answer before load begins, beside the stack's own health checks.
    pub ready: Option<Ready>,
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// Longest wait for a window's last answers after its end.
    pub drain: Duration,
    /// Load threads, where the user fixed them.
    pub threads: Option<usize>,
    /// What is to be known of TLS; its paths are relative to the matrix.
    pub tls: Option<Located<TlsSettings>>,
    /// Whether HTTP/2 is spoken to the target.
    pub http2: bool,
}

/// What makes the load.
#[derive(Debug, Clone, PartialEq)]
pub enum LoadSource {
    /// Our own generator, by a workload file.
    Workload(Located<PathBuf>),
    /// The user's k6.
    K6(K6Load),
}

/// A k6 script and what it is given.
#[derive(Debug, Clone, PartialEq)]
pub struct K6Load {
    /// The script.
    pub script: Located<PathBuf>,
    /// k6 itself, where it is not the one on `PATH`.
    pub binary: Option<Located<PathBuf>>,
    /// Its environment beside axes, derived values and the target; `${target}` is its URL.
    pub env: Vec<(String, ValueText)>,
    /// Hosts and ports the script has written in that lead to the target.
    pub hosts: Vec<Located<String>>,
}

/// An HTTP address: a service of the stack, or any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    /// As the user wrote it.
    pub text: String,
    /// Service or host name; an IPv6 address without its brackets.
    pub host: String,
    /// Whether it begins with https.
    pub is_https: bool,
    /// Port; 80, or 443 over TLS, unless written.
    pub port: u16,
    /// Put before every path; empty, or starting with `/` and not ending with one.
    pub base_path: String,
}

impl TargetUrl {
    /// Reads an address; the error is what is wrong with it, to follow the address' name.
    pub fn parse(text: &str) -> Result<Self, String> {
        target_url(text)
    }
}

/// What must answer before load begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Path and query, starting with `/`.
    pub path: String,
    /// Status that means ready.
    pub status: u16,
}

/// A stretch of load.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Its name; no two are alike.
    pub name: String,
    /// Where it is.
    pub location: Location,
    /// Which question it answers; `None` for a phase that is not measured.
    pub answers: Option<Answers>,
    /// Where the file says that its load grows until something breaks. **Units**: byte offset.
    pub breakpoint_at: Option<usize>,
    /// Journeys that arrive at a rate of their own beside its loads.
    pub beside: Vec<Beside>,
    /// Its loads, one after the other. **Shape**: at least one; one that is held, unless the
    /// file has `stages` or `profile`.
    pub stages: Vec<Stage>,
}

/// A journey of the workload that arrives at a rate of its own beside a phase's load, and
/// is in none of its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// Its name.
    pub journey: Located<String>,
    /// How many requests a second, the same in every cell.
    pub requests_per_second: f64,
    /// How its arrivals are spaced.
    pub arrivals: Arrivals,
    /// Most of them under way at once.
    pub max_in_flight: u32,
}

impl Phase {
    /// Whether it is measured.
    pub fn is_window(&self) -> bool {
        self.answers.is_some()
    }

    /// Whether its loads are stages, the held ones of which are counted as steps.
    pub fn is_ladder(&self) -> bool {
        self.answers == Some(Answers::Ladder)
    }

    /// How long all of it takes.
    pub fn duration(&self) -> Duration {
        self.stages.iter().map(Stage::duration).sum()
    }
}

/// A load that is gone to evenly, then held.
#[derive(Debug, Clone)]
pub struct Stage {
    /// How much load.
    pub load: PhaseLoad,
    /// The share of it that is meant: 1 unless a profile says otherwise.
    pub share: f64,
    /// How long the load takes to get there from what it was before; zero jumps.
    pub ramp: Duration,
    /// How long it is held; zero goes on to the next stage at once.
    pub hold: Duration,
}

impl Stage {
    /// Ramp and hold together.
    pub fn duration(&self) -> Duration {
        self.ramp + self.hold
    }
}

/// The question a window answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// How long requests take at a rate that all cells of a tier can carry.
    Latency,
    /// How many requests a second can be had.
    Capacity,
    /// What changes from one load to the next.
    Ladder,
}

impl Answers {
    /// As in matrix files and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Capacity => "capacity",
            Self::Ladder => "ladder",
        }
    }
}

/// How requests of a phase are paced.
#[derive(Debug, Clone)]
pub enum PhaseLoad {
    /// Virtual users, each sending its next request when the last is answered.
    Closed {
        /// How many; one connection each.
        users: Amount,
    },
    /// Requests at a rate of their own, whatever the service does.
    Open {
        /// How many a second.
        requests_per_second: Amount,
        /// How they are spaced.
        arrivals: Arrivals,
        /// Most journeys under way at once.
        max_in_flight: u32,
    },
    /// A part of a k6 script's run.
    Script {
        /// The scenario whose requests it holds; `None` holds those of all.
        scenario: Option<Located<String>>,
        /// From the scenario's start, without one from the end of set-up.
        from: Option<Duration>,
        /// How long; until the scenario's end where it is not said.
        duration: Option<Duration>,
        /// Whether iterations arrive in it, whatever the service does; known once k6 was asked.
        is_open: bool,
    },
}

impl PhaseLoad {
    /// The number that may differ from cell to cell; a script has it to itself.
    pub fn amount(&self) -> Option<&Amount> {
        match self {
            Self::Closed { users } => Some(users),
            Self::Open {
                requests_per_second,
                ..
            } => Some(requests_per_second),
            Self::Script { .. } => None,
        }
    }

    /// `closed`, `open` or `script`, as in results.
    pub fn model(&self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Open { .. } => "open",
            Self::Script { .. } => "script",
        }
    }
}

/// How the arrivals of an open load are spaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Uniform,
    /// At random and independently of each other.
    Poisson,
}

/// A number, or how to compute it for a cell.
#[derive(Debug, Clone)]
pub struct Amount {
    /// Where it is.
    pub location: Location,
    pub(super) kind: AmountKind,
}

#[derive(Debug, Clone)]
pub(super) enum AmountKind {
    Number(f64),
    Expression(Expression),
}

impl Amount {
    /// The expression, where it is one.
    pub fn expression(&self) -> Option<&Expression> {
        match &self.kind {
            AmountKind::Number(_) => None,
            AmountKind::Expression(expression) => Some(expression),
        }
    }
}

/// The service level that latency windows are judged by.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slo {
    /// Of all operations together.
    pub total: SloLimits,
    /// Of single ones, in file order.
    pub operations: Vec<OperationSlo>,
}

/// The service level of one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationSlo {
    /// Its name.
    pub operation: Located<String>,
    /// What it must keep.
    pub limits: SloLimits,
}

/// What a service level allows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SloLimits {
    /// Largest 99th percentile of everything due. **Units**: milliseconds.
    pub p99_ms: Option<f64>,
    /// Largest share of requests that fail, from 0 to 1.
    pub error_rate: Option<f64>,
}

/// What must hold of windows; one that does not hold says something of the service.
#[derive(Debug, Clone, PartialEq)]
pub struct ThresholdRule {
    /// The rule, with the operation it is about.
    pub threshold: Threshold,
    /// Where the operation is named.
    pub operation: Option<Location>,
    /// The one window it is for; `None` for all.
    pub window: Option<String>,
    /// Whether the load of a trial ends when it is crossed.
    pub abort: bool,
    /// How long after the beginning of a window it is looked at first, where it ends the load.
    pub after: Duration,
}

impl ThresholdRule {
    /// Whether it is asked of a phase.
    pub fn is_for(&self, phase: &Phase) -> bool {
        let is_its_own = |window: &String| *window == phase.name;
        phase.is_window() && self.window.as_ref().is_none_or(is_its_own)
    }
}

/// Whose CPUs are whose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// How the subject's limit is put into force, where the file says.
    pub cpu_mode: Option<Located<CpuMode>>,
    /// CPUs kept for the generator, where the file says.
    pub reserve_cpus: Option<u32>,
}

/// A knob as the service itself reports it, and what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prove {
    /// Service and port; as written, with its query.
    pub url: Located<TargetUrl>,
    /// Path and query, starting with `/`.
    pub path: String,
    /// Where the value is in the answer.
    pub reported: Reported,
    /// What it must be in a cell.
    pub equals: ValueText,
}

/// What the report says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportText {
    /// Title; the sweep's name unless set.
    pub title: Option<String>,
    /// Who stands for it.
    pub author: Option<String>,
    /// Anything a reader should know.
    pub notes: Option<String>,
}
