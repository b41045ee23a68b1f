//! Which part of a script each window is. Pure.

use std::time::Duration;

use super::options::{Options, Scenario};
use crate::units::format_duration;

/// What a phase asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// The scenario whose requests it holds; `None` holds those of all.
    pub scenario: Option<String>,
    /// From the scenario's start, without one from the end of set-up.
    pub from: Option<Duration>,
    /// How long; until the scenario's end where it is not said.
    pub duration: Option<Duration>,
}

/// A part of a script's run. Times are from the end of set-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// Index of the cut it is; `None` for what lies before, between and behind.
    pub cut: Option<usize>,
    /// Left edge.
    pub from: Duration,
    /// Right edge.
    pub to: Duration,
    /// The scenario whose requests it holds; `None` holds those of all.
    pub scenario: Option<String>,
    /// Whether iterations arrive in it, whatever the service does.
    pub is_open: bool,
}

/// The whole run of a script, in order and without a gap.
///
/// **Errors**: by the index of the cut, what is wrong with it.
pub fn stretches(cuts: &[Cut], options: &Options) -> Result<Vec<Stretch>, Vec<(usize, String)>> {
    let mut windows = Vec::new();
    let mut problems = Vec::new();
    for (index, cut) in cuts.iter().enumerate() {
        match edges(cut, options) {
            Ok((from, to)) => windows.push((from, to, index)),
            Err(message) => problems.push((index, message)),
        }
    }
    windows.sort_unstable();
    for pair in windows.windows(2) {
        let ((_, before_end, before), (from, _, index)) = (pair[0], pair[1]);
        if from < before_end {
            let later = index.max(before);
            problems.push((
                later,
                "overlaps another window in time (one window may hold all scenarios; operations tell requests apart)"
                    .to_owned(),
            ));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut all = Vec::new();
    let mut reached = Duration::ZERO;
    let mut add = |cut: Option<usize>, from: Duration, to: Duration| {
        let scenario = cut.and_then(|index| cuts[index].scenario.clone());
        let is_open = options.is_open(from, to, scenario.as_deref());
        all.push(Stretch {
            cut,
            from,
            to,
            scenario,
            is_open,
        });
    };
    for (from, to, index) in windows {
        if reached < from {
            add(None, reached, from);
        }
        add(Some(index), from, to);
        reached = to;
    }
    if reached < options.end() {
        add(None, reached, options.end());
    }
    Ok(all)
}

fn edges(cut: &Cut, options: &Options) -> Result<(Duration, Duration), String> {
    let scenario = match &cut.scenario {
        Some(name) => Some(named(name, options)?),
        None => None,
    };
    let start = scenario.map_or(Duration::ZERO, |scenario| scenario.start);
    let from = start.saturating_add(cut.from.unwrap_or_default());
    let end = scenario.map_or(options.end(), Scenario::end);
    let to = match (cut.duration, scenario) {
        (Some(duration), _) => from.saturating_add(duration),
        (None, Some(scenario)) if scenario.ends_by_iterations => {
            return Err(format!(
                "has no `duration`, and scenario `{}` ({}) ends when its iterations are done",
                scenario.name, scenario.executor
            ));
        }
        (None, _) => end,
    };
    if from >= end {
        return Err(format!(
            "begins {} into the script, which has ended by then ({})",
            format_duration(from),
            format_duration(end)
        ));
    }
    if to > end {
        return Err(format!(
            "ends {} into the script, {} after its end",
            format_duration(to),
            format_duration(to.saturating_sub(end))
        ));
    }
    Ok((from, to))
}

fn named<'a>(name: &str, options: &'a Options) -> Result<&'a Scenario, String> {
    let mut all = options.scenarios.iter();
    all.find(|scenario| scenario.name == name).ok_or_else(|| {
        let names: Vec<&str> = options.scenarios.iter().map(|one| &*one.name).collect();
        format!(
            "names the scenario `{name}`, which the script has not (allowed: {})",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options() -> Options {
        Options::of_metadata(&json!({ "options": { "scenarios": {
            "browse": {"executor": "constant-vus", "vus": 2, "duration": "30s"},
            "peak": {"executor": "constant-arrival-rate", "rate": 9, "startTime": "30s", "duration": "20s",
                "preAllocatedVUs": 1},
            "once": {"executor": "shared-iterations", "iterations": 3, "maxDuration": "10s"},
        }}}))
        .unwrap()
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn cut(scenario: Option<&str>, from: Option<u64>, duration: Option<u64>) -> Cut {
        Cut {
            scenario: scenario.map(str::to_owned),
            from: from.map(s),
            duration: duration.map(s),
        }
    }

    #[test]
    fn windows_and_what_lies_around_them_fill_the_whole_run() {
        let cuts = [
            cut(Some("peak"), Some(5), None),
            cut(None, Some(10), Some(15)),
        ];
        let all = stretches(&cuts, &options()).unwrap();
        let seen: Vec<_> = all
            .iter()
            .map(|one| (one.cut, one.from.as_secs(), one.to.as_secs(), one.is_open))
            .collect();
        assert_eq!(
            seen,
            [
                (None, 0, 10, false),
                (Some(1), 10, 25, false),
                (None, 25, 35, true),
                (Some(0), 35, 50, true)
            ]
        );
        assert_eq!(all[3].scenario.as_deref(), Some("peak"));
    }

    #[test]
    fn a_window_that_cannot_be_is_refused_with_its_index() {
        let cuts = [
            cut(Some("nope"), None, None),
            cut(Some("once"), None, None),
            cut(None, Some(60), None),
            cut(None, Some(10), Some(50)),
            cut(None, Some(0), Some(20)),
            cut(Some("browse"), Some(10), None),
        ];
        let problems = stretches(&cuts, &options()).unwrap_err();
        let text: Vec<String> = problems
            .iter()
            .map(|(i, words)| format!("{i} {words}"))
            .collect();
        insta::assert_snapshot!(text.join("\n"), @"
        0 names the scenario `nope`, which the script has not (allowed: browse, once, peak)
        1 has no `duration`, and scenario `once` (shared-iterations) ends when its iterations are done
        2 begins 1 min 00 s into the script, which has ended by then (50 s)
        3 ends 1 min 00 s into the script, 10 s after its end
        5 overlaps another window in time (one window may hold all scenarios; operations tell requests apart)
        ");
    }
}
