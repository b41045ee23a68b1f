//! The inline Compose file of `[override]`, as a tree with places.
//!
//! No key is judged here: the stack knows what Compose allows, and merges this
//! tree behind the Compose files. TOML has no null, so a key cannot be unset.

use toml::Spanned;
use toml::de::DeValue;

use crate::placed::{PlacedNode, PlacedValue};
use crate::scalar::Scalar;
use crate::toml_file::{Entry, Notes, scalar};

/// The tree of a TOML value; what cannot be in one is noted and left out.
pub(super) fn node(value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<PlacedNode> {
    let at = value.span().start;
    let tree = match value.get_ref() {
        DeValue::Table(table) => {
            let mut map = Vec::with_capacity(table.len());
            for entry in Entry::all(table) {
                let place = notes.at(entry.key_at);
                if let Some(child) = node(entry.value, notes) {
                    map.push((entry.key.to_owned(), place, child));
                }
            }
            PlacedValue::Map(map)
        }
        DeValue::Array(items) => {
            PlacedValue::List(items.iter().filter_map(|item| node(item, notes)).collect())
        }
        DeValue::Datetime(date) => PlacedValue::Scalar(Scalar::Text(date.to_string())),
        single => match scalar(single) {
            Ok(scalar) => PlacedValue::Scalar(scalar),
            Err(message) => {
                notes.add(at, format!("in [override], {message}"));
                return None;
            }
        },
    };
    Some(PlacedNode {
        location: notes.at(at),
        value: tree,
    })
}
