use std::path::Path;

use super::*;
use crate::measure::{Interval, SentIn};
use crate::results::{RunsFolder, Verdict, cuts_csv, write_histogram_log};

fn row(window: &str, window_s: f64, latency_from: &str) -> TrialRow {
    TrialRow {
        run_id: "r".into(),
        trial: 1,
        attempt: 1,
        cell_id: "cpus-1".into(),
        window: window.into(),
        window_s: Some(window_s),
        latency_from: Some(latency_from.into()),
        verdict: Verdict::Valid,
        requests: Some(1),
        ..TrialRow::default()
    }
}

/// Ten successes of 1, 2, ... ms in each second; of those of second 1 two leave in second 2
/// and three after the end.
fn intervals(n_seconds: u32) -> Vec<Interval> {
    (0..n_seconds)
        .map(|second| {
            let values = vec![(u64::from(second + 1) * 1_000_000, 10)];
            let interval = Interval::new(second, "read%20it|success".into(), values);
            if second == 1 {
                interval.with_left_later(vec![(SentIn::Second(2), 2), (SentIn::Drain, 3)])
            } else {
                interval
            }
        })
        .collect()
}

fn run_with(logs: &[(&TrialRow, u32)]) -> (tempfile::TempDir, RunFolder) {
    let base = tempfile::tempdir().unwrap();
    let folder = RunsFolder::under(base.path()).create("r").unwrap();
    for (row, n_seconds) in logs {
        let path = folder.histogram_log(row.trial, row.attempt, &row.window, row.step);
        let length = Duration::from_secs_f64(row.window_s.unwrap());
        write_histogram_log(&path, &intervals(*n_seconds), length, 0.0).unwrap();
    }
    (base, folder)
}

fn asked(from_s: u32, to_s: Option<u32>) -> Cut {
    Cut { from_s, to_s }
}

#[test]
fn a_window_that_ends_sooner_is_cut_at_its_end_or_says_that_it_has_no_such_part() {
    let (short, long) = (row("short", 2.5, "due"), row("long", 4.0, "due"));
    let (_base, folder) = run_with(&[(&short, 3), (&long, 4)]);
    let rows = [short, long];
    let cuts = cut_windows(&folder, &rows, asked(2, Some(60))).unwrap();
    let [short, long] = [0, 1].map(|index| cuts[index].part.as_ref().unwrap());
    assert_eq!(
        (short.from_s, short.to_s, short.is_shortened),
        (2.0, 2.5, true)
    );
    // Ten that were due in it and two from before, in half a second.
    assert_eq!(short.figures.total.counts.successes, 10);
    assert_eq!(short.figures.total.throughput_rps.to_string(), "24");
    assert_eq!((long.to_s, long.is_shortened), (4.0, true));
    assert_eq!(long.figures.total.throughput_rps.to_string(), "11");
    let cuts = cut_windows(&folder, &rows, asked(3, None)).unwrap();
    assert_eq!(cuts[0].part, Err("the window ends after 2.5 s".to_owned()));
    let long = cuts[1].part.as_ref().unwrap();
    assert_eq!((long.to_s, long.is_shortened), (4.0, false));
    assert_eq!(long.figures.operations[0].0, "read it");
}

#[test]
fn rows_without_figures_say_why() {
    let failed = TrialRow {
        verdict: Verdict::Failed,
        reason: Some("exited".into()),
        requests: None,
        ..row("a", 2.0, "send")
    };
    let skipped = TrialRow {
        verdict: Verdict::Skipped,
        requests: None,
        ..row("b", 2.0, "send")
    };
    let lost = row("c", 2.0, "send");
    let (_base, folder) = run_with(&[]);
    let rows = [failed, skipped, lost];
    let cuts = cut_windows(&folder, &rows, asked(0, None)).unwrap();
    let why: Vec<&str> = cuts
        .iter()
        .map(|cut| cut.part.as_ref().unwrap_err().as_str())
        .collect();
    assert_eq!(
        why,
        [
            "failed: exited",
            "skipped",
            "its histograms are not in the run's folder"
        ]
    );
    let csv = cuts_csv(&cuts);
    assert!(
        csv.lines().all(|line| line.split(',').count() == 41),
        "{csv}"
    );
    assert!(
        csv.contains(",skipped,,,") && csv.ends_with("folder\n"),
        "{csv}"
    );
}

#[test]
fn a_log_that_does_not_tell_when_requests_left_gives_no_rates_in_an_open_loop() {
    let (open, closed) = (row("open", 3.0, "due"), row("closed", 3.0, "send"));
    let (_base, folder) = run_with(&[(&open, 3), (&closed, 3)]);
    for window in ["open", "closed"] {
        let path = folder.histogram_log(1, 1, window, None);
        let text = fs_err::read_to_string(&path).unwrap();
        let early: String = text
            .split_inclusive('\n')
            .filter(|line| !line.contains("[LeftLater"))
            .collect();
        fs_err::write(&path, early).unwrap();
    }
    let rows = [open, closed];
    let cuts = cut_windows(&folder, &rows, asked(0, None)).unwrap();
    let knows = |index: usize| cuts[index].part.as_ref().unwrap().knows_rates;
    assert_eq!([knows(0), knows(1)], [false, true]);
    let csv = cuts_csv(&cuts);
    let cells: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
    // Throughput and achieved rate are empty, the mean is there.
    assert_eq!(cells[25..28], ["", "", "1.99996"]);
}

#[test]
fn everything_wrong_in_all_logs_is_told_at_once_with_its_place() {
    let rows = [row("a", 2.0, "send"), row("b", 2.0, "send")];
    let (_base, folder) = run_with(&[(&rows[0], 2), (&rows[1], 2)]);
    for window in ["a", "b"] {
        let path = folder.histogram_log(1, 1, window, None);
        let text = fs_err::read_to_string(&path).unwrap();
        fs_err::write(&path, text.replace("read%20it|success", "read it")).unwrap();
    }
    let Problems(problems) = cut_windows(&folder, &rows, asked(0, None)).unwrap_err();
    let places: Vec<(&Path, usize)> = problems
        .iter()
        .map(|problem| (problem.location.file.as_path(), problem.location.line))
        .collect();
    let [a, b] = ["a", "b"].map(|window| folder.histogram_log(1, 1, window, None));
    // Six lines of head; the line below the second interval belongs to nothing.
    let expected: Vec<(&Path, usize)> = [a.as_path(), b.as_path()]
        .into_iter()
        .flat_map(|path| [7, 8, 9].map(|line| (path, line)))
        .collect();
    assert_eq!(places, expected);
}
