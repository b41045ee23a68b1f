//! Stacks whose services share networks, process ids, communication or volumes.

use std::sync::Arc;
use std::time::Duration;

use super::support::*;
use crate::engine::fake::{Behaviour, FakeEngine};
use crate::engine::launch::request::creation_steps;
use crate::engine::{Engine, HostFacts, Launch, LaunchTarget, Lease, TargetPath, TrialTag, launch};
use crate::stack::{Network, Service, Stack, VolumesFrom};

fn changes(engine: &FakeEngine, start: &str) -> Vec<String> {
    let changes = engine.changes().into_iter();
    changes.filter(|call| call.starts_with(start)).collect()
}

/// What a test changes of one service.
type Change<'c> = (&'c str, &'c dyn Fn(&mut Service));

fn with_modes(modes: &[Change<'_>]) -> Stack {
    let mut stack = stack();
    for (name, change) in modes {
        change(&mut stack.services[*name]);
    }
    stack
}

fn in_network_of(other: &'static str) -> impl Fn(&mut Service) {
    move |service| {
        service.networks.clear();
        service.network_mode = Some(format!("service:{other}"));
    }
}

fn host(service: &mut Service) {
    service.networks.clear();
    service.network_mode = Some("host".to_owned());
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_after_those_it_shares_something_with() {
    let engine = engine();
    let stack = with_modes(&[
        ("app", &in_network_of("db")),
        ("db", &|service| {
            service.pid = Some("service:cache".to_owned());
        }),
        ("migrate", &|service| {
            service.volumes_from = vec![VolumesFrom {
                service: "app".to_owned(),
                read_only: true,
            }];
        }),
    ]);
    assert_eq!(
        creation_steps(&stack),
        [vec!["cache"], vec!["db"], vec!["app"], vec!["migrate"]]
    );
    let (launched, _lease) = launch_with(&engine, &stack).await;
    let launched = launched.unwrap();
    assert_eq!(
        changes(&engine, "create_container"),
        [
            "create_container cache",
            "create_container db",
            "create_container app",
            "create_container migrate"
        ]
    );
    assert_eq!(
        launched.containers.keys().collect::<Vec<_>>(),
        ["app", "migrate", "db", "cache"],
        "in the order of the stack"
    );
}

#[test]
fn a_circle_of_sharing_comes_to_an_end() {
    let stack = with_modes(&[("app", &in_network_of("db")), ("db", &in_network_of("app"))]);
    assert_eq!(
        creation_steps(&stack),
        [vec!["migrate", "cache"], vec!["app", "db"]]
    );
}

#[tokio::test(start_paused = true)]
async fn a_target_in_the_network_of_another_is_reached_there() {
    let engine = engine();
    let address = "10.5.5.5".parse().unwrap();
    engine.behave(
        "cache",
        Behaviour {
            address: Some(address),
            ..Behaviour::default()
        },
    );
    let stack = with_modes(&[("app", &in_network_of("cache"))]);
    let (launched, _lease) = launch_with(&engine, &stack).await;
    assert_eq!(launched.unwrap().targets[0].ip(), address);

    // Where addresses are out of reach, the port is published where the network is.
    let engine = self::engine();
    engine.set_facts(HostFacts {
        local: true,
        ..HostFacts::default()
    });
    let (launched, _lease) = launch_with(&engine, &stack).await;
    let launched = launched.unwrap();
    assert_eq!(launched.target_path, Some(TargetPath::Published));
    assert_eq!(launched.targets[0].to_string(), "127.0.0.1:8080");
}

#[tokio::test(start_paused = true)]
async fn a_target_on_the_hosts_network_is_the_host_itself() {
    let engine = engine();
    let stack = with_modes(&[("app", &host)]);
    let (launched, _lease) = launch_with(&engine, &stack).await;
    let launched = launched.unwrap();
    assert_eq!(launched.targets[0].to_string(), "127.0.0.1:8080");
    assert_eq!(launched.target_path, Some(TargetPath::Direct));

    let engine = self::engine();
    engine.set_facts(HostFacts {
        local: true,
        ..HostFacts::default()
    });
    let error = failed(&engine, &stack).await;
    assert!(
        error.to_string().contains("which is not reached from here"),
        "{error}"
    );
    assert_eq!(engine.changes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_port_of_the_host_that_is_taken_is_found_before_anything_is_started() {
    let engine = engine();
    let stack = with_modes(&[("app", &host)]);
    let (first, lease) = launch_with(&engine, &stack).await;
    first.unwrap();
    let before = changes(&engine, "start ");
    // Another trial of the same stack, while the first one runs.
    let tag = TrialTag {
        trial: "8".to_owned(),
        ..lease.tag().clone()
    };
    let other = Lease::take(Arc::clone(&engine), tag);
    let facts = engine.describe().await.unwrap();
    let target = LaunchTarget {
        service: "app".to_owned(),
        port: 8080,
    };
    let request = Launch {
        asked: &[],
        stack: &stack,
        subject: "app",
        target: Some(&target),
        ready: Some(&probe()),
        deadline: DEADLINE,
        facts: &facts,
        state: None,
    };
    let error = launch(&other, &request).await.unwrap_err();
    assert_eq!(error.reason(), "unusable_stack");
    assert!(
        error
            .to_string()
            .contains("something else already listens on port 8080"),
        "{error}"
    );
    assert_eq!(changes(&engine, "start "), before);
}

#[tokio::test(start_paused = true)]
async fn a_target_on_the_engines_own_bridge_is_reached_there() {
    let engine = engine();
    let stack = with_modes(&[("app", &|service: &mut Service| {
        service.networks.clear();
        service.network_mode = Some("bridge".to_owned());
    })]);
    let (launched, _lease) = launch_with(&engine, &stack).await;
    let launched = launched.unwrap();
    assert!(launched.targets[0].ip().to_string().starts_with("10.77."));
    assert!(launched.ready_after < Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_target_whose_network_is_that_of_a_service_without_one_is_refused() {
    let engine = engine();
    let stack = with_modes(&[
        ("app", &in_network_of("cache")),
        ("cache", &|service| {
            service.networks.clear();
            service.network_mode = Some("none".to_owned());
        }),
    ]);
    let error = failed(&engine, &stack).await;
    assert!(
        error.to_string().contains("the target joins no network"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shared_network_is_neither_made_nor_removed() {
    let engine = engine();
    let mut stack = stack();
    stack.networks["default"] = Network {
        external: Some("users-own".to_owned()),
        ..Network::default()
    };
    let (launched, lease) = launch_with(&engine, &stack).await;
    launched.unwrap();
    assert!(lease.release().await.is_complete());
    assert!(
        engine
            .changes()
            .iter()
            .all(|call| !call.contains("network") && !call.contains("users-own")),
        "{:?}",
        engine.changes()
    );
}
