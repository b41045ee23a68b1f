//! From what was read to what the sweep is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use super::error::AppError;
use super::inputs::Inputs;
use super::isolation::Isolated;
use super::state::{hooks_of, state_plan};
use crate::cpus::CpuSet;
use crate::engine::{CpuPlan, LaunchTarget, cpu_limit, network_mode};
use crate::load::{AbortRule, Arrivals, Beside, LoadModel, PhasePlan};
use crate::matrix::{
    self, ASSUMED_DEAD_TIME, Answers, Cell, CellLoad, CellPhase, PlannedTrial, Prove, Sweep,
    ThresholdRule,
};
use crate::problem::{Location, Problem, Problems};
use crate::scalar::Scalar;
use crate::stack::Stack;
use crate::sweep::{Job, JobPhase, Knob, ReadySpec, Reason, Settings, Slo, SweepPlan, TargetSpec};

/// Most load threads unless the user says otherwise: two carry far more than a
/// service under test on the same host, and each takes a core from it.
const MOST_LOAD_THREADS: usize = 2;

/// What the flags of `run` add.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Choices {
    pub(super) fail_fast: bool,
    pub(super) skip_too_large: bool,
}

/// The sweep as it will be run on a host with so many CPUs.
///
/// **Errors**: tiers that the host cannot hold, unless they are to be skipped;
/// a target that has no address.
pub(super) async fn sweep_plan(
    inputs: &mut Inputs,
    isolated: &Isolated,
    run_id: String,
    host_cpus: u32,
    choices: Choices,
) -> Result<SweepPlan, AppError> {
    let (stacks, cpu_plan) = (&isolated.stacks, &isolated.plan);
    let too_large: Vec<Option<Reason>> = stacks
        .iter()
        .map(|stack| too_large(stack, host_cpus, cpu_plan))
        .collect();
    let nothing_fits = too_large.iter().all(Option::is_some);
    if nothing_fits || !choices.skip_too_large {
        refuse_too_large(inputs, &too_large, host_cpus)?;
    }
    let (state, golden_of) = state_plan(inputs, stacks, |cell| too_large[cell].is_none()).await?;
    let inputs = &*inputs;
    let sweep = &inputs.sweep;
    let mut problems = Vec::new();
    for stack in stacks {
        check_reached(sweep, stack, &mut problems);
    }
    problems.dedup();
    if !problems.is_empty() {
        return Err(Problems(problems).into());
    }
    let trials = inputs.plan.trials.iter();
    let jobs = trials
        .map(|trial| Job {
            golden: golden_of[trial.cell],
            skip: too_large[trial.cell].clone(),
            ..job(inputs, isolated, trial)
        })
        .collect();
    Ok(SweepPlan {
        run_id,
        jobs,
        subject: sweep.subject.value.clone(),
        cpu_lines: cpu_plan.lines(sweep.tier()),
        target: target(inputs).await?,
        workload: inputs.workload.clone(),
        state,
        settings: settings(sweep, cpu_plan, choices),
    })
}

fn job(inputs: &Inputs, isolated: &Isolated, trial: &PlannedTrial) -> Job {
    let (sweep, cpu_plan) = (&inputs.sweep, &isolated.plan);
    let cell = &inputs.plan.cells[trial.cell];
    let tier = inputs.plan.tier_of(trial.cell).to_string();
    let own = |values: Vec<(&str, &Scalar)>| -> IndexMap<_, _> {
        values
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect()
    };
    Job {
        trial: trial.index,
        block: trial.block,
        role: "cell",
        cell_id: cell.id().to_string(),
        axes: own(cell.axes().collect()),
        derived: own(cell.derived().collect()),
        variables: inputs.workload_variables(cell),
        stack: Arc::clone(&isolated.stacks[trial.cell]),
        generator_cpus: cpu_plan.generator_of(&tier).cloned(),
        shares_cpus: cpu_plan.is_shared(&tier),
        asked: sweep.proves.iter().map(place).collect(),
        knobs: sweep
            .proves
            .iter()
            .map(|prove| knob(inputs, prove, cell))
            .collect(),
        phases: inputs
            .plan
            .phases(cell)
            .into_iter()
            .map(|phase| {
                let mut phase = job_phase(sweep, cell, phase);
                phase.load_tied_to_knob |= inputs.scripts.is_tied(trial.cell);
                phase
            })
            .collect(),
        script: inputs.scripts.of(trial.cell),
        golden: 0,
        skip: None,
    }
}

fn settings(sweep: &Sweep, cpu_plan: &CpuPlan, choices: Choices) -> Settings {
    let trials = &sweep.trials;
    // More threads than CPUs of their own would only take turns on them.
    let most_threads = cpu_plan.generator.as_ref().map_or(usize::MAX, CpuSet::len);
    let load_threads = sweep
        .load
        .threads
        .unwrap_or_else(|| default_load_threads().min(most_threads));
    Settings {
        ready: sweep.load.ready.as_ref().map(|ready| ReadySpec {
            path: ready.path.clone(),
            status: ready.status,
        }),
        ready_timeout: trials.ready_timeout,
        request_timeout: sweep.load.timeout,
        drain: sweep.load.drain,
        load_threads,
        seed: trials.seed,
        max_consecutive_failures: trials.max_consecutive_failures.unwrap_or(0),
        fail_fast: choices.fail_fast,
        slo: slo(sweep),
        assumed_dead_time: ASSUMED_DEAD_TIME,
    }
}

/// The parts of the service level: of everything, then of single operations.
fn slo(sweep: &Sweep) -> Vec<Slo> {
    let own = &sweep.slo;
    let operations = own.operations.iter();
    let of_operations = operations.map(|slo| (Some(slo.operation.value.clone()), slo.limits));
    [(None, own.total)]
        .into_iter()
        .chain(of_operations)
        .filter(|(_, limits)| limits.p99_ms.is_some() || limits.error_rate.is_some())
        .map(|(operation, limits)| Slo {
            operation,
            p99_ms: limits.p99_ms,
            error_rate: limits.error_rate,
        })
        .collect()
}

fn place(prove: &Prove) -> LaunchTarget {
    let url = &prove.url.value;
    LaunchTarget {
        service: url.host.clone(),
        port: url.port,
    }
}

fn knob(inputs: &Inputs, prove: &Prove, cell: &Cell) -> Knob {
    let url = &prove.url.value;
    Knob {
        url: url.text.clone(),
        place: place(prove),
        path: prove.path.clone(),
        wire: inputs.wire_to(url),
        reported: prove.reported.clone(),
        expected: prove.equals.of(cell),
    }
}

/// Load threads when nobody says how many.
pub(super) fn default_load_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_LOAD_THREADS))
}

fn job_phase(sweep: &Sweep, cell: &Cell, phase: CellPhase) -> JobPhase {
    // Steps follow each other without a break: commands run before the first.
    let hooks = if phase.is_first {
        hooks_of(sweep, cell, &phase.name, phase.is_of_window)
    } else {
        Vec::new()
    };
    let own = sweep.phases.iter().find(|own| own.name == phase.name);
    let rules: Vec<&ThresholdRule> = sweep
        .thresholds
        .iter()
        .filter(|rule| phase.is_window() && own.is_some_and(|own| rule.is_for(own)))
        .collect();
    JobPhase {
        thresholds: rules.iter().map(|rule| rule.threshold.clone()).collect(),
        answers: phase.answers.map(Answers::as_str),
        step: phase.step,
        load_tied_to_knob: phase.load_tied_to_knob,
        plan: PhasePlan {
            window: phase.is_window(),
            name: phase.name,
            duration: phase.duration,
            held: !hooks.is_empty(),
            abort_on: rules
                .iter()
                .filter(|rule| rule.abort)
                .map(|rule| AbortRule {
                    threshold: rule.threshold.clone(),
                    after: rule.after,
                })
                .collect(),
            ramp_from: phase.ramp_from,
            beside: phase
                .beside
                .into_iter()
                .map(|own| Beside {
                    journey: own.journey.value,
                    requests_per_second: own.requests_per_second,
                    arrivals: arrivals(own.arrivals),
                    max_in_flight: own.max_in_flight,
                })
                .collect(),
            model: load_model(phase.model),
        },
        hooks,
    }
}

fn arrivals(arrivals: matrix::Arrivals) -> Arrivals {
    match arrivals {
        matrix::Arrivals::Uniform => Arrivals::Uniform,
        matrix::Arrivals::Poisson => Arrivals::Poisson,
    }
}

/// A load of a plan as the generator is told it.
pub(super) fn load_model(load: CellLoad) -> LoadModel {
    match load {
        CellLoad::Closed { users } => LoadModel::Closed { users },
        CellLoad::Script { is_open } => LoadModel::Script { is_open },
        CellLoad::Open {
            requests_per_second,
            arrivals,
            max_in_flight,
        } => LoadModel::Open {
            requests_per_second,
            arrivals: self::arrivals(arrivals),
            max_in_flight,
        },
    }
}

/// What must answer and joins no network can never be reached; known before anything starts.
pub(super) fn check_reached(sweep: &Sweep, stack: &Stack, problems: &mut Vec<Problem>) {
    let mut check = |what: &str, host: &str, location: &Location, other: &str| {
        if network_mode(stack, host) == Some("none") {
            let message = format!("{what} `{host}` joins no network (network_mode: none)");
            let hint = format!("let the service join a network, or {other}");
            problems.push(Problem::new(location.clone(), message).with_hint(hint));
        }
    };
    let target = &sweep.load.target;
    let elsewhere = "send load to another service";
    check("target", &target.value.host, &target.location, elsewhere);
    if let Some(target) = sweep.seed.as_ref().and_then(|seed| seed.target.as_ref()) {
        let what = "`target` in [seed]";
        check(what, &target.value.host, &target.location, elsewhere);
    }
    for prove in &sweep.proves {
        let url = &prove.url;
        check(
            "`url` in [[prove]]: service",
            &url.value.host,
            &url.location,
            "ask another service",
        );
    }
}

/// Why a stack does not fit on the host, where it does not.
///
/// No container can have more CPUs than the host. All of a service together may be given more
/// by their quotas, which the plan warns of; CPUs of its own, though, there are only once.
fn too_large(stack: &Stack, host_cpus: u32, cpu_plan: &CpuPlan) -> Option<Reason> {
    let host = f64::from(host_cpus);
    stack.services.iter().find_map(|(name, service)| {
        let one = service.cpu_cores()?;
        let all = cpu_limit(service)?;
        let words = if one > host {
            format!("service `{name}` asks for {one} CPUs and the engine's host has {host_cpus}")
        } else if cpu_plan.owes_cpus_to(name, service) {
            let n = service.replicas.unwrap_or(1);
            let each = if n > 1 {
                format!(", {one} for each of {n} containers,")
            } else {
                String::new()
            };
            format!(
                "service `{name}` asks for {all} CPUs of its own{each} and the engine's host has {host_cpus}"
            )
        } else {
            return None;
        };
        Some(Reason::new("cpus_exceed_host", words))
    })
}

fn refuse_too_large(
    inputs: &Inputs,
    too_large: &[Option<Reason>],
    host_cpus: u32,
) -> Result<(), AppError> {
    let mut tiers: IndexMap<String, String> = IndexMap::new();
    for (cell, reason) in too_large.iter().enumerate() {
        if let Some(reason) = reason {
            let tier = format!("{} = {}", inputs.sweep.tier(), inputs.plan.tier_of(cell));
            tiers.entry(tier).or_insert_with(|| reason.words.clone());
        }
    }
    if tiers.is_empty() {
        return Ok(());
    }
    let n_cells = too_large.iter().flatten().count();
    let lines: Vec<String> = tiers
        .iter()
        .map(|(tier, words)| format!("\n  {tier}: {words}"))
        .collect();
    let fits = inputs.plan.cells.len() - n_cells;
    let hint = if fits == 0 {
        "run it on a larger host, or lower the CPU limits in the matrix".to_owned()
    } else {
        format!(
            "`--skip-too-large` runs the {fits} cells that fit and gives the others `skipped` rows"
        )
    };
    let error = anyhow::anyhow!(
        "{n_cells} of {} cells need more CPUs than this host's {host_cpus}; nothing was started{}",
        inputs.plan.cells.len(),
        lines.concat()
    );
    Err(AppError::environment(error).hint(hint))
}

async fn target(inputs: &Inputs) -> Result<TargetSpec, AppError> {
    let target = &inputs.sweep.load.target.value;
    if inputs.target_is_service() {
        return Ok(TargetSpec::Service {
            service: target.host.clone(),
            port: target.port,
            base_path: target.base_path.clone(),
            wire: inputs.wire_to(target),
        });
    }
    Ok(TargetSpec::Remote {
        address: resolve(&target.host, target.port).await?,
        host: format!("{}:{}", target.host, target.port),
        base_path: target.base_path.clone(),
        wire: inputs.wire_to(target),
    })
}

/// Longest wait for one address of a name to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// The first address of a host name that accepts a connection.
///
/// `localhost` is often two addresses with a server on one of them. Where none
/// accepts it is the first: a closed port is the load's to report.
///
/// **Errors**: a name without an address.
pub(super) async fn resolve(host: &str, port: u16) -> Result<SocketAddr, AppError> {
    let no_address = || anyhow::anyhow!("find the address of `{host}`");
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| AppError::environment(anyhow::Error::new(error).context(no_address())))?
        .collect();
    first_that_accepts(&addresses)
        .await
        .ok_or_else(|| AppError::environment(no_address()))
}

async fn first_that_accepts(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    // With one address there is nothing to choose, and no connection is made.
    if addresses.len() > 1 {
        for address in addresses {
            let connect = tokio::net::TcpStream::connect(address);
            if let Ok(Ok(_)) = tokio::time::timeout(CONNECT_LIMIT, connect).await {
                return Some(*address);
            }
        }
    }
    addresses.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_address_that_accepts_is_taken_and_else_the_first() {
        let listen = || async { tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap() };
        let (open, closed) = (listen().await, listen().await);
        let (open_at, closed_at) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
        drop(closed);
        assert_eq!(
            first_that_accepts(&[closed_at, open_at]).await,
            Some(open_at)
        );
        drop(open);
        assert_eq!(
            first_that_accepts(&[closed_at, open_at]).await,
            Some(closed_at)
        );
        assert_eq!(first_that_accepts(&[]).await, None);
    }
}
