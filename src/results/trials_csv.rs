//! trials.csv: one row per trial, attempt, window and step.
//!
//! **Invariant**: columns of axes, variables and services are fixed when the
//! file is created; a row that has more is refused, never cut. Read on:
//! `columns.rs` for the order, `append.rs` for what a crash can do.

use std::path::Path;

use super::append::AppendFile;
use super::columns::{
    Cell, FIGURE_COLUMNS, HOST_COLUMNS, KEY_COLUMNS, service_column, write_figures, write_host,
    write_key,
};
use super::{ResultsError, TrialRow};

/// The columns that differ from sweep to sweep, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrialColumns {
    /// Axes, written as `axis_<name>`.
    pub axes: Vec<String>,
    /// Derived values, written as `var_<name>`.
    pub variables: Vec<String>,
    /// Services of the stack, written as `svc_<name>_cpu_cores`.
    pub services: Vec<String>,
}

impl TrialColumns {
    /// The whole header.
    pub fn header(&self) -> Vec<String> {
        let plain = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let mut header = plain(KEY_COLUMNS);
        header.extend(self.axes.iter().map(|axis| format!("axis_{axis}")));
        header.extend(self.variables.iter().map(|name| format!("var_{name}")));
        header.extend(plain(FIGURE_COLUMNS));
        header.extend(self.services.iter().map(|service| service_column(service)));
        header.extend(plain(HOST_COLUMNS));
        header
    }

    /// A row's cells in header order; the error is the column that is not there.
    fn record(&self, row: &TrialRow) -> Result<Vec<String>, String> {
        if let Some(name) = row.axes.keys().find(|name| !self.axes.contains(name)) {
            return Err(format!("axis_{name}"));
        }
        if let Some(name) = row
            .variables
            .keys()
            .find(|name| !self.variables.contains(name))
        {
            return Err(format!("var_{name}"));
        }
        let services = &row.service_cpu_cores;
        if let Some(name) = services.keys().find(|name| !self.services.contains(name)) {
            return Err(service_column(name));
        }
        let mut record = Vec::new();
        write_key(row, &mut record);
        for (names, values) in [(&self.axes, &row.axes), (&self.variables, &row.variables)] {
            record.extend(names.iter().map(|name| {
                values
                    .get(name)
                    .map(|value| value.to_string().write())
                    .unwrap_or_default()
            }));
        }
        write_figures(row, &mut record);
        record.extend(
            self.services
                .iter()
                .map(|service| services.get(service).copied().flatten().write()),
        );
        write_host(row, &mut record);
        Ok(record)
    }
}

/// An open trials.csv.
#[derive(Debug)]
pub struct TrialsCsv {
    file: AppendFile,
    columns: TrialColumns,
}

impl TrialsCsv {
    /// Opens the file for appending, or creates it with its header.
    ///
    /// A line that a crash tore is cut off; [`Self::torn_line`] says what it was.
    ///
    /// **Errors**: the file system's, and [`ResultsError::HeaderDiffers`] for a
    /// file with other columns.
    pub fn open(path: &Path, columns: TrialColumns) -> Result<Self, ResultsError> {
        Ok(Self {
            file: AppendFile::open(path, &columns.header())?,
            columns,
        })
    }

    /// What was left of a last line when the file was opened.
    pub fn torn_line(&self) -> Option<&str> {
        self.file.torn_line()
    }

    /// Appends the rows of one trial; when this returns they are on the disk.
    ///
    /// All rows or none are handed to the system, in one write.
    ///
    /// **Errors**: the file system's, and [`ResultsError::ColumnUnknown`].
    pub fn append(&mut self, rows: &[TrialRow]) -> Result<(), ResultsError> {
        let records = rows
            .iter()
            .map(|row| {
                self.columns
                    .record(row)
                    .map_err(|column| ResultsError::ColumnUnknown {
                        path: self.file.path().to_owned(),
                        trial: row.trial,
                        column,
                    })
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.file.append(&records)
    }
}
