//! Text bodies that are JSON: values inside string literals are escaped.
//!
//! A captured `a"b` inside `"name": "${name}"` must neither break the document
//! nor change what it says. Which `${}` stand inside a string literal is found
//! once, from the literal text around them, when the load starts; per request
//! only captures are still open. Outside of strings a value is sent as it is,
//! so that `${id}` can be a number or a whole object. Pure.

use http::header::{CONTENT_TYPE, HeaderName};
use serde_json::Value;

use super::template::{Piece, Pieces, plain, push_escaped};

/// Whether headers say that the body is JSON: a content type that contains `json`.
///
/// Of a content type that is not known before the request, the known parts count.
pub(super) fn is_json(headers: &[(HeaderName, Pieces)]) -> bool {
    let says_json = |text: &str| text.to_ascii_lowercase().contains("json");
    headers
        .iter()
        .filter(|(name, _)| name == CONTENT_TYPE)
        .flat_map(|(_, value)| value.pieces())
        .any(|piece| match piece {
            Piece::Text(text) => says_json(text),
            Piece::Value(value) => says_json(&plain(value)),
            _ => false,
        })
}

/// [`Pieces::fix`] for a body that is JSON.
///
/// **Errors**: the first name without a value.
pub(super) fn fix(
    body: &Pieces,
    value_of: &dyn Fn(&str) -> Option<Value>,
) -> Result<Pieces, String> {
    let mut place = Place::default();
    let mut fixed = Pieces::default();
    for piece in body.pieces() {
        if let Piece::Text(text) = piece {
            place.read(text);
            fixed.push(piece.clone());
            continue;
        }
        fixed.push(match piece {
            _ if !place.is_in_string => piece.clone(),
            Piece::Value(value) => Piece::Text(escaped(&plain(value))),
            Piece::External(name) => {
                let value = value_of(name).ok_or_else(|| name.clone())?;
                Piece::Text(escaped(&plain(&value)))
            }
            Piece::Capture(slot) => Piece::EscapedCapture(*slot),
            Piece::Data {
                name, set, column, ..
            } => Piece::Data {
                name: name.clone(),
                set: *set,
                column: *column,
                is_escaped: true,
            },
            // Hexadecimal digits, digits and signs need no escape.
            other => other.clone(),
        });
        // A backslash before a value applies to its first character.
        place.is_escaped = false;
    }
    fixed.fix(value_of)
}

/// Where in a JSON document the literal text read so far ends.
#[derive(Debug, Default)]
struct Place {
    is_in_string: bool,
    /// Whether the last character was a backslash that escapes the next one.
    is_escaped: bool,
}

impl Place {
    /// **Source**: RFC 8259, section 7: a quote opens and closes a string; inside,
    /// a backslash takes the character behind it.
    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'"' => self.is_in_string = !self.is_in_string,
                b'\\' => self.is_escaped = self.is_in_string,
                _ => {}
            }
        }
    }
}

/// A text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_escaped(&mut out, text);
    out
}

#[cfg(test)]
#[path = "json_body_tests.rs"]
mod tests;
