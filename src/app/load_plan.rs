//! From the flags of `load` to what is sent, and to the phases of a load.

use std::time::Duration;

use super::error::AppError;
use super::jobs::load_model;
use crate::cli::{ArrivalsChoice, LoadArgs, ProfileChoice, StageAmount, StageArg};
use crate::load::{AbortRule, LoadModel, PhasePlan};
use crate::matrix::{self, Amount, CellPhase, PhaseLoad, Profile, Stage, ladder};
use crate::report::LoadStretch;
use crate::threshold::Threshold;

/// Users of a closed loop when nobody says how many.
const DEFAULT_USERS: u32 = 10;

/// A phase, and what it is in the report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Planned {
    pub(super) phase: PhasePlan,
    /// The step that it is, or that its ramp leads to; `None` where there is one load.
    pub(super) step: Option<u32>,
}

impl Planned {
    /// The phase as somebody who watches sees it.
    pub(super) fn stretch(&self) -> LoadStretch {
        LoadStretch {
            name: self.phase.name.clone(),
            model: self.phase.model,
            length: self.phase.duration,
        }
    }
}

/// The phases of a load: warm-up, then the window or the ramps and steps.
///
/// **Errors**: flags that cannot be meant together, loads that are none.
pub(super) fn planned(arguments: &LoadArgs) -> Result<Vec<Planned>, AppError> {
    let mut planned = stepped(arguments, stages(arguments)?)?;
    if !arguments.warm_up.is_zero()
        && let Some(first) = planned.first_mut()
    {
        // A ramp that begins with the load that was warmed up with stays there.
        first.phase.ramp_from = first.phase.ramp_from.map(|_| amount(first.phase.model));
        let warm_up = PhasePlan {
            name: "warm-up".to_owned(),
            window: false,
            ramp_from: None,
            duration: arguments.warm_up,
            abort_on: Vec::new(),
            ..first.phase.clone()
        };
        let step = None;
        planned.insert(
            0,
            Planned {
                phase: warm_up,
                step,
            },
        );
    }
    Ok(planned)
}

fn window(arguments: &LoadArgs, model: LoadModel, duration: Duration) -> PhasePlan {
    let rule = |threshold: &Threshold| {
        Some(AbortRule {
            threshold: threshold.clone(),
            after: arguments.abort_after?,
        })
    };
    PhasePlan {
        name: "window".to_owned(),
        window: true,
        model,
        ramp_from: None,
        duration,
        beside: Vec::new(),
        abort_on: arguments.thresholds.iter().filter_map(rule).collect(),
        held: false,
    }
}

/// How long the one load is held.
///
/// **Errors**: a number of requests in a closed loop.
fn duration(arguments: &LoadArgs) -> Result<Duration, AppError> {
    match (arguments.requests, arguments.open) {
        (None, _) => Ok(arguments.duration),
        (Some(n), Some(rate)) => Duration::try_from_secs_f64(n as f64 / rate).map_err(|_| {
            AppError::input(anyhow::anyhow!("{n} requests at {rate} a second take no time that could be waited for"))
        }),
        (Some(_), None) => Err(AppError::input(anyhow::anyhow!(
            "-n needs --open: a closed loop has no number of requests of its own"
        ))
        .hint(
            "with a number of requests the slowest users would decide how long a closed loop runs, and for how much of it the others are idle; give it a time with --duration",
        )),
    }
}

/// What `--stage` or `--profile` say, else one load that is held.
fn stages(arguments: &LoadArgs) -> Result<Vec<Stage>, AppError> {
    if let Some(profile) = arguments.profile {
        let profile = named(profile);
        let is_endless = profile == Profile::Breakpoint && arguments.abort_after.is_none();
        if is_endless {
            return Err(AppError::input(anyhow::anyhow!(
                "--profile breakpoint goes on until a threshold is crossed, and none ends the load"
            ))
            .hint("add such as --threshold 'p95 < 500 ms' --abort-after 10s"));
        }
        let load = phase_load(arguments, as_stage(arguments));
        return Ok(profile.stages(&load, arguments.ramp, arguments.hold));
    }
    if arguments.stages.is_empty() {
        return Ok(vec![Stage {
            load: phase_load(arguments, as_stage(arguments)),
            share: 1.0,
            ramp: Duration::ZERO,
            hold: duration(arguments)?,
        }]);
    }
    let is_open = |stage: &StageArg| matches!(stage.amount, StageAmount::RequestsPerSecond(_));
    let n_open = arguments
        .stages
        .iter()
        .filter(|stage| is_open(stage))
        .count();
    if n_open != 0 && n_open != arguments.stages.len() {
        return Err(AppError::input(anyhow::anyhow!(
            "some stages have users and some have requests a second: there is no way to go evenly from the one to the other"
        ))
        .hint("make two loads of them"));
    }
    let stage = |stage: &StageArg| Stage {
        load: phase_load(arguments, stage.amount),
        share: 1.0,
        ramp: stage.ramp,
        hold: stage.hold,
    };
    Ok(arguments.stages.iter().map(stage).collect())
}

fn as_stage(arguments: &LoadArgs) -> StageAmount {
    match arguments.open {
        Some(rate) => StageAmount::RequestsPerSecond(rate),
        None => StageAmount::Users(f64::from(arguments.closed.unwrap_or(DEFAULT_USERS))),
    }
}

fn phase_load(arguments: &LoadArgs, amount: StageAmount) -> PhaseLoad {
    match amount {
        StageAmount::Users(users) => PhaseLoad::Closed {
            users: Amount::number(users),
        },
        StageAmount::RequestsPerSecond(rate) => PhaseLoad::Open {
            requests_per_second: Amount::number(rate),
            arrivals: match arguments.arrivals {
                ArrivalsChoice::Uniform => matrix::Arrivals::Uniform,
                ArrivalsChoice::Poisson => matrix::Arrivals::Poisson,
            },
            max_in_flight: arguments.max_in_flight,
        },
    }
}

/// Stages taken apart into ramps and held steps.
fn stepped(arguments: &LoadArgs, stages: Vec<Stage>) -> Result<Vec<Planned>, AppError> {
    let phases = ladder("load", stages).map_err(|why| AppError::input(anyhow::anyhow!(why)))?;
    let n_steps = phases.iter().filter(|phase| phase.is_window()).count();
    if n_steps == 0 {
        return Err(AppError::input(anyhow::anyhow!(
            "no stage holds its load, so nothing would be measured"
        ))
        .hint("only what is held is measured: add such as 'hold 30s' to a stage"));
    }
    let planned = |phase: &CellPhase| {
        let model = load_model(phase.model);
        let mut plan = window(arguments, model, phase.duration);
        let name = match phase.step {
            Some(step) if n_steps > 1 => format!("step {step} of {n_steps}"),
            Some(_) => "window".to_owned(),
            None => "load".to_owned(),
        };
        if phase.is_window() {
            plan.name = name;
        } else {
            plan.name = format!("ramp to {name}");
            plan.window = false;
            plan.ramp_from = phase.ramp_from;
            plan.abort_on.clear();
        }
        Planned {
            phase: plan,
            step: phase.step.filter(|_| n_steps > 1),
        }
    };
    Ok(phases.iter().map(planned).collect())
}

fn amount(model: LoadModel) -> f64 {
    match model {
        LoadModel::Closed { users } => f64::from(users),
        LoadModel::Open {
            requests_per_second,
            ..
        } => requests_per_second,
        LoadModel::Script { .. } => 0.0,
    }
}

fn named(choice: ProfileChoice) -> Profile {
    match choice {
        ProfileChoice::Smoke => Profile::Smoke,
        ProfileChoice::Load => Profile::Load,
        ProfileChoice::Stress => Profile::Stress,
        ProfileChoice::Spike => Profile::Spike,
        ProfileChoice::Soak => Profile::Soak,
        ProfileChoice::Breakpoint => Profile::Breakpoint,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// Name, whether it is measured, what a ramp begins with, load, seconds, rules that end it.
    type Told = (String, bool, Option<f64>, f64, f64, usize);

    fn told(flags: &[&str]) -> Vec<Told> {
        let fixed = ["nightsweep", "load", "http://h/"];
        let cli = Cli::try_parse_from(fixed.iter().chain(flags)).unwrap();
        let Command::Load(arguments) = cli.command else {
            panic!("it is another command");
        };
        let planned = planned(&arguments).unwrap_or_else(|error| panic!("{}", error.text()));
        let tell = |own: Planned| {
            let Planned { phase, .. } = own;
            (
                phase.name,
                phase.window,
                phase.ramp_from,
                amount(phase.model),
                phase.duration.as_secs_f64(),
                phase.abort_on.len(),
            )
        };
        planned.into_iter().map(tell).collect()
    }

    fn phase(name: &str, is_window: bool, from: Option<f64>, load: f64, seconds: f64) -> Told {
        (name.to_owned(), is_window, from, load, seconds, 0)
    }

    #[test]
    fn one_load_is_one_window_behind_its_warm_up() {
        assert_eq!(told(&[]), [phase("window", true, None, 10.0, 10.0)]);
        assert_eq!(
            told(&["-q", "50", "-n", "100", "--warm-up", "3s"]),
            [
                phase("warm-up", false, None, 50.0, 3.0),
                phase("window", true, None, 50.0, 2.0),
            ]
        );
    }

    #[test]
    fn stages_become_ramps_and_steps_and_only_steps_are_judged() {
        let mut expected = vec![
            phase("warm-up", false, None, 4.0, 1.0),
            phase("ramp to step 1 of 2", false, Some(4.0), 4.0, 2.0),
            phase("step 1 of 2", true, None, 4.0, 5.0),
            phase("ramp to step 2 of 2", false, Some(4.0), 8.0, 2.0),
            phase("step 2 of 2", true, None, 8.0, 5.0),
        ];
        expected[2].5 = 1;
        expected[4].5 = 1;
        let stages = [
            "--stage",
            "4 users, ramp 2s, hold 5s",
            "--stage",
            "8 users, ramp 2s, hold 5s",
        ];
        let more = [
            "--warm-up",
            "1s",
            "--threshold",
            "max < 1s",
            "--abort-after",
            "1s",
        ];
        assert_eq!(told(&[&stages[..], &more].concat()), expected);
    }

    #[test]
    fn a_profile_with_one_step_is_one_window() {
        assert_eq!(
            told(&[
                "--profile",
                "load",
                "-c",
                "20",
                "--ramp",
                "1s",
                "--hold",
                "2s"
            ]),
            [
                phase("ramp to window", false, Some(0.0), 20.0, 1.0),
                phase("window", true, None, 20.0, 2.0),
            ]
        );
    }
}
