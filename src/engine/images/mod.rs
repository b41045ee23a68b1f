//! Getting the images of a sweep, once, before anything is launched.
//!
//! `prepare.rs` decides for every service where its image comes from: held,
//! pulled by policy, or built. `reference.rs` reads names, `keyring.rs` finds a
//! registry's credentials as the Docker CLI does, `build/` turns a Compose
//! `build` section into what the engine's builder takes, `missing.rs` words all
//! that cannot be had at once. **Invariant**: trials launch images by content,
//! so a tag that moves during the night changes nothing; no tag of the user's is
//! ever written.

pub(super) mod build;
mod keyring;
mod missing;
mod prepare;
mod progress;
mod reference;
#[cfg(test)]
mod tests;

pub use build::{BuildContext, BuildSource, build_key_of, without_build_keys};
pub use keyring::{Credentials, Keyring};
pub use missing::{ImageMissing, ImagesMissing};
pub use prepare::{PrepareError, PreparedImages, prepare_images};
pub use progress::{ImageProgress, ProgressSink};
