//! Walks a TOML document table by table and notes every mistake.
//!
//! A [`Table`] hands out entries by key, in file order, and remembers which
//! keys were asked for; what was not asked for is unknown. Every getter that
//! finds the wrong kind of value notes a problem and answers `None`, so the
//! caller goes on and later mistakes are found too. Which keys there are is the
//! business of whoever asks.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::notes::Notes;
use super::source::{Located, Quoted};
use super::value::{describe, number_of};
use crate::problem::nearest;
use crate::units::parse_duration;

/// One key with its value.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'d> {
    /// The key.
    pub key: &'d str,
    /// Byte offset of the key.
    pub key_at: usize,
    /// The value with its span.
    pub value: &'d Spanned<DeValue<'d>>,
}

impl<'d> Entry<'d> {
    /// The entries of a table in file order; the library sorts them by key.
    pub fn all(table: &'d DeTable<'d>) -> Vec<Self> {
        let mut entries: Vec<Self> = table
            .iter()
            .map(|(key, value)| Self {
                key: key.get_ref().as_ref(),
                key_at: key.span().start,
                value,
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_at);
        entries
    }

    /// Byte offset of the value.
    pub fn at(&self) -> usize {
        self.value.span().start
    }

    /// The key as a text with places.
    pub fn quoted_key(&self) -> Quoted {
        Quoted {
            text: self.key.to_owned(),
            at: self.key_at,
        }
    }
}

/// A table being read.
#[derive(Debug)]
pub struct Table<'d> {
    /// How messages name it: `[load]`.
    name: String,
    /// Whether it is the whole document, whose tables are sections.
    is_document: bool,
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
    pub(super) fn document(table: &'d DeTable<'d>, name: &str) -> Self {
        Self {
            is_document: true,
            ..Self::over(name, 0, table)
        }
    }

    fn over(name: &str, at: usize, table: &'d DeTable<'d>) -> Self {
        Self {
            name: name.to_owned(),
            is_document: false,
            at,
            entries: Entry::all(table),
            asked: Vec::new(),
            later: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// The table behind an entry.
    pub fn of(entry: &Entry<'d>, name: &str, notes: &mut Notes<'_>) -> Option<Self> {
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

    /// The tables of a list that is written as blocks: `[[phase]]`.
    ///
    /// Messages name a block by its `name`, or by its number.
    pub fn blocks(entry: &Entry<'d>, name: &str, notes: &mut Notes<'_>) -> Vec<Self> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            notes.add(
                entry.key_at,
                format!(
                    "`{name}` is written [[{name}]], one block each, not as {}",
                    describe(entry.value.get_ref())
                ),
            );
            return Vec::new();
        };
        let blocks = items.iter().enumerate().filter_map(|(index, item)| {
            let one = Entry {
                value: item,
                key_at: item.span().start,
                ..*entry
            };
            Self::of(&one, &block_label(name, item.get_ref(), index), notes)
        });
        blocks.collect()
    }

    /// How messages name the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Byte offset where the table begins.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries in file order, for tables whose keys are the user's own.
    pub fn entries(&self) -> Vec<Entry<'d>> {
        self.entries.clone()
    }

    /// The entry of a key, which is known from now on.
    pub fn get(&mut self, key: &'static str) -> Option<Entry<'d>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.find(key)
    }

    fn find(&self, key: &str) -> Option<Entry<'d>> {
        self.entries.iter().find(|entry| entry.key == key).copied()
    }

    /// The entry of a key that must be there; told by `finish` if it is not.
    pub fn need(&mut self, key: &'static str, example: &str) -> Option<Entry<'d>> {
        let found = self.get(key);
        if found.is_none() {
            self.missing.push((key, example.to_owned()));
        }
        found
    }

    /// Whether a key is there that this version cannot do.
    pub fn has_later(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.find(key).is_some())
    }

    /// Notes a key of the format that this version cannot do.
    pub fn not_yet(&mut self, key: &'static str, notes: &mut Notes<'_>) {
        self.later.push(key);
        if let Some(entry) = self.find(key) {
            let name = match entry.value.get_ref() {
                DeValue::Table(_) if self.is_document => format!("[{key}]"),
                DeValue::Array(items)
                    if self.is_document
                        && items.first().is_some_and(|item| item.get_ref().is_table()) =>
                {
                    format!("[[{key}]]")
                }
                _ => format!("`{key}` in {}", self.name),
            };
            notes.add(entry.key_at, format!("{name} is not yet supported"));
        }
    }

    /// Whether a line of it was taken out, so that what is missing may be there.
    pub fn is_broken(&self, notes: &Notes<'_>) -> bool {
        if self.is_document {
            notes.is_broken()
        } else {
            !notes.broken_lines_from(self.at).is_empty()
        }
    }

    /// Keys of lines that were taken out.
    pub fn broken_keys(&self, notes: &Notes<'_>) -> Vec<String> {
        notes
            .broken_lines_from(self.at)
            .into_iter()
            .filter_map(|line| notes.source().line(line).split_once('='))
            .map(|(key, _)| key.trim().to_owned())
            .filter(|key| !key.is_empty())
            .collect()
    }

    /// Notes every key that nobody asked for, and every required one that is missing.
    pub fn finish(self, notes: &mut Notes<'_>) {
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
                hint,
            );
        }
        // A line that is not TOML may be the one that holds the key.
        if self.is_broken(notes) {
            return;
        }
        for (key, example) in missing {
            let what = if self.is_document && example.starts_with('[') {
                example.clone()
            } else {
                format!("`{key}`")
            };
            notes.hint(
                self.at,
                format!("{} has no {what}", self.name),
                format!("add a line such as: {example}"),
            );
        }
    }

    /// Notes that a value is not what it must be.
    pub fn wrong(&self, entry: &Entry<'_>, wanted: &str, notes: &mut Notes<'_>) {
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

    /// A text, be it empty, whose characters can be found again.
    pub fn quoted(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Quoted> {
        if let DeValue::String(text) = entry.value.get_ref() {
            return Some(Quoted {
                text: text.as_ref().to_owned(),
                at: entry.at(),
            });
        }
        self.wrong(entry, "a text in quotes", notes);
        None
    }

    /// A text that is not blank.
    pub fn text(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Located<String>> {
        match entry.value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Some(Located {
                value: text.as_ref().to_owned(),
                location: notes.at(entry.at()),
            }),
            DeValue::String(_) => {
                notes.add(
                    entry.at(),
                    format!("`{}` in {} must not be empty", entry.key, self.name),
                );
                None
            }
            _ => {
                self.wrong(entry, "a text in quotes", notes);
                None
            }
        }
    }

    /// A list of texts that are not blank, none of them twice.
    pub fn texts(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Vec<Located<String>> {
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
    pub fn truth(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<bool> {
        if let DeValue::Boolean(truth) = entry.value.get_ref() {
            Some(*truth)
        } else {
            self.wrong(entry, "true or false", notes);
            None
        }
    }

    /// A whole number in a range.
    pub fn whole(
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
    pub fn number(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<f64> {
        let number = number_of(entry.value.get_ref()).filter(|number| number.is_finite());
        if number.is_none() {
            self.wrong(entry, "a number", notes);
        }
        number
    }

    /// A length of time.
    pub fn duration(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
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
    pub fn some_time(&self, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
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
    pub fn word<T: Copy>(
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

/// How messages name a block: by its name where it has one.
fn block_label(kind: &str, value: &DeValue<'_>, index: usize) -> String {
    let name = match value {
        DeValue::Table(table) => table
            .iter()
            .find(|(key, _)| key.get_ref() == "name")
            .and_then(|(_, value)| value.get_ref().as_str()),
        _ => None,
    };
    match name {
        Some(name) => format!("[[{kind}]] \"{name}\""),
        None => format!("[[{kind}]] number {}", index + 1),
    }
}

/// `"a", "b" or "c"`.
fn either<T>(allowed: &[(&str, T)]) -> String {
    let words: Vec<String> = allowed
        .iter()
        .map(|(word, _)| format!("\"{word}\""))
        .collect();
    match words.as_slice() {
        [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        _ => words.concat(),
    }
}
