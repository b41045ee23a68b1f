//! `doctor` as text and as JSON.

use serde::Serialize;

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// Sweeps run, and their figures may suffer.
    Warn,
    /// Sweeps do not run.
    Fail,
}

/// One finding about the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How good it is.
    pub state: CheckState,
    /// What was found.
    pub words: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Check {
    /// A finding that is as it should be.
    pub fn ok(name: &'static str, words: impl Into<String>) -> Self {
        Self {
            name,
            state: CheckState::Ok,
            words: words.into(),
            hint: None,
        }
    }

    /// A finding that figures may suffer from, and what to do.
    pub fn warn(name: &'static str, words: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            state: CheckState::Warn,
            hint: Some(hint.into()),
            ..Self::ok(name, words)
        }
    }

    /// A finding that lets no sweep run, and what to do.
    pub fn fail(name: &'static str, words: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            state: CheckState::Fail,
            ..Self::warn(name, words, hint)
        }
    }
}

/// The findings one a line, next steps below, and the sum of them.
pub fn doctor_text(checks: &[Check]) -> String {
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut lines = Vec::new();
    for check in checks {
        let state = match check.state {
            CheckState::Ok => "ok",
            CheckState::Warn => "warn",
            CheckState::Fail => "FAIL",
        };
        let words = check
            .words
            .replace('\n', &format!("\n{:1$}", "", width + 8));
        lines.push(format!("{state:<4}  {:<width$}  {words}", check.name));
        if let Some(hint) = &check.hint {
            lines.push(format!("{:1$}hint: {hint}", "", width + 8));
        }
    }
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    lines.push(match (count(CheckState::Warn), count(CheckState::Fail)) {
        (0, 0) => "this host is fit to measure on".to_owned(),
        (n, 0) => format!("{n} of {} checks warn: figures may suffer", checks.len()),
        (_, n) => format!("{n} of {} checks fail: no sweep can run", checks.len()),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_align_and_are_summed_up() {
        let checks = [
            Check::ok("engine", "20.10"),
            Check::warn("other containers", "a, b run", "stop them"),
        ];
        insta::assert_snapshot!(doctor_text(&checks), @r"
        ok    engine            20.10
        warn  other containers  a, b run
                                hint: stop them
        1 of 2 checks warn: figures may suffer
        ");
        let failed = [Check::fail("engine", "gone", "start it")];
        assert!(doctor_text(&failed).ends_with("1 of 1 checks fail: no sweep can run"));
        assert!(doctor_text(&checks[..1]).ends_with("this host is fit to measure on"));
    }

    #[test]
    fn the_json_has_no_hint_where_there_is_none() {
        let json = serde_json::to_string(&Check::ok("engine", "20.10")).unwrap();
        assert_eq!(json, r#"{"name":"engine","state":"ok","words":"20.10"}"#);
    }
}
