//! Reading values: a node, the path that leads to it, and what it should be.
//!
//! Every `read` method returns nothing and notes a problem where the value is
//! of another kind, so that readers go on and find the rest. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::node::{Mark, Node, Scalar, Value};
use super::notes::Notes;
use super::typing;
use crate::problem::{Location, nearest};
use crate::units;

/// One value with the way to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    parent: Option<&'a Field<'a>>,
    step: Step<'a>,
    key_mark: &'a Mark,
    /// The value.
    pub(super) node: &'a Arc<Node>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Key(key) if self.parent.is_some() => write!(f, ".{key}"),
            Step::Key(key) => f.write_str(key),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl<'a> Field<'a> {
    /// A value at the top of a file's sections.
    pub(super) fn root(section: &'a str, node: &'a Arc<Node>) -> Self {
        Self {
            parent: None,
            step: Step::Key(section),
            key_mark: &node.mark,
            node,
        }
    }

    /// The value below this one, known to be there.
    pub(super) fn child(&'a self, key: &'a str, mark: &'a Mark, node: &'a Arc<Node>) -> Self {
        Self {
            parent: Some(self),
            step: Step::Key(key),
            key_mark: mark,
            node,
        }
    }

    /// An item of this list.
    pub(super) fn item(&'a self, index: usize, node: &'a Arc<Node>) -> Self {
        Self {
            parent: Some(self),
            step: Step::Index(index),
            key_mark: &node.mark,
            node,
        }
    }

    /// The value of a key, where the map has it and it is not null.
    pub(super) fn get(&'a self, key: &'a str) -> Option<Self> {
        let entry = self.node.as_map()?.get(key)?;
        (!entry.node.is_null()).then(|| self.child(key, &entry.mark, &entry.node))
    }

    /// The same place with another form of the value.
    pub(super) fn with(&self, node: &'a Arc<Node>) -> Self {
        Self { node, ..*self }
    }

    /// `: NAME has no value`, or nothing where every variable of the text has one.
    pub(super) fn unset_reason(&self) -> String {
        let names = self.unset_names();
        match names.matches(" and ").count() {
            _ if names.is_empty() => names,
            0 => format!(": {names} has no value"),
            _ => format!(": {names} have no value"),
        }
    }

    /// The variables in the text that had no value, as a message names them.
    pub(super) fn unset_names(&self) -> String {
        let unset = self
            .node
            .replaced()
            .map_or(&[][..], |replaced| &replaced.unset);
        let names: Vec<String> = unset.iter().map(|name| format!("`{name}`")).collect();
        names.join(" and ")
    }

    /// The last step of the path.
    pub(super) fn key(&self) -> &'a str {
        match self.step {
            Step::Key(key) => key,
            Step::Index(_) => "",
        }
    }

    /// Place of the key.
    pub(super) fn key_place(&self) -> Location {
        self.key_mark.location()
    }

    /// Place of the value.
    pub(super) fn place(&self) -> Location {
        if self.node.is_null() {
            self.key_mark.location()
        } else {
            self.node.mark.location()
        }
    }

    /// Notes a problem with the value.
    pub(super) fn problem(&self, notes: &mut Notes, what: impl fmt::Display) {
        notes.problem(self.place(), format!("{self}: {what}"));
    }

    /// Notes a problem with the value and the next step.
    pub(super) fn problem_with_hint(
        &self,
        notes: &mut Notes,
        what: impl fmt::Display,
        hint: impl Into<String>,
    ) {
        notes.problem_with_hint(self.place(), format!("{self}: {what}"), hint);
    }

    /// The entries of a map; nothing is an empty map.
    pub(super) fn entries(&'a self, notes: &mut Notes) -> Vec<Field<'a>> {
        match &self.node.value {
            Value::Map(entries) => entries
                .iter()
                .map(|(key, entry)| self.child(key, &entry.mark, &entry.node))
                .collect(),
            Value::Scalar(_) if self.node.is_null() => Vec::new(),
            Value::Scalar(_) | Value::List(_) => {
                self.problem(
                    notes,
                    format_args!("must be a map, not {}", self.node.kind()),
                );
                Vec::new()
            }
        }
    }

    /// The items of a list; nothing is an empty list.
    pub(super) fn items(&'a self, notes: &mut Notes) -> Vec<Field<'a>> {
        match &self.node.value {
            Value::List(items) => items
                .iter()
                .enumerate()
                .map(|(index, node)| self.item(index, node))
                .collect(),
            Value::Scalar(_) if self.node.is_null() => Vec::new(),
            Value::Scalar(_) | Value::Map(_) => {
                self.problem(
                    notes,
                    format_args!("must be a list, not {}", self.node.kind()),
                );
                Vec::new()
            }
        }
    }

    /// The items of a list, or the single value itself.
    pub(super) fn items_or_one(&'a self, notes: &mut Notes) -> Vec<Field<'a>> {
        match &self.node.value {
            Value::Scalar(_) if !self.node.is_null() => vec![*self],
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => self.items(notes),
        }
    }

    /// Notes every key that is not allowed here.
    pub(super) fn check_keys(&'a self, allowed: &[&str], notes: &mut Notes) {
        for field in self.entries(notes) {
            let key = field.key();
            if key.starts_with("x-") {
                continue;
            }
            if !allowed.contains(&key) {
                field.unknown(allowed, notes);
            } else if field.node.is_null() {
                field.no_value(notes);
            }
        }
    }

    /// Notes that a key that needs a value has none.
    pub(super) fn no_value(&self, notes: &mut Notes) {
        self.problem_with_hint(
            notes,
            "has no value",
            if self.node.mark.is_inline() {
                "give it one or remove the key"
            } else {
                "give it one or remove the key; in a later file `!reset null` takes it away"
            },
        );
    }

    /// Notes that the key does not exist, with the nearest that does.
    pub(super) fn unknown(&self, allowed: &[&str], notes: &mut Notes) {
        let message = format!("{self}: there is no such key");
        let near = synonym(self.key())
            .filter(|word| allowed.contains(word))
            .or_else(|| nearest(self.key(), allowed.iter().copied()));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "keys of your own start with `x-`".to_owned(),
        };
        notes.problem_with_hint(self.key_place(), message, hint);
    }

    fn scalar(&self, wanted: &str, notes: &mut Notes) -> Option<&'a Scalar> {
        match &self.node.value {
            // Its variables could not be replaced; that was said at the time.
            Value::Scalar(scalar) if scalar.template.is_some() => None,
            Value::Scalar(scalar) if !self.node.is_null() => Some(scalar),
            Value::Scalar(_) => {
                self.problem(notes, format_args!("has no value (wanted: {wanted})"));
                None
            }
            Value::List(_) | Value::Map(_) => {
                let kind = self.node.kind();
                self.problem(notes, format_args!("must be {wanted}, not {kind}"));
                None
            }
        }
    }

    /// A text as it is written.
    pub(super) fn text(&self, notes: &mut Notes) -> Option<String> {
        Some(self.scalar("a text", notes)?.text.to_string())
    }

    /// A text that may not be empty.
    pub(super) fn filled_text(&self, notes: &mut Notes) -> Option<String> {
        let text = self.text(notes)?;
        if text.trim().is_empty() {
            self.problem(notes, "is empty");
            return None;
        }
        Some(text)
    }

    /// A text as Compose makes it of a number or truth value; `None` for null.
    ///
    /// The outer `None` is a value of another kind, which is noted.
    #[expect(
        clippy::option_option,
        reason = "a wrong value and null are different things"
    )]
    pub(super) fn canonical_text(&self, notes: &mut Notes) -> Option<Option<String>> {
        if self.node.is_null() {
            return Some(None);
        }
        let scalar = self.scalar("a single value", notes)?;
        if !scalar.is_plain {
            return Some(Some(scalar.text.to_string()));
        }
        let text = typing::canonical(&scalar.text);
        if typing::is_old_spelling(&scalar.text) {
            notes.warn(format!(
                "{}: {self}: `{}` is read as {text}, as Docker Compose does; quote it if it is a text",
                self.place(),
                scalar.text
            ));
        }
        Some(Some(text))
    }

    /// A truth value.
    pub(super) fn boolean(&self, notes: &mut Notes) -> Option<bool> {
        let scalar = self.scalar("true or false", notes)?;
        let truth = typing::as_lenient_boolean(&scalar.text);
        if truth.is_none() {
            let text = &scalar.text;
            self.problem(notes, format_args!("`{text}` is neither true nor false"));
        }
        truth
    }

    /// A number.
    pub(super) fn number(&self, notes: &mut Notes) -> Option<f64> {
        let scalar = self.scalar("a number", notes)?;
        let number = typing::as_number(scalar.text.trim());
        if number.is_none() {
            self.problem(notes, format_args!("`{}` is not a number", scalar.text));
        }
        number
    }

    /// A whole number.
    pub(super) fn integer(&self, notes: &mut Notes) -> Option<i64> {
        let scalar = self.scalar("a whole number", notes)?;
        let integer = typing::as_integer(scalar.text.trim());
        if integer.is_none() {
            self.problem(
                notes,
                format_args!("`{}` is not a whole number", scalar.text),
            );
        }
        integer
    }

    /// A size. **Units**: bytes.
    pub(super) fn bytes(&self, notes: &mut Notes) -> Option<u64> {
        let scalar = self.scalar("a size", notes)?;
        match units::parse_bytes(&scalar.text) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.problem(notes, error);
                None
            }
        }
    }

    /// A duration.
    pub(super) fn duration(&self, notes: &mut Notes) -> Option<Duration> {
        let scalar = self.scalar("a duration", notes)?;
        match units::parse_duration(&scalar.text) {
            Ok(duration) => Some(duration),
            Err(error) => {
                self.problem(notes, error);
                None
            }
        }
    }

    /// The texts of a list; every item must be one.
    pub(super) fn texts(&'a self, notes: &mut Notes) -> Vec<String> {
        self.items(notes)
            .into_iter()
            .filter_map(|item| item.text(notes))
            .collect()
    }

    /// The texts of a list, or a single text.
    pub(super) fn texts_or_one(&'a self, notes: &mut Notes) -> Vec<String> {
        self.items_or_one(notes)
            .into_iter()
            .filter_map(|item| item.text(notes))
            .collect()
    }
}

/// Words people write for a key that is spelled quite differently.
fn synonym(key: &str) -> Option<&'static str> {
    match key {
        "depends" | "depend_on" | "dependson" => Some("depends_on"),
        "env" | "envs" => Some("environment"),
        "cpu" | "cpu_limit" => Some("cpus"),
        "memory" | "memory_limit" => Some("mem_limit"),
        "cmd" | "args" => Some("command"),
        _ => None,
    }
}
