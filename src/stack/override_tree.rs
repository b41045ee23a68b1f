//! An inline Compose file, handed over as a tree.
//!
//! The matrix may carry overrides of the user's Compose files; whoever reads it
//! builds this tree, so that this folder need not know the matrix. Pure.

use std::sync::Arc;

use super::node::{Entry, Map, Mark, Node, Source};
use crate::problem::Location;
use crate::scalar::Scalar;

/// A value of an inline Compose file and where the user wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct OverrideNode {
    /// Where it is, in the file the user wrote.
    pub location: Location,
    /// What it is.
    pub value: OverrideValue,
}

/// What a value of an inline Compose file is.
#[derive(Debug, Clone, PartialEq)]
pub enum OverrideValue {
    /// Keys with their places and values, in file order.
    Map(Vec<(String, Location, OverrideNode)>),
    /// Values in order.
    List(Vec<OverrideNode>),
    /// A number, truth value or text; texts may have `${}` in them.
    Scalar(Scalar),
}

/// The tree as the merge takes it; texts count as quoted.
pub(super) fn to_node(tree: &OverrideNode, source: &Arc<Source>) -> Arc<Node> {
    let mark = mark_at(source, &tree.location);
    match &tree.value {
        OverrideValue::Map(pairs) => {
            let entry = |(key, place, node): &(String, Location, OverrideNode)| {
                let mark = mark_at(source, place);
                let node = to_node(node, source);
                (key.as_str().into(), Entry { mark, node })
            };
            Node::map(mark, pairs.iter().map(entry).collect::<Map>())
        }
        OverrideValue::List(items) => {
            let items = items.iter().map(|item| to_node(item, source));
            Node::list(mark, items.collect())
        }
        OverrideValue::Scalar(Scalar::Text(text)) => Node::scalar(mark, text, false),
        OverrideValue::Scalar(scalar) => Node::scalar(mark, &scalar.to_string(), true),
    }
}

fn mark_at(source: &Arc<Source>, location: &Location) -> Mark {
    Mark::new(source, location.line, location.column)
}
