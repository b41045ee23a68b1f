//! All tiers side by side, every cell with its figure, one colour scale over all.

use super::colour_scale::{BAR_ROOM, ColourScale};
use super::frame::{Head, MARGIN, Notes, missing_text, repeats_text, title};
use super::plot::AXIS_TITLE;
use crate::chart::ChartInfo;
use crate::chart::colour::{HATCH, INK, MUTED, NO_VALUE, WHITE};
use crate::chart::font;
use crate::chart::scene::{Anchor, Part, Scene, Type};
use crate::chart::series::{Grid, GridAxis};
use crate::chart::ticks::figure;
use crate::results::{CellFigures, Measure};

const VALUE: Type = Type::new(11.5).anchor(Anchor::Middle);
const REASON: Type = Type::new(9.5).colour(MUTED).anchor(Anchor::Middle);
const LEVEL: Type = Type::new(11.5);
const PANEL_HEAD: Type = Type::new(13.0).bold();
const TITLE_LINE: f64 = 16.0;
/// A title is not cut below this however small its table.
const LEAST_TITLE_ROOM: f64 = 110.0;
/// Panels are put side by side up to about this width.
const WIDEST: f64 = 1500.0;
/// A table is not widened beyond this for its heading.
const WIDEST_NEEDED: f64 = 240.0;
const LEAST_CANVAS: f64 = 640.0;
const PANEL_GAP: f64 = 30.0;
/// Longest label of a level.
const LEVEL_ROOM: f64 = 110.0;

/// Draws all tiers.
pub(in crate::chart) fn heatmap(grid: &Grid, info: &ChartInfo) -> Scene {
    let all: Vec<usize> = (0..grid.tiers.len()).collect();
    let mut panels: Vec<PanelLayout> = all
        .iter()
        .flat_map(|tier| {
            let mut panels: Vec<usize> = grid.cells_of(*tier).map(|(panel, ..)| panel).collect();
            panels.sort_unstable();
            panels.dedup();
            panels
                .into_iter()
                .map(|panel| PanelLayout::new(grid, *tier, panel))
        })
        .collect();
    align(&mut panels);
    let colours = ColourScale::of(grid);
    let widest = panels.iter().map(PanelLayout::width).fold(0.0, f64::max);
    let tallest = panels
        .iter()
        .map(|panel| panel.height(grid))
        .fold(0.0, f64::max);
    let n_columns = columns_for(panels.len(), widest, tallest);
    let n_rows = panels.len().div_ceil(n_columns);
    let panels_width = n_columns as f64 * (widest + PANEL_GAP);
    let width = (2.0 * MARGIN + panels_width + BAR_ROOM).max(LEAST_CANVAS);

    let title = title(&info.title, grid.value_name(), &per_tier(grid));
    let best = match grid.measure {
        Measure::Throughput => "highest",
        Measure::P99 => "lowest",
    };
    let subtitle = [
        grid.source(),
        repeats_text(grid, &all, false),
        missing_text(grid, &all),
        if colours.is_some() {
            let of_each = if grid.tiers.len() > 1 {
                " of each tier"
            } else {
                ""
            };
            format!("outlined: {best} measured{of_each}")
        } else {
            String::new()
        },
    ];
    let head = Head::new(&title, &subtitle, width);
    let mut notes = Notes::of(grid, &all, width);
    if has_holes(grid, &panels) {
        notes.say(
            "– no row: not in the matrix, dropped by a constraint, or the same configuration as another cell",
            width,
        );
    }
    let top = head.bottom();
    let bottom = top
        + (n_rows as f64 * (tallest + PANEL_GAP)).max(if colours.is_some() { 300.0 } else { 0.0 });
    let mut scene = Scene::new(width, bottom + notes.height() + MARGIN, &title);
    head.draw(&mut scene);
    for (index, panel) in panels.iter().enumerate() {
        let left = MARGIN + (index % n_columns) as f64 * (widest + PANEL_GAP);
        let top = top + (index / n_columns) as f64 * (tallest + PANEL_GAP);
        panel.draw(&mut scene, grid, colours.as_ref(), (left, top));
    }
    if let Some(colours) = &colours {
        let left = (MARGIN + panels_width).max(width - MARGIN - BAR_ROOM);
        colours.draw_bar(&mut scene, grid, (left + 4.0, top));
    }
    notes.draw(&mut scene, bottom);
    scene
}

/// How many panels stand side by side.
///
/// As near to 3:2 as the panels allow, with few places left empty: four panels
/// are two by two, not four in a row.
fn columns_for(n_panels: usize, width: f64, height: f64) -> usize {
    let fitting = ((WIDEST + PANEL_GAP) / (width + PANEL_GAP)).floor() as usize;
    let misfit = |columns: usize| {
        let rows = n_panels.div_ceil(columns);
        let n_empty = rows * columns - n_panels;
        let ratio = (columns as f64 * (width + PANEL_GAP)) / (rows as f64 * (height + PANEL_GAP));
        (ratio / 1.5).ln().abs() + 0.2 * n_empty as f64
    };
    let most = fitting.clamp(1, n_panels.max(1));
    (1..=most)
        .min_by(|a, b| misfit(*a).total_cmp(&misfit(*b)))
        .unwrap_or(1)
}

fn per_tier(grid: &Grid) -> String {
    if grid.tiers.len() > 1 {
        let name = grid.tier_title.split(" [").next().unwrap_or_default();
        format!("by {name}, one colour scale")
    } else {
        grid.tier_label(0)
    }
}

/// Panels with as many columns get columns as wide, so that they line up.
fn align(panels: &mut [PanelLayout]) {
    let widths: Vec<(usize, f64)> = panels
        .iter()
        .map(|panel| (panel.xs.len(), panel.cell.0))
        .collect();
    for panel in panels.iter_mut() {
        let same = widths
            .iter()
            .filter(|(columns, _)| *columns == panel.xs.len());
        panel.cell.0 = same.map(|(_, width)| *width).fold(panel.cell.0, f64::max);
        panel.is_x_upwards = widest(&panel.x_labels) > panel.cell.0 - 6.0;
    }
    let labels: Vec<String> = panels.iter().map(|panel| panel.label.clone()).collect();
    let room = panels
        .iter()
        .map(|panel| (panel.cell.0 * panel.xs.len() as f64).max(160.0))
        .fold(f64::INFINITY, f64::min);
    let labels = font::shorten_all(&labels, PANEL_HEAD.size, true, room);
    for (panel, label) in panels.iter_mut().zip(labels) {
        panel.label = label;
    }
}

fn has_holes(grid: &Grid, panels: &[PanelLayout]) -> bool {
    panels.iter().any(|panel| {
        panel.lines.iter().any(|line| {
            panel
                .xs
                .iter()
                .any(|x| grid.cell(panel.tier, panel.panel, *line, *x).is_none())
        })
    })
}

/// One tier (and one combination of further axes) as a table of cells.
struct PanelLayout {
    tier: usize,
    panel: usize,
    xs: Vec<usize>,
    lines: Vec<usize>,
    cell: (f64, f64),
    line_room: f64,
    n_title_lines: usize,
    x_labels: Vec<String>,
    is_x_upwards: bool,
    label: String,
}

impl PanelLayout {
    fn new(grid: &Grid, tier: usize, panel: usize) -> Self {
        let xs = grid.used(tier, |_, x| x);
        let lines = grid.used(tier, |line, _| line);
        let widest_value = grid
            .cells_of(tier)
            .filter_map(|(.., cell)| cell.mean())
            .map(|mean| font::width(&figure(mean), VALUE.size, true))
            .fold(0.0, f64::max);
        let least = if xs.len() <= 8 { 58.0 } else { 36.0 };
        let height = if lines.len() <= 8 { 34.0 } else { 24.0 };
        let cell = ((widest_value + 14.0).max(least), height);
        let x_labels = labels(grid.x.as_ref(), &xs, LEVEL_ROOM);
        let widest_label = widest(&x_labels);
        let label = [grid.tier_label(tier), grid.panels[panel].label()]
            .iter()
            .filter(|part| !part.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        let line_room = widest(&labels(grid.line.as_ref(), &lines, LEVEL_ROOM));
        let table_height = cell.1 * lines.len() as f64;
        let n_title_lines = grid
            .line
            .as_ref()
            .map_or(0, |axis| line_title(axis, table_height).len());
        // A narrow table is made as wide as its heading and its axis' title.
        let title = grid
            .x
            .as_ref()
            .map_or(0.0, |axis| font::width(&axis.title, AXIS_TITLE.size, false));
        let needed = font::width(&label, PANEL_HEAD.size, true)
            .max(title)
            .min(WIDEST_NEEDED);
        let cell = (cell.0.max(needed / xs.len() as f64), cell.1);
        Self {
            tier,
            panel,
            cell,
            is_x_upwards: widest_label > cell.0 - 6.0,
            x_labels,
            xs,
            lines,
            line_room,
            n_title_lines,
            label,
        }
    }

    /// Left of the table: the second axis' title and levels.
    fn left_room(&self) -> f64 {
        if self.line_room > 0.0 {
            8.0 + self.n_title_lines as f64 * TITLE_LINE + self.line_room + 8.0
        } else {
            0.0
        }
    }

    fn x_label_height(&self) -> f64 {
        if self.is_x_upwards {
            widest(&self.x_labels) + 12.0
        } else {
            20.0
        }
    }

    fn width(&self) -> f64 {
        self.left_room() + self.cell.0 * self.xs.len() as f64
    }

    fn height(&self, grid: &Grid) -> f64 {
        let head = if self.label.is_empty() { 0.0 } else { 26.0 };
        let axis = if grid.x.is_some() {
            self.x_label_height() + 22.0
        } else {
            0.0
        };
        head + self.cell.1 * self.lines.len() as f64 + axis
    }

    fn draw(
        &self,
        scene: &mut Scene,
        grid: &Grid,
        colours: Option<&ColourScale>,
        (left, mut top): (f64, f64),
    ) {
        let table_left = left + self.left_room();
        let (w, h) = self.cell;
        let table = (w * self.xs.len() as f64, h * self.lines.len() as f64);
        if !self.label.is_empty() {
            scene.text((table_left, top + 10.0), &self.label, PANEL_HEAD);
            top += 26.0;
        }
        let best = grid
            .best_of(self.tier)
            .map(|(panel, line, x, _)| (panel, line, x));
        let mut outline = None;
        for (row, line) in self.lines.iter().enumerate() {
            for (column, x) in self.xs.iter().enumerate() {
                let at = (table_left + column as f64 * w, top + row as f64 * h);
                let is_best = best == Some((self.panel, *line, *x));
                let cell = grid.cell(self.tier, self.panel, *line, *x);
                self.draw_cell(scene, cell, colours, at, is_best);
                if is_best {
                    outline = Some(at);
                }
            }
        }
        if let Some((x, y)) = outline {
            scene.outline(Part::Best, (x - 1.5, y - 1.5), (w + 3.0, h + 3.0), INK, 2.5);
            scene.outline(
                Part::Ground,
                (x + 1.0, y + 1.0),
                (w - 2.0, h - 2.0),
                WHITE,
                1.5,
            );
        }
        self.draw_axes(scene, grid, (left, top), table_left, table);
    }

    fn draw_cell(
        &self,
        scene: &mut Scene,
        cell: Option<&CellFigures>,
        colours: Option<&ColourScale>,
        (x, y): (f64, f64),
        is_best: bool,
    ) {
        let (w, h) = self.cell;
        // Half a pixel of white on every side parts the cells.
        let (at, size) = ((x + 0.5, y + 0.5), (w - 1.0, h - 1.0));
        let middle = (x + w / 2.0, y + h / 2.0 + 4.0);
        let mean = cell.and_then(CellFigures::mean);
        match (cell, mean, colours) {
            (Some(_), Some(mean), Some(colours)) if mean.is_finite() => {
                let ground = colours.colour(mean);
                scene.rectangle(Part::Cell, at, size, ground);
                let style = VALUE.colour(ground.text_on());
                let style = if is_best { style.bold() } else { style };
                scene.text(middle, &figure(mean), style);
            }
            (Some(_), Some(_), _) => {
                hatched(scene, Part::Infinite, at, size);
                scene.text(middle, "inf", VALUE.bold());
            }
            (Some(cell), None, _) => {
                hatched(scene, Part::Missing, at, size);
                let reason = cell.missing_because().unwrap_or_default();
                let reason = font::shorten(reason, REASON.size, false, w - 5.0);
                scene.text((middle.0, middle.1 - 0.5), &reason, REASON);
            }
            (None, ..) => scene.text(middle, "–", VALUE.colour(MUTED)),
        }
    }

    fn draw_axes(
        &self,
        scene: &mut Scene,
        grid: &Grid,
        (left, top): (f64, f64),
        table_left: f64,
        table: (f64, f64),
    ) {
        let (w, h) = self.cell;
        if let Some(axis) = &grid.line {
            let labels = labels(Some(axis), &self.lines, LEVEL_ROOM);
            for (row, label) in labels.iter().enumerate() {
                let at = (table_left - 8.0, top + (row as f64 + 0.5) * h + 4.0);
                scene.text(at, label, LEVEL.anchor(Anchor::End));
            }
            let style = AXIS_TITLE.upwards().anchor(Anchor::Middle);
            for (row, text) in line_title(axis, table.1).iter().enumerate() {
                let x = left + 12.0 + row as f64 * TITLE_LINE;
                let length = font::width(text, AXIS_TITLE.size, false);
                let middle = (table.1 / 2.0).max(length / 2.0);
                scene.text((x, top + middle), text, style);
            }
        }
        let Some(axis) = &grid.x else { return };
        let floor = top + table.1;
        for (column, label) in self.x_labels.iter().enumerate() {
            let x = table_left + (column as f64 + 0.5) * w;
            if self.is_x_upwards {
                let style = LEVEL.upwards().anchor(Anchor::End);
                scene.text((x + 4.0, floor + 7.0), label, style);
            } else {
                scene.text((x, floor + 16.0), label, LEVEL.anchor(Anchor::Middle));
            }
        }
        let title = font::shorten(&axis.title, AXIS_TITLE.size, false, table.0.max(80.0));
        let y = floor + self.x_label_height() + 16.0;
        let style = AXIS_TITLE.anchor(Anchor::Middle);
        scene.text((table_left + table.0 / 2.0, y), &title, style);
    }
}

fn labels(axis: Option<&GridAxis>, used: &[usize], room: f64) -> Vec<String> {
    let texts: Vec<String> = axis
        .iter()
        .flat_map(|axis| used.iter().map(|index| axis.levels[*index].to_string()))
        .collect();
    font::shorten_all(&texts, LEVEL.size, false, room)
}

/// The second axis' title, in two lines at most, each as long as the table is high
/// or, left of the first axis' labels, somewhat longer.
fn line_title(axis: &GridAxis, height: f64) -> Vec<String> {
    let room = height.max(LEAST_TITLE_ROOM);
    let mut lines = font::wrap(&axis.title, AXIS_TITLE.size, false, room);
    if lines.len() > 2 {
        let rest = lines[1..].join(" ");
        lines.truncate(1);
        lines.push(font::shorten(&rest, AXIS_TITLE.size, false, room));
    }
    lines
}

fn widest(labels: &[String]) -> f64 {
    labels
        .iter()
        .map(|label| font::width(label, LEVEL.size, false))
        .fold(0.0, f64::max)
}

/// Grey with diagonals: there is no figure here.
fn hatched(scene: &mut Scene, part: Part, (x, y): (f64, f64), (w, h): (f64, f64)) {
    scene.rectangle(part, (x, y), (w, h), NO_VALUE);
    let mut run = 6.0;
    while run < w + h {
        // From the left or lower edge to the upper or right one.
        let from = if run <= h {
            (x, y + run)
        } else {
            (x + run - h, y + h)
        };
        let to = if run <= w {
            (x + run, y)
        } else {
            (x + w, y + run - w)
        };
        scene.path(Part::Ground, vec![from, to], HATCH, 1.0);
        run += 9.0;
    }
}
