//! An inline Compose file, handed over as a tree.
//!
//! The matrix may carry overrides of the user's Compose files; whoever reads it
//! builds this tree, so that this folder need not know the matrix. Pure.

use std::sync::Arc;

use super::node::{Entry, Map, Mark, Node, Source};
use crate::placed::{PlacedNode, PlacedValue};
use crate::problem::Location;
use crate::scalar::Scalar;

/// The tree as the merge takes it; texts count as quoted.
pub(super) fn to_node(tree: &PlacedNode, source: &Arc<Source>) -> Arc<Node> {
    let mark = mark_at(source, &tree.location);
    match &tree.value {
        PlacedValue::Map(pairs) => {
            let entry = |(key, place, node): &(String, Location, PlacedNode)| {
                let mark = mark_at(source, place);
                let node = to_node(node, source);
                (key.as_str().into(), Entry { mark, node })
            };
            Node::map(mark, pairs.iter().map(entry).collect::<Map>())
        }
        PlacedValue::List(items) => {
            let items = items.iter().map(|item| to_node(item, source));
            Node::list(mark, items.collect())
        }
        PlacedValue::Scalar(Scalar::Text(text)) => Node::scalar(mark, text, false),
        PlacedValue::Scalar(scalar) => Node::scalar(mark, &scalar.to_string(), true),
    }
}

fn mark_at(source: &Arc<Source>, location: &Location) -> Mark {
    Mark::new(source, location.line, location.column)
}
