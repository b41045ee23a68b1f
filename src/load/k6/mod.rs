//! Load that a k6 script makes: the user's own k6, run as it is.
//!
//! The script's options say how much load there is and for how long; phases only
//! cut windows out of it. k6 writes every sample it takes into a pipe, so that
//! counts, operations, seconds and histograms are made here as they are for our
//! own requests. Success is an expected response whose checks passed.
//!
//! **Invariant**: what k6 cannot tell is never counted as good: samples without a
//! scenario (set-up, tear-down) are in no window, and a k6 that ended before a
//! window's end leaves that window without figures.
//!
//! Read `binary` (which k6), `script` with `options` and `names` (what a script
//! is), `stretches` (what its windows are), `run` with `conductor` (a run of it),
//! `process`, `log`, `samples` (what k6 says), `journeys` (samples into requests),
//! `throws` (which of them threw), `windows` (requests into figures), `ending` (how k6 ended).
mod binary;
mod conductor;
mod ending;
mod error;
mod journeys;
mod log;
mod names;
mod options;
mod process;
mod run;
mod samples;
mod script;
mod stretches;
#[cfg(test)]
#[cfg(feature = "k6-tests")]
mod tests;
mod throws;
mod windows;

pub use binary::Binary;
pub use ending::{ScriptReport, WindowNotes};
pub use error::K6Error;
pub use options::{Options, Scenario};
pub use run::ScriptPlan;
pub use script::{Script, TARGET};
pub use stretches::{Cut, Stretch, stretches};

pub(super) use conductor::{Heard, n_lifecycle};
pub(super) use run::start;
