//! A request ready to be sent: what is constant is built once, as bytes.
//!
//! **Source**: RFC 9112, sections 2 and 3, for its form; RFC 9110, 8.6: methods whose
//! body means something say its length even when there is none.

use std::fmt::Write as _;
use std::sync::Arc;

use http::Method;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use serde_json::Value;

use super::template::{Dynamic, JsonTemplate, Pieces};
use super::workload::Body;

/// A request with what is still open in it.
#[derive(Debug)]
pub(super) struct RequestTemplate {
    is_head: bool,
    parts: Parts,
}

#[derive(Debug)]
enum Parts {
    /// The same bytes every time.
    Fixed(Vec<u8>),
    Open(Box<OpenParts>),
}

#[derive(Debug)]
struct OpenParts {
    method: Method,
    path: Pieces,
    /// All headers that are the same every time, as lines.
    headers: String,
    open_headers: Vec<(HeaderName, Pieces)>,
    body: OpenBody,
}

#[derive(Debug)]
enum OpenBody {
    Fixed(String),
    /// No text.
    Bytes(Arc<[u8]>),
    Text(Pieces),
    Json(JsonTemplate<Pieces>),
}

/// Memory that requests are built in, used again and again.
#[derive(Debug, Default)]
pub(super) struct RequestBuffer {
    text: String,
    body: String,
    /// The whole request, where its body is no text.
    bytes: Vec<u8>,
}

/// Buffers above this are given back. **Units**: bytes.
const KEPT_CAPACITY: usize = 16 << 10;

/// One request as it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    bytes: &'a [u8],
    is_head: bool,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(bytes: &'a [u8], is_head: bool) -> Self {
        Self { bytes, is_head }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether its answer has no body whatever its headers say.
    pub(super) fn is_head(&self) -> bool {
        self.is_head
    }
}

impl RequestTemplate {
    /// Builds what does not change from request to request.
    ///
    /// **Errors**: a constant part that cannot be sent, in words.
    pub(super) fn new(
        method: Method,
        path: Pieces,
        host: &str,
        headers: Vec<(HeaderName, Pieces)>,
        body: Body,
    ) -> Result<Self, String> {
        let mut fixed = HeaderMap::new();
        fixed.insert(HOST, header_value(host)?);
        fixed.insert(USER_AGENT, HeaderValue::from_static("nightsweep"));
        let mut open_headers = Vec::new();
        for (name, value) in headers {
            // It takes the place of one before it, such as the default user agent.
            open_headers.retain(|(known, _)| *known != name);
            if let Some(text) = value.as_text() {
                fixed.insert(name, header_value(&text)?);
            } else {
                fixed.remove(&name);
                open_headers.push((name, value));
            }
        }
        if let Some(text) = path.as_text() {
            check_path(&text)?;
        }
        let mut lines = String::new();
        for (name, value) in &fixed {
            // Made of texts above.
            let value = str::from_utf8(value.as_bytes()).unwrap_or_default();
            push_header(&mut lines, name.as_str(), value);
        }
        let parts = OpenParts {
            method,
            path,
            headers: lines,
            open_headers,
            body: OpenBody::new(body),
        };
        let is_head = parts.method == Method::HEAD;
        let parts = match parts.as_fixed() {
            Some(bytes) => Parts::Fixed(bytes),
            None => Parts::Open(Box::new(parts)),
        };
        Ok(Self { is_head, parts })
    }

    /// The next request; the error says what could not be filled.
    ///
    /// `names`: those of the captures, for the error.
    #[inline]
    pub(super) fn build<'a>(
        &'a self,
        names: &[String],
        dynamic: &mut Dynamic<'_>,
        buffer: &'a mut RequestBuffer,
    ) -> Result<Outgoing<'a>, String> {
        let bytes = match &self.parts {
            Parts::Fixed(bytes) => bytes,
            Parts::Open(parts) => {
                let captures = dynamic.captures;
                parts
                    .render(dynamic, buffer)
                    .map_err(|problem| match problem {
                        Unfilled::Capture(slot) => missing(names, captures, slot),
                        Unfilled::Unusable(why) => why,
                    })?;
                match &parts.body {
                    OpenBody::Bytes(body) => buffer.joined(body),
                    _ => buffer.text.as_bytes(),
                }
            }
        };
        Ok(Outgoing {
            bytes,
            is_head: self.is_head,
        })
    }
}

/// Why a request cannot be built.
#[derive(Debug)]
enum Unfilled {
    /// A capture is not there, by slot.
    Capture(usize),
    /// What came out cannot be sent.
    Unusable(String),
}

impl From<usize> for Unfilled {
    fn from(slot: usize) -> Self {
        Self::Capture(slot)
    }
}

impl RequestBuffer {
    /// The head that was built, and a body that is no text.
    fn joined(&mut self, body: &[u8]) -> &[u8] {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_CAPACITY);
        self.bytes.extend_from_slice(self.text.as_bytes());
        self.bytes.extend_from_slice(body);
        &self.bytes
    }
}

impl OpenParts {
    /// The whole request, where nothing of it is open.
    fn as_fixed(&self) -> Option<Vec<u8>> {
        let body = match &self.body {
            OpenBody::Fixed(body) => body.as_bytes(),
            OpenBody::Bytes(body) => body,
            OpenBody::Text(_) | OpenBody::Json(_) => return None,
        };
        if !self.open_headers.is_empty() {
            return None;
        }
        let mut text = String::new();
        self.push_first_line(&mut text, &self.path.as_text()?);
        text.push_str(&self.headers);
        self.end_head(&mut text, body.len());
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        Some(bytes)
    }

    fn render(
        &self,
        dynamic: &mut Dynamic<'_>,
        buffer: &mut RequestBuffer,
    ) -> Result<(), Unfilled> {
        let RequestBuffer { text, body, .. } = buffer;
        for text in [&mut *text, &mut *body] {
            text.clear();
            text.shrink_to(KEPT_CAPACITY);
        }
        self.push_first_line(text, "");
        // Behind `GET `, before ` HTTP/1.1`.
        let at = self.method.as_str().len() + 1;
        text.truncate(at);
        self.path.render_text(text, dynamic)?;
        check_path(&text[at..]).map_err(Unfilled::Unusable)?;
        text.push_str(VERSION);
        text.push_str(&self.headers);
        for (name, pieces) in &self.open_headers {
            text.push_str(name.as_str());
            text.push_str(": ");
            let at = text.len();
            pieces.render_text(text, dynamic)?;
            if !is_header_text(&text[at..]) {
                return Err(Unfilled::Unusable(HEADER_PROBLEM.to_owned()));
            }
            text.push_str("\r\n");
        }
        match &self.body {
            OpenBody::Fixed(fixed) => self.push_body(text, fixed),
            OpenBody::Bytes(bytes) => self.end_head(text, bytes.len()),
            OpenBody::Text(pieces) => {
                pieces.render(body, dynamic)?;
                self.push_body(text, body);
            }
            OpenBody::Json(value) => {
                value.render(body, dynamic)?;
                self.push_body(text, body);
            }
        }
        Ok(())
    }

    fn push_first_line(&self, text: &mut String, path: &str) {
        text.push_str(self.method.as_str());
        text.push(' ');
        text.push_str(path);
        text.push_str(VERSION);
    }

    fn push_body(&self, text: &mut String, body: &str) {
        self.end_head(text, body.len());
        text.push_str(body);
    }

    /// The length of the body and the end of the head.
    fn end_head(&self, text: &mut String, body_bytes: usize) {
        let means_something = [Method::POST, Method::PUT, Method::PATCH].contains(&self.method);
        if body_bytes > 0 || means_something {
            // Writing to a String cannot fail.
            let _ = write!(text, "content-length: {body_bytes}\r\n");
        }
        text.push_str("\r\n");
    }
}

impl OpenBody {
    fn new(body: Body) -> Self {
        match body {
            Body::None => Self::Fixed(String::new()),
            Body::Bytes(bytes) => Self::Bytes(bytes),
            Body::Text(text) => match text.as_text() {
                Some(text) => Self::Fixed(text),
                None => Self::Text(text),
            },
            Body::Json(value) => match value.as_constant() {
                Some(text) => Self::Fixed(text),
                None => Self::Json(value),
            },
        }
    }
}

const VERSION: &str = " HTTP/1.1\r\n";
const HEADER_PROBLEM: &str = "a header value holds a control character";

fn push_header(text: &mut String, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        text.push_str(part);
    }
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| HEADER_PROBLEM.to_owned())
}

/// As [`HeaderValue::from_str`] has it: a line break in a value would be another header.
fn is_header_text(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7F))
}

/// Origin form only: `//host` or `http://` would name another server; a space would end
/// the path, and a `#` is not sent by anybody.
///
/// **Errors**: in words.
pub(super) fn check_path(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err(format!("the path \"{text}\" does not start with `/`"));
    }
    let is_sendable = |byte: u8| byte > 0x20 && byte != 0x7F && byte != b'#';
    match text.bytes().find(|byte| !is_sendable(*byte)) {
        None => Ok(()),
        Some(byte) => {
            let shown = char::from(byte).escape_default();
            Err(format!(
                "the path \"{}\" holds '{shown}', which stands in no path",
                text.escape_debug()
            ))
        }
    }
}

/// Why a capture could not be filled in.
pub(super) fn missing(names: &[String], captures: &[Option<Value>], slot: usize) -> String {
    let name = &names[slot];
    match captures.get(slot) {
        Some(Some(Value::Null)) => format!("`${{{name}}}` was captured as null, which is no text"),
        _ => format!("`${{{name}}}` was not captured"),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
