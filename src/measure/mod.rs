//! Figures, recorders and verdict rules.
//!
//! **Invariant**: pure: no clock, no I/O, no threads. Times come in as numbers.
//! Read `outcome`, then `recorder` (samples to figures), `latencies`
//! (histograms and percentiles), `summary` (what is handed over), `verdict`, `crossed`.
mod crossed;
mod figures;
mod latencies;
mod outcome;
mod recorder;
mod summary;
mod verdict;

pub use crossed::{Crossed, crossed, crossed_so_far};
pub use figures::{Counts, ErrorCounts, Figures, LatencyFigures};
pub use latencies::{HIGHEST_NS, LOWEST_NS, Latencies, SIGNIFICANT_DIGITS, SparseCounts};
pub use outcome::{ErrorClass, Outcome};
pub use recorder::{LatencyFrom, Recorder, Sample, Unpaced, operation_tag};
pub use summary::{Interval, RetryAfter, WindowSummary};
pub use verdict::{Flag, Judgement, Pacing, Reason, WindowVerdict, judge};
