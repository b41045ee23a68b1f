//! What a container runs and as whom: command, healthcheck, rights.
//!
//! Pure.

use std::time::Duration;

use indexmap::IndexMap;

use super::field::Field;
use super::merge;
use super::model::{Healthcheck, Service};
use super::notes::Notes;
use super::words;

/// Prefix of the labels that say what is ours.
const OUR_LABELS: &str = "nightsweep.";

const PRIVILEGED_RULE: &str =
    "has all rights of this host: it can change what is measured, and be changed by it";

const CGROUP_PARENT_RULE: &str = "a group of the host's, shared with whatever else is in it; a smaller CPU limit on it fails the trial";

const ANNOTATIONS_RULE: &str = "an engine before version 24 (API 1.43) drops them";

/// **Source**: Docker Engine, "cannot be less than 1ms"; 0 keeps the default.
const LEAST_HEALTH_TIME: Duration = Duration::from_millis(1);
const START_INTERVAL_RULE: &str = "an engine before version 25 uses `interval` from the start";

/// Reads the keys that need nothing but themselves.
pub(super) fn read(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    service.command = root.get("command").and_then(|field| command(&field, notes));
    service.entrypoint = root
        .get("entrypoint")
        .and_then(|field| command(&field, notes));
    service.healthcheck = root
        .get("healthcheck")
        .and_then(|field| healthcheck(&field, notes));
    read_texts(root, service, notes);
    read_switches(root, service, notes);
    service.shm_size = root.get("shm_size").and_then(|field| {
        let bytes = field.bytes(notes)?;
        if bytes == 0 {
            field.problem(notes, "must be more than 0 bytes");
        }
        Some(bytes)
    });
    service.ulimits = ulimits(root, notes);
    service.sysctls = pairs(root, "sysctls", notes);
    service.storage_opt = pairs(root, "storage_opt", notes);
    check_labels(root, service, notes);
    service.annotations = pairs(root, "annotations", notes);
    if let Some(field) = root.get("annotations") {
        notes.rule(ANNOTATIONS_RULE, field.to_string());
    }
    service.extra_hosts = root
        .get("extra_hosts")
        .map_or_else(Vec::new, |field| hosts(&field, notes));
    service.stop_grace_period = root
        .get("stop_grace_period")
        .and_then(|field| field.duration(notes));
}

fn read_texts(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    let mut text = |key| {
        root.get(key)
            .and_then(|field: Field<'_>| field.filled_text(notes))
    };
    service.user = text("user");
    service.working_dir = text("working_dir");
    service.hostname = text("hostname");
    service.stop_signal = text("stop_signal");
    service.platform = text("platform");
    service.domainname = text("domainname");
    service.runtime = text("runtime");
    service.cgroup_parent = text("cgroup_parent");
    if let Some(field) = root.get("cgroup_parent") {
        notes.rule(CGROUP_PARENT_RULE, field.to_string());
    }
    let mut texts = |key| {
        root.get(key)
            .map_or_else(Vec::new, |field: Field<'_>| field.texts_or_one(notes))
    };
    service.cap_add = texts("cap_add");
    service.cap_drop = texts("cap_drop");
    service.security_opt = texts("security_opt");
    service.group_add = texts("group_add");
    service.dns = texts("dns");
    service.dns_search = texts("dns_search");
    service.dns_opt = texts("dns_opt");
    service.device_cgroup_rules = texts("device_cgroup_rules");
}

fn read_switches(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    let mut switch = |key| {
        root.get(key)
            .and_then(|field: Field<'_>| field.boolean(notes))
    };
    service.init = switch("init");
    service.read_only = switch("read_only").unwrap_or(false);
    service.privileged = switch("privileged").unwrap_or(false);
    if let (true, Some(field)) = (service.privileged, root.get("privileged")) {
        notes.rule(PRIVILEGED_RULE, field.to_string());
    }
    let mut switch = |key| {
        root.get(key)
            .and_then(|field: Field<'_>| field.boolean(notes))
    };
    service.oom_kill_disable = switch("oom_kill_disable");
    service.tty = switch("tty").unwrap_or(false);
    service.stdin_open = switch("stdin_open").unwrap_or(false);
}

/// A list as it is, or a text split into words. An empty one clears the image's own.
pub(super) fn command(field: &Field<'_>, notes: &mut Notes) -> Option<Vec<String>> {
    if field.node.as_text().is_none() {
        return Some(field.texts(notes));
    }
    let text = field.text(notes)?;
    match words::split(&text) {
        Ok(words) => Some(words),
        Err(error) => {
            field.problem_with_hint(
                notes,
                error,
                "write a list, such as [\"sh\", \"-c\", \"...\"]",
            );
            None
        }
    }
}

fn healthcheck(field: &Field<'_>, notes: &mut Notes) -> Option<Healthcheck> {
    field.entries(notes);
    let known = [
        "test",
        "interval",
        "timeout",
        "start_period",
        "start_interval",
        "retries",
        "disable",
    ];
    field.node.as_map()?;
    field.check_keys(&known, notes);
    if let Some(start_interval) = field.get("start_interval") {
        notes.rule(START_INTERVAL_RULE, start_interval.to_string());
    }
    let mut duration = |key| {
        let field: Field<'_> = field.get(key)?;
        let duration = field.duration(notes)?;
        if !duration.is_zero() && duration < LEAST_HEALTH_TIME {
            field.problem(
                notes,
                "is less than 1ms, which no engine takes (0 is the default)",
            );
        }
        Some(duration)
    };
    let mut healthcheck = Healthcheck {
        test: Vec::new(),
        interval: duration("interval"),
        timeout: duration("timeout"),
        start_period: duration("start_period"),
        start_interval: duration("start_interval"),
        retries: None,
    };
    healthcheck.retries = field.get("retries").and_then(|field| {
        let retries = field.integer(notes)?;
        let count = u32::try_from(retries).ok();
        if count.is_none() {
            field.problem(notes, format_args!("`{retries}` is not a count"));
        }
        count
    });
    if let Some(test) = field.get("test") {
        healthcheck.test = health_test(&test, notes)?;
    }
    if let Some(disable) = field.get("disable")
        && disable.boolean(notes) == Some(true)
    {
        healthcheck.test = vec!["NONE".to_owned()];
    }
    Some(healthcheck)
}

fn health_test(field: &Field<'_>, notes: &mut Notes) -> Option<Vec<String>> {
    if field.node.as_text().is_some() {
        let line = field.filled_text(notes)?;
        return Some(vec!["CMD-SHELL".to_owned(), line]);
    }
    let test = field.texts(notes);
    let fits = match test.first().map(String::as_str) {
        Some("NONE") => test.len() == 1,
        Some("CMD") => test.len() > 1,
        Some("CMD-SHELL") => test.len() == 2,
        _ => false,
    };
    if !fits {
        field.problem(
            notes,
            "must be a text, [CMD, program, ...], [CMD-SHELL, line] or [NONE]",
        );
        return None;
    }
    Some(test)
}

fn ulimits(root: &Field<'_>, notes: &mut Notes) -> IndexMap<String, (i64, i64)> {
    let mut limits = IndexMap::new();
    let Some(field) = root.get("ulimits") else {
        return limits;
    };
    for limit in field.entries(notes) {
        let pair = if limit.node.as_map().is_some() {
            limit.check_keys(&["soft", "hard"], notes);
            let mut side = |key| {
                limit
                    .get(key)
                    .and_then(|field: Field<'_>| field.integer(notes))
            };
            let pair = side("soft").zip(side("hard"));
            if pair.is_none() {
                limit.problem(notes, "needs both `soft` and `hard`");
            }
            pair
        } else {
            limit.integer(notes).map(|both| (both, both))
        };
        if let Some(pair) = pair {
            limits.insert(limit.key().to_owned(), pair);
        }
    }
    limits
}

/// A map or a list of `name=value`, as texts.
pub(super) fn pairs(root: &Field<'_>, key: &str, notes: &mut Notes) -> IndexMap<String, String> {
    let mut values = IndexMap::new();
    let Some(field) = root.get(key) else {
        return values;
    };
    let named = merge::pairs_of(field.node);
    let field = Field::child(root, key, &field.node.mark, &named);
    for item in field.entries(notes) {
        if let Some(value) = item.canonical_text(notes) {
            values.insert(item.key().to_owned(), value.unwrap_or_default());
        }
    }
    values
}

/// Adds `labels` to those of `label_file`, and keeps our own names free.
fn check_labels(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    service.labels.extend(pairs(root, "labels", notes));
    let is_ours = |name: &&String| name.starts_with(OUR_LABELS);
    if let Some(ours) = service.labels.keys().find(is_ours) {
        let field = root.get("labels").or_else(|| root.get("label_file"));
        field.unwrap_or(*root).problem(
            notes,
            format_args!("`{ours}` is a name that nightsweep keeps for itself"),
        );
    }
}

/// `name:address` lines; `=` may stand for the colon, and a map may stand for the list.
pub(super) fn hosts(field: &Field<'_>, notes: &mut Notes) -> Vec<String> {
    let mut lines = Vec::new();
    if field.node.as_map().is_some() {
        for host in field.entries(notes) {
            if host.node.is_null() {
                not_a_host(&host, &format!("{}:", host.key()), notes);
            }
            for address in host.items_or_one(notes) {
                match address.text(notes) {
                    Some(text) if text.is_empty() => {
                        not_a_host(&address, &format!("{}:", host.key()), notes);
                    }
                    Some(text) => lines.push(format!("{}:{}", host.key(), bare_address(&text))),
                    None => {}
                }
            }
        }
        return lines;
    }
    for item in field.items(notes) {
        let Some(text) = item.filled_text(notes) else {
            continue;
        };
        match merge::host_parts(&text) {
            Some((name, address)) if !name.is_empty() && !address.is_empty() => {
                lines.push(format!("{name}:{}", bare_address(address)));
            }
            _ => not_a_host(&item, &text, notes),
        }
    }
    lines
}

fn not_a_host(item: &Field<'_>, text: &str, notes: &mut Notes) {
    let unset = item.unset_names();
    let message = format!("`{text}` is not name:address");
    if unset.is_empty() {
        item.problem(notes, message);
    } else {
        item.problem_with_hint(notes, message, format!("give {unset} a value"));
    }
}

/// An IPv6 address may stand in brackets; the engine wants none.
fn bare_address(address: &str) -> &str {
    address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(address)
}
