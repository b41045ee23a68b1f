//! What a sweep is told of golden volumes. Pure. What their content depends on is in `golden_key`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use super::TargetSpec;
use crate::engine::CloneWay;
use crate::load::Workload;
use crate::stack::{MountSource, Service, Stack};

/// What trials find in the stack's volumes.
#[derive(Debug, Clone, Default)]
pub enum StatePlan {
    /// New ones for every trial.
    #[default]
    Fresh,
    /// The same ones for the whole run.
    Keep,
    /// Clones of golden ones.
    Golden(GoldenPlan),
}

impl StatePlan {
    /// As rows spell it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Keep => "keep",
            Self::Golden(_) => "golden",
        }
    }
}

/// The golden volumes of a sweep.
#[derive(Debug, Clone)]
pub struct GoldenPlan {
    /// How trials get their own.
    pub way: CloneWay,
    /// One for each definition of what fills them; most often one. **Shape**: at least one.
    pub specs: Vec<GoldenSpec>,
}

/// One golden: what it is made from.
#[derive(Debug, Clone)]
pub struct GoldenSpec {
    /// The first cell that uses it; its values prepare it.
    pub cell_id: String,
    /// What is launched to prepare it, seeding service included.
    pub stack: Arc<Stack>,
    /// What the seeding workload may name.
    pub variables: IndexMap<String, String>,
    /// Named volumes of the stack.
    pub volumes: Vec<String>,
    /// Where the content comes from.
    pub source: GoldenSource,
    /// Everything that shapes the content but the images' digests, see `definition`.
    pub definition: String,
}

/// Where golden content comes from.
#[derive(Debug, Clone)]
pub enum GoldenSource {
    /// The stack, run once and seeded.
    Prepare(Option<Box<SeedSpec>>),
    /// A volume of the engine.
    Volume(String),
    /// A folder of the engine's host.
    Folder(PathBuf),
}

impl GoldenSource {
    /// As matrix files spell it.
    pub fn words(&self) -> String {
        match self {
            Self::Prepare(_) => "prepare".to_owned(),
            Self::Volume(name) => format!("volume:{name}"),
            Self::Folder(path) => format!("dir:{}", path.display()),
        }
    }
}

/// What fills golden volumes while the stack runs.
#[derive(Debug, Clone)]
pub struct SeedSpec {
    /// A service that runs to its end.
    pub service: Option<String>,
    /// Requests, every one of which must succeed.
    pub workload: Option<SeedLoad>,
    /// Longest time of each.
    pub timeout: Duration,
}

/// Seeding by requests.
#[derive(Debug, Clone)]
pub struct SeedLoad {
    /// What is sent.
    pub workload: Arc<Workload>,
    /// Where to; `None` is the load's target.
    pub target: Option<TargetSpec>,
    /// Users that send at once.
    pub users: u32,
    /// Journeys of all users together.
    pub journeys: u64,
}

/// Whether a service can write to any of the volumes.
pub(super) fn mounts_any(service: &Service, volumes: &[String]) -> bool {
    service.mounts.iter().any(|mount| {
        !mount.read_only
            && matches!(&mount.source, MountSource::Volume { source, .. } if volumes.contains(source))
    })
}
