//! What starts when, and when it is ready.

use std::time::Duration;

use indexmap::IndexMap;

use super::support::*;
use crate::engine::fake::Behaviour;
use crate::engine::{HostFacts, Launch, LeftoverKind, Proof, TargetPath, launch};

#[tokio::test(start_paused = true)]
async fn services_start_when_what_they_depend_on_is_there_and_not_before() {
    let engine = engine();
    let (launched, lease) = launch_with(&engine, &stack()).await;
    let launched = launched.unwrap();
    let name = |part: &str| lease.tag().name(part);
    let expected = [
        format!("create_network {}", name("default")),
        format!("create_volume {}", name("data")),
        "create_container app".to_owned(),
        "create_container migrate".to_owned(),
        "create_container db".to_owned(),
        "create_container cache".to_owned(),
        "start db".to_owned(),
        "start cache".to_owned(),
        "start migrate".to_owned(),
        "start app".to_owned(),
    ];
    assert_eq!(engine.changes(), expected);
    assert_eq!(launched.completed.iter().collect::<Vec<_>>(), ["migrate"]);
    assert_eq!(launched.target.unwrap().port(), 8080);
    assert_eq!(launched.target_path, Some(TargetPath::Direct));
    assert_eq!(launched.proof, Proof::Inspect);
    assert_eq!(
        launched.containers.keys().collect::<Vec<_>>(),
        ["app", "migrate", "db", "cache"]
    );
    // Three seconds until healthy, two of migration, and at most a look's pause after each.
    assert!(
        launched.ready_after >= Duration::from_secs(5),
        "{launched:?}"
    );
    assert!(
        launched.ready_after <= Duration::from_secs(7),
        "{launched:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_leaves_nothing_and_removes_containers_first() {
    let engine = engine();
    engine.add_existing(LeftoverKind::Container, "stranger", IndexMap::new());
    let (launched, lease) = launch_with(&engine, &stack()).await;
    launched.unwrap();
    let report = lease.release().await;
    assert!(report.is_complete());
    assert_eq!(report.removed.len(), 6);
    assert_eq!(engine.existing(), ["stranger"]);
    let removals: Vec<String> = engine
        .changes()
        .into_iter()
        .filter(|call| call.starts_with("remove "))
        .collect();
    assert_eq!(
        &removals[..4],
        ["remove app", "remove migrate", "remove db", "remove cache"]
    );
    assert!(removals[4].ends_with("-default") && removals[5].ends_with("-data"));
}

#[tokio::test(start_paused = true)]
async fn an_undeclared_one_shot_may_end_before_everything_is_ready() {
    let engine = engine();
    engine.behave("cache", ends_with(0, Duration::from_millis(500)));
    let (launched, _lease) = launch_with(&engine, &stack()).await;
    let launched = launched.unwrap();
    assert_eq!(
        launched.completed.iter().collect::<Vec<_>>(),
        ["migrate", "cache"]
    );
    assert_eq!(launched.running().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_probe_running_and_healthy_is_ready() {
    let engine = engine();
    engine.behave(
        "app",
        Behaviour {
            answers_after: None,
            ..Behaviour::default()
        },
    );
    let lease = lease(&engine);
    let facts = HostFacts::default();
    let stack = stack();
    let request = Launch {
        stack: &stack,
        subject: "app",
        target: None,
        ready: None,
        deadline: DEADLINE,
        facts: &facts,
        state: None,
    };
    let launched = launch(&lease, &request).await.unwrap();
    assert_eq!((launched.target, launched.target_path), (None, None));
    assert!(!engine.calls().iter().any(|call| call.starts_with("probe")));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_reached_is_published_and_a_far_engine_refused() {
    let engine = engine();
    engine.set_facts(HostFacts {
        local: true,
        ..HostFacts::default()
    });
    let (launched, _lease) = launch_with(&engine, &stack()).await;
    let launched = launched.unwrap();
    assert_eq!(launched.target_path, Some(TargetPath::Published));
    assert_eq!(launched.target.unwrap().to_string(), "127.0.0.1:8080");

    let engine = self::engine();
    engine.set_facts(HostFacts {
        endpoint: "tcp://far:2375".to_owned(),
        ..HostFacts::default()
    });
    let error = failed(&engine, &stack()).await;
    assert!(error.to_string().ends_with("not yet supported"), "{error}");
    assert_eq!(engine.changes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_is_not_required_and_not_started_is_not_waited_for() {
    let engine = engine();
    let mut stack = stack();
    stack.services.shift_remove("cache");
    stack.services["app"].depends_on["cache"].required = false;
    launch_with(&engine, &stack).await.0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_images_own_healthcheck_counts_and_can_be_switched_off() {
    let engine = engine();
    engine.add_image("db:1", true);
    let mut stack = stack();
    stack.services["db"].image = "db:1".to_owned();
    stack.services["db"].healthcheck = None;
    let launched = launch_with(&engine, &stack).await.0.unwrap();
    assert!(launched.ready_after >= Duration::from_secs(5));

    let mut off = with_healthcheck(service(&[]));
    off.healthcheck.as_mut().unwrap().test = vec!["NONE".to_owned()];
    stack.services["db"].healthcheck = off.healthcheck;
    let engine = self::engine();
    engine.add_image("db:1", true);
    let error = failed(&engine, &stack).await;
    assert_eq!(error.reason(), "unusable_stack");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_turns_unhealthy_before_the_target_answers_is_waited_for() {
    let engine = engine();
    engine.behave(
        "db",
        Behaviour {
            healthy_after: Some(Duration::from_secs(1)),
            unhealthy_after: Some(Duration::from_secs(8)),
            health_output: "exit code 1: gone".to_owned(),
            ..Behaviour::default()
        },
    );
    engine.behave(
        "app",
        Behaviour {
            answers_after: Some(Duration::from_secs(20)),
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "not_ready");
    assert!(
        error
            .to_string()
            .ends_with("db: unhealthy (exit code 1: gone)"),
        "{error}"
    );
}
