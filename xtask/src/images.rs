//! The container images that demo and tests need.
//!
//! The testbed's image is always made here. PostgreSQL is pulled where a
//! registry answers, else made from Debian packages by `compose/postgres`.

use crate::steps::{StepError, Steps, program};

/// What `compose/testbed/image.sh` makes.
const TESTBED: &str = "nightsweep/testbed:local";
/// What the bundled stack asks for by itself.
const POSTGRES_OFFICIAL: &str = "postgres:17";
/// What `compose/postgres/image.sh` makes.
const POSTGRES_LOCAL: &str = "nightsweep/postgres:15-local";

/// Makes sure that all images are there; the PostgreSQL image to use.
pub(crate) fn images(steps: &mut Steps) -> Result<&'static str, StepError> {
    if steps
        .ask(&mut program(
            "docker",
            &["version", "--format", "{{.Server.Version}}"],
        ))
        .is_none()
    {
        return Err(StepError::new("the Docker Engine does not answer")
            .hint("start it (`dockerd`, or `systemctl start docker`), and see that `docker version` works for this user"));
    }
    // First, since the other waits for its turn to build.
    let postgres = postgres(steps)?;
    steps.run(
        "testbed image",
        &mut program("sh", &["compose/testbed/image.sh"]),
    )?;
    Ok(postgres)
}

fn postgres(steps: &mut Steps) -> Result<&'static str, StepError> {
    if has_image(steps, POSTGRES_OFFICIAL) {
        return Ok(POSTGRES_OFFICIAL);
    }
    if has_image(steps, POSTGRES_LOCAL) {
        return Ok(POSTGRES_LOCAL);
    }
    let pulled = steps.run_any(
        "postgres pull",
        &mut program("docker", &["pull", "--quiet", POSTGRES_OFFICIAL]),
    )?;
    if pulled == 0 {
        return Ok(POSTGRES_OFFICIAL);
    }
    steps.run(
        "postgres image",
        &mut program("sh", &["compose/postgres/image.sh"]),
    )?;
    Ok(POSTGRES_LOCAL)
}

/// The images as they are, where they are there; a proof of how a stack is launched needs
/// no newer ones.
pub(crate) fn images_at_hand(steps: &mut Steps) -> Result<&'static str, StepError> {
    let postgres = [POSTGRES_OFFICIAL, POSTGRES_LOCAL];
    match postgres.into_iter().find(|image| has_image(steps, image)) {
        Some(postgres) if has_image(steps, TESTBED) => Ok(postgres),
        _ => images(steps),
    }
}

fn has_image(steps: &Steps, image: &str) -> bool {
    steps
        .ask(&mut program(
            "docker",
            &["image", "inspect", "--format", "{{.Id}}", image],
        ))
        .is_some()
}
