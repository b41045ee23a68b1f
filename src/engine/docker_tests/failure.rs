//! What goes wrong, how it is said, and that nothing stays.

use std::time::{Duration, Instant};

use super::support::{Trial, engine, shell, stack, try_launch};
use crate::engine::{Engine, collect_trial_logs};

#[tokio::test]
async fn a_target_is_reached_through_an_ephemeral_port_where_its_address_is_not() {
    let engine = engine().await;
    let mut facts = engine.describe().await.unwrap();
    facts.direct = false;
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.services["app"].depends_on.clear();
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let address = launched.targets[0];
    assert!(
        address.ip().is_loopback() && address.port() != 8080,
        "{address}"
    );
    trial.finish(&engine).await;
}

#[tokio::test]
async fn what_goes_wrong_inside_a_container_is_said_with_its_code_and_words() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let cases = [
        (
            "app",
            "echo no licence; exit 3",
            "exited",
            "exited with code 3; it last wrote: no licence",
        ),
        (
            "migrate",
            "echo no table; exit 2",
            "dependency_failed",
            "`migrate` exited with code 2; it last wrote: no table",
        ),
        ("app", "exec /bin/nothing", "exited", "exited with code 127"),
    ];
    for (service, script, reason, words) in cases {
        let trial = Trial::new(&engine, "1");
        let mut stack = stack();
        stack.services[service].command = shell(script).command;
        let begun = Instant::now();
        let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "no waiting for the deadline"
        );
        let logs = collect_trial_logs(&*engine, trial.lease().tag())
            .await
            .unwrap();
        assert!(logs.iter().any(|(name, _)| name == service), "{logs:?}");
        trial.finish(&engine).await;
    }
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_a_failed_start_and_a_missing_image_is_named() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.services["app"].depends_on.clear();
    stack.services["app"].command = Some(vec!["/no/such/program".to_owned()]);
    let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
    assert_eq!(error.reason(), "start_failed", "{error}");

    stack.services["app"].image = "nightsweep/no-such-image:local".to_owned();
    let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
    assert_eq!(error.reason(), "image_missing", "{error}");
    assert!(error.is_environment());
    trial.finish(&engine).await;
}

#[tokio::test]
async fn a_launch_that_is_cut_off_at_any_moment_leaves_nothing() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    for cut_after_ms in [20, 150, 400, 900] {
        let trial = Trial::new(&engine, "1");
        let limit = Duration::from_millis(cut_after_ms);
        let stack = stack();
        let _ = tokio::time::timeout(limit, try_launch(&trial, &stack, &facts)).await;
        trial.finish(&engine).await;
    }
}
