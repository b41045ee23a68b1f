//! `[cost]`, `[trials]` and `[report]`.
//!
//! Every key has a default, written here once; the starter file names them too.

use std::time::Duration;

use super::knobs::Knobs;
use super::section;
use crate::matrix::state::State;
use crate::matrix::sweep::{Order, ReportText, Trials};
use crate::problem::{Problem, nearest};
use crate::scalar::Scalar;
use crate::toml_file::{Located, Notes, Table};

/// Most launches of one cell; a thousand short trials of one cell take a day.
const MAX_REPEATS: u64 = 1_000;

/// `[trials]` of a file that says nothing about them.
fn defaults() -> Trials {
    Trials {
        repeats: 3,
        order: Order::Blocks,
        seed: 1,
        state: State::Fresh,
        ready_timeout: Duration::from_mins(2),
        max_consecutive_failures: Some(5),
        shared: Vec::new(),
    }
}

pub(super) fn trials(file: &mut Table<'_>, notes: &mut Notes<'_>) -> Trials {
    let mut trials = defaults();
    let Some(mut table) = section(file, "trials", "[trials]", false, notes) else {
        return trials;
    };
    if let Some(entry) = table.get("repeats")
        && let Some(repeats) = table.whole(&entry, 1..MAX_REPEATS + 1, notes)
    {
        trials.repeats = u32::try_from(repeats).expect("the range is small");
    }
    if let Some(entry) = table.get("order") {
        let words = [("blocks", Order::Blocks), ("listed", Order::Listed)];
        trials.order = table
            .word(&entry, &words, &[], notes)
            .unwrap_or(trials.order);
    }
    if let Some(entry) = table.get("seed") {
        trials.seed = table
            .whole(&entry, 0..u64::MAX, notes)
            .unwrap_or(trials.seed);
    }
    if let Some(entry) = table.get("state") {
        let words = [
            ("fresh", State::Fresh),
            ("golden", State::Golden),
            ("keep", State::Keep),
        ];
        trials.state = table
            .word(&entry, &words, &[], notes)
            .unwrap_or(trials.state);
    }
    if let Some(entry) = table.get("confirm")
        && table
            .whole(&entry, 0..MAX_REPEATS + 1, notes)
            .is_some_and(|confirm| confirm > 0)
    {
        notes.add(
            entry.at(),
            "`confirm` in [trials] other than 0 is not yet supported",
        );
    }
    if let Some(entry) = table.get("ready_timeout") {
        trials.ready_timeout = table
            .some_time(&entry, notes)
            .unwrap_or(trials.ready_timeout);
    }
    if let Some(entry) = table.get("max_consecutive_failures")
        && let Some(most) = table.whole(&entry, 0..u64::from(u32::MAX), notes)
    {
        // 0 is how the file says `never`.
        trials.max_consecutive_failures = u32::try_from(most).ok().filter(|most| *most > 0);
    }
    if let Some(entry) = table.get("shared") {
        trials.shared = table.texts(&entry, notes);
    }
    table.finish(notes);
    trials
}

pub(super) fn cost(
    file: &mut Table<'_>,
    knobs: &Knobs,
    notes: &mut Notes<'_>,
) -> Vec<Located<String>> {
    let Some(mut table) = section(file, "cost", "[cost]", false, notes) else {
        return Vec::new();
    };
    let order = table
        .need("order", "order = [\"web_threads\"]")
        .map(|entry| table.texts(&entry, notes))
        .unwrap_or_default();
    table.finish(notes);
    let names = knobs.names();
    for name in &order {
        if !names.contains(&name.value) {
            let hint = nearest(&name.value, names.iter().map(String::as_str)).map_or_else(
                || format!("the names are {}", names.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            let message = format!(
                "`order` in [cost] names `{}`, which is neither an axis nor a derived value",
                name.value
            );
            notes.push(Problem::new(name.location.clone(), message).with_hint(hint));
        }
        let axis = knobs.axes.iter().find(|axis| axis.name == name.value);
        let word = axis.and_then(|axis| {
            let is_number = |level: &&Scalar| level.as_number().is_some();
            axis.levels.iter().find(|level| !is_number(level))
        });
        if let Some(word) = word {
            let message = format!(
                "`order` in [cost] names axis `{}`, whose level {word} is no number: it cannot be cheaper",
                name.value
            );
            notes.push(Problem::new(name.location.clone(), message));
        }
    }
    order
}

pub(super) fn report(file: &mut Table<'_>, notes: &mut Notes<'_>) -> ReportText {
    let Some(mut table) = section(file, "report", "[report]", false, notes) else {
        return ReportText::default();
    };
    let mut text = |key| {
        table
            .get(key)
            .and_then(|entry| table.text(&entry, notes))
            .map(|text| text.value)
    };
    let report = ReportText {
        title: text("title"),
        author: text("author"),
        notes: text("notes"),
    };
    table.finish(notes);
    report
}
