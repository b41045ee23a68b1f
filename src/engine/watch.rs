//! Noticing that a container ended that should go on.

use std::time::Duration;

use futures_util::future::select_all;

use super::{Engine, EngineError, EngineErrorKind, Launched, Replica, RunState, Unhealthy};

/// Between two looks, beside the engine's own word: its answer may get lost with
/// the engine itself. Long, since looking costs CPU time of the host under test.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between being told and looking; an exit code is there well before.
const SETTLE: Duration = Duration::from_millis(100);
/// Between two looks while the engine does not answer: an engine that is started
/// again is back within seconds.
const RETRY: Duration = Duration::from_secs(2);
/// Failed looks in a row after which the engine counts as lost.
const MOST_FAILURES: u32 = 5;

/// A container that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The container: its service, or `app#2` where that has several.
    pub name: String,
    /// Its exit code; `None` when the container is gone or runs again.
    pub exit_code: Option<i64>,
    /// Whether the kernel killed it for memory.
    pub oom_killed: bool,
    /// Whether somebody started it again: what runs now is not what was proved and warmed up.
    pub is_restarted: bool,
}

/// Comes back when any container ends that should go on; notes failing healthchecks on
/// the way.
///
/// A service that ran to its end during the launch is not watched; one that
/// nobody depends on may end with exit code 0 without being reported.
///
/// **Errors**: the engine does not answer any more.
/// **Cancel**: safe; nothing changes.
pub async fn watch_exits<E: Engine>(
    engine: &E,
    launched: &Launched,
    unhealthy: &Unhealthy,
) -> Result<Exit, EngineError> {
    let mut watched: Vec<_> = launched
        .running()
        .map(|replica| {
            let may_complete = launched.may_complete.contains(replica.service);
            Box::pin(watch_one(engine, replica, may_complete, unhealthy))
        })
        .collect();
    if watched.is_empty() {
        return std::future::pending().await;
    }
    loop {
        let (outcome, _, rest) = select_all(watched).await;
        match outcome {
            Ok(Some(exit)) => return Ok(exit),
            Err(error) => return Err(error),
            // It was allowed to.
            Ok(None) if rest.is_empty() => return std::future::pending().await,
            Ok(None) => watched = rest,
        }
    }
}

async fn watch_one<E: Engine>(
    engine: &E,
    replica: Replica<'_>,
    may_complete: bool,
    unhealthy: &Unhealthy,
) -> Result<Option<Exit>, EngineError> {
    let exit = |exit_code, oom_killed, is_restarted| {
        Ok(Some(Exit {
            name: replica.name(),
            exit_code,
            oom_killed,
            is_restarted,
        }))
    };
    let id = replica.id;
    let mut first_pid = None;
    let mut n_failures = 0;
    let mut told = Box::pin(engine.wait_for_exit(id));
    loop {
        match engine.inspect(id).await {
            Ok(seen) if seen.state == RunState::Exited => {
                let is_allowed = may_complete && seen.exit_code == Some(0) && !seen.oom_killed;
                if is_allowed {
                    return Ok(None);
                }
                return exit(seen.exit_code, seen.oom_killed, false);
            }
            Ok(seen) if *first_pid.get_or_insert(seen.pid) != seen.pid => {
                return exit(None, false, true);
            }
            Ok(seen) => {
                n_failures = 0;
                unhealthy.note(replica.name(), &seen);
            }
            Err(error) if error.kind == EngineErrorKind::NotFound => {
                return exit(None, false, false);
            }
            Err(error) => {
                n_failures += 1;
                if n_failures >= MOST_FAILURES {
                    return Err(error);
                }
            }
        }
        if let Ok(answer) = tokio::time::timeout(LOOK_EVERY, &mut told).await {
            // It ended, or it cannot be told. The next look says which; a pause
            // keeps an engine that answers nonsense from being asked in a loop.
            let pause = if answer.is_ok() { SETTLE } else { RETRY };
            tokio::time::sleep(pause).await;
            told = Box::pin(engine.wait_for_exit(id));
        }
    }
}
