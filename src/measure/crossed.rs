//! Which thresholds a window's figures cross.

use std::time::Duration;

use super::{Figures, Recorder, WindowSummary};
use crate::threshold::{Metric, Threshold};

/// A threshold that was crossed, and by what.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossed {
    /// The rule.
    pub threshold: Threshold,
    /// The figure. **Units**: the rule's.
    pub value: f64,
}

impl Crossed {
    /// `p95 < 500 ms (612 ms)`
    pub fn words(&self) -> String {
        let Self { threshold, value } = self;
        format!("{threshold} ({})", threshold.in_words(*value))
    }
}

/// The thresholds that a whole window crosses, in their order.
///
/// One about an operation of which nothing was due says nothing: see [`unjudged`].
pub fn crossed<'t>(
    summary: &WindowSummary,
    thresholds: impl IntoIterator<Item = &'t Threshold>,
) -> Vec<Crossed> {
    let look = |threshold: &Threshold| {
        let figures = match &threshold.operation {
            None => &summary.total,
            Some(name) => {
                let mut operations = summary.operations.iter();
                &operations.find(|(own, _)| own == name)?.1
            }
        };
        cross(threshold, figures)
    };
    thresholds.into_iter().filter_map(look).collect()
}

/// The thresholds about operations of which nothing was due in a whole window, in their order.
///
/// A name may be wrong where it cannot be known before: a k6 script's, or one with values in it.
pub fn unjudged<'t>(
    summary: &WindowSummary,
    thresholds: impl IntoIterator<Item = &'t Threshold>,
) -> Vec<&'t Threshold> {
    let is_unseen = |threshold: &&Threshold| {
        let Some(name) = &threshold.operation else {
            return false;
        };
        let mut operations = summary.operations.iter();
        !operations.any(|(own, figures)| own == name && figures.counts.due > 0)
    };
    thresholds.into_iter().filter(is_unseen).collect()
}

/// Below so many requests that have ended the figures of a window under way are those of
/// single answers.
const FEWEST_ENDED: u64 = 100;

/// The first threshold that a window crosses while it goes on, so long after its beginning.
///
/// Only what has ended is known by then. A rate is judged however few that are.
pub fn crossed_so_far<'t>(
    recorder: &Recorder,
    so_far: Duration,
    thresholds: impl IntoIterator<Item = &'t Threshold>,
) -> Option<Crossed> {
    let total = recorder.total(so_far);
    let mut operations = None;
    thresholds.into_iter().find_map(|threshold| {
        let figures = match &threshold.operation {
            None => &total,
            Some(name) => {
                let all = operations.get_or_insert_with(|| recorder.operations(so_far));
                &all.iter().find(|(own, _)| own == name)?.1
            }
        };
        let has_enough = figures.counts.due >= FEWEST_ENDED;
        if !has_enough && threshold.metric() != Metric::Throughput {
            return None;
        }
        let is_silent = threshold.metric() == Metric::Throughput && figures.counts.due == 0;
        if is_silent && !threshold.is_kept_by(0.0) {
            return Some(Crossed {
                threshold: threshold.clone(),
                value: 0.0,
            });
        }
        cross(threshold, figures)
    })
}

fn cross(threshold: &Threshold, figures: &Figures) -> Option<Crossed> {
    let value = value_of(threshold.metric(), figures)?;
    (!threshold.is_kept_by(value)).then(|| Crossed {
        threshold: threshold.clone(),
        value,
    })
}

/// The figure; `None` where nothing was due. Without a success a latency has no end.
fn value_of(metric: Metric, figures: &Figures) -> Option<f64> {
    let counts = &figures.counts;
    if counts.due == 0 {
        return None;
    }
    let latency = &figures.latency_ms;
    let percentile = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
    Some(match metric {
        Metric::Mean => percentile(latency.mean),
        Metric::P50 => percentile(latency.p50),
        Metric::P90 => percentile(latency.p90),
        Metric::P95 => percentile(latency.p95),
        Metric::P99 => percentile(latency.p99),
        Metric::P999 => percentile(latency.p999),
        Metric::Max => percentile(latency.max),
        // Nothing but refused requests: none of what counts was ever late.
        Metric::P99Due => figures.p99_due_ms?,
        Metric::ErrorRate => {
            let failed = counts.errors.total() + counts.abandoned + counts.unsent;
            failed as f64 / counts.due as f64
        }
        Metric::Throughput => figures.throughput_rps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{ErrorClass, LatencyFrom, Outcome, Sample};

    /// 95 successes of 10 ms, then 5 errors, of one operation; none of another.
    fn recorder(n_times: u32) -> Recorder {
        let mut recorder = Recorder::new(vec!["read".into(), "never".into()], LatencyFrom::Send);
        for index in 0..100 * n_times {
            let is_good = index % 100 < 95;
            recorder.record(&Sample {
                operation: 0,
                outcome: if is_good {
                    Outcome::Success
                } else {
                    Outcome::Error(ErrorClass::Status)
                },
                second: 0,
                sent_second: 0,
                latency_ns: 10_000_000,
                service_ns: 10_000_000,
                lag_ns: 0,
                generator_lag_ns: 0,
                is_sent_inside: true,
            });
        }
        recorder
    }

    fn rules(texts: &[&str]) -> Vec<Threshold> {
        let parse = |text: &&str| {
            let (operation, rule) = match text.split_once(": ") {
                Some((operation, rule)) => (Some(operation.to_owned()), rule),
                None => (None, *text),
            };
            let mut threshold = Threshold::parse(rule).unwrap();
            threshold.operation = operation;
            threshold
        };
        texts.iter().map(parse).collect()
    }

    fn so_far(recorder: &Recorder, texts: &[&str]) -> Option<String> {
        let found = crossed_so_far(recorder, Duration::from_secs(10), &rules(texts));
        found.map(|crossed| crossed.words())
    }

    #[test]
    fn every_metric_is_judged_by_its_own_figure() {
        let recorder = recorder(1);
        for kept in [
            "p50 < 11 ms",
            "p99 < 11 ms",
            "max < 11 ms",
            "mean < 11 ms",
            "error_rate <= 5 %",
            "throughput >= 9.5/s",
            "read: p95 < 11 ms",
            "never: p95 < 1 ms",
            "absent: p95 < 1 ms",
        ] {
            assert_eq!(so_far(&recorder, &[kept]), None, "{kept}");
        }
        for (rule, value) in [
            ("p50 < 9 ms", "10.0 ms"),
            ("p99_due < 20s", "no end"),
            ("error_rate < 5 %", "5.00 %"),
            ("throughput > 9.5/s", "9.50/s"),
            ("read: error_rate < 1 %", "5.00 %"),
        ] {
            let said = so_far(&recorder, &["max < 1s", rule]);
            assert_eq!(said, Some(format!("{rule} ({value})")));
        }
    }

    #[test]
    fn a_few_answers_end_nothing_but_silence_does() {
        let mut few = Recorder::new(vec!["read".into()], LatencyFrom::Send);
        assert_eq!(so_far(&few, &["p95 < 1 ms", "error_rate < 1 %"]), None);
        assert_eq!(
            so_far(&few, &["throughput > 1/s"]).as_deref(),
            Some("throughput > 1/s (0.00/s)")
        );
        few.record(&Sample {
            operation: 0,
            outcome: Outcome::Error(ErrorClass::Reset),
            second: 0,
            sent_second: 0,
            latency_ns: 1,
            service_ns: 1,
            lag_ns: 0,
            generator_lag_ns: 0,
            is_sent_inside: true,
        });
        assert_eq!(so_far(&few, &["error_rate < 1 %"]), None);
    }

    #[test]
    fn what_was_never_due_is_unjudged() {
        let recorder = recorder(1);
        let summary = summary(&recorder);
        let rules = rules(&[
            "p95 < 1 ms",
            "read: p95 < 11 ms",
            "never: p95 < 1 ms",
            "absent: throughput > 1/s",
        ]);
        let names = unjudged(&summary, &rules);
        let names: Vec<String> = names.into_iter().map(ToString::to_string).collect();
        assert_eq!(names, ["never: p95 < 1 ms", "absent: throughput > 1/s"]);
        let words: Vec<String> = crossed(&summary, &rules)
            .iter()
            .map(Crossed::words)
            .collect();
        assert_eq!(words, ["p95 < 1 ms (10.0 ms)"]);
    }

    /// Ten seconds of it.
    fn summary(recorder: &Recorder) -> WindowSummary {
        let length = Duration::from_secs(10);
        WindowSummary {
            operations: recorder.operations(length),
            arrivals: 100,
            generator_lag_ms: recorder.generator_lag_ms(),
            ..WindowSummary::quiet(recorder.total(length), length)
        }
    }
}
