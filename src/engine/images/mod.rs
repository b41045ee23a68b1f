//! Getting the images of a sweep, once, before anything is launched.
//!
//! `wanted.rs` lists what all cells ask for, `prepare.rs` decides where each image
//! comes from: held, pulled by policy, or built. `reference.rs` and `platform.rs` read names, `keyring.rs` finds a
//! registry's credentials as the Docker CLI does, `build/` turns a Compose
//! `build` section into what the engine's builder takes, `missing.rs` words all
//! that cannot be had at once. **Invariant**: trials launch images by content,
//! so a tag that moves during the night changes nothing; no tag of the user's is
//! ever written.

pub(super) mod build;
mod keyring;
mod missing;
mod platform;
mod prepare;
mod progress;
mod reference;
#[cfg(test)]
mod tests;
mod wanted;

pub use build::{BuildContext, BuildSource, build_key_of, without_build_keys};
pub use keyring::{Credentials, Keyring};
pub use missing::{ImageMissing, ImagesMissing};
pub use prepare::{PrepareError, PreparedImages, check_builds, prepare_images};
pub use progress::{ImageProgress, ProgressSink};
