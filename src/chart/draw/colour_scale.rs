//! A heat map's colours: one scale over all tiers, and the bar that explains it.

use crate::chart::colour::{Colour, INK, MUTED, Ramp};
use crate::chart::font;
use crate::chart::scene::{Part, Scene, Type};
use crate::chart::series::Grid;
use crate::chart::ticks::{figure, step_for, tick_label};
use crate::results::Measure;

const BAR_TEXT: Type = Type::new(11.5);
const BAR_WIDTH: f64 = 18.0;
/// Room the bar and its words need.
pub(super) const BAR_ROOM: f64 = 130.0;
/// Above this ratio of largest to smallest the colours follow the logarithm.
const MOST_LINEAR_SPAN: f64 = 50.0;

/// Values to colours: bright is good in both measures.
pub(super) struct ColourScale {
    low: f64,
    high: f64,
    is_log: bool,
    ramp: Ramp,
    is_low_good: bool,
}

impl ColourScale {
    /// `None` when there is no finite figure.
    pub(super) fn of(grid: &Grid) -> Option<Self> {
        let means: Vec<f64> = (0..grid.tiers.len())
            .flat_map(|tier| grid.cells_of(tier))
            .filter_map(|(.., cell)| cell.mean())
            .filter(|mean| mean.is_finite())
            .collect();
        let low = means.iter().copied().reduce(f64::min)?;
        let high = means.iter().copied().reduce(f64::max)?;
        let is_low_good = grid.measure == Measure::P99;
        Some(Self {
            low,
            high,
            is_log: low > 0.0 && high / low > MOST_LINEAR_SPAN,
            ramp: if is_low_good {
                Ramp::Cividis
            } else {
                Ramp::Viridis
            },
            is_low_good,
        })
    }

    /// 0 at the smallest figure, 1 at the largest; a single figure is in the middle.
    fn share(&self, value: f64) -> f64 {
        if self.high <= self.low {
            0.5
        } else if self.is_log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    pub(super) fn colour(&self, value: f64) -> Colour {
        let share = self.share(value);
        self.ramp
            .at(if self.is_low_good { 1.0 - share } else { share })
    }

    pub(super) fn draw_bar(&self, scene: &mut Scene, grid: &Grid, (left, top): (f64, f64)) {
        let mut y = top + 4.0;
        let (name, unit) = match grid.measure {
            Measure::Throughput => ("Throughput", "[successful requests/s]"),
            Measure::P99 => ("p99 latency", "[ms]"),
        };
        let scale = if self.is_log { "log scale" } else { "" };
        for (text, style) in [
            (name, BAR_TEXT.bold()),
            (unit, BAR_TEXT),
            (scale, BAR_TEXT),
            ("bright is better", BAR_TEXT.colour(MUTED)),
        ] {
            if text.is_empty() {
                continue;
            }
            let lines = font::wrap(text, style.size, style.bold, BAR_ROOM - 4.0);
            for line in lines {
                scene.text((left, y + 6.0), &line, style);
                y += 16.0;
            }
        }
        let (top, height) = (y + 8.0, 190.0);
        let value_at = |share: f64| {
            if self.is_log {
                self.low * (self.high / self.low).powf(share)
            } else {
                self.low + (self.high - self.low) * share
            }
        };
        // Each step reaches down to the end and is painted over by the next: no seams.
        let steps = 95_u32;
        for step in (0..steps).rev() {
            let share = (f64::from(step) + 0.5) / f64::from(steps);
            let down = height * (1.0 - f64::from(step + 1) / f64::from(steps));
            let (at, size) = ((left, top + down), (BAR_WIDTH, height - down));
            scene.rectangle(Part::Bar, at, size, self.colour(value_at(share)));
        }
        if self.high <= self.low {
            let (x, y) = (left + BAR_WIDTH, top + height / 2.0);
            scene.path(Part::Axis, vec![(x, y), (x + 4.0, y)], INK, 1.0);
            scene.text((x + 8.0, y + 4.0), &figure(self.low), BAR_TEXT);
        }
        for tick in self.bar_ticks() {
            let y = top + height * (1.0 - self.share(tick));
            let x = left + BAR_WIDTH;
            scene.path(Part::Axis, vec![(x, y), (x + 4.0, y)], INK, 1.0);
            scene.text((x + 8.0, y + 4.0), &tick_label(tick), BAR_TEXT);
        }
    }

    fn bar_ticks(&self) -> Vec<f64> {
        if self.high <= self.low {
            return Vec::new();
        }
        if self.is_log {
            let (low, high) = (
                self.low.log10().ceil() as i32,
                self.high.log10().floor() as i32,
            );
            return (low..=high).map(|decade| 10_f64.powi(decade)).collect();
        }
        let step = step_for((self.high - self.low) / 5.0);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|k| k as f64 * step).collect()
    }
}
