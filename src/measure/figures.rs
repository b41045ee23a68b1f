//! The figures of one window: counts by outcome and latency percentiles.
//!
//! Plain numbers without a histogram behind them; `recorder` makes them.

use serde::Serialize;

use super::{ErrorClass, Outcome};

/// How many requests ended how.
///
/// `due = requests + unsent`, and
/// `requests = successes + refused + errors.total() + abandoned`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests that belong to the window: sent in it (closed loop) or due in it (open loop).
    pub due: u64,
    /// Of these, sent.
    pub requests: u64,
    /// Met the step's `expect`.
    pub successes: u64,
    /// Answers that mean 'busy by design'.
    pub refused: u64,
    /// Failed, by class.
    pub errors: ErrorCounts,
    /// Still in flight when the drain was over.
    pub abandoned: u64,
    /// Due and never sent.
    pub unsent: u64,
    /// Successes whose latency was beyond the histogram's bounds and was clamped.
    pub clamped: u64,
}

impl Counts {
    /// Neither succeeded nor was refused: endless in the p99 of what was due.
    pub fn failed(&self) -> u64 {
        self.errors.total() + self.abandoned + self.unsent
    }

    /// Counts one request of the window.
    pub fn add(&mut self, outcome: Outcome) {
        self.add_n(outcome, 1);
    }

    /// Counts so many requests of the window that ended alike.
    pub fn add_n(&mut self, outcome: Outcome, n: u64) {
        self.due += n;
        if outcome == Outcome::Unsent {
            self.unsent += n;
            return;
        }
        self.requests += n;
        match outcome {
            Outcome::Success => self.successes += n,
            Outcome::Refused => self.refused += n,
            Outcome::Error(class) => self.errors.add_n(class, n),
            Outcome::Abandoned => self.abandoned += n,
            Outcome::Unsent => {}
        }
    }

    /// Adds every count of another part of the same window.
    pub fn merge(&mut self, other: &Self) {
        // Destructured, so that a new count cannot be forgotten here.
        let Self {
            due,
            requests,
            successes,
            refused,
            errors,
            abandoned,
            unsent,
            clamped,
        } = other;
        self.due += due;
        self.requests += requests;
        self.successes += successes;
        self.refused += refused;
        self.errors.merge(errors);
        self.abandoned += abandoned;
        self.unsent += unsent;
        self.clamped += clamped;
    }
}

/// Failed requests by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErrorCounts {
    /// The connection could not be made.
    pub connect: u64,
    /// The connection broke before the answer was whole.
    pub reset: u64,
    /// No whole answer within the time-out.
    pub timeout: u64,
    /// An answer whose status is not the expected one.
    pub status: u64,
    /// An answer whose body is not the expected one.
    pub body: u64,
    /// An answer that is not HTTP.
    pub protocol: u64,
    /// A `${}` of the request could not be filled.
    pub template: u64,
}

impl ErrorCounts {
    /// Adds every count of another part of the same window.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            connect,
            reset,
            timeout,
            status,
            body,
            protocol,
            template,
        } = other;
        self.connect += connect;
        self.reset += reset;
        self.timeout += timeout;
        self.status += status;
        self.body += body;
        self.protocol += protocol;
        self.template += template;
    }

    /// Each class with its count.
    pub fn by_class(&self) -> [(ErrorClass, u64); 7] {
        // Destructured, so that a new class cannot be forgotten here.
        let Self {
            connect,
            reset,
            timeout,
            status,
            body,
            protocol,
            template,
        } = *self;
        [
            (ErrorClass::Connect, connect),
            (ErrorClass::Reset, reset),
            (ErrorClass::Timeout, timeout),
            (ErrorClass::Status, status),
            (ErrorClass::Body, body),
            (ErrorClass::Protocol, protocol),
            (ErrorClass::Template, template),
        ]
    }

    /// All classes together.
    pub fn total(&self) -> u64 {
        self.connect
            + self.reset
            + self.timeout
            + self.status
            + self.body
            + self.protocol
            + self.template
    }
}

/// A distribution's usual points; `None` when it holds nothing.
///
/// **Units**: milliseconds. Percentiles are nearest rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

/// Everything one window (or one operation of it) says.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Requests by outcome.
    pub counts: Counts,
    /// Successes per second of the window's nominal length.
    ///
    /// Only those sent before its right edge: what was due in the window and left
    /// during the drain is in the counts, but took longer than the length to send.
    pub throughput_rps: f64,
    /// Requests sent before the right edge per second of the window's nominal length.
    pub achieved_rate_rps: f64,
    /// Latency of successes: from the due time (open loop) or from the send (closed loop).
    pub latency_ms: LatencyFigures,
    /// Latency of successes from the actual send.
    pub service_ms: LatencyFigures,
    /// How late requests left: send minus due.
    pub send_lag_ms: LatencyFigures,
    /// 99th percentile over everything due except refused, where error, abandoned
    /// and unsent are infinite. `Some(f64::INFINITY)` is a value; `None` means nothing was due.
    pub p99_due_ms: Option<f64>,
}
