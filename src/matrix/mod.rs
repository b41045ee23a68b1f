//! matrix.toml to a checked sweep, to cells, to a plan.
//!
//! Text in, values out: no file is opened, no clock read, no environment
//! looked at, nothing random but what the file's seed says. Whoever plans the
//! same text twice gets the same plan. This module knows neither the stack nor
//! the load; which names those use is an argument of [`plan()`].
//!
//! In reading order: `sweep` and `state` (what a checked file says), `read` (how it is
//! checked), `profile`, `expression`, `expand` (cells), `plan`, `ladder` (stages without
//! cells), `warnings`, `starter`.

mod amount;
mod cell;
mod expand;
mod expression;
mod failures;
mod json;
mod ladder;
mod loads;
mod order;
mod override_node;
mod plan;
mod profile;
mod read;
mod starter;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod value_text;
mod warnings;

pub use crate::toml_file::Located;
pub use cell::{Cell, CellId, Dropped};
pub use expression::Expression;
pub use ladder::ladder;
pub use plan::{
    ASSUMED_DEAD_TIME, CellLoad, CellPhase, ClonesCost, Estimate, Plan, PlannedState, PlannedTrial,
    Role, plan,
};
pub use profile::Profile;
pub use read::read;
pub use starter::{StarterFiles, StarterInput, StarterService, starter};
pub use state::{CloneWay, Golden, GoldenFrom, Hook, HookBefore, Seed, State};
pub use sweep::{
    Amount, Answers, Arrivals, Axis, Beside, Constraint, Derived, Host, K6Load, Load, LoadSource,
    Order, Phase, PhaseLoad, Prove, Ready, ReportText, Slo, SloLimits, Stage, Sweep, TargetUrl,
    ThresholdRule, Trials,
};
pub use value_text::ValueText;
