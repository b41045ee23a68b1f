//! Creating everything, and the launch from its beginning to its proof.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use indexmap::IndexMap;
use tokio::time::Instant;

use super::error::{LaunchError, TAIL_LINES, exit_words};
use super::follow::Watch;
use super::request::{
    Launch, Launched, TargetPath, check, creation_steps, has_healthcheck, may_complete,
    network_owner, target_path, uses_host_network,
};
use crate::engine::{
    ContainerId, ContainerRequest, Engine, ImageFacts, Lease, ProbeFailure, Proof, ReadyProbe,
    RunState, TrialTag, check_limits,
};
use crate::stack::{Condition, Service};

/// By how much the launch's own deadline comes first.
const HOOK_MARGIN: Duration = Duration::from_secs(1);

/// A port of this host refuses or answers at once; only a busy listener takes longer.
const PORT_LIMIT: Duration = Duration::from_secs(1);

/// Launches a stack and waits until it is ready and its limits are proved.
///
/// Removes nothing: after an error, read the logs, then release the lease.
///
/// **Errors**: each with a stable code, see [`LaunchError::reason`].
/// **Cancel**: safe; the lease removes what was created, also what was being created.
pub async fn launch<E: Engine>(
    lease: &Lease<E>,
    launch: &Launch<'_>,
) -> Result<Launched, LaunchError> {
    let begun = Instant::now();
    let engine = &**lease.engine();
    check(launch)?;
    let path = target_path(launch)?;
    refuse_taken_port(engine, launch).await?;
    let images = find_images(engine, launch).await?;
    check_healthchecks(launch, &images)?;

    lease.set_creating(true);
    let created = create_all(engine, lease.tag(), launch, path).await;
    lease.set_creating(false);
    let (networks, containers) = created?;
    let created_after = begun.elapsed();

    let watch = Watch::new(engine, launch, &images, &containers, &networks);
    let (target, completed) = tokio::select! {
        biased;
        Err(error) = watch.run_all() => return Err(error),
        ready = watch.until_ready(path) => ready?,
        () = tokio::time::sleep(launch.deadline) => return Err(LaunchError::NotReady {
            last_seen: watch.last_seen(),
            limit: launch.deadline,
            elapsed: begun.elapsed().saturating_sub(created_after),
        }),
    };
    let ready_after = begun.elapsed();
    let mut launched = Launched {
        containers,
        subject: launch.subject.to_owned(),
        completed,
        may_complete: may_complete(launch),
        target,
        target_path: path,
        proof: Proof::Inspect,
        images,
        created_after,
        ready_after,
    };
    launched.proof = check_limits(engine, &launched, launch.stack).await?;
    Ok(launched)
}

/// Facts of each service's image.
async fn find_images<E: Engine>(
    engine: &E,
    launch: &Launch<'_>,
) -> Result<IndexMap<String, ImageFacts>, LaunchError> {
    let services = &launch.stack.services;
    let finds = services.iter().map(|(name, service)| async move {
        let found = engine.find_image(&service.image).await;
        let facts = found
            .map_err(|source| LaunchError::Engine { source })?
            .ok_or_else(|| LaunchError::ImageMissing {
                service: name.clone(),
                image: service.image.clone(),
            })?;
        Ok::<_, LaunchError>((name.clone(), facts))
    });
    Ok(try_join_all(finds).await?.into_iter().collect())
}

fn check_healthchecks(
    launch: &Launch<'_>,
    images: &IndexMap<String, ImageFacts>,
) -> Result<(), LaunchError> {
    for (name, service) in &launch.stack.services {
        for (dependency, wanted) in &service.depends_on {
            let Some(other) = launch.stack.services.get(dependency) else {
                continue;
            };
            if wanted.condition == Condition::ServiceHealthy
                && !has_healthcheck(other, &images[dependency])
            {
                return Err(LaunchError::Unusable {
                    service: name.clone(),
                    problem: format!(
                        "it waits for `{dependency}` to be healthy, and neither that service nor \
                         its image `{}` has a healthcheck",
                        other.image
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Engine network names by Compose name, and containers by service.
type Created = (IndexMap<String, String>, IndexMap<String, ContainerId>);

/// Creates everything. All calls are awaited even when one fails: a call that is
/// dropped half-way may still create, after the clean-up has looked.
async fn create_all<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    launch: &Launch<'_>,
    path: Option<TargetPath>,
) -> Result<Created, LaunchError> {
    let stack = launch.stack;
    let labels = tag.labels();
    let named = |part: &String| (part.clone(), tag.name(part));
    let networks: IndexMap<String, String> = stack
        .networks
        .iter()
        .map(|(name, network)| match &network.external {
            Some(external) => (name.clone(), external.clone()),
            None => named(name),
        })
        .collect();
    // What the user shares is used as it is: never made, never removed.
    let volumes: IndexMap<String, String> = stack
        .volumes
        .iter()
        .map(|(name, volume)| match &volume.external {
            Some(external) => (name.clone(), external.clone()),
            None => named(name),
        })
        .collect();
    let failed = |what: String| move |source| LaunchError::CreateFailed { what, source };

    let own_networks = stack
        .networks
        .iter()
        .filter(|(_, network)| network.external.is_none());
    let make_networks = join_all(own_networks.map(|(name, network)| {
        let created = engine.create_network(&networks[name], network, &labels);
        async move { created.await.map_err(failed(format!("network `{name}`"))) }
    }));
    let own_volumes = stack
        .volumes
        .iter()
        .filter(|(_, volume)| volume.external.is_none());
    let make_volumes = join_all(own_volumes.map(|(name, volume)| {
        let created = engine.create_volume(&volumes[name], volume, &labels);
        async move { created.await.map_err(failed(format!("volume `{name}`"))) }
    }));
    let (networks_made, volumes_made) = tokio::join!(make_networks, make_volumes);
    networks_made
        .into_iter()
        .chain(volumes_made)
        .collect::<Result<(), _>>()?;

    // Whatever shares something with another container needs that one's identifier.
    let mut containers: IndexMap<String, ContainerId> = IndexMap::new();
    let publisher = launch
        .target
        .filter(|_| path == Some(TargetPath::Published));
    for step in creation_steps(stack) {
        let make_containers = join_all(step.iter().map(|name| {
            let (networks, volumes, containers) = (&networks, &volumes, &containers);
            async move {
                let request = ContainerRequest {
                    name: tag.name(name),
                    service: &stack.services[*name],
                    networks,
                    volumes,
                    containers,
                    labels: &tag.service_labels(name),
                    publish_port: publisher
                        .filter(|target| network_owner(stack, &target.service) == *name)
                        .map(|target| target.port),
                };
                let id = engine.create_container(request).await;
                let id = id.map_err(failed(format!("service `{name}`")))?;
                Ok(((*name).to_owned(), id))
            }
        }));
        let made = make_containers.await.into_iter();
        let made: Vec<_> = made.collect::<Result<_, LaunchError>>()?;
        containers.extend(made);
    }
    // In the order of the stack, whatever the order of their creation was.
    containers.sort_by_key(|name, _| stack.services.get_index_of(name));
    Ok((networks, containers))
}

/// A port of the host that already answers would be measured in the target's place.
async fn refuse_taken_port<E: Engine>(engine: &E, launch: &Launch<'_>) -> Result<(), LaunchError> {
    let Some(target) = launch.target else {
        return Ok(());
    };
    if !uses_host_network(launch.stack, &target.service) {
        return Ok(());
    }
    let probe = launch.ready.cloned().unwrap_or_else(|| ReadyProbe {
        path: "/".to_owned(),
        status: 200,
        host: "localhost".to_owned(),
    });
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), target.port);
    match engine.probe(address, &probe, PORT_LIMIT).await {
        Err(ProbeFailure::Refused | ProbeFailure::Unreachable(_)) => Ok(()),
        Ok(_) | Err(_) => Err(LaunchError::Unusable {
            service: target.service.clone(),
            problem: format!(
                "it uses the host's network, and something else already listens on port {}",
                target.port
            ),
        }),
    }
}

/// Starts a service's container and runs what belongs to its start, in order.
///
/// **Errors**: a container that does not start, and a command that fails, with its output.
pub(super) async fn start_service<E: Engine>(
    engine: &E,
    launch: &Launch<'_>,
    (name, service): (&str, &Service),
    id: &ContainerId,
    note: impl Fn(String),
) -> Result<(), LaunchError> {
    let started = engine.start_container(id).await;
    started.map_err(|source| LaunchError::StartFailed {
        service: name.to_owned(),
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
            service: name.to_owned(),
            command,
            problem,
            output,
        });
    }
    Ok(())
}
