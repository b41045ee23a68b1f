//! Networks: which ones a service joins, by which names, and what they are.
//!
//! Every trial has networks of its own; names and drivers of the files only say
//! who can reach whom. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use indexmap::IndexMap;

use super::field::Field;
use super::merge;
use super::mounts;
use super::namespaces;
use super::node::Node;
use super::notes::Notes;
use super::service::ServiceReader;
use super::surroundings::{AddressRange, Attachment, Network};

/// The network of services that name none.
pub(super) const DEFAULT: &str = "default";

const EXTERNAL_RULE: &str = "external, but each trial gets a network of its own, with only its own services on it; \
     to join it as it is, list it in `[trials] shared`";

const JOINED_RULE: &str = "joined as it is, as listed in `[trials] shared`: what else is on it can reach the services and be \
     reached, and two trials at once would answer to the same names";

const MAC_RULE: &str = "an engine before version 25 (API 1.44) gives an address of its own instead";

const INTERFACE_RULE: &str = "an engine before version 28 names the interface itself";

/// How the engine is told an interface's name. **Source**: Docker Engine 28.1.
const INTERFACE_OPTION: &str = "com.docker.network.endpoint.ifname";

/// The networks a service joins and the mode that replaces them.
pub(super) fn read(
    service: &mut ServiceReader<'_>,
    root: &Field<'_>,
) -> (IndexMap<String, Attachment>, Option<String>) {
    let mode = root.get("network_mode").and_then(|field| {
        namespaces::mode(&field, &["none", "host", "bridge"], &mut service.notes)
    });
    let aliases = names_everywhere(service, root);
    if root.get("network_mode").is_some() {
        if let Some(networks) = root.get("networks") {
            networks.problem(&mut service.notes, "cannot stand beside `network_mode`");
        }
        return (IndexMap::new(), mode);
    }
    let mut attachments = IndexMap::new();
    if let Some(networks) = root.get("networks") {
        let named = merge::networks_map(networks.node);
        let networks = Field::child(root, "networks", &networks.node.mark, &named);
        for field in networks.entries(&mut service.notes) {
            let attachment = attachment(&field, &aliases, &mut service.notes);
            let name = field.key();
            if service.use_network(name) {
                attachments.insert(name.to_owned(), attachment);
            } else {
                field.problem_with_hint(
                    &mut service.notes,
                    "this network is not declared",
                    "declare it under the top-level `networks`",
                );
            }
        }
    }
    if attachments.is_empty() {
        service.use_network(DEFAULT);
        let attachment = Attachment {
            aliases,
            ..Attachment::default()
        };
        attachments.insert(DEFAULT.to_owned(), attachment);
    }
    // The address of a service is that on its first network, as Compose takes it.
    if let Some(field) = root.get("mac_address")
        && let Some(address) = mac_address(&field, &mut service.notes)
        && let Some((_, first)) = attachments.first_mut()
    {
        first.mac_address.get_or_insert(address);
    }
    (attachments, None)
}

/// The names that hold on every network: the service's and its container's.
fn names_everywhere(service: &mut ServiceReader<'_>, root: &Field<'_>) -> Vec<String> {
    let mut names = vec![service.name.to_owned()];
    if let Some(field) = root.get("container_name")
        && let Some(name) = field.filled_text(&mut service.notes)
    {
        service.notes.rule(
            "not the container's name, which is the trial's own, but an alias on its networks",
            field.to_string(),
        );
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn attachment(field: &Field<'_>, names: &[String], notes: &mut Notes) -> Attachment {
    let mut attachment = Attachment {
        aliases: names.to_vec(),
        ..Attachment::default()
    };
    for setting in field.entries(notes) {
        if setting.node.is_null() {
            continue;
        }
        match setting.key() {
            "aliases" => {
                for alias in setting.texts(notes) {
                    if !attachment.aliases.contains(&alias) {
                        attachment.aliases.push(alias);
                    }
                }
            }
            "ipv4_address" => {
                let Some(text) = setting.filled_text(notes) else {
                    continue;
                };
                if text.parse::<Ipv4Addr>().is_err() {
                    setting.problem(notes, format_args!("`{text}` is not an IPv4 address"));
                }
                attachment.ipv4_address = Some(text);
            }
            "ipv6_address" => {
                let Some(text) = setting.filled_text(notes) else {
                    continue;
                };
                if text.parse::<Ipv6Addr>().is_err() {
                    setting.problem(notes, format_args!("`{text}` is not an IPv6 address"));
                }
                attachment.ipv6_address = Some(text);
            }
            "mac_address" => attachment.mac_address = mac_address(&setting, notes),
            "link_local_ips" => {
                attachment.link_local_ips = setting.texts(notes);
            }
            "driver_opts" => {
                for option in setting.entries(notes) {
                    if let Some(value) = option.canonical_text(notes) {
                        let name = option.key().to_owned();
                        attachment
                            .driver_opts
                            .insert(name, value.unwrap_or_default());
                    }
                }
            }
            "interface_name" => {
                if let Some(name) = setting.filled_text(notes) {
                    notes.rule(INTERFACE_RULE, setting.to_string());
                    attachment
                        .driver_opts
                        .insert(INTERFACE_OPTION.to_owned(), name);
                }
            }
            "priority" | "gw_priority" => notes.rule(
                "the order in which networks are joined is that of the file",
                setting.to_string(),
            ),
            key if key.starts_with("x-") => {}
            _ => setting.unknown(
                &[
                    "aliases",
                    "ipv4_address",
                    "ipv6_address",
                    "link_local_ips",
                    "mac_address",
                    "driver_opts",
                    "interface_name",
                    "priority",
                    "gw_priority",
                ],
                notes,
            ),
        }
    }
    attachment
}

/// Six pairs of hexadecimal digits.
fn mac_address(field: &Field<'_>, notes: &mut Notes) -> Option<String> {
    let text = field.filled_text(notes)?;
    let pairs: Vec<&str> = text.split([':', '-']).collect();
    let is_pair = |pair: &&str| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit());
    if pairs.len() != 6 || !pairs.iter().all(is_pair) {
        field.problem(
            notes,
            format_args!("`{text}` is not a hardware address such as 02:42:ac:11:00:05"),
        );
        return None;
    }
    notes.rule(MAC_RULE, field.to_string());
    Some(text)
}

/// Reads a network that is used.
///
/// An external one is joined only where the user listed it as shared: services of
/// theirs on it would be measured along, and two trials at once would answer for each other.
pub(super) fn element(
    name: &str,
    node: &Arc<Node>,
    shared: &[String],
    notes: &mut Notes,
) -> Network {
    let section = Field::root("networks", node);
    let root = Field::child(&section, name, &node.mark, node);
    let mut network = Network::default();
    if mounts::is_external(&root) {
        let outside = mounts::outside_name(&root, name).unwrap_or_else(|| name.to_owned());
        if shared
            .iter()
            .any(|listed| *listed == name || *listed == outside)
        {
            notes.rule(JOINED_RULE, root.to_string());
            network.external = Some(outside);
            return network;
        }
        notes.rule(EXTERNAL_RULE, root.to_string());
    }
    for field in root.entries(notes) {
        if field.node.is_null() {
            continue;
        }
        match field.key() {
            "internal" => network.internal = field.boolean(notes).unwrap_or(false),
            "driver" => match field.text(notes).as_deref() {
                Some("bridge" | "default" | "") | None => {}
                Some("overlay") => {
                    notes.rule("a bridge on this host takes its place", field.to_string());
                }
                Some(other) => field.problem(
                    notes,
                    format_args!(
                        "the driver `{other}` takes addresses of the host's own network, which trials \
                         cannot have to themselves (allowed: bridge, overlay)"
                    ),
                ),
            },
            "driver_opts" => {
                for option in field.entries(notes) {
                    if let Some(value) = option.canonical_text(notes) {
                        let name = option.key().to_owned();
                        network.driver_opts.insert(name, value.unwrap_or_default());
                    }
                }
            }
            "ipam" => network.ipam = address_ranges(&field, notes),
            "name" => notes.rule(
                "each trial gets its own, with a name of its own",
                field.to_string(),
            ),
            "external" => {}
            "labels" => notes.rule(mounts::LABELS_RULE, field.to_string()),
            "attachable" => notes.rule(
                "only a swarm uses this; it has no effect here",
                field.to_string(),
            ),
            "enable_ipv6" => network.enable_ipv6 = field.boolean(notes).unwrap_or(false),
            "enable_ipv4" if field.boolean(notes) != Some(false) => {}
            "enable_ipv4" => field.problem(
                notes,
                "must be true: an engine before version 28 has no network without IPv4",
            ),
            key if key.starts_with("x-") => {}
            _ => field.unknown(
                &[
                    "internal",
                    "driver",
                    "driver_opts",
                    "ipam",
                    "name",
                    "external",
                    "labels",
                ],
                notes,
            ),
        }
    }
    network
}

fn address_ranges(ipam: &Field<'_>, notes: &mut Notes) -> Vec<AddressRange> {
    let mut ranges = Vec::new();
    for field in ipam.entries(notes) {
        match field.key() {
            "driver" if matches!(field.node.as_text(), Some("default") | None) => {}
            "driver" => field.problem(
                notes,
                "must be `default`: another driver takes addresses from outside the trial",
            ),
            "config" => {
                for config in field.items(notes) {
                    ranges.push(address_range(&config, notes));
                }
            }
            "options" if field.node.is_null() => {}
            "options" => field.problem(notes, "is for address drivers other than `default`"),
            key if key.starts_with("x-") => {}
            _ => field.unknown(&["driver", "config", "options"], notes),
        }
    }
    if !ranges.is_empty() {
        notes.rule(
            "a fixed address range; two trials at once, or a network of yours with the same range, would clash",
            ipam.to_string(),
        );
    }
    ranges
}

fn address_range(config: &Field<'_>, notes: &mut Notes) -> AddressRange {
    let mut range = AddressRange::default();
    for setting in config.entries(notes) {
        match setting.key() {
            "subnet" => {
                range.subnet = checked_text(&setting, is_cidr, "a range in CIDR form", notes);
            }
            "ip_range" => {
                range.ip_range = checked_text(&setting, is_cidr, "a range in CIDR form", notes);
            }
            "gateway" => range.gateway = checked_text(&setting, is_address, "an address", notes),
            "aux_addresses" => {
                for field in setting.entries(notes) {
                    if let Some(text) = checked_text(&field, is_address, "an address", notes) {
                        range.aux_addresses.insert(field.key().to_owned(), text);
                    }
                }
            }
            key if key.starts_with("x-") => {}
            _ => setting.unknown(&["subnet", "ip_range", "gateway", "aux_addresses"], notes),
        }
    }
    range
}

fn checked_text(
    field: &Field<'_>,
    fits: fn(&str) -> bool,
    wanted: &str,
    notes: &mut Notes,
) -> Option<String> {
    let text = field.filled_text(notes)?;
    if !fits(&text) {
        field.problem(notes, format_args!("`{text}` is not {wanted}"));
    }
    Some(text)
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}
