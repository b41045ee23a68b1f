//! Removing everything of a trial, and the lease that makes sure of it.
//!
//! Works from labels alone, so that a half-made launch is cleaned like a whole
//! one. Containers are removed by force, which is a SIGKILL: the trial's volumes
//! are thrown away with it, so there is nothing that a slow, orderly stop would
//! save, and its ten seconds would be lost in every trial. **Invariant**: what
//! carries the label of golden volumes is never touched. Read `clean.rs` next
//! for what earlier processes left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::trial::LABEL_GOLDEN;
use super::{Engine, EngineError, Leftover, LeftoverKind, TrialTag};

/// A trial that cannot be removed in this time is reported and the sweep decides.
const TEARDOWN_LIMIT: Duration = Duration::from_mins(1);
/// First and longest pause after a removal that the engine refused for now.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// A creation that was cut off may still appear; a daemon finishes one well within this.
const SETTLE: Duration = Duration::from_millis(500);

/// What a removal came to.
#[derive(Debug, Default)]
pub struct TeardownReport {
    /// What is gone.
    pub removed: Vec<Leftover>,
    /// What is still there, and why.
    pub left: Vec<(Leftover, EngineError)>,
    /// Why the engine could not even be asked what is there.
    pub unknown: Option<EngineError>,
}

impl TeardownReport {
    /// Whether nothing is left, for certain.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.unknown.is_none()
    }

    /// Whether a container is left, or nobody can tell.
    pub fn may_still_run(&self) -> bool {
        let is_container = |(thing, _): &(Leftover, _)| thing.kind == LeftoverKind::Container;
        self.unknown.is_some() || self.left.iter().any(is_container)
    }
}

/// The duty to remove a trial: taken before its first creation.
///
/// Release it by [`Lease::release`]. A lease that is dropped instead (a panic, a
/// cancelled future) queues the removal on the runtime it is dropped in; should
/// that runtime end first, `clean` finds the rest by its labels.
#[derive(Debug)]
pub struct Lease<E: Engine> {
    engine: Arc<E>,
    tag: TrialTag,
    is_released: bool,
    /// Whether a creation was begun and not known to have ended.
    is_cut_off: AtomicBool,
}

impl<E: Engine> Lease<E> {
    /// Takes the duty for a trial; creates nothing.
    pub fn take(engine: Arc<E>, tag: TrialTag) -> Self {
        Self {
            engine,
            tag,
            is_released: false,
            is_cut_off: AtomicBool::new(false),
        }
    }

    /// The engine everything is created on.
    pub fn engine(&self) -> &Arc<E> {
        &self.engine
    }

    /// The trial it is for.
    pub fn tag(&self) -> &TrialTag {
        &self.tag
    }

    /// Removes everything of the trial and reports what could not be removed.
    ///
    /// **Cancel**: dropping the future queues the rest of the removal.
    pub async fn release(mut self) -> TeardownReport {
        let is_cut_off = self.is_cut_off.load(Ordering::Relaxed);
        let report = remove_matching(&*self.engine, &self.tag.filter(), is_cut_off).await;
        self.is_released = true;
        report
    }

    /// Removes the trial's containers only; whether nothing of it runs any more, for certain.
    ///
    /// What is left of it then takes no memory, no CPU time and no port.
    /// **Cancel**: safe; the duty to remove the trial stays.
    pub async fn stop(&self) -> bool {
        let only = [LeftoverKind::Container];
        remove_kinds(&*self.engine, &self.tag.filter(), false, &only)
            .await
            .is_complete()
    }

    /// Removes everything of the trial and keeps the duty: it may be created once more.
    ///
    /// **Cancel**: safe; the duty to remove the trial stays.
    pub async fn clear(&self) -> TeardownReport {
        let is_cut_off = self.is_cut_off.load(Ordering::Relaxed);
        let report = remove_matching(&*self.engine, &self.tag.filter(), is_cut_off).await;
        // Only now: a removal that is itself cut off has seen nothing appear.
        self.is_cut_off.store(false, Ordering::Relaxed);
        report
    }

    /// Gives the duty up: what was launched stays until it is removed by its labels.
    pub fn keep(mut self) {
        self.is_released = true;
    }

    /// Makes calls that create, all of them to their end.
    ///
    /// One that was cut off, or given up on because the engine did not answer in time, may
    /// still create: the removal then waits for what appears late.
    pub(super) async fn creating<T, X>(
        &self,
        calls: impl Future<Output = Result<T, X>>,
    ) -> Result<T, X> {
        let before = self.is_cut_off.swap(true, Ordering::Relaxed);
        let created = calls.await;
        if created.is_ok() {
            self.is_cut_off.store(before, Ordering::Relaxed);
        }
        created
    }
}

impl<E: Engine> Drop for Lease<E> {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        // Without a runtime nothing can be called; the labels remain for `clean`.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (engine, filter) = (Arc::clone(&self.engine), self.tag.filter());
            runtime.spawn(async move { remove_matching(&*engine, &filter, true).await });
        }
    }
}

/// Removes everything that carries all the labels given, with patience and an end.
///
/// `may_still_appear`: a creation was cut off, so one empty answer is no proof.
pub(super) async fn remove_matching<E: Engine>(
    engine: &E,
    filter: &[String],
    may_still_appear: bool,
) -> TeardownReport {
    let all = [
        LeftoverKind::Container,
        LeftoverKind::Network,
        LeftoverKind::Volume,
    ];
    remove_kinds(engine, filter, may_still_appear, &all).await
}

async fn remove_kinds<E: Engine>(
    engine: &E,
    filter: &[String],
    may_still_appear: bool,
    kinds: &[LeftoverKind],
) -> TeardownReport {
    let deadline = Instant::now() + TEARDOWN_LIMIT;
    let mut report = TeardownReport::default();
    let mut pause = BACKOFF.0;
    let mut n_empty_needed = if may_still_appear { 2 } else { 1 };
    loop {
        report.left.clear();
        report.unknown = None;
        match engine.list_ours(filter).await {
            Ok(found) => {
                let found: Vec<Leftover> = found
                    .into_iter()
                    .filter(|thing| is_removable(thing) && kinds.contains(&thing.kind))
                    .collect();
                if found.is_empty() {
                    n_empty_needed -= 1;
                    if n_empty_needed == 0 {
                        return report;
                    }
                    tokio::time::sleep(SETTLE).await;
                    continue;
                }
                remove_all(engine, found, &mut report).await;
                if report.left.is_empty() {
                    // Asked once more: that nothing is left is seen, not assumed.
                    continue;
                }
            }
            Err(error) => report.unknown = Some(error),
        }
        if Instant::now() + pause > deadline {
            return report;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Removes the things given, once each: containers first, since networks and volumes
/// are in use while they are there, then networks, then volumes.
///
/// Volumes last and by themselves: while the engine deletes one it mounts none, and the
/// next trial's first container is being started at that moment.
pub(super) async fn remove_all<E: Engine>(
    engine: &E,
    found: Vec<Leftover>,
    report: &mut TeardownReport,
) {
    let is = |kind: LeftoverKind| move |thing: &Leftover| thing.kind == kind;
    let (containers, rest): (Vec<_>, Vec<_>) =
        found.into_iter().partition(is(LeftoverKind::Container));
    let (networks, volumes): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(is(LeftoverKind::Network));
    for now in [containers, networks, volumes] {
        let outcomes = join_all(now.iter().map(|thing| engine.remove(thing))).await;
        for (thing, outcome) in now.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => {
                    // A thing may be seen again while the engine is still at it.
                    if !report.removed.contains(&thing) {
                        report.removed.push(thing);
                    }
                }
                Err(error) => report.left.push((thing, error)),
            }
        }
    }
}

fn is_removable(thing: &Leftover) -> bool {
    !thing.labels.contains_key(LABEL_GOLDEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fake::{FakeCall, FakeEngine, FakeFault};

    #[tokio::test(start_paused = true)]
    async fn a_removal_that_is_cut_off_leaves_the_mark_of_a_creation_that_was() {
        let engine = Arc::new(FakeEngine::new());
        let tag = TrialTag {
            run_id: "run-1".to_owned(),
            trial: "1".to_owned(),
            cell_id: "cell".to_owned(),
            owner: "h:1/2/3".parse().unwrap(),
        };
        let lease = Lease::take(Arc::clone(&engine), tag);
        let creation = lease.creating(std::future::pending::<Result<(), ()>>());
        assert!(
            tokio::time::timeout(Duration::from_secs(1), creation)
                .await
                .is_err()
        );
        engine.fault(FakeCall::List, 1, FakeFault::Hang);
        let cut_off = tokio::time::timeout(Duration::from_secs(1), lease.clear()).await;
        assert!(cut_off.is_err());
        let before = engine.calls().len();
        assert!(lease.clear().await.is_complete());
        // One empty answer is no proof while a creation may still appear; afterwards it is.
        assert_eq!(engine.calls().len() - before, 2);
        assert!(lease.release().await.is_complete());
        assert_eq!(engine.calls().len() - before, 3);
    }

    #[test]
    fn only_containers_and_what_nobody_can_tell_may_still_run() {
        let left = |kind| {
            let thing = Leftover {
                kind,
                id: "x".to_owned(),
                name: "x".to_owned(),
                labels: crate::engine::Labels::new(),
            };
            let error = EngineError::timed_out("remove", "x", TEARDOWN_LIMIT);
            TeardownReport {
                left: vec![(thing, error)],
                ..TeardownReport::default()
            }
        };
        assert!(left(LeftoverKind::Container).may_still_run());
        assert!(!left(LeftoverKind::Network).may_still_run());
        assert!(!left(LeftoverKind::Volume).may_still_run());
        let unknown = Some(EngineError::timed_out("list", "x", TEARDOWN_LIMIT));
        let unknown = TeardownReport {
            unknown,
            ..TeardownReport::default()
        };
        assert!(unknown.may_still_run());
    }
}
