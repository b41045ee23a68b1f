//! Sweeps over the fake engine, with the real load generator and a loopback server.
//!
//! The fake scripts what goes wrong and keeps the order of calls; the real
//! engine's own sweeps are in tests/it/docker. `bench.rs` is what they share,
//! `ahead.rs` tests where two trials meet.

mod ahead;
mod bench;
mod contained;
mod cuts;
mod ladder;
mod proofs;
mod replicas;
mod state;

use std::time::Duration;

use self::bench::{Bench, at, has_begun, server, verdicts};
use super::*;
use crate::engine::fake::{Behaviour, FakeCall, FakeEngine, FakeExit, FakeFault};
use crate::engine::{EngineErrorKind, Limits};
use crate::event::EventKind;
use crate::results::{TrialRow, Verdict};

#[tokio::test]
async fn every_window_of_every_trial_has_a_row_and_its_evidence() {
    let bench = Bench::new(2).await;
    let came = bench.run(|_, _| {}).await;
    assert_eq!(
        verdicts(&came.rows),
        [
            (1, "first", "valid", None),
            (1, "second", "valid", None),
            (2, "first", "valid", None),
            (2, "second", "valid", None)
        ]
    );
    for row in &came.rows {
        assert!(row.throughput_rps.unwrap() > 10.0);
        assert_eq!(row.successes, row.due);
        assert_eq!(row.subject_cpu_limit_cores, Some(1.0));
        assert!(
            (row.subject_cpu_cores.unwrap() - 0.5).abs() < 0.1,
            "{:?}",
            row.subject_cpu_cores
        );
        assert!((row.warmup_s.unwrap() - 0.3).abs() < 1e-9);
    }
    assert_eq!(
        came.summary,
        SweepSummary {
            valid: 2,
            ..SweepSummary::default()
        }
    );
    assert_eq!(
        bench.log_of(1),
        None,
        "logs are for trials that are not valid"
    );
    let histograms = fs_err::read_dir(bench.folder.path().join("results/r/histograms"))
        .unwrap()
        .count();
    assert_eq!(histograms, 4);
}

#[tokio::test]
async fn a_subject_that_exits_in_a_window_costs_that_window_and_no_other_trial() {
    let bench = Bench::new(2).await;
    let came = bench
        .run(|engine, event| {
            if has_begun(event, "second", 1) {
                engine.end(
                    "app",
                    FakeExit {
                        code: 137,
                        oom_killed: true,
                    },
                );
            }
        })
        .await;
    assert_eq!(
        verdicts(&came.rows),
        [
            (1, "first", "valid", None),
            (1, "second", "failed", Some("exited")),
            (2, "first", "valid", None),
            (2, "second", "valid", None)
        ]
    );
    let lost = &came.rows[1];
    assert_eq!((lost.throughput_rps, lost.oom_killed), (None, Some(true)));
    assert!(lost.detail.as_ref().unwrap().contains("137"));
    assert_eq!(bench.log_of(1).as_deref(), Some("line of the app\n"));
    assert_eq!((came.summary.valid, came.summary.failed), (1, 1));
}

#[tokio::test]
async fn limits_changed_behind_our_back_are_caught_at_either_edge() {
    // A window's beginning is told before its left edge is read: the next look
    // is the left edge, the one after it the right edge.
    let (both, last) = (["first", "second"].as_slice(), ["second"].as_slice());
    for (phase, look, lost) in [
        ("warm-up", 1, both),
        ("first", 1, both),
        ("first", 2, both),
        ("second", 1, last),
        ("second", 2, last),
    ] {
        let bench = Bench::new(1).await;
        let address = server().await;
        let came = bench
            .run(|engine, event| {
                if has_begun(event, phase, 1) {
                    let calls = engine.calls();
                    let looks = calls.iter().filter(|call| call.starts_with("inspect"));
                    let wrong = Limits {
                        nano_cpus: 700_000_000,
                        ..Limits::default()
                    };
                    let limits_from_look = Some((looks.count() + look, wrong));
                    engine.behave(
                        "app",
                        Behaviour {
                            limits_from_look,
                            ..at(address)
                        },
                    );
                }
            })
            .await;
        let failed = came
            .rows
            .iter()
            .filter(|row| row.verdict == Verdict::Failed);
        let windows: Vec<&str> = failed.clone().map(|row| row.window.as_str()).collect();
        assert_eq!(windows, lost, "wrong from look {look} of {phase} on");
        for row in failed {
            assert_eq!(row.reason.as_deref(), Some("limits_not_applied"));
            let detail = row.detail.as_ref().unwrap();
            assert!(
                detail.contains("cpus 1 ") && detail.contains("0.7"),
                "{detail}"
            );
            assert_eq!(row.throughput_rps, None);
        }
    }
}

#[tokio::test]
async fn a_launch_that_fails_is_a_row_with_words_and_the_sweep_goes_on() {
    for call in [
        FakeCall::CreateNetwork,
        FakeCall::CreateContainer,
        FakeCall::Start,
    ] {
        let bench = Bench::new(2).await;
        bench
            .engine
            .fault(call, 1, FakeFault::Fail(EngineErrorKind::Other));
        let came = bench.run(|_, _| {}).await;
        assert_eq!(came.rows[0].verdict, Verdict::Failed, "{call}");
        assert!(came.rows[0].detail.is_some());
        assert_eq!(came.rows[0].window_s, Some(0.3), "what was planned is said");
        assert_eq!(came.rows[2].verdict, Verdict::Valid, "{call}");
    }
}

#[tokio::test]
async fn a_service_that_never_answers_is_a_row_with_what_was_seen_last() {
    let mut bench = Bench::new(1).await;
    bench.plan.settings.ready_timeout = Duration::from_millis(400);
    let address = server().await;
    bench.engine.behave(
        "app",
        Behaviour {
            status: 503,
            ..at(address)
        },
    );
    let came = bench.run(|_, _| {}).await;
    assert_eq!(came.rows[0].reason.as_deref(), Some("not_ready"));
    assert!(came.rows[0].detail.as_ref().unwrap().contains("503"));
}

#[tokio::test]
async fn an_interrupt_tears_the_trial_down_and_skips_the_rest() {
    let bench = Bench::new(3).await;
    let came = bench
        .run(|_, event| {
            if has_begun(event, "first", 1) {
                bench.asked.send_replace(1);
            }
        })
        .await;
    let reasons: Vec<_> = came
        .rows
        .iter()
        .map(|row| (row.trial, row.verdict, row.reason.as_deref().unwrap()))
        .collect();
    let interrupted = "interrupted";
    assert_eq!(reasons[0], (1, Verdict::Failed, interrupted));
    assert_eq!(reasons[2], (2, Verdict::Skipped, interrupted));
    assert_eq!(reasons[5], (3, Verdict::Skipped, interrupted));
    assert!(came.summary.interrupted);
    assert_eq!(came.summary.skipped, 2);
}

#[tokio::test]
async fn failures_in_a_row_end_the_sweep_and_the_rest_has_rows() {
    let mut bench = Bench::new(4).await;
    bench.plan.settings.max_consecutive_failures = 2;
    bench
        .engine
        .fault_always(FakeCall::Start, FakeFault::Fail(EngineErrorKind::Other));
    let came = bench.run(|_, _| {}).await;
    let by_trial: Vec<_> = came
        .rows
        .iter()
        .step_by(2)
        .map(|row| (row.verdict, row.reason.as_deref().unwrap()))
        .collect();
    assert_eq!(
        by_trial,
        [
            (Verdict::Failed, "start_failed"),
            (Verdict::Failed, "start_failed"),
            (Verdict::Skipped, "too_many_failures"),
            (Verdict::Skipped, "too_many_failures")
        ]
    );
    assert!(
        came.summary
            .ended_early
            .as_ref()
            .unwrap()
            .contains("2 trials failed in a row")
    );
}

#[tokio::test]
async fn fail_fast_ends_at_the_first_failure() {
    let mut bench = Bench::new(2).await;
    bench.plan.settings.fail_fast = true;
    bench
        .engine
        .fault(FakeCall::Start, 1, FakeFault::Fail(EngineErrorKind::Other));
    let came = bench.run(|_, _| {}).await;
    assert_eq!(came.rows[2].reason.as_deref(), Some("fail_fast"));
}

#[tokio::test]
async fn words_of_failures_hold_no_secret() {
    let mut bench = Bench::new(1).await;
    bench.secrets.hide("hunter2-hunter2");
    let address = server().await;
    bench.engine.behave(
        "app",
        Behaviour {
            log: "password hunter2-hunter2 rejected\n".to_owned(),
            exits_after: Some((
                Duration::ZERO,
                FakeExit {
                    code: 3,
                    oom_killed: false,
                },
            )),
            answers_after: None,
            ..at(address)
        },
    );
    let came = bench.run(|_, _| {}).await;
    let log = bench.log_of(1).unwrap();
    let detail = came.rows[0].detail.clone().unwrap();
    let told = format!("{:?}", came.events);
    for text in [&log, &detail, &told] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(log.contains("secret:"));
}

#[tokio::test]
async fn a_skipped_trial_is_not_launched() {
    let mut bench = Bench::new(2).await;
    bench.plan.jobs[0].skip = Some(Reason::new("cpus_exceed_host", "too large"));
    let came = bench.run(|_, _| {}).await;
    assert_eq!(came.rows[0].verdict, Verdict::Skipped);
    assert_eq!(came.rows[0].detail.as_deref(), Some("too large"));
    assert_eq!(
        bench
            .engine
            .changes()
            .iter()
            .filter(|call| call.starts_with("start"))
            .count(),
        1
    );
}

#[tokio::test]
async fn the_time_left_shrinks_from_trial_to_trial() {
    let bench = Bench::new(3).await;
    let came = bench.run(|_, _| {}).await;
    let left: Vec<f64> =
        came.events
            .iter()
            .filter_map(|event| match event.kind {
                EventKind::TrialStarted { left_s, .. }
                | EventKind::TrialFinished { left_s, .. } => Some(left_s),
                _ => None,
            })
            .collect();
    assert!(
        left.windows(2).all(|pair| pair[1] <= pair[0] + 0.5),
        "{left:?}"
    );
    assert!(*left.last().unwrap() < 1e-9);
}

#[tokio::test]
async fn an_engine_that_stops_answering_in_a_window_is_a_row_and_ends_the_sweep() {
    let bench = Bench::new(3).await;
    let came = bench
        .run_on(|engine, event| {
            if has_begun(event, "first", 1) {
                for call in [FakeCall::Inspect, FakeCall::Counters, FakeCall::Describe] {
                    engine.fault_always(call, FakeFault::Fail(EngineErrorKind::NoDaemon));
                }
            }
        })
        .await;
    assert_eq!(came.rows[0].reason.as_deref(), Some("engine_error"));
    assert_eq!(came.rows[2].verdict, Verdict::Skipped);
    assert_eq!(came.rows[2].reason.as_deref(), Some("engine_lost"));
    assert!(came.summary.engine_lost);
}

#[tokio::test]
async fn a_container_that_somebody_froze_or_disconnected_is_no_measurement() {
    let changes: [fn(&FakeEngine); 2] = [
        |engine| engine.pause("app"),
        |engine| engine.disconnect("app"),
    ];
    for change in changes {
        let bench = Bench::new(1).await;
        let came = bench
            .run(|engine, event| {
                if has_begun(event, "second", 1) {
                    change(engine);
                }
            })
            .await;
        assert_eq!(came.rows[0].verdict, Verdict::Valid);
        assert_eq!(came.rows[1].reason.as_deref(), Some("disturbed"));
    }
}

#[tokio::test]
async fn who_asks_twice_to_stop_keeps_what_was_measured() {
    let bench = Bench::new(2).await;
    let came = bench
        .run_on(|engine, event| {
            if has_begun(event, "second", 1) {
                engine.fault_always(FakeCall::Remove, FakeFault::Hang);
                bench.asked.send_replace(2);
            }
        })
        .await;
    assert_eq!(
        came.rows[0].verdict,
        Verdict::Valid,
        "the first window was over"
    );
    assert_eq!(came.rows[1].reason.as_deref(), Some("interrupted"));
    assert_eq!(came.rows.len(), 4);
}

#[tokio::test]
async fn a_healthcheck_that_fails_in_a_window_is_a_flag_with_its_output() {
    let mut bench = Bench::new(1).await;
    let mut stack = (*bench.plan.jobs[0].stack).clone();
    stack.services["app"].healthcheck = Some(crate::stack::Healthcheck {
        test: vec!["CMD".to_owned(), "true".to_owned()],
        interval: None,
        timeout: None,
        start_period: None,
        start_interval: None,
        retries: None,
    });
    bench.plan.jobs[0].stack = std::sync::Arc::new(stack);
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], bench.port()));
    let came = bench
        .run(|engine, event| {
            if has_begun(event, "second", 1) {
                engine.behave(
                    "app",
                    Behaviour {
                        unhealthy_after: Some(Duration::ZERO),
                        health_output: "exit code 1:\n no answer".to_owned(),
                        ..at(address)
                    },
                );
            }
        })
        .await;
    let (first, second) = (&came.rows[0], &came.rows[1]);
    assert_eq!(
        (first.verdict, second.verdict),
        (Verdict::Valid, Verdict::Valid)
    );
    assert!(!first.flags.contains(&"unhealthy".to_owned()), "{first:?}");
    // A busy host may have one thing more to say: that the generator was bound.
    let said = |row: &TrialRow| {
        let parts = row.detail.iter().flat_map(|detail| detail.split("; "));
        let parts = parts.filter(|part| !part.starts_with("generator_bound: "));
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(said(first).is_empty(), "{first:?}");
    assert!(second.flags.contains(&"unhealthy".to_owned()), "{second:?}");
    assert_eq!(
        said(second),
        ["the healthcheck of service `app` failed in the window (exit code 1: no answer)"]
    );
}
