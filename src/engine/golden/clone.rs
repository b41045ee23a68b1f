//! A trial's own copy of a golden volume, proved equal before anything starts.

use std::time::Duration;

use indexmap::IndexMap;

use super::container::{HelperError, HelperMount, HelperRequest, run_helper};
use super::image::HelperImage;
use super::store::{SealedGolden, short_fingerprint};
use crate::engine::{Engine, EngineError, EngineErrorKind, LaunchError, TrialTag};
use crate::stack::{Stack, Volume};
use crate::tree::{CloneMode, TreeAnswer};

/// Up to this size the content of a clone that shares its blocks is read all the same: it
/// takes a second or two. Beyond it reading would take longer than everything else
/// of a trial, and the kernel's word that the blocks are shared has to do; names,
/// owners, permissions and sizes are always compared. **Units**: bytes.
const READ_SHARED_BELOW: u64 = 4 << 30;
/// Longest time of a clone: something for the container, and a slow disk's speed.
const CLONE_FLOOR: Duration = Duration::from_mins(1);
const SLOW_DISK_BYTES_PER_S: u64 = 10 << 20;
const SLOW_DISK_FILES_PER_S: u64 = 1_000;

/// How a trial gets its own copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneWay {
    /// Files are made, their content shared or copied.
    Files(CloneMode),
    /// The golden below, the trial's writes above.
    Overlay,
}

/// A golden as trials get it.
#[derive(Debug, Clone, PartialEq)]
pub struct CloneSource {
    /// The golden.
    pub golden: SealedGolden,
    /// How it is cloned.
    pub way: CloneWay,
    /// The program that does it.
    pub image: HelperImage,
}

/// What a trial finds in volumes that are not simply new.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialState {
    /// Volumes that outlive the trial: engine name by the stack's own.
    pub kept: IndexMap<String, String>,
    /// Volumes that are clones.
    pub clone: Option<CloneSource>,
}

impl TrialState {
    /// Longest time that making the volumes may take, beside what every launch takes.
    pub fn limit(&self) -> Duration {
        self.clone.as_ref().map_or(Duration::ZERO, clone_limit)
    }
}

/// Longest time of everything that making and comparing a clone takes.
fn clone_limit(source: &CloneSource) -> Duration {
    let trees = source.golden.facts.trees.values();
    let limit = limit_of(
        source.golden.facts.bytes(),
        trees.map(|tree| tree.files).sum(),
    );
    match source.way {
        CloneWay::Files(_) => limit,
        // It takes a container of its own to make room for the writes.
        CloneWay::Overlay => limit * 2,
    }
}

/// The content is read, written, and read again to be compared; each file is made and looked
/// at, however small it is.
fn limit_of(bytes: u64, files: u64) -> Duration {
    let reading = Duration::from_secs(3 * bytes / SLOW_DISK_BYTES_PER_S);
    CLONE_FLOOR + reading + Duration::from_secs(files / SLOW_DISK_FILES_PER_S)
}

/// A clone that is equal to its golden.
#[derive(Debug, Clone, PartialEq)]
pub struct ClonedState {
    /// Its short fingerprint, the golden's own.
    pub fingerprint: String,
    /// Making and comparing it, its container included. **Units**: seconds.
    pub seconds: f64,
    /// `reflink`, `copy` or `overlay`.
    pub method: &'static str,
    /// Sizes of its files. **Units**: bytes.
    pub bytes: u64,
}

/// The volumes of a launch.
#[derive(Debug)]
pub(in crate::engine) struct LaunchVolumes<'a> {
    pub(in crate::engine) stack: &'a Stack,
    /// Engine name by the stack's own.
    pub(in crate::engine) names: &'a IndexMap<String, String>,
}

/// Makes and fills the volumes that are clones.
///
/// **Errors**: `clone_failed`, and `state_not_equal` when a clone is not like its golden.
pub(in crate::engine) async fn clone_volumes<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    source: &CloneSource,
    volumes: &LaunchVolumes<'_>,
) -> Result<ClonedState, LaunchError> {
    let begun = tokio::time::Instant::now();
    let golden = &source.golden;
    // A volume that no service of this cell mounts has nobody who would miss it.
    let wanted: Vec<&str> = golden
        .facts
        .trees
        .keys()
        .map(String::as_str)
        .filter(|name| volumes.names.contains_key(*name))
        .collect();
    let failed = |source| LaunchError::CloneFailed {
        volume: wanted.join(", "),
        source,
    };
    let answer = match source.way {
        CloneWay::Files(mode) => files(engine, tag, source, volumes, &wanted, mode).await,
        CloneWay::Overlay => overlays(engine, tag, source, volumes, &wanted).await,
    };
    let answer = answer.map_err(failed)?;
    for name in &wanted {
        let expected = &golden.facts.trees[*name];
        let found = answer.trees.get(*name);
        if !found.is_some_and(|found| found.is_like(expected)) {
            let word = |tree: &crate::tree::TreeReport| {
                tree.content.as_ref().unwrap_or(&tree.shape)[..12].to_owned()
            };
            return Err(LaunchError::StateNotEqual {
                volume: (*name).to_owned(),
                expected: word(expected),
                found: found.map_or_else(|| "nothing".to_owned(), word),
            });
        }
    }
    let method = answer.trees.values().find_map(|tree| tree.method);
    Ok(ClonedState {
        fingerprint: short_fingerprint(
            wanted
                .iter()
                .map(|name| (*name, &golden.facts.trees[*name])),
        ),
        seconds: begun.elapsed().as_secs_f64(),
        method: match source.way {
            CloneWay::Overlay => "overlay",
            CloneWay::Files(mode) => method.unwrap_or(mode).as_str(),
        },
        bytes: wanted
            .iter()
            .map(|name| golden.facts.trees[*name].bytes)
            .sum(),
    })
}

async fn files<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    source: &CloneSource,
    volumes: &LaunchVolumes<'_>,
    wanted: &[&str],
    mode: CloneMode,
) -> Result<TreeAnswer, HelperError> {
    let labels = tag.labels();
    for name in wanted {
        let plain = Volume::default();
        let volume = volumes.stack.volumes.get(*name).unwrap_or(&plain);
        engine
            .create_volume(&volumes.names[*name], volume, &labels)
            .await?;
    }
    let mut mounts = vec![golden_mount(source)];
    mounts.extend(wanted.iter().map(|name| HelperMount::Volume {
        name: volumes.names[*name].clone(),
        target: format!("/clone/{name}"),
        read_only: false,
    }));
    let mut arguments: Vec<String> = ["clone", "--from", "/golden", "--to", "/clone", "--mode"]
        .map(str::to_owned)
        .to_vec();
    arguments.push(mode.as_str().to_owned());
    arguments.extend(depth_flag(source));
    help(engine, tag, source, mounts, arguments, wanted).await
}

async fn overlays<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    source: &CloneSource,
    volumes: &LaunchVolumes<'_>,
    wanted: &[&str],
) -> Result<TreeAnswer, HelperError> {
    let labels = tag.labels();
    let writes_of = |name: &str| format!("{}--writes", volumes.names[name]);
    let mut mounts = vec![golden_mount(source)];
    for name in wanted {
        let scratch = writes_of(name);
        engine
            .create_volume(&scratch, &Volume::default(), &labels)
            .await?;
        mounts.push(HelperMount::Volume {
            name: scratch,
            target: format!("/scratch/{name}"),
            read_only: false,
        });
    }
    let arguments = ["scratch", "--from", "/golden", "--to", "/scratch"].map(str::to_owned);
    help(engine, tag, source, mounts, arguments.to_vec(), wanted).await?;
    let below = place_of(engine, &source.golden.data).await?;
    let mut mounts = Vec::new();
    for name in wanted {
        let above = place_of(engine, &writes_of(name)).await?;
        let options =
            format!("lowerdir={below}/{name},upperdir={above}/upper,workdir={above}/work");
        let overlay = Volume {
            external: None,
            driver_opts: [("type", "overlay"), ("device", "overlay"), ("o", &options)]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        };
        engine
            .create_volume(&volumes.names[*name], &overlay, &labels)
            .await?;
        mounts.push(HelperMount::Volume {
            name: volumes.names[*name].clone(),
            target: format!("/clone/{name}"),
            read_only: true,
        });
    }
    let mut arguments = vec![
        "fingerprint".to_owned(),
        "--at".to_owned(),
        "/clone".to_owned(),
    ];
    arguments.extend(depth_flag(source));
    help(engine, tag, source, mounts, arguments, wanted).await
}

fn golden_mount(source: &CloneSource) -> HelperMount {
    HelperMount::Volume {
        name: source.golden.data.clone(),
        target: "/golden".to_owned(),
        read_only: true,
    }
}

fn depth_flag(source: &CloneSource) -> Option<String> {
    (source.golden.facts.bytes() > READ_SHARED_BELOW).then(|| "--shape".to_owned())
}

async fn help<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    source: &CloneSource,
    mounts: Vec<HelperMount>,
    mut arguments: Vec<String>,
    wanted: &[&str],
) -> Result<TreeAnswer, HelperError> {
    arguments.extend(wanted.iter().map(|name| (*name).to_owned()));
    let request = HelperRequest {
        image: &source.image,
        arguments,
        mounts,
        limit: clone_limit(source),
    };
    run_helper(engine, tag, request).await
}

/// Where the engine keeps a volume.
async fn place_of<E: Engine>(engine: &E, volume: &str) -> Result<String, EngineError> {
    let facts = engine.find_volume(volume).await?;
    let place = facts.map(|facts| facts.mountpoint).unwrap_or_default();
    // The options of an overlay are told apart by commas, its folders by colons.
    if place.is_empty() || place.contains([',', ':']) {
        let words = format!("its folder `{place}` cannot be laid under an overlay");
        return Err(EngineError::new(
            "overlay volume",
            volume,
            EngineErrorKind::Other,
            words,
        ));
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_every_reading_and_every_file() {
        let secs = |bytes, files| limit_of(bytes, files).as_secs();
        assert_eq!(secs(0, 0), 60);
        // 10 GiB at 10 MiB/s, three times.
        assert_eq!(secs(10 << 30, 0), 60 + 3 * 1_024);
        // A million empty files take time as well.
        assert_eq!(secs(0, 1_000_000), 60 + 1_000);
    }
}
