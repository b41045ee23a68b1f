//! Which services are started: the roots and what they depend on.
//!
//! Pure; walks are loops, so a long chain of services cannot exhaust the stack.

use indexmap::{IndexMap, IndexSet};

use super::files::near_service;
use super::model::{Condition, Dependency, Service};
use super::namespaces::{SHARING, shared_service, volume_source};
use super::node::{Node, Value};
use super::notes::Notes;
use crate::problem::Location;

/// A service of the files, read but not yet known to be started.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The service as far as it could be read.
    pub(super) service: Service,
    /// Its merged value, for places.
    pub(super) node: std::sync::Arc<Node>,
    /// Profiles it belongs to; none is always on.
    pub(super) profiles: Vec<String>,
}

impl Candidate {
    fn has_profile_on(&self, profiles: &[String]) -> bool {
        self.profiles
            .iter()
            .any(|profile| profiles.iter().any(|on| on == profile || on == "*"))
    }

    /// Whether the file asks for no container of it.
    fn has_no_container(&self) -> bool {
        self.service.replicas == Some(0)
    }

    fn replicas_place(&self) -> Location {
        let deploy = self.node.get("deploy");
        let replicas = deploy.and_then(|deploy| deploy.get("replicas"));
        let node = replicas.or_else(|| self.node.get("scale"));
        node.map_or_else(|| self.node.mark.location(), |node| node.mark.location())
    }

    /// The key and the place where the file says that it depends on another service.
    fn dependency_place(&self, name: &str) -> (&'static str, Location) {
        let find = |key, is_it: fn(&str, &str) -> bool| {
            let found = match &self.node.get(key)?.value {
                Value::Map(entries) => entries.get(name).map(|entry| &entry.mark),
                Value::List(items) => items
                    .iter()
                    .find(|item| item.as_text().is_some_and(|text| is_it(text, name)))
                    .map(|item| &item.mark),
                Value::Scalar(_) => None,
            };
            Some((key, found?.location()))
        };
        find("depends_on", |text, name| text == name)
            .or_else(|| find("links", |text, name| text.split(':').next() == Some(name)))
            .or_else(|| {
                find("volumes_from", |text, name| {
                    volume_source(text) == Some(name)
                })
            })
            .or_else(|| self.sharing_place(name))
            .unwrap_or_else(|| ("depends_on", self.node.mark.location()))
    }
}

impl Candidate {
    /// The same where it shares something with the other service.
    fn sharing_place(&self, name: &str) -> Option<(&'static str, Location)> {
        SHARING.into_iter().find_map(|key| {
            let node = self.node.get(key)?;
            let is_it = shared_service(node.as_text()?) == Some(name);
            is_it.then(|| (key, node.mark.location()))
        })
    }
}

/// The services to start, in file order, after dependencies that may be left
/// out have been taken off their dependants.
///
/// With no roots it is what `docker compose up` starts: every service without a
/// profile. A service whose profile is on is started in both cases.
pub(super) fn closure(
    candidates: &mut IndexMap<String, Candidate>,
    roots: &[String],
    profiles: &[String],
    files_start: &Location,
    notes: &mut Notes,
) -> IndexSet<String> {
    let names: Vec<String> = candidates.keys().cloned().collect();
    let mut open: Vec<String> = Vec::new();
    for root in roots {
        if let Some(candidate) = candidates.get(root) {
            if candidate.has_no_container() {
                let message = format!(
                    "services.{root}.replicas: 0 containers, and the sweep needs this service"
                );
                notes.problem(candidate.replicas_place(), message);
            } else {
                open.push(root.clone());
            }
        } else {
            let message = format!("there is no service `{root}` in the Compose files");
            notes.problem_with_hint(files_start.clone(), message, near_service(root, &names));
        }
    }
    for (name, candidate) in candidates.iter() {
        let is_plain = roots.is_empty() && candidate.profiles.is_empty();
        if is_plain || candidate.has_profile_on(profiles) {
            if candidate.has_no_container() {
                notes.warn(format!("services.{name}.replicas: 0, so it is not started"));
            } else {
                open.push(name.clone());
            }
        }
    }
    let mut reached: IndexSet<String> = IndexSet::new();
    while let Some(name) = open.pop() {
        if !reached.insert(name.clone()) {
            continue;
        }
        for needed in needed_by(&name, candidates, roots, profiles, notes) {
            if !reached.contains(&needed) {
                open.push(needed);
            }
        }
    }
    names
        .into_iter()
        .filter(|name| reached.contains(name))
        .collect()
}

/// The dependencies of a service that are started with it.
fn needed_by(
    name: &str,
    candidates: &mut IndexMap<String, Candidate>,
    roots: &[String],
    profiles: &[String],
    notes: &mut Notes,
) -> Vec<String> {
    let Some(candidate) = candidates.get(name) else {
        return Vec::new();
    };
    let mut needed = Vec::new();
    let mut left_out = Vec::new();
    for (other, dependency) in &candidate.service.depends_on {
        let (key, place) = candidate.dependency_place(other);
        let path = format!("services.{name}.{key}.{other}");
        let missing = match candidates.get(other) {
            // Compose waits for nothing where nothing is started.
            Some(found) if found.has_no_container() => {
                if candidate.sharing_place(other).is_some() {
                    let message = format!("services.{name}.{key}: `{other}` has 0 replicas");
                    notes.problem(place, message);
                } else {
                    notes.warn(format!(
                        "{path}: `{other}` has 0 replicas, so it is neither started nor waited for"
                    ));
                }
                left_out.push(other.clone());
                continue;
            }
            None => Some(("there is no such service", near(other, candidates))),
            Some(found) => {
                let is_on = found.profiles.is_empty()
                    || found.has_profile_on(profiles)
                    || roots.contains(other);
                let profiles = found.profiles.join(", ");
                let hint =
                    format!("turn on one of its profiles ({profiles}) or set `required: false`");
                (!is_on).then_some(("its profile is not on", hint))
            }
        };
        match missing {
            None => needed.push(other.clone()),
            Some((why, hint)) if dependency.required => {
                notes.problem_with_hint(place, format!("{path}: {why}"), hint);
            }
            Some((why, _)) => {
                notes.warn(format!("{path}: {why}; it is not required and left out"));
                left_out.push(other.clone());
            }
        }
    }
    if let Some(candidate) = candidates.get_mut(name) {
        candidate
            .service
            .depends_on
            .retain(|other, _| !left_out.contains(other));
    }
    needed
}

fn near(name: &str, candidates: &IndexMap<String, Candidate>) -> String {
    let names: Vec<String> = candidates.keys().cloned().collect();
    near_service(name, &names)
}

/// Notes a circle of dependencies among the started services, naming its members.
pub(super) fn refuse_cycles(
    candidates: &IndexMap<String, Candidate>,
    started: &IndexSet<String>,
    notes: &mut Notes,
) {
    // Take away what waits for nothing that is left, until nothing more goes.
    let mut left: IndexSet<&str> = started.iter().map(String::as_str).collect();
    let waits_for = |name: &str, left: &IndexSet<&str>| {
        let candidate = candidates.get(name)?;
        let mut others = candidate.service.depends_on.keys();
        others
            .find(|other| left.contains(other.as_str()))
            .map(String::as_str)
    };
    loop {
        let before = left.len();
        let free: Vec<&str> = left
            .iter()
            .copied()
            .filter(|name| waits_for(name, &left).is_none())
            .collect();
        left.retain(|name| !free.contains(name));
        if left.len() == before {
            break;
        }
    }
    // Everything left waits for something left, so following leads into a circle.
    let Some(&first) = left.first() else { return };
    let mut path: Vec<&str> = vec![first];
    while let Some(next) = path.last().and_then(|name| waits_for(name, &left)) {
        if let Some(start) = path.iter().position(|name| *name == next) {
            let mut circle = path[start..].to_vec();
            circle.push(next);
            if let Some(candidate) = candidates.get(circle[0]) {
                notes.problem(
                    candidate.dependency_place(circle[1]).1,
                    format!(
                        "services wait for each other in a circle: {}",
                        circle.join(" -> ")
                    ),
                );
            }
            return;
        }
        path.push(next);
    }
}

/// Notes dependants that wait for health that nothing tests.
pub(super) fn refuse_untested_health(
    candidates: &IndexMap<String, Candidate>,
    started: &IndexSet<String>,
    notes: &mut Notes,
) {
    for name in started {
        let Some(candidate) = candidates.get(name) else {
            continue;
        };
        let waits = |dependency: &Dependency| dependency.condition == Condition::ServiceHealthy;
        for (other, _) in candidate
            .service
            .depends_on
            .iter()
            .filter(|(_, d)| waits(d))
        {
            let is_off = candidates
                .get(other)
                .and_then(|found| found.service.healthcheck.as_ref())
                .is_some_and(|health| health.test.first().is_some_and(|word| word == "NONE"));
            if is_off {
                notes.problem(
                    candidate.dependency_place(other).1,
                    format!(
                        "services.{name}.depends_on.{other}: waits for a healthcheck that is turned off"
                    ),
                );
            }
        }
    }
}
