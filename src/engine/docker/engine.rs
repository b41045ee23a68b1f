//! The connected engine: what the calls share.
//!
//! Where control groups are is remembered here, since counters are read at every
//! edge of every window and must not cost a call. Read `calls.rs` next.

use std::collections::{BTreeMap, HashMap};
use std::net::UdpSocket;
use std::sync::{Mutex, PoisonError};

use bollard::Docker;
use bollard::query_parameters::{
    InspectNetworkOptions, ListContainersOptions, ListNetworksOptions, ListVolumesOptions,
    StatsOptions,
};
use futures_util::TryStreamExt;

use super::answers;
use super::connection::{CALL_LIMIT, Reach, call, open};
use super::endpoint::{self, Endpoint};
use crate::engine::cli_config::CliConfig;
use crate::engine::{
    Cgroup, ContainerId, Counters, EngineError, EngineErrorKind, Labels, Leftover, LeftoverKind,
    find_cgroup,
};
use crate::problem::chain;

/// The Docker Engine at one endpoint.
#[derive(Debug)]
pub struct DockerEngine {
    pub(in crate::engine) docker: Docker,
    pub(super) endpoint: Endpoint,
    /// Places that a rule named and that were not taken, each with why.
    pub(super) passed_over: Vec<String>,
    pub(super) reach: Reach,
    /// Where each running container's counters are; found once, read at every edge.
    cgroups: Mutex<HashMap<ContainerId, Cgroup>>,
}

impl DockerEngine {
    /// Finds the engine as the Docker CLI would, connects and agrees on an API version.
    ///
    /// The rules are in `endpoint.rs`; the variables are those of the process.
    ///
    /// **Errors**: `NoDaemon`, `Denied`, `Timeout`, each with a hint; `Other` for an
    /// address or context that cannot be used. Where nobody named a place, the
    /// error tells of every one that was tried.
    pub async fn find(variables: &BTreeMap<String, String>) -> Result<Self, EngineError> {
        let config = CliConfig::read(variables);
        let candidates = endpoint::candidates(variables, &config)?;
        let mut passed_over = candidates.passed_over;
        passed_over.extend(config.problem);
        let mut worst: Option<EngineError> = None;
        for endpoint in candidates.endpoints {
            match Self::open(endpoint).await {
                Ok(mut engine) => {
                    engine.passed_over = passed_over;
                    return Ok(engine);
                }
                Err(error) if candidates.is_named => return Err(error),
                Err(error) => {
                    passed_over.push(format!("{}: {}", error.object, chain(&*error.source)));
                    // A socket that is there and may not be used says more than one that is not.
                    if worst.as_ref().is_none_or(|worst| {
                        worst.kind == EngineErrorKind::NoDaemon
                            && error.kind != EngineErrorKind::NoDaemon
                    }) {
                        worst = Some(error);
                    }
                }
            }
        }
        let (kind, hint) = worst.map_or((EngineErrorKind::NoDaemon, None), |worst| {
            (worst.kind, worst.hint)
        });
        let said = format!("none of these answers:\n  {}", passed_over.join("\n  "));
        let mut error = EngineError::new("connect to", "a container engine", kind, said);
        error.hint = hint.or(error.hint);
        Err(error)
    }

    /// Connects to one address and agrees on an API version; `None` is the usual socket.
    ///
    /// **Errors**: as [`Self::find`].
    pub async fn connect(address: Option<&str>) -> Result<Self, EngineError> {
        let address = address.filter(|text| !text.is_empty());
        Self::open(Endpoint {
            address: address.unwrap_or("unix:///var/run/docker.sock").to_owned(),
            reason: "named by the caller".to_owned(),
            tls: None,
        })
        .await
    }

    async fn open(endpoint: Endpoint) -> Result<Self, EngineError> {
        let address = endpoint.address.as_str();
        let (docker, reach) = open(address, endpoint.tls.as_ref())?;
        let docker = call(
            "connect to",
            address,
            CALL_LIMIT,
            docker.negotiate_version(),
        )
        .await?;
        Ok(Self {
            docker,
            endpoint,
            passed_over: Vec::new(),
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
