//! When journeys arrive in an open loop: one sequence for all load threads.
//!
//! Every arrival has a **position**: how many arrivals the rate makes one expect
//! by then. Evenly spaced ones stand at 0, 1, 2, …; those of a Poisson process are
//! sums of exponential gaps of mean 1, drawn from the seed. The rate, constant or
//! going evenly from one value to another, turns a position into a time, so both
//! kinds follow a ramp in the same way.
//!
//! **Invariant**: the sequence depends on seed, phase and rate alone. A thread
//! draws all of it and keeps its share (arrival i belongs to thread i mod T), so
//! that the arrivals are the same whatever T is.

use std::time::Duration;

use super::plan::Arrivals;

/// How the rate of a phase goes over time.
///
/// **Units**: arrivals per second; seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    /// At the beginning of the phase.
    from: f64,
    /// At its end, and from then on.
    to: f64,
    /// Length of the change; 0 where there is none.
    over_s: f64,
}

impl Rate {
    /// The same all the time.
    pub(super) fn constant(rate: f64) -> Self {
        Self {
            from: rate,
            to: rate,
            over_s: 0.0,
        }
    }

    /// Evenly from one rate to another, which then stays. The second is above 0.
    pub(super) fn ramp(from: f64, to: f64, over: Duration) -> Self {
        Self {
            from,
            to,
            over_s: over.as_secs_f64(),
        }
    }

    /// Arrivals expected in so many seconds from the beginning.
    fn position_at(&self, seconds: f64) -> f64 {
        let inside = seconds.min(self.over_s);
        let slope = self.slope();
        self.from * inside + slope * inside * inside / 2.0 + self.to * (seconds - inside)
    }

    /// When so many arrivals are expected: the inverse of `position_at`.
    fn seconds_at(&self, position: f64) -> f64 {
        let at_end = self.position_at(self.over_s);
        if position >= at_end {
            return self.over_s + (position - at_end) / self.to;
        }
        // The smaller root of the square equation, in the form that loses no digits.
        let discriminant = self.from * self.from + 2.0 * self.slope() * position;
        let root = discriminant.max(0.0).sqrt();
        if position <= 0.0 {
            return 0.0;
        }
        (2.0 * position / (self.from + root)).min(self.over_s)
    }

    fn slope(&self) -> f64 {
        if self.over_s > 0.0 {
            (self.to - self.from) / self.over_s
        } else {
            0.0
        }
    }
}

/// One thread's share of the arrivals of a phase, in order.
#[derive(Debug)]
pub(super) struct ArrivalSequence {
    rate: Rate,
    n_threads: u64,
    /// Over all threads, from 0.
    number: u64,
    /// Present where gaps are drawn.
    random: Option<Drawn>,
    due: Duration,
}

#[derive(Debug)]
struct Drawn {
    generator: fastrand::Rng,
    position: f64,
}

impl Drawn {
    /// Goes on by one arrival. A gap is finite: its logarithm is never that of 0.
    fn step(&mut self) {
        self.position -= (1.0 - self.generator.f64()).ln();
    }
}

impl ArrivalSequence {
    /// The share of thread `index` of `n_threads`, from its first arrival on.
    ///
    /// `seed` is the same on all threads.
    pub(super) fn new(
        arrivals: Arrivals,
        rate: Rate,
        seed: u64,
        index: usize,
        n_threads: usize,
    ) -> Self {
        let random = match arrivals {
            Arrivals::Uniform => None,
            Arrivals::Poisson => {
                let mut drawn = Drawn {
                    generator: fastrand::Rng::with_seed(seed),
                    position: 0.0,
                };
                for _ in 0..=index {
                    drawn.step();
                }
                Some(drawn)
            }
        };
        let mut sequence = Self {
            rate,
            n_threads: n_threads as u64,
            number: index as u64,
            random,
            due: Duration::ZERO,
        };
        sequence.due = sequence.due_now();
        sequence
    }

    /// The arrival's number over all threads, from 0.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// When it is due, from the beginning of the phase.
    pub(super) fn due(&self) -> Duration {
        self.due
    }

    /// Goes on to the thread's next arrival.
    pub(super) fn advance(&mut self) {
        if let Some(drawn) = &mut self.random {
            for _ in 0..self.n_threads {
                drawn.step();
            }
        }
        self.number += self.n_threads;
        self.due = self.due_now();
    }

    /// Passes over the arrivals that are due before a moment, and says how many.
    ///
    /// Even ones are counted, not walked: a rate far beyond what a thread can pace
    /// leaves millions behind, and the drain must end when it is over. Drawn ones
    /// can only be walked; `plan` bounds their rate.
    pub(super) fn skip_to(&mut self, moment: Duration) -> u64 {
        let from = self.number;
        if self.random.is_none() {
            let position = self.rate.position_at(moment.as_secs_f64()) as u64;
            let n_steps = position.saturating_sub(from) / self.n_threads;
            // Two steps short, since rounding may have led too far.
            self.number = from + n_steps.saturating_sub(2) * self.n_threads;
            self.due = self.due_now();
        }
        while self.due < moment {
            self.advance();
        }
        (self.number - from) / self.n_threads
    }

    fn due_now(&self) -> Duration {
        let position = self
            .random
            .as_ref()
            .map_or(self.number as f64, |drawn| drawn.position);
        // Beyond what a duration holds nothing is ever due.
        Duration::try_from_secs_f64(self.rate.seconds_at(position)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
pub(super) mod tests;
