//! Rows, the files they live in, and their readers.
//!
//! **Invariant**: nothing that was written is written over, except files that
//! are replaced whole by a rename; a row on disk is complete or it is reported
//! as torn. Nothing here knows Docker, the sweep or how a chart looks.
//!
//! Read on: `row.rs` (what a row is), `columns.rs` (how it is spelled), then the
//! writers (`trials_csv.rs`, `operations_csv.rs`, `histogram_log.rs`,
//! `manifest.rs`), where they put things (`folder.rs`), the reader
//! (`reader.rs`), and what is asked of rows (`cells.rs`, `best.rs`, `parity.rs`) and of
//! histograms (`histogram_reader.rs`, `cuts.rs`).
mod append;
mod best;
mod cells;
mod columns;
mod cuts;
mod cuts_csv;
mod error;
mod folder;
mod histogram_log;
mod histogram_reader;
mod manifest;
mod number;
mod operations_csv;
mod parity;
mod proofs_jsonl;
mod reader;
mod row;
mod steps;
mod trials_csv;

pub use best::{BestMeasured, RankedCell, TierBest, UnmeasuredCell, best_measured};
pub use cells::{
    CellFigures, Gathered, LostRepeat, Measure, PercentileBasis, Repeat, WindowChoice, gather,
    sort_levels, tier_level,
};
pub use cuts::{Cut, Part, WindowCut, cut_windows};
pub use cuts_csv::cuts_csv;
pub use error::ResultsError;
pub use folder::{RunFolder, RunsFolder, run_id};
pub use histogram_log::write_histogram_log;
pub use manifest::{redact_strings, write_manifest};
pub use number::significant;
pub use operations_csv::{OperationKey, OperationsCsv};
pub use parity::{Parity, write_parity};
pub use proofs_jsonl::ProofsJsonl;
pub use reader::{ReadError, TrialsRead, parse_trials, read_trials};
pub use row::{SCHEMA_VERSION, TrialRow, Verdict};
pub use steps::{Ladder, LadderStep, ladders};
pub use trials_csv::{TrialColumns, TrialsCsv};
