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
use crate::problem::{Problem, nearest};
use crate::scalar::Scalar;
use crate::units::parse_duration;

/// Largest whole number that an axis may hold: beyond it, floats skip numbers.
///
/// **Source**: IEEE 754 binary64 has 53 bits of significand.
const MAX_EXACT: i64 = 1 << 53;

/// The problems found so far.
///
/// **Shape**: in the order found; `read` sorts them by place.
#[derive(Debug)]
pub(super) struct Notes<'t> {
    pub(super) source: &'t Source<'t>,
    pub(super) problems: Vec<Problem>,
    /// Lines with a syntax error: what is said about such a line beside that
    /// is about what the parser made up.
    broken_lines: Vec<usize>,
}

impl<'t> Notes<'t> {
    pub(super) fn new(source: &'t Source<'t>) -> Self {
        Self {
            source,
            problems: Vec::new(),
            broken_lines: Vec::new(),
        }
    }

    /// Notes a syntax error.
    pub(super) fn syntax(&mut self, offset: usize, message: &str) {
        let problem = self
            .source
            .problem(offset, format!("this is not TOML: {message}"));
        if !self.broken_lines.contains(&problem.location.line) {
            self.broken_lines.push(problem.location.line);
            self.problems.push(problem);
        }
    }

    /// Notes a problem at a byte offset.
    pub(super) fn add(&mut self, offset: usize, message: impl Into<String>) {
        self.push(self.source.problem(offset, message));
    }

    /// Notes a problem with a next step.
    pub(super) fn hint(&mut self, offset: usize, message: impl Into<String>, hint: &str) {
        self.push(self.source.problem(offset, message).with_hint(hint));
    }

    /// Notes a problem made elsewhere.
    pub(super) fn push(&mut self, problem: Problem) {
        if !self.broken_lines.contains(&problem.location.line) {
            self.problems.push(problem);
        }
    }

    /// Whether a syntax error lies on one of the lines of a stretch of text.
    fn is_broken(&self, span: &Range<usize>) -> bool {
        let lines = self.source.line_of(span.start)..=self.source.line_of(span.end);
        self.broken_lines.iter().any(|line| lines.contains(line))
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
    /// Where a missing key would stand.
    extent: Range<usize>,
    entries: Vec<Entry<'d>>,
    asked: Vec<&'static str>,
}

impl<'d> Table<'d> {
    /// The whole document.
    pub(super) fn document(table: &'d DeTable<'d>, length: usize) -> Self {
        Self::over("the file", 0, 0..length, table)
    }

    fn over(name: &str, at: usize, extent: Range<usize>, table: &'d DeTable<'d>) -> Self {
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
        let end = entries
            .iter()
            .map(|entry| entry.value.span().end)
            .fold(extent.end, usize::max);
        Self {
            name: name.to_owned(),
            at,
            extent: extent.start..end,
            entries,
            asked: Vec::new(),
        }
    }

    /// The table behind an entry.
    pub(super) fn of(entry: &Entry<'d>, name: &str, notes: &mut Notes<'_>) -> Option<Self> {
        match entry.value.get_ref() {
            DeValue::Table(table) => {
                Some(Self::over(name, entry.key_at, entry.value.span(), table))
            }
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
        self.asked.push(key);
        self.entries.iter().find(|entry| entry.key == key).copied()
    }

    /// The entry of a key that must be there.
    pub(super) fn need(
        &mut self,
        key: &'static str,
        example: &str,
        notes: &mut Notes<'_>,
    ) -> Option<Entry<'d>> {
        let found = self.get(key);
        // A line that is not TOML may be the one that holds the key.
        if found.is_none() && !notes.is_broken(&self.extent) {
            notes.hint(
                self.at,
                format!("{} has no `{key}`", self.name),
                &format!("add a line such as: {example}"),
            );
        }
        found
    }

    /// Notes a key of the format that this version cannot do.
    pub(super) fn not_yet(&mut self, key: &'static str, notes: &mut Notes<'_>) {
        if let Some(entry) = self.get(key) {
            let name = if self.name == "the file" {
                format!("[{key}]")
            } else {
                format!("`{key}` in {}", self.name)
            };
            notes.add(entry.key_at, format!("{name} is not yet supported"));
        }
    }

    /// Notes every key that nobody asked for.
    pub(super) fn finish(self, notes: &mut Notes<'_>) {
        for entry in &self.entries {
            if self.asked.contains(&entry.key) {
                continue;
            }
            let hint = nearest(entry.key, self.asked.iter().copied()).map_or_else(
                || format!("allowed here: {}", self.asked.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            notes.hint(
                entry.key_at,
                format!("unknown key `{}` in {}", entry.key, self.name),
                &hint,
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

/// A number as it was written; infinite and not-a-number values come through.
pub(super) fn number_of(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => {
            let whole =
                i64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix());
            whole.ok().map(|whole| whole as f64)
        }
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

/// One knob value; the error says what is wrong with it.
pub(super) fn scalar(value: &DeValue<'_>) -> Result<Scalar, String> {
    match value {
        DeValue::Integer(written) => {
            i64::from_str_radix(written.as_str().trim_start_matches('+'), written.radix())
                .ok()
                .filter(|number| number.unsigned_abs() <= MAX_EXACT.unsigned_abs())
                .map(Scalar::Integer)
                .ok_or_else(|| {
                    format!("the number {written} is too large (allowed: up to {MAX_EXACT})")
                })
        }
        DeValue::Float(written) => written
            .as_str()
            .parse()
            .ok()
            .and_then(Scalar::from_number)
            .ok_or_else(|| format!("the number {written} is not finite")),
        DeValue::Boolean(truth) => Ok(Scalar::Boolean(*truth)),
        DeValue::String(text) => Ok(Scalar::Text(text.as_ref().to_owned())),
        other => Err(format!(
            "{} is no single value (allowed: numbers, texts, true, false)",
            describe(other)
        )),
    }
}

/// A value as messages name it; long texts are cut.
pub(super) fn describe(value: &DeValue<'_>) -> String {
    const SHOWN: usize = 40;
    match value {
        DeValue::String(text) if text.chars().count() > SHOWN => {
            format!(
                "the text \"{}...\"",
                text.chars().take(SHOWN).collect::<String>()
            )
        }
        DeValue::String(text) => format!("the text \"{text}\""),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(truth) => format!("{truth}"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
