//! The resolved stack: what one cell launches, with every default written out.
//!
//! Field names are those of the Compose specification, because this is what
//! `stack --json` prints. Nothing here knows YAML or Docker.

use std::time::Duration;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use super::namespaces::shared_service;
use super::surroundings::{Attachment, Mount, Network, Volume};

/// The services, networks and volumes that one trial starts.
///
/// **Shape**: services in file order; only those that are started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stack {
    /// The services to start, by Compose name.
    pub services: IndexMap<String, Service>,
    /// The networks they use, by Compose name; always at least one.
    pub networks: IndexMap<String, Network>,
    /// The named volumes they use, by Compose name. Each becomes the trial's own.
    pub volumes: IndexMap<String, Volume>,
    /// Services of the files that are not started.
    pub not_started: Vec<String>,
    /// What was changed or dropped by a stated rule, one sentence each.
    pub warnings: Vec<String>,
}

/// One container to be.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the switches are the Compose specification's own"
)]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Service {
    /// Image reference.
    pub image: String,
    /// Image by content, once it is known: what is launched, whatever the tag says by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// When the image is fetched, where the file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<PullPolicy>,
    /// How the image is made, where the file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// Containers of this service; `None` is one. A service with none is not started and
    /// in no stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Replaces the image's CMD; `None` keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Replaces the image's ENTRYPOINT; `None` keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// The variables the process gets.
    pub environment: IndexMap<String, String>,
    /// CPU quota. **Units**: cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// The same limit in its lower-level form: CPU time per period. **Units**: microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<i64>,
    /// Length of a period; `None` is 100,000. **Units**: microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_period: Option<i64>,
    /// Real-time CPU time per period. **Units**: microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_rt_runtime: Option<i64>,
    /// Length of a real-time period. **Units**: microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_rt_period: Option<i64>,
    /// CPUs the container may run on, as `0-1,3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Memory limit. **Units**: bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_limit: Option<u64>,
    /// Most processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// Share of CPU time against other containers when all want more; 1024 is one share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<i64>,
    /// Memory and swap together; -1 is no limit. **Units**: bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memswap_limit: Option<i64>,
    /// How readily the kernel swaps it out, from 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_swappiness: Option<i64>,
    /// Whether the kernel spares it when memory runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kill_disable: Option<bool>,
    /// How early the kernel kills it when memory runs out, from -1000 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i64>,
    /// Weights and limits of its block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blkio_config: Option<BlockIo>,
    /// Control group of the host that the container's own is put in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_parent: Option<String>,
    /// What must have happened to other services before this one starts.
    pub depends_on: IndexMap<String, Dependency>,
    /// The readiness test; `None` leaves the image's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
    /// Volumes, bind mounts and in-memory file systems, by target in file order.
    pub mounts: Vec<Mount>,
    /// Services whose volumes it sees too, each at the same place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes_from: Vec<VolumesFrom>,
    /// The networks it joins, with its names there.
    pub networks: IndexMap<String, Attachment>,
    /// `none`, `host`, `bridge` or `service:NAME`; `None` for the networks above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<String>,
    /// User and group the process runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Working folder of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Host name inside the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Size of /dev/shm. **Units**: bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<u64>,
    /// Whose inter-process communication it shares: `host`, `service:NAME`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipc: Option<String>,
    /// Whose process ids it shares: `host` or `service:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<String>,
    /// `host` for the host's own host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uts: Option<String>,
    /// `host` where user ids are not mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userns_mode: Option<String>,
    /// Whose control groups it sees: `host` or `private`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Domain part of the host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domainname: Option<String>,
    /// Runtime that starts the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Devices of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// GPUs and other devices that a driver hands out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<DeviceRequest>,
    /// Rules of access to devices, as `c 1:3 mr`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_cgroup_rules: Vec<String>,
    /// Options of the storage driver.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub storage_opt: IndexMap<String, String>,
    /// Resource limits of the process by name: soft and hard.
    pub ulimits: IndexMap<String, (i64, i64)>,
    /// Kernel settings of the container's namespaces.
    pub sysctls: IndexMap<String, String>,
    /// Lines for the hosts file, `name:address`.
    pub extra_hosts: Vec<String>,
    /// Capabilities added.
    pub cap_add: Vec<String>,
    /// Capabilities taken away.
    pub cap_drop: Vec<String>,
    /// Security options, such as `no-new-privileges:true`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    /// Further groups of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
    /// Name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Search domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_search: Vec<String>,
    /// Resolver options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_opt: Vec<String>,
    /// Memory the engine tries to leave it under pressure. **Units**: bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_reservation: Option<u64>,
    /// Image platform asked for, as `linux/amd64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Labels of the user's own.
    pub labels: IndexMap<String, String>,
    /// Annotations for the container's runtime.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub annotations: IndexMap<String, String>,
    /// Commands run in it once its process was started, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub post_start: Vec<Hook>,
    /// Whether an init process reaps children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<bool>,
    /// Whether the root file system is read only.
    pub read_only: bool,
    /// Whether the container has all rights of the host.
    pub privileged: bool,
    /// Whether a terminal is allotted.
    pub tty: bool,
    /// Whether standard input stays open.
    pub stdin_open: bool,
    /// Signal that stops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// How long it may take to stop before it is killed.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "seconds_opt"
    )]
    pub stop_grace_period: Option<Duration>,
}

impl Service {
    /// The services whose containers must exist before this one can be made.
    pub fn shares_with(&self) -> impl Iterator<Item = &str> {
        let modes = [&self.network_mode, &self.ipc, &self.pid];
        modes
            .into_iter()
            .filter_map(|mode| shared_service(mode.as_deref()?))
            .chain(self.volumes_from.iter().map(|source| &*source.service))
    }

    /// The CPU limit, whichever of its two forms it has. **Units**: cores.
    pub fn cpu_cores(&self) -> Option<f64> {
        let quota_us = || self.cpu_quota.filter(|quota| *quota > 0);
        self.cpus.or_else(|| {
            // The kernel's default period. **Source**: CFS bandwidth control.
            Some(quota_us()? as f64 / self.cpu_period.unwrap_or(100_000) as f64)
        })
    }

    /// What the engine is asked to launch: the content where it is known, else the name.
    pub fn launched_image(&self) -> &str {
        self.image_id.as_deref().unwrap_or(&self.image)
    }
}

/// When an image is fetched from its registry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// Where the engine does not hold it.
    #[default]
    Missing,
    /// Before every sweep.
    Always,
    /// At no time.
    Never,
    /// At no time: it is built.
    Build,
    /// Where it was tagged longer ago than this.
    Every(Duration),
}

impl Serialize for PullPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Missing => serializer.serialize_str("missing"),
            Self::Always => serializer.serialize_str("always"),
            Self::Never => serializer.serialize_str("never"),
            Self::Build => serializer.serialize_str("build"),
            Self::Every(age) => serializer.serialize_str(&format!("every_{}s", age.as_secs())),
        }
    }
}

/// How an image is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Build {
    /// Folder, absolute, or address that the build starts from.
    pub context: String,
    /// Whether the file names no image, so that the name is project and service.
    pub names_no_image: bool,
    /// File with the steps, from the context; `None` is `Dockerfile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// The steps themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile_inline: Option<String>,
    /// Stage to stop at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Values of the steps' arguments.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub args: IndexMap<String, String>,
    /// Labels of the image.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub labels: IndexMap<String, String>,
    /// Further folders or addresses, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub additional_contexts: IndexMap<String, String>,
    /// Network of the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Size of /dev/shm of the steps. **Units**: bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<u64>,
    /// Lines for the hosts file of the steps, `name:address`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    /// Platforms to make it for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<String>,
    /// Images whose layers may be used again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cache_from: Vec<String>,
    /// Whether every step is run, whatever was built before.
    #[serde(skip_serializing_if = "is_off")]
    pub no_cache: bool,
    /// Whether the images it starts from are fetched although the engine holds them.
    #[serde(skip_serializing_if = "is_off")]
    pub pull: bool,
    /// Place in the file, for messages.
    #[serde(skip)]
    pub place: String,
}

/// A device of the host inside a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Path on the host.
    pub source: String,
    /// Path inside the container.
    pub target: String,
    /// Some of `r`, `w` and `m` (make).
    pub permissions: String,
}

/// Devices that a driver of the engine hands out, such as GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeviceRequest {
    /// The driver; `None` is any that can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// How many; -1 is all. `None` where they are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Which ones, where they are named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_ids: Vec<String>,
    /// What they must be able to do, all of it.
    pub capabilities: Vec<String>,
    /// Options of the driver.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub options: IndexMap<String, String>,
}

/// Weights and limits of block devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BlockIo {
    /// Share of all devices against other containers, from 10 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// The same by device path.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub weight_device: IndexMap<String, u16>,
    /// Reading, by device path. **Units**: bytes per second.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub device_read_bps: IndexMap<String, u64>,
    /// Writing, by device path. **Units**: bytes per second.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub device_write_bps: IndexMap<String, u64>,
    /// Reads, by device path. **Units**: operations per second.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub device_read_iops: IndexMap<String, u64>,
    /// Writes, by device path. **Units**: operations per second.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub device_write_iops: IndexMap<String, u64>,
}

/// Another service whose volumes are seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VolumesFrom {
    /// The service.
    pub service: String,
    /// Whether they may only be read here.
    pub read_only: bool,
}

/// A command that is run inside a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// Program and arguments.
    pub command: Vec<String>,
    /// User it runs as; `None` is the container's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether it has all rights of the host.
    #[serde(skip_serializing_if = "is_off")]
    pub privileged: bool,
    /// Its folder; `None` is the container's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Variables beside those of the container.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub environment: IndexMap<String, String>,
}

/// What a dependant waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// The state to wait for.
    pub condition: Condition,
    /// Whether the dependant may start without it.
    pub required: bool,
}

/// A state of a service that another one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Its process runs.
    ServiceStarted,
    /// Its healthcheck passed.
    ServiceHealthy,
    /// It ran to its end with exit code 0.
    ServiceCompletedSuccessfully,
}

/// A readiness test that the engine runs inside the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Healthcheck {
    /// `["CMD", ...]`, `["CMD-SHELL", line]` or `["NONE"]`; empty keeps the image's test.
    pub test: Vec<String>,
    /// Time between two tests.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "seconds_opt"
    )]
    pub interval: Option<Duration>,
    /// Longest time of one test.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "seconds_opt"
    )]
    pub timeout: Option<Duration>,
    /// Failures do not count before this.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "seconds_opt"
    )]
    pub start_period: Option<Duration>,
    /// Time between two tests during the start period; needs an engine from 25 on.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "seconds_opt"
    )]
    pub start_interval: Option<Duration>,
    /// Failures in a row that make it unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field over as it is"
)]
pub(super) fn is_off(switch: &bool) -> bool {
    !*switch
}

#[expect(clippy::ref_option, reason = "serde hands the field over as it is")]
fn seconds_opt<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serializer.serialize_str(&format!("{}s", duration.as_secs_f64())),
        None => serializer.serialize_none(),
    }
}
