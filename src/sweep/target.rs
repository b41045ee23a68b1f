//! Where load goes, as a launch found it.

use std::net::SocketAddr;

use super::TargetSpec;
use crate::engine::{LaunchTarget, Launched};

/// One address for each container of the target; connections are spread over them.
pub(super) fn addresses_of(target: &TargetSpec, launched: &Launched) -> Vec<SocketAddr> {
    match target {
        TargetSpec::Service { .. } => launched.targets.clone(),
        TargetSpec::Remote { address, .. } => vec![*address],
    }
}

/// The place in the stack, where it is in the stack.
pub(super) fn place_of(target: &TargetSpec) -> Option<LaunchTarget> {
    match target {
        TargetSpec::Service { service, port, .. } => Some(LaunchTarget {
            service: service.clone(),
            port: *port,
        }),
        TargetSpec::Remote { .. } => None,
    }
}

pub(super) fn host_of(target: &TargetSpec) -> String {
    match target {
        TargetSpec::Service { service, port, .. } => format!("{service}:{port}"),
        TargetSpec::Remote { host, .. } => host.clone(),
    }
}

pub(super) fn base_path_of(target: &TargetSpec) -> String {
    match target {
        TargetSpec::Service { base_path, .. } | TargetSpec::Remote { base_path, .. } => {
            base_path.clone()
        }
    }
}
