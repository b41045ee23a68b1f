//! Getting a golden: found on the engine, waited for, or made.
//!
//! ```text
//!  key ──▶ sealed? ──yes──▶ used again
//!            │no
//!            ▼
//!          another process at it? ──▶ waited for
//!            │no
//!            ▼
//!  claim ──▶ launch ──▶ seed ──▶ stop cleanly ──▶ copy ──▶ seal
//! ```
//!
//! **Invariant**: whatever goes wrong before the seal leaves nothing behind that is ever used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::golden_key::key_of_prepared;
use super::golden_plan::{GoldenSource, GoldenSpec};
use super::preparing::fill;
use super::shell::{Shared, left_behind, until_asked};
use super::state::interrupted_reason;
use super::{GoldenPlan, Reason};
use crate::engine::{
    Engine, EngineError, GoldenFacts, GoldenKey, HelperImage, HelperMount, HelperRequest, Lease,
    Liveness, SealedGolden, TrialTag, claim, drop_claim, find_claims, find_golden,
    find_golden_of_source, run_helper_of, seal,
};
use crate::event::EventKind;
use crate::problem::chain;
use crate::tree::TreeReport;

/// Between two looks at what another process prepares.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest time of copying or reading a source whose size nobody knows yet.
pub(super) const COPY_LIMIT: Duration = Duration::from_hours(6);

pub(super) fn failed(words: impl Into<String>) -> Reason {
    Reason::new("golden_failed", words)
}

pub(super) fn failure(error: &dyn std::error::Error) -> Reason {
    failed(chain(error))
}

/// What the content is made from, as a key.
pub(super) async fn key_of<E: Engine>(
    shared: &Shared<'_, E>,
    spec: &GoldenSpec,
    image: &HelperImage,
    lease: &Lease<E>,
    emit: &mut dyn FnMut(EventKind),
) -> Result<GoldenKey, Reason> {
    let engine = &**shared.engine;
    if let GoldenSource::Prepare(_) = spec.source {
        return prepared_key(engine, spec).await;
    }
    check_source(engine, &spec.source).await?;
    emit(EventKind::StatePreparing {
        source: spec.source.words(),
        step: "reading".to_owned(),
    });
    let mounts = vec![source_mount(spec)?];
    let mut interrupted = shared.interrupted.clone();
    let trees = tokio::select! {
        biased;
        () = until_asked(&mut interrupted, 1) => return Err(interrupted_reason()),
        trees = ask(lease, spec, image, mounts, &READ) => trees?,
    };
    let contents = trees.iter().map(|(name, tree)| (name, &tree.content));
    let words = format!("{:?}", contents.collect::<Vec<_>>());
    Ok(GoldenKey::of(&words))
}

/// The key of a golden that is prepared; asks the engine for images alone.
///
/// **Errors**: an image that is missing, or that cannot be asked for.
pub(super) async fn prepared_key<E: Engine>(
    engine: &E,
    spec: &GoldenSpec,
) -> Result<GoldenKey, Reason> {
    let mut digests = IndexMap::new();
    for (name, service) in &spec.stack.services {
        // By content where that is known: the name may stand for another one by now.
        let found = engine.find_image(service.launched_image()).await;
        let facts = found.map_err(|error| failure(&error))?;
        let facts = facts.ok_or_else(|| {
            failed(format!(
                "the engine does not have the image `{}`",
                service.image
            ))
        })?;
        digests.insert(name.clone(), facts.digest);
    }
    Ok(key_of_prepared(spec, &digests))
}

/// A volume that is not there would be made by mounting it; one in use changes while it is read.
async fn check_source<E: Engine>(engine: &E, source: &GoldenSource) -> Result<(), Reason> {
    let GoldenSource::Volume(name) = source else {
        return Ok(());
    };
    let found = engine.find_volume(name).await;
    let facts = found.map_err(|error| failure(&error))?.ok_or_else(|| {
        failed(format!(
            "`from` in [golden]: the engine has no volume `{name}`"
        ))
    })?;
    if facts.used_by.is_empty() {
        return Ok(());
    }
    Err(failed(format!(
        "`from` in [golden]: volume `{name}` is in use by {}: a copy of data that is being written is no database; stop it first",
        facts.used_by.join(", ")
    )))
}

fn source_mount(spec: &GoldenSpec) -> Result<HelperMount, Reason> {
    let volume = spec.volumes.first();
    let target = format!(
        "/from/{}",
        volume.ok_or_else(|| failed("no volume is named"))?
    );
    match &spec.source {
        GoldenSource::Volume(name) => Ok(HelperMount::Volume {
            name: name.clone(),
            target,
            read_only: true,
        }),
        GoldenSource::Folder(path) => Ok(HelperMount::Folder {
            source: path.clone(),
            target,
        }),
        GoldenSource::Prepare(_) => Err(failed("what is prepared has no source")),
    }
}

/// The golden of a key, whoever made it.
pub(super) async fn golden_of<E: Engine>(
    shared: &Shared<'_, E>,
    index: usize,
    spec: &GoldenSpec,
    key: &GoldenKey,
    image: &HelperImage,
    emit: &mut dyn FnMut(EventKind),
) -> Result<SealedGolden, Reason> {
    let found = find_or_wait(shared, spec, key, emit).await?;
    let is_reused = found.is_some();
    let golden = match found {
        Some(golden) => golden,
        None => make(shared, index, spec, key, image, emit).await?,
    };
    let users = |job: &&super::Job| job.skip.is_none() && job.golden == index;
    let n_clones = shared.plan.jobs.iter().filter(users).count() as u64;
    let facts = &golden.facts;
    emit(EventKind::StateReady {
        source: facts.source.clone(),
        key: shared.secrets.digest(key.as_str()),
        reused: is_reused,
        fingerprint: facts.fingerprint(),
        bytes: facts.bytes(),
        files: facts.trees.values().map(|tree| tree.files).sum(),
        prepared_s: facts.prepared_s,
        made_at: facts.made_at.clone(),
        clones: n_clones,
    });
    Ok(golden)
}

/// A sealed golden, once nobody alive is at it; `None` when it has to be made.
async fn find_or_wait<E: Engine>(
    shared: &Shared<'_, E>,
    spec: &GoldenSpec,
    key: &GoldenKey,
    emit: &mut dyn FnMut(EventKind),
) -> Result<Option<SealedGolden>, Reason> {
    let engine = &**shared.engine;
    let mut interrupted = shared.interrupted.clone();
    let mut is_said = false;
    loop {
        let found = find_golden(engine, key).await;
        if let Some(golden) = found.map_err(|error| failure(&error))? {
            return Ok(Some(golden));
        }
        let mut busy = None;
        let claims = find_claims(engine, key).await;
        for (data, owner) in claims.map_err(|error| failure(&error))? {
            match owner.as_ref().map(|owner| (owner, owner.liveness())) {
                // Half-made. What still holds it was left by the same kill, and goes with `clean`.
                Some((_, Liveness::Dead)) => drop(engine.remove(&data).await),
                Some((owner, Liveness::Alive)) if owner != shared.owner => {
                    busy = Some(owner.pid());
                }
                // Of another host: it cannot be told whether it will ever end.
                _ => {}
            }
        }
        let Some(pid) = busy else {
            return Ok(None);
        };
        if !std::mem::replace(&mut is_said, true) {
            emit(EventKind::StatePreparing {
                source: spec.source.words(),
                step: format!("waiting for process {pid}, which prepares the same"),
            });
        }
        tokio::select! {
            biased;
            () = until_asked(&mut interrupted, 1) => return Err(interrupted_reason()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

async fn make<E: Engine>(
    shared: &Shared<'_, E>,
    index: usize,
    spec: &GoldenSpec,
    key: &GoldenKey,
    image: &HelperImage,
    emit: &mut dyn FnMut(EventKind),
) -> Result<SealedGolden, Reason> {
    let engine = &**shared.engine;
    let begun = Instant::now();
    let tag = TrialTag {
        run_id: shared.plan.run_id.clone(),
        trial: format!("golden-{}", index + 1),
        cell_id: spec.cell_id.clone(),
        owner: shared.owner.clone(),
    };
    let data = claim(engine, key, &tag).await;
    let data = data.map_err(|error| failure(&error))?;
    let lease = Lease::take(Arc::clone(shared.engine), tag);
    let mut interrupted = shared.interrupted.clone();
    let mut filled = tokio::select! {
        biased;
        () = until_asked(&mut interrupted, 1) => Err(interrupted_reason()),
        filled = fill_from(shared, &lease, spec, image, &data, emit) => filled,
    };
    let report = lease.release().await;
    if report.may_still_run() {
        let left = left_behind(&report);
        let words = format!("what prepared golden volumes could not be removed: {left}");
        filled = filled.and(Err(Reason::new("not_removed", words)));
    } else if !report.is_complete() {
        emit(EventKind::Warned {
            text: format!(
                "preparing left something behind; `nightsweep clean --run {}` removes it",
                shared.plan.run_id
            ),
        });
    }
    let sealed = match filled {
        Ok((trees, clone_s)) => {
            let facts = GoldenFacts {
                source: spec.source.words(),
                made_at: shared.clock.now_text(),
                prepared_s: begun.elapsed().as_secs_f64(),
                trees,
                clone_s: Some(clone_s),
            };
            let sealed = seal(engine, key, &data, &facts).await;
            sealed.map_err(|error| failure(&error))
        }
        Err(reason) => Err(reason),
    };
    if sealed.is_err()
        && let Err(error) = drop_claim(engine, &data).await
    {
        emit(EventKind::Warned {
            text: format!("{}; `nightsweep clean` removes it", chain(&error)),
        });
    }
    sealed
}

/// Fills the data volume from wherever its content comes; what is in it, and the seconds that
/// copying took.
async fn fill_from<E: Engine>(
    shared: &Shared<'_, E>,
    lease: &Lease<E>,
    spec: &GoldenSpec,
    image: &HelperImage,
    data: &str,
    emit: &mut dyn FnMut(EventKind),
) -> Result<(IndexMap<String, TreeReport>, f64), Reason> {
    let mounts = match &spec.source {
        GoldenSource::Prepare(seed) => {
            fill(shared, lease, spec, seed.as_deref(), emit).await?;
            let of_trial = |name: &String| HelperMount::Volume {
                name: lease.tag().name(name),
                target: format!("/from/{name}"),
                read_only: true,
            };
            spec.volumes.iter().map(of_trial).collect()
        }
        GoldenSource::Volume(_) | GoldenSource::Folder(_) => vec![source_mount(spec)?],
    };
    emit(EventKind::StatePreparing {
        source: spec.source.words(),
        step: "copying".to_owned(),
    });
    let begun = Instant::now();
    let trees = copy(lease, spec, image, mounts.clone(), data).await?;
    let clone_s = begun.elapsed().as_secs_f64();
    if !matches!(spec.source, GoldenSource::Prepare(_)) {
        // What is copied from outside may have been written to meanwhile.
        check_source(&**shared.engine, &spec.source).await?;
        let source = ask(lease, spec, image, mounts, &READ).await?;
        for (name, tree) in &source {
            if !trees.get(name).is_some_and(|copy| copy.is_like(tree)) {
                return Err(failed(format!(
                    "{} changed while it was copied: stop whatever writes to it",
                    spec.source.words()
                )));
            }
        }
    }
    Ok((trees, clone_s))
}

async fn copy<E: Engine>(
    lease: &Lease<E>,
    spec: &GoldenSpec,
    image: &HelperImage,
    mut mounts: Vec<HelperMount>,
    data: &str,
) -> Result<IndexMap<String, TreeReport>, Reason> {
    mounts.push(HelperMount::Volume {
        name: data.to_owned(),
        target: "/to".to_owned(),
        read_only: false,
    });
    let words = [
        "clone", "--from", "/from", "--to", "/to", "--mode", "auto", "--sync",
    ];
    ask(lease, spec, image, mounts, &words).await
}

/// What the container of ours is asked for to read what is under `/from`.
const READ: [&str; 3] = ["fingerprint", "--at", "/from"];

/// Has a container of ours do something to the volumes of a golden; what it found in them.
async fn ask<E: Engine>(
    lease: &Lease<E>,
    spec: &GoldenSpec,
    image: &HelperImage,
    mounts: Vec<HelperMount>,
    words: &[&str],
) -> Result<IndexMap<String, TreeReport>, Reason> {
    let words = words.iter().map(|word| (*word).to_owned());
    let request = HelperRequest {
        image,
        arguments: words.chain(spec.volumes.iter().cloned()).collect(),
        mounts,
        limit: COPY_LIMIT,
    };
    let answer = run_helper_of(lease, request).await;
    Ok(answer.map_err(|error| failure(&error))?.trees)
}

/// A golden that is on the engine already.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownGolden {
    /// It, or what was made of the same source before.
    pub golden: SealedGolden,
    /// Whether a run will use it as it is; a copied source may hold something else by now.
    pub is_current: bool,
}

/// By golden of a plan, what is known without preparing or reading anything.
///
/// **Errors**: the engine's; an image that it does not have is no error.
pub async fn known_goldens<E: Engine>(
    engine: &E,
    plan: &GoldenPlan,
) -> Result<Vec<Option<KnownGolden>>, EngineError> {
    let mut known = Vec::new();
    for spec in &plan.specs {
        let is_current = matches!(spec.source, GoldenSource::Prepare(_));
        let golden = if is_current {
            match prepared_key(engine, spec).await {
                Ok(key) => find_golden(engine, &key).await?,
                Err(_) => None,
            }
        } else {
            find_golden_of_source(engine, &spec.source.words()).await?
        };
        known.push(golden.map(|golden| KnownGolden { golden, is_current }));
    }
    Ok(known)
}
