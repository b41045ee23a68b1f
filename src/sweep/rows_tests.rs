use super::*;
use crate::load::{Arrivals, PhasePlan};
use crate::measure::{LatencyFrom, Outcome, Recorder, Sample};

/// 100 reads of 5 ms and 10 creates of 150 ms, of which one fails where asked.
fn summary(has_error: bool) -> WindowSummary {
    let names = [
        "read".to_owned(),
        "create Patient".to_owned(),
        "never".to_owned(),
    ];
    let mut recorder = Recorder::new(names.to_vec(), LatencyFrom::Due);
    let mut record = |operation, outcome, ms: u64| {
        recorder.record(&Sample {
            operation,
            outcome,
            second: 0,
            sent_second: 0,
            latency_ns: ms * 1_000_000,
            service_ns: ms * 1_000_000,
            lag_ns: 0,
            generator_lag_ns: 0,
            is_sent_inside: true,
        });
    };
    for _ in 0..100 {
        record(0, Outcome::Success, 5);
    }
    for index in 0..10 {
        let is_error = has_error && index == 0;
        let outcome = if is_error {
            Outcome::Abandoned
        } else {
            Outcome::Success
        };
        record(1, outcome, 150);
    }
    let length = Duration::from_secs(1);
    let total = recorder.total(length);
    WindowSummary {
        operations: recorder.operations(length),
        arrivals: 110,
        generator_lag_ms: recorder.generator_lag_ms(),
        intervals: recorder.into_intervals(),
        ..WindowSummary::quiet(total, length)
    }
}

fn phase(answers: &'static str) -> JobPhase {
    JobPhase {
        plan: PhasePlan {
            name: "w".into(),
            window: true,
            model: LoadModel::Closed { users: 1 },
            ramp_from: None,
            duration: Duration::from_secs(1),
            abort_on: Vec::new(),
            beside: Vec::new(),
            held: false,
        },
        answers: Some(answers),
        step: None,
        load_tied_to_knob: false,
        thresholds: Vec::new(),
        hooks: Vec::new(),
    }
}

/// The row of a window that was held, by an open loop of 110/s or by one user.
fn row_of(is_open: bool, change: impl FnOnce(&mut WindowSummary)) -> TrialRow {
    let mut phase = phase("latency");
    if is_open {
        phase.plan.model = LoadModel::Open {
            requests_per_second: 110.0,
            arrivals: Arrivals::Uniform,
            max_in_flight: 20,
        };
    }
    let mut window = WindowOutcome {
        phase: 0,
        summary: summary(false),
        counters: IndexMap::new(),
        unhealthy: IndexMap::new(),
        host_busy_cores: None,
        is_environment_changed: false,
        proof: "kernel",
    };
    change(&mut window.summary);
    let mut row = TrialRow::default();
    fill_verdict(&mut row, &window, &phase);
    fill_figures(&mut row, &window);
    fill_host(&mut row, &window, "app");
    row
}

#[test]
fn a_row_says_which_rule_fired_and_by_what() {
    let saturated = row_of(true, |summary| {
        summary.generator_lag_ms.p99 = Some(40.0);
        summary.generator_cpu = Duration::from_millis(900);
        summary.generator_wait = Some(Duration::from_millis(100));
        summary.failures = vec!["read: reset".to_owned()];
    });
    assert_eq!(saturated.verdict, Verdict::Suspect);
    assert_eq!(saturated.reason.as_deref(), Some("generator_saturated"));
    assert_eq!(saturated.flags, ["too_few"]);
    assert_eq!(saturated.generator_cpu_cores, Some(0.9));
    assert_eq!(saturated.generator_wait_ratio, Some(0.1));
    insta::assert_snapshot!(saturated.detail.unwrap(), @"110 of 110 requests succeeded (0 refused, 0 errors, 0 abandoned, 0 unsent); generator_saturated: load threads used 90 % of their CPU time (80 % allowed), p99 of the generator's own lag 40 ms against a p99 latency of 150 ms (10 % of it allowed), load threads waited 10 % of the time for a CPU; last failure: read: reset");

    let unbalanced = row_of(false, |summary| summary.in_flight_recorded = 0.8);
    assert_eq!(unbalanced.verdict, Verdict::Suspect);
    assert_eq!(unbalanced.reason.as_deref(), Some("littles_law"));
    insta::assert_snapshot!(unbalanced.detail.unwrap(), @"110 of 110 requests succeeded (0 refused, 0 errors, 0 abandoned, 0 unsent); littles_law: 1 journeys under way in the mean, 0.80 by the time recorded, 20 % apart (5 % allowed)");

    let overloaded = row_of(true, |summary| {
        summary.held_back = 60;
        summary.total.achieved_rate_rps = 90.0;
    });
    assert_eq!(
        (overloaded.verdict, overloaded.reason),
        (Verdict::Valid, None)
    );
    assert_eq!(overloaded.flags, ["overloaded", "too_few"]);
    assert_eq!(overloaded.achieved_rate_rps, Some(90.0));
    insta::assert_snapshot!(overloaded.detail.unwrap(), @"overloaded: 90 of 110 requests/s due were sent in time, 60 arrivals had to wait");

    let healthy = row_of(true, |_| {});
    assert_eq!((healthy.verdict, healthy.detail), (Verdict::Valid, None));
}

fn level(operation: Option<&str>, p99_ms: Option<f64>, error_rate: Option<f64>) -> Slo {
    Slo {
        operation: operation.map(str::to_owned),
        p99_ms,
        error_rate,
    }
}

fn met(slo: &[Slo], answers: &'static str, has_error: bool) -> Option<bool> {
    slo_met(slo, &phase(answers), &summary(has_error))
}

#[test]
fn every_part_of_the_service_level_must_be_met() {
    let all = |p99_ms| level(None, Some(p99_ms), None);
    let create = |p99_ms| level(Some("create Patient"), Some(p99_ms), None);
    // The p99 of all 110 is that of the creates.
    assert_eq!(met(&[all(200.0)], "latency", false), Some(true));
    assert_eq!(met(&[all(100.0)], "latency", false), Some(false));
    assert_eq!(met(&[create(200.0)], "latency", false), Some(true));
    assert_eq!(met(&[create(100.0)], "ladder", false), Some(false));
    assert_eq!(
        met(&[all(200.0), create(100.0)], "latency", false),
        Some(false)
    );
    // What failed took for ever, and is one of ten.
    assert_eq!(met(&[create(200.0)], "latency", true), Some(false));
    let errors = |rate| level(Some("create Patient"), None, Some(rate));
    assert_eq!(met(&[errors(0.1)], "latency", true), Some(true));
    assert_eq!(met(&[errors(0.09)], "latency", true), Some(false));
    assert_eq!(
        met(&[level(None, None, Some(0.01))], "latency", true),
        Some(true)
    );
}

#[test]
fn what_was_not_asked_has_no_answer_and_what_was_not_seen_is_not_met() {
    assert_eq!(met(&[], "latency", false), None);
    let level_of = |operation| [level(Some(operation), None, Some(1.0))];
    assert_eq!(met(&level_of("read"), "capacity", false), None);
    assert_eq!(met(&level_of("read"), "latency", false), Some(true));
    for unseen in ["never", "nobody's"] {
        assert_eq!(
            met(&level_of(unseen), "latency", false),
            Some(false),
            "{unseen}"
        );
    }
}

#[test]
fn a_threshold_of_an_operation_that_was_never_sent_is_told() {
    let rule = |operation: &str, text: &str| {
        let mut threshold = Threshold::parse(text).unwrap();
        threshold.operation = Some(operation.to_owned());
        threshold
    };
    let filled = |rules: &[Threshold]| {
        let mut row = TrialRow {
            detail: Some("before".to_owned()),
            ..TrialRow::default()
        };
        fill_thresholds(&mut row, &summary(false), rules);
        (row.flags, row.thresholds_crossed, row.detail.unwrap())
    };
    let kept = rule("read", "p95 < 1s");
    let nothing = (Vec::new(), None, "before".to_owned());
    assert_eq!(filled(std::slice::from_ref(&kept)), nothing);
    let rules = [
        kept,
        rule("read", "p95 < 1 ms"),
        rule("never", "p95 < 1s"),
        rule("nobody's", "throughput > 1/s"),
    ];
    let (flags, crossed, detail) = filled(&rules);
    assert_eq!(flags, [THRESHOLD_CROSSED, THRESHOLDS_UNJUDGED]);
    assert_eq!(crossed.as_deref(), Some("read: p95 < 1 ms (5.00 ms)"));
    assert_eq!(
        detail,
        "before; thresholds of operations never sent: never: p95 < 1s, nobody's: throughput > 1/s"
    );
}
