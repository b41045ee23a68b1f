//! `devices`: files of the host's /dev inside a container.
//!
//! Looks whether they are there, opens none.

use std::path::Path;

use super::field::Field;
use super::model::Device;
use super::notes::Notes;

/// Reads the key.
pub(super) fn read(root: &Field<'_>, notes: &mut Notes) -> Vec<Device> {
    let Some(field) = root.get("devices") else {
        return Vec::new();
    };
    let items = field.items(notes);
    items
        .iter()
        .filter_map(|item| device(item, notes))
        .collect()
}

/// `source[:target[:permissions]]`, or the same as a map.
fn device(field: &Field<'_>, notes: &mut Notes) -> Option<Device> {
    let (source, target, permissions) = if field.node.as_map().is_some() {
        field.check_keys(&["source", "target", "permissions"], notes);
        let mut text = |key| {
            field
                .get(key)
                .and_then(|field: Field<'_>| field.filled_text(notes))
        };
        (text("source"), text("target"), text("permissions"))
    } else {
        let text = field.filled_text(notes)?;
        let mut parts = text.splitn(3, ':').map(str::to_owned);
        (parts.next(), parts.next(), parts.next())
    };
    let Some(source) = source.filter(|source| !source.is_empty()) else {
        field.problem(notes, "has no `source`");
        return None;
    };
    if !source.starts_with('/') {
        field.not_yet(notes, format_args!("`{source}`, which is no path,"));
        return None;
    }
    let permissions = permissions.unwrap_or_else(|| "rwm".to_owned());
    let are_known = permissions.chars().all(|c| matches!(c, 'r' | 'w' | 'm'));
    if permissions.is_empty() || !are_known {
        field.problem(
            notes,
            format_args!("`{permissions}` are not permissions (allowed: some of r, w, m)"),
        );
        return None;
    }
    if !Path::new(&source).exists() {
        field.problem(
            notes,
            format_args!("`{source}` does not exist on this host"),
        );
    }
    Some(Device {
        target: target.unwrap_or_else(|| source.clone()),
        source,
        permissions,
    })
}
