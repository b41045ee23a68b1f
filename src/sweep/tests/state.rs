//! The state trials begin with, over the fake engine.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use super::bench::{Bench, verdicts};
use crate::engine::fake::{Behaviour, FakeCall, FakeEngine, FakeExit};
use crate::engine::{CloneWay, Engine};
use crate::event::EventKind;
use crate::secret::Secrets;
use crate::stack::{Mount, MountSource, Service, Stack, Volume};
use crate::sweep::*;
use crate::tree::{CloneMode, TreeAnswer, TreeReport};

const HELPER: &str = "nightsweep-helper";

fn with_volume(stack: &Stack) -> Stack {
    let mut stack = stack.clone();
    stack.volumes.insert("data".to_owned(), Volume::default());
    let app = stack.services.get_mut("app").unwrap();
    app.mounts.push(Mount {
        target: "/data".to_owned(),
        source: MountSource::Volume {
            source: "data".to_owned(),
            nocopy: false,
        },
        read_only: false,
    });
    stack
}

/// What the program in its container answers, whatever it is asked.
fn answers(content: &str) -> Behaviour {
    let tree = TreeReport {
        shape: "5".repeat(64),
        content: Some(content.repeat(64)),
        bytes: 300_000_000,
        files: 7,
        method: Some(CloneMode::Copy),
        ..TreeReport::default()
    };
    let answer = TreeAnswer {
        trees: IndexMap::from([("data".to_owned(), tree)]),
        seconds: 0.1,
    };
    Behaviour {
        exits_after: Some((
            Duration::ZERO,
            FakeExit {
                code: 0,
                oom_killed: false,
            },
        )),
        log: serde_json::to_string(&answer).unwrap(),
        ..Behaviour::default()
    }
}

pub(super) async fn bench(n: u32, state: StatePlan) -> Bench {
    let mut bench = Bench::new(n).await;
    for job in &mut bench.plan.jobs {
        job.stack = Arc::new(with_volume(&job.stack));
        job.phases.truncate(2);
    }
    bench.plan.state = state;
    bench.engine.behave(HELPER, answers("a"));
    bench
}

fn golden(bench: &Bench, seed: Option<SeedSpec>) -> StatePlan {
    let mut stack = Stack::clone(&bench.plan.jobs[0].stack);
    if seed.as_ref().is_some_and(|seed| seed.service.is_some()) {
        let service = Service {
            image: "app:1".to_owned(),
            networks: stack.services["app"].networks.clone(),
            ..Service::default()
        };
        stack.services.insert("seed".to_owned(), service);
    }
    StatePlan::Golden(GoldenPlan {
        way: CloneWay::Files(CloneMode::Auto),
        specs: vec![GoldenSpec {
            cell_id: "web-1".to_owned(),
            stack: Arc::new(stack),
            variables: IndexMap::new(),
            volumes: vec!["data".to_owned()],
            source: GoldenSource::Prepare(seed.map(Box::new)),
            definition: "as a test".to_owned(),
        }],
    })
}

pub(super) async fn golden_bench(n: u32, seed: Option<SeedSpec>) -> Bench {
    let mut bench = bench(n, StatePlan::Fresh).await;
    bench.plan.state = golden(&bench, seed);
    bench
}

/// The calls that change something, names of runs and keys taken out.
fn changes(engine: &FakeEngine) -> Vec<String> {
    let plain = |call: String| {
        let words = call.split(' ').map(|word| {
            let tail = word.strip_prefix("ns-").map(|rest| &rest[8..]);
            match (tail, word.strip_prefix("nightsweep-golden-")) {
                (Some(tail), _) if tail.contains("uses-") => "(use)".to_owned(),
                (Some(tail), _) => format!("ns{tail}"),
                (None, Some(rest)) if rest.contains('-') => "(data)".to_owned(),
                (None, Some(_)) => "(seal)".to_owned(),
                (None, None) if word.starts_with("nightsweep/helper:") => "(helper)".to_owned(),
                (None, None) => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    engine.changes().into_iter().map(plain).collect()
}

fn names_of_goldens(engine: &FakeEngine) -> usize {
    let is_golden = |name: &&String| name.starts_with("nightsweep-golden-");
    engine.existing().iter().filter(is_golden).count()
}

#[tokio::test]
async fn kept_volumes_are_made_once_and_removed_with_the_run() {
    let bench = bench(2, StatePlan::Keep).await;
    let came = bench.run(|_, _| {}).await;
    assert_eq!(came.summary.valid, 2);
    let volumes: Vec<String> = changes(&bench.engine)
        .into_iter()
        .filter(|call| call.contains("volume") || call.contains("data"))
        .collect();
    assert_eq!(volumes, ["create_volume ns-run-data", "remove ns-run-data"]);
    assert_eq!(came.rows[0].state.as_deref(), Some("keep"));
    assert_eq!(came.rows[0].clone_s, None);
}

#[tokio::test]
async fn a_golden_is_prepared_stopped_copied_sealed_and_cloned() {
    let bench = golden_bench(1, None).await;
    let came = bench.run_on(|_, _| {}).await;
    assert_eq!(came.summary.valid, 1, "{:?}", came.rows);
    insta::assert_snapshot!(changes(&bench.engine).join("\n"), @"
    import_image (helper)
    create_volume (use)
    create_volume (data)
    create_network ns-golden-1-default
    create_volume ns-golden-1-data
    create_container app
    start app
    stop app
    create_container nightsweep-helper
    start nightsweep-helper
    remove nightsweep-helper
    remove app
    remove ns-golden-1-default
    remove ns-golden-1-data
    create_volume (seal)
    create_network ns-1-default
    create_volume ns-1-data
    create_container nightsweep-helper
    start nightsweep-helper
    remove nightsweep-helper
    create_container app
    start app
    remove app
    remove ns-1-default
    remove ns-1-data
    remove (use)
    ");
    let row = &came.rows[0];
    assert_eq!(row.state.as_deref(), Some("golden"));
    assert_eq!(row.clone_method.as_deref(), Some("copy"));
    assert_eq!(row.state_fingerprint.as_ref().unwrap().len(), 12);
    assert_eq!(names_of_goldens(&bench.engine), 2, "data and seal stay");
    assert_eq!(bench.engine.existing().len(), 2, "and nothing else does");
}

#[tokio::test]
async fn a_golden_that_is_there_is_used_again() {
    let bench = golden_bench(1, None).await;
    bench.run_on(|_, _| {}).await;
    let again = Bench {
        folder: tempfile::tempdir().unwrap(),
        ..bench
    };
    let n_stops = |engine: &FakeEngine| {
        let calls = engine.changes();
        calls
            .iter()
            .filter(|call| call.starts_with("stop "))
            .count()
    };
    let before = n_stops(&again.engine);
    let came = again.run_on(|_, _| {}).await;
    assert_eq!(came.summary.valid, 1);
    assert_eq!(n_stops(&again.engine), before, "nothing is prepared");
    let is_reused = came.events.iter().any(|event| {
        matches!(
            &event.kind,
            EventKind::StateReady {
                reused: true,
                bytes: 300_000_000,
                ..
            }
        )
    });
    assert!(is_reused);
}

#[tokio::test]
async fn a_clone_that_is_not_like_its_golden_fails_the_trial() {
    let bench = golden_bench(1, None).await;
    let came = bench
        .run_on(|engine, event| {
            if let EventKind::TrialStarted { .. } = event.kind {
                engine.behave(HELPER, answers("b"));
            }
        })
        .await;
    assert_eq!(
        verdicts(&came.rows),
        [(1, "first", "failed", Some("state_not_equal"))]
    );
    let detail = came.rows[0].detail.as_ref().unwrap();
    assert!(
        detail.contains("`data` has the fingerprint bbbbbbbbbbbb, the golden aaaaaaaaaaaa"),
        "{detail}"
    );
}

#[tokio::test]
async fn the_key_of_a_golden_stays_on_the_engine() {
    for fails in [false, true] {
        let mut bench = golden_bench(1, None).await;
        bench.secrets = Secrets::new([7; 16]);
        if fails {
            let behaviour = Behaviour {
                log: "no answer".to_owned(),
                ..answers("a")
            };
            bench.engine.behave(HELPER, behaviour);
        }
        let came = bench.run_on(|_, _| {}).await;
        let labels: Vec<String> = bench
            .engine
            .changes()
            .iter()
            .filter_map(|call| call.split_once("nightsweep-golden-"))
            .map(|(_, key)| key[..16].to_owned())
            .collect();
        assert!(!labels.is_empty());
        let mut told = format!("{:?} {:?}", came.events, came.rows);
        told.push_str(
            &serde_json::to_string(
                &came
                    .events
                    .iter()
                    .map(|event| &event.kind)
                    .collect::<Vec<_>>(),
            )
            .unwrap(),
        );
        for key in labels {
            assert!(!told.contains(&key), "{key} in {told}");
            let is_told = told.contains(&bench.secrets.digest(&key));
            assert!(is_told || fails, "{told}");
        }
    }
}

/// Why nothing was run: every trial has a row that says so, and nothing is left.
fn golden_failure(bench: &Bench, came: &super::bench::Came) -> String {
    assert_eq!(
        verdicts(&came.rows),
        [(1, "first", "skipped", Some("golden_failed"))]
    );
    assert_eq!(bench.engine.existing(), Vec::<String>::new());
    came.summary.ended_early.clone().unwrap()
}

#[tokio::test]
async fn a_database_that_had_to_be_killed_is_no_golden() {
    let bench = golden_bench(1, None).await;
    let mut app = Behaviour::clone(&bench.app);
    let killed = FakeExit {
        code: 137,
        oom_killed: false,
    };
    app.exits_at_call = Some((FakeCall::Stop, 1, killed));
    bench.engine.behave("app", app);
    let came = bench.run_on(|_, _| {}).await;
    let words = golden_failure(&bench, &came);
    assert!(
        words.contains("`app` did not stop within its grace of 10 s and was killed"),
        "{words}"
    );
}

fn seeded_by_service() -> SeedSpec {
    SeedSpec {
        service: Some("seed".to_owned()),
        workload: None,
        timeout: Duration::from_secs(2),
    }
}

fn ends(code: i64) -> Behaviour {
    Behaviour {
        exits_after: Some((
            Duration::from_millis(50),
            FakeExit {
                code,
                oom_killed: false,
            },
        )),
        log: "rows: 7\n".to_owned(),
        ..Behaviour::default()
    }
}

#[tokio::test]
async fn a_seeding_service_must_end_well_and_is_no_part_of_trials() {
    let bench = golden_bench(1, Some(seeded_by_service())).await;
    bench.engine.behave("seed", ends(0));
    let came = bench.run_on(|_, _| {}).await;
    assert_eq!(came.summary.valid, 1, "{:?}", came.summary);
    let starts = bench.engine.changes();
    assert_eq!(
        starts.iter().filter(|call| *call == "start seed").count(),
        1
    );

    let bench = golden_bench(1, Some(seeded_by_service())).await;
    bench.engine.behave("seed", ends(3));
    let came = bench.run_on(|_, _| {}).await;
    let words = golden_failure(&bench, &came);
    assert!(
        words.contains("`seed` ended with code 3") && words.contains("rows: 7"),
        "{words}"
    );
}

#[tokio::test]
async fn every_request_of_a_seeding_workload_must_succeed() {
    let seed =
        |path: &str, journeys| {
            SeedSpec {
        service: None,
        workload: Some(SeedLoad {
            workload: Arc::new(crate::load::Workload::parse(
                std::path::Path::new("seed.toml"),
                &format!("[[step]]\nname = \"fill\"\npath = \"/\"\nexpect = {{ status = {path} }}"),
            ).unwrap()),
            target: None,
            users: 3,
            journeys,
        }),
        timeout: Duration::from_secs(20),
    }
        };
    let bench = golden_bench(1, Some(seed("200", 50))).await;
    let came = bench.run_on(|_, _| {}).await;
    assert_eq!(came.summary.valid, 1, "{:?}", came.summary);

    let bench = golden_bench(1, Some(seed("201", 50))).await;
    let came = bench.run_on(|_, _| {}).await;
    let words = golden_failure(&bench, &came);
    assert!(words.contains("of 50: `fill` failed"), "{words}");
}

#[tokio::test]
async fn a_seed_may_be_sent_elsewhere_than_the_load_where_ports_are_published() {
    let seed_server = super::bench::server().await;
    let seed = |bench: &Bench| {
        let target = TargetSpec::Service {
            service: "app".to_owned(),
            port: seed_server.port(),
            base_path: String::new(),
            wire: crate::tls::Wire::default(),
        };
        let load = SeedLoad {
            workload: bench.plan.workload.clone().unwrap(),
            target: Some(target),
            users: 1,
            journeys: 5,
        };
        SeedSpec {
            service: None,
            workload: Some(load),
            timeout: Duration::from_secs(20),
        }
    };
    for direct in [true, false] {
        let mut bench = bench(1, StatePlan::Fresh).await;
        bench.engine.set_facts(crate::engine::HostFacts {
            direct,
            local: true,
            ..bench.engine.describe().await.unwrap()
        });
        bench.plan.state = golden(&bench, Some(seed(&bench)));
        let came = bench.run_on(|_, _| {}).await;
        assert_eq!(came.summary.valid, 1, "{:?}", came.summary);
    }
}

#[tokio::test]
async fn an_interrupt_while_preparing_leaves_nothing() {
    let bench = golden_bench(1, Some(seeded_by_service())).await;
    let came = bench
        .run_on(|_, event| {
            if matches!(&event.kind, EventKind::StatePreparing { step, .. } if step.starts_with("seeding")) {
                bench.asked.send_modify(|asked| *asked += 1);
            }
        })
        .await;
    assert!(came.summary.interrupted);
    assert_eq!(
        verdicts(&came.rows),
        [(1, "first", "skipped", Some("interrupted"))]
    );
    assert_eq!(bench.engine.existing(), Vec::<String>::new());
}

pub(super) fn hook(service: &str) -> Hook {
    Hook {
        service: service.to_owned(),
        exec: vec!["psql".to_owned(), "-c".to_owned(), "CHECKPOINT".to_owned()],
        timeout: Duration::from_secs(5),
    }
}

pub(super) async fn hooked(service: &str, answer: (i64, &str)) -> Bench {
    let mut bench = Bench::new(1).await;
    for job in &mut bench.plan.jobs {
        job.phases.truncate(2);
        job.phases[1].hooks = vec![hook(service)];
        job.phases[1].plan.held = true;
    }
    let mut app = Behaviour::clone(&bench.app);
    app.exec = (answer.0, answer.1.to_owned());
    bench.engine.behave("app", app);
    bench
}

#[tokio::test]
async fn a_hook_runs_between_warm_up_and_window_and_its_output_is_kept() {
    let bench = hooked("app", (0, "CHECKPOINT\n")).await;
    let mut seen = Vec::new();
    let came = bench
        .run(|engine, event| {
            if let EventKind::PhaseStarted { phase, .. } = &event.kind {
                let calls = engine.calls();
                let hooks = calls
                    .iter()
                    .filter(|call| *call == "exec app psql -c CHECKPOINT");
                seen.push((phase.clone(), hooks.count()));
            }
        })
        .await;
    assert_eq!(came.summary.valid, 1, "{:?}", came.rows);
    assert_eq!(seen, [("warm-up".to_owned(), 0), ("first".to_owned(), 1)]);
    let log = bench
        .folder
        .path()
        .join("results/r/logs/0001-1-hook-1-first-app.log");
    assert_eq!(fs_err::read_to_string(log).unwrap(), "CHECKPOINT\n");
}

#[tokio::test]
async fn a_hook_that_fails_or_cannot_be_run_fails_the_trial() {
    let bench = hooked("app", (2, "no such table\n")).await;
    let came = bench.run(|_, _| {}).await;
    assert_eq!(
        verdicts(&came.rows),
        [(1, "first", "failed", Some("hook_failed"))]
    );
    insta::assert_snapshot!(came.rows[0].detail.as_ref().unwrap(), @"the hook before `first`, `psql -c CHECKPOINT` in service `app`, ended with code 2; it last wrote: no such table");

    let bench = hooked("db", (0, "")).await;
    let came = bench.run(|_, _| {}).await;
    let detail = came.rows[0].detail.as_ref().unwrap();
    assert!(detail.contains("was not launched"), "{detail}");
}
