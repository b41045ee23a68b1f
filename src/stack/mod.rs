//! Compose files to a resolved stack: what one cell launches.
//!
//! Reads files; knows no engine, no matrix and no load, and never reads the
//! process environment, which is an argument. Nothing in a file is ignored
//! silently: a key is supported, changed by a rule that is said, or refused.
//!
//! The way of a file: `yaml` (text to a tree of `node`s) and `dotenv`, read
//! once by `file_reader` into `files`; then per cell `assemble` (`variables` put in by
//! `template`, files put together by `merge`), `service` and its readers,
//! and `start` (what is started); `resolve` leads through it.

mod assemble;
mod dependencies;
mod dotenv;
mod environment;
mod field;
mod file_reader;
mod files;
mod limits;
mod merge;
mod model;
mod mounts;
mod networks;
mod node;
mod notes;
mod override_tree;
mod process;
mod resolve;
mod service;
mod sketch;
mod start;
mod template;
mod typing;
mod variables;
mod words;
mod yaml;

pub use files::ComposeFiles;
pub use model::{
    Attachment, Condition, Dependency, Healthcheck, Mount, MountSource, Network, Service, Stack,
    Volume,
};
pub use resolve::{Resolution, ResolveRequest};
pub use sketch::{ServiceSketch, sketch};
