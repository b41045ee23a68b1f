//! What a container runs and as whom: image, command, healthcheck, rights.
//!
//! Reads files of secrets and configs; everything else is pure.

use std::path::PathBuf;
use std::sync::Arc;

use indexmap::IndexMap;

use super::field::Field;
use super::merge;
use super::model::{Healthcheck, Mount, MountSource, Service};
use super::mounts::host_path;
use super::node::Node;
use super::notes::Notes;
use super::service::ServiceReader;
use super::words;

/// Prefix of the labels that say what is ours.
const OUR_LABELS: &str = "nightsweep.";

/// Reads the keys that need nothing but themselves.
pub(super) fn read(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    service.image = image(root, notes).unwrap_or_default();
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
    service.labels = labels(root, notes);
    service.extra_hosts = extra_hosts(root, notes);
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
}

fn read_switches(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    let mut switch = |key| {
        root.get(key)
            .and_then(|field: Field<'_>| field.boolean(notes))
    };
    service.init = switch("init");
    service.read_only = switch("read_only").unwrap_or(false);
    service.privileged = switch("privileged").unwrap_or(false);
    service.tty = switch("tty").unwrap_or(false);
    service.stdin_open = switch("stdin_open").unwrap_or(false);
}

fn image(root: &Field<'_>, notes: &mut Notes) -> Option<String> {
    let build = root.get("build");
    let Some(field) = root.get("image") else {
        match build {
            Some(build) => build.problem_with_hint(
                notes,
                "building an image is not supported",
                "build it first, and name it with `image:` here or in an override",
            ),
            None => root.problem_with_hint(
                notes,
                "has no `image`",
                "name the image that the container is made from",
            ),
        }
        return None;
    };
    if let Some(build) = build {
        notes.rule(
            "not built: the image of that name is used as it is",
            build.to_string(),
        );
    }
    let image = field.filled_text(notes)?;
    if !is_image_reference(&image) {
        field.problem_with_hint(
            notes,
            format_args!("`{image}` is not an image reference such as postgres:17"),
            "a variable in it may have no value",
        );
        return None;
    }
    Some(image)
}

/// `[host[:port]/]path[:tag][@digest]`, as far as a slip would show.
fn is_image_reference(text: &str) -> bool {
    let (named, digest) = match text.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (text, None),
    };
    let name_start = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[name_start..].split_once(':') {
        Some((_, tag)) => (&named[..named.len() - tag.len() - 1], Some(tag)),
        None => (named, None),
    };
    let path_fits = name.split('/').enumerate().all(|(index, part)| {
        let is_host = index == 0 && name.contains('/');
        let fits = |c: char| {
            c.is_ascii_lowercase()
                || c.is_ascii_digit()
                || matches!(c, '.' | '_' | '-')
                || (is_host && (c == ':' || c.is_ascii_uppercase()))
        };
        !part.is_empty()
            && part.chars().all(fits)
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    });
    let tag_fits = tag.is_none_or(|tag| {
        (1..=128).contains(&tag.len())
            && !tag.starts_with(['.', '-'])
            && tag
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    });
    let digest_fits = digest.is_none_or(|digest| {
        digest
            .split_once(':')
            .is_some_and(|(_, hex)| hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit()))
    });
    path_fits && tag_fits && digest_fits
}

/// A list as it is, or a text split into words. An empty one clears the image's own.
fn command(field: &Field<'_>, notes: &mut Notes) -> Option<Vec<String>> {
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
        start_interval.duration(notes);
        notes.rule(
            "`interval` is used from the start",
            start_interval.to_string(),
        );
    }
    let mut duration = |key| {
        field
            .get(key)
            .and_then(|field: Field<'_>| field.duration(notes))
    };
    let mut healthcheck = Healthcheck {
        test: Vec::new(),
        interval: duration("interval"),
        timeout: duration("timeout"),
        start_period: duration("start_period"),
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
fn pairs(root: &Field<'_>, key: &str, notes: &mut Notes) -> IndexMap<String, String> {
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

fn labels(root: &Field<'_>, notes: &mut Notes) -> IndexMap<String, String> {
    let labels = pairs(root, "labels", notes);
    if let (Some(ours), Some(field)) = (
        labels.keys().find(|name| name.starts_with(OUR_LABELS)),
        root.get("labels"),
    ) {
        field.problem(
            notes,
            format_args!("`{ours}` is a name that nightsweep keeps for itself"),
        );
    }
    labels
}

/// `name:address` lines; `=` may stand for the colon, and a map may stand for the list.
fn extra_hosts(root: &Field<'_>, notes: &mut Notes) -> Vec<String> {
    let Some(field) = root.get("extra_hosts") else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    if field.node.as_map().is_some() {
        for host in field.entries(notes) {
            for address in host.texts_or_one(notes) {
                lines.push(format!("{}:{}", host.key(), bare_address(&address)));
            }
        }
        return lines;
    }
    for item in field.items(notes) {
        let Some(text) = item.filled_text(notes) else {
            continue;
        };
        let pair = text.split_once('=').or_else(|| text.split_once(':'));
        match pair {
            Some((name, address)) if !name.is_empty() && !address.is_empty() => {
                lines.push(format!("{name}:{}", bare_address(address)));
            }
            _ => item.problem(notes, format_args!("`{text}` is not name:address")),
        }
    }
    lines
}

/// An IPv6 address may stand in brackets; the engine wants none.
fn bare_address(address: &str) -> &str {
    address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(address)
}

/// Reads `secrets` and `configs`: files of the host, mounted read only.
pub(super) fn read_grants(reader: &mut ServiceReader<'_>, root: &Field<'_>, service: &mut Service) {
    for section in ["secrets", "configs"] {
        let Some(field) = root.get(section) else {
            continue;
        };
        for item in field.items(&mut reader.notes) {
            if let Some(mount) = grant(reader, section, &item) {
                service.mounts.push(mount);
            }
        }
    }
}

fn grant(reader: &mut ServiceReader<'_>, section: &str, field: &Field<'_>) -> Option<Mount> {
    let (source, target) = grant_names(field, &mut reader.notes)?;
    let Some(node) = reader.grant(section, &source) else {
        field.problem_with_hint(
            &mut reader.notes,
            format_args!("`{source}` is not declared"),
            format!("declare it under the top-level `{section}`"),
        );
        return None;
    };
    let path = grant_file(reader, section, &source, &node)?;
    let target = match (target, section) {
        (Some(target), _) if target.starts_with('/') => target,
        (target, "secrets") => format!("/run/secrets/{}", target.unwrap_or(source)),
        (target, _) => format!("/{}", target.unwrap_or(source)),
    };
    Some(Mount {
        target,
        source: MountSource::Bind { source: path },
        read_only: true,
    })
}

/// Which secret or config it is, and where it is to be seen.
fn grant_names(field: &Field<'_>, notes: &mut Notes) -> Option<(String, Option<String>)> {
    if field.node.as_map().is_none() {
        return Some((field.filled_text(notes)?, None));
    }
    field.check_keys(&["source", "target", "uid", "gid", "mode"], notes);
    for owner in ["uid", "gid", "mode"]
        .iter()
        .filter_map(|key| field.get(key))
    {
        notes.rule("the file keeps its own owner and mode", owner.to_string());
    }
    let target = field
        .get("target")
        .and_then(|field| field.filled_text(notes));
    let Some(source) = field.get("source") else {
        field.problem(notes, "has no `source`");
        return None;
    };
    Some((source.filled_text(notes)?, target))
}

/// The file behind a secret or config. What a secret says is noted, to be hidden.
fn grant_file(
    reader: &mut ServiceReader<'_>,
    section: &str,
    source: &str,
    node: &Arc<Node>,
) -> Option<PathBuf> {
    let top = Field::root(section, node);
    let definition = Field::child(&top, source, &node.mark, node);
    let known = [
        "file",
        "name",
        "external",
        "environment",
        "content",
        "labels",
        "driver",
        "driver_opts",
    ];
    definition.check_keys(&known, &mut reader.notes);
    let Some(file) = definition.get("file") else {
        definition.not_yet(&mut reader.notes, "anything but `file`");
        return None;
    };
    let written = file.filled_text(&mut reader.notes)?;
    let path = host_path(reader, &file, &written)?;
    // A device would be read without end.
    if !path.is_file() {
        let message = format!("`{}` is not a file of this host", path.display());
        file.problem(&mut reader.notes, message);
        return None;
    }
    match fs_err::read(&path) {
        Ok(content) if section == "secrets" => {
            let text = String::from_utf8_lossy(&content).trim().to_owned();
            reader.notes.secrets.insert(text);
        }
        Ok(_) => {}
        Err(error) => file.problem(&mut reader.notes, format_args!("cannot be read: {error}")),
    }
    Some(path)
}
