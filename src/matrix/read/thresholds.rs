//! `[[threshold]]`: what must hold of windows.

use std::time::Duration;

use crate::matrix::sweep::{Phase, ThresholdRule};
use crate::problem::nearest;
use crate::threshold::Threshold;
use crate::toml_file::{Entry, Located, Notes, Table};

/// First look at a threshold that ends the load, unless the file says otherwise.
const FIRST_LOOK: Duration = Duration::from_secs(10);

pub(super) fn thresholds(
    file: &mut Table<'_>,
    phases: &[Phase],
    is_k6: bool,
    notes: &mut Notes<'_>,
) -> Vec<ThresholdRule> {
    let rules: Vec<ThresholdRule> = match file.get("threshold") {
        Some(entry) => Table::blocks(&entry, "threshold", notes)
            .into_iter()
            .filter_map(|table| rule(table, phases, is_k6, notes))
            .collect(),
        None => Vec::new(),
    };
    if !notes.is_broken() {
        check_breakpoints(phases, &rules, notes);
    }
    rules
}

/// Load that grows until something breaks needs to be told what breaking is.
fn check_breakpoints(phases: &[Phase], rules: &[ThresholdRule], notes: &mut Notes<'_>) {
    for phase in phases {
        let Some(profile_at) = phase.breakpoint_at else {
            continue;
        };
        if !phase.is_window() {
            notes.hint(
                profile_at,
                format!(
                    "phase `{}` looks for a breakpoint and is no window",
                    phase.name
                ),
                "write window = true and answers = \"ladder\"",
            );
        } else if !rules.iter().any(|rule| rule.abort && rule.is_for(phase)) {
            notes.hint(
                profile_at,
                format!(
                    "phase `{}` looks for a breakpoint and nothing says what one is",
                    phase.name
                ),
                "add a [[threshold]] with abort = true, such as rule = \"p99_due < 1s\"",
            );
        }
    }
}

fn rule(
    mut table: Table<'_>,
    phases: &[Phase],
    is_k6: bool,
    notes: &mut Notes<'_>,
) -> Option<ThresholdRule> {
    let threshold = table
        .need("rule", "rule = \"p95 < 500 ms\"")
        .and_then(|entry| {
            let text = table.text(&entry, notes)?;
            match Threshold::parse(&text.value) {
                Ok(threshold) => Some(threshold),
                Err(why) => {
                    notes.add(entry.at(), format!("`rule` in {} {why}", table.name()));
                    None
                }
            }
        });
    let operation = table
        .get("operation")
        .and_then(|entry| table.text(&entry, notes));
    let window = table
        .get("window")
        .map(|entry| window(&table, &entry, phases, notes));
    let abort = table
        .get("abort")
        .map(|entry| abort(&table, &entry, is_k6, notes));
    let after = table.get("after");
    if let Some(after) = &after
        && !matches!(abort, Some(Some(true)))
    {
        notes.hint(
            after.key_at,
            format!(
                "{} says when it is looked at first and ends no load",
                table.name()
            ),
            "add abort = true, or leave `after` out: at its end every window is judged",
        );
    }
    let after = match after {
        Some(entry) => table.duration(&entry, notes),
        None => Some(FIRST_LOOK),
    };
    table.finish(notes);
    let mut threshold = threshold?;
    threshold.operation = operation.as_ref().map(|name| name.value.clone());
    Some(ThresholdRule {
        threshold,
        operation: operation.map(|name| name.location),
        window: match window {
            Some(found) => Some(found?),
            None => None,
        },
        abort: abort.flatten().unwrap_or(false),
        after: after?,
    })
}

/// Whether it ends the load, which nobody but k6 itself can do to a script.
fn abort(table: &Table<'_>, entry: &Entry<'_>, is_k6: bool, notes: &mut Notes<'_>) -> Option<bool> {
    let abort = table.truth(entry, notes);
    if is_k6 && abort == Some(true) {
        notes.hint(
            entry.key_at,
            format!("`abort` in {}: only k6 ends a k6 script", table.name()),
            "leave it out, and write in the script's options thresholds: { http_req_duration: [{ threshold: \"p(95)<500\", abortOnFail: true }] }",
        );
    }
    abort
}

fn window(
    table: &Table<'_>,
    entry: &Entry<'_>,
    phases: &[Phase],
    notes: &mut Notes<'_>,
) -> Option<String> {
    let Located { value: name, .. } = table.text(entry, notes)?;
    match phases.iter().find(|phase| phase.name == name) {
        Some(phase) if phase.is_window() => return Some(name),
        Some(_) => notes.hint(
            entry.at(),
            format!(
                "`window` in {} is `{name}`, a phase that is not measured",
                table.name()
            ),
            "write window = true in the phase",
        ),
        None => {
            let windows = || {
                let measured = phases.iter().filter(|phase| phase.is_window());
                measured.map(|phase| phase.name.as_str())
            };
            let hint = nearest(&name, windows()).map_or_else(
                || {
                    format!(
                        "the windows are {}",
                        windows().collect::<Vec<_>>().join(", ")
                    )
                },
                |near| format!("did you mean `{near}`?"),
            );
            notes.hint(
                entry.at(),
                format!(
                    "`window` in {} is `{name}`, which is no phase",
                    table.name()
                ),
                hint,
            );
        }
    }
    None
}
