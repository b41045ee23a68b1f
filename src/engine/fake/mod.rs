//! A scripted engine for tests: containers in memory, faults on demand.
//!
//! It keeps a log of all calls in order, fails or hangs any of them, ends
//! containers at a moment or at a call, and changes limits behind one's back.
//! Time is tokio's, so paused time works. It follows the real engine where
//! callers lean on it: a network with containers and a volume in use cannot be
//! removed, a container's name is unique, counters of a stopped container fail.
//! Public, so that tests of other modules use it; nothing else may.

mod calls;
mod engine;
mod script;
mod state;

pub use engine::FakeEngine;
pub use script::{Behaviour, FakeCall, FakeExit, FakeFault};
