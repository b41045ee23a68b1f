//! What is wrong in a user's file, and where.
//!
//! Every reader of user files (matrix, Compose, workload) collects [`Problem`]s
//! instead of stopping at the first one, so that one `check` shows them all.
//! This module knows text and positions only; it opens no file.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file the user wrote.
///
/// **Units**: line and column count from 1; the column counts characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file as the user named it.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Location {
    /// The place of a byte offset in a text.
    ///
    /// An offset past the end is the end of the text.
    pub fn of_offset(file: &Path, text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// The first character of a file, for problems of the file as a whole.
    pub fn start_of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            line: 1,
            column: 1,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// One mistake in a user's file.
///
/// `message` is a lower-case fragment that names the key, the bad value and
/// what is allowed; `hint` is the next step, shown on a line of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// Where it is.
    pub location: Location,
    /// What is wrong.
    pub message: String,
    /// What to do next, where that is not plain from the message.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(location: Location, message: impl Into<String>) -> Self {
        Self {
            location,
            message: message.into(),
            hint: None,
        }
    }

    /// The same problem with a next step.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// All mistakes of one reading, in the order of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The candidate a mistyped word was probably meant to be.
///
/// `None` when nothing is close: a third of the longer word's letters may
/// differ, and always one. Letter case costs nothing. Of equally close
/// candidates the first one wins.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lowered: Vec<char> = word.to_lowercase().chars().collect();
    let mut best: Option<(usize, &'a str)> = None;
    for candidate in candidates {
        let letters: Vec<char> = candidate.to_lowercase().chars().collect();
        let allowed = (lowered.len().max(letters.len()) / 3).max(1);
        // The difference in length is a lower bound of the distance.
        if lowered.len().abs_diff(letters.len()) > allowed {
            continue;
        }
        let distance = edit_distance(&lowered, &letters);
        if distance <= allowed && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one word to another.
///
/// **Source**: the optimal string alignment form of the Damerau-Levenshtein
/// distance; plain Levenshtein counts swapped letters, the commonest slip, twice.
fn edit_distance(from: &[char], to: &[char]) -> usize {
    let mut before_last = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 0..from.len() {
        let mut row = vec![i + 1; to.len() + 1];
        for j in 0..to.len() {
            let replaced = last[j] + usize::from(from[i] != to[j]);
            row[j + 1] = replaced.min(row[j] + 1).min(last[j + 1] + 1);
            if i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j] {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

/// An error and its causes on one line, for places that keep text only.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_counts_characters_not_bytes() {
        let place = Location::of_offset(Path::new("m.toml"), "a = 1\nü = µ", "a = 1\nü = ".len());
        assert_eq!(place.to_string(), "m.toml:2:5");
    }

    #[test]
    fn an_offset_past_the_end_is_the_end() {
        let place = Location::of_offset(Path::new("m.toml"), "ab\n", 99);
        assert_eq!((place.line, place.column), (2, 1));
    }

    #[test]
    fn the_nearest_word_is_close_or_nothing() {
        let keys = ["repeats", "order", "seed", "state"];
        assert_eq!(nearest("repeat", keys), Some("repeats"));
        assert_eq!(nearest("Seed", keys), Some("seed"));
        assert_eq!(nearest("ordre", keys), Some("order"));
        assert_eq!(nearest("odrer", ["older", "order"]), Some("order"));
        assert_eq!(nearest("teir", ["tier"]), Some("tier"));
        assert_eq!(nearest("oder", keys), Some("order"));
        assert_eq!(nearest("workload", keys), None);
        assert_eq!(nearest("", keys), None);
    }

    #[test]
    fn edit_distance_matches_known_pairs() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        for (from, to, distance) in [
            ("kitten", "sitting", 3),
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("flaw", "lawn", 2),
            ("order", "odrer", 1),
            ("ca", "abc", 3),
        ] {
            assert_eq!(
                edit_distance(&chars(from), &chars(to)),
                distance,
                "{from} {to}"
            );
        }
    }
}
