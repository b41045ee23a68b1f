//! `[load]` and `[[phase]]`.
//!
//! How much load a phase means is fixed per cell by `expand`; numbers in the
//! file are checked here already.

use std::collections::HashSet;
use std::time::Duration;

use toml::de::DeValue;

use super::beside::beside;
use super::knobs::parse;
use super::stages::{EXAMPLE, breakpoint_at, is_staged, stages};
use super::{k6, section, wire};
use crate::matrix::amount;
use crate::matrix::expression::Known;
use crate::matrix::sweep::{
    Amount, AmountKind, Answers, Arrivals, Load, LoadSource, Phase, PhaseLoad, Ready, TargetUrl,
};
use crate::problem::Problem;
use crate::toml_file::{Entry, Located, Notes, Table, describe, number_of};

/// Wait for one answer unless the file says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Wait for the last answers unless the file says otherwise.
const DRAIN: Duration = Duration::from_secs(5);
/// Journeys under way at once unless the file says otherwise.
const MAX_IN_FLIGHT: u64 = 1_000;
/// Most journeys under way at once: each may hold a connection; see `amount`.
const MOST_IN_FLIGHT: u64 = 60_000;
/// Longest name of a phase. **Units**: bytes.
const MAX_NAME: usize = 64;
/// Most load threads; more than any host of the tool has cores.
const MAX_THREADS: u64 = 1_024;

/// An address that load goes to.
pub(super) fn target(
    table: &Table<'_>,
    entry: &Entry<'_>,
    notes: &mut Notes<'_>,
) -> Option<Located<TargetUrl>> {
    let text = table.text(entry, notes)?;
    match target_url(&text.value) {
        Ok(value) => Some(Located {
            value,
            location: text.location,
        }),
        Err(message) => {
            notes.add(
                entry.at(),
                format!("`target` in {} {message}", table.name()),
            );
            None
        }
    }
}

/// `[load]`, and whether a k6 script makes it.
pub(super) fn load(
    file: &mut Table<'_>,
    names: &[String],
    notes: &mut Notes<'_>,
) -> (Option<Load>, bool) {
    let Some(mut table) = section(file, "load", "[load]", true, notes) else {
        return (None, false);
    };
    let is_k6 = table.has_later(&["k6"]);
    let load = read_load(&mut table, names, notes);
    table.finish(notes);
    (load, is_k6)
}

fn read_load(table: &mut Table<'_>, names: &[String], notes: &mut Notes<'_>) -> Option<Load> {
    let source = source(table, names, notes);
    let target = table
        .need("target", "target = \"http://app:8080\"")
        .and_then(|entry| target(table, &entry, notes));
    let ready = table.get("ready").and_then(|entry| ready(&entry, notes));
    let mut timeout = TIMEOUT;
    if let Some(entry) = table.get("timeout") {
        timeout = table.some_time(&entry, notes).unwrap_or(timeout);
    }
    let mut drain = DRAIN;
    if let Some(entry) = table.get("drain") {
        drain = table.duration(&entry, notes).unwrap_or(drain);
    }
    let threads = table
        .get("threads")
        .and_then(|entry| table.whole(&entry, 1..MAX_THREADS + 1, notes))
        .and_then(|threads| usize::try_from(threads).ok());
    let (tls, http2) = wire::wire(table, target.as_ref(), notes);
    if let (Some(LoadSource::K6(_)), Some(tls)) = (&source, &tls)
        && (tls.value.identity.is_some() || tls.value.server_name.is_some())
    {
        notes.push(
            Problem::new(
                tls.location.clone(),
                "`cert`, `key` and `server_name` in `tls` of [load] are not k6's (allowed: ca, insecure)",
            )
            .with_hint("the script's own option tlsAuth names a certificate"),
        );
    }
    Some(Load {
        source: source?,
        target: target?,
        ready,
        timeout,
        drain,
        threads,
        tls,
        http2,
    })
}

/// What makes the load: a workload file or a k6 script.
fn source(table: &mut Table<'_>, names: &[String], notes: &mut Notes<'_>) -> Option<LoadSource> {
    let Some(entry) = table.get("k6") else {
        if let Some(entry) = table.get("k6_binary") {
            notes.add(
                entry.key_at,
                "`k6_binary` in [load] belongs to `k6`, which is not there",
            );
        }
        let workload = table
            .need("workload", "workload = \"workload.toml\"")
            .and_then(|entry| table.text(&entry, notes))?;
        return Some(LoadSource::Workload(Located {
            value: workload.value.into(),
            location: workload.location,
        }));
    };
    let k6 = k6::k6(table, &entry, names, notes);
    for (key, why) in [
        ("workload", "a script is the workload"),
        ("threads", "k6 has threads of its own"),
        ("timeout", "the script says how long it waits for an answer"),
        ("http2", "k6 chooses the version of HTTP itself"),
    ] {
        if let Some(other) = table.get(key) {
            notes.add(
                other.key_at,
                format!("[load] has both `k6` and `{key}` ({why})"),
            );
        }
    }
    k6.map(LoadSource::K6)
}

fn ready(entry: &Entry<'_>, notes: &mut Notes<'_>) -> Option<Ready> {
    let mut table = Table::of(entry, "`ready` of [load]", notes)?;
    let path = table
        .need("path", "ready = { path = \"/health\", status = 200 }")
        .and_then(|entry| {
            let text = table.text(&entry, notes)?;
            if text.value.starts_with('/') && !text.value.contains(char::is_whitespace) {
                return Some(text.value);
            }
            notes.add(
                entry.at(),
                format!(
                    "`path` in `ready` of [load] must be a path that starts with /, not `{}`",
                    text.value
                ),
            );
            None
        });
    let status = table
        .get("status")
        .map_or(Some(200), |entry| table.whole(&entry, 100..600, notes));
    table.finish(notes);
    Some(Ready {
        path: path?,
        status: u16::try_from(status?).expect("a status has three digits"),
    })
}

/// Reads a target; the error goes behind "`target` in \[load\]".
pub(in crate::matrix) fn target_url(text: &str) -> Result<TargetUrl, String> {
    const ALLOWED: &str = "(allowed: such as http://app:8080)";
    if text.contains("${") {
        return Err("cannot hold a template: it is the same for every cell".to_owned());
    }
    let (is_https, rest) = match text.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => {
            return Err(format!(
                "must start with http:// or https://, not be `{text}` {ALLOWED}"
            ));
        }
    };
    if let Some(strange) = rest.chars().find(|letter| {
        letter.is_whitespace() || letter.is_control() || ['?', '#', '@', '\\'].contains(letter)
    }) {
        return Err(format!("holds the character {strange:?} {ALLOWED}"));
    }
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let (host, port) = if let Some(inside) = authority.strip_prefix('[') {
        // An IPv6 address stands between brackets, because it holds colons.
        let (host, behind) = inside
            .split_once(']')
            .ok_or_else(|| format!("has no `]` behind its address {ALLOWED}"))?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("has `{host}`, which is no IPv6 address {ALLOWED}"));
        }
        (host, behind)
    } else {
        authority.split_at(authority.find(':').unwrap_or(authority.len()))
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "._-:".contains(letter);
    if host.is_empty() || !host.chars().all(is_name) {
        return Err(format!("has no usable host name {ALLOWED}"));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => {
            if is_https {
                443
            } else {
                80
            }
        }
        Some(digits) if digits.chars().all(|digit| digit.is_ascii_digit()) => digits
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| format!("has the port `{digits}` (allowed: 1 to 65535)"))?,
        _ => return Err(format!("has `{port}` behind its host {ALLOWED}")),
    };
    Ok(TargetUrl {
        text: text.to_owned(),
        host: host.to_owned(),
        is_https,
        port,
        base_path: path.trim_end_matches('/').to_owned(),
    })
}

pub(super) fn phases(
    file: &mut Table<'_>,
    names: &[String],
    is_k6: bool,
    notes: &mut Notes<'_>,
) -> Vec<Phase> {
    let example = "[[phase]]";
    let Some(entry) = file.need("phase", example) else {
        return Vec::new();
    };
    let mut taken = HashSet::new();
    let mut has_window = false;
    let mut phases = Vec::new();
    for mut table in Table::blocks(&entry, "phase", notes) {
        let at = table.at();
        let name = phase_name(&mut table, &mut taken, notes);
        let measured = answers(&mut table, notes);
        has_window |= measured.is_window;
        for key in LATER {
            table.not_yet(key, notes);
        }
        let breakpoint_at = breakpoint_at(&mut table);
        let beside = beside(&mut table, is_k6, notes);
        let stages = if is_k6 {
            k6::cut(&mut table, measured.is_window, notes).map(|stage| vec![stage])
        } else {
            stages(&mut table, measured.is_window, names, notes)
        };
        table.finish(notes);
        if let (Some(name), Some(stages)) = (name, stages) {
            phases.push(Phase {
                name,
                location: notes.at(at),
                answers: measured.answers,
                breakpoint_at,
                beside,
                stages,
            });
        }
    }
    let is_list = entry.value.get_ref().is_array();
    if !has_window && is_list && !file.is_broken(notes) {
        notes.hint(
            entry.key_at,
            "no phase is a window: nothing would be measured",
            "add to one [[phase]]: window = true and answers = \"capacity\"",
        );
    }
    phases
}

fn phase_name(
    table: &mut Table<'_>,
    taken: &mut HashSet<String>,
    notes: &mut Notes<'_>,
) -> Option<String> {
    let entry = table.need("name", "name = \"stress\"")?;
    let name = table.text(&entry, notes)?.value;
    let is_strange = |letter: char| letter.is_control() || "/\\".contains(letter);
    if name.contains(is_strange) || name.len() > MAX_NAME {
        notes.add(
            entry.at(),
            format!(
                "`name` of a phase stands in every row and in file names (allowed: up to {MAX_NAME} bytes, no slash, no control character)"
            ),
        );
    }
    if !taken.insert(name.clone()) {
        notes.add(
            entry.at(),
            format!("two phases are named `{name}`: names tell rows apart"),
        );
    }
    Some(name)
}

struct Measured {
    is_window: bool,
    answers: Option<Answers>,
}

fn answers(table: &mut Table<'_>, notes: &mut Notes<'_>) -> Measured {
    let window = table.get("window");
    let is_window = window
        .and_then(|entry| table.truth(&entry, notes))
        .unwrap_or(false);
    let entry = table.get("answers");
    let words = [
        ("latency", Answers::Latency),
        ("capacity", Answers::Capacity),
        ("ladder", Answers::Ladder),
    ];
    let answers = entry.and_then(|entry| table.word(&entry, &words, &[], notes));
    let is_staged = is_staged(table);
    match (is_window, entry, window) {
        (true, None, Some(window)) if !table.is_broken(notes) => notes.hint(
            window.key_at,
            format!("{} is a window and has no `answers`", table.name()),
            if is_staged {
                "write answers = \"ladder\": every load that is held makes a row"
            } else {
                "write answers = \"latency\" (open load) or answers = \"capacity\" (closed load)"
            },
        ),
        (true, Some(entry), _)
            if answers.is_some_and(|answers| is_staged != (answers == Answers::Ladder)) =>
        {
            if is_staged {
                notes.hint(
                    entry.at(),
                    format!(
                        "{} has several loads and answers one question",
                        table.name()
                    ),
                    "write answers = \"ladder\": every load that is held makes a row",
                );
            } else if !table.is_broken(notes) {
                notes.hint(
                    entry.at(),
                    format!("{} answers \"ladder\" and has no steps", table.name()),
                    format!("add a line such as: {EXAMPLE}"),
                );
            }
        }
        (false, Some(entry), _) if !table.is_broken(notes) => notes.hint(
            entry.key_at,
            format!("{} has `answers` and is no window", table.name()),
            "write window = true to measure it",
        ),
        _ => {}
    }
    Measured {
        is_window,
        answers: answers.filter(|_| is_window),
    }
}

/// Keys of phases whose length is found while they run.
const LATER: [&str; 2] = ["min", "max"];

pub(super) fn duration(table: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
    let entry = if table.has_later(&LATER) {
        table.get("duration")
    } else {
        table.need("duration", "duration = \"45s\"")
    };
    entry.and_then(|entry| table.some_time(&entry, notes))
}

/// The loads of a phase or a stage: one, or with `may_be_list` one for each of a list.
pub(super) fn loads(
    table: &mut Table<'_>,
    may_be_list: bool,
    names: &[String],
    notes: &mut Notes<'_>,
) -> Option<Vec<PhaseLoad>> {
    let (open, closed) = (table.get("open"), table.get("closed"));
    let name = table.name().to_owned();
    let known = Loads { names, may_be_list };
    match (open, closed) {
        (Some(open), None) => open_loads(&open, &format!("`open` of {name}"), known, notes),
        (None, Some(closed)) => closed_loads(&closed, &format!("`closed` of {name}"), known, notes),
        (Some(_), Some(closed)) => {
            notes.add(
                closed.key_at,
                format!("{name} has both `open` and `closed` (allowed: one of them)"),
            );
            None
        }
        (None, None) if table.is_broken(notes) => None,
        (None, None) => {
            notes.hint(
                table.at(),
                format!("{name} has no load"),
                "add closed = { users = 16 } or open = { requests_per_second = 100 }",
            );
            None
        }
    }
}

/// What loads may be written with.
#[derive(Clone, Copy)]
pub(super) struct Loads<'n> {
    pub(super) names: &'n [String],
    pub(super) may_be_list: bool,
}

fn closed_loads(
    entry: &Entry<'_>,
    name: &str,
    known: Loads<'_>,
    notes: &mut Notes<'_>,
) -> Option<Vec<PhaseLoad>> {
    let mut table = Table::of(entry, name, notes)?;
    let users = table.need("users", "closed = { users = 16 }");
    table.finish(notes);
    let wrong = |number| amount::users(number).err();
    let users = amounts(&users?, name, known, wrong, notes)?;
    let load = |users| PhaseLoad::Closed { users };
    Some(users.into_iter().map(load).collect())
}

pub(super) fn open_loads(
    entry: &Entry<'_>,
    name: &str,
    known: Loads<'_>,
    notes: &mut Notes<'_>,
) -> Option<Vec<PhaseLoad>> {
    let mut table = Table::of(entry, name, notes)?;
    let rate = table.need(
        "requests_per_second",
        "open = { requests_per_second = 100 }",
    );
    let mut arrivals = Arrivals::default();
    if let Some(entry) = table.get("arrivals") {
        let words = [
            ("uniform", Arrivals::Uniform),
            ("poisson", Arrivals::Poisson),
        ];
        arrivals = table.word(&entry, &words, &[], notes).unwrap_or(arrivals);
    }
    let max_in_flight = table
        .get("max_in_flight")
        .map_or(Some(MAX_IN_FLIGHT), |entry| {
            table.whole(&entry, 1..MOST_IN_FLIGHT + 1, notes)
        });
    table.finish(notes);
    let wrong = |number| amount::rate_rps(number, arrivals).err();
    let rates = amounts(&rate?, name, known, wrong, notes)?;
    let max_in_flight = u32::try_from(max_in_flight?).expect("the range is small");
    let load = |requests_per_second| PhaseLoad::Open {
        requests_per_second,
        arrivals,
        max_in_flight,
    };
    Some(rates.into_iter().map(load).collect())
}

/// An amount, or where it is allowed those of a list.
fn amounts(
    entry: &Entry<'_>,
    name: &str,
    known: Loads<'_>,
    wrong: impl Fn(f64) -> Option<String>,
    notes: &mut Notes<'_>,
) -> Option<Vec<Amount>> {
    let names = known.names;
    let DeValue::Array(items) = entry.value.get_ref() else {
        return Some(vec![amount(entry, name, names, wrong, notes)?]);
    };
    if !known.may_be_list {
        notes.hint(
            entry.at(),
            format!(
                "`{}` in {name} must be a number or an expression in quotes, not a list",
                entry.key
            ),
            format!("several loads are steps: {EXAMPLE}"),
        );
        return None;
    }
    if items.is_empty() {
        notes.add(
            entry.at(),
            format!("`{}` in {name} is an empty list", entry.key),
        );
    }
    let amounts: Vec<Option<Amount>> = items
        .iter()
        .map(|value| amount(&Entry { value, ..*entry }, name, names, &wrong, notes))
        .collect();
    let amounts: Option<Vec<Amount>> = amounts.into_iter().collect();
    amounts.filter(|amounts| !amounts.is_empty())
}

/// A number or an expression; `wrong` says what is wrong with a number.
fn amount(
    entry: &Entry<'_>,
    name: &str,
    names: &[String],
    wrong: impl Fn(f64) -> Option<String>,
    notes: &mut Notes<'_>,
) -> Option<Amount> {
    let location = notes.at(entry.at());
    let kind = match entry.value.get_ref() {
        DeValue::String(text) => {
            let known = Known {
                names,
                visible: names.len(),
                is_load: true,
            };
            AmountKind::Expression(parse(text, entry.at(), known, notes)?)
        }
        DeValue::Integer(_) | DeValue::Float(_) => {
            let number = number_of(entry.value.get_ref()).unwrap_or(f64::INFINITY);
            if let Some(message) = wrong(number) {
                notes.add(entry.at(), format!("in {name}, {message}"));
                return None;
            }
            AmountKind::Number(number)
        }
        other => {
            notes.add(
                entry.at(),
                format!(
                    "`{}` in {name} must be a number or an expression in quotes, not {}",
                    entry.key,
                    describe(other)
                ),
            );
            return None;
        }
    };
    Some(Amount { location, kind })
}
