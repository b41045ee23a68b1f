//! The steps of ladders, by cell: what each load came to. Pure.

use indexmap::IndexMap;

use super::{TrialRow, Verdict};

/// The steps of one ladder in one cell, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Ladder {
    /// The cell.
    pub cell_id: String,
    /// Name of the window's phase.
    pub window: String,
    /// Its steps. **Shape**: at least one.
    pub steps: Vec<LadderStep>,
}

/// One step of a ladder, as means over the launches that measured it.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderStep {
    /// From 1.
    pub step: u32,
    /// Virtual users, of a closed load.
    pub users: Option<u32>,
    /// Requests a second asked for, of an open load.
    pub planned_rate_rps: Option<f64>,
    /// Launches whose row is valid and counts.
    pub n: usize,
    /// Successes a second.
    pub throughput_rps: Option<f64>,
    /// 99th percentile of everything due, in the mean; infinite where
    /// it is in one launch. **Units**: milliseconds.
    pub p99_due_ms: Option<f64>,
    /// Share of what was due that failed, was given up or never left; refused is none of them.
    pub failed_share: Option<f64>,
    /// CPU of the subject. **Units**: cores.
    pub subject_cpu_cores: Option<f64>,
    /// What any of the rows is flagged with, each once.
    pub flags: Vec<String>,
    /// Why launches have no figures, each reason once.
    pub lost: Vec<String>,
}

/// The ladders of all cells, in order of first appearance.
pub fn ladders(rows: &[TrialRow]) -> Vec<Ladder> {
    let mut by_ladder: IndexMap<(&str, &str), IndexMap<u32, Vec<&TrialRow>>> = IndexMap::new();
    for row in rows.iter().filter(|row| row.role == "cell") {
        if let Some(step) = row.step {
            let steps = by_ladder.entry((&row.cell_id, &row.window)).or_default();
            steps.entry(step).or_default().push(row);
        }
    }
    let ladder = |((cell_id, window), mut steps): ((&str, &str), IndexMap<u32, Vec<_>>)| {
        steps.sort_unstable_keys();
        Ladder {
            cell_id: cell_id.to_owned(),
            window: window.to_owned(),
            steps: steps
                .iter()
                .map(|(step, rows)| of_rows(*step, rows))
                .collect(),
        }
    };
    by_ladder.into_iter().map(ladder).collect()
}

fn of_rows(step: u32, rows: &[&TrialRow]) -> LadderStep {
    let (counted, lost): (Vec<&TrialRow>, Vec<&TrialRow>) = rows
        .iter()
        .partition(|row| row.verdict == Verdict::Valid && row.counted);
    let mean = |figure: fn(&TrialRow) -> Option<f64>| {
        let values: Vec<f64> = counted.iter().filter_map(|row| figure(row)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let mut flags: Vec<String> = rows.iter().flat_map(|row| row.flags.clone()).collect();
    flags.sort_unstable();
    flags.dedup();
    let mut lost: Vec<String> = lost.iter().map(|row| why_lost(row)).collect();
    lost.sort_unstable();
    lost.dedup();
    LadderStep {
        step,
        users: rows.iter().find_map(|row| row.users),
        planned_rate_rps: rows.iter().find_map(|row| row.planned_rate_rps),
        n: counted.len(),
        throughput_rps: mean(|row| row.throughput_rps),
        p99_due_ms: mean(|row| row.p99_due_ms),
        failed_share: mean(failed_share),
        subject_cpu_cores: mean(|row| row.subject_cpu_cores),
        flags,
        lost,
    }
}

fn failed_share(row: &TrialRow) -> Option<f64> {
    let due = row.due.filter(|due| *due > 0)?;
    let failed = [row.errors, row.abandoned, row.unsent];
    let failed: u64 = failed.into_iter().flatten().sum();
    Some(failed as f64 / due as f64)
}

fn why_lost(row: &TrialRow) -> String {
    let verdict = row.verdict.as_str();
    match &row.reason {
        Some(reason) => format!("{verdict}: {reason}"),
        None => verdict.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(trial: u32, step: u32, throughput_rps: f64, p99_due_ms: f64) -> TrialRow {
        TrialRow {
            trial,
            role: "cell".into(),
            counted: true,
            cell_id: "cpus-1".into(),
            window: "ladder".into(),
            answers: Some("ladder".into()),
            step: Some(step),
            users: Some(50 * step),
            verdict: Verdict::Valid,
            throughput_rps: Some(throughput_rps),
            p99_due_ms: Some(p99_due_ms),
            due: Some(1_000),
            errors: Some(10),
            abandoned: Some(5),
            unsent: Some(0),
            ..TrialRow::default()
        }
    }

    #[test]
    fn steps_are_means_over_launches_and_say_what_is_missing() {
        let lost = TrialRow {
            verdict: Verdict::Failed,
            reason: Some("exited".into()),
            throughput_rps: None,
            p99_due_ms: None,
            ..row(2, 2, 0.0, 0.0)
        };
        let plain = TrialRow {
            step: None,
            ..row(1, 1, 9.0, 9.0)
        };
        let rows = [
            row(1, 2, 190.0, f64::INFINITY),
            row(1, 1, 90.0, 10.0),
            plain,
            row(2, 1, 110.0, 20.0),
            lost,
        ];
        let ladders = ladders(&rows);
        assert_eq!(ladders.len(), 1);
        let [first, second] = ladders[0].steps.as_slice() else {
            panic!("two steps: {ladders:?}")
        };
        assert_eq!((first.step, first.users, first.n), (1, Some(50), 2));
        assert_eq!(first.throughput_rps, Some(100.0));
        assert_eq!(first.p99_due_ms, Some(15.0));
        assert_eq!(first.failed_share, Some(0.015));
        assert_eq!(second.n, 1);
        assert_eq!(second.p99_due_ms, Some(f64::INFINITY));
        assert_eq!(second.lost, ["failed: exited"]);
    }
}
