//! `.env` files and the files of `env_file`.
//!
//! A text is parsed once into [`DotEnv`] and evaluated once per cell, since a
//! value may refer to variables. Opens no file.
//!
//! **Shape**: `NAME=value` a line, `export` before it allowed, `#` comments;
//! single quotes are literal, double quotes know `\n`, `\r`, `\t`, `\"`, `\\`
//! and `\$`, both may span lines; unquoted values end at ` #`. A name alone
//! takes its value from outside. **Source**: the dotenv dialect of Compose v2.

use std::collections::BTreeSet;
use std::path::Path;

use indexmap::IndexMap;

use super::node::Replaced;
use super::notes::Notes;
use super::template::{Lookup, Malformed, Origin, Template};
use crate::problem::{Location, Problem};

/// A parsed file.
#[derive(Debug, Clone, Default)]
pub(super) struct DotEnv {
    entries: Vec<DotEnvEntry>,
}

#[derive(Debug, Clone)]
struct DotEnvEntry {
    name: String,
    place: Location,
    value: DotEnvValue,
}

#[derive(Debug, Clone)]
enum DotEnvValue {
    /// Taken from outside, absent where it is not there.
    Inherited,
    /// As it stands.
    Literal(String),
    /// With variables.
    Template(Template),
}

impl DotEnv {
    /// Reads a text; all problems are collected.
    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader {
            file,
            whole: text,
            rest: text.strip_prefix('\u{feff}').unwrap_or(text),
            problems: Vec::new(),
        };
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry() {
            entries.push(entry);
        }
        if reader.problems.is_empty() {
            Ok(Self { entries })
        } else {
            Err(reader.problems)
        }
    }

    /// The values, for one cell. `outside` wins over earlier lines of the file.
    pub(super) fn evaluate(
        &self,
        outside: &dyn Lookup,
        notes: &mut Notes,
    ) -> IndexMap<String, String> {
        let mut values = IndexMap::with_capacity(self.entries.len());
        for entry in &self.entries {
            let value = match &entry.value {
                DotEnvValue::Inherited => {
                    outside.find(&entry.name).map(|(text, _)| text.to_owned())
                }
                DotEnvValue::Literal(text) => Some(text.clone()),
                DotEnvValue::Template(template) => {
                    let lookup = Layered {
                        outside,
                        earlier: &values,
                    };
                    // Whose value it becomes is not known here.
                    let mut replaced = Replaced::default();
                    let mut witness = notes.witness(entry.place.clone(), &mut replaced);
                    let outcome = template.evaluate(&lookup, &mut witness);
                    drop(witness);
                    match outcome {
                        Ok(text) => Some(text),
                        Err(error) => {
                            notes.problem(entry.place.clone(), error.to_string());
                            None
                        }
                    }
                }
            };
            if let Some(value) = value {
                values.insert(entry.name.clone(), value);
            }
        }
        values
    }

    /// The names that the value of `name` refers to.
    pub(super) fn names_behind(&self, name: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for entry in self.entries.iter().filter(|entry| entry.name == name) {
            entry.collect_names(&mut names);
        }
        names
    }

    /// Every name that a value refers to.
    pub(super) fn collect_names(&self, names: &mut BTreeSet<String>) {
        for entry in &self.entries {
            entry.collect_names(names);
        }
    }
}

impl DotEnvEntry {
    fn collect_names(&self, names: &mut BTreeSet<String>) {
        match &self.value {
            DotEnvValue::Inherited => {
                names.insert(self.name.clone());
            }
            DotEnvValue::Literal(_) => {}
            DotEnvValue::Template(template) => template.collect_names(names),
        }
    }
}

struct Layered<'a> {
    outside: &'a dyn Lookup,
    earlier: &'a IndexMap<String, String>,
}

impl Lookup for Layered<'_> {
    fn find(&self, name: &str) -> Option<(&str, Origin)> {
        self.outside.find(name).or_else(|| {
            let value = self.earlier.get(name)?;
            Some((value.as_str(), Origin::DotEnv))
        })
    }
}

struct Reader<'a> {
    file: &'a Path,
    whole: &'a str,
    rest: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn next_entry(&mut self) -> Option<DotEnvEntry> {
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() {
                return None;
            }
            if self.rest.starts_with('#') {
                self.take_line();
                continue;
            }
            let place = self.place();
            match self.read_entry(&place) {
                Ok(entry) => return Some(entry),
                Err(problem) => {
                    self.problems.push(problem);
                    self.take_line();
                }
            }
        }
    }

    fn read_entry(&mut self, place: &Location) -> Result<DotEnvEntry, Problem> {
        if let Some(rest) = self.rest.strip_prefix("export")
            && rest.starts_with([' ', '\t'])
        {
            self.rest = rest.trim_start_matches([' ', '\t']);
        }
        let name = self.read_name();
        if name.is_empty() {
            return Err(Problem::new(
                self.place(),
                "a line must be NAME=value, a comment or empty",
            ));
        }
        self.skip_blanks();
        let entry = |value| DotEnvEntry {
            name: name.to_owned(),
            place: place.clone(),
            value,
        };
        if self.rest.is_empty() || self.rest.starts_with(['\n', '\r', '#']) {
            self.take_line();
            return Ok(entry(DotEnvValue::Inherited));
        }
        let Some(after) = self.rest.strip_prefix(['=', ':']) else {
            return Err(Problem::new(
                self.place(),
                format!("after the name `{name}` there must be `=`"),
            ));
        };
        self.rest = after;
        self.skip_blanks();
        let value = match self.rest.chars().next() {
            Some('\'') => DotEnvValue::Literal(self.read_quoted('\'')?.to_owned()),
            Some('"') => {
                let text = expand_escapes(self.read_quoted('"')?);
                templated(&text, place)?
            }
            _ => templated(unquoted(self.take_line()), place)?,
        };
        Ok(entry(value))
    }

    /// A name: letters, digits, `_`, and the `.` and `-` that some programs use.
    fn read_name(&mut self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-')))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name
    }

    /// The inside of quotes, and the check that nothing else follows on the line.
    fn read_quoted(&mut self, quote: char) -> Result<&'a str, Problem> {
        let inside = &self.rest[1..];
        let mut is_escaped = false;
        let close = inside.char_indices().find_map(|(index, c)| {
            if is_escaped {
                is_escaped = false;
            } else if c == '\\' {
                is_escaped = true;
            } else if c == quote {
                return Some(index);
            }
            None
        });
        let Some(close) = close else {
            return Err(Problem::new(
                self.place(),
                format!("the quote {quote} is not closed"),
            ));
        };
        self.rest = &inside[close + 1..];
        self.skip_blanks();
        if !self.rest.is_empty() && !self.rest.starts_with(['\n', '\r', '#']) {
            return Err(Problem::new(
                self.place(),
                "only a comment may follow a quoted value",
            ));
        }
        self.take_line();
        Ok(&inside[..close])
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    /// The rest of the line; the reader moves to the next one.
    fn take_line(&mut self) -> &'a str {
        match self.rest.split_once('\n') {
            Some((line, rest)) => {
                self.rest = rest;
                line
            }
            None => std::mem::take(&mut self.rest),
        }
    }

    fn place(&self) -> Location {
        Location::of_offset(self.file, self.whole, self.whole.len() - self.rest.len())
    }
}

fn templated(text: &str, place: &Location) -> Result<DotEnvValue, Problem> {
    if !text.contains('$') {
        return Ok(DotEnvValue::Literal(text.to_owned()));
    }
    match Template::parse(text) {
        Ok(template) => Ok(DotEnvValue::Template(template)),
        Err(Malformed { reason, .. }) => {
            Err(Problem::new(place.clone(), reason)
                .with_hint("single quotes keep dollars as they are"))
        }
    }
}

/// An unquoted value without its comment and outer blanks.
fn unquoted(line: &str) -> &str {
    let mut before = ' ';
    let end = line
        .char_indices()
        .find(|(_, c)| {
            let is_comment = *c == '#' && before.is_whitespace();
            before = *c;
            is_comment
        })
        .map_or(line.len(), |(index, _)| index);
    line[..end].trim()
}

/// Resolves the escapes of a double-quoted value.
fn expand_escapes(text: &str) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            expanded.push(c);
            continue;
        }
        match characters.next() {
            Some('n') => expanded.push('\n'),
            Some('r') => expanded.push('\r'),
            Some('t') => expanded.push('\t'),
            Some('$') => expanded.push_str("$$"),
            Some(c @ ('"' | '\\')) => expanded.push(c),
            Some(other) => {
                expanded.push('\\');
                expanded.push(other);
            }
            None => expanded.push('\\'),
        }
    }
    expanded
}

#[cfg(test)]
mod tests;
