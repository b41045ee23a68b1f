//! Following every service of a launch until all of them are ready.
//!
//! Every service has a future of its own that waits for its dependencies, starts
//! the container and then looks at it until the launch is over. So independent
//! services start side by side, and a container that ends is reported at once,
//! whoever is being waited for at that moment.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use futures_util::future::{join_all, try_join_all};
use indexmap::{IndexMap, IndexSet};
use tokio::sync::watch;

use super::error::{LaunchError, TAIL_LINES, exit_words};
use super::ready::{self, PAUSE, longer};
use super::request::{
    Launch, TargetPath, has_healthcheck, is_measured, is_waited_for, network_mode, network_owner,
};
use super::start::start_service;
use crate::engine::{
    ContainerId, Engine, EngineError, EngineErrorKind, Health, ImageFacts, Inspection, RunState,
};
use crate::stack::{Condition, Service};

/// How far a service has come, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Its container is not started.
    Waiting,
    /// Its process runs.
    Started,
    /// Its healthcheck passed.
    Healthy,
    /// It ran to its end with exit code 0.
    Completed,
}

impl Stage {
    fn meets(self, condition: Condition) -> bool {
        match condition {
            Condition::ServiceStarted => self >= Self::Started,
            Condition::ServiceHealthy => self == Self::Healthy,
            Condition::ServiceCompletedSuccessfully => self == Self::Completed,
        }
    }
}

/// Everything that is followed during one launch.
pub(super) struct Watch<'a, E> {
    engine: &'a E,
    launch: &'a Launch<'a>,
    images: &'a IndexMap<String, ImageFacts>,
    containers: &'a IndexMap<String, ContainerId>,
    networks: &'a IndexMap<String, String>,
    stages: IndexMap<&'a str, watch::Sender<Stage>>,
    /// The last thing seen of everything that is still waited for.
    seen: Mutex<IndexMap<String, String>>,
}

impl<'a, E: Engine> Watch<'a, E> {
    pub(super) fn new(
        engine: &'a E,
        launch: &'a Launch<'a>,
        images: &'a IndexMap<String, ImageFacts>,
        containers: &'a IndexMap<String, ContainerId>,
        networks: &'a IndexMap<String, String>,
    ) -> Self {
        let stages = containers
            .keys()
            .map(|name| (name.as_str(), watch::Sender::new(Stage::Waiting)))
            .collect();
        Self {
            engine,
            launch,
            images,
            containers,
            networks,
            stages,
            seen: Mutex::default(),
        }
    }

    pub(super) fn engine(&self) -> &'a E {
        self.engine
    }

    /// A service's address, as a look at the container shows it whose network it uses:
    /// that on its first network, as the file orders them.
    pub(super) fn address_in(&self, service: &str, seen: &Inspection) -> Option<IpAddr> {
        let stack = self.launch.stack;
        match network_mode(stack, service) {
            Some("host") => Some(Ipv4Addr::LOCALHOST.into()),
            Some(mode) => seen.addresses.get(mode).copied(),
            None => {
                let attached = &stack.services[network_owner(stack, service)].networks;
                let networks = attached.keys().filter_map(|name| self.networks.get(name));
                let mut known = networks.filter_map(|network| seen.addresses.get(network));
                known.next().copied()
            }
        }
    }

    /// Remembers the last thing seen of something that is waited for.
    pub(super) fn note(&self, what: &str, text: String) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(what.to_owned(), text);
    }

    /// Something is no longer waited for.
    pub(super) fn settle(&self, what: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.shift_remove(what);
    }

    pub(super) fn last_seen(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<String> = seen
            .iter()
            .map(|(what, text)| format!("{what}: {text}"))
            .collect();
        if parts.is_empty() {
            return "nothing was seen".to_owned();
        }
        parts.join("; ")
    }

    /// Starts and follows all services; comes back only when one of them fails.
    pub(super) async fn run_all(&self) -> Result<Infallible, LaunchError> {
        let runs = self.launch.stack.services.iter();
        try_join_all(runs.map(|(name, service)| self.run(name, service))).await?;
        std::future::pending().await
    }

    async fn run(&self, name: &str, service: &Service) -> Result<Infallible, LaunchError> {
        for (dependency, wanted) in &service.depends_on {
            let Some(stage) = self.stages.get(dependency.as_str()) else {
                continue;
            };
            self.note(
                name,
                format!("waits for `{dependency}` ({})", words(wanted.condition)),
            );
            let mut stage = stage.subscribe();
            // The sender lives as long as `self`.
            let _ = stage.wait_for(|stage| stage.meets(wanted.condition)).await;
        }
        let id = &self.containers[name];
        self.note(name, "being started".to_owned());
        let note = |seen: String| self.note(name, seen);
        start_service(self.engine, self.launch, (name, service), id, note).await?;
        self.advance(name, Stage::Started);
        let mut pause = PAUSE.0;
        loop {
            let seen = match self.engine.inspect(id).await {
                Ok(seen) => seen,
                Err(error) => return Err(lost(name, error)),
            };
            if seen.state == RunState::Exited {
                self.judge_exit(name, service, id, &seen).await?;
                self.advance(name, Stage::Completed);
                return std::future::pending().await;
            }
            self.judge_health(name, &seen)?;
            tokio::time::sleep(pause).await;
            pause = longer(pause);
        }
    }

    fn advance(&self, name: &str, stage: Stage) {
        self.stages[name].send_replace(stage);
        if stage >= self.goal(name) {
            self.settle(name);
        }
    }

    /// The stage at which a service is ready.
    fn goal(&self, name: &str) -> Stage {
        let stack = self.launch.stack;
        if is_waited_for(stack, name, Condition::ServiceCompletedSuccessfully) {
            Stage::Completed
        } else if has_healthcheck(&stack.services[name], &self.images[name]) {
            Stage::Healthy
        } else {
            Stage::Started
        }
    }

    /// Follows the healthcheck; a service that others wait for must not fail it.
    fn judge_health(&self, name: &str, seen: &Inspection) -> Result<(), LaunchError> {
        let goal = self.goal(name);
        if goal == Stage::Completed {
            self.note(name, "runs, and has not yet come to its end".to_owned());
            return Ok(());
        }
        if goal == Stage::Started {
            return Ok(());
        }
        match &seen.health {
            Health::Healthy => self.advance(name, Stage::Healthy),
            Health::None => self.note(name, "healthcheck not yet run".to_owned()),
            Health::Starting(output) => {
                self.note(name, format!("healthcheck not yet passed{}", said(output)));
            }
            Health::Unhealthy(output) => {
                self.stages[name].send_replace(Stage::Started);
                self.note(name, format!("unhealthy{}", said(output)));
                if let Some(dependant) = self.dependant_on_health(name) {
                    return Err(LaunchError::DependencyFailed {
                        dependant: dependant.to_owned(),
                        dependency: name.to_owned(),
                        problem: format!("is unhealthy{}", said(output)),
                        log_tail: String::new(),
                    });
                }
            }
        }
        Ok(())
    }

    /// A service that still waits for this one to be healthy.
    fn dependant_on_health(&self, name: &str) -> Option<&str> {
        self.launch
            .stack
            .services
            .iter()
            .find_map(|(dependant, service)| {
                let wanted = service.depends_on.get(name)?;
                let still_waits = *self.stages[dependant.as_str()].borrow() == Stage::Waiting;
                (wanted.condition == Condition::ServiceHealthy && still_waits)
                    .then_some(dependant.as_str())
            })
    }

    /// Whether a container might end: a one-shot with 0, and by the practice of
    /// real Compose files also a service that is neither measured nor has a
    /// healthcheck and ends with 0 before everything is ready (migrations, buckets).
    async fn judge_exit(
        &self,
        name: &str,
        service: &Service,
        id: &ContainerId,
        seen: &Inspection,
    ) -> Result<(), LaunchError> {
        let stack = self.launch.stack;
        let is_one_shot = is_waited_for(stack, name, Condition::ServiceCompletedSuccessfully);
        let is_expected = is_one_shot
            || !(is_measured(self.launch, name) || has_healthcheck(service, &self.images[name]));
        if is_expected && seen.exit_code == Some(0) && !seen.oom_killed {
            return Ok(());
        }
        let log_tail = self
            .engine
            .logs(id, Some(TAIL_LINES))
            .await
            .unwrap_or_default();
        let waiting = stack.services.iter().find(|(_, dependant)| {
            dependant.depends_on.get(name).is_some_and(|dependency| {
                dependency.condition == Condition::ServiceCompletedSuccessfully
            })
        });
        Err(match waiting {
            Some((dependant, _)) => LaunchError::DependencyFailed {
                dependant: dependant.clone(),
                dependency: name.to_owned(),
                problem: exit_words(seen.exit_code, seen.oom_killed),
                log_tail,
            },
            None => LaunchError::Exited {
                service: name.to_owned(),
                exit_code: seen.exit_code,
                oom_killed: seen.oom_killed,
                log_tail,
            },
        })
    }

    /// Waits for every service's goal and for the target's answer.
    pub(super) async fn until_ready(
        &self,
        path: Option<TargetPath>,
    ) -> Result<(Option<SocketAddr>, IndexSet<String>), LaunchError> {
        let ((), address) = tokio::join!(self.until_goals(), self.until_answered(path));
        let address = address?;
        // A service may have turned unhealthy while the target was still asked.
        self.until_goals().await;
        let completed = self
            .stages
            .iter()
            .filter(|(_, stage)| *stage.borrow() == Stage::Completed)
            .map(|(name, _)| (*name).to_owned())
            .collect();
        Ok((address, completed))
    }

    /// Waits until every service has been at its goal.
    async fn until_goals(&self) {
        join_all(self.stages.iter().map(|(name, stage)| {
            let (mut stage, goal) = (stage.subscribe(), self.goal(name));
            async move { stage.wait_for(|stage| *stage >= goal).await.map(drop) }
        }))
        .await;
    }

    async fn until_answered(
        &self,
        path: Option<TargetPath>,
    ) -> Result<Option<SocketAddr>, LaunchError> {
        let (Some(target), Some(path)) = (self.launch.target, path) else {
            return Ok(None);
        };
        let name = target.service.as_str();
        let mut stage = self.stages[name].subscribe();
        let _ = stage.wait_for(|stage| *stage >= Stage::Started).await;
        let owner = network_owner(self.launch.stack, name);
        let address = ready::locate(self, target, &self.containers[owner], path).await?;
        if let Some(probe) = self.launch.ready {
            ready::until_answered(self, name, address, probe).await;
        }
        Ok(Some(address))
    }
}

fn lost(service: &str, error: EngineError) -> LaunchError {
    if error.kind == EngineErrorKind::NotFound {
        return LaunchError::Exited {
            service: service.to_owned(),
            exit_code: None,
            oom_killed: false,
            log_tail: String::new(),
        };
    }
    LaunchError::Engine { source: error }
}

fn words(condition: Condition) -> &'static str {
    match condition {
        Condition::ServiceStarted => "to be started",
        Condition::ServiceHealthy => "to be healthy",
        Condition::ServiceCompletedSuccessfully => "to run to its end",
    }
}

fn said(output: &str) -> String {
    let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
    if output.is_empty() {
        String::new()
    } else {
        format!(" ({})", output.chars().take(200).collect::<String>())
    }
}
