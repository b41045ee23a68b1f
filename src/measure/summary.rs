//! What the generator hands over when a phase is done.
//!
//! Figures and raw evidence of one phase; `verdict` judges them.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::latencies::{HIGHEST_NS, LOWEST_NS, SIGNIFICANT_DIGITS};
use super::{Figures, LatencyFigures, Outcome};

/// One phase, summed over load threads.
#[derive(Debug, Clone)]
pub struct WindowSummary {
    /// Left edge.
    pub started: Instant,
    /// Nominal length.
    pub length: Duration,
    /// All operations together.
    pub total: Figures,
    /// By operation (`create Patient`), in journey order.
    pub operations: Vec<(String, Figures)>,
    /// Journeys: counts of journeys, latency from arrival to last answer.
    ///
    /// A journey belongs to the phase in which it ended, so that long ones are
    /// not cut off at the right edge and lost.
    pub journeys: Figures,
    /// The same by the journey's name, in file order and with those beside the phase's own
    /// load; empty where there is one journey.
    pub journeys_by_name: Vec<(String, Figures)>,
    /// What arrived beside the phase's own load, and is in none of its totals.
    pub beside: Vec<BesideSummary>,
    /// Journeys that arrived (open) or began (closed) in the phase.
    pub arrivals: u64,
    /// Steps that a failed journey never came to.
    pub not_attempted: u64,
    /// Bytes of the bodies that came back, compressed where they were; `None` where whoever sends
    /// does not tell.
    pub body_bytes: Option<u64>,
    /// How long the service asked to be left alone.
    pub retry_after: RetryAfter,
    /// CPU time the generator's load threads used in the phase.
    pub generator_cpu: Duration,
    /// Time they were ready to run and had no CPU; `None` where the kernel does not tell.
    pub generator_wait: Option<Duration>,
    /// Load threads it ran on.
    pub threads: usize,
    /// The part of the send lag that is the generator's own: from the moment a
    /// request was due and could be sent, to its send. Empty in a closed loop.
    pub generator_lag_ms: LatencyFigures,
    /// Arrivals that waited because `max_in_flight` journeys were under way, or because no
    /// place had been set up.
    pub held_back: u64,
    /// Requests sent during the drain, while the window's last answers came in.
    pub outside: u64,
    /// Mean journeys under way: the users of a closed loop; in an open loop as
    /// the generator counted them.
    pub in_flight: f64,
    /// Mean journeys under way by Little's law, from what was recorded: time in
    /// requests, thinking and pausing within the phase, over its length.
    pub in_flight_recorded: f64,
    /// The raw evidence: one histogram per second, operation and outcome.
    pub intervals: Vec<Interval>,
    /// The last failures seen, one line each, newest last; at most ten.
    pub failures: Vec<String>,
    /// The first failure of each kind, in the order of their appearance.
    pub first_failures: Vec<(Outcome, String)>,
}

#[cfg(test)]
impl WindowSummary {
    /// A window of so long in which one user did what the figures say, and nothing else was.
    pub(crate) fn quiet(total: Figures, length: Duration) -> Self {
        Self {
            started: Instant::now(),
            length,
            total,
            operations: Vec::new(),
            journeys: Figures::default(),
            journeys_by_name: Vec::new(),
            beside: Vec::new(),
            arrivals: 0,
            not_attempted: 0,
            body_bytes: None,
            generator_cpu: Duration::ZERO,
            generator_wait: None,
            threads: 1,
            generator_lag_ms: LatencyFigures::default(),
            held_back: 0,
            outside: 0,
            in_flight: 1.0,
            in_flight_recorded: 1.0,
            retry_after: RetryAfter::default(),
            intervals: Vec::new(),
            failures: Vec::new(),
            first_failures: Vec::new(),
        }
    }
}

/// A journey that arrived at a rate of its own beside a phase's load.
#[derive(Debug, Clone, PartialEq)]
pub struct BesideSummary {
    /// Its name.
    pub journey: String,
    /// Requests per second that it was to make.
    pub planned_rate_rps: f64,
    /// Its requests, all together; latency from due.
    pub requests: Figures,
}

/// Answers that said the service was busy and when to come again (`Retry-After`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetryAfter {
    /// How many there were.
    pub answers: u64,
    /// The shortest wait that one of them asked for; zero where there was none.
    pub shortest: Duration,
    /// The longest.
    pub longest: Duration,
}

impl RetryAfter {
    /// Counts one answer.
    pub fn add(&mut self, wait: Duration) {
        *self = [*self, Self::one(wait)].into_iter().sum();
    }

    fn one(wait: Duration) -> Self {
        Self {
            answers: 1,
            shortest: wait,
            longest: wait,
        }
    }

    /// For people; `None` where nobody asked.
    pub fn words(&self) -> Option<String> {
        let (shortest, longest) = (self.shortest.as_secs(), self.longest.as_secs());
        let wait = if shortest == longest {
            format!("{shortest} s")
        } else {
            format!("{shortest} to {longest} s")
        };
        let answers = if self.answers == 1 {
            "answer"
        } else {
            "answers"
        };
        (self.answers > 0).then(|| {
            format!(
                "{} {answers} asked to wait {wait} (Retry-After)",
                self.answers
            )
        })
    }
}

impl std::iter::Sum for RetryAfter {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        let parts = parts.filter(|part| part.answers > 0);
        parts
            .reduce(|a, b| Self {
                answers: a.answers + b.answers,
                shortest: a.shortest.min(b.shortest),
                longest: a.longest.max(b.longest),
            })
            .unwrap_or_default()
    }
}

/// One histogram of one second, ready for an interval log.
///
/// Kept sparse: a full histogram takes 170 KB, and a window of five minutes
/// over 36 operations has more than ten thousand of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// Seconds since the left edge, by the moment the request belongs to: its
    /// send in a closed loop, its due time in an open one.
    pub second: u32,
    /// `operation|outcome`, percent-encoded but for the bar, which no encoded
    /// operation contains: `create%20Patient|success`, `read|error.status`.
    pub tag: String,
    values: Vec<(u64, u32)>,
    left_later: Vec<(SentIn, u32)>,
}

/// When a request left that did not leave in the second it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SentIn {
    /// In this second of the window.
    Second(u32),
    /// After the window's right edge: no part of any rate.
    Drain,
}

impl Interval {
    /// An interval of the given (time, count) pairs. **Units**: nanoseconds.
    pub fn new(second: u32, tag: String, values: Vec<(u64, u32)>) -> Self {
        Self {
            second,
            tag,
            values,
            left_later: Vec::new(),
        }
    }

    /// The same, with what is known of requests that left later than they were due.
    #[must_use]
    pub fn with_left_later(self, left_later: Vec<(SentIn, u32)>) -> Self {
        Self { left_later, ..self }
    }

    /// The (time, count) pairs, ascending. **Units**: nanoseconds.
    pub fn values(&self) -> &[(u64, u32)] {
        &self.values
    }

    /// How many requests it holds.
    pub fn n_requests(&self) -> u64 {
        self.values.iter().map(|(_, n)| u64::from(*n)).sum()
    }

    /// How many requests of it left in another second than its own, and in which.
    /// **Shape**: ascending; empty in a closed loop.
    pub fn left_later(&self) -> &[(SentIn, u32)] {
        &self.left_later
    }

    /// The histogram, built anew: 1 us to 600 s in nanoseconds, three digits.
    #[expect(
        clippy::missing_panics_doc,
        reason = "hdrhistogram takes these constants"
    )]
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("the bounds and digits are constants that hdrhistogram takes");
        for (value, count) in &self.values {
            histogram.saturating_record_n(*value, u64::from(*count));
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_were_asked_for_are_summed_over_threads() {
        let seconds = Duration::from_secs;
        let mut one = RetryAfter::default();
        one.add(seconds(7));
        assert_eq!(
            one.words().unwrap(),
            "1 answer asked to wait 7 s (Retry-After)"
        );
        let mut other = RetryAfter::default();
        for wait in [30, 0, 5] {
            other.add(seconds(wait));
        }
        // A thread that was not asked has no shortest wait.
        let sum: RetryAfter = [RetryAfter::default(), one, other].into_iter().sum();
        assert_eq!(
            (sum.answers, sum.shortest, sum.longest),
            (4, seconds(0), seconds(30))
        );
        let sum: RetryAfter = [one, RetryAfter::default()].into_iter().sum();
        assert_eq!(sum, one);
        assert_eq!(RetryAfter::default().words(), None);
    }
}
