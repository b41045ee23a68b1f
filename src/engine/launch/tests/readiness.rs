//! What keeps a stack from being ready, how that is called and what is said of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::support::*;
use crate::engine::fake::{Behaviour, FakeCall, FakeEngine, FakeFault};
use crate::stack::{Condition, Stack};

const SECOND: Duration = Duration::from_secs(1);

fn wrote(behaviour: Behaviour) -> Behaviour {
    Behaviour {
        log: "line 1\nit broke\n".to_owned(),
        health_output: "exit code 2: no response".to_owned(),
        ..behaviour
    }
}

fn never_healthy() -> Behaviour {
    wrote(Behaviour {
        healthy_after: None,
        ..Behaviour::default()
    })
}

fn unhealthy() -> Behaviour {
    wrote(Behaviour {
        healthy_after: None,
        unhealthy_after: Some(SECOND),
        ..Behaviour::default()
    })
}

fn ends_before_ready(code: i64, after: Duration) -> Behaviour {
    Behaviour {
        healthy_after: None,
        answers_after: None,
        ..ends_with(code, after)
    }
}

fn silent() -> Behaviour {
    wrote(Behaviour {
        answers_after: None,
        ..Behaviour::default()
    })
}

/// One way of not becoming ready.
struct Case {
    /// What is wrong from the beginning.
    script: fn(&FakeEngine, &mut Stack),
    /// What happens four seconds later.
    later: fn(&FakeEngine),
    /// The code and the words of it.
    said: (&'static str, &'static str),
}

const fn case(script: fn(&FakeEngine, &mut Stack), said: (&'static str, &'static str)) -> Case {
    Case {
        script,
        later: |_| {},
        said,
    }
}

const CASES: [Case; 17] = [
    case(
        |engine, _| engine.behave("db", unhealthy()),
        (
            "dependency_failed",
            "`db` is unhealthy (exit code 2: no response); it last wrote: line 1 | it broke",
        ),
    ),
    case(
        |engine, _| engine.behave("db", never_healthy()),
        (
            "not_ready",
            "db: healthcheck not yet passed (exit code 2: no response); `db` last wrote: line 1 | it broke",
        ),
    ),
    // It ends well, and its health is waited for.
    case(
        |engine, _| engine.behave("db", ends_before_ready(0, SECOND)),
        (
            "dependency_failed",
            "`db` exited with code 0 before it was healthy; it last wrote: line 1 | it broke",
        ),
    ),
    case(
        |engine, _| engine.behave("db", ends_before_ready(9, SECOND)),
        (
            "dependency_failed",
            "`db` exited with code 9 before it was healthy",
        ),
    ),
    case(
        |engine, _| engine.behave("migrate", ends_with(2, SECOND)),
        (
            "dependency_failed",
            "start service `app`: `migrate` exited with code 2; it last wrote: line 1 | it broke",
        ),
    ),
    case(
        |engine, _| engine.behave("migrate", wrote(Behaviour::default())),
        (
            "not_ready",
            "migrate: runs, and has not yet come to its end; `migrate` last wrote: line 1 | it broke",
        ),
    ),
    // Nobody waits for what becomes of it.
    case(
        |engine, _| engine.behave("cache", ends_with(1, SECOND)),
        (
            "exited",
            "service `cache` exited with code 1; it last wrote",
        ),
    ),
    case(
        |engine, _| engine.behave("app", ends_before_ready(0, SECOND)),
        ("exited", "service `app` exited with code 0; it last wrote"),
    ),
    case(
        |engine, _| engine.behave("app", silent()),
        (
            "not_ready",
            "at 10.77.0.1:8080: connection refused; `app` last wrote: line 1 | it broke",
        ),
    ),
    // Frozen while it is waited for, by others or by nobody.
    Case {
        script: |engine, _| engine.behave("db", never_healthy()),
        later: |engine| engine.pause("db"),
        said: ("disturbed", "service `db` is paused: somebody froze it"),
    },
    Case {
        script: |engine, _| engine.behave("db", never_healthy()),
        later: |engine| engine.pause("cache"),
        said: ("disturbed", "service `cache` is paused"),
    },
    // Healthy at first, and not any more when everything else is there.
    Case {
        script: |engine, stack| {
            stack.services["cache"] = with_healthcheck(service(&[]));
            engine.behave("migrate", ends_with(0, 10 * SECOND));
        },
        later: |engine| engine.behave("cache", unhealthy()),
        said: (
            "not_ready",
            "cache: unhealthy (exit code 2: no response); `cache` last wrote",
        ),
    },
    // The engine hangs in one call: what the others saw is said.
    case(
        |engine, _| engine.fault(FakeCall::Start, 1, FakeFault::Hang),
        ("not_ready", "db: being started"),
    ),
    case(
        |engine, _| engine.fault_always(FakeCall::Inspect, FakeFault::Hang),
        ("not_ready", "app: waits for `db` (to be healthy)"),
    ),
    case(
        |engine, _| engine.fault_always(FakeCall::Probe, FakeFault::Hang),
        ("not_ready", "no answer within 5s"),
    ),
    // A log that cannot be had hides nothing, and nothing is made up about it.
    case(
        |engine, _| {
            engine.behave("app", ends_before_ready(3, SECOND));
            engine.fault_always(FakeCall::Logs, FakeFault::Hang);
        },
        ("exited", "service `app` exited with code 3"),
    ),
    case(
        |engine, _| {
            engine.behave("app", silent());
            engine.fault_always(FakeCall::Logs, FakeFault::Hang);
        },
        ("not_ready", "connection refused"),
    ),
];

#[tokio::test(start_paused = true)]
async fn every_kind_of_not_ready_has_its_code_its_words_and_an_end() {
    for (index, case) in CASES.into_iter().enumerate() {
        let Case {
            script,
            later,
            said: (reason, words),
        } = case;
        let engine = engine();
        let mut stack = stack();
        script(&engine, &mut stack);
        let begun = Instant::now();
        let disturb = async {
            sleep(4 * SECOND).await;
            later(&engine);
            std::future::pending::<()>().await;
        };
        let error = tokio::select! {
            error = failed(&engine, &stack) => error,
            () = disturb => unreachable!(),
        };
        let text = error.to_string();
        assert_eq!(error.reason(), reason, "{text}");
        assert!(text.contains(words), "`{words}` is not in: {text}");
        assert!(begun.elapsed() < DEADLINE + 10 * SECOND, "{text}");
        // Those whose log was asked for in vain are the last two.
        let is_log_lost = index + 2 >= CASES.len();
        assert!(!is_log_lost || !text.contains("wrote"), "{text}");
    }
}

/// `app` has a healthcheck and is ready only while it passes.
fn tested_app(engine: &Arc<FakeEngine>) -> Stack {
    let mut stack = stack();
    let depends_on = stack.services["app"].depends_on.clone();
    stack.services["app"] = with_healthcheck(service(&[]));
    stack.services["app"].depends_on = depends_on;
    engine.behave(
        "app",
        Behaviour {
            answers_after: Some(20 * SECOND),
            ..Behaviour::default()
        },
    );
    stack
}

#[tokio::test(start_paused = true)]
async fn health_that_flaps_is_ready_once_it_is_healthy_with_everything_else() {
    let engine = engine();
    let stack = tested_app(&engine);
    let sick = || Behaviour {
        unhealthy_after: Some(Duration::ZERO),
        answers_after: Some(20 * SECOND),
        ..Behaviour::default()
    };
    let well = || Behaviour {
        unhealthy_after: None,
        ..sick()
    };
    let begun = Instant::now();
    let flap = async {
        // Healthy from 5 s on, sick again before it answers at 25 s, well at 40 s.
        sleep(10 * SECOND).await;
        engine.behave("app", sick());
        sleep(3 * SECOND).await;
        engine.behave("app", well());
        sleep(3 * SECOND).await;
        engine.behave("app", sick());
        sleep(24 * SECOND).await;
        engine.behave("app", well());
        std::future::pending::<()>().await;
    };
    let (launched, lease) = tokio::select! {
        launched = launch_with(&engine, &stack) => launched,
        () = flap => unreachable!(),
    };
    launched.unwrap();
    assert!(begun.elapsed() >= 40 * SECOND, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < 42 * SECOND, "{:?}", begun.elapsed());
    lease.release().await;
}

#[tokio::test(start_paused = true)]
async fn health_lost_between_the_last_look_and_readiness_is_seen() {
    let engine = engine();
    let stack = tested_app(&engine);
    // The answer that makes it ready comes at the very moment its health is lost.
    engine.behave(
        "app",
        wrote(Behaviour {
            answers_after: Some(20 * SECOND),
            unhealthy_after: Some(20 * SECOND),
            ..Behaviour::default()
        }),
    );
    let error = failed(&engine, &stack).await;
    assert_eq!(error.reason(), "not_ready");
    assert!(error.to_string().contains("app: unhealthy"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_requires_may_fail_and_that_is_said() {
    for (behaviour, words) in [
        (
            ends_before_ready(7, SECOND),
            "service `cache` exited with code 7; no other service requires it",
        ),
        (
            unhealthy(),
            "service `cache` is unhealthy (exit code 2: no response); no other service requires it",
        ),
    ] {
        let engine = engine();
        let mut stack = stack();
        stack.services["cache"] = with_healthcheck(service(&[]));
        let wanted = &mut stack.services["app"].depends_on["cache"];
        wanted.condition = Condition::ServiceHealthy;
        wanted.required = false;
        engine.behave("cache", behaviour.clone());
        let (launched, lease) = launch_with(&engine, &stack).await;
        let launched = launched.unwrap();
        assert_eq!(launched.warnings.len(), 1, "{:?}", launched.warnings);
        assert!(
            launched.warnings[0].contains(words),
            "{:?}",
            launched.warnings
        );
        assert_eq!(
            launched.completed.contains("cache"),
            words.contains("exited")
        );
        lease.release().await;

        // The same, required: the launch fails.
        let engine = self::engine();
        engine.behave("cache", behaviour);
        stack.services["app"].depends_on["cache"].required = true;
        assert_eq!(failed(&engine, &stack).await.reason(), "dependency_failed");
    }
}
