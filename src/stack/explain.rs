//! Where each value of a resolved stack came from.
//!
//! Walks the merged trees once more and names places by the paths that the
//! resolved stack has, so that a limit written under `deploy` is found at `cpus`.
//! Defaults have no place. Opens no file; runs for people, not per cell.

use std::fmt;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use super::assemble::{Assembly, Element};
use super::files::ComposeFiles;
use super::merge;
use super::model::Stack;
use super::mounts::target_of_short;
use super::node::{Node, Value};
use super::notes::Notes;
use super::resolve::ResolveRequest;
use super::template::{Lookup, Origin};
use crate::problem::Location;

/// The place of a value and the variables it was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueOrigin {
    /// Where it is written.
    pub place: Location,
    /// Variables in it and where their values came from, as `cpus (cell)`.
    pub variables: Vec<String>,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)?;
        if !self.variables.is_empty() {
            write!(f, " with {}", self.variables.join(", "))?;
        }
        Ok(())
    }
}

impl Serialize for ValueOrigin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Values by their path in the resolved stack, such as `services.app.cpus`.
///
/// **Shape**: in file order. A mount's path ends with its target.
pub type Origins = IndexMap<String, ValueOrigin>;

/// Limits under `deploy.resources` and what the resolved stack calls them.
const DEPLOY_LIMITS: [(&str, &str, &str); 4] = [
    ("limits", "cpus", "cpus"),
    ("limits", "memory", "mem_limit"),
    ("limits", "pids", "pids_limit"),
    ("reservations", "memory", "mem_reservation"),
];

impl ComposeFiles {
    /// Where the values of a stack, resolved for the same request, came from.
    pub fn explain(&self, request: &ResolveRequest<'_>, stack: &Stack) -> Origins {
        // What is wrong was said when the stack was resolved.
        let mut ignored = Notes::default();
        let assembly = Assembly::new(self, request, &mut ignored);
        let mut origins = Origins::new();
        for (name, service) in &stack.services {
            if let Some(element) = assembly.element("services", name, &mut ignored) {
                let path = format!("services.{name}");
                walk_service(&path, &element.node, &mut origins);
                add_inherited(&path, &element, &mut origins);
                let env_file = element.node.get("env_file");
                for variable in service.environment.keys() {
                    let path = format!("{path}.environment.{variable}");
                    if let (Some(node), false) = (env_file, origins.contains_key(&path)) {
                        origins.insert(path, origin_of(node));
                    }
                }
            }
        }
        for (section, names) in [
            ("networks", stack.networks.keys().collect::<Vec<_>>()),
            ("volumes", stack.volumes.keys().collect()),
        ] {
            for name in names {
                if let Some(element) = assembly.element(section, name, &mut ignored) {
                    walk(&format!("{section}.{name}"), &element.node, &mut origins);
                }
            }
        }
        origins
    }
}

/// Variables that `environment` names alone take their values from outside.
fn add_inherited(path: &str, element: &Element<'_, '_>, origins: &mut Origins) {
    let Some(environment) = element.node.get("environment").map(merge::pairs_of) else {
        return;
    };
    for (name, entry) in environment.as_map().into_iter().flatten() {
        let found = element.variables.find(name);
        if let (true, Some((_, origin))) = (entry.node.is_null(), found) {
            let origin = ValueOrigin {
                place: entry.mark.location(),
                variables: vec![format!("{name} ({})", word_for(origin))],
            };
            origins.insert(format!("{path}.environment.{name}"), origin);
        }
    }
}

fn walk_service(path: &str, service: &Node, origins: &mut Origins) {
    for (key, entry) in service.as_map().into_iter().flatten() {
        let node = &entry.node;
        match &**key {
            "environment" | "labels" | "sysctls" | "storage_opt" | "annotations" => {
                walk(&format!("{path}.{key}"), &merge::pairs_of(node), origins);
            }
            "depends_on" => walk(
                &format!("{path}.{key}"),
                &merge::dependencies_map(node),
                origins,
            ),
            "networks" => walk(
                &format!("{path}.{key}"),
                &merge::networks_map(node),
                origins,
            ),
            "build" => walk(&format!("{path}.{key}"), &merge::build_map(node), origins),
            "scale" => walk(&format!("{path}.replicas"), node, origins),
            "deploy" => walk_deploy(path, node, origins),
            "volumes" | "tmpfs" | "secrets" | "configs" => {
                let items = match &node.value {
                    Value::List(items) => items.as_slice(),
                    Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(node),
                };
                for item in items {
                    if let Some(target) = target_of(key, item) {
                        origins.insert(format!("{path}.mounts.{target}"), origin_of(item));
                    }
                }
            }
            _ => walk(&format!("{path}.{key}"), node, origins),
        }
    }
}

fn walk_deploy(path: &str, deploy: &Node, origins: &mut Origins) {
    if let Some(replicas) = deploy.get("replicas") {
        walk(&format!("{path}.replicas"), replicas, origins);
    }
    for (kind, key, name) in DEPLOY_LIMITS {
        let limit = deploy
            .get("resources")
            .and_then(|resources| resources.get(kind)?.get(key));
        if let Some(limit) = limit {
            walk(&format!("{path}.{name}"), limit, origins);
        }
    }
}

/// Where a mount is seen, as the resolved stack has it.
fn target_of(key: &str, item: &Node) -> Option<String> {
    let text = |name| item.get(name).and_then(|node| node.as_text());
    let short = item.as_text();
    match key {
        "volumes" => match short {
            Some(short) => short.split(':').nth(1).or(Some(short)).map(str::to_owned),
            None => text("target").map(str::to_owned),
        },
        "tmpfs" => {
            short.map(|short| target_of_short(short.split(':').next().unwrap_or(short)).to_owned())
        }
        _ => {
            let name = short
                .or_else(|| text("target"))
                .or_else(|| text("source"))?;
            Some(match (name.starts_with('/'), key) {
                (true, _) => name.to_owned(),
                (false, "secrets") => format!("/run/secrets/{name}"),
                (false, _) => format!("/{name}"),
            })
        }
    }
}

/// A value, and the values below it where it is a map.
fn walk(path: &str, node: &Node, origins: &mut Origins) {
    // A map is where its values are.
    if node.as_map().is_none() {
        origins.insert(path.to_owned(), origin_of(node));
    }
    for (key, entry) in node.as_map().into_iter().flatten() {
        let below = format!("{path}.{key}");
        walk(&below, &entry.node, origins);
        if entry.node.is_null() {
            let place = entry.mark.location();
            let variables = Vec::new();
            origins.insert(below, ValueOrigin { place, variables });
        }
    }
}

fn origin_of(node: &Node) -> ValueOrigin {
    let mut variables = Vec::new();
    match &node.value {
        Value::Scalar(_) => add_variables(node, &mut variables),
        Value::List(items) => items
            .iter()
            .for_each(|item| add_variables(item, &mut variables)),
        Value::Map(_) => {}
    }
    ValueOrigin {
        place: node.mark.location(),
        variables,
    }
}

fn add_variables(node: &Node, variables: &mut Vec<String>) {
    let Some(replaced) = node.replaced() else {
        return;
    };
    let used = replaced
        .used
        .iter()
        .map(|(name, origin)| format!("{name} ({})", word_for(*origin)));
    let defaulted = replaced
        .defaulted
        .iter()
        .map(|name| format!("{name} (default)"));
    let unset = replaced.unset.iter().map(|name| format!("{name} (unset)"));
    for variable in used.chain(defaulted).chain(unset) {
        if !variables.contains(&variable) {
            variables.push(variable);
        }
    }
}

fn word_for(origin: Origin) -> &'static str {
    match origin {
        Origin::Cell => "set",
        Origin::Environment => "environment",
        Origin::DotEnv => ".env",
        Origin::Builtin => "Compose",
    }
}
