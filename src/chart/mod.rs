//! Charts from rows.
