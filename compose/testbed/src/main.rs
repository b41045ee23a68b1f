//! The service that nightsweep measures in its demo and its own tests.
//!
//! A small FHIR-like CRUD server whose two pools are real: exactly `WEB_THREADS` threads do
//! the work of requests, over exactly `DB_POOL` connections to PostgreSQL. It exists so that
//! the two knobs have the effect they have in real services.
//!
//! Reading order: [`config`], [`server`] (the thin asynchronous side), [`web_pool`],
//! [`routes`] (one request, start to end), [`resource`] (what is valid and indexed),
//! [`store`] (SQL), [`db`] (the connections), [`health`], [`metrics`], [`probe`].

mod config;
mod db;
mod health;
mod metrics;
mod probe;
mod resource;
mod routes;
mod server;
mod store;
mod web_pool;

use std::process::ExitCode;

use crate::config::Config;

fn main() -> ExitCode {
    let lookup = |name: &str| std::env::var(name).ok();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => match Config::from_lookup(&lookup) {
            Ok(config) => server::run(config),
            Err(problems) => {
                for problem in problems {
                    log(&problem.to_string());
                }
                ExitCode::from(2)
            }
        },
        ["healthcheck"] => match config::port(&lookup) {
            Ok(port) => match probe::health(port) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    log(&format!("unhealthy: {error}"));
                    ExitCode::from(1)
                }
            },
            Err(problem) => {
                log(&problem.to_string());
                ExitCode::from(2)
            }
        },
        _ => {
            log("usage: testbed [healthcheck]; everything else is set by environment variables");
            ExitCode::from(2)
        }
    }
}

/// Writes one line to stderr, which is the container's log.
#[expect(clippy::print_stderr, reason = "the container's log is stderr")]
fn log(line: &str) {
    eprintln!("testbed: {line}");
}
