//! Which iterations threw. Pure.
//!
//! k6 logs a throw just after the iteration's end and names its scenario, neither its user
//! nor, to less than a second, its moment; of the end itself it tells by a sample, up to a
//! fifth of a second later. So a throw is that of the iteration of its scenario which
//! ended last before it was heard and has none yet: when all threw, each has its own, and
//! a log that is read late moves none over the edge of a window.
//!
//! **Units**: nanoseconds since the end of set-up.

use std::collections::{HashMap, VecDeque};

/// An end is stamped by the wall clock, a throw is heard by the other: so far the two are apart.
const SLACK_NS: i64 = 1_000_000;
/// Ends so long before a throw that is still to come are nobody's: logs are not read that late.
const KEPT_NS: i64 = 2_000_000_000;

/// Throws that are heard and ends that are told, until they have found each other.
#[derive(Debug, Default)]
pub(super) struct Throws {
    heard: VecDeque<Heard>,
    /// In the order they were told.
    ended: Vec<End>,
    /// Ends that no throw has taken, by scenario, the last on top.
    free: HashMap<Box<str>, Vec<End>>,
}

#[derive(Debug)]
struct Heard {
    at_ns: i64,
    scenario: Box<str>,
    words: Box<str>,
}

#[derive(Debug)]
struct End {
    at_ns: i64,
    scenario: Box<str>,
    is_success: bool,
}

/// A throw where it belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Threw {
    /// The iteration's end; where none was told, when the throw was heard.
    pub(super) at_ns: i64,
    pub(super) scenario: Box<str>,
    pub(super) words: Box<str>,
    /// Whether its iteration was counted as a success.
    pub(super) was_success: bool,
}

impl Throws {
    pub(super) fn heard(&mut self, at_ns: i64, scenario: &str, words: &str) {
        self.heard.push_back(Heard {
            at_ns,
            scenario: scenario.into(),
            words: words.into(),
        });
    }

    pub(super) fn ended(&mut self, at_ns: i64, scenario: &str, is_success: bool) {
        self.ended.push(End {
            at_ns,
            scenario: scenario.into(),
            is_success,
        });
    }

    /// Places what was heard up to a moment, of which all ends have been told.
    pub(super) fn settle(&mut self, until_ns: i64) -> Vec<Threw> {
        self.ended.sort_by_key(|end| end.at_ns);
        let mut ended = std::mem::take(&mut self.ended).into_iter().peekable();
        let mut placed = Vec::new();
        let n_due = self.heard.partition_point(|heard| heard.at_ns <= until_ns);
        for heard in self.heard.drain(..n_due) {
            let before = heard.at_ns.saturating_add(SLACK_NS);
            while let Some(end) = ended.next_if(|end| end.at_ns <= before) {
                self.free.entry(end.scenario.clone()).or_default().push(end);
            }
            let end = self.free.get_mut(&heard.scenario).and_then(Vec::pop);
            placed.push(Threw {
                at_ns: end.as_ref().map_or(heard.at_ns, |end| end.at_ns),
                was_success: end.is_some_and(|end| end.is_success),
                scenario: heard.scenario,
                words: heard.words,
            });
        }
        let oldest = until_ns.saturating_sub(KEPT_NS);
        self.ended = ended.filter(|end| end.at_ns >= oldest).collect();
        for free in self.free.values_mut() {
            free.retain(|end| end.at_ns >= oldest);
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn placed(throws: &mut Throws, until_ms: i64) -> Vec<(i64, bool)> {
        let all = throws.settle(until_ms * MS);
        all.iter()
            .map(|threw| (threw.at_ns / MS, threw.was_success))
            .collect()
    }

    #[test]
    fn each_of_those_that_all_threw_has_its_own_however_late_the_log() {
        let mut throws = Throws::default();
        // Told in another order than they ended.
        for (at, is_success) in [(30, true), (10, true), (20, false)] {
            throws.ended(at * MS, "a", is_success);
        }
        for _ in 0..3 {
            throws.heard(400 * MS, "a", "boom");
        }
        assert_eq!(
            placed(&mut throws, 1_000),
            [(30, true), (20, false), (10, true)]
        );
        assert_eq!(placed(&mut throws, 2_000), []);
    }

    #[test]
    fn one_waits_for_its_end_and_takes_none_of_another_scenario_or_time() {
        let mut throws = Throws::default();
        throws.heard(100 * MS, "a", "boom");
        assert_eq!(placed(&mut throws, 50), [], "its end may still be told");
        throws.ended(99 * MS, "b", true);
        throws.ended(98 * MS, "a", true);
        throws.ended(102 * MS, "a", true);
        assert_eq!(placed(&mut throws, 100), [(98, true)]);
        throws.heard(90 * MS, "a", "of one that was cut off");
        assert_eq!(placed(&mut throws, 300), [(90, false)]);
    }

    #[test]
    fn ends_that_nothing_can_take_are_not_kept() {
        let mut throws = Throws::default();
        for at in 0..10_000 {
            throws.ended(at * MS, "a", true);
            if at % 100 == 0 {
                assert_eq!(placed(&mut throws, at - 500), []);
                assert!(throws.ended.len() < 2_700, "{}", throws.ended.len());
            }
        }
    }
}
