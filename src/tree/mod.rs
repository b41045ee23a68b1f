//! Trees of files: copying one as it is, and telling whether two are alike.
//!
//! This is what the tool does inside a container of its own, where it can read the
//! engine's volumes whoever the user is. It knows neither Docker nor the matrix.
//! Read `walk.rs` (what is in a tree), `fingerprint.rs`, `clone.rs` with
//! `content.rs`, and `job.rs` (what the container is asked to do and answers).

mod clone;
mod content;
mod error;
mod fingerprint;
mod job;
#[cfg(test)]
mod tests;
mod walk;

pub use clone::{Cloned, clone_tree};
pub use content::CloneMode;
pub use error::TreeError;
pub use fingerprint::hex;
pub use fingerprint::{Depth, Fingerprint, fingerprint, fingerprint_up_to};
pub use job::{TreeAnswer, TreeJob, TreeReport, answer_of_log, carry_out};
