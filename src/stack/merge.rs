//! Several files become one tree.
//!
//! Works on interpolated trees, because volumes meet by their target and
//! `environment` in list form by its names. **Source**: the merge rules of
//! Compose v2: maps merge deep, lists append, single values replace; the
//! exceptions are in [`rule_for`]. `!reset` takes a key away, `!override`
//! replaces where the rule would merge. Read next: [`super::assemble`].

use std::sync::Arc;

use indexmap::IndexMap;

use super::mounts;
use super::node::{Entry, Map, Mark, Node, Tag, Value};
use super::notes::Notes;

/// How two values of one key meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Maps deep, lists append, single values replace.
    Default,
    /// The later value stands alone.
    Replace,
    /// `A=b` lists and maps, by name.
    Pairs,
    /// Lists of names and maps by name, the list form standing for this default.
    Named(ShortForm),
    /// `build`: a text stands for the map with that `context`.
    Build,
    /// Lists without repeats, a single value standing for a list of one.
    Union,
    /// `name:address` lists, `name=address` lists and maps; a map replaces name by name.
    Hosts,
    /// Lists in which a later item replaces the earlier one with the same key.
    Keyed(ItemKey),
}

/// What a name in list form stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShortForm {
    /// `depends_on`: wait until it is started.
    Started,
    /// `networks`: no settings.
    Nothing,
}

/// What identifies an item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKey {
    /// Where a volume or device is seen.
    VolumeTarget,
    /// Where a file system in memory is seen.
    TmpfsTarget,
    /// Where a secret or config is seen, else its name.
    GrantTarget,
    /// Published and container port.
    Port,
    /// Path of an environment file.
    Path,
}

/// The rule for a path below a service.
fn rule_for(path: &[&str]) -> Rule {
    match path {
        ["command" | "entrypoint"] | ["healthcheck", "test"] => Rule::Replace,
        ["environment" | "labels" | "sysctls" | "annotations" | "storage_opt"]
        | ["deploy", "labels"]
        | [ELEMENT, _, "labels"]
        | ["build", "args" | "labels" | "additional_contexts"] => Rule::Pairs,
        ["build"] => Rule::Build,
        ["depends_on"] => Rule::Named(ShortForm::Started),
        ["networks"] => Rule::Named(ShortForm::Nothing),
        [
            "dns" | "dns_search" | "dns_opt" | "cap_add" | "cap_drop" | "expose" | "links"
            | "profiles" | "security_opt" | "group_add" | "volumes_from",
        ]
        | ["networks", _, "aliases" | "link_local_ips"]
        | ["build", "platforms" | "tags" | "cache_from"] => Rule::Union,
        ["extra_hosts"] | ["build", "extra_hosts"] => Rule::Hosts,
        ["tmpfs"] => Rule::Keyed(ItemKey::TmpfsTarget),
        ["volumes" | "devices"] => Rule::Keyed(ItemKey::VolumeTarget),
        ["secrets" | "configs"] => Rule::Keyed(ItemKey::GrantTarget),
        ["ports"] => Rule::Keyed(ItemKey::Port),
        ["env_file" | "label_file"] => Rule::Keyed(ItemKey::Path),
        _ => Rule::Default,
    }
}

/// Stands before the path of what is no service: no key of a service is called so.
const ELEMENT: &str = "element";

/// A service of an earlier file with what a later one says about it.
pub(super) fn merge_service(
    earlier: &Arc<Node>,
    later: &Arc<Node>,
    notes: &mut Notes,
) -> Arc<Node> {
    merge(&mut Vec::new(), earlier, later, notes)
}

/// A network, volume, secret or config of an earlier file with a later one.
pub(super) fn merge_element(
    earlier: &Arc<Node>,
    later: &Arc<Node>,
    notes: &mut Notes,
) -> Arc<Node> {
    merge(&mut vec![ELEMENT, ""], earlier, later, notes)
}

/// The tree without what `!reset` takes away, its other tags resolved.
pub(super) fn clean(node: &Arc<Node>) -> Arc<Node> {
    if !node.has_tag {
        return Arc::clone(node);
    }
    let value = match &node.value {
        Value::Map(entries) => {
            let kept = entries
                .iter()
                .filter(|(_, entry)| entry.node.tag != Tag::Reset);
            Value::Map(
                kept.map(|(key, entry)| (Arc::clone(key), cleaned(entry)))
                    .collect(),
            )
        }
        Value::List(items) => {
            let kept = items.iter().filter(|item| item.tag != Tag::Reset);
            Value::List(kept.map(clean).collect())
        }
        Value::Scalar(scalar) => Value::Scalar(scalar.clone()),
    };
    Arc::new(Node::assembled(node.mark.clone(), Tag::None, value))
}

fn cleaned(entry: &Entry) -> Entry {
    Entry {
        mark: entry.mark.clone(),
        node: clean(&entry.node),
    }
}

fn merge<'p>(
    path: &mut Vec<&'p str>,
    earlier: &Arc<Node>,
    later: &'p Arc<Node>,
    notes: &mut Notes,
) -> Arc<Node> {
    if later.tag == Tag::Override {
        return clean(later);
    }
    match rule_for(path) {
        Rule::Replace => clean(later),
        Rule::Pairs => merge_named(earlier, later, &pairs_of),
        Rule::Named(form) => {
            let earlier = as_named(earlier, form);
            let named = as_named(later, form);
            merge_deep_owned(path, &earlier, &named, notes)
        }
        Rule::Build => merge_deep_owned(path, &build_map(earlier), &build_map(later), notes),
        Rule::Union => append(earlier, later, &|item| item.as_text().map(str::to_owned)),
        Rule::Hosts => match (&earlier.value, &later.value) {
            (Value::Map(_), _) | (_, Value::Map(_)) => merge_named(earlier, later, &hosts_of),
            _ => append(earlier, later, &host_key),
        },
        Rule::Keyed(key) => append(earlier, later, &|item| item_key(key, item)),
        Rule::Default => merge_default(path, earlier, later, notes),
    }
}

fn merge_default<'p>(
    path: &mut Vec<&'p str>,
    earlier: &Arc<Node>,
    later: &'p Arc<Node>,
    notes: &mut Notes,
) -> Arc<Node> {
    match (&earlier.value, &later.value) {
        (Value::Map(_), Value::Map(entries)) => {
            let mut merged = earlier.as_map().cloned().unwrap_or_default();
            for (key, entry) in entries {
                path.push(key);
                merge_entry(path, &mut merged, key, entry, notes);
                path.pop();
            }
            Node::map(later.mark.clone(), merged)
        }
        (Value::List(before), Value::List(after)) => {
            let items = before
                .iter()
                .chain(after.iter().filter(|item| item.tag != Tag::Reset));
            Node::list(later.mark.clone(), items.map(clean).collect())
        }
        (Value::Scalar(_), Value::Scalar(_)) => clean(later),
        (_, Value::Scalar(_)) if later.is_null() => Arc::clone(earlier),
        (Value::Scalar(_), _) if earlier.is_null() => clean(later),
        _ => {
            // `ulimits` may be one number in one file and a pair in another.
            if path.first() != Some(&"ulimits") {
                let first = earlier.mark.location();
                notes.problem_with_hint(
                    later.mark.location(),
                    format!(
                        "{}: {} cannot be merged with {} at {first}",
                        path.join("."),
                        later.kind(),
                        earlier.kind()
                    ),
                    if later.mark.is_inline() {
                        "write both in the same form"
                    } else {
                        "write both in the same form, or tag this one `!override`"
                    },
                );
            }
            clean(later)
        }
    }
}

fn merge_entry<'p>(
    path: &mut Vec<&'p str>,
    merged: &mut Map,
    key: &'p Arc<str>,
    entry: &'p Entry,
    notes: &mut Notes,
) {
    if entry.node.tag == Tag::Reset {
        merged.shift_remove(key);
        return;
    }
    let node = match merged.get(key) {
        Some(before) => merge(path, &before.node, &entry.node, notes),
        None => clean(&entry.node),
    };
    let mark = entry.mark.clone();
    merged.insert(Arc::clone(key), Entry { mark, node });
}

/// Deep merge of two maps that were made here, one level below `path`.
fn merge_deep_owned(
    path: &[&str],
    earlier: &Arc<Node>,
    later: &Arc<Node>,
    notes: &mut Notes,
) -> Arc<Node> {
    let mut path = path.to_vec();
    merge_default(&mut path, earlier, later, notes)
}

/// Both sides as maps by name, the later one winning name by name.
fn merge_named(
    earlier: &Arc<Node>,
    later: &Arc<Node>,
    named: &dyn Fn(&Arc<Node>) -> Arc<Node>,
) -> Arc<Node> {
    let (before, after) = (named(earlier), named(later));
    let (Some(before), Some(after)) = (before.as_map(), after.as_map()) else {
        // One side has a form the reader will refuse: it must see that one.
        return if before.as_map().is_none() {
            Arc::clone(earlier)
        } else {
            clean(later)
        };
    };
    let mut merged = before.clone();
    for (key, entry) in after {
        if entry.node.tag == Tag::Reset {
            merged.shift_remove(key);
        } else {
            merged.insert(Arc::clone(key), cleaned(entry));
        }
    }
    Node::map(later.mark.clone(), merged)
}

/// `["A=b", "C"]` as `{A: "b", C: null}`; maps as they are, nothing as an empty map.
pub(super) fn pairs_of(node: &Arc<Node>) -> Arc<Node> {
    let Value::List(items) = &node.value else {
        return empty_for_null(node);
    };
    let mut pairs = Map::new();
    for item in items {
        let Some(text) = item.as_text() else {
            return Arc::clone(node);
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, item.part(value)),
            None => (text, Node::literal(item.mark.clone(), "", true)),
        };
        let mark = item.mark.clone();
        pairs.insert(name.into(), Entry { mark, node: value });
    }
    Node::map(node.mark.clone(), pairs)
}

/// `name:address` or `name=address`; an address of version 6 has colons of its own.
pub(super) fn host_parts(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').or_else(|| text.split_once(':'))
}

/// `extra_hosts` in list form as a map with the addresses of each name.
fn hosts_of(node: &Arc<Node>) -> Arc<Node> {
    let Value::List(items) = &node.value else {
        return empty_for_null(node);
    };
    let mut named: IndexMap<Arc<str>, (Mark, Vec<Arc<Node>>)> = IndexMap::new();
    for item in items.iter().filter(|item| item.tag != Tag::Reset) {
        let Some(text) = item.as_text() else {
            return Arc::clone(node);
        };
        let (name, address) = host_parts(text).unwrap_or((text, ""));
        let entry = named
            .entry(name.into())
            .or_insert_with(|| (item.mark.clone(), Vec::new()));
        entry.1.push(item.part(address));
    }
    let entries = named.into_iter().map(|(name, (mark, addresses))| {
        let node = Node::list(mark.clone(), addresses);
        (name, Entry { mark, node })
    });
    Node::map(node.mark.clone(), entries.collect())
}

/// One host in either form of a list.
fn host_key(item: &Arc<Node>) -> Option<String> {
    let (name, address) = host_parts(item.as_text()?)?;
    Some(format!("{name}={address}"))
}

/// `build` as a map, whichever form it has.
pub(super) fn build_map(node: &Arc<Node>) -> Arc<Node> {
    let Value::Scalar(_) = &node.value else {
        return Arc::clone(node);
    };
    if node.is_null() {
        return empty_for_null(node);
    }
    let context = Entry {
        mark: node.mark.clone(),
        node: Arc::clone(node),
    };
    Node::map(
        node.mark.clone(),
        IndexMap::from([("context".into(), context)]),
    )
}

/// `depends_on` as a map, whichever form it has.
pub(super) fn dependencies_map(node: &Arc<Node>) -> Arc<Node> {
    as_named(node, ShortForm::Started)
}

/// `networks` of a service as a map, whichever form it has.
pub(super) fn networks_map(node: &Arc<Node>) -> Arc<Node> {
    as_named(node, ShortForm::Nothing)
}

/// `[a, b]` as a map with what the short form stands for.
fn as_named(node: &Arc<Node>, form: ShortForm) -> Arc<Node> {
    let Value::List(items) = &node.value else {
        return empty_for_null(node);
    };
    let mut named = Map::new();
    for item in items {
        let Some(name) = item.as_text() else {
            return Arc::clone(node);
        };
        let mark = item.mark.clone();
        let node = short_form(&mark, form);
        named.insert(name.into(), Entry { mark, node });
    }
    Node::map(node.mark.clone(), named)
}

fn short_form(mark: &Mark, form: ShortForm) -> Arc<Node> {
    match form {
        ShortForm::Nothing => Node::literal(mark.clone(), "", true),
        ShortForm::Started => {
            let condition = Entry {
                mark: mark.clone(),
                node: Node::literal(mark.clone(), "service_started", false),
            };
            Node::map(
                mark.clone(),
                IndexMap::from([("condition".into(), condition)]),
            )
        }
    }
}

fn empty_for_null(node: &Arc<Node>) -> Arc<Node> {
    if node.is_null() {
        Node::map(node.mark.clone(), Map::new())
    } else {
        Arc::clone(node)
    }
}

/// Both lists, a later item taking the place of an earlier one with the same key.
fn append(
    earlier: &Arc<Node>,
    later: &Arc<Node>,
    key_of: &dyn Fn(&Arc<Node>) -> Option<String>,
) -> Arc<Node> {
    let mut items: Vec<Arc<Node>> = Vec::new();
    let mut places: IndexMap<String, usize> = IndexMap::new();
    for item in items_of(earlier).iter().chain(items_of(later).iter()) {
        if item.tag == Tag::Reset {
            continue;
        }
        match key_of(item) {
            Some(key) if places.contains_key(&key) => items[places[&key]] = clean(item),
            Some(key) => {
                places.insert(key, items.len());
                items.push(clean(item));
            }
            None => items.push(clean(item)),
        }
    }
    Node::list(later.mark.clone(), items)
}

/// The items of a list; a single value is a list of one, null is empty.
fn items_of(node: &Arc<Node>) -> Vec<Arc<Node>> {
    match &node.value {
        Value::List(items) => items.clone(),
        Value::Scalar(_) if node.is_null() => Vec::new(),
        Value::Scalar(_) | Value::Map(_) => vec![Arc::clone(node)],
    }
}

fn item_key(key: ItemKey, item: &Arc<Node>) -> Option<String> {
    let field = |name| item.get(name).and_then(|node| node.as_text());
    match key {
        ItemKey::VolumeTarget => match item.as_text() {
            Some(text) => Some(mounts::target_of_short(text).to_owned()),
            None => field("target").map(str::to_owned),
        },
        ItemKey::TmpfsTarget => {
            let target = item.as_text()?.split(':').next()?;
            Some(target.trim_end_matches('/').to_owned())
        }
        ItemKey::GrantTarget => item
            .as_text()
            .or_else(|| field("target"))
            .or_else(|| field("source"))
            .map(str::to_owned),
        ItemKey::Path => item.as_text().or_else(|| field("path")).map(str::to_owned),
        ItemKey::Port => match item.as_text() {
            Some(text) => Some(text.to_owned()),
            None => Some(format!(
                "{}:{}:{}/{}",
                field("host_ip").unwrap_or_default(),
                field("published").unwrap_or_default(),
                field("target")?,
                field("protocol").unwrap_or("tcp"),
            )),
        },
    }
}

#[cfg(test)]
mod tests;
