//! Looking at every container of a launch and comparing.

use futures_util::future::try_join_all;

use super::compare::{LimitsNotApplied, Proof, compare_inspection, compare_kernel};
use crate::engine::{
    Engine, EngineError, EngineErrorKind, Inspection, Launched, Replica, RunState,
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
    if let Some(name) = stack
        .services
        .keys()
        .find(|name| !launched.containers.contains_key(*name))
    {
        let service = name.clone();
        return Err(ProofError::NotLaunched { service });
    }
    let checks = launched
        .replicas()
        .filter_map(|replica| Some((replica, stack.services.get(replica.service)?)))
        .map(|(replica, service)| {
            let has_ended = launched.completed.contains(replica.service);
            check_one(engine, replica, service, has_ended)
        });
    let proofs = try_join_all(checks).await?;
    Ok(proofs.into_iter().min().unwrap_or(Proof::Inspect))
}

async fn check_one<E: Engine>(
    engine: &E,
    replica: Replica<'_>,
    service: &Service,
    has_ended: bool,
) -> Result<Proof, ProofError> {
    let (name, id) = (replica.name(), replica.id);
    let seen = match engine.inspect(id).await {
        Ok(seen) => seen,
        // Stopped containers are tidied up on many hosts (`docker container prune`). This
        // one had come to its end: what is measured does not notice.
        Err(error) if has_ended && error.kind == EngineErrorKind::NotFound => {
            return Ok(Proof::Kernel);
        }
        Err(source) => {
            return Err(ProofError::Engine {
                service: name,
                source,
            });
        }
    };
    if let Some(what) = disturbance(service, &seen) {
        return Err(ProofError::Disturbed {
            service: name,
            what,
        });
    }
    compare_inspection(&name, service, &seen.limits)?;
    if has_ended {
        // It uses nothing any more, and its control group is gone.
        return Ok(Proof::Kernel);
    }
    match engine.kernel_limits(id, &seen) {
        Some(limits) => compare_kernel(&name, service, &limits).map_err(ProofError::from),
        None => Ok(Proof::Inspect),
    }
}
