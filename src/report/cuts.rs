//! Parts of windows for people and scripts.

use serde_json::{Value, json};

use super::table::{Align, Table, count, latency_ms, rate};
use crate::measure::Figures;
use crate::results::{Cut, Part, WindowCut};

/// A table with a line for each window, and what must be known of it.
pub fn cuts_table(asked: Cut, cuts: &[WindowCut<'_>]) -> String {
    let mut table = Table::new(&[
        ("trial", Align::Right),
        ("cell", Align::Left),
        ("window", Align::Left),
        ("part", Align::Right),
        ("due", Align::Right),
        ("successes", Align::Right),
        ("refused", Align::Right),
        ("failed", Align::Right),
        ("successes/s", Align::Right),
        ("mean ms", Align::Right),
        ("p50 ms", Align::Right),
        ("p95 ms", Align::Right),
        ("p99 ms", Align::Right),
        ("p99 due ms", Align::Right),
        ("max ms", Align::Right),
        ("notes", Align::Left),
    ]);
    for cut in cuts {
        let row = cut.row;
        let attempt = match row.attempt {
            0 | 1 => String::new(),
            attempt => format!("#{attempt}"),
        };
        let step = row
            .step
            .map_or_else(String::new, |step| format!(" step {step}"));
        let mut cells = vec![
            format!("{}{attempt}", row.trial),
            row.cell_id.clone(),
            format!("{}{step}", row.window),
        ];
        cells.extend(match &cut.part {
            Ok(part) => figures_of(part),
            Err(_) => vec!["–".to_owned(); 12],
        });
        if let Err(why) = &cut.part {
            cells.push(why.clone());
        } else {
            cells.push(notes(cut));
        }
        table.row(cells);
    }
    let to = asked
        .to_s
        .map_or_else(|| "the end".to_owned(), |to_s| format!("{to_s} s"));
    let mut lines = vec![format!(
        "each window from {} s to {to}, from its interval logs; flags and verdicts are those of the whole",
        asked.from_s
    )];
    lines.extend(table.lines());
    lines.join("\n")
}

fn figures_of(part: &Part) -> Vec<String> {
    let Figures {
        counts,
        throughput_rps,
        latency_ms: latency,
        p99_due_ms,
        ..
    } = &part.figures.total;
    let ms = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), latency_ms);
    let throughput = part.knows_rates.then_some(*throughput_rps);
    vec![
        format!("{}–{} s", part.from_s, part.to_s),
        count(counts.due),
        count(counts.successes),
        count(counts.refused),
        count(counts.failed()),
        throughput.map_or_else(|| "–".to_owned(), rate),
        ms(latency.mean),
        ms(latency.p50),
        ms(latency.p95),
        ms(latency.p99),
        ms(*p99_due_ms),
        ms(latency.max),
    ]
}

fn notes(cut: &WindowCut<'_>) -> String {
    let Ok(part) = &cut.part else {
        return String::new();
    };
    let mut notes = Vec::new();
    if part.is_shortened {
        notes.push(format!("the window ends after {} s", part.to_s));
    }
    if !part.knows_rates {
        notes.push("this log does not tell when requests left: rate unknown".to_owned());
    }
    if let Some(reason) = &cut.row.reason {
        notes.push(format!("{}: {reason}", cut.row.verdict.as_str()));
    }
    if !cut.row.flags.is_empty() {
        notes.push(cut.row.flags.join(" "));
    }
    notes.join("; ")
}

/// The same with every operation, for scripts.
///
/// Figures that are not known, and those that the evidence does not hold, are `null`.
pub fn cuts_json(run: &str, asked: Cut, cuts: &[WindowCut<'_>]) -> Value {
    let windows: Vec<Value> = cuts.iter().map(window_json).collect();
    json!({
        "run": run,
        "from_s": asked.from_s,
        "to_s": asked.to_s,
        "windows": windows,
    })
}

fn window_json(cut: &WindowCut<'_>) -> Value {
    let row = cut.row;
    let mut window = json!({
        "trial": row.trial,
        "attempt": row.attempt,
        "cell": row.cell_id,
        "window": row.window,
        "step": row.step,
        "load_model": row.load_model,
        "latency_from": row.latency_from,
        "verdict": row.verdict.as_str(),
        "reason": row.reason,
        "flags": row.flags,
    });
    let more = match &cut.part {
        Ok(part) => {
            let operations: Vec<Value> = part
                .figures
                .operations
                .iter()
                .map(
                    |(name, figures)| json!({"name": name, "figures": figures_json(part, figures)}),
                )
                .collect();
            json!({
                "from_s": part.from_s,
                "to_s": part.to_s,
                "shortened": part.is_shortened,
                "figures": figures_json(part, &part.figures.total),
                "operations": operations,
            })
        }
        Err(why) => json!({ "figures": null, "detail": why }),
    };
    if let (Value::Object(window), Value::Object(more)) = (&mut window, more) {
        window.extend(more);
    }
    window
}

fn figures_json(part: &Part, figures: &Figures) -> Value {
    let counts = &figures.counts;
    let rate = |rate: f64| part.knows_rates.then_some(rate);
    // JSON has no infinity; the word is the one that rows use.
    let p99_due_ms = figures.p99_due_ms.map(|p99| {
        if p99.is_finite() {
            json!(p99)
        } else {
            json!("inf")
        }
    });
    json!({
        "due": counts.due,
        "requests": counts.requests,
        "successes": counts.successes,
        "refused": counts.refused,
        "errors": counts.errors.total(),
        "errors_by_class": counts.errors,
        "abandoned": counts.abandoned,
        "unsent": counts.unsent,
        "throughput_rps": rate(figures.throughput_rps),
        "achieved_rate_rps": rate(figures.achieved_rate_rps),
        "latency_ms": figures.latency_ms,
        "p99_due_ms": p99_due_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Interval, LatencyFrom, cut};
    use crate::results::{TrialRow, Verdict};

    #[test]
    fn each_window_has_its_line_with_figures_or_the_reason() {
        let whole = TrialRow {
            trial: 1,
            attempt: 1,
            cell_id: "cpus-1".into(),
            window: "latency".into(),
            verdict: Verdict::Valid,
            flags: vec!["overloaded".into()],
            ..TrialRow::default()
        };
        let lost = TrialRow {
            trial: 2,
            step: Some(3),
            window: "ladder".into(),
            ..whole.clone()
        };
        let intervals = [
            Interval::new(1, "read|success".into(), vec![(2_000_000, 2_400)]),
            Interval::new(2, "read|unsent".into(), vec![(2_000_000, 100)]),
        ];
        let part = Part {
            from_s: 1.0,
            to_s: 3.0,
            is_shortened: true,
            knows_rates: true,
            figures: cut(
                &intervals,
                (1, 3),
                std::time::Duration::from_secs(2),
                LatencyFrom::Due,
            ),
        };
        let unknown = Part {
            knows_rates: false,
            is_shortened: false,
            ..part.clone()
        };
        let cuts = [
            WindowCut {
                row: &whole,
                part: Ok(part),
            },
            WindowCut {
                row: &whole,
                part: Ok(unknown),
            },
            WindowCut {
                row: &lost,
                part: Err("failed: exited".into()),
            },
        ];
        let asked = Cut {
            from_s: 1,
            to_s: Some(9),
        };
        insta::assert_snapshot!(cuts_table(asked, &cuts), @"
        each window from 1 s to 9 s, from its interval logs; flags and verdicts are those of the whole
        trial  cell    window          part    due  successes  refused  failed  successes/s  mean ms  p50 ms  p95 ms  p99 ms  p99 due ms  max ms  notes
        ─────  ──────  ─────────────  ─────  ─────  ─────────  ───────  ──────  ───────────  ───────  ──────  ──────  ──────  ──────────  ──────  ───────────────────────────────────────────────────────────────────
            1  cpus-1  latency        1–3 s  2,500      2,400        0     100        1,200     2.00    2.00    2.00    2.00         inf    2.00  the window ends after 3 s; overloaded
            1  cpus-1  latency        1–3 s  2,500      2,400        0     100            –     2.00    2.00    2.00    2.00         inf    2.00  this log does not tell when requests left: rate unknown; overloaded
            2  cpus-1  ladder step 3      –      –          –        –       –            –        –       –       –       –           –       –  failed: exited
        ");
        let json = cuts_json("demo", asked, &cuts);
        let windows = &json["windows"];
        assert_eq!(windows[0]["figures"]["throughput_rps"], 1_200.0);
        assert_eq!(windows[0]["figures"]["p99_due_ms"], "inf");
        assert_eq!(windows[0]["operations"][0]["name"], "read");
        assert_eq!(windows[1]["figures"]["throughput_rps"], Value::Null);
        assert_eq!(windows[2]["detail"], "failed: exited");
    }
}
