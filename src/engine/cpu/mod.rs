//! Which CPUs the subject, the other services and the generator get.
//!
//! `topology.rs` says what CPUs there are (a pure parser and its reader), `plan.rs`
//! hands them out (pure), `words.rs` says what came of it. **Invariant**: a `cpuset`
//! that a Compose file gives is never changed, and what cannot be kept apart is said.

mod hand_out;
mod plan;
#[cfg(test)]
mod tests;
mod topology;
#[cfg(test)]
mod topology_tests;
mod words;

pub use plan::{CpuPlan, CpuProblem, CpuRequest, TierCpus, TierStacks, cpu_limit, plan_cpus};
pub use topology::{Known, Topology};
