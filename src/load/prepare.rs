//! A workload made ready for one target: what is constant is built once.
//!
//! Cell values and environment are put in, constant parts become bytes (`request`), and
//! what is still open stays a template. Also checks an answer against the step's
//! `expect`, since both know the same operation.

use indexmap::IndexMap;
use serde_json::Value;

use super::answer::{Answer, EXCERPT_BYTES, Keep};
use super::connection::Dialer;
use super::json_body;
use super::plan::Target;
use super::request::{RequestTemplate, missing};
use super::template::{Dynamic, JsonTemplate, Pieces, plain};
use super::workload::{Body, Capture, CaptureSource, Expect, OnFailure, Operation, Workload};
use crate::measure::{ErrorClass, Outcome};
use crate::reported::JsonPaths;
use crate::scalar::Scalar;

/// Everything a load thread needs of a workload.
#[derive(Debug)]
pub(super) struct Prepared {
    /// How connections to the target are made.
    pub(super) dialer: Dialer,
    pub(super) operations: Vec<Ready>,
    /// Names of operations; a request's index points here.
    pub(super) names: Vec<String>,
    pub(super) captures: Vec<String>,
    pub(super) on_failure: OnFailure,
    refused: Vec<u16>,
}

/// One operation, ready to be sent.
#[derive(Debug)]
pub(super) struct Ready {
    /// Index of its name.
    pub(super) name: u32,
    pub(super) think: std::time::Duration,
    pub(super) request: RequestTemplate,
    expect: Expect,
    captures: Vec<Capture>,
    /// Where the answer's JSON is looked into: for what is expected, then for captures.
    paths: JsonPaths,
}

/// Why a workload cannot be used with these values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PrepareProblems {
    /// Names without a value, each once.
    pub(super) unset: Vec<String>,
    /// Requests that cannot be built, in words.
    pub(super) invalid: Vec<String>,
}

/// How an answer was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) outcome: Outcome,
    /// Why it is not a success.
    pub(super) why: Option<String>,
}

impl Judged {
    fn error(class: ErrorClass, why: String) -> Self {
        Self {
            outcome: Outcome::Error(class),
            why: Some(why),
        }
    }
}

/// Puts in the values that are known when the load starts.
///
/// **Errors**: all names without a value and all requests that cannot be built.
pub(super) fn prepare(
    workload: &Workload,
    target: &Target,
    variables: &IndexMap<String, String>,
) -> Result<Prepared, PrepareProblems> {
    let mut problems = PrepareProblems::default();
    let dialer = Dialer::new(target).unwrap_or_else(|why| {
        problems.invalid.push(why);
        Dialer::Plain
    });
    let mut prepared = Prepared {
        dialer,
        operations: Vec::with_capacity(workload.operations.len()),
        names: Vec::new(),
        captures: workload.captures.clone(),
        on_failure: workload.on_failure,
        refused: workload.refused.clone(),
    };
    let environment = workload.environment.iter();
    let names = (workload.variables.iter().map(|used| used.name.clone()))
        .chain(environment.map(|used| format!("env.{}", used.name)));
    problems.unset = names.filter(|name| !variables.contains_key(name)).collect();
    if !problems.unset.is_empty() {
        return Err(problems);
    }
    let value_of = |name: &str| variables.get(name).map(|text| typed(name, text));
    for operation in &workload.operations {
        let operation =
            fix(operation, &value_of).expect("every name has a value: the workload lists them all");
        let name = operation.name.describe(&prepared.captures);
        match ready(operation, &name, target, &mut prepared.names) {
            Ok(ready) => prepared.operations.push(ready),
            Err(why) => problems.invalid.push(format!("{name}: {why}")),
        }
    }
    if problems == PrepareProblems::default() {
        Ok(prepared)
    } else {
        Err(problems)
    }
}

/// A number or truth value where the text is exactly how one is written, so that
/// `007` and environment variables stay texts.
fn typed(name: &str, text: &str) -> Value {
    let scalar = Scalar::from_text(text);
    if name.starts_with("env.") || scalar.to_string() != text {
        return Value::String(text.to_owned());
    }
    match scalar {
        Scalar::Integer(number) => Value::from(number),
        Scalar::Float(number) => Value::from(number),
        Scalar::Boolean(value) => Value::Bool(value),
        Scalar::Text(text) => Value::String(text),
    }
}

/// The operation with every external value put in; else the first unset name.
fn fix(
    operation: &Operation,
    value_of: &dyn Fn(&str) -> Option<Value>,
) -> Result<Operation, String> {
    let fix_json = |value: &JsonTemplate<Pieces>| value.try_map(&mut |text| text.fix(value_of));
    let headers = operation
        .headers
        .iter()
        .map(|(name, value)| Ok((name.clone(), value.fix(value_of)?)))
        .collect::<Result<Vec<_>, String>>()?;
    let is_json = json_body::is_json(&headers);
    Ok(Operation {
        name: operation.name.fix(value_of)?,
        method: operation.method.clone(),
        path: operation.path.fix(value_of)?,
        headers,
        body: match &operation.body {
            Body::None => Body::None,
            Body::Text(text) if is_json => Body::Text(json_body::fix(text, value_of)?),
            Body::Text(text) => Body::Text(text.fix(value_of)?),
            Body::Json(value) => Body::Json(fix_json(value)?),
        },
        expect: Expect {
            statuses: operation.expect.statuses.clone(),
            json: operation
                .expect
                .json
                .iter()
                .map(|(path, value)| Ok((path.clone(), fix_json(value)?)))
                .collect::<Result<_, String>>()?,
            contains: match &operation.expect.contains {
                Some(text) => Some(text.fix(value_of)?),
                None => None,
            },
        },
        captures: operation.captures.clone(),
        think: operation.think,
    })
}

fn ready(
    operation: Operation,
    name: &str,
    target: &Target,
    names: &mut Vec<String>,
) -> Result<Ready, String> {
    let request = RequestTemplate::new(
        operation.method,
        operation.path.prefixed(&target.base_path),
        &target.host,
        operation.headers,
        operation.body,
    )?;
    let index = names
        .iter()
        .position(|known| known == name)
        .unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
    Ok(Ready {
        name: u32::try_from(index).expect("a journey has at most ten thousand operations"),
        think: operation.think,
        request,
        paths: paths_of(&operation.expect, &operation.captures),
        expect: operation.expect,
        captures: operation.captures,
    })
}

fn paths_of(expect: &Expect, captures: &[Capture]) -> JsonPaths {
    let expected = expect.json.iter().map(|(path, _)| path);
    let kept = captures.iter().filter_map(|capture| match &capture.source {
        CaptureSource::Json(path) => Some(path),
        CaptureSource::Header(_) => None,
    });
    JsonPaths::new(expected.chain(kept).cloned().collect())
}

impl Ready {
    /// How much of the answer's body this operation looks at.
    pub(super) fn keep(&self) -> Keep {
        if !self.paths.is_empty() || self.expect.contains.is_some() {
            Keep::All
        } else {
            Keep::Excerpt
        }
    }

    /// Judges a whole answer and notes what it captures into `captured`.
    pub(super) fn judge(
        &self,
        prepared: &Prepared,
        answer: &Answer,
        dynamic: &mut Dynamic<'_>,
        captured: &mut Vec<(usize, Value)>,
    ) -> Judged {
        let status = answer.status();
        let is_expected = if self.expect.statuses.is_empty() {
            (200..300).contains(&status)
        } else {
            self.expect.statuses.contains(&status)
        };
        if !is_expected {
            if prepared.refused.contains(&status) {
                return Judged {
                    outcome: Outcome::Refused,
                    why: Some(format!("status {status}, which means refused")),
                };
            }
            return Judged::error(ErrorClass::Status, self.wrong_status(status, answer));
        }
        match self.check_body(prepared, answer, dynamic, captured) {
            Ok(()) => Judged {
                outcome: Outcome::Success,
                why: None,
            },
            Err(why) => Judged::error(ErrorClass::Body, why),
        }
    }

    fn wrong_status(&self, status: u16, answer: &Answer) -> String {
        let expected = if self.expect.statuses.is_empty() {
            "200 to 299".to_owned()
        } else {
            let statuses: Vec<String> = self.expect.statuses.iter().map(u16::to_string).collect();
            statuses.join(" or ")
        };
        let excerpt = excerpt(answer.body());
        format!("status {status} where {expected} was expected{excerpt}")
    }

    fn check_body(
        &self,
        prepared: &Prepared,
        answer: &Answer,
        dynamic: &mut Dynamic<'_>,
        captured: &mut Vec<(usize, Value)>,
    ) -> Result<(), String> {
        if let Some(contains) = &self.expect.contains {
            check_contains(contains, prepared, answer, dynamic)?;
        }
        let found = if self.paths.is_empty() {
            Vec::new()
        } else {
            self.paths.find(answer.body()).map_err(|error| {
                format!("the body is not JSON ({error}){}", excerpt(answer.body()))
            })?
        };
        // What is expected stands before what is captured.
        let mut found = found.into_iter();
        self.check_json(prepared, &mut found, dynamic)?;
        let mut outcome = Ok(());
        for capture in &self.captures {
            let value = match &capture.source {
                CaptureSource::Json(path) => found.next().flatten().ok_or_else(|| {
                    format!(
                        "the body has no `{}`{}",
                        path.as_str(),
                        excerpt(answer.body())
                    )
                }),
                CaptureSource::Header(name) => answer
                    .header(name.as_str())
                    .and_then(|value| str::from_utf8(value).ok())
                    .map(|value| Value::String(value.to_owned()))
                    .ok_or_else(|| format!("the answer has no header `{name}`")),
            };
            match value {
                Ok(value) => captured.push((capture.slot, value)),
                // The others may be there, and a journey may go on with them.
                Err(why) => outcome = outcome.and(Err(why)),
            }
        }
        outcome
    }

    fn check_json(
        &self,
        prepared: &Prepared,
        found: &mut impl Iterator<Item = Option<Value>>,
        dynamic: &mut Dynamic<'_>,
    ) -> Result<(), String> {
        let known = dynamic.captures;
        for (path, expected) in &self.expect.json {
            let expected = expected
                .value(dynamic)
                .map_err(|slot| missing(&prepared.captures, known, slot))?;
            let found = found.next().flatten();
            if !found
                .as_ref()
                .is_some_and(|found| is_same(found, &expected))
            {
                let found = found.map_or_else(|| "nothing".to_owned(), |found| found.to_string());
                return Err(format!(
                    "`{}` is {found} where {expected} was expected",
                    path.as_str()
                ));
            }
        }
        Ok(())
    }
}

fn check_contains(
    contains: &Pieces,
    prepared: &Prepared,
    answer: &Answer,
    dynamic: &mut Dynamic<'_>,
) -> Result<(), String> {
    let mut text = String::new();
    let known = dynamic.captures;
    contains
        .render_text(&mut text, dynamic)
        .map_err(|slot| missing(&prepared.captures, known, slot))?;
    let needle = text.as_bytes();
    let mut windows = answer.body().windows(needle.len().max(1));
    if needle.is_empty() || windows.any(|window| window == needle) {
        return Ok(());
    }
    let excerpt = excerpt(answer.body());
    Err(format!("the body does not contain \"{text}\"{excerpt}"))
}

/// Equal values; a text and a number or truth value are equal when they read the
/// same, since a template cannot always know the type the service uses.
fn is_same(found: &Value, expected: &Value) -> bool {
    if found.is_f64() || expected.is_f64() {
        // 1 and 1.0 are one number. Whole numbers are not compared this way:
        // long ids that differ in the last digit are the same float.
        if let (Some(found), Some(expected)) = (found.as_f64(), expected.as_f64()) {
            return found.total_cmp(&expected).is_eq();
        }
    }
    let is_single = |value: &Value| !value.is_array() && !value.is_object() && !value.is_null();
    found == expected
        || (is_single(found) && is_single(expected) && plain(found) == plain(expected))
}

/// `: ` and the first characters of a body on one line, or nothing.
pub(super) fn excerpt(body: &[u8]) -> String {
    let shown = &body[..body.len().min(EXCERPT_BYTES)];
    let text: String = String::from_utf8_lossy(shown)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let text = text.trim();
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}
