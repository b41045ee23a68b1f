//! Removing what earlier processes left behind.
//!
//! Only what carries our run label, and of that only what nobody answers for any
//! more. The rules, in this order:
//!
//! 1. golden volumes stay, unless they are asked for; then those stay that a living run
//!    uses. Half-made ones, whose owner died before they were sealed, always go. Images that
//!    were built for a run stay in the same way: building them again takes time;
//! 2. an owner that is alive keeps everything it made, even when its run is named:
//!    pulling a stack from under a running measurement gives wrong numbers. Stop
//!    the run instead;
//! 3. an owner that is dead loses everything it made;
//! 4. an owner that cannot be judged from here (another host or container, or a
//!    label that cannot be read) keeps what it made, unless the run is named.
//!
//! Read `owner.rs` for how an owner is judged.

use super::error::EngineError;
use super::golden::{GOLDEN_USE_LABEL, Part, golden_label_filter, part_of, unsealed};
use super::teardown::{TeardownReport, remove_all, remove_matching};
use super::trial::{LABEL_BUILD, LABEL_GOLDEN, LABEL_HELPER, LABEL_OWNER, LABEL_RUN, LABEL_TRIAL};
use super::{Engine, Leftover, Liveness, Owner};

/// What to clean.
#[derive(Debug, Clone, Default)]
pub struct CleanRequest {
    /// One run only, and then also when its owner cannot be judged from here.
    pub run_id: Option<String>,
    /// Golden volumes and the image that clones them too, where no living run uses them.
    pub golden: bool,
    /// Images that were built from `build` sections too, while no run lives.
    pub images: bool,
    /// Only say what would be removed.
    pub is_dry_run: bool,
}

/// What was cleaned, or would be.
#[derive(Debug, Default)]
pub struct CleanReport {
    /// What is gone; in a dry run, what would go.
    pub removed: Vec<Leftover>,
    /// What was left alone on purpose, and why.
    pub kept: Vec<(Leftover, String)>,
    /// What should be gone and is not.
    pub failed: Vec<(Leftover, EngineError)>,
}

/// Removes everything of one run, whoever owns it, alive or not.
///
/// For what a user launched by hand and takes down by hand; sweeps use leases.
pub async fn remove_run<E: Engine>(engine: &E, run_id: &str) -> TeardownReport {
    remove_matching(engine, &[format!("{LABEL_RUN}={run_id}")], false).await
}

/// Removes leftovers by the rules above.
///
/// **Errors**: the engine cannot say what is there.
pub async fn clean<E: Engine>(
    engine: &E,
    request: &CleanRequest,
) -> Result<CleanReport, EngineError> {
    let filter = match &request.run_id {
        Some(run_id) => format!("{LABEL_RUN}={run_id}"),
        None => LABEL_RUN.to_owned(),
    };
    let found = engine.list_ours(&[filter]).await?;
    let mut report = CleanReport::default();
    let living = living_run(&found);
    let mut doomed = Vec::new();
    for thing in found {
        // The engine filters too; that nothing else is removed must not hang on it.
        if thing.labels.contains_key(LABEL_GOLDEN) || !thing.labels.contains_key(LABEL_RUN) {
            continue;
        }
        match reason_to_keep(&thing, request.run_id.is_some()) {
            Some(why) => report.kept.push((thing, why)),
            None => doomed.push(thing),
        }
    }
    if request.run_id.is_none() {
        let golden = golden_things(engine, request.golden).await?;
        doomed.extend(golden.doomed);
        report.kept.extend(golden.kept);
    }
    if request.images {
        let images = engine.list_images(LABEL_BUILD).await?;
        match living {
            Some(run) => {
                let why = format!("run {run} may use it");
                let kept = images.into_iter().map(|image| (image, why.clone()));
                report.kept.extend(kept);
            }
            None => doomed.extend(images),
        }
    }
    if request.is_dry_run {
        doomed.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        report.removed = doomed;
        return Ok(report);
    }
    let mut first = TeardownReport::default();
    // Seals before data: what is left after a kill between the two is half-made, not hollow.
    let (seals, others): (Vec<_>, Vec<_>) = doomed
        .into_iter()
        .partition(|thing| matches!(part_of(thing), Part::Seal(_)));
    remove_all(engine, seals, &mut first).await;
    remove_all(engine, others, &mut first).await;
    report.removed = first.removed;
    for (thing, error) in first.left {
        // With the patience of a teardown: something may still be letting go of it.
        match trial_filter(&thing) {
            Some(filter) => {
                let second = remove_matching(engine, &filter, false).await;
                if second.is_complete() {
                    report.removed.push(thing);
                } else {
                    report.failed.push((thing, error));
                }
            }
            None => report.failed.push((thing, error)),
        }
    }
    Ok(report)
}

/// A run among these things whose owner may still live.
fn living_run(found: &[Leftover]) -> Option<String> {
    let is_dead = |thing: &Leftover| {
        let owner = thing.labels.get(LABEL_OWNER);
        owner
            .and_then(|text| text.parse::<Owner>().ok())
            .is_some_and(|owner| owner.liveness() == Liveness::Dead)
    };
    let thing = found.iter().find(|thing| !is_dead(thing))?;
    thing.labels.get(LABEL_RUN).cloned()
}

/// What is to be done with golden volumes and their image.
#[derive(Debug, Default)]
struct GoldenThings {
    doomed: Vec<Leftover>,
    kept: Vec<(Leftover, String)>,
}

async fn golden_things<E: Engine>(
    engine: &E,
    is_asked_for: bool,
) -> Result<GoldenThings, EngineError> {
    let found = engine.list_ours(&golden_label_filter(None)).await?;
    let mut things = GoldenThings::default();
    let half_made = unsealed(&found);
    for thing in &half_made {
        match reason_to_keep(thing, is_asked_for) {
            None => things.doomed.push((*thing).clone()),
            // Somebody is at it; without being asked for golden volumes there is nothing to say.
            Some(why) if is_asked_for => things.kept.push(((*thing).clone(), why)),
            Some(_) => {}
        }
    }
    if !is_asked_for {
        return Ok(things);
    }
    let users = users_of_goldens(engine).await?;
    let is_ours =
        |thing: &&Leftover| !thing.labels.contains_key(LABEL_RUN) && !half_made.contains(thing);
    for thing in found.iter().filter(is_ours) {
        let key = thing.labels.get(LABEL_GOLDEN);
        match users.iter().find(|(used, _)| Some(used) == key) {
            Some((_, run)) => things
                .kept
                .push((thing.clone(), format!("run {run} uses it"))),
            None => things.doomed.push(thing.clone()),
        }
    }
    for image in engine.list_images(LABEL_HELPER).await? {
        match users.first() {
            Some((_, run)) => things.kept.push((image, format!("run {run} uses it"))),
            None => things.doomed.push(image),
        }
    }
    Ok(things)
}

/// Keys of goldens that a run uses whose owner may still live, each with its run.
async fn users_of_goldens<E: Engine>(engine: &E) -> Result<Vec<(String, String)>, EngineError> {
    let marks = engine.list_ours(&[GOLDEN_USE_LABEL.to_owned()]).await?;
    let is_dead = |mark: &Leftover| {
        let owner = mark.labels.get(LABEL_OWNER);
        owner
            .and_then(|text| text.parse::<Owner>().ok())
            .is_some_and(|owner| owner.liveness() == Liveness::Dead)
    };
    let text = |mark: &Leftover, label: &str| mark.labels.get(label).cloned().unwrap_or_default();
    Ok(marks
        .iter()
        .filter(|mark| !is_dead(mark))
        .map(|mark| (text(mark, GOLDEN_USE_LABEL), text(mark, LABEL_RUN)))
        .collect())
}

/// The labels of one trial of one owner, so that nobody else's things are met.
fn trial_filter(thing: &Leftover) -> Option<Vec<String>> {
    [LABEL_RUN, LABEL_TRIAL, LABEL_OWNER]
        .into_iter()
        .map(|label| Some(format!("{label}={}", thing.labels.get(label)?)))
        .collect()
}

fn reason_to_keep(thing: &Leftover, is_named: bool) -> Option<String> {
    let owner = thing
        .labels
        .get(LABEL_OWNER)
        .map(|text| text.parse::<Owner>());
    match owner {
        Some(Ok(owner)) => match owner.liveness() {
            Liveness::Alive => Some(format!(
                "its owner still runs (process {}): stop that run first",
                owner.pid()
            )),
            Liveness::Dead => None,
            Liveness::Elsewhere if is_named => None,
            Liveness::Elsewhere => Some(format!(
                "its owner ran on {} and cannot be judged from here: name its run to remove it",
                owner.host()
            )),
        },
        Some(Err(_)) | None if is_named => None,
        Some(Err(_)) | None => {
            Some("it does not say who owns it: name its run to remove it".to_owned())
        }
    }
}
