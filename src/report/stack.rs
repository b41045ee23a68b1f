//! `stack` as text: the resolved stack, readable and nearly YAML.
//!
//! Renders the JSON form, so that both say the same; what is empty or off is
//! left out. Knows no key but those that end the text.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde_json::{Map, Value};

/// Longest list that is written on one line. **Units**: characters.
const LONGEST_LINE: usize = 88;

/// The stack for people; `origins` are places by path, `refused` what no launch can do yet.
pub fn stack_text(stack: &Value, origins: &IndexMap<String, String>, refused: &[String]) -> String {
    let mut text = Text {
        lines: Vec::new(),
        origins,
    };
    for (section, value) in stack.as_object().into_iter().flatten() {
        if !matches!(section.as_str(), "not_started" | "warnings" | "origins") {
            text.entry(0, section, section, value);
        }
    }
    let list = |key: &str| stack[key].as_array().cloned().unwrap_or_default();
    let not_started = list("not_started");
    if !not_started.is_empty() {
        let names: Vec<&str> = not_started.iter().filter_map(Value::as_str).collect();
        text.lines
            .push(format!("# not started: {}", names.join(", ")));
    }
    for warning in list("warnings").iter().filter_map(Value::as_str) {
        text.lines.push(format!("# warning: {warning}"));
    }
    for line in refused {
        text.lines.push(format!("# cannot be launched: {line}"));
    }
    text.lines.join("\n")
}

struct Text<'a> {
    lines: Vec<String>,
    origins: &'a IndexMap<String, String>,
}

impl Text<'_> {
    /// `key: value` at a depth, with the place of `path` behind it.
    fn entry(&mut self, depth: usize, key: &str, path: &str, value: &Value) {
        // A network or volume is there even where nothing is said of it.
        let is_empty = value.as_object().is_some_and(Map::is_empty) && depth != 1;
        if is_empty || is_idle(value) {
            return;
        }
        let indent = "  ".repeat(depth);
        let mut line = format!("{indent}{}:", scalar(key));
        match value {
            Value::Object(entries) => {
                self.push(line, path);
                self.entries(depth + 1, path, entries);
            }
            Value::Array(items) => {
                let flow = flow(items);
                let is_flow = flow.is_some();
                line.extend(flow.map(|flow| format!(" {flow}")));
                self.push(line, path);
                for item in items.iter().filter(|_| !is_flow) {
                    self.item(depth + 1, path, item);
                }
            }
            Value::String(text) => {
                // Writing to a String cannot fail.
                let _ = write!(line, " {}", scalar(text));
                self.push(line, path);
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => {
                let _ = write!(line, " {other}");
                self.push(line, path);
            }
        }
    }

    fn entries(&mut self, depth: usize, path: &str, entries: &Map<String, Value>) {
        for (key, value) in entries {
            self.entry(depth, key, &format!("{path}.{key}"), value);
        }
    }

    /// `- value`; of a map, its first entry stands beside the dash.
    fn item(&mut self, depth: usize, path: &str, item: &Value) {
        let indent = "  ".repeat(depth);
        let Value::Object(entries) = item else {
            let text = item.as_str().map_or_else(|| item.to_string(), scalar);
            self.lines.push(format!("{indent}- {text}"));
            return;
        };
        // Mounts are found by their target, whatever their order.
        let place = match entries.get("target").and_then(Value::as_str) {
            Some(target) => format!("{path}.{target}"),
            None => path.to_owned(),
        };
        let start = self.lines.len();
        self.entries(depth + 1, "", entries);
        if let Some(first) = self.lines.get_mut(start) {
            first.replace_range(indent.len()..indent.len() + 2, "- ");
            if let Some(origin) = self.origins.get(&place) {
                let _ = write!(first, "  # {origin}");
            }
        }
    }

    fn push(&mut self, mut line: String, path: &str) {
        if let Some(origin) = self.origins.get(path) {
            let _ = write!(line, "  # {origin}");
        }
        self.lines.push(line);
    }
}

/// Values that say nothing: off, empty or absent. An empty text says something.
fn is_idle(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    }
}

/// A list of single values on one line, where it fits.
fn flow(items: &[Value]) -> Option<String> {
    let texts: Option<Vec<String>> = items
        .iter()
        .map(|item| match item {
            Value::String(text) => Some(Value::from(text.as_str()).to_string()),
            Value::Number(_) | Value::Bool(_) | Value::Null => Some(item.to_string()),
            Value::Array(_) | Value::Object(_) => None,
        })
        .collect();
    let flow = format!("[{}]", texts?.join(", "));
    (flow.chars().count() <= LONGEST_LINE).then_some(flow)
}

/// A text as YAML has it: bare where that cannot be misread, else in double quotes.
fn scalar(text: &str) -> String {
    let is_word = text.starts_with(|c: char| c.is_alphabetic() || matches!(c, '/' | '_' | '.'))
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with(':')
        && !text.ends_with(' ')
        && text
            .chars()
            .all(|c| !c.is_control() && c != '"' && c != '\'');
    let switches = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_other =
        switches.iter().any(|word| text.eq_ignore_ascii_case(word)) || text.parse::<f64>().is_ok();
    if is_word && !is_other {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stack_reads_like_a_compose_file_with_places_behind_its_values() {
        let stack = json!({
            "services": {"app": {
                "image": "app:1", "command": ["serve", "a b"], "tty": false, "labels": {},
                "environment": {"N": "4", "EMPTY": "", "TEXT": "a: b"}, "cpus": 0.5,
                "mounts": [{"target": "/d", "type": "volume", "read_only": false}],
            }},
            "networks": {"default": {}}, "volumes": {},
            "not_started": ["other"], "warnings": ["changed"],
        });
        let origins = IndexMap::from([
            ("services.app.cpus".to_owned(), "c.yaml:4:11".to_owned()),
            ("services.app.mounts./d".to_owned(), "c.yaml:9:7".to_owned()),
        ]);
        let refused = ["services.app.build: no".to_owned()];
        insta::assert_snapshot!(stack_text(&stack, &origins, &refused), @r#"
        services:
          app:
            image: app:1
            command: ["serve", "a b"]
            environment:
              "N": "4"
              EMPTY: ""
              TEXT: "a: b"
            cpus: 0.5  # c.yaml:4:11
            mounts:
              - target: /d  # c.yaml:9:7
                type: volume
        networks:
          default:
        # not started: other
        # warning: changed
        # cannot be launched: services.app.build: no
        "#);
    }
}
