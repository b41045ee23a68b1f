//! One journey on one seat: request after request, captures in between.
//!
//! **Invariant**: every request that was begun ends in exactly one outcome, and
//! a request that belongs to a phase is recorded exactly once.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::ClientError;
use super::closed::{Stay, stay_of};
use super::data::Rows;
use super::exchange::{Line, exchange};
use super::numbers::ForWhom;
use super::plan::LoadModel;
use super::prepare::{Judged, Ready};
use super::setup;
use super::slot::{Cancel, Seat, Sitter};
use super::thread::{Thread, nanoseconds};
use super::workload::{Cookies, OnFailure};
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
    /// After which time the step is tried again, where it is.
    again_after: Option<Duration>,
    retry_after: Option<Duration>,
    /// Of its body, as it came; 0 where no whole answer did.
    body_bytes: u64,
}

/// Whose a journey is and when its requests are due.
#[derive(Debug)]
struct Course {
    sitter: Sitter,
    /// When the next request is due; `None` in a closed loop.
    due: Option<Due>,
    /// When the journey arrived, or its first request left.
    began: Option<Instant>,
    outcome: Outcome,
    has_success: bool,
    has_unsendable: bool,
}

/// Runs one journey, by its index. `arrival` is when it was due in an open loop.
pub(super) async fn run(
    thread: &Thread,
    seat: &mut Seat,
    index: usize,
    arrival: Option<Due>,
) -> JourneyEnd {
    let prepared = &thread.plan.prepared;
    let journey = &prepared.journeys[index];
    let steps = prepared.of_journey(index);
    if prepared.cookies == Cookies::Journey
        && let Some(jar) = &mut seat.jar
    {
        jar.clear();
    }
    let mut captures = setup::captures_of(prepared, seat);
    let mut course = Course {
        sitter: seat.slot.sitter.get(),
        due: arrival,
        began: arrival.map(|due| due.at),
        outcome: Outcome::Success,
        has_success: false,
        has_unsendable: false,
    };
    for (number, operation) in steps.iter().enumerate() {
        let mut attempt = 1;
        let (ended, is_counted) = loop {
            let Some((ended, is_counted)) =
                one(thread, seat, operation, attempt, &mut course, &mut captures).await
            else {
                return JourneyEnd::Cut;
            };
            let Some(after) = ended.again_after else {
                break (ended, is_counted);
            };
            attempt += 1;
            let next = ended.at + after;
            thread.wait(&seat.slot, ended.at, next).await;
            course.next_is_due(next);
        };
        let began = course.began.unwrap_or(ended.at);
        if ended.outcome != Outcome::Success {
            if course.outcome == Outcome::Success {
                course.outcome = ended.outcome;
            }
            let is_cut_short =
                journey.on_failure == OnFailure::Abort || ended.outcome == Outcome::Abandoned;
            if is_cut_short {
                if is_counted && course.sitter.is_main() {
                    thread.totals.borrow_mut().not_attempted += (steps.len() - number - 1) as u64;
                }
                thread.record_journey(index, course.outcome, began, ended.at);
                return JourneyEnd::Aborted;
            }
            hold_back(thread, seat, &ended, arrival.is_some()).await;
        }
        let is_last = number + 1 == steps.len();
        if is_last {
            thread.record_journey(index, course.outcome, began, ended.at);
        }
        let next = ended.at + operation.think;
        // After its last step a user thinks before the next journey; a journey
        // that arrived is over and must not keep its place.
        let is_over = is_last && arrival.is_some();
        if !operation.think.is_zero() && !is_over {
            thread.wait(&seat.slot, ended.at, next).await;
        }
        course.next_is_due(next);
    }
    if course.has_unsendable && !course.has_success {
        JourneyEnd::Fruitless
    } else {
        JourneyEnd::Whole
    }
}

impl Course {
    fn next_is_due(&mut self, at: Instant) {
        self.due = self.due.map(|_| Due { at, sendable: at });
    }
}

/// Sends one request and records it; whether it belongs to the phase under way, `None`
/// where the phase has no place for it.
async fn one(
    thread: &Thread,
    seat: &mut Seat,
    operation: &Ready,
    attempt: u32,
    course: &mut Course,
    captures: &mut [Option<Value>],
) -> Option<(Ended, bool)> {
    if !is_wanted(thread, course.sitter) {
        return None;
    }
    let left_at = Instant::now();
    let moment = course.due.map_or(left_at, |due| due.at);
    let is_counted = thread.is_in_phase(moment);
    if course.began.is_none() {
        course.began = Some(left_at);
        if is_counted {
            thread.totals.borrow_mut().arrivals += 1;
        }
    }
    if !is_counted && course.sitter.is_main() {
        thread.totals.borrow_mut().outside += 1;
    }
    thread.request_starts(&seat.slot, left_at, operation.timeout, is_counted);
    let ended = request(thread, seat, operation, attempt, captures).await;
    thread.request_ends(&seat.slot, ended.at);
    if let (Some(wait), true) = (ended.retry_after, is_counted) {
        thread.totals.borrow_mut().retry_after.add(wait);
    }
    course.has_success |= ended.outcome == Outcome::Success;
    course.has_unsendable |= ended.outcome == Outcome::Error(ErrorClass::Template);
    if is_counted {
        if course.sitter.is_main() {
            thread.totals.borrow_mut().body_bytes += ended.body_bytes;
        }
        record(thread, operation, &ended, left_at, course.due);
    }
    Some((ended, is_counted))
}

/// Whether the phase under way still has a place for this user or journey.
#[inline]
pub(super) fn is_wanted(thread: &Thread, sitter: Sitter) -> bool {
    let phase = thread.phase();
    let Some(phase) = phase.as_ref() else {
        return false;
    };
    match (phase.model, sitter) {
        (LoadModel::Closed { .. }, Sitter::User(user)) => {
            stay_of(phase, user, Instant::now) == Stay::Wanted
        }
        (LoadModel::Open { .. }, Sitter::Arrival) => true,
        (_, Sitter::Beside(journey)) => thread.plan.phases[phase.index].has_beside(journey),
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

#[inline]
fn record(thread: &Thread, operation: &Ready, ended: &Ended, left_at: Instant, due: Option<Due>) {
    let phase = thread.phase();
    let Some(phase) = phase.as_ref() else {
        return;
    };
    let since = |from: Instant, to: Instant| nanoseconds(to.saturating_duration_since(from));
    let second_of = |moment: Instant| {
        let second = moment.saturating_duration_since(phase.start).as_secs();
        u32::try_from(second).unwrap_or(u32::MAX)
    };
    let (sent_second, service_ns) = (second_of(left_at), since(left_at, ended.at));
    let sample = Sample {
        operation: operation.name,
        outcome: ended.outcome,
        second: sent_second,
        sent_second,
        latency_ns: service_ns,
        service_ns,
        lag_ns: 0,
        generator_lag_ns: 0,
        is_sent_inside: left_at < phase.end,
    };
    thread.record(match due {
        None => sample,
        Some(due) => Sample {
            second: second_of(due.at),
            latency_ns: since(due.at, ended.at),
            lag_ns: since(due.at, left_at),
            generator_lag_ns: since(due.sendable, left_at),
            ..sample
        },
    });
}

/// Sends one request and judges its answer.
async fn request(
    thread: &Thread,
    seat: &mut Seat,
    operation: &Ready,
    attempt: u32,
    captures: &mut [Option<Value>],
) -> Ended {
    let prepared = &thread.plan.prepared;
    let address = thread.plan.addresses[seat.address];
    let Seat {
        connection,
        slot,
        buffer,
        rows,
        user,
        jar,
        ..
    } = seat;
    let whom = ForWhom {
        user: *user,
        rows: Rows {
            sets: &prepared.data,
            picked: rows,
        },
    };
    let outgoing = thread.numbers.lend(captures, whom, |dynamic| {
        operation.request.build(&prepared.captures, dynamic, buffer)
    });
    let exchanged = match outgoing {
        Err(why) => Err(ClientError::new(ErrorClass::Template, why)),
        Ok(outgoing) => {
            let line = Line {
                connection: &mut *connection,
                to: (&prepared.dialer, address),
                jar: jar.as_deref_mut(),
                trail: None,
            };
            let exchange = exchange(line, &outgoing, operation, operation.keep());
            match slot.guard(exchange).await {
                Ok(exchanged) => exchanged,
                Err(cancel) => {
                    // The answer may still come; this connection cannot tell it
                    // from the next one.
                    *connection = None;
                    if cancel == Cancel::Abandoned {
                        let at = Instant::now();
                        thread.note_failure(at, Some(Outcome::Abandoned), || {
                            let name = &prepared.names[operation.name as usize];
                            format!("{name}: no answer when the drain was over")
                        });
                        return Ended {
                            outcome: Outcome::Abandoned,
                            at,
                            again_after: None,
                            retry_after: None,
                            body_bytes: 0,
                        };
                    }
                    Err(ClientError::new(
                        ErrorClass::Timeout,
                        no_answer_within(operation.timeout.unwrap_or(thread.plan.timeout)),
                    ))
                }
            }
        }
    };
    let at = Instant::now();
    let (mut again_after, mut body_bytes) = (None, 0);
    let judged = match (exchanged, &connection) {
        (Ok(()), Some(connection)) => {
            let answer = connection.answer();
            body_bytes = answer.body_bytes();
            let mut found = Vec::new();
            let (judged, again) = thread.numbers.lend(captures, whom, |dynamic| {
                operation.judge_attempt(prepared, attempt, answer, dynamic, &mut found)
            });
            for (slot, value) in found {
                captures[slot] = Some(value);
            }
            again_after = again;
            judged
        }
        (Err(error), _) => Judged::error(error.class, error.message),
        (Ok(()), None) => unreachable!("an answer was read on a connection"),
    };
    if let Some(why) = judged.why {
        thread.note_failure(at, Some(judged.outcome), || {
            format!("{}: {why}", prepared.names[operation.name as usize])
        });
    }
    Ended {
        outcome: judged.outcome,
        at,
        again_after,
        retry_after: judged.retry_after,
        body_bytes,
    }
}

/// What a timeout is, in words.
pub(super) fn no_answer_within(timeout: Duration) -> String {
    format!("no whole answer within {timeout:?}")
}
