//! What the tool asks its own container to do, and the one line it answers.

use std::path::{Path, PathBuf};
use std::time::Instant;

use indexmap::IndexMap;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::{CloneMode, Depth, Fingerprint, TreeError, clone_tree, fingerprint};

/// Work on folders that lie side by side below a root, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeJob {
    /// Copies each folder, then reads the copy.
    Clone {
        /// Root of the originals.
        from: PathBuf,
        /// Root of the copies.
        to: PathBuf,
        /// How content is passed on.
        mode: CloneMode,
        /// How much of each copy is read.
        depth: Depth,
        /// Whether everything must be on the disk before the answer.
        sync: bool,
    },
    /// Reads each folder.
    Fingerprint {
        /// Root of the folders.
        at: PathBuf,
        /// How much of each is read.
        depth: Depth,
    },
    /// Makes the two folders that an overlay of each folder writes to.
    Scratch {
        /// Root of the folders that will be overlaid.
        from: PathBuf,
        /// Root of the places to write to.
        to: PathBuf,
    },
}

/// What became of one folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeReport {
    /// Digest over everything but content. **Shape**: 64 hexadecimal digits.
    pub shape: String,
    /// Digest over content too, where it was read.
    pub content: Option<String>,
    /// Sizes of its files. **Units**: bytes.
    pub bytes: u64,
    /// Room its files take. **Units**: bytes.
    pub allocated: u64,
    /// Its files.
    pub files: u64,
    /// How content was passed on; `None` when it was only read.
    pub method: Option<CloneMode>,
    /// Making the copy. **Units**: seconds.
    pub clone_s: f64,
    /// Reading it. **Units**: seconds.
    pub read_s: f64,
    /// Attributes that the copy could not have.
    #[serde(default)]
    pub lost_attributes: Vec<String>,
}

impl TreeReport {
    /// Whether two trees are alike as far as both were read.
    pub fn is_like(&self, other: &Self) -> bool {
        let alike = |a: &String, b: &String| a == b;
        match (&self.content, &other.content) {
            (Some(ours), Some(theirs)) => alike(ours, theirs),
            _ => alike(&self.shape, &other.shape),
        }
    }
}

/// The answer: one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeAnswer {
    /// By the names that were given.
    pub trees: IndexMap<String, TreeReport>,
    /// The whole job. **Units**: seconds.
    pub seconds: f64,
}

/// Does the job for each name.
///
/// **Errors**: the first that fails; what was made by then is to be thrown away.
pub fn carry_out(job: &TreeJob, names: &[String]) -> Result<TreeAnswer, TreeError> {
    let begun = Instant::now();
    let mut trees = IndexMap::new();
    for name in names {
        trees.insert(name.clone(), one(job, name)?);
    }
    if let TreeJob::Clone { to, sync: true, .. } = job {
        put_on_disk(to)?;
    }
    Ok(TreeAnswer {
        trees,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

fn one(job: &TreeJob, name: &str) -> Result<TreeReport, TreeError> {
    let begun = Instant::now();
    match job {
        TreeJob::Clone {
            from,
            to,
            mode,
            depth,
            ..
        } => {
            let cloned = clone_tree(&from.join(name), &to.join(name), *mode)?;
            let clone_s = begun.elapsed().as_secs_f64();
            let read = Instant::now();
            // Only what is shared is known to be the same without reading it.
            let depth = match cloned.method {
                CloneMode::Reflink => *depth,
                CloneMode::Auto | CloneMode::Copy => Depth::Content,
            };
            let report = report(fingerprint(&to.join(name), depth)?, read);
            Ok(TreeReport {
                method: Some(cloned.method),
                clone_s,
                lost_attributes: cloned.lost_attributes,
                ..report
            })
        }
        TreeJob::Fingerprint { at, depth } => {
            Ok(report(fingerprint(&at.join(name), *depth)?, begun))
        }
        TreeJob::Scratch { from, to } => {
            scratch(&from.join(name), &to.join(name))?;
            Ok(TreeReport::default())
        }
    }
}

fn report(fingerprint: Fingerprint, begun: Instant) -> TreeReport {
    TreeReport {
        shape: fingerprint.shape,
        content: fingerprint.content,
        bytes: fingerprint.bytes,
        allocated: fingerprint.allocated,
        files: fingerprint.files,
        read_s: begun.elapsed().as_secs_f64(),
        ..TreeReport::default()
    }
}

/// The root of an overlay looks like the folder it writes to, so that one is dressed
/// like the original.
fn scratch(from: &Path, to: &Path) -> Result<(), TreeError> {
    let upper = to.join("upper");
    for folder in [&upper, &to.join("work")] {
        fs_err::create_dir_all(folder).map_err(TreeError::io("create", folder))?;
    }
    super::clone::dress_root(from, &upper)
}

fn put_on_disk(root: &Path) -> Result<(), TreeError> {
    rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .and_then(|folder| rustix::fs::syncfs(&folder))
        .map_err(TreeError::io("put on the disk", root))
}

/// The answer in what a container wrote: its last line that is one.
pub fn answer_of_log(log: &str) -> Option<TreeAnswer> {
    log.lines()
        .rev()
        .find_map(|line| serde_json::from_str(line.trim()).ok())
}
