//! The cookies of one virtual user.
//!
//! There is one target, so domains are not looked at; nor is `Secure`, since a service
//! that is used behind TLS sets it and is measured without. Names, values, paths and ends of
//! life are as **Source**: RFC 6265, section 5.
//!
//! **Invariant**: whatever a server sends, a jar stays small.

use std::time::{Duration, Instant};

use super::answer::Answer;
use super::http_date;

/// More cookies than this are not kept; the oldest go. **Source**: RFC 6265, 6.1, asks for 50.
const MOST_COOKIES: usize = 64;
/// Longer cookies are not kept. **Source**: as above. **Units**: bytes.
const MOST_BYTES: usize = 4096;
/// An end of life before this moment is in the past by any clock: 2020. Where the answer
/// does not say what time it is, only such a date ends a cookie. **Units**: seconds since 1970.
const LONG_AGO: i64 = 1_577_836_800;

/// Cookies of one user, oldest first.
#[derive(Debug, Default)]
pub(super) struct CookieJar {
    cookies: Vec<Cookie>,
}

#[derive(Debug)]
struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
    ends: Option<Instant>,
}

impl CookieJar {
    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.cookies.clear();
    }

    /// Keeps what an answer sets and removes what it takes back.
    ///
    /// `target`: path and query of the request.
    pub(super) fn take(&mut self, answer: &Answer, target: &[u8], now: Instant) {
        for text in answer.headers_named("set-cookie") {
            let date = || answer.header("date").and_then(http_date::seconds_of);
            let Some((cookie, life)) = parse(text, target, date, now) else {
                continue;
            };
            let is_same = |known: &Cookie| known.name == cookie.name && known.path == cookie.path;
            let known = self.cookies.iter().position(is_same);
            match (known, life) {
                (Some(at), Life::Over) => drop(self.cookies.remove(at)),
                (Some(at), Life::Goes) => self.cookies[at] = cookie,
                (None, Life::Over) => {}
                (None, Life::Goes) => {
                    if self.cookies.len() >= MOST_COOKIES {
                        self.cookies.remove(0);
                    }
                    self.cookies.push(cookie);
                }
            }
        }
    }

    /// Appends the line of a request's head, where there is a cookie for it.
    ///
    /// **Source**: RFC 6265, 5.4: longer paths first, then older cookies.
    pub(super) fn push_line(&self, target: &[u8], now: Instant, out: &mut Vec<u8>) {
        let path = path_of(target);
        let is_sent = |cookie: &&Cookie| {
            cookie.ends.is_none_or(|ends| now < ends) && is_under(path, &cookie.path)
        };
        let mut sent: Vec<&Cookie> = self.cookies.iter().filter(is_sent).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        for (index, cookie) in sent.iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"cookie: " } else { b"; " });
            out.extend_from_slice(&cookie.name);
            out.push(b'=');
            out.extend_from_slice(&cookie.value);
        }
        if !sent.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Goes,
    Over,
}

/// One `set-cookie`; `None` where it is none. `date`: the answer's own.
fn parse(
    text: &[u8],
    target: &[u8],
    date: impl FnOnce() -> Option<i64>,
    now: Instant,
) -> Option<(Cookie, Life)> {
    let mut parts = text.split(|byte| *byte == b';');
    let (name, value) = pair_of(parts.next()?);
    let value = value?;
    let is_sendable = |byte: &u8| *byte >= 0x20 && *byte != 0x7F;
    let is_good = name.iter().chain(value).all(is_sendable);
    if name.is_empty() || !is_good || name.len() + value.len() > MOST_BYTES {
        return None;
    }
    let (mut path, mut max_age, mut expires) = (None, None, None);
    for part in parts {
        let (name, value) = pair_of(part);
        let value = value.unwrap_or_default();
        // Of an attribute that is there twice, the last counts.
        if name.eq_ignore_ascii_case(b"path") {
            path = Some(value).filter(|path| path.starts_with(b"/") && path.len() <= MOST_BYTES);
        } else if name.eq_ignore_ascii_case(b"max-age") {
            max_age = seconds(value).or(max_age);
        } else if name.eq_ignore_ascii_case(b"expires") {
            expires = http_date::seconds_of(value).or(expires);
        }
    }
    let left = match (max_age, expires) {
        (Some(seconds), _) => Some(seconds),
        (None, Some(end)) => match date() {
            Some(date) => Some(end.saturating_sub(date)),
            None if end < LONG_AGO => Some(0),
            None => None,
        },
        (None, None) => None,
    };
    let left = left.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    let cookie = Cookie {
        name: name.to_vec(),
        value: value.to_vec(),
        path: path.unwrap_or_else(|| default_path(target)).to_vec(),
        // Beyond what a clock can hold is for ever.
        ends: left.and_then(|left| now.checked_add(left)),
    };
    let is_over = left.is_some_and(|left| left.is_zero());
    Some((cookie, if is_over { Life::Over } else { Life::Goes }))
}

/// Name and value of `a = b`, trimmed.
fn pair_of(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b'=') {
        Some(at) => (text[..at].trim_ascii(), Some(text[at + 1..].trim_ascii())),
        None => (text.trim_ascii(), None),
    }
}

/// A count of seconds; what is too long for a number is for ever, with its sign.
fn seconds(text: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = str::from_utf8(digits).ok()?.parse().unwrap_or(i64::MAX);
    Some(if is_negative { 0 } else { number })
}

/// A request's path without its query.
fn path_of(target: &[u8]) -> &[u8] {
    target.split(|byte| *byte == b'?').next().unwrap_or(target)
}

/// **Source**: RFC 6265, 5.1.4: up to the last slash, which is not part of it.
fn default_path(target: &[u8]) -> &[u8] {
    let path = path_of(target);
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at @ 1..) => &path[..at],
        _ => b"/",
    }
}

/// **Source**: RFC 6265, 5.1.4.
fn is_under(path: &[u8], of: &[u8]) -> bool {
    path.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || of.ends_with(b"/") || rest.starts_with(b"/"))
}

#[cfg(test)]
#[path = "cookies_tests.rs"]
mod tests;
