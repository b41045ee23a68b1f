//! Whether the limits that were planned are the limits in force.
//!
//! Each limit is compared with what the engine holds (`inspect`) and, where its
//! files can be read, with what the kernel enforces (`kernel`). A limit that is
//! there and was not planned is as wrong as one that is missing. Comparison is
//! pure (`compare.rs`); [`read_proof`] looks, compares and keeps what it read,
//! [`sample_cpu`] looks at the kernel's CPU files alone while a window is open.
//!
//! Variables and image are proved too. A variable that the container was not made with is
//! wrong; one that its first process has otherwise is kept and flagged, since an image's
//! entrypoint may change it and that is the image's doing. Read `telemetry.rs` next.

mod check;
mod compare;
#[cfg(test)]
mod tests;

pub use check::{
    InspectedLimits, PlannedLimits, ProofError, ProofReading, ServiceReading, VariableReading,
    check_limits, read_proof, sample_cpu,
};
pub use compare::{
    LimitsNotApplied, Proof, changed_variables, compare_environment, compare_image,
    compare_inspection, compare_kernel, compare_kernel_cpu, nano_cpus,
};
