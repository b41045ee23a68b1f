//! The committed sample run: the README's figures and charts come from it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{Ended, Sandbox, repository};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn the_sample_is_redrawn_as_it_is_committed_and_its_table_is_the_readmes() {
    let sandbox = Sandbox::new();
    copy(
        &repository().join("results/sample"),
        &sandbox.path().join("results/sample"),
    );
    let ended = sandbox.run(&["report", "sample"]).exits(0);
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(
        readme.contains(ended.stdout.trim()),
        "the README's table should be:\n{}",
        ended.stdout
    );

    let mut n_compared = 0;
    for entry in std::fs::read_dir(sandbox.path().join("charts/sample")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_owned();
        // PNG bytes depend on the compression library's version; the SVG is the same picture.
        if path
            .extension()
            .is_some_and(|extension| extension == "svg" || extension == "csv")
        {
            let committed = std::fs::read(repository().join("charts/sample").join(&name)).unwrap();
            assert!(
                std::fs::read(&path).unwrap() == committed,
                "{} differs",
                name.display()
            );
            n_compared += 1;
        }
    }
    assert!(n_compared >= 7);
}

/// Rows of a CSV as column → text, by key.
fn rows(csv: &str, key: impl Fn(&BTreeMap<String, String>) -> String) -> Rows {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    let mut rows = Rows::new();
    for record in reader.records() {
        let record = record.unwrap();
        let cells = header.iter().map(str::to_owned);
        let row: BTreeMap<_, _> = cells.zip(record.iter().map(str::to_owned)).collect();
        assert_eq!(rows.insert(key(&row), row), None);
    }
    rows
}

type Rows = BTreeMap<String, BTreeMap<String, String>>;

fn window_of(row: &BTreeMap<String, String>) -> String {
    let name = row.get("name").map_or("", String::as_str);
    format!("{} {} {name}", row["trial"], row["window"])
}

/// `report sample` over the committed files; a part of windows writes none.
fn part(arguments: &[&str]) -> Ended {
    let repository = repository().display().to_string();
    let mut all = vec!["report", "sample", "--out", &repository];
    all.extend(arguments);
    Sandbox::new().run(&all)
}

const COUNTS: [&str; 8] = [
    "due",
    "requests",
    "successes",
    "refused",
    "errors",
    "abandoned",
    "unsent",
    "clamped",
];
const FIGURES: [&str; 10] = [
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
];

#[test]
fn the_figures_of_whole_windows_follow_from_the_samples_histograms_alone() {
    let results = repository().join("results/sample");
    let read = |name: &str| std::fs::read_to_string(results.join(name)).unwrap();
    let mut written = rows(&read("trials.csv"), window_of);
    let n_windows = written.len();
    let mut operations = rows(&read("operations.csv"), window_of);
    // Journeys are in no histogram.
    operations.retain(|_, row| row["kind"] == "operation");
    written.append(&mut operations);
    let found = rows(&part(&["--from", "0s", "--csv"]).exits(0).stdout, window_of);
    assert_eq!(
        written.keys().collect::<Vec<_>>(),
        found.keys().collect::<Vec<_>>()
    );
    assert!(n_windows == 16 && written.len() > 500);
    let mut n_compared = 0;
    for (key, written) in &written {
        let found = &found[key];
        for column in COUNTS.iter().chain(&FIGURES) {
            let (Some(written), Some(found)) = (written.get(*column), found.get(*column)) else {
                continue;
            };
            assert_eq!(written, found, "{column} of {key}");
            n_compared += 1;
        }
    }
    assert!(n_compared > 16 * written.len() * 9 / 10, "{n_compared}");
}

#[test]
fn two_halves_of_the_samples_windows_add_up_to_the_whole() {
    let of = |arguments: &[&str]| {
        let arguments = [arguments, &["--csv"]].concat();
        rows(&part(&arguments).exits(0).stdout, window_of)
    };
    let whole = of(&["--from", "0"]);
    let (left, right) = (of(&["--to", "5s"]), of(&["--from", "5s", "--to", "1m"]));
    assert_eq!(left.len(), whole.len());
    for (key, whole) in &whole {
        let (left, right) = (&left[key], &right[key]);
        assert_eq!([&left["to_s"], &right["from_s"]], ["5", "5"]);
        assert_eq!([&right["to_s"], &right["shortened"]], ["12", "true"]);
        for column in COUNTS.iter().filter(|column| whole.contains_key(**column)) {
            let number = |row: &BTreeMap<String, String>| row[*column].parse::<u64>().unwrap();
            assert_eq!(
                number(left) + number(right),
                number(whole),
                "{column} of {key}"
            );
        }
        let max = |row: &BTreeMap<String, String>| row["max_ms"].parse::<f64>().unwrap_or(0.0);
        assert_eq!(max(left).max(max(right)), max(whole), "{key}");
        if whole["latency_from"] == "send" {
            let n = |row: &BTreeMap<String, String>, length: f64| {
                (row["throughput_rps"].parse::<f64>().unwrap() * length).round()
            };
            assert_eq!(n(left, 5.0) + n(right, 7.0), n(whole, 12.0), "{key}");
        }
    }
}

#[test]
fn a_part_is_shown_as_a_table_and_as_json_and_charts_are_left_alone() {
    let table = part(&["--from", "2s", "--to", "60s"]).exits(0);
    assert!(
        table.stdout.starts_with("each window from 2 s to 60 s"),
        "{}",
        table.stdout
    );
    assert!(
        table.stdout.contains("the window ends after 12 s"),
        "{}",
        table.stdout
    );
    assert_eq!(table.stdout.lines().count(), 19);
    assert!(!table.stderr.contains("charts"), "{}", table.stderr);
    let json = part(&["--from", "2s", "--json"]).exits(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let windows = json["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 16);
    for window in windows {
        let figures = &window["figures"];
        assert!(
            figures["latency_ms"]["p99"].as_f64().unwrap() > 0.0,
            "{window}"
        );
        let of_operations: u64 = window["operations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|operation| operation["figures"]["due"].as_u64().unwrap())
            .sum();
        assert_eq!(figures["due"].as_u64(), Some(of_operations));
    }
}

#[test]
fn parts_that_cannot_be_are_refused() {
    for (arguments, words) in [
        (&["--from", "1500ms"][..], "write 1s or 2s"),
        (&["--from", "ten"], "not a duration"),
        (
            &["--from", "5s", "--to", "5s"],
            "--to 5s is not after --from 5s",
        ),
        (&["--from", "12s"], "no window has figures from 12 s on"),
        (&["--json"], "--from"),
        (&["--from", "1s", "--json", "--csv"], "cannot be used with"),
    ] {
        let ended = part(arguments).exits(2);
        assert!(
            ended.stderr.contains(words),
            "{arguments:?}: {}",
            ended.stderr
        );
        assert_eq!(ended.stdout, "");
    }
}
