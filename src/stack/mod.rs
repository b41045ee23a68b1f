//! Compose files to a resolved stack.
mod model;
pub use model::{
    Attachment, Condition, Dependency, Healthcheck, Mount, MountSource, Network, Service, Stack,
    Volume,
};
