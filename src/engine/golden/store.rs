//! Golden volumes on the engine: found, claimed, sealed, used.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::engine::trial::{LABEL_GOLDEN, LABEL_OWNER, LABEL_RUN};
use crate::engine::{Engine, EngineError, Labels, Leftover, LeftoverKind, Owner, TrialTag};
use crate::stack::Volume;
use crate::tree::{CloneMode, TreeReport};

/// On a seal: the volume with the data.
const LABEL_DATA: &str = "nightsweep.golden.data";
/// On a seal: what is known of the data, as JSON.
const LABEL_FACTS: &str = "nightsweep.golden.facts";
/// On a volume of a run: the key of the golden that the run uses.
pub const GOLDEN_USE_LABEL: &str = "nightsweep.uses";

/// What a golden is made from, as a digest: the same key, the same content.
///
/// **Shape**: 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GoldenKey(String);

impl GoldenKey {
    /// The key of everything that shapes the content, spelled out.
    pub fn of(definition: &str) -> Self {
        let digest = crate::tree::hex(&Sha256::digest(definition.as_bytes()));
        Self(digest[..16].to_owned())
    }

    /// As labels and files spell it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn seal_name(&self) -> String {
        format!("nightsweep-golden-{self}")
    }
}

impl fmt::Display for GoldenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of a golden.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoldenFacts {
    /// Where its content came from: `prepare`, `volume:NAME` or `dir:PATH`.
    pub source: String,
    /// When it was sealed, RFC 3339 in UTC.
    pub made_at: String,
    /// Preparing it, from launch to seal. **Units**: seconds.
    pub prepared_s: f64,
    /// What is in it, by volume of the stack.
    pub trees: IndexMap<String, TreeReport>,
    /// The copy that made it, with its container and its comparison: about what a trial's
    /// clone takes. `None` in goldens of old. **Units**: seconds.
    #[serde(default)]
    pub clone_s: Option<f64>,
}

impl GoldenFacts {
    /// Sizes of all files. **Units**: bytes.
    pub fn bytes(&self) -> u64 {
        self.trees.values().map(|tree| tree.bytes).sum()
    }

    /// What a clone like the copy that made it writes: nothing where blocks are shared.
    /// **Units**: bytes.
    pub fn written_bytes(&self) -> u64 {
        let is_shared = |tree: &&TreeReport| tree.method == Some(CloneMode::Reflink);
        let copied = self.trees.values().filter(|tree| !is_shared(tree));
        copied.map(|tree| tree.bytes).sum()
    }

    /// One short text that tells the content. **Shape**: 12 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        short_fingerprint(self.trees.iter().map(|(name, tree)| (name.as_str(), tree)))
    }
}

/// One short text for several trees by name; trees that are alike read alike.
pub(super) fn short_fingerprint<'a>(
    trees: impl Iterator<Item = (&'a str, &'a TreeReport)>,
) -> String {
    let mut digest = Sha256::new();
    for (name, tree) in trees {
        digest.update(name.as_bytes());
        digest.update(tree.content.as_ref().unwrap_or(&tree.shape).as_bytes());
    }
    crate::tree::hex(&digest.finalize())[..12].to_owned()
}

/// A golden that is whole.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedGolden {
    /// Its key.
    pub key: GoldenKey,
    /// Engine-wide name of the volume with its data.
    pub data: String,
    /// What is known of it.
    pub facts: GoldenFacts,
}

/// The label that finds everything of all goldens, or of one.
pub fn golden_label_filter(key: Option<&GoldenKey>) -> Vec<String> {
    vec![key.map_or_else(
        || LABEL_GOLDEN.to_owned(),
        |key| format!("{LABEL_GOLDEN}={key}"),
    )]
}

/// What a thing that carries the golden label is.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::engine) enum Part {
    /// The last word on a golden, and where its data is.
    Seal(SealedGolden),
    /// Data, sealed or not.
    Data,
}

pub(in crate::engine) fn part_of(thing: &Leftover) -> Part {
    let read = || {
        Some(SealedGolden {
            key: GoldenKey(thing.labels.get(LABEL_GOLDEN)?.clone()),
            data: thing.labels.get(LABEL_DATA)?.clone(),
            facts: serde_json::from_str(thing.labels.get(LABEL_FACTS)?).ok()?,
        })
    };
    read().map_or(Part::Data, Part::Seal)
}

/// The golden of a key, where it is whole.
///
/// **Errors**: the engine's.
pub async fn find_golden<E: Engine>(
    engine: &E,
    key: &GoldenKey,
) -> Result<Option<SealedGolden>, EngineError> {
    let found = engine.list_ours(&golden_label_filter(Some(key))).await?;
    let has = |name: &str| found.iter().any(|thing| thing.name == name);
    let seals = found.iter().filter_map(|thing| match part_of(thing) {
        Part::Seal(golden) => Some((thing, golden)),
        Part::Data => None,
    });
    for (thing, golden) in seals {
        if has(&golden.data) {
            return Ok(Some(golden));
        }
        // Its data was taken away by hand: a seal over nothing must not stand in the way.
        engine.remove(thing).await?;
    }
    Ok(None)
}

/// The golden made last from a source, whatever its content was.
///
/// **Errors**: the engine's.
pub async fn find_golden_of_source<E: Engine>(
    engine: &E,
    source: &str,
) -> Result<Option<SealedGolden>, EngineError> {
    let found = engine.list_ours(&golden_label_filter(None)).await?;
    let goldens = found.iter().filter_map(|thing| match part_of(thing) {
        Part::Seal(golden) if golden.facts.source == source => Some(golden),
        Part::Seal(_) | Part::Data => None,
    });
    Ok(goldens.max_by(|a, b| a.facts.made_at.cmp(&b.facts.made_at)))
}

/// Data of a key that is not sealed: who is at it, or was.
///
/// **Errors**: the engine's.
pub async fn find_claims<E: Engine>(
    engine: &E,
    key: &GoldenKey,
) -> Result<Vec<(Leftover, Option<Owner>)>, EngineError> {
    let found = engine.list_ours(&golden_label_filter(Some(key))).await?;
    Ok(unsealed(&found)
        .into_iter()
        .map(|thing| {
            let owner = thing.labels.get(LABEL_OWNER);
            (
                thing.clone(),
                owner.and_then(|owner| owner.parse::<Owner>().ok()),
            )
        })
        .collect())
}

/// Data volumes that no seal names.
pub(in crate::engine) fn unsealed(found: &[Leftover]) -> Vec<&Leftover> {
    let sealed: Vec<String> = found
        .iter()
        .filter_map(|thing| match part_of(thing) {
            Part::Seal(golden) => Some(golden.data),
            Part::Data => None,
        })
        .collect();
    found
        .iter()
        .filter(|thing| thing.kind == LeftoverKind::Volume)
        // What carries both labels is not of our making.
        .filter(|thing| !thing.labels.contains_key(LABEL_RUN))
        .filter(|thing| part_of(thing) == Part::Data && !sealed.contains(&thing.name))
        .collect()
}

/// Makes an empty data volume for a key; its engine-wide name.
///
/// Until it is sealed it belongs to the owner of `tag`, and is worth nothing to anybody else.
///
/// **Errors**: the engine's.
pub async fn claim<E: Engine>(
    engine: &E,
    key: &GoldenKey,
    tag: &TrialTag,
) -> Result<String, EngineError> {
    let run = crate::tree::hex(&Sha256::digest(tag.run_id.as_bytes()));
    let name = format!("{}-{}", key.seal_name(), &run[..8]);
    let labels = Labels::from([
        (LABEL_GOLDEN.to_owned(), key.to_string()),
        (LABEL_OWNER.to_owned(), tag.owner.to_string()),
    ]);
    engine
        .create_volume(&name, &Volume::default(), &labels)
        .await?;
    Ok(name)
}

/// Throws data away that was not sealed.
///
/// **Errors**: the engine's.
pub async fn drop_claim<E: Engine>(engine: &E, data: &str) -> Result<(), EngineError> {
    engine.remove(&volume(data)).await
}

fn volume(name: &str) -> Leftover {
    Leftover {
        kind: LeftoverKind::Volume,
        id: name.to_owned(),
        name: name.to_owned(),
        labels: Labels::new(),
    }
}

/// Makes data the golden of its key, in one call.
///
/// When another process was faster, its golden is given back and this data is thrown
/// away: whoever asks the engine for a volume that exists already gets that one.
///
/// **Errors**: the engine's.
pub async fn seal<E: Engine>(
    engine: &E,
    key: &GoldenKey,
    data: &str,
    facts: &GoldenFacts,
) -> Result<SealedGolden, EngineError> {
    let words = serde_json::to_string(facts).map_err(|error| {
        EngineError::new(
            "seal",
            key.as_str(),
            crate::engine::EngineErrorKind::Other,
            error,
        )
    })?;
    let labels = Labels::from([
        (LABEL_GOLDEN.to_owned(), key.to_string()),
        (LABEL_DATA.to_owned(), data.to_owned()),
        (LABEL_FACTS.to_owned(), words),
    ]);
    let made = engine
        .create_volume(&key.seal_name(), &Volume::default(), &labels)
        .await;
    let sealed = find_golden(engine, key).await?;
    match (sealed, made) {
        (Some(golden), _) => {
            if golden.data != data {
                drop_claim(engine, data).await?;
            }
            Ok(golden)
        }
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(EngineError::new(
            "seal",
            key.as_str(),
            crate::engine::EngineErrorKind::NotFound,
            "the golden volume was removed while it was sealed",
        )),
    }
}

/// Marks a golden as used by a run; the mark goes with the run's other things.
///
/// **Errors**: the engine's.
pub async fn register_use<E: Engine>(
    engine: &E,
    key: &GoldenKey,
    tag: &TrialTag,
) -> Result<(), EngineError> {
    let mut labels = tag.labels();
    labels.insert(GOLDEN_USE_LABEL.to_owned(), key.to_string());
    let name = tag.name(&format!("uses-{key}"));
    engine
        .create_volume(&name, &Volume::default(), &labels)
        .await
}
