//! One journey, every request and answer in full: for writing a workload.
//!
//! The same preparation, client and judgement as the measured load; only the
//! pacing and recording are missing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::answer::{Answer, Keep};
use super::client::{ClientError, Connection};
use super::cookies::CookieJar;
use super::decode;
use super::exchange::{Line, Trail, exchange as send_in};
use super::generator::LoadError;
use super::journey::no_answer_within;
use super::plan::Target;
use super::prepare::{Ready, prepare};
use super::request::{Outgoing, RequestBuffer};
use super::template::{Counter, Dynamic};
use super::workload::{Cookies, OnFailure, Workload};
use crate::measure::{ErrorClass, Outcome};

/// One request and what came back.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// The operation's name.
    pub operation: String,
    /// The request; `None` when it could not be built.
    pub request: Option<SentRequest>,
    /// Redirects that were followed, in order.
    pub redirects: Vec<Redirect>,
    /// The last answer; `None` when there was none.
    pub answer: Option<ReceivedAnswer>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it is not a success.
    pub why: Option<String>,
    /// From the send to the whole answer, connecting included.
    pub latency: Duration,
}

/// A redirect that was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The status that asked for it.
    pub status: u16,
    /// Where to, as the answer says it.
    pub location: String,
    /// The request that came of it.
    pub request: SentRequest,
}

/// A request as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    /// `GET` and so on.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body; bytes that are no text are replaced.
    pub body: String,
}

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedAnswer {
    /// The status.
    pub status: u16,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body, decoded; bytes that are no text are replaced.
    pub body: String,
}

/// Runs one journey.
///
/// Stops at the first failed step unless the workload goes on after failures;
/// think times are left out.
///
/// **Errors**: names without a value, requests that cannot be built.
pub async fn once(
    target: &Target,
    workload: &Workload,
    variables: &IndexMap<String, String>,
    timeout: Duration,
) -> Result<Vec<Exchange>, LoadError> {
    let prepared = prepare(workload, target, variables)?;
    let Some(&address) = target.addresses.first() else {
        return Err(LoadError::BadPlan("its target has no address".to_owned()));
    };
    let mut captures = vec![None; prepared.captures.len()];
    let mut random = fastrand::Rng::new();
    let mut counter = Counter::new(0, 1);
    let mut session = Session {
        address,
        timeout,
        connection: None,
        jar: (prepared.cookies != Cookies::Off).then(CookieJar::default),
    };
    let mut buffer = RequestBuffer::default();
    let mut exchanges = Vec::new();
    for operation in &prepared.operations {
        let mut dynamic = Dynamic {
            captures: &captures,
            random: &mut random,
            counter: &mut counter,
            user: 0,
        };
        let mut exchange = Exchange {
            operation: prepared.names[operation.name as usize].clone(),
            request: None,
            redirects: Vec::new(),
            answer: None,
            outcome: Outcome::Success,
            why: None,
            latency: Duration::ZERO,
        };
        let mut found = Vec::new();
        let request = &operation.request;
        match request.build(&prepared.captures, &mut dynamic, &mut buffer) {
            Err(why) => fail(&mut exchange, ClientError::new(ErrorClass::Template, why)),
            Ok(outgoing) => match session.send(&outgoing, operation, &mut exchange).await {
                Ok(()) => {
                    let answer = answer_on(session.connection.as_ref());
                    let judged = operation.judge(&prepared, answer, &mut dynamic, &mut found);
                    exchange.outcome = judged.outcome;
                    exchange.why = judged.why;
                    exchange.answer = Some(ReceivedAnswer::of(answer));
                }
                Err(error) => fail(&mut exchange, error),
            },
        }
        for (slot, value) in found {
            captures[slot] = Some(value);
        }
        let is_failure = exchange.outcome != Outcome::Success;
        exchanges.push(exchange);
        if is_failure && prepared.on_failure == OnFailure::Abort {
            break;
        }
    }
    Ok(exchanges)
}

/// What the journey's requests share.
struct Session {
    address: SocketAddr,
    timeout: Duration,
    connection: Option<Connection>,
    jar: Option<CookieJar>,
}

impl Session {
    /// Sends a request and notes what went out; the answer is then the connection's.
    async fn send(
        &mut self,
        outgoing: &Outgoing<'_>,
        operation: &Ready,
        exchange: &mut Exchange,
    ) -> Result<(), ClientError> {
        let mut trail = Trail::default();
        let line = Line {
            connection: &mut self.connection,
            address: self.address,
            jar: self.jar.as_mut(),
            trail: Some(&mut trail),
        };
        let timeout = operation.timeout.unwrap_or(self.timeout);
        let began = Instant::now();
        let sending = send_in(line, outgoing, operation, Keep::All);
        let sent = tokio::time::timeout(timeout, sending).await;
        exchange.latency = began.elapsed();
        exchange.tell(trail);
        let Ok(sent) = sent else {
            self.connection = None;
            let message = no_answer_within(timeout);
            return Err(ClientError::new(ErrorClass::Timeout, message));
        };
        if sent.is_err() {
            // A redirect that could not be followed is an answer, too.
            let answer = self.connection.as_ref().map(Connection::answer);
            exchange.answer = answer.map(ReceivedAnswer::of);
        }
        sent
    }
}

impl Exchange {
    /// Notes what was sent.
    fn tell(&mut self, trail: Trail) {
        let mut requests = trail.requests.iter().map(|request| describe(request));
        self.request = requests.next();
        let redirects = trail.redirects.into_iter().zip(requests);
        self.redirects = redirects
            .map(|((status, location), request)| Redirect {
                status,
                location,
                request,
            })
            .collect();
    }
}

fn fail(exchange: &mut Exchange, error: ClientError) {
    exchange.outcome = Outcome::Error(error.class);
    exchange.why = Some(error.message);
}

/// The answer that a finished exchange left.
pub(super) fn answer_on(connection: Option<&Connection>) -> &Answer {
    connection
        .map(Connection::answer)
        .expect("an answer was read on a connection")
}

impl ReceivedAnswer {
    fn of(answer: &Answer) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            status: answer.status(),
            headers: answer
                .headers()
                .map(|(name, value)| (name.to_ascii_lowercase(), text(value)))
                .collect(),
            // What cannot be decoded is shown as it came.
            body: match decode::body_of(answer) {
                Ok(body) => text(&body),
                Err(_) => text(answer.body()),
            },
        }
    }
}

/// A request taken apart again: it was built as text, line by line.
fn describe(request: &[u8]) -> SentRequest {
    let text = String::from_utf8_lossy(request);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let mut word = || first.next().unwrap_or_default().to_owned();
    SentRequest {
        method: word(),
        path: word(),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    }
}

#[cfg(test)]
#[path = "once_tests.rs"]
mod tests;
