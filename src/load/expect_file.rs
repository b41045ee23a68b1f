//! Reading `expect`: the rules that an answer must meet, checked as they are read.
//!
//! Patterns are compiled here, so that one with a mistake is found before anything
//! starts; for that they hold no `${}`.

use http::header::HeaderName;
use regex::bytes::RegexBuilder;
use toml::de::DeValue;

use super::expect::{Expect, HeaderRule, JsonRule, Pattern, Size, TextRule};
use super::step_file::{Text, read_json, read_text};
use super::workload_file::read_statuses;
use crate::reported::JsonPath;
use crate::toml_file::{Entry, Notes, Table, integer_of};
use crate::units::parse_bytes;

/// A compiled pattern larger than this is a mistake: `(a{1000}){1000}`. **Units**: bytes.
const LARGEST_PATTERN: usize = 4 << 20;

/// What `expect` of a step says, or `until`; `name` is how messages name it.
pub(super) fn read_expect(
    entry: Option<Entry<'_>>,
    name: &str,
    notes: &mut Notes<'_>,
) -> Expect<Text> {
    let mut expected = Expect::default();
    let Some(mut table) = entry.and_then(|entry| Table::of(&entry, name, notes)) else {
        return expected;
    };
    if let Some(entry) = table.get("status") {
        expected.statuses = read_statuses(&table, &entry, notes);
    }
    read_json_rules(&mut table, &mut expected, notes);
    read_text_rules(&mut table, &mut expected, notes);
    if let Some(entry) = table.get("size") {
        expected.size = read_size(&table, &entry, notes);
    }
    for key in ["headers", "header_matches"] {
        for (entry, header) in header_entries(&mut table, key, notes) {
            let rule = if key == "headers" {
                read_text(&table, &entry, notes).map(HeaderRule::Equals)
            } else {
                read_pattern(&table, &entry, notes).map(HeaderRule::Matches)
            };
            expected.headers.extend(rule.map(|rule| (header, rule)));
        }
    }
    table.finish(notes);
    expected
}

fn read_json_rules(table: &mut Table<'_>, expected: &mut Expect<Text>, notes: &mut Notes<'_>) {
    for key in ["json", "json_matches"] {
        let Some(entry) = table.get(key) else {
            continue;
        };
        let name = format!("`{key}` in {}", table.name());
        let paths = Table::of(&entry, &name, notes);
        for entry in paths.map(|paths| paths.entries()).unwrap_or_default() {
            let path = read_path(entry.key, entry.key_at, notes);
            let rule = if key == "json" {
                Some(JsonRule::Equals(read_json(entry.value, notes)))
            } else {
                read_pattern(table, &entry, notes).map(JsonRule::Matches)
            };
            expected.json.extend(path.zip(rule));
        }
    }
    for (key, rule) in [("exists", JsonRule::Exists), ("absent", JsonRule::Absent)] {
        for entry in each_of(table, key) {
            let text = table.quoted(&entry, notes);
            let path = text.and_then(|text| read_path(&text.text, text.at, notes));
            expected.json.extend(path.map(|path| (path, rule.clone())));
        }
    }
}

fn read_text_rules(table: &mut Table<'_>, expected: &mut Expect<Text>, notes: &mut Notes<'_>) {
    for (key, rule) in [
        ("contains", TextRule::Contains as fn(Text) -> TextRule<Text>),
        ("not_contains", TextRule::Lacks),
    ] {
        for entry in each_of(table, key) {
            let Some(text) = read_text(table, &entry, notes) else {
                continue;
            };
            // Every body contains it: as a ban it would fail every answer.
            if key == "not_contains" && text.0.text.is_empty() {
                table.text(&entry, notes);
                continue;
            }
            expected.texts.push(rule(text));
        }
    }
    for entry in each_of(table, "matches") {
        let pattern = read_pattern(table, &entry, notes);
        expected.texts.extend(pattern.map(TextRule::Matches));
    }
}

/// The values of a key that is one value or a list of them.
fn each_of<'d>(table: &mut Table<'d>, key: &'static str) -> Vec<Entry<'d>> {
    let Some(entry) = table.get(key) else {
        return Vec::new();
    };
    match entry.value.get_ref() {
        DeValue::Array(items) => items.iter().map(|value| Entry { value, ..entry }).collect(),
        _ => vec![entry],
    }
}

fn header_entries<'d>(
    table: &mut Table<'d>,
    key: &'static str,
    notes: &mut Notes<'_>,
) -> Vec<(Entry<'d>, HeaderName)> {
    let name = format!("`{key}` in {}", table.name());
    let entry = table.get(key);
    let headers = entry.and_then(|entry| Table::of(&entry, &name, notes));
    let mut entries = Vec::new();
    for entry in headers.map(|table| table.entries()).unwrap_or_default() {
        match entry.key.parse() {
            Ok(name) => entries.push((entry, name)),
            Err(_) => notes.add(
                entry.key_at,
                format!("`{}` is not the name of a header", entry.key),
            ),
        }
    }
    entries
}

fn read_path(text: &str, at: usize, notes: &mut Notes<'_>) -> Option<JsonPath> {
    JsonPath::parse(text)
        .map_err(|message| notes.add(at, message))
        .ok()
}

fn read_pattern(table: &Table<'_>, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Pattern> {
    let text = table.quoted(entry, notes)?;
    if let Some(at) = text.text.find("${") {
        notes.inside(&text, at, "a pattern cannot hold `${}`");
        return None;
    }
    let pattern = RegexBuilder::new(&text.text)
        .size_limit(LARGEST_PATTERN)
        .build();
    let error = match pattern {
        Ok(pattern) => return Some(pattern),
        Err(error) => error.to_string(),
    };
    // The library draws the pattern with a mark below it; the last line says what is wrong.
    let why = error.lines().last().unwrap_or_default();
    let why = why.trim_start_matches("error: ").trim_end_matches('.');
    notes.hint(
        text.at,
        format!("`{}` is not a pattern: {why}", text.text),
        "patterns are regular expressions; a text in single quotes needs no second backslash",
    );
    None
}

/// `size = 12`, `"1 KB"`, or a table with `min`, `max` or both.
fn read_size(expect: &Table<'_>, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Size> {
    if !entry.value.get_ref().is_table() {
        let exact = read_bytes(expect, entry, notes)?;
        return Some(Size {
            least: exact,
            most: exact,
        });
    }
    let mut table = Table::of(entry, &format!("`size` in {}", expect.name()), notes)?;
    let (min, max) = (table.get("min"), table.get("max"));
    let mut bound = |entry: Option<Entry<'_>>| entry.map(|entry| read_bytes(&table, &entry, notes));
    let (least, most) = (bound(min), bound(max));
    if least.is_none() && most.is_none() {
        let message = format!("{} has neither `min` nor `max`", table.name());
        notes.add(table.at(), message);
    }
    let (least, most) = (least.unwrap_or(Some(0))?, most.unwrap_or(Some(u64::MAX))?);
    if least > most {
        let message = format!("{} has a `min` above its `max`", table.name());
        notes.add(table.at(), message);
    }
    table.finish(notes);
    Some(Size { least, most })
}

fn read_bytes(table: &Table<'_>, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<u64> {
    match entry.value.get_ref() {
        DeValue::String(text) => parse_bytes(text)
            .map_err(|error| {
                let message = format!("`{}` in {}: {error}", entry.key, table.name());
                notes.add(entry.at(), message);
            })
            .ok(),
        whole => {
            let number = integer_of(whole).and_then(|number| u64::try_from(number).ok());
            if number.is_none() {
                table.wrong(entry, "a size such as 512 or \"1 KB\"", notes);
            }
            number
        }
    }
}
