//! What goes wrong costs what it spoils and nothing else.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, at, has_begun, verdicts};
use super::proofs::{knob, lines, page, series};
use super::state;
use crate::engine::EngineErrorKind;
use crate::engine::fake::{Behaviour, FakeCall, FakeExit, FakeFault};
use crate::event::EventKind;
use crate::results::Verdict;
use crate::stack::{Condition, Dependency, Stack};
use crate::sweep::*;

const KILLED: FakeExit = FakeExit {
    code: 137,
    oom_killed: false,
};

fn has_flag(came: &super::bench::Came, row: usize, flag: &str) -> bool {
    came.rows[row].flags.iter().any(|found| found == flag)
}

fn warnings(came: &super::bench::Came) -> Vec<&str> {
    let events = came.events.iter();
    events
        .filter_map(|event| match &event.kind {
            EventKind::Warned { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// Does something once the engine was called like this.
fn after_call(bench: &Bench, call: &'static str, act: impl FnOnce() + 'static) {
    let engine = Arc::clone(&bench.engine);
    let local = async move {
        while !engine.calls().iter().any(|made| made.starts_with(call)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        act();
    };
    tokio::task::spawn_local(local);
}

async fn with_knob() -> Bench {
    let mut bench = Bench::new(1).await;
    bench.plan.jobs[0].knobs = vec![knob(8080, series("db_pool_size"), "8")];
    let behaviour = page(bench.address, "db_pool_size 8\n");
    bench.engine.behave("app", behaviour);
    bench
}

#[tokio::test]
async fn a_knob_that_cannot_be_asked_at_the_end_is_a_flag_and_the_windows_stand() {
    let bench = with_knob().await;
    let address = bench.address;
    let came = bench
        .run(|engine, event| {
            if has_begun(event, "second", 1) {
                engine.behave(
                    "app",
                    Behaviour {
                        status: 503,
                        ..page(address, "db_pool_size 8\n")
                    },
                );
            }
        })
        .await;
    assert_eq!(
        verdicts(&came.rows),
        [(1, "first", "valid", None), (1, "second", "valid", None)]
    );
    assert!(has_flag(&came, 0, "knob_not_asked") && has_flag(&came, 1, "knob_not_asked"));
    let last = lines(&bench).pop().unwrap();
    assert_eq!(last["edge"], "end");
    assert_eq!(last["knobs"][0]["not_asked"], true);
    let wrong = last["knobs"][0]["wrong"].as_str().unwrap();
    assert!(wrong.contains("the answer has status 503"), "{wrong}");
    assert!(warnings(&came).iter().any(|text| text.contains("503")));
}

#[tokio::test]
async fn a_subject_that_dies_before_it_was_asked_at_the_end_has_exited() {
    let bench = with_knob().await;
    let address = bench.address;
    let engine = Arc::clone(&bench.engine);
    let came = bench
        .run(|fake, event| {
            if has_begun(event, "second", 1) {
                fake.behave(
                    "app",
                    Behaviour {
                        status: 503,
                        ..page(address, "")
                    },
                );
            }
            let is_last = matches!(&event.kind, EventKind::WindowMeasured { window, .. } if window == "second");
            if is_last {
                let engine = Arc::clone(&engine);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(700)).await;
                    engine.end("app", KILLED);
                });
            }
        })
        .await;
    assert!(came.rows.iter().all(|row| row.verdict == Verdict::Valid));
    assert!(has_flag(&came, 1, "knob_not_asked"));
    let last = lines(&bench).pop().unwrap();
    let wrong = last["wrong"].as_str().unwrap();
    assert!(wrong.contains("exited with code 137"), "{wrong}");
}

#[tokio::test]
async fn a_subject_that_dies_while_it_is_asked_before_its_load_has_exited() {
    let bench = with_knob().await;
    bench
        .engine
        .behave("app", page(bench.address, "db_pool_size 9\n"));
    let engine = Arc::clone(&bench.engine);
    let came = bench
        .run(|_, event| {
            if matches!(event.kind, EventKind::TrialReady { .. }) {
                let engine = Arc::clone(&engine);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    engine.end("app", KILLED);
                });
            }
        })
        .await;
    assert_eq!(verdicts(&came.rows)[0].3, Some("exited"));
}

#[tokio::test]
async fn a_container_that_dies_in_a_hook_has_exited_however_the_hook_ends() {
    // The command hangs with it, or ends with it.
    for hangs in [true, false] {
        let bench = state::hooked("app", (137, "")).await;
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                if hangs {
                    bench.engine.fault(FakeCall::Exec, 1, FakeFault::Hang);
                }
                let engine = Arc::clone(&bench.engine);
                after_call(&bench, "exec app", move || engine.end("app", KILLED));
                let came = Box::pin(bench.run(|_, _| {})).await;
                assert_eq!(
                    verdicts(&came.rows),
                    [(1, "first", "failed", Some("exited"))],
                    "{hangs}"
                );
            })
            .await;
    }
}

#[tokio::test]
async fn a_hook_runs_in_all_containers_of_its_service_at_once() {
    let mut bench = super::replicas::bench(1, 2).await;
    let job = &mut bench.plan.jobs[0];
    job.phases.truncate(2);
    job.phases[1].hooks = vec![Hook {
        timeout: Duration::from_millis(500),
        ..state::hook("app")
    }];
    job.phases[1].plan.held = true;
    bench.engine.fault(FakeCall::Exec, 1, FakeFault::Hang);
    let came = bench.run(|_, _| {}).await;
    let calls = bench.engine.calls();
    let n_hooks = calls.iter().filter(|call| call.starts_with("exec")).count();
    assert_eq!(n_hooks, 2, "the second is not kept waiting by the first");
    let detail = came.rows[0].detail.as_ref().unwrap();
    assert!(detail.contains("did not end within 500 ms"), "{detail}");
}

#[tokio::test]
async fn a_golden_that_cannot_be_had_costs_its_own_trials_alone() {
    let mut bench = state::golden_bench(3, None).await;
    let StatePlan::Golden(plan) = &mut bench.plan.state else {
        panic!("golden");
    };
    let mut lost = plan.specs[0].clone();
    let mut stack = Stack::clone(&lost.stack);
    stack.services["app"].image = "nowhere:1".to_owned();
    lost.stack = Arc::new(stack);
    // Of a cell that is not run: nobody asks for it.
    let mut unused = lost.clone();
    unused.cell_id = "unused".to_owned();
    plan.specs.extend([lost, unused]);
    bench.plan.jobs[1].golden = 1;
    bench.plan.jobs[2].golden = 2;
    bench.plan.jobs[2].skip = Some(Reason::new("cpus_exceed_host", "too large"));
    let came = bench.run_on(|_, _| {}).await;
    assert_eq!(
        verdicts(&came.rows),
        [
            (1, "first", "valid", None),
            (2, "first", "skipped", Some("golden_failed")),
            (3, "first", "skipped", Some("cpus_exceed_host")),
        ]
    );
    assert_eq!((came.summary.lost, came.summary.skipped), (1, 2));
    assert_eq!(came.summary.ended_early, None);
    let told = warnings(&came);
    assert!(
        told.iter().any(|text| text.contains("nowhere:1")),
        "{told:?}"
    );
    assert!(!told.iter().any(|text| text.contains("unused")), "{told:?}");
}

#[tokio::test]
async fn nothing_is_measured_beside_containers_that_could_not_be_removed() {
    let bench = Bench::new(3).await;
    let fails = FakeFault::Fail(EngineErrorKind::Other);
    bench.engine.fault_always(FakeCall::Remove, fails);
    let local = tokio::task::LocalSet::new();
    let came = local
        .run_until(async {
            // Nothing is under load any more: the minutes of trying again need not be real.
            after_call(&bench, "remove app", tokio::time::pause);
            Box::pin(bench.run_on(|_, _| {})).await
        })
        .await;
    assert_eq!(
        verdicts(&came.rows)[1..4],
        [
            (1, "second", "valid", None),
            (2, "first", "skipped", Some("not_removed")),
            (2, "second", "skipped", Some("not_removed")),
        ]
    );
    let changes = bench.engine.changes();
    let n = |call: &str| changes.iter().filter(|made| made.starts_with(call)).count();
    assert_eq!(n("start app"), 1);
    assert!(n("remove app") > 10, "it was tried for long");
    assert!(came.summary.ended_early.is_some());
    assert!(!came.summary.engine_lost);
}

fn with_database(stack: &Stack) -> Arc<Stack> {
    let mut stack = stack.clone();
    let mut db = stack.services["app"].clone();
    db.cpus = None;
    stack.services["app"].mounts.clear();
    let wanted = Dependency {
        condition: Condition::ServiceStarted,
        required: true,
    };
    stack.services["app"]
        .depends_on
        .insert("db".to_owned(), wanted);
    db.stop_grace_period = Some(Duration::from_mins(1));
    stack.services.insert("db".to_owned(), db);
    Arc::new(stack)
}

#[tokio::test]
async fn what_writes_kept_volumes_is_stopped_in_order_while_a_trial_is_to_follow() {
    let mut bench = state::bench(2, StatePlan::Keep).await;
    for job in &mut bench.plan.jobs {
        job.stack = with_database(&job.stack);
    }
    let came = bench.run(|_, _| {}).await;
    assert_eq!(came.summary.valid, 2, "{:?}", verdicts(&came.rows));
    let changes = bench.engine.changes();
    let place = |call: &str| changes.iter().position(|made| made == call).unwrap();
    assert!(place("stop app") < place("stop db"), "{changes:?}");
    assert!(place("stop db") < place("remove db"), "{changes:?}");
    let n_stops = changes.iter().filter(|made| made.starts_with("stop"));
    assert_eq!(n_stops.count(), 2, "nothing follows the last trial");
    assert!(!has_flag(&came, 1, "unclean_start"));
}

#[tokio::test]
async fn a_trial_that_begins_with_what_a_killed_database_left_is_flagged() {
    let mut bench = state::bench(3, StatePlan::Keep).await;
    for job in &mut bench.plan.jobs {
        job.stack = with_database(&job.stack);
    }
    let db = Behaviour {
        exits_at_call: Some((FakeCall::Stop, 2, KILLED)),
        ..at("127.0.0.9:1".parse().unwrap())
    };
    bench.engine.behave("db", db);
    let came = bench.run(|_, _| {}).await;
    let flagged: Vec<bool> = (0..3)
        .map(|row| has_flag(&came, row, "unclean_start"))
        .collect();
    assert_eq!(flagged, [false, true, false], "{:?}", came.rows);
    let told = warnings(&came);
    assert!(
        told.iter().any(|text| text.contains("grace of 1 min")),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_launch_that_fails_is_dead_time_and_so_is_asking_at_the_end() {
    let bench = Bench::new(1).await;
    let slow = FakeFault::Slow(Duration::from_millis(400));
    bench.engine.fault(FakeCall::CreateNetwork, 1, slow);
    bench
        .engine
        .fault(FakeCall::Start, 1, FakeFault::Fail(EngineErrorKind::Other));
    let came = bench.run(|_, _| {}).await;
    assert!(came.rows[0].dead_time_s.unwrap() >= 0.4);

    let bench = with_knob().await;
    let address = bench.address;
    let came = bench
        .run(|engine, event| {
            if has_begun(event, "second", 1) {
                engine.behave("app", page(address, "db_pool_size 9\n"));
            }
        })
        .await;
    // It is asked until the limit, and nothing is sent meanwhile.
    assert!(came.rows[0].dead_time_s.unwrap() >= 2.5);
}
