//! Figures, recorders and verdict rules.
//!
//! **Invariant**: pure: no clock, no I/O, no threads. Times come in as numbers.
//! Read `outcome`, then `recorder` (samples to figures), `latencies`
//! (histograms and percentiles), `summary` (what is handed over), `shape` (seconds and
//! buckets of a window), `cut` (figures of a part of it, from the raw evidence), `verdict`,
//! `evidence` (what its rules fired by), `crossed`.
mod crossed;
mod cut;
mod evidence;
mod figures;
mod latencies;
mod outcome;
mod recorder;
mod shape;
mod summary;
mod tag;
mod verdict;

pub use crossed::{Crossed, crossed, crossed_so_far, unjudged};
pub use cut::{CutFigures, cut};
pub use evidence::Evidence;
pub use figures::{Counts, ErrorCounts, Figures, LatencyFigures};
pub use latencies::{HIGHEST_NS, LOWEST_NS, Latencies, SIGNIFICANT_DIGITS, SparseCounts};
pub use outcome::{ErrorClass, Outcome};
pub use recorder::{LatencyFrom, Recorder, Sample, Unpaced};
pub use shape::{LatencyBucket, Second};
pub use summary::{BesideSummary, Interval, RetryAfter, SentIn, WindowSummary};
pub use tag::{operation_tag, parse_tag};
pub use verdict::{Flag, Judgement, Pacing, Reason, WindowVerdict, judge};
