//! Matrix files to plans.
