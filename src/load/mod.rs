//! The load generator.
//!
//! **Invariant**: it knows an address and a plan, neither Docker nor the matrix;
//! `measure` is the only layer below it.
//!
//! Read `plan` (what goes in and comes out), `workload` with `workload_file`,
//! `step_file`, `step_options`, `expect_file`, `expand`, `template` with
//! `json_template`, `encoding` and `json_body` (what is sent), `prepare` (made ready),
//! `expect` with `decode` (what must come back), `generator` with `conductor` (threads and
//! phases), `seed` (journeys without windows), `thread`, `slot`, `journey`, `closed`, `open`
//! with `arrivals`, `fine_timer` (one load thread), `request`, `answer` (bytes), `client`
//! (one connection), `exchange` with `cookies` and `retry_after` (around a request),
//! `pinning` (threads kept on CPUs); and `k6`, load that a script makes.
mod answer;
mod arrivals;
mod client;
mod closed;
mod conductor;
mod cookies;
mod decode;
mod encoding;
mod exchange;
mod expand;
mod expect;
mod expect_file;
mod fine_timer;
mod generator;
mod http_date;
mod journey;
mod json_body;
mod json_template;
pub mod k6;
mod once;
mod open;
mod pinning;
mod plan;
mod prepare;
mod request;
mod retry_after;
mod seed;
mod slot;
mod step_file;
mod step_options;
#[cfg(test)]
mod step_tests;
mod template;
#[cfg(test)]
mod test_load;
#[cfg(test)]
mod test_server;
mod thread;
#[cfg(test)]
mod truth_tests;
mod workload;
mod workload_file;

pub use generator::{LoadError, RunningLoad};
pub use once::{Exchange, ReceivedAnswer, Redirect, SentRequest, once};
pub use pinning::pin_all_threads;
pub use plan::{AbortRule, Arrivals, LoadModel, LoadPlan, LoadSignal, PhasePlan, Target, Tick};
pub use seed::{SeedError, SeedPlan, seed};
pub use workload::{VariableUse, Workload};
