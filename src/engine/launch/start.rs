//! Creating everything, and the launch from its beginning to its proof.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use indexmap::IndexMap;
use tokio::time::Instant;

use super::error::LaunchError;
use super::follow::Watch;
use super::ready::refuse_taken_port;
use super::request::{
    Launch, Launched, TargetPath, check, creation_steps, has_healthcheck, may_complete,
    n_containers, target_path,
};
use crate::engine::golden::{LaunchVolumes, clone_volumes};
use crate::engine::reach::network_owner;
use crate::engine::replica::replica_name;
use crate::engine::{
    ClonedState, ContainerId, ContainerRequest, Engine, EngineError, ImageFacts, Lease, Proof,
    TrialTag, check_limits,
};
use crate::stack::{Condition, Stack};

/// A stack of which everything is created and nothing runs.
#[derive(Debug)]
pub struct Prepared {
    images: IndexMap<String, ImageFacts>,
    networks: IndexMap<String, String>,
    containers: IndexMap<String, Vec<ContainerId>>,
    path: Option<TargetPath>,
    cloned: Option<ClonedState>,
    created_after: Duration,
}

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
    let prepared = prepare(lease, launch).await?;
    start(lease, launch, prepared).await
}

/// Creates the networks, volumes and containers of a stack, and starts none of them.
///
/// **Errors** and **Cancel**: as [`launch`].
pub async fn prepare<E: Engine>(
    lease: &Lease<E>,
    launch: &Launch<'_>,
) -> Result<Prepared, LaunchError> {
    let begun = Instant::now();
    let engine = &**lease.engine();
    check(launch)?;
    let path = target_path(launch)?;
    let images = find_images(engine, launch).await?;
    check_healthchecks(launch, &images)?;
    let Created {
        networks,
        containers,
        cloned,
    } = lease
        .creating(Box::pin(create_all(
            engine,
            lease.tag(),
            launch,
            path,
            &images,
        )))
        .await?;
    Ok(Prepared {
        images,
        networks,
        containers,
        path,
        cloned,
        created_after: begun.elapsed(),
    })
}

/// Starts what was prepared and waits until it is ready and its limits are proved.
///
/// `launch` is the one it was prepared for.
///
/// **Errors** and **Cancel**: as [`launch`].
pub async fn start<E: Engine>(
    lease: &Lease<E>,
    launch: &Launch<'_>,
    prepared: Prepared,
) -> Result<Launched, LaunchError> {
    let begun = Instant::now();
    let engine = &**lease.engine();
    let Prepared {
        images,
        networks,
        containers,
        path,
        cloned,
        created_after,
    } = prepared;
    // Not earlier: a stack may be prepared while another one still runs.
    refuse_taken_port(engine, launch).await?;
    let heard = lease.tag().filter();
    let watch = Watch::new(engine, launch, &images, &containers, &networks);
    let (targets, completed) = tokio::select! {
        biased;
        never = watch.hear(&heard) => match never {},
        Err(error) = watch.run_all() => return Err(error),
        ready = watch.until_ready(path) => ready?,
        () = tokio::time::sleep(launch.deadline) => {
            let elapsed = begun.elapsed();
            let last_seen = watch.last_seen();
            return Err(LaunchError::NotReady {
                last_seen,
                log_tails: watch.log_tails().await,
                limit: launch.deadline,
                elapsed,
            });
        }
    };
    let warnings = watch.into_warnings();
    let mut launched = Launched {
        containers,
        subject: launch.subject.to_owned(),
        completed,
        may_complete: may_complete(launch),
        warnings,
        targets,
        target_path: path,
        path: path_of_all(launch, path),
        networks,
        proof: Proof::Inspect,
        images,
        cloned,
        created_after,
        ready_after: created_after + begun.elapsed(),
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
        let found = engine.find_image(service.launched_image()).await;
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

/// What was created.
struct Created {
    /// Engine network names by Compose name.
    networks: IndexMap<String, String>,
    /// The containers of every service.
    containers: IndexMap<String, Vec<ContainerId>>,
    cloned: Option<ClonedState>,
}

/// What things are called in the engine, by the stack's own names.
struct Names {
    networks: IndexMap<String, String>,
    volumes: IndexMap<String, String>,
}

fn names_of(tag: &TrialTag, launch: &Launch<'_>) -> Names {
    let stack = launch.stack;
    let named = |part: &String| (part.clone(), tag.name(part));
    let networks: IndexMap<String, String> = stack
        .networks
        .iter()
        .map(|(name, network)| match &network.external {
            Some(external) => (name.clone(), external.clone()),
            None => named(name),
        })
        .collect();
    let kept = |name: &String| launch.state.and_then(|state| state.kept.get(name));
    // What the user shares, or the run keeps, is used as it is: never made, never removed.
    let volumes: IndexMap<String, String> = stack
        .volumes
        .iter()
        .map(
            |(name, volume)| match volume.external.as_ref().or(kept(name)) {
                Some(there) => (name.clone(), there.clone()),
                None => named(name),
            },
        )
        .collect();
    Names { networks, volumes }
}

fn failed(what: String) -> impl FnOnce(EngineError) -> LaunchError {
    move |source| LaunchError::CreateFailed { what, source }
}

/// Creates everything. All calls are awaited even when one fails: a call that is
/// dropped half-way may still create, after the clean-up has looked.
async fn create_all<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    launch: &Launch<'_>,
    path: Option<TargetPath>,
    images: &IndexMap<String, ImageFacts>,
) -> Result<Created, LaunchError> {
    let stack = launch.stack;
    let labels = tag.labels();
    let Names { networks, volumes } = names_of(tag, launch);
    let kept = |name: &String| launch.state.and_then(|state| state.kept.get(name));
    let own_networks = stack
        .networks
        .iter()
        .filter(|(_, network)| network.external.is_none());
    let make_networks = join_all(own_networks.map(|(name, network)| {
        let created = engine.create_network(&networks[name], network, &labels);
        async move { created.await.map_err(failed(format!("network `{name}`"))) }
    }));
    let clone = launch.state.and_then(|state| state.clone.as_ref());
    let is_cloned =
        |name: &String| clone.is_some_and(|source| source.golden.facts.trees.contains_key(name));
    let own_volumes = stack.volumes.iter().filter(|(name, volume)| {
        volume.external.is_none() && kept(name).is_none() && !is_cloned(name)
    });
    let make_volumes = join_all(own_volumes.map(|(name, volume)| {
        let created = engine.create_volume(&volumes[name], volume, &labels);
        async move { created.await.map_err(failed(format!("volume `{name}`"))) }
    }));
    let make_clones = async {
        let volumes = LaunchVolumes {
            stack,
            names: &volumes,
        };
        match clone {
            Some(source) => clone_volumes(engine, tag, source, &volumes).await.map(Some),
            None => Ok(None),
        }
    };
    // Filled before any container is made: making one puts the image's own files into
    // a volume that is empty.
    let (networks_made, volumes_made, cloned) =
        tokio::join!(make_networks, make_volumes, make_clones);
    networks_made
        .into_iter()
        .chain(volumes_made)
        .collect::<Result<(), _>>()?;
    let cloned = cloned?;

    let names = Names { networks, volumes };
    let containers = create_containers(engine, tag, launch, path, &names, images).await?;
    Ok(Created {
        networks: names.networks,
        containers,
        cloned,
    })
}

/// Creates the containers, all of one step side by side.
async fn create_containers<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    launch: &Launch<'_>,
    path: Option<TargetPath>,
    names: &Names,
    images: &IndexMap<String, ImageFacts>,
) -> Result<IndexMap<String, Vec<ContainerId>>, LaunchError> {
    let stack = launch.stack;
    // Whatever shares something with another container needs that one's identifier.
    let mut containers: IndexMap<String, Vec<ContainerId>> = IndexMap::new();
    for step in creation_steps(stack) {
        let each_container = step.iter().flat_map(|name| {
            let of = n_containers(&stack.services[*name]);
            (0..of).map(move |index| (*name, index, of))
        });
        let make_containers = join_all(each_container.map(|(name, index, of)| {
            let (networks, volumes, containers) = (&names.networks, &names.volumes, &containers);
            async move {
                let request = ContainerRequest {
                    name: container_name(tag, stack, name, index, of),
                    service: &stack.services[name],
                    networks,
                    volumes,
                    containers,
                    labels: &tag.replica_labels(name, index, of),
                    image_volumes: &images[name].volumes,
                    publish_ports: ports_to_publish(launch, path, name),
                };
                let id = engine.create_container(request).await;
                let what = format!("service `{}`", replica_name(name, index, of));
                Ok::<_, LaunchError>((name, id.map_err(failed(what))?))
            }
        }));
        for made in make_containers.await {
            let (name, id) = made?;
            containers.entry(name.to_owned()).or_default().push(id);
        }
    }
    // In the order of the stack, whatever the order of their creation was.
    containers.sort_by_key(|name, _| stack.services.get_index_of(name));
    Ok(containers)
}

/// How the containers are reached. Without a target nothing says how the stack is; whether
/// containers can be reached directly does.
fn path_of_all(launch: &Launch<'_>, path: Option<TargetPath>) -> TargetPath {
    path.unwrap_or(if launch.facts.direct {
        TargetPath::Direct
    } else {
        TargetPath::Published
    })
}

/// Ports of a service that must be reached through the loopback address.
fn ports_to_publish(launch: &Launch<'_>, path: Option<TargetPath>, service: &str) -> Vec<u16> {
    if path_of_all(launch, path) == TargetPath::Direct {
        return Vec::new();
    }
    let places = launch.target.into_iter().chain(launch.asked);
    let mut ports: Vec<u16> = places
        .filter(|place| network_owner(launch.stack, &place.service) == service)
        .map(|place| place.port)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Engine-wide name of a container, as Compose numbers them; a service that happens to
/// be called so keeps its name.
fn container_name(tag: &TrialTag, stack: &Stack, service: &str, index: usize, of: usize) -> String {
    if of == 1 {
        return tag.name(service);
    }
    let mut part = format!("{service}-{}", index + 1);
    while stack.services.contains_key(&part) {
        part.push('_');
    }
    tag.name(&part)
}
