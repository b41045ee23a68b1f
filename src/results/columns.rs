//! How a row is spelled: the columns of trials.csv, in order, for writer and reader alike.
//!
//! **Invariant**: one list makes the header, the writer and the reader, so they
//! cannot drift apart. The order is part of the contract with every reader;
//! columns may be added at the end, none renamed or moved.

use super::number::{DIGITS, significant};
use super::{TrialRow, Verdict};

/// One kind of value in a CSV cell. Missing is empty.
pub(super) trait Cell: Sized {
    /// The value as the text of a cell.
    fn write(&self) -> String;
    /// The value of a cell that is not empty; the error says what is allowed.
    fn read(text: &str) -> Result<Self, String>;
}

macro_rules! whole_number_cell {
    ($($type:ty),*) => {$(
        impl Cell for $type {
            fn write(&self) -> String {
                self.to_string()
            }
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| "a whole number from 0".to_owned())
            }
        }
    )*};
}
whole_number_cell!(u32, u64);

impl Cell for f64 {
    fn write(&self) -> String {
        significant(*self, DIGITS)
    }
    fn read(text: &str) -> Result<Self, String> {
        match text.parse::<Self>() {
            Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
            _ => Err("a number from 0".to_owned()),
        }
    }
}

impl Cell for bool {
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Result<Self, String> {
        // Other people's tools write True and 1.
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }
}

impl Cell for String {
    /// Line breaks become spaces: a row is one line, so that a torn one shows.
    fn write(&self) -> String {
        self.replace("\r\n", " ").replace(['\n', '\r'], " ")
    }
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Cell for Vec<String> {
    fn write(&self) -> String {
        self.join(";").write()
    }
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.split(';').map(|flag| flag.trim().to_owned()).collect())
    }
}

impl Cell for Verdict {
    fn write(&self) -> String {
        self.as_str().to_owned()
    }
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "valid" => Ok(Self::Valid),
            "suspect" => Ok(Self::Suspect),
            "failed" => Ok(Self::Failed),
            "skipped" => Ok(Self::Skipped),
            _ => Err("valid, suspect, failed or skipped".to_owned()),
        }
    }
}

impl<T: Cell> Cell for Option<T> {
    fn write(&self) -> String {
        self.as_ref().map(T::write).unwrap_or_default()
    }
    fn read(text: &str) -> Result<Self, String> {
        T::read(text).map(Some)
    }
}

macro_rules! plain_columns {
    ($($(#[$doc:meta])* $names:ident, $write:ident: [$($field:ident),* $(,)?])*) => {
        $(
            $(#[$doc])*
            pub(super) const $names: &[&str] = &[$(stringify!($field)),*];

            pub(super) fn $write(row: &TrialRow, record: &mut Vec<String>) {
                $(record.push(Cell::write(&row.$field));)*
            }
        )*

        /// Puts the text of a plain column into its field.
        ///
        /// An empty cell leaves the field as it is; so does a name that is no column.
        pub(super) fn read_plain(row: &mut TrialRow, column: &str, text: &str) -> Result<(), String> {
            if text.is_empty() {
                return Ok(());
            }
            match column {
                // The one figure that may be infinite: requests that were due and
                // never answered took forever.
                "p99_due_ms" if text == "inf" => row.p99_due_ms = Some(f64::INFINITY),
                "p99_due_ms" => {
                    row.p99_due_ms = Cell::read(text).map_err(|allowed| format!("{allowed}, or inf"))?;
                }
                $($(stringify!($field) => row.$field = Cell::read(text)?,)*)*
                _ => {}
            }
            Ok(())
        }
    };
}

plain_columns! {
    /// Before `axis_*` and `var_*`.
    KEY_COLUMNS, write_key: [
        schema_version, run_id, trial, attempt, role, counted, block, cell_id,
    ]
    /// Between `var_*` and `svc_*_cpu_cores`.
    FIGURE_COLUMNS, write_figures: [
        window, answers, step, load_model, latency_from, users, planned_rate_rps,
        achieved_rate_rps, verdict, reason, flags, slo_met, started_at, warmup_s, steady,
        window_s, arrivals, journeys, due, requests, successes, refused, errors, abandoned,
        unsent, throughput_rps, mean_ms, p50_ms, p90_ms, p95_ms, p99_ms, p999_ms, max_ms,
        p99_due_ms, service_p99_ms, journey_p99_ms, send_lag_p99_ms, subject_cpu_cores,
        subject_cpu_limit_cores, throttled_ratio, cpu_ms_per_request,
        subject_memory_peak_bytes, restarts, oom_killed,
    ]
    /// After `svc_*_cpu_cores`.
    HOST_COLUMNS, write_host: [
        generator_cpu_cores, host_busy_cores, proof, target_path, dead_time_s, replicas,
        replica_imbalance, state, state_fingerprint, clone_s, clone_method, detail,
        thresholds_crossed, generator_wait_ratio,
    ]
}

/// Whether a name is one of the plain columns.
pub(super) fn is_plain(column: &str) -> bool {
    [KEY_COLUMNS, FIGURE_COLUMNS, HOST_COLUMNS]
        .iter()
        .any(|names| names.contains(&column))
}

/// The column of a service's CPU.
pub(super) fn service_column(service: &str) -> String {
    format!("svc_{service}_cpu_cores")
}

/// The service of such a column.
pub(super) fn service_of_column(column: &str) -> Option<&str> {
    column.strip_prefix("svc_")?.strip_suffix("_cpu_cores")
}
