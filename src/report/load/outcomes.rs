//! How requests ended: counts, and the first failure of each kind; operations one by one.

use super::held::HeldLoad;
use super::words::{fine_ms, share};
use crate::measure::{Figures, Outcome};
use crate::report::screen::{Ink, Screen};
use crate::report::table::{Align, Table, count, rate};

/// Operations shown; `--json` has them all.
const MOST_OPERATIONS: usize = 100;

/// A line for everything that did not succeed; empty where all did.
pub(super) fn failures(held: &HeldLoad, screen: Screen) -> Vec<String> {
    let counts = &held.summary.total.counts;
    let errors = counts.errors.by_class();
    let kinds = [(Outcome::Refused, counts.refused)]
        .into_iter()
        .chain(errors.map(|(class, n)| (Outcome::Error(class), n)))
        .chain([
            (Outcome::Abandoned, counts.abandoned),
            (Outcome::Unsent, counts.unsent),
        ]);
    let mut table = Table::new(&[
        ("outcome", Align::Left),
        ("requests", Align::Right),
        ("share", Align::Right),
        ("the first of them", Align::Left),
    ]);
    let mut n_rows = 0;
    for (outcome, n) in kinds.filter(|(_, n)| *n > 0) {
        n_rows += 1;
        table.row(vec![
            outcome.code().to_owned(),
            count(n),
            share(n, counts.due),
            first(held, outcome),
        ]);
    }
    if n_rows == 0 {
        return Vec::new();
    }
    let mut lines = table.lines();
    for line in lines.iter_mut().skip(2) {
        // Colours stay clear of what is aligned: they have no width.
        *line = screen.paint(Ink::Bad, line);
    }
    lines.extend(held.summary.retry_after.words());
    lines
}

fn first(held: &HeldLoad, outcome: Outcome) -> String {
    let known = &held.summary.first_failures;
    let words = known.iter().find(|(own, _)| *own == outcome);
    match (words, outcome) {
        (Some((_, words)), _) => words.replace('\n', " "),
        (None, Outcome::Unsent) => "due, and never sent".to_owned(),
        (None, Outcome::Refused) => "busy by design".to_owned(),
        (None, Outcome::Success | Outcome::Error(_) | Outcome::Abandoned) => String::new(),
    }
}

/// A row for each operation; empty where there is one.
pub(super) fn operations(held: &HeldLoad) -> Vec<String> {
    let operations = &held.summary.operations;
    if operations.len() < 2 {
        return Vec::new();
    }
    let mut table = Table::new(&[
        ("operation", Align::Left),
        ("successes", Align::Right),
        ("refused", Align::Right),
        ("failed", Align::Right),
        ("successes/s", Align::Right),
        ("mean ms", Align::Right),
        ("p50 ms", Align::Right),
        ("p95 ms", Align::Right),
        ("p99 ms", Align::Right),
        ("max ms", Align::Right),
    ]);
    let shown = operations.iter().take(MOST_OPERATIONS);
    for (name, figures) in shown {
        table.row(row(name, figures));
    }
    table.row(row("all", &held.summary.total));
    let mut lines = table.lines();
    let more = operations.len().saturating_sub(MOST_OPERATIONS);
    if more > 0 {
        lines.push(format!("and {more} more operations (--json has them all)"));
    }
    lines
}

fn row(name: &str, figures: &Figures) -> Vec<String> {
    let counts = &figures.counts;
    let latency = &figures.latency_ms;
    let points = [
        latency.mean,
        latency.p50,
        latency.p95,
        latency.p99,
        latency.max,
    ];
    let counted = [
        name.to_owned(),
        count(counts.successes),
        count(counts.refused),
        count(counts.due - counts.successes - counts.refused),
        rate(figures.throughput_rps),
    ];
    counted.into_iter().chain(points.map(fine_ms)).collect()
}
