//! Ten thousand users who hold a connection and mostly wait: what they take in memory.

use std::time::{Duration, Instant};

use super::numbers::number_after;
use super::peer::{Places, Wire, ours};
use super::pinned::{Watch, run};
use super::server::Server;
use crate::steps::{StepError, program};

/// Users at once, each with a connection.
pub(super) const N_USERS: u32 = 10_000;
/// What they may take at most. **Units**: KiB.
pub(super) const LIMIT_KIB: u64 = 300_000_000 / 1024;
/// Files that are open beside the connections, amply.
const FILES_BESIDE: u32 = 200;

/// What came of it.
#[derive(Debug, Clone)]
pub(super) enum Memory {
    /// The host does not allow it; why.
    NotRun(String),
    Measured {
        peak_kib: u64,
        /// Most connections that the server had open at a look, one a second.
        connected: u64,
        seconds: u32,
        requests: f64,
        /// All that was no success.
        failed: f64,
        cpu_s: f64,
    },
}

impl Memory {
    /// Whether all were there at once, without an error, within the limit.
    pub(super) fn holds(&self) -> Option<bool> {
        match self {
            Self::NotRun(_) => None,
            Self::Measured {
                peak_kib,
                connected,
                failed,
                ..
            } => Some(*peak_kib < LIMIT_KIB && *connected >= u64::from(N_USERS) && *failed == 0.0),
        }
    }
}

/// Runs the idle journey; long enough that every user is there and has asked.
pub(super) fn memory(places: &Places, server: &Server, seconds: u32) -> Result<Memory, StepError> {
    let limit = program("bash", &["-c", "ulimit -Hn"]).output()?;
    let limit = String::from_utf8_lossy(&limit.stdout).trim().to_owned();
    let needed = N_USERS + FILES_BESIDE;
    if limit.parse::<u32>().is_ok_and(|limit| limit < needed) {
        return Ok(Memory::NotRun(format!(
            "a process may open {limit} files here, and this needs {needed}: raise `ulimit -Hn`"
        )));
    }
    eprintln!("==> memory: {N_USERS} users who wait");
    // Twice the think time and more, so that all ask twice, unless a trial is shorter.
    let seconds = if seconds < super::LEAST_SECONDS {
        10
    } else {
        70
    };
    let words = ours(
        places,
        &places.bench("idle.toml"),
        &server.url(Wire::Plain),
        N_USERS,
        seconds,
    );
    let watch = Watch {
        every: Duration::from_millis(20),
        limit: Duration::from_secs(u64::from(seconds) * 2 + 60),
    };
    let (mut connected, mut looked) = (0, Instant::now());
    let taken = run(&words, &places.scratch, watch, || {
        if looked.elapsed() >= Duration::from_secs(1) {
            looked = Instant::now();
            // One of them is the look itself.
            connected = connected.max(server.counts()?.connections.saturating_sub(1));
        }
        Ok(())
    })?;
    let figure = |key: &str| {
        number_after(&taken.said, key).ok_or_else(|| {
            StepError::new(format!("the generator does not say {key}: {}", taken.said))
        })
    };
    let requests = figure("\"requests\"")?;
    Ok(Memory::Measured {
        peak_kib: taken.peak_kib,
        connected,
        seconds,
        requests,
        failed: figure("\"errors\"")? + figure("\"refused\"")?,
        cpu_s: taken.cpu_s,
    })
}
