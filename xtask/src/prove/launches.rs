//! Proof: launches in a row under random kills.
//!
//! The test of the docker suite, for longer. Read tests/it/docker/launches.rs.

use std::path::Path;
use std::process::Command;

use fs_err as fs;

use crate::images;
use crate::steps::{StepError, Steps, cargo};

/// Launches in a row.
const N_LAUNCHES: &str = "200";
/// Where the random moments come from.
const SEED: &str = "20261130";

/// Runs the test with its report kept.
pub(super) fn launches(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    let postgres = images::images_at_hand(steps)?;
    let report = scratch.join("report.md");
    // A test binary that is built already may be named.
    let mut command = if let Some(tests) = std::env::var_os("NIGHTSWEEP_PROVE_TESTS") {
        Command::new(tests)
    } else {
        let mut command = cargo(&["test", "--locked", "--release"]);
        command.args(["--features", "docker-tests", "--test", "it"]);
        command
    };
    command
        .arg("docker::launches")
        .env("NIGHTSWEEP_TEST_POSTGRES_IMAGE", postgres)
        .env("NIGHTSWEEP_TEST_LAUNCHES", N_LAUNCHES)
        .env("NIGHTSWEEP_TEST_SEED", SEED)
        .env("NIGHTSWEEP_TEST_REPORT", &report);
    steps.run("launches", &mut command)?;
    let text = fs::read_to_string(&report)?;
    fs::remove_dir_all(scratch)?;
    Ok(text)
}
