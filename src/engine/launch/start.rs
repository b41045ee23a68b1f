//! Creating, starting in order, and following until everything is ready.
//!
//! Every service has a task of its own that waits for its dependencies, starts
//! the container and then looks at it until the launch is over. So independent
//! services start side by side, and a container that ends is reported at once,
//! whoever is being waited for at that moment.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use futures_util::future::{join_all, try_join_all};
use indexmap::{IndexMap, IndexSet};
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::{LaunchError, TAIL_LINES, exit_words};
use super::ready::{self, PAUSE, longer};
use super::request::{
    Launch, Launched, TargetPath, check, has_healthcheck, is_measured, is_waited_for, may_complete,
    target_path,
};
use crate::engine::{
    ContainerId, ContainerRequest, Engine, EngineError, EngineErrorKind, Health, ImageFacts,
    Inspection, Lease, Proof, RunState, TrialTag, check_limits,
};
use crate::stack::{Condition, Service};

/// Launches a stack and waits until it is ready and its limits are proved.
///
/// Removes nothing: after an error, read the logs, then release the lease.
///
/// **Errors**: each with a stable code, see [`LaunchError::reason`].
/// **Cancel**: safe; the lease removes what was created, also what was being created.
pub async fn launch<E: Engine>(
    lease: &Lease<E>,
    launch: &Launch<'_>,
) -> Result<Launched, LaunchError> {
    let begun = Instant::now();
    let engine = &**lease.engine();
    check(launch)?;
    let path = target_path(launch)?;
    let images = find_images(engine, launch).await?;
    check_healthchecks(launch, &images)?;

    lease.set_creating(true);
    let created = create_all(engine, lease.tag(), launch, path).await;
    lease.set_creating(false);
    let (networks, containers) = created?;
    let created_after = begun.elapsed();

    let watch = Watch::new(engine, launch, &images, &containers, &networks);
    let (target, completed) = tokio::select! {
        biased;
        Err(error) = watch.run_all() => return Err(error),
        ready = watch.until_ready(path) => ready?,
        () = tokio::time::sleep(launch.deadline) => return Err(LaunchError::NotReady {
            last_seen: watch.last_seen(),
            limit: launch.deadline,
            elapsed: begun.elapsed().saturating_sub(created_after),
        }),
    };
    let ready_after = begun.elapsed();
    let mut launched = Launched {
        containers,
        subject: launch.subject.to_owned(),
        completed,
        may_complete: may_complete(launch),
        target,
        target_path: path,
        proof: Proof::Inspect,
        images,
        created_after,
        ready_after,
    };
    launched.proof = check_limits(engine, &launched, launch.stack).await?;
    Ok(launched)
}

/// Facts of each service's image.
async fn find_images<E: Engine>(
    engine: &E,
    launch: &Launch<'_>,
) -> Result<IndexMap<String, ImageFacts>, LaunchError> {
    let services = &launch.stack.services;
    let finds = services.iter().map(|(name, service)| async move {
        let found = engine.find_image(&service.image).await;
        let facts = found
            .map_err(|source| LaunchError::Engine { source })?
            .ok_or_else(|| LaunchError::ImageMissing {
                service: name.clone(),
                image: service.image.clone(),
            })?;
        Ok::<_, LaunchError>((name.clone(), facts))
    });
    Ok(try_join_all(finds).await?.into_iter().collect())
}

fn check_healthchecks(
    launch: &Launch<'_>,
    images: &IndexMap<String, ImageFacts>,
) -> Result<(), LaunchError> {
    for (name, service) in &launch.stack.services {
        for (dependency, wanted) in &service.depends_on {
            let Some(other) = launch.stack.services.get(dependency) else {
                continue;
            };
            if wanted.condition == Condition::ServiceHealthy
                && !has_healthcheck(other, &images[dependency])
            {
                return Err(LaunchError::Unusable {
                    service: name.clone(),
                    problem: format!(
                        "it waits for `{dependency}` to be healthy, and neither that service nor \
                         its image `{}` has a healthcheck",
                        other.image
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Engine network names by Compose name, and containers by service.
type Created = (IndexMap<String, String>, IndexMap<String, ContainerId>);

/// Creates everything. All calls are awaited even when one fails: a call that is
/// dropped half-way may still create, after the clean-up has looked.
async fn create_all<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    launch: &Launch<'_>,
    path: Option<TargetPath>,
) -> Result<Created, LaunchError> {
    let stack = launch.stack;
    let labels = tag.labels();
    let named = |part: &String| (part.clone(), tag.name(part));
    let networks: IndexMap<String, String> = stack.networks.keys().map(named).collect();
    let volumes: IndexMap<String, String> = stack.volumes.keys().map(named).collect();
    let failed = |what: String| move |source| LaunchError::CreateFailed { what, source };

    let make_networks = join_all(stack.networks.iter().map(|(name, network)| {
        let created = engine.create_network(&networks[name], network, &labels);
        async move { created.await.map_err(failed(format!("network `{name}`"))) }
    }));
    let make_volumes = join_all(stack.volumes.iter().map(|(name, volume)| {
        let created = engine.create_volume(&volumes[name], volume, &labels);
        async move { created.await.map_err(failed(format!("volume `{name}`"))) }
    }));
    let (networks_made, volumes_made) = tokio::join!(make_networks, make_volumes);
    networks_made
        .into_iter()
        .chain(volumes_made)
        .collect::<Result<(), _>>()?;

    let make_containers = join_all(stack.services.iter().map(|(name, service)| {
        let is_target = launch.target.filter(|target| target.service == *name);
        let publish_port = is_target
            .filter(|_| path == Some(TargetPath::Published))
            .map(|target| target.port);
        let (networks, volumes) = (&networks, &volumes);
        async move {
            let request = ContainerRequest {
                name: tag.name(name),
                service,
                networks,
                volumes,
                labels: &tag.service_labels(name),
                publish_port,
            };
            let id = engine.create_container(request).await;
            let id = id.map_err(failed(format!("service `{name}`")))?;
            Ok((name.clone(), id))
        }
    }));
    let containers = make_containers
        .await
        .into_iter()
        .collect::<Result<_, LaunchError>>()?;
    Ok((networks, containers))
}

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
    fn new(
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

    /// Engine names of a service's networks, in the order of the file.
    pub(super) fn engine_networks(&self, service: &str) -> impl Iterator<Item = &'a String> {
        let attached = &self.launch.stack.services[service].networks;
        attached
            .keys()
            .filter_map(|network| self.networks.get(network))
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

    fn last_seen(&self) -> String {
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
    async fn run_all(&self) -> Result<Infallible, LaunchError> {
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
        self.engine
            .start_container(id)
            .await
            .map_err(|source| LaunchError::StartFailed {
                service: name.to_owned(),
                source,
            })?;
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
    async fn until_ready(
        &self,
        path: Option<TargetPath>,
    ) -> Result<(Option<std::net::SocketAddr>, IndexSet<String>), LaunchError> {
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

    /// Waits until all services are at their goals in one and the same moment.
    async fn until_goals(&self) {
        loop {
            join_all(self.stages.iter().map(|(name, stage)| {
                let (mut stage, goal) = (stage.subscribe(), self.goal(name));
                async move { stage.wait_for(|stage| *stage >= goal).await.map(drop) }
            }))
            .await;
            let is_there =
                |(name, stage): (&&str, &watch::Sender<Stage>)| *stage.borrow() >= self.goal(name);
            if self.stages.iter().all(is_there) {
                return;
            }
        }
    }

    async fn until_answered(
        &self,
        path: Option<TargetPath>,
    ) -> Result<Option<std::net::SocketAddr>, LaunchError> {
        let (Some(target), Some(path)) = (self.launch.target, path) else {
            return Ok(None);
        };
        let name = target.service.as_str();
        let mut stage = self.stages[name].subscribe();
        let _ = stage.wait_for(|stage| *stage >= Stage::Started).await;
        let address = ready::locate(self, target, &self.containers[name], path).await?;
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
