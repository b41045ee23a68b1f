//! Stopping the containers of a stack in order, so that what they wrote is whole.

use std::time::Duration;

use futures_util::future::join_all;
use indexmap::IndexMap;

use super::golden_plan::mounts_any;
use crate::engine::{ContainerId, Engine, LABEL_SERVICE, LeftoverKind, RunState, TrialTag};
use crate::problem::chain;
use crate::stack::Stack;
use crate::units::format_duration;

/// Grace of a container whose file says nothing of it; the engine's own default.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Exit code of a process that the kernel killed by SIGKILL.
const KILLED: i64 = 137;

/// Stops every container within its own grace, those first that nobody depends on.
///
/// All are stopped, whatever comes of one. **Shape**: a sentence for each container that could
/// not be stopped, and for each that writes to the volumes and was killed or ended badly.
pub(super) async fn stop_in_order<E: Engine>(
    engine: &E,
    containers: &IndexMap<String, Vec<ContainerId>>,
    stack: &Stack,
    volumes: &[String],
) -> Vec<String> {
    let mut left: Vec<&String> = containers.keys().collect();
    let mut wrong = Vec::new();
    while !left.is_empty() {
        let is_needed = |name: &str| {
            left.iter().any(|other| {
                let service = stack.services.get(*other);
                service.is_some_and(|service| service.depends_on.contains_key(name))
            })
        };
        let mut now: Vec<&String> = left
            .iter()
            .copied()
            .filter(|name| !is_needed(name))
            .collect();
        if now.is_empty() {
            // A circle, which resolving would have refused; all at once is all there is.
            now.clone_from(&left);
        }
        left.retain(|name| !now.contains(name));
        let each = now
            .iter()
            .flat_map(|name| containers[*name].iter().map(move |id| (*name, id)));
        let stops = each.map(|(name, id)| stop_one(engine, stack, volumes, name, id));
        wrong.extend(join_all(stops).await.into_iter().filter_map(Result::err));
    }
    wrong
}

/// The same for whatever a trial has, be it half made.
pub(super) async fn stop_trial<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    stack: &Stack,
    volumes: &[String],
) -> Vec<String> {
    let found = match engine.list_ours(&tag.filter()).await {
        Ok(found) => found,
        Err(error) => return vec![chain(&error)],
    };
    let mut containers: IndexMap<String, Vec<ContainerId>> = IndexMap::new();
    for thing in found {
        let service = thing.labels.get(LABEL_SERVICE);
        if let (LeftoverKind::Container, Some(service)) = (thing.kind, service)
            && stack.services.contains_key(service)
        {
            let ids = containers.entry(service.clone()).or_default();
            ids.push(ContainerId(thing.id));
        }
    }
    stop_in_order(engine, &containers, stack, volumes).await
}

async fn stop_one<E: Engine>(
    engine: &E,
    stack: &Stack,
    volumes: &[String],
    name: &str,
    id: &ContainerId,
) -> Result<(), String> {
    let service = stack.services.get(name);
    let grace = service
        .and_then(|service| service.stop_grace_period)
        .unwrap_or(STOP_GRACE);
    let lost = |error| format!("service `{name}`: {}", chain(&error));
    let before = engine.inspect(id).await.map_err(lost)?;
    if before.state == RunState::Created {
        return Ok(());
    }
    engine.stop_container(id, grace).await.map_err(lost)?;
    if !service.is_some_and(|service| mounts_any(service, volumes)) {
        return Ok(());
    }
    let seen = engine.inspect(id).await.map_err(lost)?;
    let was_running = before.state != RunState::Exited;
    check_exit(name, grace, seen.exit_code, seen.oom_killed, was_running)
}

/// Whether a process that writes to the volumes ended as it was asked to.
fn check_exit(
    name: &str,
    grace: Duration,
    exit_code: Option<i64>,
    oom_killed: bool,
    was_running: bool,
) -> Result<(), String> {
    match exit_code {
        // 128 and the number of SIGTERM or SIGINT: it ended because it was asked to.
        Some(0 | 130 | 143) if !oom_killed => Ok(()),
        Some(KILLED) if was_running => Err(format!(
            "service `{name}` did not stop within its grace of {} and was killed: its volumes may be torn; raise its stop_grace_period",
            format_duration(grace)
        )),
        code => Err(format!(
            "service `{name}` ended {} {}: its volumes may be torn",
            code.map_or_else(
                || "without a code".to_owned(),
                |code| format!("with code {code}")
            ),
            if was_running {
                "when it was stopped"
            } else {
                "by itself"
            }
        )),
    }
}
