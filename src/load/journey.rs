//! One journey on one seat: request after request, captures in between.
//!
//! **Invariant**: every request that was begun ends in exactly one outcome, and
//! a request that belongs to a phase is recorded exactly once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::answer::{Answer, Keep};
use super::client::{ClientError, ExchangeError};
use super::closed::{Stay, stay_of};
use super::connection::{Connection, Dialer};
use super::plan::LoadModel;
use super::prepare::{Judged, Ready};
use super::request::Outgoing;
use super::slot::{Cancel, Seat, Sitter};
use super::thread::{Thread, nanoseconds};
use super::workload::OnFailure;
use crate::measure::{ErrorClass, Outcome, Sample};

/// How long a closed-loop user waits after an aborted journey, a refused
/// connection or a journey whose steps could not be sent, so that a service that fails
/// fast is not hammered and the generator does not spin.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// When an open-loop request should leave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// When it was due.
    pub(super) at: Instant,
    /// From when on it could be sent: later than due when it had to wait for a
    /// journey to end.
    pub(super) sendable: Instant,
}

/// How a journey ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JourneyEnd {
    /// All steps were tried.
    Whole,
    /// A step failed and the rest was not attempted.
    Aborted,
    /// No step succeeded, and there were some that could not be sent for that.
    Fruitless,
    /// The phase no longer wants it.
    Cut,
}

/// How one request ended.
#[derive(Debug)]
struct Ended {
    outcome: Outcome,
    at: Instant,
}

/// Runs one journey. `arrival` is when it was due in an open loop.
pub(super) async fn run(thread: &Thread, seat: &mut Seat, arrival: Option<Due>) -> JourneyEnd {
    let prepared = &thread.plan.prepared;
    let n_steps = prepared.operations.len();
    let sitter = sitter_of(arrival, seat);
    let mut captures = vec![None; prepared.captures.len()];
    let mut due = arrival;
    let mut began = arrival.map(|due| due.at);
    let mut journey_outcome = Outcome::Success;
    let (mut has_success, mut has_unsendable) = (false, false);
    for (index, operation) in prepared.operations.iter().enumerate() {
        if !is_wanted(thread, sitter) {
            return JourneyEnd::Cut;
        }
        let left_at = Instant::now();
        let moment = due.map_or(left_at, |due| due.at);
        let is_counted = thread.phase_at(moment).is_some();
        if began.is_none() {
            began = Some(left_at);
            if is_counted {
                thread.totals.borrow_mut().arrivals += 1;
            }
        }
        if !is_counted {
            thread.totals.borrow_mut().outside += 1;
        }
        thread.request_starts(&seat.slot, left_at, is_counted);
        let ended = request(thread, seat, operation, &mut captures).await;
        thread.request_ends(&seat.slot, ended.at);
        has_success |= ended.outcome == Outcome::Success;
        has_unsendable |= ended.outcome == Outcome::Error(ErrorClass::Template);
        if is_counted {
            record(thread, operation, &ended, left_at, due);
        }
        if ended.outcome != Outcome::Success {
            if journey_outcome == Outcome::Success {
                journey_outcome = ended.outcome;
            }
            let is_cut_short =
                prepared.on_failure == OnFailure::Abort || ended.outcome == Outcome::Abandoned;
            if is_cut_short {
                if is_counted {
                    thread.totals.borrow_mut().not_attempted += (n_steps - index - 1) as u64;
                }
                thread.record_journey(journey_outcome, began.unwrap_or(left_at), ended.at);
                return JourneyEnd::Aborted;
            }
            hold_back(thread, seat, &ended, arrival.is_some()).await;
        }
        let is_last = index + 1 == n_steps;
        if is_last {
            thread.record_journey(journey_outcome, began.unwrap_or(left_at), ended.at);
        }
        let next = ended.at + operation.think;
        // After its last step a user thinks before the next journey; a journey
        // that arrived is over and must not keep its place.
        let is_over = is_last && arrival.is_some();
        if !operation.think.is_zero() && !is_over {
            thread.wait(&seat.slot, ended.at, next).await;
        }
        due = arrival.map(|_| Due {
            at: next,
            sendable: next,
        });
    }
    if has_unsendable && !has_success {
        JourneyEnd::Fruitless
    } else {
        JourneyEnd::Whole
    }
}

fn sitter_of(arrival: Option<Due>, seat: &Seat) -> Sitter {
    match arrival {
        Some(_) => Sitter::Arrival,
        None => Sitter::User(seat.user),
    }
}

/// Whether the phase under way still has a place for this user or journey.
pub(super) fn is_wanted(thread: &Thread, sitter: Sitter) -> bool {
    let Some(phase) = thread.phase() else {
        return false;
    };
    match (phase.model, sitter) {
        // Asked before every request: the clock is read on a ramp alone.
        (LoadModel::Closed { users }, Sitter::User(user)) if phase.ramp_from.is_none() => {
            user < users
        }
        (LoadModel::Closed { .. }, Sitter::User(user)) => {
            stay_of(&phase, user, Instant::now()) == Stay::Wanted
        }
        (LoadModel::Open { .. }, Sitter::Arrival) => true,
        _ => false,
    }
}

/// After a failed step of a journey that goes on all the same.
async fn hold_back(thread: &Thread, seat: &Seat, ended: &Ended, is_open: bool) {
    match ended.outcome {
        Outcome::Error(ErrorClass::Connect) if !is_open => {
            thread.wait(&seat.slot, ended.at, ended.at + PAUSE).await;
        }
        // Nothing was awaited for this request: let others run.
        Outcome::Error(ErrorClass::Template) => tokio::task::yield_now().await,
        _ => {}
    }
}

fn record(thread: &Thread, operation: &Ready, ended: &Ended, left_at: Instant, due: Option<Due>) {
    let Some(phase) = thread.phase() else {
        return;
    };
    let moment = due.map_or(left_at, |due| due.at);
    let since = |from: Instant, to: Instant| nanoseconds(to.saturating_duration_since(from));
    let second = moment.saturating_duration_since(phase.start).as_secs();
    thread.record(Sample {
        operation: operation.name,
        outcome: ended.outcome,
        second: u32::try_from(second).unwrap_or(u32::MAX),
        latency_ns: since(moment, ended.at),
        service_ns: since(left_at, ended.at),
        lag_ns: since(moment, left_at),
        generator_lag_ns: due.map_or(0, |due| since(due.sendable, left_at)),
        is_sent_inside: left_at < phase.end,
    });
}

/// Sends one request and judges its answer.
async fn request(
    thread: &Thread,
    seat: &mut Seat,
    operation: &Ready,
    captures: &mut [Option<Value>],
) -> Ended {
    let prepared = &thread.plan.prepared;
    let user = seat.user;
    let address = thread.plan.addresses[seat.address];
    let Seat {
        connection,
        slot,
        buffer,
        ..
    } = seat;
    let outgoing = thread.with_dynamic(captures, user, |dynamic| {
        operation.request.build(&prepared.captures, dynamic, buffer)
    });
    let exchanged = match outgoing {
        Err(why) => Err(ClientError::new(ErrorClass::Template, why)),
        Ok(outgoing) => {
            let to = (&prepared.dialer, address);
            let exchange = send(connection, to, &outgoing, operation.keep());
            match slot.guard(exchange).await {
                Ok(exchanged) => exchanged,
                Err(cancel) => {
                    // The answer may still come; this connection cannot tell it
                    // from the next one.
                    *connection = None;
                    if cancel == Cancel::Abandoned {
                        let at = Instant::now();
                        thread.note_failure(at, || {
                            let name = &prepared.names[operation.name as usize];
                            format!("{name}: no answer when the drain was over")
                        });
                        return Ended {
                            outcome: Outcome::Abandoned,
                            at,
                        };
                    }
                    Err(ClientError::new(
                        ErrorClass::Timeout,
                        format!("no whole answer within {:?}", thread.plan.timeout),
                    ))
                }
            }
        }
    };
    let at = Instant::now();
    let judged = match (exchanged, &connection) {
        (Ok(()), Some(connection)) => judge(thread, operation, connection.answer(), captures, user),
        (Err(error), _) => Judged {
            outcome: Outcome::Error(error.class),
            why: Some(error.message),
        },
        (Ok(()), None) => unreachable!("an answer was read on a connection"),
    };
    if let Some(why) = judged.why {
        thread.note_failure(at, || {
            format!("{}: {why}", prepared.names[operation.name as usize])
        });
    }
    Ended {
        outcome: judged.outcome,
        at,
    }
}

fn judge(
    thread: &Thread,
    operation: &Ready,
    answer: &Answer,
    captures: &mut [Option<Value>],
    user: u32,
) -> Judged {
    let mut found = Vec::new();
    let judged = thread.with_dynamic(captures, user, |dynamic| {
        operation.judge(&thread.plan.prepared, answer, dynamic, &mut found)
    });
    for (slot, value) in found {
        captures[slot] = Some(value);
    }
    judged
}

/// Sends on the seat's connection, or on a new one where it has been closed; the answer
/// is then the connection's.
pub(super) async fn send(
    connection: &mut Option<Connection>,
    (dialer, address): (&Dialer, SocketAddr),
    outgoing: &Outgoing<'_>,
    keep: Keep,
) -> Result<(), ClientError> {
    if connection.as_ref().is_some_and(|open| !open.is_reusable()) {
        *connection = None;
    }
    loop {
        let was_open = connection.is_some();
        let open = match connection {
            Some(open) => open,
            None => connection.insert(Connection::open(dialer, address).await?),
        };
        match open.exchange(outgoing, keep).await {
            Ok(()) => return Ok(()),
            Err(ExchangeError::Failed(error)) => {
                *connection = None;
                return Err(error);
            }
            Err(ExchangeError::Stale) => {
                *connection = None;
                if !was_open {
                    return Err(ClientError::new(
                        ErrorClass::Reset,
                        "the new connection was closed at once",
                    ));
                }
            }
        }
    }
}
