//! Holding the load of a trial: phases, windows, what breaks them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture, LocalBoxFuture};
use serde_json::json;

use super::edge::{Edge, host_busy_cores};
use super::evidence::said;
use super::hooks::hooks_limit;
use super::outcome::WindowOutcome;
use super::progress::load_of;
use super::rows::windows;
use super::script::{JobScript, reason_of};
use super::shell::{Closed, Trial, until_asked};
use super::target::{addresses_of, base_path_of, host_of};
use super::versions::{idle_connect_ms, versions};
use super::{Action, Ending, JobPhase, Reason, Signal, State, step};
use crate::engine::{
    Engine, EngineError, Exit, Launched, LimitsNotApplied, Proof, Unhealthy, differences,
    sample_cpu, watch_exits,
};
use crate::event::EventKind;
use crate::load::{LoadError, LoadModel, LoadPlan, LoadSignal, RunningLoad, Target};
use crate::measure::{Crossed, Judgement, Pacing, WindowSummary, judge};
use crate::problem::chain;
use crate::units::format_duration;

/// Beyond its nominal length and its drains, a load that goes on this long hangs.
const LOAD_SLACK: Duration = Duration::from_secs(30);
/// When an edge cannot be read, the container's exit usually arrives within this.
const EXIT_GRACE: Duration = Duration::from_secs(1);
/// What a container that just ended most often shows itself by.
const EFFECTS_OF_EXITS: [&str; 3] = ["engine_error", "hook_failed", "knob_not_applied"];

/// How often the kernel's CPU files are read while a window is open: a change that lasts
/// less than that can still slip through, one that decides a window's figures cannot.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The code of a load that a threshold ended, and the flag of a window that crosses one.
pub(super) const THRESHOLD_CROSSED: &str = "threshold_crossed";

/// How the load of a trial ended.
pub(super) struct Loaded {
    pub(super) state: State,
    /// `TearDown` or `HandOver`.
    pub(super) action: Action,
    /// Whether the kernel killed a container for memory.
    pub(super) oom_killed: Option<bool>,
    /// When the last of it was sent.
    pub(super) ended: Instant,
}

impl Loaded {
    /// A load that never began.
    pub(super) fn at_once(state: State, signal: Signal, oom_killed: Option<bool>) -> Self {
        let (state, action) = step(state, signal);
        Self {
            state,
            action,
            oom_killed,
            ended: Instant::now(),
        }
    }
}

/// The containers of a trial, watched while something else goes on.
pub(super) struct Watched<'a> {
    // Fused: an answer is taken once, and waiting on after it never ends.
    exit: Fuse<LocalBoxFuture<'a, Result<Exit, EngineError>>>,
    /// Whether the kernel killed the one that ended for memory.
    pub(super) oom_killed: Option<bool>,
}

impl<'a> Watched<'a> {
    pub(super) fn new<E: Engine>(
        engine: &'a E,
        launched: &'a Launched,
        unhealthy: &'a Unhealthy,
    ) -> Self {
        Self {
            exit: watch_exits(engine, launched, unhealthy)
                .boxed_local()
                .fuse(),
            oom_killed: None,
        }
    }

    /// Comes back when a container ends that should go on, or cannot be watched any more.
    pub(super) async fn ended(&mut self) -> Reason {
        let exit = (&mut self.exit).await;
        self.oom_killed = exit.as_ref().ok().map(|exit| exit.oom_killed);
        exit_reason(exit.map_err(|error| chain(&error)))
    }

    /// The end of a container in place of what it brought about, where that is so.
    pub(super) async fn explain(&mut self, signal: Signal) -> Signal {
        match signal {
            Signal::Broke(reason)
                if EFFECTS_OF_EXITS.contains(&reason.code) && !self.exit.is_terminated() =>
            {
                match tokio::time::timeout(EXIT_GRACE, self.ended()).await {
                    Ok(exit) if exit.code == "exited" => Signal::Broke(exit),
                    Ok(_) | Err(_) => Signal::Broke(reason),
                }
            }
            other => other,
        }
    }
}

impl<E: Engine> Trial<'_, '_, E> {
    /// Asks the first stack that came up what runs in it.
    pub(super) async fn ask_versions(&mut self, launched: &Launched) {
        if self.shared.versions_seen.swap(true, Ordering::Relaxed) {
            return;
        }
        let versions = versions(&**self.shared.engine, launched, &self.job.stack).await;
        let idle_connect_ms = match addresses_of(&self.shared.plan.target, launched).first() {
            Some(address) => idle_connect_ms(*address).await,
            None => None,
        };
        (self.emit)(EventKind::VersionsSeen {
            versions,
            idle_connect_ms,
        });
    }

    /// Runs the load to its end or to what breaks it.
    pub(super) async fn load(
        &mut self,
        launched: &Launched,
        state: State,
        watched: &mut Watched<'_>,
    ) -> Loaded {
        let mut load = match self.start_load(launched) {
            Ok(load) => load,
            Err(reason) => return Loaded::at_once(state, Signal::Broke(reason), None),
        };
        let mut loaded = self.hold(&mut load, launched, state, watched).await;
        if let Err(error) = load.stop().await {
            // The generator broke down: what it summed by then is not the whole.
            self.windows.clear();
            let reason = Reason::new("load_failed", chain(&error));
            loaded.state = State::Stopping(Ending::Failed(reason));
            loaded.action = Action::TearDown;
        }
        loaded
    }

    /// Follows the load from signal to signal until the trial has to stop.
    async fn hold(
        &mut self,
        load: &mut RunningLoad,
        launched: &Launched,
        mut state: State,
        watched: &mut Watched<'_>,
    ) -> Loaded {
        let engine = &**self.shared.engine;
        let mut interrupted = self.shared.interrupted.clone();
        let mut deadline = pin!(tokio::time::sleep(self.load_limit()));
        let mut sampling = tokio::time::interval(SAMPLE_EVERY);
        sampling.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut ended = None;
        loop {
            let signal = tokio::select! {
                biased;
                () = until_asked(&mut interrupted, 1) => Signal::Interrupted,
                reason = watched.ended() => Signal::Broke(reason),
                _ = sampling.tick(), if state == State::Measuring => {
                    match sample_cpu(engine, launched, &self.job.stack) {
                        Ok(()) => continue,
                        Err(wrong) => Signal::Broke(self.changed_inside(&wrong)),
                    }
                }
                signal = load.next() => if let Some(signal) = signal {
                    match self.hear(load, signal, launched, watched).await {
                        Some(signal) => signal,
                        None => continue,
                    }
                } else {
                    // From here on nothing is sent: asking is no load.
                    ended = Some(Instant::now());
                    let wrong = self.ask_at_end(launched, watched).await;
                    wrong.unwrap_or_else(|| Signal::LoadDone { is_good: self.is_measured() })
                },
                () = &mut deadline => Signal::DeadlinePassed,
            };
            let (next, action) = step(state, watched.explain(signal).await);
            state = next;
            if matches!(action, Action::TearDown | Action::HandOver) {
                return Loaded {
                    state,
                    action,
                    oom_killed: watched.oom_killed,
                    ended: ended.unwrap_or_else(Instant::now),
                };
            }
        }
    }

    /// Longest time of all phases, their drains and hooks.
    fn load_limit(&self) -> Duration {
        let settings = &self.shared.plan.settings;
        let n_phases = u32::try_from(self.job.phases.len()).unwrap_or(u32::MAX);
        let script = self.job.script.as_ref();
        load_of(self.job)
            + (settings.drain + settings.request_timeout) * n_phases
            + hooks_limit(self.job)
            + script.map_or(Duration::ZERO, JobScript::longest_around)
            + LOAD_SLACK
    }

    /// Takes what the generator says, and lets a phase that was held go on.
    async fn hear(
        &mut self,
        load: &mut RunningLoad,
        signal: LoadSignal,
        launched: &Launched,
        watched: &mut Watched<'_>,
    ) -> Option<Signal> {
        let is_held = matches!(signal, LoadSignal::PhaseHeld { .. });
        let mut asked = self.shared.interrupted.clone();
        tokio::select! {
            biased;
            () = until_asked(&mut asked, 1) => Some(Signal::Interrupted),
            // A hook may wait long for a container that is no more; an edge is read at once.
            reason = watched.ended(), if is_held => Some(Signal::Broke(reason)),
            taken = self.take(signal, launched) => {
                if taken.is_none() && is_held {
                    load.go_on();
                }
                taken
            }
        }
    }

    /// A limit that was changed while a window was open, be it only for a while.
    fn changed_inside(&mut self, wrong: &LimitsNotApplied) -> Reason {
        let words = format!(
            "while the window was open, {}",
            said(wrong, self.job, self.shared.secrets)
        );
        self.keep_proof(None, "inside", json!({ "wrong": words }));
        Reason::new("limits_not_applied", words)
    }

    /// Whether every window has a measurement, if perhaps a suspect one.
    fn is_measured(&self) -> bool {
        let is_judged = |index: usize, phase: &JobPhase| {
            self.windows
                .iter()
                .find(|window| window.phase == index)
                .is_some_and(|window| {
                    judge(&window.summary, pacing_of(phase)).judgement != Judgement::Failed
                })
        };
        windows(self.job).all(|(index, phase)| is_judged(index, phase))
    }

    fn start_load(&self, launched: &Launched) -> Result<RunningLoad, Reason> {
        let plan = self.shared.plan;
        let addresses = addresses_of(&plan.target, launched);
        if addresses.is_empty() {
            return Err(Reason::new("load_failed", "the target has no address"));
        }
        let wrong = |error: LoadError| Reason::new("load_failed", chain(&error));
        if let Some(script) = &self.job.script {
            return script.start(plan, self.job, launched).map_err(wrong);
        }
        let Some(workload) = &plan.workload else {
            return Err(Reason::new("load_failed", "there is nothing to send"));
        };
        let load_plan = LoadPlan {
            target: Target {
                addresses,
                host: host_of(&plan.target),
                base_path: base_path_of(&plan.target),
                wire: plan.target.wire().clone(),
            },
            workload: Arc::clone(workload),
            variables: self.job.variables.clone(),
            phases: self
                .job
                .phases
                .iter()
                .map(|phase| phase.plan.clone())
                .collect(),
            threads: plan.settings.load_threads,
            cpus: self.job.generator_cpus.clone(),
            timeout: plan.settings.request_timeout,
            drain: plan.settings.drain,
            seed: plan.settings.seed,
        };
        RunningLoad::start(load_plan).map_err(wrong)
    }

    /// Takes what the generator says; the trial's signal, where it is one.
    async fn take(&mut self, signal: LoadSignal, launched: &Launched) -> Option<Signal> {
        match signal {
            LoadSignal::PhaseHeld { phase } => self
                .run_hooks(phase, launched)
                .await
                .err()
                .map(Signal::Broke),
            LoadSignal::PhaseStarted { phase, .. } => {
                let plan = &self.job.phases[phase].plan;
                let left_s = self.left_s(phase, Duration::ZERO);
                (self.emit)(EventKind::PhaseStarted {
                    trial: self.name.clone(),
                    phase: plan.name.clone(),
                    step: self.job.phases[phase].step,
                    ramp: plan.ramp_from.is_some(),
                    window: plan.window,
                    length_s: plan.duration.as_secs_f64(),
                    left_s,
                });
                if !plan.window {
                    return None;
                }
                match self.read_edge(launched, phase, "start").await {
                    Ok(edge) => {
                        // What was seen before the window is not of it.
                        self.unhealthy.take();
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
                match self.read_right_edge(launched, phase).await {
                    Ok(right) => {
                        self.closed = Some(Closed {
                            phase,
                            left,
                            right,
                            unhealthy: self.unhealthy.take(),
                        });
                        Some(Signal::WindowClosed)
                    }
                    Err(reason) => Some(Signal::Broke(reason)),
                }
            }
            LoadSignal::PhaseSummed { phase, summary } => {
                self.take_figures(phase, *summary);
                None
            }
            LoadSignal::ScriptEnded(report) => {
                let reason = reason_of(&report);
                self.script = Some(*report);
                reason.map(Signal::Broke)
            }
            LoadSignal::Aborted {
                phase,
                after,
                crossed,
                is_whole,
            } => {
                self.aborted_in = Some(phase);
                let when = (!is_whole).then_some(after);
                let words = abort_words(&self.job.phases[phase], when, &crossed);
                Some(Signal::Broke(Reason::new(THRESHOLD_CROSSED, words)))
            }
        }
    }

    /// Keeps the figures of a phase, where it was a window that was held to its end.
    fn take_figures(&mut self, phase: usize, summary: WindowSummary) {
        // Summed again, with what a script told since.
        if let Some(window) = self.windows.iter_mut().find(|window| window.phase == phase) {
            window.summary = summary;
            return;
        }
        if let Some(closed) = self.closed.take_if(|closed| closed.phase == phase) {
            let (left, right) = (closed.left, closed.right);
            (self.emit)(EventKind::WindowMeasured {
                trial: self.name.clone(),
                window: self.job.phases[phase].plan.name.clone(),
                step: self.job.phases[phase].step,
                throughput_rps: summary.total.throughput_rps,
                p99_ms: summary.total.latency_ms.p99,
                errors: summary.total.counts.errors.total(),
            });
            self.windows.push(WindowOutcome {
                phase: closed.phase,
                unhealthy: closed.unhealthy,
                counters: differences(&left.readings, &right.readings),
                host_busy_cores: host_busy_cores(&left, &right),
                is_environment_changed: left.is_environment_changed || right.is_environment_changed,
                proof: if left.proof.min(right.proof) == Proof::Kernel {
                    "kernel"
                } else {
                    "inspect"
                },
                summary,
            });
        }
    }

    /// Reads the right edge, and after it what healthchecks said of the window.
    async fn read_right_edge(&mut self, launched: &Launched, phase: usize) -> Result<Edge, Reason> {
        let edge = self.read_edge(launched, phase, "end").await?;
        let looked = self.unhealthy.look(&**self.shared.engine, launched).await;
        looked.map_err(|error| Reason::new("engine_error", chain(&error)))?;
        Ok(edge)
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

/// How the phase was paced, for the rules that judge it.
pub(super) fn pacing_of(phase: &JobPhase) -> Pacing {
    match phase.plan.model {
        LoadModel::Closed { .. } | LoadModel::Script { is_open: false } => Pacing::Closed,
        LoadModel::Open { .. } | LoadModel::Script { is_open: true } => Pacing::Open,
    }
}

/// Why a load ended before its last phase; `after` is how far into the phase, unless at its end.
fn abort_words(phase: &JobPhase, after: Option<Duration>, crossed: &Crossed) -> String {
    let when = after.map_or_else(
        || "at the end".to_owned(),
        |after| format!("after {}", format_duration(after)),
    );
    let step = phase
        .step
        .map_or_else(String::new, |step| format!(", step {step}"));
    format!(
        "{when} of `{}`{step}, a threshold that ends the load was crossed: {}",
        phase.plan.name,
        crossed.words()
    )
}

fn exit_reason(exit: Result<Exit, String>) -> Reason {
    match exit {
        Ok(Exit {
            name,
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
            let words = format!("service `{name}` {how}{memory} while it was measured");
            Reason::new("exited", words)
        }
        Err(words) => Reason::new("engine_error", words),
    }
}
