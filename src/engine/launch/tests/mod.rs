//! Order, readiness and failure of a launch, on the fake engine in paused time.

mod failure;
mod hooks;
mod order;
mod readiness;
mod sharing;
mod support;
