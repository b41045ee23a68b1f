//! Containers whose healthcheck failed while they were measured.
//!
//! That is a fact about the service, not a fault of the measurement: it is noted, and
//! the window stands. Looks come from the watch for exits (every few seconds) and from
//! the right edge of a window, so a failure that passes between two looks is not seen.

use std::sync::{Mutex, PoisonError};

use futures_util::future::try_join_all;
use indexmap::IndexMap;

use super::{Engine, EngineError, Health, Inspection, Launched};

/// The last output of each failing healthcheck, by container.
#[derive(Debug, Default)]
pub struct Unhealthy(Mutex<IndexMap<String, String>>);

impl Unhealthy {
    /// Notes what a look at a container says of its health.
    pub(super) fn note(&self, name: String, seen: &Inspection) {
        if let Health::Unhealthy(output) = &seen.health {
            let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
            let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            found.insert(name, output);
        }
    }

    /// Looks at every container that runs.
    ///
    /// **Errors**: a container that cannot be looked at.
    pub async fn look<E: Engine>(
        &self,
        engine: &E,
        launched: &Launched,
    ) -> Result<(), EngineError> {
        let looks = launched.running().map(|replica| async move {
            let seen = engine.inspect(replica.id).await?;
            self.note(replica.name(), &seen);
            Ok(())
        });
        try_join_all(looks).await.map(drop)
    }

    /// What was noted since the last time, by container.
    pub fn take(&self) -> IndexMap<String, String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
