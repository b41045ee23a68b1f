//! `[[setup]]`: what is done before the journeys, outside every window and count.
//!
//! A set-up of the whole load (`scope = "trial"`) is done by the conductor before the
//! first phase, [`TRIES`] times at most. One of each user is done on the user's own
//! connection before its first journey, and again when `renew` is over: between two
//! journeys, never within one. In an open loop a virtual user is a place for a journey
//! under way (`max_in_flight`): an arrival that finds none ready waits for the first that
//! is, timed from due like every wait, and places renew early, when their journey is over.
//!
//! **Invariant**: no request of a set-up is in any figure, and neither is its time: a
//! window whose users spent more than 5 % of it in set-ups breaks Little's law and is
//! suspect. A user whose set-up fails sends no journey; it tries again, ever more
//! seldom, and its failure is said like a request's. A load whose users' set-ups have
//! never succeeded when a phase is over is an error.

use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::Value;

use super::cookies::CookieJar;
use super::data::{Pick, Rows};
use super::fine_timer::Waits;
use super::journey::PAUSE;
use super::mix::draw;
use super::numbers::{ForWhom, Numbers};
use super::prepare::{Prepared, ReadySetup};
use super::request::RequestBuffer;
use super::slot::Seat;
use super::sure::Sender;
use super::thread::Thread;
use super::thread_plan::ThreadPlan;
use super::workload::{Cookies, SetupScope};

/// How often a set-up of the whole load is tried.
const TRIES: u32 = 3;
/// Doublings of the pause between two tries of a user: up to 3.2 s, so that a thousand
/// users who cannot log in do not become the load.
const MOST_DOUBLINGS: u32 = 5;
/// From this share of `renew` on a place of an open loop renews when it is free.
const EARLY_SHARE: f64 = 0.8;
/// Tells draws of set-ups from those of journeys.
const SETUP_DRAWS: u64 = 0x5E7_0005;

/// What a seat's user has set up.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Who it was; another user begins anew.
    user: Option<u32>,
    /// By set-up: when it was done last.
    done: Vec<Option<Instant>>,
    /// What was captured, with which every journey begins.
    pub(super) captures: Vec<Option<Value>>,
    /// Set-ups begun, for their draws.
    n_begun: u64,
    /// Failures in a row.
    n_failed: u32,
}

/// When a set-up is due again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renew {
    /// When its time is over.
    Late,
    /// When most of its time is over: nobody waits for the seat.
    Early,
}

/// Whether the seat's user must set something up before its next journey.
#[inline]
pub(super) fn is_needed(prepared: &Prepared, seat: &Seat, renew: Renew) -> bool {
    !prepared.setups.is_empty() && has_due(prepared, seat, renew)
}

fn has_due(prepared: &Prepared, seat: &Seat, renew: Renew) -> bool {
    let standing = &seat.standing;
    if standing.user != Some(seat.user) {
        return true;
    }
    let mut setups = prepared.setups.iter().zip(&standing.done);
    setups.any(|(setup, done)| is_due(setup, *done, renew))
}

fn is_due(setup: &ReadySetup, done: Option<Instant>, renew: Renew) -> bool {
    if setup.scope == SetupScope::Trial {
        return false;
    }
    let Some(done) = done else {
        return true;
    };
    setup.renew.is_some_and(|length| match renew {
        Renew::Late => done.elapsed() >= length,
        Renew::Early => done.elapsed() >= length.mul_f64(EARLY_SHARE),
    })
}

/// What a journey on the seat begins with.
#[inline]
pub(super) fn captures_of(prepared: &Prepared, seat: &Seat) -> Vec<Option<Value>> {
    if prepared.setups.is_empty() {
        vec![None; prepared.captures.len()]
    } else {
        seat.standing.captures.clone()
    }
}

/// Does what the seat's user must do before its next journey; whether it succeeded.
pub(super) async fn make_ready(thread: &Thread, seat: &mut Seat, renew: Renew) -> bool {
    let plan = &thread.plan;
    let prepared = &plan.prepared;
    if seat.standing.user != Some(seat.user) {
        seat.standing = Standing {
            user: Some(seat.user),
            done: vec![None; prepared.setups.len()],
            captures: plan.captured_by_trial(),
            ..Standing::default()
        };
    }
    for (index, setup) in prepared.setups.iter().enumerate() {
        if !is_due(setup, seat.standing.done[index], renew) {
            continue;
        }
        // A token lives from when it was asked for.
        let begun = Instant::now();
        let drawn = draw(
            plan.seed ^ SETUP_DRAWS,
            u64::from(seat.user),
            seat.standing.n_begun,
        );
        seat.standing.n_begun += 1;
        pick_rows(plan, &setup.data, seat.user, drawn, &mut seat.rows);
        let mut captures = seat.standing.captures.clone();
        let mut sender = Sender {
            prepared,
            numbers: &thread.numbers,
            whom: ForWhom {
                user: seat.user,
                rows: Rows {
                    sets: &prepared.data,
                    picked: &seat.rows,
                },
            },
            to: (&prepared.dialer, plan.addresses[seat.address]),
            waits: Waits::Fine(&thread.timer),
            timeout: plan.timeout,
            connection: &mut seat.connection,
            jar: seat.jar.as_deref_mut(),
            buffer: &mut seat.buffer,
        };
        let done = sender.send_all(&setup.operations, &mut captures).await;
        if let Err(failed) = done {
            seat.standing.n_failed += 1;
            thread.totals.borrow_mut().setups_failed += 1;
            thread.note_failure(Instant::now(), None, || {
                let name = &prepared.setup_names[failed.name as usize];
                format!("set-up of user {}: {name}: {}", seat.user, failed.why)
            });
            return false;
        }
        seat.standing.n_failed = 0;
        seat.standing.captures = captures;
        seat.standing.done[index] = Some(begun);
        thread.totals.borrow_mut().setups += 1;
    }
    true
}

/// Waits before the next try.
pub(super) async fn pause(thread: &Thread, seat: &Seat) {
    let doublings = seat.standing.n_failed.saturating_sub(1).min(MOST_DOUBLINGS);
    let until = Instant::now() + PAUSE * (1 << doublings);
    thread.timer.sleep_until(until).await;
}

/// Picks a row of each data set that is asked for.
pub(super) fn pick_rows(
    plan: &ThreadPlan,
    sets: &[usize],
    user: u32,
    drawn: u64,
    rows: &mut Vec<usize>,
) {
    if sets.is_empty() {
        return;
    }
    let data = &plan.prepared.data;
    rows.resize(data.len(), 0);
    for index in sets {
        let n_rows = data[*index].n_rows() as u64;
        let number = match data[*index].pick {
            Pick::PerUser => u64::from(user),
            Pick::Random => draw(drawn, *index as u64, 0),
            Pick::Next => plan.next_rows[*index].fetch_add(1, Ordering::Relaxed),
        };
        rows[*index] = (number % n_rows) as usize;
    }
}

/// Does the set-ups of the whole load; what they captured.
///
/// **Errors**: which request failed the last time, and why.
/// **Cancel**: stops sending.
pub(super) async fn set_up_load(plan: &ThreadPlan) -> Result<Vec<Option<Value>>, String> {
    let prepared = &plan.prepared;
    let numbers = Numbers::new(
        fastrand::Rng::with_seed(draw(plan.seed, SETUP_DRAWS, 0)),
        plan.counter(plan.n_threads),
    );
    let mut captures = vec![None; prepared.captures.len()];
    let (mut connection, mut buffer) = (None, RequestBuffer::default());
    let mut jar = (prepared.cookies != Cookies::Off).then(CookieJar::default);
    let mut rows = Vec::new();
    let of_load = prepared.setups.iter();
    for setup in of_load.filter(|setup| setup.scope == SetupScope::Trial) {
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            pick_rows(
                plan,
                &setup.data,
                0,
                draw(plan.seed, SETUP_DRAWS, u64::from(n_tries)),
                &mut rows,
            );
            let mut sender = Sender {
                prepared,
                numbers: &numbers,
                whom: ForWhom {
                    user: 0,
                    rows: Rows {
                        sets: &prepared.data,
                        picked: &rows,
                    },
                },
                to: (&prepared.dialer, plan.addresses[0]),
                waits: Waits::Runtime,
                timeout: plan.timeout,
                connection: &mut connection,
                jar: jar.as_mut(),
                buffer: &mut buffer,
            };
            let mut found = captures.clone();
            match sender.send_all(&setup.operations, &mut found).await {
                Ok(()) => {
                    captures = found;
                    break;
                }
                Err(failed) if n_tries == TRIES => {
                    let name = &prepared.setup_names[failed.name as usize];
                    return Err(format!("{name}: {} ({TRIES} tries)", failed.why));
                }
                Err(_) => tokio::time::sleep(PAUSE * n_tries).await,
            }
        }
    }
    Ok(captures)
}
