//! An open loop: journeys arrive at a rate of their own, whatever the service does.
//!
//! `arrivals` says when each is due, `mix` which journey it is; arrival i is served by load
//! thread i mod T. At most a thread's share of `max_in_flight` journeys are
//! under way on it; later arrivals wait in order and are timed from their due
//! time all the same. Where the target has n addresses, arrival i goes to address
//! i mod n; one that had to wait takes the connection that came free. Arrivals go on, unrecorded, until the next phase begins.
//!
//! A journey that arrives beside the phase's own load is a stream of its own, with its own
//! places; it may run beside a closed loop as well.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::arrivals::{ArrivalSequence, Rate};
use super::journey::{self, Due};
use super::mix::draw;
use super::plan::{Arrivals, LoadModel};
use super::setup::{self, Renew};
use super::slot::{Seat, Sitter};
use super::thread::{PhaseClock, Thread, nanoseconds};
use crate::measure::{Outcome, Sample, Unpaced};

/// After so many arrivals in one go others get a turn: when the thread cannot
/// keep up, answers must still be read.
const ARRIVALS_IN_A_ROW: u32 = 32;
/// Draws of a phase differ from those of another.
const PHASE_STEP: u64 = 0xD1B5_4A32_D192_ED03;
/// And those of a stream beside it from its own.
const BESIDE_STEP: u64 = 0xA24B_AED4_963E_E407;

/// The open loops of one thread.
#[derive(Debug, Default)]
pub(super) struct OpenState {
    /// Of the phase's own load and of each journey that was ever beside one; they live
    /// across phases.
    streams: RefCell<Vec<Rc<Stream>>>,
    /// Journeys of the phase's own begun and not ended, and since when it is this many.
    running: Cell<u32>,
    running_since: Cell<Option<Instant>>,
}

/// Arrivals of one rate, and the places for their journeys.
#[derive(Debug)]
struct Stream {
    sitter: Sitter,
    pacer: RefCell<Option<Rc<Pacer>>>,
    waiting: RefCell<VecDeque<Arrival>>,
    /// Journeys with a place: begun, or about to be.
    under_way: Cell<u32>,
    most_under_way: Cell<u32>,
}

/// A journey that is to be begun.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    due: Instant,
    /// Over all threads, from 0 in each phase.
    number: u64,
    /// What its draws start from: that of its phase and stream.
    seed: u64,
}

/// What the thread and the task that paces share.
#[derive(Debug)]
struct Pacer {
    start: Instant,
    seed: u64,
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

impl Stream {
    fn new(sitter: Sitter) -> Self {
        Self {
            sitter,
            pacer: RefCell::default(),
            waiting: RefCell::default(),
            under_way: Cell::new(0),
            most_under_way: Cell::new(0),
        }
    }

    fn has_paced_to(&self, moment: Instant) -> bool {
        self.pacer
            .borrow()
            .as_ref()
            .and_then(|pacer| pacer.next_due())
            .is_none_or(|due| due >= moment)
    }

    /// The journey that an arrival is.
    fn journey_of(&self, thread: &Thread, phase: usize, arrival: Arrival) -> usize {
        match self.sitter {
            Sitter::Beside(journey) => journey,
            Sitter::User(_) | Sitter::Arrival => {
                let mix = &thread.plan.phases[phase].mix;
                let drawn = if mix.is_drawn() {
                    draw(arrival.seed, arrival.number, 0)
                } else {
                    0
                };
                mix.journey(drawn)
            }
        }
    }

    /// Takes the phase's arrivals out that wait or were not handed on: they are unsent.
    fn give_up(&self, thread: &Thread, phase: &PhaseClock, now: Instant) {
        let prepared = &thread.plan.prepared;
        let first_of = |journey: usize| prepared.of_journey(journey).first().map(|step| step.name);
        self.waiting.borrow_mut().retain(|arrival| {
            if !phase.holds(arrival.due) {
                return true;
            }
            let journey = self.journey_of(thread, phase.index, *arrival);
            let waited = nanoseconds(now.saturating_duration_since(arrival.due));
            let second = arrival.due.saturating_duration_since(phase.start).as_secs();
            if let Some(operation) = first_of(journey) {
                thread.record(Sample {
                    operation,
                    outcome: Outcome::Unsent,
                    second: u32::try_from(second).unwrap_or(u32::MAX),
                    sent_second: 0,
                    latency_ns: waited,
                    service_ns: 0,
                    lag_ns: waited,
                    generator_lag_ns: 0,
                    is_sent_inside: false,
                });
            }
            false
        });
        let pacer = self.pacer.borrow().clone();
        for (second, n_skipped) in pacer.iter().flat_map(|pacer| pacer.skip_to_end_of(phase)) {
            if self.sitter.is_main() {
                thread.totals.borrow_mut().arrivals += n_skipped;
            }
            let second_began = phase.start + Duration::from_secs(u64::from(second));
            // There may be millions: which journey each would have been is not drawn any
            // more, they are shared out by weight.
            let shares: Vec<(usize, u64)> = match self.sitter {
                Sitter::Beside(journey) => vec![(journey, n_skipped)],
                Sitter::User(_) | Sitter::Arrival => thread.plan.phases[phase.index]
                    .mix
                    .split(n_skipped)
                    .collect(),
            };
            for (journey, n) in shares.into_iter().filter(|(_, n)| *n > 0) {
                if let Some(operation) = first_of(journey) {
                    thread.record_unpaced(Unpaced {
                        operation,
                        second,
                        n,
                        waited_ns: nanoseconds(now.saturating_duration_since(second_began)),
                    });
                }
            }
        }
    }

    /// Ends the arrivals of the phase before.
    fn stop(&self, at: Instant) {
        if let Some(pacer) = self.pacer.borrow_mut().take() {
            pacer.stops_at.set(Some(at));
        }
        // What arrived after the last window and still waits belongs to nobody.
        self.waiting.borrow_mut().clear();
    }
}

impl OpenState {
    /// Whether every arrival before a moment has been handed on.
    pub(super) fn has_paced_to(&self, moment: Instant) -> bool {
        let streams = self.streams.borrow();
        streams.iter().all(|stream| stream.has_paced_to(moment))
    }

    /// Whether an arrival of the phase still waits for its turn.
    pub(super) fn holds_arrival_of(&self, phase: &PhaseClock) -> bool {
        // In order of due, but those of an earlier stretch may stand before them.
        let holds = |stream: &Rc<Stream>| {
            let waiting = stream.waiting.borrow();
            waiting.iter().any(|arrival| phase.holds(arrival.due))
        };
        self.streams.borrow().iter().any(holds)
    }

    /// Takes the phase's arrivals out that wait or were not handed on: they are unsent.
    pub(super) fn give_up(&self, thread: &Thread, phase: &PhaseClock, now: Instant) {
        for stream in self.streams.borrow().iter() {
            stream.give_up(thread, phase, now);
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

    /// The stream of a sitter, which is made where there is none.
    fn stream(&self, sitter: Sitter) -> Rc<Stream> {
        let mut streams = self.streams.borrow_mut();
        let known = streams.iter().find(|stream| stream.sitter == sitter);
        known.cloned().unwrap_or_else(|| {
            let stream = Rc::new(Stream::new(sitter));
            streams.push(Rc::clone(&stream));
            stream
        })
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
    for stream in thread.open.streams.borrow().iter() {
        stream.stop(clock.start);
    }
    let loads = &thread.plan.phases[clock.index];
    // Every phase has a sequence of its own, the same on all threads.
    let seed = thread.plan.seed ^ (clock.index as u64).wrapping_mul(PHASE_STEP);
    let length = clock.end.saturating_duration_since(clock.start);
    if let LoadModel::Open {
        requests_per_second,
        arrivals,
        max_in_flight,
    } = clock.model
    {
        let mean_requests = loads.mix.mean_requests();
        let rate = match clock.ramp_from {
            None => Rate::constant(requests_per_second / mean_requests),
            Some(from) => Rate::ramp(
                from / mean_requests,
                requests_per_second / mean_requests,
                length,
            ),
        };
        let paced = Paced {
            arrivals,
            rate,
            max_in_flight,
            seed,
        };
        start(thread, Sitter::Arrival, clock.start, &paced);
    }
    for beside in &loads.beside {
        let requests = thread.plan.prepared.of_journey(beside.journey).len();
        let paced = Paced {
            arrivals: beside.arrivals,
            rate: Rate::constant(beside.requests_per_second / requests as f64),
            max_in_flight: beside.max_in_flight,
            seed: seed ^ (beside.journey as u64 + 1).wrapping_mul(BESIDE_STEP),
        };
        start(thread, Sitter::Beside(beside.journey), clock.start, &paced);
    }
}

/// How the arrivals of a stream are paced.
struct Paced {
    arrivals: Arrivals,
    rate: Rate,
    max_in_flight: u32,
    seed: u64,
}

/// Starts the thread's share of a stream.
fn start(thread: &Rc<Thread>, sitter: Sitter, at: Instant, how: &Paced) {
    // With fewer journeys than threads only as many threads serve arrivals:
    // one without a share would let its arrivals wait for ever.
    let n_threads = thread.plan.n_threads.min(how.max_in_flight as usize);
    if thread.index >= n_threads {
        return;
    }
    let stream = thread.open.stream(sitter);
    let most = share(how.max_in_flight, thread.index, n_threads);
    stream.most_under_way.set(most);
    let sequence = ArrivalSequence::new(how.arrivals, how.rate, how.seed, thread.index, n_threads);
    let pacer = Rc::new(Pacer {
        start: at,
        seed: how.seed,
        sequence: RefCell::new(sequence),
        stops_at: Cell::new(None),
    });
    *stream.pacer.borrow_mut() = Some(Rc::clone(&pacer));
    thread.spawn(pace(Rc::clone(thread), stream, pacer));
}

async fn pace(thread: Rc<Thread>, stream: Rc<Stream>, pacer: Rc<Pacer>) {
    let mut n_in_a_row = 0;
    loop {
        let number = pacer.next();
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
        if pacer.next() != number {
            // Passed over at the end of the drain.
            continue;
        }
        pacer.sequence.borrow_mut().advance();
        let seed = pacer.seed;
        arrive(&thread, &stream, Arrival { due, number, seed });
        n_in_a_row += 1;
    }
}

fn arrive(thread: &Rc<Thread>, stream: &Rc<Stream>, arrival: Arrival) {
    let is_counted = stream.sitter.is_main() && thread.is_in_phase(arrival.due);
    if is_counted {
        thread.totals.borrow_mut().arrivals += 1;
    }
    if !journey::is_wanted(thread, stream.sitter) {
        return;
    }
    if stream.under_way.get() >= stream.most_under_way.get() {
        if is_counted {
            thread.totals.borrow_mut().held_back += 1;
        }
        stream.waiting.borrow_mut().push_back(arrival);
        return;
    }
    stream.under_way.set(stream.under_way.get() + 1);
    let seat = thread.take_seat(stream.sitter, arrival.number);
    if setup::is_needed(&thread.plan.prepared, &seat, Renew::Late) {
        // Whichever place is ready first takes it.
        if is_counted {
            thread.totals.borrow_mut().held_back += 1;
        }
        stream.waiting.borrow_mut().push_back(arrival);
        thread.spawn(set_up_and_serve(Rc::clone(thread), Rc::clone(stream), seat));
    } else {
        let stream = Rc::clone(stream);
        thread.spawn(serve(Rc::clone(thread), stream, seat, arrival, arrival.due));
    }
}

/// Makes a place ready, then serves what waits.
async fn set_up_and_serve(thread: Rc<Thread>, stream: Rc<Stream>, mut seat: Seat) {
    while journey::is_wanted(&thread, stream.sitter) {
        if setup::make_ready(&thread, &mut seat, Renew::Late).await {
            break;
        }
        setup::pause(&thread, &seat).await;
    }
    let next = next_waiting(&thread, &stream);
    if let Some(arrival) = next {
        serve(thread, stream, seat, arrival, Instant::now()).await;
    } else {
        leave(&thread, &stream, seat);
    }
}

/// Runs a journey, then those that waited for it to end. `free_at` is since when the
/// place could have begun the first.
async fn serve(
    thread: Rc<Thread>,
    stream: Rc<Stream>,
    mut seat: Seat,
    first: Arrival,
    mut free_at: Instant,
) {
    let open = &thread.open;
    let is_main = stream.sitter.is_main();
    let mut arrival = first;
    loop {
        let due = Due {
            at: arrival.due,
            sendable: free_at.max(arrival.due),
        };
        let Some(phase) = thread.phase().map(|phase| phase.index) else {
            break;
        };
        let index = stream.journey_of(&thread, phase, arrival);
        let sets = &thread.plan.prepared.journeys[index].data;
        if !sets.is_empty() {
            let drawn = draw(arrival.seed, arrival.number, 1);
            setup::pick_rows(&thread.plan, sets, seat.user, drawn, &mut seat.rows);
        }
        if is_main {
            open.begins(&thread, Instant::now());
        }
        journey::run(&thread, &mut seat, index, Some(due)).await;
        let ended = Instant::now();
        thread.handled(&seat.slot, ended);
        if is_main {
            open.ends(&thread, ended);
        }
        free_at = ended;
        if setup::is_needed(&thread.plan.prepared, &seat, Renew::Early) {
            let is_renewed = setup::make_ready(&thread, &mut seat, Renew::Early).await;
            if !is_renewed && setup::is_needed(&thread.plan.prepared, &seat, Renew::Late) {
                set_up_again(Rc::clone(&thread), Rc::clone(&stream), seat);
                return;
            }
            free_at = Instant::now();
        }
        match next_waiting(&thread, &stream) {
            Some(next) => arrival = next,
            None => break,
        }
    }
    leave(&thread, &stream, seat);
}

/// Makes a place ready whose set-up is over and could not be renewed.
fn set_up_again(thread: Rc<Thread>, stream: Rc<Stream>, seat: Seat) {
    let owner = Rc::clone(&thread);
    owner.spawn(set_up_and_serve(thread, stream, seat));
}

/// The arrival that waits longest, if the phase has a place for it.
fn next_waiting(thread: &Thread, stream: &Stream) -> Option<Arrival> {
    let may_go_on = stream.under_way.get() <= stream.most_under_way.get()
        && journey::is_wanted(thread, stream.sitter);
    may_go_on
        .then(|| stream.waiting.borrow_mut().pop_front())
        .flatten()
}

fn leave(thread: &Thread, stream: &Stream, seat: Seat) {
    thread.put_seat(seat);
    stream.under_way.set(stream.under_way.get() - 1);
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
