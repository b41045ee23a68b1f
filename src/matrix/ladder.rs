//! Stages without a matrix: what they become for whoever has no cells.
//!
//! **Invariant**: they are taken apart by the same code as those of a matrix file, so that
//! a ladder tried by hand is the one a sweep runs.

use std::path::Path;

use super::cell::FixedLoad;
use super::loads::load_of;
use super::plan::{CellPhase, Plan, stage_shapes};
use super::sweep::{Amount, AmountKind, Answers, Phase, Stage};
use crate::problem::Location;

impl Amount {
    /// A number that stands in no file.
    pub fn number(number: f64) -> Self {
        Self {
            location: nowhere(),
            kind: AmountKind::Number(number),
        }
    }
}

/// The phases that stages with fixed loads become, in order: ramps, and holds with their steps.
///
/// **Errors**: what is wrong with the first load that is none.
pub fn ladder(name: &str, stages: Vec<Stage>) -> Result<Vec<CellPhase>, String> {
    let phase = Phase {
        name: name.to_owned(),
        location: nowhere(),
        answers: Some(Answers::Ladder),
        breakpoint_at: None,
        stages,
        beside: Vec::new(),
    };
    let fixed = |stage: &Stage| {
        let number = load_of(&phase, stage, &[], &[]).map_err(|failure| failure.message)?;
        Ok(FixedLoad {
            number,
            is_tied: false,
        })
    };
    let loads: Vec<FixedLoad> = phase
        .stages
        .iter()
        .map(fixed)
        .collect::<Result<_, String>>()?;
    Ok(Plan::taken_apart(&stage_shapes(&phase), &loads))
}

fn nowhere() -> Location {
    Location::start_of(Path::new("command line"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::matrix::{Arrivals, CellLoad, PhaseLoad, Profile};

    fn users(number: f64) -> PhaseLoad {
        PhaseLoad::Closed {
            users: Amount::number(number),
        }
    }

    #[test]
    fn a_profile_becomes_ramps_and_numbered_holds() {
        let ramp = Duration::from_secs(1);
        let stages = Profile::Stress.stages(&users(10.0), Some(ramp), None);
        let phases = ladder("stress", stages).unwrap();
        let told: Vec<_> = phases
            .iter()
            .map(|phase| {
                let CellLoad::Closed { users } = phase.model else {
                    panic!("{phase:?}");
                };
                (phase.step, phase.ramp_from, users, phase.duration.as_secs())
            })
            .collect();
        assert_eq!(
            told,
            [
                (Some(1), Some(0.0), 5, 1),
                (Some(1), None, 5, 120),
                (Some(2), Some(5.0), 10, 1),
                (Some(2), None, 10, 120),
                (Some(3), Some(10.0), 15, 1),
                (Some(3), None, 15, 120),
                (Some(4), Some(15.0), 20, 1),
                (Some(4), None, 20, 120),
            ]
        );
        let is_measured = |phase: &&CellPhase| phase.is_window();
        assert_eq!(phases.iter().filter(is_measured).count(), 4);
    }

    #[test]
    fn a_load_that_is_none_is_told() {
        let open = PhaseLoad::Open {
            requests_per_second: Amount::number(0.0),
            arrivals: Arrivals::Uniform,
            max_in_flight: 1,
        };
        let told = ladder("x", Profile::Smoke.stages(&open, None, None)).unwrap_err();
        assert!(
            told.contains("`requests_per_second` is 0 (allowed: above 0"),
            "{told}"
        );
        assert!(ladder("x", Profile::Load.stages(&users(1e9), None, None)).is_err());
        let few = ladder("x", Profile::Smoke.stages(&users(2.0), None, None)).unwrap();
        assert_eq!(few[0].model, CellLoad::Closed { users: 1 }, "never none");
    }
}
