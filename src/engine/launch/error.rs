//! Why a launch came to nothing: a stable code for rows, words for people.

use std::time::Duration;

use crate::engine::{EngineError, EngineErrorKind, HelperError, LimitsNotApplied, ProofError};
use crate::units::format_duration;

/// Lines of a log that an error carries; enough for a stack trace's beginning.
pub(super) const TAIL_LINES: u32 = 20;
/// Of these, what a one-line message shows.
const SHOWN_CHARS: usize = 300;

/// A launch that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The stack cannot be launched as it is.
    #[error("launch service `{service}`: {problem}")]
    Unusable {
        /// The service.
        service: String,
        /// What is wrong.
        problem: String,
    },
    /// The engine does not hold an image.
    #[error("launch service `{service}`: the engine does not have the image `{image}`")]
    ImageMissing {
        /// The service.
        service: String,
        /// The image.
        image: String,
    },
    /// Something could not be created.
    #[error("create {what}")]
    CreateFailed {
        /// What, as `service app`.
        what: String,
        /// Why.
        #[source]
        source: EngineError,
    },
    /// The trial could not be given its own copy of a golden volume.
    #[error("clone golden volume `{volume}`")]
    CloneFailed {
        /// The volume, or volumes.
        volume: String,
        /// Why.
        #[source]
        source: HelperError,
    },
    /// A clone is not like its golden.
    #[error(
        "the clone of golden volume `{volume}` has the fingerprint {found}, the golden {expected}"
    )]
    StateNotEqual {
        /// The volume.
        volume: String,
        /// The golden's. **Shape**: 12 hexadecimal digits.
        expected: String,
        /// The clone's.
        found: String,
    },
    /// A container could not be started.
    #[error("start service `{service}`")]
    StartFailed {
        /// The service.
        service: String,
        /// Why.
        #[source]
        source: EngineError,
    },
    /// A command that belongs to a service's start failed in it.
    #[error(
        "run `post_start` of service `{service}`: `{command}` {problem}{}",
        shown(Some(output))
    )]
    HookFailed {
        /// The service.
        service: String,
        /// The command, its words joined.
        command: String,
        /// What happened to it.
        problem: String,
        /// What it wrote.
        output: String,
    },
    /// What a service waits for will not happen.
    #[error(
        "start service `{dependant}`: `{dependency}` {problem}{}",
        shown(log_tail.as_ref())
    )]
    DependencyFailed {
        /// Who waits.
        dependant: String,
        /// For whom.
        dependency: String,
        /// What happened to it.
        problem: String,
        /// Last lines of its log, where it could be read.
        log_tail: Option<String>,
    },
    /// A container ended that should go on.
    #[error("service `{service}` {}{}", exit_words(*exit_code, *oom_killed), shown(log_tail.as_ref()))]
    Exited {
        /// The service.
        service: String,
        /// Its exit code; `None` when the container itself is gone.
        exit_code: Option<i64>,
        /// Whether the kernel killed it for memory.
        oom_killed: bool,
        /// Last lines of its log, where it could be read.
        log_tail: Option<String>,
    },
    /// Not ready within the deadline.
    #[error(
        "not ready after {} of {}: {last_seen}{}",
        format_duration(*elapsed),
        format_duration(*limit),
        tails(log_tails)
    )]
    NotReady {
        /// The last thing seen of everything that was waited for.
        last_seen: String,
        /// Last lines of the logs of those that ran by then, by container.
        log_tails: Vec<(String, String)>,
        /// The deadline.
        limit: Duration,
        /// Time spent.
        elapsed: Duration,
    },
    /// Somebody interfered with a container while it was launched.
    #[error("service `{service}` {what}")]
    Disturbed {
        /// The service.
        service: String,
        /// What was done to it.
        what: String,
    },
    /// A limit in force is not the planned one.
    #[error(transparent)]
    LimitsNotApplied(LimitsNotApplied),
    /// The engine failed in something that is none of the above.
    #[error("launch the stack")]
    Engine {
        /// Why.
        #[source]
        source: EngineError,
    },
}

impl LaunchError {
    /// The stable code that rows carry.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "unusable_stack",
            Self::ImageMissing { .. } => "image_missing",
            Self::CreateFailed { source, .. } if source.kind == EngineErrorKind::ImageMissing => {
                "image_missing"
            }
            Self::CreateFailed { .. } => "create_failed",
            Self::CloneFailed { .. } => "clone_failed",
            Self::StateNotEqual { .. } => "state_not_equal",
            Self::StartFailed { .. } => "start_failed",
            Self::HookFailed { .. } => "hook_failed",
            Self::DependencyFailed { .. } => "dependency_failed",
            Self::Exited { .. } => "exited",
            Self::NotReady { .. } => "not_ready",
            Self::Disturbed { .. } => "disturbed",
            Self::LimitsNotApplied(_) => "limits_not_applied",
            Self::Engine { .. } => "engine_error",
        }
    }

    /// The next step, where one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::ImageMissing { image, .. } => Some(format!(
                "pull, build or load the image `{image}` and check its name and tag"
            )),
            Self::CreateFailed { source, .. }
            | Self::StartFailed { source, .. }
            | Self::CloneFailed {
                source: HelperError::Engine { source },
                ..
            }
            | Self::Engine { source } => source.hint().map(str::to_owned),
            Self::Exited {
                oom_killed: true, ..
            } => Some("give the service more memory (`mem_limit`), or it less to do".to_owned()),
            Self::Exited {
                exit_code: Some(0), ..
            } => Some(
                "if it is meant to end, let a service depend on it with \
                 `condition: service_completed_successfully`"
                    .to_owned(),
            ),
            Self::NotReady { .. } => Some(
                "read the kept logs; if the service is only slow, raise `ready_timeout`".to_owned(),
            ),
            Self::Disturbed { .. } => {
                Some("let nobody touch the containers of a sweep while it runs".to_owned())
            }
            Self::LimitsNotApplied(_) => Some(
                "something else on this host changes the limits of containers, or its kernel \
                 cannot enforce them"
                    .to_owned(),
            ),
            Self::StateNotEqual { .. } => Some(
                "something wrote to the golden volume, or its disk is failing: \
                 `nightsweep clean --golden` removes it, and the next run prepares it again"
                    .to_owned(),
            ),
            Self::CloneFailed { .. }
            | Self::Unusable { .. }
            | Self::HookFailed { .. }
            | Self::DependencyFailed { .. }
            | Self::Exited { .. } => None,
        }
    }

    /// Whether the cause lies outside the trial, so that the next one would meet it too.
    pub fn is_environment(&self) -> bool {
        match self {
            Self::ImageMissing { .. } => true,
            Self::CreateFailed { source, .. }
            | Self::StartFailed { source, .. }
            | Self::CloneFailed {
                source: HelperError::Engine { source },
                ..
            }
            | Self::Engine { source } => source.is_environment(),
            Self::CloneFailed { .. }
            | Self::StateNotEqual { .. }
            | Self::Unusable { .. }
            | Self::HookFailed { .. }
            | Self::DependencyFailed { .. }
            | Self::Exited { .. }
            | Self::NotReady { .. }
            | Self::Disturbed { .. }
            | Self::LimitsNotApplied(_) => false,
        }
    }
}

impl From<ProofError> for LaunchError {
    fn from(error: ProofError) -> Self {
        match error {
            ProofError::NotApplied(mismatch) => Self::LimitsNotApplied(mismatch),
            ProofError::Engine { source, .. } => Self::Engine { source },
            ProofError::Disturbed { service, what } => Self::Disturbed { service, what },
            ProofError::NotLaunched { service } => Self::Unusable {
                service,
                problem: "it was not launched".to_owned(),
            },
        }
    }
}

/// How a container ended, as `exited with code 3`.
pub(super) fn exit_words(exit_code: Option<i64>, oom_killed: bool) -> String {
    match (exit_code, oom_killed) {
        (Some(code), true) => format!("was killed for memory (exit code {code})"),
        (None, true) => "was killed for memory".to_owned(),
        (Some(code), false) => format!("exited with code {code}"),
        (None, false) => "is gone: its container was removed by somebody else".to_owned(),
    }
}

/// The end of a log on one line, for a message.
fn shown(log_tail: Option<&String>) -> String {
    let Some(log_tail) = log_tail else {
        return String::new();
    };
    format!("; it {}", wrote(log_tail))
}

/// The same for several containers.
fn tails(log_tails: &[(String, String)]) -> String {
    let said: Vec<String> = log_tails
        .iter()
        .map(|(name, log_tail)| format!("; `{name}` {}", wrote(log_tail)))
        .collect();
    said.concat()
}

fn wrote(log_tail: &str) -> String {
    let lines: Vec<&str> = log_tail
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return "wrote nothing".to_owned();
    }
    let text = lines.join(" | ");
    let n_chars = text.chars().count();
    let end: String = text
        .chars()
        .skip(n_chars.saturating_sub(SHOWN_CHARS))
        .collect();
    let cut = if n_chars > SHOWN_CHARS { "..." } else { "" };
    format!("last wrote: {cut}{end}")
}
