//! What a resource must look like, and which of its fields can be searched.
//!
//! Invariant: pure; no database, no HTTP, no clock. Next: [`crate::store`].

use serde_json::{Map, Value};

/// The parameters a search may name.
pub(crate) const SEARCH_PARAMETERS: [&str; 4] = ["name", "identifier", "subject", "status"];

/// Longest indexed value in characters: far below what a B-tree page takes.
const LONGEST_VALUE: usize = 200;

/// A resource's JSON is not acceptable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    /// Not JSON at all.
    #[error("the body is not JSON: {0}")]
    Json(String),
    /// JSON, but not an object.
    #[error("a resource is a JSON object")]
    NotAnObject,
    /// The type in the body is absent or another.
    #[error("resourceType is {found}, the path says '{expected}'")]
    Type {
        /// What the body says, or that it says nothing.
        found: String,
        /// What the path says.
        expected: String,
    },
    /// The id in the body is not the one of the path.
    #[error("id is {found}, the path says '{expected}'")]
    Id {
        /// What the body says.
        found: String,
        /// What the path says.
        expected: String,
    },
    /// A known field has the wrong shape.
    #[error("'{field}' must be {shape}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it must be.
        shape: &'static str,
    },
}

/// A body that passed validation.
#[derive(Debug, Clone)]
pub(crate) struct Resource(Map<String, Value>);

impl Resource {
    /// Parses and validates. `id` is the path's, where it has one.
    pub(crate) fn parse(body: &[u8], kind: &str, id: Option<&str>) -> Result<Self, Invalid> {
        let value: Value =
            serde_json::from_slice(body).map_err(|error| Invalid::Json(error.to_string()))?;
        let Value::Object(map) = value else {
            return Err(Invalid::NotAnObject);
        };
        match map.get("resourceType") {
            Some(Value::String(found)) if found == kind => {}
            other => {
                return Err(Invalid::Type {
                    found: quoted(other),
                    expected: kind.to_owned(),
                });
            }
        }
        if let (Some(expected), Some(found)) = (id, map.get("id"))
            && found.as_str() != Some(expected)
        {
            return Err(Invalid::Id {
                found: quoted(Some(found)),
                expected: expected.to_owned(),
            });
        }
        for (field, shape, fits) in [
            ("meta", "an object", Value::is_object as fn(&Value) -> bool),
            ("status", "a string", Value::is_string),
            ("subject", "an object", Value::is_object),
        ] {
            if map.get(field).is_some_and(|value| !fits(value)) {
                return Err(Invalid::Field { field, shape });
            }
        }
        Ok(Self(map))
    }

    /// The text to store and to answer with: id and meta as the server decided them.
    pub(crate) fn stamped(&self, id: &str, version: i64, updated: &str) -> String {
        let mut out = Map::with_capacity(self.0.len() + 2);
        let mut meta = self
            .0
            .get("meta")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        meta.insert("versionId".to_owned(), Value::String(version.to_string()));
        meta.insert("lastUpdated".to_owned(), Value::String(updated.to_owned()));
        for (key, value) in &self.0 {
            if key != "id" && key != "meta" {
                out.insert(key.clone(), value.clone());
            }
            if key == "resourceType" {
                out.insert("id".to_owned(), Value::String(id.to_owned()));
                out.insert("meta".to_owned(), Value::Object(std::mem::take(&mut meta)));
            }
        }
        Value::Object(out).to_string()
    }

    /// The pairs (parameter, value) under which a search finds this resource.
    pub(crate) fn index(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        for name in each(self.0.get("name")) {
            match name {
                Value::String(text) => pairs.push(("name", search_key("name", text))),
                Value::Object(parts) => {
                    for part in ["text", "family", "given"] {
                        for text in each(parts.get(part)).filter_map(Value::as_str) {
                            pairs.push(("name", search_key("name", text)));
                        }
                    }
                }
                _ => {}
            }
        }
        for identifier in each(self.0.get("identifier")) {
            let Some(value) = identifier.get("value").and_then(Value::as_str) else {
                continue;
            };
            pairs.push(("identifier", search_key("identifier", value)));
            if let Some(system) = identifier.get("system").and_then(Value::as_str) {
                pairs.push((
                    "identifier",
                    search_key("identifier", &format!("{system}|{value}")),
                ));
            }
        }
        // Claims and explanations of benefit call their subject the patient.
        for field in ["subject", "patient"] {
            let reference = self
                .0
                .get(field)
                .and_then(|subject| subject.get("reference"));
            if let Some(text) = reference.and_then(Value::as_str) {
                pairs.push(("subject", search_key("subject", text)));
            }
        }
        if let Some(status) = self.0.get("status").and_then(Value::as_str) {
            pairs.push(("status", search_key("status", status)));
        }
        pairs.sort();
        pairs.dedup();
        pairs
    }
}

/// A value as it is indexed and looked up: names fold case, all are cut to one length.
pub(crate) fn search_key(parameter: &str, value: &str) -> String {
    let cut = value.chars().take(LONGEST_VALUE);
    if parameter == "name" {
        cut.flat_map(char::to_lowercase).collect()
    } else {
        cut.collect()
    }
}

/// An array's elements, or the value itself.
fn each(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    match value {
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
        None => &[],
    }
    .iter()
}

fn quoted(value: Option<&Value>) -> String {
    match value {
        None => "missing".to_owned(),
        Some(Value::String(text)) => format!("'{text}'"),
        Some(_) => "not a string".to_owned(),
    }
}

/// A resource type: `[A-Z][A-Za-z]{1,63}`.
pub(crate) fn is_type(text: &str) -> bool {
    let bytes = text.as_bytes();
    (2..=64).contains(&bytes.len())
        && bytes[0].is_ascii_uppercase()
        && bytes[1..].iter().all(u8::is_ascii_alphabetic)
}

/// A FHIR id: `[A-Za-z0-9\-.]{1,64}`.
pub(crate) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
}

/// A new id: a random UUID (version 4).
pub(crate) fn new_id() -> String {
    let random = fastrand::u128(..);
    let stamped = random & !(0xf000_u128 << 64) & !(0xc000_u128 << 48)
        | (0x4000_u128 << 64)
        | (0x8000_u128 << 48);
    let hex = format!("{stamped:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Resource, Invalid> {
        Resource::parse(text.as_bytes(), "Patient", Some("a"))
    }

    #[test]
    fn bodies_are_refused_with_the_reason() {
        for (body, reason) in [
            (
                "{",
                "the body is not JSON: EOF while parsing an object at line 1 column 1",
            ),
            ("[]", "a resource is a JSON object"),
            ("{}", "resourceType is missing, the path says 'Patient'"),
            (
                r#"{"resourceType":"Claim"}"#,
                "resourceType is 'Claim', the path says 'Patient'",
            ),
            (
                r#"{"resourceType":"Patient","id":"b"}"#,
                "id is 'b', the path says 'a'",
            ),
            (
                r#"{"resourceType":"Patient","status":1}"#,
                "'status' must be a string",
            ),
        ] {
            assert_eq!(parse(body).unwrap_err().to_string(), reason, "{body}");
        }
    }

    #[test]
    fn the_server_decides_id_and_meta_and_keeps_the_rest() {
        let resource = parse(
            r#"{"x":1,"resourceType":"Patient","meta":{"versionId":"9","source":"s"},"id":"a"}"#,
        )
        .unwrap();
        assert_eq!(
            resource.stamped("a", 2, "2026-01-01T00:00:00Z"),
            r#"{"x":1,"resourceType":"Patient","id":"a","meta":{"versionId":"2","source":"s","lastUpdated":"2026-01-01T00:00:00Z"}}"#
        );
    }

    #[test]
    fn names_identifiers_subjects_and_status_are_indexed_once() {
        let resource = parse(
            r#"{"resourceType":"Patient","status":"final","name":[{"family":"Chalmers","given":["Peter","Peter"]}],
                "identifier":[{"system":"urn:x","value":"7"}],"patient":{"reference":"Patient/1"}}"#,
        )
        .unwrap();
        let pairs: Vec<_> = resource
            .index()
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            pairs,
            [
                "identifier=7",
                "identifier=urn:x|7",
                "name=chalmers",
                "name=peter",
                "status=final",
                "subject=Patient/1"
            ]
        );
    }

    #[test]
    fn types_and_ids_have_a_grammar() {
        assert!(is_type("Patient") && is_type("ExplanationOfBenefit"));
        assert!(
            !is_type("P")
                && !is_type("patient")
                && !is_type("Pat1ent")
                && !is_type(&"A".repeat(65))
        );
        assert!(is_id("a-1.B") && is_id(&new_id()));
        assert!(!is_id("") && !is_id("a/b") && !is_id(&"a".repeat(65)));
    }

    #[test]
    fn new_ids_are_version_4_uuids() {
        let id = new_id();
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
