//! The calls of the trait, on the engine in memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;

use super::FakeEngine;
use super::script::{FakeCall, FakeExit};
use super::state::{Container, State, behaviour_of, conflict, limits_of, thing};
use crate::engine::{
    BuildRequest, ContainerId, ContainerRequest, Counters, Engine, EngineError, EngineErrorKind,
    HostFacts, ImageFacts, ImageProgress, Inspection, KernelCpu, KernelLimits, LABEL_REPLICA,
    LABEL_SERVICE, Labels, Leftover, LeftoverKind, Page, ProbeAnswer, ProbeFailure, ProgressSink,
    PullRequest, ReadyProbe, RunState, VolumeFacts,
};
use crate::stack::{Hook, MountSource, Network, Volume};

impl Engine for FakeEngine {
    async fn describe(&self) -> Result<HostFacts, EngineError> {
        self.plain(FakeCall::Describe, "engine").await?;
        Ok(self.lock().facts.clone())
    }

    async fn find_image(&self, image: &str) -> Result<Option<ImageFacts>, EngineError> {
        self.plain(FakeCall::FindImage, image).await?;
        let state = self.lock();
        let by_content = || state.images.values().find(|facts| facts.digest == image);
        Ok(state.images.get(image).or_else(by_content).cloned())
    }

    async fn pull_image(
        &self,
        request: PullRequest<'_>,
        progress: ProgressSink<'_>,
    ) -> Result<(), EngineError> {
        let image = request.image;
        self.plain(FakeCall::PullImage, image).await?;
        let pulled = self.lock().pullable.get(image).cloned();
        if let Some(mut digest) = pulled {
            let only = self.lock().only_platforms.get(image).cloned();
            let platform = only.or(request.platform.map(str::to_owned));
            // Each platform has a content of its own.
            if let Some(platform) = &platform {
                digest = format!("{digest}-{platform}");
            }
            self.add_image_of(image, &digest);
            self.set_platform(image, &platform.unwrap_or_default());
            progress(ImageProgress::Pulled {
                image,
                is_new: true,
                fetched_bytes: 1,
            });
            return Ok(());
        }
        Err(EngineError::new(
            FakeCall::PullImage.as_str(),
            image,
            EngineErrorKind::ImageMissing,
            "no registry has it",
        ))
    }

    async fn import_image(
        &self,
        image: &str,
        _archive: Vec<u8>,
        _changes: &[String],
    ) -> Result<(), EngineError> {
        self.plain(FakeCall::ImportImage, image).await?;
        self.add_image(image, false);
        Ok(())
    }

    async fn list_images(&self, label: &str) -> Result<Vec<Leftover>, EngineError> {
        self.plain(FakeCall::List, label).await?;
        let state = self.lock();
        let images = state.things.iter().map(|thing| &thing.found);
        Ok(images
            .filter(|found| found.kind == LeftoverKind::Image)
            .filter(|found| found.labels.contains_key(label))
            .cloned()
            .collect())
    }

    async fn find_volume(&self, name: &str) -> Result<Option<VolumeFacts>, EngineError> {
        self.plain(FakeCall::FindVolume, name).await?;
        let state = self.lock();
        let is_there = state
            .things
            .iter()
            .any(|thing| thing.found.kind == LeftoverKind::Volume && thing.found.name == name);
        let used_by = state
            .things
            .iter()
            .filter(|thing| thing.uses.iter().any(|used| used == name))
            .filter_map(|thing| thing.container.as_ref())
            .filter(|container| container.state() == RunState::Running)
            .map(|container| container.name.clone());
        Ok(is_there.then(|| VolumeFacts {
            mountpoint: format!("/fake/{name}/_data"),
            used_by: used_by.collect(),
        }))
    }

    async fn build_image(
        &self,
        request: BuildRequest<'_>,
        _progress: ProgressSink<'_>,
    ) -> Result<(), EngineError> {
        self.plain(FakeCall::BuildImage, request.words).await?;
        self.add_image(request.tag, false);
        let servers = request.credentials.iter().map(|found| found.server.clone());
        self.lock().build_credentials = servers.collect();
        Ok(())
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
        let service_name = request.labels.get(LABEL_SERVICE).unwrap_or(&request.name);
        let number = request.labels.get(LABEL_REPLICA);
        let name = match number {
            Some(number) => format!("{service_name}#{number}"),
            None => service_name.clone(),
        };
        // Each container gets a port of the host of its own, as from a real engine.
        let ports_before = number.and_then(|number| number.parse::<u16>().ok());
        let ports_before = ports_before.map_or(0, |number| number - 1);
        let image = {
            let state = self.lock();
            let launched = service.launched_image();
            let by_content = || state.images.values().find(|facts| facts.digest == launched);
            state.images.get(launched).or_else(by_content).cloned()
        };
        let make = |state: &mut State| {
            state.n_created += 1;
            let id = format!("container-{}", state.n_created);
            let mut made = thing(LeftoverKind::Container, id, &request.name, request.labels);
            let bridge = (service.network_mode.as_deref() == Some("bridge")).then_some("bridge");
            let networks: Vec<String> = service
                .networks
                .keys()
                .filter_map(|name| request.networks.get(name).cloned())
                .chain(bridge.map(str::to_owned))
                .collect();
            let volumes = service
                .mounts
                .iter()
                .filter_map(|mount| match &mount.source {
                    MountSource::Volume { source, .. } => request.volumes.get(source).cloned(),
                    MountSource::Anonymous
                    | MountSource::Bind { .. }
                    | MountSource::Tmpfs { .. }
                    | MountSource::Content { .. } => None,
                });
            made.uses = networks.iter().cloned().chain(volumes).collect();
            let scripted = behaviour_of(&state.behaviours, &name).and_then(|b| b.address);
            let [_, _, high, low] = state.n_created.to_be_bytes();
            let own = match service.network_mode.as_deref() {
                Some("host") => Ipv4Addr::LOCALHOST,
                _ => Ipv4Addr::new(10, 77, high, low),
            };
            made.container = Some(Container {
                name: name.clone(),
                limits: limits_of(service),
                has_healthcheck: match &service.healthcheck {
                    Some(check) if !check.test.is_empty() => check.test[0] != "NONE",
                    _ => image.as_ref().is_some_and(|image| image.has_healthcheck),
                },
                networks,
                publish_ports: request
                    .publish_ports
                    .iter()
                    .map(|port| (*port, port + ports_before))
                    .collect(),
                environment: service.environment.clone().into_iter().collect(),
                image_digest: image.map(|image| image.digest).unwrap_or_default(),
                ip: scripted.unwrap_or(IpAddr::V4(own)),
                started_at: None,
                is_paused: false,
                ended: None,
                n_looks: 0,
                pid: i64::from(state.n_created) * 1_000,
            });
            made
        };
        let id = self.create(FakeCall::CreateContainer, &name, make).await?;
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
            let is_running = matches!(container.state(), RunState::Running | RunState::Paused);
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
                    .publish_ports
                    .iter()
                    .filter(|_| is_running)
                    .map(|(inside, port)| {
                        (*inside, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), *port))
                    })
                    .collect(),
                pid: if is_running { container.pid } else { 0 },
                image_digest: behaviour
                    .made_of
                    .clone()
                    .unwrap_or_else(|| container.image_digest.clone()),
                environment: behaviour
                    .environment
                    .clone()
                    .unwrap_or_else(|| container.environment.clone()),
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

    async fn run_hook(
        &self,
        id: &ContainerId,
        hook: &Hook,
        deadline: Duration,
    ) -> Result<(i64, String), EngineError> {
        self.exec(id, &hook.command, deadline).await
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
            LeftoverKind::Network | LeftoverKind::Volume | LeftoverKind::Image => {
                leftover.name.clone()
            }
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

    fn kernel_cpu(&self, id: &ContainerId) -> Option<KernelCpu> {
        self.with_container(FakeCall::Inspect, id, |_, behaviour| {
            Ok(behaviour.kernel_limits.clone())
        })
        .ok()
        .flatten()
        .map(|limits| KernelCpu {
            quota: limits.cpu,
            cpuset: limits.cpuset,
        })
    }

    fn process_environment(
        &self,
        id: &ContainerId,
        _seen: &Inspection,
    ) -> Option<Vec<(String, String)>> {
        self.with_container(FakeCall::Inspect, id, |_, behaviour| {
            Ok(behaviour.process_environment.clone())
        })
        .ok()
        .flatten()
    }

    fn news<'a>(&'a self, _labels: &[String]) -> BoxStream<'a, ContainerId> {
        if !self.lock().tells_news {
            return stream::pending().boxed();
        }
        stream::unfold(self.tidings(), async |mut before| {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let now = self.tidings();
                let changed = now.iter().find(|told| !before.contains(told));
                match changed.map(|(id, ..)| ContainerId(id.clone())) {
                    // One at a time: what else changed is told by the next round.
                    Some(id) => {
                        before.retain(|(known, ..)| *known != id.0);
                        before.extend(now.into_iter().filter(|(known, ..)| *known == id.0));
                        return Some((id, before));
                    }
                    None => before = now,
                }
            }
        })
        .boxed()
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
        probe: &ReadyProbe,
        limit: Duration,
    ) -> Result<ProbeAnswer, ProbeFailure> {
        let page = self.fetch(address, probe, limit).await?;
        Ok(ProbeAnswer {
            status: page.status,
            body_head: String::new(),
        })
    }

    async fn fetch(
        &self,
        address: SocketAddr,
        probe: &ReadyProbe,
        limit: Duration,
    ) -> Result<Page, ProbeFailure> {
        let name = {
            let mut state = self.lock();
            let containers = state.things.iter_mut().filter_map(|t| t.container.as_mut());
            let mut reached = containers.filter(|container| {
                container.ip == address.ip()
                    || container
                        .publish_ports
                        .iter()
                        .any(|(_, port)| *port == address.port())
            });
            reached.next().map(|container| container.name.clone())
        };
        let Some(name) = name else {
            return Err(ProbeFailure::Unreachable("no such address".to_owned()));
        };
        let begun = self.plain(FakeCall::Probe, &name);
        match tokio::time::timeout(limit, begun).await {
            Err(_) => return Err(ProbeFailure::TimedOut(limit)),
            Ok(Err(error)) => return Err(ProbeFailure::Broken(error.to_string())),
            Ok(Ok(())) => {}
        }
        let mut state = self.lock();
        let behaviour = behaviour_of(&state.behaviours, &name)
            .cloned()
            .unwrap_or_default();
        let answers = state.containers_of(&name).any(|container| {
            container.pass_time(&behaviour);
            container.state() == RunState::Running && container.has_run_for(behaviour.answers_after)
        });
        if answers {
            return Ok(Page {
                status: behaviour.status,
                body: behaviour
                    .pages
                    .get(&probe.path)
                    .cloned()
                    .unwrap_or_default(),
            });
        }
        Err(ProbeFailure::Refused)
    }
}
