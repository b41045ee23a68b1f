//! The engine in memory.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use super::script::{Behaviour, FakeCall, FakeExit, FakeFault};
use crate::engine::{
    ContainerId, ContainerRequest, Counters, Engine, EngineError, EngineErrorKind, Health,
    HostFacts, ImageFacts, Inspection, KernelLimits, LABEL_SERVICE, Labels, Leftover, LeftoverKind,
    Limits, ProbeAnswer, ProbeFailure, ReadyProbe, RunState, nano_cpus,
};
use crate::stack::{MountSource, Network, Service, Volume};

/// A scripted engine. Cheap to make, one per test.
#[derive(Debug)]
pub struct FakeEngine {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    facts: HostFacts,
    images: IndexMap<String, ImageFacts>,
    pullable: Vec<String>,
    behaviours: HashMap<String, Behaviour>,
    faults: Vec<(FakeCall, Option<usize>, FakeFault)>,
    calls: Vec<String>,
    counts: HashMap<FakeCall, usize>,
    things: Vec<Thing>,
    n_created: u32,
}

/// Something that exists, or will from a moment on.
#[derive(Debug)]
struct Thing {
    found: Leftover,
    appears_at: Instant,
    /// Engine names of what it holds on to.
    uses: Vec<String>,
    container: Option<Container>,
}

#[derive(Debug)]
struct Container {
    service_name: String,
    limits: Limits,
    has_healthcheck: bool,
    networks: Vec<String>,
    publish_port: Option<u16>,
    image_digest: String,
    ip: IpAddr,
    started_at: Option<Instant>,
    ended: Option<(Instant, FakeExit)>,
    n_looks: usize,
    pid: i64,
}

impl Default for FakeEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeEngine {
    /// An engine with nothing in it but the image `app:1`, whose containers can be reached.
    pub fn new() -> Self {
        let facts = HostFacts {
            endpoint: "fake".to_owned(),
            engine_version: "fake".to_owned(),
            cpus: 8,
            direct: true,
            local: true,
            ..HostFacts::default()
        };
        let engine = Self {
            state: Mutex::new(State {
                facts,
                images: IndexMap::new(),
                pullable: Vec::new(),
                behaviours: HashMap::new(),
                faults: Vec::new(),
                calls: Vec::new(),
                counts: HashMap::new(),
                things: Vec::new(),
                n_created: 0,
            }),
        };
        engine.add_image("app:1", false);
        engine
    }

    /// Gives the engine an image, with or without a healthcheck of its own.
    pub fn add_image(&self, image: &str, has_healthcheck: bool) {
        let facts = ImageFacts {
            digest: format!("sha256:{image}"),
            size_bytes: 1,
            has_healthcheck,
        };
        self.lock().images.insert(image.to_owned(), facts);
    }

    /// Lets an image be pulled.
    pub fn add_pullable(&self, image: &str) {
        self.lock().pullable.push(image.to_owned());
    }

    /// Says how the containers of a service behave; may be changed while they run.
    pub fn behave(&self, service: &str, behaviour: Behaviour) {
        self.lock().behaviours.insert(service.to_owned(), behaviour);
    }

    /// Says what the host is.
    pub fn set_facts(&self, facts: HostFacts) {
        self.lock().facts = facts;
    }

    /// Lets the n-th call of an operation, from 1, go wrong.
    pub fn fault(&self, call: FakeCall, nth: usize, fault: FakeFault) {
        self.lock().faults.push((call, Some(nth), fault));
    }

    /// Lets every call of an operation go wrong.
    pub fn fault_always(&self, call: FakeCall, fault: FakeFault) {
        self.lock().faults.push((call, None, fault));
    }

    /// Takes all faults back.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// Ends the running containers of a service, as `docker kill` would.
    pub fn end(&self, service: &str, exit: FakeExit) {
        let now = Instant::now();
        for container in self.lock().containers_of(service) {
            if container.started_at.is_some() && container.ended.is_none() {
                container.ended = Some((now, exit));
            }
        }
    }

    /// Starts the containers of a service again, as `docker restart` would.
    pub fn restart(&self, service: &str) {
        let now = Instant::now();
        for container in self.lock().containers_of(service) {
            container.started_at = Some(now);
            container.ended = None;
            container.pid += 1;
        }
    }

    /// Changes the limits of a service's containers, as `docker update` would.
    pub fn update_limits(&self, service: &str, limits: &Limits) {
        for container in self.lock().containers_of(service) {
            container.limits = limits.clone();
        }
    }

    /// Puts something there that exists already, such as a stranger's container.
    pub fn add_existing(&self, kind: LeftoverKind, name: &str, labels: Labels) {
        let found = Leftover {
            kind,
            id: name.to_owned(),
            name: name.to_owned(),
            labels,
        };
        self.lock().things.push(Thing {
            found,
            appears_at: Instant::now(),
            uses: Vec::new(),
            container: None,
        });
    }

    /// Every call so far, as `start app`.
    ///
    /// Containers are named by their service, networks and volumes by their engine name.
    pub fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    /// The calls that change something, in order: creations, starts, stops, removals.
    pub fn changes(&self) -> Vec<String> {
        let is_change = |call: &String| {
            ["create_", "start ", "stop ", "remove ", "pull_"]
                .iter()
                .any(|prefix| call.starts_with(prefix))
        };
        self.calls().into_iter().filter(is_change).collect()
    }

    /// Names of everything that is there now.
    pub fn existing(&self) -> Vec<String> {
        let state = self.lock();
        let now = Instant::now();
        let there = state.things.iter().filter(|thing| thing.appears_at <= now);
        there.map(|thing| thing.found.name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a call and lets it go wrong where the script says so.
    ///
    /// `Some(delay)`: the call must do its work that late and never come back.
    async fn begin(&self, call: FakeCall, object: &str) -> Result<Option<Duration>, EngineError> {
        let fault = self.lock().log(call, object);
        match fault {
            None => Ok(None),
            Some(FakeFault::HangAndAppear(delay)) => Ok(Some(delay)),
            Some(FakeFault::Hang) => std::future::pending().await,
            Some(FakeFault::Fail(kind)) => Err(EngineError::new(
                call.as_str(),
                object,
                kind,
                "the script says so",
            )),
        }
    }

    /// A call that creates nothing.
    async fn plain(&self, call: FakeCall, object: &str) -> Result<(), EngineError> {
        if self.begin(call, object).await?.is_some() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn create(
        &self,
        call: FakeCall,
        object: &str,
        make: impl FnOnce(&mut State) -> Thing,
    ) -> Result<String, EngineError> {
        let late = self.begin(call, object).await?;
        let id = {
            let mut state = self.lock();
            let mut thing = make(&mut state);
            let is_taken = state.things.iter().any(|other| {
                other.found.kind == thing.found.kind && other.found.name == thing.found.name
            });
            if is_taken {
                return Err(conflict(call, &thing.found.name, "the name is in use"));
            }
            thing.appears_at = Instant::now() + late.unwrap_or_default();
            let id = thing.found.id.clone();
            state.things.push(thing);
            id
        };
        if late.is_some() {
            std::future::pending::<()>().await;
        }
        Ok(id)
    }

    fn service_of(&self, id: &ContainerId) -> String {
        let state = self.lock();
        let thing = state.things.iter().find(|thing| thing.found.id == id.0);
        let container = thing.and_then(|thing| thing.container.as_ref());
        container.map_or_else(|| id.0.clone(), |container| container.service_name.clone())
    }

    fn with_container<T>(
        &self,
        call: FakeCall,
        id: &ContainerId,
        act: impl FnOnce(&mut Container, &Behaviour) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let mut state = self.lock();
        let State {
            things, behaviours, ..
        } = &mut *state;
        let container = things
            .iter_mut()
            .find(|thing| thing.found.id == id.0)
            .and_then(|thing| thing.container.as_mut());
        let Some(container) = container else {
            return Err(EngineError::new(
                call.as_str(),
                &id.0,
                EngineErrorKind::NotFound,
                "no such container",
            ));
        };
        let behaviour = behaviours
            .get(&container.service_name)
            .cloned()
            .unwrap_or_default();
        container.pass_time(&behaviour);
        act(container, &behaviour)
    }
}

impl State {
    fn log(&mut self, call: FakeCall, object: &str) -> Option<FakeFault> {
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
            let scripted = behaviours.get(&container.service_name);
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

    fn containers_of(&mut self, service: &str) -> impl Iterator<Item = &mut Container> {
        self.things
            .iter_mut()
            .filter_map(|thing| thing.container.as_mut())
            .filter(move |container| container.service_name == service)
    }
}

impl Container {
    fn pass_time(&mut self, behaviour: &Behaviour) {
        let (Some(started_at), None, Some((after, exit))) =
            (self.started_at, self.ended, behaviour.exits_after)
        else {
            return;
        };
        if Instant::now() >= started_at + after {
            self.ended = Some((started_at + after, exit));
        }
    }

    fn state(&self) -> RunState {
        match (self.started_at, self.ended) {
            (None, _) => RunState::Created,
            (Some(_), None) => RunState::Running,
            (Some(_), Some(_)) => RunState::Exited,
        }
    }

    fn has_run_for(&self, time: Option<Duration>) -> bool {
        match (self.started_at, time) {
            (Some(started_at), Some(time)) => started_at.elapsed() >= time,
            _ => false,
        }
    }

    fn health(&self, behaviour: &Behaviour) -> Health {
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

fn conflict(call: FakeCall, object: &str, why: &str) -> EngineError {
    EngineError::new(
        call.as_str(),
        object,
        EngineErrorKind::Conflict,
        why.to_owned(),
    )
}

fn thing(kind: LeftoverKind, id: String, name: &str, labels: &Labels) -> Thing {
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

fn limits_of(service: &Service) -> Limits {
    Limits {
        nano_cpus: service.cpus.map_or(0, nano_cpus),
        cpuset: service.cpuset.clone().unwrap_or_default(),
        memory_bytes: service
            .mem_limit
            .and_then(|bytes| i64::try_from(bytes).ok())
            .unwrap_or(0),
        pids: service.pids_limit.unwrap_or(0),
        ..Limits::default()
    }
}

impl Engine for FakeEngine {
    async fn describe(&self) -> Result<HostFacts, EngineError> {
        self.plain(FakeCall::Describe, "engine").await?;
        Ok(self.lock().facts.clone())
    }

    async fn find_image(&self, image: &str) -> Result<Option<ImageFacts>, EngineError> {
        self.plain(FakeCall::FindImage, image).await?;
        Ok(self.lock().images.get(image).cloned())
    }

    async fn pull_image(&self, image: &str) -> Result<(), EngineError> {
        self.plain(FakeCall::PullImage, image).await?;
        if self.lock().pullable.iter().any(|name| name == image) {
            self.add_image(image, false);
            return Ok(());
        }
        Err(EngineError::new(
            FakeCall::PullImage.as_str(),
            image,
            EngineErrorKind::ImageMissing,
            "no registry has it",
        ))
    }

    async fn create_network(
        &self,
        name: &str,
        _network: &Network,
        labels: &Labels,
    ) -> Result<(), EngineError> {
        let make = |_: &mut State| thing(LeftoverKind::Network, name.to_owned(), name, labels);
        self.create(FakeCall::CreateNetwork, name, make)
            .await
            .map(drop)
    }

    async fn create_volume(
        &self,
        name: &str,
        _volume: &Volume,
        labels: &Labels,
    ) -> Result<(), EngineError> {
        let make = |_: &mut State| thing(LeftoverKind::Volume, name.to_owned(), name, labels);
        self.create(FakeCall::CreateVolume, name, make)
            .await
            .map(drop)
    }

    async fn create_container(
        &self,
        request: ContainerRequest<'_>,
    ) -> Result<ContainerId, EngineError> {
        let service = request.service;
        let service_name = request
            .labels
            .get(LABEL_SERVICE)
            .unwrap_or(&request.name)
            .clone();
        let image = self.lock().images.get(&service.image).cloned();
        let make = |state: &mut State| {
            state.n_created += 1;
            let id = format!("container-{}", state.n_created);
            let mut made = thing(LeftoverKind::Container, id, &request.name, request.labels);
            let networks: Vec<String> = service
                .networks
                .keys()
                .filter_map(|name| request.networks.get(name).cloned())
                .collect();
            let volumes = service
                .mounts
                .iter()
                .filter_map(|mount| match &mount.source {
                    MountSource::Volume { source } => request.volumes.get(source).cloned(),
                    MountSource::Anonymous
                    | MountSource::Bind { .. }
                    | MountSource::Tmpfs { .. } => None,
                });
            made.uses = networks.iter().cloned().chain(volumes).collect();
            let scripted = state.behaviours.get(&service_name).and_then(|b| b.address);
            let [_, _, high, low] = state.n_created.to_be_bytes();
            made.container = Some(Container {
                service_name: service_name.clone(),
                limits: limits_of(service),
                has_healthcheck: match &service.healthcheck {
                    Some(check) if !check.test.is_empty() => check.test[0] != "NONE",
                    _ => image.as_ref().is_some_and(|image| image.has_healthcheck),
                },
                networks,
                publish_port: request.publish_port,
                image_digest: image.map(|image| image.digest).unwrap_or_default(),
                ip: scripted.unwrap_or(IpAddr::V4(Ipv4Addr::new(10, 77, high, low))),
                started_at: None,
                ended: None,
                n_looks: 0,
                pid: i64::from(state.n_created) * 1_000,
            });
            made
        };
        let id = self
            .create(FakeCall::CreateContainer, &service_name, make)
            .await?;
        Ok(ContainerId(id))
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.plain(FakeCall::Start, &self.service_of(id)).await?;
        self.with_container(FakeCall::Start, id, |container, _| {
            container.started_at = Some(Instant::now());
            Ok(())
        })
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Inspection, EngineError> {
        self.plain(FakeCall::Inspect, &self.service_of(id)).await?;
        self.with_container(FakeCall::Inspect, id, |container, behaviour| {
            container.n_looks += 1;
            if let Some((look, limits)) = &behaviour.limits_from_look
                && container.n_looks >= *look
            {
                container.limits = limits.clone();
            }
            let is_running = container.state() == RunState::Running;
            let networks = container.networks.iter().filter(|_| is_running);
            Ok(Inspection {
                state: container.state(),
                exit_code: container.ended.map(|(_, exit)| exit.code),
                oom_killed: container.ended.is_some_and(|(_, exit)| exit.oom_killed),
                restarts: 0,
                health: container.health(behaviour),
                limits: container.limits.clone(),
                addresses: networks.map(|name| (name.clone(), container.ip)).collect(),
                published: container
                    .publish_port
                    .filter(|_| is_running)
                    .map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
                pid: if is_running { container.pid } else { 0 },
                image_digest: container.image_digest.clone(),
            })
        })
    }

    async fn counters(&self, id: &ContainerId) -> Result<Counters, EngineError> {
        self.plain(FakeCall::Counters, &self.service_of(id)).await?;
        self.with_container(FakeCall::Counters, id, |container, behaviour| {
            let (Some(started_at), None) = (container.started_at, container.ended) else {
                return Err(conflict(
                    FakeCall::Counters,
                    &id.0,
                    "the container does not run",
                ));
            };
            let ran = started_at.elapsed();
            Ok(Counters {
                cpu_ns: (ran.as_secs_f64() * behaviour.cpu_cores * 1e9).round() as u64,
                // The kernel's default period is 100 ms.
                periods: (ran.as_millis() / 100) as u64,
                throttled_periods: 0,
                throttled_ns: 0,
                memory_bytes: 1 << 20,
                memory_peak_bytes: Some(2 << 20),
            })
        })
    }

    async fn logs(&self, id: &ContainerId, last_lines: Option<u32>) -> Result<String, EngineError> {
        self.plain(FakeCall::Logs, &self.service_of(id)).await?;
        self.with_container(FakeCall::Logs, id, |_, behaviour| {
            let lines: Vec<&str> = behaviour.log.lines().collect();
            let n_kept = last_lines.map_or(lines.len(), |n| lines.len().min(n as usize));
            let kept = lines[lines.len() - n_kept..].iter();
            Ok(kept.flat_map(|line| [line, "\n"]).collect())
        })
    }

    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        deadline: Duration,
    ) -> Result<(i64, String), EngineError> {
        let object = format!("{} {}", self.service_of(id), command.join(" "));
        tokio::time::timeout(deadline, self.plain(FakeCall::Exec, &object))
            .await
            .unwrap_or_else(|_| Err(EngineError::timed_out("exec", &object, deadline)))?;
        self.with_container(FakeCall::Exec, id, |_, behaviour| {
            Ok(behaviour.exec.clone())
        })
    }

    async fn list_ours(&self, labels: &[String]) -> Result<Vec<Leftover>, EngineError> {
        self.plain(FakeCall::List, &labels.join(",")).await?;
        let state = self.lock();
        let now = Instant::now();
        let carries = |thing: &Leftover| {
            labels.iter().all(|label| match label.split_once('=') {
                Some((name, value)) => thing.labels.get(name).is_some_and(|found| found == value),
                None => thing.labels.contains_key(label),
            })
        };
        let there = state.things.iter().filter(|thing| thing.appears_at <= now);
        Ok(there
            .map(|thing| thing.found.clone())
            .filter(carries)
            .collect())
    }

    async fn stop_container(&self, id: &ContainerId, _grace: Duration) -> Result<(), EngineError> {
        self.plain(FakeCall::Stop, &self.service_of(id)).await?;
        self.with_container(FakeCall::Stop, id, |container, _| {
            let exit = FakeExit {
                code: 143,
                oom_killed: false,
            };
            container.ended.get_or_insert((Instant::now(), exit));
            Ok(())
        })
    }

    async fn remove(&self, leftover: &Leftover) -> Result<(), EngineError> {
        let object = match leftover.kind {
            LeftoverKind::Container => self.service_of(&ContainerId(leftover.id.clone())),
            LeftoverKind::Network | LeftoverKind::Volume => leftover.name.clone(),
        };
        self.plain(FakeCall::Remove, &object).await?;
        let mut state = self.lock();
        if state
            .things
            .iter()
            .any(|thing| thing.uses.contains(&leftover.name))
        {
            return Err(conflict(FakeCall::Remove, &leftover.name, "it is in use"));
        }
        state
            .things
            .retain(|thing| thing.found.kind != leftover.kind || thing.found.id != leftover.id);
        Ok(())
    }

    fn kernel_limits(&self, id: &ContainerId, _seen: &Inspection) -> Option<KernelLimits> {
        self.with_container(FakeCall::Inspect, id, |_, behaviour| {
            Ok(behaviour.kernel_limits.clone())
        })
        .ok()
        .flatten()
    }

    async fn wait_for_exit(&self, id: &ContainerId) -> Result<(), EngineError> {
        // Not through `inspect`: the log is for calls that callers decide on.
        loop {
            let state = self.with_container(FakeCall::Inspect, id, |c, _| Ok(c.state()))?;
            if state != RunState::Running {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn probe(
        &self,
        address: SocketAddr,
        _probe: &ReadyProbe,
        limit: Duration,
    ) -> Result<ProbeAnswer, ProbeFailure> {
        let service = {
            let mut state = self.lock();
            let containers = state.things.iter_mut().filter_map(|t| t.container.as_mut());
            let mut reached = containers.filter(|container| {
                container.ip == address.ip() || container.publish_port == Some(address.port())
            });
            reached
                .next()
                .map(|container| container.service_name.clone())
        };
        let Some(service) = service else {
            return Err(ProbeFailure::Unreachable("no such address".to_owned()));
        };
        let begun = self.plain(FakeCall::Probe, &service);
        match tokio::time::timeout(limit, begun).await {
            Err(_) => return Err(ProbeFailure::TimedOut(limit)),
            Ok(Err(error)) => return Err(ProbeFailure::Broken(error.to_string())),
            Ok(Ok(())) => {}
        }
        let mut state = self.lock();
        let behaviour = state.behaviours.get(&service).cloned().unwrap_or_default();
        let answers = state.containers_of(&service).any(|container| {
            container.pass_time(&behaviour);
            container.state() == RunState::Running && container.has_run_for(behaviour.answers_after)
        });
        if answers {
            return Ok(ProbeAnswer {
                status: behaviour.status,
                body_head: String::new(),
            });
        }
        Err(ProbeFailure::Refused)
    }
}
