//! The calls themselves.
//!
//! Nothing here decides: order, waiting and clean-up are written over the trait.

use std::collections::HashMap;
use std::future::ready;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::models::SystemInfoCgroupVersionEnum;
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, EventsOptions, InspectContainerOptions,
    ListContainersOptions, ListImagesOptions, LogsOptions, RemoveContainerOptions,
    RemoveImageOptions, RemoveVolumeOptions, StartContainerOptions, StopContainerOptions,
    UploadToContainerOptions, WaitContainerOptions,
};
use futures_util::stream::{BoxStream, Stream, StreamExt};

use super::connection::{CALL_LIMIT, Reach, SLOW_CALL_LIMIT, call, failure};
use super::engine::{label_filter, leftover};
use super::{DockerEngine, answers, requests};
use crate::engine::{
    BuildRequest, ContainerId, ContainerRequest, Counters, Engine, EngineError, EngineErrorKind,
    HostFacts, ImageFacts, Inspection, KernelCpu, KernelLimits, Labels, Leftover, LeftoverKind,
    ProgressSink, PullRequest, RunState, VolumeFacts, find_cgroup,
};
use crate::stack::{Hook, Network, Volume};

/// Longest output kept of logs and commands: a chatty service must not fill our memory.
const LONGEST_TEXT_BYTES: usize = 8 * 1024 * 1024;

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
        let endpoint = self.endpoint.address.as_str();
        let info = call("describe", endpoint, CALL_LIMIT, self.docker.info());
        let version = call("describe", endpoint, CALL_LIMIT, self.docker.version());
        let (info, version, direct) = tokio::join!(info, version, self.is_direct());
        let (info, version) = (info?, version?);
        let our_kernel = fs_err::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let is_native = self.reach != Reach::Remote && answers::is_native(&info, our_kernel.trim());
        Ok(HostFacts {
            endpoint: endpoint.to_owned(),
            endpoint_reason: self.endpoint.reason.clone(),
            endpoint_passed_over: self.passed_over.clone(),
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
            // What does not say so is taken at its word when a container is made.
            has_cpusets: info.cpu_set.unwrap_or(true),
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

    async fn pull_image(
        &self,
        request: PullRequest<'_>,
        progress: ProgressSink<'_>,
    ) -> Result<(), EngineError> {
        self.pull(request, progress).await
    }

    async fn build_image(
        &self,
        request: BuildRequest<'_>,
        progress: ProgressSink<'_>,
    ) -> Result<(), EngineError> {
        self.build(request, progress).await
    }

    async fn import_image(
        &self,
        image: &str,
        archive: Vec<u8>,
        changes: &[String],
    ) -> Result<(), EngineError> {
        let (repo, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
        let options = CreateImageOptions {
            from_src: Some("-".to_owned()),
            repo: Some(repo.to_owned()),
            tag: Some(tag.to_owned()),
            changes: changes.to_vec(),
            ..CreateImageOptions::default()
        };
        let body = bollard::body_full(archive.into());
        let import = async {
            let mut progress = Box::pin(self.docker.create_image(Some(options), Some(body), None));
            while let Some(step) = progress.next().await {
                if let Some(message) = step?.error_detail.and_then(|detail| detail.message) {
                    return Err(bollard::errors::Error::DockerStreamError { error: message });
                }
            }
            Ok(())
        };
        call("import image", image, SLOW_CALL_LIMIT, import).await
    }

    async fn list_images(&self, label: &str) -> Result<Vec<Leftover>, EngineError> {
        let options = ListImagesOptions {
            filters: Some(label_filter(&[label.to_owned()])),
            ..ListImagesOptions::default()
        };
        let list = self.docker.list_images(Some(options));
        let images = call("list images", label, CALL_LIMIT, list).await?;
        let named = images.into_iter().flat_map(|image| {
            let labels = image.labels;
            let of_tag = move |tag: String| {
                leftover(LeftoverKind::Image, tag.clone(), tag, Some(labels.clone()))
            };
            let mut names = image.repo_tags;
            // One whose tag went to another image: older engines write so, newer ones nothing.
            names.retain(|tag| tag != "<none>:<none>");
            if names.is_empty() {
                names.push(image.id);
            }
            names.into_iter().map(of_tag)
        });
        Ok(named.collect())
    }

    async fn find_volume(&self, name: &str) -> Result<Option<VolumeFacts>, EngineError> {
        let inspect = self.docker.inspect_volume(name);
        let mountpoint = match call("find volume", name, CALL_LIMIT, inspect).await {
            Ok(volume) => volume.mountpoint,
            Err(error) if error.kind == EngineErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let options = ListContainersOptions {
            filters: Some(HashMap::from([(
                "volume".to_owned(),
                vec![name.to_owned()],
            )])),
            ..ListContainersOptions::default()
        };
        let list = self.docker.list_containers(Some(options));
        let containers = call("list containers with volume", name, CALL_LIMIT, list).await?;
        let names = containers
            .into_iter()
            .filter_map(|container| container.names?.into_iter().next())
            .map(|name| name.trim_start_matches('/').to_owned());
        Ok(Some(VolumeFacts {
            mountpoint,
            used_by: names.collect(),
        }))
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
            platform: request.service.platform.clone().unwrap_or_default(),
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
        for (path, archive) in creation.files {
            let options = UploadToContainerOptions {
                path,
                ..UploadToContainerOptions::default()
            };
            let body = bollard::body_full(archive.into());
            let put = self
                .docker
                .upload_to_container(&answer.id, Some(options), body);
            call("put files into container", name, SLOW_CALL_LIMIT, put).await?;
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
        let hook = Hook {
            command: command.to_vec(),
            ..Hook::default()
        };
        self.run_hook(id, &hook, deadline).await
    }

    async fn run_hook(
        &self,
        id: &ContainerId,
        hook: &Hook,
        deadline: Duration,
    ) -> Result<(i64, String), EngineError> {
        let program = hook.command.first().map_or("", String::as_str);
        let object = format!("{program} in {}", id.0);
        let variables = hook.environment.iter();
        let variables: Vec<String> = variables.map(|(k, v)| format!("{k}={v}")).collect();
        let options = CreateExecOptions {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(hook.command.clone()),
            env: Some(variables).filter(|variables| !variables.is_empty()),
            privileged: hook.privileged.then_some(true),
            user: hook.user.clone(),
            working_dir: hook.working_dir.clone(),
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
        // The engine answers when the container has ended: a long grace is no engine that hangs.
        let limit = grace + SLOW_CALL_LIMIT;
        let docker = self.docker.clone().with_timeout(limit);
        let stop = docker.stop_container(&id.0, Some(options));
        call("stop container", &id.0, limit, stop).await
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
            LeftoverKind::Image => {
                let remove = self
                    .docker
                    .remove_image(id, None::<RemoveImageOptions>, None);
                call("remove image", &leftover.name, limit, remove)
                    .await
                    .map(drop)
            }
            LeftoverKind::Volume => {
                let remove = self.docker.remove_volume(id, None::<RemoveVolumeOptions>);
                call("remove volume", &leftover.name, limit, remove).await
            }
        };
        match removed {
            Err(error)
                if matches!(
                    error.kind,
                    EngineErrorKind::NotFound | EngineErrorKind::ImageMissing
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    fn kernel_limits(&self, id: &ContainerId, seen: &Inspection) -> Option<KernelLimits> {
        (seen.state == RunState::Running)
            .then(|| self.cgroup_of(id, seen.pid))
            .flatten()
            .map(|cgroup| cgroup.limits())
    }

    fn kernel_cpu(&self, id: &ContainerId) -> Option<KernelCpu> {
        Some(self.known_cgroup(id)?.cpu_now())
    }

    fn process_environment(
        &self,
        id: &ContainerId,
        seen: &Inspection,
    ) -> Option<Vec<(String, String)>> {
        // The pid may be another host's: it must lead to a control group of this container.
        find_cgroup(seen.pid, id)?;
        let bytes = fs_err::read(format!("/proc/{}/environ", seen.pid)).ok()?;
        Some(answers::environ(&bytes))
    }

    fn news<'a>(&'a self, labels: &[String]) -> BoxStream<'a, ContainerId> {
        let filters = [
            ("type", vec!["container".to_owned()]),
            ("event", vec!["health_status".to_owned(), "die".to_owned()]),
            ("label", labels.to_vec()),
        ];
        let options = EventsOptions {
            since: None,
            until: None,
            filters: Some(filters.map(|(key, values)| (key.to_owned(), values)).into()),
        };
        self.docker
            .events(Some(options))
            // Without news there are looks: what broke the answer, they meet as well.
            .take_while(|event| ready(event.is_ok()))
            .filter_map(|event| ready(event.ok().and_then(|event| event.actor?.id)))
            .map(ContainerId)
            .boxed()
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
            Some(Err(error)) => Err(failure("wait for", &id.0, error)),
            None => Err(EngineError::new(
                "wait for",
                &id.0,
                EngineErrorKind::Other,
                "the engine ended the answer without an exit code",
            )),
        }
    }
}
