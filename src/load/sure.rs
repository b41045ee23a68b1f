//! Steps every one of which must succeed: set-ups, and journeys that fill a database.
//!
//! The same requests, connection and judgement as the measured load's, without its clock:
//! nothing of them is in any figure.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::answer::Keep;
use super::connection::{Connection, Dialer};
use super::cookies::CookieJar;
use super::exchange::{Line, exchange};
use super::fine_timer::Waits;
use super::journey::no_answer_within;
use super::numbers::{ForWhom, Numbers};
use super::once::answer_on;
use super::prepare::{Prepared, Ready};
use super::request::RequestBuffer;
use crate::measure::Outcome;

/// What steps are sent with.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) numbers: &'a Numbers,
    pub(super) whom: ForWhom<'a>,
    /// How connections are made, and where to.
    pub(super) to: (&'a Dialer, SocketAddr),
    /// By what waits and limits are timed.
    pub(super) waits: Waits<'a>,
    /// Longest wait for one answer.
    pub(super) timeout: Duration,
    pub(super) connection: &'a mut Option<Connection>,
    /// Where cookies are kept, if they are.
    pub(super) jar: Option<&'a mut CookieJar>,
    pub(super) buffer: &'a mut RequestBuffer,
}

/// Why they did not all succeed.
#[derive(Debug)]
pub(super) struct Unsuccessful {
    /// The request, by its index among the names of its kind.
    pub(super) name: u32,
    pub(super) why: String,
}

impl Sender<'_> {
    /// Sends all steps; what they capture is put into `captures`.
    ///
    /// **Errors**: the first one that does not succeed.
    pub(super) async fn send_all(
        &mut self,
        steps: &[Ready],
        captures: &mut [Option<Value>],
    ) -> Result<(), Unsuccessful> {
        for step in steps {
            self.send_one(step, captures)
                .await
                .map_err(|why| Unsuccessful {
                    name: step.name,
                    why,
                })?;
            if !step.think.is_zero() {
                self.waits.sleep(step.think).await;
            }
        }
        Ok(())
    }

    async fn send_one(
        &mut self,
        step: &Ready,
        captures: &mut [Option<Value>],
    ) -> Result<(), String> {
        let mut attempt = 1;
        while let Some(wait) = self.attempt(step, attempt, captures).await? {
            self.waits.sleep(wait).await;
            attempt += 1;
        }
        Ok(())
    }

    /// One attempt; after which time there is another.
    async fn attempt(
        &mut self,
        step: &Ready,
        attempt: u32,
        captures: &mut [Option<Value>],
    ) -> Result<Option<Duration>, String> {
        let names = &self.prepared.captures;
        let outgoing = self.numbers.lend(captures, self.whom, |dynamic| {
            step.request.build(names, dynamic, self.buffer)
        })?;
        let line = Line {
            connection: &mut *self.connection,
            to: self.to,
            jar: self.jar.as_deref_mut(),
            trail: None,
        };
        let sending = exchange(line, &outgoing, step, Keep::All);
        let timeout = step.timeout.unwrap_or(self.timeout);
        if let Some(sent) = self.waits.within(timeout, sending).await {
            sent.map_err(|error| error.message)?;
        } else {
            // Its answer may still come, and would be taken for the next one's.
            *self.connection = None;
            return Err(no_answer_within(timeout));
        }
        let answer = answer_on(self.connection.as_ref());
        let mut found = Vec::new();
        let (judged, again) = self.numbers.lend(captures, self.whom, |dynamic| {
            step.judge_attempt(self.prepared, attempt, answer, dynamic, &mut found)
        });
        if judged.outcome != Outcome::Success {
            let status = answer.status();
            return Err(judged.why.unwrap_or_else(|| format!("status {status}")));
        }
        for (slot, value) in found {
            captures[slot] = Some(value);
        }
        Ok(again)
    }
}
