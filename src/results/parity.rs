//! The reference study's own layout, for scripts and notebooks that read it.
//!
//! **Source**: `cpu_<N>_throughput.csv`, `cpu_<N>_p99_latency.csv` and
//! `best_configurations.csv` of the 'Game of Pools' study. Same headers; figures
//! keep their digits where the study rounded to whole numbers.

use std::path::{Path, PathBuf};

use super::columns::Cell;
use super::folder::file_name_part;
use super::manifest::write_whole;
use super::{
    BestMeasured, CellFigures, Measure, RankedCell, ResultsError, TrialRow, best_measured, gather,
    sort_levels,
};
use crate::scalar::Scalar;

/// What became of the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parity {
    /// The files written.
    Written(Vec<PathBuf>),
    /// The layout cannot hold this matrix; why.
    Skipped(String),
}

/// Writes the export into a folder.
///
/// Tables hold cells by the second axis that is not the tier (rows) and the
/// first (columns); a cell without a valid measurement is empty. A matrix
/// without exactly two such axes is skipped, with the reason.
///
/// **Errors**: the file system's.
pub fn write_parity(rows: &[TrialRow], tier: &str, folder: &Path) -> Result<Parity, ResultsError> {
    let throughput = gather(rows, Measure::Throughput, Some(tier));
    let p99 = gather(rows, Measure::P99, Some(tier));
    let mut axes: Vec<&str> = Vec::new();
    for cell in &throughput.cells {
        for axis in cell.axes.keys().filter(|axis| *axis != tier) {
            if !axes.contains(&axis.as_str()) {
                axes.push(axis);
            }
        }
    }
    let [first, second] = axes[..] else {
        return Ok(Parity::Skipped(format!(
            "the layout has two axes beside the tier `{tier}`, these rows have {}{}",
            axes.len(),
            if axes.is_empty() {
                String::new()
            } else {
                format!(" ({})", axes.join(", "))
            }
        )));
    };
    if throughput.cells.iter().any(|cell| cell.tier.is_none()) {
        return Ok(Parity::Skipped(format!(
            "some rows have no value of the tier `{tier}`"
        )));
    }
    let mut written = Vec::new();
    for tier in levels(&throughput.cells, |cell| cell.tier.as_ref()) {
        for (gathered, name) in [(&throughput, "throughput"), (&p99, "p99_latency")] {
            let cells: Vec<&CellFigures> = gathered
                .cells
                .iter()
                .filter(|cell| cell.tier.as_ref() == Some(&tier))
                .collect();
            let path = folder.join(format!(
                "cpu_{}_{name}.csv",
                file_name_part(&tier.to_string())
            ));
            write(&path, &table(&cells, first, second))?;
            written.push(path);
        }
    }
    let path = folder.join("best_configurations.csv");
    write(&path, &best_table(&best_measured(rows, Some(tier))))?;
    written.push(path);
    Ok(Parity::Written(written))
}

fn levels<'c>(
    cells: impl IntoIterator<Item = &'c CellFigures>,
    level: impl Fn(&CellFigures) -> Option<&Scalar>,
) -> Vec<Scalar> {
    let mut found: Vec<Scalar> = Vec::new();
    for cell in cells {
        if let Some(level) = level(cell)
            && !found.contains(level)
        {
            found.push(level.clone());
        }
    }
    sort_levels(&mut found);
    found
}

fn table(cells: &[&CellFigures], first: &str, second: &str) -> Vec<Vec<String>> {
    let columns = levels(cells.iter().copied(), |cell| cell.axes.get(first));
    let lines = levels(cells.iter().copied(), |cell| cell.axes.get(second));
    let is_reference = (first, second) == ("web", "db");
    let mut header = vec![if is_reference {
        r"DB \ WEB Pool multiplier".to_owned()
    } else {
        format!(r"{second} \ {first}")
    }];
    header.extend(columns.iter().map(|level| {
        if is_reference {
            format!("WEB {level} X CPU")
        } else {
            format!("{first} {level}")
        }
    }));
    let mut out = vec![header];
    for line in &lines {
        let mut record = vec![line.to_string()];
        record.extend(columns.iter().map(|column| {
            cells
                .iter()
                .find(|cell| {
                    cell.axes.get(first) == Some(column) && cell.axes.get(second) == Some(line)
                })
                .and_then(|cell| cell.mean())
                .write()
        }));
        out.push(record);
    }
    out
}

fn best_table(best: &BestMeasured) -> Vec<Vec<String>> {
    let sample = best
        .tiers
        .iter()
        .flat_map(|tier| tier.by_throughput.iter().chain(&tier.by_p99))
        .next();
    // The study names the derived counts; a matrix without any has its axes.
    let by_variables = sample.is_none_or(|cell| !cell.variables.is_empty());
    let names: Vec<String> = match sample {
        Some(cell) if by_variables => cell.variables.keys().cloned().collect(),
        Some(cell) => cell.axes.keys().cloned().collect(),
        None => vec!["web_threads".to_owned(), "db_pool".to_owned()],
    };
    let mut header = vec!["CPU Limit".to_owned(), "Metric".to_owned()];
    header.extend(names.iter().map(|name| match name.as_str() {
        "web_threads" => "Best Web Threads".to_owned(),
        "db_pool" => "Best DB Pool Size".to_owned(),
        other => format!("Best {other}"),
    }));
    header.push("Value".to_owned());
    let mut out = vec![header];
    for tier in &best.tiers {
        let level = tier.tier.as_ref().map(Scalar::to_string);
        let mut line = |metric: &str, cell: &RankedCell| {
            let values = if by_variables {
                &cell.variables
            } else {
                &cell.axes
            };
            let mut record = vec![level.clone().unwrap_or_default(), metric.to_owned()];
            record.extend(
                names
                    .iter()
                    .map(|name| values.get(name).map(Scalar::to_string).unwrap_or_default()),
            );
            record.push(cell.mean.write());
            out.push(record);
        };
        if let Some(cell) = tier.by_throughput.first() {
            line("Best RPS", cell);
        }
        if let Some(cell) = tier.by_p99.first() {
            line("Best P99 Latency", cell);
        }
    }
    out
}

fn write(path: &Path, records: &[Vec<String>]) -> Result<(), ResultsError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer
            .write_record(record)
            .map_err(|error| ResultsError::file("write", path)(error.into()))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| ResultsError::file("write", path)(error.into_error()))?;
    write_whole(path, &bytes)
}
