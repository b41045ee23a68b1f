//! An open loop: journeys arrive at a rate of their own, whatever the service does.
//!
//! `arrivals` says when each is due; arrival i is served by load
//! thread i mod T. At most a thread's share of `max_in_flight` journeys are
//! under way on it; later arrivals wait in order and are timed from their due
//! time all the same. Where the target has n addresses, arrival i goes to address
//! i mod n; one that had to wait takes the connection that came free. Arrivals go on, unrecorded, until the next phase begins.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::arrivals::{ArrivalSequence, Rate};
use super::journey::{self, Due};
use super::plan::LoadModel;
use super::slot::Sitter;
use super::thread::{PhaseClock, Thread, nanoseconds};
use crate::measure::{Outcome, Sample, Unpaced};

/// After so many arrivals in one go others get a turn: when the thread cannot
/// keep up, answers must still be read.
const ARRIVALS_IN_A_ROW: u32 = 32;

/// The open loop of one thread.
#[derive(Debug, Default)]
pub(super) struct OpenState {
    pacer: RefCell<Option<Rc<Pacer>>>,
    waiting: RefCell<VecDeque<Instant>>,
    /// Journeys with a place: begun, or about to be.
    under_way: Cell<u32>,
    most_under_way: Cell<u32>,
    /// Journeys begun and not ended, and since when it is this many.
    running: Cell<u32>,
    running_since: Cell<Option<Instant>>,
}

/// What the thread and the task that paces share.
#[derive(Debug)]
struct Pacer {
    start: Instant,
    /// Stands at the arrival that is handed on next.
    sequence: RefCell<ArrivalSequence>,
    stops_at: Cell<Option<Instant>>,
}

impl Pacer {
    fn next(&self) -> u64 {
        self.sequence.borrow().number()
    }

    /// Never, where the clock cannot say it.
    fn next_due(&self) -> Option<Instant> {
        self.start.checked_add(self.sequence.borrow().due())
    }

    /// Passes over what should have been handed on before the phase's end and was
    /// not, and says how many that were in which second.
    fn skip_to_end_of(&self, phase: &PhaseClock) -> Vec<(u32, u64)> {
        let mut skipped = Vec::new();
        let mut sequence = self.sequence.borrow_mut();
        // The pacer's own phase: a phase begins with a pacer of its own.
        let end = phase.end.saturating_duration_since(self.start);
        while sequence.due() < end {
            let second = sequence.due().as_secs();
            let n_skipped = sequence.skip_to(Duration::from_secs(second + 1).min(end));
            skipped.push((u32::try_from(second).unwrap_or(u32::MAX), n_skipped));
        }
        skipped
    }
}

impl OpenState {
    /// Whether every arrival before a moment has been handed on.
    pub(super) fn has_paced_to(&self, moment: Instant) -> bool {
        self.pacer
            .borrow()
            .as_ref()
            .and_then(|pacer| pacer.next_due())
            .is_none_or(|due| due >= moment)
    }

    /// Whether an arrival of the phase still waits for its turn.
    pub(super) fn holds_arrival_of(&self, phase: &PhaseClock) -> bool {
        // In order of due, but those of an earlier stretch may stand before them.
        self.waiting.borrow().iter().any(|due| phase.holds(*due))
    }

    /// Takes the phase's arrivals out that wait or were not handed on: they are unsent.
    pub(super) fn give_up(&self, thread: &Thread, phase: &PhaseClock, now: Instant) {
        let Some(first) = thread.plan.prepared.operations.first() else {
            return;
        };
        self.waiting.borrow_mut().retain(|due| {
            if !phase.holds(*due) {
                return true;
            }
            let waited = nanoseconds(now.saturating_duration_since(*due));
            let second = due.saturating_duration_since(phase.start).as_secs();
            thread.record(Sample {
                operation: first.name,
                outcome: Outcome::Unsent,
                second: u32::try_from(second).unwrap_or(u32::MAX),
                sent_second: 0,
                latency_ns: waited,
                service_ns: 0,
                lag_ns: waited,
                generator_lag_ns: 0,
                is_sent_inside: false,
            });
            false
        });
        let pacer = self.pacer.borrow().clone();
        for (second, n_skipped) in pacer.iter().flat_map(|pacer| pacer.skip_to_end_of(phase)) {
            thread.totals.borrow_mut().arrivals += n_skipped;
            let second_began = phase.start + Duration::from_secs(u64::from(second));
            thread.record_unpaced(Unpaced {
                operation: first.name,
                second,
                n: n_skipped,
                waited_ns: nanoseconds(now.saturating_duration_since(second_began)),
            });
        }
    }

    /// Counts the time under way up to now.
    pub(super) fn settle(&self, thread: &Thread, now: Instant) {
        if let Some(since) = self.running_since.replace(Some(now)) {
            thread.add_under_way(self.running.get(), since, now);
        }
    }

    fn begins(&self, thread: &Thread, now: Instant) {
        self.settle(thread, now);
        self.running.set(self.running.get() + 1);
    }

    fn ends(&self, thread: &Thread, now: Instant) {
        self.settle(thread, now);
        self.running.set(self.running.get() - 1);
    }
}

/// A share of `total` for thread `index` of `n`: shares differ by one at most.
fn share(total: u32, index: usize, n: usize) -> u32 {
    let (index, n) = (index as u64, n as u64);
    let total = u64::from(total);
    u32::try_from(total / n + u64::from(index < total % n))
        .expect("a share is not more than the whole")
}

/// Ends the arrivals of the phase before and starts those of this one.
pub(super) fn begin(thread: &Rc<Thread>, clock: PhaseClock) {
    if let Some(pacer) = thread.open.pacer.borrow_mut().take() {
        pacer.stops_at.set(Some(clock.start));
    }
    // What arrived after the last window and still waits belongs to nobody.
    thread.open.waiting.borrow_mut().clear();
    let LoadModel::Open {
        requests_per_second,
        arrivals,
        max_in_flight,
    } = clock.model
    else {
        return;
    };
    // With fewer journeys than threads only as many threads serve arrivals:
    // one without a share would let its arrivals wait for ever.
    let n_threads = thread.plan.n_threads.min(max_in_flight as usize);
    if thread.index >= n_threads {
        return;
    }
    let open = &thread.open;
    open.most_under_way
        .set(share(max_in_flight, thread.index, n_threads));
    let n_requests = thread.plan.prepared.operations.len();
    let of_journeys = |requests_per_second: f64| requests_per_second / n_requests as f64;
    let rate = match clock.ramp_from {
        None => Rate::constant(of_journeys(requests_per_second)),
        Some(from) => Rate::ramp(
            of_journeys(from),
            of_journeys(requests_per_second),
            clock.end.saturating_duration_since(clock.start),
        ),
    };
    // Every phase has a sequence of its own, the same on all threads.
    let seed = thread.plan.seed ^ (clock.index as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let sequence = ArrivalSequence::new(arrivals, rate, seed, thread.index, n_threads);
    let pacer = Rc::new(Pacer {
        start: clock.start,
        sequence: RefCell::new(sequence),
        stops_at: Cell::new(None),
    });
    *open.pacer.borrow_mut() = Some(Rc::clone(&pacer));
    thread.spawn(pace(Rc::clone(thread), pacer));
}

async fn pace(thread: Rc<Thread>, pacer: Rc<Pacer>) {
    let mut n_in_a_row = 0;
    loop {
        let arrival = pacer.next();
        let Some(due) = pacer.next_due() else {
            return;
        };
        if due > Instant::now() {
            n_in_a_row = 0;
            thread.timer.sleep_until(due).await;
        } else if n_in_a_row >= ARRIVALS_IN_A_ROW {
            n_in_a_row = 0;
            tokio::task::yield_now().await;
        }
        // What is left behind when the next phase begins belongs to nobody.
        let is_over = |stop| due >= stop || Instant::now() >= stop;
        if pacer.stops_at.get().is_some_and(is_over) {
            return;
        }
        if pacer.next() != arrival {
            // Passed over at the end of the drain.
            continue;
        }
        pacer.sequence.borrow_mut().advance();
        arrive(&thread, due, arrival);
        n_in_a_row += 1;
    }
}

fn arrive(thread: &Rc<Thread>, due: Instant, arrival: u64) {
    let open = &thread.open;
    let is_counted = thread.phase_at(due).is_some();
    if is_counted {
        thread.totals.borrow_mut().arrivals += 1;
    }
    if !journey::is_wanted(thread, Sitter::Arrival) {
        return;
    }
    if open.under_way.get() >= open.most_under_way.get() {
        if is_counted {
            thread.totals.borrow_mut().held_back += 1;
        }
        open.waiting.borrow_mut().push_back(due);
        return;
    }
    open.under_way.set(open.under_way.get() + 1);
    thread.spawn(serve(Rc::clone(thread), due, arrival));
}

/// Runs a journey, then those that waited for it to end.
async fn serve(thread: Rc<Thread>, due: Instant, number: u64) {
    let open = &thread.open;
    let mut seat = thread.take_seat(Sitter::Arrival, number);
    let mut arrival = Due {
        at: due,
        sendable: due,
    };
    loop {
        open.begins(&thread, Instant::now());
        journey::run(&thread, &mut seat, Some(arrival)).await;
        let ended = Instant::now();
        thread.handled(&seat.slot, ended);
        open.ends(&thread, ended);
        let may_go_on = open.under_way.get() <= open.most_under_way.get()
            && journey::is_wanted(&thread, Sitter::Arrival);
        let next = if may_go_on {
            open.waiting.borrow_mut().pop_front()
        } else {
            None
        };
        let Some(at) = next else {
            break;
        };
        arrival = Due {
            at,
            sendable: ended.max(at),
        };
    }
    thread.put_seat(seat);
    open.under_way.set(open.under_way.get() - 1);
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
