//! Whether the limits that were planned are the limits in force.
//!
//! Each limit is compared with what the engine holds (`inspect`) and, where its
//! files can be read, with what the kernel enforces (`kernel`). A limit that is
//! there and was not planned is as wrong as one that is missing. Comparison is
//! pure (`compare.rs`); [`check_limits`] looks and compares. Read `telemetry.rs` next.

mod check;
mod compare;
#[cfg(test)]
mod tests;

pub use check::{ProofError, check_limits};
pub use compare::{LimitsNotApplied, Proof, compare_inspection, compare_kernel, nano_cpus};
