//! Expanding steps over the rows of their tables, in journey order.
//!
//! Every name is resolved for every row here, so that 'captured by an earlier
//! step' is checked exactly; what remains are operations. Opens body files.

use std::collections::{BTreeSet, HashSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::rc::Rc;

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName};
use indexmap::IndexMap;
use serde_json::Value;

use super::encoding::Encoding;
use super::expect::Expect;
use super::scope::{Row, StepScope};
use super::step_file::{FormValue, Json, Step, StepBody, Text};
use super::step_options::{Auth, Options};
use super::template::{JsonTemplate, Piece, Pieces, Template, TemplateError, plain};
use super::workload::{Body, Capture, CaptureSource, Operation, RepeatUntil, VariableUse};
use super::workload_file::{BodyFile, Shared};
use crate::problem::{Location, Problem};
use crate::toml_file::{Notes, Quoted};

/// Expands steps to operations, in journey order.
#[derive(Debug)]
pub(super) struct Expander {
    base: PathBuf,
    pub(super) shared: Shared,
    pub(super) operations: Vec<Operation>,
    pub(super) captures: Vec<String>,
    pub(super) externals: IndexMap<String, VariableUse>,
    /// Captures of what is being expanded, so that 'not yet captured' is told from 'unknown'.
    pub(super) all_captures: HashSet<String>,
    /// Captures of journeys and set-ups before it, likewise.
    pub(super) others: HashSet<String>,
    /// Slots of captures that are known by now.
    pub(super) visible: HashSet<usize>,
    /// Of these, those of set-ups: every journey begins with them.
    kept: HashSet<usize>,
    /// Data sets that are asked for.
    pub(super) used_data: BTreeSet<usize>,
    /// Whether every line of the file is there: a name may be defined on one
    /// that was taken out for its syntax, and is then not blamed.
    pub(super) is_whole: bool,
}

/// Whether later steps of the file know what was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    /// All of it: a set-up.
    All,
    /// None of it: a journey.
    Nothing,
}

impl Expander {
    pub(super) fn new(base: PathBuf, shared: Shared, is_whole: bool) -> Self {
        Self {
            base,
            shared,
            operations: Vec::new(),
            captures: Vec::new(),
            externals: IndexMap::new(),
            all_captures: HashSet::new(),
            others: HashSet::new(),
            visible: HashSet::new(),
            kept: HashSet::new(),
            used_data: BTreeSet::new(),
            is_whole,
        }
    }

    /// From here on the steps of one journey or set-up come: only their captures, and
    /// those of set-ups before, are known to them.
    pub(super) fn begin(&mut self, steps: &[Step]) {
        self.visible.clone_from(&self.kept);
        let before = std::mem::take(&mut self.all_captures);
        self.others.extend(before);
        for step in steps {
            for row in self.rows(step) {
                for ((_, template), _) in &step.captures {
                    let mut scope = Row {
                        each: step.each.as_deref(),
                        row: &row,
                    };
                    let name = template
                        .resolve(&mut scope)
                        .ok()
                        .and_then(|name| name.as_text());
                    self.all_captures.extend(name);
                }
            }
        }
    }

    /// Ends what `begin` began; the data sets of which it takes rows.
    pub(super) fn end(&mut self, keeps: Keeps) -> Vec<usize> {
        if keeps == Keeps::All {
            self.kept.clone_from(&self.visible);
        }
        std::mem::take(&mut self.used_data).into_iter().collect()
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
    pub(super) fn expand(&mut self, step: &Step, notes: &mut Notes<'_>) {
        for row in self.rows(step) {
            self.expand_row(step, &row, notes);
        }
    }

    fn expand_row(&mut self, step: &Step, row: &IndexMap<String, Value>, notes: &mut Notes<'_>) {
        let mut resolver = Resolver {
            expander: self,
            notes,
            step,
            row,
        };
        let path = resolver.text(&step.path);
        let headers = resolver.headers();
        let body = resolver.body(&step.body);
        let expect = resolver.expect(&step.expect);
        let repeat = step.repeat.as_ref().map(|own| {
            Box::new(RepeatUntil {
                until: resolver.expect(&own.until),
                every: own.every,
                at_most: own.at_most,
            })
        });
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
            repeat,
            timeout: step.timeout,
            refused: step.refused.clone(),
            redirects: step
                .options
                .redirects
                .or(self.shared.options.redirects)
                .unwrap_or(0),
        });
    }
}

/// Resolves the templates of one step for one row.
struct Resolver<'a, 'r, 'f> {
    expander: &'a mut Expander,
    notes: &'r mut Notes<'f>,
    step: &'a Step,
    row: &'a IndexMap<String, Value>,
}

impl Resolver<'_, '_, '_> {
    fn text(&mut self, (located, template): &Text) -> Pieces {
        self.resolve(template, located)
    }

    fn resolve(&mut self, template: &Template, text: &Quoted) -> Pieces {
        let source = self.notes.source();
        self.resolve_at(template, &|offset| source.inside(text, offset), None)
    }

    fn resolve_at(
        &mut self,
        template: &Template,
        at: &dyn Fn(usize) -> Location,
        hint: Option<&'static str>,
    ) -> Pieces {
        let mut scope = StepScope {
            expander: self.expander,
            step: self.step,
            row: self.row,
            at,
        };
        template.resolve(&mut scope).unwrap_or_else(|error| {
            let problem = Problem::new(at(error.offset), error.message);
            self.notes.push(match hint {
                Some(hint) => problem.with_hint(hint),
                None => problem,
            });
            Pieces::default()
        })
    }

    /// All headers but those that every request has.
    fn headers(&mut self) -> Headers {
        let step = self.step;
        let shared = Rc::clone(&self.expander.shared.options);
        let mut headers = Headers::new();
        for (name, located, template) in &self.expander.shared.headers.clone() {
            let value = self.resolve(template, located);
            replace(&mut headers, name, Some(value));
        }
        // The file's are not even looked at where the step has its own: a step that
        // fetches the token cannot have the header made of it.
        let is_own = |wanted: HeaderName| step.headers.iter().any(|(name, ..)| *name == wanted);
        if step.options.auth.is_none() && !is_own(AUTHORIZATION) {
            let hint = "a step that needs no credentials says so with `auth = \"none\"`";
            self.authorize(&shared, Some(hint), &mut headers);
        }
        ask_for_gzip(&shared, &mut headers);
        if matches!(step.body, StepBody::Form(_)) {
            // The file's content type is about its other bodies.
            let form = Pieces::text("application/x-www-form-urlencoded");
            replace(&mut headers, &CONTENT_TYPE, Some(form));
        }
        for (name, located, template) in &step.headers {
            let value = self.resolve(template, located);
            replace(&mut headers, name, Some(value));
        }
        self.authorize(&step.options, None, &mut headers);
        ask_for_gzip(&step.options, &mut headers);
        let is_json = matches!(step.body, StepBody::Json(_));
        if is_json && !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
            headers.push((CONTENT_TYPE, Pieces::text("application/json")));
        }
        headers
    }

    fn authorize(&mut self, options: &Options, hint: Option<&'static str>, headers: &mut Headers) {
        let mut text = |(located, template): &Text| {
            let source = self.notes.source();
            self.resolve_at(template, &|offset| source.inside(located, offset), hint)
        };
        let value = match &options.auth {
            None => return,
            Some(Auth::None) => None,
            Some(Auth::Bearer(token)) => Some(text(token).prefixed("Bearer ")),
            Some(Auth::Basic(user, password)) => {
                let mut pair = text(user);
                pair.push(Piece::Text(":".into()));
                for piece in text(password).pieces() {
                    pair.push(piece.clone());
                }
                let mut value = Pieces::text("Basic ");
                value.push(pair.encoded(Encoding::Base64));
                Some(value)
            }
        };
        replace(headers, &AUTHORIZATION, value);
    }

    fn form(&mut self, fields: &[(String, FormValue)]) -> Pieces {
        let mut body = Pieces::default();
        for (index, (name, value)) in fields.iter().enumerate() {
            let between = if index > 0 { "&" } else { "" };
            body.push(Piece::Text(between.to_owned()));
            body.push(Pieces::text(name).encoded(Encoding::Form));
            body.push(Piece::Text("=".to_owned()));
            let value = match value {
                FormValue::Text(text) => self.text(text),
                FormValue::Literal(value) => Pieces::text(plain(value)),
            };
            body.push(value.encoded(Encoding::Form));
        }
        body
    }

    fn json(&mut self, value: &Json) -> JsonTemplate<Pieces> {
        let resolved: Result<_, Infallible> = value.try_map(&mut |text| Ok(self.text(text)));
        resolved.unwrap_or_else(|never| match never {})
    }

    fn expect(&mut self, expected: &Expect<Text>) -> Expect<Pieces> {
        let resolved: Result<_, Infallible> = expected.try_map(&mut |text| Ok(self.text(text)));
        resolved.unwrap_or_else(|never| match never {})
    }

    /// The name of an operation must be the same for every request of it.
    fn name(&mut self, text: &Text) -> Pieces {
        let pieces = self.text(text);
        let is_fixed = |piece: &Piece| match piece {
            Piece::Text(_) | Piece::Value(_) => true,
            // Names are written to files, and the environment holds secrets.
            Piece::External(name) => !name.starts_with("env."),
            Piece::Capture(_)
            | Piece::EscapedCapture(_)
            | Piece::Uuid
            | Piece::Counter
            | Piece::Random(..)
            | Piece::User
            | Piece::Data { .. }
            | Piece::Encoded(..) => false,
        };
        let changing = pieces.pieces().iter().position(|piece| !is_fixed(piece));
        if let Some(index) = changing {
            let location = (self.notes.source()).inside(&text.0, text.1.offset(index));
            let message =
                "the name of a step cannot change from request to request or hold `${env.}`";
            self.notes.push(
                Problem::new(location, message)
                    .with_hint("figures are kept by name: use table fields and cell values only"),
            );
        }
        pieces
    }

    fn capture(&mut self, name: &Text, source: &CaptureSource) -> Option<Capture> {
        let mut scope = Row {
            each: self.step.each.as_deref(),
            row: self.row,
        };
        let resolved = name.1.resolve(&mut scope);
        let known = resolved.and_then(|pieces| {
            pieces
                .as_text()
                .filter(|name| !name.is_empty())
                .ok_or_else(|| TemplateError::new(0, "the name of a capture is empty"))
        });
        let name_text = match known {
            Ok(name) if Piece::builtin(&name).is_none() && !name.starts_with("env.") => name,
            Ok(taken) => {
                let message =
                    format!("a capture cannot be called `{taken}`: it has a meaning of its own");
                self.notes.add(name.0.at, message);
                return None;
            }
            Err(error) => {
                if self.expander.is_whole {
                    self.notes.inside(&name.0, error.offset, error.message);
                }
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
        self.expander.visible.insert(slot);
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
            StepBody::Form(fields) => Body::Text(self.form(fields)),
            StepBody::File(text) => match self.body_file(text) {
                Some(BodyFile::Text {
                    path,
                    text,
                    template,
                }) => {
                    let at = |offset| Location::of_offset(&path, &text, offset);
                    Body::Text(self.resolve_at(&template, &at, None))
                }
                Some(BodyFile::Bytes(bytes)) => Body::Bytes(bytes),
                None => Body::None,
            },
        }
    }

    fn body_file(&mut self, (text, template): &Text) -> Option<BodyFile> {
        let mut scope = Row {
            each: self.step.each.as_deref(),
            row: self.row,
        };
        let name = match template.resolve(&mut scope) {
            Ok(name) => name.as_text()?,
            Err(error) => {
                if self.expander.is_whole {
                    let message =
                        format!("{}, and `body_file` may use nothing else", error.message);
                    self.notes.inside(text, error.offset, message);
                }
                return None;
            }
        };
        let path = self.expander.base.join(name);
        if let Some(known) = self.expander.shared.body_files.get(&path) {
            return known.clone();
        }
        let file = match fs_err::read(&path).map(String::from_utf8) {
            Ok(Ok(text)) => match Template::parse(&text) {
                Ok(template) => Some(BodyFile::Text {
                    path: path.clone(),
                    text,
                    template,
                }),
                Err(error) => {
                    let location = Location::of_offset(&path, &text, error.offset);
                    self.notes.push(Problem::new(location, error.message));
                    None
                }
            },
            Ok(Err(no_text)) => Some(BodyFile::Bytes(no_text.into_bytes().into())),
            Err(error) => {
                let message = format!(
                    "the body file {} cannot be read: {}",
                    path.display(),
                    error.kind()
                );
                self.notes.hint(
                    text.at,
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

type Headers = Vec<(HeaderName, Pieces)>;

/// A header takes the place of one of that name; none takes it away.
fn replace(headers: &mut Headers, name: &HeaderName, value: Option<Pieces>) {
    headers.retain(|(known, _)| known != name);
    headers.extend(value.map(|value| (name.clone(), value)));
}

fn ask_for_gzip(options: &Options, headers: &mut Headers) {
    let value = match options.gzip {
        None => return,
        Some(false) => None,
        Some(true) => Some(Pieces::text("gzip, deflate")),
    };
    replace(headers, &ACCEPT_ENCODING, value);
}
