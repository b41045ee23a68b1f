//! Running the trials of a sweep, one after the other.
//!
//! `job.rs` says what a sweep is told, `trial.rs` is the life of one trial as a
//! pure step function, `shell.rs` performs it (with `ahead.rs`, `launching.rs`,
//! `loading.rs`, `script.rs`, `edge.rs`, `knobs.rs` and `evidence.rs`), `rows.rs` turns what came of it
//! into rows, and `run.rs` goes from trial to trial and writes everything down.
//!
//! **Invariant**: this module never sees the command line, a terminal, CSV or
//! bollard. It gets an engine, a plan and a place to write to; what happens
//! leaves it as events and rows.

mod ahead;
mod clock;
mod edge;
mod evidence;
mod golden;
mod golden_key;
mod golden_plan;
mod hooks;
mod job;
mod knobs;
mod launching;
mod loading;
mod outcome;
mod preparing;
mod progress;
mod rows;
mod run;
mod script;
mod shell;
mod state;
mod stopping;
mod target;
#[cfg(test)]
mod tests;
mod trial;
mod versions;

pub use clock::Clock;
pub use golden::{KnownGolden, known_goldens};
pub use golden_key::{Filling, LeftOut, definition};
pub use golden_plan::{GoldenPlan, GoldenSource, GoldenSpec, SeedLoad, SeedSpec, StatePlan};
pub use job::{Hook, Job, JobPhase, ReadySpec, Settings, Slo, SweepPlan, TargetSpec};
pub use knobs::Knob;
pub use launching::{Wanted, await_remote};
pub use run::{Sinks, SweepError, SweepSummary, run};
pub use script::JobScript;
pub use trial::{Action, Ending, Reason, Signal, State, step};
