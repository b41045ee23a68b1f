//! Secrets stay out of files.
//!
//! A value that came from the process environment, an `.env` file, a Compose
//! secret or `[sweep] secrets` is replaced by a salted digest wherever its text
//! would be written: manifest, inputs, rows, logs, events. Axis values are not
//! secrets: their text is the result.
//!
//! **Invariant**: the salt is new for every run and is written nowhere, so a
//! digest says 'the same value as over there' within one run and nothing else.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};

/// Below this length a text is no secret, and replacing it would shred every file.
const SHORTEST_SECRET_CHARS: usize = 3;

/// From this length a secret is replaced wherever it stands, below it only as a word.
///
/// Eight characters is the shortest password most policies allow; below it a
/// value such as `app` would be cut out of the middle of ordinary words.
const SHORTEST_FOUND_ANYWHERE_CHARS: usize = 8;

/// Words that switches are set to; they hide nothing.
const SWITCH_WORDS: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "null", "none"];

/// The values that must not be written, and what is written instead.
#[derive(Clone, Default)]
pub struct Secrets {
    salt: [u8; 16],
    values: BTreeSet<String>,
    /// Texts that are no secret whatever else they are.
    revealed: BTreeSet<String>,
    /// What was learnt since copies were handed out; one list for all of them.
    learnt: Arc<Mutex<BTreeSet<String>>>,
}

impl Secrets {
    /// No secrets yet; `salt` is sixteen random bytes, new for each run.
    pub fn new(salt: [u8; 16]) -> Self {
        Self {
            salt,
            values: BTreeSet::new(),
            revealed: BTreeSet::new(),
            learnt: Arc::default(),
        }
    }

    /// Adds a value that must not be written.
    ///
    /// Texts under three characters and plain switch words are let through.
    /// A value of several lines is also hidden line by line, since logs break it.
    pub fn hide(&mut self, value: &str) {
        for part in std::iter::once(value).chain(value.lines()) {
            let part = part.trim();
            if is_worth_hiding(part) && !self.revealed.contains(part) {
                self.values.insert(part.to_owned());
            }
        }
    }

    /// Adds a value that becomes known while a run is under way, to every copy of these secrets.
    ///
    /// Such as a key that was computed from secrets without a salt: with everything else that
    /// went into it at hand, it would tell whether a guess is right.
    pub fn hide_everywhere(&self, value: &str) {
        if is_worth_hiding(value) {
            let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
            learnt.insert(value.to_owned());
        }
    }

    /// Lets a text through for good: an axis level, whose text is the result, or a name.
    ///
    /// It does not matter whether it is hidden before or after.
    pub fn reveal(&mut self, text: &str) {
        let text = text.trim();
        self.values.remove(text);
        self.revealed.insert(text.to_owned());
    }

    /// The text with every secret replaced, longest first.
    ///
    /// A secret is also found in the escaped forms a writer may have given it: JSON string
    /// escapes, percent-encoding, and base64 of a text that it is a part of, as the header
    /// `authorization: Basic` has it.
    pub fn redact(&self, text: &str) -> String {
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        let mut values: Vec<&String> = self.values.iter().chain(learnt.iter()).collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let mut redacted = text.to_owned();
        for value in values {
            for form in [value.clone(), json_escaped(value), percent_encoded(value)] {
                if redacted.contains(&form) {
                    redacted = replace_words(&redacted, &form, &self.digest(value));
                }
            }
            if !is_found_only_as_word(value) {
                for core in base64_cores(value) {
                    redacted = replace_base64(&redacted, &core, &self.digest(value));
                }
            }
        }
        redacted
    }

    /// What is written in place of a value: the same for the same value within a run.
    pub fn digest(&self, value: &str) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.salt);
        hasher.update(value.as_bytes());
        let digest = hasher.finalize();
        digest
            .iter()
            .take(6)
            .fold("secret:".to_owned(), |mut text, byte| {
                // Writing to a String cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} values)", self.values.len())
    }
}

fn is_worth_hiding(value: &str) -> bool {
    let is_switch = SWITCH_WORDS
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    value.chars().nth(SHORTEST_SECRET_CHARS - 1).is_some() && !is_switch
}

/// Whether a secret is so short that it is only found where it is a word of its own.
pub fn is_found_only_as_word(value: &str) -> bool {
    let value = value.trim();
    is_worth_hiding(value)
        && value
            .chars()
            .nth(SHORTEST_FOUND_ANYWHERE_CHARS - 1)
            .is_none()
}

/// The words of a text that short secrets became a part of: to be hidden too.
///
/// `spans` are the byte ranges where secrets stand, in order. A short secret
/// inside a word (`pre${PW}post`) would not be found there later. The word is
/// also given as a shell leaves it, without quotes and backslashes.
pub fn words_around(text: &str, spans: &[Range<usize>]) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let is_shell_quote = |c: char| matches!(c, '\'' | '"' | '\\');
    let mut add = |is_joined: &dyn Fn(char) -> bool| {
        let mut done = 0;
        for span in spans.iter().filter(|span| !span.is_empty()) {
            if span.end <= done {
                continue;
            }
            // From the last word's end on, so that a text of nothing but secrets
            // is walked once and not once for each.
            let before = &text[done.min(span.start)..span.start];
            let start = span.start - (before.len() - before.trim_end_matches(is_joined).len());
            let after = &text[span.end..];
            let end = span.end + (after.len() - after.trim_start_matches(is_joined).len());
            done = end;
            words.insert(text[start..end].replace(is_shell_quote, ""));
            words.insert(text[start..end].to_owned());
        }
    };
    add(&is_word_char);
    add(&|c| is_word_char(c) || is_shell_quote(c));
    words
}

/// What may stand beside a short secret only as a part of the same word.
///
/// An underscore joins names, as in `user_<password>`, so it is none.
fn is_word_char(c: char) -> bool {
    c.is_alphanumeric()
}

/// Whether a text ends with an escape that a writer made: `\n` or `%20`.
fn ends_with_escape(text: &str) -> bool {
    let mut last = text.bytes().rev();
    let (last, second, third) = (last.next(), last.next(), last.next());
    let is_hex = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
    (second == Some(b'\\') && matches!(last, Some(b'n' | b'r' | b't' | b'b' | b'f')))
        || (third == Some(b'%') && is_hex(second) && is_hex(last))
}

/// What base64 of any text with this in it holds: one form for each place modulo three, in
/// both alphabets. The characters at the ends that neighbours have a part in are left out.
fn base64_cores(value: &str) -> BTreeSet<String> {
    let core = |n_before: usize| {
        let padded = [&[0; 2][..n_before], value.as_bytes()].concat();
        let encoded = STANDARD_NO_PAD.encode(&padded);
        let (from, to) = ((8 * n_before).div_ceil(6), 8 * padded.len() / 6);
        encoded[from..to].to_owned()
    };
    let standard = (0..3).map(core);
    standard
        .flat_map(|core| [core.replace('+', "-").replace('/', "_"), core])
        .collect()
}

/// Replaces every word of base64 that holds `core`.
fn replace_base64(text: &str, core: &str, replacement: &str) -> String {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/-_=".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(core) {
        let from = rest[..at].trim_end_matches(is_base64).len();
        let behind = &rest[at + core.len()..];
        out.push_str(&rest[..from]);
        out.push_str(replacement);
        rest = behind.trim_start_matches(is_base64);
    }
    out.push_str(rest);
    out
}

/// Replaces `value`; a short one only where it stands as a word of its own.
fn replace_words(text: &str, value: &str, replacement: &str) -> String {
    if !is_found_only_as_word(value) {
        return text.replace(value, replacement);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest_start = 0;
    for (start, matched) in text.match_indices(value) {
        let end = start + matched.len();
        let before = &text[..start];
        let joined_before = value.starts_with(is_word_char)
            && before.ends_with(is_word_char)
            && !ends_with_escape(before);
        let joined_after = value.ends_with(is_word_char) && text[end..].starts_with(is_word_char);
        if joined_before || joined_after {
            continue;
        }
        out.push_str(&text[rest_start..start]);
        out.push_str(replacement);
        rest_start = end;
    }
    out.push_str(&text[rest_start..]);
    out
}

fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::String(value.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn percent_encoded(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[&str]) -> Secrets {
        let mut secrets = Secrets::new([7; 16]);
        for value in values {
            secrets.hide(value);
        }
        secrets
    }

    #[test]
    fn a_secret_is_replaced_wherever_it_stands() {
        let secrets = secrets(&["hunter2-hunter2", "p\"w/ 1234"]);
        for text in [
            "url=postgres://u:hunter2-hunter2@db",
            "x hunter2-hunter2hunter2-hunter2",
        ] {
            assert!(!secrets.redact(text).contains("hunter2"), "{text}");
        }
        assert!(!secrets.redact(r#"{"a":"p\"w/ 1234"}"#).contains("1234"));
        assert!(!secrets.redact("q=p%22w%2F%201234").contains("1234"));
    }

    #[test]
    fn a_short_secret_leaves_other_words_alone() {
        let secrets = secrets(&["app", "1", "true"]);
        let redacted = secrets.redact("application app true 1");
        assert!(redacted.starts_with("application secret:"));
        assert!(redacted.ends_with(" true 1"));
    }

    #[test]
    fn a_short_secret_is_found_beside_an_underscore_and_behind_an_escape() {
        let secrets = secrets(&["abc123"]);
        for text in [
            "user_abc123",
            "abc123_user",
            r"line\nabc123",
            "q=a%20abc123",
            "p=abc123;",
        ] {
            assert!(!secrets.redact(text).contains("abc123"), "{text}");
        }
        assert_eq!(secrets.redact("xabc123 abc1234"), "xabc123 abc1234");
    }

    #[test]
    fn the_words_around_short_secrets_are_those_of_the_text_and_of_the_shell() {
        for (text, expected) in [
            ("S preabc123post x", vec!["preabc123post"]),
            ("http://db:abc123/x", vec!["abc123"]),
            (
                "a pre\"abc123\"post b",
                vec!["abc123", "pre\"abc123\"post", "preabc123post"],
            ),
            ("-pabc123abc123é", vec!["pabc123abc123é"]),
        ] {
            let spans: Vec<Range<usize>> = text
                .match_indices("abc123")
                .map(|(start, found)| start..start + found.len())
                .collect();
            let words = words_around(text, &spans);
            assert!(words.iter().eq(expected.iter()), "{text}: {words:?}");
        }
        assert!(is_found_only_as_word("abc123") && !is_found_only_as_word("hunter2-hunter2"));
        assert!(!is_found_only_as_word("17") && !is_found_only_as_word("true"));
    }

    #[test]
    fn what_is_learnt_later_is_hidden_by_every_copy() {
        let secrets = secrets(&[]);
        let copy = secrets.clone();
        secrets.hide_everywhere("0123456789abcdef");
        let text = copy.redact("volume nightsweep-golden-0123456789abcdef-1 is gone");
        assert!(!text.contains("0123456789abcdef"), "{text}");
        assert!(text.contains(&copy.digest("0123456789abcdef")), "{text}");
    }

    #[test]
    fn what_is_revealed_stays_so_whichever_came_first() {
        let mut secrets = secrets(&["level-one-of-many"]);
        secrets.reveal("level-one-of-many");
        secrets.reveal("level-two-of-many");
        secrets.hide("level-one-of-many");
        secrets.hide("level-two-of-many");
        let text = "level-one-of-many level-two-of-many";
        assert_eq!(secrets.redact(text), text);
    }

    #[test]
    fn one_value_has_one_digest_within_a_run_and_another_in_the_next() {
        let (a, b) = (Secrets::new([1; 16]), Secrets::new([2; 16]));
        assert_eq!(a.digest("value"), a.digest("value"));
        assert_ne!(a.digest("value"), b.digest("value"));
    }

    #[test]
    fn the_lines_of_a_key_file_are_hidden_one_by_one() {
        let secrets = secrets(&["-----BEGIN-----\nMIIEvQIBADAN\n-----END-----"]);
        assert!(!secrets.redact("log: MIIEvQIBADAN").contains("MIIE"));
    }

    #[test]
    fn a_secret_inside_base64_is_found_wherever_it_stands() {
        let mut secrets = Secrets::new([7; 16]);
        secrets.hide("p\u{e4}ss?w>rd~1");
        let digest = secrets.digest("p\u{e4}ss?w>rd~1");
        for user in ["", "a", "ab", "abc", "somebody"] {
            for rest in ["", "x", "xy"] {
                let plain = format!("{user}:p\u{e4}ss?w>rd~1{rest}");
                for encoded in [
                    base64::engine::general_purpose::STANDARD.encode(&plain),
                    base64::engine::general_purpose::URL_SAFE.encode(&plain),
                ] {
                    let said = format!("authorization: Basic {encoded}, twice {encoded}.");
                    let expected = format!("authorization: Basic {digest}, twice {digest}.");
                    assert_eq!(secrets.redact(&said), expected, "{plain}");
                }
            }
        }
        let other = "dGhlIHdvcmQgYmFzZTY0 and nothing else";
        assert_eq!(secrets.redact(other), other);
    }
}
