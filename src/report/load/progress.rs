//! What a load is doing right now: a block for a terminal, or a line now and then.

use std::time::Duration;

use super::words::{self, fine_ms};
use crate::load::{LoadModel, Tick};
use crate::report::screen::{Screen, bar, columns};
use crate::report::table::{count, rate};
use crate::units::format_duration;

/// Seconds that the spark line shows at most.
const SPARKS: usize = 60;
/// Columns of the bar.
const BAR: usize = 30;
/// Seconds between two plain lines.
const PLAIN_EVERY: u64 = 5;
/// And of loads that take longer than ten minutes.
const PLAIN_EVERY_OF_LONG: u64 = 30;

/// A phase of the load, as far as watching it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadStretch {
    /// `warm-up`, `window`, `step 2 of 4`, `ramp to step 2 of 4`.
    pub name: String,
    /// How requests are paced, at its end.
    pub model: LoadModel,
    /// Nominal length.
    pub length: Duration,
}

/// What has been heard of a load under way.
#[derive(Debug)]
pub struct LoadProgress {
    stretches: Vec<LoadStretch>,
    now: usize,
    /// Whole seconds of the phase that have been told.
    elapsed_s: u64,
    is_draining: bool,
    last: Option<Tick>,
    successes: u64,
    refused: u64,
    failed: u64,
    /// Successes of the last seconds, newest last.
    recent: Vec<f64>,
}

impl LoadProgress {
    /// Nothing heard yet of these phases.
    pub fn new(stretches: Vec<LoadStretch>) -> Self {
        Self {
            stretches,
            now: 0,
            elapsed_s: 0,
            is_draining: false,
            last: None,
            successes: 0,
            refused: 0,
            failed: 0,
            recent: Vec::new(),
        }
    }

    /// A phase begins.
    pub fn started(&mut self, phase: usize) {
        self.now = phase;
        self.elapsed_s = 0;
        self.is_draining = false;
        self.last = None;
        (self.successes, self.refused, self.failed) = (0, 0, 0);
    }

    /// A phase has come to its end; its last answers are waited for.
    pub fn ended(&mut self) {
        self.is_draining = true;
    }

    /// A second went by.
    pub fn ticked(&mut self, tick: &Tick) {
        let counts = &tick.counts;
        self.elapsed_s = self.elapsed_s.max(tick.second + 1);
        self.successes += counts.successes;
        self.refused += counts.refused;
        self.failed += counts.failed();
        // In the drain there is no rate to be shown.
        if !self.is_draining {
            self.last = Some(*tick);
            self.recent.push(counts.successes as f64);
            let n_old = self.recent.len().saturating_sub(SPARKS);
            self.recent.drain(..n_old);
        }
    }

    fn stretch(&self) -> Option<&LoadStretch> {
        self.stretches.get(self.now)
    }

    /// Of all phases, as far as is known.
    fn left(&self) -> Duration {
        let behind = self.stretches.iter().skip(self.now + 1);
        let own = self.stretch().map_or(Duration::ZERO, |stretch| {
            stretch
                .length
                .saturating_sub(Duration::from_secs(self.elapsed_s))
        });
        own + behind.map(|stretch| stretch.length).sum::<Duration>()
    }

    /// The lines for a terminal.
    pub fn lines(&self, screen: Screen) -> Vec<String> {
        let Some(stretch) = self.stretch() else {
            return Vec::new();
        };
        let length_s = stretch.length.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = (self.elapsed_s as f64 / length_s).min(1.0);
        let state = if self.is_draining {
            "waiting for the last answers".to_owned()
        } else {
            format!("{} left", format_duration(self.left()))
        };
        let tick = self.last.unwrap_or_default();
        let now = |counted: u64| {
            if self.last.is_some() {
                count(counted)
            } else {
                "–".to_owned()
            }
        };
        let mean = self.successes as f64 / self.elapsed_s.max(1) as f64;
        let in_flight = tick.in_flight.map_or_else(String::new, |n| {
            format!(" · {} in flight", count(u64::from(n)))
        });
        let most = self.recent.iter().copied().fold(0.0, f64::max);
        let room = screen.columns.saturating_sub(20).clamp(1, SPARKS);
        let shown = &self.recent[self.recent.len().saturating_sub(room)..];
        let shares: Vec<f64> = shown.iter().map(|value| value / most.max(1.0)).collect();
        vec![
            format!("{}, {}", stretch.name, words::load(stretch.model)),
            format!(
                "  ▕{:<BAR$}▏ {} of {}, {state}",
                bar(share, BAR),
                format_duration(Duration::from_secs(self.elapsed_s).min(stretch.length)),
                format_duration(stretch.length)
            ),
            format!(
                "  successes/s  {} now · {} mean",
                now(tick.counts.successes),
                rate(mean)
            ),
            format!("               {}", columns(&shares, 1).concat()),
            format!(
                "  latency      p50 {} ms · p99 {} ms in the last second",
                fine_ms(tick.p50_ms),
                fine_ms(tick.p99_ms)
            ),
            format!(
                "  requests     {} successes · {} refused · {} failed{in_flight}",
                count(self.successes),
                count(self.refused),
                count(self.failed)
            ),
        ]
    }

    /// A line for a log; `None` in between.
    pub fn plain_line(&self) -> Option<String> {
        let stretch = self.stretch()?;
        let tick = self.last.filter(|_| !self.is_draining)?;
        let all: Duration = self.stretches.iter().map(|stretch| stretch.length).sum();
        let every = if all > Duration::from_mins(10) {
            PLAIN_EVERY_OF_LONG
        } else {
            PLAIN_EVERY
        };
        let is_due = self.elapsed_s > 0 && self.elapsed_s.is_multiple_of(every);
        is_due.then(|| {
            format!(
                "{} {} of {}: {} successes/s, p99 {} ms, {} failed, {} left",
                stretch.name,
                format_duration(Duration::from_secs(self.elapsed_s)),
                format_duration(stretch.length),
                count(tick.counts.successes),
                fine_ms(tick.p99_ms),
                count(self.failed),
                format_duration(self.left())
            )
        })
    }

    /// What was seen by the time somebody ended the load.
    pub fn interrupted(&self) -> String {
        let Some(stretch) = self.stretch() else {
            return "interrupted before anything was sent".to_owned();
        };
        let seen = format!(
            "interrupted {} into {} ({}): {} successes, {} refused, {} failed so far",
            format_duration(Duration::from_secs(self.elapsed_s)),
            stretch.name,
            format_duration(stretch.length),
            count(self.successes),
            count(self.refused),
            count(self.failed)
        );
        let rate = if self.elapsed_s > 0 {
            let mean = self.successes as f64 / self.elapsed_s as f64;
            format!(", about {} successes/s", rate(mean))
        } else {
            String::new()
        };
        format!("{seen}{rate}; this is no measurement, since a window cut short has no figures")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Counts, ErrorCounts};

    fn stretch(name: &str, seconds: u64) -> LoadStretch {
        LoadStretch {
            name: name.to_owned(),
            model: LoadModel::Closed { users: 16 },
            length: Duration::from_secs(seconds),
        }
    }

    fn tick(second: u64, successes: u64) -> Tick {
        Tick {
            phase: 1,
            second,
            counts: Counts {
                due: successes + 2,
                requests: successes + 2,
                successes,
                errors: ErrorCounts {
                    status: 2,
                    ..ErrorCounts::default()
                },
                ..Counts::default()
            },
            p50_ms: Some(0.812),
            p99_ms: Some(12.3),
            in_flight: Some(15),
        }
    }

    fn under_way() -> LoadProgress {
        let mut progress = LoadProgress::new(vec![stretch("warm-up", 2), stretch("window", 20)]);
        progress.started(0);
        progress.ticked(&tick(0, 400));
        progress.started(1);
        for (second, successes) in [1_200, 2_400, 1_800, 0, 2_000].into_iter().enumerate() {
            progress.ticked(&tick(second as u64, successes));
        }
        progress
    }

    #[test]
    fn a_terminal_sees_rate_latency_counts_and_what_is_left() {
        let progress = under_way();
        insta::assert_snapshot!(progress.lines(Screen::PAGE).join("\n"), @"
        window, 16 virtual users
          ▕███████▌                      ▏ 5 s of 20 s, 15 s left
          successes/s  2,000 now · 1,480 mean
                       ▁▄█▆ ▇
          latency      p50 0.812 ms · p99 12.3 ms in the last second
          requests     7,400 successes · 0 refused · 10 failed · 15 in flight
        ");
        let narrow = Screen {
            columns: 23,
            ..Screen::PAGE
        };
        // The newest are what is shown where there is no room.
        assert_eq!(progress.lines(narrow)[3].trim(), "▆ ▇");
    }

    #[test]
    fn the_drain_is_told_and_has_no_rate() {
        let mut progress = under_way();
        progress.ended();
        progress.ticked(&tick(20, 3));
        let lines = progress.lines(Screen::PAGE).join("\n");
        assert!(lines.contains("waiting for the last answers"), "{lines}");
        assert!(
            lines.contains("7,403 successes"),
            "late answers count: {lines}"
        );
        assert_eq!(progress.plain_line(), None);
    }

    #[test]
    fn a_log_gets_a_line_every_few_seconds() {
        let mut progress = under_way();
        insta::assert_snapshot!(progress.plain_line().unwrap(), @"window 5 s of 20 s: 2,000 successes/s, p99 12.3 ms, 10 failed, 15 s left");
        progress.ticked(&tick(5, 10));
        assert_eq!(progress.plain_line(), None);
    }

    #[test]
    fn who_interrupts_is_told_what_was_seen_and_that_it_is_no_measurement() {
        insta::assert_snapshot!(under_way().interrupted(), @"interrupted 5 s into window (20 s): 7,400 successes, 0 refused, 10 failed so far, about 1,480 successes/s; this is no measurement, since a window cut short has no figures");
        let silent = LoadProgress::new(vec![stretch("window", 20)]);
        assert!(silent.interrupted().contains("0 successes"));
    }
}
