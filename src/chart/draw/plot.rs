//! One pair of axes: where levels and values are, and their lines and labels.

use crate::chart::colour::{AXIS, GRID_LINE, INK, MUTED, STRIP};
use crate::chart::font;
use crate::chart::scene::{Anchor, Part, Scene, Type};
use crate::chart::ticks::{Scale, tick_label};
use crate::scalar::Scalar;

pub(super) const TICK: Type = Type::new(12.0).colour(INK);
pub(super) const AXIS_TITLE: Type = Type::new(13.0);
/// Levels closer than this are not placed by value.
const LEAST_GAP: f64 = 30.0;
/// Longest label of a level that is written upwards.
const UPWARD_ROOM: f64 = 110.0;
/// Longest label of a level that is written along the axis.
const ALONG_ROOM: f64 = 120.0;
/// Room from the axis to the labels.
const TICK_GAP: f64 = 8.0;

/// Where the levels of an axis are, from 0 (left end of the plot) on.
#[derive(Debug, Clone)]
pub(super) struct Levels {
    /// Place of each level. **Units**: pixels from the plot's left edge.
    pub(super) at: Vec<f64>,
    labels: Vec<String>,
    is_upwards: bool,
    /// Numbers that had to be placed evenly.
    pub(super) is_uneven: bool,
    /// Smallest distance between two levels, or the plot's width.
    pub(super) gap: f64,
}

impl Levels {
    /// Places levels on a width: by value where that reads well, else evenly.
    pub(super) fn new(levels: &[Scalar], width: f64) -> Self {
        let texts: Vec<String> = levels.iter().map(Scalar::to_string).collect();
        let widest = texts
            .iter()
            .map(|text| font::width(text, TICK.size, false).min(ALONG_ROOM))
            .fold(0.0, f64::max);
        let numbers: Option<Vec<f64>> = levels.iter().map(Scalar::as_number).collect();
        let by_value = numbers
            .as_ref()
            .filter(|numbers| numbers.len() > 1)
            .and_then(|numbers| {
                let inset = (widest / 2.0).max(26.0);
                let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
                let at: Vec<f64> = numbers
                    .iter()
                    .map(|value| inset + (value - first) / (last - first) * (width - 2.0 * inset))
                    .collect();
                (smallest_gap(&at)? >= LEAST_GAP.max(widest + 10.0)).then_some(at)
            });
        let is_uneven = by_value.is_none() && numbers.is_some_and(|n| !is_even(&n));
        let slot = width / levels.len().max(1) as f64;
        let at = by_value.unwrap_or_else(|| {
            (0..levels.len())
                .map(|index| (index as f64 + 0.5) * slot)
                .collect()
        });
        let gap = smallest_gap(&at).unwrap_or(width);
        let is_upwards = widest + 8.0 > gap;
        let room = if is_upwards {
            UPWARD_ROOM
        } else {
            ALONG_ROOM.min(gap - 6.0)
        };
        Self {
            labels: font::shorten_all(&texts, TICK.size, false, room),
            at,
            is_upwards,
            is_uneven,
            gap,
        }
    }

    /// Room the labels need below the axis.
    pub(super) fn label_height(&self) -> f64 {
        if self.is_upwards {
            let longest = self
                .labels
                .iter()
                .map(|text| font::width(text, TICK.size, false))
                .fold(0.0, f64::max);
            longest + TICK_GAP + 4.0
        } else {
            TICK_GAP + 14.0
        }
    }

    /// Writes the labels below `y`.
    pub(super) fn draw(&self, scene: &mut Scene, left: f64, y: f64) {
        for (at, label) in self.at.iter().zip(&self.labels) {
            let x = left + at;
            if self.is_upwards {
                let style = TICK.upwards().anchor(Anchor::End);
                scene.text((x + 4.0, y + TICK_GAP), label, style);
            } else {
                let style = TICK.anchor(Anchor::Middle);
                scene.text((x, y + TICK_GAP + 11.0), label, style);
            }
        }
    }
}

fn smallest_gap(at: &[f64]) -> Option<f64> {
    at.windows(2).map(|pair| pair[1] - pair[0]).reduce(f64::min)
}

fn is_even(numbers: &[f64]) -> bool {
    let gaps: Vec<f64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.iter()
        .all(|gap| (gap - gaps[0]).abs() < 1e-9 * gaps[0].abs().max(1.0))
}

/// A plot's rectangle with its value axis and the strips for what has no value.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    /// Left end of the axes.
    pub(super) left: f64,
    /// Upper end of the value axis.
    pub(super) top: f64,
    /// Width between the ends.
    pub(super) width: f64,
    /// Height of the value axis.
    pub(super) height: f64,
    /// The value axis.
    pub(super) scale: Scale,
    /// Height of the strip for infinite values above the axis; 0 without any.
    pub(super) infinite_strip: f64,
    /// Height of the strip for missing cells below the axis; 0 without any.
    pub(super) missing_strip: f64,
}

impl Plot {
    /// Room the value labels need left of the axis.
    pub(super) fn label_width(scale: &Scale, has_strips: bool) -> f64 {
        let strips = if has_strips {
            font::width("none", TICK.size, false)
        } else {
            0.0
        };
        scale
            .ticks
            .iter()
            .map(|tick| font::width(&tick_label(*tick), TICK.size, false))
            .fold(strips, f64::max)
            + TICK_GAP
    }

    /// Where a finite value is.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - self.scale.share(value))
    }

    /// The lower end of everything, strips included.
    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height + self.missing_strip
    }

    /// Grid, axis, strips and value labels; not the levels.
    pub(super) fn draw(&self, scene: &mut Scene) {
        let right = self.left + self.width;
        let labels = self.left - TICK_GAP;
        let style = TICK.anchor(Anchor::End);
        let floor = self.top + self.height;
        if self.infinite_strip > 0.0 {
            let top = self.top - self.infinite_strip;
            let size = (self.width, self.infinite_strip);
            scene.rectangle(Part::Ground, (self.left, top), size, STRIP);
            let y = top + self.infinite_strip / 2.0 + 4.0;
            scene.text((labels, y), "inf", style.colour(MUTED));
        }
        if self.missing_strip > 0.0 {
            let size = (self.width, self.missing_strip);
            scene.rectangle(Part::Ground, (self.left, floor), size, STRIP);
            let y = floor + self.missing_strip / 2.0 + 4.0;
            scene.text((labels, y), "none", style.colour(MUTED));
        }
        for tick in &self.scale.ticks {
            let y = self.y(*tick);
            scene.path(Part::Axis, vec![(self.left, y), (right, y)], GRID_LINE, 1.0);
        }
        for tick in &self.scale.ticks {
            scene.text((labels, self.y(*tick) + 4.0), &tick_label(*tick), style);
        }
        let corners = vec![
            (self.left, self.top - self.infinite_strip),
            (self.left, floor),
            (right, floor),
        ];
        scene.path(Part::Axis, corners, AXIS, 1.0);
    }

    /// The title of the value axis, upwards, centred on it.
    pub(super) fn draw_title(&self, scene: &mut Scene, x: f64, title: &str) {
        let title = if self.scale.is_log {
            format!("{title}, log scale")
        } else {
            title.to_owned()
        };
        let text = font::shorten(&title, AXIS_TITLE.size, false, self.height + 60.0);
        let style = AXIS_TITLE.upwards().anchor(Anchor::Middle);
        scene.text((x, self.top + self.height / 2.0), &text, style);
    }
}
