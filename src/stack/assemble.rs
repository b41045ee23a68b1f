//! One element at a time: interpolated, extended and merged over all files.
//!
//! Services, networks, volumes, secrets and configs are put together when asked
//! for, each with its own notes. Read next: [`super::service`], which reads the
//! result.

use std::path::PathBuf;
use std::sync::Arc;

use indexmap::IndexMap;

use super::field::Field;
use super::files::{ComposeFiles, Layer, Project, near_service};
use super::merge;
use super::node::{Map, Node, Tag, Value};
use super::notes::Notes;
use super::resolve::ResolveRequest;
use super::variables::{Variables, interpolate};

/// A place of a setting, as a path below the service.
type Path = &'static [&'static str];

/// Settings that can be written in several forms, each of one place or more.
const FORMS: [&[&[Path]]; 5] = [
    &[
        &[&["cpus"]],
        &[&["deploy", "resources", "limits", "cpus"]],
        &[&["cpu_quota"], &["cpu_period"]],
    ],
    &[
        &[&["mem_limit"]],
        &[&["deploy", "resources", "limits", "memory"]],
    ],
    &[
        &[&["pids_limit"]],
        &[&["deploy", "resources", "limits", "pids"]],
    ],
    &[
        &[&["mem_reservation"]],
        &[&["deploy", "resources", "reservations", "memory"]],
    ],
    &[&[&["scale"]], &[&["deploy", "replicas"]]],
];

/// All files with the values of one cell.
#[derive(Debug)]
pub(super) struct Assembly<'a> {
    files: &'a ComposeFiles,
    root: View<'a>,
}

/// A project with its variables.
#[derive(Debug)]
struct View<'a> {
    layers: Vec<(&'a Layer, Vec<View<'a>>)>,
    variables: Variables<'a>,
}

/// A service, network, volume, secret or config of all files together.
#[derive(Debug)]
pub(super) struct Element<'v, 'a> {
    /// The merged value.
    pub(super) node: Arc<Node>,
    /// Variables of the project it comes from.
    pub(super) variables: &'v Variables<'a>,
}

impl<'a> Assembly<'a> {
    /// Evaluates the `.env` files; the rest waits until it is asked for.
    pub(super) fn new(
        files: &'a ComposeFiles,
        request: &ResolveRequest<'a>,
        notes: &mut Notes,
    ) -> Self {
        let root = View::new(&files.project, request, None, notes);
        Self { files, root }
    }

    /// Variables of the files the user named.
    pub(super) fn variables(&self) -> &Variables<'a> {
        &self.root.variables
    }

    /// An element over all files, where one has it.
    pub(super) fn element(
        &self,
        section: &str,
        name: &str,
        notes: &mut Notes,
    ) -> Option<Element<'_, 'a>> {
        let mut element = self.element_in(&self.root, section, name, notes);
        let inline = self.files.inline.as_ref();
        if let Some(entry) = inline.and_then(|layer| layer.section(section)?.get(name)) {
            let top = Field::root(section, &entry.node);
            let field = top.child(name, &entry.mark, &entry.node);
            let later = interpolate(&field, &self.root.variables, notes);
            element = Some(match element {
                Some(mut earlier) => {
                    if section == "services" {
                        earlier.node = clear_twins(&earlier.node, &later, name, notes);
                    }
                    earlier.node = merge_in(section, &earlier.node, &later, notes);
                    earlier
                }
                None => Element {
                    node: merge::clean(&later),
                    variables: &self.root.variables,
                },
            });
        }
        element
    }

    fn element_in<'v>(
        &'v self,
        view: &'v View<'a>,
        section: &str,
        name: &str,
        notes: &mut Notes,
    ) -> Option<Element<'v, 'a>> {
        let mut element: Option<Element<'v, 'a>> = None;
        for (layer, includes) in &view.layers {
            let mut here: Option<Element<'v, 'a>> = None;
            for include in includes {
                let Some(included) = self.element_in(include, section, name, notes) else {
                    continue;
                };
                here = Some(join(here, included, section, name, notes));
            }
            if let Some(entry) = layer.section(section).and_then(|map| map.get(name)) {
                if entry.node.tag == Tag::Reset {
                    element = None;
                    continue;
                }
                let top = Field::root(section, &entry.node);
                let field = top.child(name, &entry.mark, &entry.node);
                let mut node = interpolate(&field, &view.variables, notes);
                if section == "services" {
                    node = self.extend(layer, &view.variables, &node, &mut Vec::new(), notes);
                }
                let own = Element {
                    node,
                    variables: &view.variables,
                };
                here = Some(join(here, own, section, name, notes));
            }
            element = match (element, here) {
                (Some(mut earlier), Some(later)) => {
                    earlier.node = merge_in(section, &earlier.node, &later.node, notes);
                    Some(earlier)
                }
                (None, Some(only)) => Some(Element {
                    node: merge::clean(&only.node),
                    ..only
                }),
                (earlier, None) => earlier,
            };
        }
        element
    }

    /// The service with its `extends` replaced by what that stands for.
    fn extend(
        &self,
        layer: &Layer,
        variables: &Variables<'a>,
        node: &Arc<Node>,
        chain: &mut Vec<(PathBuf, String)>,
        notes: &mut Notes,
    ) -> Arc<Node> {
        let Some((extends, rest)) = take(node, "extends") else {
            return Arc::clone(node);
        };
        let service = extends
            .as_text()
            .or_else(|| extends.get("service")?.as_text());
        let Some(service) = service.map(str::to_owned) else {
            let place = extends.mark.location();
            notes.problem(place, "extends: must name a service");
            return rest;
        };
        let file = extends.get("file").and_then(|node| node.as_text());
        let base_layer = match file {
            Some(file) => {
                let path = extends.mark.folder().join(file);
                let Some(layer) = self.files.extended.get(&path) else {
                    // It could be read, or nothing would be resolved: its name has changed since.
                    let message = format!("extends.file: `{file}` was not read with the files");
                    notes.problem(extends.mark.location(), message);
                    return rest;
                };
                layer
            }
            None => layer,
        };
        let Some(entry) = base_layer
            .section("services")
            .and_then(|map| map.get(service.as_str()))
        else {
            let names: Vec<String> = base_layer
                .section("services")
                .into_iter()
                .flat_map(Map::keys)
                .map(ToString::to_string)
                .collect();
            let message = format!("extends: there is no service `{service}`");
            notes.problem_with_hint(
                extends.mark.location(),
                message,
                near_service(&service, &names),
            );
            return rest;
        };
        let link = (entry.mark.location().file, service);
        if chain.contains(&link) {
            let message = format!("extends: `{}` leads back to itself", link.1);
            notes.problem(extends.mark.location(), message);
            return rest;
        }
        let top = Field::root("services", &entry.node);
        let field = top.child(&link.1, &entry.mark, &entry.node);
        let base = interpolate(&field, variables, notes);
        chain.push(link);
        let base = self.extend(base_layer, variables, &base, chain, notes);
        merge::merge_service(&merge::clean(&base), &rest, notes)
    }
}

impl<'a> View<'a> {
    fn new(
        project: &'a Project,
        request: &ResolveRequest<'a>,
        parent: Option<&Variables<'a>>,
        notes: &mut Notes,
    ) -> Self {
        let mut variables = Variables {
            cell: request.cell,
            environment: request.environment,
            dotenv: parent.map_or_else(IndexMap::new, |parent| parent.dotenv.clone()),
            project: parent.map_or_else(|| project_name(project), |parent| parent.project.clone()),
        };
        for file in &project.dotenv {
            let values = file.evaluate(&variables, notes);
            for (name, value) in values {
                // The including project's values win over the included one's.
                variables.dotenv.entry(name).or_insert(value);
            }
        }
        let mut layers = Vec::with_capacity(project.layers.len());
        for layer in &project.layers {
            let mut includes = Vec::with_capacity(layer.includes.len());
            for include in &layer.includes {
                includes.push(Self::new(include, request, Some(&variables), notes));
            }
            layers.push((layer, includes));
        }
        Self { layers, variables }
    }
}

/// The name of a project: `name:` where it is plain text, else its folder.
fn project_name(project: &Project) -> String {
    let named = project
        .layers
        .iter()
        .rev()
        .filter_map(|layer| layer.root.get("name"))
        .find(|node| !node.has_template)
        .and_then(|node| node.as_text());
    let folder = project
        .folder
        .file_name()
        .map(|name| name.to_string_lossy());
    let text = named.map_or_else(|| folder.unwrap_or_default().to_string(), str::to_owned);
    text.to_lowercase()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        .collect::<String>()
        .trim_start_matches(['_', '-'])
        .to_owned()
}

/// Two definitions of one element that `include` brings together.
fn join<'v, 'a>(
    here: Option<Element<'v, 'a>>,
    other: Element<'v, 'a>,
    section: &str,
    name: &str,
    notes: &mut Notes,
) -> Element<'v, 'a> {
    let Some(mut here) = here else { return other };
    if section == "services" {
        let first = here.node.mark.location();
        notes.problem_with_hint(
            other.node.mark.location(),
            format!("services.{name}: an included file has this service too, at {first}"),
            "rename one of them, or list both files under one `include` path",
        );
    } else {
        here.node = merge_in(section, &here.node, &other.node, notes);
    }
    here
}

fn merge_in(section: &str, earlier: &Arc<Node>, later: &Arc<Node>, notes: &mut Notes) -> Arc<Node> {
    if section == "services" {
        merge::merge_service(earlier, later, notes)
    } else {
        merge::merge_element(earlier, later, notes)
    }
}

/// The map without one key, and that key's value.
fn take(node: &Arc<Node>, key: &str) -> Option<(Arc<Node>, Arc<Node>)> {
    let mut entries = node.as_map()?.clone();
    let taken = entries.shift_remove(key)?.node;
    let rest = Node::assembled(node.mark.clone(), node.tag, Value::Map(entries));
    Some((taken, Arc::new(rest)))
}

/// The map without the value at a path.
fn without(node: &Arc<Node>, path: &[&str]) -> Option<Arc<Node>> {
    let (first, below) = path.split_first()?;
    let mut entries = node.as_map()?.clone();
    if below.is_empty() {
        entries.shift_remove(*first)?;
    } else {
        let entry = entries.get_mut(*first)?;
        entry.node = without(&entry.node, below)?;
    }
    let rest = Node::assembled(node.mark.clone(), node.tag, Value::Map(entries));
    Some(Arc::new(rest))
}

/// An inline override that sets a limit in one form clears it in the others:
/// TOML has no `!reset`, and Compose refuses two different values.
fn clear_twins(earlier: &Arc<Node>, later: &Arc<Node>, name: &str, notes: &mut Notes) -> Arc<Node> {
    let mut node = Arc::clone(earlier);
    for forms in FORMS {
        let is_set = |form: &&[Path]| form.iter().any(|path| has(later, path));
        if !forms.iter().any(is_set) {
            continue;
        }
        let others = forms.iter().filter(|form| !is_set(form));
        for path in others.copied().flatten() {
            if let Some(cleared) = without(&node, path) {
                node = cleared;
                let path = format!("services.{name}.{}", path.join("."));
                notes.rule("replaced by what the override sets", path);
            }
        }
    }
    node
}

/// Whether there is a value at a path.
fn has(node: &Arc<Node>, path: &[&str]) -> bool {
    let Some((first, below)) = path.split_first() else {
        return !node.is_null();
    };
    node.get(first).is_some_and(|node| has(node, below))
}
