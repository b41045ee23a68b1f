//! Where a port of a launched container is reached from here.

use std::net::SocketAddr;

use super::{ContainerId, Engine, EngineError, Launched, TargetPath};

/// Why a port cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The container has no address here.
    #[error("port {port} of service `{service}` has no address that can be reached from here")]
    NoAddress {
        /// The service.
        service: String,
        /// The port inside the container.
        port: u16,
    },
    /// The container could not be looked at.
    #[error("find the address of service `{service}`")]
    Engine {
        /// The service.
        service: String,
        /// Why.
        #[source]
        source: EngineError,
    },
}

/// The address of a port of one of the launch's containers.
///
/// A container that is reached directly has it on its own address; through the loopback
/// address only ports that the launch was told of are published.
///
/// **Errors**: no such address; an engine that does not answer.
pub async fn reach<E: Engine>(
    engine: &E,
    launched: &Launched,
    service: &str,
    id: &ContainerId,
    port: u16,
) -> Result<SocketAddr, ReachError> {
    let seen = engine
        .inspect(id)
        .await
        .map_err(|source| ReachError::Engine {
            service: service.to_owned(),
            source,
        })?;
    let published = || seen.published.get(&port).copied();
    let direct = || {
        let ip = seen.addresses.values().next()?;
        Some(SocketAddr::new(*ip, port))
    };
    let found = match launched.target_path {
        Some(TargetPath::Published) => published(),
        Some(TargetPath::Direct) => direct(),
        None => published().or_else(direct),
    };
    found.ok_or_else(|| ReachError::NoAddress {
        service: service.to_owned(),
        port,
    })
}
