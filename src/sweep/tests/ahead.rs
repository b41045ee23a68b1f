//! Where two trials meet: what is created ahead, when it starts, who removes it.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, Came, has_begun, verdicts};
use crate::engine::EngineErrorKind;
use crate::engine::fake::{FakeCall, FakeExit, FakeFault};
use crate::event::{Event, EventKind};
use crate::results::Verdict;
use crate::sweep::*;

/// Long enough for every other call of the fake, which take no time at all.
const SLOW: FakeFault = FakeFault::Slow(Duration::from_millis(300));

fn is_measured(event: &Event, trial: u32) -> bool {
    matches!(&event.kind, EventKind::WindowMeasured { trial: at, window, .. } if at.trial == trial && window == "second")
}

/// Where a call stands among all changes; the n-th of its kind, from 1.
#[track_caller]
fn place(bench: &Bench, call: &str, nth: usize) -> usize {
    let changes = bench.engine.changes();
    let mut places = changes
        .iter()
        .enumerate()
        .filter(|(_, made)| made.starts_with(call))
        .map(|(place, _)| place);
    places
        .nth(nth - 1)
        .unwrap_or_else(|| panic!("no {nth}. `{call}` in {changes:#?}"))
}

/// Asks to stop, so many times, once the engine was called like this for the n-th time.
fn stop_at(bench: &Bench, call: &'static str, nth: usize, times: u32) {
    let (engine, asked) = (Arc::clone(&bench.engine), bench.asked.clone());
    tokio::spawn(async move {
        let seen = |calls: &[String]| calls.iter().filter(|made| made.starts_with(call)).count();
        while seen(&engine.calls()) < nth {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        asked.send_replace(times);
    });
}

fn count(bench: &Bench, call: &str) -> usize {
    let changes = bench.engine.changes();
    changes.iter().filter(|made| made.starts_with(call)).count()
}

fn reasons(came: &Came) -> Vec<(u32, Option<&str>)> {
    let mut reasons: Vec<_> = came
        .rows
        .iter()
        .map(|row| (row.trial, row.reason.as_deref()))
        .collect();
    reasons.dedup();
    reasons
}

#[tokio::test]
async fn the_next_trial_is_created_beside_the_tear_down_and_starts_when_nothing_runs() {
    let bench = Bench::new(2).await;
    // A network that takes long to go: the next trial boots beside its removal.
    bench.engine.fault(FakeCall::Remove, 2, SLOW);
    let mut at_events: Vec<(String, Vec<String>)> = Vec::new();
    bench
        .run(|engine, event| {
            let name = match &event.kind {
                EventKind::PhaseStarted { trial, phase, .. } => format!("{} {phase}", trial.trial),
                _ if is_measured(event, 1) => "1 measured".to_owned(),
                EventKind::TrialFinished { trial, .. } => format!("{} finished", trial.trial),
                EventKind::TrialStarted { trial, .. } => format!("{} started", trial.trial),
                _ => return,
            };
            at_events.push((name, engine.changes()));
        })
        .await;
    let first = ["create_network ns", "create_container app", "start app"];
    let together = [
        "remove app",
        "create_network ns",
        "create_container app",
        "start app",
        "remove ns",
    ];
    let last = ["remove app", "remove ns"];
    let known = |made: &String| {
        let (call, object) = made.split_once(' ').unwrap();
        format!("{call} {}", object.split('-').next().unwrap())
    };
    let seen: Vec<String> = bench.engine.changes().iter().map(known).collect();
    let mut in_order = seen.clone();
    // Both begin at once; which of them the engine hears first means nothing.
    in_order[3..8].sort_by_key(|made| together.iter().position(|wanted| wanted == made));
    assert_eq!(in_order, [&first[..], &together, &last].concat());
    let stopped = place(&bench, "remove app", 1);
    assert!(place(&bench, "start app", 2) > stopped && place(&bench, "remove ns", 1) > stopped);

    let changes_at = |wanted: &str| {
        let found = at_events.iter().find(|(name, _)| name == wanted);
        found.map(|(_, changes)| changes.len()).unwrap()
    };
    for measuring in ["1 first", "1 second", "1 measured"] {
        assert_eq!(
            changes_at(measuring),
            3,
            "nothing is created or removed by {measuring}"
        );
    }
    assert_eq!(
        changes_at("2 warm-up"),
        8,
        "all of the first is gone before the second's load"
    );
    let names: Vec<&str> = at_events.iter().map(|(name, _)| name.as_str()).collect();
    let finished = names.iter().position(|name| *name == "1 finished").unwrap();
    assert_eq!(names[finished + 1], "2 started", "{names:?}");
}

#[tokio::test]
async fn dead_time_is_what_passed_without_load_counted_once() {
    let bench = Bench::new(2).await;
    bench.engine.fault(FakeCall::Remove, 2, SLOW);
    bench.engine.fault(FakeCall::Start, 2, SLOW);
    let mut loads: Vec<(Duration, Duration)> = Vec::new();
    let came = bench
        .run(|_, event| match &event.kind {
            EventKind::PhaseStarted { phase, .. } if phase == "warm-up" => {
                loads.push((event.elapsed, Duration::ZERO));
            }
            _ if is_measured(event, 1) || is_measured(event, 2) => {
                loads.last_mut().unwrap().1 = event.elapsed;
            }
            _ => {}
        })
        .await;
    let of = |trial: u32| {
        let row = came.rows.iter().find(|row| row.trial == trial);
        row.and_then(|row| row.dead_time_s).unwrap()
    };
    // What took 0.3 s in the first's tear-down and 0.3 s in the second's launch went on
    // side by side: 0.3 s of the sweep, and 0.3 s of the two trials' dead times.
    let between = loads[1].0.as_secs_f64() - loads[0].1.as_secs_f64();
    assert!(of(1) >= 0.3, "{}", of(1));
    assert!(
        of(1) + of(2) < between + 0.29,
        "{} and {}, {between} between the loads",
        of(1),
        of(2)
    );
}

#[tokio::test]
async fn what_cannot_be_created_ahead_is_created_at_its_turn() {
    for call in [FakeCall::CreateNetwork, FakeCall::CreateContainer] {
        let bench = Bench::new(2).await;
        bench
            .engine
            .fault(call, 2, FakeFault::Fail(EngineErrorKind::Other));
        let came = bench.run(|_, _| {}).await;
        assert_eq!(reasons(&came), [(1, None), (2, None)], "{call}");
        assert_eq!(came.summary.valid, 2);
        let warned = came.events.iter().any(|event| {
            matches!(&event.kind, EventKind::Warned { text } if text.contains("created at its turn"))
        });
        assert!(warned, "{call}: nothing goes wrong in silence");
        let again = place(&bench, call.as_str(), 3);
        assert!(again > place(&bench, "remove ns", 1), "{call}: at its turn");
    }
}

#[tokio::test]
async fn a_creation_that_fails_at_its_turn_too_is_the_next_trials_own_row() {
    let bench = Bench::new(3).await;
    for nth in [2, 3] {
        let fails = FakeFault::Fail(EngineErrorKind::DiskFull);
        bench.engine.fault(FakeCall::CreateContainer, nth, fails);
    }
    let came = bench.run(|_, _| {}).await;
    let failed = came.rows[2].reason.clone();
    assert_eq!(came.rows[2].verdict, Verdict::Failed);
    assert_eq!(
        reasons(&came),
        [(1, None), (2, failed.as_deref()), (3, None)]
    );
}

#[tokio::test]
async fn after_a_failure_nothing_is_created_before_it_was_looked_into() {
    for fail_fast in [false, true] {
        let mut bench = Bench::new(2).await;
        bench.plan.settings.fail_fast = fail_fast;
        let came = bench
            .run(|engine, event| {
                if has_begun(event, "second", 1) {
                    engine.end(
                        "app",
                        FakeExit {
                            code: 1,
                            oom_killed: false,
                        },
                    );
                }
            })
            .await;
        assert_eq!(came.rows[1].reason.as_deref(), Some("exited"));
        if fail_fast {
            assert_eq!(count(&bench, "create_network"), 1);
        } else {
            assert!(place(&bench, "create_network", 2) > place(&bench, "remove ns", 1));
            assert_eq!(came.rows[3].verdict, Verdict::Valid);
        }
    }
}

#[tokio::test]
async fn nothing_is_created_for_a_trial_that_is_to_be_skipped() {
    let mut bench = Bench::new(3).await;
    bench.plan.jobs[1].skip = Some(Reason::new("cpus_exceed_host", "too large"));
    let came = bench.run(|_, _| {}).await;
    assert_eq!(
        reasons(&came),
        [(1, None), (2, Some("cpus_exceed_host")), (3, None)]
    );
    assert!(place(&bench, "create_network", 2) > place(&bench, "remove ns", 1));
}

#[tokio::test]
async fn an_interrupt_while_the_next_trial_is_created_or_boots_removes_it() {
    // Created beside a slow removal of the containers, or booting beside that of the network.
    for (slow_removal, at) in [(1, "create_container"), (2, "start")] {
        let bench = Bench::new(3).await;
        bench.engine.fault(FakeCall::Remove, slow_removal, SLOW);
        bench.engine.fault(FakeCall::Start, 2, SLOW);
        stop_at(&bench, at, 2, 1);
        let came = bench.run(|_, _| {}).await;
        assert_eq!(
            reasons(&came),
            [
                (1, None),
                (2, Some("interrupted")),
                (3, Some("interrupted"))
            ],
            "{at}"
        );
        assert!(
            came.rows[2..]
                .iter()
                .all(|row| row.verdict == Verdict::Skipped)
        );
        assert_eq!(came.summary.valid, 1, "{at}: what was measured stands");
        assert!(came.summary.interrupted);
        let n_started = count(&bench, "start");
        assert_eq!(n_started, if at == "start" { 2 } else { 1 }, "{at}");
        assert_eq!(count(&bench, "create_network"), 2, "{at}");
    }
}

#[tokio::test]
async fn an_interrupt_while_a_creation_hangs_waits_for_what_it_made() {
    let bench = Bench::new(2).await;
    let late = FakeFault::HangAndAppear(Duration::from_millis(200));
    bench.engine.fault(FakeCall::CreateNetwork, 2, late);
    stop_at(&bench, "create_network", 2, 1);
    let came = bench.run(|_, _| {}).await;
    assert_eq!(reasons(&came), [(1, None), (2, Some("interrupted"))]);
}

#[tokio::test]
async fn who_asks_twice_while_the_next_trial_is_created_has_every_row() {
    let bench = Bench::new(3).await;
    bench.engine.fault_always(FakeCall::Remove, FakeFault::Hang);
    stop_at(&bench, "create_container", 2, 2);
    let came = bench.run_on(|_, _| {}).await;
    assert_eq!(
        verdicts(&came.rows)[1..4],
        [
            (1, "second", "valid", None),
            (2, "first", "skipped", Some("interrupted")),
            (2, "second", "skipped", Some("interrupted")),
        ]
    );
    assert_eq!(came.rows.len(), 6);
    let warned = came.events.iter().filter(
        |event| matches!(&event.kind, EventKind::Warned { text } if text.contains("clean --run r")),
    );
    assert_eq!(warned.count(), 2, "both trials left something behind");
}

#[tokio::test]
async fn results_that_cannot_be_written_leave_no_next_trial_behind() {
    let bench = Bench::new(2).await;
    bench.engine.fault(FakeCall::Remove, 2, SLOW);
    let histograms = bench.folder.path().join("results/r/histograms");
    let lost = bench
        .try_run(|_, event| {
            if is_measured(event, 1) {
                fs_err::remove_dir_all(&histograms).unwrap();
                fs_err::write(&histograms, "in the way").unwrap();
            }
        })
        .await;
    assert!(matches!(lost, Err(SweepError::Results { trial: 1, .. })));
    assert_eq!(count(&bench, "start"), 2, "the next one was on its way");
    assert_eq!(bench.engine.existing(), Vec::<String>::new());
}
