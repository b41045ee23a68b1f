//! Successes per second over the window, and what else changed with them.

use super::held::HeldLoad;
use super::words::fine_ms;
use crate::measure::Second;
use crate::report::screen::{Ink, Screen, columns};
use crate::report::table::rate;
use crate::units::format_duration;

/// Lines of the chart of successes.
const HEIGHT: usize = 5;
/// Widest a single second is drawn.
const WIDEST_SECOND: usize = 4;
/// Columns of the labels on the left.
const LABEL: usize = 12;
/// Columns kept free on the right, where ranges stand.
const RANGE: usize = 20;
/// A narrower chart shows nothing.
const FEWEST_COLUMNS: usize = 10;

/// Some seconds taken together.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    successes_per_s: f64,
    failed_per_s: f64,
    refused_per_s: f64,
    /// The worst of its seconds.
    p99_ms: Option<f64>,
}

/// The chart; empty where there is one second or none.
pub(super) fn chart(held: &HeldLoad, screen: Screen) -> Vec<String> {
    let seconds = held.summary.seconds();
    let length_s = held.summary.length.as_secs_f64();
    if seconds.len() < 2 {
        return Vec::new();
    }
    let room = screen
        .columns
        .saturating_sub(LABEL + RANGE)
        .max(FEWEST_COLUMNS);
    let n_each = seconds.len().div_ceil(room);
    let widened = (room / seconds.len()).clamp(1, WIDEST_SECOND);
    let stretches: Vec<Stretch> = seconds
        .chunks(n_each)
        .map(|chunk| stretch(chunk, length_s))
        .collect();
    let widen = |line: String| -> String {
        let wide = |letter: char| std::iter::repeat_n(letter, widened);
        line.chars().flat_map(wide).collect()
    };
    let row = |figure: &dyn Fn(&Stretch) -> f64, height: usize| {
        let values: Vec<f64> = stretches.iter().map(figure).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let shares: Vec<f64> = values
            .iter()
            .map(|value| if most > 0.0 { value / most } else { 0.0 })
            .collect();
        let lines: Vec<String> = columns(&shares, height).into_iter().map(&widen).collect();
        (lines, most)
    };
    let (lines, most) = row(&|own| own.successes_per_s, HEIGHT);
    let mut chart = Vec::new();
    // Without a success there is an axis, for what stands below it.
    for (index, line) in lines.iter().enumerate().filter(|_| most > 0.0) {
        let (label, tick) = if index == 0 {
            (rate(most), '┤')
        } else {
            (String::new(), '│')
        };
        let line = screen.paint(Ink::Good, line);
        chart.push(format!("{label:>LABEL$} {tick}{line}", LABEL = LABEL - 2));
    }
    let n_columns = stretches.len() * widened;
    chart.push(format!(
        "{:>1$} └{2}",
        "0",
        LABEL - 2,
        "─".repeat(n_columns)
    ));
    let each = if n_each > 1 {
        format!("  (each column is {n_each} s)")
    } else {
        String::new()
    };
    chart.push(format!("{}{each}", times(n_columns, held)));
    chart.extend(beneath(
        "refused/s",
        &row,
        &|own| own.refused_per_s,
        screen,
        rate,
    ));
    chart.extend(beneath(
        "failed/s",
        &row,
        &|own| own.failed_per_s,
        screen,
        rate,
    ));
    let ms = |value: f64| format!("{} ms", fine_ms(Some(value)));
    let p99 = |own: &Stretch| own.p99_ms.unwrap_or_default();
    chart.extend(beneath("p99", &row, &p99, screen, ms));
    chart
}

type Row<'a> = dyn Fn(&dyn Fn(&Stretch) -> f64, usize) -> (Vec<String>, f64) + 'a;

/// One line for a figure that is not always nothing, with the most it came to.
fn beneath(
    name: &str,
    row: &Row<'_>,
    figure: &dyn Fn(&Stretch) -> f64,
    screen: Screen,
    words: impl Fn(f64) -> String,
) -> Option<String> {
    let (lines, most) = row(figure, 1);
    let line = lines.first().filter(|_| most > 0.0)?;
    let ink = if name == "p99" { Ink::Faint } else { Ink::Bad };
    Some(format!(
        "{name:>LABEL$}  {}  up to {}",
        screen.paint(ink, line),
        words(most),
        LABEL = LABEL - 2
    ))
}

/// The beginning and the end below the axis.
fn times(n_columns: usize, held: &HeldLoad) -> String {
    let end = format_duration(held.summary.length);
    let gap = n_columns.saturating_sub("0 s".len()).max(end.len() + 1);
    format!("{:LABEL$}0 s{end:>gap$}", "")
}

fn stretch(seconds: &[Second], length_s: f64) -> Stretch {
    let from = seconds
        .first()
        .map_or(0.0, |second| f64::from(second.second));
    // The last second may be a part of one.
    let took_s = (length_s - from)
        .min(seconds.len() as f64)
        .max(f64::MIN_POSITIVE);
    let per_s = |count: fn(&Second) -> u64| seconds.iter().map(count).sum::<u64>() as f64 / took_s;
    let p99s = seconds.iter().filter_map(|second| second.latency_ms.p99);
    Stretch {
        successes_per_s: per_s(|second| second.successes),
        failed_per_s: per_s(Second::failed),
        refused_per_s: per_s(|second| second.refused),
        p99_ms: p99s.reduce(f64::max),
    }
}
