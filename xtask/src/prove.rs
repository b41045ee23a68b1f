//! `cargo xtask prove [PART]`: proofs too long for every change.
//!
//! Each part writes `docs/proofs/<date>-<part>.md` with what was run, on what,
//! and what came out. A part that already has a file of today is not repeated,
//! so an interrupted `prove` goes on where it stopped.

use crate::steps::{StepError, Steps};

/// Runs one part or all.
pub(crate) fn prove(_steps: &mut Steps, part: Option<&str>) -> Result<(), StepError> {
    Err(StepError::new(format!(
        "no proof is called `{}`",
        part.unwrap_or("")
    )))
}
