//! The load generator.
//!
//! **Invariant**: it knows an address and a plan, neither Docker nor the matrix;
//! `measure` is the only layer below it.
//!
//! Read `plan` (what goes in and comes out), `workload` with `workload_file`,
//! `step_file`, `expand`, `template`, `json_body` (what is sent),
//! `prepare` (made ready), `generator` with `conductor` (threads and phases),
//! `seed` (journeys without windows), `thread`, `slot`, `journey`, `closed`, `open`
//! with `arrivals`, `fine_timer` (one load thread), `request`, `answer` (bytes), `connection` with
//! `client`, `tls_connection`, `http2` (one of them), `pinning` (threads kept on CPUs); and `k6`, load that a script makes.
mod answer;
mod arrivals;
mod client;
mod closed;
mod conductor;
mod connection;
mod expand;
mod fine_timer;
mod generator;
mod http2;
mod journey;
mod json_body;
pub mod k6;
#[cfg(test)]
mod misbehaviour_tests;
mod once;
mod open;
mod pinning;
mod plan;
mod prepare;
mod request;
#[cfg(test)]
mod rude_server_tests;
mod seed;
mod slot;
mod step_file;
mod template;
#[cfg(test)]
mod test_http2;
#[cfg(test)]
mod test_load;
#[cfg(test)]
mod test_server;
mod thread;
mod tls_connection;
#[cfg(test)]
mod truth_tests;
#[cfg(test)]
mod wire_tests;
mod workload;
mod workload_file;

pub use generator::{LoadError, RunningLoad};
pub use once::{Exchange, ReceivedAnswer, SentRequest, once};
pub use pinning::pin_all_threads;
pub use plan::{AbortRule, Arrivals, LoadModel, LoadPlan, LoadSignal, PhasePlan, Target, Tick};
pub use seed::{SeedError, SeedPlan, seed};
pub use workload::{VariableUse, Workload};
