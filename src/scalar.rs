//! One knob value: a number, a truth value or a word.
//!
//! Axes, derived values and CSV columns all hold [`Scalar`]s. How a scalar is
//! written is fixed here once, because cell ids, Compose variables and CSV
//! cells must agree to the character. Pure.

use std::fmt;

use serde::{Serialize, Serializer};

/// A level of an axis or a derived value.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// A whole number.
    Integer(i64),
    /// A finite number with a fraction. Whole floats are stored as integers.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// Any text.
    Text(String),
}

impl Scalar {
    /// A number, stored as an integer where it is whole.
    ///
    /// `2.0` and `2` are the same level and are written the same way.
    /// `None` for infinities and not-a-number, which no knob can take.
    pub fn from_number(number: f64) -> Option<Self> {
        if !number.is_finite() {
            None
        } else if number.fract() == 0.0 && number.abs() < 9e15 {
            Some(Self::Integer(number as i64))
        } else {
            Some(Self::Float(number))
        }
    }

    /// The value as a number, where it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Boolean(_) | Self::Text(_) => None,
        }
    }

    /// Reads back what `Display` wrote: the type is guessed from the text.
    pub fn from_text(text: &str) -> Self {
        if let Ok(value) = text.parse::<i64>() {
            Self::Integer(value)
        } else if let Some(value) = text.parse::<f64>().ok().and_then(Self::from_number) {
            value
        } else {
            match text {
                "true" => Self::Boolean(true),
                "false" => Self::Boolean(false),
                _ => Self::Text(text.to_owned()),
            }
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
        }
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::Text(value) => serializer.serialize_str(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_floats_are_integers() {
        assert_eq!(Scalar::from_number(2.0), Some(Scalar::Integer(2)));
        assert_eq!(Scalar::from_number(1.5), Some(Scalar::Float(1.5)));
        assert_eq!(Scalar::from_number(f64::NAN), None);
        assert_eq!(Scalar::from_number(f64::INFINITY), None);
    }

    #[test]
    fn text_survives_a_round_trip() {
        for scalar in [
            Scalar::Integer(-3),
            Scalar::Float(0.25),
            Scalar::Boolean(true),
            Scalar::Text("g1 gc".into()),
        ] {
            assert_eq!(Scalar::from_text(&scalar.to_string()), scalar);
        }
    }
}
