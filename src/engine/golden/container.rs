//! One job of this program in a container of its own.
//!
//! The container has no network, a root file system that cannot be written to, and of
//! root's rights only those over files. It carries the labels of whoever asked, so the
//! same tear-down removes it, and it is gone before this comes back.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;

use super::image::HelperImage;
use crate::engine::{
    ContainerId, ContainerRequest, Engine, EngineError, Lease, Leftover, LeftoverKind, TrialTag,
};
use crate::stack::{Mount, MountSource, Service};
use crate::tree::{TreeAnswer, answer_of_log};
use crate::units::format_duration;

/// How the container is labelled among those of a trial.
const SERVICE: &str = "nightsweep-helper";
/// Lines of its log that an error carries.
const TAIL_LINES: u32 = 20;
/// What reading and writing files of any owner takes.
const RIGHTS: [&str; 4] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID"];

/// What is mounted where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelperMount {
    /// A volume by its engine name.
    Volume {
        /// Engine-wide name.
        name: String,
        /// Path inside.
        target: String,
        /// Whether it is only read.
        read_only: bool,
    },
    /// A folder of the engine's host; always only read.
    Folder {
        /// Absolute path on the host.
        source: PathBuf,
        /// Path inside.
        target: String,
    },
}

/// A job for the container.
#[derive(Debug, Clone)]
pub struct HelperRequest<'a> {
    /// The program.
    pub image: &'a HelperImage,
    /// Its arguments after `helper`.
    pub arguments: Vec<String>,
    /// What it sees.
    pub mounts: Vec<HelperMount>,
    /// Longest time it may take.
    pub limit: Duration,
}

/// A job that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The engine refused.
    #[error("run a container that works on volumes")]
    Engine {
        /// Why.
        #[source]
        source: EngineError,
    },
    /// It could not do the job.
    #[error("work on volumes: {}", words(*exit_code, log_tail))]
    Failed {
        /// Its exit code.
        exit_code: Option<i64>,
        /// Last lines of its log.
        log_tail: String,
    },
    /// It took too long.
    #[error("work on volumes: not done within {}", format_duration(*limit))]
    TooSlow {
        /// The limit.
        limit: Duration,
    },
}

fn words(exit_code: Option<i64>, log_tail: &str) -> String {
    let tail = log_tail.trim();
    match exit_code {
        _ if !tail.is_empty() => tail.replace('\n', " | "),
        Some(code) => format!("it ended with code {code} and wrote nothing"),
        None => "its container is gone".to_owned(),
    }
}

impl From<EngineError> for HelperError {
    fn from(source: EngineError) -> Self {
        Self::Engine { source }
    }
}

/// Runs the container to its end and removes it.
///
/// **Errors**: the engine's, the program's, the limit's.
/// **Cancel**: safe; the container goes with everything else that carries `tag`.
pub async fn run_helper<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    request: HelperRequest<'_>,
) -> Result<TreeAnswer, HelperError> {
    let id = create(engine, tag, &request).await?;
    run_and_remove(engine, tag, id, request.limit).await
}

/// The same where the container's creation is the lease's to answer for.
///
/// **Errors** and **Cancel**: as [`run_helper`]; the lease waits for a creation cut off.
pub async fn run_helper_of<E: Engine>(
    lease: &Lease<E>,
    request: HelperRequest<'_>,
) -> Result<TreeAnswer, HelperError> {
    let (engine, tag) = (&**lease.engine(), lease.tag());
    let id = lease.creating(create(engine, tag, &request)).await?;
    run_and_remove(engine, tag, id, request.limit).await
}

async fn create<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    request: &HelperRequest<'_>,
) -> Result<ContainerId, EngineError> {
    let (service, volumes) = service_of(request);
    engine
        .create_container(ContainerRequest {
            name: tag.name(SERVICE),
            service: &service,
            networks: &IndexMap::new(),
            volumes: &volumes,
            containers: &IndexMap::new(),
            labels: &tag.service_labels(SERVICE),
            image_volumes: &[],
            publish_ports: Vec::new(),
        })
        .await
}

async fn run_and_remove<E: Engine>(
    engine: &E,
    tag: &TrialTag,
    id: ContainerId,
    limit: Duration,
) -> Result<TreeAnswer, HelperError> {
    let answer = run(engine, &id, limit).await;
    let container = Leftover {
        kind: LeftoverKind::Container,
        id: id.0,
        name: tag.name(SERVICE),
        labels: tag.labels(),
    };
    // Its volumes are used next: while it is there, they are its own.
    let removed = engine.remove(&container).await;
    let answer = answer?;
    removed?;
    Ok(answer)
}

async fn run<E: Engine>(
    engine: &E,
    id: &ContainerId,
    limit: Duration,
) -> Result<TreeAnswer, HelperError> {
    engine.start_container(id).await?;
    match tokio::time::timeout(limit, engine.wait_for_exit(id)).await {
        Ok(ended) => ended?,
        Err(_) => return Err(HelperError::TooSlow { limit }),
    }
    let (seen, log) = tokio::join!(engine.inspect(id), engine.logs(id, Some(TAIL_LINES)));
    let (seen, log) = (seen?, log?);
    match answer_of_log(&log) {
        Some(answer) if seen.exit_code == Some(0) => Ok(answer),
        _ => Err(HelperError::Failed {
            exit_code: seen.exit_code,
            log_tail: log,
        }),
    }
}

/// The container as a service, and its volumes by the names the service uses.
fn service_of(request: &HelperRequest<'_>) -> (Service, IndexMap<String, String>) {
    let mut volumes = IndexMap::new();
    let mut mounts = Vec::new();
    for mount in &request.mounts {
        mounts.push(match mount {
            HelperMount::Volume {
                name,
                target,
                read_only,
            } => {
                volumes.insert(name.clone(), name.clone());
                Mount {
                    target: target.clone(),
                    source: MountSource::Volume {
                        source: name.clone(),
                        nocopy: true,
                    },
                    read_only: *read_only,
                }
            }
            HelperMount::Folder { source, target } => Mount {
                target: target.clone(),
                source: MountSource::Bind {
                    source: source.clone(),
                },
                read_only: true,
            },
        });
    }
    let command = request
        .image
        .command
        .iter()
        .cloned()
        .chain(["helper".to_owned()])
        .chain(request.arguments.iter().cloned());
    let service = Service {
        image: request.image.name.clone(),
        entrypoint: Some(Vec::new()),
        command: Some(command.collect()),
        user: Some("0:0".to_owned()),
        network_mode: Some("none".to_owned()),
        cap_drop: vec!["ALL".to_owned()],
        cap_add: RIGHTS.map(str::to_owned).to_vec(),
        security_opt: vec!["no-new-privileges:true".to_owned()],
        read_only: true,
        mounts,
        ..Service::default()
    };
    (service, volumes)
}
