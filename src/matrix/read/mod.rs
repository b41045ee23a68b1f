//! matrix.toml to a checked [`Sweep`], or all that is wrong with it.
//!
//! Each section is read by a function of its own that notes problems and goes
//! on, so one reading tells them all, in file order. Keys that belong to the
//! format and are not built yet are refused by name. Nothing is opened: whether
//! a Compose file exists is found out by whoever reads it.
//!
//! Next: `knobs` (axes, derived, constraints), `load` (load and phases),
//! `k6` (the same for scripts), `trials` (trials, cost, service level, report), `state` (golden volumes, seed,
//! hooks), `host` (CPUs, proofs).

mod beside;
mod host;
mod k6;
mod knobs;
mod load;
mod slo;
mod stages;
mod state;
#[cfg(test)]
mod tests;
mod thresholds;
mod trials;
mod wire;

pub(super) use load::target_url;

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use self::knobs::Knobs;
use super::override_node;
use super::sweep::Sweep;
use crate::problem::{Problem, Problems, nearest};
use crate::toml_file::{self, Entry, Located, Notes, Table};

/// The one version of the format that this version reads.
const FORMAT: u64 = 1;

/// Longest name of a sweep. **Units**: characters. It begins the run's folder name.
const MAX_NAME: usize = 64;

/// Sections of the format that are reserved and not built yet.
const LATER: [&str; 5] = ["baseline", "metric", "postgres", "verdicts", "notify"];

/// Reads a matrix file and checks everything that one reading can check.
///
/// **Errors**: all problems in file order, without duplicates.
pub fn read(path: &Path, text: &str) -> Result<Sweep, Problems> {
    toml_file::read(path, text, "the file", |file, notes| {
        sweep(path, file, notes)
    })
}

/// What `[sweep]` says.
struct Basics {
    name: Option<String>,
    stack: Vec<Located<PathBuf>>,
    subject: Option<Located<String>>,
    tier: Option<Located<String>>,
    services: Vec<Located<String>>,
    profiles: Vec<Located<String>>,
    secrets: Vec<Located<String>>,
}

fn sweep(path: &Path, mut file: Table<'_>, notes: &mut Notes<'_>) -> Option<Sweep> {
    format(&mut file, notes);
    let basics =
        section(&mut file, "sweep", "[sweep]", true, notes).map(|table| basics(table, notes));
    let knobs = Knobs::read(&mut file, notes);
    let names = knobs.names();
    let overrides = file.get("override").and_then(|entry| {
        // The table itself is checked for its kind, its inside is the stack's.
        Table::of(&entry, "[override]", notes).and_then(|_| override_node::node(entry.value, notes))
    });
    let cost = trials::cost(&mut file, &knobs, notes);
    let trials = trials::trials(&mut file, notes);
    let states = state::states(&mut file, &trials, notes);
    let (load, is_k6) = load::load(&mut file, &names, notes);
    let phases = load::phases(&mut file, &names, is_k6, notes);
    let hooks = state::hooks(&mut file, &phases, &names, notes);
    let slo = slo::slo(&mut file, notes);
    let thresholds = thresholds::thresholds(&mut file, &phases, is_k6, notes);
    let host = host::host(&mut file, notes);
    let proves = host::proves(&mut file, &names, notes);
    let report = trials::report(&mut file, notes);
    for key in LATER {
        file.not_yet(key, notes);
    }
    file.finish(notes);

    let basics = basics?;
    let tier = basics.tier.and_then(|tier| tier_slot(&tier, &names, notes));
    Some(Sweep {
        file: path.to_owned(),
        name: basics.name?,
        stack: basics.stack,
        subject: basics.subject?,
        services: basics.services,
        profiles: basics.profiles,
        secrets: basics.secrets,
        axes: knobs.axes,
        derived: knobs.derived,
        constraints: knobs.constraints,
        overrides,
        cost,
        trials,
        golden: states.golden,
        seed: states.seed,
        load: load?,
        phases,
        hooks,
        slo,
        thresholds,
        host,
        proves,
        report,
        names,
        tier: tier?,
    })
}

fn format(file: &mut Table<'_>, notes: &mut Notes<'_>) {
    let Some(entry) = file.need("format", "format = 1") else {
        return;
    };
    if file
        .whole(&entry, 0..u64::MAX, notes)
        .is_some_and(|format| format != FORMAT)
    {
        notes.hint(
            entry.at(),
            format!("this version of nightsweep reads `format = {FORMAT}` only"),
            "use the version of nightsweep that the file was written for",
        );
    }
}

/// The table of a section; a required one that is not there is a problem.
fn section<'d>(
    file: &mut Table<'d>,
    key: &'static str,
    name: &str,
    is_required: bool,
    notes: &mut Notes<'_>,
) -> Option<Table<'d>> {
    let entry = if is_required {
        file.need(key, name)
    } else {
        file.get(key)
    };
    entry.and_then(|entry| Table::of(&entry, name, notes))
}

fn basics(mut table: Table<'_>, notes: &mut Notes<'_>) -> Basics {
    let name = table
        .need("name", "name = \"my-service\"")
        .and_then(|entry| sweep_name(&table, &entry, notes));
    let stack = table
        .need("stack", "stack = [\"compose.yaml\"]")
        .map(|entry| {
            let files = table.texts(&entry, notes);
            if matches!(entry.value.get_ref(), DeValue::Array(items) if items.is_empty()) {
                notes.add(entry.at(), "`stack` in [sweep] names no Compose file");
            }
            files
        })
        .unwrap_or_default()
        .into_iter()
        .map(|file| Located {
            value: file.value.into(),
            location: file.location,
        })
        .collect();
    let subject = table
        .need("subject", "subject = \"app\"")
        .and_then(|entry| table.text(&entry, notes));
    let tier = table
        .need("tier", "tier = \"cpus\"")
        .and_then(|entry| table.text(&entry, notes));
    let mut list = |key| {
        table
            .get(key)
            .map(|entry| table.texts(&entry, notes))
            .unwrap_or_default()
    };
    let (services, profiles, secrets) = (list("services"), list("profiles"), list("secrets"));
    table.finish(notes);
    Basics {
        name,
        stack,
        subject,
        tier,
        services,
        profiles,
        secrets,
    }
}

fn sweep_name(table: &Table<'_>, entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<String> {
    let name = table.text(entry, notes)?.value;
    let is_safe = name
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.len() <= MAX_NAME;
    if is_safe {
        return Some(name);
    }
    notes.add(
        entry.at(),
        format!(
            "`name` in [sweep] begins the run's folder name and cannot be `{name}` (allowed: up to {MAX_NAME} of A-Z a-z 0-9 . _ -, first a letter or digit)"
        ),
    );
    None
}

fn tier_slot(tier: &Located<String>, names: &[String], notes: &mut Notes<'_>) -> Option<usize> {
    let slot = names.iter().position(|name| *name == tier.value);
    if slot.is_none() {
        let near = nearest(&tier.value, names.iter().map(String::as_str));
        let hint = near.map_or_else(
            || format!("the names are {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        notes.push(
            Problem::new(
                tier.location.clone(),
                format!(
                    "`tier` in [sweep] is `{}`, which is neither an axis nor a derived value",
                    tier.value
                ),
            )
            .with_hint(hint),
        );
    }
    slot
}
