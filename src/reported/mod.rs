//! What a service says of itself: a value in a Prometheus text or a JSON document.
//!
//! A matrix file names it, a sweep looks for it in an answer; captures and
//! expectations of a workload use the same JSON paths. Pure: no address, no clock.

mod json_path;
mod json_paths;
mod series;

use std::fmt;

use serde_json::Value;

pub use json_path::JsonPath;
pub use json_paths::JsonPaths;
pub use series::Series;

/// The place of one value in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// A sample of a Prometheus text exposition.
    Series(Series),
    /// A value of a JSON document.
    Json(JsonPath),
}

impl Reported {
    /// The value as text; the error says why there is none, to follow 'the answer'.
    pub fn find(&self, body: &str) -> Result<String, String> {
        match self {
            Self::Series(series) => series.find(body),
            Self::Json(path) => {
                let document: Value = serde_json::from_str(body)
                    .map_err(|error| format!("is no JSON document ({error})"))?;
                match path.find(&document) {
                    None => Err(format!("has nothing at `{path}`")),
                    Some(Value::String(text)) => Ok(text.clone()),
                    Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
                    Some(Value::Null) => Err(format!("has null at `{path}`")),
                    Some(Value::Array(_)) => Err(format!("has a list at `{path}`, not one value")),
                    Some(Value::Object(_)) => {
                        Err(format!("has an object at `{path}`, not one value"))
                    }
                }
            }
        }
    }
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Series(series) => series.fmt(f),
            Self::Json(path) => path.fmt(f),
        }
    }
}

/// Whether two values are the same: as numbers where both are, else as texts.
pub fn is_same_value(left: &str, right: &str) -> bool {
    let (left, right) = (left.trim(), right.trim());
    match (left.parse::<f64>(), right.parse::<f64>()) {
        // Both come from decimal text of the same number, so their bits agree too.
        (Ok(a), Ok(b)) => a.total_cmp(&b).is_eq() || a.abs() + b.abs() == 0.0,
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(path: &str, body: &str) -> Result<String, String> {
        Reported::Json(JsonPath::parse(path).unwrap()).find(body)
    }

    #[test]
    fn a_json_value_is_found_or_it_is_said_why_not() {
        let body = r#"{"pool": {"size": 8, "name": "main", "on": true, "rate": 1.50}, "none": null, "l": []}"#;
        let found = ["$.pool.size", "$.pool.name", "$.pool.on", "$.pool.rate"]
            .map(|path| json(path, body).unwrap());
        assert_eq!(found, ["8", "main", "true", "1.5"]);
        for (path, body, why) in [
            ("$.pool.sise", body, "has nothing at `$.pool.sise`"),
            ("$.none", body, "has null at `$.none`"),
            ("$.l", body, "has a list at `$.l`, not one value"),
            ("$.pool", body, "has an object at `$.pool`, not one value"),
        ] {
            assert_eq!(json(path, body).unwrap_err(), why);
        }
        assert!(
            json("$.a", "<html>")
                .unwrap_err()
                .starts_with("is no JSON document")
        );
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_everything_else_as_text() {
        for (left, right) in [
            ("8", "8.0"),
            ("1e3", "1000"),
            ("0", "-0"),
            (" a ", "a"),
            ("0.30", "0.3"),
            ("+Inf", "inf"),
        ] {
            assert!(is_same_value(left, right), "{left} {right}");
        }
        for (left, right) in [
            ("8", "9"),
            ("8", "eight"),
            ("a", "A"),
            ("", "0"),
            ("true", "1"),
        ] {
            assert!(!is_same_value(left, right), "{left} {right}");
        }
    }
}
