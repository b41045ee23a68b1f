//! Asking the stack's services what they say of their own knobs.
//!
//! A misspelt variable passes every proof from outside: the container was made with it. The
//! service is asked after it is ready and again when its load has ended, so that it answers
//! at once. **Invariant**: only an answer that says the planned value lets a trial go on.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::shell::{Trial, until_asked};
use super::{Reason, Signal};
use crate::engine::{ContainerId, Engine, LaunchTarget, Launched, ReadyProbe, reach};
use crate::problem::chain;
use crate::reported::{Reported, is_same_value};
use crate::units::format_duration;

/// A service may fill a pool or a page of metrics a moment after it answers.
const KNOB_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two questions.
const KNOB_PAUSE: Duration = Duration::from_millis(250);

/// A knob as the service itself reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// As the user wrote it.
    pub url: String,
    /// The service and its port.
    pub place: LaunchTarget,
    /// Path and query.
    pub path: String,
    /// Where the value is in the answer.
    pub reported: Reported,
    /// What it must be.
    pub expected: String,
}

impl<E: Engine> Trial<'_, '_, E> {
    /// Asks before there is load; the signal that keeps it from beginning.
    pub(super) async fn ask_when_ready(&mut self, launched: &Launched) -> Option<Signal> {
        let mut asked = self.shared.interrupted.clone();
        tokio::select! {
            biased;
            () = until_asked(&mut asked, 1) => Some(Signal::Interrupted),
            checked = self.check_knobs(launched, "ready") => checked.err().map(Signal::Broke),
        }
    }

    /// Asks for every knob of the cell; the first that is not as planned ends the trial.
    pub(super) async fn check_knobs(
        &mut self,
        launched: &Launched,
        edge: &'static str,
    ) -> Result<(), Reason> {
        let knobs = &self.job.knobs;
        if knobs.is_empty() {
            return Ok(());
        }
        let engine = &**self.shared.engine;
        let answers = join_all(knobs.iter().map(|knob| ask(engine, launched, knob))).await;
        let lines: Vec<Value> = knobs
            .iter()
            .zip(&answers)
            .map(|(knob, answer)| {
                json!({
                    "url": knob.url,
                    "asked": knob.reported.to_string(),
                    "planned": knob.expected,
                    "found": answer.as_ref().ok(),
                    "wrong": answer.as_ref().err(),
                })
            })
            .collect();
        self.keep_proof(None, edge, json!({ "knobs": lines }));
        let wrong = answers.into_iter().find_map(Result::err);
        wrong.map_or(Ok(()), |words| Err(Reason::new("knob_not_applied", words)))
    }
}

/// Asks until the planned value is said; else what was said last, in words.
async fn ask<E: Engine>(engine: &E, launched: &Launched, knob: &Knob) -> Result<String, String> {
    let begun = Instant::now();
    let mut seen;
    loop {
        let left = KNOB_LIMIT.saturating_sub(begun.elapsed());
        match tokio::time::timeout(left, ask_once(engine, launched, knob, left)).await {
            Ok(Ok(found)) if is_same_value(&found, &knob.expected) => return Ok(found),
            Ok(Ok(found)) => {
                seen = format!("it is {found}");
            }
            Ok(Err(words)) => seen = words,
            Err(_) => seen = "no answer".to_owned(),
        }
        if begun.elapsed() + KNOB_PAUSE >= KNOB_LIMIT {
            return Err(format!(
                "`{}` at {} should be {} and {seen} (asked for {})",
                knob.reported,
                knob.url,
                knob.expected,
                format_duration(KNOB_LIMIT)
            ));
        }
        tokio::time::sleep(KNOB_PAUSE).await;
    }
}

/// The value as the service says it now; else why there is none, as a sentence.
async fn ask_once<E: Engine>(
    engine: &E,
    launched: &Launched,
    knob: &Knob,
    limit: Duration,
) -> Result<String, String> {
    let service = &knob.place.service;
    let containers = launched
        .containers
        .get(service)
        .map_or(&[][..], Vec::as_slice);
    let mut said = Err(format!("service `{service}` is not launched"));
    for id in containers {
        said = Ok(ask_container(engine, launched, knob, id, limit).await?);
        // Of several containers, the one that differs is the one to tell of.
        if said
            .as_ref()
            .is_ok_and(|found| !is_same_value(found, &knob.expected))
        {
            break;
        }
    }
    said
}

async fn ask_container<E: Engine>(
    engine: &E,
    launched: &Launched,
    knob: &Knob,
    id: &ContainerId,
    limit: Duration,
) -> Result<String, String> {
    let LaunchTarget { service, port } = &knob.place;
    let address = reach(engine, launched, service, id, *port)
        .await
        .map_err(|error| format!("cannot be asked: {}", chain(&error)))?;
    let probe = ReadyProbe {
        path: knob.path.clone(),
        status: 200,
        host: format!("{service}:{port}"),
    };
    let page = engine
        .fetch(address, &probe, limit)
        .await
        .map_err(|failure| format!("cannot be asked: {failure}"))?;
    if page.status != 200 {
        return Err(format!("the answer has status {}", page.status));
    }
    knob.reported
        .find(&page.body)
        .map_err(|why| format!("the answer {why}"))
}
