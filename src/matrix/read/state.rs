//! `[golden]`, `[seed]` and `[[hook]]`.
//!
//! Whether a volume or a service is one of the stack is found out by whoever reads
//! the Compose files.

use std::ops::Range;
use std::time::Duration;

use toml::de::DeValue;

use super::host::value_text;
use super::load::target;
use super::section;
use crate::matrix::state::{CloneWay, Golden, GoldenFrom, Hook, HookBefore, Seed, State};
use crate::matrix::sweep::{Phase, Trials};
use crate::matrix::value_text::ValueText;
use crate::problem::nearest;
use crate::toml_file::{Entry, Located, Notes, Quoted, Table};

/// Longest time of seeding unless the file says otherwise.
const SEED_TIMEOUT: Duration = Duration::from_mins(30);
/// Longest time of a hook unless the file says otherwise: a checkpoint of a large database takes a while.
const HOOK_TIMEOUT: Duration = Duration::from_mins(1);
/// One connection each; see `amount`.
const USERS: Range<u64> = 1..1_001;

/// The sections that go with `[trials] state`.
pub(super) struct States {
    pub(super) golden: Option<Golden>,
    pub(super) seed: Option<Seed>,
}

pub(super) fn states(file: &mut Table<'_>, trials: &Trials, notes: &mut Notes<'_>) -> States {
    let entry = file.get("golden");
    let is_golden = trials.state == State::Golden;
    if let Some(entry) = entry
        && !is_golden
        && !file.is_broken(notes)
    {
        notes.hint(
            entry.key_at,
            format!(
                "[golden] is given and `state` in [trials] is \"{}\"",
                trials.state.as_str()
            ),
            "write state = \"golden\" in [trials], or take the section away",
        );
    }
    if entry.is_none() && is_golden && !file.is_broken(notes) {
        notes.hint(
            file.at(),
            "`state = \"golden\"` in [trials] needs a section [golden]",
            "add: [golden] with volumes = [\"pgdata\"]",
        );
    }
    let golden =
        section(file, "golden", "[golden]", false, notes).and_then(|table| golden(table, notes));
    let seed_entry = file.get("seed");
    let is_prepared = golden
        .as_ref()
        .is_none_or(|golden| golden.from.value == GoldenFrom::Prepare);
    if let Some(entry) = seed_entry
        && !(is_golden && is_prepared)
        && !file.is_broken(notes)
    {
        notes.hint(
            entry.key_at,
            "[seed] fills golden volumes while they are prepared, and none are",
            "write state = \"golden\" in [trials] and from = \"prepare\" in [golden], or take the section away",
        );
    }
    let seed = section(file, "seed", "[seed]", false, notes).and_then(|table| seed(table, notes));
    States { golden, seed }
}

fn golden(mut table: Table<'_>, notes: &mut Notes<'_>) -> Option<Golden> {
    let from = match table.get("from") {
        Some(entry) => golden_from(&table, &entry, notes),
        None => Some(Located {
            value: GoldenFrom::Prepare,
            location: notes.at(table.at()),
        }),
    };
    let volumes_entry = table.need("volumes", "volumes = [\"pgdata\"]");
    let volumes = volumes_entry.map(|entry| {
        let volumes = table.texts(&entry, notes);
        if matches!(entry.value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            notes.add(entry.at(), "`volumes` in [golden] names no volume");
        }
        volumes
    });
    let words = [
        ("auto", CloneWay::Auto),
        ("reflink", CloneWay::Reflink),
        ("overlay", CloneWay::Overlay),
        ("copy", CloneWay::Copy),
    ];
    let clone = match table.get("clone") {
        Some(entry) => table.word(&entry, &words, &[], notes),
        None => Some(CloneWay::Auto),
    };
    let is_one_source = from
        .as_ref()
        .is_some_and(|from| from.value != GoldenFrom::Prepare);
    if let (Some(entry), Some(volumes)) = (volumes_entry, &volumes)
        && is_one_source
        && volumes.len() > 1
    {
        notes.add(
            entry.at(),
            format!(
                "`from` in [golden] names one source and `volumes` {} volumes (allowed: one, or from = \"prepare\")",
                volumes.len()
            ),
        );
    }
    table.finish(notes);
    Some(Golden {
        from: from?,
        volumes: volumes?,
        clone: clone?,
    })
}

fn golden_from(
    table: &Table<'_>,
    entry: &Entry<'_>,
    notes: &mut Notes<'_>,
) -> Option<Located<GoldenFrom>> {
    let text = table.text(entry, notes)?;
    let value = match text.value.split_once(':') {
        None if text.value == "prepare" => GoldenFrom::Prepare,
        Some(("volume", name)) if !name.trim().is_empty() => GoldenFrom::Volume(name.to_owned()),
        Some(("dir", path)) if !path.trim().is_empty() => GoldenFrom::Folder(path.into()),
        _ => {
            notes.add(
                entry.at(),
                format!(
                    "`from` in [golden] cannot be `{}` (allowed: \"prepare\", \"volume:NAME\", \"dir:PATH\")",
                    text.value
                ),
            );
            return None;
        }
    };
    Some(Located {
        value,
        location: text.location,
    })
}

fn seed(mut table: Table<'_>, notes: &mut Notes<'_>) -> Option<Seed> {
    let mut text = |key| table.get(key).and_then(|entry| table.text(&entry, notes));
    let (service, workload) = (text("service"), text("workload"));
    let target = table
        .get("target")
        .and_then(|entry| target(&table, &entry, notes));
    let has_workload = table.has_later(&["workload"]);
    if !has_workload && !table.has_later(&["service"]) && !table.is_broken(notes) {
        notes.hint(
            table.at(),
            "[seed] has neither `workload` nor `service`",
            "add workload = \"seed.toml\", or service = \"NAME\" for a service of the Compose file that fills the database and ends",
        );
    }
    for key in ["target", "users", "journeys"] {
        if let Some(entry) = table.get(key)
            && !has_workload
            && !table.is_broken(notes)
        {
            notes.add(
                entry.key_at,
                format!("`{key}` in [seed] belongs to `workload`, which is not there"),
            );
        }
    }
    let mut whole = |key, allowed: Range<u64>| match table.get(key) {
        Some(entry) => table.whole(&entry, allowed, notes),
        None => Some(1),
    };
    let (users, journeys) = (whole("users", USERS), whole("journeys", 1..u64::MAX));
    let timeout = match table.get("timeout") {
        Some(entry) => table.some_time(&entry, notes),
        None => Some(SEED_TIMEOUT),
    };
    table.finish(notes);
    Some(Seed {
        service,
        workload: workload.map(|text| Located {
            value: text.value.into(),
            location: text.location,
        }),
        target,
        users: u32::try_from(users?).expect("the range is small"),
        journeys: journeys?,
        timeout: timeout?,
    })
}

pub(super) fn hooks(
    file: &mut Table<'_>,
    phases: &[Phase],
    names: &[String],
    notes: &mut Notes<'_>,
) -> Vec<Hook> {
    let Some(entry) = file.get("hook") else {
        return Vec::new();
    };
    let blocks = Table::blocks(&entry, "hook", notes);
    blocks
        .into_iter()
        .filter_map(|table| hook(table, phases, names, notes))
        .collect()
}

fn hook(
    mut table: Table<'_>,
    phases: &[Phase],
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<Hook> {
    let location = notes.at(table.at());
    let before = table
        .need("before", "before = \"window\"")
        .and_then(|entry| {
            let text = table.text(&entry, notes)?.value;
            if text == "window" {
                return Some(HookBefore::Windows);
            }
            if phases.iter().any(|phase| phase.name == text) {
                return Some(HookBefore::Phase(text));
            }
            let of_phases = || phases.iter().map(|phase| phase.name.as_str());
            let hint = nearest(&text, of_phases().chain(["window"])).map_or_else(
                || {
                    let phases: Vec<&str> = of_phases().collect();
                    format!("the phases are {}", phases.join(", "))
                },
                |near| format!("did you mean `{near}`?"),
            );
            notes.hint(
                entry.at(),
                format!(
                    "`before` in [[hook]] is `{text}`, which is neither \"window\" nor a phase"
                ),
                hint,
            );
            None
        });
    let service = table
        .need("service", "service = \"db\"")
        .and_then(|entry| table.text(&entry, notes));
    let exec = table
        .need("exec", "exec = [\"psql\", \"-c\", \"CHECKPOINT\"]")
        .and_then(|entry| words(&table, &entry, names, notes));
    let timeout = match table.get("timeout") {
        Some(entry) => table.some_time(&entry, notes),
        None => Some(HOOK_TIMEOUT),
    };
    table.finish(notes);
    Some(Hook {
        location,
        before: before?,
        service: service?,
        exec: exec?,
        timeout: timeout?,
    })
}

/// A command: arguments may be alike, and empty but for the first.
fn words(
    table: &Table<'_>,
    entry: &Entry<'_>,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<Vec<ValueText>> {
    let items = match entry.value.get_ref() {
        DeValue::Array(items) if !items.is_empty() => items,
        _ => {
            table.wrong(
                entry,
                "a list of texts, the command and its arguments",
                notes,
            );
            return None;
        }
    };
    let mut words = Vec::new();
    for item in items {
        match item.get_ref() {
            DeValue::String(word) if !word.is_empty() || !words.is_empty() => {
                let quoted = Quoted {
                    text: word.as_ref().to_owned(),
                    at: item.span().start,
                };
                let whose = format!("`exec` of {}", table.name());
                words.push(value_text(word, &quoted, &whose, names, notes));
            }
            _ => {
                table.wrong(
                    entry,
                    "a list of texts, the command and its arguments",
                    notes,
                );
                return None;
            }
        }
    }
    // Every word is looked at, so that all that is wrong with them is said at once.
    words.into_iter().collect()
}
