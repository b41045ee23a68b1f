//! What goes wrong, how it is said, and that nothing stays.

use std::time::Duration;

use tokio::time::Instant;

use super::support::*;
use crate::engine::fake::{Behaviour, FakeCall, FakeExit, FakeFault};
use crate::engine::{EngineError, EngineErrorKind, HostFacts, Launch, LaunchError, Limits, launch};
use crate::problem::chain;
use crate::stack::{Condition, Stack};

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
async fn a_failed_creation_waits_for_those_under_way_beside_it() {
    let cases = [
        (FakeCall::CreateContainer, FakeCall::CreateContainer),
        (FakeCall::CreateNetwork, FakeCall::CreateVolume),
    ];
    for (fails, is_slow) in cases {
        let engine = engine();
        engine.fault(fails, 1, FakeFault::Fail(EngineErrorKind::Other));
        let nth = if fails == is_slow { 2 } else { 1 };
        engine.fault(is_slow, nth, FakeFault::Slow(Duration::from_secs(3)));
        let begun = Instant::now();
        let (outcome, lease) = launch_with(&engine, &stack()).await;
        assert_eq!(outcome.unwrap_err().reason(), "create_failed");
        assert!(begun.elapsed() >= Duration::from_secs(3), "{is_slow}");
        // Nothing is under way any more; that is seen twice, for nobody tells a creation that
        // failed from one that was given up on.
        let releasing = Instant::now();
        assert!(lease.release().await.is_complete());
        assert!(releasing.elapsed() < Duration::from_secs(1));
        assert_eq!(engine.existing(), Vec::<String>::new());
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
async fn a_one_shot_that_fails_is_a_failed_dependency() {
    let engine = engine();
    engine.behave("migrate", ends_with(2, Duration::from_millis(10)));
    let error = failed(&engine, &stack()).await;
    assert_eq!(error.reason(), "dependency_failed");
    assert_eq!(
        error.to_string(),
        "start service `app`: `migrate` exited with code 2; it last wrote: line 1 | it broke"
    );

    // A child of it was killed for memory and it went on regardless.
    let engine = self::engine();
    let exit = FakeExit {
        code: 0,
        oom_killed: true,
    };
    let behaviour = Behaviour {
        exits_after: Some((Duration::ZERO, exit)),
        ..Behaviour::default()
    };
    engine.behave("migrate", behaviour);
    let error = failed(&engine, &stack()).await;
    assert_eq!(
        error.to_string(),
        "start service `app`: `migrate` was killed for memory (exit code 0); it wrote nothing"
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
    insta::assert_snapshot!(error.to_string(), @"not ready after 1 min 00 s of 1 min 00 s: app: waits for `db` (to be healthy); migrate: waits for `db` (to be healthy); db: healthcheck not yet passed (exit code 2: no response); `db` wrote nothing");
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
    let cases: [(&str, Change); 5] = [
        (
            "services.cache.replicas: a service without a container",
            |stack| {
                stack.services["cache"].replicas = Some(0);
            },
        ),
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
async fn what_appears_after_a_launch_was_cut_off_or_given_up_on_is_removed_too() {
    let late = Duration::from_millis(300);
    let calls = [
        FakeCall::CreateNetwork,
        FakeCall::CreateVolume,
        FakeCall::CreateContainer,
    ];
    let faults = [
        FakeFault::HangAndAppear(late),
        FakeFault::TimeOutAndAppear(late),
    ];
    for (call, fault) in itertools::iproduct!(calls, faults) {
        let engine = engine();
        engine.fault(call, 1, fault);
        let cut = async {
            let stack = stack();
            let lease = lease(&engine);
            let facts = HostFacts::default();
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
            let limit = Duration::from_millis(100);
            let outcome = tokio::time::timeout(limit, launch(&lease, &request)).await;
            match fault {
                FakeFault::TimeOutAndAppear(_) => {
                    assert_eq!(outcome.unwrap().unwrap_err().reason(), "create_failed");
                }
                _ => assert!(outcome.is_err(), "the creation hangs"),
            }
            lease
        };
        let report = cut.await.release().await;
        assert!(report.is_complete());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(engine.existing(), Vec::<String>::new(), "{call} {fault:?}");
    }
}

#[test]
fn every_error_chain_says_its_cause_once() {
    let source = EngineError::new(
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
        chain(&error),
        "create service `db`: create container ns-1: invalid mount"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failing_replica_is_named() {
    let engine = engine();
    let mut stack = stack();
    stack.services["app"].replicas = Some(2);
    engine.behave("app#2", ends_with(3, Duration::from_millis(10)));
    engine.behave(
        "app#1",
        Behaviour {
            answers_after: None,
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack).await;
    assert_eq!(error.reason(), "exited");
    assert_eq!(
        error.to_string(),
        "service `app#2` exited with code 3; it last wrote: line 1 | it broke"
    );
    // The target is ready when every replica is; the one that is not is named.
    let engine = self::engine();
    engine.behave(
        "app#2",
        Behaviour {
            status: 503,
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack).await;
    assert_eq!(error.reason(), "not_ready");
    assert!(
        error
            .to_string()
            .contains("`app#2` at 10.77.0.2:8080: status 503 instead of 200"),
        "{error}"
    );
    assert!(!error.to_string().contains("app#1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_among_many_containers_is_seen_at_once() {
    let engine = engine();
    let mut stack = stack();
    stack.services["cache"].replicas = Some(40);
    engine.behave("cache#39", ends_with(5, Duration::from_secs(1)));
    let begun = Instant::now();
    let error = failed(&engine, &stack).await;
    assert_eq!(error.reason(), "exited");
    assert!(error.to_string().contains("`cache#39`"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
