//! A closed loop: so many users, each sending when its last answer is in.
//!
//! User u lives on load thread u mod T and keeps one connection, to address u mod n
//! where the target has n. Users that the
//! next phase keeps go on without a break; those it does not keep end after the
//! request they are in. On a ramp users come, or go, one by one and evenly spaced:
//! the highest number comes last and goes first. Which journey a user makes next, `mix` says.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::journey::{self, JourneyEnd, PAUSE};
use super::mix::draw;
use super::plan::LoadModel;
use super::setup::{self, Renew};
use super::slot::{Seat, Sitter};
use super::thread::{PhaseClock, Thread};

/// What a phase thinks of a user at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    /// It sends.
    Wanted,
    /// It is to begin, or begin again, then.
    From(Instant),
    /// It has no place, now and later.
    Over,
}

/// What a phase thinks of a user.
///
/// `now` is asked on a ramp alone: this is looked at before every request.
#[inline]
pub(super) fn stay_of(clock: &PhaseClock, user: u32, now: impl FnOnce() -> Instant) -> Stay {
    let LoadModel::Closed { users } = clock.model else {
        return Stay::Over;
    };
    let Some(from) = clock.ramp_from else {
        return if user < users {
            Stay::Wanted
        } else {
            Stay::Over
        };
    };
    let (number, to) = (f64::from(user), f64::from(users));
    if number < from.min(to) {
        return Stay::Wanted;
    }
    if number >= from.max(to) {
        return Stay::Over;
    }
    // The share of the ramp after which the user comes, or goes.
    let share = if from < to {
        (number - from) / (to - from)
    } else {
        (from - number) / (from - to)
    };
    let length = clock.end.saturating_duration_since(clock.start);
    // A share of at most 1; rounding may not make it less than none.
    let turn = clock.start + Duration::from_secs_f64(length.as_secs_f64() * share.max(0.0));
    match (from < to, now() < turn) {
        (true, true) => Stay::From(turn),
        (true, false) | (false, true) => Stay::Wanted,
        (false, false) => Stay::Over,
    }
}

/// Most users at once in a phase.
pub(super) fn most_users(users: u32, ramp_from: Option<f64>) -> u32 {
    // Whoever plans has checked it; a cast saturates.
    users.max(ramp_from.unwrap_or_default().ceil() as u32)
}

/// Starts the users of a phase that are not already there.
pub(super) fn begin(thread: &Rc<Thread>, clock: PhaseClock) {
    let LoadModel::Closed { users } = clock.model else {
        return;
    };
    let first = u32::try_from(thread.index).expect("fewer threads than four billion");
    for user in (first..most_users(users, clock.ramp_from)).step_by(thread.plan.n_threads) {
        if thread.users.borrow_mut().insert(user) {
            thread.spawn(run_user(Rc::clone(thread), user, clock.start));
        }
    }
}

async fn run_user(thread: Rc<Thread>, user: u32, start: Instant) {
    thread.timer.sleep_until(start).await;
    let sitter = Sitter::User(user);
    let mut seat = thread.take_seat(sitter, u64::from(user));
    let mut n_journeys = 0;
    let look = || {
        let phase = thread.phase();
        let phase = phase.as_ref()?;
        Some((stay_of(phase, user, Instant::now), phase.index))
    };
    while let Some((stay, phase)) = look() {
        match stay {
            Stay::Wanted => {}
            Stay::From(turn) => {
                thread.timer.sleep_until(turn).await;
                continue;
            }
            Stay::Over => break,
        }
        if setup::is_needed(&thread.plan.prepared, &seat, Renew::Late) {
            if !setup::make_ready(&thread, &mut seat, Renew::Late).await {
                setup::pause(&thread, &seat).await;
            }
            // The phase may be another one by now.
            continue;
        }
        let index = next_journey(&thread, &mut seat, phase, n_journeys);
        n_journeys += 1;
        let end = journey::run(&thread, &mut seat, index, None).await;
        if matches!(end, JourneyEnd::Aborted | JourneyEnd::Fruitless) {
            let now = Instant::now();
            thread.wait(&seat.slot, now, now + PAUSE).await;
        }
    }
    thread.put_seat(seat);
    thread.users.borrow_mut().remove(&user);
}

/// The user's next journey, with its rows of data files.
#[inline]
fn next_journey(thread: &Thread, seat: &mut Seat, phase: usize, n_journeys: u64) -> usize {
    let plan = &thread.plan;
    let mix = &plan.phases[phase].mix;
    if !mix.is_drawn() && plan.prepared.data.is_empty() {
        return mix.journey(0);
    }
    let drawn = draw(plan.seed, u64::from(seat.user), n_journeys);
    let index = mix.journey_of_user(seat.user, drawn);
    let sets = &plan.prepared.journeys[index].data;
    setup::pick_rows(plan, sets, seat.user, drawn, &mut seat.rows);
    index
}

#[cfg(test)]
#[path = "ramp_tests.rs"]
mod tests;
