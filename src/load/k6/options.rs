//! What a script's options say of its scenarios and thresholds. Pure.
//!
//! **Source**: `metadata.json` of `k6 archive`, whose `options` are those of the
//! script as k6 read them; k6's documentation of executors for what is left out.

use std::time::Duration;

use serde_json::Value;

/// Time for running iterations to end, unless a scenario says otherwise.
const GRACEFUL_STOP: Duration = Duration::from_secs(30);
/// Longest time of a scenario that ends by iterations.
const MAX_DURATION: Duration = Duration::from_mins(10);
/// Longest set-up and longest tear-down, each.
const SETUP_TIMEOUT: Duration = Duration::from_mins(1);

/// A script's options, as far as they matter here.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Its scenarios, by name. **Shape**: at least one.
    pub scenarios: Vec<Scenario>,
    /// Whether it has `hosts` of its own.
    pub has_hosts: bool,
    /// By metric, with its tags (`http_reqs{name:x}`).
    pub(super) thresholds: Vec<String>,
    pub(super) system_tags: Vec<String>,
    /// Longest time of set-up and tear-down together.
    pub(super) around: Duration,
    /// All of them, to tell whether two cells have the same.
    pub(super) raw: Value,
}

/// A stretch of a script's load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name; `default` where the script has none.
    pub name: String,
    /// How it is paced: `constant-vus`.
    pub executor: String,
    /// From the end of set-up.
    pub start: Duration,
    /// How long; the longest it may take where it ends by iterations.
    pub duration: Duration,
    /// Whether `duration` is only the longest it may take.
    pub ends_by_iterations: bool,
    /// Time for running iterations to end.
    pub graceful_stop: Duration,
    /// Whether iterations arrive, whatever the service does.
    pub is_open: bool,
}

impl Scenario {
    /// When it ends, its last iterations apart.
    pub fn end(&self) -> Duration {
        self.start.saturating_add(self.duration)
    }
}

impl Options {
    /// Reads `metadata.json`. The error is what cannot be read.
    pub(super) fn of_metadata(metadata: &Value) -> Result<Self, String> {
        let options = metadata.get("options").ok_or("it has no `options`")?;
        let mut scenarios = match options.get("scenarios").and_then(Value::as_object) {
            Some(named) if !named.is_empty() => named
                .iter()
                .map(|(name, fields)| scenario(name, fields))
                .collect::<Result<Vec<_>, _>>()?,
            _ => vec![scenario_of_shortcuts(options)?],
        };
        scenarios.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        let texts = |value: Option<&Value>| -> Vec<String> {
            let list = value.and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let thresholds = options.get("thresholds").and_then(Value::as_object);
        let or = |key: &str| Ok::<_, String>(time(options, key)?.unwrap_or(SETUP_TIMEOUT));
        Ok(Self {
            scenarios,
            has_hosts: options.get("hosts").is_some_and(|hosts| !hosts.is_null()),
            thresholds: thresholds
                .map(|all| all.keys().cloned().collect())
                .unwrap_or_default(),
            system_tags: texts(options.get("systemTags")),
            around: or("setupTimeout")?.saturating_add(or("teardownTimeout")?),
            raw: options.clone(),
        })
    }

    /// When the last scenario ends, its last iterations apart.
    pub fn end(&self) -> Duration {
        let ends = self.scenarios.iter().map(Scenario::end);
        ends.max().unwrap_or_default()
    }

    /// Longest time beside the scenarios': set-up, last iterations, tear-down.
    pub fn longest_around(&self) -> Duration {
        let last = |scenario: &Scenario| scenario.end().saturating_add(scenario.graceful_stop);
        let last = self.scenarios.iter().map(last).max().unwrap_or_default();
        last.saturating_sub(self.end()).saturating_add(self.around)
    }

    /// Whether iterations arrive by a rate at some moment of a stretch.
    pub(super) fn is_open(&self, from: Duration, to: Duration, only: Option<&str>) -> bool {
        self.scenarios.iter().any(|scenario| {
            scenario.is_open
                && scenario.start < to
                && from < scenario.end()
                && only.is_none_or(|name| scenario.name == name)
        })
    }
}

fn scenario(name: &str, fields: &Value) -> Result<Scenario, String> {
    let executor = fields.get("executor").and_then(Value::as_str);
    let executor = executor.ok_or_else(|| format!("scenario `{name}` has no executor"))?;
    let ends_by_iterations = matches!(executor, "shared-iterations" | "per-vu-iterations");
    let duration = if ends_by_iterations {
        time(fields, "maxDuration")?.unwrap_or(MAX_DURATION)
    } else {
        match fields.get("stages").and_then(Value::as_array) {
            Some(stages) => sum(stages)?,
            None => time(fields, "duration")?
                .ok_or_else(|| format!("scenario `{name}` has no duration"))?,
        }
    };
    Ok(Scenario {
        name: name.to_owned(),
        executor: executor.to_owned(),
        start: time(fields, "startTime")?.unwrap_or_default(),
        duration,
        ends_by_iterations,
        graceful_stop: time(fields, "gracefulStop")?.unwrap_or(GRACEFUL_STOP),
        is_open: executor.ends_with("arrival-rate"),
    })
}

/// The one scenario that `vus`, `duration`, `iterations` and `stages` make.
fn scenario_of_shortcuts(options: &Value) -> Result<Scenario, String> {
    let stages = options.get("stages").and_then(Value::as_array);
    let duration = time(options, "duration")?;
    let has_iterations = options.get("iterations").is_some_and(|n| !n.is_null());
    let stages = stages.filter(|stages| !stages.is_empty());
    let (executor, duration, ends_by_iterations) = match (has_iterations, stages, duration) {
        (true, _, limit) => ("shared-iterations", limit.unwrap_or(MAX_DURATION), true),
        (false, Some(stages), _) => ("ramping-vus", sum(stages)?, false),
        (false, None, Some(duration)) => ("constant-vus", duration, false),
        (false, None, None) => ("per-vu-iterations", MAX_DURATION, true),
    };
    Ok(Scenario {
        name: "default".to_owned(),
        executor: executor.to_owned(),
        start: Duration::ZERO,
        duration,
        ends_by_iterations,
        graceful_stop: GRACEFUL_STOP,
        is_open: false,
    })
}

fn sum(stages: &[Value]) -> Result<Duration, String> {
    stages.iter().try_fold(Duration::ZERO, |sum, stage| {
        let length = time(stage, "duration")?.unwrap_or_default();
        Ok(sum.saturating_add(length))
    })
}

fn time(fields: &Value, key: &str) -> Result<Option<Duration>, String> {
    let wrong = || format!("`{key}` is no duration");
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        // Plain numbers are milliseconds.
        Some(Value::Number(ms)) => {
            let seconds = ms.as_f64().ok_or_else(wrong)? / 1e3;
            let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
            Ok(Some(time))
        }
        Some(Value::String(text)) => go_duration(text).map(Some).ok_or_else(wrong),
        Some(_) => Err(wrong()),
    }
}

/// A duration as Go writes it: `1m30s`, `1.5s`, `250ms`; k6 adds `1d` and plain milliseconds.
fn go_duration(text: &str) -> Option<Duration> {
    if let Ok(ms) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(ms / 1e3).ok();
    }
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let n = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..n].parse().ok()?;
        rest = &rest[n..];
        let units = [
            ("ms", 1e-3),
            ("us", 1e-6),
            ("\u{b5}s", 1e-6),
            ("ns", 1e-9),
            ("d", 86_400.0),
            ("h", 3_600.0),
            ("m", 60.0),
            ("s", 1.0),
        ];
        let (unit, factor) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        seconds += number * factor;
    }
    (!text.is_empty())
        .then(|| Duration::try_from_secs_f64(seconds).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options(options: impl Into<Value>) -> Result<Options, String> {
        let options: Value = options.into();
        Options::of_metadata(&json!({ "options": options }))
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let cases = [
            ("1m30s", Some(90.0)),
            ("1h0m0s", Some(3600.0)),
            ("250ms", Some(0.25)),
            ("1.5s", Some(1.5)),
            ("2d", Some(172_800.0)),
            ("1500", Some(1.5)),
            ("0s", Some(0.0)),
            ("", None),
            ("s", None),
            ("1x", None),
            ("-1s", None),
            ("1", Some(0.001)),
            ("1e300", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(
                go_duration(text).map(|d| d.as_secs_f64()),
                seconds,
                "{text}"
            );
        }
    }

    #[test]
    fn shortcuts_make_one_scenario_called_default() {
        let one = |value| options(value).unwrap().scenarios.remove(0);
        let constant = one(json!({"vus": 2, "duration": "5s", "scenarios": null}));
        assert_eq!((constant.name.as_str(), constant.end()), ("default", s(5)));
        let ramped = one(
            json!({"stages": [{"duration": "1m30s", "target": 5}, {"duration": 5000, "target": 0}]}),
        );
        assert_eq!(
            (ramped.executor.as_str(), ramped.end()),
            ("ramping-vus", s(95))
        );
        assert!(!ramped.ends_by_iterations);
        let shared = one(json!({"iterations": 10, "duration": "20s"}));
        assert_eq!((shared.end(), shared.ends_by_iterations), (s(20), true));
        let nothing = one(json!({}));
        assert_eq!((nothing.end(), nothing.ends_by_iterations), (s(600), true));
    }

    #[test]
    fn scenarios_have_start_length_and_pace() {
        let read = options(json!({
            "scenarios": {
                "late": {"executor": "ramping-arrival-rate", "startTime": "10s", "gracefulStop": "5s",
                    "stages": [{"duration": "20s", "target": 9}]},
                "early": {"executor": "constant-vus", "vus": 1, "duration": "30s"},
            },
            "setupTimeout": "10s", "hosts": {"a": "1.2.3.4"}, "thresholds": {"checks": ["rate>0.9"]},
        }))
        .unwrap();
        let names: Vec<&str> = read.scenarios.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["early", "late"]);
        assert_eq!(read.end(), s(30));
        assert_eq!(read.longest_around(), s(30 + 10 + 60));
        assert!(read.has_hosts);
        assert!(read.is_open(s(0), s(30), None) && !read.is_open(s(0), s(10), None));
        assert!(!read.is_open(s(0), s(30), Some("early")));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for value in [
            json!({"scenarios": {"a": {"vus": 1}}}),
            json!({"scenarios": {"a": {"executor": "constant-vus"}}}),
            json!({"duration": [1]}),
            json!({"stages": [{"duration": "x"}]}),
            json!({"duration": -5}),
        ] {
            options(value).unwrap_err();
        }
        Options::of_metadata(&json!(null)).unwrap_err();
    }
}
