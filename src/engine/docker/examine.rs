//! What a check of the host asks of the engine beyond its facts.

use std::path::{Path, PathBuf};

use bollard::query_parameters::ListContainersOptions;

use super::DockerEngine;
use super::connection::{CALL_LIMIT, Reach, call};
use crate::engine::{EngineError, LABEL_RUN};

/// The engine at work: what it stores where, and who else uses it.
#[derive(Debug, Clone, Default)]
pub struct Examination {
    /// Folder where it keeps images and volumes, where it is on this host and may be looked at.
    pub data_folder: Option<PathBuf>,
    /// Names of running containers that are not ours.
    pub others: Vec<String>,
    /// Whether limits can be read from the kernel, of containers that run.
    pub kernel_is_readable: bool,
    /// What the engine itself warns of.
    pub warnings: Vec<String>,
}

impl DockerEngine {
    /// Looks at the engine; `is_direct` is what its facts say.
    ///
    /// **Errors**: as every call.
    pub async fn examine(&self, is_direct: bool) -> Result<Examination, EngineError> {
        let address = self.endpoint.address.as_str();
        let info = call("describe", address, CALL_LIMIT, self.docker.info());
        let running = self.docker.list_containers(None::<ListContainersOptions>);
        let running = call("list containers", address, CALL_LIMIT, running);
        let (info, running) = tokio::try_join!(info, running)?;
        let is_ours = |labels: &Option<std::collections::HashMap<String, String>>| {
            labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(LABEL_RUN))
        };
        let others = running
            .into_iter()
            .filter(|container| !is_ours(&container.labels))
            .filter_map(|container| container.names?.into_iter().next())
            .map(|name| name.trim_start_matches('/').to_owned())
            .collect();
        // A folder of that name on this host is the engine's only where the engine is here.
        let data_folder = info
            .docker_root_dir
            .map(PathBuf::from)
            .filter(|folder| self.reach == Reach::Socket && is_direct && folder.is_dir());
        Ok(Examination {
            data_folder,
            others,
            kernel_is_readable: is_direct && Path::new("/sys/fs/cgroup").is_dir(),
            warnings: info.warnings.unwrap_or_default(),
        })
    }
}
