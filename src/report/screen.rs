//! What a terminal can show: its width, its letters, its colours.
//!
//! **Invariant**: meaning never rests on colour, and a text has the same columns with
//! and without block characters. Text is made with all of them and turned plain at the end.

/// What can be shown where a text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Characters to a line.
    pub columns: usize,
    /// Whether it shows more than ASCII.
    pub is_unicode: bool,
    /// Whether it takes colours.
    pub has_colour: bool,
}

/// What a stretch of text is, for those who see colours.
///
/// Blue and orange are told apart by nearly everybody, on dark and on light ground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// A heading, or what matters most.
    Strong,
    /// What is there to be passed over.
    Faint,
    /// Successes, and how long they took.
    Good,
    /// Failures.
    Bad,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[38;5;33m",
            Self::Bad => "\x1b[38;5;208m",
        }
    }
}

impl Screen {
    /// A page: files, pipes, snapshots.
    pub const PAGE: Self = Self {
        columns: 100,
        is_unicode: true,
        has_colour: false,
    };

    /// A text in a colour, where there are any.
    pub fn paint(self, ink: Ink, text: &str) -> String {
        if self.has_colour && !text.is_empty() {
            format!("{}{text}\x1b[0m", ink.code())
        } else {
            text.to_owned()
        }
    }

    /// The text as this screen can show it.
    pub fn shown(self, text: &str) -> String {
        if self.is_unicode {
            text.to_owned()
        } else {
            text.chars().map(plain).collect()
        }
    }

    /// The beginning of a text, as far as a line goes. Colours come after this.
    pub fn cut(self, text: &str) -> String {
        text.chars().take(self.columns).collect()
    }
}

/// The letter of ASCII that stands for one of ours; whatever users wrote stays.
fn plain(letter: char) -> char {
    match letter {
        '─' | '–' | '▄' => '-',
        '│' | '┤' | '▕' | '▏' | '·' => '|',
        '└' | '┼' | '▆' => '+',
        '…' | '▂' => '.',
        '▁' => '_',
        '▃' | '▎' | '▍' => ':',
        '▅' => '=',
        '▇' => '*',
        '█' | '▌' | '▋' | '▊' | '▉' => '#',
        'µ' => 'u',
        '≥' => '>',
        '≤' => '<',
        other => other,
    }
}

/// Blocks that fill a line from the left, by eighths.
const FROM_LEFT: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// Blocks that fill a column from below, by eighths.
const FROM_BELOW: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar as long as its share of so many columns; a share above nothing is always seen.
pub(super) fn bar(share: f64, columns: usize) -> String {
    let eighths = eighths(share, columns);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(FROM_LEFT[eighths % 8 - 1]);
    }
    bar
}

/// Lines of a chart with one column for each share, the highest line first.
pub(super) fn columns(shares: &[f64], height: usize) -> Vec<String> {
    let filled: Vec<usize> = shares.iter().map(|share| eighths(*share, height)).collect();
    let line = |below: usize| {
        let letter = |filled: &usize| match filled.saturating_sub(8 * below) {
            0 => ' ',
            most @ 1..8 => FROM_BELOW[most - 1],
            _ => '█',
        };
        filled.iter().map(letter).collect::<String>()
    };
    (0..height).rev().map(line).collect()
}

fn eighths(share: f64, cells: usize) -> usize {
    let all = 8 * cells;
    let part = (share.clamp(0.0, 1.0) * all as f64).round() as usize;
    if share > 0.0 { part.max(1) } else { part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_columns_have_eighths_and_a_little_is_never_nothing() {
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.53, 4), "██▏");
        assert_eq!(bar(2.0, 4), "████");
        let chart = columns(&[0.0, 1e-9, 0.5, 0.75, 1.0], 2);
        assert_eq!(chart, ["   ▄█", " ▁███"]);
    }

    #[test]
    fn without_unicode_every_letter_of_ours_becomes_one_of_ascii() {
        let ascii = Screen {
            is_unicode: false,
            ..Screen::PAGE
        };
        let ours = "─–│┤▕▏·└┼…▁▂▃▄▅▆▇█▎▍▌▋▊▉µ≥≤";
        let shown = ascii.shown(ours);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(shown.chars().count(), ours.chars().count());
        assert_eq!(ascii.shown("GET /ü"), "GET /ü", "names are the user's");
        assert_eq!(Screen::PAGE.shown(ours), ours);
    }

    #[test]
    fn colours_come_only_where_they_are_wanted() {
        assert_eq!(Screen::PAGE.paint(Ink::Bad, "x"), "x");
        let colourful = Screen {
            has_colour: true,
            ..Screen::PAGE
        };
        assert_eq!(colourful.paint(Ink::Strong, "x"), "\x1b[1mx\x1b[0m");
        assert_eq!(colourful.paint(Ink::Strong, ""), "");
    }
}
