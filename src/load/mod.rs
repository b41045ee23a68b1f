//! The load generator.
mod plan;
pub use plan::{LoadModel, LoadPlan, LoadSignal, PhasePlan, Target, Tick};

/// A checked workload file.
#[derive(Debug)]
pub struct Workload {}
