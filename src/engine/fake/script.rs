//! What a test can ask of the fake engine.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::engine::{EngineErrorKind, KernelLimits, Limits};

/// Operations of the engine, as the log of calls spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FakeCall {
    /// `describe`.
    Describe,
    /// `find_image`.
    FindImage,
    /// `pull_image`.
    PullImage,
    /// `import_image`.
    ImportImage,
    /// `find_volume`.
    FindVolume,
    /// `build_image`.
    BuildImage,
    /// `create_network`.
    CreateNetwork,
    /// `create_volume`.
    CreateVolume,
    /// `create_container`.
    CreateContainer,
    /// `start`.
    Start,
    /// `inspect`.
    Inspect,
    /// `counters`.
    Counters,
    /// `logs`.
    Logs,
    /// `exec`.
    Exec,
    /// `list`.
    List,
    /// `stop`.
    Stop,
    /// `remove`.
    Remove,
    /// `probe`.
    Probe,
}

impl FakeCall {
    /// As the log of calls spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::FindImage => "find_image",
            Self::PullImage => "pull_image",
            Self::ImportImage => "import_image",
            Self::FindVolume => "find_volume",
            Self::BuildImage => "build_image",
            Self::CreateNetwork => "create_network",
            Self::CreateVolume => "create_volume",
            Self::CreateContainer => "create_container",
            Self::Start => "start",
            Self::Inspect => "inspect",
            Self::Counters => "counters",
            Self::Logs => "logs",
            Self::Exec => "exec",
            Self::List => "list",
            Self::Stop => "stop",
            Self::Remove => "remove",
            Self::Probe => "probe",
        }
    }
}

impl fmt::Display for FakeCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeFault {
    /// It fails, having done nothing.
    Fail(EngineErrorKind),
    /// It takes this long, then does its work and comes back.
    Slow(Duration),
    /// It never comes back, having done nothing.
    Hang,
    /// It never comes back, and what it creates appears after this time.
    HangAndAppear(Duration),
    /// It is given up on at once, and what it creates appears after this time.
    TimeOutAndAppear(Duration),
}

/// An end of a container's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeExit {
    /// Exit code.
    pub code: i64,
    /// Whether the kernel killed it for memory.
    pub oom_killed: bool,
}

/// How the containers of one service behave.
#[derive(Debug, Clone, PartialEq)]
pub struct Behaviour {
    /// From start until its healthcheck, where it has one, passes; `None` is never.
    pub healthy_after: Option<Duration>,
    /// From start until its healthcheck counts as failed.
    pub unhealthy_after: Option<Duration>,
    /// What it says it was made from, where that is not its image.
    pub made_of: Option<String>,
    /// What its healthcheck says until then.
    pub health_output: String,
    /// When it ends by itself, after its start.
    pub exits_after: Option<(Duration, FakeExit)>,
    /// It ends when this call is made for the n-th time, from 1, of whatever object.
    pub exits_at_call: Option<(FakeCall, usize, FakeExit)>,
    /// From start until it answers readiness probes; `None` is never.
    pub answers_after: Option<Duration>,
    /// Status it answers with.
    pub status: u16,
    /// Limits that stand there from the n-th look on, from 1.
    pub limits_from_look: Option<(usize, Limits)>,
    /// What the kernel enforces; `None` when its files cannot be read.
    pub kernel_limits: Option<KernelLimits>,
    /// Variables it was made with, where they are not those asked for.
    pub environment: Option<Vec<(String, String)>>,
    /// Variables its process was given; `None` when they cannot be read.
    pub process_environment: Option<Vec<(String, String)>>,
    /// Bodies it answers with, by path and query; empty ones for all others.
    pub pages: HashMap<String, String>,
    /// What it wrote.
    pub log: String,
    /// CPU it uses while it runs. **Units**: cores.
    pub cpu_cores: f64,
    /// Its address; `None` gives it one that leads nowhere.
    pub address: Option<IpAddr>,
    /// Exit code and output of every command run in it.
    pub exec: (i64, String),
}

impl Default for Behaviour {
    /// Healthy and answering at once, running on and on.
    fn default() -> Self {
        Self {
            healthy_after: Some(Duration::ZERO),
            unhealthy_after: None,
            made_of: None,
            health_output: String::new(),
            exits_after: None,
            exits_at_call: None,
            answers_after: Some(Duration::ZERO),
            status: 200,
            limits_from_look: None,
            kernel_limits: None,
            environment: None,
            process_environment: None,
            pages: HashMap::new(),
            log: String::new(),
            cpu_cores: 0.5,
            address: None,
            exec: (0, String::new()),
        }
    }
}
