//! Plans, runs and looks at the server's log, for tests of the generator.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::test_server::TestServer;
use super::{Arrivals, LoadModel, LoadPlan, LoadSignal, PhasePlan, RunningLoad, Target, Workload};
use crate::measure::WindowSummary;

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn closed(users: u32) -> LoadModel {
    LoadModel::Closed { users }
}

pub(super) fn open(requests_per_second: f64, max_in_flight: u32) -> LoadModel {
    LoadModel::Open {
        requests_per_second,
        arrivals: Arrivals::Uniform,
        max_in_flight,
    }
}

pub(super) fn poisson(requests_per_second: f64, max_in_flight: u32) -> LoadModel {
    LoadModel::Open {
        requests_per_second,
        arrivals: Arrivals::Poisson,
        max_in_flight,
    }
}

pub(super) fn workload(text: &str) -> Workload {
    Workload::parse(Path::new("workload.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn plan(target: &Target, workload: Workload, phases: &[(LoadModel, u64)]) -> LoadPlan {
    LoadPlan {
        cpus: None,
        target: target.clone(),
        workload: Arc::new(workload),
        variables: IndexMap::new(),
        phases: phases
            .iter()
            .enumerate()
            .map(|(index, (model, length_ms))| PhasePlan {
                name: format!("phase {index}"),
                window: true,
                model: *model,
                ramp_from: None,
                beside: Vec::new(),
                duration: ms(*length_ms),
                abort_on: Vec::new(),
                held: false,
            })
            .collect(),
        threads: 2,
        timeout: ms(2_000),
        drain: ms(1_000),
        seed: 1,
    }
}

/// Runs a plan to its end within a limit and returns the summaries.
pub(super) fn run(plan: LoadPlan) -> Vec<WindowSummary> {
    let n_phases = plan.phases.len();
    let (summaries, order, aborted) = follow(plan);
    let expected: Vec<_> = (0..n_phases)
        .flat_map(|phase| [0, 1, 2].map(|step| (phase, step)))
        .collect();
    assert_eq!(order, expected);
    assert_eq!(aborted, None);
    summaries
}

/// How a threshold ended a load: phase, words, whether the phase was whole.
pub(super) type Aborted = (usize, String, bool);

/// The same for a plan that may be ended by a threshold.
pub(super) fn run_aborted(plan: LoadPlan) -> (Vec<WindowSummary>, Option<Aborted>) {
    let (summaries, _, aborted) = follow(plan);
    (summaries, aborted)
}

/// Summaries; phases with 0 where they start, 1 where they end, 2 where they are summed.
fn follow(plan: LoadPlan) -> (Vec<WindowSummary>, Vec<(usize, u32)>, Option<Aborted>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let length: Duration = plan.phases.iter().map(|phase| phase.duration).sum();
    let limit = Duration::from_secs(30) + length;
    runtime.block_on(async {
        let mut load = RunningLoad::start(plan).unwrap();
        let (mut summaries, mut order, mut aborted) = (Vec::new(), Vec::new(), None);
        while let Some(signal) = tokio::time::timeout(limit, load.next())
            .await
            .expect("a load ends")
        {
            assert_eq!(aborted, None, "nothing follows");
            match signal {
                LoadSignal::PhaseStarted { phase, .. } => order.push((phase, 0)),
                LoadSignal::PhaseEnded { phase, .. } => order.push((phase, 1)),
                LoadSignal::PhaseSummed { phase, summary } => {
                    order.push((phase, 2));
                    summaries.push(*summary);
                }
                LoadSignal::Aborted {
                    phase,
                    crossed,
                    is_whole,
                    ..
                } => aborted = Some((phase, crossed.threshold.to_string(), is_whole)),
                LoadSignal::Tick(_) | LoadSignal::PhaseHeld { .. } | LoadSignal::ScriptEnded(_) => {
                }
            }
        }
        load.stop().await.unwrap();
        (summaries, order, aborted)
    })
}

pub(super) fn run_one(plan: LoadPlan) -> WindowSummary {
    run(plan).pop().unwrap()
}

/// Requests on the server's log within the window, by when the server saw them.
pub(super) fn seen_within(server: &TestServer, summary: &WindowSummary) -> u64 {
    let end = summary.started + summary.length;
    let is_inside = |at: &Instant| *at >= summary.started && *at < end;
    server.log().iter().filter(|(at, _)| is_inside(at)).count() as u64
}

/// Little's law, wide enough for a machine that runs other tests beside this one.
pub(super) fn assert_adds_up(summary: &WindowSummary) {
    let gap = (summary.in_flight_recorded - summary.in_flight).abs();
    assert!(
        gap <= 0.15 * summary.in_flight + 0.02,
        "{} journeys under way, {} recorded",
        summary.in_flight,
        summary.in_flight_recorded
    );
}
