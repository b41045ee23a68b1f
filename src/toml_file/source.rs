//! The text of one file, and the places inside it.
//!
//! Expressions and templates sit inside TOML strings, so a place inside a
//! string's *content* has to be found in the file again: behind the opening
//! quotes, past escapes. Nothing here judges what the text says.

use std::path::Path;

use crate::problem::{Location, Problem};

/// A value and the place it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it is.
    pub location: Location,
}

/// The content of a TOML string or key, whose characters can be found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quoted {
    /// The content as it was read, escapes resolved.
    pub text: String,
    /// Byte offset of its opening quote, or of the first letter of a bare key.
    pub at: usize,
}

/// A text with its name and the starts of its lines.
#[derive(Debug)]
pub struct Source<'t> {
    path: &'t Path,
    text: &'t str,
    line_starts: Vec<usize>,
}

impl<'t> Source<'t> {
    /// Indexes the lines once, since a long axis asks for many places.
    pub(super) fn new(path: &'t Path, text: &'t str) -> Self {
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self {
            path,
            text,
            line_starts,
        }
    }

    /// The file as the user named it.
    pub fn path(&self) -> &'t Path {
        self.path
    }

    /// Bytes of the text.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The place of a byte offset; past the end is the end.
    pub fn at(&self, offset: usize) -> Location {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.line_starts.partition_point(|start| *start <= end);
        let line_start = self.line_starts[line - 1];
        Location {
            file: self.path.to_owned(),
            line,
            column: self.text[line_start..end].chars().count() + 1,
        }
    }

    /// The place of a byte offset of a text's content.
    pub fn inside(&self, text: &Quoted, offset: usize) -> Location {
        let index = text
            .text
            .char_indices()
            .take_while(|(at, _)| *at < offset)
            .count();
        self.in_string(text.at, index)
    }

    /// The place of the `index`th character of the string that begins at `start`.
    fn in_string(&self, start: usize, index: usize) -> Location {
        self.at(start + raw_length(self.text.get(start..).unwrap_or(""), index))
    }

    /// The line, from 1, that a byte offset is on.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// A line, from 1, with its newline.
    pub(super) fn line(&self, line: usize) -> &'t str {
        let start = self.line_starts.get(line - 1).copied();
        let end = self.line_starts.get(line).copied();
        &self.text[start.unwrap_or(self.text.len())..end.unwrap_or(self.text.len())]
    }

    /// The first line behind `line` that looks like a section's header.
    pub(super) fn next_header_line(&self, line: usize) -> usize {
        let behind = self.line_starts.iter().enumerate().skip(line);
        behind
            .map(|(index, start)| (index + 1, &self.text[*start..]))
            .find(|(_, rest)| rest.trim_start_matches([' ', '\t']).starts_with('['))
            .map_or(usize::MAX, |(found, _)| found)
    }

    /// A problem at a byte offset.
    pub fn problem(&self, offset: usize, message: impl Into<String>) -> Problem {
        Problem::new(self.at(offset), message)
    }
}

/// Where the characters of an expression are in the user's text.
#[derive(Debug)]
pub enum Content<'s, 't> {
    /// A TOML string; `start` is the offset of its opening quote.
    Quoted {
        /// The file.
        source: &'s Source<'t>,
        /// Offset of the opening quote.
        start: usize,
    },
    /// The text itself, as on a command line.
    Plain {
        /// Named in place of a file.
        name: &'s Path,
    },
}

impl Content<'_, '_> {
    /// The place of the `index`th character of `text`, the content as it was read.
    pub fn at(&self, text: &str, index: usize) -> Location {
        match self {
            Self::Quoted { source, start } => source.in_string(*start, index),
            Self::Plain { name } => {
                let offset = text
                    .char_indices()
                    .nth(index)
                    .map_or(text.len(), |(at, _)| at);
                Location::of_offset(name, text, offset)
            }
        }
    }
}

/// Bytes from the opening quote of a TOML string to its `index`th character.
///
/// **Source**: TOML 1.1, strings: four kinds of quotes; the first newline of a
/// multi-line string is trimmed; a backslash before a newline trims the white
/// space that follows.
fn raw_length(raw: &str, index: usize) -> usize {
    let (opening, has_escapes) = match raw {
        _ if raw.starts_with("\"\"\"") => (3, true),
        _ if raw.starts_with("'''") => (3, false),
        _ if raw.starts_with('"') => (1, true),
        _ if raw.starts_with('\'') => (1, false),
        _ => (0, false),
    };
    let mut at = opening;
    if opening == 3 {
        let after = &raw[at..];
        at += ["\r\n", "\n"]
            .iter()
            .find(|newline| after.starts_with(**newline))
            .map_or(0, |newline| newline.len());
    }
    let mut seen = 0;
    while let Some(character) = raw[at..].chars().next() {
        let rest = &raw[at + character.len_utf8()..];
        let escape = if has_escapes && character == '\\' {
            rest.chars().next()
        } else {
            None
        };
        if escape.is_some_and(char::is_whitespace) {
            // Trimmed: stands for no character at all.
            at = raw.len() - rest.trim_start().len();
            continue;
        }
        if seen == index {
            break;
        }
        seen += 1;
        at += character.len_utf8()
            + match escape {
                None => 0,
                Some('x') => 3,
                Some('u') => 5,
                Some('U') => 9,
                Some(kind) => kind.len_utf8(),
            };
        if at > raw.len() || !raw.is_char_boundary(at) {
            return raw.len();
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, needle: &str, content: &str, index: usize) -> (usize, usize) {
        let path = Path::new("m.toml");
        let source = Source::new(path, text);
        let start = text.find(needle).unwrap();
        let content_of = Content::Quoted {
            source: &source,
            start,
        };
        let found = content_of.at(content, index);
        (found.line, found.column)
    }

    #[test]
    fn a_place_in_a_plain_string_is_behind_its_quote() {
        assert_eq!(place("a = \"b * c\"", "\"", "b * c", 4), (1, 10));
        assert_eq!(place("a = 'b * c'", "'", "b * c", 0), (1, 6));
        assert_eq!(place("a = 'b'", "'", "b", 1), (1, 7), "the end");
        assert_eq!(
            place("a = 'b'", "'", "b", 99),
            (1, 8),
            "never past the text"
        );
    }

    #[test]
    fn escapes_count_as_the_one_character_they_stand_for() {
        let text = r#"a = "x == \"y\" + \u0041z""#;
        let content = "x == \"y\" + Az";
        assert_eq!(place(text, "\"", content, 6), (1, 13));
        assert_eq!(place(text, "\"", content, 12), (1, 25));
    }

    #[test]
    fn multi_line_strings_keep_their_lines() {
        let text = "a = \"\"\"\nb +\n  c\"\"\"";
        assert_eq!(place(text, "\"", "b +\n  c", 0), (2, 1));
        assert_eq!(place(text, "\"", "b +\n  c", 6), (3, 3));
        let trimmed = "a = \"\"\"b + \\\n   c\"\"\"";
        assert_eq!(place(trimmed, "\"", "b + c", 4), (2, 4));
        let literal = "a = '''\nb\\\nc'''";
        assert_eq!(place(literal, "'", "b\\\nc", 3), (3, 1));
    }

    #[test]
    fn lines_and_columns_agree_with_the_shared_rule() {
        let text = "ä = 1\n\nb = \"ü\"\n";
        let path = Path::new("m.toml");
        let source = Source::new(path, text);
        for offset in 0..text.len() + 3 {
            assert_eq!(
                source.at(offset),
                Location::of_offset(path, text, offset),
                "{offset}"
            );
        }
    }
}
