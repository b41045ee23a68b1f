//! The next trial, from what is created for it ahead to its being ready.
//!
//! A trial comes up in steps that wait for the one before ([`Before`]): its
//! networks, volumes and containers are created beside the other's tear-down, it
//! starts once nothing of the other runs, and it is loaded (by `run.rs`) once nothing
//! of the other is left. **Invariant**: creating ahead is only ever a gain. Where it
//! fails, what it made is removed and made again at the trial's own turn; where the
//! trial is not run after all, it is removed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::launching::{come_up, create};
use super::shell::{Shared, until_asked};
use super::{Job, Signal};
use crate::engine::{Engine, Launched, Lease, TeardownReport, TrialTag};

/// How far the trial before has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Before {
    /// Its containers are there.
    Runs,
    /// Nothing of it runs.
    Stopped,
    /// Nothing of it is left.
    Gone,
}

/// What the one who goes says to the one who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// How far the trial before has gone.
    Before(Before),
    /// The trial that comes is not run after all.
    NotRun,
}

/// A trial that came up, or did not.
#[derive(Debug)]
pub(super) struct Came<E: Engine> {
    pub(super) lease: Lease<E>,
    pub(super) launched: Result<Launched, Signal>,
    /// When it began to start. RFC 3339 in UTC.
    pub(super) started_at: String,
    pub(super) begun: Instant,
    /// Why it could not be created ahead, where that was tried.
    pub(super) not_ahead: Option<String>,
}

/// A trial on its way: up, or away again.
enum Arrival<E: Engine> {
    Came(Box<Came<E>>),
    NotRun(TeardownReport),
}

type Arriving<'a, E> = Pin<Box<dyn Future<Output = Arrival<E>> + 'a>>;

/// A trial that comes up beside the end of the one before.
///
/// **Cancel**: dropping it queues the removal of what was created.
pub(super) struct Coming<'a, E: Engine> {
    words: watch::Sender<Word>,
    arriving: Option<Arriving<'a, E>>,
    arrived: Option<Arrival<E>>,
}

impl<'a, E: Engine> Coming<'a, E> {
    /// A trial whose things may be created; polled by [`Coming::drive`].
    pub(super) fn new(shared: &'a Shared<'a, E>, job: &'a Job, before: Before) -> Self {
        let (words, heard) = watch::channel(Word::Before(before));
        Self {
            words,
            arriving: Some(Box::pin(arrive(shared, job, heard))),
            arrived: None,
        }
    }

    /// Where it is told how far the trial before has gone.
    pub(super) fn words(&self) -> watch::Sender<Word> {
        self.words.clone()
    }

    /// Lets it go on while something else is waited for; never comes back.
    pub(super) async fn drive(&mut self) -> Infallible {
        self.arrive().await;
        std::future::pending().await
    }

    /// The trial that came up, or did not. Its turn has come: the one before is gone.
    ///
    /// **Panics**: never; only [`Coming::give_up`] sends it away, and that consumes it.
    pub(super) async fn came(mut self) -> Came<E> {
        self.words.send_replace(Word::Before(Before::Gone));
        self.arrive().await;
        match self.arrived {
            Some(Arrival::Came(came)) => *came,
            Some(Arrival::NotRun(_)) | None => unreachable!("nobody sent this trial away"),
        }
    }

    /// Removes what was created for it; what could not be removed.
    pub(super) async fn give_up(mut self) -> Option<TeardownReport> {
        self.words.send_replace(Word::NotRun);
        self.arrive().await;
        match self.arrived? {
            Arrival::Came(came) => Some(came.lease.release().await),
            Arrival::NotRun(report) => Some(report),
        }
    }

    async fn arrive(&mut self) {
        if let Some(arriving) = &mut self.arriving {
            self.arrived = Some(arriving.await);
            self.arriving = None;
        }
    }
}

async fn arrive<E: Engine>(
    shared: &Shared<'_, E>,
    job: &Job,
    mut words: watch::Receiver<Word>,
) -> Arrival<E> {
    let lease = Lease::take(Arc::clone(shared.engine), tag_of(shared, job));
    let heard = words.clone();
    let brought = tokio::select! {
        biased;
        () = until(&mut words, |word| word == Word::NotRun) => None,
        brought = bring_up(shared, job, &lease, heard) => Some(brought),
    };
    match brought {
        None => Arrival::NotRun(lease.release().await),
        Some(Brought {
            launched,
            started_at,
            begun,
            not_ahead,
        }) => Arrival::Came(Box::new(Came {
            lease,
            launched,
            started_at,
            begun,
            not_ahead,
        })),
    }
}

struct Brought {
    launched: Result<Launched, Signal>,
    started_at: String,
    begun: Instant,
    not_ahead: Option<String>,
}

async fn bring_up<E: Engine>(
    shared: &Shared<'_, E>,
    job: &Job,
    lease: &Lease<E>,
    mut words: watch::Receiver<Word>,
) -> Brought {
    let is_ahead = *words.borrow() != Word::Before(Before::Gone);
    let mut begun = (shared.clock.now_text(), Instant::now());
    let mut not_ahead = None;
    let mut asked = shared.interrupted.clone();
    let up = async {
        let mut created = create(shared, job, lease).await;
        if is_ahead {
            let reached = match &created {
                Ok(_) => Before::Stopped,
                // Perhaps what the trial before still holds was wanting.
                Err(_) => Before::Gone,
            };
            until(
                &mut words,
                |word| matches!(word, Word::Before(before) if before >= reached),
            )
            .await;
            begun = (shared.clock.now_text(), Instant::now());
            if let Err(reason) = created {
                not_ahead = Some(reason.words);
                lease.clear().await;
                created = create(shared, job, lease).await;
            }
        }
        come_up(shared, job, lease, created?).await
    };
    let launched = tokio::select! {
        biased;
        () = until_asked(&mut asked, 1) => Err(Signal::Interrupted),
        launched = up => launched.map_err(Signal::Broke),
    };
    let (started_at, begun) = begun;
    Brought {
        launched,
        started_at,
        begun,
        not_ahead,
    }
}

fn tag_of<E: Engine>(shared: &Shared<'_, E>, job: &Job) -> TrialTag {
    TrialTag {
        run_id: shared.plan.run_id.clone(),
        trial: job.trial.to_string(),
        cell_id: job.cell_id.clone(),
        owner: shared.owner.clone(),
    }
}

async fn until(words: &mut watch::Receiver<Word>, is_said: impl Fn(Word) -> bool) {
    if words.wait_for(|word| is_said(*word)).await.is_err() {
        // Nobody says anything any more.
        std::future::pending::<()>().await;
    }
}
