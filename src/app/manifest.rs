//! run.json: everything about a run that could explain a number.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::environment::Environment;
use super::inputs::Inputs;
use super::isolation::Isolated;
use crate::engine::{HostFacts, ImageFacts, build_key_of};
use crate::matrix::Golden;
use crate::stack::Stack;
use crate::sweep::{JobPhase, SweepPlan, TargetSpec};

/// Of an image's id, so much is shown: `sha256:` and twelve digits.
const SHORT_ID: usize = 19;
/// Meaning of the manifest's fields.
const MANIFEST_VERSION: u32 = 1;

/// The manifest of a run that is about to begin.
///
/// **Shape**: secrets are still in it; they are taken out when it is written.
pub(super) fn manifest(
    inputs: &Inputs,
    plan: &SweepPlan,
    isolated: &Isolated,
    environment: &Environment,
    facts: &HostFacts,
    images: &IndexMap<String, ImageFacts>,
) -> Value {
    let sweep = &inputs.sweep;
    let shown = shown_images(&isolated.stacks);
    let cells: Vec<Value> = inputs
        .plan
        .cells
        .iter()
        .zip(&isolated.stacks)
        .map(|(cell, stack)| {
            json!({
                "id": cell.id().to_string(),
                "axes": cell.axes().collect::<IndexMap<_, _>>(),
                "derived": cell.derived().collect::<IndexMap<_, _>>(),
                "stack": shown_stack(stack, &shown),
            })
        })
        .collect();
    let phases: Vec<Value> = plan
        .jobs
        .first()
        .map_or_else(Vec::new, |job| job.phases.iter().map(phase).collect());
    json!({
        "manifest_version": MANIFEST_VERSION,
        "run_id": plan.run_id,
        "name": sweep.name,
        "title": sweep.report.title,
        "author": sweep.report.author,
        "notes": sweep.report.notes,
        "tool": { "name": "nightsweep", "version": env!("CARGO_PKG_VERSION") },
        "started_at": format!("{:.3}", environment.now()),
        "tier": sweep.tier(),
        "axes": sweep.axes.iter().map(|axis| (axis.name.clone(), &axis.levels)).collect::<IndexMap<_, _>>(),
        "derived": sweep.derived.iter().map(|derived| derived.name.clone()).collect::<Vec<_>>(),
        "cost": sweep.cost.iter().map(|name| &name.value).collect::<Vec<_>>(),
        "subject": plan.subject,
        "target": target(&plan.target),
        "phases": phases,
        "operations": inputs.workload.as_ref().map(|workload| workload.operation_names()).unwrap_or_default(),
        "k6": inputs.scripts.record(),
        "settings": settings(plan),
        "state": state(inputs),
        "set": inputs.settings(),
        "repeats": sweep.trials.repeats,
        "seed": sweep.trials.seed,
        "engine": facts,
        "host": host(facts),
        "isolation": isolated.plan,
        "images": shown_facts(images, &shown),
        "versions": {},
        "cells": cells,
    })
}

/// What stands in the place of names that hold the key of a build: `build of app (sha256:…)`.
fn shown_images(stacks: &[Arc<Stack>]) -> IndexMap<String, String> {
    let mut shown = IndexMap::new();
    for (name, service) in stacks.iter().flat_map(|stack| &stack.services) {
        if build_key_of(&service.image).is_some() {
            let id = service.image_id.as_deref().unwrap_or("not known");
            let short = id.get(..SHORT_ID).unwrap_or(id);
            shown
                .entry(service.image.clone())
                .or_insert_with(|| format!("build of {name} ({short})"));
        }
    }
    shown
}

fn shown_stack(stack: &Stack, shown: &IndexMap<String, String>) -> Stack {
    let mut stack = stack.clone();
    for service in stack.services.values_mut() {
        if let Some(name) = shown.get(&service.image) {
            service.image.clone_from(name);
        }
    }
    stack
}

fn shown_facts<'a>(
    images: &'a IndexMap<String, ImageFacts>,
    shown: &'a IndexMap<String, String>,
) -> IndexMap<&'a String, &'a ImageFacts> {
    images
        .iter()
        .map(|(name, facts)| (shown.get(name).unwrap_or(name), facts))
        .collect()
}

/// What trials found in their volumes; goldens are added when they are ready.
fn state(inputs: &Inputs) -> Value {
    let golden = inputs.sweep.golden.as_ref();
    let volumes = |golden: &Golden| -> Vec<String> {
        golden
            .volumes
            .iter()
            .map(|name| name.value.clone())
            .collect()
    };
    json!({
        "kind": inputs.sweep.trials.state.as_str(),
        "volumes": golden.map(volumes),
        "clone": golden.map(|golden| golden.clone.as_str()),
        "goldens": [],
    })
}

/// A phase; its load is in the rows, since it may differ from cell to cell.
fn phase(phase: &JobPhase) -> Value {
    json!({
        "name": phase.plan.name,
        "window": phase.plan.window,
        "answers": phase.answers,
        "step": phase.step,
        "ramp": phase.plan.ramp_from.is_some(),
        "load_model": phase.load_model(),
        "duration_s": phase.plan.duration.as_secs_f64(),
    })
}

/// What held for every trial.
fn settings(plan: &SweepPlan) -> Value {
    let settings = &plan.settings;
    let slo_of_all = settings.slo.iter().find(|slo| slo.operation.is_none());
    let slo_of_operations: IndexMap<&String, Value> = settings
        .slo
        .iter()
        .filter_map(|slo| {
            let limits = json!({ "p99_ms": slo.p99_ms, "error_rate": slo.error_rate });
            Some((slo.operation.as_ref()?, limits))
        })
        .collect();
    json!({
        "ready_timeout_s": settings.ready_timeout.as_secs_f64(),
        "request_timeout_s": settings.request_timeout.as_secs_f64(),
        "drain_s": settings.drain.as_secs_f64(),
        "load_threads": settings.load_threads,
        "client": plan.workload.as_ref().map(|_| plan.target.wire().client()),
        "max_consecutive_failures": settings.max_consecutive_failures,
        "fail_fast": settings.fail_fast,
        "slo_p99_ms": slo_of_all.and_then(|slo| slo.p99_ms),
        "slo_error_rate": slo_of_all.and_then(|slo| slo.error_rate),
        "slo_operations": slo_of_operations,
    })
}

fn target(target: &TargetSpec) -> Value {
    match target {
        TargetSpec::Service {
            service,
            port,
            base_path,
            wire,
        } => {
            json!({ "service": service, "port": port, "base_path": base_path, "scheme": wire.scheme(), "http2": wire.http2 })
        }
        TargetSpec::Remote {
            address,
            host,
            base_path,
            wire,
        } => {
            json!({ "scheme": wire.scheme(), "http2": wire.http2, "address": address.to_string(), "host": host, "base_path": base_path })
        }
    }
}

/// The host the generator runs on, as its kernel tells.
fn host(facts: &HostFacts) -> Value {
    let line = |path: &str| {
        fs_err::read_to_string(path)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    let cpu_model = line("/proc/cpuinfo").and_then(|text| {
        let model = text.lines().find(|line| line.starts_with("model name"))?;
        Some(model.split_once(':')?.1.trim().to_owned())
    });
    json!({
        "name": line("/proc/sys/kernel/hostname"),
        "endpoint": facts.endpoint,
        "endpoint_reason": facts.endpoint_reason,
        "endpoint_passed_over": facts.endpoint_passed_over,
        "kernel": line("/proc/sys/kernel/osrelease"),
        "cpu_model": cpu_model,
        "cores": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        "governor": line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "clock_source": line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "load_average": line("/proc/loadavg"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Service;

    #[test]
    fn a_built_image_is_named_by_service_and_content_and_not_by_its_key() {
        let stack = |key: &str, id: &str| {
            let app = Service {
                image: format!("nightsweep/build:{key}"),
                image_id: Some(format!("sha256:{}", id.repeat(64))),
                ..Service::default()
            };
            let db = Service {
                image: "postgres:17".to_owned(),
                ..Service::default()
            };
            Arc::new(Stack {
                services: [("app".to_owned(), app), ("db".to_owned(), db)].into(),
                ..Stack::default()
            })
        };
        let keys = ["0123456789abcdef", "fedcba9876543210"];
        let stacks = [stack(keys[0], "a"), stack(keys[1], "b")];
        let images: IndexMap<String, ImageFacts> = stacks
            .iter()
            .flat_map(|stack| stack.services.values())
            .map(|service| (service.image.clone(), ImageFacts::default()))
            .collect();
        let shown = shown_images(&stacks);
        let facts = shown_facts(&images, &shown);
        let names: Vec<&str> = facts.keys().map(|name| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "build of app (sha256:aaaaaaaaaaaa)",
                "postgres:17",
                "build of app (sha256:bbbbbbbbbbbb)"
            ]
        );
        let text = json!([shown_stack(&stacks[0], &shown), facts]).to_string();
        assert!(
            text.contains(r#""image":"build of app (sha256:aaaaaaaaaaaa)""#),
            "{text}"
        );
        assert!(!keys.iter().any(|key| text.contains(key)), "{text}");
    }
}
