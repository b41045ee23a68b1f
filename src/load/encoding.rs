//! Texts that are sent in another alphabet: fields of forms, credentials.
//!
//! Pure. **Source**: the URL standard of WHATWG, section 5.2, for forms, which is what
//! browsers send; RFC 7617, section 2, for credentials.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// `application/x-www-form-urlencoded`.
    Form,
    Base64,
}

impl Encoding {
    /// Appends what `write` appends, encoded.
    ///
    /// **Errors**: that of `write`; what it had written is then of no use.
    pub(super) fn push<T>(self, out: &mut String, write: impl FnOnce(&mut String) -> T) -> T {
        let from = out.len();
        let written = write(out);
        // Most values of forms, such as ids, are sent as they are.
        let is_plain = self == Self::Form && out[from..].bytes().all(is_sent_as_it_is);
        if !is_plain {
            let text = out.split_off(from);
            match self {
                Self::Form => push_form(out, &text),
                Self::Base64 => BASE64_STANDARD.encode_string(text, out),
            }
        }
        written
    }
}

fn is_sent_as_it_is(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'*' | b'-' | b'.' | b'_')
}

fn push_form(out: &mut String, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if is_sent_as_it_is(byte) {
            out.push(char::from(byte));
        } else if byte == b' ' {
            out.push('+');
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(encoding: Encoding, text: &str) -> String {
        let mut out = String::from("before ");
        encoding.push(&mut out, |out| out.push_str(text));
        out.split_off("before ".len())
    }

    #[test]
    fn forms_are_written_as_browsers_write_them() {
        for (text, form) in [
            ("", ""),
            ("Az09*-._", "Az09*-._"),
            ("a b&c=d+e%", "a+b%26c%3Dd%2Be%25"),
            ("~é\n\u{1F600}", "%7E%C3%A9%0A%F0%9F%98%80"),
        ] {
            assert_eq!(encoded(Encoding::Form, text), form);
        }
    }

    #[test]
    fn credentials_are_written_as_the_standards_example() {
        assert_eq!(
            encoded(Encoding::Base64, "Aladdin:open sesame"),
            "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        );
        assert_eq!(encoded(Encoding::Base64, "é"), "w6k=");
    }
}
