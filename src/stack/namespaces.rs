//! `network_mode`, `ipc`, `pid` and their relatives, and `volumes_from`: what a
//! container shares with the host or with another service.
//!
//! Pure. Read next: [`super::dependencies`], since a service that shares
//! something with another one is started after it.

use indexmap::IndexMap;

use super::field::Field;
use super::model::{Service, VolumesFrom};
use super::notes::Notes;
use crate::problem::Location;

/// Keys that may name another service as `service:NAME`.
pub(super) const SHARING: [&str; 3] = ["network_mode", "ipc", "pid"];

const HOST_NETWORK_RULE: &str = "its ports are the host's own: a second sweep at once, or a program of yours on such a port, \
     would clash with it";

const BRIDGE_RULE: &str =
    "the engine's own network, on which services do not know each other by name";

const SHAREABLE_RULE: &str = "made `shareable`, since another service shares it";

/// Keys that say what a network is like, which is the other service's to say.
const NETWORK_KEYS: [&str; 4] = ["hostname", "dns", "extra_hosts", "mac_address"];

/// Reads the keys beside `network_mode`.
pub(super) fn read(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    let mut read = |key, allowed: &[&str]| {
        root.get(key)
            .and_then(|field: Field<'_>| mode(&field, allowed, notes))
    };
    service.ipc = read("ipc", &["host", "private", "shareable", "none"]);
    service.pid = read("pid", &["host"]);
    service.uts = read("uts", &["host"]);
    service.userns_mode = read("userns_mode", &["host"]);
    service.cgroup = read("cgroup", &["host", "private"]);
    service.volumes_from = volumes_from(root, notes);
    check_network(root, service, notes);
}

/// What an engine refuses beside another's network, and what a user must know.
fn check_network(root: &Field<'_>, service: &Service, notes: &mut Notes) {
    if let (Some(field), Some("host")) = (root.get("hostname"), service.uts.as_deref()) {
        field.problem(notes, "cannot stand beside `uts: host`");
    }
    let (Some(field), Some(mode)) = (root.get("network_mode"), service.network_mode.as_deref())
    else {
        return;
    };
    match mode {
        "host" => notes.rule(HOST_NETWORK_RULE, field.to_string()),
        "bridge" => notes.rule(BRIDGE_RULE, field.to_string()),
        _ => {}
    }
    for key in NETWORK_KEYS {
        let is_taken = shared_service(mode).is_some() || key == "mac_address";
        if let (true, Some(other)) = (is_taken, root.get(key)) {
            other.problem(
                notes,
                format_args!("cannot stand beside `network_mode: {mode}`"),
            );
        }
    }
}

/// `service[:ro|:rw]`
fn volumes_from(root: &Field<'_>, notes: &mut Notes) -> Vec<VolumesFrom> {
    let mut sources: Vec<VolumesFrom> = Vec::new();
    let Some(field) = root.get("volumes_from") else {
        return sources;
    };
    for item in field.items(notes) {
        let Some(text) = item.filled_text(notes) else {
            continue;
        };
        if text.starts_with("container:") {
            item.problem_with_hint(
                notes,
                format_args!(
                    "`{text}` is a container outside the stack, whose data no trial may touch"
                ),
                "make it a service, or mount its volume as an external one",
            );
            continue;
        }
        let (service, mode) = text.split_once(':').unwrap_or((&text, "rw"));
        if !matches!(mode, "ro" | "rw") {
            item.problem(
                notes,
                format_args!("`{mode}` is not a mode (allowed: ro, rw)"),
            );
        }
        sources.push(VolumesFrom {
            service: service.to_owned(),
            read_only: mode == "ro",
        });
    }
    sources
}

/// The service that an item of `volumes_from` names.
pub(super) fn volume_source(text: &str) -> Option<&str> {
    let service = text.split(':').next()?;
    (!service.is_empty() && service != "container").then_some(service)
}

/// Lets services share the inter-process communication of those they name.
pub(super) fn let_share(
    services: &mut IndexMap<String, Service>,
    place: &Location,
    notes: &mut Notes,
) {
    let wanted: Vec<(String, String)> = services
        .iter()
        .filter_map(|(name, service)| {
            let other = shared_service(service.ipc.as_deref()?)?;
            Some((name.clone(), other.to_owned()))
        })
        .collect();
    for (name, other) in wanted {
        let Some(service) = services.get_mut(&other) else {
            continue;
        };
        match service.ipc.as_deref() {
            None => {
                service.ipc = Some("shareable".to_owned());
                notes.rule(SHAREABLE_RULE, format!("services.{other}.ipc"));
            }
            Some(mode @ ("private" | "none")) => notes.problem(
                place.clone(),
                format!("services.{name}.ipc: `{other}` has `ipc: {mode}`, which nobody can share"),
            ),
            Some(_) => {}
        }
    }
}

/// One of the words allowed, or another service where the key may name one.
pub(super) fn mode(field: &Field<'_>, allowed: &[&str], notes: &mut Notes) -> Option<String> {
    let mode = field.filled_text(notes)?;
    let may_share = SHARING.contains(&field.key());
    if allowed.contains(&mode.as_str()) || (may_share && shared_service(&mode).is_some()) {
        return Some(mode);
    }
    if may_share && mode.starts_with("container:") {
        field.problem_with_hint(
            notes,
            format_args!("`{mode}` is a container outside the stack, which no trial can launch"),
            "make it a service and write `service:NAME`",
        );
        return None;
    }
    let or_service = if may_share { ", service:NAME" } else { "" };
    field.problem(
        notes,
        format_args!(
            "`{mode}` is not a mode (allowed: {}{or_service})",
            allowed.join(", ")
        ),
    );
    None
}

/// The name in `service:NAME`.
pub fn shared_service(mode: &str) -> Option<&str> {
    mode.strip_prefix("service:")
        .filter(|name| !name.is_empty())
}
