//! The network that the load goes through.
//!
//! A host with Docker has rules for every packet, those on its own loopback device among them: connection
//! tracking and address translation that all generators pay alike, and that are a part of no generator. So the
//! whole comparison runs in a network namespace of its own, which has a loopback device and no rules, and a
//! figure means the same on every host. Where the kernel does not allow that, or on demand, it runs in
//! the host's network, and the report says so.

use std::process::Command;

use crate::steps::{StepError, Steps, cannot_start, program};

/// Set for the program in the namespace, which must not make another.
const INSIDE: &str = "NIGHTSWEEP_BENCH_NETWORK";

/// Where the load goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// A namespace without rules.
    Own,
    /// The host's, with what rules it has.
    Host,
}

impl Network {
    pub(super) fn parsed(word: &str) -> Option<Self> {
        match word {
            "own" => Some(Self::Own),
            "host" => Some(Self::Host),
            _ => None,
        }
    }

    /// For the report.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Own => {
                "a namespace of its own, without the host's packet filter and address translation"
            }
            Self::Host => "the host's, with its packet filter and address translation",
        }
    }
}

/// Whether this program is the one in the namespace.
pub(super) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether namespaces can be made here.
pub(super) fn can_be_made(steps: &Steps) -> bool {
    steps.ask(&mut entering("true")).is_some()
}

/// Runs this program again with the same words, in a namespace of its own.
pub(super) fn run_inside(words: &[&str]) -> Result<(), StepError> {
    let program = std::env::current_exe()?;
    let mut command = entering(r#"exec "$@""#);
    command
        .arg("sh")
        .arg(program)
        .arg("bench-load")
        .args(words)
        .env(INSIDE, "own");
    let status = command
        .status()
        .map_err(|error| cannot_start(&command, &error))?;
    if status.success() {
        Ok(())
    } else {
        // It has said why.
        Err(StepError::new("the measurement did not end well"))
    }
}

/// A shell in a new namespace whose loopback device is up.
fn entering(script: &str) -> Command {
    let script = format!("ip link set lo up && {script}");
    program("unshare", &["--net", "--", "sh", "-c", &script])
}
