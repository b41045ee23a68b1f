//! A text with `${name}` of axes and derived values in it. Pure.

use super::cell::Cell;

/// A text to be filled with a cell's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueText {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Plain(String),
    Name { name: String, at: usize },
}

impl ValueText {
    /// Reads a text; `$$` is a dollar. The error says what is wrong and where in it.
    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            plain.push_str(&rest[..dollar]);
            let at = text.len() - rest.len() + dollar;
            let after = &rest[dollar + 1..];
            if let Some(after) = after.strip_prefix('$') {
                plain.push('$');
                rest = after;
                continue;
            }
            let Some(inner) = after.strip_prefix('{') else {
                return Err((at, "a `$` stands alone (`$$` is a dollar)".to_owned()));
            };
            let Some(end) = inner.find('}') else {
                return Err((at, "`${` has no `}`".to_owned()));
            };
            if !plain.is_empty() {
                parts.push(Part::Plain(std::mem::take(&mut plain)));
            }
            let name = inner[..end].to_owned();
            parts.push(Part::Name { name, at });
            rest = &inner[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Plain(plain));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Names in it, with their places in the text.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Plain(_) => None,
            Part::Name { name, at } => Some((name.as_str(), *at)),
        })
    }

    /// The text for a cell.
    pub fn of(&self, cell: &Cell) -> String {
        self.with(cell, |_| None)
    }

    /// The same with names that are not the cell's.
    pub fn with(&self, cell: &Cell, other: impl Fn(&str) -> Option<String>) -> String {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Plain(text) => filled.push_str(text),
                // Every name was looked up when the file was read.
                Part::Name { name, .. } => {
                    let value = cell.value(name).map(ToString::to_string);
                    filled.push_str(&value.or_else(|| other(name)).unwrap_or_default());
                }
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_dollars_are_doubled() {
        let text = ValueText::parse("a${x}$${y}${z}").unwrap();
        assert_eq!(text.names().collect::<Vec<_>>(), [("x", 1), ("z", 10)]);
        for (text, at) in [("a$", 1), ("${x", 0), ("$x", 0)] {
            assert_eq!(ValueText::parse(text).unwrap_err().0, at, "{text}");
        }
    }
}
