//! Compose files to a resolved stack: what one cell launches.
//!
//! Reads files; knows no engine, no matrix and no load, and never reads the
//! process environment, which is an argument. Nothing in a file is ignored
//! silently: a key is supported, changed by a rule that is said, or refused.
//!
//! The way of a file: `yaml` (text to a tree of `node`s) and `dotenv`, read
//! once by `file_reader` into `files`; then per cell `assemble` (`variables` put in by
//! `template`, files put together by `merge`), `service` and its readers,
//! and `start` (what is started); `resolve` leads through it, and `explain` says
//! afterwards where each value came from.

mod assemble;
mod block_io;
mod build;
mod dependencies;
mod devices;
mod dotenv;
mod environment;
mod explain;
mod field;
mod file_reader;
mod files;
mod grants;
mod hooks;
mod limits;
mod merge;
mod model;
mod mounts;
mod namespaces;
mod networks;
mod node;
mod notes;
mod override_tree;
mod ports;
mod process;
mod resolve;
mod service;
mod sketch;
mod start;
mod surroundings;
mod template;
mod typing;
mod variables;
mod words;
mod yaml;

pub use build::is_image_reference;
pub use explain::{Origins, ValueOrigin};
pub use files::ComposeFiles;
pub use model::{
    BlockIo, Build, Condition, Dependency, Device, DeviceRequest, Healthcheck, Hook, PullPolicy,
    Service, Stack, VolumesFrom,
};
pub use namespaces::shared_service;
pub use resolve::{Resolution, ResolveRequest};
pub use sketch::{ServiceSketch, sketch};
pub use surroundings::{AddressRange, Attachment, Mount, MountSource, Network, Volume};
