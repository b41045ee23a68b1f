//! The Docker Engine behind the [`Engine`](super::Engine) trait.
//!
//! The one home of bollard. `requests.rs` and `answers.rs` translate and are
//! pure; `connection.rs` reaches the engine and words its failures; `engine.rs`
//! is what calls share, `calls.rs` makes them. **Invariant**: no type of bollard leaves this folder.

mod answers;
mod calls;
mod connection;
mod engine;
mod files;
mod requests;
mod resources;
#[cfg(test)]
mod tests;

pub use engine::DockerEngine;
pub(super) use requests::rehearse;
