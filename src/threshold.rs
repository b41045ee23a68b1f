//! What must hold of a window's figures: `p95 < 500 ms`, `error_rate < 1 %`, `throughput > 100/s`.
//!
//! A crossed threshold says something of the service, never of the measurement.
//! Matrix files and the command line write them, `measure` has the figures. Pure.

use std::fmt;

use crate::problem::nearest;
use crate::units::parse_duration;

/// The figure that a threshold looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Mean latency of successes.
    Mean,
    /// Median of successes.
    P50,
    /// Their 90th percentile.
    P90,
    /// Their 95th percentile.
    P95,
    /// Their 99th percentile.
    P99,
    /// Their 99.9th percentile.
    P999,
    /// Largest latency of a success.
    Max,
    /// 99th percentile of everything due, in which what failed or never left is infinite.
    P99Due,
    /// Share of what was due that failed, was given up or never left.
    ErrorRate,
    /// Successes a second.
    Throughput,
}

/// What a metric is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Time,
    Share,
    PerSecond,
}

const METRICS: [(&str, Metric); 10] = [
    ("mean", Metric::Mean),
    ("p50", Metric::P50),
    ("p90", Metric::P90),
    ("p95", Metric::P95),
    ("p99", Metric::P99),
    ("p999", Metric::P999),
    ("max", Metric::Max),
    ("p99_due", Metric::P99Due),
    ("error_rate", Metric::ErrorRate),
    ("throughput", Metric::Throughput),
];

impl Metric {
    fn unit(self) -> Unit {
        match self {
            Self::ErrorRate => Unit::Share,
            Self::Throughput => Unit::PerSecond,
            Self::Mean
            | Self::P50
            | Self::P90
            | Self::P95
            | Self::P99
            | Self::P999
            | Self::Max
            | Self::P99Due => Unit::Time,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
}

/// Longer ones first: `<` begins `<=`.
const COMPARISONS: [(&str, Comparison); 4] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

/// One rule, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    text: String,
    metric: Metric,
    comparison: Comparison,
    /// **Units**: milliseconds, a share from 0 to 1, or per second.
    limit: f64,
    /// The operation it is about; all together unless set.
    pub operation: Option<String>,
}

impl Threshold {
    /// Reads `p95 < 500 ms`.
    ///
    /// **Errors**: what is wrong, to follow the rule's name, with what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let place = text.find(['<', '>', '=']);
        let Some((name, rest)) = place.map(|place| text.split_at(place)) else {
            return Err(format!(
                "is `{text}`, which compares nothing (allowed: such as p95 < 500 ms)"
            ));
        };
        let found = COMPARISONS
            .iter()
            .find_map(|(sign, comparison)| Some((sign, *comparison, rest.strip_prefix(sign)?)));
        let Some((sign, comparison, limit)) = found else {
            return Err(format!(
                "has `{rest}` behind its figure (allowed: <, <=, > or >=)"
            ));
        };
        let (name, limit) = (name.trim(), limit.trim());
        let Some((_, metric)) = METRICS.iter().find(|(known, _)| *known == name) else {
            let names = METRICS.map(|(name, _)| name);
            let near = nearest(name, names).map_or_else(
                || format!("allowed: {}", names.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            return Err(format!("looks at `{name}`, which is no figure ({near})"));
        };
        Ok(Self {
            limit: limit_of(limit, metric.unit())?,
            text: format!("{name} {sign} {limit}"),
            metric: *metric,
            comparison,
            operation: None,
        })
    }

    /// The figure it looks at.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Whether a value keeps it. An infinite latency keeps no upper limit.
    ///
    /// **Units**: milliseconds, a share from 0 to 1, or per second.
    pub fn is_kept_by(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Below => value < self.limit,
            Comparison::AtMost => value <= self.limit,
            Comparison::Above => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
        }
    }

    /// A value with its unit: `612 ms`, `3.2 %`, `98/s`.
    pub fn in_words(&self, value: f64) -> String {
        let short = |value: f64| {
            let digits = match value.abs() {
                large if large >= 100.0 => 0,
                medium if medium >= 10.0 => 1,
                _ => 2,
            };
            format!("{value:.digits$}")
        };
        match self.metric.unit() {
            Unit::Time if value.is_infinite() => "no end".to_owned(),
            Unit::Time => format!("{} ms", short(value)),
            Unit::Share => format!("{} %", short(value * 100.0)),
            Unit::PerSecond => format!("{}/s", short(value)),
        }
    }
}

/// The rule, behind the operation it is about.
impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = &self.operation {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&self.text)
    }
}

fn limit_of(text: &str, unit: Unit) -> Result<f64, String> {
    let number = |text: &str| {
        let number = text.trim().parse::<f64>().ok();
        number.filter(|number| number.is_finite() && *number >= 0.0)
    };
    match unit {
        Unit::Time => {
            // `500 ms` and `500ms` alike; a bare number says no unit.
            let joined: String = text.split_whitespace().collect();
            let has_unit = joined.ends_with(|last: char| last.is_ascii_alphabetic());
            let length = parse_duration(&joined).ok().filter(|_| has_unit);
            length
                .map(|length| length.as_secs_f64() * 1e3)
                .ok_or_else(|| {
                    format!("has the limit `{text}` (allowed: a time such as 500 ms or 1.5s)")
                })
        }
        Unit::Share => {
            let share = match text.strip_suffix('%') {
                Some(percent) => number(percent).map(|percent| percent / 100.0),
                None => number(text),
            };
            share.filter(|share| *share <= 1.0).ok_or_else(|| {
                format!("has the limit `{text}` (allowed: a share such as 1 % or 0.01)")
            })
        }
        Unit::PerSecond => number(text.strip_suffix("/s").unwrap_or(text))
            .ok_or_else(|| format!("has the limit `{text}` (allowed: a rate such as 100/s)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_with_their_units() {
        for (text, limit, shown) in [
            ("p95 < 500 ms", 500.0, "p95 < 500 ms"),
            ("p99<=1s", 1_000.0, "p99 <= 1s"),
            (" error_rate  <  1 % ", 0.01, "error_rate < 1 %"),
            ("error_rate < 0.25", 0.25, "error_rate < 0.25"),
            ("throughput > 100/s", 100.0, "throughput > 100/s"),
            ("throughput >= 99.5", 99.5, "throughput >= 99.5"),
            ("p99_due < 250us", 0.25, "p99_due < 250us"),
        ] {
            let threshold = Threshold::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert!(
                (threshold.limit - limit).abs() < 1e-9,
                "{text}: {}",
                threshold.limit
            );
            assert_eq!(threshold.to_string(), shown);
        }
        let mut threshold = Threshold::parse("p95 < 5 ms").unwrap();
        threshold.operation = Some("create".into());
        assert_eq!(threshold.to_string(), "create: p95 < 5 ms");
    }

    #[test]
    fn rules_that_cannot_be_meant_are_told() {
        let wrong = |text| Threshold::parse(text).expect_err(text);
        insta::assert_snapshot!(
            [
                "", "p95", "p95 = 5 ms", "p95 == 5 ms", "p59 < 5 ms", "latency < 5 ms", "p95 < 5",
                "p95 < 5 s s", "p95 < -5 ms", "error_rate < 200 %", "error_rate < 5 ms",
                "throughput > fast", "throughput > inf", "< 5 ms", "p95 < ",
            ]
            .map(wrong)
            .join("\n"),
            @"
        is ``, which compares nothing (allowed: such as p95 < 500 ms)
        is `p95`, which compares nothing (allowed: such as p95 < 500 ms)
        has `= 5 ms` behind its figure (allowed: <, <=, > or >=)
        has `== 5 ms` behind its figure (allowed: <, <=, > or >=)
        looks at `p59`, which is no figure (did you mean p50?)
        looks at `latency`, which is no figure (allowed: mean, p50, p90, p95, p99, p999, max, p99_due, error_rate, throughput)
        has the limit `5` (allowed: a time such as 500 ms or 1.5s)
        has the limit `5 s s` (allowed: a time such as 500 ms or 1.5s)
        has the limit `-5 ms` (allowed: a time such as 500 ms or 1.5s)
        has the limit `200 %` (allowed: a share such as 1 % or 0.01)
        has the limit `5 ms` (allowed: a share such as 1 % or 0.01)
        has the limit `fast` (allowed: a rate such as 100/s)
        has the limit `inf` (allowed: a rate such as 100/s)
        looks at ``, which is no figure (allowed: mean, p50, p90, p95, p99, p999, max, p99_due, error_rate, throughput)
        has the limit `` (allowed: a time such as 500 ms or 1.5s)
        "
        );
    }

    #[test]
    fn the_border_belongs_to_who_says_or_equal() {
        let keeps = |text: &str, value| Threshold::parse(text).unwrap().is_kept_by(value);
        assert!(!keeps("p95 < 500 ms", 500.0) && keeps("p95 < 500 ms", 499.9));
        assert!(keeps("p95 <= 500 ms", 500.0) && !keeps("p95 <= 500 ms", 500.1));
        assert!(!keeps("throughput > 100/s", 100.0) && keeps("throughput >= 100/s", 100.0));
        assert!(!keeps("p99_due < 9s", f64::INFINITY));
        let words = |text: &str, value| Threshold::parse(text).unwrap().in_words(value);
        assert_eq!(words("p95 < 1s", 612.4), "612 ms");
        assert_eq!(words("error_rate < 1 %", 0.0321), "3.21 %");
        assert_eq!(words("throughput > 1", 98.31), "98.3/s");
        assert_eq!(words("p99_due < 9s", f64::INFINITY), "no end");
    }
}
