//! `cargo xtask demo`: from a fresh clone to a measured table and charts.

use crate::images;
use crate::steps::{StepError, Steps, cargo};

/// Builds, gets the images, sweeps the demo matrix.
pub(crate) fn demo(steps: &mut Steps) -> Result<(), StepError> {
    steps.run(
        "build",
        &mut cargo(&["build", "--locked", "--release", "--package", "nightsweep"]),
    )?;
    let postgres = images::images(steps)?;
    let setting = format!("POSTGRES_IMAGE={postgres}");
    let binary = steps.root().join("target/release/nightsweep");
    let mut sweep = std::process::Command::new(binary);
    sweep.args(["run", "compose/testbed/demo.toml", "--set", &setting]);
    let code = steps.run_any("sweep", &mut sweep)?;
    eprintln!("{}", steps.summary());
    match code {
        0 => Ok(()),
        4 => Err(
            StepError::new("some trials of the demo have no valid measurement")
                .hint("the table above and results/<run>/trials.csv say why"),
        ),
        other => Err(StepError::new(format!(
            "the sweep ended with exit code {other}"
        ))),
    }
}
