//! What is read at the edges of a window: limits and counters.

use super::Reason;
use super::shell::Trial;
use crate::engine::{
    Engine, HostCpu, Launched, Proof, ProofError, Readings, check_limits, host_use, read_host_cpu,
    snapshot,
};
use crate::problem::chain;

/// What is read at an edge of a window.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) proof: Proof,
    pub(super) readings: Readings,
    pub(super) host: Option<HostCpu>,
}

impl<E: Engine> Trial<'_, '_, E> {
    /// Reads limits and counters; a limit that is not as planned ends the trial.
    pub(super) async fn read_edge(&self, launched: &Launched) -> Result<Edge, Reason> {
        let engine = &**self.shared.engine;
        let host = read_host_cpu();
        let readings = snapshot(engine, launched)
            .await
            .map_err(|error| Reason::new("engine_error", chain(&error)))?;
        let proof = check_limits(engine, launched, &self.job.stack)
            .await
            .map_err(|error| match &error {
                ProofError::Disturbed { .. } => Reason::new("disturbed", error.to_string()),
                ProofError::NotApplied(wrong) => {
                    Reason::new("limits_not_applied", wrong.to_string())
                }
                ProofError::Engine { .. } | ProofError::NotLaunched { .. } => {
                    Reason::new("engine_error", chain(&error))
                }
            })?;
        Ok(Edge {
            proof,
            readings,
            host,
        })
    }
}

pub(super) fn host_busy_cores(left: &Edge, right: &Edge) -> Option<f64> {
    host_use(left.host?, right.host?).map(|used| used.busy_cores)
}
