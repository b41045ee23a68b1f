//! The engine in memory: what a test says to it and asks of it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use super::script::{Behaviour, FakeCall, FakeExit, FakeFault};
use super::state::{Container, State, Thing, behaviour_of, conflict};
use crate::engine::{
    ContainerId, EngineError, EngineErrorKind, Health, HostFacts, ImageFacts, Labels, Leftover,
    LeftoverKind, Limits, RunState,
};

/// A scripted engine. Cheap to make, one per test.
#[derive(Debug)]
pub struct FakeEngine {
    state: Mutex<State>,
}

impl Default for FakeEngine {
    fn default() -> Self {
        Self::new()
    }
}

/// How a call ends whose work is done after its caller has gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Late {
    delay: Duration,
    is_given_up: bool,
}

impl Late {
    async fn end(self, call: FakeCall, object: &str) -> EngineError {
        if self.is_given_up {
            return EngineError::timed_out(call.as_str(), object, Duration::ZERO);
        }
        std::future::pending().await
    }
}

impl FakeEngine {
    /// An engine with nothing in it but the image `app:1`, whose containers can be reached.
    pub fn new() -> Self {
        let facts = HostFacts {
            endpoint: "fake".to_owned(),
            engine_version: "fake".to_owned(),
            cpus: 8,
            has_cpusets: true,
            direct: true,
            local: true,
            ..HostFacts::default()
        };
        let engine = Self {
            state: Mutex::new(State {
                facts,
                images: IndexMap::new(),
                pullable: IndexMap::new(),
                only_platforms: IndexMap::new(),
                build_credentials: Vec::new(),
                behaviours: HashMap::new(),
                faults: Vec::new(),
                calls: Vec::new(),
                counts: HashMap::new(),
                things: Vec::new(),
                n_created: 0,
                tells_news: false,
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
            ..ImageFacts::default()
        };
        self.lock().images.insert(image.to_owned(), facts);
    }

    /// Gives the engine an image of a content; what had the name before keeps only its content.
    pub fn add_image_of(&self, image: &str, digest: &str) {
        let facts = ImageFacts {
            digest: digest.to_owned(),
            repo_digests: vec![format!("{image}@{digest}")],
            size_bytes: 1,
            ..ImageFacts::default()
        };
        self.lock().images.insert(image.to_owned(), facts);
    }

    /// Says what an image that the engine holds runs on, as `linux/amd64`.
    pub fn set_platform(&self, image: &str, platform: &str) {
        if let Some(facts) = self.lock().images.get_mut(image) {
            platform.clone_into(&mut facts.platform);
        }
    }

    /// Says that the registry has an image for one platform alone.
    pub fn pullable_for(&self, image: &str, platform: &str) {
        self.add_pullable(image);
        let platforms = &mut self.lock().only_platforms;
        platforms.insert(image.to_owned(), platform.to_owned());
    }

    /// Registries whose credentials the last build was given.
    pub fn build_credentials(&self) -> Vec<String> {
        self.lock().build_credentials.clone()
    }

    /// Says when an image was tagged.
    pub fn tagged_at(&self, image: &str, at: &str) {
        if let Some(facts) = self.lock().images.get_mut(image) {
            facts.tagged_at = Some(at.to_owned());
        }
    }

    /// Lets an image be pulled.
    pub fn add_pullable(&self, image: &str) {
        let digest = format!("sha256:{image}");
        self.lock().pullable.insert(image.to_owned(), digest);
    }

    /// Lets the registry's tag stand for another content from now on.
    pub fn move_tag(&self, image: &str, digest: &str) {
        self.lock()
            .pullable
            .insert(image.to_owned(), digest.to_owned());
    }

    /// Says how the containers of a service behave, or one of several (`app#2`); may be changed while they run.
    pub fn behave(&self, service: &str, behaviour: Behaviour) {
        self.lock().behaviours.insert(service.to_owned(), behaviour);
    }

    /// Says what the host is.
    pub fn set_facts(&self, facts: HostFacts) {
        self.lock().facts = facts;
    }

    /// Lets the engine tell when a container's health changes or it ends.
    pub fn tell_news(&self) {
        self.lock().tells_news = true;
    }

    /// What is to be told of each container, where anything is.
    pub(super) fn tidings(&self) -> Vec<(String, RunState, Health)> {
        let mut state = self.lock();
        let State {
            things, behaviours, ..
        } = &mut *state;
        let containers = things
            .iter_mut()
            .filter_map(|thing| Some((&thing.found.id, thing.container.as_mut()?)));
        containers
            .map(|(id, container)| {
                let behaviour = behaviour_of(behaviours, &container.name);
                let behaviour = behaviour.cloned().unwrap_or_default();
                container.pass_time(&behaviour);
                (id.clone(), container.state(), container.health(&behaviour))
            })
            .collect()
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

    /// Ends the running containers of a service, or one of several (`app#2`), as `docker kill` would.
    pub fn end(&self, service: &str, exit: FakeExit) {
        let now = Instant::now();
        for container in self.lock().containers_of(service) {
            if container.started_at.is_some() && container.ended.is_none() {
                container.ended = Some((now, exit));
            }
        }
    }

    /// Freezes the containers of a service, as `docker pause` would.
    pub fn pause(&self, service: &str) {
        for container in self.lock().containers_of(service) {
            container.is_paused = true;
        }
    }

    /// Takes the containers of a service off their networks, as `docker network disconnect` would.
    pub fn disconnect(&self, service: &str) {
        for container in self.lock().containers_of(service) {
            container.networks.clear();
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
    /// Containers are named by their service (`app`, or `app#2` of several), networks and volumes by their engine name.
    pub fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    /// The calls that change something, in order: creations, starts, stops, removals.
    pub fn changes(&self) -> Vec<String> {
        let is_change = |call: &String| {
            [
                "create_", "start ", "stop ", "remove ", "pull_", "build_", "import_",
            ]
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

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a call and lets it go wrong where the script says so.
    ///
    /// `Some(late)`: the call must do its work late and never come back well.
    pub(super) async fn begin(
        &self,
        call: FakeCall,
        object: &str,
    ) -> Result<Option<Late>, EngineError> {
        let fault = self.lock().log(call, object);
        match fault {
            None => Ok(None),
            Some(FakeFault::Slow(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(None)
            }
            Some(FakeFault::HangAndAppear(delay)) => Ok(Some(Late {
                delay,
                is_given_up: false,
            })),
            Some(FakeFault::TimeOutAndAppear(delay)) => Ok(Some(Late {
                delay,
                is_given_up: true,
            })),
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
    pub(super) async fn plain(&self, call: FakeCall, object: &str) -> Result<(), EngineError> {
        match self.begin(call, object).await? {
            None => Ok(()),
            Some(late) => Err(late.end(call, object).await),
        }
    }

    pub(super) async fn create(
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
            thing.appears_at = Instant::now() + late.map_or(Duration::ZERO, |late| late.delay);
            let id = thing.found.id.clone();
            state.things.push(thing);
            id
        };
        match late {
            None => Ok(id),
            Some(late) => Err(late.end(call, object).await),
        }
    }

    pub(super) fn service_of(&self, id: &ContainerId) -> String {
        let state = self.lock();
        let thing = state.things.iter().find(|thing| thing.found.id == id.0);
        let container = thing.and_then(|thing| thing.container.as_ref());
        container.map_or_else(|| id.0.clone(), |container| container.name.clone())
    }

    pub(super) fn with_container<T>(
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
        let behaviour = behaviour_of(behaviours, &container.name)
            .cloned()
            .unwrap_or_default();
        container.pass_time(&behaviour);
        act(container, &behaviour)
    }
}
