//! The Docker Engine behind the [`Engine`](super::Engine) trait.
//!
//! The one home of bollard. `requests.rs` and `answers.rs` translate and are
//! pure; `endpoint.rs` finds where it is, `connection.rs` reaches the engine and words its failures; `engine.rs`
//! is what calls share, `calls.rs` makes them, `pull.rs` and `build.rs` those that
//! get images. **Invariant**: no type of bollard leaves this folder.

mod answers;
#[cfg(test)]
mod answers_tests;
mod build;
mod calls;
mod connection;
mod endpoint;
mod engine;
mod examine;
mod files;
mod pull;
mod requests;
mod resources;
#[cfg(test)]
mod tests;

#[cfg(test)]
#[cfg(feature = "docker-tests")]
pub(in crate::engine) use connection::LIMIT_DIVISOR;
pub use engine::DockerEngine;
pub use examine::Examination;
pub(super) use requests::rehearse;
