//! Walks a TOML document table by table and notes every mistake.
//!
//! A [`Table`] hands out entries by key, in file order, and remembers which
//! keys were asked for; what was not asked for is unknown. Every getter that
//! finds the wrong kind of value notes a problem and answers `None`, so the
//! caller goes on and later mistakes are found too. Which keys there are is
//! `read`'s business.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::Source;
use super::sweep::Located;
use super::value::{describe, number_of};
use crate::problem::{Problem, nearest};
use crate::units::parse_duration;

/// How messages name the document itself.
const DOCUMENT: &str = "the file";

/// Most problems told of one file: a generated file may have one mistake a
/// hundred thousand times, and finding a place in a long line takes time.
const MAX_PROBLEMS: usize = 500;

/// The problems found so far.
///
/// **Shape**: in the order found; `read` sorts them by place.
#[derive(Debug)]
pub(super) struct Notes<'t> {
    pub(super) source: &'t Source<'t>,
    pub(super) problems: Vec<Problem>,
    /// Lines with a syntax error, which were taken out before reading.
    broken_lines: Vec<usize>,
    /// The last syntax error.
    last_syntax: Option<(usize, String)>,
}

impl<'t> Notes<'t> {
    pub(super) fn new(source: &'t Source<'t>) -> Self {
        Self {
            source,
            problems: Vec::new(),
            broken_lines: Vec::new(),
            last_syntax: None,
        }
    }

    /// Notes a syntax error.
    pub(super) fn syntax(&mut self, offset: usize, message: &str) {
        let problem = self
            .source
            .problem(offset, format!("this is not TOML: {message}"));
        let line = problem.location.line;
        // An open bracket or quote breaks line after line: once is enough.
        let is_more_of_it = self
            .last_syntax
            .as_ref()
            .is_some_and(|(last, said)| last.abs_diff(line) <= 1 && said == message);
        self.last_syntax = Some((line, message.to_owned()));
        self.broken_lines.push(line);
        if !is_more_of_it {
            self.problems.push(problem);
        }
    }

    /// Notes a problem at a byte offset.
    pub(super) fn add(&mut self, offset: usize, message: impl Into<String>) {
        if !self.is_full() {
            self.push(self.source.problem(offset, message));
        }
    }

    /// Notes a problem with a next step.
    pub(super) fn hint(&mut self, offset: usize, message: impl Into<String>, hint: &str) {
        if !self.is_full() {
            self.push(self.source.problem(offset, message).with_hint(hint));
        }
    }

    /// Whether so many problems are noted that the rest is left for the next reading.
    pub(super) fn is_full(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    /// Notes a problem made elsewhere.
    pub(super) fn push(&mut self, problem: Problem) {
        if !self.is_full() && !self.broken_lines.contains(&problem.location.line) {
            self.problems.push(problem);
        }
    }

    /// Lines with a syntax error in the section that begins at an offset.
    fn broken_lines_from(&self, start: usize) -> Vec<usize> {
        let first = self.source.line_of(start);
        let next = self.source.next_header_line(first);
        let lines = self.broken_lines.iter().copied();
        lines.filter(|line| (first..next).contains(line)).collect()
    }
}

/// One key with its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'d> {
    /// The key.
    pub(super) key: &'d str,
    /// Byte offset of the key.
    pub(super) key_at: usize,
    /// The value with its span.
    pub(super) value: &'d Spanned<DeValue<'d>>,
}

impl Entry<'_> {
    /// Byte offset of the value.
    pub(super) fn at(&self) -> usize {
        self.value.span().start
    }
}

/// A table being read.
#[derive(Debug)]
pub(super) struct Table<'d> {
    /// How messages name it: `[load]`.
    name: String,
    /// Byte offset of its header or of its key.
    at: usize,
    entries: Vec<Entry<'d>>,
    /// Keys that are allowed.
    asked: Vec<&'static str>,
    /// Keys that are reserved.
    later: Vec<&'static str>,
    /// Required keys that are not there, each with an example.
    missing: Vec<(&'static str, String)>,
}

impl<'d> Table<'d> {
    /// The whole document.
    pub(super) fn document(table: &'d DeTable<'d>) -> Self {
        Self::over(DOCUMENT, 0, table)
    }

    fn over(name: &str, at: usize, table: &'d DeTable<'d>) -> Self {
        let mut entries: Vec<Entry<'d>> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().as_ref(),
                key_at: key.span().start,
                value,
            })
            .collect();
        // The library sorts by key; our order is that of the file.
        entries.sort_by_key(|entry| entry.key_at);
        Self {
            name: name.to_owned(),
            at,
            entries,
            asked: Vec::new(),
            later: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// The table behind an entry.
    pub(super) fn of(entry: &Entry<'d>, name: &str, notes: &mut Notes<'_>) -> Option<Self> {
        match entry.value.get_ref() {
            DeValue::Table(table) => Some(Self::over(name, entry.key_at, table)),
            other => {
                notes.add(
                    entry.at(),
                    format!("{name} must be a table, not {}", describe(other)),
                );
                None
            }
        }
    }

    /// How messages name the table.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Byte offset where the table begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Whether it has no key.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries in file order, for tables whose keys are the user's own.
    pub(super) fn into_entries(self) -> Vec<Entry<'d>> {
        self.entries
    }

    /// The entry of a key, which is known from now on.
    pub(super) fn get(&mut self, key: &'static str) -> Option<Entry<'d>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.find(key)
    }

    fn find(&self, key: &str) -> Option<Entry<'d>> {
        self.entries.iter().find(|entry| entry.key == key).copied()
    }

    /// The entry of a key that must be there; told by `finish` if it is not.
    pub(super) fn need(&mut self, key: &'static str, example: &str) -> Option<Entry<'d>> {
        let found = self.get(key);
        if found.is_none() {
            self.missing.push((key, example.to_owned()));
        }
        found
    }

    /// Whether a key is there that this version cannot do.
    pub(super) fn has_later(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.find(key).is_some())
    }

    /// Notes a key of the format that this version cannot do.
    pub(super) fn not_yet(&mut self, key: &'static str, notes: &mut Notes<'_>) {
        self.later.push(key);
        if let Some(entry) = self.find(key) {
            let name = if self.is_document() {
                format!("[{key}]")
            } else {
                format!("`{key}` in {}", self.name)
            };
            notes.add(entry.key_at, format!("{name} is not yet supported"));
        }
    }

    /// Whether a line of it was taken out, so that what is missing may be there.
    pub(super) fn is_broken(&self, notes: &Notes<'_>) -> bool {
        if self.is_document() {
            !notes.broken_lines.is_empty()
        } else {
            !notes.broken_lines_from(self.at).is_empty()
        }
    }

    /// Keys of lines that were taken out.
    pub(super) fn broken_keys(&self, notes: &Notes<'_>) -> Vec<String> {
        notes
            .broken_lines_from(self.at)
            .into_iter()
            .filter_map(|line| notes.source.line(line).split_once('='))
            .map(|(key, _)| key.trim().to_owned())
            .filter(|key| !key.is_empty())
            .collect()
    }

    fn is_document(&self) -> bool {
        self.name == DOCUMENT
    }

    /// Notes every key that nobody asked for, and every required one that is missing.
    pub(super) fn finish(self, notes: &mut Notes<'_>) {
        let mut missing = self.missing.clone();
        for entry in &self.entries {
            if self.asked.contains(&entry.key) || self.later.contains(&entry.key) {
                continue;
            }
            // A missing key that is only mistyped is one mistake, not two.
            let absent = nearest(entry.key, missing.iter().map(|(key, _)| *key));
            let known = self.asked.iter().chain(&self.later).copied();
            let hint = absent.or_else(|| nearest(entry.key, known)).map_or_else(
                || format!("allowed here: {}", self.asked.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            missing.retain(|(key, _)| Some(*key) != absent);
            notes.hint(
                entry.key_at,
                format!("unknown key `{}` in {}", entry.key, self.name),
                &hint,
            );
        }
        // A line that is not TOML may be the one that holds the key.
        if self.is_broken(notes) {
            return;
        }
        for (key, example) in missing {
            let what = if self.is_document() && example.starts_with('[') {
                example.clone()
            } else {
                format!("`{key}`")
            };
            notes.hint(
                self.at,
                format!("{} has no {what}", self.name),
                &format!("add a line such as: {example}"),
            );
        }
    }

    fn wrong(&self, entry: &Entry<'_>, wanted: &str, notes: &mut Notes<'_>) {
        notes.add(
            entry.at(),
            format!(
                "`{}` in {} must be {wanted}, not {}",
                entry.key,
                self.name,
                describe(entry.value.get_ref())
            ),
        );
    }

    /// A text that is not blank.
    pub(super) fn text(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Located<String>> {
        match entry.value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Some(Located {
                value: text.as_ref().to_owned(),
                location: notes.source.at(entry.at()),
            }),
            DeValue::String(_) => {
                notes.add(
                    entry.at(),
                    format!("`{}` in {} must not be empty", entry.key, self.name),
                );
                None
            }
            _ => {
                self.wrong(entry, "a text", notes);
                None
            }
        }
    }

    /// A list of texts that are not blank, none of them twice.
    pub(super) fn texts(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Vec<Located<String>> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            self.wrong(entry, "a list of texts", notes);
            return Vec::new();
        };
        let mut texts: Vec<Located<String>> = Vec::new();
        for item in items {
            let one = Entry {
                value: item,
                ..*entry
            };
            match item.get_ref() {
                DeValue::String(_) => {
                    let Some(text) = self.text(&one, notes) else {
                        continue;
                    };
                    if texts.iter().any(|earlier| earlier.value == text.value) {
                        notes.add(
                            one.at(),
                            format!(
                                "`{}` in {} lists `{}` twice",
                                entry.key, self.name, text.value
                            ),
                        );
                    } else {
                        texts.push(text);
                    }
                }
                _ => self.wrong(&one, "a list of texts", notes),
            }
        }
        texts
    }

    /// `true` or `false`.
    pub(super) fn truth(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<bool> {
        if let DeValue::Boolean(truth) = entry.value.get_ref() {
            Some(*truth)
        } else {
            self.wrong(entry, "true or false", notes);
            None
        }
    }

    /// A whole number in a range.
    pub(super) fn whole(
        &self,
        entry: &Entry<'_>,
        allowed: Range<u64>,
        notes: &mut Notes<'_>,
    ) -> Option<u64> {
        let number = match entry.value.get_ref() {
            DeValue::Integer(number) => {
                u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix()).ok()
            }
            _ => None,
        };
        let found = number.filter(|number| allowed.contains(number));
        if found.is_none() {
            let wanted = if allowed.end == u64::MAX {
                format!("a whole number, {} or more", allowed.start)
            } else {
                format!(
                    "a whole number from {} to {}",
                    allowed.start,
                    allowed.end - 1
                )
            };
            self.wrong(entry, &wanted, notes);
        }
        found
    }

    /// A finite number.
    pub(super) fn number(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<f64> {
        let number = number_of(entry.value.get_ref()).filter(|number| number.is_finite());
        if number.is_none() {
            self.wrong(entry, "a number", notes);
        }
        number
    }

    /// A length of time.
    pub(super) fn duration(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
        let DeValue::String(text) = entry.value.get_ref() else {
            self.wrong(entry, "a duration such as \"45s\" or \"1m30s\"", notes);
            return None;
        };
        match parse_duration(text) {
            Ok(duration) => Some(duration),
            Err(error) => {
                notes.add(
                    entry.at(),
                    format!("`{}` in {}: {error}", entry.key, self.name),
                );
                None
            }
        }
    }

    /// A length of time that is not zero.
    pub(super) fn some_time(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
        let duration = self.duration(entry, notes)?;
        if duration.is_zero() {
            notes.add(
                entry.at(),
                format!("`{}` in {} must be longer than 0", entry.key, self.name),
            );
            return None;
        }
        Some(duration)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &self,
        entry: &Entry<'_>,
        allowed: &[(&str, T)],
        later: &[&str],
        notes: &mut Notes<'_>,
    ) -> Option<T> {
        let DeValue::String(text) = entry.value.get_ref() else {
            self.wrong(entry, &either(allowed), notes);
            return None;
        };
        if let Some((_, meaning)) = allowed.iter().find(|(word, _)| word == text) {
            return Some(*meaning);
        }
        if later.contains(&text.as_ref()) {
            notes.add(
                entry.at(),
                format!(
                    "`{} = \"{text}\"` in {} is not yet supported",
                    entry.key, self.name
                ),
            );
        } else {
            self.wrong(entry, &either(allowed), notes);
        }
        None
    }
}

fn either<T>(allowed: &[(&str, T)]) -> String {
    allowed
        .iter()
        .map(|(word, _)| format!("\"{word}\""))
        .collect::<Vec<_>>()
        .join(" or ")
}
