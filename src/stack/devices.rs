//! `devices`: files of the host's /dev inside a container; `gpus`, and the devices
//! under `deploy.resources.reservations`: what a driver of the engine hands out.
//!
//! Looks whether files are there, opens none.

use std::path::Path;

use super::field::Field;
use super::model::{Device, DeviceRequest};
use super::notes::Notes;
use super::process;

/// The capability that stands for every GPU.
const GPU: &str = "gpu";

/// The engine's driver for devices by name. **Source**: Docker Engine 25, Container Device Interface.
const NAMED_DRIVER: &str = "cdi";

/// What the engine takes for "all there are".
const ALL: i64 = -1;

/// Reads the key.
pub(super) fn read(root: &Field<'_>, notes: &mut Notes) -> Vec<Device> {
    let Some(field) = root.get("devices") else {
        return Vec::new();
    };
    let items = field.items(notes);
    items
        .iter()
        .filter(|item| !is_named(item))
        .filter_map(|item| device(item, notes))
        .collect()
}

/// Whether an item names a device of a vendor's, as `vendor.com/class=name`, and no path.
fn is_named(item: &Field<'_>) -> bool {
    item.node
        .as_text()
        .is_some_and(|text| !text.starts_with('/') && text.contains('/') && text.contains('='))
}

/// The devices that are named so: Compose asks the engine's own driver for them.
fn named(root: &Field<'_>, notes: &mut Notes) -> Option<DeviceRequest> {
    let field = root.get("devices")?;
    let items = field.items(notes);
    let named = items.iter().filter(|item| is_named(item));
    let device_ids: Vec<String> = named.filter_map(|item| item.text(notes)).collect();
    (!device_ids.is_empty()).then(|| DeviceRequest {
        driver: Some(NAMED_DRIVER.to_owned()),
        device_ids,
        ..DeviceRequest::default()
    })
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
        field.problem(
            notes,
            format_args!(
                "`{source}` is neither a path nor the name of a device such as vendor.com/gpu=0"
            ),
        );
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

/// Reads `gpus`, and those of `devices` that are no files.
pub(super) fn requests(root: &Field<'_>, notes: &mut Notes) -> Vec<DeviceRequest> {
    let mut requests = gpus(root, notes);
    // A `devices` of another kind was noted with the files.
    requests.extend(named(root, &mut Notes::default()));
    requests
}

/// `all`, or a list of requests.
fn gpus(root: &Field<'_>, notes: &mut Notes) -> Vec<DeviceRequest> {
    let Some(field) = root.get("gpus") else {
        return Vec::new();
    };
    if field.node.as_text() == Some("all") {
        return vec![DeviceRequest {
            count: Some(ALL),
            capabilities: vec![GPU.to_owned()],
            ..DeviceRequest::default()
        }];
    }
    if field.node.as_text().is_some() {
        field.problem(notes, "must be `all` or a list of requests");
        return Vec::new();
    }
    let mut requests = Vec::new();
    for item in field.items(notes) {
        if let Some(mut request) = device_request(&item, notes) {
            if !request.capabilities.iter().any(|known| known == GPU) {
                request.capabilities.push(GPU.to_owned());
            }
            requests.push(request);
        }
    }
    requests
}

/// Reads the devices of `deploy.resources.reservations`.
pub(super) fn reserved(devices: &Field<'_>, notes: &mut Notes) -> Vec<DeviceRequest> {
    let mut requests = Vec::new();
    for item in devices.items(notes) {
        let Some(request) = device_request(&item, notes) else {
            continue;
        };
        if request.capabilities.is_empty() && request.driver.is_none() {
            item.problem(notes, "needs `capabilities`, such as [gpu], or a `driver`");
        }
        requests.push(request);
    }
    requests
}

fn device_request(field: &Field<'_>, notes: &mut Notes) -> Option<DeviceRequest> {
    let known = ["driver", "count", "device_ids", "capabilities", "options"];
    field.check_keys(&known, notes);
    field.node.as_map()?;
    let mut texts = |key| {
        field
            .get(key)
            .map_or_else(Vec::new, |field: Field<'_>| field.texts(notes))
    };
    let (device_ids, capabilities) = (texts("device_ids"), texts("capabilities"));
    let count = field.get("count").and_then(|field| {
        if field.node.as_text() == Some("all") {
            return Some(ALL);
        }
        let count = field.integer(notes)?;
        if count < ALL {
            field.problem(notes, format_args!("`{count}` is not a count"));
        }
        Some(count)
    });
    if let (Some(count), false) = (field.get("count"), device_ids.is_empty()) {
        count.problem(notes, "cannot stand beside `device_ids`");
    }
    Some(DeviceRequest {
        driver: field
            .get("driver")
            .and_then(|field| field.filled_text(notes)),
        // Neither a number nor names: all there are, as Compose takes it.
        count: count.or_else(|| device_ids.is_empty().then_some(ALL)),
        device_ids,
        capabilities,
        options: process::pairs(field, "options", notes),
    })
}
