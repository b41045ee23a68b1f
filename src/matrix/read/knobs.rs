//! `[axes]`, `[derived]` and `[constraints]`.
//!
//! A knob with a mistake still counts as a name, so that expressions which use
//! it are not blamed. No value is computed here; see `expand`.

use std::collections::HashSet;

use toml::de::DeValue;

use super::section;
use crate::matrix::expression::{Expression, Known, is_usable_name};
use crate::matrix::sweep::{Axis, Constraint, Derived};
use crate::scalar::Scalar;
use crate::toml_file::{Content, Entry, Notes, Table, describe, scalar};
use crate::units::format_number;

/// Most combinations of levels, dropped ones included.
///
/// At the two minutes a short trial takes, 200,000 would run for nine months:
/// whoever asks for more has mistyped. It also bounds memory and plan time.
pub(in crate::matrix) const MAX_COMBINATIONS: u64 = 200_000;

/// Longest text of a level. **Units**: characters. It becomes part of file names.
const MAX_LEVEL: usize = 100;

/// Words with a meaning of their own in workload templates.
const TAKEN: [&str; 7] = ["env", "data", "user", "uuid", "counter", "random", "target"];

/// The knobs of a file.
pub(super) struct Knobs {
    pub(super) axes: Vec<Axis>,
    pub(super) derived: Vec<Derived>,
    pub(super) constraints: Vec<Constraint>,
    /// Axes, then derived values, those with a mistake included.
    names: Vec<String>,
}

impl Knobs {
    pub(super) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    pub(super) fn read(file: &mut Table<'_>, notes: &mut Notes<'_>) -> Self {
        // Lines that are not TOML were taken out; their names are still names.
        let mut broken = Vec::new();
        let mut entries = |key, name, is_required| {
            let Some(table) = section(file, key, name, is_required, notes) else {
                return Vec::new();
            };
            broken.extend(table.broken_keys(notes));
            if is_required && table.is_empty() && !table.is_broken(notes) {
                notes.hint(
                    table.at(),
                    format!("{name} names no knob"),
                    "add a line such as: cpus = [1, 2, 4]",
                );
            }
            table.entries()
        };
        let axis_entries = entries("axes", "[axes]", true);
        let derived_entries = entries("derived", "[derived]", false);
        let constraint_entries = entries("constraints", "[constraints]", false);

        let mut names: Vec<String> = axis_entries
            .iter()
            .map(|entry| entry.key.to_owned())
            .collect();
        names.append(&mut broken);
        let n_axes = names.len();
        names.extend(derived_entries.iter().map(|entry| entry.key.to_owned()));
        let axes = axis_entries
            .iter()
            .map(|entry| axis(entry, notes))
            .collect::<Vec<_>>();
        cap(&axes, &axis_entries, notes);

        let mut derived = Vec::new();
        for (index, entry) in derived_entries.iter().enumerate() {
            check_name(entry, "a derived value", notes);
            if axis_entries.iter().any(|axis| axis.key == entry.key) {
                notes.add(
                    entry.key_at,
                    format!(
                        "`{}` in [derived] is an axis as well: name it differently",
                        entry.key
                    ),
                );
            }
            let visible = n_axes + index;
            if let Some(expression) = expression(entry, "[derived]", &names, visible, notes) {
                derived.push(Derived {
                    name: entry.key.to_owned(),
                    location: notes.at(entry.key_at),
                    expression,
                });
            }
        }
        let constraints = constraint_entries
            .iter()
            .filter_map(|entry| {
                check_label(entry, notes);
                let expression = expression(entry, "[constraints]", &names, names.len(), notes)?;
                Some(Constraint {
                    name: entry.key.to_owned(),
                    location: notes.at(entry.key_at),
                    expression,
                })
            })
            .collect();
        Self {
            axes,
            derived,
            constraints,
            names,
        }
    }
}

fn cap(axes: &[Axis], entries: &[Entry<'_>], notes: &mut Notes<'_>) {
    let combinations = axes
        .iter()
        .map(|axis| axis.levels.len() as u64)
        .fold(1, u64::saturating_mul);
    if combinations > MAX_COMBINATIONS {
        let at = entries.first().map_or(0, |entry| entry.key_at);
        let many = if combinations == u64::MAX {
            "far more".to_owned()
        } else {
            combinations.to_string()
        };
        notes.hint(
            at,
            format!("[axes] make {many} combinations (allowed: {MAX_COMBINATIONS})"),
            "sweep fewer levels, or derive one knob from another",
        );
    }
}

fn check_name(entry: &Entry<'_>, what: &str, notes: &mut Notes<'_>) {
    let key = entry.key;
    if TAKEN.contains(&key) {
        notes.add(
            entry.key_at,
            format!("`{key}` cannot name {what}: workload files use it for something else"),
        );
    } else if !is_usable_name(key) {
        notes.hint(
            entry.key_at,
            format!("`{key}` cannot name {what} (allowed: letters, digits and _, no digit first, no word of expressions)"),
            "the name becomes a Compose variable, `${name}`, and stands in expressions",
        );
    }
}

fn check_label(entry: &Entry<'_>, notes: &mut Notes<'_>) {
    if entry.key.trim().is_empty() || entry.key.chars().any(char::is_control) {
        notes.add(entry.key_at, "a constraint needs a readable name");
    }
}

fn axis(entry: &Entry<'_>, notes: &mut Notes<'_>) -> Axis {
    check_name(entry, "an axis", notes);
    let mut levels = Vec::new();
    if let DeValue::Array(items) = entry.value.get_ref() {
        if items.is_empty() {
            notes.add(entry.at(), format!("axis `{}` has no level", entry.key));
        }
        let mut written = HashSet::new();
        for item in items {
            let at = item.span().start;
            match level(item.get_ref()) {
                Ok(level) if written.insert(level.to_string()) => levels.push(level),
                Ok(level) => notes.add(
                    at,
                    format!(
                        "axis `{}` has the level {} twice",
                        entry.key,
                        level
                            .as_number()
                            .map_or_else(|| level.to_string(), format_number)
                    ),
                ),
                Err(message) => notes.add(at, format!("in axis `{}`, {message}", entry.key)),
            }
        }
    } else {
        notes.hint(
            entry.at(),
            format!(
                "axis `{}` must be a list of levels, not {}",
                entry.key,
                describe(entry.value.get_ref())
            ),
            "a knob with one value is a list of one: cpus = [2]",
        );
    }
    Axis {
        name: entry.key.to_owned(),
        location: notes.at(entry.key_at),
        levels,
    }
}

fn level(value: &DeValue<'_>) -> Result<Scalar, String> {
    let level = scalar(value)?;
    if let Scalar::Text(text) = &level {
        if text.is_empty() {
            return Err("a level is an empty text".to_owned());
        }
        if text.chars().any(char::is_control) {
            return Err("a level holds a control character".to_owned());
        }
        if text.chars().count() > MAX_LEVEL {
            return Err(format!(
                "a level is too long (allowed: {MAX_LEVEL} characters)"
            ));
        }
    }
    Ok(level)
}

/// The expression of an entry, over the first `visible` names.
fn expression(
    entry: &Entry<'_>,
    section: &str,
    names: &[String],
    visible: usize,
    notes: &mut Notes<'_>,
) -> Option<Expression> {
    let DeValue::String(text) = entry.value.get_ref() else {
        notes.hint(
            entry.at(),
            format!(
                "`{}` in {section} must be an expression in quotes, not {}",
                entry.key,
                describe(entry.value.get_ref())
            ),
            "such as: web_threads = \"round(cpus * web)\"",
        );
        return None;
    };
    let known = Known {
        names,
        visible,
        is_load: false,
    };
    parse(text, entry.at(), known, notes)
}

/// An expression that stands in a TOML string at a byte offset.
pub(super) fn parse(
    text: &str,
    at: usize,
    known: Known<'_>,
    notes: &mut Notes<'_>,
) -> Option<Expression> {
    let content = Content::Quoted {
        source: notes.source(),
        start: at,
    };
    match Expression::parse(text, &content, known) {
        Ok(expression) => Some(expression),
        Err(problems) => {
            for problem in problems {
                notes.push(problem);
            }
            None
        }
    }
}
