//! Asking the target until it answers as it should.

use std::net::SocketAddr;
use std::time::Duration;

use super::LaunchError;
use super::follow::Watch;
use crate::engine::{Engine, LaunchTarget, ReadyProbe, Replica, RunState, TargetPath};

/// First and longest pause between two looks of which the engine told nothing. Short at
/// first: most services are ready in well under a second.
pub(super) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_millis(500));

/// The same between two readiness requests, of which nobody can tell: what is slept too
/// long is lost in every trial, and a request costs the service less than a millisecond.
const ASK_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// Longest wait for one answer; a service under a small CPU quota needs seconds for its first.
const TRY_LIMIT: Duration = Duration::from_secs(5);

/// The next pause after one of the given length.
pub(super) fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(PAUSE.1)
}

/// Finds the target's address, once its container was started.
///
/// Never comes back for a container that has ended already: it has no address,
/// and whoever follows it is about to say why.
pub(super) async fn locate<E: Engine>(
    watch: &Watch<'_, E>,
    target: &LaunchTarget,
    replica: Replica<'_>,
    path: TargetPath,
) -> Result<SocketAddr, LaunchError> {
    let seen = watch
        .engine()
        .inspect(replica.id)
        .await
        .map_err(|source| LaunchError::Engine { source })?;
    if seen.state == RunState::Exited {
        return std::future::pending().await;
    }
    let address = match path {
        // The first network of the service, as the file orders them.
        TargetPath::Direct => watch
            .engine_networks(&target.service)
            .find_map(|network| seen.addresses.get(network))
            .map(|ip| SocketAddr::new(*ip, target.port)),
        TargetPath::Published => seen.published.get(&target.port).copied(),
    };
    address.ok_or_else(|| LaunchError::Unusable {
        service: replica.name(),
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
