//! `ports` and `expose`: checked as Compose checks them, then not needed.
//!
//! No port is published in a trial, but a file that Compose would refuse is
//! refused here too. Pure.

use super::field::Field;
use super::notes::Notes;

const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

const LONG_KEYS: [&str; 7] = [
    "name",
    "target",
    "published",
    "host_ip",
    "protocol",
    "app_protocol",
    "mode",
];

/// Notes what is wrong with both keys.
pub(super) fn check(root: &Field<'_>, notes: &mut Notes) {
    if let Some(ports) = root.get("ports") {
        for item in ports.items(notes) {
            if item.node.as_map().is_some() {
                check_long(&item, notes);
            } else {
                check_text(&item, notes, short_fault);
            }
        }
    }
    if let Some(expose) = root.get("expose") {
        for item in expose.items(notes) {
            check_text(&item, notes, |text| container_fault(text).err());
        }
    }
}

fn check_text(item: &Field<'_>, notes: &mut Notes, fault: fn(&str) -> Option<String>) {
    let Some(text) = item.filled_text(notes) else {
        return;
    };
    let Some(fault) = fault(text.trim()) else {
        return;
    };
    let message = format!("`{text}`: {fault}");
    let unset = item.unset_names();
    if unset.is_empty() {
        item.problem(notes, message);
    } else {
        item.problem_with_hint(notes, message, format!("give {unset} a value"));
    }
}

fn check_long(field: &Field<'_>, notes: &mut Notes) {
    field.check_keys(&LONG_KEYS, notes);
    match field.get("target") {
        Some(target) => check_text(&target, notes, |text| range(text).err()),
        None => field.problem(notes, "has no `target`"),
    }
    if let Some(published) = field.get("published")
        && published.node.as_text() != Some("")
    {
        check_text(&published, notes, |text| range(text).err());
    }
    if let Some(protocol) = field.get("protocol") {
        check_text(&protocol, notes, protocol_fault);
    }
}

/// What is wrong with `[[address:]published:]container[/protocol]`.
fn short_fault(text: &str) -> Option<String> {
    let (published, container) = match text.rsplit_once(':') {
        Some((published, container)) => (Some(published), container),
        None => (None, text),
    };
    let n_container = match container_fault(container) {
        Ok(count) => count,
        Err(fault) => return Some(fault),
    };
    // What stands before the last colon is an address, which may have colons of its own.
    let host = published.map(|published| published.rsplit_once(':').map_or(published, |(_, p)| p));
    match range(host.filter(|host| !host.is_empty())?) {
        Ok(count) if n_container > 1 && count != n_container => Some(format!(
            "{count} published ports cannot stand for {n_container} of the container"
        )),
        Ok(_) => None,
        Err(fault) => Some(fault),
    }
}

/// How many ports `first[-last][/protocol]` is.
fn container_fault(text: &str) -> Result<u32, String> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    match protocol_fault(protocol) {
        Some(fault) => Err(fault),
        None => range(ports),
    }
}

fn protocol_fault(protocol: &str) -> Option<String> {
    let is_known = PROTOCOLS.contains(&protocol.to_ascii_lowercase().as_str());
    (!is_known).then(|| format!("`{protocol}` is not a protocol (allowed: tcp, udp, sctp)"))
}

/// How many ports `first[-last]` is.
fn range(text: &str) -> Result<u32, String> {
    let port = |text: &str| {
        let digits = text.trim();
        let number = digits.parse::<u16>().ok();
        number.ok_or_else(|| format!("`{digits}` is not a port"))
    };
    match text.split_once('-') {
        None => port(text).map(|_| 1),
        Some((first, last)) => {
            let (first, last) = (port(first)?, port(last)?);
            if first > last {
                return Err(format!("the range {first}-{last} goes backwards"));
            }
            Ok(u32::from(last - first) + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ports_have_every_form_of_compose() {
        for text in [
            "80",
            "80:80",
            ":80",
            "127.0.0.1:80:80",
            "127.0.0.1::80",
            "[::1]:80:80",
            "8000-8010",
            "8000-8010:80",
            "8000-8002:9000-9002/udp",
            "80:80/SCTP",
            "0:80",
        ] {
            assert_eq!(short_fault(text), None, "{text}");
        }
        for (text, fault) in [
            ("", "`` is not a port"),
            ("http", "`http` is not a port"),
            ("80:", "`` is not a port"),
            ("70000:80", "`70000` is not a port"),
            ("80:80/icmp", "`icmp` is not a protocol"),
            ("8010-8000:80", "goes backwards"),
            ("80-81:90-95", "2 published ports cannot stand for 6"),
        ] {
            let found = short_fault(text).unwrap_or_default();
            assert!(found.contains(fault), "{text}: {found}");
        }
    }
}
