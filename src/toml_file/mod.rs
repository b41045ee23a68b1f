//! TOML files that people write: typed reading, every mistake with its place.
//!
//! **Invariant**: text in, values and problems out; nothing is opened, and no
//! key of any format is known here. Each format (matrix, workload) says which
//! keys there are; how mistakes are worded, counted and recovered from is the
//! same for all of them.
//!
//! In reading order: [`read()`] (one file from text to value), `table` (the
//! getters), `notes` (the problems), `source` (places, also inside strings),
//! `recover` (going on behind syntax errors), `value` (single values).

mod notes;
mod reading;
mod recover;
mod source;
mod table;
mod value;

pub use notes::Notes;
pub use reading::read;
pub use source::{Content, Located, Quoted, Source};
pub use table::{Entry, Table};
pub use value::{describe, integer_of, number_of, scalar};
