//! One file from text to value.

use std::path::Path;

use toml::de::DeTable;

use super::notes::Notes;
use super::recover::recover;
use super::source::Source;
use super::table::Table;
use crate::problem::Problems;

/// Reads a file; `document` is given its table and notes what is wrong with it.
///
/// `name` is how messages call the file, as in "unknown key `x` in `name`".
/// Lines that are not TOML are left out of the table and told as problems.
///
/// **Errors**: all problems, those of this file first and in its order, none
/// twice. A `document` that answers `None` has noted why.
pub fn read<T>(
    path: &Path,
    text: &str,
    name: &str,
    document: impl FnOnce(Table<'_>, &mut Notes<'_>) -> Option<T>,
) -> Result<T, Problems> {
    let source = Source::new(path, text);
    let mut notes = Notes::new(&source);
    let recovered = recover(text);
    for (offset, message) in &recovered.errors {
        notes.syntax(*offset, message);
    }
    if recovered.is_lost {
        // What could be read of such a file says more about us than about it.
        return Err(notes.into_problems());
    }
    let (table, _) = DeTable::parse_recoverable(&recovered.text);
    let value = document(Table::document(table.get_ref(), name), &mut notes);
    let problems = notes.into_problems();
    match value {
        Some(value) if problems.0.is_empty() => Ok(value),
        _ => {
            debug_assert!(!problems.0.is_empty(), "what is missing was noted");
            Err(problems)
        }
    }
}
