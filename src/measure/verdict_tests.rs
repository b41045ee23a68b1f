use super::*;
use crate::measure::{BesideSummary, Figures, Interval, LatencyFigures};

const OPEN: Pacing = Pacing::Open;

/// A window with nothing wrong: 30 s, 15,000 requests, 20 % of one core.
fn healthy() -> WindowSummary {
    let mut total = Figures::default();
    total.counts.due = 15_000;
    total.counts.requests = 15_000;
    total.counts.successes = 15_000;
    total.latency_ms.p99 = Some(5.0);
    total.p99_due_ms = Some(5.0);
    total.throughput_rps = 500.0;
    total.achieved_rate_rps = 500.0;
    WindowSummary {
        arrivals: 15_000,
        generator_cpu: Duration::from_secs(6),
        generator_wait: Some(Duration::from_millis(100)),
        generator_lag_ms: LatencyFigures {
            p99: Some(0.3),
            ..LatencyFigures::default()
        },
        in_flight: 8.0,
        in_flight_recorded: 7.9,
        intervals: successes_in(0..30),
        ..WindowSummary::quiet(total, Duration::from_secs(30))
    }
}

fn successes_in(seconds: impl IntoIterator<Item = u32>) -> Vec<Interval> {
    seconds
        .into_iter()
        .map(|second| Interval::new(second, "read|success".to_owned(), vec![(2_000_000, 500)]))
        .collect()
}

fn verdict(pacing: Pacing, change: impl FnOnce(&mut WindowSummary)) -> WindowVerdict {
    let mut summary = healthy();
    change(&mut summary);
    judge(&summary, pacing)
}

fn valid(flags: &[Flag]) -> WindowVerdict {
    WindowVerdict {
        judgement: Judgement::Valid,
        reasons: Vec::new(),
        flags: flags.to_vec(),
    }
}

#[test]
fn a_healthy_window_is_valid_without_flags() {
    assert_eq!(verdict(OPEN, |_| {}), valid(&[]));
    assert_eq!(verdict(Pacing::Closed, |_| {}), valid(&[]));
}

#[test]
fn nothing_succeeded_is_failed() {
    let verdict = verdict(Pacing::Closed, |summary| {
        summary.total.counts.successes = 0;
        summary.total.counts.errors.status = 15_000;
    });
    assert_eq!(verdict.judgement, Judgement::Failed);
    assert_eq!(verdict.reasons, [Reason::NoSuccess]);
    assert_eq!(verdict.reasons[0].code(), "no_success");
}

#[test]
fn a_service_that_misses_the_rate_is_overloaded_and_valid() {
    let overloaded = valid(&[Flag::Overloaded]);
    assert_eq!(
        verdict(OPEN, |summary| {
            summary.total.counts.due = 16_000;
            summary.total.counts.unsent = 1_000;
            summary.held_back = 3_000;
        }),
        overloaded
    );
    assert_eq!(
        verdict(OPEN, |summary| summary.total.p99_due_ms =
            Some(f64::INFINITY)),
        overloaded
    );
    assert_eq!(
        verdict(OPEN, |summary| {
            summary.total.counts.requests += 1;
            summary.total.counts.due += 1;
            summary.total.counts.abandoned = 1;
        }),
        overloaded
    );
}

#[test]
fn a_rate_that_is_made_up_for_during_the_drain_is_missed_all_the_same() {
    let behind = |summary: &mut WindowSummary| {
        // All 15,000 left, 1,500 of them after the right edge.
        summary.total.achieved_rate_rps = 450.0;
        summary.held_back = 9_000;
    };
    assert_eq!(verdict(OPEN, behind), valid(&[Flag::Overloaded]));
    let by_itself = verdict(OPEN, |summary| {
        behind(summary);
        summary.held_back = 0;
    });
    assert_eq!(by_itself.reasons, [Reason::GeneratorSaturated]);
    // 1 % is slack for the edge.
    let at_the_edge = verdict(OPEN, |summary| summary.total.achieved_rate_rps = 495.0);
    assert_eq!(at_the_edge, valid(&[]));
}

#[test]
fn a_generator_that_misses_the_rate_by_itself_is_suspect() {
    let verdict = verdict(OPEN, |summary| {
        summary.total.counts.due = 16_000;
        summary.total.counts.unsent = 1_000;
    });
    assert_eq!(verdict.judgement, Judgement::Suspect);
    assert_eq!(verdict.reasons, [Reason::GeneratorSaturated]);
    assert_eq!(verdict.flags, [], "the service is not blamed for it");
}

#[test]
fn a_busy_generator_is_suspect_in_an_open_loop_and_bound_in_a_closed_one() {
    let busy = |summary: &mut WindowSummary| summary.generator_cpu = Duration::from_secs(25);
    assert_eq!(verdict(OPEN, busy).reasons, [Reason::GeneratorSaturated]);
    assert_eq!(
        verdict(Pacing::Closed, busy),
        valid(&[Flag::GeneratorBound])
    );
    assert_eq!(
        verdict(OPEN, |summary| {
            busy(summary);
            summary.threads = 2;
        }),
        valid(&[])
    );
}

#[test]
fn a_closed_loop_held_up_by_a_neighbour_is_bound_by_its_generator() {
    let waited = |pacing, ms| {
        verdict(pacing, |summary| {
            summary.generator_wait = ms;
            summary.threads = 2;
        })
    };
    let ms = |ms| Some(Duration::from_millis(ms));
    // 5 % of two threads' 30 s.
    assert_eq!(waited(Pacing::Closed, ms(3_000)), valid(&[]));
    assert_eq!(
        waited(Pacing::Closed, ms(3_001)),
        valid(&[Flag::GeneratorBound])
    );
    assert_eq!(waited(Pacing::Closed, None), valid(&[]), "not known");
    // An open loop has its lag for that.
    assert_eq!(waited(OPEN, ms(30_000)), valid(&[]));
}

#[test]
fn a_late_generator_is_suspect_only_where_it_matters() {
    let lag = |lag_ms: f64, p99_ms: f64| {
        verdict(OPEN, |summary| {
            summary.generator_lag_ms.p99 = Some(lag_ms);
            summary.total.latency_ms.p99 = Some(p99_ms);
        })
        .judgement
    };
    assert_eq!(lag(1.5, 5.0), Judgement::Suspect);
    assert_eq!(lag(1.5, 50.0), Judgement::Valid);
    assert_eq!(lag(0.9, 1.0), Judgement::Valid);
}

/// 40/s for 3 s to a server that accepts and never answers, at most 50 of them at once.
fn silent(summary: &mut WindowSummary) {
    summary.length = Duration::from_secs(3);
    summary.generator_cpu = Duration::from_millis(90);
    summary.arrivals = 120;
    summary.held_back = 70;
    let counts = &mut summary.total.counts;
    (counts.due, counts.requests, counts.successes) = (120, 50, 0);
    (counts.abandoned, counts.unsent) = (50, 70);
    summary.total.latency_ms = LatencyFigures::default();
    summary.total.p99_due_ms = Some(f64::INFINITY);
    summary.total.throughput_rps = 0.0;
    summary.total.achieved_rate_rps = 50.0 / 3.0;
    summary.generator_lag_ms.p99 = Some(2.5);
    summary.intervals = Vec::new();
}

#[test]
fn without_a_success_the_service_is_blamed_and_not_the_timers_of_the_generator() {
    let verdict = verdict(OPEN, silent);
    assert_eq!(verdict.judgement, Judgement::Failed);
    assert_eq!(verdict.reasons, [Reason::NoSuccess]);
    assert!(verdict.flags.contains(&Flag::Overloaded), "{verdict:?}");
}

#[test]
fn a_saturated_generator_is_told_of_without_any_success() {
    let saturated = |change: fn(&mut WindowSummary)| {
        let verdict = verdict(OPEN, |summary| {
            silent(summary);
            change(summary);
        });
        assert_eq!(
            verdict.reasons,
            [Reason::NoSuccess, Reason::GeneratorSaturated]
        );
        assert!(!verdict.flags.contains(&Flag::Overloaded), "{verdict:?}");
    };
    saturated(|summary| summary.generator_cpu = Duration::from_millis(2_500));
    // A tenth of the window.
    saturated(|summary| summary.generator_lag_ms.p99 = Some(301.0));
    // Nobody had to wait for the service, and most of it did not leave.
    saturated(|summary| summary.held_back = 0);
    // A stopped process sends nothing at all.
    saturated(|summary| {
        summary.held_back = 0;
        summary.generator_lag_ms.p99 = None;
        let counts = &mut summary.total.counts;
        (counts.requests, counts.abandoned, counts.unsent) = (0, 0, 120);
        summary.total.achieved_rate_rps = 0.0;
    });
}

fn evidence(pacing: Pacing, change: impl FnOnce(&mut WindowSummary)) -> Vec<String> {
    let mut summary = healthy();
    change(&mut summary);
    let evidence = judge(&summary, pacing).evidence(&summary, pacing);
    let line = |own: crate::measure::Evidence| format!("{}: {}", own.code, own.words);
    evidence.into_iter().map(line).collect()
}

#[test]
fn a_healthy_window_needs_no_evidence() {
    assert_eq!(evidence(OPEN, |_| {}), [""; 0]);
}

#[test]
fn the_rule_that_fired_is_told_with_its_numbers() {
    let late = |summary: &mut WindowSummary| summary.generator_lag_ms.p99 = Some(1.5);
    assert_eq!(
        evidence(OPEN, late),
        [
            "generator_saturated: p99 of the generator's own lag 1.50 ms against a p99 latency of 5 ms \
             (10 % of it allowed), load threads waited 0.33 % of the time for a CPU"
        ]
    );
    let busy = |summary: &mut WindowSummary| {
        summary.generator_cpu = Duration::from_millis(25_050);
        summary.total.achieved_rate_rps = 450.0;
        summary.generator_wait = None;
    };
    assert_eq!(
        evidence(OPEN, busy),
        [
            "generator_saturated: load threads used 83.5 % of their CPU time (80 % allowed), \
             450 of 500 requests/s due were sent in time, and none of them waited for the service"
        ]
    );
    assert_eq!(
        evidence(Pacing::Closed, |summary| {
            busy(summary);
            summary.generator_wait = Some(Duration::from_secs(3));
            summary.in_flight_recorded = 7.5;
        }),
        [
            "littles_law: 8 journeys under way in the mean, 7.50 by the time recorded, 6.25 % apart \
             (5 % allowed), load threads waited 10 % of the time for a CPU",
            "generator_bound: load threads used 83.5 % of their CPU time, \
             load threads waited 10 % of the time for a CPU",
        ]
    );
}

#[test]
fn what_a_service_did_not_carry_is_told_with_its_numbers() {
    assert_eq!(
        evidence(OPEN, silent),
        [
            "overloaded: 16.7 of 40 requests/s due were sent in time, 70 arrivals had to wait, \
             70 unsent, 50 abandoned, p99 of all due endless"
        ]
    );
    let frozen = |summary: &mut WindowSummary| {
        summary.intervals = successes_in((0..30).filter(|second| !(4..9).contains(second)));
    };
    assert_eq!(
        evidence(Pacing::Closed, frozen),
        ["stalled: 5 s in a row without a success, 0 requests abandoned of 8 journeys under way"]
    );
    // Of a closed loop only what arrives beside it has a rate to hold.
    let beside = |summary: &mut WindowSummary| {
        summary.total.counts.abandoned = 1;
        let mut requests = Figures::default();
        (requests.counts.due, requests.counts.requests) = (300, 150);
        requests.counts.unsent = 150;
        requests.achieved_rate_rps = 5.0;
        summary.beside.push(BesideSummary {
            journey: "import".to_owned(),
            planned_rate_rps: 10.0,
            requests,
        });
    };
    assert_eq!(
        evidence(Pacing::Closed, beside),
        ["overloaded: `import`: 5 of 10 requests/s due were sent in time, 150 unsent"]
    );
}

#[test]
fn time_that_does_not_add_up_is_suspect() {
    for recorded in [7.5, 8.5] {
        let verdict = verdict(Pacing::Closed, |summary| {
            summary.in_flight_recorded = recorded;
        });
        assert_eq!(verdict.reasons, [Reason::LittlesLaw], "{recorded}");
    }
}

#[test]
fn a_service_that_stands_still_in_the_window_is_flagged() {
    let stalled = valid(&[Flag::Stalled]);
    for pacing in [Pacing::Closed, OPEN] {
        for silent in [4..5, 0..2, 29..30] {
            let verdict = verdict(pacing, |summary| {
                summary.intervals = successes_in((0..30).filter(|s| !silent.contains(s)));
                let answer = vec![(2_000_000, 9)];
                let other = Interval::new(silent.start, "read|error.status".into(), answer);
                summary.intervals.push(other);
            });
            assert_eq!(verdict, stalled, "{pacing:?} {silent:?}");
        }
    }
    // Frozen for the last 4 of 5 s: 4 abandoned of 153,315 went without a flag.
    let frozen = verdict(Pacing::Closed, |summary| {
        summary.length = Duration::from_secs(5);
        summary.generator_cpu = Duration::from_secs(1);
        summary.arrivals = 153_315;
        let counts = &mut summary.total.counts;
        (counts.due, counts.requests) = (153_315, 153_315);
        (counts.successes, counts.abandoned) = (153_311, 4);
        summary.intervals = successes_in(0..2);
        (summary.in_flight, summary.in_flight_recorded) = (4.0, 4.0);
    });
    assert_eq!(frozen, valid(&[Flag::TooFew, Flag::Stalled]));
}

#[test]
fn breaks_that_journeys_make_by_themselves_are_no_stall() {
    // 300 users that began together and think 15 s send every 15 s alone.
    let bursts = verdict(Pacing::Closed, |summary| {
        summary.arrivals = 600;
        (summary.in_flight, summary.in_flight_recorded) = (300.0, 300.0);
        summary.intervals = successes_in([0, 15]);
    });
    assert_eq!(bursts, valid(&[]));
    // One journey of 36 requests every 4 s.
    let rare = verdict(OPEN, |summary| {
        summary.arrivals = 8;
        (summary.in_flight, summary.in_flight_recorded) = (0.1, 0.1);
        summary.intervals = successes_in((0..30).step_by(4));
    });
    assert_eq!(rare, valid(&[]));
    // The rest after the last whole second is none.
    let part = verdict(Pacing::Closed, |summary| {
        summary.length = Duration::from_millis(30_900);
    });
    assert_eq!(part, valid(&[]));
}

#[test]
fn half_of_the_users_abandoned_is_a_stall_in_a_closed_loop() {
    let abandoned = |n: u64| {
        verdict(Pacing::Closed, |summary| {
            summary.total.counts.abandoned = n;
            summary.total.counts.successes -= n;
        })
    };
    assert_eq!(abandoned(3), valid(&[]));
    assert_eq!(abandoned(4), valid(&[Flag::Stalled]));
}

#[test]
fn short_windows_are_flagged_by_what_they_answer() {
    let too_few = valid(&[Flag::TooFew]);
    assert_eq!(
        verdict(Pacing::Closed, |summary| {
            summary.length = Duration::from_secs(19);
            summary.generator_cpu = Duration::ZERO;
        }),
        too_few
    );
    let fewer = |n: u64| {
        move |summary: &mut WindowSummary| {
            let counts = &mut summary.total.counts;
            (counts.due, counts.requests, counts.successes) = (n, n, n);
        }
    };
    assert_eq!(verdict(Pacing::Closed, fewer(1_999)), too_few);
    assert_eq!(verdict(Pacing::Closed, fewer(2_000)), valid(&[]));
    assert_eq!(verdict(OPEN, fewer(9_999)), too_few);
    assert_eq!(verdict(OPEN, fewer(10_000)), valid(&[]));
}

#[test]
fn more_than_one_percent_of_failures_is_flagged() {
    let with_errors = |n: u64| {
        verdict(Pacing::Closed, |summary| {
            summary.total.counts.errors.reset = n;
            summary.total.counts.successes -= n;
        })
    };
    assert_eq!(with_errors(150), valid(&[]));
    assert_eq!(with_errors(151), valid(&[Flag::Errors]));
}

#[test]
fn a_generator_that_tells_of_no_lag_is_judged_by_what_it_waited() {
    // 15,000 requests of 5 ms: 1 ms of waiting each is 15 s, and half of the one core.
    let waited = |ms: u64, p99: f64| {
        let mut summary = healthy();
        summary.generator_lag_ms = LatencyFigures::default();
        summary.generator_wait = Some(Duration::from_millis(ms));
        summary.total.latency_ms.p99 = Some(p99);
        summary
    };
    let saturated = |summary: &WindowSummary| {
        judge(summary, OPEN)
            .reasons
            .contains(&Reason::GeneratorSaturated)
    };
    assert!(!saturated(&waited(15_000, 5.0)), "1 ms is never a fault");
    assert!(saturated(&waited(15_150, 5.0)));
    assert!(!saturated(&waited(15_150, 10.2)), "less than a tenth of it");
    let mut told = waited(15_150, 5.0);
    told.generator_lag_ms.p99 = Some(0.3);
    assert!(!saturated(&told), "where the lag is told, the lag counts");
    let mut few = waited(1_400, 5.0);
    few.total.counts.requests = 100;
    assert!(!saturated(&few), "14 ms each, and under 5 % of the time");
    assert_eq!(
        judge(&waited(15_150, 5.0), OPEN).evidence(&waited(15_150, 5.0), OPEN)[0].words,
        "it waited 1.01 ms for a CPU by request sent, against a p99 latency of 5 ms (10 % of it \
         allowed), load threads waited 50.5 % of the time for a CPU"
    );
}
