//! What a load came to: every load that was held, and what ended it early.

use std::time::Duration;

use crate::load::LoadModel;
use crate::measure::{Crossed, Evidence, Judgement, Pacing, WindowSummary, WindowVerdict};
use crate::threshold::Threshold;

/// A load of `nightsweep load`, ended.
#[derive(Debug, Clone)]
pub struct LoadReport {
    /// Where requests went: `http://127.0.0.1:8080`.
    pub target: String,
    /// What was sent: `GET /x`, or the workload file.
    pub what: String,
    /// Requests of a journey.
    pub requests_per_journey: usize,
    /// Unmeasured load before the first window.
    pub warm_up: Duration,
    /// What random values and arrivals were drawn from.
    pub seed: u64,
    /// What had to hold of each window.
    pub thresholds: Vec<Threshold>,
    /// The loads that were held to their end, in order.
    pub held: Vec<HeldLoad>,
    /// What ended the load early.
    pub aborted: Option<AbortedLoad>,
}

/// One load that was held to its end.
#[derive(Debug, Clone)]
pub struct HeldLoad {
    /// Which step it is, from 1; `None` where there is only one load.
    pub step: Option<u32>,
    /// How requests were paced.
    pub model: LoadModel,
    /// Its figures.
    pub summary: Box<WindowSummary>,
    /// What is thought of them.
    pub verdict: WindowVerdict,
    /// Thresholds it crossed.
    pub crossed: Vec<Crossed>,
}

/// A threshold that ended the load.
#[derive(Debug, Clone)]
pub struct AbortedLoad {
    /// The step it ended in.
    pub step: Option<u32>,
    /// Into the window.
    pub after: Duration,
    /// Which, and by what.
    pub crossed: Crossed,
    /// Whether the window had come to its end, so that it has figures.
    pub is_whole: bool,
}

impl LoadReport {
    /// The worst judgement of all that was held; a load without any has none that stands.
    pub fn judgement(&self) -> Judgement {
        let judgements = || self.held.iter().map(|held| held.verdict.judgement);
        let all = |wanted: Judgement| judgements().any(|judgement| judgement == wanted);
        if self.held.is_empty() || all(Judgement::Failed) {
            Judgement::Failed
        } else if all(Judgement::Suspect) {
            Judgement::Suspect
        } else {
            Judgement::Valid
        }
    }

    /// Whether a threshold was crossed.
    pub fn is_crossed(&self) -> bool {
        self.aborted.is_some() || self.held.iter().any(|held| !held.crossed.is_empty())
    }
}

impl HeldLoad {
    /// CPU time of the generator for each request it sent. **Units**: microseconds.
    pub(super) fn cpu_us_per_request(&self) -> Option<f64> {
        let n_sent = self.summary.total.counts.requests;
        let cpu_us = self.summary.generator_cpu.as_secs_f64() * 1e6;
        (n_sent > 0).then(|| cpu_us / n_sent as f64)
    }

    /// Cores the generator used in the mean.
    pub(super) fn generator_cores(&self) -> f64 {
        let length_s = self.summary.length.as_secs_f64();
        self.summary.generator_cpu.as_secs_f64() / length_s.max(f64::MIN_POSITIVE)
    }

    /// What the rules fired by.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let pacing = if self.is_open() {
            Pacing::Open
        } else {
            Pacing::Closed
        };
        self.verdict.evidence(&self.summary, pacing)
    }

    pub(super) fn is_open(&self) -> bool {
        match self.model {
            LoadModel::Closed { .. } => false,
            LoadModel::Open { .. } => true,
            LoadModel::Script { is_open } => is_open,
        }
    }
}

/// The code of a judgement, as in rows.
pub(super) fn code(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Valid => "valid",
        Judgement::Suspect => "suspect",
        Judgement::Failed => "failed",
    }
}
