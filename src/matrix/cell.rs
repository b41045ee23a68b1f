//! One combination of levels, with its id.
//!
//! An id is what rows, folders and labels call a cell, for ever: axes in file
//! order, each level as it is written, joined so that no two cells of a matrix
//! share one. What a cell's load is belongs to `plan`.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::scalar::Scalar;

/// Longest id. **Units**: bytes.
///
/// A file name has 255 on Linux; logs and histograms add a trial, an attempt
/// and an ending.
const MAX_ID: usize = 180;

/// The stable id of a cell: `cpus-2__web-1.5__db-2`.
///
/// **Shape**: letters, digits, `.`, `-` and `_`; usable as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellId(Box<str>);

impl CellId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the cell with these levels, which are already escaped.
    pub(super) fn of<'a>(levels: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut id = String::with_capacity(48);
        for (name, level) in levels {
            if !id.is_empty() {
                id.push_str("__");
            }
            id.push_str(name);
            id.push('-');
            id.push_str(level);
        }
        if id.len() > MAX_ID {
            let digest = format!("__{:016x}", fnv1a(id.as_bytes()));
            // Names and escaped levels are ASCII, so any byte is a boundary.
            id.truncate(MAX_ID - digest.len());
            id.push_str(&digest);
        }
        Self(id.into())
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for CellId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for CellId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Serialize for CellId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A level as ids write it.
///
/// Letters, digits, `.` and `-` stand for themselves; every other byte of the
/// UTF-8 text is `_` and two hexadecimal digits. So `__` never occurs inside a
/// level, and the level can be read back from the id.
pub(super) fn escape(level: &Scalar) -> String {
    let mut escaped = String::new();
    for byte in level.to_string().bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-' {
            escaped.push(char::from(byte));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            escaped.push('_');
            escaped.push(char::from(DIGITS[usize::from(byte >> 4)]));
            escaped.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    escaped
}

/// **Source**: Fowler, Noll, Vo: FNV-1a, 64 bits. Stable across versions, which
/// the standard library's hasher does not promise.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The names that all cells of a plan share.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// Axes, then derived values; an index is a slot.
    pub(super) all: Vec<String>,
    /// How many of them are axes.
    pub(super) n_axes: usize,
    /// Slot of the tier.
    pub(super) tier: usize,
}

impl Names {
    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|known| known == name)
    }
}

/// A phase's load in one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FixedLoad {
    /// Users, or requests a second.
    pub(super) number: f64,
    /// Whether another cell of the tier has another number.
    pub(super) is_tied: bool,
}

/// One combination of levels that is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub(super) id: CellId,
    pub(super) names: Arc<Names>,
    /// By slot.
    pub(super) values: Box<[Scalar]>,
    /// Levels of the combinations with the same configuration.
    pub(super) aliases: Vec<Box<[Scalar]>>,
    /// By phase.
    pub(super) loads: Box<[FixedLoad]>,
}

impl Cell {
    /// Its id.
    pub fn id(&self) -> &CellId {
        &self.id
    }

    /// The levels, in file order.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = (&str, &Scalar)> {
        let n_axes = self.names.n_axes;
        pairs(&self.names.all[..n_axes], &self.values[..n_axes])
    }

    /// The derived values, in file order.
    pub fn derived(&self) -> impl ExactSizeIterator<Item = (&str, &Scalar)> {
        let n_axes = self.names.n_axes;
        pairs(&self.names.all[n_axes..], &self.values[n_axes..])
    }

    /// The value of an axis or derived value.
    pub fn value(&self, name: &str) -> Option<&Scalar> {
        self.names.slot(name).map(|slot| &self.values[slot])
    }

    /// The value of the tier.
    pub fn tier(&self) -> &Scalar {
        &self.values[self.names.tier]
    }

    /// What `${}` stands for in Compose files and workloads: axes, then derived values.
    pub fn variables(&self) -> impl ExactSizeIterator<Item = (&str, String)> {
        pairs(&self.names.all, &self.values).map(|(name, value)| (name, value.to_string()))
    }

    /// Other combinations with the same configuration: their levels, in file order.
    pub fn aliases(&self) -> impl ExactSizeIterator<Item = Vec<(&str, &Scalar)>> {
        self.aliases
            .iter()
            .map(|levels| pairs(&self.names.all[..self.names.n_axes], levels).collect())
    }
}

fn pairs<'a>(
    names: &'a [String],
    values: &'a [Scalar],
) -> impl ExactSizeIterator<Item = (&'a str, &'a Scalar)> {
    names.iter().map(String::as_str).zip(values)
}

/// One combination of levels that is not run.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropped {
    pub(super) names: Arc<Names>,
    pub(super) levels: Box<[Scalar]>,
    pub(super) constraints: Vec<Arc<str>>,
}

impl Dropped {
    /// The levels, in file order.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = (&str, &Scalar)> {
        pairs(&self.names.all[..self.names.n_axes], &self.levels)
    }

    /// Names of the constraints it breaks. **Shape**: at least one.
    pub fn constraints(&self) -> impl ExactSizeIterator<Item = &str> {
        self.constraints.iter().map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(levels: &[(&str, Scalar)]) -> String {
        let escaped: Vec<(String, String)> = levels
            .iter()
            .map(|(name, level)| ((*name).to_owned(), escape(level)))
            .collect();
        CellId::of(escaped.iter().map(|(n, l)| (n.as_str(), l.as_str()))).to_string()
    }

    #[test]
    fn an_id_names_axes_and_levels_in_order() {
        let levels = [
            ("cpus", Scalar::Integer(2)),
            ("web", Scalar::Float(1.5)),
            ("db", Scalar::Integer(2)),
        ];
        assert_eq!(id_of(&levels), "cpus-2__web-1.5__db-2");
    }

    #[test]
    fn odd_characters_become_hexadecimal_and_never_a_separator() {
        for (text, escaped) in [
            ("g1 gc", "g1_20gc"),
            ("a__b", "a_5f_5fb"),
            ("a/b", "a_2fb"),
            ("\u{e9}", "_c3_a9"),
            ("..", ".."),
        ] {
            assert_eq!(escape(&Scalar::Text(text.into())), escaped);
        }
    }

    #[test]
    fn a_long_id_is_cut_and_still_its_own() {
        let long = |end: &str| {
            let level = Scalar::Text(format!("{}{end}", "/".repeat(90)));
            id_of(&[("image", level)])
        };
        let (a, b) = (long("a"), long("b"));
        assert_eq!(a.len(), MAX_ID);
        assert_ne!(a, b);
        assert!(a.starts_with("image-_2f_2f"));
    }
}
