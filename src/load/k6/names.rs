//! Names of environment variables that a script reads. Pure.
//!
//! Found in the text: `__ENV.NAME` and `__ENV["NAME"]`. Where `__ENV` is used in
//! another way (passed on, taken apart) any word of the text may be a name.

use std::collections::BTreeSet;

/// Names that scripts read from `__ENV`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EnvNames {
    named: BTreeSet<String>,
    /// Words of texts that use `__ENV` as a whole.
    words: BTreeSet<String>,
}

impl EnvNames {
    /// Adds those of a text.
    pub(super) fn add(&mut self, text: &str) {
        let mut is_whole = false;
        for (at, marker) in text.match_indices("__ENV") {
            let rest = text[at + marker.len()..].trim_start();
            let rest = rest.strip_prefix('?').unwrap_or(rest);
            let is_named = if let Some(rest) = rest.strip_prefix('.') {
                self.add_word(word_of(rest.trim_start_matches('[').trim_start()))
            } else if let Some(rest) = rest.strip_prefix('[') {
                let rest = rest.trim_start();
                let quote = rest.chars().next().filter(|c| "'\"`".contains(*c));
                let name = quote.and_then(|quote| rest[1..].split_once(quote));
                name.is_some_and(|(name, _)| self.add_word(name))
            } else {
                false
            };
            is_whole |= !is_named;
        }
        if is_whole {
            let words = text
                .split(|c: char| !is_word(c))
                .filter(|word| !word.is_empty());
            self.words.extend(words.map(str::to_owned));
        }
    }

    /// Whether a script may read a name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.named.contains(name) || self.words.contains(name)
    }

    /// Those that are written out.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(String::as_str)
    }

    fn add_word(&mut self, word: &str) -> bool {
        if word.is_empty() {
            return false;
        }
        self.named.insert(word.to_owned());
        true
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn word_of(text: &str) -> &str {
    let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_they_are_written() {
        let mut found = EnvNames::default();
        found.add(
            "const a = __ENV.BASE_URL || 'x'; `${__ENV['user-count']}` __ENV[ \"B\" ]; __ENV?.C",
        );
        let named: Vec<&str> = found.named().collect();
        assert_eq!(named, ["B", "BASE_URL", "C", "user-count"]);
        assert!(!found.contains("a"));
        found.add("const { web, db } = __ENV;");
        assert!(found.contains("web") && found.contains("db") && !found.contains("cpus"));
        found.add("__ENV[");
        found.add("__ENV['");
        found.add("__ENV.");
        found.add("\u{e4}__ENV[\u{e4}]");
    }
}
