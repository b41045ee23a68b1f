//! Running the stack once, to fill golden volumes: launch, seed, stop cleanly.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::Reason;
use super::golden::{failed, failure};
use super::golden_plan::{GoldenSpec, SeedLoad, SeedSpec};
use super::launching::{await_remote, launch_reason};
use super::shell::Shared;
use super::stopping::stop_in_order;
use super::target::{addresses_of, base_path_of, host_of, place_of};
use crate::engine::{
    ContainerId, Engine, Launch, LaunchTarget, Launched, Lease, RunState, Unhealthy, launch, reach,
    watch_exits,
};
use crate::event::EventKind;
use crate::load::{SeedPlan, Target, seed};
use crate::problem::chain;
use crate::stack::Stack;
use crate::units::format_duration;

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
    let launched = launch_once(shared, lease, spec, seed).await?;
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
    seed: Option<&SeedSpec>,
) -> Result<Launched, Reason> {
    let plan = shared.plan;
    // The seed may be sent elsewhere than the load.
    let load = seed.and_then(|seed| seed.workload.as_ref());
    let seeded = load.and_then(|load| load.target.as_ref());
    let asked: Vec<LaunchTarget> = seeded.and_then(place_of).into_iter().collect();
    let request = Launch {
        stack: &spec.stack,
        subject: &plan.subject,
        target: shared.wanted.target.as_ref(),
        asked: &asked,
        ready: shared.wanted.ready.as_ref(),
        deadline: plan.settings.ready_timeout,
        facts: shared.facts,
        state: None,
    };
    let not_launched = |reason: Reason| {
        failed(format!(
            "launch the stack: {}: {}",
            reason.code, reason.words
        ))
    };
    let launched = launch(lease, &request).await;
    let launched = launched
        .map_err(|error| not_launched(launch_reason(&error, |text| shared.secrets.digest(text))))?;
    // What prepares the stack may ask the load's target, too, wherever that is.
    await_remote(&**shared.engine, plan, &shared.wanted)
        .await
        .map_err(not_launched)?;
    Ok(launched)
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
    // Of its own end its own look says more: the last lines it wrote.
    let mut others = launched.clone();
    others.containers.shift_remove(service);
    let ended = try_join_all(ids.iter().map(|id| ends_well(engine, id, service)));
    tokio::select! {
        biased;
        ended = ended => ended.map(drop),
        exit = watch_exits(engine, &others, &unhealthy) => match exit {
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
    let addresses = match (&load.target, place_of(target)) {
        (Some(_), Some(place)) => {
            let engine = &**shared.engine;
            let ids = launched.containers.get(&place.service);
            let ids = ids.map_or(&[][..], Vec::as_slice);
            let reached = ids
                .iter()
                .map(|id| reach(engine, launched, &spec.stack, &place, id));
            let reached = try_join_all(reached).await;
            reached.map_err(|error| failure(&error))?
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
            wire: target.wire().clone(),
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

/// Stops every container that should still run.
///
/// **Errors**: a service that writes to the volumes and was killed, or ended badly.
async fn stop_cleanly<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
    volumes: &[String],
) -> Result<(), Reason> {
    let mut running = launched.containers.clone();
    running.retain(|name, _| !launched.completed.contains(name));
    let wrong = stop_in_order(engine, &running, stack, volumes).await;
    wrong
        .into_iter()
        .next()
        .map_or(Ok(()), |words| Err(failed(words)))
}
