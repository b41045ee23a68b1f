//! Proof: Compose files of other people's projects through the resolver.
//!
//! The test of the feature `corpus-tests` with its table kept. The files are not
//! part of the repository: `NIGHTSWEEP_CORPUS` names them, and the table tells
//! them by number alone. Read tests/it/corpus.rs.

use std::path::Path;
use std::process::Command;

use fs_err as fs;

use crate::steps::{StepError, Steps, cargo};

/// The part's name.
pub(super) const NAME: &str = "compose-corpus";

/// Names the folder with the files.
pub(super) const VARIABLE: &str = "NIGHTSWEEP_CORPUS";

/// Whether there are files to read.
pub(super) fn is_at_hand() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Runs the test with its table kept.
pub(super) fn corpus(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    if !is_at_hand() {
        return Err(StepError::new(format!("{VARIABLE} is not set"))
            .hint("name the folder with the Compose files, see tests/it/corpus.rs"));
    }
    let report = scratch.join("table.md");
    // A test binary that is built already may be named.
    let mut command = if let Some(tests) = std::env::var_os("NIGHTSWEEP_PROVE_TESTS") {
        Command::new(tests)
    } else {
        let mut command = cargo(&["test", "--locked", "--test", "it"]);
        command.args(["--features", "nightsweep/corpus-tests"]);
        command
    };
    command
        .arg("corpus::")
        .env("NIGHTSWEEP_TEST_REPORT", &report);
    steps.run("corpus", &mut command)?;
    let text = fs::read_to_string(&report)?;
    fs::remove_dir_all(scratch)?;
    Ok(text)
}
