//! Each journey once, every request and answer in full: for writing a workload.
//!
//! The same preparation, client and judgement as the measured load; only the
//! pacing and recording are missing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use serde_json::Value;

use super::answer::{Answer, Keep};
use super::client::{ClientError, Connection};
use super::data::Rows;
use super::generator::LoadError;
use super::journey::send;
use super::numbers::{ForWhom, Numbers};
use super::plan::Target;
use super::prepare::{Prepared, Ready, prepare};
use super::request::{Outgoing, RequestBuffer};
use super::template::Counter;
use super::workload::{OnFailure, Workload};
use crate::measure::{ErrorClass, Outcome};

/// One request and what came back.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// The operation's name.
    pub operation: String,
    /// The request; `None` when it could not be built.
    pub request: Option<SentRequest>,
    /// The answer; `None` when there was none.
    pub answer: Option<ReceivedAnswer>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it is not a success.
    pub why: Option<String>,
    /// From the send to the whole answer, connecting included.
    pub latency: Duration,
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
    /// The body; bytes that are no text are replaced.
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
        address,
        timeout,
        numbers: Numbers::new(fastrand::Rng::new(), Counter::new(0, 1)),
        whom,
        connection: None,
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
    address: SocketAddr,
    timeout: Duration,
    numbers: Numbers,
    whom: ForWhom<'a>,
    connection: Option<Connection>,
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
            connection,
            buffer,
            ..
        } = self;
        let mut exchange = Exchange {
            operation: name.to_owned(),
            request: None,
            answer: None,
            outcome: Outcome::Success,
            why: None,
            latency: Duration::ZERO,
        };
        let request = &step.request;
        let built = numbers.lend(captures, *whom, |dynamic| {
            request.build(&prepared.captures, dynamic, buffer)
        });
        let outgoing = match built {
            Ok(outgoing) => outgoing,
            Err(why) => {
                fail(&mut exchange, ClientError::new(ErrorClass::Template, why));
                return (exchange, None);
            }
        };
        exchange.request = Some(describe(&outgoing));
        let sent = Instant::now();
        let sending = send(connection, self.address, &outgoing, Keep::All);
        let answer = tokio::time::timeout(self.timeout, sending).await;
        exchange.latency = sent.elapsed();
        match answer {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                fail(&mut exchange, error);
                return (exchange, None);
            }
            Err(_) => {
                *connection = None;
                let message = format!("no whole answer within {:?}", self.timeout);
                fail(
                    &mut exchange,
                    ClientError::new(ErrorClass::Timeout, message),
                );
                return (exchange, None);
            }
        }
        let answer = answer_on(connection.as_ref());
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
            body: text(answer.body()),
        }
    }
}

/// A request taken apart again: it was built as text, line by line.
fn describe(outgoing: &Outgoing<'_>) -> SentRequest {
    let text = String::from_utf8_lossy(outgoing.bytes());
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
