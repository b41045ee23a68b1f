//! The connected engine: what the calls share.
//!
//! Where control groups are is remembered here, since counters are read at every
//! edge of every window and must not cost a call. Read `calls.rs` next.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::{Mutex, PoisonError};

use bollard::Docker;
use bollard::query_parameters::{
    InspectNetworkOptions, ListContainersOptions, ListNetworksOptions, ListVolumesOptions,
    StatsOptions,
};
use futures_util::TryStreamExt;

use super::answers;
use super::connection::{CALL_LIMIT, DEFAULT_ENDPOINT, Reach, call, open};
use crate::engine::{
    Cgroup, ContainerId, Counters, EngineError, EngineErrorKind, Labels, Leftover, LeftoverKind,
    find_cgroup,
};

/// The Docker Engine at one endpoint.
#[derive(Debug)]
pub struct DockerEngine {
    pub(in crate::engine) docker: Docker,
    pub(super) endpoint: String,
    pub(super) reach: Reach,
    /// Where each running container's counters are; found once, read at every edge.
    cgroups: Mutex<HashMap<ContainerId, Cgroup>>,
}

impl DockerEngine {
    /// Connects and agrees on an API version.
    ///
    /// `endpoint` is the value of `DOCKER_HOST` where the user set one
    /// (`unix://PATH`, `tcp://HOST:PORT`); empty and `None` are the usual socket.
    ///
    /// **Errors**: `NoDaemon`, `Denied`, `Timeout`, each with a hint; `Other` for an
    /// address of a kind that is not supported.
    pub async fn connect(endpoint: Option<&str>) -> Result<Self, EngineError> {
        let endpoint = endpoint
            .filter(|text| !text.is_empty())
            .unwrap_or(DEFAULT_ENDPOINT);
        let (docker, reach) = open(endpoint)?;
        let docker = call(
            "connect to",
            endpoint,
            CALL_LIMIT,
            docker.negotiate_version(),
        )
        .await?;
        Ok(Self {
            docker,
            endpoint: endpoint.to_owned(),
            reach,
            cgroups: Mutex::default(),
        })
    }

    /// Whether this process stands on the engine's own network.
    ///
    /// The engine's default bridge has its gateway address on the host that can
    /// reach containers, and an address can be bound only where it exists. This
    /// tells a native engine from one seen from inside a container; one in a
    /// virtual machine or without root is told by `answers::is_native`, since this
    /// host may have a bridge of its own with the same address.
    pub(super) async fn is_direct(&self) -> bool {
        let bridge = call(
            "inspect network",
            "bridge",
            CALL_LIMIT,
            self.docker
                .inspect_network("bridge", None::<InspectNetworkOptions>),
        )
        .await;
        let ranges = bridge
            .ok()
            .and_then(|network| network.ipam?.config)
            .unwrap_or_default();
        ranges
            .iter()
            .filter_map(answers::gateway)
            .any(|gateway| UdpSocket::bind((gateway, 0)).is_ok())
    }

    pub(super) fn cgroup_of(&self, id: &ContainerId, pid: i64) -> Option<Cgroup> {
        let mut known = self.cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cgroup) = known.get(id) {
            return Some(cgroup.clone());
        }
        let cgroup = find_cgroup(pid, id)?;
        known.insert(id.clone(), cgroup.clone());
        Some(cgroup)
    }

    pub(super) fn known_cgroup(&self, id: &ContainerId) -> Option<Cgroup> {
        let known = self.cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(id).cloned()
    }

    pub(super) fn forget(&self, id: &str) {
        let mut known = self.cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&ContainerId(id.to_owned()));
    }

    pub(super) async fn list_containers(
        &self,
        labels: &[String],
    ) -> Result<Vec<Leftover>, EngineError> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(label_filter(labels)),
            ..ListContainersOptions::default()
        };
        let list = self.docker.list_containers(Some(options));
        let containers = call("list containers", &labels.join(","), CALL_LIMIT, list).await?;
        Ok(containers
            .into_iter()
            .filter_map(|container| {
                let id = container.id?;
                let name = container.names.unwrap_or_default().into_iter().next();
                let name =
                    name.map_or_else(|| id.clone(), |n| n.trim_start_matches('/').to_owned());
                Some(leftover(
                    LeftoverKind::Container,
                    id,
                    name,
                    container.labels,
                ))
            })
            .collect())
    }

    pub(super) async fn list_networks(
        &self,
        labels: &[String],
    ) -> Result<Vec<Leftover>, EngineError> {
        let options = ListNetworksOptions {
            filters: Some(label_filter(labels)),
        };
        let list = self.docker.list_networks(Some(options));
        let networks = call("list networks", &labels.join(","), CALL_LIMIT, list).await?;
        Ok(networks
            .into_iter()
            .filter_map(|network| {
                let (id, name) = (network.id?, network.name?);
                Some(leftover(LeftoverKind::Network, id, name, network.labels))
            })
            .collect())
    }

    pub(super) async fn list_volumes(
        &self,
        labels: &[String],
    ) -> Result<Vec<Leftover>, EngineError> {
        let options = ListVolumesOptions {
            filters: Some(label_filter(labels)),
        };
        let list = self.docker.list_volumes(Some(options));
        let answer = call("list volumes", &labels.join(","), CALL_LIMIT, list).await?;
        Ok(answer
            .volumes
            .unwrap_or_default()
            .into_iter()
            .map(|volume| {
                let name = volume.name;
                leftover(
                    LeftoverKind::Volume,
                    name.clone(),
                    name,
                    Some(volume.labels),
                )
            })
            .collect())
    }

    /// The engine's own statistics: without `one-shot` it would sample for a second.
    pub(in crate::engine) async fn counters_by_api(
        &self,
        id: &ContainerId,
    ) -> Result<Counters, EngineError> {
        let options = StatsOptions {
            stream: false,
            one_shot: true,
        };
        let first = async {
            let mut answers = Box::pin(self.docker.stats(&id.0, Some(options)));
            answers.try_next().await
        };
        let answer = call("read counters of", &id.0, CALL_LIMIT, first).await?;
        answer.as_ref().and_then(answers::counters).ok_or_else(|| {
            EngineError::new(
                "read counters of",
                &id.0,
                EngineErrorKind::Conflict,
                "the container does not run",
            )
        })
    }
}

pub(super) fn leftover(
    kind: LeftoverKind,
    id: String,
    name: String,
    labels: Option<HashMap<String, String>>,
) -> Leftover {
    let mut labels: Labels = labels.unwrap_or_default().into_iter().collect();
    labels.sort_keys();
    Leftover {
        kind,
        id,
        name,
        labels,
    }
}

pub(super) fn label_filter(labels: &[String]) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), labels.to_vec())])
}
