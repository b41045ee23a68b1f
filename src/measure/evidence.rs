//! The numbers behind a verdict, in words: which rule fired, by what.
//!
//! **Invariant**: says of a window only what `verdict` judges it by. What is plain from the
//! counts (`no_success`, `errors`, `too_few`) has no words here: whoever tells of a
//! window tells its counts.

use std::time::Duration;

use super::verdict::{
    GENERATOR_CPU_SHARE, GENERATOR_LAG_SHARE, LITTLES_LAW_GAP, Saturation, is_overloaded,
    longest_silence_s, saturations, spoiled_by_lag_ms, wait_per_request_ms,
};
use super::{Figures, Flag, Pacing, Reason, WindowSummary, WindowVerdict};

/// What one rule fired by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The reason's or the flag's code: `generator_saturated`.
    pub code: &'static str,
    /// Its numbers, for people.
    pub words: String,
}

impl WindowVerdict {
    /// What each reason and flag fired by, in their order.
    pub fn evidence(&self, summary: &WindowSummary, pacing: Pacing) -> Vec<Evidence> {
        let reasons = self
            .reasons
            .iter()
            .map(|reason| (reason.code(), reason.evidence(summary)));
        let flags = self
            .flags
            .iter()
            .map(|flag| (flag.code(), flag.evidence(summary, pacing)));
        reasons
            .chain(flags)
            .filter_map(|(code, words)| words.map(|words| Evidence { code, words }))
            .collect()
    }
}

impl Reason {
    /// What it fired by; `None` where the counts say it all.
    pub fn evidence(self, summary: &WindowSummary) -> Option<String> {
        match self {
            Self::NoSuccess => None,
            Self::GeneratorSaturated => Some(saturated(summary)),
            Self::LittlesLaw => Some(unbalanced(summary)),
        }
    }
}

impl Flag {
    /// What it fired by; `None` where the counts say it all.
    pub fn evidence(self, summary: &WindowSummary, pacing: Pacing) -> Option<String> {
        match self {
            Self::Overloaded => Some(overloaded(summary, pacing)),
            Self::GeneratorBound => {
                let parts = [Some(cpu(summary)), waited(summary)];
                Some(joined(parts.into_iter().flatten()))
            }
            Self::Stalled => Some(format!(
                "{} s in a row without a success, {} requests abandoned of {} journeys under way",
                longest_silence_s(summary),
                summary.total.counts.abandoned,
                number(summary.in_flight)
            )),
            Self::Errors | Self::TooFew => None,
        }
    }
}

fn saturated(summary: &WindowSummary) -> String {
    let sign = |sign: &Saturation| match sign {
        Saturation::Cpu => format!(
            "{} ({} allowed)",
            cpu(summary),
            percent(GENERATOR_CPU_SHARE)
        ),
        Saturation::Rate => format!(
            "{}, and none of them waited for the service",
            achieved(&summary.total, summary.length)
        ),
        Saturation::Lag => format!(
            "p99 of the generator's own lag {} ms against {} ({} of it allowed)",
            number(summary.generator_lag_ms.p99.unwrap_or_default()),
            spoiled(summary),
            percent(GENERATOR_LAG_SHARE)
        ),
        Saturation::Wait => format!(
            "it waited {} ms for a CPU by request sent, against {} ({} of it allowed)",
            number(wait_per_request_ms(summary).unwrap_or_default()),
            spoiled(summary),
            percent(GENERATOR_LAG_SHARE)
        ),
    };
    let signs: Vec<String> = saturations(summary).iter().map(sign).collect();
    joined(signs.into_iter().chain(waited(summary)))
}

/// What a lag of the generator would spoil.
fn spoiled(summary: &WindowSummary) -> String {
    let ms = number(spoiled_by_lag_ms(summary));
    match summary.total.latency_ms.p99 {
        Some(_) => format!("a p99 latency of {ms} ms"),
        None => format!("a window of {ms} ms without a success"),
    }
}

fn unbalanced(summary: &WindowSummary) -> String {
    let (under_way, recorded) = (summary.in_flight, summary.in_flight_recorded);
    let gap = (recorded - under_way).abs() / under_way.max(f64::MIN_POSITIVE);
    let words = format!(
        "{} journeys under way in the mean, {} by the time recorded, {} apart ({} allowed)",
        number(under_way),
        number(recorded),
        percent(gap),
        percent(LITTLES_LAW_GAP)
    );
    joined([words].into_iter().chain(waited(summary)))
}

fn overloaded(summary: &WindowSummary, pacing: Pacing) -> String {
    let mut parts = Vec::new();
    if pacing == Pacing::Open && is_overloaded(&summary.total, summary.length) {
        let held_back = summary.held_back;
        let waited = (held_back > 0).then(|| format!("{held_back} arrivals had to wait"));
        parts.extend(shortfall(&summary.total, summary.length));
        parts.splice(1..1, waited);
    }
    for beside in &summary.beside {
        if is_overloaded(&beside.requests, summary.length) {
            let words = joined(shortfall(&beside.requests, summary.length));
            parts.push(format!("`{}`: {words}", beside.journey));
        }
    }
    joined(parts)
}

/// What of a rate was not carried.
fn shortfall(figures: &Figures, length: Duration) -> Vec<String> {
    let counts = &figures.counts;
    let mut parts = vec![achieved(figures, length)];
    for (n, what) in [(counts.unsent, "unsent"), (counts.abandoned, "abandoned")] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    if figures.p99_due_ms == Some(f64::INFINITY) {
        parts.push("p99 of all due endless".to_owned());
    }
    parts
}

fn achieved(figures: &Figures, length: Duration) -> String {
    let due_rps = figures.counts.due as f64 / length.as_secs_f64().max(f64::MIN_POSITIVE);
    format!(
        "{} of {} requests/s due were sent in time",
        number(figures.achieved_rate_rps),
        number(due_rps)
    )
}

fn cpu(summary: &WindowSummary) -> String {
    format!(
        "load threads used {} of their CPU time",
        percent(summary.generator_cpu.as_secs_f64() / threads_s(summary))
    )
}

/// Who waits for a CPU is late and idle at once: it tells a busy host from a busy generator.
fn waited(summary: &WindowSummary) -> Option<String> {
    let waited = summary.generator_wait?;
    let share = percent(waited.as_secs_f64() / threads_s(summary));
    Some(format!("load threads waited {share} of the time for a CPU"))
}

fn threads_s(summary: &WindowSummary) -> f64 {
    let own_s = summary.length.as_secs_f64() * summary.threads as f64;
    own_s.max(f64::MIN_POSITIVE)
}

fn joined(parts: impl IntoIterator<Item = String>) -> String {
    let parts: Vec<String> = parts.into_iter().collect();
    parts.join(", ")
}

fn percent(share: f64) -> String {
    format!("{} %", number(100.0 * share))
}

/// Three digits are enough to see by how much a rule was broken.
fn number(value: f64) -> String {
    let text = match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match text.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') => whole.to_owned(),
        _ => text,
    }
}
