//! The table of a ladder: each load, and what changed from the step before.

use super::table::{Align, Table, latency_ms, rate};
use crate::results::{Ladder, LadderStep};

/// Ladders shown; rows have them all.
const SHOWN: usize = 20;

/// One table per cell and ladder; empty where there is none.
pub fn ladder_tables(ladders: &[Ladder]) -> String {
    let mut blocks: Vec<String> = ladders.iter().take(SHOWN).map(table).collect();
    let more = ladders.len().saturating_sub(SHOWN);
    if more > 0 {
        blocks.push(format!("and {more} more ladders in trials.csv"));
    }
    blocks.join("\n\n")
}

fn table(ladder: &Ladder) -> String {
    let is_open = ladder
        .steps
        .iter()
        .any(|step| step.planned_rate_rps.is_some());
    let mut table = Table::new(&[
        ("step", Align::Right),
        (if is_open { "requests/s" } else { "users" }, Align::Right),
        ("successes/s", Align::Right),
        ("change", Align::Right),
        ("p99 due ms", Align::Right),
        ("change", Align::Right),
        ("failed", Align::Right),
        ("subject cores", Align::Right),
        ("launches", Align::Right),
        ("notes", Align::Left),
    ]);
    let mut before: Option<&LadderStep> = None;
    for step in &ladder.steps {
        let none = || "–".to_owned();
        let load = step
            .users
            .map(|users| users.to_string())
            .or_else(|| step.planned_rate_rps.map(rate));
        let figure = |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(none, text);
        table.row(vec![
            step.step.to_string(),
            load.unwrap_or_else(none),
            figure(step.throughput_rps, rate),
            change(
                before.and_then(|step| step.throughput_rps),
                step.throughput_rps,
            ),
            figure(step.p99_due_ms, latency_ms),
            change(before.and_then(|step| step.p99_due_ms), step.p99_due_ms),
            figure(step.failed_share, |share| format!("{:.1} %", share * 100.0)),
            figure(step.subject_cpu_cores, rate),
            step.n.to_string(),
            [step.flags.join(" "), step.lost.join(", ")]
                .into_iter()
                .filter(|words| !words.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        ]);
        before = Some(step);
    }
    let mut lines = vec![format!(
        "{}: steps of '{}', means over launches, changes from the step before",
        ladder.cell_id, ladder.window
    )];
    lines.extend(table.lines().into_iter().map(|line| format!("  {line}")));
    lines.join("\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_from_the_step_before_and_missing_figures_are_said() {
        let step = |step: u32, throughput_rps: Option<f64>, p99_due_ms| LadderStep {
            step,
            users: Some(50 * step),
            planned_rate_rps: None,
            n: usize::from(throughput_rps.is_some()),
            throughput_rps,
            p99_due_ms,
            failed_share: throughput_rps.map(|_| 0.004),
            subject_cpu_cores: None,
            flags: Vec::new(),
            lost: Vec::new(),
        };
        let ladder = Ladder {
            cell_id: "cpus-1".into(),
            window: "ladder".into(),
            steps: vec![
                step(1, Some(400.0), Some(12.0)),
                LadderStep {
                    flags: vec!["overloaded".into()],
                    ..step(2, Some(700.0), Some(f64::INFINITY))
                },
                LadderStep {
                    lost: vec!["failed: exited".into()],
                    ..step(3, None, None)
                },
            ],
        };
        insta::assert_snapshot!(ladder_tables(&[ladder]), @"
        cpus-1: steps of 'ladder', means over launches, changes from the step before
          step  users  successes/s  change  p99 due ms  change  failed  subject cores  launches  notes
          ────  ─────  ───────────  ──────  ──────────  ──────  ──────  ─────────────  ────────  ──────────────
             1     50          400                12.0           0.4 %              –         1
             2    100          700   +75 %         inf           0.4 %              –         1  overloaded
             3    150            –                   –               –              –         0  failed: exited
        ");
    }
}
