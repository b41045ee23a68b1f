//! One tier: a measure against the first axis, one line per level of the second.

use super::frame::{Head, Legend, MARGIN, Notes, missing_text, repeats_text, title};
use super::marks::{Mark, arrow_up, cross};
use super::plot::{AXIS_TITLE, Levels, Plot};
use crate::chart::ChartInfo;
use crate::chart::colour::MUTED;
use crate::chart::font;
use crate::chart::scene::{Anchor, Part, Scene, Type};
use crate::chart::series::Grid;
use crate::chart::ticks::Scale;
use crate::results::CellFigures;
use crate::scalar::Scalar;

/// Canvas width of a chart with one panel and a narrow legend.
const CANVAS_WIDTH: f64 = 1000.0;
const PANEL_HEAD: Type = Type::new(12.5).bold();
/// Height of one row of crosses in the strip below the axis.
const STRIP_ROW: f64 = 12.0;
/// Distance of two crosses at one level.
const CROSS_GAP: f64 = 11.0;

/// Draws one tier.
pub(in crate::chart) fn lines(grid: &Grid, info: &ChartInfo, tier: usize) -> Scene {
    let chart = LineChart::lay_out(grid, tier);
    let what = match &grid.x {
        Some(axis) => format!("{} by {}", grid.value_name(), axis.name),
        None => grid.value_name().to_owned(),
    };
    let title = title(&info.title, &what, &grid.tier_label(tier));
    let width = chart.canvas_width();
    let subtitle = [
        grid.source(),
        repeats_text(grid, &[tier], true),
        missing_text(grid, &[tier]),
        if grid.tiers.len() > 1 {
            "value axis scaled to this tier alone".to_owned()
        } else {
            String::new()
        },
    ];
    let head = Head::new(&title, &subtitle, width);
    let notes = Notes::of(grid, &[tier], width);
    let body_top = head.bottom();
    let body_bottom = body_top + chart.body_height();
    let height = body_bottom + notes.height() + MARGIN;
    let mut scene = Scene::new(width, height, &title);
    head.draw(&mut scene);
    chart.draw(&mut scene, body_top);
    notes.draw(&mut scene, body_bottom);
    scene
}

/// Sizes of a chart, before anything is drawn.
struct LineChart<'g> {
    grid: &'g Grid,
    tier: usize,
    /// Indexes of the x levels this tier has.
    xs: Vec<usize>,
    /// Indexes of the lines this tier has.
    lines: Vec<usize>,
    /// Indexes of the panels this tier has.
    panels: Vec<usize>,
    scale: Scale,
    levels: Levels,
    legend: Legend,
    n_columns: usize,
    plot: (f64, f64),
    label_width: f64,
    infinite_strip: f64,
    missing_strip: f64,
}

impl<'g> LineChart<'g> {
    fn lay_out(grid: &'g Grid, tier: usize) -> Self {
        let xs = grid.used(tier, |_, x| x);
        let lines = grid.used(tier, |line, _| line);
        let mut panels: Vec<usize> = grid.cells_of(tier).map(|(panel, ..)| panel).collect();
        panels.sort_unstable();
        panels.dedup();
        let values = grid
            .cells_of(tier)
            .flat_map(|(.., cell)| cell.repeats.iter().map(|repeat| repeat.value));
        let scale = Scale::of(values);
        let n_columns = match panels.len() {
            0 | 1 => 1,
            2..=4 => 2,
            _ => 3,
        };
        let plot_height = if n_columns == 1 { 380.0 } else { 240.0 };
        let entries: Vec<(Mark, String)> = grid
            .line
            .iter()
            .flat_map(|axis| {
                lines
                    .iter()
                    .map(|line| (Mark::of(*line), axis.levels[*line].to_string()))
            })
            .collect();
        let legend_head = grid.line.as_ref().map_or("", |axis| &axis.title);
        let legend = Legend::new(legend_head, entries, plot_height + 40.0);
        let cells = || grid.cells_of(tier).map(|(.., cell)| cell);
        let is_infinite = |cell: &CellFigures| cell.repeats.iter().any(|r| r.value.is_infinite());
        let infinite_strip = if cells().any(is_infinite) { 30.0 } else { 0.0 };
        let has_missing = cells().any(|cell| cell.repeats.is_empty());
        let label_width = Plot::label_width(&scale, infinite_strip > 0.0 || has_missing);
        let least = if n_columns == 1 { CANVAS_WIDTH } else { 1200.0 };
        let frame_width = 2.0 * MARGIN + legend.width();
        let per_panel = label_width + 36.0;
        let room = (least - frame_width) / n_columns as f64 - per_panel;
        // Twenty levels and their dodged lines need their room whatever the legend takes.
        let wanted = (xs.len() as f64 * 30.0).min(900.0);
        let plot_width = room.max(wanted).max(300.0);
        let x_levels: Vec<Scalar> = grid.x.as_ref().map_or_else(Vec::new, |axis| {
            xs.iter().map(|x| axis.levels[*x].clone()).collect()
        });
        let levels = if x_levels.is_empty() {
            Levels::new(&[Scalar::Text(String::new())], plot_width)
        } else {
            Levels::new(&x_levels, plot_width)
        };
        let mut this = Self {
            grid,
            tier,
            xs,
            lines,
            panels,
            scale,
            levels,
            legend,
            n_columns,
            plot: (plot_width, plot_height),
            label_width,
            infinite_strip,
            missing_strip: 0.0,
        };
        this.missing_strip = this.rows_of_crosses() as f64 * STRIP_ROW;
        if this.missing_strip > 0.0 {
            // The strip's own label stands clear of the label of the axis' lowest tick.
            this.missing_strip = (this.missing_strip + 8.0).max(30.0);
        }
        this
    }

    /// Crosses side by side at one level.
    fn crosses_per_row(&self) -> usize {
        ((self.levels.gap / CROSS_GAP).floor() as usize).clamp(1, 10)
    }

    fn rows_of_crosses(&self) -> usize {
        let most = self
            .panels
            .iter()
            .flat_map(|panel| {
                self.xs
                    .iter()
                    .map(move |x| self.missing_at(*panel, *x).len())
            })
            .max()
            .unwrap_or(0);
        most.div_ceil(self.crosses_per_row())
    }

    fn missing_at(&self, panel: usize, x: usize) -> Vec<usize> {
        let is_missing = |line: &usize| {
            self.grid
                .cell(self.tier, panel, *line, x)
                .is_some_and(|cell| cell.repeats.is_empty())
        };
        self.lines.iter().copied().filter(is_missing).collect()
    }

    fn panel_width(&self) -> f64 {
        self.label_width + 36.0 + self.plot.0
    }

    fn panel_height(&self) -> f64 {
        let head = if self.n_columns > 1 || self.panels.len() > 1 {
            24.0
        } else {
            0.0
        };
        head + self.infinite_strip
            + self.plot.1
            + self.missing_strip
            + self.levels.label_height()
            + 40.0
    }

    fn canvas_width(&self) -> f64 {
        2.0 * MARGIN + self.n_columns as f64 * self.panel_width() + self.legend.width()
    }

    fn body_height(&self) -> f64 {
        self.panels.len().max(1).div_ceil(self.n_columns) as f64 * self.panel_height()
    }

    fn draw(&self, scene: &mut Scene, top: f64) {
        for (index, panel) in self.panels.iter().enumerate() {
            let left = MARGIN + (index % self.n_columns) as f64 * self.panel_width();
            let top = top + (index / self.n_columns) as f64 * self.panel_height();
            self.draw_panel(scene, (index, *panel), (left, top));
        }
        let right = MARGIN + self.n_columns as f64 * self.panel_width();
        self.legend.draw(scene, (right, top));
    }

    fn draw_panel(
        &self,
        scene: &mut Scene,
        (slot, panel): (usize, usize),
        (left, mut top): (f64, f64),
    ) {
        let plot_left = left + 22.0 + self.label_width;
        let labels: Vec<String> = self
            .panels
            .iter()
            .map(|panel| self.grid.panels[*panel].label())
            .collect();
        let labels = font::shorten_all(&labels, PANEL_HEAD.size, true, self.plot.0);
        let label = &labels[slot];
        if !label.is_empty() {
            scene.text((plot_left, top + 8.0), label, PANEL_HEAD);
            top += 24.0;
        }
        let plot = Plot {
            left: plot_left,
            top: top + self.infinite_strip,
            width: self.plot.0,
            height: self.plot.1,
            scale: self.scale.clone(),
            infinite_strip: self.infinite_strip,
            missing_strip: self.missing_strip,
        };
        plot.draw(scene);
        plot.draw_title(scene, left + 11.0, self.grid.value_title());
        self.levels.draw(scene, plot.left, plot.bottom());
        if let Some(axis) = &self.grid.x {
            let note = if self.levels.is_uneven {
                " (levels evenly spaced)"
            } else {
                ""
            };
            let text = format!("{}{note}", axis.title);
            let text = font::shorten(&text, AXIS_TITLE.size, false, plot.width);
            let y = plot.bottom() + self.levels.label_height() + 16.0;
            let style = AXIS_TITLE.anchor(Anchor::Middle);
            scene.text((plot.left + plot.width / 2.0, y), &text, style);
        }
        let has_value = |cell: &CellFigures| !cell.repeats.is_empty();
        if !self
            .grid
            .cells_of(self.tier)
            .any(|(of, .., cell)| of == panel && has_value(cell))
        {
            let at = (plot.left + plot.width / 2.0, plot.top + plot.height / 2.0);
            let style = Type::new(15.0).colour(MUTED).anchor(Anchor::Middle);
            scene.text(at, "no cell here has a valid measurement", style);
        }
        for (index, line) in self.lines.iter().enumerate() {
            self.draw_line(scene, &plot, panel, (index, *line));
        }
        self.draw_crosses(scene, &plot, panel);
    }

    /// Where a line's points are at a level: beside each other, so that lines that meet do not hide each other.
    fn dodge(&self, index: usize) -> f64 {
        let n = self.lines.len();
        if n < 2 {
            return 0.0;
        }
        let step = (self.levels.gap * 0.5 / n as f64).min(7.0);
        (index as f64 - (n as f64 - 1.0) / 2.0) * step
    }

    fn draw_line(
        &self,
        scene: &mut Scene,
        plot: &Plot,
        panel: usize,
        (index, line): (usize, usize),
    ) {
        let mark = Mark::of(line);
        let mut stretch: Vec<(f64, f64)> = Vec::new();
        let mut means = Vec::new();
        let mut repeats = Vec::new();
        let finish = |scene: &mut Scene, stretch: &mut Vec<(f64, f64)>| {
            for pair in stretch.windows(2) {
                if mark.is_dashed {
                    scene.dashes(Part::Line, (pair[0], pair[1]), (7.0, 4.0), mark.colour, 2.0);
                } else {
                    scene.path(Part::Line, pair.to_vec(), mark.colour, 2.0);
                }
            }
            stretch.clear();
        };
        for (slot, x) in self.xs.iter().enumerate() {
            let at_x = plot.left + self.levels.at[slot] + self.dodge(index);
            let Some(cell) = self.grid.cell(self.tier, panel, line, *x) else {
                finish(scene, &mut stretch);
                continue;
            };
            let finite: Vec<f64> = cell
                .repeats
                .iter()
                .map(|repeat| repeat.value)
                .filter(|value| value.is_finite())
                .collect();
            if cell.repeats.len() > 1 {
                draw_whisker(scene, plot, mark, at_x, &finite);
                repeats.extend(finite.iter().map(|value| (at_x, plot.y(*value))));
            }
            if finite.len() < cell.repeats.len() {
                let y = plot.top - plot.infinite_strip / 2.0;
                arrow_up(scene, (at_x, y), mark.colour);
            }
            match cell.mean().filter(|mean| mean.is_finite()) {
                Some(mean) => {
                    stretch.push((at_x, plot.y(mean)));
                    means.push((at_x, plot.y(mean)));
                }
                None => finish(scene, &mut stretch),
            }
        }
        finish(scene, &mut stretch);
        for at in repeats {
            mark.draw_repeat(scene, at);
        }
        // Smaller marks where many lines meet.
        let radius = if self.lines.len() > 8 { 3.4 } else { 4.4 };
        for at in means {
            mark.draw(scene, Part::Mean, at, radius);
        }
    }

    fn draw_crosses(&self, scene: &mut Scene, plot: &Plot, panel: usize) {
        let per_row = self.crosses_per_row();
        for (slot, x) in self.xs.iter().enumerate() {
            let missing = self.missing_at(panel, *x);
            for (index, line) in missing.iter().enumerate() {
                let in_row = per_row.min(missing.len() - index / per_row * per_row);
                let shift = (index % per_row) as f64 - (in_row as f64 - 1.0) / 2.0;
                let at_x = plot.left + self.levels.at[slot] + shift * CROSS_GAP;
                let rows = missing.len().div_ceil(per_row) as f64;
                let middle = plot.top + plot.height + plot.missing_strip / 2.0;
                let row = (index / per_row) as f64 - (rows - 1.0) / 2.0;
                cross(
                    scene,
                    (at_x, middle + row * STRIP_ROW),
                    Mark::of(*line).colour,
                );
            }
        }
    }
}

fn draw_whisker(scene: &mut Scene, plot: &Plot, mark: Mark, x: f64, finite: &[f64]) {
    let (Some(low), Some(high)) = (
        finite.iter().copied().reduce(f64::min),
        finite.iter().copied().reduce(f64::max),
    ) else {
        return;
    };
    let (low, high) = (plot.y(low), plot.y(high));
    let colour = mark.colour.faded(0.65);
    scene.path(Part::Whisker, vec![(x, low), (x, high)], colour, 1.25);
    for y in [low, high] {
        scene.path(Part::Axis, vec![(x - 3.5, y), (x + 3.5, y)], colour, 1.25);
    }
}
