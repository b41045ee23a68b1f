//! The engine's answers in our own words. Pure: no call, no clock.
//!
//! **Invariant**: a figure that the answer does not hold is missing, never 0.
//! Read `connection.rs` next for how answers and failures arrive.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, ContainerStatsResponse,
    HealthStatusEnum, HostConfig, ImageInspect, IpamConfig, PortMap, SystemInfo,
};
use indexmap::IndexMap;

use crate::engine::{Counters, Health, ImageFacts, ImageOrigin, Inspection, Limits, RunState};

/// One look at a container.
pub(super) fn inspection(answer: ContainerInspectResponse) -> Inspection {
    let state = answer.state.unwrap_or_default();
    let run_state = run_state(&state);
    let network = answer.network_settings.unwrap_or_default();
    let mut addresses: IndexMap<String, IpAddr> = network
        .networks
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, endpoint)| {
            let address = endpoint
                .ip_address
                .filter(|text| !text.is_empty())
                .or(endpoint.global_ipv6_address)?;
            Some((name, address.parse().ok()?))
        })
        .collect();
    addresses.sort_keys();
    Inspection {
        state: run_state,
        exit_code: (run_state == RunState::Exited)
            .then_some(state.exit_code)
            .flatten(),
        oom_killed: state.oom_killed.unwrap_or(false),
        restarts: answer.restart_count.unwrap_or(0),
        health: health(&state),
        limits: limits(&answer.host_config.unwrap_or_default()),
        addresses,
        published: network.ports.as_ref().map(published).unwrap_or_default(),
        pid: state.pid.unwrap_or(0),
        image_digest: answer.image.unwrap_or_default(),
        environment: answer
            .config
            .and_then(|config| config.env)
            .unwrap_or_default()
            .iter()
            .filter_map(|variable| variable.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}

fn run_state(state: &ContainerState) -> RunState {
    match state.status {
        Some(ContainerStateStatusEnum::CREATED) => RunState::Created,
        Some(ContainerStateStatusEnum::RUNNING | ContainerStateStatusEnum::RESTARTING) => {
            RunState::Running
        }
        Some(ContainerStateStatusEnum::PAUSED) => RunState::Paused,
        // Being removed, dead, or without a word: its process does not run.
        _ => RunState::Exited,
    }
}

fn health(state: &ContainerState) -> Health {
    let Some(health) = &state.health else {
        return Health::None;
    };
    let output = || {
        let last = health.log.as_ref().and_then(|log| log.last());
        last.map_or_else(String::new, |result| {
            let output = result.output.as_deref().unwrap_or_default().trim();
            match result.exit_code {
                Some(code) => format!("exit code {code}: {output}"),
                None => output.to_owned(),
            }
        })
    };
    match health.status {
        Some(HealthStatusEnum::STARTING) => Health::Starting(output()),
        Some(HealthStatusEnum::HEALTHY) => Health::Healthy,
        Some(HealthStatusEnum::UNHEALTHY) => Health::Unhealthy(output()),
        _ => Health::None,
    }
}

fn limits(host: &HostConfig) -> Limits {
    Limits {
        nano_cpus: host.nano_cpus.unwrap_or(0),
        cpu_quota_us: host.cpu_quota.unwrap_or(0),
        cpu_period_us: host.cpu_period.unwrap_or(0),
        cpuset: host.cpuset_cpus.clone().unwrap_or_default(),
        memory_bytes: host.memory.unwrap_or(0),
        pids: host.pids_limit.unwrap_or(0),
    }
}

fn published(ports: &PortMap) -> IndexMap<u16, SocketAddr> {
    let mut published: IndexMap<u16, SocketAddr> = ports
        .iter()
        .filter_map(|(inside, bindings)| {
            let inside = inside.split('/').next()?.parse().ok()?;
            let outside = bindings.iter().flatten().find_map(|binding| {
                let address: IpAddr = binding.host_ip.as_deref()?.parse().ok()?;
                let port: u16 = binding.host_port.as_deref()?.parse().ok()?;
                (port != 0).then(|| SocketAddr::new(address, port))
            })?;
            Some((inside, outside))
        })
        .collect();
    published.sort_keys();
    published
}

/// Facts of an image.
pub(super) fn image(answer: ImageInspect) -> ImageFacts {
    let config = answer.config.unwrap_or_default();
    let test = config.healthcheck.and_then(|check| check.test);
    let test = test.unwrap_or_default();
    let mut volumes = config.volumes.unwrap_or_default();
    volumes.sort();
    ImageFacts {
        digest: answer.id.unwrap_or_default(),
        repo_digests: answer.repo_digests.unwrap_or_default(),
        origin: ImageOrigin::Held,
        tagged_at: answer.metadata.and_then(|metadata| metadata.last_tag_time),
        size_bytes: answer
            .size
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or(0),
        platform: platform(answer.os, answer.architecture, answer.variant),
        has_healthcheck: test.first().is_some_and(|kind| kind != "NONE"),
        volumes,
    }
}

/// `os/arch[/variant]`; empty without an architecture.
fn platform(os: Option<String>, arch: Option<String>, variant: Option<String>) -> String {
    let Some(arch) = arch.filter(|arch| !arch.is_empty()) else {
        return String::new();
    };
    let os = os.filter(|os| !os.is_empty());
    let parts = [
        os,
        Some(arch),
        variant.filter(|variant| !variant.is_empty()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join("/")
}

/// Counters from the engine's own statistics; `None` for a container that does not run.
///
/// **Source**: Docker Engine API, `GET /containers/{id}/stats`. It answers zeros
/// for a stopped container. Throttled time is in nanoseconds with both versions
/// of control groups: the engine converts.
pub(super) fn counters(answer: &ContainerStatsResponse) -> Option<Counters> {
    let cpu = answer.cpu_stats.as_ref()?;
    let cpu_ns = cpu.cpu_usage.as_ref()?.total_usage.filter(|ns| *ns > 0)?;
    let throttling = cpu.throttling_data.clone().unwrap_or_default();
    let memory = answer.memory_stats.as_ref()?;
    let stats = memory.stats.as_ref();
    let inactive_file = stats
        .and_then(|stats| {
            stats
                .get("total_inactive_file")
                .or_else(|| stats.get("inactive_file"))
        })
        .copied()
        .unwrap_or(0);
    Some(Counters {
        cpu_ns,
        periods: throttling.periods.unwrap_or(0),
        throttled_periods: throttling.throttled_periods.unwrap_or(0),
        throttled_ns: throttling.throttled_time.unwrap_or(0),
        memory_bytes: memory.usage?.saturating_sub(inactive_file),
        memory_peak_bytes: memory.max_usage.filter(|bytes| *bytes > 0),
    })
}

/// The address of a network on the engine's host.
///
/// The default bridge does not say it until it was used once; it is then the
/// first one of its range.
pub(super) fn gateway(range: &IpamConfig) -> Option<IpAddr> {
    if let Some(gateway) = range.gateway.as_deref().filter(|text| !text.is_empty()) {
        return gateway.parse().ok();
    }
    let (network, _) = range.subnet.as_deref()?.split_once('/')?;
    let network: Ipv4Addr = network.parse().ok()?;
    Some(Ipv4Addr::from(u32::from(network).checked_add(1)?).into())
}

/// Whether the engine runs on this very kernel and in the host's own network:
/// neither in a virtual machine nor without root.
pub(super) fn is_native(info: &SystemInfo, our_kernel: &str) -> bool {
    let is_rootless = info
        .security_options
        .iter()
        .flatten()
        .any(|option| option.contains("rootless"));
    !is_rootless && !our_kernel.is_empty() && info.kernel_version.as_deref() == Some(our_kernel)
}

/// The variables of a process, from the bytes of `/proc/<pid>/environ`. **Source**: proc(5).
pub(super) fn environ(bytes: &[u8]) -> Vec<(String, String)> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|variable| {
            let text = String::from_utf8_lossy(variable);
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}
