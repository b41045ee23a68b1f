//! A workload made ready for one target: what is constant is built once.
//!
//! Cell values and environment are put in, constant parts become bytes (`request`), and
//! what is still open stays a template. Also judges an answer by the step's
//! `expect` (`expect`), since both know the same operation.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::Value;

use super::answer::{Answer, Keep};
use super::connection::Dialer;
use super::data::DataSet;
use super::decode;
use super::exchange::Redirects;
use super::expect::{Expect, excerpt};
use super::json_body;
use super::mix::{Mix, Weighed};
use super::plan::Target;
use super::repeat::Repeat;
use super::request::RequestTemplate;
use super::retry_after::retry_after;
use super::template::{Dynamic, JsonTemplate, Pieces};
use super::workload::{
    Body, Capture, CaptureSource, Cookies, Journey, Operation, RepeatUntil, SetupScope, WeightOf,
    Workload,
};
use crate::measure::{ErrorClass, Outcome};
use crate::reported::JsonPaths;
use crate::scalar::Scalar;

/// Everything a load thread needs of a workload.
#[derive(Debug)]
pub(super) struct Prepared {
    /// How connections to the target are made.
    pub(super) dialer: Dialer,
    /// Those of all journeys.
    pub(super) operations: Vec<Ready>,
    /// Names of operations; a request's index points here.
    pub(super) names: Vec<String>,
    pub(super) journeys: Vec<Journey>,
    pub(super) weight_of: WeightOf,
    pub(super) setups: Vec<ReadySetup>,
    /// Names of the operations of set-ups, which are in no figure.
    pub(super) setup_names: Vec<String>,
    pub(super) data: Arc<[DataSet]>,
    pub(super) captures: Vec<String>,
    pub(super) cookies: Cookies,
    refused: Vec<u16>,
}

impl Prepared {
    /// The operations of a journey, by its index.
    pub(super) fn of_journey(&self, journey: usize) -> &[Ready] {
        &self.operations[self.journeys[journey].operations.clone()]
    }

    /// A mix of the journeys but those with these indexes, for so many users at most.
    pub(super) fn mix(&self, without: &[usize], users: u32) -> Mix {
        let weighed = |(index, journey): (usize, &Journey)| {
            (!without.contains(&index)).then_some((index, journey.weight, journey.operations.len()))
        };
        let journeys: Vec<Weighed> = self
            .journeys
            .iter()
            .enumerate()
            .filter_map(weighed)
            .collect();
        Mix::new(&journeys, self.weight_of, users)
    }
}

/// A set-up, ready to be done.
#[derive(Debug)]
pub(super) struct ReadySetup {
    pub(super) scope: SetupScope,
    pub(super) renew: Option<Duration>,
    pub(super) operations: Vec<Ready>,
    pub(super) data: Vec<usize>,
}

/// One operation, ready to be sent.
#[derive(Debug)]
pub(super) struct Ready {
    /// Index of its name.
    pub(super) name: u32,
    pub(super) think: Duration,
    /// Instead of the load's own.
    pub(super) timeout: Option<Duration>,
    pub(super) request: RequestTemplate,
    /// `None` where a redirect is an answer like any other.
    pub(super) redirects: Option<Redirects>,
    /// Refused beside the workload's own.
    refused: Vec<u16>,
    expect: Expect<Pieces>,
    captures: Vec<Capture>,
    /// Where the answer's JSON is looked into: for what is expected, then for captures.
    paths: JsonPaths,
    /// Until when it is sent again, where it is.
    repeat: Option<Box<Repeat>>,
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
    /// How long a service that is busy asked to be left alone.
    pub(super) retry_after: Option<Duration>,
}

impl Judged {
    pub(super) fn error(class: ErrorClass, why: String) -> Self {
        Self {
            outcome: Outcome::Error(class),
            why: Some(why),
            retry_after: None,
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
        operations: Vec::new(),
        names: Vec::new(),
        journeys: workload.journeys.clone(),
        weight_of: workload.weight_of,
        setups: Vec::with_capacity(workload.setups.len()),
        setup_names: Vec::new(),
        data: Arc::clone(&workload.data),
        captures: workload.captures.clone(),
        cookies: workload.cookies,
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
    let mut prepare_all = |operations: &[Operation], names: &mut Vec<String>| {
        let mut all = Vec::with_capacity(operations.len());
        for operation in operations {
            let operation = fix(operation, &value_of)
                .expect("every name has a value: the workload lists them all");
            let name = operation.name.describe(&workload.captures);
            match ready(operation, &name, target, names) {
                Ok(ready) => all.push(ready),
                Err(why) => problems.invalid.push(format!("{name}: {why}")),
            }
        }
        all
    };
    prepared.operations = prepare_all(&workload.operations, &mut prepared.names);
    for setup in &workload.setups {
        prepared.setups.push(ReadySetup {
            scope: setup.scope,
            renew: setup.renew,
            operations: prepare_all(&setup.operations, &mut prepared.setup_names),
            data: setup.data.clone(),
        });
    }
    if problems == PrepareProblems::default() {
        Ok(prepared)
    } else {
        Err(problems)
    }
}

/// A number or truth value where the text is exactly how one is written, so that
/// `007` and environment variables stay texts.
pub(super) fn typed(name: &str, text: &str) -> Value {
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
            Body::Bytes(bytes) => Body::Bytes(Arc::clone(bytes)),
            Body::Text(text) if is_json => Body::Text(json_body::fix(text, value_of)?),
            Body::Text(text) => Body::Text(text.fix(value_of)?),
            Body::Json(value) => Body::Json(fix_json(value)?),
        },
        expect: (operation.expect).try_map(&mut |text| text.fix(value_of))?,
        captures: operation.captures.clone(),
        think: operation.think,
        repeat: match operation.repeat.as_deref() {
            None => None,
            Some(own) => Some(Box::new(RepeatUntil {
                until: (own.until).try_map(&mut |text| text.fix(value_of))?,
                every: own.every,
                at_most: own.at_most,
            })),
        },
        timeout: operation.timeout,
        refused: operation.refused.clone(),
        redirects: operation.redirects,
    })
}

fn ready(
    operation: Operation,
    name: &str,
    target: &Target,
    names: &mut Vec<String>,
) -> Result<Ready, String> {
    let repeat = match operation.repeat.as_deref() {
        None => None,
        Some(own) => Some(Box::new(repeat(own, &operation, target)?)),
    };
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
        timeout: operation.timeout,
        refused: operation.refused,
        redirects: Redirects::new(operation.redirects, target),
        request,
        paths: paths_of(&operation.expect, &operation.captures),
        expect: operation.expect,
        captures: operation.captures,
        repeat,
    })
}

fn repeat(own: &RepeatUntil, operation: &Operation, target: &Target) -> Result<Repeat, String> {
    let judging = |expect: &Expect<Pieces>| {
        let operation = Operation {
            expect: expect.clone(),
            captures: Vec::new(),
            repeat: None,
            ..operation.clone()
        };
        ready(operation, "", target, &mut Vec::new())
    };
    Ok(Repeat {
        until: judging(&own.until)?,
        before: judging(&operation.expect)?,
        every: own.every,
        at_most: own.at_most,
    })
}

fn paths_of(expect: &Expect<Pieces>, captures: &[Capture]) -> JsonPaths {
    let expected = expect.json.iter().map(|(path, _)| path);
    let kept = captures.iter().filter_map(|capture| match &capture.source {
        CaptureSource::Json(path) => Some(path),
        CaptureSource::Header(_) => None,
    });
    JsonPaths::new(expected.chain(kept).cloned().collect())
}

impl Ready {
    /// Whether it expects this very status, so that nothing else is to come of it.
    pub(super) fn names(&self, status: u16) -> bool {
        self.expect.statuses.contains(&status)
    }

    /// How much of the answer's body this operation looks at.
    #[inline]
    pub(super) fn keep(&self) -> Keep {
        if !self.paths.is_empty() || !self.expect.texts.is_empty() || self.repeat.is_some() {
            Keep::All
        } else {
            Keep::Excerpt
        }
    }

    /// Judges the answer to an attempt, and after which time the step is tried again.
    #[inline]
    pub(super) fn judge_attempt(
        &self,
        prepared: &Prepared,
        attempt: u32,
        answer: &Answer,
        dynamic: &mut Dynamic<'_>,
        captured: &mut Vec<(usize, Value)>,
    ) -> (Judged, Option<Duration>) {
        match &self.repeat {
            None => (self.judge(prepared, answer, dynamic, captured), None),
            Some(repeat) => {
                let open = repeat.open(prepared, answer, dynamic);
                match open {
                    None => (self.judge(prepared, answer, dynamic, captured), None),
                    Some(why) => repeat.go_on(prepared, attempt, answer, dynamic, &why),
                }
            }
        }
    }

    /// Judges a whole answer and notes what it captures into `captured`.
    #[inline]
    pub(super) fn judge(
        &self,
        prepared: &Prepared,
        answer: &Answer,
        dynamic: &mut Dynamic<'_>,
        captured: &mut Vec<(usize, Value)>,
    ) -> Judged {
        let status = answer.status();
        if !self.expect.allows(status) {
            return self.judge_status(prepared, status, answer);
        }
        match self.check_body(prepared, answer, dynamic, captured) {
            Ok(()) => Judged {
                outcome: Outcome::Success,
                why: None,
                retry_after: None,
            },
            Err(why) => Judged::error(ErrorClass::Body, why),
        }
    }

    /// An answer whose status is not the expected one.
    fn judge_status(&self, prepared: &Prepared, status: u16, answer: &Answer) -> Judged {
        let is_refused = prepared.refused.contains(&status) || self.refused.contains(&status);
        let is_busy = is_refused || matches!(status, 429 | 503);
        let retry_after = is_busy.then(|| retry_after(answer)).flatten();
        let asked = retry_after.map_or_else(String::new, |wait| {
            format!(", asking to wait {} s", wait.as_secs())
        });
        if is_refused {
            return Judged {
                outcome: Outcome::Refused,
                why: Some(format!("status {status}, which means refused{asked}")),
                retry_after,
            };
        }
        let expected = self.expect.allowed();
        let excerpt = excerpt(&decode::beginning_of(answer));
        let why = format!("status {status} where {expected} was expected{asked}{excerpt}");
        Judged {
            retry_after,
            ..Judged::error(ErrorClass::Status, why)
        }
    }

    #[inline]
    fn check_body(
        &self,
        prepared: &Prepared,
        answer: &Answer,
        dynamic: &mut Dynamic<'_>,
        captured: &mut Vec<(usize, Value)>,
    ) -> Result<(), String> {
        let (expect, names) = (&self.expect, &prepared.captures);
        expect.check_frame(answer, names, dynamic)?;
        let decoded = match self.keep() {
            Keep::All => decode::body_of(answer)?,
            Keep::Excerpt => Cow::default(),
        };
        let body = &*decoded;
        expect.check_texts(body, names, dynamic)?;
        let found = if self.paths.is_empty() {
            Vec::new()
        } else {
            let is_json = self.paths.find(body);
            is_json.map_err(|error| format!("the body is not JSON ({error}){}", excerpt(body)))?
        };
        // What is expected stands before what is captured.
        let mut found = found.into_iter();
        expect.check_json(&mut found, body, names, dynamic)?;
        let mut outcome = Ok(());
        for capture in &self.captures {
            let value = match &capture.source {
                CaptureSource::Json(path) => found
                    .next()
                    .flatten()
                    .ok_or_else(|| format!("the body has no `{}`{}", path.as_str(), excerpt(body))),
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
}
