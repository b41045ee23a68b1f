//! `beside` of `[[phase]]`: journeys that arrive at a rate of their own.
//!
//! The rate is a number: it is the same in every cell and through all stages, so that
//! what differs is the phase's own load alone. Whether the workload has such a journey,
//! `app` checks.

use toml::de::DeValue;

use super::load::{Loads, open_loads};
use crate::matrix::sweep::{AmountKind, Beside, PhaseLoad};
use crate::toml_file::{Entry, Notes, Table};

const EXAMPLE: &str = "beside = [{ journey = \"poll\", open = { requests_per_second = 20 } }]";

/// The journeys beside a phase's load; those of a script are its own business.
pub(super) fn beside(table: &mut Table<'_>, is_k6: bool, notes: &mut Notes<'_>) -> Vec<Beside> {
    let Some(entry) = table.get("beside") else {
        return Vec::new();
    };
    let label = format!("`beside` of {}", table.name());
    if is_k6 {
        notes.hint(
            entry.key_at,
            format!("{label} belongs to loads that a workload file makes"),
            "a k6 script says so itself, with a scenario of its own",
        );
        return Vec::new();
    }
    let DeValue::Array(items) = entry.value.get_ref() else {
        table.wrong(&entry, "a list of journeys", notes);
        return Vec::new();
    };
    let mut all: Vec<Beside> = Vec::new();
    for (index, value) in items.iter().enumerate() {
        let item = Entry {
            value,
            key_at: value.span().start,
            ..entry
        };
        let Some(own) = one(&item, &format!("number {} in {label}", index + 1), notes) else {
            continue;
        };
        if all
            .iter()
            .any(|known| known.journey.value == own.journey.value)
        {
            let message = format!("{label} names the journey `{}` twice", own.journey.value);
            notes.add(item.key_at, message);
        }
        all.push(own);
    }
    all
}

fn one(entry: &Entry<'_>, name: &str, notes: &mut Notes<'_>) -> Option<Beside> {
    let mut table = Table::of(entry, name, notes)?;
    let journey = table
        .need("journey", EXAMPLE)
        .and_then(|entry| table.text(&entry, notes));
    let open = table.need("open", EXAMPLE);
    let at = table.at();
    table.finish(notes);
    let known = Loads {
        names: &[],
        may_be_list: false,
    };
    let load = open_loads(&open?, &format!("`open` of {name}"), known, notes)?.pop()?;
    let PhaseLoad::Open {
        requests_per_second,
        arrivals,
        max_in_flight,
    } = load
    else {
        return None;
    };
    let AmountKind::Number(requests_per_second) = requests_per_second.kind else {
        notes.add(
            at,
            format!(
                "`requests_per_second` of {name} must be a number: it is the same for every cell"
            ),
        );
        return None;
    };
    Some(Beside {
        journey: journey?,
        requests_per_second,
        arrivals,
        max_in_flight,
    })
}
