//! What starts when, and when it is ready.

use std::time::Duration;

use indexmap::IndexMap;

use super::support::*;
use crate::engine::fake::Behaviour;
use crate::engine::{
    Engine, HostFacts, Launch, LeftoverKind, Proof, TargetPath, check_limits, collect_logs,
    collect_trial_logs, launch,
};

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
    assert_eq!(launched.targets[0].port(), 8080);
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
        asked: &[],
        stack: &stack,
        subject: "app",
        target: None,
        ready: None,
        deadline: DEADLINE,
        facts: &facts,
        state: None,
    };
    let launched = launch(&lease, &request).await.unwrap();
    assert_eq!((launched.targets.len(), launched.target_path), (0, None));
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
    assert_eq!(launched.targets[0].to_string(), "127.0.0.1:8080");

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
            .contains(": db: unhealthy (exit code 1: gone); `db`"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_replica_is_created_started_asked_and_proved() {
    let engine = engine();
    let mut stack = stack();
    stack.services["app"].replicas = Some(3);
    engine.behave(
        "app#2",
        Behaviour {
            answers_after: Some(Duration::from_secs(9)),
            ..Behaviour::default()
        },
    );
    let (launched, lease) = launch_with(&engine, &stack).await;
    let launched = launched.unwrap();
    let names: Vec<String> = launched.replicas().map(|one| one.name()).collect();
    assert_eq!(names, ["app#1", "app#2", "app#3", "migrate", "db", "cache"]);
    // One address each, in their order, although the second answered last.
    assert_eq!(launched.targets.len(), 3);
    for (replica, address) in launched.replicas().zip(&launched.targets) {
        let seen = engine.inspect(replica.id).await.unwrap();
        assert_eq!(seen.addresses.values().next(), Some(&address.ip()));
    }
    assert!(launched.ready_after >= Duration::from_secs(9));
    let created: Vec<String> = engine.existing();
    for number in 1..=3 {
        let name = lease.tag().name(&format!("app-{number}"));
        assert!(created.contains(&name), "{name} not in {created:?}");
        let asked = format!("probe app#{number}");
        assert!(engine.calls().contains(&asked), "{asked}");
    }
    let logs = collect_logs(&*engine, &launched).await;
    assert_eq!(logs[1].0, "app#2");
    let by_label = collect_trial_logs(&*engine, lease.tag()).await.unwrap();
    assert_eq!(by_label[1].0, "app#2");
    assert!(lease.release().await.is_complete());
    assert_eq!(engine.existing(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_dependency_is_met_when_all_its_replicas_are() {
    let engine = engine();
    let mut stack = stack();
    stack.services["db"].replicas = Some(2);
    engine.behave(
        "db#2",
        Behaviour {
            healthy_after: Some(Duration::from_secs(20)),
            ..Behaviour::default()
        },
    );
    let (launched, _lease) = launch_with(&engine, &stack).await;
    // 20 s until the second is healthy, 2 s of migration after it.
    assert!(launched.unwrap().ready_after >= Duration::from_secs(22));
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_with_replicas_is_done_when_all_are() {
    let engine = engine();
    let mut stack = stack();
    stack.services["migrate"].replicas = Some(2);
    engine.behave("migrate#2", ends_with(0, Duration::from_secs(15)));
    let (launched, _lease) = launch_with(&engine, &stack).await;
    let launched = launched.unwrap();
    assert!(launched.ready_after >= Duration::from_secs(18));
    assert!(launched.completed.contains("migrate"));
}

#[tokio::test(start_paused = true)]
async fn published_replicas_have_a_port_of_the_host_each() {
    let engine = engine();
    engine.set_facts(HostFacts {
        local: true,
        ..HostFacts::default()
    });
    let mut stack = stack();
    stack.services["app"].replicas = Some(2);
    let (launched, _lease) = launch_with(&engine, &stack).await;
    let targets: Vec<String> = launched
        .unwrap()
        .targets
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(targets, ["127.0.0.1:8080", "127.0.0.1:8081"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_called_like_a_replica_keeps_its_name() {
    let engine = engine();
    let mut stack = stack();
    stack.services["app"].replicas = Some(2);
    stack.services.insert("app-1".to_owned(), service(&[]));
    let (launched, lease) = launch_with(&engine, &stack).await;
    launched.unwrap();
    let existing = engine.existing();
    for part in ["app-1", "app-1_", "app-2"] {
        assert!(existing.contains(&lease.tag().name(part)), "{part}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_tells_is_looked_at_at_once() {
    let late = Duration::from_millis(9_260);
    let mut ready = Vec::new();
    for tells in [true, false] {
        let engine = engine();
        let slow = Behaviour {
            healthy_after: Some(late),
            ..Behaviour::default()
        };
        engine.behave("db", slow);
        if tells {
            engine.tell_news();
        }
        let (launched, lease) = launch_with(&engine, &stack()).await;
        ready.push(launched.unwrap().ready_after);
        lease.release().await;
    }
    // The migration takes two seconds more; the fake tells within 10 ms.
    let soonest = late + Duration::from_secs(2);
    assert!(
        ready[0] >= soonest && ready[0] < soonest + Duration::from_millis(30),
        "{ready:?}"
    );
    assert!(ready[1] > soonest + Duration::from_millis(100), "{ready:?}");
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_that_is_tidied_up_after_its_end_changes_no_proof() {
    let engine = engine();
    let stack = stack();
    let (launched, lease) = launch_with(&engine, &stack).await;
    let launched = launched.unwrap();
    let all = engine.list_ours(&lease.tag().filter()).await.unwrap();
    for (service, is_proved) in [("migrate", true), ("cache", false)] {
        let id = &launched.containers[service][0];
        let container = all.iter().find(|thing| thing.id == id.0).unwrap();
        engine.remove(container).await.unwrap();
        let proof = check_limits(&*engine, &launched, &stack).await;
        assert_eq!(proof.is_ok(), is_proved, "{service}: {proof:?}");
    }
    lease.release().await;
}
