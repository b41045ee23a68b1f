//! An engine that stops answering, in each state; the real one, behind a proxy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::proxy::{Mode, Proxy};
use super::support::{Trial, engine, stack, try_launch};
use crate::engine::docker::LIMIT_DIVISOR;
use crate::engine::{
    DockerEngine, Engine, EngineErrorKind, RunState, Unhealthy, collect_logs, watch_exits,
};
use crate::stack::Stack;

/// Longest any of these may take: far below what a hang would be, far above the deadlines.
const LIMIT: Duration = Duration::from_mins(1);

async fn through(proxy: &Proxy) -> Arc<DockerEngine> {
    let engine = DockerEngine::connect(Some(&proxy.endpoint)).await.unwrap();
    // From here on 30 s are 1.5 s, and two minutes are 6 s.
    LIMIT_DIVISOR.set(20);
    Arc::new(engine)
}

fn alone() -> Stack {
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.services["app"].depends_on.clear();
    stack
}

#[tokio::test]
async fn a_launch_on_an_engine_that_hangs_ends_says_so_and_leaves_nothing() {
    let _ = engine().await;
    let cases = [
        (
            Mode::Swallow("/networks/create"),
            "create_failed",
            "no answer within",
        ),
        (
            Mode::Swallow("/containers/create"),
            "create_failed",
            "no answer within",
        ),
        // It was created, and nobody said so: found by its labels.
        (
            Mode::Mute("/containers/create"),
            "create_failed",
            "no answer within",
        ),
        (Mode::Swallow("/start"), "start_failed", "no answer within"),
        (Mode::Mute("/start"), "start_failed", "no answer within"),
        (
            Mode::Swallow("GET *containers/*json"),
            "engine_error",
            "no answer within",
        ),
    ];
    for (mode, reason, words) in cases {
        let proxy = Proxy::start();
        let engine = through(&proxy).await;
        let facts = engine.describe().await.unwrap();
        let trial = Trial::new(&engine, "1");
        let stack = alone();
        let begun = Instant::now();
        proxy.set(mode.clone());
        let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
        let text = crate::problem::chain(&error);
        assert_eq!(error.reason(), reason, "{mode:?}: {text}");
        assert!(text.contains(words), "{mode:?}: {text}");
        assert!(begun.elapsed() < LIMIT, "{mode:?}");
        proxy.set(Mode::Forward);
        trial.finish(&engine).await;
    }
}

#[tokio::test]
async fn logs_and_removal_on_an_engine_that_hangs_end_and_are_made_up_for() {
    let _ = engine().await;
    let proxy = Proxy::start();
    let engine = through(&proxy).await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &alone(), &facts).await.unwrap();
    let id = &launched.containers["app"][0];

    proxy.set(Mode::Mute("/logs"));
    let logs = collect_logs(&*engine, &launched).await;
    assert!(logs[0].1.contains("could not be read"), "{logs:?}");
    proxy.set(Mode::Swallow("/exec"));
    let command = ["/bin/true".to_owned()];
    let run = engine.exec(id, &command, Duration::from_secs(20));
    assert_eq!(run.await.unwrap_err().kind, EngineErrorKind::Timeout);

    // The first removals get no answer; the engine comes back and the rest is removed.
    proxy.set(Mode::Swallow("DELETE "));
    let filter = trial.filter();
    let begun = Instant::now();
    let come_back = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        proxy.set(Mode::Forward);
    };
    tokio::join!(trial.finish(&engine), come_back);
    assert!(begun.elapsed() < LIMIT);
    assert_eq!(engine.list_ours(&filter).await.unwrap(), []);
}

#[tokio::test]
async fn an_engine_that_is_restarted_is_no_exit_and_one_that_stays_away_is_an_error() {
    let real = engine().await;
    let proxy = Proxy::start();
    let engine = through(&proxy).await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &alone(), &facts).await.unwrap();
    let unhealthy = Unhealthy::default();
    let mut watching = Box::pin(watch_exits(&*engine, &launched, &unhealthy));

    // The stream that waits for the exit is cut; five seconds later the engine is back.
    let restart = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.set(Mode::Down);
        tokio::time::sleep(Duration::from_secs(5)).await;
        proxy.set(Mode::Forward);
        tokio::time::sleep(Duration::from_secs(6)).await;
    };
    tokio::select! {
        exit = &mut watching => panic!("{exit:?}"),
        () = restart => {}
    }
    let seen = real.inspect(&launched.containers["app"][0]).await.unwrap();
    assert_eq!(seen.state, RunState::Running);

    // It stays away: that is said, and no exit is made up.
    proxy.set(Mode::Down);
    let away = tokio::time::timeout(LIMIT, &mut watching).await.unwrap();
    assert!(away.is_err(), "{away:?}");
    proxy.set(Mode::Forward);
    trial.finish(&engine).await;
}
