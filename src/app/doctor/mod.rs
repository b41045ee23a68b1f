//! `doctor`: is this host fit to measure on.
//!
//! `engine.rs` judges what the engine says, `host.rs` what this host's kernel
//! says, and the generator's self-test what a load core can do; each is a list of checks, to
//! which a new one is added. Nothing is changed.

mod engine;
mod host;

use serde_json::json;

use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::self_test;
use crate::cli::DoctorArgs;
use crate::engine::DockerEngine;
use crate::report::{CheckState, Printer, doctor_text};

/// Looks at engine and host, prints what was found.
pub(super) async fn doctor(
    arguments: &DoctorArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let mut checks = match DockerEngine::find(environment.variables()).await {
        Ok(engine) => engine::checks(&engine).await,
        Err(error) => vec![engine::failed(&error)],
    };
    checks.extend(host::checks(&host::Host::read()));
    checks.push(self_test::check(&self_test::test_generator(None).await));
    let worst = checks.iter().map(|check| check.state).max();
    if arguments.json {
        let value = json!({ "fit": worst == Some(CheckState::Ok), "checks": checks });
        printer.data(&serde_json::to_string_pretty(&value).map_err(AppError::bug)?);
    } else {
        printer.data(&doctor_text(&checks));
    }
    Ok(match worst {
        Some(CheckState::Fail) => Outcome::Unfit,
        Some(CheckState::Warn) if arguments.strict => Outcome::Unfit,
        _ => Outcome::Done,
    })
}
