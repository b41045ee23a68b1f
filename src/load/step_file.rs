//! `[[step]]`: reading one, then expanding it over the rows of its table.
//!
//! Reading turns TOML into templates; expanding resolves every name for every
//! row, in journey order, so that 'captured by an earlier step' is checked
//! exactly. See `workload_file` for the rest of the file.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use indexmap::IndexMap;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::json_path::JsonPath;
use super::template::{JsonTemplate, Piece, Pieces, Scope, Template};
use super::toml_reader::{Located, Reader, in_order, nearest};
use super::workload::{Body, Capture, CaptureSource, Expect, Operation, VariableUse};
use super::workload_file::{BodyFile, Shared, read_headers, read_template};
use crate::problem::{Location, Problem};
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

type Text = (Located, Template);
type Json = JsonTemplate<Text>;

/// One `[[step]]` before its loop is expanded.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) span: Range<usize>,
    name: Option<Text>,
    each: Option<String>,
    reverse: bool,
    method: Method,
    path: Text,
    headers: Vec<(HeaderName, Located, Template)>,
    body: StepBody,
    statuses: Vec<u16>,
    expect_json: Vec<(JsonPath, Json)>,
    contains: Option<Text>,
    captures: Vec<(Text, CaptureSource)>,
    think: Duration,
}

#[derive(Debug)]
enum StepBody {
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

/// Expands steps to operations, in journey order.
#[derive(Debug)]
pub(super) struct Expander {
    base: PathBuf,
    pub(super) shared: Shared,
    pub(super) operations: Vec<Operation>,
    pub(super) captures: Vec<String>,
    pub(super) externals: IndexMap<String, VariableUse>,
    /// Every capture of the whole file, so that 'not yet captured' is told from 'unknown'.
    all_captures: HashSet<String>,
}

impl Expander {
    pub(super) fn new(base: PathBuf, shared: Shared, steps: &[Step]) -> Self {
        let mut expander = Self {
            base,
            shared,
            operations: Vec::new(),
            captures: Vec::new(),
            externals: IndexMap::new(),
            all_captures: HashSet::new(),
        };
        for step in steps {
            for row in expander.rows(step) {
                for ((_, template), _) in &step.captures {
                    let mut scope = Row {
                        each: step.each.as_deref(),
                        row: &row,
                    };
                    let name = template
                        .resolve(&mut scope)
                        .ok()
                        .and_then(|name| name.as_text());
                    expander.all_captures.extend(name);
                }
            }
        }
        expander
    }

    /// The rows a step loops over; one empty row without a loop.
    fn rows(&self, step: &Step) -> Vec<IndexMap<String, Value>> {
        let Some(rows) = step
            .each
            .as_ref()
            .and_then(|each| self.shared.tables.get(each))
        else {
            return vec![IndexMap::new()];
        };
        let mut rows = rows.clone();
        if step.reverse {
            rows.reverse();
        }
        rows
    }

    /// Appends the operations of a step.
    pub(super) fn expand(&mut self, reader: &mut Reader<'_>, step: &Step) {
        for row in self.rows(step) {
            self.expand_row(reader, step, &row);
        }
    }

    fn expand_row(&mut self, reader: &mut Reader<'_>, step: &Step, row: &IndexMap<String, Value>) {
        let mut resolver = Resolver {
            expander: self,
            reader,
            step,
            row,
        };
        let path = resolver.text(&step.path);
        let mut headers: Vec<(HeaderName, Pieces)> = Vec::new();
        let shared_headers = resolver.expander.shared.headers.clone();
        for (name, located, template) in shared_headers.iter().chain(&step.headers) {
            let value = resolver.resolve(template, located);
            // A step's own header replaces the shared one of that name.
            headers.retain(|(known, _)| known != name);
            headers.push((name.clone(), value));
        }
        let body = resolver.body(&step.body);
        let is_json = matches!(body, Body::Json(_));
        if is_json && !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
            headers.push((CONTENT_TYPE, Pieces::text("application/json")));
        }
        let expect = Expect {
            statuses: step.statuses.clone(),
            json: step
                .expect_json
                .iter()
                .map(|(path, value)| (path.clone(), resolver.json(value)))
                .collect(),
            contains: step.contains.as_ref().map(|text| resolver.text(text)),
        };
        let name = match &step.name {
            Some(text) => resolver.name(text),
            None => Pieces::text(format!(
                "{} {}",
                step.method,
                path.describe(&resolver.expander.captures)
            )),
        };
        let captures = step
            .captures
            .iter()
            .filter_map(|(name, source)| resolver.capture(name, source))
            .collect();
        self.operations.push(Operation {
            name,
            method: step.method.clone(),
            path,
            headers,
            body,
            expect,
            captures,
            think: step.think,
        });
    }
}

/// Resolves the templates of one step for one row.
struct Resolver<'a, 'r, 'f> {
    expander: &'a mut Expander,
    reader: &'r mut Reader<'f>,
    step: &'a Step,
    row: &'a IndexMap<String, Value>,
}

impl Resolver<'_, '_, '_> {
    fn text(&mut self, (located, template): &Text) -> Pieces {
        self.resolve(template, located)
    }

    fn resolve(&mut self, template: &Template, located: &Located) -> Pieces {
        let location = self.reader.at(&located.span);
        self.resolve_at(template, |_| location.clone())
    }

    fn resolve_at(&mut self, template: &Template, at: impl Fn(usize) -> Location) -> Pieces {
        let mut scope = StepScope {
            expander: self.expander,
            step: self.step,
            row: self.row,
            location: at(0),
        };
        template.resolve(&mut scope).unwrap_or_else(|error| {
            self.reader
                .note(Problem::new(at(error.offset), error.message));
            Pieces::default()
        })
    }

    fn json(&mut self, value: &Json) -> JsonTemplate<Pieces> {
        let resolved: Result<_, std::convert::Infallible> =
            value.try_map(&mut |text| Ok(self.text(text)));
        resolved.unwrap_or_else(|never| match never {})
    }

    /// The name of an operation must be the same for every request of it.
    fn name(&mut self, text: &Text) -> Pieces {
        let pieces = self.text(text);
        let changes = pieces
            .pieces()
            .iter()
            .any(|piece| !matches!(piece, Piece::Text(_) | Piece::Value(_) | Piece::External(_)));
        if changes {
            self.reader.problem_with_hint(
                &text.0.span,
                "the name of a step cannot change from request to request",
                "figures are kept by name: use table fields and cell values only",
            );
        }
        pieces
    }

    fn capture(&mut self, name: &Text, source: &CaptureSource) -> Option<Capture> {
        let mut scope = Row {
            each: self.step.each.as_deref(),
            row: self.row,
        };
        let resolved = name.1.resolve(&mut scope).map_err(|error| error.message);
        let known = resolved.and_then(|pieces| {
            pieces
                .as_text()
                .filter(|name| !name.is_empty())
                .ok_or_else(|| "the name of a capture may use table fields only".to_owned())
        });
        let name_text = match known {
            Ok(name) if Piece::builtin(&name).is_none() && !name.starts_with("env.") => name,
            Ok(taken) => {
                let message =
                    format!("a capture cannot be called `{taken}`: it has a meaning of its own");
                self.reader.problem(&name.0.span, message);
                return None;
            }
            Err(message) => {
                self.reader.problem(&name.0.span, message);
                return None;
            }
        };
        let captures = &mut self.expander.captures;
        let slot = captures
            .iter()
            .position(|known| *known == name_text)
            .unwrap_or_else(|| {
                captures.push(name_text);
                captures.len() - 1
            });
        Some(Capture {
            slot,
            source: source.clone(),
        })
    }

    fn body(&mut self, body: &StepBody) -> Body {
        match body {
            StepBody::None => Body::None,
            StepBody::Text(text) => Body::Text(self.text(text)),
            StepBody::Json(value) => Body::Json(self.json(value)),
            StepBody::File(text) => match self.body_file(text) {
                Some(file) => {
                    let at = |offset| Location::of_offset(&file.path, &file.text, offset);
                    Body::Text(self.resolve_at(&file.template, at))
                }
                None => Body::None,
            },
        }
    }

    fn body_file(&mut self, (located, template): &Text) -> Option<BodyFile> {
        let mut scope = Row {
            each: self.step.each.as_deref(),
            row: self.row,
        };
        let name = template
            .resolve(&mut scope)
            .ok()
            .and_then(|name| name.as_text());
        let Some(name) = name else {
            self.reader.problem(
                &located.span,
                "`body_file` may use fields of the step's table only: other `${}` there are not yet supported",
            );
            return None;
        };
        let path = self.expander.base.join(name);
        if let Some(known) = self.expander.shared.body_files.get(&path) {
            return known.clone();
        }
        let file = match fs_err::read_to_string(&path) {
            Ok(text) => match Template::parse(&text) {
                Ok(template) => Some(BodyFile {
                    path: path.clone(),
                    text,
                    template,
                }),
                Err(error) => {
                    let location = Location::of_offset(&path, &text, error.offset);
                    self.reader.note(Problem::new(location, error.message));
                    None
                }
            },
            Err(error) => {
                let message = format!(
                    "the body file {} cannot be read: {}",
                    path.display(),
                    error.kind()
                );
                self.reader.problem_with_hint(
                    &located.span,
                    message,
                    "body files are relative to the workload file",
                );
                None
            }
        };
        self.expander.shared.files.push(path.clone());
        self.expander.shared.body_files.insert(path, file.clone());
        file
    }
}

/// Table fields alone.
struct Row<'a> {
    each: Option<&'a str>,
    row: &'a IndexMap<String, Value>,
}

impl Row<'_> {
    fn field(&self, name: &str) -> Option<Result<Piece, String>> {
        let (table, field) = name.split_once('.')?;
        if self.each != Some(table) {
            return None;
        }
        Some(match self.row.get(field) {
            Some(value) => Ok(Piece::Value(value.clone())),
            None => {
                let known: Vec<&str> = self.row.keys().map(String::as_str).collect();
                Err(format!(
                    "a row of the table `{table}` has no field `{field}` (it has: {})",
                    known.join(", ")
                ))
            }
        })
    }
}

impl Scope for Row<'_> {
    fn lookup(&mut self, name: &str) -> Result<Piece, String> {
        self.field(name)
            .unwrap_or_else(|| Err(format!("`${{{name}}}` is not a field of the step's table")))
    }
}

/// Everything a step may use.
struct StepScope<'a> {
    expander: &'a mut Expander,
    step: &'a Step,
    row: &'a IndexMap<String, Value>,
    location: Location,
}

impl Scope for StepScope<'_> {
    fn lookup(&mut self, name: &str) -> Result<Piece, String> {
        let row = Row {
            each: self.step.each.as_deref(),
            row: self.row,
        };
        if let Some(field) = row.field(name) {
            return field;
        }
        if let Some(builtin) = Piece::builtin(name) {
            return builtin;
        }
        if name.starts_with("data.") {
            return Err(format!("`${{{name}}}`: data files are not yet supported"));
        }
        if let Some(slot) = self
            .expander
            .captures
            .iter()
            .position(|known| known == name)
        {
            return Ok(Piece::Capture(slot));
        }
        if self.expander.all_captures.contains(name) {
            return Err(format!(
                "`${{{name}}}` is used before the step that captures it has been answered"
            ));
        }
        let table = name.split_once('.').map_or(name, |(table, _)| table);
        if self.expander.shared.tables.contains_key(table) {
            return Err(format!(
                "`${{{name}}}` is a field of the table `{table}`, and this step has no `each = \"{table}\"`"
            ));
        }
        if name.is_empty() || name == "env." || name.contains(char::is_whitespace) {
            return Err(format!("`${{{name}}}` is not a name"));
        }
        if !self.expander.externals.contains_key(name) {
            let similar = nearest(name, self.expander.all_captures.iter().map(String::as_str));
            let used = VariableUse {
                name: name.to_owned(),
                location: self.location.clone(),
                similar: similar.map(str::to_owned),
            };
            self.expander.externals.insert(name.to_owned(), used);
        }
        Ok(Piece::External(name.to_owned()))
    }
}
