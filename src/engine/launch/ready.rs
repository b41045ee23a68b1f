//! Asking the target until it answers as it should.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::LaunchError;
use super::follow::Watch;
use super::request::{Launch, uses_host_network};
use crate::engine::{
    ContainerId, Engine, LaunchTarget, ProbeFailure, ReadyProbe, RunState, TargetPath,
};

/// First and longest pause between two looks of which the engine told nothing. Short at
/// first: most services are ready in well under a second.
pub(super) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(500));

/// A port of this host refuses or answers at once; only a busy listener takes longer.
const PORT_LIMIT: Duration = Duration::from_secs(1);

/// The same between two readiness requests, of which nobody can tell: what is slept too
/// long is lost in every trial, and a request costs the service less than a millisecond.
const ASK_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// Longest wait for one answer; a service under a small CPU quota needs seconds for its first.
const TRY_LIMIT: Duration = Duration::from_secs(5);

/// The next pause after one of the given length.
pub(super) fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(PAUSE.1)
}

/// A port of the host that already answers would be measured in the target's place.
pub(super) async fn refuse_taken_port<E: Engine>(
    engine: &E,
    launch: &Launch<'_>,
) -> Result<(), LaunchError> {
    let Some(target) = launch.target else {
        return Ok(());
    };
    if !uses_host_network(launch.stack, &target.service) {
        return Ok(());
    }
    let probe = launch.ready.cloned().unwrap_or_else(|| ReadyProbe {
        path: "/".to_owned(),
        status: 200,
        host: "localhost".to_owned(),
        wire: crate::tls::Wire::default(),
    });
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), target.port);
    match engine.probe(address, &probe, PORT_LIMIT).await {
        Err(ProbeFailure::Refused | ProbeFailure::Unreachable(_)) => Ok(()),
        Ok(_) | Err(_) => Err(LaunchError::Unusable {
            service: target.service.clone(),
            problem: format!(
                "it uses the host's network, and something else already listens on port {}",
                target.port
            ),
        }),
    }
}

/// Finds the target's address, once its container, `name`, was started. `id` is the
/// container whose network it uses, which is its own in most stacks.
///
/// Never comes back for a container that has ended already: it has no address,
/// and whoever follows it is about to say why.
pub(super) async fn locate<E: Engine>(
    watch: &Watch<'_, E>,
    target: &LaunchTarget,
    (name, id): (&str, &ContainerId),
    path: TargetPath,
) -> Result<SocketAddr, LaunchError> {
    let seen = watch
        .engine()
        .inspect(id)
        .await
        .map_err(|source| LaunchError::Engine { source })?;
    if seen.state == RunState::Exited {
        return std::future::pending().await;
    }
    let address = watch.address_in(target, &seen, path);
    address.ok_or_else(|| LaunchError::Unusable {
        service: name.to_owned(),
        problem: match path {
            TargetPath::Direct => "its container has no address on the stack's networks".to_owned(),
            TargetPath::Published => format!("the engine did not publish its port {}", target.port),
        },
    })
}

/// Repeats the probe until the expected status comes back; never gives up by itself.
pub(super) async fn until_answered<E: Engine>(
    watch: &Watch<'_, E>,
    service: &str,
    address: SocketAddr,
    probe: &ReadyProbe,
) {
    let mut pause = ASK_PAUSE.0;
    let what = format!("GET {} of `{service}` at {address}", probe.path);
    watch.note(&what, "not yet asked".to_owned());
    loop {
        let seen = match watch.engine().probe(address, probe, TRY_LIMIT).await {
            Ok(answer) if answer.status == probe.status => break,
            Ok(answer) => format!(
                "status {} instead of {}, body `{}`",
                answer.status, probe.status, answer.body_head
            ),
            Err(failure) => failure.to_string(),
        };
        watch.note(&what, seen);
        tokio::time::sleep(pause).await;
        pause = longer(pause).min(ASK_PAUSE.1);
    }
    watch.settle(&what);
}
