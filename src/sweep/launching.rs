//! Bringing the stack of a trial up, and what its failure is called.

use std::time::{Duration, Instant};

use super::evidence::value_of;
use super::shell::Shared;
use super::target::{host_of, place_of};
use super::{Job, Reason, SweepPlan, TargetSpec};
use crate::engine::{
    Engine, Launch, LaunchError, LaunchTarget, Launched, Lease, Prepared, ReadyProbe, TrialState,
    prepare, start,
};
use crate::problem::chain;
use crate::units::format_duration;

/// Creating containers is no part of `ready_timeout`; it must end as well.
const CREATE_LIMIT: Duration = Duration::from_mins(2);
/// Reading limits back and calls to the engine after everything is ready; they must end as well.
const PROOF_LIMIT: Duration = Duration::from_mins(2);
/// One try of a target outside the stack, and the pause before the next.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// What a launch is asked for: the same for every trial but for its stack.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Where load goes; `None` when that is not in the stack.
    pub target: Option<LaunchTarget>,
    /// How the target, wherever it is, says that it is ready.
    pub ready: Option<ReadyProbe>,
}

impl Wanted {
    /// What the plan wants.
    pub fn of(plan: &SweepPlan) -> Self {
        let ready = plan.settings.ready.as_ref().map(|ready| ReadyProbe {
            path: ready.path.clone(),
            status: ready.status,
            host: host_of(&plan.target),
            wire: plan.target.wire().clone(),
        });
        Self {
            target: place_of(&plan.target),
            ready,
        }
    }
}

/// Creates what a trial needs and starts nothing.
pub(super) async fn create<E: Engine>(
    shared: &Shared<'_, E>,
    job: &Job,
    lease: &Lease<E>,
) -> Result<Prepared, Reason> {
    let request = launch_of(shared, job);
    let limit = CREATE_LIMIT + request.state.map_or(Duration::ZERO, TrialState::limit);
    match tokio::time::timeout(limit, prepare(lease, &request)).await {
        Ok(prepared) => prepared.map_err(|error| reason_of(shared, job, &error)),
        Err(_) => Err(too_long("creating", limit)),
    }
}

/// Starts what was created, until the target answers.
pub(super) async fn come_up<E: Engine>(
    shared: &Shared<'_, E>,
    job: &Job,
    lease: &Lease<E>,
    prepared: Prepared,
) -> Result<Launched, Reason> {
    let request = launch_of(shared, job);
    let limit = shared.plan.settings.ready_timeout * 2 + PROOF_LIMIT;
    let starting = async {
        let launched = start(lease, &request, prepared)
            .await
            .map_err(|error| reason_of(shared, job, &error))?;
        await_remote(&**shared.engine, shared.plan, &shared.wanted).await?;
        Ok(launched)
    };
    tokio::time::timeout(limit, starting)
        .await
        .unwrap_or_else(|_| Err(too_long("starting", limit)))
}

fn launch_of<'a, E: Engine>(shared: &'a Shared<'_, E>, job: &'a Job) -> Launch<'a> {
    Launch {
        stack: &job.stack,
        subject: &shared.plan.subject,
        target: shared.wanted.target.as_ref(),
        asked: &job.asked,
        ready: shared.wanted.ready.as_ref(),
        deadline: shared.plan.settings.ready_timeout,
        facts: shared.facts,
        state: shared.state_of(job),
    }
}

fn too_long(what: &str, limit: Duration) -> Reason {
    let limit = format_duration(limit);
    let words = format!("{what} the stack did not end within {limit}");
    Reason::new("not_ready", words)
}

/// Waits until a target outside the stack answers as it should.
///
/// The launch asks a target of the stack by itself.
///
/// **Errors**: `not_ready`, with what was seen last.
pub async fn await_remote<E: Engine>(
    engine: &E,
    plan: &SweepPlan,
    wanted: &Wanted,
) -> Result<(), Reason> {
    let (TargetSpec::Remote { address, .. }, Some(ready)) = (&plan.target, &wanted.ready) else {
        return Ok(());
    };
    let limit = plan.settings.ready_timeout;
    let begun = Instant::now();
    loop {
        let seen = match engine.probe(*address, ready, PROBE_LIMIT).await {
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

/// A launch's failure; of variables, the cell's values alone are said in the clear.
fn reason_of<E: Engine>(shared: &Shared<'_, E>, job: &Job, error: &LaunchError) -> Reason {
    launch_reason(error, |text| value_of(text, job, shared.secrets))
}

/// A launch's failure; `say` is how values of variables are said.
pub(super) fn launch_reason(error: &LaunchError, say: impl Fn(&str) -> String) -> Reason {
    let mut words = match error {
        LaunchError::LimitsNotApplied(wrong) => wrong.with_values(say).to_string(),
        other => chain(other),
    };
    if let Some(hint) = error.hint() {
        words.push_str("\nhint: ");
        words.push_str(&hint);
    }
    Reason::new(error.reason(), words)
}
