//! What is drawn: the rows as a grid of tiers, panels, lines and places. Pure.
//!
//! **Shape**: the first axis that is not the tier is x, the second makes the
//! lines, every further one makes panels. Levels are in order of size where all
//! are numbers, else in order of first appearance.

use indexmap::IndexMap;

use super::ChartInfo;
use crate::results::{
    CellFigures, Gathered, Measure, PercentileBasis, TrialRow, gather, sort_levels,
};
use crate::scalar::Scalar;

/// An axis with all its levels.
#[derive(Debug, Clone, PartialEq)]
pub struct GridAxis {
    /// Name in the matrix.
    pub name: String,
    /// What charts say, with units.
    pub title: String,
    /// Levels in drawing order; never empty.
    pub levels: Vec<Scalar>,
}

/// One combination of the axes beyond the second.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Axis and level of each; empty when there is nothing beyond the second axis.
    pub fixed: Vec<(String, Scalar)>,
}

impl Panel {
    /// `heap 2g, gc g1`; empty for the only panel.
    pub fn label(&self) -> String {
        let parts: Vec<String> = self
            .fixed
            .iter()
            .map(|(axis, level)| format!("{axis} {level}"))
            .collect();
        parts.join(", ")
    }
}

/// A cell's place: indexes of tier, panel, line and x.
type Place = (usize, usize, usize, usize);

/// One measure of a run, laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// What was measured.
    pub measure: Measure,
    /// Title of the tier axis.
    pub tier_title: String,
    /// Levels of the tier; one `None` where there is no tier.
    pub tiers: Vec<Option<Scalar>>,
    /// First axis; `None` when only the tier was varied.
    pub x: Option<GridAxis>,
    /// Second axis.
    pub line: Option<GridAxis>,
    /// Combinations of the others; one at least.
    pub panels: Vec<Panel>,
    gathered: Gathered,
    places: IndexMap<Place, CellFigures>,
}

impl Grid {
    /// Lays out the rows.
    pub fn of(rows: &[TrialRow], measure: Measure, info: &ChartInfo) -> Self {
        let tier = info.tier.as_deref();
        let gathered = gather(rows, measure, tier);
        let mut axes: IndexMap<String, Vec<Scalar>> = IndexMap::new();
        let mut tiers: Vec<Scalar> = Vec::new();
        let mut is_without_tier = false;
        for cell in &gathered.cells {
            for (axis, level) in cell
                .axes
                .iter()
                .filter(|(axis, _)| Some(axis.as_str()) != tier)
            {
                let levels = axes.entry(axis.clone()).or_default();
                if !levels.contains(level) {
                    levels.push(level.clone());
                }
            }
            match &cell.tier {
                Some(level) if !tiers.contains(level) => tiers.push(level.clone()),
                Some(_) => {}
                None => is_without_tier = true,
            }
        }
        sort_levels(&mut tiers);
        let mut axes = axes.into_iter().map(|(name, mut levels)| {
            sort_levels(&mut levels);
            GridAxis {
                title: title_of(info, &name),
                name,
                levels,
            }
        });
        let (x, line) = (axes.next(), axes.next());
        let panels = panels_of(&axes.collect::<Vec<_>>(), &gathered.cells);
        let mut grid = Self {
            measure,
            tier_title: tier.map_or_else(String::new, |tier| title_of(info, tier)),
            tiers: tiers
                .into_iter()
                .map(Some)
                .chain(is_without_tier.then_some(None))
                .collect(),
            x,
            line,
            panels,
            places: IndexMap::new(),
            gathered,
        };
        for cell in grid.gathered.cells.clone() {
            let place = grid.place_of(&cell);
            grid.places
                .entry(place)
                .and_modify(|there| {
                    there.repeats.extend(&cell.repeats);
                    there.lost.extend(cell.lost.clone());
                })
                .or_insert(cell);
        }
        grid
    }

    fn place_of(&self, cell: &CellFigures) -> Place {
        let index_on = |axis: &Option<GridAxis>| {
            axis.as_ref()
                .and_then(|axis| {
                    let level = cell.axes.get(&axis.name)?;
                    axis.levels.iter().position(|known| known == level)
                })
                .unwrap_or(0)
        };
        let tier = self.tiers.iter().position(|tier| *tier == cell.tier);
        let panel = self.panels.iter().position(|panel| {
            panel
                .fixed
                .iter()
                .all(|(axis, level)| cell.axes.get(axis) == Some(level))
        });
        (
            tier.unwrap_or(0),
            panel.unwrap_or(0),
            index_on(&self.line),
            index_on(&self.x),
        )
    }

    /// Whether there is no cell at all.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The cell at a place, by index of tier, panel, line and x.
    pub fn cell(&self, tier: usize, panel: usize, line: usize, x: usize) -> Option<&CellFigures> {
        self.places.get(&(tier, panel, line, x))
    }

    /// All cells of a tier with their panel, line and x.
    pub fn cells_of(
        &self,
        tier: usize,
    ) -> impl Iterator<Item = (usize, usize, usize, &CellFigures)> {
        self.places
            .iter()
            .filter(move |((of, ..), _)| *of == tier)
            .map(|((_, panel, line, x), cell)| (*panel, *line, *x, cell))
    }

    /// Indexes of the x levels (or lines) that a tier has cells at; never empty.
    pub fn used(&self, tier: usize, pick: impl Fn(usize, usize) -> usize) -> Vec<usize> {
        let mut used: Vec<usize> = self
            .cells_of(tier)
            .map(|(_, line, x, _)| pick(line, x))
            .collect();
        used.sort_unstable();
        used.dedup();
        if used.is_empty() { vec![0] } else { used }
    }

    /// The cell with the best mean of a tier: highest throughput, lowest p99; the first of equals.
    pub fn best_of(&self, tier: usize) -> Option<(usize, usize, usize, &CellFigures)> {
        let merit = |cell: &CellFigures| {
            cell.mean()
                .filter(|mean| mean.is_finite())
                .map(|mean| match self.measure {
                    Measure::Throughput => mean,
                    Measure::P99 => -mean,
                })
        };
        self.cells_of(tier)
            .filter_map(|found| Some((merit(found.3)?, found)))
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .map(|(_, found)| found)
    }

    /// File names of the tiers, `tier-2`; different levels have different names.
    pub fn tier_slugs(&self) -> Vec<String> {
        let mut slugs: Vec<String> = Vec::new();
        for tier in &self.tiers {
            let text = tier
                .as_ref()
                .map_or_else(|| "all".to_owned(), Scalar::to_string);
            let safe: String = text
                .chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') {
                        c
                    } else {
                        '-'
                    }
                })
                .take(60)
                .collect();
            let mut slug = format!("tier-{safe}");
            let mut n = 2;
            while slugs.contains(&slug) {
                slug = format!("tier-{safe}-{n}");
                n += 1;
            }
            slugs.push(slug);
        }
        slugs
    }

    /// `CPU limit 2 cores`; empty where there is no tier.
    pub fn tier_label(&self, tier: usize) -> String {
        match &self.tiers[tier] {
            None => String::new(),
            Some(level) => match self.tier_title.split_once(" [") {
                Some((name, unit)) => {
                    let unit = unit.trim_end_matches(']');
                    let unit = if level == &Scalar::Integer(1) && unit == "cores" {
                        "core"
                    } else {
                        unit
                    };
                    format!("{name} {level} {unit}")
                }
                None => format!("{} {level}", self.tier_title),
            },
        }
    }

    /// `web 2, db 1.5`: a place in words, without its tier.
    pub fn place_label(&self, panel: usize, line: usize, x: usize) -> String {
        let mut parts = Vec::new();
        for (axis, index) in [(&self.x, x), (&self.line, line)] {
            if let Some(axis) = axis {
                parts.push(format!("{} {}", axis.name, axis.levels[index]));
            }
        }
        let panel = self.panels[panel].label();
        if !panel.is_empty() {
            parts.push(panel);
        }
        if parts.is_empty() {
            "the only cell".to_owned()
        } else {
            parts.join(", ")
        }
    }

    /// The measured axis' title, with units.
    pub fn value_title(&self) -> &'static str {
        match self.measure {
            Measure::Throughput => "Throughput [successful requests/s]",
            Measure::P99 => "p99 latency [ms]",
        }
    }

    /// The measure alone, for titles.
    pub fn value_name(&self) -> &'static str {
        match self.measure {
            Measure::Throughput => "throughput",
            Measure::P99 => "p99 latency",
        }
    }

    /// Where the figures are from: window, load model, basis of a percentile.
    pub fn source(&self) -> String {
        let mut parts = Vec::new();
        if let Some(choice) = &self.gathered.choice {
            let answers = choice
                .answers
                .as_ref()
                .map(|answers| format!("answers {answers}"));
            if !choice.window.is_empty() {
                let step = choice.step.map(|step| format!("step {step}"));
                let more: Vec<String> = step.into_iter().chain(answers).collect();
                parts.push(if more.is_empty() {
                    format!("window '{}'", choice.window)
                } else {
                    format!("window '{}' ({})", choice.window, more.join(", "))
                });
            } else if let Some(answers) = answers {
                parts.push(format!("window that {answers}"));
            }
            if let Some(model) = &choice.load_model {
                parts.push(format!("{model} loop"));
            }
        }
        let has_figure = self
            .gathered
            .cells
            .iter()
            .any(|cell| !cell.repeats.is_empty());
        if self.measure == Measure::P99 && has_figure {
            parts.push(match self.gathered.basis {
                PercentileBasis::Due => {
                    "over all requests due, failures count as infinite".to_owned()
                }
                PercentileBasis::Successes => "over successes only".to_owned(),
            });
        }
        parts.join(" · ")
    }
}

fn panels_of(axes: &[GridAxis], cells: &[CellFigures]) -> Vec<Panel> {
    let mut panels = vec![Panel { fixed: Vec::new() }];
    for axis in axes {
        panels = panels
            .iter()
            .flat_map(|panel| {
                axis.levels.iter().map(|level| {
                    let mut fixed = panel.fixed.clone();
                    fixed.push((axis.name.clone(), level.clone()));
                    Panel { fixed }
                })
            })
            .filter(|panel| {
                cells.iter().any(|cell| {
                    panel
                        .fixed
                        .iter()
                        .all(|(axis, level)| cell.axes.get(axis) == Some(level))
                })
            })
            .collect();
    }
    if panels.is_empty() {
        panels.push(Panel { fixed: Vec::new() });
    }
    panels
}

/// What charts call an axis: as told, else its name; the usual CPU tier gets its unit.
fn title_of(info: &ChartInfo, axis: &str) -> String {
    if let Some(title) = info.axis_titles.get(axis) {
        return title.clone();
    }
    match axis {
        "cpu" | "cpus" => "CPU limit [cores]".to_owned(),
        other => other.to_owned(),
    }
}
