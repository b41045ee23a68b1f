//! Our requests in the engine's own form. Pure: no call, no clock.
//!
//! Everything a service says is passed on; what cannot be said in this form is
//! an error here and never dropped. Three things are ours and not the user's:
//! the restart policy is always `no` (a crash must be seen, not healed), our
//! labels win, and no port is published but those the generator and the proofs need.
//! Read `answers.rs` next.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HealthConfig, HostConfig,
    HostConfigCgroupnsModeEnum, Ipam, IpamConfig, Mount, MountTmpfsOptions, MountType,
    MountVolumeOptions, NetworkConnectRequest, NetworkCreateRequest, NetworkingConfig, PortBinding,
    RestartPolicy, RestartPolicyNameEnum, VolumeCreateRequest,
};
use indexmap::IndexMap;

use super::{files, resources};
use crate::engine::proof::nano_cpus;
use crate::engine::trial::OUR_LABELS;
use crate::engine::{ContainerId, ContainerRequest, Labels};
use crate::stack::{
    Attachment, Healthcheck, MountSource, Network, Service, Stack, Volume, shared_service,
};

/// A request that the engine's form has no words for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// The engine takes an empty command for 'keep the image's'.
    #[error(
        "`command` is empty and there is no `entrypoint`: the engine cannot express it, \
         give the command to run"
    )]
    EmptyCommand,
    /// The stack's model contradicts itself.
    #[error("the {what} `{name}` is used and was not made for this trial")]
    NotMade {
        /// Volume or network.
        what: &'static str,
        /// Its Compose name.
        name: String,
    },
    /// A file with content of the stack's own that could not be put where it belongs.
    #[error("the config or secret at `{target}` has its content in the Compose file, and {why}")]
    FileOutOfReach {
        /// Where it is to be seen.
        target: String,
        /// Why it cannot be.
        why: &'static str,
    },
    /// A number beyond what the engine's form can hold.
    #[error("`{key}` is {value}, more than the engine can take")]
    TooLarge {
        /// The Compose key.
        key: &'static str,
        /// The value.
        value: u64,
    },
}

/// A container's creation: the body, and the networks to join afterwards.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) body: ContainerCreateBody,
    /// Engine network name and settings. The API takes one network at creation
    /// before its version 1.44; the others are joined before the start.
    pub(super) join_later: Vec<(String, NetworkConnectRequest)>,
    /// Archives of files to put in before the start, each with the folder it starts from.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

/// The body that makes a container.
pub(super) fn container(request: &ContainerRequest<'_>) -> Result<Creation, RequestError> {
    let service = request.service;
    if service.command.as_ref().is_some_and(Vec::is_empty) && service.entrypoint.is_none() {
        return Err(RequestError::EmptyCommand);
    }
    let mut endpoints = endpoints(request)?;
    let first = (!endpoints.is_empty()).then(|| endpoints.remove(0));
    // A user's label that looks like ours could hide the container from its own removal.
    let users = service
        .labels
        .iter()
        .filter(|(name, _)| !OUR_LABELS.contains(&name.as_str()));
    let mut labels: HashMap<String, String> = users.map(|(k, v)| (k.clone(), v.clone())).collect();
    labels.extend(request.labels.clone());
    let published: Vec<String> = request
        .publish_ports
        .iter()
        .map(|port| format!("{port}/tcp"))
        .collect();
    let network_mode = match (&service.network_mode, &first) {
        (Some(mode), _) => shared_with(mode, request)?,
        (None, Some((network, _))) => network.clone(),
        (None, None) => "none".to_owned(),
    };
    let body = ContainerCreateBody {
        hostname: service.hostname.clone(),
        domainname: service.domainname.clone(),
        user: service.user.clone(),
        exposed_ports: (!published.is_empty()).then(|| published.clone()),
        tty: Some(service.tty),
        open_stdin: Some(service.stdin_open),
        env: Some(
            service
                .environment
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        cmd: service.command.clone(),
        healthcheck: service.healthcheck.as_ref().map(healthcheck),
        image: Some(service.launched_image().to_owned()),
        working_dir: service.working_dir.clone(),
        entrypoint: service.entrypoint.as_ref().map(|words| {
            // One empty word is the API's way to clear the image's entrypoint.
            if words.is_empty() {
                vec![String::new()]
            } else {
                words.clone()
            }
        }),
        labels: Some(labels),
        stop_signal: service.stop_signal.clone(),
        stop_timeout: service.stop_grace_period.map(whole_seconds),
        host_config: Some(host_config(request, network_mode, published)?),
        networking_config: first.map(|(network, settings)| NetworkingConfig {
            endpoints_config: Some(HashMap::from([(network, settings)])),
        }),
        ..ContainerCreateBody::default()
    };
    let join_later = endpoints
        .into_iter()
        .map(|(network, settings)| {
            let connect = NetworkConnectRequest {
                container: request.name.clone(),
                endpoint_config: Some(settings),
            };
            (network, connect)
        })
        .collect();
    Ok(Creation {
        body,
        join_later,
        files: files::archives(service)?,
    })
}

/// A mode as the engine takes it: another service is its container.
fn shared_with(mode: &str, request: &ContainerRequest<'_>) -> Result<String, RequestError> {
    match shared_service(mode) {
        Some(service) => Ok(format!("container:{}", container_of(service, request)?.0)),
        None => Ok(mode.to_owned()),
    }
}

fn container_of<'r>(
    service: &str,
    request: &'r ContainerRequest<'_>,
) -> Result<&'r ContainerId, RequestError> {
    request
        .containers
        .get(service)
        .and_then(|containers| containers.first())
        .ok_or_else(|| not_made("container of the service", service))
}

/// Whether every request of a stack can be said in the engine's form: each service
/// with what it cannot, before anything is created.
pub(in crate::engine) fn rehearse(stack: &Stack) -> Vec<(&str, String)> {
    let same = |name: &String| (name.clone(), name.clone());
    let (labels, networks, volumes) = (
        Labels::new(),
        stack.networks.keys().map(same).collect(),
        stack.volumes.keys().map(same).collect(),
    );
    let containers = stack.services.keys();
    let containers = containers
        .map(|name| (name.clone(), vec![ContainerId(name.clone())]))
        .collect();
    let attempts = stack.services.iter().map(|(name, service)| {
        let attempt = container(&ContainerRequest {
            name: name.clone(),
            service,
            networks: &networks,
            volumes: &volumes,
            containers: &containers,
            labels: &labels,
            image_volumes: &[],
            publish_ports: Vec::new(),
        });
        (name.as_str(), attempt)
    });
    attempts
        .filter_map(|(name, attempt)| Some((name, attempt.err()?.to_string())))
        .collect()
}

fn host_config(
    request: &ContainerRequest<'_>,
    network_mode: String,
    published: Vec<String>,
) -> Result<HostConfig, RequestError> {
    let service = request.service;
    let mode = |mode: &Option<String>| {
        let mode = mode.as_deref();
        mode.map(|mode| shared_with(mode, request)).transpose()
    };
    let host = HostConfig {
        nano_cpus: service.cpus.map(nano_cpus),
        cpu_quota: service.cpu_quota,
        cpu_period: service.cpu_period,
        cpu_realtime_runtime: service.cpu_rt_runtime,
        cpu_realtime_period: service.cpu_rt_period,
        cgroup_parent: service.cgroup_parent.clone(),
        annotations: Some(hashed(&service.annotations)).filter(|map| !map.is_empty()),
        volumes_from: volumes_from(request)?,
        device_requests: (!service.gpus.is_empty())
            .then(|| service.gpus.iter().map(resources::gpu).collect()),
        cpu_shares: service.cpu_shares,
        memory_swap: service.memswap_limit,
        memory_swappiness: service.mem_swappiness,
        oom_kill_disable: service.oom_kill_disable,
        oom_score_adj: service.oom_score_adj,
        ipc_mode: mode(&service.ipc)?,
        pid_mode: mode(&service.pid)?,
        uts_mode: service.uts.clone(),
        userns_mode: service.userns_mode.clone(),
        cgroupns_mode: service.cgroup.as_deref().map(cgroup_namespace),
        runtime: service.runtime.clone(),
        devices: (!service.devices.is_empty())
            .then(|| service.devices.iter().map(resources::device).collect()),
        device_cgroup_rules: Some(service.device_cgroup_rules.clone())
            .filter(|rules| !rules.is_empty()),
        storage_opt: Some(hashed(&service.storage_opt)).filter(|options| !options.is_empty()),
        tmpfs: Some(memory_file_systems(service)).filter(|mounts| !mounts.is_empty()),
        cpuset_cpus: service.cpuset.clone(),
        memory: bytes("mem_limit", service.mem_limit)?,
        pids_limit: service.pids_limit,
        shm_size: bytes("shm_size", service.shm_size)?,
        mounts: Some(mounts(request)?),
        ulimits: Some(resources::ulimits(service)),
        sysctls: Some(service.sysctls.clone().into_iter().collect()),
        extra_hosts: Some(service.extra_hosts.clone()),
        cap_add: Some(service.cap_add.clone()),
        cap_drop: Some(service.cap_drop.clone()),
        security_opt: Some(service.security_opt.clone()),
        group_add: Some(service.group_add.clone()),
        dns: Some(service.dns.clone()),
        dns_search: Some(service.dns_search.clone()),
        dns_options: Some(service.dns_opt.clone()),
        memory_reservation: bytes("mem_reservation", service.mem_reservation)?,
        init: service.init,
        readonly_rootfs: Some(service.read_only),
        privileged: Some(service.privileged),
        network_mode: Some(network_mode),
        port_bindings: (!published.is_empty()).then(|| {
            let loopback = PortBinding {
                host_ip: Some("127.0.0.1".to_owned()),
                // Empty: the engine picks a free one.
                host_port: Some(String::new()),
            };
            let bind = |port| (port, Some(vec![loopback.clone()]));
            published.into_iter().map(bind).collect()
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        ..HostConfig::default()
    };
    resources::add_block_io(host, service.blkio_config.as_ref())
}

fn volumes_from(request: &ContainerRequest<'_>) -> Result<Option<Vec<String>>, RequestError> {
    let sources = request.service.volumes_from.iter().map(|source| {
        let container = &container_of(&source.service, request)?.0;
        let mode = if source.read_only { "ro" } else { "rw" };
        Ok(format!("{container}:{mode}"))
    });
    let sources: Vec<String> = sources.collect::<Result<_, RequestError>>()?;
    Ok(Some(sources).filter(|sources| !sources.is_empty()))
}

pub(super) fn bytes(key: &'static str, value: Option<u64>) -> Result<Option<i64>, RequestError> {
    value
        .map(|value| i64::try_from(value).map_err(|_| RequestError::TooLarge { key, value }))
        .transpose()
}

fn whole_seconds(duration: Duration) -> i64 {
    // Rounded up: half a second of grace must not become none.
    i64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

fn cgroup_namespace(mode: &str) -> HostConfigCgroupnsModeEnum {
    match mode {
        "host" => HostConfigCgroupnsModeEnum::HOST,
        _ => HostConfigCgroupnsModeEnum::PRIVATE,
    }
}

/// File systems in memory with options that the API's mounts have no words for.
fn memory_file_systems(service: &Service) -> HashMap<String, String> {
    let with_options = |mount: &crate::stack::Mount| {
        let MountSource::Tmpfs {
            size,
            mode,
            options,
        } = &mount.source
        else {
            return None;
        };
        let access = if mount.read_only { "ro" } else { "rw" };
        let words = std::iter::once(access.to_owned())
            .chain(size.map(|bytes| format!("size={bytes}")))
            .chain(mode.map(|bits| format!("mode={bits:o}")))
            .chain(options.iter().cloned());
        let is_plain = options.is_empty();
        (!is_plain).then(|| (mount.target.clone(), words.collect::<Vec<_>>().join(",")))
    };
    service.mounts.iter().filter_map(with_options).collect()
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn healthcheck(check: &Healthcheck) -> HealthConfig {
    HealthConfig {
        test: (!check.test.is_empty()).then(|| check.test.clone()),
        interval: check.interval.map(nanoseconds),
        timeout: check.timeout.map(nanoseconds),
        retries: check.retries.map(i64::from),
        start_period: check.start_period.map(nanoseconds),
        start_interval: check.start_interval.map(nanoseconds),
    }
}

fn mounts(request: &ContainerRequest<'_>) -> Result<Vec<Mount>, RequestError> {
    files::check(request.service)?;
    let secrets = files::needs_secrets_volume(request.service).then(|| crate::stack::Mount {
        target: files::secrets_folder(),
        source: MountSource::Anonymous,
        read_only: false,
    });
    let of_image = volumes_of_image(request);
    request
        .service
        .mounts
        .iter()
        .chain(&secrets)
        .chain(&of_image)
        .filter(|mount| !has_tmpfs_options(mount) && !is_content(mount))
        .map(|mount| {
            let mut out = Mount {
                target: Some(mount.target.clone()),
                read_only: Some(mount.read_only),
                ..Mount::default()
            };
            match &mount.source {
                MountSource::Volume { source, nocopy } => {
                    let name = request
                        .volumes
                        .get(source)
                        .ok_or_else(|| not_made("volume", source))?;
                    out.typ = Some(MountType::VOLUME);
                    out.source = Some(name.clone());
                    out.volume_options = nocopy.then(|| MountVolumeOptions {
                        no_copy: Some(true),
                        ..MountVolumeOptions::default()
                    });
                }
                MountSource::Anonymous => {
                    out.typ = Some(MountType::VOLUME);
                    // Labelled like everything else, should its container vanish without it.
                    out.volume_options = Some(MountVolumeOptions {
                        labels: Some(request.labels.clone().into_iter().collect()),
                        ..MountVolumeOptions::default()
                    });
                }
                MountSource::Bind { source } => {
                    out.typ = Some(MountType::BIND);
                    out.source = Some(source.to_string_lossy().into_owned());
                }
                // Filtered out above: a file that is put in, and no mount.
                MountSource::Content { .. } => {}
                MountSource::Tmpfs { size, mode, .. } => {
                    out.typ = Some(MountType::TMPFS);
                    out.tmpfs_options = Some(MountTmpfsOptions {
                        size_bytes: bytes("tmpfs size", *size)?,
                        mode: mode.map(i64::from),
                        options: None,
                    });
                }
            }
            Ok(out)
        })
        .collect()
}

/// Volumes that the image declares and nothing is mounted at, asked for by ourselves.
///
/// The engine would make them too, but without labels: when a container is removed by
/// somebody else, nobody would ever find them again.
fn volumes_of_image(request: &ContainerRequest<'_>) -> Vec<crate::stack::Mount> {
    let service = request.service;
    // What another container has there is taken over, and only the engine knows what that is.
    if !service.volumes_from.is_empty() {
        return Vec::new();
    }
    let is_taken = |folder: &str| {
        let same = |mount: &crate::stack::Mount| {
            mount.target.trim_end_matches('/') == folder.trim_end_matches('/')
        };
        service.mounts.iter().any(same)
    };
    let folders = request.image_volumes.iter();
    folders
        .filter(|folder| !is_taken(folder))
        .map(|folder| crate::stack::Mount {
            target: folder.clone(),
            source: MountSource::Anonymous,
            read_only: false,
        })
        .collect()
}

/// Such a mount is passed on by [`memory_file_systems`].
fn has_tmpfs_options(mount: &crate::stack::Mount) -> bool {
    matches!(&mount.source, MountSource::Tmpfs { options, .. } if !options.is_empty())
}

/// Such a file is put in by the archives of [`files::archives`].
fn is_content(mount: &crate::stack::Mount) -> bool {
    matches!(mount.source, MountSource::Content { .. })
}

fn not_made(what: &'static str, name: &str) -> RequestError {
    RequestError::NotMade {
        what,
        name: name.to_owned(),
    }
}

fn endpoints(
    request: &ContainerRequest<'_>,
) -> Result<Vec<(String, EndpointSettings)>, RequestError> {
    if request.service.network_mode.is_some() {
        return Ok(Vec::new());
    }
    request
        .service
        .networks
        .iter()
        .map(|(name, attachment)| {
            let network = request
                .networks
                .get(name)
                .ok_or_else(|| not_made("network", name))?;
            Ok((network.clone(), endpoint(attachment)))
        })
        .collect()
}

fn endpoint(attachment: &Attachment) -> EndpointSettings {
    let has_address = attachment.ipv4_address.is_some()
        || attachment.ipv6_address.is_some()
        || !attachment.link_local_ips.is_empty();
    EndpointSettings {
        aliases: Some(attachment.aliases.clone()),
        mac_address: attachment.mac_address.clone(),
        driver_opts: Some(hashed(&attachment.driver_opts)).filter(|map| !map.is_empty()),
        ipam_config: has_address.then(|| EndpointIpamConfig {
            ipv4_address: attachment.ipv4_address.clone(),
            ipv6_address: attachment.ipv6_address.clone(),
            link_local_ips: Some(attachment.link_local_ips.clone())
                .filter(|addresses| !addresses.is_empty()),
        }),
        ..EndpointSettings::default()
    }
}

/// The body that makes a network.
pub(super) fn network(name: &str, network: &Network, labels: &Labels) -> NetworkCreateRequest {
    let ranges = network.ipam.iter().map(|range| IpamConfig {
        subnet: range.subnet.clone(),
        ip_range: range.ip_range.clone(),
        gateway: range.gateway.clone(),
        auxiliary_addresses: Some(hashed(&range.aux_addresses)).filter(|taken| !taken.is_empty()),
    });
    NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        internal: Some(network.internal),
        enable_ipv6: network.enable_ipv6.then_some(true),
        ipam: (!network.ipam.is_empty()).then(|| Ipam {
            config: Some(ranges.collect()),
            ..Ipam::default()
        }),
        options: Some(hashed(&network.driver_opts)),
        labels: Some(hashed(labels)),
        ..NetworkCreateRequest::default()
    }
}

/// The body that makes a volume.
pub(super) fn volume(name: &str, volume: &Volume, labels: &Labels) -> VolumeCreateRequest {
    VolumeCreateRequest {
        name: Some(name.to_owned()),
        driver: Some("local".to_owned()),
        driver_opts: Some(hashed(&volume.driver_opts)),
        labels: Some(hashed(labels)),
        ..VolumeCreateRequest::default()
    }
}

fn hashed(map: &IndexMap<String, String>) -> HashMap<String, String> {
    map.clone().into_iter().collect()
}
