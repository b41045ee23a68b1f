//! nightsweep measures which settings a containerised service should run with.
pub mod chart;
pub mod engine;
pub mod load;
pub mod matrix;
pub mod measure;
pub mod problem;
pub mod results;
pub mod scalar;
pub mod secret;
pub mod stack;
pub mod units;
