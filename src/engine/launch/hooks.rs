//! Starting one container, and the commands that belong to its start.

use std::time::Duration;

use super::error::{LaunchError, TAIL_LINES, exit_words};
use super::request::Launch;
use crate::engine::{Engine, Replica, RunState};
use crate::stack::Service;

/// By how much the launch's own deadline comes first.
const HOOK_MARGIN: Duration = Duration::from_secs(1);

/// Starts a service's container and runs what belongs to its start, in order.
///
/// **Errors**: a container that does not start, and a command that fails, with its output.
pub(super) async fn start_container<E: Engine>(
    engine: &E,
    launch: &Launch<'_>,
    service: &Service,
    replica: Replica<'_>,
    note: impl Fn(String),
) -> Result<(), LaunchError> {
    let id = replica.id;
    let started = engine.start_container(id).await;
    started.map_err(|source| LaunchError::StartFailed {
        service: replica.name(),
        source,
    })?;
    for hook in &service.post_start {
        let command = hook.command.join(" ");
        note(format!("runs `{command}` of its `post_start`"));
        // Longer than the launch may take: whose deadline it is says what was waited for.
        let limit = launch.deadline + HOOK_MARGIN;
        let ran = engine.run_hook(id, hook, limit).await;
        let (problem, output) = match ran {
            Ok((0, _)) => continue,
            Ok((code, output)) => (exit_words(Some(code), false), output),
            Err(source) => match engine.inspect(id).await {
                // The end of the container is the cause, whatever the engine says of the command.
                Ok(seen) if seen.state == RunState::Exited => {
                    let words = exit_words(seen.exit_code, seen.oom_killed);
                    let log = engine.logs(id, Some(TAIL_LINES)).await.unwrap_or_default();
                    (format!("could not run: the service {words}"), log)
                }
                _ => return Err(LaunchError::Engine { source }),
            },
        };
        return Err(LaunchError::HookFailed {
            service: replica.name(),
            command,
            problem,
            output,
        });
    }
    Ok(())
}
