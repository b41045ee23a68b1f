//! What exists in the fake engine, and how time passes for it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use super::script::{Behaviour, FakeCall, FakeExit, FakeFault};
use crate::engine::{
    EngineError, EngineErrorKind, Health, HostFacts, ImageFacts, Labels, Leftover, LeftoverKind,
    Limits, RunState, nano_cpus,
};
use crate::stack::Service;

#[derive(Debug)]
pub(super) struct State {
    pub(super) facts: HostFacts,
    pub(super) images: IndexMap<String, ImageFacts>,
    /// What registries have, by name: the digest.
    pub(super) pullable: IndexMap<String, String>,
    /// The one platform that the registry has an image for, where it has but one.
    pub(super) only_platforms: IndexMap<String, String>,
    /// Registries whose credentials the last build was given.
    pub(super) build_credentials: Vec<String>,
    pub(super) behaviours: HashMap<String, Behaviour>,
    pub(super) faults: Vec<(FakeCall, Option<usize>, FakeFault)>,
    pub(super) calls: Vec<String>,
    pub(super) counts: HashMap<FakeCall, usize>,
    pub(super) things: Vec<Thing>,
    pub(super) n_created: u32,
    pub(super) tells_news: bool,
}

/// Something that exists, or will from a moment on.
#[derive(Debug)]
pub(super) struct Thing {
    pub(super) found: Leftover,
    pub(super) appears_at: Instant,
    /// Engine names of what it holds on to.
    pub(super) uses: Vec<String>,
    pub(super) container: Option<Container>,
}

#[derive(Debug)]
pub(super) struct Container {
    /// `app`, or `app#2` where the service has several.
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) has_healthcheck: bool,
    pub(super) networks: Vec<String>,
    pub(super) publish_ports: Vec<(u16, u16)>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) image_digest: String,
    pub(super) ip: IpAddr,
    pub(super) started_at: Option<Instant>,
    pub(super) is_paused: bool,
    pub(super) ended: Option<(Instant, FakeExit)>,
    pub(super) n_looks: usize,
    pub(super) pid: i64,
}

impl State {
    pub(super) fn log(&mut self, call: FakeCall, object: &str) -> Option<FakeFault> {
        self.calls.push(format!("{call} {object}"));
        let count = self.counts.entry(call).or_default();
        *count += 1;
        let nth = *count;
        let now = Instant::now();
        let State {
            things, behaviours, ..
        } = self;
        for container in things
            .iter_mut()
            .filter_map(|thing| thing.container.as_mut())
        {
            let scripted = behaviour_of(behaviours, &container.name);
            if let Some((at_call, at_nth, exit)) = scripted.and_then(|b| b.exits_at_call)
                && (at_call, at_nth) == (call, nth)
                && container.started_at.is_some()
                && container.ended.is_none()
            {
                container.ended = Some((now, exit));
            }
        }
        self.faults
            .iter()
            .find(|(of, at, _)| *of == call && at.is_none_or(|at| at == nth))
            .map(|(_, _, fault)| *fault)
    }

    /// The containers of a service, or the one container so named.
    pub(super) fn containers_of(&mut self, name: &str) -> impl Iterator<Item = &mut Container> {
        self.things
            .iter_mut()
            .filter_map(|thing| thing.container.as_mut())
            .filter(move |container| container.name == name || service_of(&container.name) == name)
    }
}

impl Container {
    pub(super) fn pass_time(&mut self, behaviour: &Behaviour) {
        let (Some(started_at), None, Some((after, exit))) =
            (self.started_at, self.ended, behaviour.exits_after)
        else {
            return;
        };
        if Instant::now() >= started_at + after {
            self.ended = Some((started_at + after, exit));
        }
    }

    pub(super) fn state(&self) -> RunState {
        match (self.started_at, self.ended) {
            (None, _) => RunState::Created,
            (Some(_), None) if self.is_paused => RunState::Paused,
            (Some(_), None) => RunState::Running,
            (Some(_), Some(_)) => RunState::Exited,
        }
    }

    pub(super) fn has_run_for(&self, time: Option<Duration>) -> bool {
        match (self.started_at, time) {
            (Some(started_at), Some(time)) => started_at.elapsed() >= time,
            _ => false,
        }
    }

    pub(super) fn health(&self, behaviour: &Behaviour) -> Health {
        if !self.has_healthcheck || self.started_at.is_none() {
            Health::None
        } else if self.has_run_for(behaviour.unhealthy_after) {
            Health::Unhealthy(behaviour.health_output.clone())
        } else if self.has_run_for(behaviour.healthy_after) {
            Health::Healthy
        } else {
            Health::Starting(behaviour.health_output.clone())
        }
    }
}

fn service_of(name: &str) -> &str {
    name.split('#').next().unwrap_or(name)
}

/// What is scripted for one container, or else for all of its service.
pub(super) fn behaviour_of<'a>(
    behaviours: &'a HashMap<String, Behaviour>,
    name: &str,
) -> Option<&'a Behaviour> {
    behaviours
        .get(name)
        .or_else(|| behaviours.get(service_of(name)))
}

pub(super) fn conflict(call: FakeCall, object: &str, why: &str) -> EngineError {
    EngineError::new(
        call.as_str(),
        object,
        EngineErrorKind::Conflict,
        why.to_owned(),
    )
}

pub(super) fn thing(kind: LeftoverKind, id: String, name: &str, labels: &Labels) -> Thing {
    Thing {
        found: Leftover {
            kind,
            id,
            name: name.to_owned(),
            labels: labels.clone(),
        },
        appears_at: Instant::now(),
        uses: Vec::new(),
        container: None,
    }
}

pub(super) fn limits_of(service: &Service) -> Limits {
    Limits {
        nano_cpus: service.cpu_cores().map_or(0, nano_cpus),
        cpuset: service.cpuset.clone().unwrap_or_default(),
        memory_bytes: service
            .mem_limit
            .and_then(|bytes| i64::try_from(bytes).ok())
            .unwrap_or(0),
        pids: service.pids_limit.unwrap_or(0),
        ..Limits::default()
    }
}
