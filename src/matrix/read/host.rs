//! `[host]` and `[[prove]]`: whose CPUs are whose, and what a service must say of itself.

use toml::de::DeValue;

use super::load::target_url;
use super::section;
use crate::cpus::CpuMode;
use crate::matrix::sweep::{Host, Prove, TargetUrl};
use crate::matrix::value_text::ValueText;
use crate::problem::nearest;
use crate::reported::{JsonPath, Reported, Series};
use crate::toml_file::{Entry, Located, Notes, Quoted, Table, scalar};

/// More than any host of the tool has.
const MAX_CPUS: u64 = 1_024;

pub(super) fn host(file: &mut Table<'_>, notes: &mut Notes<'_>) -> Host {
    let mut host = Host::default();
    let Some(mut table) = section(file, "host", "[host]", false, notes) else {
        return host;
    };
    if let Some(entry) = table.get("cpu_mode") {
        let words = [("quota", CpuMode::Quota), ("cpuset", CpuMode::Cpuset)];
        let location = notes.at(entry.at());
        let mode = table.word(&entry, &words, &[], notes);
        host.cpu_mode = mode.map(|value| Located { value, location });
    }
    if let Some(entry) = table.get("reserve_cpus") {
        let number = table.whole(&entry, 1..MAX_CPUS + 1, notes);
        host.reserve_cpus = number.and_then(|n| u32::try_from(n).ok());
    }
    table.finish(notes);
    host
}

pub(super) fn proves(file: &mut Table<'_>, names: &[String], notes: &mut Notes<'_>) -> Vec<Prove> {
    let Some(entry) = file.get("prove") else {
        return Vec::new();
    };
    let mut proves = Vec::new();
    for mut table in Table::blocks(&entry, "prove", notes) {
        let place = place(&mut table, notes);
        let reported = reported(&mut table, notes);
        let equals = table
            .need("equals", "equals = \"${db_pool}\"")
            .and_then(|entry| equals(&table, &entry, names, notes));
        table.finish(notes);
        if let (Some((url, path)), Some(reported), Some(equals)) = (place, reported, equals) {
            proves.push(Prove {
                url,
                path,
                reported,
                equals,
            });
        }
    }
    proves
}

/// Where to ask: the address, and path with query.
fn place(table: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<(Located<TargetUrl>, String)> {
    let entry = table.need("url", "url = \"http://app:8080/metrics\"")?;
    let text = table.text(&entry, notes)?;
    let (address, query) = match text.value.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (text.value.as_str(), None),
    };
    let url = match target_url(address) {
        Ok(url) => url,
        Err(message) => {
            notes.add(entry.at(), format!("`url` in {} {message}", table.name()));
            return None;
        }
    };
    if query.is_some_and(|query| query.contains(|c: char| c.is_whitespace() || c == '#')) {
        notes.add(
            entry.at(),
            format!(
                "`url` in {} has a query with a space or a `#`",
                table.name()
            ),
        );
        return None;
    }
    let slash = address
        .find("//")
        .and_then(|at| address[at + 2..].find('/').map(|n| at + 2 + n));
    let mut path = slash.map_or("/", |at| &address[at..]).to_owned();
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    let url = Located {
        value: TargetUrl {
            text: text.value.clone(),
            ..url
        },
        location: text.location,
    };
    Some((url, path))
}

fn reported(table: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Reported> {
    let (series, json) = (table.get("series"), table.get("json"));
    let name = table.name().to_owned();
    let read = match (series, json) {
        (Some(entry), None) => {
            let text = table.text(&entry, notes)?;
            Series::parse(&text.value)
                .map(Reported::Series)
                .map_err(|error| (entry, error))
        }
        (None, Some(entry)) => {
            let text = table.text(&entry, notes)?;
            JsonPath::parse(&text.value)
                .map(Reported::Json)
                .map_err(|error| (entry, error))
        }
        (Some(_), Some(json)) => {
            notes.add(
                json.key_at,
                format!("{name} has both `series` and `json` (allowed: one of them)"),
            );
            return None;
        }
        (None, None) => {
            if !table.is_broken(notes) {
                notes.hint(
                    table.at(),
                    format!("{name} does not say where the value is"),
                    "add series = \"db_pool_size\" (Prometheus) or json = \"$.pool.size\"",
                );
            }
            return None;
        }
    };
    match read {
        Ok(reported) => Some(reported),
        Err((entry, message)) => {
            notes.add(entry.at(), format!("in {name}, {message}"));
            None
        }
    }
}

/// A text with `${name}`, or a plain value.
fn equals(
    table: &Table<'_>,
    entry: &Entry<'_>,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<ValueText> {
    let name = table.name();
    let DeValue::String(_) = entry.value.get_ref() else {
        if let Ok(value) = scalar(entry.value.get_ref()) {
            return ValueText::parse(&value.to_string()).ok();
        }
        table.wrong(
            entry,
            "a text such as \"${db_pool}\", or a plain value",
            notes,
        );
        return None;
    };
    let quoted = table.quoted(entry, notes)?;
    let text = table.text(entry, notes)?.value;
    value_text(&text, &quoted, &format!("`equals` of {name}"), names, notes)
}

/// A text with `${name}` in it, where every name is an axis or a derived value.
pub(super) fn value_text(
    text: &str,
    quoted: &Quoted,
    whose: &str,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<ValueText> {
    let template = match ValueText::parse(text) {
        Ok(template) => template,
        Err((at, message)) => {
            notes.inside(quoted, at, format!("in {whose}, {message}"));
            return None;
        }
    };
    let mut is_known = true;
    for (unknown, at) in template
        .names()
        .filter(|(name, _)| !names.iter().any(|n| n == name))
    {
        is_known = false;
        let hint = match nearest(unknown, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `${{{near}}}`?"),
            None => format!("axes and derived values are {}", names.join(", ")),
        };
        let place = notes.source().inside(quoted, at);
        let message = format!("`${{{unknown}}}` in {whose} is no axis or derived value");
        notes.push(crate::problem::Problem::new(place, message).with_hint(hint));
    }
    is_known.then_some(template)
}
