//! The inline Compose file of `[override]`, as a tree with places.
//!
//! No key is judged here: the stack knows what Compose allows, and merges this
//! tree behind the Compose files. TOML has no null, so a key cannot be unset.

use toml::Spanned;
use toml::de::DeValue;

use super::table::Notes;
use super::value::scalar;
use crate::placed::{PlacedNode, PlacedValue};
use crate::scalar::Scalar;

/// The tree of a TOML value; what cannot be in one is noted and left out.
pub(super) fn node(value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<PlacedNode> {
    let at = value.span().start;
    let tree = match value.get_ref() {
        DeValue::Table(table) => {
            let mut entries: Vec<_> = table.iter().collect();
            // The library sorts by key; a Compose file's order is its author's.
            entries.sort_by_key(|(key, _)| key.span().start);
            let mut map = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let place = notes.source.at(key.span().start);
                if let Some(child) = node(value, notes) {
                    map.push((key.get_ref().as_ref().to_owned(), place, child));
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
        location: notes.source.at(at),
        value: tree,
    })
}
