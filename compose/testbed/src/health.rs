//! Whether the service is ready, and if not, why.
//!
//! Invariant: reading it never touches the database, so `/health` answers while the pools
//! are saturated. It is written by the start-up and by the watcher of [`crate::db`];
//! requests only leave the time of their last answer from the database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Faults;

/// This long without an answer to anyone means that the database hangs: a silent service
/// asks it twice a second.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// The flag that `/health` shows.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    faults: Faults,
    problem: Mutex<Option<String>>,
    last_answer_ms: AtomicU64,
}

impl Health {
    /// Not ready, until told otherwise.
    pub(crate) fn new(started: Instant, faults: Faults) -> Self {
        Self {
            started,
            faults,
            problem: Mutex::new(Some("starting".to_owned())),
            last_answer_ms: AtomicU64::new(0),
        }
    }

    /// The database has just answered someone.
    pub(crate) fn answered(&self) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_answer_ms.store(ms, Ordering::Relaxed);
    }

    /// How long ago the database last answered anyone.
    pub(crate) fn since_answer(&self) -> Duration {
        let at = Duration::from_millis(self.last_answer_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(at)
    }

    /// Sets the flag: `None` is healthy.
    pub(crate) fn set(&self, problem: Option<String>) {
        let text = problem
            .clone()
            .unwrap_or("the database answers, the schema is there".to_owned());
        let is_change = {
            let mut current = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *current, problem);
            before.is_none() != current.is_none()
        };
        if is_change {
            crate::log(&text);
        }
    }

    /// `Ok`, or the reason to show.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.faults.never_ready {
            return Err("NEVER_READY is set".to_owned());
        }
        if self.started.elapsed() < self.faults.ready_delay {
            return Err("READY_DELAY_MS has not passed".to_owned());
        }
        match &*self.problem.lock().unwrap_or_else(PoisonError::into_inner) {
            None if self.since_answer() > SILENCE_LIMIT => Err(format!(
                "the database has not answered anyone for {} s",
                self.since_answer().as_secs()
            )),
            None => Ok(()),
            Some(problem) => Err(problem.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_hide_a_healthy_database() {
        let health = Health::new(Instant::now(), Faults::default());
        assert_eq!(health.check(), Err("starting".to_owned()));
        health.set(None);
        assert_eq!(health.check(), Ok(()));

        let never = Health::new(
            Instant::now(),
            Faults {
                never_ready: true,
                ..Faults::default()
            },
        );
        never.set(None);
        assert!(never.check().is_err());

        let late = Faults {
            ready_delay: Duration::from_hours(1),
            ..Faults::default()
        };
        let late = Health::new(Instant::now(), late);
        late.set(None);
        assert!(late.check().is_err());
    }
}
