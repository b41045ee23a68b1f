//! `network_mode`, `ipc`, `pid` and their relatives: what a container shares
//! with the host or with another service.
//!
//! Pure. Read next: [`super::dependencies`], since a service that shares
//! something with another one is started after it.

use super::field::Field;
use super::model::Service;
use super::notes::Notes;

/// Keys that may name another service as `service:NAME`.
pub(super) const SHARING: [&str; 3] = ["network_mode", "ipc", "pid"];

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
pub(super) fn shared_service(mode: &str) -> Option<&str> {
    mode.strip_prefix("service:")
        .filter(|name| !name.is_empty())
}
