//! Reading one `[[step]]`: TOML to templates, nothing resolved yet.
//!
//! `workload_file` reads the rest of the file, `expand` resolves what this reads.

use std::time::Duration;

use http::Method;
use http::header::HeaderName;
use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::expect::Expect;
use super::expect_file::read_expect;
use super::step_options::{Options, check_cookie_header, read_no_auth, read_options};
use super::template::{JsonTemplate, Template};
use super::workload::CaptureSource;
use super::workload_file::{Shared, read_headers, read_statuses, read_template};
use crate::problem::{Problem, nearest};
use crate::reported::JsonPath;
use crate::toml_file::{Entry, Notes, Quoted, Table, describe, integer_of};

/// Keys of a step that are reserved and not built yet.
const LATER_KEYS: [&str; 1] = ["weight"];
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

/// A text of the file with its template.
pub(super) type Text = (Quoted, Template);
/// A JSON value of the file with its templates.
pub(super) type Json = JsonTemplate<Text>;

/// One `[[step]]` before its loop is expanded.
#[derive(Debug)]
pub(super) struct Step {
    /// Byte offset of its header.
    pub(super) at: usize,
    pub(super) name: Option<Text>,
    pub(super) each: Option<String>,
    pub(super) reverse: bool,
    pub(super) method: Method,
    pub(super) path: Text,
    pub(super) headers: Vec<(HeaderName, Quoted, Template)>,
    pub(super) body: StepBody,
    pub(super) options: Options,
    pub(super) timeout: Option<Duration>,
    /// Statuses that mean 'busy by design', beside the file's.
    pub(super) refused: Vec<u16>,
    pub(super) expect: Expect<Text>,
    pub(super) captures: Vec<(Text, CaptureSource)>,
    pub(super) think: Duration,
    pub(super) repeat: Option<RepeatFile>,
}

/// Until when a step is sent again.
#[derive(Debug)]
pub(super) struct RepeatFile {
    pub(super) until: Expect<Text>,
    pub(super) every: Duration,
    pub(super) at_most: u32,
}

/// Where a step's body comes from.
#[derive(Debug)]
pub(super) enum StepBody {
    None,
    Text(Text),
    File(Text),
    Json(Json),
    /// Names and values, in file order; a name may come more than once.
    Form(Vec<(String, FormValue)>),
}

/// The value of one field of a form.
#[derive(Debug)]
pub(super) enum FormValue {
    Text(Text),
    /// A number or truth value.
    Literal(Value),
}

/// Reads a step; `None` when too little of it is left to go on with.
pub(super) fn read_step(
    mut table: Table<'_>,
    shared: &Shared,
    notes: &mut Notes<'_>,
) -> Option<Step> {
    let at = table.at();
    let each = read_each(&mut table, shared, notes);
    let reverse = table.get("reverse");
    if let Some(entry) = reverse
        && table.get("each").is_none()
        && !table.is_broken(notes)
    {
        notes.add(
            entry.key_at,
            format!(
                "`reverse` turns a loop round, and {} has no `each`",
                table.name()
            ),
        );
    }
    let reverse = reverse
        .and_then(|entry| table.truth(&entry, notes))
        .unwrap_or(false);
    let name = table
        .get("name")
        .filter(|entry| table.text(entry, notes).is_some())
        .and_then(|entry| read_text(&table, &entry, notes));
    let method = read_method(&mut table, notes);
    let body = read_body(&mut table, notes);
    let headers = table
        .get("headers")
        .map(|entry| read_headers(&entry, table.name(), notes))
        .unwrap_or_default();
    check_cookie_header(&headers, shared.cookies, notes);
    let mut options = read_options(&mut table, &headers, notes);
    read_no_auth(&mut table, &mut options, notes);
    let timeout = table
        .get("timeout")
        .and_then(|entry| table.some_time(&entry, notes));
    let refused = table
        .get("refused")
        .map(|entry| read_statuses(&table, &entry, notes))
        .unwrap_or_default();
    let name_of = |key: &str| format!("`{key}` of {}", table.name());
    let (expect_name, repeat_name) = (name_of("expect"), name_of("repeat"));
    let expect = read_expect(table.get("expect"), &expect_name, notes);
    let repeat = table
        .get("repeat")
        .and_then(|entry| read_repeat(&entry, &repeat_name, notes));
    let captures = read_captures(&mut table, notes);
    let think = table
        .get("think")
        .and_then(|entry| table.duration(&entry, notes))
        .unwrap_or_default();
    let path = table
        .need("path", "path = \"/health\"")
        .and_then(|entry| read_text(&table, &entry, notes));
    for key in LATER_KEYS {
        table.not_yet(key, notes);
    }
    table.finish(notes);
    let path = path?;
    check_path(&path.0, notes);
    Some(Step {
        at,
        name,
        each,
        reverse,
        method,
        path,
        headers,
        body,
        options,
        timeout,
        refused,
        expect,
        captures,
        think,
        repeat,
    })
}

/// A text with its template.
pub(super) fn read_text(
    table: &Table<'_>,
    entry: &Entry<'_>,
    notes: &mut Notes<'_>,
) -> Option<Text> {
    let text = table.quoted(entry, notes)?;
    let template = read_template(&text, notes)?;
    Some((text, template))
}

/// The table that a step loops over; one that is not there is noted.
fn read_each(table: &mut Table<'_>, shared: &Shared, notes: &mut Notes<'_>) -> Option<String> {
    let entry = table.get("each")?;
    let each = table.quoted(&entry, notes)?.text;
    if shared.tables.contains_key(&each) {
        return Some(each);
    }
    // A line that is not TOML may be the one that holds the table.
    if !notes.is_broken() {
        let near = nearest(&each, shared.tables.keys().map(String::as_str));
        let hint = near.map_or_else(
            || format!("write its rows as [[table.{each}]]"),
            |near| format!("did you mean `{near}`?"),
        );
        let message = format!(
            "`each` in {} names the table `{each}`, which is not there",
            table.name()
        );
        notes.hint(entry.at(), message, hint);
    }
    None
}

fn check_path(path: &Quoted, notes: &mut Notes<'_>) {
    if !path.text.starts_with('/') && !path.text.starts_with("${") {
        notes.hint(
            path.at,
            format!("the path \"{}\" does not start with `/`", path.text),
            "the server's address comes from the target, a step has the path alone",
        );
    }
    // Names in `${}` may hold spaces, as in `random(1, 100)`; the rest may not.
    let mut depth = 0_u32;
    let mut previous = ' ';
    for (offset, character) in path.text.char_indices() {
        if character == '{' && previous == '$' {
            depth += 1;
        } else if character == '}' {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && (!character.is_ascii_graphic() || character == '#') {
            let location = notes.source().inside(path, offset);
            let message = format!("a path cannot hold {character:?}");
            let hint = "write it percent-encoded, as `%20` for a space";
            notes.push(Problem::new(location, message).with_hint(hint));
            return;
        }
        // `$$` is a dollar, and what follows it is literal.
        let is_escape = character == '$' && previous == '$';
        previous = if is_escape { ' ' } else { character };
    }
}

fn read_method(table: &mut Table<'_>, notes: &mut Notes<'_>) -> Method {
    let words = METHODS.map(|method| (method, method));
    table
        .get("method")
        .and_then(|entry| table.word(&entry, &words, &[], notes))
        .map_or(Method::GET, |method| {
            method.parse().expect("every method of the list is one")
        })
}

fn read_body(table: &mut Table<'_>, notes: &mut Notes<'_>) -> StepBody {
    let given: Vec<_> = ["body", "body_file", "json", "form"]
        .into_iter()
        .filter_map(|key| table.get(key))
        .collect();
    if let [first, second, ..] = given.as_slice() {
        let message = format!(
            "{} has both `{}` and `{}` (allowed: one body)",
            table.name(),
            first.key,
            second.key
        );
        notes.add(second.key_at, message);
        return StepBody::None;
    }
    let Some(entry) = given.first() else {
        return StepBody::None;
    };
    if entry.key == "json" {
        return StepBody::Json(read_json(entry.value, notes));
    }
    if entry.key == "form" {
        return StepBody::Form(read_form(table, entry, notes));
    }
    match read_text(table, entry, notes) {
        Some(text) if entry.key == "body" => StepBody::Text(text),
        Some(text) => StepBody::File(text),
        None => StepBody::None,
    }
}

/// Fields of a form: single values, or lists where a name comes more than once.
fn read_form(
    step: &Table<'_>,
    entry: &Entry<'_>,
    notes: &mut Notes<'_>,
) -> Vec<(String, FormValue)> {
    let mut fields = Vec::new();
    let Some(form) = Table::of(entry, &format!("`form` of {}", step.name()), notes) else {
        return fields;
    };
    for entry in form.entries() {
        let values = match entry.value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![entry.value],
        };
        for value in values {
            let entry = Entry { value, ..entry };
            let field = match value.get_ref() {
                DeValue::String(_) => read_text(step, &entry, notes).map(FormValue::Text),
                DeValue::Array(_) | DeValue::Table(_) => {
                    let wanted = "a single value or a list of them";
                    form.wrong(&entry, wanted, notes);
                    None
                }
                _ => Some(FormValue::Literal(literal(value, notes))),
            };
            fields.extend(field.map(|field| (entry.key.to_owned(), field)));
        }
    }
    fields
}

pub(super) fn read_json(value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Json {
    match value.get_ref() {
        DeValue::String(text) => {
            let text = Quoted {
                text: text.as_ref().to_owned(),
                at: value.span().start,
            };
            match read_template(&text, notes) {
                Some(template) => JsonTemplate::Text((text, template)),
                None => JsonTemplate::Literal(Value::Null),
            }
        }
        DeValue::Array(items) => {
            JsonTemplate::Array(items.iter().map(|item| read_json(item, notes)).collect())
        }
        DeValue::Table(table) => JsonTemplate::Object(
            Entry::all(table)
                .into_iter()
                .map(|entry| (entry.key.to_owned(), read_json(entry.value, notes)))
                .collect(),
        ),
        _ => JsonTemplate::Literal(literal(value, notes)),
    }
}

/// A single value as JSON; dates become texts, lists and tables null.
pub(super) fn literal(value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Value {
    let number = match value.get_ref() {
        DeValue::String(text) => return Value::String(text.as_ref().to_owned()),
        DeValue::Boolean(truth) => return Value::Bool(*truth),
        DeValue::Datetime(date) => return Value::String(date.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => return Value::Null,
        whole @ DeValue::Integer(_) => integer_of(whole).map(serde_json::Number::from),
        DeValue::Float(written) => {
            let number = written.as_str().parse().ok();
            number.and_then(serde_json::Number::from_f64)
        }
    };
    number.map_or_else(
        || {
            let shown = describe(value.get_ref());
            notes.add(value.span().start, format!("JSON cannot hold {shown}"));
            Value::Null
        },
        Value::Number,
    )
}

/// Most attempts of a step that repeats.
const MOST_ATTEMPTS: u64 = 100_000;

fn read_repeat(entry: &Entry<'_>, name: &str, notes: &mut Notes<'_>) -> Option<RepeatFile> {
    let mut table = Table::of(entry, name, notes)?;
    let until = table.need("until", "until = { json = { \"$.status\" = \"done\" } }");
    let until = until.map(|entry| read_expect(Some(entry), &format!("`until` in {name}"), notes));
    let every = table
        .need("every", "every = \"500ms\"")
        .and_then(|entry| table.some_time(&entry, notes));
    let at_most = table
        .need("at_most", "at_most = 20")
        .and_then(|entry| table.whole(&entry, 2..MOST_ATTEMPTS + 1, notes))
        .and_then(|most| u32::try_from(most).ok());
    table.finish(notes);
    Some(RepeatFile {
        until: until?,
        every: every?,
        at_most: at_most?,
    })
}

fn read_captures(step: &mut Table<'_>, notes: &mut Notes<'_>) -> Vec<(Text, CaptureSource)> {
    let mut captures = Vec::new();
    let name = format!("`capture` of {}", step.name());
    let entry = step.get("capture");
    let Some(table) = entry.and_then(|entry| Table::of(&entry, &name, notes)) else {
        return captures;
    };
    for entry in table.entries() {
        let Some(source) = table.quoted(&entry, notes) else {
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
        let name = entry.quoted_key();
        match parsed {
            Ok(parsed) => {
                if let Some(template) = read_template(&name, notes) {
                    captures.push(((name, template), parsed));
                }
            }
            Err(message) => notes.add(source.at, message),
        }
    }
    captures
}
