//! The load generator.
//!
//! **Invariant**: it knows an address and a plan, neither Docker nor the matrix;
//! `measure` is the only layer below it.
//!
//! Read `plan` (what goes in and comes out), `workload` with `workload_file`,
//! `journeys_file`, `step_file`, `step_options`, `expect_file`, `expand` with `scope`, `template` with
//! `json_template`, `encoding`, `json_body`, `data` (what is sent), `prepare` (made ready), `expect` with
//! `decode` (what must come back), `generator` with `conductor` (threads and phases),
//! `seed` (journeys without windows), `mix` (which journey is next), `setup` with `sure`
//! (what comes before), `thread` with `thread_plan`, `slot`, `journey` with `repeat`, `closed`, `open`
//! with `arrivals`, `fine_timer`, `failure_notes` (one load thread), `request`, `answer` with `head` (bytes), `connection`
//! with `client`, `tls_connection`, `http2` (one of them), `exchange` with `cookies` and `retry_after` (around a request), `pinning`
//! (threads kept on CPUs), `self_test` (what a load core can do); and `k6`, load that a script makes.
mod answer;
mod arrivals;
mod client;
mod closed;
mod conductor;
mod connection;
mod cookies;
#[cfg(test)]
mod crowd;
mod data;
mod decode;
mod encoding;
mod exchange;
mod expand;
mod expect;
mod expect_file;
mod failure_notes;
mod fine_timer;
mod generator;
mod head;
mod http2;
mod http_date;
mod journey;
mod journeys_file;
#[cfg(test)]
mod journeys_tests;
mod json_body;
mod json_template;
pub mod k6;
#[cfg(test)]
mod misbehaviour_tests;
mod mix;
mod numbers;
mod once;
mod open;
mod pinning;
mod plan;
mod prepare;
mod repeat;
mod request;
mod retry_after;
#[cfg(test)]
mod rude_server_tests;
mod scope;
mod seed;
mod self_test;
mod setup;
#[cfg(test)]
mod setup_tests;
mod slot;
mod step_file;
mod step_options;
#[cfg(test)]
mod step_tests;
mod sure;
mod template;
#[cfg(test)]
mod test_http2;
#[cfg(test)]
mod test_load;
#[cfg(test)]
mod test_server;
mod thread;
mod thread_plan;
mod thread_time;
mod tls_connection;
#[cfg(test)]
mod truth_tests;
#[cfg(test)]
mod wire_tests;
mod workload;
mod workload_file;

pub use generator::{LoadError, RunningLoad};
pub use once::{Exchange, ReceivedAnswer, Redirect, SentRequest, once};
pub use pinning::pin_all_threads;
pub use plan::{
    AbortRule, Arrivals, Beside, LoadModel, LoadPlan, LoadSignal, PhasePlan, Target, Tick,
};
pub use seed::{SeedError, SeedPlan, seed};
pub use self_test::{SelfTest, self_test};
pub use workload::{JourneyShape, UserRows, VariableUse, Workload};
