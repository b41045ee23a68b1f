//! A closed loop: so many users, each sending when its last answer is in.
//!
//! User u lives on load thread u mod T and keeps one connection, to address u mod n
//! where the target has n. Users that the
//! next phase keeps go on without a break; those it does not keep end after the
//! request they are in.

use std::rc::Rc;
use std::time::Instant;

use super::journey::{self, JourneyEnd, PAUSE};
use super::plan::LoadModel;
use super::slot::Sitter;
use super::thread::{PhaseClock, Thread};

/// Starts the users of a phase that are not already there.
pub(super) fn begin(thread: &Rc<Thread>, clock: PhaseClock) {
    let LoadModel::Closed { users } = clock.model else {
        return;
    };
    let first = u32::try_from(thread.index).expect("fewer threads than four billion");
    for user in (first..users).step_by(thread.plan.n_threads) {
        if thread.users.borrow_mut().insert(user) {
            thread.spawn(run_user(Rc::clone(thread), user, clock.start));
        }
    }
}

async fn run_user(thread: Rc<Thread>, user: u32, start: Instant) {
    thread.timer.sleep_until(start).await;
    let sitter = Sitter::User(user);
    let mut seat = thread.take_seat(sitter, u64::from(user));
    while journey::is_wanted(&thread, sitter) {
        let end = journey::run(&thread, &mut seat, None).await;
        if matches!(end, JourneyEnd::Aborted | JourneyEnd::Fruitless) {
            let now = Instant::now();
            thread.wait(&seat.slot, now, now + PAUSE).await;
        }
    }
    thread.put_seat(seat);
    thread.users.borrow_mut().remove(&user);
}
