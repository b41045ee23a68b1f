//! Each journey once, every request and answer in full: for writing a workload.
//!
//! The same preparation, client and judgement as the measured load; only the
//! pacing and recording are missing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use serde_json::Value;

use super::answer::{Answer, Keep};
use super::client::ClientError;
use super::connection::{Connection, Dialer};
use super::cookies::CookieJar;
use super::data::Rows;
use super::decode;
use super::exchange::{Line, Trail, exchange as send_in};
use super::generator::LoadError;
use super::journey::no_answer_within;
use super::numbers::{ForWhom, Numbers};
use super::plan::Target;
use super::prepare::{Prepared, Ready, prepare};
use super::request::{Outgoing, RequestBuffer};
use super::template::Counter;
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

/// Does the set-ups, then each journey once.
///
/// A set-up that fails ends it. A journey stops at its first failed step unless the
/// workload goes on after failures; think times are left out. Of a step that repeats the
/// last attempt is shown.
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
    // Rows of data files: the first of each.
    let whom = ForWhom {
        user: 0,
        rows: Rows {
            sets: &prepared.data,
            picked: &[],
        },
    };
    let mut once = Once {
        prepared: &prepared,
        numbers: Numbers::new(fastrand::Rng::new(), Counter::new(0, 1)),
        whom,
        session: Session {
            to: (&prepared.dialer, address),
            timeout,
            connection: None,
            jar: (prepared.cookies != Cookies::Off).then(CookieJar::default),
        },
        buffer: RequestBuffer::default(),
    };
    let mut exchanges = Vec::new();
    let mut kept = vec![None; prepared.captures.len()];
    for setup in &prepared.setups {
        let names = &prepared.setup_names;
        let (shown, is_good) = once
            .steps(&setup.operations, names, OnFailure::Abort, &mut kept)
            .await;
        exchanges.extend(shown);
        if !is_good {
            return Ok(exchanges);
        }
    }
    for (index, journey) in prepared.journeys.iter().enumerate() {
        let steps = prepared.of_journey(index);
        let mut captures = kept.clone();
        if prepared.cookies == Cookies::Journey {
            once.session.jar = Some(CookieJar::default());
        }
        let (shown, _) = once
            .steps(steps, &prepared.names, journey.on_failure, &mut captures)
            .await;
        exchanges.extend(shown);
    }
    Ok(exchanges)
}

/// What requests are sent with.
struct Once<'a> {
    prepared: &'a Prepared,
    numbers: Numbers,
    whom: ForWhom<'a>,
    session: Session<'a>,
    buffer: RequestBuffer,
}

impl Once<'_> {
    /// Sends steps in turn; whether all succeeded.
    async fn steps(
        &mut self,
        steps: &[Ready],
        names: &[String],
        on_failure: OnFailure,
        captures: &mut [Option<Value>],
    ) -> (Vec<Exchange>, bool) {
        let mut exchanges = Vec::new();
        let mut is_good = true;
        for step in steps {
            let mut attempt = 1;
            let exchange = loop {
                let name = &names[step.name as usize];
                let (exchange, again) = self.attempt(step, name, attempt, captures).await;
                let Some(wait) = again else {
                    break exchange;
                };
                attempt += 1;
                tokio::time::sleep(wait).await;
            };
            let is_failure = exchange.outcome != Outcome::Success;
            is_good &= !is_failure;
            exchanges.push(exchange);
            if is_failure && on_failure == OnFailure::Abort {
                break;
            }
        }
        (exchanges, is_good)
    }

    /// One attempt; after which time there is another.
    async fn attempt(
        &mut self,
        step: &Ready,
        name: &str,
        attempt: u32,
        captures: &mut [Option<Value>],
    ) -> (Exchange, Option<Duration>) {
        let Self {
            prepared,
            numbers,
            whom,
            session,
            buffer,
        } = self;
        let mut exchange = Exchange {
            operation: name.to_owned(),
            request: None,
            redirects: Vec::new(),
            answer: None,
            outcome: Outcome::Success,
            why: None,
            latency: Duration::ZERO,
        };
        let request = &step.request;
        let built = numbers.lend(captures, *whom, |dynamic| {
            request.build(&prepared.captures, dynamic, buffer)
        });
        let sent = match built {
            Ok(outgoing) => session.send(&outgoing, step, &mut exchange).await,
            Err(why) => Err(ClientError::new(ErrorClass::Template, why)),
        };
        if let Err(error) = sent {
            fail(&mut exchange, error);
            return (exchange, None);
        }
        let answer = answer_on(session.connection.as_ref());
        let mut found = Vec::new();
        let (judged, again) = numbers.lend(captures, *whom, |dynamic| {
            step.judge_attempt(prepared, attempt, answer, dynamic, &mut found)
        });
        exchange.outcome = judged.outcome;
        exchange.why = judged.why;
        exchange.answer = Some(ReceivedAnswer::of(answer));
        for (slot, value) in found {
            captures[slot] = Some(value);
        }
        (exchange, again)
    }
}

/// What requests are sent on.
struct Session<'d> {
    to: (&'d Dialer, SocketAddr),
    timeout: Duration,
    connection: Option<Connection>,
    jar: Option<CookieJar>,
}

impl Session<'_> {
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
            to: self.to,
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
