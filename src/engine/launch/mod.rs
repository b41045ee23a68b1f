//! Launching a stack: from nothing to a target that answers.
//!
//! Networks and volumes first, then all containers at once (creation needs no
//! order), then each is started as soon as what it depends on is there, and
//! followed until everything is ready. `start.rs` creates, `follow.rs` starts and
//! follows, `ready.rs` asks the target, `error.rs` says what went wrong. **Invariant**: a launch
//! creates nothing without a [`Lease`](super::Lease) and removes nothing: that
//! is the lease's work, after the logs have been read. Read `proof.rs` next.

mod error;
mod follow;
mod hooks;
mod ready;
mod request;
mod start;
#[cfg(test)]
mod tests;

pub use error::LaunchError;
pub use request::{Launch, LaunchTarget, Launched, TargetPath};
pub use start::{Prepared, launch, prepare, start};
