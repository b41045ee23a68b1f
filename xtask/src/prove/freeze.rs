//! Proof: a service that freezes shows in an open loop and hides in a closed one.
//!
//! The test of the ordinary suite, held for a minute. Read `src/load/truth_tests.rs`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use fs_err as fs;

use crate::steps::{StepError, Steps, cargo};

const TEST: &str = "a_service_that_freezes_shows_in_an_open_loop_and_hides_in_a_closed_one";
/// Length of the open loop.
const SECONDS: u32 = 60;

/// Runs the test and keeps the figures it prints.
pub(super) fn freeze(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    // A test binary that is built already may be named.
    let mut command = if let Some(tests) = std::env::var_os("NIGHTSWEEP_PROVE_TESTS") {
        Command::new(tests)
    } else {
        cargo(&["test", "--locked", "--release", "--lib", "--"])
    };
    let output = command
        .args(["--nocapture", TEST])
        .current_dir(steps.root())
        .env("NIGHTSWEEP_TEST_FREEZE_SECONDS", SECONDS.to_string())
        .output()
        .map_err(|error| StepError::new(format!("cannot start the proof: {error}")))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let mut facts = String::new();
    for line in text
        .lines()
        .filter(|line| line.contains("open at") || line.contains("closed,"))
    {
        let _ = writeln!(facts, "- {line}");
    }
    if !output.status.success() || facts.is_empty() {
        return Err(StepError::new(format!(
            "the proof of freezes failed:\n{}{text}",
            String::from_utf8_lossy(&output.stdout)
        )));
    }
    fs::remove_dir_all(scratch)?;
    Ok(format!(
        "A server that answers in 1 ms, but stands still for 1 s of every 10. Known for an open loop, timed from \
         the due time: p50 under 3 ms, p95 501 ms, p99 901 ms, within 2 % (beside what the host itself was late by). \
         Two users of a closed loop meet each freeze once, and thousands of quick answers bury it.\n\n{facts}"
    ))
}
