//! The report of a load, for scripts.
//!
//! The keys are a contract: fields may be added, none renamed. Of several steps each has a
//! report of its own in `steps`; what has no meaning over different loads is then null.

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::held::{AbortedLoad, HeldLoad, LoadReport, code};
use crate::load::{Arrivals, LoadModel};
use crate::measure::{Counts, Crossed, Figures};
use crate::threshold::Threshold;

impl LoadReport {
    /// The report as one object.
    pub fn json(&self) -> Value {
        let mut report = match self.held.as_slice() {
            [held] if held.step.is_none() => self.window_json(held),
            held => self.all(held),
        };
        if let (Some(report), Some(aborted)) = (report.as_object_mut(), &self.aborted) {
            report.extend(self.early_end(aborted));
        }
        report
    }

    fn window_json(&self, held: &HeldLoad) -> Value {
        let summary = &held.summary;
        let operations: IndexMap<&String, Value> = summary
            .operations
            .iter()
            .map(|(name, own)| (name, figures(own)))
            .collect();
        let mut flags: Vec<&str> = held.verdict.flags.iter().map(|flag| flag.code()).collect();
        if !held.crossed.is_empty() {
            flags.push("threshold_crossed");
        }
        let more = json!({
            "duration_s": summary.length.as_secs_f64(),
            "arrivals": summary.arrivals,
            "not_attempted": summary.not_attempted,
            "outside_window": summary.outside,
            "body_bytes": summary.body_bytes,
            "retry_after": summary.retry_after.words().map(|_| json!({
                "answers": summary.retry_after.answers,
                "shortest_s": summary.retry_after.shortest.as_secs(),
                "longest_s": summary.retry_after.longest.as_secs(),
            })),
            "generator_cpu_s": summary.generator_cpu.as_secs_f64(),
            "generator_wait_s": summary.generator_wait.map(|waited| waited.as_secs_f64()),
            "generator_cpu_us_per_request": held.cpu_us_per_request(),
            "load_threads": summary.threads,
            "generator_lag_ms": summary.generator_lag_ms,
            "in_flight": summary.in_flight,
            "in_flight_recorded": summary.in_flight_recorded,
            "held_back": summary.held_back,
            "seed": self.seed,
            "operations": operations,
            "failures": summary.failures,
            "verdict": code(held.verdict.judgement),
            "reasons": held.verdict.reasons.iter().map(|reason| reason.code()).collect::<Vec<_>>(),
            "flags": flags,
            "evidence": evidence(held),
            "thresholds": self.thresholds(&held.crossed),
            "load": load(held.model),
            "latency_from": if held.is_open() { "due" } else { "send" },
            "p99_if_open_ms": summary.p99_if_open_ms().filter(|_| !held.is_open()),
            "journeys": figures(&summary.journeys),
            "first_failures": first_failures(held),
            "histogram": histogram(held),
            "seconds": seconds(held),
        });
        joined(figures(&summary.total), more)
    }

    /// Several steps, or none: counts are summed, the rest is each step's own.
    fn all(&self, held: &[HeldLoad]) -> Value {
        let mut total = Figures::default();
        for own in held {
            total.counts.merge(&own.summary.total.counts);
        }
        let sum = |part: fn(&HeldLoad) -> f64| held.iter().map(part).sum::<f64>();
        let steps: Vec<Value> = held
            .iter()
            .map(|own| joined(json!({ "step": own.step }), self.window_json(own)))
            .collect();
        let reasons = unique(held, |own| {
            own.verdict
                .reasons
                .iter()
                .map(|reason| reason.code())
                .collect()
        });
        let mut flags = unique(held, |own| {
            own.verdict.flags.iter().map(|flag| flag.code()).collect()
        });
        if held.iter().any(|own| !own.crossed.is_empty()) {
            flags.push("threshold_crossed");
        }
        let crossed: Vec<Crossed> = held.iter().flat_map(|own| own.crossed.clone()).collect();
        let more = json!({
            "throughput_rps": null,
            "achieved_rate_rps": null,
            "seed": self.seed,
            "duration_s": sum(|own| own.summary.length.as_secs_f64()),
            "generator_cpu_s": sum(|own| own.summary.generator_cpu.as_secs_f64()),
            "operations": {},
            "verdict": code(self.judgement()),
            "reasons": reasons,
            "flags": flags,
            "thresholds": self.thresholds(&crossed),
            "steps": steps,
        });
        joined(figures(&total), more)
    }

    fn thresholds(&self, crossed: &[Crossed]) -> Vec<Value> {
        let of = |rule: &Threshold| {
            let by = crossed.iter().find(|crossed| crossed.threshold == *rule);
            threshold(rule, by)
        };
        self.thresholds.iter().map(of).collect()
    }

    fn early_end(&self, aborted: &AbortedLoad) -> serde_json::Map<String, Value> {
        let mut early = serde_json::Map::new();
        early.insert("aborted_after_s".into(), json!(aborted.after.as_secs_f64()));
        if let Some(step) = aborted.step {
            early.insert("aborted_in_step".into(), json!(step));
        }
        if !aborted.is_whole {
            let crossed = std::slice::from_ref(&aborted.crossed);
            early.insert("verdict".into(), json!("failed"));
            early.insert("reasons".into(), json!(["threshold_crossed"]));
            early.insert("thresholds".into(), json!(self.thresholds(crossed)));
        }
        early
    }
}

/// The fields of both, those of the second where both have one.
fn joined(mut first: Value, second: Value) -> Value {
    if let (Value::Object(first), Value::Object(second)) = (&mut first, second) {
        first.extend(second);
    }
    first
}

fn unique(held: &[HeldLoad], codes: fn(&HeldLoad) -> Vec<&'static str>) -> Vec<&'static str> {
    let mut all: Vec<&'static str> = Vec::new();
    for code in held.iter().flat_map(codes) {
        if !all.contains(&code) {
            all.push(code);
        }
    }
    all
}

fn load(model: LoadModel) -> Value {
    match model {
        LoadModel::Closed { users } => json!({ "model": "closed", "users": users }),
        LoadModel::Open {
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
        LoadModel::Script { .. } => json!({ "model": "script" }),
    }
}

fn figures(figures: &Figures) -> Value {
    let counts: &Counts = &figures.counts;
    json!({
        "due": counts.due,
        "requests": counts.requests,
        "successes": counts.successes,
        "refused": counts.refused,
        "errors": counts.errors.total(),
        "errors_by_class": counts.errors,
        "abandoned": counts.abandoned,
        "unsent": counts.unsent,
        "throughput_rps": figures.throughput_rps,
        "achieved_rate_rps": figures.achieved_rate_rps,
        "latency_ms": figures.latency_ms,
        "service_ms": figures.service_ms,
        "send_lag_ms": figures.send_lag_ms,
        "p99_due_ms": figures.p99_due_ms.map(number),
    })
}

/// JSON has no infinity; the word is the one that rows use.
fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else {
        json!("inf")
    }
}

fn threshold(rule: &Threshold, crossed: Option<&Crossed>) -> Value {
    json!({
        "rule": rule.to_string(),
        "crossed": crossed.is_some(),
        "value": crossed.map(|crossed| number(crossed.value)),
    })
}

fn evidence(held: &HeldLoad) -> Vec<Value> {
    let evidence = held.evidence().into_iter();
    evidence
        .map(|own| json!({ "rule": own.code, "words": own.words }))
        .collect()
}

fn first_failures(held: &HeldLoad) -> Vec<Value> {
    let known = held.summary.first_failures.iter();
    known
        .map(|(outcome, words)| json!({ "outcome": outcome.code(), "message": words }))
        .collect()
}

fn histogram(held: &HeldLoad) -> Vec<Value> {
    let buckets = held.summary.latency_buckets();
    buckets
        .iter()
        .map(|bucket| {
            json!({
                "from_ms": bucket.from_ns as f64 / 1e6,
                "to_ms": bucket.to_ns as f64 / 1e6,
                "count": bucket.count,
            })
        })
        .collect()
}

fn seconds(held: &HeldLoad) -> Vec<Value> {
    let seconds = held.summary.seconds();
    seconds
        .iter()
        .map(|second| {
            json!({
                "second": second.second,
                "successes": second.successes,
                "refused": second.refused,
                "errors": second.errors,
                "abandoned": second.abandoned,
                "unsent": second.unsent,
                "p50_ms": second.latency_ms.p50,
                "p99_ms": second.latency_ms.p99,
                "max_ms": second.latency_ms.max,
            })
        })
        .collect()
}
