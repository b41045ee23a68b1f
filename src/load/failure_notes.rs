//! Which failures of a phase are put into words.
//!
//! Under a storm of errors the words would cost more than the requests, so they are made
//! now and then; but the first of each kind always has its own.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::measure::Outcome;

/// Failures are put into words at most so often.
const FAILURE_EVERY: Duration = Duration::from_millis(50);

/// What one load thread has noted in the phase.
#[derive(Debug, Default)]
pub(super) struct FailureNotes {
    last: Cell<Option<Instant>>,
    kinds: RefCell<Vec<Option<Outcome>>>,
}

impl FailureNotes {
    /// A phase begins: nothing of it has been noted.
    pub(super) fn clear(&self) {
        self.last.set(None);
        self.kinds.take();
    }

    /// Whether a failure is to be put into words; it counts as noted then.
    pub(super) fn takes(&self, now: Instant, outcome: Option<Outcome>) -> bool {
        let is_new = !self.kinds.borrow().contains(&outcome);
        if is_new {
            self.kinds.borrow_mut().push(outcome);
        }
        let is_long_ago = |last| now.saturating_duration_since(last) >= FAILURE_EVERY;
        let is_noted = is_new || self.last.get().is_none_or(is_long_ago);
        if is_noted {
            self.last.set(Some(now));
        }
        is_noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::ErrorClass;

    #[test]
    fn the_first_of_a_kind_is_noted_and_then_one_now_and_then() {
        let notes = FailureNotes::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let status = Some(Outcome::Error(ErrorClass::Status));
        assert!(notes.takes(start, status));
        assert!(!notes.takes(at(1), status));
        assert!(notes.takes(at(2), Some(Outcome::Abandoned)), "another kind");
        assert!(!notes.takes(at(51), status), "words were made 49 ms ago");
        assert!(notes.takes(at(52), status));
        notes.clear();
        assert!(notes.takes(at(53), status), "another phase");
    }
}
