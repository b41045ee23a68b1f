//! The problems of one reading.
//!
//! Problems on lines that were taken out are not told: the syntax error is what
//! is wrong there. Next: `table`, which notes most of them.

use std::collections::HashSet;

use super::source::{Quoted, Source};
use crate::problem::{Location, Problem, Problems};

/// Most problems told of one file: a generated file may have one mistake a
/// hundred thousand times, and finding a place in a long line takes time.
const MAX_PROBLEMS: usize = 500;

/// The problems found so far, none of them twice.
#[derive(Debug)]
pub struct Notes<'t> {
    source: &'t Source<'t>,
    problems: Vec<Problem>,
    /// What `problems` holds: a loop over rows finds one mistake once a row.
    told: HashSet<Problem>,
    /// Whether a problem was left out for being one too many.
    is_cut: bool,
    /// Lines with a syntax error, which were taken out before reading.
    broken_lines: Vec<usize>,
    /// The last syntax error.
    last_syntax: Option<(usize, String)>,
}

impl<'t> Notes<'t> {
    pub(super) fn new(source: &'t Source<'t>) -> Self {
        Self {
            source,
            problems: Vec::new(),
            told: HashSet::new(),
            is_cut: false,
            broken_lines: Vec::new(),
            last_syntax: None,
        }
    }

    /// The file being read.
    pub fn source(&self) -> &'t Source<'t> {
        self.source
    }

    /// The place of a byte offset.
    pub fn at(&self, offset: usize) -> Location {
        self.source.at(offset)
    }

    /// Notes a syntax error.
    pub(super) fn syntax(&mut self, offset: usize, message: &str) {
        let problem = self
            .source
            .problem(offset, format!("this is not TOML: {message}"));
        let line = problem.location.line;
        // An open bracket or quote breaks line after line: once is enough.
        let is_more_of_it = self
            .last_syntax
            .as_ref()
            .is_some_and(|(last, said)| last.abs_diff(line) <= 1 && said == message);
        self.last_syntax = Some((line, message.to_owned()));
        self.broken_lines.push(line);
        if !is_more_of_it {
            self.problems.push(problem);
        }
    }

    /// Notes a problem at a byte offset.
    pub fn add(&mut self, offset: usize, message: impl Into<String>) {
        if self.has_room() {
            self.push(self.source.problem(offset, message));
        }
    }

    /// Notes a problem with a next step.
    pub fn hint(&mut self, offset: usize, message: impl Into<String>, hint: impl Into<String>) {
        if self.has_room() {
            self.push(self.source.problem(offset, message).with_hint(hint));
        }
    }

    /// Notes a problem inside a text, at a byte offset of what was read.
    pub fn inside(&mut self, text: &Quoted, offset: usize, message: impl Into<String>) {
        if self.has_room() {
            self.push(Problem::new(self.source.inside(text, offset), message));
        }
    }

    /// Notes a problem made elsewhere, be it of another file.
    pub fn push(&mut self, problem: Problem) {
        let is_broken = problem.location.file == self.source.path()
            && self.broken_lines.contains(&problem.location.line);
        if is_broken || self.told.contains(&problem) || !self.has_room() {
            return;
        }
        self.told.insert(problem.clone());
        self.problems.push(problem);
    }

    /// Whether one more problem is told; if not, that is noted too.
    fn has_room(&mut self) -> bool {
        let has_room = self.problems.len() < MAX_PROBLEMS;
        self.is_cut |= !has_room;
        has_room
    }

    /// Whether nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether a line was taken out, so that what nobody wrote may stand there.
    pub fn is_broken(&self) -> bool {
        !self.broken_lines.is_empty()
    }

    /// Lines with a syntax error in the section that begins at an offset.
    pub(super) fn broken_lines_from(&self, start: usize) -> Vec<usize> {
        let first = self.source.line_of(start);
        let next = self.source.next_header_line(first);
        let lines = self.broken_lines.iter().copied();
        lines.filter(|line| (first..next).contains(line)).collect()
    }

    /// All problems, those of the file itself first, each file's by place.
    pub(super) fn into_problems(self) -> Problems {
        let Self {
            source,
            mut problems,
            is_cut,
            ..
        } = self;
        problems.sort_by(|a, b| {
            let is_other = |problem: &Problem| problem.location.file != source.path();
            (is_other(a), a).cmp(&(is_other(b), b))
        });
        problems.dedup();
        if is_cut {
            let message = format!(
                "there are more problems than the {} told here",
                problems.len()
            );
            problems.push(source.problem(source.len(), message));
        }
        Problems(problems)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn lines_of(problems: &Problems) -> Vec<usize> {
        problems
            .0
            .iter()
            .map(|problem| problem.location.line)
            .collect()
    }

    #[test]
    fn as_many_problems_as_are_told_are_not_said_to_be_more() {
        let text = "\n".repeat(1_000);
        let source = Source::new(Path::new("m.toml"), &text);
        for (n, last) in [(500, 500), (501, 1001)] {
            let mut notes = Notes::new(&source);
            for line in 0..n {
                notes.add(line, "wrong");
            }
            // The last repeats what is told already, which leaves nothing out.
            notes.push(source.problem(0, "wrong"));
            assert_eq!(lines_of(&notes.into_problems()).last(), Some(&last), "{n}");
        }
    }

    #[test]
    fn a_broken_line_hides_its_own_file_only_and_other_files_come_last() {
        let source = Source::new(Path::new("m.toml"), "a\nb\n");
        let mut notes = Notes::new(&source);
        notes.push(Problem::new(
            Location::of_offset(Path::new("a.json"), "{}", 0),
            "of another file",
        ));
        notes.syntax(0, "broken");
        notes.add(0, "hidden");
        notes.add(2, "told");
        let shown = notes.into_problems().to_string();
        assert_eq!(
            shown,
            "m.toml:1:1: this is not TOML: broken\nm.toml:2:1: told\na.json:1:1: of another file"
        );
    }
}
