//! Clean-up, exits, logs and telemetry over the fake engine, in paused time.

use std::sync::Arc;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use tokio::time::Instant;

use super::fake::{Behaviour, FakeCall, FakeEngine, FakeExit, FakeFault};
use super::{
    ContainerRequest, CpuQuota, Engine, EngineError, EngineErrorKind, Exit, KernelLimit,
    KernelLimits, LABEL_GOLDEN, LABEL_RUN, Launched, Lease, LeftoverKind, Limits, Owner, Proof,
    ProofError, TrialTag, Unhealthy, check_limits, collect_logs, collect_trial_logs, differences,
    snapshot, watch_exits,
};
use crate::stack::{Network, Service, Stack};

const KILLED: FakeExit = FakeExit {
    code: 137,
    oom_killed: true,
};

pub(super) fn tag(owner: &Owner) -> TrialTag {
    TrialTag {
        run_id: "run-1".to_owned(),
        trial: "1".to_owned(),
        cell_id: "cell".to_owned(),
        owner: owner.clone(),
    }
}

pub(super) fn dead_owner() -> Owner {
    let living = Owner::current().unwrap();
    format!("{}/{}/1", living.host(), living.pid())
        .parse()
        .unwrap()
}

fn stack(names: &[&str]) -> Stack {
    let service = Service {
        image: "app:1".to_owned(),
        cpus: Some(1.0),
        ..Service::default()
    };
    Stack {
        services: names
            .iter()
            .map(|name| ((*name).to_owned(), service.clone()))
            .collect(),
        ..Stack::default()
    }
}

/// Containers that run, without the work of a launch.
async fn running(engine: &FakeEngine, stack: &Stack, tag: &TrialTag) -> Launched {
    let mut containers = IndexMap::new();
    for (name, service) in &stack.services {
        let request = ContainerRequest {
            name: tag.name(name),
            service,
            networks: &IndexMap::new(),
            volumes: &IndexMap::new(),
            containers: &IndexMap::new(),
            labels: &tag.service_labels(name),
            image_volumes: &[],
            publish_ports: Vec::new(),
        };
        let id = engine.create_container(request).await.unwrap();
        engine.start_container(&id).await.unwrap();
        containers.insert(name.clone(), vec![id]);
    }
    Launched {
        containers,
        subject: "app".to_owned(),
        completed: IndexSet::new(),
        may_complete: IndexSet::new(),
        warnings: Vec::new(),
        targets: Vec::new(),
        target_path: None,
        path: crate::engine::TargetPath::Direct,
        networks: IndexMap::new(),
        proof: Proof::Inspect,
        images: IndexMap::new(),
        cloned: None,
        created_after: Duration::ZERO,
        ready_after: Duration::ZERO,
    }
}

async fn two_services() -> (FakeEngine, Launched) {
    let engine = FakeEngine::new();
    let stack = stack(&["app", "db"]);
    let launched = running(&engine, &stack, &tag(&dead_owner())).await;
    (engine, launched)
}

/// The watch, with an end: a test must fail, not hang.
async fn watched(engine: &FakeEngine, launched: &Launched) -> Result<Exit, EngineError> {
    tokio::time::timeout(
        Duration::from_mins(10),
        watch_exits(engine, launched, &Unhealthy::default()),
    )
    .await
    .expect("the exit is seen within minutes")
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_seen_with_service_code_and_memory() {
    let (engine, launched) = two_services().await;
    engine.behave(
        "db",
        Behaviour {
            exits_after: Some((Duration::from_secs(90), KILLED)),
            ..Behaviour::default()
        },
    );
    let begun = Instant::now();
    let exit = watched(&engine, &launched).await.unwrap();
    let expected = Exit {
        name: "db".to_owned(),
        exit_code: Some(137),
        oom_killed: true,
        is_restarted: false,
    };
    assert_eq!(exit, expected);
    assert!(begun.elapsed() < Duration::from_secs(91));
}

#[tokio::test(start_paused = true)]
async fn a_completed_one_shot_and_a_leaf_that_ends_well_are_no_exits() {
    let (engine, mut launched) = two_services().await;
    launched.may_complete.insert("db".to_owned());
    let well = FakeExit {
        code: 0,
        oom_killed: false,
    };
    engine.end("db", well);
    let while_watching = Duration::from_mins(2);
    assert!(
        tokio::time::timeout(
            while_watching,
            watch_exits(&engine, &launched, &Unhealthy::default())
        )
        .await
        .is_err()
    );

    engine.end("app", well);
    let exit = watched(&engine, &launched).await.unwrap();
    assert_eq!((exit.name.as_str(), exit.exit_code), ("app", Some(0)));

    launched
        .completed
        .extend(["app".to_owned(), "db".to_owned()]);
    assert!(
        tokio::time::timeout(
            while_watching,
            watch_exits(&engine, &launched, &Unhealthy::default())
        )
        .await
        .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_that_somebody_started_again_is_not_the_one_that_was_proved() {
    let (engine, launched) = two_services().await;
    let (exit, ()) = tokio::join!(watched(&engine, &launched), async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        engine.restart("app");
    });
    let exit = exit.unwrap();
    assert_eq!((exit.name.as_str(), exit.is_restarted), ("app", true));
}

#[tokio::test(start_paused = true)]
async fn a_container_removed_by_somebody_else_is_an_exit_without_a_code() {
    let (engine, launched) = two_services().await;
    let found = engine.list_ours(&[LABEL_RUN.to_owned()]).await.unwrap();
    engine.remove(&found[0]).await.unwrap();
    let exit = watched(&engine, &launched).await.unwrap();
    assert_eq!((exit.name.as_str(), exit.exit_code), ("app", None));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_lost_ends_the_watch_and_a_hiccup_does_not() {
    let (engine, launched) = two_services().await;
    for nth in 1..=3 {
        engine.fault(
            FakeCall::Inspect,
            nth,
            FakeFault::Fail(EngineErrorKind::Timeout),
        );
    }
    let minute = Duration::from_mins(1);
    assert!(
        tokio::time::timeout(
            minute,
            watch_exits(&engine, &launched, &Unhealthy::default())
        )
        .await
        .is_err()
    );
    engine.fault_always(
        FakeCall::Inspect,
        FakeFault::Fail(EngineErrorKind::NoDaemon),
    );
    let error = watched(&engine, &launched).await.unwrap_err();
    assert_eq!(error.kind, EngineErrorKind::NoDaemon);
}

#[tokio::test(start_paused = true)]
async fn counters_at_both_edges_give_the_cores_used() {
    let (engine, mut launched) = two_services().await;
    engine.behave(
        "db",
        Behaviour {
            cpu_cores: 2.0,
            ..Behaviour::default()
        },
    );
    tokio::time::sleep(Duration::from_secs(7)).await;
    let before = snapshot(&engine, &launched).await.unwrap();
    tokio::time::sleep(Duration::from_secs(45)).await;
    let after = snapshot(&engine, &launched).await.unwrap();
    let used = differences(&before, &after);
    assert!((used["app"].total.cpu_cores - 0.5).abs() < 1e-6, "{used:?}");
    assert!((used["db"].total.cpu_cores - 2.0).abs() < 1e-6, "{used:?}");
    assert_eq!(used["db"].total.throttled_ratio, Some(0.0));

    launched.may_complete.insert("db".to_owned());
    engine.end("db", KILLED);
    assert_eq!(snapshot(&engine, &launched).await.unwrap()["db"], [None]);
    launched.may_complete.clear();
    assert!(
        snapshot(&engine, &launched).await.is_err(),
        "no zeros for an ended container"
    );
    launched.completed.insert("db".to_owned());
    assert_eq!(snapshot(&engine, &launched).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_limit_changed_behind_our_back_is_caught_at_the_next_edge() {
    let engine = FakeEngine::new();
    let stack = stack(&["app"]);
    let launched = running(&engine, &stack, &tag(&dead_owner())).await;
    assert_eq!(
        check_limits(&engine, &launched, &stack).await.unwrap(),
        Proof::Inspect
    );
    let changed = Limits {
        nano_cpus: 2_000_000_000,
        ..Limits::default()
    };
    engine.update_limits("app", &changed);
    let error = check_limits(&engine, &launched, &stack).await.unwrap_err();
    let ProofError::NotApplied(mismatch) = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (mismatch.planned.as_str(), mismatch.found.as_str()),
        ("1", "2")
    );
}

#[tokio::test(start_paused = true)]
async fn the_kernel_has_the_last_word_and_one_unreadable_service_weakens_the_proof() {
    let engine = FakeEngine::new();
    let stack = stack(&["app", "db"]);
    let launched = running(&engine, &stack, &tag(&dead_owner())).await;
    let kernel = |quota_us| KernelLimits {
        cpu: KernelLimit::At(CpuQuota {
            quota_us,
            period_us: 100_000,
        }),
        memory_bytes: KernelLimit::Unlimited,
        pids: KernelLimit::Unlimited,
        cpuset: None,
        outer_cpu: None,
    };
    let enforce = |service: &str, quota_us| {
        let kernel_limits = Some(kernel(quota_us));
        engine.behave(
            service,
            Behaviour {
                kernel_limits,
                ..Behaviour::default()
            },
        );
    };
    enforce("app", 100_000);
    assert_eq!(
        check_limits(&engine, &launched, &stack).await.unwrap(),
        Proof::Inspect
    );
    enforce("db", 100_000);
    assert_eq!(
        check_limits(&engine, &launched, &stack).await.unwrap(),
        Proof::Kernel
    );
    enforce("db", 50_000);
    let error = check_limits(&engine, &launched, &stack).await.unwrap_err();
    insta::assert_snapshot!(error.to_string(), @"service `db` should have cpus 1 and has 0.5 (50000 us in each 100000 us) (read from kernel)");
}

#[tokio::test(start_paused = true)]
async fn logs_are_kept_by_service_and_one_that_cannot_be_read_says_so() {
    let (engine, launched) = two_services().await;
    engine.behave(
        "app",
        Behaviour {
            log: "a\nb\n".to_owned(),
            ..Behaviour::default()
        },
    );
    engine.fault(FakeCall::Logs, 2, FakeFault::Fail(EngineErrorKind::Timeout));
    let logs = collect_logs(&engine, &launched).await;
    assert_eq!(logs[0], ("app".to_owned(), "a\nb\n".to_owned()));
    assert!(logs[1].1.contains("could not be read: logs db"), "{logs:?}");
    let by_label = collect_trial_logs(&engine, &tag(&dead_owner()))
        .await
        .unwrap();
    assert_eq!(by_label[0], logs[0]);
}

async fn leased() -> (Arc<FakeEngine>, Lease<FakeEngine>) {
    let engine = Arc::new(FakeEngine::new());
    let lease = Lease::take(Arc::clone(&engine), tag(&dead_owner()));
    running(&engine, &stack(&["app"]), lease.tag()).await;
    let labels = lease.tag().labels();
    engine
        .create_network("net", &Network::default(), &labels)
        .await
        .unwrap();
    (engine, lease)
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_is_refused_for_now_is_tried_again() {
    let (engine, lease) = leased().await;
    for nth in 1..=3 {
        engine.fault(
            FakeCall::Remove,
            nth,
            FakeFault::Fail(EngineErrorKind::Conflict),
        );
    }
    engine.fault(FakeCall::List, 1, FakeFault::Fail(EngineErrorKind::Timeout));
    let report = lease.release().await;
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.removed.len(), 2);
    assert_eq!(engine.existing(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_golden_volume_outlives_the_trial_that_its_labels_name() {
    let (engine, lease) = leased().await;
    let mut golden = lease.tag().labels();
    golden.insert(LABEL_GOLDEN.to_owned(), "g".to_owned());
    engine.add_existing(LeftoverKind::Volume, "golden", golden);
    assert!(lease.release().await.is_complete());
    assert_eq!(engine.existing(), ["golden"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_removed_is_reported_in_bounded_time() {
    let (engine, lease) = leased().await;
    engine.fault_always(FakeCall::Remove, FakeFault::Fail(EngineErrorKind::Conflict));
    let begun = Instant::now();
    let report = lease.release().await;
    assert!(begun.elapsed() <= Duration::from_secs(61));
    assert!(!report.is_complete());
    assert_eq!(report.left.len(), 2);

    let lease = Lease::take(Arc::clone(&engine), tag(&dead_owner()));
    engine.clear_faults();
    engine.fault_always(FakeCall::List, FakeFault::Fail(EngineErrorKind::NoDaemon));
    let report = lease.release().await;
    assert!(!report.is_complete(), "not knowing is not clean");
    assert!(report.unknown.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_still_removes_what_it_stands_for() {
    let (engine, lease) = leased().await;
    drop(lease);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(engine.existing(), Vec::<String>::new());

    let (engine, lease) = leased().await;
    engine.fault(FakeCall::Remove, 1, FakeFault::Hang);
    let cut = tokio::time::timeout(Duration::from_secs(1), lease.release()).await;
    assert!(cut.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(engine.existing(), Vec::<String>::new());
}

#[test]
fn a_lease_dropped_without_a_runtime_does_not_panic() {
    let engine = Arc::new(FakeEngine::new());
    drop(Lease::take(engine, tag(&dead_owner())));
}
