//! Order, readiness and failure of a launch, on the fake engine in paused time.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use tokio::time::Instant;

use crate::engine::error::chain_text;
use crate::engine::fake::{Behaviour, FakeCall, FakeEngine, FakeExit, FakeFault};
use crate::engine::{
    Engine, EngineErrorKind, HostFacts, Launch, LaunchError, LaunchTarget, Launched, Lease, Limits,
    Proof, ReadyProbe, TargetPath, TrialTag, launch,
};
use crate::stack::{
    Attachment, Condition, Dependency, Healthcheck, Network, Service, Stack, Volume,
};

const DEADLINE: Duration = Duration::from_mins(1);

fn service(depends_on: &[(&str, Condition)]) -> Service {
    Service {
        image: "app:1".to_owned(),
        networks: IndexMap::from([("default".to_owned(), Attachment::default())]),
        depends_on: depends_on
            .iter()
            .map(|(name, condition)| {
                let dependency = Dependency {
                    condition: *condition,
                    required: true,
                };
                ((*name).to_owned(), dependency)
            })
            .collect(),
        ..Service::default()
    }
}

fn with_healthcheck(mut service: Service) -> Service {
    service.healthcheck = Some(Healthcheck {
        test: vec!["CMD".to_owned(), "true".to_owned()],
        interval: None,
        timeout: None,
        start_period: None,
        retries: None,
    });
    service
}

/// db (healthy) <- migrate (one-shot) <- app, with a cache beside them.
fn stack() -> Stack {
    use Condition::{ServiceCompletedSuccessfully, ServiceHealthy, ServiceStarted};
    let services = [
        (
            "app",
            Service {
                cpus: Some(0.5),
                ..service(&[
                    ("db", ServiceHealthy),
                    ("migrate", ServiceCompletedSuccessfully),
                    ("cache", ServiceStarted),
                ])
            },
        ),
        ("migrate", service(&[("db", ServiceHealthy)])),
        ("db", with_healthcheck(service(&[]))),
        ("cache", service(&[])),
    ];
    Stack {
        services: services
            .into_iter()
            .map(|(name, service)| (name.to_owned(), service))
            .collect(),
        networks: IndexMap::from([("default".to_owned(), Network::default())]),
        volumes: IndexMap::from([("data".to_owned(), Volume::default())]),
        ..Stack::default()
    }
}

fn ends_with(code: i64, after: Duration) -> Behaviour {
    let exit = FakeExit {
        code,
        oom_killed: false,
    };
    Behaviour {
        exits_after: Some((after, exit)),
        log: "line 1\nit broke\n".to_owned(),
        ..Behaviour::default()
    }
}

fn engine() -> Arc<FakeEngine> {
    let engine = FakeEngine::new();
    engine.behave("migrate", ends_with(0, Duration::from_secs(2)));
    engine.behave(
        "db",
        Behaviour {
            healthy_after: Some(Duration::from_secs(3)),
            health_output: "exit code 2: no response".to_owned(),
            ..Behaviour::default()
        },
    );
    Arc::new(engine)
}

fn lease(engine: &Arc<FakeEngine>) -> Lease<FakeEngine> {
    let tag = TrialTag {
        run_id: "run-1".to_owned(),
        trial: "7".to_owned(),
        cell_id: "cpus-0.5".to_owned(),
        owner: "h:1/2/3".parse().unwrap(),
    };
    Lease::take(Arc::clone(engine), tag)
}

fn probe() -> ReadyProbe {
    ReadyProbe {
        path: "/health".to_owned(),
        status: 200,
        host: "app:8080".to_owned(),
    }
}

async fn launch_with(
    engine: &Arc<FakeEngine>,
    stack: &Stack,
) -> (Result<Launched, LaunchError>, Lease<FakeEngine>) {
    let lease = lease(engine);
    let facts = engine.describe().await.unwrap();
    let target = LaunchTarget {
        service: "app".to_owned(),
        port: 8080,
    };
    let request = Launch {
        stack,
        subject: "app",
        target: Some(&target),
        ready: Some(&probe()),
        deadline: DEADLINE,
        facts: &facts,
    };
    (launch(&lease, &request).await, lease)
}

async fn failed(engine: &Arc<FakeEngine>, stack: &Stack) -> LaunchError {
    let (outcome, lease) = launch_with(engine, stack).await;
    let error = outcome.unwrap_err();
    assert!(lease.release().await.is_complete());
    assert_eq!(engine.existing(), Vec::<String>::new(), "{error}");
    error
}

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
    engine.add_existing(
        crate::engine::LeftoverKind::Container,
        "stranger",
        IndexMap::new(),
    );
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
async fn a_failure_at_any_call_of_a_launch_leaves_nothing_behind() {
    use FakeCall::{CreateContainer, CreateNetwork, CreateVolume, FindImage, Inspect, Start};
    let cases = [
        (FindImage, "engine_error", 4),
        (CreateNetwork, "create_failed", 1),
        (CreateVolume, "create_failed", 1),
        (CreateContainer, "create_failed", 4),
        (Start, "start_failed", 4),
        (Inspect, "engine_error", 20),
    ];
    for (call, reason, n_calls) in cases {
        for nth in 1..=n_calls {
            let engine = engine();
            engine.fault(call, nth, FakeFault::Fail(EngineErrorKind::Other));
            let error = failed(&engine, &stack()).await;
            assert_eq!(error.reason(), reason, "{call} {nth}: {error}");
            assert!(!error.is_environment(), "{call} {nth}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_start_ends_at_the_deadline_and_says_what_was_waited_for() {
    let engine = engine();
    engine.fault(FakeCall::Start, 1, FakeFault::Hang);
    let begun = Instant::now();
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "not_ready");
    assert!(begun.elapsed() < DEADLINE + Duration::from_secs(5));
    let text = error.to_string();
    assert!(text.contains("db: being started"), "{text}");
    assert!(
        text.contains("app: waits for `db` (to be healthy)"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_image_is_named_and_nothing_is_created() {
    let engine = engine();
    let mut stack = stack();
    stack.services["db"].image = "postgres:17".to_owned();
    let error = failed(&engine, &stack).await;
    assert_eq!(error.reason(), "image_missing");
    assert!(error.is_environment());
    assert!(error.hint().unwrap().contains("`postgres:17`"));
    assert_eq!(
        error.to_string(),
        "launch service `db`: the engine does not have the image `postgres:17`"
    );
    assert_eq!(engine.changes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ends_is_reported_at_once_with_code_and_log() {
    let engine = engine();
    engine.behave("cache", ends_with(3, Duration::from_millis(500)));
    let begun = Instant::now();
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "exited");
    assert_eq!(
        error.to_string(),
        "service `cache` exited with code 3; it last wrote: line 1 | it broke"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "no waiting for the deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn a_target_that_ends_before_it_has_an_address_has_exited() {
    for is_direct in [true, false] {
        let engine = engine();
        let facts = HostFacts {
            direct: is_direct,
            local: true,
            ..HostFacts::default()
        };
        engine.set_facts(facts);
        engine.behave("app", ends_with(127, Duration::ZERO));
        let error = failed(&engine, &stack()).await;
        assert_eq!(error.reason(), "exited", "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subject_that_ends_well_has_still_ended() {
    let engine = engine();
    engine.behave(
        "app",
        Behaviour {
            answers_after: None,
            ..ends_with(0, Duration::from_secs(1))
        },
    );
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "exited");
    assert!(
        error
            .hint()
            .unwrap()
            .contains("service_completed_successfully")
    );
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
async fn a_one_shot_that_fails_is_a_failed_dependency() {
    let engine = engine();
    engine.behave("migrate", ends_with(2, Duration::from_millis(10)));
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "dependency_failed");
    assert_eq!(
        error.to_string(),
        "start service `app`: `migrate` exited with code 2; it last wrote: line 1 | it broke"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_turns_unhealthy_is_reported_at_once() {
    let engine = engine();
    engine.behave(
        "db",
        Behaviour {
            healthy_after: None,
            unhealthy_after: Some(Duration::from_secs(4)),
            health_output: "exit code 2: no response".to_owned(),
            ..Behaviour::default()
        },
    );
    let begun = Instant::now();
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "dependency_failed");
    assert!(
        error
            .to_string()
            .contains("is unhealthy (exit code 2: no response)"),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn never_healthy_ends_at_the_deadline_with_the_last_output() {
    let engine = engine();
    engine.behave(
        "db",
        Behaviour {
            healthy_after: None,
            health_output: "exit code 2: no response".to_owned(),
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack()).await;
    insta::assert_snapshot!(error.to_string(), @"not ready after 1 min 00 s of 1 min 00 s: app: waits for `db` (to be healthy); migrate: waits for `db` (to be healthy); db: healthcheck not yet passed (exit code 2: no response)");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_never_answers_right_says_what_it_answered() {
    let engine = engine();
    engine.behave(
        "app",
        Behaviour {
            status: 503,
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "not_ready");
    assert!(
        error.to_string().contains("status 503 instead of 200"),
        "{error}"
    );

    let engine = self::engine();
    engine.behave(
        "app",
        Behaviour {
            answers_after: None,
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack()).await;
    assert!(error.to_string().contains("connection refused"), "{error}");
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
async fn limits_that_are_not_those_planned_fail_the_launch() {
    let engine = engine();
    let limits = Limits {
        nano_cpus: 1_000_000_000,
        ..Limits::default()
    };
    engine.behave(
        "app",
        Behaviour {
            limits_from_look: Some((1, limits)),
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "limits_not_applied");
    assert_eq!(
        error.to_string(),
        "service `app` should have cpus 0.5 and has 1 (read from inspect)"
    );
}

#[tokio::test(start_paused = true)]
async fn contradictions_of_the_stack_are_found_before_anything_is_created() {
    type Change = fn(&mut Stack);
    let cases: [(&str, Change); 4] = [
        ("which is not started", |stack| {
            stack.services.shift_remove("cache");
        }),
        ("wait for each other: app, migrate, db", |stack| {
            stack.services["db"] =
                with_healthcheck(service(&[("migrate", Condition::ServiceStarted)]));
        }),
        ("has a healthcheck", |stack| {
            stack.services["db"].healthcheck = None;
        }),
        ("joins no network", |stack| {
            stack.services["app"].network_mode = Some("none".to_owned());
        }),
    ];
    for (words, change) in cases {
        let engine = engine();
        let mut stack = stack();
        change(&mut stack);
        let error = failed(&engine, &stack).await;
        assert_eq!(error.reason(), "unusable_stack");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(engine.changes(), Vec::<String>::new());
    }
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
    let error = failed(&engine_with_db_image(), &stack).await;
    assert_eq!(error.reason(), "unusable_stack");
}

fn engine_with_db_image() -> Arc<FakeEngine> {
    let engine = engine();
    engine.add_image("db:1", true);
    engine
}

#[tokio::test(start_paused = true)]
async fn what_appears_after_a_launch_was_cut_off_is_removed_too() {
    for call in [
        FakeCall::CreateNetwork,
        FakeCall::CreateVolume,
        FakeCall::CreateContainer,
    ] {
        let engine = engine();
        engine.fault(
            call,
            1,
            FakeFault::HangAndAppear(Duration::from_millis(300)),
        );
        let cut = async {
            let stack = stack();
            let lease = lease(&engine);
            let facts = HostFacts::default();
            let request = Launch {
                stack: &stack,
                subject: "app",
                target: None,
                ready: None,
                deadline: DEADLINE,
                facts: &facts,
            };
            let limit = Duration::from_millis(100);
            let outcome = tokio::time::timeout(limit, launch(&lease, &request)).await;
            assert!(outcome.is_err(), "the creation hangs");
            lease
        };
        let report = cut.await.release().await;
        assert!(report.is_complete());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(engine.existing(), Vec::<String>::new(), "{call}");
    }
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

#[test]
fn every_error_chain_says_its_cause_once() {
    let source = crate::engine::EngineError::new(
        "create container",
        "ns-1",
        EngineErrorKind::Other,
        "invalid mount",
    );
    let error = LaunchError::CreateFailed {
        what: "service `db`".to_owned(),
        source,
    };
    assert_eq!(
        chain_text(&error),
        "create service `db`: create container ns-1: invalid mount"
    );
}
