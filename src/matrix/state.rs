//! What a matrix file says about the state that trials begin with.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::sweep::TargetUrl;
use super::value_text::ValueText;
use crate::problem::Location;
use crate::toml_file::Located;

/// What a trial finds in the stack's volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// New volumes for every trial.
    Fresh,
    /// Volumes that are prepared once and cloned for every trial.
    Golden,
    /// The same volumes for the whole run.
    Keep,
}

impl State {
    /// As in matrix files and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Golden => "golden",
            Self::Keep => "keep",
        }
    }
}

/// Volumes that are prepared once and cloned for every trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Golden {
    /// Where their content comes from.
    pub from: Located<GoldenFrom>,
    /// Named volumes of the stack. **Shape**: at least one.
    pub volumes: Vec<Located<String>>,
    /// How each trial gets its own.
    pub clone: CloneWay,
}

/// Where golden content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoldenFrom {
    /// The stack is run and seeded once.
    Prepare,
    /// A volume of the engine, which is only read.
    Volume(String),
    /// A folder, which is only read; relative to the matrix file.
    Folder(PathBuf),
}

impl fmt::Display for GoldenFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare => f.write_str("prepare"),
            Self::Volume(name) => write!(f, "volume:{name}"),
            Self::Folder(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

/// How a trial gets its own copy of a golden volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneWay {
    /// Shared blocks where the file system can, else copied.
    Auto,
    /// Shared blocks, or an error.
    Reflink,
    /// The golden volume below, the trial's writes above.
    Overlay,
    /// Copied.
    Copy,
}

impl CloneWay {
    /// As in matrix files and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Reflink => "reflink",
            Self::Overlay => "overlay",
            Self::Copy => "copy",
        }
    }
}

/// What fills golden volumes while they are prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// A service of the Compose files that is run to its end then, and never in trials.
    pub service: Option<Located<String>>,
    /// A workload, every step of which must succeed.
    pub workload: Option<Located<PathBuf>>,
    /// Where its requests go; `None` is the load's target.
    pub target: Option<Located<TargetUrl>>,
    /// Users that send it, each its next journey when the last is over.
    pub users: u32,
    /// Journeys of all users together.
    pub journeys: u64,
    /// Longest time that seeding may take, service and workload each.
    pub timeout: Duration,
}

/// A command that is run in a container before phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Where it is.
    pub location: Location,
    /// Before which phases.
    pub before: HookBefore,
    /// The service in whose container it runs.
    pub service: Located<String>,
    /// Command and arguments, a cell's values put in. **Shape**: at least one.
    pub exec: Vec<ValueText>,
    /// Longest time it may take.
    pub timeout: Duration,
}

/// Before which phases a hook is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookBefore {
    /// Before every window.
    Windows,
    /// Before the phase of this name.
    Phase(String),
}
