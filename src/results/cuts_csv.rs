//! Parts of windows as CSV, spelled as in operations.csv.

use super::columns::Cell;
use super::cuts::{Part, WindowCut};
use crate::measure::Figures;

/// The columns of each row.
const COLUMNS: [&str; 41] = [
    "run_id",
    "trial",
    "attempt",
    "cell_id",
    "window",
    "step",
    "verdict",
    "from_s",
    "to_s",
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
    "achieved_rate_rps",
    "mean_ms",
    "p50_ms",
    "p90_ms",
    "p95_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
    "p99_due_ms",
    "service_p99_ms",
    "latency_from",
    "load_model",
    "shortened",
    "rates_known",
    "detail",
];

/// Per window one row of kind `total`, then one for each operation; where there are no
/// figures one row that says why in `detail`.
#[expect(
    clippy::missing_panics_doc,
    reason = "memory takes everything, and rows are of one length"
)]
pub fn cuts_csv(cuts: &[WindowCut<'_>]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |record: &[String]| {
        let written = writer.write_record(record);
        written.expect("memory takes everything, and rows are of one length");
    };
    write(&COLUMNS.map(str::to_owned));
    for cut in cuts {
        match &cut.part {
            Ok(part) => {
                write(&record(cut, part, ("total", ""), &part.figures.total));
                for (name, figures) in &part.figures.operations {
                    write(&record(cut, part, ("operation", name), figures));
                }
            }
            Err(why) => {
                let mut record = key(cut);
                record.resize(COLUMNS.len() - 1, String::new());
                record.push(why.write());
                write(&record);
            }
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn key(cut: &WindowCut<'_>) -> Vec<String> {
    let row = cut.row;
    vec![
        row.run_id.write(),
        row.trial.write(),
        row.attempt.write(),
        row.cell_id.write(),
        row.window.write(),
        row.step.write(),
        row.verdict.write(),
    ]
}

fn record(
    cut: &WindowCut<'_>,
    part: &Part,
    (kind, name): (&str, &str),
    figures: &Figures,
) -> Vec<String> {
    let counts = &figures.counts;
    let errors = &counts.errors;
    let latency = &figures.latency_ms;
    let rate = |rate: f64| part.knows_rates.then_some(rate).write();
    let mut record = key(cut);
    record.extend([
        part.from_s.write(),
        part.to_s.write(),
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
        rate(figures.throughput_rps),
        rate(figures.achieved_rate_rps),
        latency.mean.write(),
        latency.p50.write(),
        latency.p90.write(),
        latency.p95.write(),
        latency.p99.write(),
        latency.p999.write(),
        latency.max.write(),
        figures.p99_due_ms.write(),
        figures.service_ms.p99.write(),
        cut.row.latency_from.write(),
        cut.row.load_model.write(),
        part.is_shortened.write(),
        part.knows_rates.write(),
        String::new(),
    ]);
    record
}
