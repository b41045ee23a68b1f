//! What a launch is asked for, and what it gives back.

use std::net::SocketAddr;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};

use super::LaunchError;
use crate::engine::replica::replicas;
use crate::engine::{
    ClonedState, ContainerId, HostFacts, ImageFacts, Proof, ReadyProbe, Replica, TrialState,
    check_stack,
};
use crate::stack::{Condition, Healthcheck, Service, Stack, shared_service};

/// The place in the stack that load is sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchTarget {
    /// Compose service.
    pub service: String,
    /// Port inside its container.
    pub port: u16,
}

/// One stack to launch for one trial.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The resolved stack.
    pub stack: &'a Stack,
    /// The service that is being sized.
    pub subject: &'a str,
    /// Where load goes; `None` when that is not in the stack.
    pub target: Option<&'a LaunchTarget>,
    /// Other places of the stack that will be asked things; see [`reach`](crate::engine::reach()).
    pub asked: &'a [LaunchTarget],
    /// How the target says that it is ready; without it healthchecks alone decide.
    pub ready: Option<&'a ReadyProbe>,
    /// Longest time from everything being created until everything is ready.
    pub deadline: Duration,
    /// The engine's host: decides how the target is reached.
    pub facts: &'a HostFacts,
    /// What it finds in its volumes; `None` is new ones.
    pub state: Option<&'a TrialState>,
}

/// How the target is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetPath {
    /// On the container's own address.
    Direct,
    /// Through an ephemeral port of the loopback address.
    Published,
}

impl TargetPath {
    /// As the rows spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Published => "published",
        }
    }
}

/// A stack that is up and ready.
#[derive(Debug, Clone)]
pub struct Launched {
    /// The containers of every service, in the order of the stack; at least one each.
    pub containers: IndexMap<String, Vec<ContainerId>>,
    /// The service that is being sized.
    pub subject: String,
    /// Services that ran to their end during the launch, as they should.
    pub completed: IndexSet<String>,
    /// Services that may end with exit code 0 later: nobody depends on them.
    pub may_complete: IndexSet<String>,
    /// What went wrong and was not required, in words.
    pub warnings: Vec<String>,
    /// Where load goes: an address for each container of the target; empty when the
    /// target is not in the stack.
    pub targets: Vec<SocketAddr>,
    /// How it is reached.
    pub target_path: Option<TargetPath>,
    /// What the limits were read back from.
    pub proof: Proof,
    /// Facts of every image used, by service; content digests included.
    pub images: IndexMap<String, ImageFacts>,
    /// The clone it began with, where it did.
    pub cloned: Option<ClonedState>,
    /// From the beginning until everything was created.
    pub created_after: Duration,
    /// From the beginning until everything was ready.
    pub ready_after: Duration,
}

impl Launched {
    /// Every container, in the order of the stack.
    pub fn replicas(&self) -> impl Iterator<Item = Replica<'_>> {
        self.containers
            .iter()
            .flat_map(|(service, ids)| replicas(service, ids))
    }

    /// The containers that should go on running.
    pub fn running(&self) -> impl Iterator<Item = Replica<'_>> {
        self.replicas()
            .filter(|replica| !self.completed.contains(replica.service))
    }

    /// The containers of the subject.
    pub fn subject_ids(&self) -> &[ContainerId] {
        self.containers
            .get(&self.subject)
            .map_or(&[], Vec::as_slice)
    }
}

/// How many containers a service has; at least one.
pub(super) fn n_containers(service: &Service) -> usize {
    service.replicas.map_or(1, |count| (count as usize).max(1))
}

/// Where the target is reached, when a launch has one.
pub(super) fn target_path(launch: &Launch<'_>) -> Result<Option<TargetPath>, LaunchError> {
    let Some(target) = launch.target else {
        return Ok(None);
    };
    if launch.facts.direct {
        return Ok(Some(TargetPath::Direct));
    }
    if uses_host_network(launch.stack, &target.service) {
        return Err(LaunchError::Unusable {
            service: target.service.clone(),
            problem: "it uses the network of the engine's host, which is not reached from here"
                .to_owned(),
        });
    }
    if launch.facts.local {
        return Ok(Some(TargetPath::Published));
    }
    // The loopback address here would be another machine's port: a wrong number.
    Err(LaunchError::Unusable {
        service: target.service.clone(),
        problem: format!(
            "the engine at {} is on another host, and measuring through it is not yet supported",
            launch.facts.endpoint
        ),
    })
}

/// The service whose network a service uses: its own, or that of `service:NAME`.
pub(super) fn network_owner<'s>(stack: &'s Stack, service: &'s str) -> &'s str {
    let mut owner = service;
    // No chain is longer than the stack; a circle of them ends here too.
    for _ in 0..stack.services.len() {
        let mode = stack
            .services
            .get(owner)
            .and_then(|s| s.network_mode.as_deref());
        match mode.and_then(shared_service) {
            Some(next) => owner = next,
            None => break,
        }
    }
    owner
}

/// The mode that replaces the networks a service is on, if one does.
pub(super) fn network_mode<'s>(stack: &'s Stack, service: &'s str) -> Option<&'s str> {
    let owner = stack.services.get(network_owner(stack, service))?;
    owner.network_mode.as_deref()
}

/// Whether a service has the ports of the engine's host.
pub(super) fn uses_host_network(stack: &Stack, service: &str) -> bool {
    network_mode(stack, service) == Some("host")
}

/// The services in the order in which their containers can be made: those of one
/// step need only those of earlier ones. What needs itself comes last, to be refused.
pub(super) fn creation_steps(stack: &Stack) -> Vec<Vec<&str>> {
    let mut steps: Vec<Vec<&str>> = Vec::new();
    let mut left: IndexSet<&str> = stack.services.keys().map(String::as_str).collect();
    while !left.is_empty() {
        let is_free = |name: &&str| {
            let mut others = stack.services[*name].shares_with();
            others.all(|other| !left.contains(other))
        };
        let mut step: Vec<&str> = left.iter().copied().filter(is_free).collect();
        if step.is_empty() {
            step = left.iter().copied().collect();
        }
        left.retain(|name| !step.contains(name));
        steps.push(step);
    }
    steps
}

/// The stack's own contradictions, found before anything is created.
pub(super) fn check(launch: &Launch<'_>) -> Result<(), LaunchError> {
    let services = &launch.stack.services;
    let unusable = |service: &str, problem: String| {
        Err(LaunchError::Unusable {
            service: service.to_owned(),
            problem,
        })
    };
    if let Err(unsupported) = check_stack(launch.stack) {
        return unusable(launch.subject, unsupported.to_string());
    }
    if !services.contains_key(launch.subject) {
        return unusable(
            launch.subject,
            "the subject is not a service of the stack".to_owned(),
        );
    }
    if let Some(target) = launch.target {
        match services.get(&target.service) {
            None => {
                return unusable(
                    &target.service,
                    "the target is not a service of the stack".to_owned(),
                );
            }
            Some(_) if network_mode(launch.stack, &target.service) == Some("none") => {
                return unusable(&target.service, "the target joins no network".to_owned());
            }
            Some(_) => {}
        }
    }
    for (name, service) in services {
        for (dependency, wanted) in &service.depends_on {
            if wanted.required && !services.contains_key(dependency) {
                let problem = format!("it depends on `{dependency}`, which is not started");
                return unusable(name, problem);
            }
        }
    }
    check_cycles(launch.stack)
}

/// A circle of dependencies would wait for itself until the deadline.
fn check_cycles(stack: &Stack) -> Result<(), LaunchError> {
    let mut startable: IndexSet<&str> = IndexSet::new();
    loop {
        let before = startable.len();
        for (name, service) in &stack.services {
            let is_free = service.depends_on.keys().all(|dependency| {
                startable.contains(dependency.as_str()) || !stack.services.contains_key(dependency)
            });
            if is_free {
                startable.insert(name);
            }
        }
        if startable.len() == stack.services.len() {
            return Ok(());
        }
        if startable.len() == before {
            break;
        }
    }
    let circle: Vec<&str> = stack
        .services
        .keys()
        .map(String::as_str)
        .filter(|name| !startable.contains(name))
        .collect();
    Err(LaunchError::Unusable {
        service: circle[0].to_owned(),
        problem: format!("these wait for each other: {}", circle.join(", ")),
    })
}

/// Whether a service tells by a healthcheck that it is ready: its own or its image's.
pub(super) fn has_healthcheck(service: &Service, image: &ImageFacts) -> bool {
    match &service.healthcheck {
        Some(Healthcheck { test, .. }) if !test.is_empty() => test[0] != "NONE",
        Some(_) | None => image.has_healthcheck,
    }
}

/// Whether anybody waits for this state of a service.
pub(super) fn is_waited_for(stack: &Stack, service: &str, condition: Condition) -> bool {
    stack.services.values().any(|dependant| {
        dependant
            .depends_on
            .get(service)
            .is_some_and(|dependency| dependency.condition == condition)
    })
}

/// Whether a service may fail: others wait for it, and none of them requires it.
pub(super) fn is_optional(launch: &Launch<'_>, name: &str) -> bool {
    let services = launch.stack.services.values();
    let mut wanted = services
        .filter_map(|dependant| dependant.depends_on.get(name))
        .peekable();
    !is_measured(launch, name)
        && wanted.peek().is_some()
        && wanted.all(|dependency| !dependency.required)
}

/// Services that may end with exit code 0 at any time: leaves of the stack.
pub(super) fn may_complete(launch: &Launch<'_>) -> IndexSet<String> {
    let services = &launch.stack.services;
    services
        .keys()
        .filter(|name| {
            let is_needed = services
                .values()
                .any(|dependant| dependant.depends_on.contains_key(*name));
            !is_needed && !is_measured(launch, name)
        })
        .cloned()
        .collect()
}

/// Whether the service is the subject or the target.
pub(super) fn is_measured(launch: &Launch<'_>, name: &str) -> bool {
    name == launch.subject || launch.target.is_some_and(|target| target.service == name)
}
