//! A plan as JSON, written without building it in memory.
//!
//! The keys are a contract with scripts: fields may be added, none renamed.
//! It prints no table; that is the console's. The types are in `plan`.

use std::io;

use indexmap::IndexMap;
use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::cell::{Cell, Dropped};
use super::plan::{CellLoad, CellPhase, Estimate, Plan, PlannedTrial};
use super::sweep::{Answers, Arrivals};
use crate::scalar::Scalar;

impl Plan {
    /// Writes the plan as one JSON object, with whose CPUs are whose as `isolation`.
    ///
    /// **Errors**: the writer's.
    pub fn write_json(&self, writer: impl io::Write, isolation: &impl Serialize) -> io::Result<()> {
        let mut buffered = io::BufWriter::new(writer);
        serde_json::to_writer(
            &mut buffered,
            &WithIsolation {
                plan: self,
                isolation,
            },
        )?;
        io::Write::flush(&mut buffered)
    }
}

/// A plan and what the host adds to it.
#[derive(Serialize)]
struct WithIsolation<'a, I> {
    #[serde(flatten)]
    plan: &'a Plan,
    isolation: &'a I,
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Plan", 7)?;
        object.serialize_field("cells", &self.cells)?;
        object.serialize_field("dropped", &self.dropped)?;
        object.serialize_field("trials", &Trials(self))?;
        object.serialize_field("estimate", &self.estimate)?;
        object.serialize_field("warnings", &self.warnings)?;
        object.serialize_field("state", &PlannedStateOf(self))?;
        object.serialize_field("phases", &PhasesByCells(self))?;
        object.end()
    }
}

/// The phases as they will run, once for all cells that have the same; of most plans
/// those of a tier.
struct PhasesByCells<'a>(&'a Plan);

impl Serialize for PhasesByCells<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = self.0;
        // By their JSON, which says everything of them.
        let mut groups: IndexMap<String, (Value, Vec<&str>)> = IndexMap::new();
        for cell in &plan.cells {
            let phases: Value = plan.phases(cell).iter().map(phase_json).collect();
            let (_, cells) = groups
                .entry(phases.to_string())
                .or_insert_with(|| (phases, Vec::new()));
            cells.push(cell.id().as_str());
        }
        let groups = groups.into_values();
        serializer
            .collect_seq(groups.map(|(phases, cells)| json!({ "cells": cells, "phases": phases })))
    }
}

fn phase_json(phase: &CellPhase) -> Value {
    json!({
        "phase": phase.name,
        "step": phase.step,
        "window": phase.is_window(),
        "answers": phase.answers.map(Answers::as_str),
        "ramp_from": phase.ramp_from,
        "load": load_json(phase.model),
        "duration_s": phase.duration.as_secs_f64(),
        "load_tied_to_knob": phase.load_tied_to_knob,
    })
}

fn load_json(load: CellLoad) -> Value {
    match load {
        CellLoad::Closed { users } => json!({ "model": "closed", "users": users }),
        CellLoad::Open {
            requests_per_second,
            arrivals,
            max_in_flight,
        } => json!({
            "model": "open",
            "requests_per_second": requests_per_second,
            "arrivals": match arrivals {
                Arrivals::Uniform => "uniform",
                Arrivals::Poisson => "poisson",
            },
            "max_in_flight": max_in_flight,
        }),
        CellLoad::Script { .. } => json!({ "model": "script" }),
    }
}

/// What trials find in their volumes; sizes are null until the engine has been asked.
struct PlannedStateOf<'a>(&'a Plan);

impl Serialize for PlannedStateOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = &self.0.state;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("kind", state.kind.as_str())?;
        if let Some(golden) = &state.golden {
            let volumes: Vec<&str> = golden
                .volumes
                .iter()
                .map(|name| name.value.as_str())
                .collect();
            object.serialize_entry("from", &golden.from.value.to_string())?;
            object.serialize_entry("volumes", &volumes)?;
            object.serialize_entry("clone", golden.clone.as_str())?;
            object.serialize_entry("clones", &self.0.trials.len())?;
            let cost = state.clones.as_ref();
            object.serialize_entry("golden_bytes", &cost.map(|cost| cost.golden_bytes))?;
            object.serialize_entry("cloned_bytes", &cost.map(|cost| cost.bytes))?;
            let duration = cost.and_then(|cost| cost.duration);
            object.serialize_entry("clone_seconds", &duration.map(|time| time.as_secs_f64()))?;
            object.serialize_entry("prepared", &cost.map(|cost| cost.is_prepared))?;
        }
        object.end()
    }
}

/// Pairs as an object, in their order.
struct Pairs<I>(I);

impl<'a, I> Serialize for Pairs<I>
where
    I: Iterator<Item = (&'a str, &'a Scalar)> + Clone,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (name, value) in self.0.clone() {
            object.serialize_entry(name, value)?;
        }
        object.end()
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = &self.names.all[..self.names.n_axes];
        let mut object = serializer.serialize_struct("Cell", 4)?;
        object.serialize_field("id", &self.id)?;
        object.serialize_field("axes", &zipped(names, &self.values))?;
        object.serialize_field(
            "derived",
            &zipped(&self.names.all[names.len()..], &self.values[names.len()..]),
        )?;
        object.serialize_field("aliases", &Aliases(self))?;
        object.end()
    }
}

fn zipped<'a>(
    names: &'a [String],
    values: &'a [Scalar],
) -> Pairs<impl Iterator<Item = (&'a str, &'a Scalar)> + Clone> {
    Pairs(names.iter().map(String::as_str).zip(values))
}

struct Aliases<'a>(&'a Cell);

impl Serialize for Aliases<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = &self.0.names.all;
        serializer.collect_seq(self.0.aliases.iter().map(|levels| zipped(names, levels)))
    }
}

impl Serialize for Dropped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Dropped", 3)?;
        object.serialize_field("axes", &zipped(&self.names.all, &self.levels))?;
        // The first one is enough to find the line; all of them come behind.
        object.serialize_field("constraint", &self.constraints.first().map(|name| &**name))?;
        object.serialize_field("constraints", &Words(&self.constraints))?;
        object.end()
    }
}

struct Words<'a>(&'a [std::sync::Arc<str>]);

impl Serialize for Words<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|word| &**word))
    }
}

struct Trials<'a>(&'a Plan);

impl Serialize for Trials<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.trials.iter().map(|trial| Trial(self.0, trial)))
    }
}

struct Trial<'a>(&'a Plan, &'a PlannedTrial);

impl Serialize for Trial<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(plan, trial) = self;
        let mut object = serializer.serialize_struct("Trial", 4)?;
        object.serialize_field("index", &trial.index)?;
        object.serialize_field("block", &trial.block)?;
        object.serialize_field("cell", plan.cells[trial.cell].id())?;
        object.serialize_field("role", trial.role.as_str())?;
        object.end()
    }
}

impl Serialize for Estimate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Estimate", 2)?;
        object.serialize_field("seconds", &self.duration.as_secs_f64())?;
        object.serialize_field("bytes", &self.bytes)?;
        object.end()
    }
}
