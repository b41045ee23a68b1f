//! Our requests in the engine's own form. Pure: no call, no clock.
//!
//! Everything a service says is passed on; what cannot be said in this form is
//! an error here and never dropped. Three things are ours and not the user's:
//! the restart policy is always `no` (a crash must be seen, not healed), our
//! labels win, and no port is published but the one the generator needs.
//! Read `answers.rs` next.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HealthConfig, HostConfig, Ipam,
    IpamConfig, Mount, MountTmpfsOptions, MountType, MountVolumeOptions, NetworkConnectRequest,
    NetworkCreateRequest, NetworkingConfig, PortBinding, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum, VolumeCreateRequest,
};
use indexmap::IndexMap;

use crate::engine::proof::nano_cpus;
use crate::engine::trial::OUR_LABELS;
use crate::engine::{ContainerRequest, Labels};
use crate::stack::{Attachment, Healthcheck, MountSource, Network, Service, Volume};

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
    let published = request.publish_port.map(|port| format!("{port}/tcp"));
    let network_mode = match (&service.network_mode, &first) {
        (Some(mode), _) => mode.clone(),
        (None, Some((network, _))) => network.clone(),
        (None, None) => "none".to_owned(),
    };
    let body = ContainerCreateBody {
        hostname: service.hostname.clone(),
        user: service.user.clone(),
        exposed_ports: published.clone().map(|port| vec![port]),
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
        image: Some(service.image.clone()),
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
    Ok(Creation { body, join_later })
}

fn host_config(
    request: &ContainerRequest<'_>,
    network_mode: String,
    published: Option<String>,
) -> Result<HostConfig, RequestError> {
    let service = request.service;
    Ok(HostConfig {
        nano_cpus: service.cpus.map(nano_cpus),
        cpuset_cpus: service.cpuset.clone(),
        memory: bytes("mem_limit", service.mem_limit)?,
        pids_limit: service.pids_limit,
        shm_size: bytes("shm_size", service.shm_size)?,
        mounts: Some(mounts(request)?),
        ulimits: Some(ulimits(service)),
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
        port_bindings: published.map(|port| {
            let loopback = PortBinding {
                host_ip: Some("127.0.0.1".to_owned()),
                // Empty: the engine picks a free one.
                host_port: Some(String::new()),
            };
            HashMap::from([(port, Some(vec![loopback]))])
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        ..HostConfig::default()
    })
}

fn bytes(key: &'static str, value: Option<u64>) -> Result<Option<i64>, RequestError> {
    value
        .map(|value| i64::try_from(value).map_err(|_| RequestError::TooLarge { key, value }))
        .transpose()
}

fn whole_seconds(duration: Duration) -> i64 {
    // Rounded up: half a second of grace must not become none.
    i64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
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
        start_interval: None,
    }
}

fn ulimits(service: &Service) -> Vec<ResourcesUlimits> {
    service
        .ulimits
        .iter()
        .map(|(name, (soft, hard))| ResourcesUlimits {
            name: Some(name.clone()),
            soft: Some(*soft),
            hard: Some(*hard),
        })
        .collect()
}

fn mounts(request: &ContainerRequest<'_>) -> Result<Vec<Mount>, RequestError> {
    request
        .service
        .mounts
        .iter()
        .map(|mount| {
            let mut out = Mount {
                target: Some(mount.target.clone()),
                read_only: Some(mount.read_only),
                ..Mount::default()
            };
            match &mount.source {
                MountSource::Volume { source } => {
                    let name = request
                        .volumes
                        .get(source)
                        .ok_or_else(|| not_made("volume", source))?;
                    out.typ = Some(MountType::VOLUME);
                    out.source = Some(name.clone());
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
                MountSource::Tmpfs { size, mode } => {
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
    EndpointSettings {
        aliases: Some(attachment.aliases.clone()),
        ipam_config: attachment
            .ipv4_address
            .clone()
            .map(|address| EndpointIpamConfig {
                ipv4_address: Some(address),
                ..EndpointIpamConfig::default()
            }),
        ..EndpointSettings::default()
    }
}

/// The body that makes a network.
pub(super) fn network(name: &str, network: &Network, labels: &Labels) -> NetworkCreateRequest {
    let ranges = network.subnets.iter().map(|subnet| IpamConfig {
        subnet: Some(subnet.clone()),
        ..IpamConfig::default()
    });
    NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        internal: Some(network.internal),
        ipam: (!network.subnets.is_empty()).then(|| Ipam {
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
