//! The calls themselves.
//!
//! Nothing here decides: order, waiting and clean-up are written over the trait.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::models::SystemInfoCgroupVersionEnum;
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, InspectContainerOptions, InspectNetworkOptions,
    ListContainersOptions, ListNetworksOptions, ListVolumesOptions, LogsOptions,
    RemoveContainerOptions, RemoveVolumeOptions, StartContainerOptions, StatsOptions,
    StopContainerOptions, WaitContainerOptions,
};
use futures_util::{Stream, StreamExt, TryStreamExt};

use super::connection::{
    CALL_LIMIT, DEFAULT_ENDPOINT, PULL_LIMIT, Reach, SLOW_CALL_LIMIT, call, open,
};
use super::{answers, requests};
use crate::engine::cgroup::{Cgroup, KernelLimits, find_cgroup};
use crate::engine::{
    ContainerId, ContainerRequest, Counters, Engine, EngineError, EngineErrorKind, HostFacts,
    ImageFacts, Inspection, Labels, Leftover, LeftoverKind, RunState,
};
use crate::stack::{Network, Volume};

/// Longest output kept of logs and commands: a chatty service must not fill our memory.
const LONGEST_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// The Docker Engine at one endpoint.
#[derive(Debug)]
pub struct DockerEngine {
    pub(in crate::engine) docker: Docker,
    endpoint: String,
    reach: Reach,
    /// Where each running container's counters are; found once, read at every edge.
    cgroups: Mutex<HashMap<ContainerId, Cgroup>>,
}

impl DockerEngine {
    /// Connects and agrees on an API version.
    ///
    /// `endpoint` is the value of `DOCKER_HOST` where the user set one
    /// (`unix://PATH`, `tcp://HOST:PORT`); empty and `None` are the usual socket.
    ///
    /// **Errors**: `NoDaemon`, `Denied`, `Timeout`, each with a hint; `Other` for an
    /// address of a kind that is not supported.
    pub async fn connect(endpoint: Option<&str>) -> Result<Self, EngineError> {
        let endpoint = endpoint
            .filter(|text| !text.is_empty())
            .unwrap_or(DEFAULT_ENDPOINT);
        let (docker, reach) = open(endpoint)?;
        let docker = call(
            "connect to",
            endpoint,
            CALL_LIMIT,
            docker.negotiate_version(),
        )
        .await?;
        Ok(Self {
            docker,
            endpoint: endpoint.to_owned(),
            reach,
            cgroups: Mutex::default(),
        })
    }

    /// Whether this process stands on the engine's own network.
    ///
    /// The engine's default bridge has its gateway address on the host that can
    /// reach containers, and an address can be bound only where it exists. This
    /// tells a native engine from one seen from inside a container; one in a
    /// virtual machine or without root is told by `answers::is_native`, since this
    /// host may have a bridge of its own with the same address.
    async fn is_direct(&self) -> bool {
        let bridge = call(
            "inspect network",
            "bridge",
            CALL_LIMIT,
            self.docker
                .inspect_network("bridge", None::<InspectNetworkOptions>),
        )
        .await;
        let ranges = bridge
            .ok()
            .and_then(|network| network.ipam?.config)
            .unwrap_or_default();
        ranges
            .iter()
            .filter_map(answers::gateway)
            .any(|gateway| UdpSocket::bind((gateway, 0)).is_ok())
    }

    fn cgroup_of(&self, id: &ContainerId, pid: i64) -> Option<Cgroup> {
        let mut known = self.cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cgroup) = known.get(id) {
            return Some(cgroup.clone());
        }
        let cgroup = find_cgroup(pid, id)?;
        known.insert(id.clone(), cgroup.clone());
        Some(cgroup)
    }

    fn known_cgroup(&self, id: &ContainerId) -> Option<Cgroup> {
        let known = self.cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(id).cloned()
    }

    fn forget(&self, id: &str) {
        let mut known = self.cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&ContainerId(id.to_owned()));
    }

    async fn list_containers(&self, labels: &[String]) -> Result<Vec<Leftover>, EngineError> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(label_filter(labels)),
            ..ListContainersOptions::default()
        };
        let list = self.docker.list_containers(Some(options));
        let containers = call("list containers", &labels.join(","), CALL_LIMIT, list).await?;
        Ok(containers
            .into_iter()
            .filter_map(|container| {
                let id = container.id?;
                let name = container.names.unwrap_or_default().into_iter().next();
                let name =
                    name.map_or_else(|| id.clone(), |n| n.trim_start_matches('/').to_owned());
                Some(leftover(
                    LeftoverKind::Container,
                    id,
                    name,
                    container.labels,
                ))
            })
            .collect())
    }

    async fn list_networks(&self, labels: &[String]) -> Result<Vec<Leftover>, EngineError> {
        let options = ListNetworksOptions {
            filters: Some(label_filter(labels)),
        };
        let list = self.docker.list_networks(Some(options));
        let networks = call("list networks", &labels.join(","), CALL_LIMIT, list).await?;
        Ok(networks
            .into_iter()
            .filter_map(|network| {
                let (id, name) = (network.id?, network.name?);
                Some(leftover(LeftoverKind::Network, id, name, network.labels))
            })
            .collect())
    }

    async fn list_volumes(&self, labels: &[String]) -> Result<Vec<Leftover>, EngineError> {
        let options = ListVolumesOptions {
            filters: Some(label_filter(labels)),
        };
        let list = self.docker.list_volumes(Some(options));
        let answer = call("list volumes", &labels.join(","), CALL_LIMIT, list).await?;
        Ok(answer
            .volumes
            .unwrap_or_default()
            .into_iter()
            .map(|volume| {
                let name = volume.name;
                leftover(
                    LeftoverKind::Volume,
                    name.clone(),
                    name,
                    Some(volume.labels),
                )
            })
            .collect())
    }

    /// The engine's own statistics: without `one-shot` it would sample for a second.
    pub(in crate::engine) async fn counters_by_api(
        &self,
        id: &ContainerId,
    ) -> Result<Counters, EngineError> {
        let options = StatsOptions {
            stream: false,
            one_shot: true,
        };
        let first = async {
            let mut answers = Box::pin(self.docker.stats(&id.0, Some(options)));
            answers.try_next().await
        };
        let answer = call("read counters of", &id.0, CALL_LIMIT, first).await?;
        answer.as_ref().and_then(answers::counters).ok_or_else(|| {
            EngineError::new(
                "read counters of",
                &id.0,
                EngineErrorKind::Conflict,
                "the container does not run",
            )
        })
    }
}

fn leftover(
    kind: LeftoverKind,
    id: String,
    name: String,
    labels: Option<HashMap<String, String>>,
) -> Leftover {
    let mut labels: Labels = labels.unwrap_or_default().into_iter().collect();
    labels.sort_keys();
    Leftover {
        kind,
        id,
        name,
        labels,
    }
}

fn label_filter(labels: &[String]) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), labels.to_vec())])
}

/// Collects output until its end or the longest text we keep: the tail stays.
async fn collect_output(
    output: impl Stream<Item = Result<LogOutput, bollard::errors::Error>>,
) -> Result<String, bollard::errors::Error> {
    let mut output = std::pin::pin!(output);
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(part) = output.next().await {
        bytes.extend_from_slice(&part?.into_bytes());
        if bytes.len() > 2 * LONGEST_TEXT_BYTES {
            bytes.drain(..bytes.len() - LONGEST_TEXT_BYTES);
        }
    }
    let start = bytes.len().saturating_sub(LONGEST_TEXT_BYTES);
    Ok(String::from_utf8_lossy(&bytes[start..]).into_owned())
}

impl Engine for DockerEngine {
    async fn describe(&self) -> Result<HostFacts, EngineError> {
        let endpoint = self.endpoint.as_str();
        let info = call("describe", endpoint, CALL_LIMIT, self.docker.info());
        let version = call("describe", endpoint, CALL_LIMIT, self.docker.version());
        let (info, version, direct) = tokio::join!(info, version, self.is_direct());
        let (info, version) = (info?, version?);
        let our_kernel = fs_err::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let is_native = self.reach != Reach::Remote && answers::is_native(&info, our_kernel.trim());
        Ok(HostFacts {
            endpoint: endpoint.to_owned(),
            engine_version: version.version.unwrap_or_default(),
            api_version: self.docker.client_version().to_string(),
            cpus: info.ncpu.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            memory_bytes: info
                .mem_total
                .and_then(|bytes| u64::try_from(bytes).ok())
                .unwrap_or(0),
            cgroup_version: match info.cgroup_version {
                Some(SystemInfoCgroupVersionEnum::_2) => "2".to_owned(),
                // Engines that do not say so know version 1 only.
                _ => "1".to_owned(),
            },
            operating_system: info.operating_system.unwrap_or_default(),
            kernel: info.kernel_version.unwrap_or_default(),
            architecture: info.architecture.unwrap_or_default(),
            storage_driver: info.driver.unwrap_or_default(),
            direct: direct && is_native,
            local: self.reach != Reach::Remote,
        })
    }

    async fn find_image(&self, image: &str) -> Result<Option<ImageFacts>, EngineError> {
        let inspect = self.docker.inspect_image(image);
        match call("find image", image, CALL_LIMIT, inspect).await {
            Ok(answer) => Ok(Some(answers::image(answer))),
            Err(error)
                if matches!(
                    error.kind,
                    EngineErrorKind::ImageMissing | EngineErrorKind::NotFound
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn pull_image(&self, image: &str) -> Result<(), EngineError> {
        let options = CreateImageOptions {
            from_image: Some(with_tag(image)),
            ..CreateImageOptions::default()
        };
        let pull = async {
            let mut progress = Box::pin(self.docker.create_image(Some(options), None, None));
            // A failure may come in the middle of an answer that began well.
            while let Some(step) = progress.next().await {
                let step = step?;
                if let Some(message) = step.error_detail.and_then(|detail| detail.message) {
                    return Err(bollard::errors::Error::DockerStreamError { error: message });
                }
            }
            Ok(())
        };
        call("pull image", image, PULL_LIMIT, pull)
            .await
            .map_err(|error| match error.kind {
                // Whatever the registry said, what it means here is one thing.
                EngineErrorKind::NotFound | EngineErrorKind::Other | EngineErrorKind::Denied => {
                    EngineError::new(
                        "pull image",
                        image,
                        EngineErrorKind::ImageMissing,
                        error.source,
                    )
                }
                _ => error,
            })
    }

    async fn create_network(
        &self,
        name: &str,
        network: &Network,
        labels: &Labels,
    ) -> Result<(), EngineError> {
        let body = requests::network(name, network, labels);
        let create = self.docker.create_network(body);
        call("create network", name, SLOW_CALL_LIMIT, create)
            .await
            .map(drop)
    }

    async fn create_volume(
        &self,
        name: &str,
        volume: &Volume,
        labels: &Labels,
    ) -> Result<(), EngineError> {
        let body = requests::volume(name, volume, labels);
        let create = self.docker.create_volume(body);
        call("create volume", name, SLOW_CALL_LIMIT, create)
            .await
            .map(drop)
    }

    async fn create_container(
        &self,
        request: ContainerRequest<'_>,
    ) -> Result<ContainerId, EngineError> {
        const OPERATION: &str = "create container";
        let name = request.name.as_str();
        let creation = requests::container(&request)
            .map_err(|error| EngineError::new(OPERATION, name, EngineErrorKind::Other, error))?;
        let options = CreateContainerOptions {
            name: Some(request.name.clone()),
            ..CreateContainerOptions::default()
        };
        let create = self.docker.create_container(Some(options), creation.body);
        let answer = call(OPERATION, name, SLOW_CALL_LIMIT, create)
            .await
            .map_err(|error| match error.kind {
                // Here the object people look for is the image, not the container.
                EngineErrorKind::ImageMissing => EngineError::new(
                    "find image",
                    &request.service.image,
                    EngineErrorKind::ImageMissing,
                    error.source,
                ),
                _ => error,
            })?;
        for (network, body) in creation.join_later {
            let connect = self.docker.connect_network(&network, body);
            call(
                "connect container to network",
                &network,
                SLOW_CALL_LIMIT,
                connect,
            )
            .await?;
        }
        Ok(ContainerId(answer.id))
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), EngineError> {
        let start = self
            .docker
            .start_container(&id.0, None::<StartContainerOptions>);
        call("start container", &id.0, SLOW_CALL_LIMIT, start).await
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Inspection, EngineError> {
        let inspect = self
            .docker
            .inspect_container(&id.0, None::<InspectContainerOptions>);
        let seen = call("inspect container", &id.0, CALL_LIMIT, inspect)
            .await
            .map(answers::inspection)?;
        if seen.state == RunState::Running {
            self.cgroup_of(id, seen.pid);
        } else {
            self.forget(&id.0);
        }
        Ok(seen)
    }

    async fn counters(&self, id: &ContainerId) -> Result<Counters, EngineError> {
        // The kernel's files take microseconds; the engine takes milliseconds of the host's CPU.
        let mut cgroup = self.known_cgroup(id);
        if cgroup.is_none() {
            let seen = self.inspect(id).await?;
            cgroup = self.cgroup_of(id, seen.pid);
        }
        if let Some(counters) = cgroup.and_then(|cgroup| cgroup.counters()) {
            return Ok(counters);
        }
        self.forget(&id.0);
        self.counters_by_api(id).await
    }

    async fn logs(&self, id: &ContainerId, last_lines: Option<u32>) -> Result<String, EngineError> {
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            tail: last_lines.map_or_else(|| "all".to_owned(), |n| n.to_string()),
            ..LogsOptions::default()
        };
        let collect = collect_output(self.docker.logs(&id.0, Some(options)));
        call("read logs of", &id.0, CALL_LIMIT, collect).await
    }

    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        deadline: Duration,
    ) -> Result<(i64, String), EngineError> {
        let object = format!("{} in {}", command.first().map_or("", String::as_str), id.0);
        let options = CreateExecOptions {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(command.to_vec()),
            ..CreateExecOptions::default()
        };
        let run = async {
            let exec = self.docker.create_exec(&id.0, options).await?;
            let started = self
                .docker
                .start_exec(&exec.id, None::<StartExecOptions>)
                .await?;
            let output = match started {
                StartExecResults::Attached { output, .. } => collect_output(output).await?,
                StartExecResults::Detached => String::new(),
            };
            let ended = self.docker.inspect_exec(&exec.id).await?;
            Ok((ended.exit_code, output))
        };
        match call("run", &object, deadline, run).await? {
            (Some(exit_code), output) => Ok((exit_code, output)),
            (None, _) => Err(EngineError::new(
                "run",
                object,
                EngineErrorKind::Other,
                "the command closed its output and goes on; its exit code is not known",
            )),
        }
    }

    async fn list_ours(&self, labels: &[String]) -> Result<Vec<Leftover>, EngineError> {
        let (containers, networks, volumes) = tokio::try_join!(
            self.list_containers(labels),
            self.list_networks(labels),
            self.list_volumes(labels),
        )?;
        Ok([containers, networks, volumes].concat())
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), EngineError> {
        let options = StopContainerOptions {
            signal: None,
            t: Some(i32::try_from(grace.as_secs()).unwrap_or(i32::MAX)),
        };
        let stop = self.docker.stop_container(&id.0, Some(options));
        call("stop container", &id.0, grace + SLOW_CALL_LIMIT, stop).await
    }

    async fn remove(&self, leftover: &Leftover) -> Result<(), EngineError> {
        let (id, limit) = (leftover.id.as_str(), SLOW_CALL_LIMIT);
        let removed = match leftover.kind {
            LeftoverKind::Container => {
                let options = RemoveContainerOptions {
                    force: true,
                    v: true,
                    link: false,
                };
                self.forget(id);
                let remove = self.docker.remove_container(id, Some(options));
                call("remove container", &leftover.name, limit, remove).await
            }
            LeftoverKind::Network => {
                let remove = self.docker.remove_network(id);
                call("remove network", &leftover.name, limit, remove).await
            }
            LeftoverKind::Volume => {
                let remove = self.docker.remove_volume(id, None::<RemoveVolumeOptions>);
                call("remove volume", &leftover.name, limit, remove).await
            }
        };
        match removed {
            Err(error) if error.kind == EngineErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn kernel_limits(&self, id: &ContainerId, seen: &Inspection) -> Option<KernelLimits> {
        (seen.state == RunState::Running)
            .then(|| self.cgroup_of(id, seen.pid))
            .flatten()
            .map(|cgroup| cgroup.limits())
    }

    async fn wait_for_exit(&self, id: &ContainerId) -> Result<(), EngineError> {
        let mut waiting = Box::pin(self.docker.wait_container(
            &id.0,
            Some(WaitContainerOptions {
                condition: "not-running".to_owned(),
            }),
        ));
        match waiting.next().await {
            // The library reports an exit code other than 0 as an error of its own.
            Some(Ok(_) | Err(bollard::errors::Error::DockerContainerWaitError { .. })) => Ok(()),
            Some(Err(error)) => Err(super::connection::failure("wait for", &id.0, error)),
            None => Err(EngineError::new(
                "wait for",
                &id.0,
                EngineErrorKind::Other,
                "the engine ended the answer without an exit code",
            )),
        }
    }
}

/// An image without a tag means `latest`; without one the API would pull every tag there is.
fn with_tag(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains(':') || name.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}
