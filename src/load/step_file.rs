//! Reading one `[[step]]`: TOML to templates, nothing resolved yet.
//!
//! `workload_file` reads the rest of the file, `expand` resolves what this reads.

use std::ops::Range;
use std::time::Duration;

use hyper::Method;
use hyper::header::HeaderName;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::json_path::JsonPath;
use super::template::{JsonTemplate, Template};
use super::toml_reader::{Located, Reader, in_order, nearest};
use super::workload::CaptureSource;
use super::workload_file::{Shared, read_headers, read_template};
use crate::units::parse_duration;

const STEP_KEYS: [&str; 12] = [
    "name",
    "each",
    "reverse",
    "method",
    "path",
    "headers",
    "body",
    "body_file",
    "json",
    "expect",
    "capture",
    "think",
];
const LATER_STEP_KEYS: [&str; 4] = ["form", "cookies", "weight", "timeout"];
const EXPECT_KEYS: [&str; 3] = ["status", "json", "contains"];
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

/// A text of the file with its template.
pub(super) type Text = (Located, Template);
/// A JSON value of the file with its templates.
pub(super) type Json = JsonTemplate<Text>;

/// One `[[step]]` before its loop is expanded.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) span: Range<usize>,
    pub(super) name: Option<Text>,
    pub(super) each: Option<String>,
    pub(super) reverse: bool,
    pub(super) method: Method,
    pub(super) path: Text,
    pub(super) headers: Vec<(HeaderName, Located, Template)>,
    pub(super) body: StepBody,
    pub(super) statuses: Vec<u16>,
    pub(super) expect_json: Vec<(JsonPath, Json)>,
    pub(super) contains: Option<Text>,
    pub(super) captures: Vec<(Text, CaptureSource)>,
    pub(super) think: Duration,
}

/// Where a step's body comes from.
#[derive(Debug)]
pub(super) enum StepBody {
    None,
    Text(Text),
    File(Text),
    Json(Json),
}

/// Reads a step; `None` when too little of it is left to go on with.
pub(super) fn read_step(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    span: &Range<usize>,
    shared: &Shared,
) -> Option<Step> {
    reader.check_keys(table, "a step", &STEP_KEYS, &LATER_STEP_KEYS);
    let text = |reader: &mut Reader<'_>, key: &str| -> Option<Text> {
        let located = reader.string(table, key)?;
        let template = read_template(reader, &located)?;
        Some((located, template))
    };
    let each = reader.string(table, "each").and_then(|each| {
        let is_known = shared.tables.contains_key(&each.text);
        if !is_known {
            let message = format!("`each` names the table `{}`, which is not there", each.text);
            let hint = match nearest(&each.text, shared.tables.keys().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write its rows as `[[table.{}]]`", each.text),
            };
            reader.problem_with_hint(&each.span, message, hint);
        }
        is_known.then_some(each.text)
    });
    let reverse = reader.boolean(table, "reverse");
    if reverse && !table.contains_key("each") {
        reader.problem(
            span,
            "`reverse` turns a loop round, and this step has no `each`",
        );
    }
    let name = text(reader, "name");
    let method = read_method(reader, table);
    let body = read_body(reader, table);
    let headers = match reader.table(table, "headers") {
        Some(headers) => read_headers(reader, headers),
        None => Vec::new(),
    };
    let (statuses, expect_json, contains) = read_expect(reader, table);
    let captures = read_captures(reader, table);
    let think = read_think(reader, table);
    if !table.contains_key("path") {
        reader.problem_with_hint(
            span,
            "a step has no `path`",
            "for example path = \"/health\"",
        );
    }
    let path = text(reader, "path")?;
    check_path(reader, &path.0);
    Some(Step {
        span: span.clone(),
        name,
        each,
        reverse,
        method,
        path,
        headers,
        body,
        statuses,
        expect_json,
        contains,
        captures,
        think,
    })
}

fn check_path(reader: &mut Reader<'_>, path: &Located) {
    if !path.text.starts_with('/') && !path.text.starts_with("${") {
        let shown = &path.text;
        reader.problem_with_hint(
            &path.span,
            format!("the path \"{shown}\" does not start with `/`"),
            "the server's address comes from the target, a step has the path alone",
        );
    }
    // Names in `${}` may hold spaces, as in `random(1, 100)`; the rest may not.
    let mut depth = 0_u32;
    let mut previous = ' ';
    for character in path.text.chars() {
        if character == '{' && previous == '$' {
            depth += 1;
        } else if character == '}' {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && (!character.is_ascii_graphic() || character == '#') {
            reader.problem_with_hint(
                &path.span,
                format!("a path cannot hold {character:?}"),
                "write it percent-encoded, as `%20` for a space",
            );
            return;
        }
        previous = character;
    }
}

fn read_method(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Method {
    let Some(method) = reader.string(table, "method") else {
        return Method::GET;
    };
    if METHODS.contains(&method.text.as_str())
        && let Ok(method) = method.text.parse()
    {
        return method;
    }
    let message = format!("`method` is \"{}\"", method.text);
    reader.problem_with_hint(
        &method.span,
        message,
        format!("allowed: {}", METHODS.join(", ")),
    );
    Method::GET
}

fn read_think(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Duration {
    let Some(think) = reader.string(table, "think") else {
        return Duration::ZERO;
    };
    parse_duration(&think.text).unwrap_or_else(|error| {
        reader.problem(&think.span, format!("`think`: {error}"));
        Duration::ZERO
    })
}

fn read_body(reader: &mut Reader<'_>, table: &DeTable<'_>) -> StepBody {
    let given: Vec<&str> = ["body", "body_file", "json"]
        .into_iter()
        .filter(|key| table.contains_key(*key))
        .collect();
    if let [_, second, ..] = given.as_slice() {
        let span = table[*second].span();
        reader.problem(
            &span,
            format!("a step has one body, this one has {}", given.join(" and ")),
        );
        return StepBody::None;
    }
    let text = |reader: &mut Reader<'_>, key: &str| {
        let located = reader.string(table, key)?;
        let template = read_template(reader, &located)?;
        Some((located, template))
    };
    match given.first() {
        Some(&"body") => text(reader, "body").map_or(StepBody::None, StepBody::Text),
        Some(&"body_file") => text(reader, "body_file").map_or(StepBody::None, StepBody::File),
        Some(_) => StepBody::Json(read_json(reader, &table["json"])),
        None => StepBody::None,
    }
}

fn read_json(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Json {
    match value.get_ref() {
        DeValue::String(text) => {
            let located = Located {
                text: text.to_string(),
                span: value.span(),
            };
            match read_template(reader, &located) {
                Some(template) => JsonTemplate::Text((located, template)),
                None => JsonTemplate::Literal(Value::Null),
            }
        }
        DeValue::Array(items) => {
            JsonTemplate::Array(items.iter().map(|item| read_json(reader, item)).collect())
        }
        DeValue::Table(table) => JsonTemplate::Object(
            in_order(table)
                .into_iter()
                .map(|(key, value)| (key.get_ref().to_string(), read_json(reader, value)))
                .collect(),
        ),
        _ => JsonTemplate::Literal(reader.json(value)),
    }
}

fn read_expect(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
) -> (Vec<u16>, Vec<(JsonPath, Json)>, Option<Text>) {
    let Some(expect) = reader.table(table, "expect") else {
        return (Vec::new(), Vec::new(), None);
    };
    reader.check_keys(expect, "`expect`", &EXPECT_KEYS, &[]);
    let statuses = reader.statuses(expect, "status").unwrap_or_default();
    let mut json = Vec::new();
    if let Some(paths) = reader.table(expect, "json") {
        for (path, value) in in_order(paths) {
            match JsonPath::parse(path.get_ref()) {
                Ok(parsed) => json.push((parsed, read_json(reader, value))),
                Err(message) => reader.problem(&path.span(), message),
            }
        }
    }
    let contains = reader.string(expect, "contains").and_then(|located| {
        let template = read_template(reader, &located)?;
        Some((located, template))
    });
    (statuses, json, contains)
}

fn read_captures(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Vec<(Text, CaptureSource)> {
    let mut captures = Vec::new();
    let Some(named) = reader.table(table, "capture") else {
        return captures;
    };
    for (key, value) in in_order(named) {
        let Some(source) = reader.string_of(value, key.get_ref()) else {
            continue;
        };
        let parsed = match source.text.strip_prefix("header:") {
            Some(name) => name
                .trim()
                .parse()
                .map(CaptureSource::Header)
                .map_err(|_| format!("`{}` is not the name of a header", name.trim())),
            None => JsonPath::parse(&source.text)
                .map(CaptureSource::Json)
                .map_err(|message| format!("{message}, or `header:NAME`")),
        };
        let name = Located {
            text: key.get_ref().to_string(),
            span: key.span(),
        };
        match parsed {
            Ok(parsed) => {
                if let Some(template) = read_template(reader, &name) {
                    captures.push(((name, template), parsed));
                }
            }
            Err(message) => reader.problem(&source.span, message),
        }
    }
    captures
}
