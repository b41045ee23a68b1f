//! What the tasks of one load thread share: the phase clock, slots, counters.
//!
//! A load thread is one event loop on one OS thread; nothing here is shared with
//! another thread, so there are cells instead of locks. `closed` and `open` hold
//! the two ways of pacing, `journey` sends requests, `generator` directs threads.
//!
//! **Invariant**: nothing on a load thread uses `tokio::time`: its runtime has no timer, and
//! would panic. `fine_timer` says why, and has one.
//!
//! **Invariant**: membership of a window is decided by comparing one moment with
//! the phase clock, never by the order in which tasks happen to run.

use std::cell::{Cell, Ref, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use super::closed;
use super::failure_notes::FailureNotes;
use super::fine_timer::FineTimer;
use super::numbers::Numbers;
use super::open::{self, OpenState};
use super::plan::LoadModel;
use super::request::RequestBuffer;
use super::setup::Standing;
use super::slot::{Cancel, Seat, Sitter, Slot};
use super::thread_plan::ThreadPlan;
use super::thread_time::ThreadTime;
use super::workload::Cookies;
use crate::measure::{Outcome, RetryAfter, Sample, Unpaced};

/// How often deadlines are looked at, the drain is checked and samples leave.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// Samples leave at least so often, so that ticks are fresh.
const FLUSH_AFTER: Duration = Duration::from_millis(100);
/// And when so many have gathered: 49 KB, which the CPU that counts them has at hand.
const FLUSH_SAMPLES: usize = 1_024;

/// Longest time between an answer and the next send that is the generator's
/// ordinary work. Release builds need 1 to 3 us; beyond this it stood still, and
/// time that nobody accounts for shows in Little's law.
const MOST_HANDLING: Duration = Duration::from_micros(50);

/// The edges and pacing of the phase under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PhaseClock {
    pub(super) index: usize,
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) model: LoadModel,
    /// What a ramp begins with; `None` where the load is held.
    pub(super) ramp_from: Option<f64>,
}

impl PhaseClock {
    /// Whether a moment is inside: the left edge is, the right edge is not.
    #[inline]
    pub(super) fn holds(&self, moment: Instant) -> bool {
        self.start <= moment && moment < self.end
    }

    /// The part of a stretch of time that is inside.
    #[inline]
    fn overlap(&self, from: Instant, to: Instant) -> Duration {
        to.min(self.end)
            .saturating_duration_since(from.max(self.start))
    }
}

/// What a thread is told while it runs.
#[derive(Debug)]
pub(super) enum Command {
    /// The next phase begins soon.
    Begin(PhaseClock),
    /// The drain of the phase is over: give up what is still in flight, report.
    Close {
        /// Whether no phase follows: then nothing more is sent.
        is_last: bool,
    },
    /// End at once.
    Stop,
}

/// What a thread says.
#[derive(Debug)]
pub(super) enum Report {
    /// What ended since the last one; it belongs to the phase under way.
    Batch(Batch),
    /// Nothing of the phase is in flight any more.
    Drained { phase: usize },
    /// The thread's last word on the phase.
    Closed { thread: usize, totals: Totals },
    /// The thread cannot go on.
    Broken { thread: usize, message: String },
    /// From outside: end at once.
    Stop,
    /// From outside: begin the phase that is held.
    GoOn,
}

/// What ended since the last report.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) samples: Vec<Sample>,
    pub(super) unpaced: Vec<Unpaced>,
    /// Journeys that ended in the phase: which, how, after how long. **Units**: nanoseconds.
    pub(super) journeys: Vec<(usize, Outcome, u64)>,
    /// In words, and of which outcome where they are a request's of the phase.
    pub(super) failures: Vec<(Option<Outcome>, String)>,
    /// The thread that says so, and its requests under way by then.
    pub(super) in_flight: (usize, u32),
}

/// Sums of one phase on one thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) arrivals: u64,
    pub(super) not_attempted: u64,
    pub(super) held_back: u64,
    /// Of the bodies that came back.
    pub(super) body_bytes: u64,
    /// Requests sent since the phase began that do not belong to it.
    pub(super) outside: u64,
    /// Time that journeys spent in requests, thinking and pausing.
    pub(super) recorded: Duration,
    /// Time that journeys were under way (open loop), by the count of them.
    pub(super) under_way: Duration,
    pub(super) cpu: Duration,
    /// Set-ups of users that succeeded, and that did not.
    pub(super) setups: u64,
    pub(super) setups_failed: u64,
    /// Ready to run and without a CPU; `None` where the kernel does not tell.
    pub(super) waited: Option<Duration>,
    pub(super) retry_after: RetryAfter,
}

/// Everything the tasks of one load thread share.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) index: usize,
    pub(super) plan: Arc<ThreadPlan>,
    pub(super) timer: Rc<FineTimer>,
    pub(super) numbers: Numbers,
    pub(super) open: OpenState,
    pub(super) users: RefCell<HashSet<u32>>,
    pub(super) totals: RefCell<Totals>,
    phase: RefCell<Option<PhaseClock>>,
    batch: RefCell<Batch>,
    flushed: Cell<Instant>,
    failure_notes: FailureNotes,
    /// Requests under way when that was told last.
    told_in_flight: Cell<u32>,
    /// Requests under way: slots with a deadline.
    n_in_flight: Cell<u32>,
    slots: RefCell<Vec<Rc<Slot>>>,
    /// Idle seats, by the address they connect to.
    seats: RefCell<Vec<Vec<Seat>>>,
    drain: RefCell<Drain>,
    outbox: mpsc::Sender<Report>,
    pub(super) broken: Notify,
}

/// Where the thread is between the phase's right edge and its close.
#[derive(Debug, Default)]
struct Drain {
    /// Looks in a row that found nothing in flight.
    quiet_looks: u32,
    is_reported: bool,
    is_closing: bool,
    is_last: bool,
    at_begin: ThreadTime,
    used: Option<ThreadTime>,
}

impl Thread {
    pub(super) fn new(
        index: usize,
        plan: Arc<ThreadPlan>,
        outbox: mpsc::Sender<Report>,
    ) -> std::io::Result<Rc<Self>> {
        // Different threads draw different numbers from one seed.
        let seed = plan.seed ^ (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let seats = plan.addresses.iter().map(|_| Vec::new()).collect();
        Ok(Rc::new(Self {
            index,
            timer: Rc::new(FineTimer::new()?),
            numbers: Numbers::new(fastrand::Rng::with_seed(seed), plan.counter(index)),
            plan,
            open: OpenState::default(),
            users: RefCell::default(),
            totals: RefCell::default(),
            phase: RefCell::new(None),
            batch: RefCell::default(),
            flushed: Cell::new(Instant::now()),
            failure_notes: FailureNotes::default(),
            told_in_flight: Cell::new(0),
            n_in_flight: Cell::new(0),
            slots: RefCell::default(),
            seats: RefCell::new(seats),
            drain: RefCell::default(),
            outbox,
            broken: Notify::new(),
        }))
    }

    /// Serves commands until told to stop. The thread's main task.
    pub(super) async fn run(self: Rc<Self>, mut commands: UnboundedReceiver<Command>) {
        let timer = Rc::clone(&self.timer);
        // Here and not in a task of its own: this one is looked at first, and after every few
        // others, so that a thread with thousands of answers to read still keeps time.
        let mut timing = pin!(timer.run());
        let mut housekeeping = self.timer.sleep_until(Instant::now());
        loop {
            tokio::select! {
                biased;
                () = self.broken.notified() => return,
                Err(error) = &mut timing => {
                    self.report_broken(format!("the timer failed: {error}"));
                    return;
                }
                command = commands.recv() => match command {
                    Some(Command::Begin(clock)) => self.begin(clock),
                    Some(Command::Close { is_last }) => self.close(is_last),
                    Some(Command::Stop) | None => return,
                },
                () = &mut housekeeping => {
                    self.keep_house();
                    housekeeping = self.timer.sleep_until(Instant::now() + HOUSEKEEPING);
                }
            }
        }
    }

    /// Starts a task whose panic ends the load with an error instead of silence.
    pub(super) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let guard = PanicGuard(Rc::clone(self));
        tokio::task::spawn_local(async move {
            let _guard = guard;
            task.await;
        });
    }

    /// The phase under way.
    #[inline]
    pub(super) fn phase(&self) -> Ref<'_, Option<PhaseClock>> {
        self.phase.borrow()
    }

    /// Whether the moment is inside the phase under way.
    #[inline]
    pub(super) fn is_in_phase(&self, moment: Instant) -> bool {
        self.phase().is_some_and(|phase| phase.holds(moment))
    }

    /// A seat, with a connection where one is idle.
    ///
    /// The number of the user or arrival over all threads decides the address: so
    /// neighbours go to different ones, and each has its share to within one.
    pub(super) fn take_seat(&self, sitter: Sitter, number: u64) -> Seat {
        let n_addresses = self.plan.addresses.len();
        let address = (number % n_addresses as u64) as usize;
        let idle = self.seats.borrow_mut()[address].pop();
        let mut seat = idle.unwrap_or_else(|| {
            let slot = Rc::new(Slot::new(sitter));
            let mut slots = self.slots.borrow_mut();
            slots.push(Rc::clone(&slot));
            let ordinal = (slots.len() - 1) * self.plan.n_threads + self.index;
            let id = u32::try_from(ordinal).expect("fewer seats than a process can have sockets");
            Seat {
                connection: None,
                buffer: RequestBuffer::default(),
                jar: None,
                address,
                slot,
                user: id,
                id,
                rows: Vec::new(),
                standing: Standing::default(),
            }
        });
        let user = match sitter {
            Sitter::User(user) => user,
            Sitter::Arrival | Sitter::Beside(_) => seat.id,
        };
        seat.seat(user, self.plan.prepared.cookies != Cookies::Off);
        seat.slot.sitter.set(sitter);
        seat.slot.idle_since.set(None);
        seat
    }

    /// Gives a seat back; its connection lives on.
    pub(super) fn put_seat(&self, seat: Seat) {
        self.seats.borrow_mut()[seat.address].push(seat);
    }

    /// A request leaves: from now on it is watched.
    ///
    /// `timeout`: that of the step, where it has one.
    #[inline]
    pub(super) fn request_starts(
        &self,
        slot: &Slot,
        sent: Instant,
        timeout: Option<Duration>,
        is_counted: bool,
    ) {
        self.handled(slot, sent);
        slot.busy_since.set(Some(sent));
        let timeout = timeout.unwrap_or(self.plan.timeout);
        let before = slot.deadline.replace(Some(sent + timeout));
        if before.is_none() {
            self.n_in_flight.set(self.n_in_flight.get() + 1);
        }
        slot.is_counted.set(is_counted);
        slot.cancelled.set(None);
    }

    /// The request ended.
    #[inline]
    pub(super) fn request_ends(&self, slot: &Slot, ended: Instant) {
        self.is_out_no_more(slot);
        slot.is_counted.set(false);
        slot.cancelled.set(None);
        self.span_ends(slot, ended);
    }

    /// Takes the slot's request away from its task.
    fn cancel(&self, slot: &Slot, cancel: Cancel) {
        self.is_out_no_more(slot);
        slot.cancel(cancel);
    }

    /// The slot's request, if it has one, is no longer watched.
    #[inline]
    fn is_out_no_more(&self, slot: &Slot) {
        if slot.deadline.take().is_some() {
            self.n_in_flight.set(self.n_in_flight.get() - 1);
        }
    }

    /// Waits as a part of a journey: thinking or pausing.
    pub(super) async fn wait(&self, slot: &Slot, from: Instant, until: Instant) {
        self.handled(slot, from);
        slot.busy_since.set(Some(from));
        self.timer.sleep_until(until).await;
        self.span_ends(slot, Instant::now());
    }

    #[inline]
    fn span_ends(&self, slot: &Slot, ended: Instant) {
        if let Some(from) = slot.busy_since.take() {
            self.add_span(slot, from, ended);
            slot.idle_since.set(Some(ended));
        }
    }

    /// Counts the moment between one stretch and the next as the journey's own,
    /// up to what judging an answer and building a request may take.
    #[inline]
    pub(super) fn handled(&self, slot: &Slot, now: Instant) {
        if let Some(from) = slot.idle_since.take() {
            self.add_span(slot, from, now.min(from + MOST_HANDLING));
        }
    }

    /// Counts a stretch of a journey's time, as far as it is the phase's own.
    #[inline]
    fn add_span(&self, slot: &Slot, from: Instant, to: Instant) {
        let phase = self.phase();
        let Some(phase) = phase.as_ref() else {
            return;
        };
        let is_own = match (phase.model, slot.sitter.get()) {
            // Users that are on their way out are not among the phase's users.
            (LoadModel::Closed { users }, Sitter::User(user)) => user < users,
            (LoadModel::Open { .. }, Sitter::Arrival) => true,
            _ => false,
        };
        if is_own {
            self.totals.borrow_mut().recorded += phase.overlap(from, to);
        }
    }

    /// Counts time under way of so many open-loop journeys.
    pub(super) fn add_under_way(&self, n_journeys: u32, from: Instant, to: Instant) {
        if let Some(phase) = self.phase().as_ref() {
            self.totals.borrow_mut().under_way += phase.overlap(from, to) * n_journeys;
        }
    }

    /// Notes a request that belongs to the phase under way.
    #[inline]
    pub(super) fn record(&self, sample: Sample) {
        let mut batch = self.batch.borrow_mut();
        batch.samples.push(sample);
        if batch.samples.len() >= FLUSH_SAMPLES {
            drop(batch);
            self.flush();
        }
    }

    /// Notes requests of the phase under way that the pacing never came to.
    pub(super) fn record_unpaced(&self, unpaced: Unpaced) {
        self.batch.borrow_mut().unpaced.push(unpaced);
    }

    /// Notes a journey, if it ended in the phase under way.
    #[inline]
    pub(super) fn record_journey(
        &self,
        journey: usize,
        outcome: Outcome,
        began: Instant,
        ended: Instant,
    ) {
        if self.is_in_phase(ended) {
            let latency = nanoseconds(ended.saturating_duration_since(began));
            let mut batch = self.batch.borrow_mut();
            batch.journeys.push((journey, outcome, latency));
        }
    }

    /// Notes a failure in words, unless words were made of others like it just now.
    ///
    /// `what`: `None` where it is no request's of the phase.
    pub(super) fn note_failure(
        &self,
        at: Instant,
        what: Option<Outcome>,
        words: impl FnOnce() -> String,
    ) {
        if self.failure_notes.takes(at, what) {
            self.batch.borrow_mut().failures.push((what, words()));
        }
    }

    fn begin(self: &Rc<Self>, clock: PhaseClock) {
        self.phase.replace(Some(clock));
        self.totals.take();
        self.failure_notes.clear();
        // Whoever collects for this phase has heard nothing yet.
        self.told_in_flight.set(u32::MAX);
        *self.drain.borrow_mut() = Drain {
            at_begin: ThreadTime::now(),
            ..Drain::default()
        };
        open::begin(self, clock);
        closed::begin(self, clock);
    }

    fn keep_house(&self) {
        let now = Instant::now();
        for slot in self.slots.borrow().iter() {
            if slot.deadline.get().is_some_and(|deadline| deadline <= now) {
                self.cancel(slot, Cancel::TimedOut);
            }
        }
        if now.saturating_duration_since(self.flushed.get()) >= FLUSH_AFTER {
            self.flush();
        }
        let phase = self.phase().filter(|phase| phase.end <= now);
        let Some(phase) = phase else {
            return;
        };
        let mut drain = self.drain.borrow_mut();
        if drain.used.is_none() {
            drain.used = Some(ThreadTime::now().since(drain.at_begin));
        }
        let is_quiet = self.open.has_paced_to(phase.end)
            && !self.open.holds_arrival_of(&phase)
            && !self.slots.borrow().iter().any(|slot| slot.is_counted.get());
        drain.quiet_looks = if is_quiet { drain.quiet_looks + 1 } else { 0 };
        // A task woken for a moment before the right edge may not have run yet
        // at the first look; by the second it has.
        if drain.quiet_looks < 2 {
            return;
        }
        if drain.is_closing {
            drain.is_closing = false;
            let used = drain.used.unwrap_or_default();
            let is_last = drain.is_last;
            drop(drain);
            self.report_closed(now, used);
            if is_last {
                // Whoever looks now is wanted by no phase: what was counted is all that was sent.
                self.phase.replace(None);
            }
        } else if !drain.is_reported {
            drain.is_reported = true;
            drop(drain);
            self.flush();
            self.report(Report::Drained { phase: phase.index });
        }
    }

    /// Gives up what of the phase is still waiting or in flight.
    fn close(&self, is_last: bool) {
        let now = Instant::now();
        if let Some(phase) = self.phase().as_ref() {
            self.open.give_up(self, phase, now);
        }
        for slot in self.slots.borrow().iter() {
            if slot.is_counted.get() {
                self.cancel(slot, Cancel::Abandoned);
            }
        }
        let mut drain = self.drain.borrow_mut();
        drain.is_closing = true;
        drain.is_last = is_last;
        // A drain reported after the close would be taken for the next phase's.
        drain.is_reported = true;
    }

    fn report_closed(&self, now: Instant, used: ThreadTime) {
        // Spans that go on beyond the phase: their part of it is counted here.
        for slot in self.slots.borrow().iter() {
            if let Some(from) = slot.busy_since.get() {
                self.add_span(slot, from, now);
                slot.busy_since.set(Some(now));
            }
        }
        self.open.settle(self, now);
        self.flush();
        let mut totals = self.totals.take();
        (totals.cpu, totals.waited) = (used.cpu, used.waited);
        self.report(Report::Closed {
            thread: self.index,
            totals,
        });
    }

    fn flush(&self) {
        self.flushed.set(Instant::now());
        // As much is gathered again: room for it at once is cheaper than growing into it.
        let next = {
            let last = self.batch.borrow();
            Batch {
                samples: Vec::with_capacity(last.samples.len()),
                journeys: Vec::with_capacity(last.journeys.len()),
                ..Batch::default()
            }
        };
        let mut batch = self.batch.replace(next);
        let n_out = self.n_in_flight.get();
        batch.in_flight = (self.index, n_out);
        let is_told = self.told_in_flight.replace(n_out) == n_out;
        let is_empty = batch.samples.is_empty()
            && batch.unpaced.is_empty()
            && batch.journeys.is_empty()
            && batch.failures.is_empty()
            && is_told;
        if !is_empty {
            self.report(Report::Batch(batch));
        }
    }

    fn report_broken(&self, message: String) {
        self.report(Report::Broken {
            thread: self.index,
            message,
        });
        self.broken.notify_one();
    }

    fn report(&self, report: Report) {
        // Nobody listens when the load is being stopped; the thread ends soon.
        let _ = self.outbox.send(report);
    }
}

/// Reports a task's panic while it unwinds.
struct PanicGuard(Rc<Thread>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.report_broken("a task panicked".to_owned());
        }
    }
}

/// Saturates after 584 years.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
