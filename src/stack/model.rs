//! The resolved stack: what one cell launches, with every default written out.
//!
//! Field names are those of the Compose specification, because this is what
//! `stack --json` prints. Nothing here knows YAML or Docker.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

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
    /// CPUs the container may run on, as `0-1,3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Memory limit. **Units**: bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_limit: Option<u64>,
    /// Most processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// What must have happened to other services before this one starts.
    pub depends_on: IndexMap<String, Dependency>,
    /// The readiness test; `None` leaves the image's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
    /// Volumes, bind mounts and in-memory file systems, by target in file order.
    pub mounts: Vec<Mount>,
    /// The networks it joins, with its names there.
    pub networks: IndexMap<String, Attachment>,
    /// `none` when it joins no network; `None` for the networks above.
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
    /// Failures in a row that make it unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

/// Something mounted into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Where it is seen inside the container.
    pub target: String,
    /// What it is.
    #[serde(flatten)]
    pub source: MountSource,
    /// Whether the container may only read it.
    pub read_only: bool,
}

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MountSource {
    /// A named volume of the stack; the trial gets its own.
    Volume {
        /// Key in [`Stack::volumes`].
        source: String,
    },
    /// A volume without a name, new for each container.
    Anonymous,
    /// A file or folder of the host. Always read only unless the user shares it.
    Bind {
        /// Absolute path on the host.
        source: PathBuf,
    },
    /// A file system in memory.
    Tmpfs {
        /// Largest size; `None` is the kernel's default. **Units**: bytes.
        size: Option<u64>,
        /// Permission bits of its root.
        mode: Option<u32>,
    },
}

/// How a service takes part in a network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Attachment {
    /// Names it answers to there: always its service name, then `container_name` and aliases.
    pub aliases: Vec<String>,
    /// Fixed IPv4 address, where the file asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_address: Option<String>,
}

/// A network of the stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Whether it has no way out of the host.
    pub internal: bool,
    /// Address ranges in CIDR form, where the file fixes them.
    pub subnets: Vec<String>,
    /// Driver options.
    pub driver_opts: IndexMap<String, String>,
}

/// A named volume of the stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// Engine-wide name of a volume of the user's, which they listed as shared:
    /// mounted as it is, never created and never removed. `None` is the trial's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// Driver options, for volumes that are really tmpfs or the like.
    pub driver_opts: IndexMap<String, String>,
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
