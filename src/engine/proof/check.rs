//! Looking at every container of a launch and comparing.

use futures_util::future::join_all;
use serde::Serialize;

use super::compare::{
    LimitsNotApplied, Proof, changed_variables, compare_environment, compare_image,
    compare_inspection, compare_kernel, compare_kernel_cpu,
};
use crate::engine::{
    ContainerId, Engine, EngineError, EngineErrorKind, Inspection, KernelLimits, Launched, Limits,
    RunState,
};
use crate::stack::{Service, Stack};

/// Why limits could not be proved.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// One is wrong.
    #[error(transparent)]
    NotApplied(#[from] LimitsNotApplied),
    /// Somebody interfered with a container while it was measured.
    #[error("service `{service}` {what}")]
    Disturbed {
        /// The service.
        service: String,
        /// What was done to it.
        what: String,
    },
    /// The stack is not the one that was launched.
    #[error("service `{service}` was not launched")]
    NotLaunched {
        /// The service.
        service: String,
    },
    /// A container could not be looked at.
    #[error("read back the limits of service `{service}`")]
    Engine {
        /// The service.
        service: String,
        /// Why.
        #[source]
        source: EngineError,
    },
}

/// What one look at all containers of a launch showed.
#[derive(Debug)]
pub struct ProofReading {
    /// By container, in the order of the stack.
    pub services: Vec<ServiceReading>,
    /// The weakest proof, or the first thing that is wrong.
    pub outcome: Result<Proof, ProofError>,
}

/// What was planned for one container, and what was read of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServiceReading {
    /// Compose name.
    pub service: String,
    /// The same, with the number of the container where there are several.
    pub name: String,
    /// The container.
    pub container: String,
    /// The limits of the stack.
    pub planned: PlannedLimits,
    /// What the engine holds; `None` when it could not be asked.
    pub inspect: Option<InspectedLimits>,
    /// What the kernel enforces; `None` when its files cannot be read from here.
    pub kernel: Option<KernelLimits>,
    /// Image recorded before, where one was.
    pub image_planned: Option<String>,
    /// Image it was made from.
    pub image: Option<String>,
    /// The stack's variables as they were found. **Shape**: in the order of the stack.
    pub environment: Vec<VariableReading>,
    /// Whether the process's own variables could be read.
    pub is_process_read: bool,
    /// What is not as planned, in words; values of variables stand in it.
    pub wrong: Option<String>,
    /// The same as data, where it is a limit, a variable or the image.
    #[serde(skip)]
    pub not_applied: Option<LimitsNotApplied>,
}

/// The limits of a service as its stack gives them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlannedLimits {
    /// CPU quota. **Units**: cores.
    pub cpus: Option<f64>,
    /// CPUs.
    pub cpuset: Option<String>,
    /// Memory. **Units**: bytes.
    pub mem_limit: Option<u64>,
    /// Processes.
    pub pids_limit: Option<i64>,
}

/// The engine's side of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InspectedLimits {
    /// What it was doing.
    pub state: RunState,
    /// Its limits.
    pub limits: Limits,
}

/// One variable of the stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VariableReading {
    /// Its name.
    pub name: String,
    /// Its value in the stack.
    pub planned: String,
    /// Its value when the container was made.
    pub inspect: Option<String>,
    /// Its value as the first process has it; `None` when absent or not read.
    pub process: Option<String>,
    /// Whether the first process has it otherwise than the stack says.
    pub is_changed: bool,
}

impl ServiceReading {
    fn of(service_name: &str, name: &str, service: &Service, id: &ContainerId) -> Self {
        Self {
            service: service_name.to_owned(),
            name: name.to_owned(),
            container: id.0.clone(),
            planned: PlannedLimits {
                cpus: service.cpu_cores(),
                cpuset: service.cpuset.clone(),
                mem_limit: service.mem_limit,
                pids_limit: service.pids_limit,
            },
            ..Self::default()
        }
    }

    /// Variables that the first process has otherwise than the stack says.
    pub fn changed_variables(&self) -> impl Iterator<Item = &str> {
        let changed = self
            .environment
            .iter()
            .filter(|variable| variable.is_changed);
        changed.map(|variable| variable.name.as_str())
    }
}

/// What somebody did to a container that no limit shows.
fn disturbance(service: &Service, seen: &Inspection) -> Option<String> {
    if seen.state == RunState::Paused {
        return Some("is paused: somebody froze it".to_owned());
    }
    let (planned, found) = (service.networks.len(), seen.addresses.len());
    (seen.state == RunState::Running && found < planned).then(|| {
        format!("should be in {planned} networks and is in {found}: somebody disconnected it")
    })
}

/// Compares every container's limits with those in force; the weakest proof counts.
///
/// **Errors**: a container that somebody froze or took off a network; the first wrong limit in the order of the services; a container
/// that cannot be looked at.
pub async fn check_limits<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
) -> Result<Proof, ProofError> {
    read_proof(engine, launched, stack).await.outcome
}

/// Looks at every container once, compares, and keeps what was read.
///
/// The image is compared with the content that was recorded before the sweep
/// (`image_id`), without one with what the launch found.
pub async fn read_proof<E: Engine>(engine: &E, launched: &Launched, stack: &Stack) -> ProofReading {
    let missing = stack
        .services
        .keys()
        .find(|name| !launched.containers.contains_key(*name));
    if let Some(name) = missing {
        let service = name.clone();
        return ProofReading {
            services: Vec::new(),
            outcome: Err(ProofError::NotLaunched { service }),
        };
    }
    let containers = launched
        .replicas()
        .filter_map(|replica| Some((replica, stack.services.get(replica.service)?)));
    let looks = containers.map(|(replica, service)| async move {
        let (name, id) = (replica.name(), replica.id);
        let is_completed = launched.completed.contains(replica.service);
        let mut reading = ServiceReading::of(replica.service, &name, service, id);
        let found = launched.images.get(replica.service);
        let recorded = service.image_id.as_ref();
        reading.image_planned = recorded.or(found.map(|facts| &facts.digest)).cloned();
        let outcome = look(engine, (&name, service, id), is_completed, &mut reading).await;
        if let Err(error) = &outcome {
            reading.wrong = Some(error.to_string());
            if let ProofError::NotApplied(wrong) = error {
                reading.not_applied = Some(wrong.clone());
            }
        }
        (reading, outcome)
    });
    let (readings, outcomes): (Vec<_>, Vec<_>) = join_all(looks).await.into_iter().unzip();
    let proofs: Result<Vec<Proof>, ProofError> = outcomes.into_iter().collect();
    ProofReading {
        services: readings,
        outcome: proofs.map(|proofs| proofs.into_iter().min().unwrap_or(Proof::Inspect)),
    }
}

/// One look at one container.
async fn look<E: Engine>(
    engine: &E,
    (name, service, id): (&str, &Service, &ContainerId),
    is_completed: bool,
    reading: &mut ServiceReading,
) -> Result<Proof, ProofError> {
    let seen = match engine.inspect(id).await {
        Ok(seen) => seen,
        // Stopped containers are tidied up on many hosts (`docker container prune`). This
        // one had come to its end: what is measured does not notice.
        Err(error) if is_completed && error.kind == EngineErrorKind::NotFound => {
            return Ok(Proof::Kernel);
        }
        Err(source) => {
            let service = name.to_owned();
            return Err(ProofError::Engine { service, source });
        }
    };
    reading.inspect = Some(InspectedLimits {
        state: seen.state,
        limits: seen.limits.clone(),
    });
    reading.image = Some(seen.image_digest.clone());
    // What has ended uses nothing any more: its control group and process are gone.
    let is_alive = !is_completed && seen.state == RunState::Running;
    let process = is_alive
        .then(|| engine.process_environment(id, &seen))
        .flatten();
    reading.is_process_read = process.is_some();
    reading.environment = variables(service, &seen.environment, process.as_deref());
    reading.kernel = (!is_completed)
        .then(|| engine.kernel_limits(id, &seen))
        .flatten();

    if let Some(what) = disturbance(service, &seen) {
        let service = name.to_owned();
        return Err(ProofError::Disturbed { service, what });
    }
    compare_inspection(name, service, &seen.limits)?;
    if let Some(recorded) = &reading.image_planned {
        compare_image(name, recorded, &seen.image_digest)?;
    }
    compare_environment(name, service, &seen.environment)?;
    if is_completed {
        return Ok(Proof::Kernel);
    }
    match &reading.kernel {
        Some(limits) => compare_kernel(name, service, limits).map_err(ProofError::from),
        None => Ok(Proof::Inspect),
    }
}

fn variables(
    service: &Service,
    inspect: &[(String, String)],
    process: Option<&[(String, String)]>,
) -> Vec<VariableReading> {
    let changed = process
        .and_then(|process| changed_variables(service, process))
        .unwrap_or_default();
    let value =
        |of: &[(String, String)], name: &str| super::compare::value_of(of, name).map(str::to_owned);
    service
        .environment
        .iter()
        .map(|(name, planned)| VariableReading {
            name: name.clone(),
            planned: planned.clone(),
            inspect: value(inspect, name),
            process: process.and_then(|process| value(process, name)),
            is_changed: changed.contains(&name.as_str()),
        })
        .collect()
}

/// Compares every running container's quota and CPUs with what the kernel enforces now.
///
/// Reads two or three small files for each container and asks the engine nothing, so that it
/// can be done while a window is open; what cannot be read is not judged.
///
/// **Errors**: the first that is not as planned.
pub fn sample_cpu<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
) -> Result<(), LimitsNotApplied> {
    for replica in launched.running() {
        let Some(service) = stack.services.get(replica.service) else {
            continue;
        };
        if let Some(cpu) = engine.kernel_cpu(replica.id) {
            compare_kernel_cpu(&replica.name(), service, &cpu)?;
        }
    }
    Ok(())
}
