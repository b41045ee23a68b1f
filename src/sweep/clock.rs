//! Wall-clock times that cannot jump.
//!
//! The wall clock is read once, when the sweep begins; every later time is that
//! plus what the monotonic clock has counted since. A time server that steps the
//! clock at night changes no row.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// When the sweep began, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begun: Instant,
    begun_at: Timestamp,
}

impl Clock {
    /// A clock that was read just now.
    pub fn new(begun: Instant, begun_at: Timestamp) -> Self {
        Self { begun, begun_at }
    }

    /// Time since the sweep began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The wall-clock time of a moment of the monotonic clock.
    pub fn at(&self, moment: Instant) -> Timestamp {
        let since = moment.saturating_duration_since(self.begun);
        self.begun_at.checked_add(since).unwrap_or(self.begun_at)
    }

    /// Now, RFC 3339 in UTC with milliseconds.
    pub fn now_text(&self) -> String {
        format!("{:.3}", self.at(Instant::now()))
    }

    /// A moment as seconds since 1970.
    pub fn epoch_s(&self, moment: Instant) -> f64 {
        self.at(moment).as_millisecond() as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        let begun = Instant::now();
        let clock = Clock::new(
            begun,
            "2026-11-30T01:02:03.456Z".parse().expect("a timestamp"),
        );
        let later = clock.at(begun + Duration::from_millis(1_544));
        assert_eq!(format!("{later:.3}"), "2026-11-30T01:02:05.000Z");
        assert!((clock.epoch_s(begun) - 1_796_000_523.456).abs() < 1e-3);
    }
}
