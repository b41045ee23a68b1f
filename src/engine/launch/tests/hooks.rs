//! Commands that belong to the start of a service.

use std::time::Duration;

use super::support::*;
use crate::engine::EngineErrorKind;
use crate::engine::fake::{Behaviour, FakeCall, FakeExit, FakeFault};
use crate::stack::{Condition, Hook, Stack};

fn hook(command: &str) -> Hook {
    Hook {
        command: command.split(' ').map(str::to_owned).collect(),
        ..Hook::default()
    }
}

/// The app waits until the cache is started, and the cache has two hooks.
fn stack_with_hooks() -> Stack {
    let mut stack = stack();
    stack
        .services
        .retain(|name, _| name == "app" || name == "cache");
    stack.services["app"]
        .depends_on
        .retain(|name, _| name == "cache");
    stack.services["cache"].post_start = vec![hook("seed one"), hook("seed two")];
    stack
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_order_after_the_start_and_before_whoever_waits_for_it() {
    let engine = engine();
    let (launched, _lease) = launch_with(&engine, &stack_with_hooks()).await;
    launched.unwrap();
    let calls = engine.calls().into_iter();
    let kept: Vec<String> = calls
        .filter(|call| call.starts_with("start ") || call.starts_with("exec "))
        .collect();
    assert_eq!(
        kept,
        [
            "start cache",
            "exec cache seed one",
            "exec cache seed two",
            "start app"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failing_hook_fails_the_launch_with_its_output_and_the_next_one_is_not_run() {
    let engine = engine();
    engine.behave(
        "cache",
        Behaviour {
            exec: (3, "no such table\n".to_owned()),
            ..Behaviour::default()
        },
    );
    let error = failed(&engine, &stack_with_hooks()).await;
    assert_eq!(error.reason(), "hook_failed");
    assert!(!error.is_environment());
    assert_eq!(
        error.to_string(),
        "run `post_start` of service `cache`: `seed one` exited with code 3; it last wrote: no such table"
    );
    let runs = engine
        .calls()
        .iter()
        .filter(|call| call.starts_with("exec "))
        .count();
    assert_eq!(runs, 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ends_under_its_hook_is_the_reason() {
    let engine = engine();
    let exit = FakeExit {
        code: 9,
        oom_killed: false,
    };
    engine.behave(
        "cache",
        Behaviour {
            exits_at_call: Some((FakeCall::Exec, 1, exit)),
            log: "out of seats\n".to_owned(),
            ..Behaviour::default()
        },
    );
    engine.fault(
        FakeCall::Exec,
        1,
        FakeFault::Fail(EngineErrorKind::Conflict),
    );
    let error = failed(&engine, &stack_with_hooks()).await;
    assert_eq!(
        error.to_string(),
        "run `post_start` of service `cache`: `seed one` could not run: the service exited with \
         code 9; it last wrote: out of seats"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_hook_ends_at_the_deadline_and_is_what_was_last_seen() {
    let engine = engine();
    engine.fault(FakeCall::Exec, 1, FakeFault::Hang);
    let error = failed(&engine, &stack_with_hooks()).await;
    assert_eq!(error.reason(), "not_ready", "{error}");
    assert!(
        error
            .to_string()
            .contains("cache: runs `seed one` of its `post_start`"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_a_hook_of_a_living_container_is_said_to() {
    let engine = engine();
    engine.fault(FakeCall::Exec, 1, FakeFault::Fail(EngineErrorKind::Other));
    let error = failed(&engine, &stack_with_hooks()).await;
    assert_eq!(error.reason(), "engine_error", "{error}");
}

#[tokio::test(start_paused = true)]
async fn hooks_of_a_service_that_must_become_healthy_run_before_its_test_counts() {
    let engine = engine();
    let mut stack = stack();
    stack.services["db"].post_start = vec![hook("seed")];
    engine.fault(FakeCall::Exec, 1, FakeFault::Slow(Duration::from_secs(5)));
    let (launched, _lease) = launch_with(&engine, &stack).await;
    // Five seconds of the hook, two of the migration that waits for the database.
    let launched = launched.unwrap();
    assert!(
        launched.ready_after >= Duration::from_secs(7),
        "{launched:?}"
    );
    let waits = stack.services["migrate"].depends_on["db"].condition;
    assert_eq!(waits, Condition::ServiceHealthy);
}
