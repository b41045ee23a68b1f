//! From what k6 says to requests and journeys, each with its outcome. Pure.
//!
//! A check names no request. Within an iteration the requests of a virtual user
//! and its checks are told in order, and the checks of one call have one moment.
//! So the calls that follow a run of requests belong to the last of them, one
//! each: `get, check` and `batch, check, check` find theirs, and of a redirect's
//! hops it is the last. More calls than requests belong to the last request.
//!
//! **Invariant**: every request leaves exactly once; a failed check makes at least
//! one request of its iteration an error, or the journey where it had none.

use std::collections::{HashMap, VecDeque};

use super::samples::{Fate, Point, PointKind};
use crate::measure::{ErrorClass, Outcome};

/// So many requests of an iteration wait for checks; those before are taken as they are.
const MOST_WAITING: usize = 1_000;

/// A request or journey with its outcome.
///
/// **Units**: nanoseconds; moments since the end of set-up.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ended {
    Request {
        scenario: Box<str>,
        operation: Box<str>,
        sent_ns: i64,
        duration_ns: u64,
        outcome: Outcome,
        /// What failed.
        words: Option<Box<str>>,
    },
    Journey {
        scenario: Box<str>,
        ended_ns: i64,
        duration_ns: u64,
        outcome: Outcome,
    },
    /// Iterations that were due and never began.
    Dropped {
        scenario: Box<str>,
        at_ns: i64,
        n: u64,
    },
}

/// What is known of every virtual user's iteration.
#[derive(Debug, Default)]
pub(super) struct Journeys {
    users: HashMap<u64, User>,
}

#[derive(Debug, Default)]
struct User {
    iteration: u64,
    requests: VecDeque<Waiting>,
    calls: Vec<Call>,
    failure: Option<ErrorClass>,
}

#[derive(Debug)]
struct Waiting {
    scenario: Box<str>,
    operation: Box<str>,
    sent_ns: i64,
    duration_ns: u64,
    fate: Fate,
}

/// One call of `check`.
#[derive(Debug)]
struct Call {
    at_ns: i64,
    /// The first check of it that failed.
    failed: Option<Box<str>>,
}

impl Journeys {
    /// Takes a point in; what is certain by then goes to `ended`.
    pub(super) fn take(&mut self, point: Point, ended: &mut impl FnMut(Ended)) {
        let Point {
            at_ns,
            user,
            iteration,
            scenario,
            kind,
        } = point;
        if let PointKind::Dropped { n } = kind {
            ended(Ended::Dropped { scenario, at_ns, n });
            return;
        }
        let user = self.users.entry(user).or_default();
        if user.iteration != iteration {
            // One that was cut off has no end of its own.
            user.settle(ended);
            user.failure = None;
            user.iteration = iteration;
        }
        match kind {
            PointKind::Request {
                operation,
                duration_ns,
                fate,
            } => {
                if !user.calls.is_empty() {
                    user.settle(ended);
                }
                if user.requests.len() >= MOST_WAITING
                    && let Some(first) = user.requests.pop_front()
                {
                    user.leave(first, None, ended);
                }
                user.requests.push_back(Waiting {
                    scenario,
                    operation,
                    sent_ns: at_ns.saturating_sub_unsigned(duration_ns),
                    duration_ns,
                    fate,
                });
            }
            PointKind::Check { name, has_passed } => user.check(at_ns, name, has_passed),
            PointKind::Iteration { duration_ns } => {
                user.settle(ended);
                let outcome = user.failure.take().map_or(Outcome::Success, Outcome::Error);
                ended(Ended::Journey {
                    scenario,
                    ended_ns: at_ns,
                    duration_ns,
                    outcome,
                });
            }
            PointKind::Dropped { .. } => {}
        }
    }

    /// Lets go of everything: nothing follows.
    pub(super) fn end(&mut self, ended: &mut impl FnMut(Ended)) {
        for user in self.users.values_mut() {
            user.settle(ended);
        }
    }
}

impl User {
    fn check(&mut self, at_ns: i64, name: Box<str>, has_passed: bool) {
        if self.calls.last().is_none_or(|call| call.at_ns != at_ns) {
            self.calls.push(Call {
                at_ns,
                failed: None,
            });
        }
        if let Some(call) = self.calls.last_mut()
            && !has_passed
        {
            call.failed.get_or_insert(name);
        }
    }

    /// Gives every call its request, and lets them go.
    fn settle(&mut self, ended: &mut impl FnMut(Ended)) {
        let (n_requests, n_calls) = (self.requests.len(), self.calls.len());
        let mut failed: Vec<Option<Box<str>>> = vec![None; n_requests];
        for (index, call) in self.calls.drain(..).enumerate() {
            let Some(check) = call.failed else { continue };
            let first = n_requests.saturating_sub(n_calls);
            match failed.get_mut((first + index).min(n_requests.saturating_sub(1))) {
                Some(place) => drop(place.get_or_insert(check)),
                None => drop(self.failure.get_or_insert(ErrorClass::Body)),
            }
        }
        let requests = std::mem::take(&mut self.requests);
        for (request, check) in requests.into_iter().zip(failed) {
            self.leave(request, check, ended);
        }
    }

    fn leave(&mut self, request: Waiting, check: Option<Box<str>>, ended: &mut impl FnMut(Ended)) {
        let (outcome, words) = match (request.fate, check) {
            (Fate::Failed(class, words), _) => (Outcome::Error(class), Some(words)),
            (Fate::Refused, _) => (Outcome::Refused, None),
            (Fate::Expected, Some(check)) => (
                Outcome::Error(ErrorClass::Body),
                Some(format!("check `{check}` failed").into()),
            ),
            (Fate::Expected, None) => (Outcome::Success, None),
        };
        if let Outcome::Error(class) = outcome {
            self.failure.get_or_insert(class);
        }
        ended(Ended::Request {
            scenario: request.scenario,
            operation: request.operation,
            sent_ns: request.sent_ns,
            duration_ns: request.duration_ns,
            outcome,
            words,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_ns: i64, user: u64, iteration: u64, kind: PointKind) -> Point {
        Point {
            at_ns,
            user,
            iteration,
            scenario: "s".into(),
            kind,
        }
    }

    fn request(name: &str, fate: Fate) -> PointKind {
        PointKind::Request {
            operation: name.into(),
            duration_ns: 5,
            fate,
        }
    }

    fn get(name: &str) -> PointKind {
        request(name, Fate::Expected)
    }

    fn check(name: &str, has_passed: bool) -> PointKind {
        PointKind::Check {
            name: name.into(),
            has_passed,
        }
    }

    const END: PointKind = PointKind::Iteration { duration_ns: 50 };

    /// `name: outcome` of what left, in order; journeys are `-`.
    fn left(points: Vec<Point>) -> String {
        let mut journeys = Journeys::default();
        let mut words = Vec::new();
        let mut add = |ended: Ended| match ended {
            Ended::Request {
                operation, outcome, ..
            } => words.push(format!("{operation}: {}", outcome.code())),
            Ended::Journey { outcome, .. } => words.push(format!("-: {}", outcome.code())),
            Ended::Dropped { n, .. } => words.push(format!("{n} dropped")),
        };
        for point in points {
            journeys.take(point, &mut add);
        }
        journeys.end(&mut add);
        words.join(", ")
    }

    fn one_user(kinds: Vec<(i64, PointKind)>) -> String {
        left(
            kinds
                .into_iter()
                .map(|(at, kind)| point(at, 1, 0, kind))
                .collect(),
        )
    }

    #[test]
    fn a_check_belongs_to_the_request_before_it() {
        let kinds = vec![
            (1, get("a")),
            (2, check("ok", true)),
            (3, get("b")),
            (4, check("ok", true)),
            (4, check("body", false)),
            (5, get("c")),
            (6, END),
        ];
        assert_eq!(
            one_user(kinds),
            "a: success, b: error.body, c: success, -: error.body"
        );
    }

    #[test]
    fn a_batch_with_as_many_calls_is_checked_one_by_one_and_a_redirect_at_its_last_hop() {
        let batch = vec![
            (1, get("a")),
            (1, get("b")),
            (2, check("ok", false)),
            (3, check("ok", true)),
            (4, END),
        ];
        assert_eq!(one_user(batch), "a: error.body, b: success, -: error.body");
        let redirect = vec![
            (1, get("hop")),
            (2, get("end")),
            (3, check("ok", false)),
            (4, END),
        ];
        assert_eq!(
            one_user(redirect),
            "hop: success, end: error.body, -: error.body"
        );
        let more = vec![
            (1, get("a")),
            (2, check("x", true)),
            (3, check("y", false)),
            (4, END),
        ];
        assert_eq!(one_user(more), "a: error.body, -: error.body");
    }

    #[test]
    fn users_do_not_mix_and_a_failure_stays_in_its_iteration() {
        let points = vec![
            point(1, 1, 0, get("a")),
            point(2, 2, 0, get("b")),
            point(3, 1, 0, check("ok", false)),
            point(4, 2, 0, check("ok", true)),
            // The first user was cut off and begins again.
            point(5, 1, 1, get("a")),
            point(6, 1, 1, END),
            point(7, 2, 0, END),
        ];
        assert_eq!(
            left(points),
            "a: error.body, a: success, -: success, b: success, -: success"
        );
    }

    #[test]
    fn what_the_script_expects_decides_before_its_checks() {
        let failed = Fate::Failed(ErrorClass::Timeout, "late".into());
        let kinds = vec![
            (1, request("a", failed)),
            (2, check("ok", false)),
            (3, request("b", Fate::Refused)),
            (4, check("ok", false)),
            (5, END),
        ];
        assert_eq!(
            one_user(kinds),
            "a: error.timeout, b: refused, -: error.timeout"
        );
    }

    #[test]
    fn a_failed_check_without_a_request_fails_the_journey() {
        assert_eq!(
            one_user(vec![(1, check("ok", false)), (2, END)]),
            "-: error.body"
        );
    }

    #[test]
    fn nothing_is_lost_however_long_an_iteration_is() {
        let many = (0..5_000).map(|at| (at, get("a"))).collect();
        assert_eq!(one_user(many).matches("a: success").count(), 5_000);
        let dropped = vec![(1, PointKind::Dropped { n: 3 })];
        assert_eq!(one_user(dropped), "3 dropped");
    }
}
