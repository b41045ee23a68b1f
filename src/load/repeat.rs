//! `repeat`: a step that is sent again until its answer says that something is done.
//!
//! Each attempt is a request of its own and is counted as one: a success where it met
//! `expect`, whether or not `until` holds. The last one decides for the journey: the one
//! of which `until` holds, which alone is captured from, or the one at which no attempt
//! is left, which is an error of class `body`. An attempt that does not meet `expect` ends
//! the repeating. Rates count the step as one request.

use std::time::Duration;

use super::answer::Answer;
use super::prepare::{Judged, Prepared, Ready};
use super::template::Dynamic;
use crate::measure::{ErrorClass, Outcome};

/// Until when a step is sent again.
#[derive(Debug)]
pub(super) struct Repeat {
    /// Its `expect` is what must hold at the end; never sent.
    pub(super) until: Ready,
    /// The step without its captures, for answers that come before; never sent.
    pub(super) before: Ready,
    /// From an answer to the next attempt.
    pub(super) every: Duration,
    /// At least 2.
    pub(super) at_most: u32,
}

impl Repeat {
    /// Why `until` does not hold; `None` where it does.
    pub(super) fn open(
        &self,
        prepared: &Prepared,
        answer: &Answer,
        dynamic: &mut Dynamic<'_>,
    ) -> Option<String> {
        let judged = self.until.judge(prepared, answer, dynamic, &mut Vec::new());
        let why = || {
            judged
                .why
                .unwrap_or_else(|| format!("status {}", answer.status()))
        };
        (judged.outcome != Outcome::Success).then(why)
    }

    /// Judges an answer of which `until` does not hold.
    pub(super) fn go_on(
        &self,
        prepared: &Prepared,
        attempt: u32,
        answer: &Answer,
        dynamic: &mut Dynamic<'_>,
        why: &str,
    ) -> (Judged, Option<Duration>) {
        let judged = self
            .before
            .judge(prepared, answer, dynamic, &mut Vec::new());
        if judged.outcome != Outcome::Success {
            return (judged, None);
        }
        if attempt < self.at_most {
            return (judged, Some(self.every));
        }
        let given_up = format!("not done after {attempt} attempts: {why}");
        (Judged::error(ErrorClass::Body, given_up), None)
    }
}
