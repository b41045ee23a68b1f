//! What load threads are told once, before the first phase.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde_json::Value;

use super::closed::most_users;
use super::generator::LoadError;
use super::mix::Mix;
use super::plan::{Arrivals, LoadModel, LoadPlan, PhasePlan};
use super::prepare::Prepared;
use super::seed::SeedPlan;
use super::template::Counter;
use super::workload::SetupScope;
use crate::cpus::CpuSet;

/// What a thread is told once.
#[derive(Debug)]
pub(super) struct ThreadPlan {
    pub(super) prepared: Prepared,
    /// At least one.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) timeout: Duration,
    pub(super) n_threads: usize,
    pub(super) seed: u64,
    pub(super) cpus: Option<CpuSet>,
    /// What each phase sends, by its index.
    pub(super) phases: Vec<PhaseLoads>,
    /// By data set: how many rows have been handed out in order.
    pub(super) next_rows: Vec<AtomicU64>,
    /// What set-ups of the whole load captured; known before the first phase begins.
    pub(super) of_trial: OnceLock<Vec<Option<Value>>>,
}

impl ThreadPlan {
    /// The captures of set-ups of the whole load; all empty where there are none.
    pub(super) fn captured_by_trial(&self) -> Vec<Option<Value>> {
        let of_trial = self.of_trial.get().cloned();
        of_trial.unwrap_or_else(|| vec![None; self.prepared.captures.len()])
    }

    /// The numbers of one thread; `n_threads` stands for set-ups of the whole load.
    pub(super) fn counter(&self, thread: usize) -> Counter {
        let mut setups = self.prepared.setups.iter();
        let counts_too = setups.any(|setup| setup.scope == SetupScope::Trial);
        Counter::new(thread, self.n_threads + usize::from(counts_too))
    }
}

/// What a phase sends.
#[derive(Debug)]
pub(super) struct PhaseLoads {
    pub(super) mix: Mix,
    pub(super) beside: Vec<BesideLoad>,
}

/// A journey that arrives at a rate of its own, whatever the phase's load does.
#[derive(Debug, Clone, Copy)]
pub(super) struct BesideLoad {
    pub(super) journey: usize,
    pub(super) requests_per_second: f64,
    pub(super) arrivals: Arrivals,
    pub(super) max_in_flight: u32,
}

impl PhaseLoads {
    pub(super) fn has_beside(&self, journey: usize) -> bool {
        self.beside.iter().any(|beside| beside.journey == journey)
    }
}

impl ThreadPlan {
    /// The plan of so many threads.
    ///
    /// **Errors**: journeys beside a phase that are not there, or that share an operation
    /// with others; a phase that is left without a journey of its own.
    pub(super) fn new(
        plan: &LoadPlan,
        prepared: Prepared,
        n_threads: usize,
    ) -> Result<Self, LoadError> {
        let phases = plan.phases.iter();
        let phases = phases
            .map(|phase| loads_of(&prepared, phase))
            .collect::<Result<_, String>>()
            .map_err(LoadError::BadPlan)?;
        Ok(Self {
            next_rows: prepared.data.iter().map(|_| AtomicU64::new(0)).collect(),
            prepared,
            addresses: plan.target.addresses.clone(),
            timeout: plan.timeout,
            n_threads,
            seed: plan.seed,
            cpus: plan.cpus.clone(),
            phases,
            of_trial: OnceLock::new(),
        })
    }
}

impl ThreadPlan {
    /// What the users of a seed share: each is a thread to it.
    pub(super) fn of_seed(plan: &SeedPlan, prepared: Prepared, users: u32) -> Self {
        let mix = prepared.mix(&[], 0);
        Self {
            next_rows: prepared.data.iter().map(|_| AtomicU64::new(0)).collect(),
            prepared,
            addresses: plan.target.addresses.clone(),
            timeout: plan.timeout,
            n_threads: users as usize,
            seed: plan.seed,
            cpus: None,
            phases: vec![PhaseLoads {
                mix,
                beside: Vec::new(),
            }],
            of_trial: OnceLock::new(),
        }
    }
}

fn loads_of(prepared: &Prepared, phase: &PhasePlan) -> Result<PhaseLoads, String> {
    let name = &phase.name;
    let mut beside: Vec<BesideLoad> = Vec::new();
    for own in &phase.beside {
        let mut journeys = prepared.journeys.iter();
        let Some(journey) = journeys.position(|known| known.name == own.journey) else {
            return Err(format!(
                "phase `{name}` has the journey `{}` beside it, which the workload does not have",
                own.journey
            ));
        };
        if beside.iter().any(|known| known.journey == journey) {
            return Err(format!(
                "phase `{name}` has the journey `{}` beside it twice",
                own.journey
            ));
        }
        beside.push(BesideLoad {
            journey,
            requests_per_second: own.requests_per_second,
            arrivals: own.arrivals,
            max_in_flight: own.max_in_flight,
        });
    }
    let without: Vec<usize> = beside.iter().map(|beside| beside.journey).collect();
    let mut rest = prepared.journeys.iter().enumerate();
    if !rest.any(|(index, journey)| !without.contains(&index) && journey.weight > 0.0) {
        return Err(format!(
            "phase `{name}` has no journey of its own: those beside it are not drawn"
        ));
    }
    for own in &without {
        if let Some((other, operation)) = shared_operation(prepared, *own) {
            return Err(format!(
                "the journey `{}`, which phase `{name}` has beside it, shares the operation `{operation}` with `{other}`, so that their figures could not be told apart",
                prepared.journeys[*own].name
            ));
        }
    }
    let users = match phase.model {
        LoadModel::Closed { users } => most_users(users, phase.ramp_from),
        LoadModel::Open { .. } | LoadModel::Script { .. } => 0,
    };
    Ok(PhaseLoads {
        mix: prepared.mix(&without, users),
        beside,
    })
}

/// An operation that another journey has as well: the journey and the operation.
fn shared_operation(prepared: &Prepared, own: usize) -> Option<(&str, &str)> {
    let names = prepared.of_journey(own).iter().map(|ready| ready.name);
    let names: Vec<u32> = names.collect();
    (0..prepared.journeys.len())
        .filter(|other| *other != own)
        .find_map(|other| {
            let steps = prepared.of_journey(other).iter();
            let shared = steps
                .map(|ready| ready.name)
                .find(|name| names.contains(name))?;
            let operation = &prepared.names[shared as usize];
            Some((prepared.journeys[other].name.as_str(), operation.as_str()))
        })
}
