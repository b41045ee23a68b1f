use super::*;
use crate::measure::{ErrorClass, cut};

const S: u64 = 1_000_000_000;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stretch(from: u64, to: u64, scenario: Option<&str>) -> Stretch {
    Stretch {
        cut: Some(0),
        from: s(from),
        to: s(to),
        scenario: scenario.map(str::to_owned),
        is_open: false,
    }
}

fn windows(stretches: &[Stretch]) -> Windows {
    Windows::new(stretches, Instant::now())
}

fn request(scenario: &str, sent_ns: i64, duration_ns: u64, outcome: Outcome) -> Ended {
    let words = matches!(outcome, Outcome::Error(_)).then(|| "status 500".into());
    Ended::Request {
        scenario: scenario.into(),
        operation: "GET /".into(),
        sent_ns,
        duration_ns,
        outcome,
        words,
    }
}

fn at(ms: i64) -> i64 {
    ms * 1_000_000
}

#[test]
fn a_request_is_of_the_window_it_was_sent_in_to_the_nanosecond() {
    let mut windows = windows(&[stretch(0, 10, None), stretch(10, 20, None)]);
    let edge = at(10_000);
    for sent in [
        -1,
        0,
        edge - 1,
        edge,
        2 * edge - 1,
        2 * edge,
        i64::MAX,
        i64::MIN,
    ] {
        windows.add(request("a", sent, 5 * S, Outcome::Success));
    }
    let counts = |summary: WindowSummary| summary.total.counts.successes;
    assert_eq!(
        (counts(windows.sum(0, 1)), counts(windows.sum(1, 1))),
        (2, 2)
    );
}

#[test]
fn figures_add_up_by_outcome_operation_and_second() {
    let mut windows = windows(&[stretch(0, 10, None)]);
    windows.add(request("a", at(500), S / 100, Outcome::Success));
    windows.add(request("a", at(3_500), S / 10, Outcome::Success));
    windows.add(request(
        "a",
        at(3_600),
        S,
        Outcome::Error(ErrorClass::Status),
    ));
    windows.add(request("a", at(3_700), S, Outcome::Refused));
    windows.add(Ended::Dropped {
        scenario: "a".into(),
        at_ns: at(4_000),
        n: 2,
    });
    windows.set_time(
        0,
        ThreadTime {
            cpu: s(3),
            waited: Some(s(1)),
        },
    );
    let summary = windows.sum(0, 2);
    let counts = summary.total.counts;
    assert_eq!((counts.due, counts.requests, counts.unsent), (6, 4, 2));
    assert_eq!(
        (counts.successes, counts.refused, counts.errors.status),
        (2, 1, 1)
    );
    assert!((summary.total.throughput_rps - 0.2).abs() < 1e-9);
    assert_eq!(summary.total.p99_due_ms, Some(f64::INFINITY));
    assert_eq!((summary.held_back, summary.arrivals), (2, 2));
    assert_eq!(
        (
            summary.generator_cpu,
            summary.generator_wait,
            summary.threads
        ),
        (s(3), Some(s(1)), 2)
    );
    assert_eq!(summary.generator_lag_ms.p99, None, "k6 does not tell");
    assert_eq!(summary.failures, ["GET /: status 500"]);
    let tags: Vec<_> = summary
        .intervals
        .iter()
        .map(|one| (one.second, one.tag.as_str()))
        .collect();
    assert_eq!(
        tags,
        [
            (0, "GET%20%2F|success"),
            (3, "GET%20%2F|success"),
            (3, "GET%20%2F|refused"),
            (3, "GET%20%2F|error.status"),
            (4, "dropped%20iteration%20of%20a|unsent")
        ]
    );
}

#[test]
fn a_window_of_a_scenario_holds_no_other() {
    let mut windows = windows(&[stretch(0, 10, Some("b"))]);
    windows.add(request("a", 1, S, Outcome::Success));
    windows.add(request("b", 1, S, Outcome::Success));
    assert_eq!(windows.sum(0, 1).total.counts.due, 1);
}

#[test]
fn journeys_count_where_they_end_and_their_time_where_they_were() {
    let mut windows = windows(&[stretch(0, 10, None), stretch(10, 20, None)]);
    windows.add(Ended::Journey {
        scenario: "a".into(),
        ended_ns: at(15_000),
        duration_ns: 10 * S,
        outcome: Outcome::Success,
    });
    let (first, second) = (windows.sum(0, 1), windows.sum(1, 1));
    assert_eq!((first.arrivals, second.arrivals), (1, 0));
    let ended = |summary: &WindowSummary| summary.journeys.counts.successes;
    assert_eq!((ended(&first), ended(&second)), (0, 1));
    assert!((first.in_flight - 0.5).abs() < 1e-9 && (second.in_flight - 0.5).abs() < 1e-9);
}

fn journey(scenario: &str, ended_ns: i64, outcome: Outcome) -> Ended {
    Ended::Journey {
        scenario: scenario.into(),
        ended_ns,
        duration_ns: S / 10,
        outcome,
    }
}

#[test]
fn iterations_that_threw_are_no_journeys_that_succeeded() {
    let mut windows = windows(&[stretch(0, 10, None)]);
    let started = windows.started;
    let failed = Outcome::Error(ErrorClass::Status);
    for (ms, outcome) in [
        (1_000, Outcome::Success),
        (2_000, Outcome::Success),
        (3_000, failed),
    ] {
        windows.add(journey("a", at(ms), outcome));
    }
    windows.threw(started + s(1), "a", "boom");
    windows.threw(started + s(3), "a", "boom");
    windows.threw(started + s(11), "b", "too late");
    windows.settle(started + s(20));
    let summary = windows.sum(0, 1);
    let counts = summary.journeys.counts;
    // One of the two had failed before it threw.
    assert_eq!(
        (
            counts.successes,
            counts.errors.template,
            counts.errors.status
        ),
        (1, 1, 1)
    );
    let notes = windows.notes(0);
    assert_eq!((notes.threw, notes.ended), (2, 3));
    assert_eq!(summary.failures, ["threw: boom", "threw: boom"]);
}

#[test]
fn a_throw_is_of_the_window_its_iteration_ended_in_and_of_no_other_scenarios() {
    let mut windows = windows(&[stretch(0, 10, Some("a")), stretch(10, 20, Some("b"))]);
    let started = windows.started;
    windows.add(journey("a", at(9_999), Outcome::Success));
    windows.add(journey("b", at(9_999), Outcome::Success));
    assert_eq!(windows.sum(0, 1).journeys.counts.successes, 1);
    for scenario in ["a", "b"] {
        windows.threw(started + s(10) + Duration::from_millis(3), scenario, "boom");
    }
    windows.settle(started + s(10));
    assert!(!windows.has_more(0), "not all ends before it were told");
    windows.settle(started + s(11));
    assert!(windows.has_more(0));
    let notes = [windows.notes(0), windows.notes(1)];
    assert_eq!(
        notes.map(|notes| (notes.threw, notes.ended)),
        [(1, 1), (0, 0)]
    );
    assert_eq!(windows.sum(0, 1).journeys.counts.successes, 0);
}

#[test]
fn requests_of_no_window_are_counted_as_such() {
    let mut windows = windows(&[stretch(0, 10, Some("a"))]);
    for (scenario, sent) in [("a", 1), ("a", -1), ("a", at(10_000)), ("b", 1)] {
        windows.add(request(scenario, sent, S, Outcome::Success));
    }
    assert_eq!((windows.notes(0).requests, windows.n_outside()), (1, 3));
}

#[test]
fn what_comes_after_the_sum_is_in_the_next_one() {
    let mut windows = windows(&[stretch(0, 10, None)]);
    windows.add(request("a", 1, S, Outcome::Success));
    assert_eq!(windows.sum(0, 1).total.counts.due, 1);
    assert!(!windows.has_more(0));
    windows.add(request("a", at(9_999), 30 * S, Outcome::Success));
    assert!(windows.has_more(0));
    assert_eq!(windows.sum(0, 1).total.counts.due, 2);
}

#[test]
fn a_script_of_endless_urls_keeps_a_bound_of_operations() {
    let mut windows = windows(&[stretch(0, 10, None)]);
    for n in 0..2_000 {
        windows.add(Ended::Request {
            scenario: "a".into(),
            operation: format!("GET /{n}").into(),
            sent_ns: 1,
            duration_ns: S,
            outcome: Outcome::Success,
            words: None,
        });
    }
    let summary = windows.sum(0, 1);
    assert_eq!(summary.operations.len(), MOST_OPERATIONS + 1);
    assert_eq!(summary.total.counts.successes, 2_000);
    assert_eq!(summary.operations[MOST_OPERATIONS].0, OTHERS);
}

#[test]
fn the_evidence_of_a_script_gives_the_same_figures() {
    let mut windows = windows(&[stretch(0, 3, None)]);
    for index in 0..300_u64 {
        let outcome = match index % 50 {
            7 => Outcome::Error(ErrorClass::Status),
            8 => Outcome::Refused,
            _ => Outcome::Success,
        };
        let sent = at(i64::try_from(index * 10).unwrap());
        windows.add(request("a", sent, (index + 1) * 3_000_000, outcome));
    }
    windows.add(Ended::Dropped {
        scenario: "a".into(),
        at_ns: at(1_500),
        n: 4,
    });
    let summary = windows.sum(0, 1);
    let whole = cut(&summary.intervals, (0, 3), s(3), LatencyFrom::Send);
    assert_eq!(whole.total, summary.total);
    assert_eq!(whole.total.counts.unsent, 4);
    assert_eq!(whole.operations, summary.operations);
    let middle = cut(&summary.intervals, (1, 2), s(1), LatencyFrom::Send).total;
    assert_eq!((middle.counts.due, middle.counts.requests), (104, 100));
    assert_eq!(middle.counts.errors.status + middle.counts.refused, 4);
}
