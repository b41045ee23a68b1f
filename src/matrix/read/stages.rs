//! `stages` and `profile` of `[[phase]]`: several loads, one after the other.
//!
//! A stage goes to its load evenly (`ramp`), then holds it (`hold`). A list of
//! loads in a stage is as many stages, so that a ladder is one line. A profile
//! is a shape with a name: it becomes the stages that somebody could have written.

use std::time::Duration;

use toml::de::DeValue;

use super::load::{duration, loads};
use crate::matrix::profile::Profile;
use crate::matrix::sweep::{PhaseLoad, Stage};
use crate::toml_file::{Entry, Notes, Table, describe};

/// A ladder in one line.
pub(super) const EXAMPLE: &str =
    "stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = \"10s\", hold = \"2m\" }]";

/// Most stages of a phase; each is as much work at its edges as a phase.
const MOST_STAGES: usize = 1_000;

/// Keys of phases that have one load, or a profile.
const NOT_BESIDE_STAGES: [&str; 5] = ["open", "closed", "duration", "ramp", "hold"];

/// Where the phase says that its load grows until something breaks.
pub(super) fn breakpoint_at(table: &mut Table<'_>) -> Option<usize> {
    let entry = table.get("profile")?;
    (entry.value.get_ref().as_str() == Some("breakpoint")).then(|| entry.at())
}

/// Whether the phase has several loads.
pub(super) fn is_staged(table: &Table<'_>) -> bool {
    table.has_later(&["stages", "profile"])
}

/// The loads of a phase, one after the other.
pub(super) fn stages(
    table: &mut Table<'_>,
    is_window: bool,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<Vec<Stage>> {
    let found = match (table.get("stages"), table.get("profile")) {
        (Some(entry), None) => {
            beside_stages(table, notes);
            let label = format!("`stages` of {}", table.name());
            staged(&entry, &label, names, notes)?
        }
        (None, Some(entry)) => profiled(table, &entry, names, notes)?,
        (Some(_), Some(profile)) => {
            let name = table.name();
            let message = format!("{name} has both `stages` and `profile` (allowed: one of them)");
            notes.add(profile.key_at, message);
            return None;
        }
        (None, None) => {
            let load = loads(table, false, names, notes);
            let hold = duration(table, notes);
            return Some(vec![Stage {
                load: load?.pop()?,
                share: 1.0,
                ramp: Duration::ZERO,
                hold: hold?,
            }]);
        }
    };
    if is_window && found.iter().all(|stage| stage.hold.is_zero()) {
        notes.hint(
            table.at(),
            format!(
                "{} is a window and holds no load: only holds are measured",
                table.name()
            ),
            "add `hold` to a stage, such as hold = \"2m\"",
        );
    }
    Some(found)
}

/// What stands beside `stages` and would say a load or a length a second time.
fn beside_stages(table: &mut Table<'_>, notes: &mut Notes<'_>) {
    for key in NOT_BESIDE_STAGES {
        if table.has_later(&[key])
            && let Some(entry) = table.get(key)
        {
            notes.add(
                entry.key_at,
                format!(
                    "`{key}` stands beside `stages` in {}: each stage has its own",
                    table.name()
                ),
            );
        }
    }
}

fn staged(
    entry: &Entry<'_>,
    label: &str,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<Vec<Stage>> {
    let DeValue::Array(items) = entry.value.get_ref() else {
        notes.hint(
            entry.at(),
            format!(
                "{label} must be a list of stages, not {}",
                describe(entry.value.get_ref())
            ),
            format!("such as {EXAMPLE}"),
        );
        return None;
    };
    let mut stages: Vec<Stage> = Vec::new();
    let mut is_whole = true;
    for (index, value) in items.iter().enumerate() {
        let item = Entry {
            value,
            key_at: value.span().start,
            ..*entry
        };
        let name = format!("stage {} in {label}", index + 1);
        match stage(&item, &name, names, notes) {
            Some(own) => {
                let is_open = |stage: &Stage| matches!(stage.load, PhaseLoad::Open { .. });
                let kinds = (stages.first().map(is_open), own.first().map(is_open));
                if let (Some(first), Some(this)) = kinds
                    && first != this
                {
                    notes.hint(
                        item.key_at,
                        format!("{name} is of another kind of load than the first"),
                        "write two phases: there is no way to go evenly from `open` to `closed`",
                    );
                    is_whole = false;
                }
                stages.extend(own);
            }
            None => is_whole = false,
        }
    }
    if items.is_empty() {
        notes.hint(
            entry.at(),
            format!("{label} has no stage"),
            format!("such as {EXAMPLE}"),
        );
    }
    if stages.len() > MOST_STAGES {
        let n = stages.len();
        notes.add(
            entry.at(),
            format!("{label} has {n} stages (allowed: up to {MOST_STAGES})"),
        );
        return None;
    }
    (is_whole && !stages.is_empty()).then_some(stages)
}

/// One stage, or with a list of loads as many.
fn stage(
    entry: &Entry<'_>,
    name: &str,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<Vec<Stage>> {
    let mut table = Table::of(entry, name, notes)?;
    let loads = loads(&mut table, true, names, notes);
    let (ramp, hold) = ramp_and_hold(&mut table, notes);
    // A length that cannot be read has been told.
    let takes_none = |key: &str, length: Option<Duration>| {
        length.map_or(!table.has_later(&[key]), |length| length.is_zero())
    };
    let is_empty = takes_none("ramp", ramp) && takes_none("hold", hold);
    if is_empty && !table.is_broken(notes) {
        notes.hint(
            table.at(),
            format!("{name} has neither `ramp` nor `hold`, so it takes no time"),
            "add hold = \"2m\" to measure its load, or ramp = \"10s\" to go to it evenly",
        );
    }
    table.finish(notes);
    let stage = |load| Stage {
        load,
        share: 1.0,
        ramp: ramp.unwrap_or_default(),
        hold: hold.unwrap_or_default(),
    };
    Some(loads?.into_iter().map(stage).collect())
}

fn ramp_and_hold(
    table: &mut Table<'_>,
    notes: &mut Notes<'_>,
) -> (Option<Duration>, Option<Duration>) {
    let [ramp, hold] = ["ramp", "hold"].map(|key| {
        let entry = table.get(key)?;
        table.duration(&entry, notes)
    });
    (ramp, hold)
}

fn profiled(
    table: &mut Table<'_>,
    entry: &Entry<'_>,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<Vec<Stage>> {
    let profile = table.word(entry, &Profile::ALL, &[], notes);
    let load = loads(table, false, names, notes).and_then(|mut loads| loads.pop());
    let (ramp, hold) = ramp_and_hold(table, notes);
    if table.has_later(&["duration"])
        && let Some(duration) = table.get("duration")
    {
        notes.hint(
            duration.key_at,
            format!("`duration` stands beside `profile` in {}", table.name()),
            "a profile has its own lengths; `hold` and `ramp` set those of every stage",
        );
    }
    if hold.is_some_and(|hold| hold.is_zero()) {
        notes.add(
            table.at(),
            format!(
                "`hold` of {} is 0, so that it would hold no load",
                table.name()
            ),
        );
    }
    let (load, profile) = (load?, profile?);
    Some(profile.stages(&load, ramp, hold))
}
