//! Figures, recorders, verdict rules. Pure.
mod figures;
mod summary;
pub use figures::{Counts, ErrorCounts, Figures, LatencyFigures};
pub use summary::{Interval, WindowSummary};
