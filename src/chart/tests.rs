//! Every chart as a scene: marks counted, texts inside the canvas and apart from each other.

use proptest::prelude::*;

use super::gallery::{gallery, info, plausible, reference, rows, steps};
use super::*;
use crate::scalar::Scalar;

/// A text and its box: left, top, right, bottom; from the capitals' height to the descenders' depth.
type TextExtent = (String, (f64, f64, f64, f64));

fn text_extents(scene: &Scene) -> Vec<TextExtent> {
    let extent = |item: &Item| {
        let Shape::Text {
            at: (x, y),
            text,
            size,
            bold,
            anchor,
            upwards,
            ..
        } = &item.shape
        else {
            return None;
        };
        let width = font::width(text, *size, *bold);
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let (above, below) = (0.72 * size, 0.21 * size);
        let extent = if *upwards {
            (x - above, y + before - width, x + below, y + before)
        } else {
            (x - before, y - above, x - before + width, y + below)
        };
        Some((text.clone(), extent))
    };
    scene.items.iter().filter_map(extent).collect()
}

#[test]
fn every_case_of_the_gallery_keeps_its_texts_inside_and_apart() {
    for (case, rows, info) in gallery() {
        for NamedScene { name, scene } in scenes(&rows, &info).unwrap() {
            texts_are_inside_and_apart(&scene, &format!("{case}/{name}"));
        }
    }
}

fn texts_are_inside_and_apart(scene: &Scene, name: &str) {
    let texts = text_extents(scene);
    for (index, (text, extent)) in texts.iter().enumerate() {
        let inside = extent.0 >= 0.0
            && extent.1 >= 0.0
            && extent.2 <= scene.width
            && extent.3 <= scene.height;
        assert!(inside, "{name}: `{text}` leaves the canvas: {extent:?}");
        for (other, with) in &texts[..index] {
            let apart = extent.0 >= with.2
                || with.0 >= extent.2
                || extent.1 >= with.3
                || with.1 >= extent.3;
            assert!(apart, "{name}: `{text}` and `{other}` overlap");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn charts_of_any_shape_keep_their_texts_apart_and_their_marks_inside(
        levels in (1_u32..6, 1_u32..13, 1_u32..13),
        repeats in 1_u32..4,
        exponents in (-3_i32..6, -3_i32..5),
        spread in 0.0_f64..6.0,
        holes in 0_u64..8,
        seed in any::<u64>(),
    ) {
        let axes = [("cpus", steps(levels.0)), ("web", steps(levels.1)), ("db", steps(levels.2))];
        let chance = |indexes: &[usize], repeat: u32, salt: u64| {
            let key = indexes.iter().fold(seed ^ salt, |key, index| {
                key.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(*index as u64 + 1).rotate_left(23)
            });
            fastrand::Rng::with_seed(key ^ u64::from(repeat)).u64(0..1000)
        };
        let rows = rows(&axes, repeats, |indexes, repeat| {
            if chance(indexes, repeat, 1) % 8 < holes {
                return Err("exited");
            }
            let share = chance(indexes, repeat, 2) as f64 / 1000.0 * spread;
            let p99 = 10_f64.powf(f64::from(exponents.1) + share);
            let is_infinite = chance(indexes, repeat, 3) < 30;
            let throughput = 10_f64.powf(f64::from(exponents.0) + share);
            Ok((throughput, if is_infinite { f64::INFINITY } else { p99 }))
        });
        for NamedScene { name, scene } in scenes(&rows, &info()).unwrap() {
            texts_are_inside_and_apart(&scene, &name);
            for item in &scene.items {
                for (x, y) in corners(&item.shape) {
                    let inside = (-1.0..=scene.width + 1.0).contains(&x)
                        && (-1.0..=scene.height + 1.0).contains(&y);
                    prop_assert!(inside, "{}: {:?} at {:?}", name, item.part, (x, y));
                }
            }
        }
    }
}

fn corners(shape: &Shape) -> Vec<(f64, f64)> {
    match shape {
        Shape::Rectangle { at, size, .. } => vec![*at, (at.0 + size.0, at.1 + size.1)],
        Shape::Path { points, .. } | Shape::Polygon { points, .. } => points.clone(),
        Shape::Circle { at, radius, .. } => vec![
            (at.0 - radius, at.1 - radius),
            (at.0 + radius, at.1 + radius),
        ],
        Shape::Text { at, .. } => vec![*at],
    }
}

/// `CHART_GALLERY=<folder>` keeps the pictures for people to look at.
#[test]
fn every_case_of_the_gallery_renders() {
    let to_look_at = std::env::var_os("CHART_GALLERY").map(PathBuf::from);
    for (case, rows, info) in gallery() {
        for NamedScene { name, scene } in scenes(&rows, &info).unwrap() {
            let svg = render::svg(&scene).unwrap();
            assert_eq!(
                svg.matches("<text").count(),
                scene.texts().len(),
                "{case}/{name}"
            );
            if let Some(folder) = to_look_at.as_ref().map(|base| base.join(case)) {
                fs_err::create_dir_all(&folder).unwrap();
                fs_err::write(folder.join(format!("{name}.svg")), svg).unwrap();
            }
        }
    }
}

#[test]
fn charts_are_written_as_svg_and_png_and_the_same_rows_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (_, rows, info) = gallery().into_iter().nth(1).unwrap();
    let first = draw_all(&rows, &info, folder.path()).unwrap();
    let again = scenes(&rows, &info).unwrap();
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
    for (pair, NamedScene { name, scene }) in first.chunks(2).zip(&again) {
        let svg = fs_err::read_to_string(&pair[0]).unwrap();
        assert_eq!(svg, render::svg(scene).unwrap(), "{name}");
        assert!(svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("<title>game-of-pools") && svg.contains("</text>"));
        assert!(fs_err::read(&pair[1]).unwrap().starts_with(b"\x89PNG"));
    }
    let png = fs_err::read(&first[9]).unwrap();
    assert_eq!(png, render::png(&again[4].scene).unwrap());
}

fn scene_of(rows: &[TrialRow], info: &ChartInfo, name: &str) -> Scene {
    let found = scenes(rows, info).unwrap();
    let named = found.into_iter().find(|scene| scene.name == name);
    named.unwrap().scene
}

fn case(wanted: &str) -> (Vec<TrialRow>, ChartInfo) {
    let found = gallery().into_iter().find(|(name, ..)| *name == wanted);
    let (_, rows, info) = found.unwrap();
    (rows, info)
}

#[test]
fn the_reference_is_drawn_cell_by_cell() {
    let rows = reference();
    for tier in [2, 4, 6, 8] {
        let scene = scene_of(&rows, &info(), &format!("tier-{tier}-throughput"));
        assert_eq!(scene.count(Part::Mean), 20);
        // Five levels are joined by four stretches, on four lines.
        assert_eq!(scene.count(Part::Line), 16);
        assert_eq!(
            (scene.count(Part::Repeat), scene.count(Part::Missing)),
            (0, 0)
        );
    }
    let scene = scene_of(&rows, &info(), "heatmap-throughput");
    assert_eq!(scene.count(Part::Cell), 80);
    // An outline is four bars; every tier has one.
    assert_eq!(scene.count(Part::Best), 16);
    for best in ["1,596", "3,094", "4,353", "5,684"] {
        assert!(scene.texts().contains(&best), "{best}");
    }
    let scene = scene_of(&rows, &info(), "scaling");
    assert_eq!(scene.count(Part::Mean), 4);
    for words in [
        "5,684/s",
        "web_threads 12",
        "db_pool 30",
        "CPU limit [cores]",
    ] {
        assert!(scene.texts().contains(&words), "{words}");
    }
}

#[test]
fn axis_titles_carry_their_units() {
    let rows = reference();
    let throughput = scene_of(&rows, &info(), "tier-2-throughput");
    assert!(
        throughput
            .texts()
            .contains(&"Throughput [successful requests/s]")
    );
    let p99 = scene_of(&rows, &info(), "tier-2-p99");
    assert!(p99.texts().contains(&"p99 latency [ms]"));
    assert!(p99.title.contains("game-of-pools") && p99.title.contains("CPU limit 2 cores"));
}

#[test]
fn missing_lost_and_infinite_cells_are_marked_and_said() {
    let (rows, info) = case("gaps");
    let scene = scene_of(&rows, &info, "tier-1-p99");
    // Four cells at the level that exited, one that never succeeded.
    assert_eq!(scene.count(Part::Missing), 5);
    assert_eq!(scene.count(Part::Infinite), 1);
    assert_eq!(scene.count(Part::Mean), 14);
    // Fifteen cells of five launches, two lost at one, one infinite at another.
    assert_eq!(scene.count(Part::Repeat), 15 * 5 - 3);
    let said = scene.texts().join(" ");
    for words in [
        "× no valid measurement: exited – web 2, db 1.5",
        "no_success – web 2.5, db 2",
        "inf: more than 1 % of what was due failed – web 3, db 2.5 (1 of 5 launches)",
        "limits_not_applied – web 1.5, db 1.5 (2 of 5 launches)",
        "5 of 20 cells without a valid",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    let map = scene_of(&rows, &info, "heatmap-throughput");
    assert!(
        map.texts()
            .join(" ")
            .contains("CPU limit 3 cores, every cell")
    );
    assert_eq!(map.count(Part::Cell), 60 - 25);
}

#[test]
fn when_every_cell_failed_the_charts_say_so() {
    let (rows, info) = case("all-failed");
    for NamedScene { name, scene } in scenes(&rows, &info).unwrap() {
        let said = scene.texts().join(" ");
        assert!(said.contains("valid measurement"), "{name}: {said}");
        assert_eq!(
            scene.count(Part::Mean) + scene.count(Part::Cell),
            0,
            "{name}"
        );
    }
}

#[test]
fn a_wide_span_is_marked_as_logarithmic() {
    let (rows, info) = case("wide-span");
    let lines = scene_of(&rows, &info, "tier-1-p99");
    assert!(lines.texts().contains(&"p99 latency [ms], log scale"));
    assert!(
        scene_of(&rows, &info, "heatmap-p99")
            .texts()
            .contains(&"log scale")
    );
}

#[test]
fn rows_of_no_cell_draw_nothing_and_say_so() {
    let error = scenes(&[], &info()).unwrap_err();
    assert!(matches!(error, ChartError::NoCells { n_rows: 0 }));
    let mut pilot = reference();
    for row in &mut pilot {
        row.role = "pilot".into();
    }
    assert!(matches!(
        scenes(&pilot, &info()),
        Err(ChartError::NoCells { n_rows: 80 })
    ));
}

#[test]
fn levels_that_look_alike_in_file_names_get_files_of_their_own() {
    let levels = ["a b", "a/b", "a-b"].map(|text| Scalar::Text(text.into()));
    let rows = rows(
        &[("cpus", levels.to_vec()), ("web", steps(2))],
        1,
        |i, r| Ok(plausible(i, r)),
    );
    let names: Vec<String> = scenes(&rows, &info())
        .unwrap()
        .into_iter()
        .map(|s| s.name)
        .collect();
    assert!(names.contains(&"tier-a-b-throughput".to_owned()));
    assert!(names.contains(&"tier-a-b-2-throughput".to_owned()));
    assert!(names.contains(&"tier-a-b-3-throughput".to_owned()));
}

#[test]
fn the_order_of_the_rows_changes_nothing_where_levels_are_numbers() {
    let rows = reference();
    let mut turned = rows.clone();
    turned.reverse();
    for (a, b) in scenes(&rows, &info())
        .unwrap()
        .iter()
        .zip(&scenes(&turned, &info()).unwrap())
    {
        // Shapes may be listed in another order; what is said is the same.
        let (mut a, mut b) = (a.scene.texts(), b.scene.texts());
        a.sort_unstable();
        b.sort_unstable();
        assert_eq!(a, b);
    }
}
