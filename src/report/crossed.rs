//! Which thresholds were crossed where, below the tables.

use std::fmt::Write as _;

use crate::results::TrialRow;

/// Rows told; more are counted.
const SHOWN: usize = 20;

/// A line for each row with a crossed threshold; empty where there is none.
pub fn crossed_lines(rows: &[TrialRow]) -> String {
    let told = |row: &TrialRow| {
        let crossed = row.thresholds_crossed.as_deref()?;
        let step = row
            .step
            .map_or_else(String::new, |step| format!(" step {step}"));
        Some(format!(
            "  {} {}{step}, trial {}: {crossed}",
            row.cell_id, row.window, row.trial
        ))
    };
    let lines: Vec<String> = rows.iter().filter_map(told).collect();
    if lines.is_empty() {
        return String::new();
    }
    let more = lines.len().saturating_sub(SHOWN);
    let mut text = format!(
        "thresholds crossed:\n{}",
        lines[..lines.len() - more].join("\n")
    );
    if more > 0 {
        let _ = write!(text, "\n  and {more} more in trials.csv");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_what_it_crosses() {
        let row = |step, crossed: Option<&str>| TrialRow {
            trial: 7,
            cell_id: "cpus-1".into(),
            window: "ladder".into(),
            step,
            thresholds_crossed: crossed.map(str::to_owned),
            ..TrialRow::default()
        };
        assert_eq!(crossed_lines(&[row(Some(1), None)]), "");
        let rows = [
            row(Some(1), None),
            row(Some(2), Some("p95 < 500 ms (612 ms)")),
            row(None, Some("error_rate < 1 % (3.20 %)")),
        ];
        insta::assert_snapshot!(crossed_lines(&rows), @"
        thresholds crossed:
          cpus-1 ladder step 2, trial 7: p95 < 500 ms (612 ms)
          cpus-1 ladder, trial 7: error_rate < 1 % (3.20 %)
        ");
        let many = vec![row(None, Some("max < 1s (2.00 s)")); 23];
        assert!(crossed_lines(&many).ends_with("and 3 more in trials.csv"));
    }
}
