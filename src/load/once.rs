//! One journey, every request and answer in full: for writing a workload.
//!
//! The same preparation, client and judgement as the measured load; only the
//! pacing and recording are missing.

use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::answer::{Answer, Keep};
use super::client::ClientError;
use super::connection::Connection;
use super::generator::LoadError;
use super::journey::send;
use super::plan::Target;
use super::prepare::prepare;
use super::request::{Outgoing, RequestBuffer};
use super::template::{Counter, Dynamic};
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
    let mut connection: Option<Connection> = None;
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
            answer: None,
            outcome: Outcome::Success,
            why: None,
            latency: Duration::ZERO,
        };
        let mut found = Vec::new();
        let request = &operation.request;
        match request.build(&prepared.captures, &mut dynamic, &mut buffer) {
            Err(why) => fail(&mut exchange, ClientError::new(ErrorClass::Template, why)),
            Ok(outgoing) => {
                exchange.request = Some(describe(&outgoing));
                let sent = Instant::now();
                let sending = send(
                    &mut connection,
                    (&prepared.dialer, address),
                    &outgoing,
                    Keep::All,
                );
                let answer = tokio::time::timeout(timeout, sending).await;
                exchange.latency = sent.elapsed();
                match answer {
                    Ok(Ok(())) => {
                        let answer = answer_on(connection.as_ref());
                        let judged = operation.judge(&prepared, answer, &mut dynamic, &mut found);
                        exchange.outcome = judged.outcome;
                        exchange.why = judged.why;
                        exchange.answer = Some(ReceivedAnswer::of(answer));
                    }
                    Ok(Err(error)) => fail(&mut exchange, error),
                    Err(_) => {
                        connection = None;
                        let message = format!("no whole answer within {timeout:?}");
                        fail(
                            &mut exchange,
                            ClientError::new(ErrorClass::Timeout, message),
                        );
                    }
                }
            }
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
