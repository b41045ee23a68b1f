//! The inline Compose file of `[override]`, as a tree with places.
//!
//! No key is judged here: the stack knows what Compose allows, and merges this
//! tree behind the Compose files. TOML has no null, so a key cannot be unset.

use toml::Spanned;
use toml::de::DeValue;

use super::table::Notes;
use super::value::scalar;
use crate::problem::Location;
use crate::scalar::Scalar;

/// One value of the inline Compose file.
#[derive(Debug, Clone, PartialEq)]
pub struct OverrideNode {
    /// Where it is.
    pub location: Location,
    /// What it is.
    pub value: OverrideValue,
}

/// What a value of the inline Compose file is.
#[derive(Debug, Clone, PartialEq)]
pub enum OverrideValue {
    /// Keys with their places and values, in file order.
    Map(Vec<(String, Location, OverrideNode)>),
    /// Items in order.
    List(Vec<OverrideNode>),
    /// A single value; texts may hold `${}`, which is left as it is.
    Scalar(Scalar),
}

/// The tree of a TOML value; what cannot be in one is noted and left out.
pub(super) fn node(value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<OverrideNode> {
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
            OverrideValue::Map(map)
        }
        DeValue::Array(items) => {
            OverrideValue::List(items.iter().filter_map(|item| node(item, notes)).collect())
        }
        DeValue::Datetime(date) => OverrideValue::Scalar(Scalar::Text(date.to_string())),
        single => match scalar(single) {
            Ok(scalar) => OverrideValue::Scalar(scalar),
            Err(message) => {
                notes.add(at, format!("in [override], {message}"));
                return None;
            }
        },
    };
    Some(OverrideNode {
        location: notes.source.at(at),
        value: tree,
    })
}
