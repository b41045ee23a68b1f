//! nightsweep measures which settings a containerised service should run with.
//!
//! A library for its own binary and tests. In reading order:
//!
//! - [`problem`], [`placed`], [`units`], [`scalar`], [`cpus`], [`reported`],
//!   [`secret`], [`threshold`], [`tls`]: what everybody uses
//! - [`toml_file`]: TOML files people write, every mistake with its place
//! - [`matrix`]: a matrix file, its cells, the plan
//! - [`stack`]: Compose files to what one cell launches
//! - [`engine`]: the container engine: launch, proof, tear-down
//! - [`measure`]: recorders, figures, verdict rules
//! - [`load`]: the load generator
//! - [`event`], [`sweep`]: trials one after the other, and what is told of them
//! - [`results`]: rows and files
//! - [`tree`]: trees of files, copied and compared inside a container of ours
//! - [`chart`], [`report`]: what people look at
//! - [`cli`], [`app`]: the command line and what each command does
//!
//! ARCHITECTURE.md has the words and the picture.

pub mod app;
pub mod chart;
pub mod cli;
pub mod cpus;
pub mod engine;
pub mod event;
pub mod load;
pub mod matrix;
pub mod measure;
pub mod placed;
pub mod problem;
pub mod report;
pub mod reported;
pub mod results;
pub mod scalar;
pub mod secret;
pub mod stack;
pub mod sweep;
pub mod threshold;
pub mod tls;
pub mod toml_file;
pub mod tree;
pub mod units;
