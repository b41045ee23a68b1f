//! Where a port of a launched container is reached from here.

use std::net::{Ipv4Addr, SocketAddr};

use indexmap::IndexMap;

use super::{ContainerId, Engine, EngineError, Inspection, LaunchTarget, Launched, TargetPath};
use crate::stack::{Stack, shared_service};

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

/// The address of a place of the stack, as one of its containers has it.
///
/// A container that is reached directly has it on its own address; through the loopback
/// address only ports that the launch was told of are published.
///
/// **Errors**: no such address; an engine that does not answer.
pub async fn reach<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
    place: &LaunchTarget,
    id: &ContainerId,
) -> Result<SocketAddr, ReachError> {
    let LaunchTarget { service, port } = place;
    let asked = has_network_of(stack, &launched.containers, service, id);
    let seen = engine
        .inspect(asked)
        .await
        .map_err(|source| ReachError::Engine {
            service: service.clone(),
            source,
        })?;
    address_of(stack, &launched.networks, place, &seen, launched.path).ok_or_else(|| {
        ReachError::NoAddress {
            service: service.clone(),
            port: *port,
        }
    })
}

/// The container whose network one of a service uses: its own, in most stacks.
pub(super) fn has_network_of<'c>(
    stack: &Stack,
    containers: &'c IndexMap<String, Vec<ContainerId>>,
    service: &str,
    id: &'c ContainerId,
) -> &'c ContainerId {
    let owner = network_owner(stack, service);
    // Who shares a network has one container, and so has who owns it.
    let other = containers.get(owner).and_then(|ids| ids.first());
    other.filter(|_| owner != service).unwrap_or(id)
}

/// Where a place of the stack is, as a look at the container shows it whose network its
/// service uses: on that service's first network, as the file orders them.
///
/// `networks`: engine names by the stack's own. The one place where this is decided: for the
/// target, for services that are asked things, and for seeding.
pub(super) fn address_of(
    stack: &Stack,
    networks: &IndexMap<String, String>,
    place: &LaunchTarget,
    seen: &Inspection,
    path: TargetPath,
) -> Option<SocketAddr> {
    if path == TargetPath::Published {
        return seen.published.get(&place.port).copied();
    }
    let ip = match network_mode(stack, &place.service) {
        Some("host") => Ipv4Addr::LOCALHOST.into(),
        Some(mode) => *seen.addresses.get(mode)?,
        None => {
            let owner = stack.services.get(network_owner(stack, &place.service))?;
            let attached = owner.networks.keys();
            let mut named = attached.filter_map(|name| networks.get(name));
            *named.find_map(|network| seen.addresses.get(network))?
        }
    };
    Some(SocketAddr::new(ip, place.port))
}

/// The service whose network a service uses: its own, or that of `service:NAME`.
pub(super) fn network_owner<'s>(stack: &'s Stack, service: &'s str) -> &'s str {
    let mut owner = service;
    // No chain is longer than the stack; a circle of them ends here too.
    for _ in 0..stack.services.len() {
        let mode = stack
            .services
            .get(owner)
            .and_then(|s| s.network_mode.as_deref());
        match mode.and_then(shared_service) {
            Some(next) => owner = next,
            None => break,
        }
    }
    owner
}

/// The mode that replaces the networks a service is on, if one does.
pub fn network_mode<'s>(stack: &'s Stack, service: &'s str) -> Option<&'s str> {
    let owner = stack.services.get(network_owner(stack, service))?;
    owner.network_mode.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Health, Limits, RunState};
    use crate::stack::{Attachment, Service};

    fn service(mode: Option<&str>, networks: &[&str]) -> Service {
        let attached = networks
            .iter()
            .map(|name| ((*name).to_owned(), Attachment::default()));
        Service {
            network_mode: mode.map(str::to_owned),
            networks: attached.collect(),
            ..Service::default()
        }
    }

    #[test]
    fn every_kind_of_network_leads_to_the_address_that_answers() {
        let services = [
            ("app", service(None, &["front", "back"])),
            ("sidecar", service(Some("service:app"), &[])),
            ("host", service(Some("host"), &[])),
            ("bridge", service(Some("bridge"), &[])),
            ("none", service(Some("none"), &[])),
        ];
        let services = services.map(|(name, service)| (name.to_owned(), service));
        let stack = Stack {
            services: services.into_iter().collect(),
            ..Stack::default()
        };
        let networks = ["front", "back"].map(|name| (name.to_owned(), format!("ns-{name}")));
        let networks = IndexMap::from(networks);
        // As the engine says it: in no order of ours.
        let seen = Inspection {
            addresses: [("ns-back", 2), ("bridge", 3), ("ns-front", 1)]
                .map(|(name, last)| (name.to_owned(), Ipv4Addr::new(10, 0, 0, last).into()))
                .into(),
            published: IndexMap::from([(80, "127.0.0.1:4000".parse().unwrap())]),
            state: RunState::Running,
            exit_code: None,
            oom_killed: false,
            restarts: 0,
            health: Health::None,
            limits: Limits::default(),
            pid: 1,
            image_digest: String::new(),
            environment: Vec::new(),
        };
        let at = |service: &str, path| {
            let place = LaunchTarget {
                service: service.to_owned(),
                port: 80,
            };
            address_of(&stack, &networks, &place, &seen, path).map(|found| found.to_string())
        };
        for (service, found) in [
            ("app", Some("10.0.0.1:80")),
            ("sidecar", Some("10.0.0.1:80")),
            ("host", Some("127.0.0.1:80")),
            ("bridge", Some("10.0.0.3:80")),
            ("none", None),
        ] {
            assert_eq!(
                at(service, TargetPath::Direct).as_deref(),
                found,
                "{service}"
            );
        }
        assert_eq!(
            at("sidecar", TargetPath::Published).as_deref(),
            Some("127.0.0.1:4000")
        );
    }

    #[test]
    fn who_shares_a_network_is_looked_for_in_its_owner() {
        let stack = Stack {
            services: IndexMap::from([
                ("app".to_owned(), service(None, &[])),
                ("sidecar".to_owned(), service(Some("service:app"), &[])),
            ]),
            ..Stack::default()
        };
        let id = |text: &str| ContainerId(text.to_owned());
        let containers = IndexMap::from([
            ("app".to_owned(), vec![id("a")]),
            ("sidecar".to_owned(), vec![id("s")]),
        ]);
        let of = |service: &str, own: &str| {
            has_network_of(&stack, &containers, service, &id(own)).clone()
        };
        assert_eq!(of("sidecar", "s"), id("a"));
        assert_eq!(of("app", "a"), id("a"));
    }
}
