//! The stack that is launched, and the engine it is launched on.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use crate::engine::fake::{Behaviour, FakeEngine, FakeExit};
use crate::engine::{
    Engine, Launch, LaunchError, LaunchTarget, Launched, Lease, ReadyProbe, TrialTag, launch,
};
use crate::stack::{
    Attachment, Condition, Dependency, Healthcheck, Network, Service, Stack, Volume,
};

pub(super) const DEADLINE: Duration = Duration::from_mins(1);

pub(super) fn service(depends_on: &[(&str, Condition)]) -> Service {
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

pub(super) fn with_healthcheck(mut service: Service) -> Service {
    service.healthcheck = Some(Healthcheck {
        test: vec!["CMD".to_owned(), "true".to_owned()],
        interval: None,
        timeout: None,
        start_period: None,
        start_interval: None,
        retries: None,
    });
    service
}

/// db (healthy) <- migrate (one-shot) <- app, with a cache beside them.
pub(super) fn stack() -> Stack {
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

pub(super) fn ends_with(code: i64, after: Duration) -> Behaviour {
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

pub(super) fn engine() -> Arc<FakeEngine> {
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

pub(super) fn lease(engine: &Arc<FakeEngine>) -> Lease<FakeEngine> {
    let tag = TrialTag {
        run_id: "run-1".to_owned(),
        trial: "7".to_owned(),
        cell_id: "cpus-0.5".to_owned(),
        owner: "h:1/2/3".parse().unwrap(),
    };
    Lease::take(Arc::clone(engine), tag)
}

pub(super) fn probe() -> ReadyProbe {
    ReadyProbe {
        path: "/health".to_owned(),
        status: 200,
        host: "app:8080".to_owned(),
        wire: crate::tls::Wire::default(),
    }
}

pub(super) async fn launch_with(
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
        asked: &[],
        stack,
        subject: "app",
        target: Some(&target),
        ready: Some(&probe()),
        deadline: DEADLINE,
        facts: &facts,
        state: None,
    };
    (launch(&lease, &request).await, lease)
}

pub(super) async fn failed(engine: &Arc<FakeEngine>, stack: &Stack) -> LaunchError {
    let (outcome, lease) = launch_with(engine, stack).await;
    let error = outcome.unwrap_err();
    assert!(lease.release().await.is_complete());
    assert_eq!(engine.existing(), Vec::<String>::new(), "{error}");
    error
}
