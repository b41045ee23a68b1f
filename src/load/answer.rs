//! An answer of HTTP/1.1, read from bytes as they come.
//!
//! Pure: bytes in, an answer or a mistake out; `client` does the reading. One reader
//! serves a connection for as long as it lives, so that its buffers are made once.
//!
//! **Source**: RFC 9112: section 6.3 says where a body ends, 7.1 what chunks look like,
//! 9.3 whether the connection can be used again; RFC 9110, 15.2, what interim answers are.
//! **Invariant**: whatever the bytes, reading ends: every byte is looked at a bounded number
//! of times, and what is kept is bounded.

use super::client::ClientError;
use super::head::{parse, parse_again, protocol};
use crate::measure::ErrorClass;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Most bytes of an answer's body that are kept. **Units**: bytes.
///
/// Far above what a step can want to look into, far below the host's memory.
pub(super) const MOST_BODY_BYTES: usize = 64 << 20;
/// Most bytes of an answer's head, and of the trailers behind its chunks. **Units**: bytes.
pub(super) const MOST_HEAD_BYTES: usize = 256 << 10;
/// Most interim answers before the answer itself.
const MOST_INTERIM: u32 = 32;
/// So much of an unexpected answer is kept to say what it was. **Units**: bytes.
pub(super) const EXCERPT_BYTES: usize = 200;
/// Buffers above this are given back after an exchange: ten thousand users share one
/// memory. **Units**: bytes.
pub(super) const KEPT_CAPACITY: usize = 16 << 10;

/// How much of an answer's body is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The first bytes alone; the rest is read and dropped.
    Excerpt,
    /// All of it.
    All,
}

/// A whole answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    status: u16,
    /// Status line and headers as they came.
    head: Vec<u8>,
    /// As much of the body as was asked for.
    body: Vec<u8>,
    /// Bytes of the body, kept or not.
    body_bytes: u64,
    /// Whether it has a header `content-encoding`.
    is_encoded: bool,
}

impl Answer {
    /// Forgets what it was.
    #[inline]
    pub(super) fn clear(&mut self) {
        for buffer in [&mut self.head, &mut self.body] {
            buffer.clear();
            buffer.shrink_to(KEPT_CAPACITY);
        }
        self.body_bytes = 0;
        self.is_encoded = false;
    }

    /// Takes a head that came in another form than HTTP/1.1 has.
    pub(super) fn begin(&mut self, status: u16, headers: &HeaderMap) {
        self.clear();
        self.status = status;
        self.is_encoded = headers.contains_key(CONTENT_ENCODING);
        for (name, value) in headers {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                self.head.extend_from_slice(part);
            }
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// **Errors**: more than can be kept.
    #[inline]
    pub(super) fn store(&mut self, bytes: &[u8], keep: Keep) -> Result<(), ClientError> {
        self.body_bytes += bytes.len() as u64;
        let body = &mut self.body;
        match keep {
            Keep::Excerpt => {
                let room = EXCERPT_BYTES.saturating_sub(body.len());
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Keep::All if body.len() + bytes.len() > MOST_BODY_BYTES => {
                return Err(ClientError::new(
                    ErrorClass::Body,
                    format!("the answer is longer than {MOST_BODY_BYTES} bytes"),
                ));
            }
            Keep::All => body.extend_from_slice(bytes),
        }
        Ok(())
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// As much of the body as was asked for.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// How long the body was as it came. **Units**: bytes.
    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether its headers say that the body is compressed or the like.
    pub(super) fn is_encoded(&self) -> bool {
        self.is_encoded
    }

    /// Names and values, in the order in which they came.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // The head was parsed once and found good; what is no pair is the status line.
        self.head.split(|byte| *byte == b'\n').filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = str::from_utf8(&line[..colon]).ok()?;
            let is_name = !name.is_empty() && !name.contains(' ') && !name.contains('/');
            is_name.then(|| (name, line[colon + 1..].trim_ascii()))
        })
    }

    /// The first header of a name, whatever its case.
    pub(super) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers_named(name).next()
    }

    /// The values of all headers of a name, whatever its case.
    pub(super) fn headers_named(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.headers()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// What of the answer comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Head,
    /// So many bytes of the body.
    Sized(u64),
    ChunkSize {
        size: u64,
        has_digits: bool,
    },
    /// What stands behind a chunk's size, to the end of the line.
    ChunkExtension(u64),
    ChunkData(u64),
    ChunkEnd,
    /// Lines behind the last chunk; how long the line under way is.
    Trailer(usize),
    UntilClose,
    Done,
}

/// Reads one answer after the other.
#[derive(Debug)]
pub(super) struct AnswerReader {
    state: State,
    answer: Answer,
    keep: Keep,
    answers_head: bool,
    is_reusable: bool,
    n_interim: u32,
    n_trailer_bytes: usize,
}

impl Default for AnswerReader {
    fn default() -> Self {
        Self {
            state: State::Done,
            answer: Answer::default(),
            keep: Keep::Excerpt,
            answers_head: false,
            is_reusable: true,
            n_interim: 0,
            n_trailer_bytes: 0,
        }
    }
}

impl AnswerReader {
    /// Forgets the answer before and waits for one.
    ///
    /// `answers_head`: the request's method is HEAD, so no body follows.
    #[inline]
    pub(super) fn begin(&mut self, keep: Keep, answers_head: bool) {
        self.answer.clear();
        self.state = State::Head;
        self.keep = keep;
        self.answers_head = answers_head;
        self.is_reusable = true;
        self.n_interim = 0;
        self.n_trailer_bytes = 0;
    }

    /// Whether the answer is whole.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether nothing of the answer has come yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.state == State::Head && self.answer.head.is_empty() && self.n_interim == 0
    }

    /// Whether the end of the connection is all that ends the body.
    pub(super) fn ends_at_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Whether another request may follow on the same connection.
    pub(super) fn is_reusable(&self) -> bool {
        self.is_reusable
    }

    /// Nothing more may be sent on this connection.
    pub(super) fn close(&mut self) {
        self.is_reusable = false;
    }

    /// The answer, once it is whole.
    pub(super) fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Takes the next bytes.
    ///
    /// Bytes behind the answer's end are dropped, and the connection with them.
    /// **Errors**: what is no HTTP, a body that is longer than can be kept.
    #[inline]
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            let n_taken = match self.state {
                State::Done => {
                    // Nobody knows what they belong to; the answer before them is whole.
                    self.is_reusable = false;
                    return Ok(());
                }
                State::Head => self.take_head(bytes)?,
                State::Sized(left) => self.take_data(bytes, left, State::Sized)?,
                State::ChunkData(left) => self.take_data(bytes, left, State::ChunkData)?,
                State::UntilClose => {
                    self.answer.store(bytes, self.keep)?;
                    bytes.len()
                }
                State::Trailer(length) => self.take_trailer(bytes, length)?,
                State::ChunkSize { .. } | State::ChunkExtension(_) | State::ChunkEnd => {
                    self.take_chunk_line(bytes[0])?;
                    1
                }
            };
            bytes = &bytes[n_taken..];
        }
        Ok(())
    }

    /// The connection was closed by the other side.
    ///
    /// **Errors**: the answer is not whole.
    pub(super) fn end(&mut self) -> Result<(), ClientError> {
        self.is_reusable = false;
        let message = match self.state {
            State::Done => return Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                return Ok(());
            }
            State::Head if self.is_untouched() => "closed before an answer came".to_owned(),
            State::Head => {
                // Of what drips in, the last line has not been looked at.
                parse(&self.answer.head, self.answers_head)?;
                "closed in the middle of the answer's head".to_owned()
            }
            State::Sized(left) => format!("closed {left} bytes before the end of the body"),
            _ => "closed before the last chunk of the body".to_owned(),
        };
        Err(ClientError::new(ErrorClass::Reset, message))
    }

    /// Reads the head, when it is whole; how many of the bytes it took.
    #[inline]
    fn take_head(&mut self, bytes: &[u8]) -> Result<usize, ClientError> {
        let n_before = self.answer.head.len();
        // Nearly all heads come in one piece, which is then parsed where it is.
        let text = if n_before == 0 {
            bytes
        } else {
            self.answer.head.extend_from_slice(bytes);
            &self.answer.head
        };
        let found = if n_before == 0 {
            parse_again(text, self.answers_head)?
        } else if bytes.contains(&b'\n') {
            // A head that drips in is looked at once a line.
            parse(text, self.answers_head)?
        } else {
            None
        };
        let Some(head) = found else {
            if n_before == 0 {
                self.answer.head.extend_from_slice(bytes);
            }
            check_head_length(self.answer.head.len())?;
            return Ok(bytes.len());
        };
        // However it was cut, the same head is too long.
        check_head_length(head.length)?;
        if n_before == 0 {
            self.answer.head.extend_from_slice(&bytes[..head.length]);
        } else {
            self.answer.head.truncate(head.length);
        }
        if head.is_interim {
            self.n_interim += 1;
            if self.n_interim > MOST_INTERIM {
                return Err(protocol(format!(
                    "more than {MOST_INTERIM} interim answers"
                )));
            }
            self.answer.head.clear();
        } else {
            self.answer.status = head.status;
            self.answer.is_encoded = head.is_encoded;
            self.is_reusable = head.is_reusable;
            self.state = head.next;
        }
        Ok(head.length - n_before)
    }

    #[inline]
    fn take_data(
        &mut self,
        bytes: &[u8],
        left: u64,
        state: fn(u64) -> State,
    ) -> Result<usize, ClientError> {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        self.answer.store(&bytes[..n], self.keep)?;
        let left = left - n as u64;
        self.state = match (left, self.state) {
            (0, State::Sized(_)) => State::Done,
            (0, _) => State::ChunkEnd,
            _ => state(left),
        };
        Ok(n)
    }

    /// One byte of the lines between chunks.
    fn take_chunk_line(&mut self, byte: u8) -> Result<(), ClientError> {
        let wrong = || {
            let shown = char::from(byte).escape_default();
            Err(protocol(format!("'{shown}' in the size of a chunk")))
        };
        self.state = match self.state {
            State::ChunkSize { size, has_digits } => match char::from(byte).to_digit(16) {
                Some(digit) => {
                    // A size beyond 2^60 is a mistake or an attack.
                    if size >> 56 != 0 {
                        return Err(protocol("a chunk is longer than anything can be"));
                    }
                    State::ChunkSize {
                        size: size << 4 | u64::from(digit),
                        has_digits: true,
                    }
                }
                None if !has_digits => return wrong(),
                None => match byte {
                    b'\n' => after_size(size),
                    b'\r' | b';' | b' ' | b'\t' => State::ChunkExtension(size),
                    _ => return wrong(),
                },
            },
            State::ChunkExtension(size) if byte == b'\n' => after_size(size),
            State::ChunkExtension(size) => {
                self.count_trailer(1)?;
                State::ChunkExtension(size)
            }
            State::ChunkEnd => match byte {
                b'\r' => State::ChunkEnd,
                b'\n' => State::ChunkSize {
                    size: 0,
                    has_digits: false,
                },
                _ => return Err(protocol("a chunk is longer than its size says")),
            },
            other => other,
        };
        Ok(())
    }

    /// Lines behind the last chunk, to an empty one.
    fn take_trailer(&mut self, bytes: &[u8], length: usize) -> Result<usize, ClientError> {
        let line_end = bytes.iter().position(|byte| *byte == b'\n');
        let n = line_end.map_or(bytes.len(), |at| at + 1);
        self.count_trailer(n)?;
        let text = line_end.map_or(bytes, |at| &bytes[..at]);
        let length = length + text.iter().filter(|byte| **byte != b'\r').count();
        self.state = match line_end {
            Some(_) if length == 0 => State::Done,
            Some(_) => State::Trailer(0),
            None => State::Trailer(length),
        };
        Ok(n)
    }

    fn count_trailer(&mut self, n: usize) -> Result<(), ClientError> {
        self.n_trailer_bytes += n;
        if self.n_trailer_bytes > MOST_HEAD_BYTES {
            return Err(protocol(format!(
                "more than {MOST_HEAD_BYTES} bytes beside the chunks of a body"
            )));
        }
        Ok(())
    }
}

fn after_size(size: u64) -> State {
    match size {
        0 => State::Trailer(0),
        size => State::ChunkData(size),
    }
}

fn check_head_length(n_bytes: usize) -> Result<(), ClientError> {
    if n_bytes > MOST_HEAD_BYTES {
        return Err(protocol(format!(
            "the head of the answer is longer than {MOST_HEAD_BYTES} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
