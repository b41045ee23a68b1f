//! What was planned and what was read, as lines of proofs.jsonl.
//!
//! **Invariant**: no value of a variable leaves here in the clear but those of the cell,
//! which are the result; all others are salted digests.

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::Job;
use super::shell::Trial;
use crate::engine::{
    Engine, LimitsNotApplied, ProofError, ProofReading, ServiceReading, VariableReading,
};
use crate::secret::Secrets;

impl<E: Engine> Trial<'_, '_, E> {
    /// Keeps a line of proof: which trial, where in it, and what.
    pub(super) fn keep_proof(&mut self, window: Option<usize>, edge: &'static str, what: Value) {
        let mut line = json!({
            "trial": self.job.trial,
            "attempt": self.name.attempt,
            "cell_id": self.job.cell_id,
            "window": window.map(|phase| &self.job.phases[phase].plan.name),
            "step": window.and_then(|phase| self.job.phases[phase].step),
            "edge": edge,
            "at": self.shared.clock.now_text(),
        });
        if let (Value::Object(line), Value::Object(what)) = (&mut line, what) {
            line.extend(what);
        }
        self.proofs.push(line);
    }
}

/// What one look at all containers showed.
pub(super) fn reading_json(reading: &ProofReading, job: &Job, secrets: &Secrets) -> Value {
    let services: IndexMap<&str, Value> = reading
        .services
        .iter()
        .map(|service| (service.name.as_str(), service_json(service, job, secrets)))
        .collect();
    let wrong = reading.outcome.as_ref().err().map(|error| match error {
        ProofError::NotApplied(wrong) => said(wrong, job, secrets),
        other => other.to_string(),
    });
    json!({
        "proof": reading.outcome.as_ref().ok(),
        "wrong": wrong,
        "services": services,
    })
}

/// What is not as planned, for files and rows: values of variables as [`value_of`] says them.
pub(super) fn said(wrong: &LimitsNotApplied, job: &Job, secrets: &Secrets) -> String {
    wrong
        .with_values(|text| value_of(text, job, secrets))
        .to_string()
}

/// A variable's value in the clear where it is one of the cell's, else its digest.
pub(super) fn value_of(text: &str, job: &Job, secrets: &Secrets) -> String {
    let mut values = job.axes.values().chain(job.derived.values());
    if values.any(|value| value.to_string() == text) {
        text.to_owned()
    } else {
        secrets.digest(text)
    }
}

fn service_json(service: &ServiceReading, job: &Job, secrets: &Secrets) -> Value {
    let value = |text: &String| value_of(text, job, secrets);
    let wrong = service.not_applied.as_ref();
    let wrong = wrong.map(|wrong| said(wrong, job, secrets));
    let variable = |variable: &VariableReading| {
        json!({
            "planned": value(&variable.planned),
            "inspect": variable.inspect.as_ref().map(value),
            "process": variable.process.as_ref().map(value),
        })
    };
    let environment: IndexMap<&str, Value> = service
        .environment
        .iter()
        .map(|read| (read.name.as_str(), variable(read)))
        .collect();
    json!({
        "container": service.container,
        "planned": service.planned,
        "inspect": service.inspect,
        "kernel": service.kernel,
        "image": { "planned": service.image_planned, "inspect": service.image },
        "environment": environment,
        "process_read": service.is_process_read,
        "environment_changed": service.changed_variables().collect::<Vec<_>>(),
        "wrong": wrong.or_else(|| service.wrong.clone()),
    })
}
