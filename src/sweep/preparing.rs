//! Running the stack once, to fill golden volumes: launch, seed, stop cleanly.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use super::golden::{failed, failure};
use super::golden_plan::{GoldenSpec, SeedLoad, SeedSpec, mounts_any};
use super::launching::launch_reason;
use super::shell::Shared;
use super::target::{addresses_of, base_path_of, host_of};
use super::{Reason, TargetSpec};
use crate::engine::{
    ContainerId, Engine, Launch, LaunchTarget, Launched, Lease, ReadyProbe, RunState, Unhealthy,
    launch, watch_exits,
};
use crate::event::EventKind;
use crate::load::{SeedPlan, Target, seed};
use crate::problem::chain;
use crate::stack::Stack;
use crate::units::format_duration;

/// Grace of a container whose file says nothing of it; the engine's own default.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Exit code of a process that the kernel killed by SIGKILL.
const KILLED: i64 = 137;
/// Lines of a log that an error carries.
const TAIL_LINES: u32 = 20;

/// Runs the stack until its volumes hold what they should and nothing writes to them.
pub(super) async fn fill<E: Engine>(
    shared: &Shared<'_, E>,
    lease: &Lease<E>,
    spec: &GoldenSpec,
    seed: Option<&SeedSpec>,
    emit: &mut dyn FnMut(EventKind),
) -> Result<(), Reason> {
    let mut say = |step: String| {
        emit(EventKind::StatePreparing {
            source: spec.source.words(),
            step,
        });
    };
    say("launching".to_owned());
    let launched = launch_once(shared, lease, spec).await?;
    if let Some(seed) = seed {
        if let Some(service) = &seed.service {
            say(format!("seeding by service {service}"));
            wait_for_service(shared, &launched, service, seed.timeout).await?;
        }
        if let Some(load) = &seed.workload {
            say(format!("seeding by {} journeys", load.journeys));
            send_seed(shared, &launched, spec, load, seed.timeout).await?;
        }
    }
    say("stopping".to_owned());
    stop_cleanly(&**shared.engine, &launched, &spec.stack, &spec.volumes).await
}

async fn launch_once<E: Engine>(
    shared: &Shared<'_, E>,
    lease: &Lease<E>,
    spec: &GoldenSpec,
) -> Result<Launched, Reason> {
    let plan = shared.plan;
    let target = match &plan.target {
        TargetSpec::Service { service, port, .. } => Some(LaunchTarget {
            service: service.clone(),
            port: *port,
        }),
        TargetSpec::Remote { .. } => None,
    };
    let ready = plan.settings.ready.as_ref().map(|ready| ReadyProbe {
        path: ready.path.clone(),
        status: ready.status,
        host: host_of(&plan.target),
    });
    let request = Launch {
        stack: &spec.stack,
        subject: &plan.subject,
        target: target.as_ref(),
        asked: &[],
        ready: ready.as_ref(),
        deadline: plan.settings.ready_timeout,
        facts: shared.facts,
        state: None,
    };
    launch(lease, &request).await.map_err(|error| {
        let reason = launch_reason(&error, |text| shared.secrets.digest(text));
        failed(format!(
            "launch the stack: {}: {}",
            reason.code, reason.words
        ))
    })
}

/// Waits until the seeding service has ended well; the others must go on.
async fn wait_for_service<E: Engine>(
    shared: &Shared<'_, E>,
    launched: &Launched,
    service: &str,
    limit: Duration,
) -> Result<(), Reason> {
    let engine = &**shared.engine;
    if launched.completed.contains(service) {
        return Ok(());
    }
    let ids = launched
        .containers
        .get(service)
        .ok_or_else(|| failed(format!("seeding service `{service}` was not launched")))?;
    let unhealthy = Unhealthy::default();
    let ended = try_join_all(ids.iter().map(|id| ends_well(engine, id, service)));
    tokio::select! {
        biased;
        ended = ended => ended.map(drop),
        exit = watch_exits(engine, launched, &unhealthy) => match exit {
            Ok(exit) => Err(ended_meanwhile(&exit.name, exit.exit_code)),
            Err(error) => Err(failure(&error)),
        },
        () = tokio::time::sleep(limit) => Err(failed(format!(
            "seeding service `{service}` did not end within {} ([seed] timeout)",
            format_duration(limit)
        ))),
    }
}

/// Waits for a container that must end with exit code 0.
async fn ends_well<E: Engine>(engine: &E, id: &ContainerId, service: &str) -> Result<(), Reason> {
    loop {
        let seen = engine.inspect(id).await.map_err(|error| failure(&error))?;
        if seen.state == RunState::Exited {
            return match seen.exit_code {
                Some(0) => Ok(()),
                code => Err(seed_failed(engine, id, service, code).await),
            };
        }
        engine
            .wait_for_exit(id)
            .await
            .map_err(|error| failure(&error))?;
    }
}

async fn seed_failed<E: Engine>(
    engine: &E,
    id: &ContainerId,
    service: &str,
    exit_code: Option<i64>,
) -> Reason {
    let code = exit_code.map_or_else(
        || "without a code".to_owned(),
        |code| format!("with code {code}"),
    );
    let log = engine.logs(id, Some(TAIL_LINES)).await.unwrap_or_default();
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    failed(format!(
        "seeding service `{service}` ended {code}; it last wrote: {}",
        lines.join(" | ")
    ))
}

fn ended_meanwhile(service: &str, exit_code: Option<i64>) -> Reason {
    let code = exit_code.map_or_else(
        || "without a code".to_owned(),
        |code| format!("with code {code}"),
    );
    failed(format!(
        "service `{service}` ended {code} while volumes were seeded"
    ))
}

async fn send_seed<E: Engine>(
    shared: &Shared<'_, E>,
    launched: &Launched,
    spec: &GoldenSpec,
    load: &SeedLoad,
    limit: Duration,
) -> Result<(), Reason> {
    let plan = shared.plan;
    let target = load.target.as_ref().unwrap_or(&plan.target);
    let no_address = || {
        failed(format!(
            "the seed's target {} has no address",
            host_of(target)
        ))
    };
    let addresses = match target {
        TargetSpec::Service { service, port, .. } if load.target.is_some() => {
            let ids = launched.containers.get(service).ok_or_else(no_address)?;
            let mut addresses = Vec::new();
            for id in ids {
                let seen = shared.engine.inspect(id).await;
                let seen = seen.map_err(|error| failure(&error))?;
                let ip = seen.addresses.values().next().ok_or_else(no_address)?;
                addresses.push(std::net::SocketAddr::new(*ip, *port));
            }
            addresses
        }
        _ => addresses_of(target, launched),
    };
    if addresses.is_empty() {
        return Err(no_address());
    }
    let unhealthy = Unhealthy::default();
    let seeding = SeedPlan {
        target: Target {
            addresses,
            host: host_of(target),
            base_path: base_path_of(target),
        },
        workload: Arc::clone(&load.workload),
        variables: spec.variables.clone(),
        users: load.users,
        journeys: load.journeys,
        timeout: plan.settings.request_timeout,
        seed: plan.settings.seed,
    };
    tokio::select! {
        biased;
        seeded = on_a_thread(seeding) => seeded.map_err(|words| failed(format!("seed: {words}"))),
        exit = watch_exits(&**shared.engine, launched, &unhealthy) => match exit {
            Ok(exit) => Err(ended_meanwhile(&exit.name, exit.exit_code)),
            Err(error) => Err(failure(&error)),
        },
        () = tokio::time::sleep(limit) => Err(failed(format!(
            "seeding did not end within {} ([seed] timeout)",
            format_duration(limit)
        ))),
    }
}

/// Users share cells instead of locks, so they live on one thread.
async fn on_a_thread(plan: SeedPlan) -> Result<(), String> {
    // Dropped with this future: then nothing more is sent.
    let (going, mut gone) = tokio::sync::oneshot::channel::<()>();
    let seeding = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(async {
            tokio::select! {
                seeded = seed(&plan) => seeded.map(drop).map_err(|error| chain(&error)),
                _ = &mut gone => Ok(()),
            }
        })
    });
    let seeded = seeding.await.map_err(|error| error.to_string())?;
    drop(going);
    seeded
}

/// Stops every container within its own grace, those first that nobody depends on.
///
/// **Errors**: a service that writes to the volumes and was killed, or ended badly.
pub(super) async fn stop_cleanly<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
    volumes: &[String],
) -> Result<(), Reason> {
    let mut left: Vec<&str> = launched.running().map(|replica| replica.service).collect();
    left.dedup();
    while !left.is_empty() {
        let is_needed = |name: &str| {
            left.iter().any(|other| {
                let service = stack.services.get(*other);
                service.is_some_and(|service| service.depends_on.contains_key(name))
            })
        };
        let mut now: Vec<&str> = left
            .iter()
            .copied()
            .filter(|name| !is_needed(name))
            .collect();
        if now.is_empty() {
            // A circle, which resolving would have refused; all at once is all there is.
            now.clone_from(&left);
        }
        left.retain(|name| !now.contains(name));
        let stops = now
            .iter()
            .map(|name| stop_one(engine, launched, stack, volumes, name));
        join_all(stops)
            .await
            .into_iter()
            .collect::<Result<(), _>>()?;
    }
    Ok(())
}

async fn stop_one<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
    volumes: &[String],
    name: &str,
) -> Result<(), Reason> {
    let ids = &launched.containers[name];
    let service = stack.services.get(name);
    let grace = service
        .and_then(|service| service.stop_grace_period)
        .unwrap_or(STOP_GRACE);
    for id in ids {
        engine
            .stop_container(id, grace)
            .await
            .map_err(|error| failure(&error))?;
    }
    if !service.is_some_and(|service| mounts_any(service, volumes)) {
        return Ok(());
    }
    for id in ids {
        let seen = engine.inspect(id).await.map_err(|error| failure(&error))?;
        check_exit(name, grace, seen.exit_code, seen.oom_killed)?;
    }
    Ok(())
}

/// Whether a process that writes to the volumes ended as it was asked to.
fn check_exit(
    name: &str,
    grace: Duration,
    exit_code: Option<i64>,
    oom_killed: bool,
) -> Result<(), Reason> {
    match exit_code {
        // 128 and the number of SIGTERM or SIGINT: it ended because it was asked to.
        Some(0 | 130 | 143) if !oom_killed => Ok(()),
        Some(KILLED) => Err(failed(format!(
            "service `{name}` did not stop within its grace of {} and was killed: its volumes may be torn; raise its stop_grace_period",
            format_duration(grace)
        ))),
        code => Err(failed(format!(
            "service `{name}` ended {} when it was stopped: its volumes may be torn",
            code.map_or_else(
                || "without a code".to_owned(),
                |code| format!("with code {code}")
            )
        ))),
    }
}
