//! workload.toml: text to a checked [`Workload`], or all its problems.
//!
//! Keys, in file order: `headers`, `refused`, `on_failure`, `[[table.NAME]]`,
//! `[[step]]`. Keys of later versions are refused by name. The only files opened
//! are the body files, relative to the workload file. `step_file` reads steps,
//! `expand` turns them into operations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use hyper::header::HeaderName;
use indexmap::IndexMap;
use serde_json::Value;
use toml::de::DeTable;

use super::expand::Expander;
use super::step_file::read_step;
use super::template::Template;
use super::toml_reader::{Located, Reader, in_order};
use super::workload::{OnFailure, VariableUse, Workload};
use crate::problem::{Location, Problem, Problems};

const KEYS: [&str; 5] = ["headers", "refused", "on_failure", "table", "step"];
const LATER_KEYS: [&str; 5] = ["data", "setup", "journey", "cookies", "teardown"];
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
    pub(super) headers: Vec<(HeaderName, Located, Template)>,
    pub(super) body_files: HashMap<PathBuf, Option<BodyFile>>,
    pub(super) files: Vec<PathBuf>,
}

/// A body file, read once however many rows name it.
#[derive(Debug, Clone)]
pub(super) struct BodyFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) template: Template,
}

/// Reads a workload.
pub(super) fn parse(file: &Path, text: &str) -> Result<Workload, Problems> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader::new(file, text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim().replace('\n', ", ");
        reader.problem(&span, format!("not TOML: {message}"));
    }
    let table = document.get_ref();
    reader.check_keys(table, "the workload", &KEYS, &LATER_KEYS);
    let mut shared = Shared {
        tables: read_tables(&mut reader, table),
        ..Shared::default()
    };
    if let Some(headers) = reader.table(table, "headers") {
        shared.headers = read_headers(&mut reader, headers);
    }
    let refused = reader
        .statuses(table, "refused")
        .unwrap_or_else(|| vec![429]);
    let on_failure = read_on_failure(&mut reader, table);
    let steps = match table.get("step") {
        Some(value) => reader.tables(value, "step"),
        None => Vec::new(),
    };
    let has_later_steps = LATER_KEYS.iter().any(|key| table.contains_key(*key));
    if steps.is_empty() && !has_later_steps && !table.contains_key("step") {
        let problem = Problem::new(Location::start_of(file), "the workload has no step")
            .with_hint("write at least one `[[step]]` with a `path`");
        reader.note(problem);
    }
    let base = file.parent().unwrap_or(Path::new("")).to_owned();
    let steps: Vec<_> = steps
        .into_iter()
        .filter_map(|(table, span)| read_step(&mut reader, table, &span, &shared))
        .collect();
    let mut expander = Expander::new(base, shared, &steps);
    for step in &steps {
        expander.expand(&mut reader, step);
        if expander.operations.len() > MOST_OPERATIONS {
            reader.problem(
                &step.span,
                format!("the journey has more than {MOST_OPERATIONS} requests"),
            );
            break;
        }
    }
    if !reader.problems.is_empty() {
        return Err(Problems(sorted(file, reader.problems)));
    }
    let (mut environment, variables): (Vec<VariableUse>, Vec<VariableUse>) = expander
        .externals
        .into_values()
        .partition(|used| used.name.starts_with("env."));
    for used in &mut environment {
        used.name.drain(.."env.".len());
    }
    Ok(Workload {
        operations: expander.operations,
        captures: expander.captures,
        refused,
        on_failure,
        variables,
        environment,
        files: expander.shared.files,
    })
}

/// The workload file's problems first, each file's in the order of its lines.
fn sorted(file: &Path, mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by(|a, b| {
        let is_other = |problem: &Problem| problem.location.file != file;
        (is_other(a), &a.location).cmp(&(is_other(b), &b.location))
    });
    problems
}

fn read_on_failure(reader: &mut Reader<'_>, table: &DeTable<'_>) -> OnFailure {
    let Some(value) = reader.string(table, "on_failure") else {
        return OnFailure::default();
    };
    match value.text.as_str() {
        "abort" => OnFailure::Abort,
        "continue" => OnFailure::Continue,
        other => {
            reader.problem(
                &value.span,
                format!("`on_failure` is \"{other}\", it must be \"abort\" or \"continue\""),
            );
            OnFailure::default()
        }
    }
}

fn read_tables(reader: &mut Reader<'_>, table: &DeTable<'_>) -> IndexMap<String, Rows> {
    let mut tables = IndexMap::new();
    let Some(named) = reader.table(table, "table") else {
        return tables;
    };
    for (name, value) in in_order(named) {
        let key = name.get_ref().to_string();
        if RESERVED_TABLE_NAMES.contains(&key.as_str()) || key.contains(['.', '$', '{', '}']) {
            reader.problem(
                &name.span(),
                format!("a table cannot be called `{key}`: `${{{key}}}` has a meaning of its own"),
            );
            continue;
        }
        let mut rows = Rows::new();
        for (row, _) in reader.tables(value, &format!("table.{key}")) {
            let mut fields = IndexMap::new();
            for (field, value) in in_order(row) {
                if value.get_ref().is_array() || value.get_ref().is_table() {
                    reader.wrong_type(value, field.get_ref(), "a single value");
                } else {
                    fields.insert(field.get_ref().to_string(), reader.json(value));
                }
            }
            rows.push(fields);
        }
        tables.insert(key, rows);
    }
    tables
}

/// Headers with their templates read.
pub(super) fn read_headers(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
) -> Vec<(HeaderName, Located, Template)> {
    let mut headers = Vec::new();
    for (key, value) in in_order(table) {
        let Some(text) = reader.string_of(value, key.get_ref()) else {
            continue;
        };
        let Ok(name) = key.get_ref().parse::<HeaderName>() else {
            reader.problem(
                &key.span(),
                format!("`{}` is not the name of a header", key.get_ref()),
            );
            continue;
        };
        // They decide where an answer ends; the client sets them from the body.
        if matches!(
            name.as_str(),
            "content-length" | "transfer-encoding" | "connection" | "upgrade"
        ) {
            reader.problem(
                &key.span(),
                format!("the header `{name}` is set by the load itself"),
            );
            continue;
        }
        if let Some(template) = read_template(reader, &text) {
            headers.push((name, text, template));
        }
    }
    headers
}

/// A template, its mistakes noted at the text's place.
pub(super) fn read_template(reader: &mut Reader<'_>, text: &Located) -> Option<Template> {
    Template::parse(&text.text)
        .map_err(|error| reader.problem(&text.span, error.message))
        .ok()
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
