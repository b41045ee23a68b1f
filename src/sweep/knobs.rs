//! Asking the stack's services what they say of their own knobs.
//!
//! A misspelt variable passes every proof from outside: the container was made with it. The
//! service is asked after it is ready and again when its load has ended, so that it answers
//! at once. **Invariant**: only an answer that says the planned value lets a load begin; after
//! it, only an answer that says another value takes its windows away.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::loading::Watched;
use super::shell::{Trial, until_asked};
use super::{Reason, Signal};
use crate::engine::{ContainerId, Engine, LaunchTarget, Launched, ReadyProbe, reach};
use crate::event::EventKind;
use crate::problem::chain;
use crate::reported::{Reported, is_same_value};
use crate::stack::Stack;
use crate::tls::Wire;
use crate::units::format_duration;

/// A service may fill a pool or a page of metrics a moment after it answers.
const KNOB_LIMIT: Duration = if cfg!(test) {
    Duration::from_secs(3)
} else {
    Duration::from_secs(10)
};
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
    /// What stands between us and the service.
    pub wire: Wire,
    /// Where the value is in the answer.
    pub reported: Reported,
    /// What it must be.
    pub expected: String,
}

/// What came of asking for a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// The planned value, as the service says it.
    Said(String),
    /// Another value, or an answer without one: a sentence.
    Differs(String),
    /// No answer that could say anything: a sentence.
    Silent(String),
}

impl Answer {
    fn wrong(&self) -> Option<&str> {
        match self {
            Self::Said(_) => None,
            Self::Differs(words) | Self::Silent(words) => Some(words),
        }
    }

    /// Which of two answers is the one to tell of.
    fn graver(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Differs(_), _) | (Self::Silent(_), Self::Said(_) | Self::Silent(_)) => self,
            _ => other,
        }
    }
}

impl<E: Engine> Trial<'_, '_, E> {
    /// Asks before there is load; the signal that keeps it from beginning.
    pub(super) async fn ask_when_ready(
        &mut self,
        launched: &Launched,
        watched: &mut Watched<'_>,
    ) -> Option<Signal> {
        let mut asked = self.shared.interrupted.clone();
        let answer = tokio::select! {
            biased;
            () = until_asked(&mut asked, 1) => return Some(Signal::Interrupted),
            reason = watched.ended() => return Some(Signal::Broke(reason)),
            answer = self.check_knobs(launched, "ready") => answer,
        };
        match answer {
            Answer::Said(_) => None,
            Answer::Differs(words) | Answer::Silent(words) => {
                let reason = Reason::new("knob_not_applied", words);
                Some(watched.explain(Signal::Broke(reason)).await)
            }
        }
    }

    /// Asks when the load has ended; a value that differs takes the windows away, since
    /// nobody knows since when it is so. An answer that cannot be had says nothing of them.
    pub(super) async fn ask_at_end(
        &mut self,
        launched: &Launched,
        watched: &mut Watched<'_>,
    ) -> Option<Signal> {
        if self.job.knobs.is_empty() {
            return None;
        }
        let mut asked = self.shared.interrupted.clone();
        let answer = tokio::select! {
            biased;
            () = until_asked(&mut asked, 1) => {
                self.is_knob_not_asked = true;
                return Some(Signal::Interrupted);
            }
            reason = watched.ended() => {
                self.is_knob_not_asked = true;
                self.keep_proof(None, "end", json!({ "knobs": [], "wrong": reason.words }));
                return Some(Signal::Broke(reason));
            }
            answer = self.check_knobs(launched, "end") => answer,
        };
        match answer {
            Answer::Said(_) => None,
            Answer::Differs(words) => {
                self.windows.clear();
                Some(Signal::Broke(Reason::new("knob_not_applied", words)))
            }
            Answer::Silent(words) => {
                self.is_knob_not_asked = true;
                (self.emit)(EventKind::Warned {
                    text: format!("trial {}, after its load: {words}", self.job.trial),
                });
                None
            }
        }
    }

    /// Asks for every knob of the cell; of their answers, the gravest.
    async fn check_knobs(&mut self, launched: &Launched, edge: &'static str) -> Answer {
        let knobs = &self.job.knobs;
        if knobs.is_empty() {
            return Answer::Said(String::new());
        }
        let (engine, stack) = (&**self.shared.engine, &*self.job.stack);
        let asks = knobs.iter().map(|knob| ask(engine, launched, stack, knob));
        let answers = join_all(asks).await;
        let line = |(knob, answer): (&Knob, &Answer)| {
            let found = match answer {
                Answer::Said(found) => Some(found),
                Answer::Differs(_) | Answer::Silent(_) => None,
            };
            json!({
                "url": knob.url,
                "asked": knob.reported.to_string(),
                "planned": knob.expected,
                "found": found,
                "wrong": answer.wrong(),
                "not_asked": matches!(answer, Answer::Silent(_)),
            })
        };
        let lines: Vec<Value> = knobs.iter().zip(&answers).map(line).collect();
        self.keep_proof(None, edge, json!({ "knobs": lines }));
        answers
            .into_iter()
            .fold(Answer::Said(String::new()), |gravest, answer| {
                gravest.graver(answer)
            })
    }
}

/// Asks until the planned value is said; else what was said last, in words.
async fn ask<E: Engine>(engine: &E, launched: &Launched, stack: &Stack, knob: &Knob) -> Answer {
    let begun = Instant::now();
    // What was once said stands until the service says something else.
    let mut seen = Answer::Silent("no answer".to_owned());
    loop {
        let left = KNOB_LIMIT.saturating_sub(begun.elapsed());
        let once = ask_once(engine, launched, stack, knob, left);
        seen = match tokio::time::timeout(left, once).await {
            Ok(Answer::Said(found)) => return Answer::Said(found),
            Ok(answer @ Answer::Differs(_)) => answer,
            Ok(answer @ Answer::Silent(_)) if !matches!(seen, Answer::Differs(_)) => answer,
            Ok(Answer::Silent(_)) | Err(_) => seen,
        };
        if begun.elapsed() + KNOB_PAUSE >= KNOB_LIMIT {
            let sentence = |seen: String| {
                format!(
                    "`{}` at {} should be {} and {seen} (asked for {})",
                    knob.reported,
                    knob.url,
                    knob.expected,
                    format_duration(KNOB_LIMIT)
                )
            };
            return match seen {
                Answer::Said(found) => Answer::Said(found),
                Answer::Differs(seen) => Answer::Differs(sentence(seen)),
                Answer::Silent(seen) => Answer::Silent(sentence(seen)),
            };
        }
        tokio::time::sleep(KNOB_PAUSE).await;
    }
}

/// What all containers of the service say now; the gravest of it, as half a sentence.
async fn ask_once<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
    knob: &Knob,
    limit: Duration,
) -> Answer {
    let service = &knob.place.service;
    let containers = launched
        .containers
        .get(service)
        .map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        return Answer::Silent(format!("service `{service}` is not launched"));
    }
    let asks = containers
        .iter()
        .map(|id| ask_container(engine, launched, stack, knob, id, limit));
    // Of several containers, the one that differs is the one to tell of.
    let answers = join_all(asks).await.into_iter();
    answers
        .reduce(Answer::graver)
        .unwrap_or_else(|| Answer::Silent("no answer".to_owned()))
}

async fn ask_container<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
    knob: &Knob,
    id: &ContainerId,
    limit: Duration,
) -> Answer {
    let LaunchTarget { service, port } = &knob.place;
    let address = match reach(engine, launched, stack, &knob.place, id).await {
        Ok(address) => address,
        Err(error) => return Answer::Silent(format!("cannot be asked: {}", chain(&error))),
    };
    let probe = ReadyProbe {
        path: knob.path.clone(),
        status: 200,
        host: format!("{service}:{port}"),
        wire: knob.wire.clone(),
    };
    let page = match engine.fetch(address, &probe, limit).await {
        Ok(page) => page,
        Err(failure) => return Answer::Silent(format!("cannot be asked: {failure}")),
    };
    if page.status != 200 {
        return Answer::Silent(format!("the answer has status {}", page.status));
    }
    match knob.reported.find(&page.body) {
        Ok(found) if is_same_value(&found, &knob.expected) => Answer::Said(found),
        Ok(found) => Answer::Differs(format!("it is {found}")),
        Err(why) => Answer::Differs(format!("the answer {why}")),
    }
}
