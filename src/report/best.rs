//! The tables at the end of a run: the best measured cells of each tier.
//!
//! They say 'best measured' and show every repeat, because no confidence is
//! computed: two cells whose repeats overlap have not been told apart.

use std::fmt::Write as _;

use super::table::{Align, Table, latency_ms, rate};
use crate::results::{BestMeasured, RankedCell, TierBest, TrialRow};

/// Cells shown per tier; charts and rows have them all.
const SHOWN: usize = 5;

/// One table per tier, with the reasons of cells without a measurement below.
pub fn best_tables(best: &BestMeasured, rows: &[TrialRow], tier: &str) -> String {
    let mut text = String::new();
    for (index, tier_best) in best.tiers.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let step = best.throughput_window.as_ref().and_then(|choice| {
            let step = choice.step?;
            Some(format!(" at step {step} of '{}'", choice.window))
        });
        text.push_str(&tier_table(
            tier_best,
            rows,
            tier,
            step.as_deref().unwrap_or_default(),
        ));
    }
    if best.tiers.is_empty() {
        text.push_str("no cell was run\n");
    }
    text.trim_end().to_owned()
}

/// `step` says which of a ladder the figures are from.
fn tier_table(best: &TierBest, rows: &[TrialRow], tier: &str, step: &str) -> String {
    let level = best.tier.as_ref().map_or_else(
        || "all cells".to_owned(),
        |level| format!("{tier} = {level}"),
    );
    let n_cells = best.by_throughput.len() + best.unmeasured.len();
    let mut text = format!(
        "{level}: best measured of {n_cells} cells, by throughput{step} (no confidence is computed)\n"
    );
    let variables: Vec<&String> = best
        .by_throughput
        .first()
        .map(|cell| cell.variables.keys().collect())
        .unwrap_or_default();
    let mut table = Table::new(&[("cell", Align::Left)]);
    for name in &variables {
        table.add_column(name, Align::Right);
    }
    table.add_column("successes/s", Align::Right);
    table.add_column("repeats", Align::Left);
    table.add_column("p99 ms", Align::Right);
    table.add_column("repeats", Align::Left);
    table.add_column("flags", Align::Left);
    for cell in best.by_throughput.iter().take(SHOWN) {
        let p99 = best
            .by_p99
            .iter()
            .find(|other| other.cell_id == cell.cell_id);
        let mut line = vec![cell.cell_id.clone()];
        line.extend(variables.iter().map(|name| {
            cell.variables
                .get(*name)
                .map(ToString::to_string)
                .unwrap_or_default()
        }));
        line.push(rate(cell.mean));
        line.push(repeats(cell, rate));
        line.push(p99.map_or_else(|| "–".to_owned(), |p99| latency_ms(p99.mean)));
        line.push(p99.map(|p99| repeats(p99, latency_ms)).unwrap_or_default());
        line.push(flags_of(rows, &cell.cell_id));
        table.row(line);
    }
    for line in table.lines() {
        text.push_str("  ");
        text.push_str(&line);
        text.push('\n');
    }
    let more = best.by_throughput.len().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more in trials.csv");
    }
    for cell in &best.unmeasured {
        let _ = writeln!(
            text,
            "  {}: no valid measurement ({})",
            cell.cell_id, cell.reason
        );
    }
    text
}

/// `n = 3: 410 · 402 · 415`, with the launches that gave no figure.
fn repeats(cell: &RankedCell, figure: fn(f64) -> String) -> String {
    let lost = if cell.n_lost > 0 {
        format!(" ({} lost)", cell.n_lost)
    } else {
        String::new()
    };
    match cell.repeats.as_slice() {
        [_] => format!("n = 1{lost}"),
        values => {
            let figures: Vec<String> = values.iter().map(|value| figure(*value)).collect();
            format!("n = {}{lost}: {}", values.len(), figures.join(" · "))
        }
    }
}

fn flags_of(rows: &[TrialRow], cell_id: &str) -> String {
    let mut flags: Vec<&str> = rows
        .iter()
        .filter(|row| row.cell_id == cell_id)
        .flat_map(|row| &row.flags)
        .map(String::as_str)
        .collect();
    flags.sort_unstable();
    flags.dedup();
    flags.join(" ")
}
