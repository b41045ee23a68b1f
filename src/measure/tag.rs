//! Tags of intervals: an operation and an outcome as one word, there and back.
//!
//! **Invariant**: the interval log allows no space, comma or line end in a tag;
//! what stays unencoded is RFC 3986's unreserved set, so no encoded operation
//! holds the bar.

use super::Outcome;

/// The tag of an interval: the operation, percent-encoded, a bar, the outcome's code.
pub fn operation_tag(operation: &str, outcome: Outcome) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut tag = String::with_capacity(operation.len() + 16);
    for byte in operation.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            tag.push(char::from(byte));
        } else {
            tag.push('%');
            tag.push(char::from(HEX[usize::from(byte >> 4)]));
            tag.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    tag.push('|');
    tag.push_str(outcome.code());
    tag
}

/// The operation and the outcome of a tag; `None` where it is not one of ours.
pub fn parse_tag(tag: &str) -> Option<(String, Outcome)> {
    let (encoded, code) = tag.rsplit_once('|')?;
    Some((decode(encoded)?, Outcome::of_code(code)?))
}

fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high << 4 | low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::ErrorClass;

    #[test]
    fn tags_survive_bars_spaces_and_commas_in_names() {
        for (operation, outcome, tag) in [
            (
                "create Patient",
                Outcome::Success,
                "create%20Patient|success",
            ),
            (
                "drop|it, ü%41",
                Outcome::Error(ErrorClass::Status),
                "drop%7Cit%2C%20%C3%BC%2541|error.status",
            ),
            ("", Outcome::Unsent, "|unsent"),
        ] {
            assert_eq!(operation_tag(operation, outcome), tag);
            assert_eq!(parse_tag(tag), Some((operation.to_owned(), outcome)));
        }
    }

    #[test]
    fn other_peoples_tags_are_told_apart() {
        for tag in [
            "",
            "read",
            "read|",
            "read|late",
            "a%2|success",
            "a%FF|success",
            "%zz|unsent",
        ] {
            assert_eq!(parse_tag(tag), None, "{tag}");
        }
    }
}
