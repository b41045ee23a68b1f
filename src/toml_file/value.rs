//! Single TOML values: as knob values, as numbers, as messages name them.
//!
//! No place and no key is known here; the caller adds them.

use toml::de::DeValue;

use crate::scalar::Scalar;
use crate::units::shortened;

/// Largest whole number that an axis may hold: beyond it, floats skip numbers.
///
/// **Source**: IEEE 754 binary64 has 53 bits of significand.
const MAX_EXACT: i64 = 1 << 53;

/// A whole number of at most 64 bits.
pub fn integer_of(value: &DeValue<'_>) -> Option<i64> {
    let DeValue::Integer(written) = value else {
        return None;
    };
    i64::from_str_radix(written.as_str().trim_start_matches('+'), written.radix()).ok()
}

/// A number as it was written; infinite and not-a-number values come through.
pub fn number_of(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(_) => integer_of(value).map(|whole| whole as f64),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

/// One knob value; the error says what is wrong with it.
pub fn scalar(value: &DeValue<'_>) -> Result<Scalar, String> {
    match value {
        DeValue::Integer(written) => integer_of(value)
            .filter(|number| number.unsigned_abs() <= MAX_EXACT.unsigned_abs())
            .map(Scalar::Integer)
            .ok_or_else(|| {
                format!(
                    "the number {} is too large (allowed: up to {MAX_EXACT})",
                    shortened(&written.to_string())
                )
            }),
        DeValue::Float(written) => written
            .as_str()
            .parse()
            .ok()
            .and_then(Scalar::from_number)
            .ok_or_else(|| format!("the number {} is not finite", shortened(written.as_str()))),
        DeValue::Boolean(truth) => Ok(Scalar::Boolean(*truth)),
        DeValue::String(text) => Ok(Scalar::Text(text.as_ref().to_owned())),
        other => Err(format!(
            "{} is no single value (allowed: numbers, texts, true, false)",
            describe(other)
        )),
    }
}

/// A value as messages name it; long ones are cut.
pub fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text \"{}\"", shortened(text)),
        DeValue::Integer(number) => format!("the number {}", shortened(number.as_str())),
        DeValue::Float(number) => format!("the number {}", shortened(number.as_str())),
        DeValue::Boolean(truth) => format!("{truth}"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
