//! A ladder: a row for each load that was held, and what changed from the one before.

use super::held::{HeldLoad, LoadReport, code};
use super::words::{fine_ms, load, share};
use crate::load::LoadModel;
use crate::report::screen::{Ink, Screen, bar};
use crate::report::table::{Align, Table, rate};
use crate::units::format_duration;

/// Columns of the longest bar, where there is room for it.
const BAR: usize = 24;
/// A shorter one shows nothing.
const SHORTEST_BAR: usize = 8;
/// Kinds of failures told of a step.
const MOST_FAILURES: usize = 3;

/// The table and what is to be said of single steps.
pub(super) fn table(report: &LoadReport, screen: Screen) -> Vec<String> {
    // The sweep's ladder has this one: what failed or never left counts as endless.
    let has_due = report.held.iter().any(HeldLoad::is_open);
    let mut columns = vec![
        ("step", Align::Right),
        ("load", Align::Left),
        ("held", Align::Right),
        ("successes/s", Align::Right),
        ("change", Align::Right),
        ("p50 ms", Align::Right),
        ("p99 ms", Align::Right),
        ("change", Align::Right),
    ];
    if has_due {
        columns.extend([("p99 due ms", Align::Right), ("change", Align::Right)]);
    }
    columns.extend([
        ("failed", Align::Right),
        ("µs CPU/request", Align::Right),
        ("verdict", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    let mut before: Option<&HeldLoad> = None;
    for held in &report.held {
        table.row(row(held, before, has_due));
        before = Some(held);
    }
    let mut lines = vec![String::new()];
    let mut rows = table.lines();
    let rates = report
        .held
        .iter()
        .map(|held| held.summary.total.throughput_rps);
    let most = rates.clone().fold(0.0, f64::max);
    let width = rows.iter().map(|row| row.chars().count()).max();
    let width = width.unwrap_or_default();
    // Where there is room the throughput is seen as well.
    let room = screen.columns.saturating_sub(width + 2).min(BAR);
    if room >= SHORTEST_BAR {
        for (row, rate) in rows.iter_mut().skip(2).zip(rates) {
            let bar = bar(rate / most.max(f64::MIN_POSITIVE), room);
            *row = format!("{row:<width$}  {}", screen.paint(Ink::Good, &bar));
        }
    }
    lines.extend(rows);
    let notes: Vec<String> = report.held.iter().flat_map(notes).collect();
    if !notes.is_empty() {
        lines.push(String::new());
        lines.extend(notes);
    }
    lines
}

fn row(held: &HeldLoad, before: Option<&HeldLoad>, has_due: bool) -> Vec<String> {
    let total = &held.summary.total;
    let counts = &total.counts;
    let failed = counts.failed();
    let throughput = |held: &HeldLoad| Some(held.summary.total.throughput_rps);
    let p99 = |held: &HeldLoad| held.summary.total.latency_ms.p99;
    let p99_due = |held: &HeldLoad| held.summary.total.p99_due_ms.filter(|_| held.is_open());
    let model = match held.model {
        LoadModel::Closed { users: 1 } => "1 user".to_owned(),
        LoadModel::Closed { users } => format!("{users} users"),
        LoadModel::Open {
            requests_per_second,
            ..
        } => format!("{}/s", rate(requests_per_second)),
        LoadModel::Script { .. } => load(held.model),
    };
    let mut verdict = vec![code(held.verdict.judgement)];
    verdict.extend(held.verdict.reasons.iter().map(|reason| reason.code()));
    verdict.extend(held.verdict.flags.iter().map(|flag| flag.code()));
    if !held.crossed.is_empty() {
        verdict.push("threshold_crossed");
    }
    let mut cells = vec![
        held.step.map_or_else(String::new, |step| step.to_string()),
        model,
        format_duration(held.summary.length),
        rate(total.throughput_rps),
        change(before.and_then(throughput), throughput(held)),
        fine_ms(total.latency_ms.p50),
        fine_ms(total.latency_ms.p99),
        change(before.and_then(p99), p99(held)),
    ];
    if has_due {
        cells.push(fine_ms(p99_due(held)));
        cells.push(change(before.and_then(p99_due), p99_due(held)));
    }
    cells.extend([
        share(failed, counts.due),
        held.cpu_us_per_request()
            .map_or_else(|| "–".to_owned(), rate),
        verdict.join(" "),
    ]);
    cells
}

/// What a row has no room for.
fn notes(held: &HeldLoad) -> Vec<String> {
    let step = held
        .step
        .map_or_else(String::new, |step| format!("step {step}: "));
    let crossed = held
        .crossed
        .iter()
        .map(|crossed| format!("{step}crossed: {}", crossed.words()));
    let first = held.summary.first_failures.iter().take(MOST_FAILURES);
    let failed = first
        .map(|(outcome, words)| format!("{step}{}: {}", outcome.code(), words.replace('\n', " ")));
    let evidence = held.evidence().into_iter();
    let evidence = evidence.map(|own| format!("{step}{}: {}", own.code, own.words));
    evidence.chain(crossed).chain(failed).collect()
}

/// `+12 %`; nothing where one of the two is not a number to compare with.
fn change(before: Option<f64>, now: Option<f64>) -> String {
    match (before, now) {
        (Some(before), Some(now)) if before.is_finite() && before > 0.0 && now.is_finite() => {
            format!("{:+.0} %", (now / before - 1.0) * 100.0)
        }
        _ => String::new(),
    }
}
