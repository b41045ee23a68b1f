//! `${}` in texts: read once, resolved once per loop row, filled per request.
//!
//! A text is parsed to a [`Template`]; [`Template::resolve`] replaces what is
//! known (table fields) and classifies the rest to [`Pieces`]; when the load
//! starts, [`Pieces::fix`] puts in the cell's values; per request only what is
//! then still open is computed. Pure but for the numbers [`Dynamic`] supplies.
//!
//! Escapes: `$$` is a dollar; a dollar before anything else than `{` or `$`
//! stands for itself, so that `"$ref"` in a JSON body needs no escape.

use std::fmt::Write as _;

use serde_json::Value;

use super::data::Rows;
use super::encoding::Encoding;
pub(super) use super::json_template::JsonTemplate;

/// A text with `${}` in it, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Text(String),
    /// What stands between the braces (itself a template, for nested names) and
    /// the byte offset of the `$`.
    Variable(Template, usize),
}

/// A mistake in a template and the byte offset of its `$`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TemplateError {
    pub(super) offset: usize,
    pub(super) message: String,
}

impl TemplateError {
    pub(super) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self {
            offset,
            message: message.into(),
        }
    }
}

/// Nested names deeper than this are a mistake, not a wish.
const DEEPEST_NESTING: usize = 4;

impl Template {
    /// Reads a text.
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut position = 0;
        Self::parse_from(text, &mut position, 0)
    }

    /// Reads up to the end of the text, or to the `}` that closes a nested name.
    fn parse_from(text: &str, position: &mut usize, depth: usize) -> Result<Self, TemplateError> {
        let start = *position;
        let mut segments = Vec::new();
        let mut literal = String::new();
        loop {
            let rest = &text[*position..];
            if rest.is_empty() || (depth > 0 && rest.starts_with('}')) {
                break;
            }
            if rest.starts_with("$$") {
                literal.push('$');
                *position += 2;
            } else if rest.starts_with("${") {
                if depth >= DEEPEST_NESTING {
                    return Err(TemplateError::new(*position, "`${}` nested too deep"));
                }
                if !literal.is_empty() {
                    segments.push(Segment::Text(std::mem::take(&mut literal)));
                }
                let offset = *position;
                *position += 2;
                let name = Self::parse_from(text, position, depth + 1)?;
                if !text[*position..].starts_with('}') {
                    return Err(TemplateError::new(offset, "`${` without its `}`"));
                }
                *position += 1;
                if name.segments.is_empty() {
                    return Err(TemplateError::new(offset, "`${}` without a name"));
                }
                segments.push(Segment::Variable(name, offset));
            } else {
                let character = rest.chars().next().expect("the rest is not empty");
                literal.push(character);
                *position += character.len_utf8();
            }
        }
        if !literal.is_empty() {
            segments.push(Segment::Text(literal));
        }
        debug_assert!(*position >= start, "the position only moves on");
        Ok(Self { segments })
    }

    /// Byte offset of the `$` of the part at an index, which is that of its piece.
    pub(super) fn offset(&self, index: usize) -> usize {
        match self.segments.get(index) {
            Some(Segment::Variable(_, offset)) => *offset,
            _ => 0,
        }
    }

    /// Replaces what `scope` knows and classifies the rest.
    pub(super) fn resolve(&self, scope: &mut dyn Scope) -> Result<Pieces, TemplateError> {
        let mut pieces = Pieces::default();
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => pieces.push(Piece::Text(text.clone())),
                Segment::Variable(name, offset) => {
                    let name = name.resolve(scope)?;
                    let Some(name) = name.as_text() else {
                        return Err(TemplateError::new(
                            *offset,
                            "a name within a name must be a field of the step's table: \
                             other values there are not yet supported",
                        ));
                    };
                    let piece = scope
                        .lookup(name.trim(), *offset)
                        .map_err(|message| TemplateError::new(*offset, message))?;
                    pieces.push(piece);
                }
            }
        }
        Ok(pieces)
    }
}

/// What a name stands for, in the place where the template stands.
pub(super) trait Scope {
    /// The piece for a name whose `$` is at a byte offset of the template, or
    /// what is wrong with it.
    fn lookup(&mut self, name: &str, offset: usize) -> Result<Piece, String>;
}

/// One part of a resolved template.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    /// Text as it is sent; before [`Pieces::fix`], as it stands in the file.
    Text(String),
    /// A known value whose type matters where it stands alone in JSON.
    Value(Value),
    /// What an earlier step of the journey captured, by slot.
    Capture(usize),
    /// The same inside a JSON string literal of a text body; see `json_body`.
    EscapedCapture(usize),
    /// A value that is given when the load starts, by name: cell values, `env.X`.
    External(String),
    /// A new random UUID, version 4.
    Uuid,
    /// A number that is unique in the run.
    Counter,
    /// A whole number between two, both included.
    Random(i64, i64),
    /// The virtual user's number.
    User,
    /// A value of a data file; `is_escaped` inside a JSON string literal of a text body.
    Data {
        /// As it is written between the braces.
        name: String,
        set: usize,
        column: usize,
        is_escaped: bool,
    },
    /// A text of its own that is sent in another alphabet.
    Encoded(Encoding, Box<Pieces>),
}

impl Piece {
    /// `uuid`, `counter`, `user`, `random(1, 100)`; `None` for other names.
    pub(super) fn builtin(name: &str) -> Option<Result<Self, String>> {
        match name {
            "uuid" => Some(Ok(Self::Uuid)),
            "counter" => Some(Ok(Self::Counter)),
            "user" => Some(Ok(Self::User)),
            _ => name
                .strip_prefix("random")
                .filter(|rest| rest.trim_start().starts_with('('))
                .map(|arguments| {
                    parse_range(arguments.trim()).ok_or_else(|| {
                        format!(
                            "`{name}` is not `random(LOW, HIGH)` with two whole numbers, low first"
                        )
                    })
                }),
        }
    }
}

fn parse_range(arguments: &str) -> Option<Piece> {
    let inner = arguments.strip_prefix('(')?.strip_suffix(')')?;
    let (low, high) = inner.split_once(',')?;
    let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    (low <= high).then_some(Piece::Random(low, high))
}

/// A resolved template.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Pieces(Vec<Piece>);

impl Pieces {
    /// A text without any `${}`.
    pub(super) fn text(text: impl Into<String>) -> Self {
        let mut pieces = Self::default();
        pieces.push(Piece::Text(text.into()));
        pieces
    }

    /// The same with a text before it.
    pub(super) fn prefixed(&self, text: &str) -> Self {
        let mut prefixed = Self::default();
        if !text.is_empty() {
            prefixed.push(Piece::Text(text.to_owned()));
        }
        for piece in &self.0 {
            prefixed.push(piece.clone());
        }
        prefixed
    }

    /// Appends a part.
    pub(super) fn push(&mut self, piece: Piece) {
        match (self.0.last_mut(), piece) {
            (Some(Piece::Text(last)), Piece::Text(text)) => last.push_str(&text),
            (_, piece) => self.0.push(piece),
        }
    }

    /// The parts, in order.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// The whole text, where nothing of it is open.
    pub(super) fn as_text(&self) -> Option<String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value(value) => push_plain(&mut out, value),
                Piece::Encoded(encoding, inner) => {
                    encoding.push(&mut out, |out| {
                        out.push_str(&inner.as_text()?);
                        Some(())
                    })?;
                }
                _ => return None,
            }
        }
        Some(out)
    }

    /// The text for people, open parts as they are written.
    pub(super) fn describe(&self, captures: &[String]) -> String {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value(value) => push_plain(&mut out, value),
                Piece::Capture(slot) | Piece::EscapedCapture(slot) => {
                    let _ = write!(out, "${{{}}}", captures[*slot]);
                }
                Piece::External(name) | Piece::Data { name, .. } => {
                    let _ = write!(out, "${{{name}}}");
                }
                Piece::Uuid => out.push_str("${uuid}"),
                Piece::Counter => out.push_str("${counter}"),
                Piece::Random(low, high) => {
                    let _ = write!(out, "${{random({low}, {high})}}");
                }
                Piece::User => out.push_str("${user}"),
                Piece::Encoded(_, inner) => out.push_str(&inner.describe(captures)),
            }
        }
        out
    }

    /// Puts in the values that are known when the load starts; the first name
    /// without one is the error.
    pub(super) fn fix(&self, value_of: &dyn Fn(&str) -> Option<Value>) -> Result<Self, String> {
        let mut fixed = Self::default();
        // A lone piece keeps its type; joined with others it is text anyway.
        let is_lone = self.0.len() == 1;
        for piece in &self.0 {
            let piece = match piece {
                Piece::External(name) => Piece::Value(value_of(name).ok_or_else(|| name.clone())?),
                Piece::Encoded(encoding, inner) => inner.fix(value_of)?.encoded(*encoding),
                other => other.clone(),
            };
            fixed.push(match piece {
                Piece::Value(value) if !is_lone => Piece::Text(plain(&value)),
                other => other,
            });
        }
        Ok(fixed)
    }

    /// The same in another alphabet; at once where nothing of it is open.
    pub(super) fn encoded(self, encoding: Encoding) -> Piece {
        let piece = Piece::Encoded(encoding, Box::new(self));
        match Self(vec![piece.clone()]).as_text() {
            Some(text) => Piece::Text(text),
            None => piece,
        }
    }

    /// Appends the text of this request. An unset capture is the error, by slot.
    pub(super) fn render(&self, out: &mut String, dynamic: &mut Dynamic<'_>) -> Result<(), usize> {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value(value) => push_plain(out, value),
                Piece::Capture(slot) => push_plain(out, dynamic.capture(*slot)?),
                Piece::EscapedCapture(slot) => match dynamic.capture(*slot)? {
                    Value::String(text) => push_escaped(out, text),
                    other => push_escaped(out, &other.to_string()),
                },
                Piece::Data {
                    set,
                    column,
                    is_escaped,
                    ..
                } => {
                    let value = dynamic.rows.value(*set, *column);
                    if *is_escaped {
                        push_escaped(out, &plain(value));
                    } else {
                        push_plain(out, value);
                    }
                }
                Piece::Encoded(encoding, inner) => {
                    encoding.push(out, |out| inner.render_text(out, dynamic))?;
                }
                open => push_plain(out, &dynamic.value(open)),
            }
        }
        Ok(())
    }

    /// Like `render`, where the text is no JSON: a capture that is null is missing.
    ///
    /// `/Patient/null` would be a request for something else.
    pub(super) fn render_text(
        &self,
        out: &mut String,
        dynamic: &mut Dynamic<'_>,
    ) -> Result<(), usize> {
        for piece in &self.0 {
            if let Piece::Capture(slot) | Piece::EscapedCapture(slot) = piece
                && dynamic.capture(*slot)?.is_null()
            {
                return Err(*slot);
            }
        }
        self.render(out, dynamic)
    }

    /// The value of this request: typed where one piece stands alone, else text.
    pub(super) fn value(&self, dynamic: &mut Dynamic<'_>) -> Result<Value, usize> {
        match self.0.as_slice() {
            [Piece::Value(value)] => Ok(value.clone()),
            [Piece::Capture(slot)] => dynamic.capture(*slot).cloned(),
            [Piece::Data { set, column, .. }] => Ok(dynamic.rows.value(*set, *column).clone()),
            [open @ (Piece::Uuid | Piece::Counter | Piece::Random(..) | Piece::User)] => {
                Ok(dynamic.value(open))
            }
            _ => {
                let mut text = String::new();
                self.render_text(&mut text, dynamic)?;
                Ok(Value::String(text))
            }
        }
    }
}

/// A value as it stands in a text: strings without quotes.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn push_plain(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => out.push_str(text),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// Appends a text as it stands between the quotes of a JSON string.
pub(super) fn push_escaped(out: &mut String, text: &str) {
    let needs_escape = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    if text.bytes().any(needs_escape) {
        let quoted = Value::from(text).to_string();
        out.push_str(&quoted[1..quoted.len() - 1]);
    } else {
        out.push_str(text);
    }
}

/// What changes from request to request.
#[derive(Debug)]
pub(super) struct Dynamic<'a> {
    /// What the journey captured so far, by slot.
    pub(super) captures: &'a [Option<Value>],
    /// Random numbers of the load thread.
    pub(super) random: &'a mut fastrand::Rng,
    /// Numbers unique in the run.
    pub(super) counter: &'a mut Counter,
    /// The virtual user's number, from 0.
    pub(super) user: u32,
    /// Rows of data files.
    pub(super) rows: Rows<'a>,
}

impl Dynamic<'_> {
    fn capture(&self, slot: usize) -> Result<&Value, usize> {
        self.captures.get(slot).and_then(Option::as_ref).ok_or(slot)
    }

    fn value(&mut self, piece: &Piece) -> Value {
        match piece {
            Piece::Uuid => Value::String(uuid(self.random)),
            Piece::Counter => Value::from(self.counter.next()),
            Piece::Random(low, high) => Value::from(self.random.i64(*low..=*high)),
            Piece::User => Value::from(self.user),
            Piece::Text(text) | Piece::External(text) => Value::String(text.clone()),
            Piece::Value(value) => value.clone(),
            Piece::Capture(_)
            | Piece::EscapedCapture(_)
            | Piece::Data { .. }
            | Piece::Encoded(..) => Value::Null,
        }
    }
}

/// Numbers from 1 that no other thread of the run hands out.
///
/// Thread t of T takes every T-th number, so nothing is shared per request.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    next: u64,
    stride: u64,
}

impl Counter {
    /// The counter of one thread of so many.
    pub(super) fn new(thread: usize, n_threads: usize) -> Self {
        Self {
            next: thread as u64 + 1,
            stride: n_threads as u64,
        }
    }

    fn next(&mut self) -> u64 {
        let number = self.next;
        self.next += self.stride;
        number
    }
}

/// A random UUID. **Source**: RFC 9562, section 5.4 (version 4).
fn uuid(random: &mut fastrand::Rng) -> String {
    let bits = (random.u128(..) & !(0xF << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
