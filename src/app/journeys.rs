//! What the workload's journeys and data mean for a matrix: checks and words.

use std::collections::BTreeSet;

use super::plan::counted;
use crate::load::{JourneyShape, Workload};
use crate::matrix::{CellLoad, Plan, Sweep};
use crate::problem::{Problem, nearest};

/// What is sent: `36 requests a journey`, or each journey with its share.
pub(super) fn journeys_text(workload: &Workload) -> String {
    let journeys = workload.journeys();
    let text = |journey: &JourneyShape| {
        let requests = counted(journey.requests, "request");
        let share = journey.share * 100.0;
        format!("`{}` {share:.0} % ({requests})", journey.name)
    };
    match journeys.as_slice() {
        [one] => counted(one.requests, "request") + " a journey",
        several => {
            let several: Vec<String> = several.iter().map(text).collect();
            format!("journeys {}", several.join(", "))
        }
    }
}

/// Journeys beside phases must be there, and leave others to be drawn.
pub(super) fn check_beside(sweep: &Sweep, workload: &Workload, problems: &mut Vec<Problem>) {
    let journeys = workload.journeys();
    for phase in &sweep.phases {
        let beside: Vec<&str> = phase
            .beside
            .iter()
            .map(|beside| beside.journey.value.as_str())
            .collect();
        for own in &phase.beside {
            let name = &own.journey.value;
            if journeys.iter().any(|journey| journey.name == *name) {
                continue;
            }
            let names: Vec<&str> = journeys
                .iter()
                .map(|journey| journey.name.as_str())
                .filter(|name| !name.is_empty())
                .collect();
            let hint = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if names.is_empty() => {
                    "write it in the workload as [[journey]] with a name".to_owned()
                }
                None => format!("its journeys are {}", names.join(", ")),
            };
            let message = format!("the workload has no journey `{name}`");
            problems.push(Problem::new(own.journey.location.clone(), message).with_hint(hint));
        }
        let is_drawn = |journey: &JourneyShape| {
            journey.share > 0.0 && !beside.contains(&journey.name.as_str())
        };
        if !journeys.iter().any(is_drawn) {
            let message = format!(
                "phase `{}` has all journeys of the workload beside it, and none of its own",
                phase.name
            );
            problems.push(Problem::new(phase.location.clone(), message));
        }
    }
}

/// Where users share rows of a data file that gives each its own.
pub(super) fn shared_rows(plan: &Plan, workload: &Workload) -> Vec<String> {
    let mut warnings = BTreeSet::new();
    for own in workload.user_rows() {
        let phases = plan.cells.iter().flat_map(|cell| plan.phases(cell));
        let users = phases.filter_map(|phase| match phase.model {
            CellLoad::Closed { users } => Some(users),
            CellLoad::Open { .. } | CellLoad::Script { .. } => None,
        });
        let most = users.max().unwrap_or_default();
        if most as usize > own.rows {
            warnings.insert(format!(
                "the data file `{}` has {} and up to {most} virtual users: they share rows, user {} has the first one again",
                own.name,
                counted(own.rows, "row"),
                own.rows
            ));
        }
    }
    warnings.into_iter().collect()
}
