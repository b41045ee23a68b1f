//! One journey, every request and answer in full: for writing a workload.
//!
//! The same preparation, client and judgement as the measured load; only the
//! pacing and recording are missing.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::header::HeaderMap;
use indexmap::IndexMap;

use super::client::{ClientError, Connection, Keep};
use super::generator::LoadError;
use super::journey::send;
use super::plan::Target;
use super::prepare::prepare;
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
        match operation.request(&prepared.captures, &mut dynamic) {
            Err(why) => fail(
                &mut exchange,
                ClientError {
                    class: ErrorClass::Template,
                    message: why,
                },
            ),
            Ok(outgoing) => {
                exchange.request = Some(describe(&outgoing).await);
                let sent = Instant::now();
                let sending = send(&mut connection, address, outgoing, Keep::All);
                let answer = tokio::time::timeout(timeout, sending).await;
                exchange.latency = sent.elapsed();
                match answer {
                    Ok(Ok(answer)) => {
                        let judged = operation.judge(&prepared, &answer, &mut dynamic, &mut found);
                        exchange.outcome = judged.outcome;
                        exchange.why = judged.why;
                        exchange.answer = Some(ReceivedAnswer {
                            status: answer.status.as_u16(),
                            headers: described(&answer.headers),
                            body: String::from_utf8_lossy(&answer.body).into_owned(),
                        });
                    }
                    Ok(Err(error)) => fail(&mut exchange, error),
                    Err(_) => {
                        connection = None;
                        let message = format!("no whole answer within {timeout:?}");
                        let class = ErrorClass::Timeout;
                        fail(&mut exchange, ClientError { class, message });
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

async fn describe(outgoing: &super::client::Outgoing) -> SentRequest {
    let Ok(body) = outgoing.body().clone().collect().await;
    SentRequest {
        method: outgoing.method().to_string(),
        path: outgoing.uri().to_string(),
        headers: described(outgoing.headers()),
        body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    }
}

fn described(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        })
        .collect()
}

#[cfg(test)]
#[path = "once_tests.rs"]
mod tests;
