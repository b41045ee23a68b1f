//! workload.toml: text to a checked [`Workload`], or all its problems.
//!
//! Keys, in file order: `headers`, `basic` or `bearer`, `gzip`, `redirects`, `cookies`,
//! `refused`, `on_failure`, `[[table.NAME]]`, `[[step]]`. Keys of later versions are refused by name. The only files opened
//! are the body files, relative to the workload file. `step_file` reads steps,
//! `expand` turns them into operations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use http::header::HeaderName;
use indexmap::IndexMap;
use serde_json::Value;
use toml::de::DeValue;

use super::expand::Expander;
use super::step_file::{literal, read_step};
use super::step_options::{Options, check_cookie_header, read_cookies, read_options};
use super::template::Template;
use super::workload::{Cookies, OnFailure, VariableUse, Workload};
use crate::problem::Problems;
use crate::toml_file::{self, Entry, Notes, Quoted, Table, integer_of};

/// Keys of the format that are reserved and not built yet.
const LATER_KEYS: [&str; 4] = ["data", "setup", "journey", "teardown"];
/// First parts of names that `${}` reads in another way.
const RESERVED_TABLE_NAMES: [&str; 6] = ["env", "data", "uuid", "counter", "random", "user"];
/// A journey longer than this is a mistake in a loop, not a wish.
const MOST_OPERATIONS: usize = 10_000;

/// Rows of one table: field name to value, in file order.
pub(super) type Rows = Vec<IndexMap<String, Value>>;

/// What the steps of a file share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) tables: IndexMap<String, Rows>,
    pub(super) headers: Vec<(HeaderName, Quoted, Template)>,
    pub(super) options: Rc<Options>,
    pub(super) cookies: Cookies,
    pub(super) body_files: HashMap<PathBuf, Option<BodyFile>>,
    pub(super) files: Vec<PathBuf>,
}

/// A body file, read once however many rows name it.
#[derive(Debug, Clone)]
pub(super) enum BodyFile {
    Text {
        path: PathBuf,
        text: String,
        template: Template,
    },
    /// No text, so there is no `${}` in it.
    Bytes(Arc<[u8]>),
}

/// Reads a workload.
///
/// **Errors**: every problem found, the workload's own before those of body files.
pub(super) fn parse(file: &Path, text: &str) -> Result<Workload, Problems> {
    toml_file::read(file, text, "the workload", |table, notes| {
        Some(workload(file, table, notes))
    })
}

fn workload(file: &Path, mut table: Table<'_>, notes: &mut Notes<'_>) -> Workload {
    let mut shared = Shared {
        tables: read_tables(&mut table, notes),
        ..Shared::default()
    };
    if let Some(entry) = table.get("headers") {
        shared.headers = read_headers(&entry, table.name(), notes);
    }
    shared.options = Rc::new(read_options(&mut table, &shared.headers, notes));
    shared.cookies = read_cookies(&mut table, notes);
    check_cookie_header(&shared.headers, shared.cookies, notes);
    let refused = table
        .get("refused")
        .map_or_else(|| vec![429], |entry| read_statuses(&table, &entry, notes));
    let words = [
        ("abort", OnFailure::Abort),
        ("continue", OnFailure::Continue),
    ];
    let on_failure = table
        .get("on_failure")
        .and_then(|entry| table.word(&entry, &words, &[], notes))
        .unwrap_or_default();
    for key in LATER_KEYS {
        table.not_yet(key, notes);
    }
    let step_entry = if table.has_later(&LATER_KEYS) {
        table.get("step")
    } else {
        table.need("step", "[[step]]")
    };
    let blocks = step_entry.map(|entry| Table::blocks(&entry, "step", notes));
    let steps: Vec<_> = blocks
        .unwrap_or_default()
        .into_iter()
        .filter_map(|table| read_step(table, &shared, notes))
        .collect();
    table.finish(notes);

    let cookies = shared.cookies;
    let base = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut expander = Expander::new(base, shared, &steps, !notes.is_broken());
    for step in &steps {
        expander.expand(step, notes);
        if expander.operations.len() > MOST_OPERATIONS {
            notes.add(
                step.at,
                format!("the journey has more than {MOST_OPERATIONS} requests"),
            );
            break;
        }
    }
    if let Some(entry) = step_entry
        && expander.operations.is_empty()
        && notes.is_empty()
    {
        notes.hint(
            entry.key_at,
            "the journey makes no request",
            "write at least one [[step]] that does not loop over an empty table",
        );
    }
    let (mut environment, variables): (Vec<VariableUse>, Vec<VariableUse>) = expander
        .externals
        .into_values()
        .partition(|used| used.name.starts_with("env."));
    for used in &mut environment {
        used.name.drain(.."env.".len());
    }
    Workload {
        operations: expander.operations,
        captures: expander.captures,
        refused,
        on_failure,
        cookies,
        variables,
        environment,
        files: expander.shared.files,
    }
}

fn read_tables(file: &mut Table<'_>, notes: &mut Notes<'_>) -> IndexMap<String, Rows> {
    let mut tables = IndexMap::new();
    let named = file
        .get("table")
        .and_then(|entry| Table::of(&entry, "[table]", notes));
    for entry in named.map(|named| named.entries()).unwrap_or_default() {
        let name = entry.key;
        if RESERVED_TABLE_NAMES.contains(&name) || name.contains(['.', '$', '{', '}']) {
            notes.add(
                entry.key_at,
                format!(
                    "a table cannot be called `{name}`: `${{{name}}}` has a meaning of its own"
                ),
            );
            continue;
        }
        let rows = Table::blocks(&entry, &format!("table.{name}"), notes);
        let rows = rows.iter().map(|row| read_row(row, notes)).collect();
        tables.insert(name.to_owned(), rows);
    }
    tables
}

fn read_row(row: &Table<'_>, notes: &mut Notes<'_>) -> IndexMap<String, Value> {
    let mut fields = IndexMap::new();
    for entry in row.entries() {
        if entry.value.get_ref().is_array() || entry.value.get_ref().is_table() {
            row.wrong(&entry, "a single value", notes);
        } else {
            fields.insert(entry.key.to_owned(), literal(entry.value, notes));
        }
    }
    fields
}

/// Headers with their templates read; `owner` is how messages name whose they are.
pub(super) fn read_headers(
    entry: &Entry<'_>,
    owner: &str,
    notes: &mut Notes<'_>,
) -> Vec<(HeaderName, Quoted, Template)> {
    let mut headers = Vec::new();
    let Some(table) = Table::of(entry, &format!("`headers` of {owner}"), notes) else {
        return headers;
    };
    for entry in table.entries() {
        let Some(text) = table.quoted(&entry, notes) else {
            continue;
        };
        let Ok(name) = entry.key.parse::<HeaderName>() else {
            notes.add(
                entry.key_at,
                format!("`{}` is not the name of a header", entry.key),
            );
            continue;
        };
        // They decide where an answer ends; the client sets them from the body.
        if matches!(
            name.as_str(),
            "content-length" | "transfer-encoding" | "connection" | "upgrade"
        ) {
            notes.add(
                entry.key_at,
                format!("the header `{name}` is set by the load itself"),
            );
            continue;
        }
        if let Some(template) = read_template(&text, notes) {
            headers.push((name, text, template));
        }
    }
    headers
}

/// HTTP statuses: one number or a list.
pub(super) fn read_statuses(
    table: &Table<'_>,
    entry: &Entry<'_>,
    notes: &mut Notes<'_>,
) -> Vec<u16> {
    let items = match entry.value.get_ref() {
        DeValue::Array(items) => items.iter().collect(),
        _ => vec![entry.value],
    };
    let mut statuses = Vec::new();
    for value in items {
        let status = integer_of(value.get_ref())
            .and_then(|number| u16::try_from(number).ok())
            .filter(|status| (100..600).contains(status));
        match status {
            Some(status) => statuses.push(status),
            None => table.wrong(
                &Entry { value, ..*entry },
                "an HTTP status from 100 to 599 or a list of them",
                notes,
            ),
        }
    }
    statuses
}

/// A template; its mistake is noted where it stands inside the text.
pub(super) fn read_template(text: &Quoted, notes: &mut Notes<'_>) -> Option<Template> {
    Template::parse(&text.text)
        .map_err(|error| notes.inside(text, error.offset, error.message))
        .ok()
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
