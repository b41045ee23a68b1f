//! Expressions over knobs: `round(cpus * web)`, `db_pool > web_threads`.
//!
//! The grammar is rhai's, read by its parser (`parse`); what an operator
//! means is ours (`evaluate`), because a sizing rule needs other answers than a
//! script does: every number is a float (`5 / 2` is 2.5), nothing is compared
//! within a tolerance, a number compared with a text is a mistake and not
//! false, infinities and not-a-number never leave an operator. A tree of values,
//! names, operators and functions is all there is: no statement, loop,
//! assignment, property or script function gets past `parse`, so every
//! evaluation ends after at most one visit of each node.
//!
//! Next: `names` in the parent, which says what a name stands for.

mod evaluate;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::problem::Location;
use crate::scalar::Scalar;
use crate::units::format_number;

pub(super) use evaluate::Failure;
pub(super) use parse::{Known, is_usable_name};

/// What an expression computes with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A finite number.
    Number(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A text.
    Text(Arc<str>),
}

impl From<&Scalar> for Value {
    fn from(scalar: &Scalar) -> Self {
        match scalar {
            Scalar::Integer(number) => Self::Number(*number as f64),
            Scalar::Float(number) => Self::Number(*number),
            Scalar::Boolean(truth) => Self::Boolean(*truth),
            Scalar::Text(text) => Self::Text(text.as_str().into()),
        }
    }
}

impl Value {
    /// The knob value; numbers that are whole become integers.
    pub(super) fn to_scalar(&self) -> Scalar {
        match self {
            Self::Number(number) => {
                Scalar::from_number(*number).expect("no operator lets a non-finite number out")
            }
            Self::Boolean(truth) => Scalar::Boolean(*truth),
            Self::Text(text) => Scalar::Text(text.as_ref().to_owned()),
        }
    }
}

/// For messages: `the number 2`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "the number {}", format_number(*number)),
            Self::Boolean(truth) => write!(f, "the truth value {truth}"),
            Self::Text(text) => write!(f, "the text `{text}`"),
        }
    }
}

/// A checked expression: every name and function in it is known.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    location: Location,
    root: Node,
    slots: BTreeSet<usize>,
    tier_max_slots: BTreeSet<usize>,
}

impl Expression {
    /// The expression as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where its first character is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Indexes of the names whose value in the cell it reads.
    pub(super) fn slots(&self) -> &BTreeSet<usize> {
        &self.slots
    }

    /// Indexes of the names it reads through `tier_max`.
    pub(super) fn tier_max_slots(&self) -> &BTreeSet<usize> {
        &self.tier_max_slots
    }
}

/// One operator, function, name or constant, with its place.
#[derive(Debug, Clone)]
struct Node {
    at: Location,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Constant(Value),
    Name(usize),
    TierMax(usize),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<(Node, Node)>),
    /// Evaluated from the left, only as far as needed.
    All(Vec<Node>),
    /// Evaluated from the left, only as far as needed.
    Any(Vec<Node>),
    /// Condition, value if true, value if false; the other one is not evaluated.
    If(Box<[Node; 3]>),
    Call(Function, Vec<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unary {
    Minus,
    Plus,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Round,
    RoundHalfUp,
    Ceil,
    Floor,
    Abs,
    Min,
    Max,
}

impl Function {
    const ALL: [(&'static str, Self); 7] = [
        ("round", Self::Round),
        ("round_half_up", Self::RoundHalfUp),
        ("ceil", Self::Ceil),
        ("floor", Self::Floor),
        ("abs", Self::Abs),
        ("min", Self::Min),
        ("max", Self::Max),
    ];

    fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, function)| *function == self)
            .map_or("", |(name, _)| name)
    }
}
