//! What is read at the edges of a window: limits and counters.

use super::Reason;
use super::evidence::{reading_json, said};
use super::shell::Trial;
use crate::engine::{
    Engine, HostCpu, Launched, Proof, ProofError, Readings, host_use, read_host_cpu, read_proof,
    snapshot,
};
use crate::problem::chain;

/// What is read at an edge of a window.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) proof: Proof,
    pub(super) readings: Readings,
    pub(super) host: Option<HostCpu>,
    /// Whether the subject's process has a variable otherwise than the stack says.
    pub(super) is_environment_changed: bool,
}

impl<E: Engine> Trial<'_, '_, E> {
    /// Reads limits and counters; a limit that is not as planned ends the trial.
    pub(super) async fn read_edge(
        &mut self,
        launched: &Launched,
        phase: usize,
        edge: &'static str,
    ) -> Result<Edge, Reason> {
        let engine = &**self.shared.engine;
        let host = read_host_cpu();
        let readings = snapshot(engine, launched)
            .await
            .map_err(|error| Reason::new("engine_error", chain(&error)))?;
        let reading = read_proof(engine, launched, &self.job.stack).await;
        let line = reading_json(&reading, self.job, self.shared.secrets);
        self.keep_proof(Some(phase), edge, line);
        let is_environment_changed = reading
            .services
            .iter()
            .filter(|read| read.service == launched.subject)
            .any(|read| read.changed_variables().next().is_some());
        let proof = reading.outcome.map_err(|error| match &error {
            ProofError::Disturbed { .. } => Reason::new("disturbed", error.to_string()),
            ProofError::NotApplied(wrong) => {
                let words = said(wrong, self.job, self.shared.secrets);
                Reason::new("limits_not_applied", words)
            }
            ProofError::Engine { .. } | ProofError::NotLaunched { .. } => {
                Reason::new("engine_error", chain(&error))
            }
        })?;
        Ok(Edge {
            proof,
            readings,
            host,
            is_environment_changed,
        })
    }
}

pub(super) fn host_busy_cores(left: &Edge, right: &Edge) -> Option<f64> {
    host_use(left.host?, right.host?).map(|used| used.busy_cores)
}
