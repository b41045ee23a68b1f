//! workload.toml: text to a checked [`Workload`], or all its problems.
//!
//! Keys, in file order: `headers`, `basic` or `bearer`, `gzip`, `redirects`, `cookies`,
//! `refused`, `on_failure`, `weight_of`, `[data.NAME]`, `[[setup]]`, `[[table.NAME]]`,
//! `[[step]]` or `[[journey]]`. Keys of later versions
//! are refused by name. The only files opened are body and data files, relative to the
//! workload file. `journeys_file` reads journeys, set-ups and data, `step_file` steps,
//! `expand` turns them into operations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use http::header::HeaderName;
use indexmap::IndexMap;
use serde_json::Value;
use toml::de::DeValue;

use super::data::DataSet;
use super::expand::{Expander, Keeps};
use super::journeys_file::{
    JourneyFile, Journeys, SetupFile, read_data, read_journeys, read_setups,
};
use super::step_file::{Step, literal};
use super::step_options::{Options, check_cookie_header, read_cookies, read_options};
use super::template::Template;
use super::workload::{Cookies, Journey, Setup, VariableUse, Workload};
use crate::problem::Problems;
use crate::toml_file::{self, Entry, Notes, Quoted, Table, integer_of};

/// Keys of the format that are reserved and not built yet.
const LATER_KEYS: [&str; 1] = ["teardown"];
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
    /// `None` for a file that cannot be used, which has been noted.
    pub(super) data: IndexMap<String, Option<DataSet>>,
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
    let base = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut shared = Shared {
        tables: read_tables(&mut table, notes),
        ..Shared::default()
    };
    shared.data = read_data(&mut table, &base, &mut shared, notes);
    if let Some(entry) = table.get("headers") {
        shared.headers = read_headers(&entry, table.name(), notes);
    }
    shared.options = Rc::new(read_options(&mut table, &shared.headers, notes));
    shared.cookies = read_cookies(&mut table, notes);
    check_cookie_header(&shared.headers, shared.cookies, notes);
    let refused = table
        .get("refused")
        .map_or_else(|| vec![429], |entry| read_statuses(&table, &entry, notes));
    for key in LATER_KEYS {
        table.not_yet(key, notes);
    }
    let setups = read_setups(&mut table, &shared, notes);
    let Journeys {
        journeys,
        weight_of,
    } = read_journeys(&mut table, &shared, notes);
    table.finish(notes);

    let cookies = shared.cookies;
    let mut expander = Expander::new(base, shared, !notes.is_broken());
    let setups = expand_setups(&mut expander, setups, notes);
    let journeys = expand_journeys(&mut expander, journeys, notes);
    let (mut environment, variables): (Vec<VariableUse>, Vec<VariableUse>) = expander
        .externals
        .into_values()
        .partition(|used| used.name.starts_with("env."));
    for used in &mut environment {
        used.name.drain(.."env.".len());
    }
    Workload {
        operations: expander.operations,
        journeys,
        weight_of,
        setups,
        data: expander.shared.data.into_values().flatten().collect(),
        captures: expander.captures,
        refused,
        cookies,
        variables,
        environment,
        files: expander.shared.files,
    }
}

/// Set-ups in order: what one captures is known to the next, and to every journey.
fn expand_setups(
    expander: &mut Expander,
    setups: Vec<SetupFile>,
    notes: &mut Notes<'_>,
) -> Vec<Setup> {
    let mut all = Vec::with_capacity(setups.len());
    for setup in setups {
        expander.begin(&setup.steps);
        expand_steps(expander, &setup.steps, notes);
        let operations = std::mem::take(&mut expander.operations);
        if operations.is_empty() && notes.is_empty() {
            notes.add(setup.at, "the set-up makes no request");
        }
        all.push(Setup {
            scope: setup.scope,
            renew: setup.renew,
            operations,
            data: expander.end(Keeps::All),
        });
    }
    all
}

fn expand_journeys(
    expander: &mut Expander,
    journeys: Vec<JourneyFile>,
    notes: &mut Notes<'_>,
) -> Vec<Journey> {
    let mut all = Vec::with_capacity(journeys.len());
    for journey in journeys {
        let first = expander.operations.len();
        expander.begin(&journey.steps);
        expand_steps(expander, &journey.steps, notes);
        let operations = first..expander.operations.len();
        if operations.is_empty() && notes.is_empty() {
            notes.hint(
                journey.at,
                "the journey makes no request",
                "write at least one [[step]] that does not loop over an empty table",
            );
        }
        all.push(Journey {
            name: journey.name,
            weight: journey.weight,
            on_failure: journey.on_failure,
            operations,
            data: expander.end(Keeps::Nothing),
        });
    }
    all
}

fn expand_steps(expander: &mut Expander, steps: &[Step], notes: &mut Notes<'_>) {
    for step in steps {
        if expander.operations.len() > MOST_OPERATIONS {
            continue;
        }
        expander.expand(step, notes);
        if expander.operations.len() > MOST_OPERATIONS {
            notes.add(
                step.at,
                format!("the journey has more than {MOST_OPERATIONS} requests"),
            );
        }
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
