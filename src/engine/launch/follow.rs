//! Following every service of a launch until all of them are ready.
//!
//! Every service has a future of its own that waits for its dependencies, starts
//! the container and then looks at it until the launch is over: from time to time, and
//! whenever the engine tells that its health changed or that it ended. So independent
//! services start side by side, and a container that ends is reported at once,
//! whoever is being waited for at that moment.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use indexmap::{IndexMap, IndexSet};
use tokio::sync::{Notify, watch};

use super::error::{LaunchError, TAIL_LINES, exit_words};
use super::hooks::start_container;
use super::ready::{self, PAUSE, longer};
use super::request::{
    Launch, LaunchTarget, TargetPath, has_healthcheck, is_measured, is_optional, is_waited_for,
};
use crate::engine::reach::{address_of, has_network_of};
use crate::engine::replica::replicas;
use crate::engine::{
    ContainerId, Engine, EngineError, EngineErrorKind, Health, ImageFacts, Inspection, Replica,
    RunState,
};
use crate::stack::{Condition, Dependency, Service};

/// Longest wait for the end of a log: it explains a failure and must not delay it.
const TAIL_LIMIT: Duration = Duration::from_secs(5);
/// Logs that the words of one failure show.
const MOST_TAILS: usize = 3;

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
    /// Its healthcheck fails, and nobody requires it.
    Unwell,
    /// It ended badly, and nobody requires it.
    Failed,
}

impl Stage {
    /// Whether a dependant may start: what it does not require it waits for only until
    /// that has failed, as under Compose.
    fn meets(self, wanted: Dependency) -> bool {
        if !wanted.required && self >= Self::Unwell {
            return true;
        }
        match wanted.condition {
            Condition::ServiceStarted => self >= Self::Started,
            Condition::ServiceHealthy => self == Self::Healthy,
            Condition::ServiceCompletedSuccessfully => self == Self::Completed,
        }
    }
}

/// How far every container has come, by service.
///
/// One value for all of them: what is asked of several at once is asked of one moment,
/// so a service that turned unhealthy while another was waited for is not taken as ready.
type Stages<'a> = IndexMap<&'a str, Vec<Stage>>;

/// Everything that is followed during one launch.
pub(super) struct Watch<'a, E> {
    engine: &'a E,
    launch: &'a Launch<'a>,
    images: &'a IndexMap<String, ImageFacts>,
    containers: &'a IndexMap<String, Vec<ContainerId>>,
    networks: &'a IndexMap<String, String>,
    stages: watch::Sender<Stages<'a>>,
    /// Wakes the one who looks at a container of which something is new.
    news: IndexMap<&'a ContainerId, Notify>,
    /// The last thing seen of everything that is still waited for.
    seen: Mutex<IndexMap<String, String>>,
    /// What went wrong with containers that nobody requires.
    warnings: Mutex<IndexSet<String>>,
}

impl<'a, E: Engine> Watch<'a, E> {
    pub(super) fn new(
        engine: &'a E,
        launch: &'a Launch<'a>,
        images: &'a IndexMap<String, ImageFacts>,
        containers: &'a IndexMap<String, Vec<ContainerId>>,
        networks: &'a IndexMap<String, String>,
    ) -> Self {
        let stages = containers
            .iter()
            .map(|(name, ids)| (name.as_str(), vec![Stage::Waiting; ids.len()]))
            .collect();
        Self {
            engine,
            launch,
            images,
            containers,
            networks,
            stages: watch::Sender::new(stages),
            news: containers
                .values()
                .flatten()
                .map(|id| (id, Notify::new()))
                .collect(),
            seen: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    pub(super) fn engine(&self) -> &'a E {
        self.engine
    }

    /// Where a place of the stack is, as a look at the container shows it whose network
    /// it uses.
    pub(super) fn address_in(
        &self,
        place: &LaunchTarget,
        seen: &Inspection,
        path: TargetPath,
    ) -> Option<SocketAddr> {
        address_of(self.launch.stack, self.networks, place, seen, path)
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

    /// Passes on what the engine tells of the trial's containers; never comes back.
    pub(super) async fn hear(&self, labels: &[String]) -> Infallible {
        let mut news = self.engine.news(labels);
        while let Some(id) = news.next().await {
            if let Some(news) = self.news.get(&id) {
                news.notify_one();
            }
        }
        std::future::pending().await
    }

    fn warn(&self, words: &str) {
        let words = format!("{words}; no other service requires it, so the launch went on");
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.insert(words);
    }

    /// What went wrong and was not required.
    pub(super) fn into_warnings(self) -> Vec<String> {
        let warnings = self.warnings.into_inner();
        let warnings = warnings.unwrap_or_else(PoisonError::into_inner);
        warnings.into_iter().collect()
    }

    /// Starts and follows all services; comes back only when one of them fails.
    pub(super) async fn run_all(&self) -> Result<Infallible, LaunchError> {
        let services = &self.launch.stack.services;
        let all = self.containers.iter().flat_map(|(name, ids)| {
            let service = &services[name];
            replicas(name, ids).map(move |replica| self.run(replica, service))
        });
        all_or_first_error(all).await?;
        std::future::pending().await
    }

    async fn run(
        &self,
        replica: Replica<'_>,
        service: &Service,
    ) -> Result<Infallible, LaunchError> {
        let name = replica.name();
        self.until_dependencies(&name, service).await;
        self.note(&name, "being started".to_owned());
        let note = |seen: String| self.note(&name, seen);
        start_container(self.engine, self.launch, service, replica, note).await?;
        self.note(&name, "started, and not yet looked at".to_owned());
        self.advance(replica, Stage::Started);
        let mut pause = PAUSE.0;
        loop {
            let seen = match self.engine.inspect(replica.id).await {
                Ok(seen) => seen,
                Err(error) => return Err(lost(name, error)),
            };
            if seen.state == RunState::Exited {
                let stage = self.judge_exit(replica, service, &seen).await?;
                self.advance(replica, stage);
                return std::future::pending().await;
            }
            if seen.state == RunState::Paused {
                // It neither answers nor tests itself: waiting would only hide why.
                return Err(LaunchError::Disturbed {
                    service: name,
                    what: "is paused: somebody froze it".to_owned(),
                });
            }
            self.judge_health(replica, &seen).await?;
            let news = &self.news[replica.id];
            let _ = tokio::time::timeout(pause, news.notified()).await;
            pause = longer(pause);
        }
    }

    /// Waits until every dependency is as it is wanted, all of them at one moment.
    async fn until_dependencies(&self, name: &str, service: &Service) {
        let mut stages = self.stages.subscribe();
        // The sender lives as long as `self`.
        let _ = stages
            .wait_for(|stages| {
                let waited_for = service.depends_on.iter().find(|(dependency, wanted)| {
                    stages
                        .get(dependency.as_str())
                        .is_some_and(|all| !all.iter().all(|one| one.meets(**wanted)))
                });
                if let Some((dependency, wanted)) = waited_for {
                    let condition = words(wanted.condition);
                    self.note(name, format!("waits for `{dependency}` ({condition})"));
                }
                waited_for.is_none()
            })
            .await;
    }

    fn set_stage(&self, replica: Replica<'_>, stage: Stage) {
        self.stages.send_modify(|stages| {
            if let Some(all) = stages.get_mut(replica.service) {
                all[replica.index] = stage;
            }
        });
    }

    fn advance(&self, replica: Replica<'_>, stage: Stage) {
        self.set_stage(replica, stage);
        if stage >= self.goal(replica.service) {
            self.settle(&replica.name());
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
    async fn judge_health(
        &self,
        replica: Replica<'_>,
        seen: &Inspection,
    ) -> Result<(), LaunchError> {
        let goal = self.goal(replica.service);
        let name = replica.name();
        if goal == Stage::Completed {
            self.note(&name, "runs, and has not yet come to its end".to_owned());
            return Ok(());
        }
        if goal == Stage::Started {
            return Ok(());
        }
        match &seen.health {
            Health::Healthy => self.advance(replica, Stage::Healthy),
            Health::None => self.note(&name, "healthcheck not yet run".to_owned()),
            Health::Starting(output) => {
                self.note(&name, format!("healthcheck not yet passed{}", said(output)));
            }
            Health::Unhealthy(output) if is_optional(self.launch, replica.service) => {
                self.warn(&format!("service `{name}` is unhealthy{}", said(output)));
                self.advance(replica, Stage::Unwell);
            }
            Health::Unhealthy(output) => {
                self.set_stage(replica, Stage::Started);
                self.note(&name, format!("unhealthy{}", said(output)));
                if let Some(dependant) = self.dependant_on_health(replica.service) {
                    return Err(LaunchError::DependencyFailed {
                        dependant,
                        dependency: name,
                        problem: format!("is unhealthy{}", said(output)),
                        log_tail: self.log_tail(replica).await,
                    });
                }
            }
        }
        Ok(())
    }

    /// A service that still waits for this one to be healthy.
    fn dependant_on_health(&self, name: &str) -> Option<String> {
        let stages = self.stages.borrow();
        self.launch
            .stack
            .services
            .iter()
            .find_map(|(dependant, service)| {
                let wanted = service.depends_on.get(name)?;
                let still_waits = stages
                    .get(dependant.as_str())
                    .is_some_and(|all| all.contains(&Stage::Waiting));
                let waits = wanted.condition == Condition::ServiceHealthy && still_waits;
                (waits && wanted.required).then(|| dependant.clone())
            })
    }

    /// The last lines a container wrote; never worth a long wait.
    async fn log_tail(&self, replica: Replica<'_>) -> Option<String> {
        let logs = self.engine.logs(replica.id, Some(TAIL_LINES));
        tokio::time::timeout(TAIL_LIMIT, logs).await.ok()?.ok()
    }

    /// The last lines of every container that runs and is still waited for.
    pub(super) async fn log_tails(&self) -> Vec<(String, String)> {
        let waited_for: Vec<Replica<'_>> = {
            let stages = self.stages.borrow();
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let is_asked = |name: &str| {
                let asked = format!(" of `{name}` at ");
                seen.keys().any(|what| what.contains(&asked))
            };
            let all = self.containers.iter();
            all.flat_map(|(name, ids)| replicas(name, ids))
                .filter(|replica| {
                    let stage = stages[replica.service][replica.index];
                    let runs = stage == Stage::Started || stage == Stage::Healthy;
                    runs && (stage < self.goal(replica.service) || is_asked(&replica.name()))
                })
                .take(MOST_TAILS)
                .collect()
        };
        let tails = waited_for.iter().map(|replica| self.log_tail(*replica));
        let named = join_all(tails).await.into_iter().zip(&waited_for);
        named
            .filter_map(|(tail, replica)| Some((replica.name(), tail?)))
            .collect()
    }

    /// Whether a container might end: a one-shot with 0, and by the practice of
    /// real Compose files also a service that is neither measured nor has a
    /// healthcheck and ends with 0 before everything is ready (migrations, buckets).
    async fn judge_exit(
        &self,
        replica: Replica<'_>,
        service: &Service,
        seen: &Inspection,
    ) -> Result<Stage, LaunchError> {
        let stack = self.launch.stack;
        let name = replica.service;
        let is_one_shot = is_waited_for(stack, name, Condition::ServiceCompletedSuccessfully);
        let is_expected = is_one_shot
            || !(is_measured(self.launch, name) || has_healthcheck(service, &self.images[name]));
        let awaits_health = self.dependant_on_health(name);
        let ended_well = seen.exit_code == Some(0) && !seen.oom_killed;
        if is_expected && ended_well && awaits_health.is_none() {
            return Ok(Stage::Completed);
        }
        if is_optional(self.launch, name) {
            if ended_well {
                return Ok(Stage::Completed);
            }
            let how = exit_words(seen.exit_code, seen.oom_killed);
            self.warn(&format!("service `{}` {how}", replica.name()));
            return Ok(Stage::Failed);
        }
        let log_tail = self.log_tail(replica).await;
        let awaits_end = stack.services.iter().find(|(_, dependant)| {
            dependant.depends_on.get(name).is_some_and(|dependency| {
                dependency.condition == Condition::ServiceCompletedSuccessfully
            })
        });
        let how = exit_words(seen.exit_code, seen.oom_killed);
        let waiting = match (awaits_health, awaits_end) {
            (Some(dependant), _) => Some((dependant, format!("{how} before it was healthy"))),
            (None, Some((dependant, _))) if !ended_well => Some((dependant.clone(), how)),
            (None, _) => None,
        };
        Err(match waiting {
            Some((dependant, problem)) => LaunchError::DependencyFailed {
                dependant,
                dependency: replica.name(),
                problem,
                log_tail,
            },
            None => LaunchError::Exited {
                service: replica.name(),
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
    ) -> Result<(Vec<SocketAddr>, IndexSet<String>), LaunchError> {
        let ((), addresses) = tokio::join!(self.until_goals(), self.until_answered(path));
        let addresses = addresses?;
        // A service may have turned unhealthy while the target was still asked; and what
        // was seen of it may be half a second old.
        let mut pause = PAUSE.0;
        loop {
            self.until_goals().await;
            if self.is_healthy_now().await? {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = longer(pause);
        }
        let has_ended = |stage: &Stage| matches!(stage, Stage::Completed | Stage::Failed);
        let completed = self
            .stages
            .borrow()
            .iter()
            .filter(|(_, all)| all.iter().all(has_ended))
            .map(|(name, _)| (*name).to_owned())
            .collect();
        Ok((addresses, completed))
    }

    /// Looks once more at every container that must be healthy.
    async fn is_healthy_now(&self) -> Result<bool, LaunchError> {
        let stages = self.stages.borrow().clone();
        let tested = self
            .containers
            .iter()
            .flat_map(|(name, ids)| replicas(name, ids))
            .filter(|one| stages[one.service][one.index] == Stage::Healthy);
        let looks = tested.map(|replica| async move {
            let seen = match self.engine.inspect(replica.id).await {
                Ok(seen) => seen,
                Err(error) => return Err(lost(replica.name(), error)),
            };
            // Whoever follows it says what else may have become of it.
            let is_healthy = seen.health == Health::Healthy && seen.state == RunState::Running;
            if !is_healthy && self.goal(replica.service) == Stage::Healthy {
                self.set_stage(replica, Stage::Started);
            }
            Ok(is_healthy)
        });
        let healthy = all_or_first_error(looks).await?;
        Ok(healthy.into_iter().all(|is_healthy| is_healthy))
    }

    /// Waits until every container is at its goal, all of them at one moment.
    async fn until_goals(&self) {
        let goals: IndexMap<&str, Stage> = self
            .containers
            .keys()
            .map(|name| (name.as_str(), self.goal(name)))
            .collect();
        let is_there = |stages: &Stages<'_>| {
            stages
                .iter()
                .all(|(name, all)| all.iter().all(|stage| *stage >= goals[name]))
        };
        // The sender lives as long as `self`.
        let _ = self.stages.subscribe().wait_for(is_there).await;
    }

    /// Waits until every container of the target answers; their addresses.
    async fn until_answered(
        &self,
        path: Option<TargetPath>,
    ) -> Result<Vec<SocketAddr>, LaunchError> {
        let (Some(target), Some(path)) = (self.launch.target, path) else {
            return Ok(Vec::new());
        };
        let service = target.service.as_str();
        let all = replicas(service, &self.containers[service]);
        all_or_first_error(all.map(|replica| self.until_one_answered(replica, target, path))).await
    }

    async fn until_one_answered(
        &self,
        replica: Replica<'_>,
        target: &LaunchTarget,
        path: TargetPath,
    ) -> Result<SocketAddr, LaunchError> {
        let mut stages = self.stages.subscribe();
        let is_started =
            |stages: &Stages<'_>| stages[replica.service][replica.index] >= Stage::Started;
        let _ = stages.wait_for(is_started).await;
        let stack = self.launch.stack;
        let located = has_network_of(stack, self.containers, replica.service, replica.id);
        let address = ready::locate(self, target, (&replica.name(), located), path).await?;
        if let Some(probe) = self.launch.ready {
            ready::until_answered(self, &replica.name(), address, probe).await;
        }
        Ok(address)
    }
}

/// What all of the futures give, in their order, or the first error in time.
///
/// Not `try_join_all`: with more than 30 futures that looks at their outcomes in order,
/// and an error would wait behind a service that is waited for.
async fn all_or_first_error<T, E>(
    futures: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
) -> Result<Vec<T>, E> {
    let mut left: FuturesUnordered<_> = futures
        .enumerate()
        .map(|(index, future)| async move { (index, future.await) })
        .collect();
    let mut done = Vec::with_capacity(left.len());
    while let Some((index, outcome)) = left.next().await {
        done.push((index, outcome?));
    }
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, value)| value).collect())
}

fn lost(service: String, error: EngineError) -> LaunchError {
    if error.kind == EngineErrorKind::NotFound {
        return LaunchError::Exited {
            service,
            exit_code: None,
            oom_killed: false,
            log_tail: None,
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
