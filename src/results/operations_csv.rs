//! operations.csv: a window's figures per operation and per journey.
//!
//! **Shape**: per window one row for each operation in journey order, then rows
//! of kind `journey`: one for each where the workload has several, and one without a name
//! for all of the window's own load. What arrived beside that load is in its own rows alone. Same keys as trials.csv, so the two join.

use std::path::Path;

use super::append::AppendFile;
use super::columns::Cell;
use super::{ResultsError, SCHEMA_VERSION};
use crate::measure::{Figures, WindowSummary};

const COLUMNS: [&str; 36] = [
    "schema_version",
    "run_id",
    "trial",
    "attempt",
    "cell_id",
    "window",
    "step",
    "kind",
    "name",
    "due",
    "requests",
    "successes",
    "refused",
    "errors",
    "errors_connect",
    "errors_reset",
    "errors_timeout",
    "errors_status",
    "errors_body",
    "errors_protocol",
    "errors_template",
    "abandoned",
    "unsent",
    "throughput_rps",
    "mean_ms",
    "p50_ms",
    "p90_ms",
    "p95_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
    "p99_due_ms",
    "service_p99_ms",
    "send_lag_p99_ms",
    "achieved_rate_rps",
    "clamped",
];

/// Which window the figures belong to: the key they share with trials.csv.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationKey {
    /// The run's id.
    pub run_id: String,
    /// Index of the trial in the plan, from 1.
    pub trial: u32,
    /// Attempt, from 1.
    pub attempt: u32,
    /// The cell's id.
    pub cell_id: String,
    /// Name of the window's phase.
    pub window: String,
    /// Step of a ladder.
    pub step: Option<u32>,
}

/// An open operations.csv.
#[derive(Debug)]
pub struct OperationsCsv {
    file: AppendFile,
}

impl OperationsCsv {
    /// Opens the file for appending, or creates it with its header.
    ///
    /// **Errors**: as for trials.csv.
    pub fn open(path: &Path) -> Result<Self, ResultsError> {
        let header: Vec<String> = COLUMNS.iter().map(|name| (*name).to_owned()).collect();
        Ok(Self {
            file: AppendFile::open(path, &header)?,
        })
    }

    /// What was left of a last line when the file was opened; it has been cut off.
    pub fn torn_line(&self) -> Option<&str> {
        self.file.torn_line()
    }

    /// Appends one window; when this returns its rows are on the disk.
    pub fn append(
        &mut self,
        key: &OperationKey,
        summary: &WindowSummary,
    ) -> Result<(), ResultsError> {
        let mut records: Vec<Vec<String>> = summary
            .operations
            .iter()
            .map(|(name, figures)| record(key, "operation", name, figures))
            .collect();
        let journeys = summary.journeys_by_name.iter();
        records.extend(journeys.map(|(name, figures)| record(key, "journey", name, figures)));
        records.push(record(key, "journey", "", &summary.journeys));
        self.file.append(&records)
    }
}

fn record(key: &OperationKey, kind: &str, name: &str, figures: &Figures) -> Vec<String> {
    let counts = &figures.counts;
    let errors = &counts.errors;
    let latency = &figures.latency_ms;
    vec![
        SCHEMA_VERSION.write(),
        key.run_id.write(),
        key.trial.write(),
        key.attempt.write(),
        key.cell_id.write(),
        key.window.write(),
        key.step.write(),
        kind.to_owned(),
        name.to_owned().write(),
        counts.due.write(),
        counts.requests.write(),
        counts.successes.write(),
        counts.refused.write(),
        errors.total().write(),
        errors.connect.write(),
        errors.reset.write(),
        errors.timeout.write(),
        errors.status.write(),
        errors.body.write(),
        errors.protocol.write(),
        errors.template.write(),
        counts.abandoned.write(),
        counts.unsent.write(),
        figures.throughput_rps.write(),
        latency.mean.write(),
        latency.p50.write(),
        latency.p90.write(),
        latency.p95.write(),
        latency.p99.write(),
        latency.p999.write(),
        latency.max.write(),
        figures.p99_due_ms.write(),
        figures.service_ms.p99.write(),
        figures.send_lag_ms.p99.write(),
        figures.achieved_rate_rps.write(),
        counts.clamped.write(),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::{Counts, ErrorCounts};

    #[test]
    fn every_operation_and_the_journey_get_a_row_with_errors_by_class() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operations.csv");
        let figures = Figures {
            counts: Counts {
                due: 12,
                requests: 10,
                successes: 5,
                errors: ErrorCounts {
                    connect: 1,
                    reset: 2,
                    status: 2,
                    ..ErrorCounts::default()
                },
                unsent: 2,
                ..Counts::default()
            },
            throughput_rps: 0.1,
            p99_due_ms: Some(f64::INFINITY),
            ..Figures::default()
        };
        let summary = WindowSummary {
            operations: vec![("create Patient".into(), figures.clone())],
            journeys: figures.clone(),
            arrivals: 1,
            ..WindowSummary::quiet(figures, Duration::from_secs(50))
        };
        let key = OperationKey {
            run_id: "r".into(),
            trial: 3,
            attempt: 1,
            cell_id: "cpus-1".into(),
            window: "stress".into(),
            step: None,
        };
        let mut file = OperationsCsv::open(&path).unwrap();
        file.append(&key, &summary).unwrap();
        drop(file);
        let mut again = OperationsCsv::open(&path).unwrap();
        again.append(&key, &summary).unwrap();
        let mut reader = csv::Reader::from_path(&path).unwrap();
        let header = reader.headers().unwrap().clone();
        let at = |name: &str| header.iter().position(|column| column == name).unwrap();
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(&rows[0][at("name")], "create Patient");
        assert_eq!(&rows[1][at("kind")], "journey");
        assert_eq!(&rows[0][at("errors")], "5");
        assert_eq!(&rows[0][at("errors_reset")], "2");
        assert_eq!(&rows[0][at("p99_due_ms")], "inf");
        assert_eq!(&rows[0][at("p99_ms")], "");
    }
}
