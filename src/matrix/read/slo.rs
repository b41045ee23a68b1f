//! `[slo]` and `[slo.operation."NAME"]`: what latency windows and steps are judged by.

use super::section;
use crate::matrix::sweep::{OperationSlo, Slo, SloLimits};
use crate::toml_file::{Located, Notes, Table};
use crate::units::format_number;

pub(super) fn slo(file: &mut Table<'_>, notes: &mut Notes<'_>) -> Slo {
    let Some(mut table) = section(file, "slo", "[slo]", false, notes) else {
        return Slo::default();
    };
    let total = limits(&mut table, notes);
    let operations = table
        .get("operation")
        .and_then(|entry| Table::of(&entry, "`operation` in [slo]", notes))
        .map(|table| table.entries())
        .unwrap_or_default();
    let operations = operations
        .iter()
        .filter_map(|entry| {
            let name = format!("[slo.operation.\"{}\"]", entry.key);
            let mut table = Table::of(entry, &name, notes)?;
            let limits = limits(&mut table, notes);
            let is_empty = table.is_empty();
            table.finish(notes);
            if is_empty {
                notes.hint(
                    entry.key_at,
                    format!("{name} asks for nothing"),
                    "write p99_ms = 200 or error_rate = 0.01",
                );
            }
            Some(OperationSlo {
                operation: Located {
                    value: entry.key.to_owned(),
                    location: notes.at(entry.key_at),
                },
                limits,
            })
        })
        .collect();
    table.finish(notes);
    Slo { total, operations }
}

fn limits(table: &mut Table<'_>, notes: &mut Notes<'_>) -> SloLimits {
    let p99_ms = table.get("p99_ms").and_then(|entry| {
        let number = table.number(&entry, notes)?;
        if number <= 0.0 {
            let name = table.name();
            notes.add(entry.at(), format!("`p99_ms` in {name} must be above 0"));
        }
        Some(number)
    });
    let error_rate = table.get("error_rate").and_then(|entry| {
        let number = table.number(&entry, notes)?;
        if !(0.0..=1.0).contains(&number) {
            notes.hint(
                entry.at(),
                format!(
                    "`error_rate` in {} must be from 0 to 1, not {}",
                    table.name(),
                    format_number(number)
                ),
                "one request of a hundred is 0.01",
            );
        }
        Some(number)
    });
    SloLimits { p99_ms, error_rate }
}
