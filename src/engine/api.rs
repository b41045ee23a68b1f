//! What nightsweep asks of a container engine, in its own words.
//!
//! The trait is a thin list of single operations, so that a fake can script
//! each of them and keep a log of the calls. What is built from them (start
//! order, readiness, read-back, clean-up) is written once over the trait.
//! bollard stays behind it, in `docker/`. Read `trial.rs` next.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use indexmap::IndexMap;
use serde::Serialize;

use super::EngineError;
use super::cgroup::{KernelCpu, KernelLimits};
use super::images::{BuildSource, Credentials, ProgressSink};
use super::probe::{self, Page, ProbeAnswer, ProbeFailure, ReadyProbe};
use crate::stack::{Build, Hook, Network, Service, Volume};

/// Labels of everything one trial creates.
pub type Labels = IndexMap<String, String>;

/// Identifier the engine gave a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId(pub String);

/// A container to create. Names are ours and unique to the trial.
#[derive(Debug, Clone)]
pub struct ContainerRequest<'a> {
    /// Engine-wide name.
    pub name: String,
    /// The resolved service.
    pub service: &'a Service,
    /// Compose network name to engine network name.
    pub networks: &'a IndexMap<String, String>,
    /// Compose volume name to engine volume name.
    pub volumes: &'a IndexMap<String, String>,
    /// Containers made before this one, by service: those it shares something with.
    pub containers: &'a IndexMap<String, Vec<ContainerId>>,
    /// Folders for which its image declares a volume.
    pub image_volumes: &'a [String],
    /// Labels to carry, its volumes without a name too.
    pub labels: &'a Labels,
    /// Container ports to publish on ephemeral ports of the loopback address.
    pub publish_ports: Vec<u16>,
}

/// What a container is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Created, not yet started.
    Created,
    /// Its process runs.
    Running,
    /// Its process was frozen from outside.
    Paused,
    /// Its process ended.
    Exited,
}

/// What its healthcheck says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It has none.
    None,
    /// Not yet decided; the last test's output.
    Starting(String),
    /// Passing.
    Healthy,
    /// Failing; the last test's output.
    Unhealthy(String),
}

/// CPU, memory and process limits as the engine holds them now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// CPU quota in billionths of a core; 0 is none.
    pub nano_cpus: i64,
    /// CPU quota per period from the lower-level pair; 0 is none. **Units**: microseconds.
    pub cpu_quota_us: i64,
    /// Period of the above; 0 is the default of 100,000. **Units**: microseconds.
    pub cpu_period_us: i64,
    /// CPUs it may run on; empty is all.
    pub cpuset: String,
    /// Memory limit; 0 is none. **Units**: bytes.
    pub memory_bytes: i64,
    /// Process limit; 0 or less is none.
    pub pids: i64,
}

/// One look at a container.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// What it is doing.
    pub state: RunState,
    /// Exit code, once exited.
    pub exit_code: Option<i64>,
    /// Whether the kernel killed it for memory.
    pub oom_killed: bool,
    /// Restarts the engine made.
    pub restarts: i64,
    /// What its healthcheck says.
    pub health: Health,
    /// Its limits as the engine holds them.
    pub limits: Limits,
    /// Its addresses by engine network name.
    pub addresses: IndexMap<String, IpAddr>,
    /// Where its published ports are reached, by container port.
    pub published: IndexMap<u16, SocketAddr>,
    /// Its first process on the host; 0 when not running.
    pub pid: i64,
    /// Image it was made from, by content.
    pub image_digest: String,
    /// Variables it was made with, the image's own included.
    pub environment: Vec<(String, String)>,
}

/// Counters of a container since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// CPU time used. **Units**: nanoseconds.
    pub cpu_ns: u64,
    /// Quota periods that passed.
    pub periods: u64,
    /// Quota periods in which it was stopped for having used its quota.
    pub throttled_periods: u64,
    /// Time it stood still for the quota. **Units**: nanoseconds.
    pub throttled_ns: u64,
    /// Memory in use now. **Units**: bytes.
    pub memory_bytes: u64,
    /// Most memory in use so far, where the engine tells. **Units**: bytes.
    pub memory_peak_bytes: Option<u64>,
}

/// The engine and its host, as a manifest records them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HostFacts {
    /// Where the engine was reached.
    pub endpoint: String,
    /// Which rule named that place.
    pub endpoint_reason: String,
    /// Places that were named or tried and not taken, each with why.
    pub endpoint_passed_over: Vec<String>,
    /// Engine version.
    pub engine_version: String,
    /// API version agreed on.
    pub api_version: String,
    /// Cores the engine can hand out.
    pub cpus: u32,
    /// Memory of the engine's host. **Units**: bytes.
    pub memory_bytes: u64,
    /// `1` or `2`.
    pub cgroup_version: String,
    /// Operating system of the engine's host.
    pub operating_system: String,
    /// Its kernel.
    pub kernel: String,
    /// Architecture, as `x86_64`.
    pub architecture: String,
    /// Storage driver.
    pub storage_driver: String,
    /// Whether a container can be confined to given CPUs.
    pub has_cpusets: bool,
    /// Whether container addresses can be reached from here.
    pub direct: bool,
    /// Whether a port published on the engine's loopback address is reached from here.
    pub local: bool,
}

/// An image the engine holds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ImageFacts {
    /// Content digest of its configuration: the id that containers are launched by.
    pub digest: String,
    /// `repository@digest` by which registries know it; empty for one that was never in any.
    pub repo_digests: Vec<String>,
    /// How the sweep came by it.
    pub origin: ImageOrigin,
    /// When the engine last gave it a tag, RFC 3339; `None` where it does not tell.
    #[serde(skip)]
    pub tagged_at: Option<String>,
    /// Size on disk. **Units**: bytes.
    pub size_bytes: u64,
    /// What it runs on, as `linux/amd64` or `linux/arm/v7`; empty where it does not say.
    pub platform: String,
    /// Whether it brings a healthcheck of its own.
    pub has_healthcheck: bool,
    /// Folders for which it declares a volume.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

/// How a sweep came by an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageOrigin {
    /// The engine held it.
    #[default]
    Held,
    /// It was pulled.
    Pulled,
    /// It is built from the Compose file, now or by an earlier run.
    Built,
}

/// An image to pull.
#[derive(Debug, Clone, Copy)]
pub struct PullRequest<'a> {
    /// Its name.
    pub image: &'a str,
    /// Platform, where one is asked for.
    pub platform: Option<&'a str>,
    /// What its registry is told.
    pub credentials: Option<&'a Credentials>,
}

/// An image to build.
#[derive(Debug, Clone, Copy)]
pub struct BuildRequest<'a> {
    /// What it is called in messages.
    pub words: &'a str,
    /// Name it gets.
    pub tag: &'a str,
    /// Options of the Compose file.
    pub build: &'a Build,
    /// Platform, where one is asked for.
    pub platform: Option<&'a str>,
    /// The steps' path in the context.
    pub dockerfile: &'a str,
    /// What the steps work on.
    pub source: &'a BuildSource,
    /// Labels to carry, the user's and ours.
    pub labels: &'a Labels,
    /// What the registries of the images it starts from are told.
    pub credentials: &'a [Credentials],
}

/// A volume the engine holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeFacts {
    /// Folder on the engine's host.
    pub mountpoint: String,
    /// Running containers that have it mounted, by name.
    pub used_by: Vec<String>,
}

/// Something of ours that is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// Engine identifier or name to remove it by.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

/// Kinds of things we create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverKind {
    /// A container, running or not; removed first.
    Container,
    /// A network.
    Network,
    /// A volume.
    Volume,
    /// An image; only that of the program which works on volumes.
    Image,
}

/// A container engine.
///
/// **Errors**: every call fails with [`EngineError`], which names the operation
/// and the object; no call waits without a deadline.
/// **Cancel**: dropping a future leaves the engine's side of the call undefined;
/// clean-up is by label and does not rely on the answer.
pub trait Engine: Send + Sync + 'static {
    /// Who is there: version, host, cores.
    fn describe(&self) -> impl Future<Output = Result<HostFacts, EngineError>> + Send;
    /// The image, or `None` when the engine does not hold it.
    fn find_image(
        &self,
        image: &str,
    ) -> impl Future<Output = Result<Option<ImageFacts>, EngineError>> + Send;
    /// Fetches the image from its registry.
    ///
    /// **Errors**: `ImageMissing` with the registry's words, whatever they are.
    fn pull_image(
        &self,
        request: PullRequest<'_>,
        progress: ProgressSink<'_>,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Builds an image and tags it.
    ///
    /// **Errors**: `Other` for a step that failed, with the step and the end of its log.
    fn build_image(
        &self,
        request: BuildRequest<'_>,
        progress: ProgressSink<'_>,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Makes an image out of a tar archive of its files; `changes` are lines of a Dockerfile.
    fn import_image(
        &self,
        image: &str,
        archive: Vec<u8>,
        changes: &[String],
    ) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Images of ours that carry the label given, by their tags.
    fn list_images(
        &self,
        label: &str,
    ) -> impl Future<Output = Result<Vec<Leftover>, EngineError>> + Send;
    /// The volume, whoever made it, or `None` when the engine does not hold it.
    fn find_volume(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<VolumeFacts>, EngineError>> + Send;
    /// Makes a network.
    fn create_network(
        &self,
        name: &str,
        network: &Network,
        labels: &Labels,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Makes a volume.
    fn create_volume(
        &self,
        name: &str,
        volume: &Volume,
        labels: &Labels,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Makes a container with the files that the stack gives it; it does not run yet.
    fn create_container(
        &self,
        request: ContainerRequest<'_>,
    ) -> impl Future<Output = Result<ContainerId, EngineError>> + Send;
    /// Starts a container.
    fn start_container(
        &self,
        id: &ContainerId,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Looks at a container.
    fn inspect(
        &self,
        id: &ContainerId,
    ) -> impl Future<Output = Result<Inspection, EngineError>> + Send;
    /// Reads a container's counters.
    fn counters(
        &self,
        id: &ContainerId,
    ) -> impl Future<Output = Result<Counters, EngineError>> + Send;
    /// The last lines a container wrote, standard output and error together.
    fn logs(
        &self,
        id: &ContainerId,
        last_lines: Option<u32>,
    ) -> impl Future<Output = Result<String, EngineError>> + Send;
    /// Runs a command in a running container; exit code and output.
    ///
    /// After the deadline the answer is given up; the command itself goes on
    /// inside the container until that is removed.
    fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        deadline: Duration,
    ) -> impl Future<Output = Result<(i64, String), EngineError>> + Send;
    /// Runs a hook of the stack in a running container; exit code and output.
    ///
    /// After the deadline the answer is given up, as with [`Engine::exec`].
    fn run_hook(
        &self,
        id: &ContainerId,
        hook: &Hook,
        deadline: Duration,
    ) -> impl Future<Output = Result<(i64, String), EngineError>> + Send;
    /// Everything that carries all the labels given (`name` or `name=value`).
    fn list_ours(
        &self,
        labels: &[String],
    ) -> impl Future<Output = Result<Vec<Leftover>, EngineError>> + Send;
    /// Stops a container within the grace period, then kills it.
    fn stop_container(
        &self,
        id: &ContainerId,
        grace: Duration,
    ) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Removes one thing of ours; being gone already is success.
    fn remove(&self, leftover: &Leftover) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Limits in force in the kernel, where its files can be read from here.
    ///
    /// `seen` is a look at the same container; it says which process to follow.
    fn kernel_limits(&self, id: &ContainerId, seen: &Inspection) -> Option<KernelLimits> {
        let _ = (id, seen);
        None
    }

    /// Quota and CPUs in force in the kernel now, where its files can be read from here.
    ///
    /// Asked once a second while a window is open: it must cost next to nothing, and no
    /// call to the engine.
    fn kernel_cpu(&self, id: &ContainerId) -> Option<KernelCpu> {
        let _ = id;
        None
    }

    /// The environment that the container's first process was given, where it can be read.
    fn process_environment(
        &self,
        id: &ContainerId,
        seen: &Inspection,
    ) -> Option<Vec<(String, String)>> {
        let _ = (id, seen);
        None
    }

    /// Comes back when the container no longer runs.
    ///
    /// The one call without a deadline of its own: it lasts as long as the
    /// container. The default looks every 250 ms; an engine that can be told
    /// does better, since looking costs CPU time of the host under test.
    fn wait_for_exit(
        &self,
        id: &ContainerId,
    ) -> impl Future<Output = Result<(), EngineError>> + Send {
        async move {
            while self.inspect(id).await?.state != RunState::Exited {
                tokio::time::sleep(EXIT_POLL).await;
            }
            Ok(())
        }
    }

    /// Containers with these labels of which something is new: their health changed, they ended.
    ///
    /// Hints, so that nobody has to look often: one may be lost, the answer may end at
    /// any time, and what is so is found out by a look. The default never says anything.
    fn news<'a>(&'a self, labels: &[String]) -> BoxStream<'a, ContainerId> {
        let _ = labels;
        stream::pending().boxed()
    }

    /// One readiness request to a service of the stack.
    ///
    /// Part of the trait so that a fake needs no open port.
    fn probe(
        &self,
        address: SocketAddr,
        probe: &ReadyProbe,
        limit: Duration,
    ) -> impl Future<Output = Result<ProbeAnswer, ProbeFailure>> + Send {
        probe::get(address, probe, limit)
    }

    /// What a service of the stack answers to one request; its status is not looked at.
    fn fetch(
        &self,
        address: SocketAddr,
        probe: &ReadyProbe,
        limit: Duration,
    ) -> impl Future<Output = Result<Page, ProbeFailure>> + Send {
        probe::fetch(address, probe, limit)
    }
}

/// Short enough to lose little of a window, long enough to cost nothing that shows.
const EXIT_POLL: Duration = Duration::from_millis(250);
