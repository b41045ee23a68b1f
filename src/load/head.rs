//! The head of an answer: its status, and where its body ends.
//!
//! Pure, as `answer` is, which it belongs to.

use std::cell::RefCell;

use httparse::{ParserConfig, Status};

use super::answer::{KEPT_CAPACITY, State};
use super::client::ClientError;
use super::expect::excerpt;
use crate::measure::ErrorClass;

/// Most headers of an answer.
const MOST_HEADERS: usize = 128;

pub(super) fn protocol(message: impl Into<String>) -> ClientError {
    ClientError::new(ErrorClass::Protocol, message)
}

thread_local! {
    /// The last head of this thread's answers, and what it says. Servers send the same head
    /// again and again for a second or longer, and comparing is a tenth of parsing.
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// A head that has been parsed.
#[derive(Debug)]
struct Known {
    text: Vec<u8>,
    answers_head: bool,
    head: Head,
}

/// Reads a head as [`parse`] does, at once where its bytes are those of the last one.
#[inline]
pub(super) fn parse_again(text: &[u8], answers_head: bool) -> Result<Option<Head>, ClientError> {
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known
            && known.answers_head == answers_head
            // It ends with an empty line, so what follows in the text is no part of it.
            && text.starts_with(&known.text)
        {
            return Ok(Some(known.head.clone()));
        }
        let parsed = parse(text, answers_head)?;
        if let Some(head) = &parsed {
            let known = known.get_or_insert_with(|| Known {
                text: Vec::new(),
                answers_head,
                head: head.clone(),
            });
            known.text.clear();
            known.text.shrink_to(KEPT_CAPACITY);
            known.text.extend_from_slice(&text[..head.length]);
            known.answers_head = answers_head;
            known.head.clone_from(head);
        }
        Ok(parsed)
    })
}

/// What a whole head says.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) length: usize,
    pub(super) is_interim: bool,
    pub(super) is_reusable: bool,
    pub(super) is_encoded: bool,
    pub(super) next: State,
}

/// Reads a head; `None` when there is more to come.
pub(super) fn parse(text: &[u8], answers_head: bool) -> Result<Option<Head>, ClientError> {
    let mut headers = [const { std::mem::MaybeUninit::uninit() }; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        text,
        &mut headers,
    );
    let length = match parsed {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(protocol(format!(
                "the answer has more than {MOST_HEADERS} headers"
            )));
        }
        Err(error) => {
            return Err(protocol(format!(
                "the answer is not HTTP/1.1 ({error}){}",
                excerpt(text)
            )));
        }
    };
    let status = response.code.unwrap_or_default();
    let framing = Framing::of(response.headers)?;
    let is_old = response.version == Some(0);
    let is_interim = (100..200).contains(&status);
    if status == 101 {
        return Err(protocol("the answer switches protocols (status 101)"));
    }
    let next = match (framing.coding, framing.length) {
        _ if answers_head || status == 204 || status == 304 => State::Done,
        (Some(Coding::Chunked), _) => State::ChunkSize {
            size: 0,
            has_digits: false,
        },
        (Some(Coding::Other), _) | (None, None) => State::UntilClose,
        (None, Some(0)) => State::Done,
        (None, Some(length)) => State::Sized(length),
    };
    Ok(Some(Head {
        status,
        length,
        is_interim,
        // RFC 9112, 6.1: chunks in an answer of HTTP/1.0 are not to be trusted.
        is_reusable: !framing.closes
            && (!is_old || (framing.keeps_alive && framing.coding.is_none())),
        is_encoded: framing.is_encoded,
        next,
    }))
}

/// What the headers say of the body and of the connection.
#[derive(Debug, Default)]
struct Framing {
    length: Option<u64>,
    /// The last transfer coding, which alone says where the body ends.
    coding: Option<Coding>,
    closes: bool,
    keeps_alive: bool,
    is_encoded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

impl Framing {
    fn of(headers: &[httparse::Header<'_>]) -> Result<Self, ClientError> {
        let mut framing = Self::default();
        for header in headers {
            // Their lengths differ, so most headers cost one comparison.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    let length = length_of(header.value)?;
                    if framing.length.is_some_and(|known| known != length) {
                        return Err(protocol("the answer has two lengths"));
                    }
                    framing.length = Some(length);
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    let last = header.value.rsplit(|byte| *byte == b',').next();
                    let is_chunked = last
                        .is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"));
                    framing.coding = Some(if is_chunked {
                        Coding::Chunked
                    } else {
                        Coding::Other
                    });
                }
                16 if header.name.eq_ignore_ascii_case("content-encoding") => {
                    framing.is_encoded = true;
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    for option in header.value.split(|byte| *byte == b',') {
                        let option = option.trim_ascii();
                        framing.closes |= option.eq_ignore_ascii_case(b"close");
                        framing.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        Ok(framing)
    }
}

/// The value of a `content-length`; a list of the same number twice is that number.
fn length_of(value: &[u8]) -> Result<u64, ClientError> {
    let mut length = None;
    for part in value.split(|byte| *byte == b',') {
        let part = part.trim_ascii();
        let number = Some(part)
            .filter(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
            .and_then(|part| str::from_utf8(part).ok())
            .and_then(|text| text.parse::<u64>().ok());
        if number.is_none() || (length.is_some() && length != number) {
            let shown = String::from_utf8_lossy(value);
            return Err(protocol(format!(
                "the answer's length is no number: \"{shown}\""
            )));
        }
        length = number;
    }
    length.ok_or_else(|| protocol("the answer's length is empty"))
}
