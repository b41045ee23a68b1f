//! `k6` in `[load]`, and phases that cut windows out of a script.
//!
//! The script's own options say how much load there is: a load in a phase is a
//! mistake. Whether a scenario exists is found out by whoever asks k6.

use std::time::Duration;

use toml::de::DeValue;

use super::host::value_text;
use crate::matrix::sweep::{K6Load, PhaseLoad, Stage};
use crate::matrix::value_text::ValueText;
use crate::toml_file::{Entry, Located, Notes, Table, describe};

/// What a script is given beside axes and derived values.
const TARGET: &str = "target";

const EXAMPLE: &str = "k6 = \"script.js\"";

/// Reads `k6`: a path, or a table.
pub(super) fn k6(
    load: &mut Table<'_>,
    entry: &Entry<'_>,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<K6Load> {
    let binary = load
        .get("k6_binary")
        .and_then(|entry| load.text(&entry, notes));
    let mut read = match entry.value.get_ref() {
        DeValue::String(_) => {
            let script = load.text(entry, notes)?;
            K6Load {
                script: as_path(script),
                binary: None,
                env: Vec::new(),
                hosts: Vec::new(),
            }
        }
        DeValue::Table(_) => table(entry, names, notes)?,
        other => {
            notes.hint(
                entry.at(),
                format!(
                    "`k6` in [load] must be a path or a table, not {}",
                    describe(other)
                ),
                EXAMPLE,
            );
            return None;
        }
    };
    read.binary = binary.map(as_path);
    Some(read)
}

fn table(entry: &Entry<'_>, names: &[String], notes: &mut Notes<'_>) -> Option<K6Load> {
    let mut table = Table::of(entry, "`k6` of [load]", notes)?;
    let script = table
        .need("script", "script = \"script.js\"")
        .and_then(|entry| table.text(&entry, notes));
    let env = table
        .get("env")
        .map(|entry| env(&entry, names, notes))
        .unwrap_or_default();
    let hosts = table
        .get("hosts")
        .map(|entry| table.texts(&entry, notes))
        .unwrap_or_default();
    for host in &hosts {
        if !is_host(&host.value) {
            notes.push(
                crate::problem::Problem::new(
                    host.location.clone(),
                    format!(
                        "`{}` in `hosts` of `k6` is no host and port (allowed: letters, digits, `.` and `-`, such as localhost:8080)",
                        host.value
                    ),
                )
                .with_hint("k6 leads a host with `_` nowhere else: let the script take it from __ENV.BASE_URL"),
            );
        }
    }
    table.not_yet("args", notes);
    table.finish(notes);
    Some(K6Load {
        script: as_path(script?),
        binary: None,
        env,
        hosts,
    })
}

fn env(entry: &Entry<'_>, names: &[String], notes: &mut Notes<'_>) -> Vec<(String, ValueText)> {
    let Some(table) = Table::of(entry, "`env` of `k6`", notes) else {
        return Vec::new();
    };
    let known: Vec<String> = names.iter().cloned().chain([TARGET.to_owned()]).collect();
    let mut read = Vec::new();
    for entry in table.entries() {
        let name = entry.key.to_owned();
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.chars().all(is_letter) || name.starts_with(|c: char| c.is_ascii_digit()) {
            notes.add(
                entry.key_at,
                format!("`{name}` in `env` of `k6` is no name of a variable (allowed: letters, digits and `_`)"),
            );
        }
        match entry.value.get_ref() {
            DeValue::String(_) => {
                if let Some(quoted) = table.quoted(&entry, notes)
                    && let Some(text) = table.text(&entry, notes)
                    && let Some(value) =
                        value_text(&text.value, &quoted, "`env` of `k6`", &known, notes)
                {
                    read.push((name, value));
                }
            }
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                let text = crate::toml_file::number_of(entry.value.get_ref())
                    .map(|number| number.to_string());
                let text = text.or_else(|| entry.value.get_ref().as_bool().map(|b| b.to_string()));
                if let Some(value) = text.and_then(|text| ValueText::parse(&text).ok()) {
                    read.push((name, value));
                }
            }
            other => notes.add(
                entry.at(),
                format!(
                    "`{name}` in `env` of `k6` must be a text, a number or a boolean, not {}",
                    describe(other)
                ),
            ),
        }
    }
    read
}

/// What a phase cuts out of the script, and its length where it says so.
pub(super) fn cut(table: &mut Table<'_>, is_window: bool, notes: &mut Notes<'_>) -> Option<Stage> {
    let name = table.name().to_owned();
    for key in ["open", "closed", "stages", "profile", "ramp", "hold"] {
        if let Some(entry) = table.get(key) {
            notes.hint(
                entry.key_at,
                format!("`{key}` of {name}: a k6 script says itself how much load there is"),
                "change the script's options, or take `k6` out of [load]",
            );
        }
    }
    if !is_window && !table.is_broken(notes) {
        notes.hint(
            table.at(),
            format!("{name} is no window: with `k6` a phase only cuts a window out of the script"),
            "write window = true, or leave the phase out: what lies before a window warms up",
        );
    }
    let mut is_readable = true;
    let mut is_read = |is_there: bool, is_read: bool| is_readable &= is_read || !is_there;
    let entry = table.get("scenario");
    let scenario = entry.and_then(|entry| table.text(&entry, notes));
    is_read(entry.is_some(), scenario.is_some());
    let entry = table.get("from");
    let from = entry.and_then(|entry| table.duration(&entry, notes));
    is_read(entry.is_some(), from.is_some());
    let entry = table.get("duration");
    let duration = entry.and_then(|entry| table.some_time(&entry, notes));
    is_read(entry.is_some(), duration.is_some());
    // What is there and wrong has been noted.
    is_readable.then(|| {
        let load = PhaseLoad::Script {
            scenario,
            from,
            duration,
            is_open: false,
        };
        Stage {
            load,
            share: 1.0,
            ramp: Duration::ZERO,
            // Where it is not said, k6 says it before anything is planned.
            hold: duration.unwrap_or_default(),
        }
    })
}

/// **Source**: k6's `hosts` option, with a port.
fn is_host(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_label = |label: &str| !label.is_empty() && label.chars().all(is_letter);
    host.split('.').all(is_label) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn as_path(text: Located<String>) -> Located<std::path::PathBuf> {
    Located {
        value: text.value.into(),
        location: text.location,
    }
}
