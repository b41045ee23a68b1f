//! The composition root: one function per command.
//!
//! Here parts are put together and errors get their exit codes; nothing is
//! measured, drawn or decided here. `inputs.rs` reads what every command reads,
//! `error.rs` says how a command can end, `environment.rs` is the one place that
//! reads variables, clock and randomness.

mod clean;
mod contents;
mod doctor;
mod environment;
mod error;
mod helper;
mod images;
mod init;
mod inputs;
mod interrupt;
mod isolation;
mod jobs;
mod journeys;
mod load;
mod load_plan;
mod manifest;
mod plan;
mod reachable;
mod report;
mod run;
mod script;
mod self_test;
mod stack;
mod state;
mod up;
mod wire;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::FutureExt;

use self::environment::Environment;
pub use self::error::{AppError, Outcome};
use crate::cli::{Cli, Command};
use crate::report::Printer;

/// Runs a command to its end and says how it went.
///
/// A panic is a bug and ends with exit code 1, like any other.
pub fn main(cli: Cli) -> ExitCode {
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run_command(cli)));
    ended.unwrap_or_else(|_| AppError::bug(anyhow::anyhow!("nightsweep broke down")).exit_code())
}

fn run_command(cli: Cli) -> ExitCode {
    let environment = match Environment::read() {
        Ok(environment) => environment,
        Err(error) => {
            Printer::new(true).note(&error.text());
            return error.exit_code();
        }
    };
    let printer = environment.printer();
    let result = match cli.command {
        Command::Init(arguments) => init::init(&arguments, printer),
        Command::Check(arguments) => plan::check(&arguments, &environment, printer),
        Command::Plan(arguments) => in_runtime(plan::plan(&arguments, &environment, printer)),
        Command::Stack(arguments) => stack::stack(&arguments, &environment, printer),
        Command::Run(arguments) => in_runtime(run::run(&arguments, &environment, printer)),
        Command::Report(arguments) => report::report(&arguments, printer),
        Command::Up(arguments) => in_runtime(up::up(&arguments, &environment, printer)),
        Command::Down(_) => in_runtime(up::down(&environment, printer)),
        Command::Load(arguments) => in_runtime(load::load(&arguments, &environment, printer)),
        Command::Doctor(arguments) => in_runtime(doctor::doctor(&arguments, &environment, printer)),
        Command::Clean(arguments) => in_runtime(clean::clean(&arguments, &environment, printer)),
        Command::Helper(arguments) => helper::helper(arguments, printer),
    };
    match result {
        Ok(outcome) => outcome.exit_code(),
        Err(error) => {
            printer.note(&error.text());
            error.exit_code()
        }
    }
}

/// How long the removal of what a panic left may take.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// Two threads: one may wait for the engine while the other writes or draws.
///
/// A panic drops the leases of what was launched, which queues its removal; the
/// runtime lives on for a while so that it can be carried out.
fn in_runtime<F>(command: F) -> Result<Outcome, AppError>
where
    F: Future<Output = Result<Outcome, AppError>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(AppError::environment)?;
    runtime.block_on(async {
        if let Ok(result) = AssertUnwindSafe(command).catch_unwind().await {
            return result;
        }
        tokio::time::sleep(RELEASE_LIMIT).await;
        Err(AppError::bug(anyhow::anyhow!("nightsweep broke down"))
            .hint("`nightsweep clean` removes what may still be there; rows written so far stand"))
    })
}
