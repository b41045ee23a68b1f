//! Reading `[[journey]]`, `[[setup]]` and `[data.NAME]` of a workload file.
//!
//! `workload_file` reads the rest; steps are read by `step_file` and still unexpanded
//! here. Opens data files, relative to the workload file.

use std::path::Path;
use std::time::Duration;

use indexmap::IndexMap;

use super::data::{self, DataSet, Pick};
use super::step_file::{Step, read_step};
use super::workload::{OnFailure, SetupScope, WeightOf};
use super::workload_file::Shared;
use crate::toml_file::{Entry, Notes, Table};

/// A journey whose steps are not expanded yet.
#[derive(Debug)]
pub(super) struct JourneyFile {
    /// Where to say that it makes no request.
    pub(super) at: usize,
    pub(super) name: String,
    pub(super) weight: f64,
    pub(super) on_failure: OnFailure,
    pub(super) steps: Vec<Step>,
}

/// A set-up whose steps are not expanded yet.
#[derive(Debug)]
pub(super) struct SetupFile {
    pub(super) at: usize,
    pub(super) scope: SetupScope,
    pub(super) renew: Option<Duration>,
    pub(super) steps: Vec<Step>,
}

/// What the file does with failed steps and weights.
#[derive(Debug, Default)]
pub(super) struct Journeys {
    pub(super) journeys: Vec<JourneyFile>,
    pub(super) weight_of: WeightOf,
}

/// `on_failure` of the file or of a journey.
fn read_on_failure(table: &mut Table<'_>, default: OnFailure, notes: &mut Notes<'_>) -> OnFailure {
    let words = [
        ("abort", OnFailure::Abort),
        ("continue", OnFailure::Continue),
    ];
    table
        .get("on_failure")
        .and_then(|entry| table.word(&entry, &words, &[], notes))
        .unwrap_or(default)
}

/// The journeys: those of `[[journey]]`, or the one of top-level steps.
pub(super) fn read_journeys(
    file: &mut Table<'_>,
    shared: &Shared,
    notes: &mut Notes<'_>,
) -> Journeys {
    let on_failure = read_on_failure(file, OnFailure::default(), notes);
    let words = [("journeys", WeightOf::Journeys), ("users", WeightOf::Users)];
    let weight_of = file.get("weight_of");
    let blocks = file.get("journey");
    if let (Some(entry), None) = (weight_of, blocks) {
        notes.add(
            entry.key_at,
            "`weight_of` says what the weights of [[journey]] are shares of, and there is none",
        );
    }
    let weight_of = weight_of.and_then(|entry| file.word(&entry, &words, &[], notes));
    let Some(blocks) = blocks else {
        return Journeys {
            journeys: single(file, shared, on_failure, notes),
            weight_of: WeightOf::default(),
        };
    };
    if let Some(entry) = file.get("step") {
        notes.hint(
            entry.key_at,
            "the file has both [[step]] and [[journey]]: top-level steps are the one journey",
            "write the steps of each journey as [[journey.step]] below its [[journey]]",
        );
    }
    let mut journeys: Vec<JourneyFile> = Vec::new();
    for table in Table::blocks(&blocks, "journey", notes) {
        let journey = read_journey(table, shared, on_failure, notes);
        if journeys.iter().any(|known| known.name == journey.name) && !journey.name.is_empty() {
            let message = format!(
                "two journeys are named `{}`: names tell figures apart",
                journey.name
            );
            notes.add(journey.at, message);
        }
        journeys.push(journey);
    }
    if !journeys.is_empty() && journeys.iter().all(|journey| journey.weight <= 0.0) {
        notes.hint(
            blocks.key_at,
            "every journey has the weight 0, so that none would be drawn",
            "the weight 0 is for journeys that a phase of the matrix names in `beside`",
        );
    }
    Journeys {
        journeys,
        weight_of: weight_of.unwrap_or_default(),
    }
}

/// Top-level steps.
fn single(
    file: &mut Table<'_>,
    shared: &Shared,
    on_failure: OnFailure,
    notes: &mut Notes<'_>,
) -> Vec<JourneyFile> {
    let Some(entry) = file.need("step", "[[step]]") else {
        return Vec::new();
    };
    vec![JourneyFile {
        at: entry.key_at,
        name: String::new(),
        weight: 1.0,
        on_failure,
        steps: read_steps(&entry, "step", shared, notes),
    }]
}

fn read_steps(entry: &Entry<'_>, label: &str, shared: &Shared, notes: &mut Notes<'_>) -> Vec<Step> {
    let blocks = Table::blocks(entry, label, notes);
    let steps = blocks.into_iter();
    steps
        .filter_map(|table| read_step(table, shared, notes))
        .collect()
}

fn read_journey(
    mut table: Table<'_>,
    shared: &Shared,
    on_failure: OnFailure,
    notes: &mut Notes<'_>,
) -> JourneyFile {
    let name = table
        .need("name", "name = \"editor\"")
        .and_then(|entry| table.text(&entry, notes))
        .map(|name| name.value)
        .unwrap_or_default();
    let weight = table.get("weight").and_then(|entry| {
        let weight = table.number(&entry, notes)?;
        if weight < 0.0 {
            table.wrong(&entry, "a number that is 0 or more", notes);
        }
        Some(weight).filter(|weight| *weight >= 0.0)
    });
    let on_failure = read_on_failure(&mut table, on_failure, notes);
    let steps = table
        .need("step", "[[journey.step]]")
        .map(|entry| read_steps(&entry, "journey.step", shared, notes));
    let at = table.at();
    table.finish(notes);
    JourneyFile {
        at,
        name,
        weight: weight.unwrap_or(1.0),
        on_failure,
        steps: steps.unwrap_or_default(),
    }
}

/// `[[setup]]`: those of the whole load first, since users may use what they capture.
pub(super) fn read_setups(
    file: &mut Table<'_>,
    shared: &Shared,
    notes: &mut Notes<'_>,
) -> Vec<SetupFile> {
    let blocks = file
        .get("setup")
        .map(|entry| Table::blocks(&entry, "setup", notes));
    let mut setups: Vec<SetupFile> = blocks
        .unwrap_or_default()
        .into_iter()
        .filter_map(|table| read_setup(table, shared, notes))
        .collect();
    setups.sort_by_key(|setup| setup.scope == SetupScope::User);
    setups
}

fn read_setup(mut table: Table<'_>, shared: &Shared, notes: &mut Notes<'_>) -> Option<SetupFile> {
    let words = [("user", SetupScope::User), ("trial", SetupScope::Trial)];
    let scope = table
        .need("scope", "scope = \"user\"")
        .and_then(|entry| table.word(&entry, &words, &[], notes));
    let renew = table.get("renew");
    if let (Some(entry), Some(SetupScope::Trial)) = (renew, scope) {
        notes.hint(
            entry.key_at,
            format!("`renew` in {} is for set-ups of users", table.name()),
            "write scope = \"user\": what is done once per load is not done again",
        );
    }
    let renew = renew.and_then(|entry| table.some_time(&entry, notes));
    let steps = table
        .need("step", "[[setup.step]]")
        .map(|entry| read_steps(&entry, "setup.step", shared, notes));
    let at = table.at();
    table.finish(notes);
    Some(SetupFile {
        at,
        scope: scope?,
        renew,
        steps: steps?,
    })
}

/// `[data.NAME]`, each with its file; `None` for one that cannot be used.
pub(super) fn read_data(
    file: &mut Table<'_>,
    base: &Path,
    shared: &mut Shared,
    notes: &mut Notes<'_>,
) -> IndexMap<String, Option<DataSet>> {
    let mut sets = IndexMap::new();
    let named = file
        .get("data")
        .and_then(|entry| Table::of(&entry, "[data]", notes));
    for entry in named.map(|named| named.entries()).unwrap_or_default() {
        let name = entry.key;
        if name.contains(['.', '$', '{', '}']) {
            notes.add(
                entry.key_at,
                format!("a data file cannot be called `{name}` (allowed: a name without dots, dollars and braces)"),
            );
            continue;
        }
        let set = Table::of(&entry, &format!("[data.{name}]"), notes)
            .and_then(|table| read_set(name, table, base, shared, notes));
        sets.insert(name.to_owned(), set);
    }
    sets
}

fn read_set(
    name: &str,
    mut table: Table<'_>,
    base: &Path,
    shared: &mut Shared,
    notes: &mut Notes<'_>,
) -> Option<DataSet> {
    let file = table
        .need("file", "file = \"users.csv\"")
        .and_then(|entry| table.text(&entry, notes).map(|text| (entry, text.value)));
    let words = [
        ("per_user", Pick::PerUser),
        ("random", Pick::Random),
        ("next", Pick::Next),
    ];
    let pick = table
        .need("pick", "pick = \"per_user\"")
        .and_then(|entry| table.word(&entry, &words, &[], notes));
    table.finish(notes);
    let (entry, file) = file?;
    let path = base.join(file);
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    if ending != "csv" && ending != "json" {
        notes.add(
            entry.at(),
            format!("`file` in [data.{name}] must end in .csv or .json, which say what it is"),
        );
        return None;
    }
    let text = match fs_err::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            let message = format!(
                "the data file {} cannot be read: {}",
                path.display(),
                error.kind()
            );
            notes.hint(
                entry.at(),
                message,
                "data files are UTF-8 and relative to the workload file",
            );
            return None;
        }
    };
    if !shared.files.contains(&path) {
        shared.files.push(path.clone());
    }
    match data::read(&path, &text) {
        Ok(content) => Some(DataSet::new(name, pick?, content)),
        Err(problems) => {
            for problem in problems {
                notes.push(problem);
            }
            None
        }
    }
}
