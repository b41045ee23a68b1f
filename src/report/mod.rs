//! What people and scripts read: tables, progress, JSON lines.
//!
//! **Invariant**: reporters turn values into text and never fail the sweep; a
//! reporter that cannot write goes silent. stdout is data, stderr is progress.
//! Everything printed goes through one [`Printer`].
//! Read `console.rs` for what a person sees while a sweep runs, `load` for the load
//! generator by itself, `table.rs` for how columns are aligned.

// A new event must be decided on in every reporter.
#![warn(clippy::wildcard_enum_match_arm)]

mod best;
mod console;
mod crossed;
mod cuts;
mod doctor;
mod exchange;
mod images;
mod json;
mod live;
mod load;
mod plain;
mod plan;
mod printer;
mod screen;
mod stack;
mod steps;
mod table;

pub use best::best_tables;
pub use console::ConsoleReporter;
pub use crossed::crossed_lines;
pub use cuts::{cuts_json, cuts_table};
pub use doctor::{Check, CheckState, doctor_text};
pub use exchange::{exchange_text, exchanges_json};
pub use images::ImageLines;
pub use json::JsonReporter;
pub use live::LiveBlock;
pub use load::{AbortedLoad, HeldLoad, LoadProgress, LoadReport, LoadStretch};
pub use plain::PlainReporter;
pub use plan::plan_text;
pub use printer::Printer;
pub use screen::{Ink, Screen};
pub use stack::stack_text;
pub use steps::ladder_tables;
pub use table::{Align, Table, count, latency_ms, rate};

use crate::event::Event;

/// Somebody who is told what happens.
pub trait Reporter {
    /// Takes note of an event.
    fn event(&mut self, event: &Event);
}
