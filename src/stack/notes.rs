//! What is found while a stack is resolved: problems, rules applied, names met.
//!
//! Each service collects its own [`Notes`], because only those of services that
//! are started stop the resolving. Pure.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};

use super::node::Replaced;
use super::template::{Origin, Witness};
use crate::problem::{Location, Problem};
use crate::secret::{is_found_only_as_word, words_around};

/// Most names kept of one text; a message names no more, and a text may have thousands.
const MOST_NAMED: usize = 16;

/// Findings of one part of the files.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    /// Mistakes.
    pub(super) problems: Vec<Problem>,
    /// Sentences of their own.
    pub(super) warnings: IndexSet<String>,
    /// Rules by their sentence, with the keys they were applied to.
    pub(super) rules: IndexMap<&'static str, IndexSet<String>>,
    /// Names that were replaced by nothing, with the first place.
    pub(super) unset: BTreeMap<String, Location>,
    /// Names that some text refers to, in any branch.
    pub(super) referred: BTreeSet<String>,
    /// Values that came from outside the files and the cell.
    pub(super) secrets: BTreeSet<String>,
}

impl Notes {
    /// Adds a mistake.
    pub(super) fn problem(&mut self, location: Location, message: impl Into<String>) {
        self.problems.push(Problem::new(location, message));
    }

    /// Adds a mistake with its next step.
    pub(super) fn problem_with_hint(
        &mut self,
        location: Location,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.problems
            .push(Problem::new(location, message).with_hint(hint));
    }

    /// Records that a rule changed or dropped a key; said once for all its keys.
    pub(super) fn rule(&mut self, rule: &'static str, key: impl Into<String>) {
        self.rules.entry(rule).or_default().insert(key.into());
    }

    /// Records a value that was taken by its name alone.
    pub(super) fn took(&mut self, value: &str, origin: Origin) {
        if is_secret(origin) && !self.secrets.contains(value) {
            self.secrets.insert(value.to_owned());
        }
    }

    /// Hides the words of a text that short secrets became a part of.
    pub(super) fn hide_words(&mut self, text: &str, replaced: &mut Replaced) {
        let spans = std::mem::take(&mut replaced.short_secrets);
        self.secrets.extend(words_around(text, &spans));
    }

    /// Adds a sentence of its own.
    pub(super) fn warn(&mut self, sentence: impl Into<String>) {
        self.warnings.insert(sentence.into());
    }

    /// Takes over everything another part found.
    pub(super) fn absorb(&mut self, other: Self) {
        self.problems.extend(other.problems);
        self.warnings.extend(other.warnings);
        for (rule, keys) in other.rules {
            self.rules.entry(rule).or_default().extend(keys);
        }
        for (name, place) in other.unset {
            self.unset.entry(name).or_insert(place);
        }
        self.referred.extend(other.referred);
        self.secrets.extend(other.secrets);
    }

    /// All sentences: unset names, then rules with their keys, then the rest.
    pub(super) fn sentences(&self) -> Vec<String> {
        let unset = self
            .unset
            .iter()
            .map(|(name, place)| format!("{place}: `{name}` has no value and is taken as empty"));
        let rules = self.rules.iter().map(|(rule, keys)| {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            format!("{}: {rule}", keys.join(", "))
        });
        unset
            .chain(rules)
            .chain(self.warnings.iter().cloned())
            .collect()
    }

    /// A witness for a text that stands at `place`; the text's own names go to `replaced`.
    pub(super) fn witness<'a>(
        &'a mut self,
        place: Location,
        replaced: &'a mut Replaced,
    ) -> impl Witness + 'a {
        NotesWitness {
            notes: self,
            place,
            replaced,
        }
    }
}

/// Whether a value came from outside the files and the cell.
fn is_secret(origin: Origin) -> bool {
    matches!(origin, Origin::Environment | Origin::DotEnv)
}

struct NotesWitness<'a> {
    notes: &'a mut Notes,
    place: Location,
    replaced: &'a mut Replaced,
}

impl Witness for NotesWitness<'_> {
    fn unset(&mut self, name: &str) {
        if self.replaced.unset.len() < MOST_NAMED {
            self.replaced.unset.push(name.to_owned());
        }
        if !self.notes.unset.contains_key(name) {
            self.notes.unset.insert(name.to_owned(), self.place.clone());
        }
    }

    fn defaulted(&mut self, name: &str) {
        if self.replaced.defaulted.len() < MOST_NAMED {
            self.replaced.defaulted.push(name.to_owned());
        }
    }

    fn used(&mut self, name: &str, value: &str, origin: Origin) {
        if self.replaced.used.len() < MOST_NAMED {
            self.replaced.used.push((name.to_owned(), origin));
        }
        self.notes.took(value, origin);
    }

    fn placed(&mut self, start: usize, value: &str, origin: Origin) {
        if is_secret(origin) && is_found_only_as_word(value) {
            let short_secrets = &mut self.replaced.short_secrets;
            short_secrets.push(start..start + value.len());
        }
    }
}
