//! Where load goes, as a launch found it.

use super::TargetSpec;
use crate::engine::Launched;

pub(super) fn address_of(target: &TargetSpec, launched: &Launched) -> Option<std::net::SocketAddr> {
    match target {
        TargetSpec::Service { .. } => launched.target,
        TargetSpec::Remote { address, .. } => Some(*address),
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
