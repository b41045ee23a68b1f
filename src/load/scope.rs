//! What a name in `${}` of a step may mean: table fields, captures, data files, the outside.

use indexmap::IndexMap;
use serde_json::Value;

use super::expand::Expander;
use super::step_file::Step;
use super::template::{Piece, Scope};
use super::workload::VariableUse;
use crate::problem::{Location, nearest};

/// Table fields alone.
pub(super) struct Row<'a> {
    pub(super) each: Option<&'a str>,
    pub(super) row: &'a IndexMap<String, Value>,
}

impl Row<'_> {
    fn field(&self, name: &str) -> Option<Result<Piece, String>> {
        let (table, field) = name.split_once('.')?;
        if self.each != Some(table) {
            return None;
        }
        let value = self.row.get(field).cloned().map(Piece::Value);
        Some(value.ok_or_else(|| {
            let known: Vec<&str> = self.row.keys().map(String::as_str).collect();
            format!(
                "a row of the table `{table}` has no field `{field}` (it has: {})",
                known.join(", ")
            )
        }))
    }
}

impl Scope for Row<'_> {
    fn lookup(&mut self, name: &str, _offset: usize) -> Result<Piece, String> {
        self.field(name)
            .unwrap_or_else(|| Err(format!("`${{{name}}}` is not a field of the step's table")))
    }
}

/// What a line that was taken out may define; the file is refused anyway.
const UNKNOWN: Piece = Piece::Value(Value::Null);

/// Everything a step may use.
pub(super) struct StepScope<'a> {
    pub(super) expander: &'a mut Expander,
    pub(super) step: &'a Step,
    pub(super) row: &'a IndexMap<String, Value>,
    /// The place of a byte offset of the template.
    pub(super) at: &'a dyn Fn(usize) -> Location,
}

impl StepScope<'_> {
    /// The value of a data file: `rest` is the name behind `data.`.
    fn data(&mut self, name: &str, rest: &str) -> Result<Piece, String> {
        let (set_name, column_name) = rest.split_once('.').unwrap_or((rest, ""));
        let sets = &self.expander.shared.data;
        let Some((set, _, content)) = sets.get_full(set_name) else {
            if !self.expander.is_whole {
                return Ok(UNKNOWN);
            }
            let near = nearest(set_name, sets.keys().map(String::as_str));
            return Err(near.map_or_else(
                || format!("`${{{name}}}`: there is no [data.{set_name}]"),
                |near| {
                    format!("`${{{name}}}`: there is no [data.{set_name}], did you mean `{near}`?")
                },
            ));
        };
        // What is wrong with the file has been told.
        let Some(content) = content else {
            return Ok(UNKNOWN);
        };
        let columns = &content.columns;
        let Some(column) = columns.iter().position(|known| known == column_name) else {
            return Err(format!(
                "`${{{name}}}`: the data file `{set_name}` has no column `{column_name}` (it has: {})",
                columns.join(", ")
            ));
        };
        self.expander.used_data.insert(set);
        Ok(Piece::Data {
            name: name.to_owned(),
            set,
            column,
            is_escaped: false,
        })
    }
}

impl Scope for StepScope<'_> {
    fn lookup(&mut self, name: &str, offset: usize) -> Result<Piece, String> {
        let row = Row {
            each: self.step.each.as_deref(),
            row: self.row,
        };
        match row.field(name) {
            Some(Err(_)) if !self.expander.is_whole => return Ok(UNKNOWN),
            Some(field) => return field,
            None => {}
        }
        if let Some(builtin) = Piece::builtin(name) {
            return builtin;
        }
        if let Some(rest) = name.strip_prefix("data.") {
            return self.data(name, rest);
        }
        let known = self.expander.captures.iter();
        let mut slots = known
            .enumerate()
            .filter(|(_, known)| *known == name)
            .map(|(slot, _)| slot);
        if let Some(slot) = slots.find(|slot| self.expander.visible.contains(slot)) {
            return Ok(Piece::Capture(slot));
        }
        if !self.expander.is_whole {
            return Ok(UNKNOWN);
        }
        if self.expander.all_captures.contains(name) {
            return Err(format!(
                "`${{{name}}}` is used before the step that captures it has been answered"
            ));
        }
        if self.expander.others.contains(name) {
            return Err(format!(
                "`${{{name}}}` is captured in another journey, and a journey knows its own captures and those of set-ups alone"
            ));
        }
        let table = name.split_once('.').map_or(name, |(table, _)| table);
        if self.expander.shared.tables.contains_key(table) {
            return Err(format!(
                "`${{{name}}}` is a field of the table `{table}`, and this step has no `each = \"{table}\"`"
            ));
        }
        if name.is_empty() || name == "env." || name.contains(char::is_whitespace) {
            return Err(format!("`${{{name}}}` is not a name"));
        }
        if !self.expander.externals.contains_key(name) {
            let similar = nearest(name, self.expander.all_captures.iter().map(String::as_str));
            let used = VariableUse {
                name: name.to_owned(),
                location: (self.at)(offset),
                similar: similar.map(str::to_owned),
            };
            self.expander.externals.insert(name.to_owned(), used);
        }
        Ok(Piece::External(name.to_owned()))
    }
}
