//! The running load: starts the threads, directs the phases, sums them up.
//!
//! One conductor thread says when phases begin and collects what the load
//! threads report; it alone fills histograms, so that a load thread's time goes
//! into requests. The consumer reads [`LoadSignal`]s and may stop at any time.
//!
//! **Invariant**: every way out joins all threads; a thread that cannot go on
//! becomes an error, never a silence. Read `conductor` next.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::LocalOptions;
use tokio::sync::mpsc as signals;

use super::closed::most_users;
use super::conductor::{Conductor, SetUps};
use super::k6::{self, Heard, K6Error, ScriptPlan};
use super::pinning::pin_this_thread;
use super::plan::{Arrivals, LoadModel, LoadPlan, LoadSignal, PhasePlan};
use super::prepare::{PrepareProblems, prepare};
use super::thread::{Command, Report, Thread};
use super::thread_plan::ThreadPlan;
use crate::cpus::CpuSet;

/// Why load cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan makes no sense.
    #[error("the load plan cannot be carried out: {0}")]
    BadPlan(String),
    /// The workload uses names that have no value.
    #[error("the workload uses values that are not set: {}", .names.join(", "))]
    Unset {
        /// The names, each once; `env.X` is an environment variable.
        names: Vec<String>,
    },
    /// Requests of the workload that cannot be built.
    #[error("the workload has requests that cannot be sent: {}", .requests.join("; "))]
    InvalidRequests {
        /// Each with its operation and what is wrong.
        requests: Vec<String>,
    },
    /// The system gave no thread, event loop or timer.
    #[error("load thread {thread} cannot be started")]
    Thread {
        /// Its index.
        thread: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// A load thread could not be kept on its CPUs.
    #[error("keep load thread {thread} on CPUs {cpus}")]
    Pin {
        /// Its index; the number of threads for the one that directs them.
        thread: usize,
        /// The CPUs.
        cpus: CpuSet,
        /// What the system said.
        source: std::io::Error,
    },
    /// A load thread ended in the middle of its work.
    #[error("load thread {thread} broke down: {message}")]
    Broken {
        /// Its index.
        thread: usize,
        /// What it said last.
        message: String,
    },
    /// A script cannot be run.
    #[error("run the k6 script")]
    Script(#[source] K6Error),
    /// What k6 tells cannot be used.
    #[error("k6's samples cannot be used: {0}")]
    Samples(String),
    /// What comes before the journeys did not succeed.
    #[error("the set-up failed: {0}")]
    SetUp(String),
    /// The thread that directs the load ended in the middle of its work.
    #[error("the load's conductor broke down")]
    ConductorBroken,
}

impl From<PrepareProblems> for LoadError {
    fn from(problems: PrepareProblems) -> Self {
        if problems.unset.is_empty() {
            Self::InvalidRequests {
                requests: problems.invalid,
            }
        } else {
            Self::Unset {
                names: problems.unset,
            }
        }
    }
}

/// Load under way.
///
/// **Cancel**: dropping it stops the load and joins its threads.
#[derive(Debug)]
pub struct RunningLoad {
    signals: signals::Receiver<LoadSignal>,
    director: Director,
    conductor: Option<JoinHandle<Result<(), LoadError>>>,
}

/// Who directs the load, and how to reach them.
#[derive(Debug)]
enum Director {
    Threads(mpsc::Sender<Report>),
    Script(mpsc::Sender<Heard>),
}

impl Director {
    fn stop(&self) {
        // Nobody listens any more when the load has ended by itself.
        match self {
            Self::Threads(reports) => drop(reports.send(Report::Stop)),
            Self::Script(heard) => drop(heard.send(Heard::Stop)),
        }
    }
}

/// Ticks wait for the reader at most so many; more are lost, as they may be.
const TICKS_KEPT: usize = 8;
/// Signals of one phase: held, started, ended, summed.
const SIGNALS_PER_PHASE: usize = 4;

impl RunningLoad {
    /// Starts the threads and the first phase.
    ///
    /// **Errors**: a plan without phases, threads, users or rate, or with more than
    /// one host can carry; names of the
    /// workload without a value; requests that cannot be built; no thread.
    pub fn start(plan: LoadPlan) -> Result<Self, LoadError> {
        check(&plan)?;
        let prepared = prepare(&plan.workload, &plan.target, &plan.variables)?;
        let n_threads = n_threads(&plan);
        let thread_plan = Arc::new(ThreadPlan::new(&plan, prepared, n_threads)?);
        // And one when a threshold ends it.
        let n_lifecycle = plan.phases.len() * SIGNALS_PER_PHASE + 1;
        let (signal_sender, signals) = signals::channel(n_lifecycle + TICKS_KEPT);
        let (reports, inbox) = mpsc::channel();
        let mut threads = Vec::with_capacity(n_threads);
        for index in 0..n_threads {
            match spawn_thread(index, &thread_plan, &reports) {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    stop_threads(threads);
                    return Err(LoadError::Thread {
                        thread: index,
                        source,
                    });
                }
            }
        }
        let conductor = Conductor {
            plan: Arc::clone(&thread_plan),
            phases: plan.phases,
            drain: plan.drain,
            commands: threads
                .iter()
                .map(|thread| thread.commands.clone())
                .collect(),
            inbox,
            signals: signal_sender,
            n_lifecycle,
            set_ups: SetUps::default(),
        };
        let conductor = std::thread::Builder::new()
            .name("load-conductor".to_owned())
            .spawn(move || {
                if let Some(cpus) = plan.cpus
                    && let Err(source) = pin_this_thread(&cpus)
                {
                    let thread = threads.len();
                    stop_threads(threads);
                    return Err(LoadError::Pin {
                        thread,
                        cpus,
                        source,
                    });
                }
                // Caught so that the threads are stopped and joined all the same.
                let result = std::panic::catch_unwind(AssertUnwindSafe(|| conductor.run()));
                stop_threads(threads);
                result.unwrap_or(Err(LoadError::ConductorBroken))
            })
            .map_err(|source| LoadError::Thread {
                thread: n_threads,
                source,
            })?;
        Ok(Self {
            signals,
            director: Director::Threads(reports),
            conductor: Some(conductor),
        })
    }

    /// Starts k6 with a script.
    ///
    /// **Errors**: no thread. Why k6 cannot be started, [`RunningLoad::stop`] says.
    pub fn start_script(plan: ScriptPlan) -> Result<Self, LoadError> {
        let n_signals = k6::n_lifecycle(plan.phases.len()) + TICKS_KEPT;
        let (signal_sender, signals) = signals::channel(n_signals);
        let (sender, heard) = mpsc::channel();
        let director = Director::Script(sender.clone());
        let conductor = std::thread::Builder::new()
            .name("load-k6".to_owned())
            .spawn(move || {
                let run = AssertUnwindSafe(|| k6::start(plan, (sender, heard), signal_sender));
                std::panic::catch_unwind(run).unwrap_or(Err(LoadError::ConductorBroken))
            })
            .map_err(|source| LoadError::Thread { thread: 0, source })?;
        Ok(Self {
            signals,
            director,
            conductor: Some(conductor),
        })
    }

    /// The next signal; `None` when the load has ended.
    ///
    /// After `None`, [`RunningLoad::stop`] says whether it ended as planned.
    /// **Cancel**: safe, no signal is lost.
    pub async fn next(&mut self) -> Option<LoadSignal> {
        self.signals.recv().await
    }

    /// Lets the phase begin that is held.
    pub fn go_on(&self) {
        if let Director::Threads(reports) = &self.director {
            // Nobody listens any more when the load has ended by itself.
            let _ = reports.send(Report::GoOn);
        }
    }

    /// Ends the load at once and joins its threads.
    ///
    /// After a load that ended by itself this only reports how.
    /// **Errors**: what broke the load.
    pub async fn stop(mut self) -> Result<(), LoadError> {
        self.director.stop();
        // The conductor lets go of its end when it is done: waiting for that
        // keeps the join below from blocking the caller's event loop.
        while self.signals.recv().await.is_some() {}
        self.join()
    }

    fn join(&mut self) -> Result<(), LoadError> {
        match self.conductor.take() {
            Some(conductor) => conductor.join().unwrap_or(Err(LoadError::ConductorBroken)),
            None => Ok(()),
        }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.director.stop();
        // Load that goes on after its owner has gone would be in the next
        // measurement. An error has nobody left to hear it.
        let _ = self.join();
    }
}

/// Most users of a closed loop, and journeys under way in an open one: each may
/// hold a connection, and a host has fewer than 65,536 ports to one address.
const MOST_CONNECTIONS: u32 = 60_000;
/// Most load threads; more than any host of the tool has cores.
const MOST_THREADS: usize = 1_024;
/// Highest rate; beyond it arrivals are closer together than 10 ns.
const HIGHEST_RATE_RPS: f64 = 100_000_000.0;
/// Highest rate of Poisson arrivals, each of which is drawn: ten times what one thread can send.
const HIGHEST_POISSON_RPS: f64 = 1_000_000.0;
/// Lowest rate; one request in eleven days.
const LOWEST_RATE_RPS: f64 = 1e-6;

/// Load threads to start: one without a user or an arrival would only wait.
fn n_threads(plan: &LoadPlan) -> usize {
    let most_used = plan.phases.iter().map(|phase| {
        let own = match phase.model {
            LoadModel::Closed { users } => most_users(users, phase.ramp_from) as usize,
            LoadModel::Open { max_in_flight, .. } => max_in_flight as usize,
            LoadModel::Script { .. } => 0,
        };
        let beside = phase
            .beside
            .iter()
            .map(|beside| beside.max_in_flight as usize);
        own.max(beside.max().unwrap_or_default())
    });
    plan.threads.min(most_used.max().unwrap_or_default())
}

fn check(plan: &LoadPlan) -> Result<(), LoadError> {
    let bad = |what: String| Err(LoadError::BadPlan(what));
    if plan.phases.is_empty() {
        return bad("it has no phase".to_owned());
    }
    if plan.threads == 0 {
        return bad("it has no load thread".to_owned());
    }
    if plan.threads > MOST_THREADS {
        let n = plan.threads;
        return bad(format!(
            "it has {n} load threads (allowed: 1 to {MOST_THREADS})"
        ));
    }
    if plan.target.addresses.is_empty() {
        return bad("its target has no address".to_owned());
    }
    if plan.timeout.is_zero() {
        return bad("its time-out is zero".to_owned());
    }
    if !plan.target.base_path.is_empty() && !plan.target.base_path.starts_with('/') {
        let path = &plan.target.base_path;
        return bad(format!(
            "the target's path \"{path}\" does not start with `/`"
        ));
    }
    for phase in &plan.phases {
        let name = &phase.name;
        if phase.duration.is_zero() {
            return bad(format!("phase `{name}` has no duration"));
        }
        check_model(name, phase.model)?;
        for beside in &phase.beside {
            let model = LoadModel::Open {
                requests_per_second: beside.requests_per_second,
                arrivals: beside.arrivals,
                max_in_flight: beside.max_in_flight,
            };
            check_model(name, model)?;
        }
        if let Some(from) = phase.ramp_from {
            check_ramp(phase, from)?;
        }
    }
    Ok(())
}

fn check_model(phase: &str, model: LoadModel) -> Result<(), LoadError> {
    let bad = |what: String| Err(LoadError::BadPlan(format!("phase `{phase}` {what}")));
    match model {
        LoadModel::Closed { users: 0 } => bad("has no users".to_owned()),
        LoadModel::Closed { users } if users > MOST_CONNECTIONS => bad(format!(
            "has {users} users (allowed: 1 to {MOST_CONNECTIONS})"
        )),
        LoadModel::Open {
            max_in_flight: 0, ..
        } => bad("lets nothing be in flight".to_owned()),
        LoadModel::Open { max_in_flight, .. } if max_in_flight > MOST_CONNECTIONS => bad(format!(
            "lets {max_in_flight} journeys be in flight (allowed: 1 to {MOST_CONNECTIONS})"
        )),
        LoadModel::Open {
            requests_per_second: rate,
            ..
        } if !(rate > LOWEST_RATE_RPS && rate <= HIGHEST_RATE_RPS) => bad(format!(
            "has the rate {rate} (allowed: above 0, to {HIGHEST_RATE_RPS})"
        )),
        LoadModel::Script { .. } => bad("is of a k6 script".to_owned()),
        LoadModel::Open {
            requests_per_second: rate,
            arrivals: Arrivals::Poisson,
            ..
        } if rate > HIGHEST_POISSON_RPS => bad(format!(
            "has the rate {rate} with Poisson arrivals (allowed: up to {HIGHEST_POISSON_RPS})"
        )),
        LoadModel::Closed { .. } | LoadModel::Open { .. } => Ok(()),
    }
}

fn check_ramp(phase: &PhasePlan, from: f64) -> Result<(), LoadError> {
    let name = &phase.name;
    let most = match phase.model {
        LoadModel::Closed { .. } => f64::from(MOST_CONNECTIONS),
        LoadModel::Open { .. } => HIGHEST_RATE_RPS,
        LoadModel::Script { .. } => 0.0,
    };
    if phase.window {
        return Err(LoadError::BadPlan(format!(
            "phase `{name}` is a ramp and cannot be measured"
        )));
    }
    if !(0.0..=most).contains(&from) {
        return Err(LoadError::BadPlan(format!(
            "the ramp of phase `{name}` begins at {from} (allowed: 0 to {most})"
        )));
    }
    Ok(())
}

#[derive(Debug)]
struct LoadThread {
    commands: signals::UnboundedSender<Command>,
    handle: JoinHandle<()>,
}

fn spawn_thread(
    index: usize,
    plan: &Arc<ThreadPlan>,
    reports: &mpsc::Sender<Report>,
) -> std::io::Result<LoadThread> {
    let (commands, inbox) = signals::unbounded_channel();
    let (plan, reports) = (Arc::clone(plan), reports.clone());
    let handle = std::thread::Builder::new()
        .name(format!("load-{index}"))
        .spawn(move || {
            let broken = |message: String| Report::Broken {
                thread: index,
                message,
            };
            let outbox = reports.clone();
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
                if let Some(cpus) = &plan.cpus {
                    pin_this_thread(cpus).map_err(|error| not_kept(cpus, &error))?;
                }
                // Without its timer: `fine_timer` says why.
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_io()
                    .build_local(LocalOptions::default())?;
                runtime.block_on(async {
                    let thread = Thread::new(index, plan, outbox)?;
                    thread.run(inbox).await;
                    Ok::<(), std::io::Error>(())
                })
            }));
            // Nobody listens when the load is being stopped.
            let _ = match result {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => reports.send(broken(format!("it cannot be set up: {error}"))),
                Err(_) => reports.send(broken("it panicked".to_owned())),
            };
        })?;
    Ok(LoadThread { commands, handle })
}

/// The system's words alone would not say what was asked of it.
fn not_kept(cpus: &CpuSet, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("keep it on CPUs {cpus}: {error}"))
}

fn stop_threads(threads: Vec<LoadThread>) {
    for thread in &threads {
        // A thread that has ended needs no telling.
        let _ = thread.commands.send(Command::Stop);
    }
    for thread in threads {
        // Its panic has been reported by itself.
        let _ = thread.handle.join();
    }
}

/// Between telling the threads of a phase and its left edge: all have heard by then.
pub(super) const LEAD: Duration = Duration::from_millis(5);

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "spread_tests.rs"]
mod spread_tests;
