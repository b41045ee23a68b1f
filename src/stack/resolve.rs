//! The files and one cell's values to the stack that is launched.
//!
//! Runs once per cell; everything that stands still was done when the files were
//! read. Only mistakes in what is started stop it: a broken service that is not
//! started is a warning.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use super::assemble::Assembly;
use super::dependencies::{self, Link};
use super::field::Field;
use super::files::ComposeFiles;
use super::model::{Service, Stack};
use super::mounts;
use super::namespaces;
use super::networks;
use super::node::Node;
use super::notes::Notes;
use super::service::{ServiceReader, Used};
use super::start::{self, Candidate};
use super::surroundings::{Network, Volume};
use super::template::Lookup;
use crate::problem::{Location, Problem, Problems};

/// What one resolving is given.
#[derive(Debug, Clone, Copy)]
pub struct ResolveRequest<'a> {
    /// Levels and derived values of the cell, as Compose variables.
    pub cell: &'a IndexMap<String, String>,
    /// The process environment.
    pub environment: &'a BTreeMap<String, String>,
    /// Services to start with what they depend on. Empty: what `docker compose up` starts.
    pub roots: &'a [String],
    /// Profiles that are on; their services are started too. `*` is all.
    pub profiles: &'a [String],
    /// What may be written to: volumes by name, and paths with all that is below
    /// them, absolute, from `~/`, or from the folder of the first Compose file (`./`).
    pub shared: &'a [String],
}

/// A stack with what the caller must know beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// What is launched.
    pub stack: Stack,
    /// Values from the environment, `.env`, `env_file` and Compose secrets: to be hidden.
    pub secrets: Vec<String>,
    /// Names that what is started refers to. An axis not among them does not reach the stack.
    pub variables: BTreeSet<String>,
}

/// Elements of one section with what was found in them.
type Section = IndexMap<String, (Arc<Node>, Notes)>;

/// Everything the files declare beside services.
#[derive(Debug)]
pub(super) struct Elements<'a> {
    /// The `networks`.
    pub(super) networks: Section,
    /// The `volumes`.
    pub(super) volumes: Section,
    /// The `secrets`.
    pub(super) secrets: Section,
    /// The `configs`.
    pub(super) configs: Section,
    assembly: &'a Assembly<'a>,
}

impl<'a> Elements<'a> {
    fn new(files: &ComposeFiles, assembly: &'a Assembly<'a>) -> Self {
        let section = |section: &str| {
            let mut elements = Section::new();
            for name in files.names_in(section) {
                let mut notes = Notes::default();
                if let Some(element) = assembly.element(section, &name, &mut notes) {
                    elements.insert(name, (element.node, notes));
                }
            }
            elements
        };
        Self {
            networks: section("networks"),
            volumes: section("volumes"),
            secrets: section("secrets"),
            configs: section("configs"),
            assembly,
        }
    }
}

/// What reading the services found beside the services themselves.
struct Findings {
    notes: Notes,
    used: Used,
    links: Vec<Link>,
}

impl ComposeFiles {
    /// The stack of one cell.
    ///
    /// **Errors**: every mistake in what is started, and in the files as a whole.
    pub fn resolve(&self, request: &ResolveRequest<'_>) -> Result<Resolution, Problems> {
        let mut notes = self.paths.notes.clone();
        self.paths.check(request.cell, &mut notes);
        let assembly = Assembly::new(self, request, &mut notes);
        let elements = Elements::new(self, &assembly);
        let (mut candidates, mut findings) = self.read_services(&elements, request);
        warn_of_profiles(&assembly, request, &mut notes);
        let started = start::closure(
            &mut candidates,
            request.roots,
            request.profiles,
            &self.start(),
            &mut notes,
        );
        if started.is_empty() && notes.problems.is_empty() {
            notes.problem(self.start(), "no service would be started");
        }
        start::refuse_cycles(&candidates, &started, &mut notes);
        start::refuse_untested_health(&candidates, &started, &mut notes);
        let mut used = Used::default();
        let mut links = Vec::new();
        for (name, found) in findings.drain(..) {
            if started.contains(&name) {
                notes.absorb(found.notes);
                used.networks.extend(found.used.networks);
                used.volumes.extend(found.used.volumes);
                links.push((name, found.links));
            } else {
                note_not_started(&name, found.notes, &mut notes);
            }
        }
        let mut stack = Stack::default();
        for (name, candidate) in candidates {
            if started.contains(&name) {
                stack.services.insert(name, candidate.service);
            } else {
                stack.not_started.push(name);
            }
        }
        add_links(&mut stack.services, &links, &self.start(), &mut notes);
        namespaces::let_share(&mut stack.services, &self.start(), &mut notes);
        add_elements(&mut stack, elements, &used, request.shared, &mut notes);
        stack.warnings = notes.sentences();
        if !notes.problems.is_empty() {
            return Err(Problems(in_order(notes.problems)));
        }
        Ok(Resolution {
            stack,
            secrets: notes.secrets.into_iter().collect(),
            variables: self.with_names_behind(notes.referred),
        })
    }

    /// Reads every service, started or not.
    fn read_services(
        &self,
        elements: &Elements<'_>,
        request: &ResolveRequest<'_>,
    ) -> (IndexMap<String, Candidate>, Vec<(String, Findings)>) {
        let mut candidates = IndexMap::new();
        let mut findings = Vec::new();
        for name in self.service_names() {
            let mut notes = Notes::default();
            let element = elements.assembly.element("services", &name, &mut notes);
            let Some(element) = element else { continue };
            let mut reader = ServiceReader::new(
                &name,
                element.variables,
                elements,
                request.shared,
                self.folder(),
            );
            reader.notes = notes;
            let service = reader.read(&element);
            let root = Field::root(&name, &element.node);
            let profiles = root
                .get("profiles")
                .map_or_else(Vec::new, |field| field.texts(&mut reader.notes));
            // What is wrong with the links was noted with the dependencies.
            let links = dependencies::links(&root, &mut Notes::default());
            let found = Findings {
                notes: reader.notes,
                used: reader.used,
                links,
            };
            findings.push((name.clone(), found));
            let candidate = Candidate {
                service,
                node: element.node,
                profiles,
            };
            candidates.insert(name, candidate);
        }
        (candidates, findings)
    }
}

/// Compose turns profiles on by a variable; a sweep says them in its matrix.
fn warn_of_profiles(assembly: &Assembly<'_>, request: &ResolveRequest<'_>, notes: &mut Notes) {
    if let Some((value, _)) = assembly.variables().find("COMPOSE_PROFILES")
        && !value.is_empty()
        && request.profiles.is_empty()
    {
        notes.warn("`COMPOSE_PROFILES` is set but not read; profiles are named by the sweep");
    }
}

/// A service that is not started may be broken; its values are hidden all the same.
fn note_not_started(name: &str, found: Notes, notes: &mut Notes) {
    if let Some(first) = found.problems.first() {
        let more = match found.problems.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        notes.warn(format!(
            "the service `{name}` is not started; it could not be: {}: {}{more}",
            first.location, first.message
        ));
    }
    notes.secrets.extend(found.secrets);
}

/// Makes every link's alias a name of its service on the networks both are on.
fn add_links(
    services: &mut IndexMap<String, Service>,
    links: &[(String, Vec<Link>)],
    place: &Location,
    notes: &mut Notes,
) {
    let mut meanings: IndexMap<&str, &str> = IndexMap::new();
    let all = links
        .iter()
        .flat_map(|(from, links)| links.iter().map(move |link| (from, link)));
    for (from, link) in all {
        let meaning = *meanings.entry(&link.alias).or_insert(&link.service);
        let is_other_service = link.alias != link.service && services.contains_key(&link.alias);
        if meaning != link.service || is_other_service {
            notes.problem(
                place.clone(),
                format!(
                    "services.{from}.links: `{}` would name two services on one network, and nobody could say which is meant",
                    link.alias
                ),
            );
            continue;
        }
        let Some(own) = services.get(from).map(|service| service.networks.clone()) else {
            continue;
        };
        // That there is no such service was said with the dependencies.
        let Some(target) = services.get_mut(&link.service) else {
            continue;
        };
        let mut is_reachable = false;
        for (network, attachment) in &mut target.networks {
            if own.contains_key(network) {
                is_reachable = true;
                if !attachment.aliases.contains(&link.alias) {
                    attachment.aliases.push(link.alias.clone());
                }
            }
        }
        if !is_reachable {
            notes.problem(
                place.clone(),
                format!(
                    "services.{from}.links: `{}` is on none of the networks of `{from}`",
                    link.service
                ),
            );
        }
    }
}

/// Adds the networks and volumes that are used.
fn add_elements(
    stack: &mut Stack,
    elements: Elements<'_>,
    used: &Used,
    shared: &[String],
    notes: &mut Notes,
) {
    let mut used_networks: IndexSet<&str> = used.networks.iter().map(String::as_str).collect();
    if used_networks.is_empty() {
        used_networks.insert(networks::DEFAULT);
    }
    let mut declared = elements.networks;
    for name in used_networks {
        let network = match declared.swap_remove(name) {
            Some((node, found)) => {
                notes.absorb(found);
                networks::element(name, &node, shared, notes)
            }
            None => Network::default(),
        };
        stack.networks.insert(name.to_owned(), network);
    }
    let mut declared = elements.volumes;
    for name in &used.volumes {
        if let Some((node, found)) = declared.swap_remove(name) {
            notes.absorb(found);
            let volume = volume(name, &node, notes);
            stack.volumes.insert(name.clone(), volume);
        }
    }
    for (_, found) in elements
        .secrets
        .into_values()
        .chain(elements.configs.into_values())
    {
        notes.absorb(found);
    }
}

fn volume(name: &str, node: &Arc<Node>, notes: &mut Notes) -> Volume {
    let section = Field::root("volumes", node);
    let root = Field::child(&section, name, &node.mark, node);
    let mut volume = Volume::default();
    let is_external = mounts::is_external(&root);
    if is_external {
        volume.external = mounts::outside_name(&root, name);
    }
    for field in root.entries(notes) {
        if field.node.is_null() {
            continue;
        }
        match field.key() {
            "external" => {}
            "name" if is_external => {}
            "name" => notes.rule(
                "each trial gets its own, with a name of its own",
                field.to_string(),
            ),
            "driver" if matches!(field.node.as_text(), Some("local" | "")) => {}
            "driver" => field.problem_with_hint(
                notes,
                "a driver other than `local` keeps its data where trials cannot throw it away",
                "set `driver: local` in an override, or make the volume external and list it in `[trials] shared`",
            ),
            "driver_opts" => {
                for option in field.entries(notes) {
                    if let Some(value) = option.canonical_text(notes) {
                        let name = option.key().to_owned();
                        volume.driver_opts.insert(name, value.unwrap_or_default());
                    }
                }
            }
            "labels" => notes.rule(mounts::LABELS_RULE, field.to_string()),
            key if key.starts_with("x-") => {}
            _ => field.unknown(
                &["name", "external", "driver", "driver_opts", "labels"],
                notes,
            ),
        }
    }
    volume
}

/// The problems without repeats, file by file from top to bottom.
///
/// Services that share a value by an alias, `extends` or `<<` share its mistake,
/// which stands in one place and is said once, of the first of them.
fn in_order(problems: Vec<Problem>) -> Vec<Problem> {
    let mut by_file: IndexMap<PathBuf, BTreeSet<Problem>> = IndexMap::new();
    let mut said = HashSet::new();
    for problem in problems {
        let what = problem
            .message
            .split_once(": ")
            .map_or(&*problem.message, |(_, what)| what);
        if !said.insert((problem.location.clone(), what.to_owned())) {
            continue;
        }
        let file = by_file.entry(problem.location.file.clone()).or_default();
        file.insert(problem);
    }
    by_file.into_values().flatten().collect()
}

#[cfg(test)]
mod tests;
