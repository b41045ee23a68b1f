//! Golden volumes: prepared once, kept, cloned for every trial.
//!
//! A golden is two volumes. The **data** volume has a folder for each volume of the
//! stack; it is made first, and a killed run may leave it half-made. The **seal** is an
//! empty volume whose labels hold what is known of the data; it is made last, in one
//! call, and a golden without it does not exist. Both carry the label
//! `nightsweep.golden` and none of a run, so no tear-down ever meets them.
//!
//! Copying is done by this very program in a container of its own (`image.rs`,
//! `container.rs`): the user may not be root, and the engine's folders may be on another host.
//! `store.rs` finds, claims and seals; `clone.rs` gives a trial its own copy.

mod clone;
mod container;
mod image;
mod store;

pub use clone::{CloneSource, CloneWay, ClonedState, TrialState};
pub(super) use clone::{LaunchVolumes, clone_volumes};
pub use container::{HelperError, HelperMount, HelperRequest, run_helper, run_helper_of};
pub use image::{
    HelperArchive, HelperImage, HelperImageError, ensure_helper_image, helper_archive,
};
pub use store::{
    GOLDEN_USE_LABEL, GoldenFacts, GoldenKey, SealedGolden, claim, drop_claim, find_claims,
    find_golden, find_golden_of_source, golden_label_filter, register_use, seal,
};
pub(super) use store::{Part, part_of, unsealed};
