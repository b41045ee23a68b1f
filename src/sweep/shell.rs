//! Performs one trial: launches, loads, reads the edges, tears down.
//!
//! All decisions are in `trial.rs`; here its actions are carried out and what
//! happens is turned into its signals. **Invariant**: a lease is taken before
//! anything is created and released before the trial ends.

use std::pin::pin;
use std::time::{Duration, Instant};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use indexmap::IndexMap;
use tokio::sync::watch;

use super::outcome::{TrialOutcome, WindowOutcome};
use super::progress::{Progress, load_of};
use super::versions::{idle_connect_ms, versions};
use super::{
    Action, Clock, Ending, Job, JobPhase, Reason, Signal, State, SweepPlan, TargetSpec, step,
};
use crate::engine::{
    Engine, Exit, HostCpu, HostFacts, Inspection, Launch, LaunchError, LaunchTarget, Launched,
    Lease, Owner, Proof, ProofError, Reading, ReadyProbe, TargetPath, TeardownReport, TrialTag,
    check_limits, collect_logs, collect_trial_logs, differences, host_use, launch, read_host_cpu,
    snapshot, watch_exits,
};
use crate::event::{EventKind, TrialRef};
use crate::load::{LoadModel, LoadPlan, LoadSignal, RunningLoad, Target};
use crate::measure::{Judgement, Pacing, judge};
use crate::problem::chain;
use crate::units::format_duration;

/// Beyond its nominal length and its drains, a load that goes on this long hangs.
const LOAD_SLACK: Duration = Duration::from_secs(30);
/// Creating containers is no part of `ready_timeout`; it must end as well.
const CREATE_LIMIT: Duration = Duration::from_mins(2);
/// When an edge cannot be read, the container's exit usually arrives within this.
const EXIT_GRACE: Duration = Duration::from_secs(1);
/// One try of a target outside the stack, and the pause before the next.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// What every trial of a sweep shares.
pub(super) struct Shared<'a, E: Engine> {
    pub(super) engine: &'a Arc<E>,
    pub(super) plan: &'a SweepPlan,
    pub(super) facts: &'a HostFacts,
    pub(super) owner: &'a Owner,
    pub(super) clock: Clock,
    /// How often the user has asked to stop.
    pub(super) interrupted: watch::Receiver<u32>,
    /// Whether a stack of this run has been asked what runs in it.
    pub(super) versions_seen: AtomicBool,
}

/// One trial under way.
struct Trial<'a, E: Engine> {
    shared: &'a Shared<'a, E>,
    job: &'a Job,
    name: TrialRef,
    progress: &'a Progress,
    emit: &'a mut dyn FnMut(EventKind),
    windows: Vec<WindowOutcome>,
    left_edge: Option<Edge>,
    closed: Option<(usize, Edge, Edge)>,
}

/// What is read at an edge of a window.
#[derive(Debug)]
struct Edge {
    proof: Proof,
    readings: IndexMap<String, Reading>,
    host: Option<HostCpu>,
}

/// Runs one trial to its end, whatever happens.
pub(super) async fn run_trial<E: Engine>(
    shared: &Shared<'_, E>,
    job: &Job,
    name: TrialRef,
    progress: &Progress,
    emit: &mut dyn FnMut(EventKind),
) -> TrialOutcome {
    let started_at = shared.clock.now_text();
    let begun = Instant::now();
    let tag = TrialTag {
        run_id: shared.plan.run_id.clone(),
        trial: job.trial.to_string(),
        cell_id: job.cell_id.clone(),
        owner: shared.owner.clone(),
    };
    let lease = Lease::take(Arc::clone(shared.engine), tag.clone());
    let mut trial = Trial {
        shared,
        job,
        name,
        progress,
        emit,
        windows: Vec::new(),
        left_edge: None,
        closed: None,
    };

    let (signal, launched) = trial.launch(&lease).await;
    let ready_after = begun.elapsed();
    let (mut state, action) = step(State::Launching, signal);
    let mut oom_killed = None;
    if let (Action::StartLoad, Some(launched)) = (action, &launched) {
        let mut asked = shared.interrupted.clone();
        tokio::select! {
            biased;
            () = until_asked(&mut asked, 1) => {}
            () = trial.ask_versions(launched) => {}
        }
        (state, oom_killed) = trial.load(launched, state).await;
    }
    let windows = std::mem::take(&mut trial.windows);
    let keeps_logs = needs_logs(&state, job, &windows);
    let engine = &**shared.engine;
    let looked = async {
        let subject = match &launched {
            Some(launched) => look_at_subject(engine, launched).await,
            None => None,
        };
        let logs = if keeps_logs {
            logs_of(engine, launched.as_ref(), &tag).await
        } else {
            Vec::new()
        };
        (subject, logs)
    };
    let mut interrupted = shared.interrupted.clone();
    let (subject, logs) = tokio::select! {
        biased;
        // An engine that hangs must not cost who leaves what was measured.
        () = until_asked(&mut interrupted, 2) => (None, Vec::new()),
        looked = looked => looked,
    };

    let tear_down = Instant::now();
    let left_behind = tokio::select! {
        biased;
        report = lease.release() => (!report.is_complete()).then(|| left_behind(&report)),
        // Who asks twice does not wait; what was measured is still written.
        () = until_asked(&mut interrupted, 2) => Some("asked twice to stop".to_owned()),
    };
    let (state, _) = step(state, Signal::TornDown);
    TrialOutcome {
        ending: match state {
            State::Done(ending) => ending,
            other => Ending::Failed(Reason::new(
                "bug",
                format!("the trial ended while {other:?}"),
            )),
        },
        windows,
        started_at,
        target_path: launched
            .as_ref()
            .map(|launched| launched.target_path.map_or("remote", TargetPath::as_str)),
        dead_time: launched
            .is_some()
            .then(|| ready_after + tear_down.elapsed()),
        restarts: subject
            .as_ref()
            .and_then(|seen| u32::try_from(seen.restarts).ok()),
        oom_killed: oom_killed.or(subject.map(|seen| seen.oom_killed)),
        logs,
        left_behind,
    }
}

async fn look_at_subject<E: Engine>(engine: &E, launched: &Launched) -> Option<Inspection> {
    engine.inspect(launched.subject_id()?).await.ok()
}

async fn logs_of<E: Engine>(
    engine: &E,
    launched: Option<&Launched>,
    tag: &TrialTag,
) -> Vec<(String, String)> {
    match launched {
        Some(launched) => collect_logs(engine, launched).await,
        // Logs explain a failure; that they cannot be had must not hide it.
        None => collect_trial_logs(engine, tag).await.unwrap_or_default(),
    }
}

/// What tear-down could not remove, and why.
fn left_behind(report: &TeardownReport) -> String {
    let things = report
        .left
        .iter()
        .map(|(thing, error)| format!("{} ({})", thing.name, chain(error)));
    let unknown = report.unknown.iter().map(|error| chain(error));
    things.chain(unknown).collect::<Vec<_>>().join(", ")
}

impl<E: Engine> Trial<'_, E> {
    /// Brings the stack up; the signal, and what was launched.
    async fn launch(&mut self, lease: &Lease<E>) -> (Signal, Option<Launched>) {
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
        let request = Launch {
            stack: &self.job.stack,
            subject: &plan.subject,
            target: target.as_ref(),
            ready: ready.as_ref(),
            deadline: plan.settings.ready_timeout,
            facts: self.shared.facts,
        };
        let begun = Instant::now();
        let mut interrupted = self.shared.interrupted.clone();
        let limit = plan.settings.ready_timeout * 2 + CREATE_LIMIT;
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

    /// Asks the first stack that came up what runs in it.
    async fn ask_versions(&mut self, launched: &Launched) {
        if self.shared.versions_seen.swap(true, Ordering::Relaxed) {
            return;
        }
        let versions = versions(&**self.shared.engine, launched, &self.job.stack).await;
        let idle_connect_ms = match address_of(&self.shared.plan.target, launched) {
            Some(address) => idle_connect_ms(address).await,
            None => None,
        };
        (self.emit)(EventKind::VersionsSeen {
            versions,
            idle_connect_ms,
        });
    }

    /// Runs the load to its end or to what breaks it; the state, and whether memory ran out.
    async fn load(&mut self, launched: &Launched, mut state: State) -> (State, Option<bool>) {
        let mut load = match self.start_load(launched) {
            Ok(load) => load,
            Err(reason) => return (step(state, Signal::Broke(reason)).0, None),
        };
        let engine = &**self.shared.engine;
        // Fused: an answer is taken once, and waiting on after it never ends.
        let mut exit = pin!(watch_exits(engine, launched).fuse());
        let mut interrupted = self.shared.interrupted.clone();
        let settings = &self.shared.plan.settings;
        let n_phases = u32::try_from(self.job.phases.len()).unwrap_or(u32::MAX);
        let limit =
            load_of(self.job) + (settings.drain + settings.request_timeout) * n_phases + LOAD_SLACK;
        let mut deadline = pin!(tokio::time::sleep(limit));
        let mut oom_killed = None;
        loop {
            let signal = tokio::select! {
                biased;
                () = until_asked(&mut interrupted, 1) => Signal::Interrupted,
                exit = &mut exit => {
                    oom_killed = exit.as_ref().ok().map(|exit| exit.oom_killed);
                    Signal::Broke(exit_reason(exit.map_err(|error| chain(&error))))
                }
                signal = load.next() => match signal {
                    Some(signal) => {
                        let mut asked = self.shared.interrupted.clone();
                        tokio::select! {
                            biased;
                            () = until_asked(&mut asked, 1) => Signal::Interrupted,
                            taken = self.take(signal, launched) => match taken {
                                Some(signal) => signal,
                                None => continue,
                            },
                        }
                    }
                    None => Signal::LoadDone,
                },
                () = &mut deadline => Signal::DeadlinePassed,
            };
            // An edge that cannot be read is most often a container that just ended.
            let signal = match signal {
                Signal::Broke(reason) if reason.code == "engine_error" && !exit.is_terminated() => {
                    match tokio::time::timeout(EXIT_GRACE, &mut exit).await {
                        Ok(Ok(exit)) => {
                            oom_killed = Some(exit.oom_killed);
                            Signal::Broke(exit_reason(Ok(exit)))
                        }
                        Ok(Err(_)) | Err(_) => Signal::Broke(reason),
                    }
                }
                other => other,
            };
            let (next, action) = step(state, signal);
            state = next;
            if action == Action::TearDown {
                break;
            }
        }
        match load.stop().await {
            Ok(()) => (state, oom_killed),
            // The generator broke down: what it summed by then is not the whole.
            Err(error) => {
                self.windows.clear();
                let reason = Reason::new("load_failed", chain(&error));
                (State::Stopping(Ending::Failed(reason)), oom_killed)
            }
        }
    }

    fn start_load(&self, launched: &Launched) -> Result<RunningLoad, Reason> {
        let plan = self.shared.plan;
        let address = address_of(&plan.target, launched)
            .ok_or_else(|| Reason::new("load_failed", "the target has no address"))?;
        let load_plan = LoadPlan {
            target: Target {
                address,
                host: host_of(&plan.target),
                base_path: base_path_of(&plan.target),
            },
            workload: Arc::clone(&plan.workload),
            variables: self.job.variables.clone(),
            phases: self
                .job
                .phases
                .iter()
                .map(|phase| phase.plan.clone())
                .collect(),
            threads: plan.settings.load_threads,
            timeout: plan.settings.request_timeout,
            drain: plan.settings.drain,
            seed: plan.settings.seed,
        };
        RunningLoad::start(load_plan).map_err(|error| Reason::new("load_failed", chain(&error)))
    }

    /// Takes what the generator says; the trial's signal, where it is one.
    async fn take(&mut self, signal: LoadSignal, launched: &Launched) -> Option<Signal> {
        match signal {
            LoadSignal::PhaseStarted { phase, .. } => {
                let plan = &self.job.phases[phase].plan;
                let left_s = self.left_s(phase, Duration::ZERO);
                (self.emit)(EventKind::PhaseStarted {
                    trial: self.name.clone(),
                    phase: plan.name.clone(),
                    window: plan.window,
                    length_s: plan.duration.as_secs_f64(),
                    left_s,
                });
                if !plan.window {
                    return None;
                }
                match self.read_edge(launched).await {
                    Ok(edge) => {
                        self.left_edge = Some(edge);
                        Some(Signal::WindowOpened)
                    }
                    Err(reason) => Some(Signal::Broke(reason)),
                }
            }
            LoadSignal::Tick(tick) => {
                let left_s = self.left_s(tick.phase, Duration::from_secs(tick.second));
                (self.emit)(EventKind::Ticked {
                    trial: self.name.clone(),
                    second: tick.second,
                    successes: tick.counts.successes,
                    errors: tick.counts.errors.total(),
                    p99_ms: tick.p99_ms,
                    left_s,
                });
                None
            }
            LoadSignal::PhaseEnded { phase, .. } => {
                let left = self.left_edge.take()?;
                match self.read_edge(launched).await {
                    Ok(right) => {
                        self.closed = Some((phase, left, right));
                        Some(Signal::WindowClosed)
                    }
                    Err(reason) => Some(Signal::Broke(reason)),
                }
            }
            LoadSignal::PhaseSummed { phase, summary } => {
                if let Some((closed, left, right)) =
                    self.closed.take_if(|(closed, ..)| *closed == phase)
                {
                    (self.emit)(EventKind::WindowMeasured {
                        trial: self.name.clone(),
                        window: self.job.phases[phase].plan.name.clone(),
                        throughput_rps: summary.total.throughput_rps,
                        p99_ms: summary.total.latency_ms.p99,
                        errors: summary.total.counts.errors.total(),
                    });
                    self.windows.push(WindowOutcome {
                        phase: closed,
                        counters: differences(&left.readings, &right.readings),
                        host_busy_cores: host_busy_cores(&left, &right),
                        proof: if left.proof.min(right.proof) == Proof::Kernel {
                            "kernel"
                        } else {
                            "inspect"
                        },
                        summary: *summary,
                    });
                }
                None
            }
        }
    }

    /// Reads limits and counters; a limit that is not as planned ends the trial.
    async fn read_edge(&self, launched: &Launched) -> Result<Edge, Reason> {
        let engine = &**self.shared.engine;
        let host = read_host_cpu();
        let readings = snapshot(engine, launched)
            .await
            .map_err(|error| Reason::new("engine_error", chain(&error)))?;
        let proof = check_limits(engine, launched, &self.job.stack)
            .await
            .map_err(|error| match &error {
                ProofError::Disturbed { .. } => Reason::new("disturbed", error.to_string()),
                ProofError::NotApplied(wrong) => {
                    Reason::new("limits_not_applied", wrong.to_string())
                }
                ProofError::Engine { .. } | ProofError::NotLaunched { .. } => {
                    Reason::new("engine_error", chain(&error))
                }
            })?;
        Ok(Edge {
            proof,
            readings,
            host,
        })
    }

    /// Expected rest of the sweep, some time into a phase of this trial.
    fn left_s(&self, phase: usize, into: Duration) -> f64 {
        let ahead: Duration = self.job.phases[phase..]
            .iter()
            .map(|phase| phase.plan.duration)
            .sum();
        self.progress.left_s(ahead.saturating_sub(into))
    }
}

fn launch_reason(error: &LaunchError) -> Reason {
    let mut words = chain(error);
    if let Some(hint) = error.hint() {
        words.push_str("\nhint: ");
        words.push_str(&hint);
    }
    Reason::new(error.reason(), words)
}

/// Logs are kept for a trial in which anything is not valid, and not for an interrupted one.
fn needs_logs(state: &State, job: &Job, windows: &[WindowOutcome]) -> bool {
    match state {
        State::Stopping(Ending::Failed(reason)) => reason.code != "interrupted",
        _ => windows.iter().any(|window| {
            judge(&window.summary, pacing_of(&job.phases[window.phase])).judgement
                != Judgement::Valid
        }),
    }
}

/// How the phase was paced, for the rules that judge it.
pub(super) fn pacing_of(phase: &JobPhase) -> Pacing {
    match phase.plan.model {
        LoadModel::Closed { .. } => Pacing::Closed,
        LoadModel::Open { .. } => Pacing::Open,
    }
}

fn exit_reason(exit: Result<Exit, String>) -> Reason {
    match exit {
        Ok(Exit {
            service,
            exit_code,
            oom_killed,
            is_restarted,
        }) => {
            let how = match (exit_code, is_restarted) {
                (_, true) => "was started again".to_owned(),
                (Some(code), false) => format!("exited with code {code}"),
                (None, false) => "was removed".to_owned(),
            };
            let memory = if oom_killed {
                ", killed by the kernel for memory,"
            } else {
                ""
            };
            let words = format!("service `{service}` {how}{memory} while it was measured");
            Reason::new("exited", words)
        }
        Err(words) => Reason::new("engine_error", words),
    }
}

fn host_busy_cores(left: &Edge, right: &Edge) -> Option<f64> {
    host_use(left.host?, right.host?).map(|used| used.busy_cores)
}

fn address_of(target: &TargetSpec, launched: &Launched) -> Option<std::net::SocketAddr> {
    match target {
        TargetSpec::Service { .. } => launched.target,
        TargetSpec::Remote { address, .. } => Some(*address),
    }
}

fn host_of(target: &TargetSpec) -> String {
    match target {
        TargetSpec::Service { service, port, .. } => format!("{service}:{port}"),
        TargetSpec::Remote { host, .. } => host.clone(),
    }
}

fn base_path_of(target: &TargetSpec) -> String {
    match target {
        TargetSpec::Service { base_path, .. } | TargetSpec::Remote { base_path, .. } => {
            base_path.clone()
        }
    }
}

/// Comes back once the user has asked to stop so many times.
async fn until_asked(interrupted: &mut watch::Receiver<u32>, times: u32) {
    if interrupted.wait_for(|asked| *asked >= times).await.is_err() {
        // Nobody can ask any more.
        std::future::pending::<()>().await;
    }
}
