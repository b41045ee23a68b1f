//! Bringing the stack of a trial up, and what its failure is called.

use std::time::{Duration, Instant};

use super::shell::{Trial, until_asked};
use super::target::{address_of, host_of};
use super::{Reason, Signal, TargetSpec};
use crate::engine::{
    Engine, Launch, LaunchError, LaunchTarget, Launched, Lease, ReadyProbe, TrialState, launch,
};
use crate::event::EventKind;
use crate::problem::chain;
use crate::units::format_duration;

/// Creating containers is no part of `ready_timeout`; it must end as well.
const CREATE_LIMIT: Duration = Duration::from_mins(2);
/// One try of a target outside the stack, and the pause before the next.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
const PROBE_PAUSE: Duration = Duration::from_millis(500);

impl<E: Engine> Trial<'_, E> {
    /// Brings the stack up; the signal, and what was launched.
    pub(super) async fn launch(&mut self, lease: &Lease<E>) -> (Signal, Option<Launched>) {
        let plan = self.shared.plan;
        let target = match &plan.target {
            TargetSpec::Service { service, port, .. } => Some(LaunchTarget {
                service: service.clone(),
                port: *port,
            }),
            TargetSpec::Remote { .. } => None,
        };
        let ready = plan.settings.ready.as_ref().map(|ready| ReadyProbe {
            path: ready.path.clone(),
            status: ready.status,
            host: host_of(&plan.target),
        });
        // With `keep` there is one state for all.
        let states = &self.shared.states;
        let state = states.get(self.job.golden).or(states.first());
        let request = Launch {
            stack: &self.job.stack,
            subject: &plan.subject,
            target: target.as_ref(),
            ready: ready.as_ref(),
            deadline: plan.settings.ready_timeout,
            facts: self.shared.facts,
            state,
        };
        let begun = Instant::now();
        let mut interrupted = self.shared.interrupted.clone();
        let limit = plan.settings.ready_timeout * 2
            + CREATE_LIMIT
            + state.map_or(Duration::ZERO, TrialState::limit);
        let launching = async {
            let launched = launch(lease, &request)
                .await
                .map_err(|error| launch_reason(&error))?;
            self.await_remote(ready.as_ref()).await?;
            Ok(launched)
        };
        let result = tokio::select! {
            biased;
            () = until_asked(&mut interrupted, 1) => return (Signal::Interrupted, None),
            result = launching => result,
            () = tokio::time::sleep(limit) => Err(Reason::new(
                "not_ready",
                format!("creating and starting the stack did not end within {}", format_duration(limit)),
            )),
        };
        match result {
            Ok(launched) => {
                let after_s = begun.elapsed().as_secs_f64();
                let target = address_of(&plan.target, &launched)
                    .map_or_else(String::new, |address| address.to_string());
                (self.emit)(EventKind::TrialReady {
                    trial: self.name.clone(),
                    after_s,
                    target,
                });
                (Signal::Launched, Some(launched))
            }
            Err(reason) => (Signal::Broke(reason), None),
        }
    }

    /// Waits until a target outside the stack answers as it should.
    ///
    /// The launch asks a target of the stack by itself.
    async fn await_remote(&self, ready: Option<&ReadyProbe>) -> Result<(), Reason> {
        let (TargetSpec::Remote { address, .. }, Some(ready)) = (&self.shared.plan.target, ready)
        else {
            return Ok(());
        };
        let limit = self.shared.plan.settings.ready_timeout;
        let begun = Instant::now();
        loop {
            let seen = match self.shared.engine.probe(*address, ready, PROBE_LIMIT).await {
                Ok(answer) if answer.status == ready.status => return Ok(()),
                Ok(answer) => format!("status {} ({})", answer.status, answer.body_head),
                Err(failure) => failure.to_string(),
            };
            if begun.elapsed() >= limit {
                let words = format!(
                    "the target {address} did not answer {} with status {} within {}; last seen: {seen}",
                    ready.path,
                    ready.status,
                    format_duration(limit)
                );
                return Err(Reason::new("not_ready", words));
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }
}

pub(super) fn launch_reason(error: &LaunchError) -> Reason {
    let mut words = chain(error);
    if let Some(hint) = error.hint() {
        words.push_str("\nhint: ");
        words.push_str(&hint);
    }
    Reason::new(error.reason(), words)
}
