//! A small JSON path: `$`, `.name`, `['name']`, `[0]`.
//!
//! One path finds one value; filters, wildcards and slices are refused, since a
//! capture or an expectation is about one value. Pure.
//! **Source**: the singular queries of RFC 9535, without negative indexes.

use std::fmt;

use serde_json::Value;

/// A path to one value in a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath {
    text: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Name(String),
    Index(usize),
}

impl JsonPath {
    /// Reads a path; the error says what is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "`{text}` is not a JSON path: {what} (allowed: `$.name`, `$['a name']`, `$[0]`)"
            )
        };
        let mut rest = text
            .strip_prefix('$')
            .ok_or_else(|| wrong("it does not start with `$`"))?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(name_on) = rest.strip_prefix('.') {
                let end = name_on.find(['.', '[']).unwrap_or(name_on.len());
                let name = &name_on[..end];
                if name.is_empty() {
                    return Err(wrong("a name is empty"));
                }
                if name.contains(['*', '?', '@', ' ', '\'', '"', ']', '(']) {
                    return Err(wrong("such a name needs `['...']`"));
                }
                steps.push(Step::Name(name.to_owned()));
                rest = &name_on[end..];
            } else if let Some(inner_on) = rest.strip_prefix('[') {
                let quote = inner_on.chars().next().filter(|c| matches!(c, '\'' | '"'));
                if let Some(quote) = quote {
                    let quoted = &inner_on[1..];
                    let end = quoted
                        .find(quote)
                        .ok_or_else(|| wrong("a quote is not closed"))?;
                    steps.push(Step::Name(quoted[..end].to_owned()));
                    rest = quoted[end + 1..]
                        .strip_prefix(']')
                        .ok_or_else(|| wrong("a `]` is missing"))?;
                } else {
                    let end = inner_on
                        .find(']')
                        .ok_or_else(|| wrong("a `]` is missing"))?;
                    let index = inner_on[..end]
                        .parse()
                        .map_err(|_| wrong("an index is not a whole number from 0"))?;
                    steps.push(Step::Index(index));
                    rest = &inner_on[end + 1..];
                }
            } else {
                return Err(wrong("a `.` or `[` is missing"));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }

    /// The value it leads to, if there is one.
    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.find_from(0, value)
    }

    /// The same where so many steps have been taken already.
    pub(super) fn find_from<'v>(&self, n_taken: usize, value: &'v Value) -> Option<&'v Value> {
        let steps = self.steps.get(n_taken..)?;
        steps.iter().try_fold(value, |value, step| match step {
            Step::Name(name) => value.as_object()?.get(name),
            Step::Index(index) => value.as_array()?.get(*index),
        })
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The path as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_one_value_or_none() {
        let document = json!({"a": {"b": [{"c": 7}, 8]}, "a-b": {"x.y": true}, "n": null});
        for (path, value) in [
            ("$.a.b[0].c", Some(json!(7))),
            ("$.a.b[1]", Some(json!(8))),
            ("$['a-b']['x.y']", Some(json!(true))),
            ("$[\"a-b\"][\"x.y\"]", Some(json!(true))),
            ("$.a-b['x.y']", Some(json!(true))),
            ("$.n", Some(Value::Null)),
            ("$", Some(document.clone())),
            ("$.a.b[2]", None),
            ("$.a.b.c", None),
            ("$.n.x", None),
        ] {
            let found = JsonPath::parse(path).unwrap().find(&document).cloned();
            assert_eq!(found, value, "{path}");
        }
    }

    #[test]
    fn what_is_not_one_value_is_refused() {
        for path in [
            "",
            "id",
            "$.",
            "$..a",
            "$.*",
            "$[*]",
            "$[-1]",
            "$[1:2]",
            "$['a",
            "$[0",
            "$a",
            "$[?(@.x)]",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
