//! What `load` says: while it runs, when it has ended, and to scripts.
//!
//! **Invariant**: figures are made by `measure`; here they are put into words, tables
//! and charts. Read `held` (what is reported), `progress`, `text` with `latency`,
//! `over_time`, `outcomes` and `steps`, then `json`; `words` has the sentences.

mod held;
mod json;
mod latency;
mod outcomes;
mod over_time;
mod progress;
mod steps;
mod text;
mod words;

pub use held::{AbortedLoad, HeldLoad, LoadReport};
pub use progress::{LoadProgress, LoadStretch};
