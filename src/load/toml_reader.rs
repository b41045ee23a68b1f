//! Typed reading of a TOML document that collects problems with their places.
//!
//! A getter returns `None` both for a missing key and for a wrong value; the
//! wrong value has then been noted. Nothing here knows what a workload is.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Location, Problem};

/// A text and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// The document being read and what was found wrong so far.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str) -> Self {
        Self {
            file,
            text,
            problems: Vec::new(),
        }
    }

    /// The place of a span.
    pub(super) fn at(&self, span: &Range<usize>) -> Location {
        Location::of_offset(self.file, self.text, span.start)
    }

    /// Notes a problem.
    pub(super) fn problem(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let problem = Problem::new(self.at(span), message);
        self.note(problem);
    }

    /// Notes a problem with a next step.
    pub(super) fn problem_with_hint(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let problem = Problem::new(self.at(span), message).with_hint(hint);
        self.note(problem);
    }

    /// Notes a problem unless the same one was noted: loops find it once per row.
    pub(super) fn note(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Reports keys that are not known, those of later versions by that name.
    pub(super) fn check_keys(
        &mut self,
        table: &DeTable<'_>,
        place: &str,
        known: &[&str],
        later: &[&str],
    ) {
        for (key, _) in in_order(table) {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            if later.contains(&name) {
                self.problem(
                    &key.span(),
                    format!("`{name}` in {place} is not yet supported"),
                );
                continue;
            }
            let message = format!("unknown key `{name}` in {place}");
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("allowed: {}", known.join(", ")),
            };
            self.problem_with_hint(&key.span(), message, hint);
        }
    }

    /// A text.
    pub(super) fn string(&mut self, table: &DeTable<'_>, key: &str) -> Option<Located> {
        let value = table.get(key)?;
        self.string_of(value, key)
    }

    /// A value that must be a text.
    pub(super) fn string_of(&mut self, value: &Spanned<DeValue<'_>>, key: &str) -> Option<Located> {
        if let DeValue::String(text) = value.get_ref() {
            return Some(Located {
                text: text.to_string(),
                span: value.span(),
            });
        }
        self.wrong_type(value, key, "a text in quotes");
        None
    }

    /// `true` or `false`; missing is false.
    pub(super) fn boolean(&mut self, table: &DeTable<'_>, key: &str) -> bool {
        let Some(value) = table.get(key) else {
            return false;
        };
        value.get_ref().as_bool().unwrap_or_else(|| {
            self.wrong_type(value, key, "true or false");
            false
        })
    }

    /// A table.
    pub(super) fn table<'t, 'i>(
        &mut self,
        table: &'t DeTable<'i>,
        key: &str,
    ) -> Option<&'t DeTable<'i>> {
        let value = table.get(key)?;
        let found = value.get_ref().as_table();
        if found.is_none() {
            self.wrong_type(value, key, "a table, as in `{ name = \"value\" }`");
        }
        found
    }

    /// An array of tables, each with its span.
    pub(super) fn tables<'t, 'i>(
        &mut self,
        value: &'t Spanned<DeValue<'i>>,
        key: &str,
    ) -> Vec<(&'t DeTable<'i>, Range<usize>)> {
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(
                value,
                key,
                &format!("a list of tables, each under `[[{key}]]`"),
            );
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            match item.get_ref().as_table() {
                Some(table) => tables.push((table, item.span())),
                None => self.wrong_type(item, key, "a table"),
            }
        }
        tables
    }

    /// HTTP statuses: one number or a list.
    pub(super) fn statuses(&mut self, table: &DeTable<'_>, key: &str) -> Option<Vec<u16>> {
        let value = table.get(key)?;
        let allowed = "an HTTP status from 100 to 599 or a list of them";
        let items: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        };
        let mut statuses = Vec::new();
        for item in items {
            let status = integer(item.get_ref())
                .and_then(|number| u16::try_from(number).ok())
                .filter(|status| (100..600).contains(status));
            match status {
                Some(status) => statuses.push(status),
                None => self.wrong_type(item, key, allowed),
            }
        }
        Some(statuses)
    }

    /// Any value as JSON. Dates become texts; numbers out of range are a problem.
    pub(super) fn json(&mut self, value: &Spanned<DeValue<'_>>) -> Value {
        match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(value) => Value::String(value.to_string()),
            DeValue::Integer(_) => integer(value.get_ref()).map_or_else(
                || {
                    self.problem(&value.span(), "the number is out of range");
                    Value::Null
                },
                Value::from,
            ),
            DeValue::Float(number) => {
                let parsed = number.as_str().parse().ok();
                parsed.and_then(serde_json::Number::from_f64).map_or_else(
                    || {
                        self.problem(&value.span(), "JSON has no such number");
                        Value::Null
                    },
                    Value::Number,
                )
            }
            DeValue::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            DeValue::Table(table) => Value::Object(
                in_order(table)
                    .into_iter()
                    .map(|(key, value)| (key.get_ref().to_string(), self.json(value)))
                    .collect(),
            ),
        }
    }

    /// Notes that a value has the wrong type.
    pub(super) fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, key: &str, allowed: &str) {
        let shown = match value.get_ref() {
            DeValue::String(text) => format!("\"{text}\""),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(value) => value.to_string(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.problem(
            &value.span(),
            format!("`{key}` is {shown}, it must be {allowed}"),
        );
    }
}

/// Keys and values in the order of the file: the parser's table sorts by name.
pub(super) fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(
    &'t Spanned<std::borrow::Cow<'i, str>>,
    &'t Spanned<DeValue<'i>>,
)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The known name that differs least, if it differs little.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // One slip in three characters is still the same word; beyond that it is a guess.
    let most = (name.chars().count() / 3).clamp(1, 3);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["method", "path", "capture", "each"];
        for (name, near) in [
            ("metod", Some("method")),
            ("captures", Some("capture")),
            ("eahc", None),
            ("each_of", None),
            ("url", None),
            ("pth", Some("path")),
        ] {
            assert_eq!(nearest(name, known.into_iter()), near, "{name}");
        }
    }
}
