//! Rows of every shape that charts must look right with; for the tests.

use std::path::Path;

use indexmap::IndexMap;

use super::ChartInfo;
use crate::results::{TrialRow, Verdict, parse_trials, read_trials};
use crate::scalar::Scalar;

pub(super) fn info() -> ChartInfo {
    ChartInfo {
        title: "game-of-pools".into(),
        tier: Some("cpus".into()),
        axis_titles: IndexMap::from([
            (
                "web".to_owned(),
                "Web threads / CPU limit [threads/core]".to_owned(),
            ),
            ("db".to_owned(), "DB connections / web threads".to_owned()),
        ]),
    }
}

pub(super) fn reference() -> Vec<TrialRow> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/game-of-pools/trials.csv");
    read_trials(&path).unwrap().rows
}

/// A grid of rows; `figures` says throughput and p99 for the indexes of each axis and the repeat.
pub(super) fn rows(
    axes: &[(&str, Vec<Scalar>)],
    repeats: u32,
    figures: impl Fn(&[usize], u32) -> Result<(f64, f64), &'static str>,
) -> Vec<TrialRow> {
    let blank = parse_trials(
        Path::new("blank"),
        b"cell_id,axis_cpus,verdict,throughput_rps\nx,1,valid,\n",
    )
    .unwrap()
    .rows
    .remove(0);
    let n_cells: usize = axes.iter().map(|(_, levels)| levels.len()).product();
    let mut out = Vec::new();
    for cell in 0..n_cells {
        let mut rest = cell;
        let mut indexes = vec![0; axes.len()];
        for (at, (_, levels)) in axes.iter().enumerate().rev() {
            indexes[at] = rest % levels.len();
            rest /= levels.len();
        }
        for repeat in 0..repeats {
            let mut row = blank.clone();
            row.trial = (cell as u32) * repeats + repeat + 1;
            row.block = repeat + 1;
            row.axes = axes
                .iter()
                .zip(&indexes)
                .map(|((name, levels), index)| ((*name).to_owned(), levels[*index].clone()))
                .collect();
            let parts: Vec<String> = row
                .axes
                .iter()
                .map(|(name, level)| format!("{name}-{level}"))
                .collect();
            row.cell_id = parts.join("__");
            match figures(&indexes, repeat) {
                Ok((throughput, p99)) => {
                    row.throughput_rps = Some(throughput);
                    row.p99_due_ms = Some(p99);
                }
                Err(reason) => {
                    row.verdict = Verdict::Failed;
                    row.reason = Some(reason.to_owned());
                }
            }
            out.push(row);
        }
    }
    out
}

fn numbers(values: &[f64]) -> Vec<Scalar> {
    values
        .iter()
        .map(|value| Scalar::from_number(*value).unwrap())
        .collect()
}

pub(super) fn steps(n: u32) -> Vec<Scalar> {
    (1..=n).map(|value| Scalar::Integer(value.into())).collect()
}

fn words(n: usize) -> Vec<Scalar> {
    (0..n)
        .map(|k| Scalar::Text(format!("collector {k} with a rather long name & <more>")))
        .collect()
}

/// Numbers that look like measurements and are the same every time.
fn noise(indexes: &[usize], repeat: u32) -> f64 {
    let mut state = 0x9e37_79b9_u32 ^ repeat;
    for index in indexes {
        state = (state ^ *index as u32)
            .wrapping_mul(0x85eb_ca6b)
            .rotate_left(13);
    }
    f64::from(state % 1000) / 1000.0 - 0.5
}

pub(super) fn plausible(indexes: &[usize], repeat: u32) -> (f64, f64) {
    let tier = indexes[0] as f64 + 1.0;
    let x = indexes.get(1).map_or(0.0, |index| *index as f64);
    let line = indexes.get(2).map_or(0.0, |index| *index as f64);
    let throughput = 700.0 * tier * (1.0 + 0.3 * (x * 0.9).sin() - 0.02 * line);
    let p99 = 8.0 + 4.0 * x + line;
    let factor = 1.0 + 0.06 * noise(indexes, repeat);
    (throughput * factor, p99 * factor)
}

type Case = (&'static str, Vec<TrialRow>, ChartInfo);

/// The cases that must look right, by name.
pub(super) fn gallery() -> Vec<Case> {
    let mut cases = vec![("reference", reference(), info())];
    cases.extend(shapes());
    cases.extend(faults());
    for (_, rows, _) in cases.iter_mut().skip(1) {
        for row in rows {
            row.window = "stress".into();
            row.answers = Some("capacity".into());
            row.load_model = Some("closed".into());
        }
    }
    cases.extend(names());
    cases
}

/// A case of plausible figures.
fn plain(name: &'static str, axes: &[(&str, Vec<Scalar>)], repeats: u32) -> Case {
    (
        name,
        rows(axes, repeats, |i, r| Ok(plausible(i, r))),
        info(),
    )
}

/// Few and many tiers, levels, axes and repeats.
fn shapes() -> Vec<Case> {
    let cpus = |n: u32| ("cpus", steps(n));
    let web = |n: u32| ("web", steps(n));
    let db = |n: u32| ("db", steps(n));
    let doubling = numbers(&[1.0, 2.0, 4.0, 8.0, 16.0, 64.0]);
    let switch = vec![Scalar::Boolean(true), Scalar::Boolean(false)];
    vec![
        plain("one-cell", &[cpus(1), web(1), db(1)], 1),
        plain("only-tier", &[cpus(4)], 3),
        plain("one-axis", &[cpus(2), ("web", doubling)], 5),
        plain("eight-tiers", &[cpus(8), web(4), db(3)], 3),
        plain("twenty-by-twenty", &[cpus(2), web(20), db(20)], 1),
        plain("twenty-tiers", &[cpus(20), web(2), db(2)], 2),
        plain(
            "words",
            &[cpus(2), ("gc", words(20)), ("heap", words(9))],
            2,
        ),
        plain(
            "panels",
            &[cpus(2), web(4), db(3), ("heap", words(3)), ("tls", switch)],
            2,
        ),
    ]
}

/// Cells that are missing, infinite, huge or tiny.
fn faults() -> Vec<Case> {
    let web = ("web", numbers(&[1.0, 1.5, 2.0, 2.5, 3.0]));
    let db = ("db", numbers(&[1.5, 2.0, 2.5, 3.0]));
    let gaps = rows(&[("cpus", steps(3)), web, db], 5, |i, r| {
        match (i[0], i[1], i[2], r) {
            (0, 2, ..) => Err("exited"),
            (0, 3, 1, _) => Err("no_success"),
            (0, 1, 0, 0..2) => Err("limits_not_applied"),
            (0, 4, 2, 3) | (1, 4, 3, _) => Ok((plausible(i, r).0, f64::INFINITY)),
            (2, ..) => Err("not_ready"),
            _ => Ok(plausible(i, r)),
        }
    });
    let small = |tiers: Vec<Scalar>, x: u32, lines: u32| {
        [("cpus", tiers), ("web", steps(x)), ("db", steps(lines))]
    };
    let failed = rows(&small(steps(2), 3, 2), 2, |_, _| Err("exited"));
    let many_failed = rows(&small(steps(1), 20, 20), 1, |i, r| {
        if (i[1] + i[2]) % 3 == 0 {
            Err("a_reason_with_a_long_name")
        } else {
            Ok(plausible(i, r))
        }
    });
    let wide = rows(&small(steps(2), 5, 3), 1, |i, _| {
        let share = (i[1] * 3 + i[2]) as f64 / 14.0;
        Ok((
            0.2 * 1_250_000_f64.powf(share),
            0.05 * 600_000_f64.powf(share),
        ))
    });
    let tiny = rows(&small(numbers(&[0.25, 0.5]), 3, 2), 2, |i, r| {
        let (throughput, p99) = plausible(i, r);
        Ok((throughput / 5000.0, p99 / 200.0))
    });
    let zero = rows(&small(steps(2), 3, 2), 2, |_, _| Ok((0.0, f64::INFINITY)));
    vec![
        ("gaps", gaps, info()),
        ("all-failed", failed, info()),
        ("many-failed", many_failed, info()),
        ("wide-span", wide, info()),
        ("tiny", tiny, info()),
        ("zero", zero, info()),
    ]
}

/// Runs without a tier, with words for tiers, and with long names.
fn names() -> Vec<Case> {
    let mut without = plain("no-tier", &[("web", steps(4)), ("db", steps(3))], 2);
    without.2.tier = None;
    let mut long = plain(
        "long-names",
        &[("cpus", steps(2)), ("web", steps(3)), ("db", steps(2))],
        1,
    );
    long.2.title = "a-run-with-quite-a-long-name-".repeat(9);
    for title in long.2.axis_titles.values_mut() {
        *title = format!("{title}, {}", "said at length ".repeat(12));
    }
    vec![
        without,
        long,
        plain("word-tiers", &[("cpus", words(5)), ("web", steps(3))], 2),
    ]
}
