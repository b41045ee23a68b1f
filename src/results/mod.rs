//! Rows, files and their readers.
mod row;
pub use row::{SCHEMA_VERSION, TrialRow, Verdict};
