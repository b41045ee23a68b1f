//! JSON values with `${}` in their strings, and their text of one request.
//!
//! A text that is one `${}` takes the value's type; all else is escaped. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use super::data::Rows;
use super::template::{Counter, Dynamic, Pieces, push_escaped};

/// A JSON value with templates in its strings.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JsonTemplate<T> {
    /// A value without a template.
    Literal(Value),
    /// A string with or without templates.
    Text(T),
    /// An array.
    Array(Vec<Self>),
    /// An object; keys are taken as they are.
    Object(Vec<(String, Self)>),
}

impl<T> JsonTemplate<T> {
    /// The same value with every text turned into something else.
    pub(super) fn try_map<U, E>(
        &self,
        map: &mut impl FnMut(&T) -> Result<U, E>,
    ) -> Result<JsonTemplate<U>, E> {
        Ok(match self {
            Self::Literal(value) => JsonTemplate::Literal(value.clone()),
            Self::Text(text) => JsonTemplate::Text(map(text)?),
            Self::Array(items) => JsonTemplate::Array(
                items
                    .iter()
                    .map(|item| item.try_map(map))
                    .collect::<Result<_, E>>()?,
            ),
            Self::Object(fields) => JsonTemplate::Object(
                fields
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), value.try_map(map)?)))
                    .collect::<Result<_, E>>()?,
            ),
        })
    }
}

impl JsonTemplate<Pieces> {
    /// The JSON value of this request. An unset capture is the error, by slot.
    pub(super) fn value(&self, dynamic: &mut Dynamic<'_>) -> Result<Value, usize> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Text(pieces) => pieces.value(dynamic)?,
            Self::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| item.value(dynamic))
                    .collect::<Result<_, _>>()?,
            ),
            Self::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), value.value(dynamic)?)))
                    .collect::<Result<_, usize>>()?,
            ),
        })
    }

    /// Appends the JSON text of this request: what [`JsonTemplate::value`] would print,
    /// without making it first.
    pub(super) fn render(&self, out: &mut String, dynamic: &mut Dynamic<'_>) -> Result<(), usize> {
        match self {
            Self::Literal(value) => push_json(out, value),
            Self::Text(pieces) => push_json(out, &pieces.value(dynamic)?),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.render(out, dynamic)?;
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    out.push_str(if index > 0 { ",\"" } else { "\"" });
                    push_escaped(out, key);
                    out.push_str("\":");
                    value.render(out, dynamic)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }

    /// The JSON text, where it is the same for every request.
    pub(super) fn as_constant(&self) -> Option<String> {
        if !self.is_constant() {
            return None;
        }
        let (mut random, mut counter) = (fastrand::Rng::with_seed(0), Counter::new(0, 1));
        let mut nothing = Dynamic {
            captures: &[],
            random: &mut random,
            counter: &mut counter,
            user: 0,
            rows: Rows::default(),
        };
        let mut text = String::new();
        self.render(&mut text, &mut nothing).ok()?;
        Some(text)
    }

    fn is_constant(&self) -> bool {
        match self {
            Self::Literal(_) => true,
            Self::Text(pieces) => pieces.as_text().is_some(),
            Self::Array(items) => items.iter().all(Self::is_constant),
            Self::Object(fields) => fields.iter().all(|(_, value)| value.is_constant()),
        }
    }
}

fn push_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => {
            out.push('"');
            push_escaped(out, text);
            out.push('"');
        }
        other => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{other}");
        }
    }
}
