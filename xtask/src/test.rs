//! `cargo xtask test`: everything that CI runs.
//!
//! The cheap checks come first. Lints, tests and demo use one profile
//! (release), so that build scripts and macros are built once and the tests
//! run the binary that users get.

use std::path::PathBuf;

use crate::steps::{StepError, Steps, cargo, program};
use crate::{images, k6};

/// Features that turn the tests with real containers and the real k6 on.
const FEATURES: &str = "nightsweep/docker-tests,nightsweep/k6-tests,testbed/docker-tests";
/// And those that other tests need, which are linted here and run by hand.
const LINTED: &str =
    "nightsweep/docker-tests,nightsweep/k6-tests,nightsweep/corpus-tests,testbed/docker-tests";

/// Format, lints, docs beside images and k6, tests.
pub(crate) fn test(steps: &mut Steps) -> Result<(), StepError> {
    steps.run("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    // Packages are unpacked by one core, and mostly waited for.
    let (checked, fetched) = std::thread::scope(|scope| {
        let fetched = scope.spawn(fetch);
        (checks(steps), fetched.join())
    });
    checked?;
    let fetched = fetched.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    steps.add(fetched.steps);
    let (postgres, k6) = (fetched.postgres, fetched.k6);
    let before = on_engine(steps)?;
    // Apart, for k6 takes CPU from tests that look at the time; the same build serves both.
    let parts = [("tests", &["--skip", "k6"][..]), ("tests with k6", &["k6"])];
    for (name, which) in parts {
        let all = ["test", "--locked", "--release", "--workspace"];
        let arguments = [&all[..], &["--features", FEATURES, "--"], which].concat();
        steps.run(
            name,
            cargo(&arguments)
                .env("NIGHTSWEEP_TEST_POSTGRES_IMAGE", postgres)
                .env(k6::VARIABLE, &k6),
        )?;
    }
    let mut left = on_engine(steps)?;
    left.retain(|name| !before.contains(name));
    if !left.is_empty() {
        let names = left.join(", ");
        return Err(StepError::new(format!("tests left on the engine: {names}"))
            .hint("`docker inspect NAME` tells by its labels which test it was"));
    }
    eprintln!("{}", steps.summary());
    Ok(())
}

/// Names of the containers, networks and volumes that carry our label.
fn on_engine(steps: &Steps) -> Result<Vec<String>, StepError> {
    let lists = [
        ["ps", "-a", "--format", "{{.Names}}"].as_slice(),
        &["network", "ls", "--format", "{{.Name}}"],
        &["volume", "ls", "--format", "{{.Name}}"],
    ];
    let mut names = Vec::new();
    for list in lists {
        let arguments = [list, &["--filter", "label=nightsweep.run"]].concat();
        let said = steps
            .ask(&mut program("docker", &arguments))
            .ok_or_else(|| StepError::new(format!("`docker {}` failed", list.join(" "))))?;
        names.extend(said.lines().map(str::to_owned));
    }
    Ok(names)
}

/// Lints and docs.
fn checks(steps: &mut Steps) -> Result<(), StepError> {
    steps.run(
        "lints",
        &mut cargo(&[
            "clippy",
            "--locked",
            "--release",
            "--workspace",
            "--all-targets",
            "--features",
            LINTED,
            "--",
            "-D",
            "warnings",
        ]),
    )?;
    steps.run(
        "docs",
        cargo(&[
            "doc",
            "--locked",
            "--release",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

/// What the tests need beside the build.
struct Fetched {
    postgres: &'static str,
    k6: PathBuf,
    steps: Steps,
}

fn fetch() -> Result<Fetched, StepError> {
    let mut steps = Steps::new();
    let k6 = k6::k6(&mut steps)?;
    let postgres = images::images(&mut steps)?;
    Ok(Fetched {
        postgres,
        k6,
        steps,
    })
}
