//! Every chart as a scene: marks counted, texts inside the canvas and apart from each other.

use std::path::Path;

use indexmap::IndexMap;

use super::*;
use crate::results::{Verdict, parse_trials, read_trials};
use crate::scalar::Scalar;

fn info() -> ChartInfo {
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

fn reference() -> Vec<TrialRow> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/game-of-pools/trials.csv");
    read_trials(&path).unwrap().rows
}

/// A grid of rows; `figures` says throughput and p99 for the indexes of each axis and the repeat.
fn rows(
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

fn steps(n: u32) -> Vec<Scalar> {
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

fn plausible(indexes: &[usize], repeat: u32) -> (f64, f64) {
    let tier = indexes[0] as f64 + 1.0;
    let x = indexes.get(1).map_or(0.0, |index| *index as f64);
    let line = indexes.get(2).map_or(0.0, |index| *index as f64);
    let throughput = 700.0 * tier * (1.0 + 0.3 * (x * 0.9).sin() - 0.02 * line);
    let p99 = 8.0 + 4.0 * x + line;
    let factor = 1.0 + 0.06 * noise(indexes, repeat);
    (throughput * factor, p99 * factor)
}

/// The cases that must look right, by name.
fn gallery() -> Vec<(&'static str, Vec<TrialRow>, ChartInfo)> {
    let tiers = |n: u32| ("cpus", steps(n));
    let mut cases: Vec<(&'static str, Vec<TrialRow>)> = vec![
        ("reference", reference()),
        (
            "one-cell",
            rows(
                &[tiers(1), ("web", steps(1)), ("db", steps(1))],
                1,
                |i, r| Ok(plausible(i, r)),
            ),
        ),
        (
            "only-tier",
            rows(&[tiers(4)], 3, |i, r| Ok(plausible(i, r))),
        ),
        (
            "one-axis",
            rows(
                &[
                    tiers(2),
                    ("web", numbers(&[1.0, 2.0, 4.0, 8.0, 16.0, 64.0])),
                ],
                5,
                |i, r| Ok(plausible(i, r)),
            ),
        ),
        (
            "eight-tiers",
            rows(
                &[tiers(8), ("web", steps(4)), ("db", steps(3))],
                3,
                |i, r| Ok(plausible(i, r)),
            ),
        ),
        (
            "twenty-by-twenty",
            rows(
                &[tiers(2), ("web", steps(20)), ("db", steps(20))],
                1,
                |i, r| Ok(plausible(i, r)),
            ),
        ),
        (
            "words",
            rows(
                &[tiers(2), ("gc", words(20)), ("heap", words(9))],
                2,
                |i, r| Ok(plausible(i, r)),
            ),
        ),
        (
            "gaps",
            rows(
                &[
                    tiers(3),
                    ("web", numbers(&[1.0, 1.5, 2.0, 2.5, 3.0])),
                    ("db", numbers(&[1.5, 2.0, 2.5, 3.0])),
                ],
                5,
                |i, r| match (i[0], i[1], i[2], r) {
                    (0, 2, ..) => Err("exited"),
                    (0, 3, 1, _) => Err("no_success"),
                    (0, 1, 0, 0..2) => Err("limits_not_applied"),
                    (0, 4, 2, 3) | (1, 4, 3, _) => Ok((plausible(i, r).0, f64::INFINITY)),
                    (2, ..) => Err("not_ready"),
                    _ => Ok(plausible(i, r)),
                },
            ),
        ),
        (
            "all-failed",
            rows(
                &[tiers(2), ("web", steps(3)), ("db", steps(2))],
                2,
                |_, _| Err("exited"),
            ),
        ),
        (
            "wide-span",
            rows(
                &[tiers(2), ("web", steps(5)), ("db", steps(3))],
                1,
                |i, _| {
                    let share = (i[1] * 3 + i[2]) as f64 / 14.0;
                    Ok((
                        0.2 * 1_250_000_f64.powf(share),
                        0.05 * 600_000_f64.powf(share),
                    ))
                },
            ),
        ),
        (
            "tiny",
            rows(
                &[
                    ("cpus", numbers(&[0.25, 0.5])),
                    ("web", steps(3)),
                    ("db", steps(2)),
                ],
                2,
                |i, r| {
                    let (throughput, p99) = plausible(i, r);
                    Ok((throughput / 5000.0, p99 / 200.0))
                },
            ),
        ),
        (
            "panels",
            rows(
                &[
                    tiers(2),
                    ("web", steps(4)),
                    ("db", steps(3)),
                    ("heap", words(3)),
                    ("tls", vec![Scalar::Boolean(true), Scalar::Boolean(false)]),
                ],
                2,
                |i, r| Ok(plausible(i, r)),
            ),
        ),
    ];
    for row in cases.iter_mut().skip(1).flat_map(|(_, rows)| rows) {
        row.window = "stress".into();
        row.answers = Some("capacity".into());
        row.load_model = Some("closed".into());
    }
    let mut out: Vec<_> = cases
        .into_iter()
        .map(|(name, rows)| (name, rows, info()))
        .collect();
    let no_tier = rows(&[("web", steps(4)), ("db", steps(3))], 2, |i, r| {
        Ok(plausible(i, r))
    });
    let mut without = info();
    without.tier = None;
    out.push(("no-tier", no_tier, without));
    let named = rows(&[("cpus", words(5)), ("web", steps(3))], 2, |i, r| {
        Ok(plausible(i, r))
    });
    out.push(("word-tiers", named, info()));
    out
}

#[test]
fn every_case_of_the_gallery_keeps_its_texts_inside_and_apart() {
    for (case, rows, info) in gallery() {
        for NamedScene { name, scene } in scenes(&rows, &info).unwrap() {
            let texts = scene.text_extents();
            for (index, (text, extent)) in texts.iter().enumerate() {
                let inside = extent.0 >= 0.0
                    && extent.1 >= 0.0
                    && extent.2 <= scene.width
                    && extent.3 <= scene.height;
                assert!(
                    inside,
                    "{case}/{name}: `{text}` leaves the canvas: {extent:?}"
                );
                for (other, with) in &texts[..index] {
                    let apart = extent.0 >= with.2
                        || with.0 >= extent.2
                        || extent.1 >= with.3
                        || with.1 >= extent.3;
                    assert!(apart, "{case}/{name}: `{text}` and `{other}` overlap");
                }
            }
        }
    }
}

/// Writes the gallery for people to look at, where a folder is given; else draws one case.
#[test]
fn charts_are_written_as_svg_and_png_and_the_same_rows_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let to_look_at = std::env::var_os("CHART_GALLERY");
    let wanted = std::env::var("CHART_CASE").unwrap_or_default();
    if let Some(base) = &to_look_at {
        for (case, rows, info) in gallery() {
            if wanted.is_empty() || wanted.split(',').any(|name| name == case) {
                draw_all(&rows, &info, &Path::new(base).join(case)).unwrap();
            }
        }
        return;
    }
    let (_, rows, info) = gallery().into_iter().nth(1).unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let first = draw_all(&rows, &info, &a).unwrap();
    let second = draw_all(&rows, &info, &b).unwrap();
    let names: Vec<_> = first
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        names,
        [
            "tier-1-throughput.svg",
            "tier-1-throughput.png",
            "tier-1-p99.svg",
            "tier-1-p99.png",
            "heatmap-throughput.svg",
            "heatmap-throughput.png",
            "heatmap-p99.svg",
            "heatmap-p99.png",
            "scaling.svg",
            "scaling.png",
        ]
    );
    for (one, other) in first.iter().zip(&second) {
        let bytes = fs_err::read(one).unwrap();
        assert_eq!(bytes, fs_err::read(other).unwrap(), "{}", one.display());
        if one.extension().unwrap() == "png" {
            assert!(bytes.starts_with(b"\x89PNG"));
        } else {
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.starts_with("<svg xmlns=") && text.trim_end().ends_with("</svg>"));
            assert!(text.contains("<title>game-of-pools") && text.contains("</text>"));
        }
    }
}
