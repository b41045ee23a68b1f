//! One operation on its connection: cookies put in and taken out, redirects followed.
//!
//! What neither keeps cookies nor follows anything, on a plain connection that is open, is
//! sent at once; the rest pays for itself.
//! Whoever wants to show what was sent gives a [`Trail`].
//!
//! **Source**: RFC 9110, 15.4: of what a redirect makes of a method; RFC 3986, 5.2: of its
//! address. **Invariant**: nothing is sent to any other server than the target.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::answer::{Answer, Keep};
use super::client::{Begun, ClientError, ExchangeError};
use super::connection::{Connection, Dialer};
use super::cookies::CookieJar;
use super::once::answer_on;
use super::plan::Target;
use super::prepare::Ready;
use super::request::Outgoing;
use crate::measure::ErrorClass;

/// What an exchange happens on.
#[derive(Debug)]
pub(super) struct Line<'l> {
    pub(super) connection: &'l mut Option<Connection>,
    /// How connections are made, and where to.
    pub(super) to: (&'l Dialer, SocketAddr),
    /// Where cookies are kept, if they are.
    pub(super) jar: Option<&'l mut CookieJar>,
    pub(super) trail: Option<&'l mut Trail>,
}

/// Every request of an exchange as it was sent, and what led from one to the next.
#[derive(Debug, Default)]
pub(super) struct Trail {
    pub(super) requests: Vec<Vec<u8>>,
    /// Status and `location`; one less than requests.
    pub(super) redirects: Vec<(u16, String)>,
}

/// How far an operation follows.
#[derive(Debug)]
pub(super) struct Redirects {
    most: u8,
    /// The target, as in the header `host`.
    host: String,
    /// `http` or `https`.
    scheme: &'static str,
}

/// An exchange under way.
pub(super) enum Exchanging<'l> {
    /// The usual one: all is sent on a plain connection that was open, and only the answer is
    /// waited for. Kept this small, and polled without a state machine, since it is what a
    /// request costs the generator.
    Sent(&'l mut Option<Connection>),
    /// Any other: on its own in memory.
    Other(Pin<Box<dyn Future<Output = Result<(), ClientError>> + 'l>>),
}

impl Future for Exchanging<'_> {
    type Output = Result<(), ClientError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Sent(connection) => {
                let Some(Connection::Plain(open)) = &mut **connection else {
                    unreachable!("something was sent on a plain connection");
                };
                let answered = ready!(open.poll_answer(cx));
                if answered.is_err() {
                    **connection = None;
                }
                Poll::Ready(answered)
            }
            Self::Other(other) => other.as_mut().poll(cx),
        }
    }
}

/// Sends a request; when what comes back is ready, the last answer is the connection's.
///
/// On a plain connection that is open the request leaves at once, before the first poll;
/// else nothing does.
/// **Cancel**: dropping it leaves the connection unusable; drop that too.
/// **Errors**: those of [`send`], and a redirect that cannot be followed; the connection
/// then has the answer that asked for it.
#[inline]
pub(super) fn exchange<'l>(
    line: Line<'l>,
    outgoing: &'l Outgoing<'_>,
    operation: &'l Ready,
    keep: Keep,
) -> Exchanging<'l> {
    let is_plain = line.jar.is_none() && line.trail.is_none() && operation.redirects.is_none();
    if !is_plain {
        return Exchanging::Other(Box::pin(follow(line, outgoing, operation, keep)));
    }
    let begun = match line.connection {
        Some(Connection::Plain(open)) if open.is_reusable() => {
            let begun = open.begin(outgoing, keep);
            if begun.is_none() {
                *line.connection = None;
            }
            begun
        }
        _ => None,
    };
    if matches!(begun, Some(Begun::Whole)) {
        return Exchanging::Sent(line.connection);
    }
    let sending = send(line.connection, line.to, outgoing, keep, begun);
    Exchanging::Other(Box::pin(sending))
}

/// Sends on the connection, or on a new one where it has been closed; the answer is then the
/// connection's. `begun`: how far a plain one that is open has come with it.
async fn send(
    connection: &mut Option<Connection>,
    (dialer, address): (&Dialer, SocketAddr),
    outgoing: &Outgoing<'_>,
    keep: Keep,
    mut begun: Option<Begun>,
) -> Result<(), ClientError> {
    if connection.as_ref().is_some_and(|open| !open.is_reusable()) {
        *connection = None;
    }
    loop {
        let was_open = connection.is_some();
        let open = match connection {
            Some(open) => open,
            None => connection.insert(Connection::open(dialer, address).await?),
        };
        let exchanged = match (begun.take(), &mut *open) {
            (Some(begun), Connection::Plain(open)) => open.finish(begun, outgoing).await,
            (_, open) => open.exchange(outgoing, keep).await,
        };
        match exchanged {
            Ok(()) => return Ok(()),
            Err(ExchangeError::Failed(error)) => {
                *connection = None;
                return Err(error);
            }
            Err(ExchangeError::Stale) => {
                *connection = None;
                if !was_open {
                    return Err(ClientError::new(
                        ErrorClass::Reset,
                        "the new connection was closed at once",
                    ));
                }
            }
        }
    }
}

async fn follow(
    mut line: Line<'_>,
    outgoing: &Outgoing<'_>,
    operation: &Ready,
    keep: Keep,
) -> Result<(), ClientError> {
    let mut request = Cow::Borrowed(outgoing.bytes());
    for n_followed in 0.. {
        let jar = line.jar.as_deref();
        let bytes = jar.map_or(Cow::Borrowed(&*request), |jar| with_cookies(jar, &request));
        if let Some(trail) = line.trail.as_deref_mut() {
            trail.requests.push(bytes.to_vec());
        }
        let sent = Outgoing::new(&bytes, outgoing.is_head());
        send(line.connection, line.to, &sent, keep, None).await?;
        let answer = answer_on(line.connection.as_ref());
        if let Some(jar) = line.jar.as_deref_mut() {
            jar.take(answer, target_of(&request), Instant::now());
        }
        let Some(redirects) = &operation.redirects else {
            break;
        };
        let Some(location) = location_of(answer).filter(|_| !operation.names(answer.status()))
        else {
            break;
        };
        let status = answer.status();
        let next = redirects.next(status, &location, &request, n_followed)?;
        if let Some(trail) = line.trail.as_deref_mut() {
            trail.redirects.push((status, location));
        }
        request = Cow::Owned(next);
    }
    Ok(())
}

/// Where an answer sends the client, if it does.
fn location_of(answer: &Answer) -> Option<String> {
    let is_redirect = matches!(answer.status(), 301 | 302 | 303 | 307 | 308);
    let location = answer.header("location").filter(|_| is_redirect)?;
    Some(String::from_utf8_lossy(location).into_owned())
}

/// The request with the cookies that go with it.
fn with_cookies<'r>(jar: &CookieJar, request: &'r [u8]) -> Cow<'r, [u8]> {
    let mut line = Vec::new();
    jar.push_line(target_of(request), Instant::now(), &mut line);
    if line.is_empty() {
        return Cow::Borrowed(request);
    }
    let (head, body) = split(request);
    Cow::Owned([head, &line, b"\r\n", body].concat())
}

/// The head with the end of its last line, and the body.
fn split(request: &[u8]) -> (&[u8], &[u8]) {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.map_or(request.len(), |end| end + 2);
    (&request[..end], request.get(end + 2..).unwrap_or_default())
}

/// Path and query of a request that was built here.
fn target_of(request: &[u8]) -> &[u8] {
    let mut words = request.split(|byte| *byte == b' ');
    words.nth(1).unwrap_or_default()
}

impl Redirects {
    /// At most so many; none at all is no following.
    pub(super) fn new(most: u8, target: &Target) -> Option<Self> {
        let redirects = || Self {
            most,
            host: target.host.clone(),
            scheme: if target.wire.tls.is_some() {
                "https"
            } else {
                "http"
            },
        };
        (most > 0).then(redirects)
    }

    /// The request that a redirect asks for.
    fn next(
        &self,
        status: u16,
        location: &str,
        request: &[u8],
        n_followed: u32,
    ) -> Result<Vec<u8>, ClientError> {
        let error = |why: String| Err(ClientError::new(ErrorClass::Status, why));
        let most = u32::from(self.most);
        if n_followed >= most {
            let times = if most == 1 { "redirect" } else { "redirects" };
            return error(format!(
                "status {status} after {most} {times}, now to {}",
                location.escape_debug()
            ));
        }
        let (head, body) = split(request);
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split_terminator("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let method = first.next().unwrap_or_default();
        let base = first.next().unwrap_or_default();
        let own_host = head
            .split_terminator("\r\n")
            .find_map(|line| line.strip_prefix("host: "));
        let hosts = [&self.host, own_host.unwrap_or_default()];
        let Some(path) = resolve(location, base, self.scheme, &hosts) else {
            return error(format!(
                "status {status} leads to {}, which is not the target ({}) and is not followed",
                location.escape_debug(),
                self.host
            ));
        };
        let becomes_get = match status {
            303 => method != "HEAD",
            301 | 302 => method == "POST",
            _ => false,
        };
        let method = if becomes_get { "GET" } else { method };
        let mut next = format!("{method} {path} HTTP/1.1\r\n");
        for line in lines {
            let is_about_body = line
                .get(.."content-".len())
                .is_some_and(|name| name.eq_ignore_ascii_case("content-"));
            if !(becomes_get && is_about_body) {
                next.push_str(line);
                next.push_str("\r\n");
            }
        }
        next.push_str("\r\n");
        let mut next = next.into_bytes();
        if !becomes_get {
            next.extend_from_slice(body);
        }
        Ok(next)
    }
}

/// The path that a reference leads to from `base`; `None` when it leads elsewhere.
fn resolve(reference: &str, base: &str, own_scheme: &str, hosts: &[&str]) -> Option<String> {
    let reference = reference.split('#').next().unwrap_or_default();
    let after_scheme = match scheme_of(reference) {
        Some(scheme) if scheme.eq_ignore_ascii_case(own_scheme) => &reference[scheme.len() + 1..],
        Some(_) => return None,
        None => reference,
    };
    let has_scheme = after_scheme.len() < reference.len();
    let path = if let Some(rest) = after_scheme.strip_prefix("//") {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !hosts
            .iter()
            .any(|host| is_same_host(authority, host, own_scheme))
        {
            return None;
        }
        if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        }
    } else if has_scheme {
        return None;
    } else if reference.starts_with('/') {
        reference.to_owned()
    } else {
        let base_path = base.split('?').next().unwrap_or_default();
        match reference.chars().next() {
            None => base.to_owned(),
            Some('?') => format!("{base_path}{reference}"),
            Some(_) => {
                let folder = base_path.rfind('/').map_or("", |at| &base_path[..at]);
                format!("{folder}/{reference}")
            }
        }
    };
    Some(sendable(&without_dots(&path)))
}

/// What stands before the colon of an address that begins with its scheme.
fn scheme_of(reference: &str) -> Option<&str> {
    let end = reference.find([':', '/', '?'])?;
    let scheme = &reference[..end];
    let is_letter = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_letter && reference[end..].starts_with(':')).then_some(scheme)
}

fn is_same_host(a: &str, b: &str, scheme: &str) -> bool {
    let usual_port = if scheme == "https" { ":443" } else { ":80" };
    let without_port = |host: &str| {
        host.strip_suffix(usual_port)
            .unwrap_or(host)
            .to_ascii_lowercase()
    };
    !a.is_empty() && without_port(a) == without_port(b)
}

/// **Source**: RFC 3986, 5.2.4.
fn without_dots(target: &str) -> String {
    let (path, query) = match target.find('?') {
        Some(at) => target.split_at(at),
        None => (target, ""),
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                // `/a/..` is the folder, not a file without a name beside it.
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

/// As browsers do it: what stands in no path is percent-encoded.
fn sendable(target: &str) -> String {
    let mut out = String::with_capacity(target.len());
    for byte in target.bytes() {
        if byte.is_ascii_graphic() {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
