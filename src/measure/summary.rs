//! What the generator hands over when a phase is done.

use std::time::{Duration, Instant};

use super::Figures;

/// One phase, summed over load threads.
#[derive(Debug, Clone)]
pub struct WindowSummary {
    /// Left edge.
    pub started: Instant,
    /// Nominal length.
    pub length: Duration,
    /// All operations together.
    pub total: Figures,
    /// By operation (`create Patient`), in journey order.
    pub operations: Vec<(String, Figures)>,
    /// Whole journeys: counts of journeys, latency from arrival to last answer.
    pub journeys: Figures,
    /// Journeys that arrived (open) or began (closed) in the phase.
    pub arrivals: u64,
    /// Steps that a failed journey never came to.
    pub not_attempted: u64,
    /// CPU time the generator's load threads used in the phase.
    pub generator_cpu: Duration,
    /// Load threads it ran on.
    pub threads: usize,
    /// The raw evidence: one histogram per second, operation and outcome.
    pub intervals: Vec<Interval>,
    /// The last failures seen, one line each, newest last; at most ten.
    pub failures: Vec<String>,
}

/// One histogram of one second, ready for an interval log.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Seconds since the left edge.
    pub second: u32,
    /// Percent-encoded `operation|outcome`.
    pub tag: String,
    /// Latencies. **Units**: nanoseconds.
    pub histogram: hdrhistogram::Histogram<u64>,
}
