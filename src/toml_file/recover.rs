//! Goes on behind syntax errors, so that they hide no other mistake.
//!
//! The TOML parser recovers inside a line at best. Here the line of an error is
//! taken out and the rest is parsed again, until all of it can be. The text
//! keeps its length, so every offset stays that of the user's file.

use std::ops::Range;

use toml::de::DeTable;

/// Most syntax errors told; a file with more is none of ours.
const MAX_ERRORS: usize = 20;

/// A text that can be parsed, and what was wrong with the lines taken out.
#[derive(Debug)]
pub(super) struct Recovered {
    /// The text; lines with an error are blank, or a table of no meaning.
    pub(super) text: String,
    /// Byte offset and message of each error, one for a line at most.
    pub(super) errors: Vec<(usize, String)>,
    /// Whether the rest was given up.
    pub(super) is_lost: bool,
}

/// Takes out lines until the text is TOML.
pub(super) fn recover(text: &str) -> Recovered {
    let mut recovered = Recovered {
        text: text.to_owned(),
        errors: Vec::new(),
        is_lost: false,
    };
    while let Some((offset, message)) = first_error(&recovered.text) {
        if recovered.errors.len() == MAX_ERRORS {
            recovered.is_lost = true;
            break;
        }
        if let Some((bracket, lines)) = open_bracket(&recovered.text, offset) {
            // The parser meets the next statement while it still waits for the bracket.
            blank(&mut recovered.text, lines);
            let message = "unclosed bracket, the next line begins something new".to_owned();
            recovered.errors.push((bracket, message));
            continue;
        }
        if let Some((quotes, lines)) = open_string(&recovered.text, offset) {
            blank(&mut recovered.text, lines);
            let message = "multi-line string without its closing quotes".to_owned();
            recovered.errors.push((quotes, message));
            continue;
        }
        // An error at the very end belongs to the last line that has text.
        let end = recovered.text.trim_end().len();
        let offset = offset.min(end.saturating_sub(1));
        let n_errors = recovered.errors.len();
        recovered.errors.push((offset, message));
        if recovered.text.is_empty() || !take_out(&mut recovered.text, offset, n_errors) {
            recovered.is_lost = true;
            break;
        }
    }
    recovered
}

fn first_error(text: &str) -> Option<(usize, String)> {
    let (_, errors) = DeTable::parse_recoverable(text);
    errors
        .iter()
        .map(|error| {
            let offset = error.span().map_or(text.len(), |span| span.start);
            (offset, error.message().to_owned())
        })
        .min_by_key(|(offset, _)| *offset)
}

/// The bracket that the error at an offset is about, and the lines to take out for it.
///
/// `None` unless the error is the first thing of a line that begins a key or a
/// section, and a line before it opens more brackets than it closes.
fn open_bracket(text: &str, offset: usize) -> Option<(usize, Range<usize>)> {
    let line_start = text.get(..offset)?.rfind('\n')? + 1;
    let line = text[line_start..].lines().next()?;
    let begins_something = line.trim_start().starts_with('[')
        || line.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim();
            !key.is_empty()
                && key
                    .chars()
                    .all(|letter| letter.is_alphanumeric() || "_-.\"'".contains(letter))
        });
    if !text[line_start..offset].trim().is_empty() || !begins_something {
        return None;
    }
    // The nearest line above with a key holds the value that is still open.
    let mut end = line_start;
    while end > 0 {
        let start = text[..end - 1].rfind('\n').map_or(0, |newline| newline + 1);
        if let Some(equals) = text[start..end].find('=') {
            let value = &text[start + equals..line_start];
            let count = |brackets: [char; 2]| value.matches(brackets).count();
            let first = value.find(['[', '{'])?;
            let is_open = count(['[', '{']) > count([']', '}']);
            return is_open.then_some((start + equals + first, start..line_start));
        }
        end = start;
    }
    None
}

/// The multi-line string that the error at an offset is about, and the lines to
/// take out for it.
///
/// A string that is never closed, or that holds a section's header and ends just
/// before the error: the quotes that close it were meant to open the next one.
fn open_string(text: &str, offset: usize) -> Option<(usize, Range<usize>)> {
    let (string, is_closed) = multi_line_strings(text)
        .into_iter()
        .take_while(|(string, _)| string.start < offset)
        .last()?;
    let header = header_line(&text[string.clone()]).map(|at| string.start + at);
    let is_near = text
        .get(string.end..offset)
        .is_none_or(|between| between.matches('\n').count() <= 1);
    let end = match header {
        Some(header) if is_near => header,
        None if !is_closed => text.len(),
        _ => return None,
    };
    let start = text[..string.start]
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    Some((string.start, start..end))
}

/// Multi-line strings with their quotes, and whether each is closed.
fn multi_line_strings(text: &str) -> Vec<(Range<usize>, bool)> {
    let mut strings = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find(['#', '"', '\'']) {
        let start = at + found;
        let rest = &text[start..];
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let quote = &rest[..1];
        let quotes = quote.repeat(3);
        let has_escapes = quote == "\"";
        at = if quote == "#" {
            start + line.len()
        } else if rest.starts_with(&quotes) {
            let closed = closing(&rest[3..], &quotes, has_escapes);
            let end = start + closed.map_or(rest.len(), |length| 3 + length);
            strings.push((start..end, closed.is_some()));
            end
        } else {
            // What is open at the end of its line is an error of that line.
            let closed = closing(&line[1..], quote, has_escapes);
            start + closed.map_or(line.len(), |length| 1 + length)
        };
    }
    strings
}

/// Bytes up to the end of the first `quotes` that no backslash precedes.
fn closing(text: &str, quotes: &str, has_escapes: bool) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        if rest.starts_with(quotes) {
            return Some(at + quotes.len());
        }
        let mut letters = rest.chars();
        let letter = letters.next()?;
        at += letter.len_utf8();
        if has_escapes && letter == '\\' {
            at += letters.next()?.len_utf8();
        }
    }
}

/// Where the first line begins that is a section's header and nothing else.
fn header_line(text: &str) -> Option<usize> {
    let is_header = |line: &str| {
        let line = line.trim();
        let inside = line.trim_start_matches('[').trim_end_matches(']');
        line.starts_with('[')
            && line.ends_with(']')
            && inside.starts_with(|first: char| first.is_ascii_alphabetic())
            && inside
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter))
    };
    text.match_indices('\n')
        .map(|(newline, _)| newline + 1)
        .find(|start| is_header(text[*start..].lines().next().unwrap_or("")))
}

fn blank(text: &mut String, range: Range<usize>) {
    let spaces: String = text[range.clone()]
        .split('\n')
        .map(|line| " ".repeat(line.len()))
        .collect::<Vec<_>>()
        .join("\n");
    text.replace_range(range, &spaces);
}

/// Blanks the line of an offset; `false` where it is blank already.
fn take_out(text: &mut String, offset: usize, index: usize) -> bool {
    let mut offset = offset;
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[offset..]
        .find('\n')
        .map_or(text.len(), |newline| offset + newline);
    let line = &text[start..end];
    if line.trim().is_empty() {
        return false;
    }
    // Behind a broken header come keys of a section that is not known: they
    // must not fall to the section before it.
    let stand_in = if line.trim_start().starts_with('[') && !line.starts_with("[_") {
        format!("[_{index:x}]")
    } else {
        String::new()
    };
    // Spaces by `repeat`: a format's width ends at 65,535, and a line need not.
    let width = end - start;
    let replacement = match width.checked_sub(stand_in.len()) {
        Some(rest) => format!("{stand_in}{}", " ".repeat(rest)),
        None => " ".repeat(width),
    };
    text.replace_range(start..end, &replacement);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_line_with_the_error_is_lost() {
        let text = "a = 1\nb 2\nc = 3\nd = 'x\ne = 5\n";
        let recovered = recover(text);
        assert_eq!(recovered.text, "a = 1\n   \nc = 3\n      \ne = 5\n");
        assert_eq!(recovered.errors.len(), 2);
        assert!(!recovered.is_lost);
    }

    #[test]
    fn keys_behind_a_broken_header_do_not_fall_to_the_section_before() {
        let recovered = recover("[a]\nx = 1\n[broken\ny = 2\n");
        let (table, errors) = DeTable::parse_recoverable(&recovered.text);
        assert!(errors.is_empty(), "{errors:?}");
        let keys = table.get_ref()["a"].get_ref().as_table().expect("a table");
        assert_eq!(keys.len(), 1);
    }

    #[test]
    fn an_open_bracket_loses_its_own_lines_only() {
        let recovered = recover("a = 1\nb = [1,\n  2,\nc = 3\n[d]\ne = { x = 1\nf = 2\n");
        assert_eq!(
            recovered.text,
            "a = 1\n       \n    \nc = 3\n[d]\n           \nf = 2\n"
        );
        let places: Vec<_> = recovered.errors.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [10, 33]);
    }

    #[test]
    fn an_open_multi_line_string_ends_before_the_next_section() {
        let text = "[a]\nx = '''\n{}\n[[b]]\ny = '''\n{}\n'''\n[[b]]\ny = 2\n";
        let recovered = recover(text);
        assert_eq!(
            recovered.errors,
            [(8, "multi-line string without its closing quotes".to_owned())]
        );
        let (table, errors) = DeTable::parse_recoverable(&recovered.text);
        assert!(errors.is_empty(), "{errors:?}");
        let blocks = table.get_ref()["b"].get_ref().as_array().expect("blocks");
        assert_eq!(blocks.len(), 2);

        let last = recover("x = 1\ny = \"\"\"a \\\"\"\" b\n");
        assert_eq!((last.errors.len(), last.errors[0].0), (1, 10));
        assert!(!last.is_lost);
    }

    #[test]
    fn a_whole_multi_line_string_is_not_blamed_for_what_follows() {
        let text = "x = '''\n[a]\n''' # \"\"\"\ny = 'a # \"\"\"'\nz 1\n[b]\n";
        let recovered = recover(text);
        let places: Vec<_> = recovered.errors.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [text.find("z 1").unwrap() + 2]);
    }

    #[test]
    fn a_broken_line_may_be_longer_than_a_format_is_wide() {
        for broken in ["x", "[x"] {
            let text = format!("{broken} {}\ny = 1\n", "é, ".repeat(30_000));
            let recovered = recover(&text);
            assert_eq!(recovered.text.len(), text.len());
            assert_eq!(recovered.errors.len(), 1);
            assert!(recovered.text.ends_with(" \ny = 1\n"));
        }
    }

    #[test]
    fn hopeless_texts_end_after_a_bounded_number_of_errors() {
        let recovered = recover(&"= =\n".repeat(1000));
        assert!(recovered.is_lost);
        assert_eq!(recovered.errors.len(), MAX_ERRORS);
    }

    proptest! {
        #[test]
        fn any_text_recovers_to_toml_of_the_same_length(text in "([a-c\\[\\]=\"'\\n\\r #.,{}1é\\\\]|'''|\"\"\"|\\n\\[a\\]\\n){0,60}") {
            let recovered = recover(&text);
            prop_assert_eq!(recovered.text.len(), text.len());
            prop_assert!(recovered.is_lost || first_error(&recovered.text).is_none());
        }
    }
}
