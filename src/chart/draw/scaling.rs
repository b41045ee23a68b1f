//! Best measured throughput of each tier against the tier's value.

use super::frame::{Head, MARGIN, Notes, title};
use super::marks::{Mark, cross};
use super::plot::{AXIS_TITLE, Levels, Plot};
use crate::chart::ChartInfo;
use crate::chart::colour::{INK, MUTED, WHITE};
use crate::chart::font;
use crate::chart::scene::{Anchor, Part, Scene, Type};
use crate::chart::series::Grid;
use crate::chart::ticks::{Scale, figure, step_for, tick_label};
use crate::results::CellFigures;
use crate::scalar::Scalar;

const CANVAS_WIDTH: f64 = 1000.0;
const PLOT_HEIGHT: f64 = 400.0;
const LABEL: Type = Type::new(11.5);
const LABEL_LINE: f64 = 14.0;
/// A rectangle: left, top, right, bottom.
type Extent = (f64, f64, f64, f64);

/// Values of a cell named at its point.
const MOST_VALUES: usize = 3;

/// A tier with its best measured cell.
struct Point<'g> {
    tier: usize,
    number: Option<f64>,
    best: Option<(usize, usize, usize, &'g CellFigures)>,
}

/// Draws the scaling chart.
pub(in crate::chart) fn scaling(grid: &Grid, info: &ChartInfo) -> Scene {
    let points: Vec<Point> = (0..grid.tiers.len())
        .map(|tier| Point {
            tier,
            number: grid.tiers[tier].as_ref().and_then(Scalar::as_number),
            best: grid.best_of(tier),
        })
        .collect();
    let numbers: Option<Vec<f64>> = points.iter().map(|point| point.number).collect();
    // The reference and the axis from zero need numbers; a negative tier has no ratio.
    let numbers = numbers.filter(|numbers| numbers.iter().all(|number| *number > 0.0));
    let reference = numbers.as_ref().and_then(|_| {
        points.iter().find_map(|point| {
            let (.., cell) = point.best?;
            Some((point.number?, cell.mean()?))
        })
    });
    let has_reference = reference.is_some() && points.len() > 1;
    let launches: Vec<usize> = points
        .iter()
        .filter_map(|point| Some(point.best?.3.repeats.len()))
        .collect();
    let title = title(&info.title, "best measured throughput by tier", "");
    let subtitle = [
        grid.source(),
        match (launches.iter().min(), launches.iter().max()) {
            (Some(1), Some(1)) => "one launch per cell".to_owned(),
            (Some(least), Some(most)) if least == most => {
                format!("mean of {most} launches (small marks)")
            }
            (Some(least), Some(most)) => {
                format!("mean of {least} to {most} launches (small marks)")
            }
            _ => String::new(),
        },
        "the best of several measured cells looks better than it is".to_owned(),
        if has_reference {
            "dotted: in proportion to the first tier".to_owned()
        } else {
            String::new()
        },
    ];
    let head = Head::new(&title, &subtitle, CANVAS_WIDTH);
    let top = head.bottom();
    let chart = ScalingChart::lay_out(
        grid,
        points,
        numbers.as_deref(),
        reference.filter(|_| has_reference),
        top,
    );
    let mut notes = Notes::default();
    for point in chart.points.iter().filter(|point| point.best.is_none()) {
        notes.say(
            &format!(
                "× {}: no cell has a valid measurement",
                grid.tier_label(point.tier)
            ),
            CANVAS_WIDTH,
        );
    }
    let keyed = chart.labels(grid);
    for note in &keyed.notes {
        notes.say(note, CANVAS_WIDTH);
    }
    let bottom = chart.plot.bottom() + chart.levels_height() + 34.0;
    let mut scene = Scene::new(CANVAS_WIDTH, bottom + notes.height() + MARGIN, &title);
    head.draw(&mut scene);
    chart.draw(&mut scene, grid, &keyed);
    notes.draw(&mut scene, bottom);
    scene
}

/// Labels at the points, or letters there and the words below.
struct Labels {
    at_points: Vec<(usize, Vec<String>)>,
    notes: Vec<String>,
}

struct ScalingChart<'g> {
    points: Vec<Point<'g>>,
    plot: Plot,
    /// Ticks of a numeric tier axis from zero, or evenly placed levels.
    x: XAxis,
    reference: Option<(f64, f64)>,
}

enum XAxis {
    Numbers { high: f64, step: f64 },
    Levels(Levels),
}

impl<'g> ScalingChart<'g> {
    fn lay_out(
        grid: &Grid,
        points: Vec<Point<'g>>,
        numbers: Option<&[f64]>,
        reference: Option<(f64, f64)>,
        top: f64,
    ) -> Self {
        let values: Vec<f64> = points
            .iter()
            .filter_map(|point| point.best)
            .flat_map(|(.., cell)| cell.repeats.iter().map(|repeat| repeat.value))
            .collect();
        // Zero-based always: proportion is what this chart is about.
        let zero = (!values.is_empty()).then_some(0.0);
        let scale = Scale::of(values.into_iter().chain(zero));
        let has_missing = points.iter().any(|point| point.best.is_none());
        let left = MARGIN + 22.0 + Plot::label_width(&scale, has_missing);
        let width = CANVAS_WIDTH - MARGIN - 20.0 - left;
        let plot = Plot {
            left,
            top,
            width,
            height: PLOT_HEIGHT,
            scale,
            infinite_strip: 0.0,
            missing_strip: if has_missing { 30.0 } else { 0.0 },
        };
        let x = if let Some(numbers) = numbers {
            let largest = numbers.iter().copied().fold(0.0, f64::max);
            XAxis::Numbers {
                // Room for the words at the last point.
                high: largest * 1.12,
                step: step_for(largest / 9.0),
            }
        } else {
            let all = Scalar::Text("all".to_owned());
            let levels: Vec<Scalar> = grid
                .tiers
                .iter()
                .map(|tier| tier.clone().unwrap_or_else(|| all.clone()))
                .collect();
            XAxis::Levels(Levels::new(&levels, width))
        };
        Self {
            points,
            plot,
            x,
            reference,
        }
    }

    fn levels_height(&self) -> f64 {
        match &self.x {
            XAxis::Numbers { .. } => 22.0,
            XAxis::Levels(levels) => levels.label_height(),
        }
    }

    fn x_of(&self, number: f64, high: f64) -> f64 {
        self.plot.left + number / high * self.plot.width
    }

    fn x(&self, index: usize) -> f64 {
        match &self.x {
            XAxis::Numbers { high, .. } => {
                self.x_of(self.points[index].number.unwrap_or_default(), *high)
            }
            XAxis::Levels(levels) => self.plot.left + levels.at[index],
        }
    }

    fn draw(&self, scene: &mut Scene, grid: &Grid, labels: &Labels) {
        let plot = &self.plot;
        plot.draw(scene);
        plot.draw_title(scene, MARGIN + 11.0, grid.value_title());
        let floor = plot.bottom();
        match &self.x {
            XAxis::Levels(levels) => levels.draw(scene, plot.left, floor),
            XAxis::Numbers { high, step } => {
                let mut k = 0.0;
                while k * step <= *high {
                    let x = self.x_of(k * step, *high);
                    scene.path(Part::Axis, vec![(x, floor), (x, floor + 4.0)], MUTED, 1.0);
                    let style = super::plot::TICK.anchor(Anchor::Middle);
                    scene.text((x, floor + 19.0), &tick_label(k * step), style);
                    k += 1.0;
                }
            }
        }
        let title = font::shorten(&grid.tier_title, AXIS_TITLE.size, false, plot.width);
        let y = floor + self.levels_height() + 16.0;
        scene.text(
            (plot.left + plot.width / 2.0, y),
            &title,
            AXIS_TITLE.anchor(Anchor::Middle),
        );
        self.draw_reference(scene);
        self.draw_points(scene);
        for (index, lines) in &labels.at_points {
            let at = self.label_at(*index, lines);
            // White below the words, so that no line of the grid runs through them.
            let (left, top, right, bottom) = self.label_extent(*index, lines);
            scene.rectangle(
                Part::Ground,
                (left - 2.0, top),
                (right - left + 4.0, bottom - top),
                WHITE,
            );
            for (row, line) in lines.iter().enumerate() {
                let style = if row == 0 {
                    LABEL.bold()
                } else {
                    LABEL.colour(MUTED)
                };
                scene.text((at.0, at.1 + row as f64 * LABEL_LINE), line, style);
            }
        }
        if self.points.iter().all(|point| point.best.is_none()) {
            let at = (plot.left + plot.width / 2.0, plot.top + plot.height / 2.0);
            let style = Type::new(15.0).colour(MUTED).anchor(Anchor::Middle);
            scene.text(at, "no cell has a valid measurement", style);
        }
    }

    /// From zero through the first measured tier, to where it leaves the plot.
    fn draw_reference(&self, scene: &mut Scene) {
        let (Some((number, value)), XAxis::Numbers { high, .. }) = (self.reference, &self.x) else {
            return;
        };
        let slope = value / number;
        if slope <= 0.0 {
            return;
        }
        let end = high.min(self.plot.scale.high / slope);
        let to = (self.x_of(end, *high), self.plot.y(end * slope));
        let from = (self.plot.left, self.plot.y(0.0));
        scene.dashes(Part::Line, (from, to), (2.0, 5.0), MUTED, 2.0);
    }

    fn draw_points(&self, scene: &mut Scene) {
        let plot = &self.plot;
        let mark = Mark::of(0);
        let mut before: Option<(f64, f64)> = None;
        for (index, point) in self.points.iter().enumerate() {
            let x = self.x(index);
            let mean = point.best.and_then(|(.., cell)| cell.mean());
            let at = mean.map(|mean| (x, plot.y(mean)));
            if let (Some(from), Some(to)) = (before, at) {
                scene.path(Part::Line, vec![from, to], mark.colour, 2.2);
            }
            before = at;
            if at.is_none() {
                let y = plot.top + plot.height + plot.missing_strip / 2.0;
                cross(scene, (x, y), INK);
            }
        }
        for (index, point) in self.points.iter().enumerate() {
            let Some((.., cell)) = point.best else {
                continue;
            };
            let x = self.x(index);
            if cell.repeats.len() > 1 {
                if let Some((low, high)) = cell.range() {
                    let points = vec![(x, plot.y(low)), (x, plot.y(high))];
                    scene.path(Part::Whisker, points, mark.colour.faded(0.65), 1.25);
                }
                for repeat in &cell.repeats {
                    mark.draw_repeat(scene, (x, plot.y(repeat.value)));
                }
            }
            if let Some(mean) = cell.mean() {
                mark.draw(scene, Part::Mean, (x, plot.y(mean)), 5.0);
            }
        }
    }

    /// The first line's baseline: right below the point, else left above it.
    ///
    /// A curve that grows leaves both free.
    fn label_at(&self, index: usize, lines: &[String]) -> (f64, f64) {
        let width = label_width(lines);
        let x = self.x(index);
        let mean = self.points[index].best.and_then(|(.., cell)| cell.mean());
        let y = self.plot.y(mean.unwrap_or_default());
        let height = (lines.len() as f64 - 1.0) * LABEL_LINE;
        let floor = self.plot.top + self.plot.height - 6.0;
        if y + 22.0 + height <= floor {
            let right = self.plot.left + self.plot.width + 16.0;
            ((x + 10.0).min(right - width), y + 22.0)
        } else {
            (x - 10.0 - width, y - 12.0 - height)
        }
    }

    fn label_extent(&self, index: usize, lines: &[String]) -> Extent {
        let (left, top) = self.label_at(index, lines);
        let height = (lines.len() as f64 - 1.0) * LABEL_LINE;
        (
            left,
            top - 11.0,
            left + label_width(lines),
            top + height + 4.0,
        )
    }

    fn labels(&self, grid: &Grid) -> Labels {
        let words: Vec<(usize, Vec<String>)> = self
            .points
            .iter()
            .enumerate()
            .filter_map(|(index, point)| {
                let (panel, line, x, cell) = point.best?;
                Some((
                    index,
                    point_label(grid, cell, &grid.place_label(panel, line, x)),
                ))
            })
            .collect();
        let extents: Vec<Extent> = words
            .iter()
            .map(|(index, lines)| self.label_extent(*index, lines))
            .collect();
        let marks: Vec<(f64, f64)> = self
            .points
            .iter()
            .enumerate()
            .filter_map(|(index, point)| {
                let mean = point.best?.3.mean()?;
                Some((self.x(index), self.plot.y(mean)))
            })
            .collect();
        let path = along(&marks);
        let is_clear = extents.iter().enumerate().all(|(index, extent)| {
            extents[..index]
                .iter()
                .all(|other| !overlap(*extent, *other))
                && path
                    .iter()
                    .all(|(x, y)| !overlap(*extent, (x - 3.0, y - 3.0, x + 3.0, y + 3.0)))
                && extent.0 >= self.plot.left + 4.0
                && extent.2 <= CANVAS_WIDTH - 6.0
        });
        if is_clear {
            return Labels {
                at_points: words,
                notes: Vec::new(),
            };
        }
        let notes = words
            .iter()
            .enumerate()
            .map(|(n, (index, lines))| {
                let tier = grid.tier_label(self.points[*index].tier);
                format!("{} – {tier}: {}", letter(n), lines.join(", "))
            })
            .collect();
        Labels {
            at_points: words
                .iter()
                .enumerate()
                .map(|(n, (index, _))| (*index, vec![letter(n)]))
                .collect(),
            notes,
        }
    }
}

/// A, B, ... Z, A2, B2, ...
fn letter(n: usize) -> String {
    let letter = char::from(b'A' + u8::try_from(n % 26).unwrap_or(0));
    if n < 26 {
        letter.to_string()
    } else {
        format!("{letter}{}", n / 26 + 1)
    }
}

/// The figure, then the cell's derived values, or its place where it has none.
fn point_label(grid: &Grid, cell: &CellFigures, place: &str) -> Vec<String> {
    let mut lines = vec![format!("{}/s", figure(cell.mean().unwrap_or_default()))];
    let values: Vec<String> = cell
        .variables
        .iter()
        .take(MOST_VALUES)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if !values.is_empty() {
        lines.extend(values);
    } else if grid.x.is_some() {
        lines.extend(place.split(", ").take(MOST_VALUES).map(str::to_owned));
    }
    lines
        .iter()
        .map(|line| font::shorten(line, LABEL.size, true, 150.0))
        .collect()
}

fn label_width(lines: &[String]) -> f64 {
    lines
        .iter()
        .map(|line| font::width(line, LABEL.size, true))
        .fold(0.0, f64::max)
}

/// Places along the line through these points, close enough to miss no label.
fn along(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut out = points.to_vec();
    for pair in points.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        out.extend((1..64).map(|k| {
            let share = f64::from(k) / 64.0;
            (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            )
        }));
    }
    out
}

fn overlap(a: Extent, b: Extent) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}
