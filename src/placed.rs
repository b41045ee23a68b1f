//! Values with places: an inline Compose file on its way from matrix to stack.
//!
//! The matrix builds the tree from TOML, the stack merges it behind the Compose
//! files; neither knows the other. No key is judged here.

use crate::problem::Location;
use crate::scalar::Scalar;

/// A value and where the user wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedNode {
    /// Where it is.
    pub location: Location,
    /// What it is.
    pub value: PlacedValue,
}

/// What a placed value is.
#[derive(Debug, Clone, PartialEq)]
pub enum PlacedValue {
    /// Keys with their places and values, in file order.
    Map(Vec<(String, Location, PlacedNode)>),
    /// Items in order.
    List(Vec<PlacedNode>),
    /// A single value; texts may hold `${}`, which is left as it is.
    Scalar(Scalar),
}
