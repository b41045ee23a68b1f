//! The container engine: operations, launching, proof and clean-up.
mod api;
pub use api::{
    ContainerId, ContainerRequest, Counters, Engine, Health, HostFacts, ImageFacts, Inspection,
    Labels, Leftover, LeftoverKind, Limits, RunState,
};

/// A call to the engine that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {object}")]
pub struct EngineError {
    /// What was asked.
    pub operation: &'static str,
    /// Of what.
    pub object: String,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
