//! What every chart has around its plot: head, legend and notes.

use indexmap::IndexMap;

use super::marks::Mark;
use crate::chart::colour::MUTED;
use crate::chart::font;
use crate::chart::scene::{Part, Scene, Type};
use crate::chart::series::Grid;
use crate::results::{CellFigures, Repeat};

/// Room between the canvas' edge and everything.
pub(super) const MARGIN: f64 = 24.0;

const TITLE: Type = Type::new(18.0).bold();
const SUBTITLE: Type = Type::new(12.0).colour(MUTED);
const NOTE: Type = Type::new(11.5).colour(MUTED);
const NOTE_LINE: f64 = 16.0;
/// Places named in one note; the others are counted.
const MOST_PLACES: usize = 6;
/// Notes written; the others are counted.
const MOST_NOTES: usize = 8;

/// Title and subtitle, wrapped to the canvas.
#[derive(Debug, Clone)]
pub(super) struct Head {
    title: Vec<String>,
    subtitle: Vec<String>,
}

impl Head {
    pub(super) fn new(title: &str, subtitle: &[String], canvas_width: f64) -> Self {
        let room = canvas_width - 2.0 * MARGIN;
        Self {
            title: font::wrap(title, TITLE.size, TITLE.bold, room),
            subtitle: join_parts(subtitle, room),
        }
    }

    /// Where the rest may begin.
    pub(super) fn bottom(&self) -> f64 {
        26.0 + self.title.len() as f64 * 23.0 + self.subtitle.len() as f64 * 17.0 + 20.0
    }

    pub(super) fn draw(&self, scene: &mut Scene) {
        let mut y = 20.0;
        for line in &self.title {
            y += 23.0;
            scene.text((MARGIN, y), line, TITLE);
        }
        y += 4.0;
        for line in &self.subtitle {
            y += 17.0;
            scene.text((MARGIN, y), line, SUBTITLE);
        }
    }
}

/// Parts joined by dots into lines; a part is broken only where it alone is wider than a line.
fn join_parts(parts: &[String], room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} · {part}");
            if font::width(&longer, SUBTITLE.size, false) <= room {
                *line = longer;
                continue;
            }
        }
        lines.extend(font::wrap(part, SUBTITLE.size, false, room));
    }
    lines
}

/// Title of a chart: run, measure, tier.
pub(super) fn title(run: &str, what: &str, tier: &str) -> String {
    [run, what, tier]
        .iter()
        .filter(|part| !part.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(" – ")
}

/// `mean of 3 repeats (small marks, whisker from smallest to largest)`.
pub(super) fn repeats_text(grid: &Grid, tiers: &[usize], has_marks: bool) -> String {
    let counts: Vec<usize> = tiers
        .iter()
        .flat_map(|tier| grid.cells_of(*tier))
        .map(|(.., cell)| cell.repeats.len())
        .filter(|n| *n > 0)
        .collect();
    let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) else {
        return String::new();
    };
    if *most == 1 {
        return "one launch per cell".to_owned();
    }
    let n = if least == most {
        most.to_string()
    } else {
        format!("{least} to {most}")
    };
    let marks = if has_marks {
        " (small marks; whisker from smallest to largest)"
    } else {
        ""
    };
    format!("mean of {n} launches{marks}")
}

/// `3 of 20 cells without a valid measurement`; empty when all are measured.
pub(super) fn missing_text(grid: &Grid, tiers: &[usize]) -> String {
    let cells = || tiers.iter().flat_map(|tier| grid.cells_of(*tier));
    let n = cells().count();
    let n_missing = cells().filter(|(.., cell)| cell.repeats.is_empty()).count();
    if n_missing == 0 {
        String::new()
    } else {
        format!("{n_missing} of {n} cells without a valid measurement")
    }
}

/// What to say, and of which places.
type Groups = IndexMap<String, Vec<String>>;

fn missing_key(reason: &str) -> String {
    format!("× no valid measurement: {reason}")
}

/// The one reason that a tier has no figure at all; `None` where it has some, or several reasons.
fn reason_of_all(grid: &Grid, tier: usize) -> Option<&str> {
    let mut cells = grid.cells_of(tier).map(|(.., cell)| cell);
    let reason = cells.next()?.missing_because()?;
    let is_same = |cell: &CellFigures| cell.missing_because() == Some(reason);
    (grid.cells_of(tier).count() > 1 && cells.all(is_same)).then_some(reason)
}

/// Sentences below a chart about what its marks cannot say.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    lines: Vec<String>,
}

impl Notes {
    /// Everything missing, infinite or lost in some tiers, in that order.
    pub(super) fn of(grid: &Grid, tiers: &[usize], canvas_width: f64) -> Self {
        let mut missing: Groups = IndexMap::new();
        let mut infinite: Groups = IndexMap::new();
        let mut lost: Groups = IndexMap::new();
        for tier in tiers {
            let of_tier = if tiers.len() > 1 {
                format!("{}, ", grid.tier_label(*tier))
            } else {
                String::new()
            };
            if let Some(reason) = reason_of_all(grid, *tier) {
                let places = missing.entry(missing_key(reason)).or_default();
                places.push(format!("{of_tier}every cell"));
                continue;
            }
            for (panel, line, x, cell) in grid.cells_of(*tier) {
                let place = format!("{of_tier}{}", grid.place_label(panel, line, x));
                if let Some(reason) = cell.missing_because() {
                    missing.entry(missing_key(reason)).or_default().push(place);
                    continue;
                }
                let n = cell.repeats.len() + cell.lost.len();
                let of_n = |some: usize| {
                    if some < n {
                        format!("{place} ({some} of {n} launches)")
                    } else {
                        place.clone()
                    }
                };
                let is_infinite = |repeat: &&Repeat| repeat.value.is_infinite();
                let n_infinite = cell.repeats.iter().filter(is_infinite).count();
                if n_infinite > 0 {
                    let key = "inf: more than 1 % of what was due failed".to_owned();
                    infinite.entry(key).or_default().push(of_n(n_infinite));
                }
                let mut reasons: IndexMap<&str, usize> = IndexMap::new();
                for launch in &cell.lost {
                    *reasons.entry(&launch.reason).or_default() += 1;
                }
                for (reason, some) in reasons {
                    let key = format!("launches without a valid measurement: {reason}");
                    lost.entry(key).or_default().push(of_n(some));
                }
            }
        }
        let groups: Vec<_> = missing.iter().chain(&infinite).chain(&lost).collect();
        let mut notes = Self::default();
        for (what, places) in groups.iter().take(MOST_NOTES) {
            let mut text = format!(
                "{what} – {}",
                places[..places.len().min(MOST_PLACES)].join("; ")
            );
            if places.len() > MOST_PLACES {
                text = format!("{text}; and {} more", places.len() - MOST_PLACES);
            }
            notes.say(&text, canvas_width);
        }
        if groups.len() > MOST_NOTES {
            let left_out = groups.len() - MOST_NOTES;
            notes.say(
                &format!("and {left_out} more reasons, see trials.csv"),
                canvas_width,
            );
        }
        notes
    }

    pub(super) fn say(&mut self, text: &str, canvas_width: f64) {
        let room = canvas_width - 2.0 * MARGIN;
        self.lines.extend(font::wrap(text, NOTE.size, false, room));
    }

    pub(super) fn height(&self) -> f64 {
        if self.lines.is_empty() {
            0.0
        } else {
            self.lines.len() as f64 * NOTE_LINE + 6.0
        }
    }

    pub(super) fn draw(&self, scene: &mut Scene, top: f64) {
        for (index, line) in self.lines.iter().enumerate() {
            let y = top + 12.0 + index as f64 * NOTE_LINE;
            scene.text((MARGIN, y), line, NOTE);
        }
    }
}

const ENTRY: Type = Type::new(12.0);
const ENTRY_LINE: f64 = 20.0;
const ENTRY_MARK: f64 = 40.0;
const ENTRY_ROOM: f64 = 150.0;
/// Lines of a legend's heading.
const MOST_HEAD_LINES: usize = 3;
const LEGEND_HEAD: Type = Type::new(12.0).bold();

/// The lines' marks and levels, in columns beside the plot.
#[derive(Debug, Clone)]
pub(super) struct Legend {
    head: Vec<String>,
    entries: Vec<(Mark, String)>,
    per_column: usize,
    column_width: f64,
}

impl Legend {
    /// As many columns as the height asks for; without entries it takes no room.
    pub(super) fn new(head: &str, entries: Vec<(Mark, String)>, height: f64) -> Self {
        let (marks, texts): (Vec<Mark>, Vec<String>) = entries.into_iter().unzip();
        let texts = font::shorten_all(&texts, ENTRY.size, false, ENTRY_ROOM);
        let entries: Vec<(Mark, String)> = marks.into_iter().zip(texts).collect();
        let widest = entries
            .iter()
            .map(|(_, text)| font::width(text, ENTRY.size, false))
            .fold(40.0, f64::max);
        let column_width = ENTRY_MARK + widest + 16.0;
        let room_px = height - 2.0 * ENTRY_LINE;
        let per_column = ((room_px / ENTRY_LINE).floor() as usize).max(4);
        let n_columns = entries.len().div_ceil(per_column).max(1);
        let width = column_width * n_columns as f64;
        let mut head = font::wrap(head, LEGEND_HEAD.size, true, width.max(110.0));
        if head.len() > MOST_HEAD_LINES {
            head.truncate(MOST_HEAD_LINES);
            if let Some(last) = head.last_mut() {
                last.push('…');
            }
        }
        Self {
            head,
            per_column: entries.len().div_ceil(n_columns).max(1),
            entries,
            column_width,
        }
    }

    pub(super) fn width(&self) -> f64 {
        if self.entries.is_empty() {
            return 0.0;
        }
        let n_columns = self.entries.len().div_ceil(self.per_column);
        let head = self
            .head
            .iter()
            .map(|line| font::width(line, LEGEND_HEAD.size, true))
            .fold(0.0, f64::max);
        (self.column_width * n_columns as f64).max(head) + 22.0
    }

    pub(super) fn draw(&self, scene: &mut Scene, (left, top): (f64, f64)) {
        if self.entries.is_empty() {
            return;
        }
        let left = left + 22.0;
        let mut y = top + 10.0;
        for line in &self.head {
            scene.text((left, y), line, LEGEND_HEAD);
            y += 16.0;
        }
        y += 6.0;
        for (index, (mark, text)) in self.entries.iter().enumerate() {
            let x = left + (index / self.per_column) as f64 * self.column_width;
            let y = y + (index % self.per_column) as f64 * ENTRY_LINE;
            let (from, to) = ((x, y - 4.0), (x + 32.0, y - 4.0));
            if mark.is_dashed {
                scene.dashes(Part::Legend, (from, to), (5.0, 3.0), mark.colour, 2.0);
            } else {
                scene.path(Part::Legend, vec![from, to], mark.colour, 2.0);
            }
            mark.draw(scene, Part::Legend, (x + 16.0, y - 4.0), 4.2);
            scene.text((x + ENTRY_MARK, y), text, ENTRY);
        }
    }
}
