//! How k6 ended, and what that says of the windows. Pure.
//!
//! **Source**: k6's exit codes; what they mean for a measurement is ours.

use std::time::Duration;

use crate::units::format_duration;

/// So many of k6's last words are kept.
const WORDS_KEPT: usize = 5;

/// What is known when k6 has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptReport {
    /// k6's exit code.
    pub exit_code: i32,
    /// Metrics whose thresholds were crossed, over the whole run of the script.
    pub crossed: Option<String>,
    /// Thresholds that passed because nothing was measured for them.
    pub unjudged: Vec<String>,
    /// Iterations that were cut off when their time was over.
    pub interrupted: u64,
    /// Requests of scenarios that belong to no phase: of others than it is about, or
    /// sent before the first or behind the last.
    pub outside: u64,
    /// By phase.
    pub windows: Vec<WindowNotes>,
    /// Why k6 ended before the end of a window, where it did.
    pub cut_short: Option<String>,
    /// What else went wrong, where the windows were held all the same.
    pub ended_badly: Option<String>,
    /// k6's last words.
    pub words: Vec<String>,
}

/// What is known of one phase beside its figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowNotes {
    /// Its index.
    pub phase: usize,
    /// Requests sent in it, also where it was not held to its end.
    pub requests: u64,
    /// Iterations that ended in it.
    pub ended: u64,
    /// Those of them that threw.
    pub threw: u64,
}

/// From this share of the iterations that ended on, having thrown, a window is no measurement:
/// most of its load is not the one the script was written for. Not all of them, or one stray
/// success would make it one.
const MOST_THREW: f64 = 0.5;

impl WindowNotes {
    /// The share of its iterations that threw.
    pub fn threw_share(&self) -> f64 {
        self.threw as f64 / self.iterations().max(1) as f64
    }

    /// Iterations that ended or threw: one that was cut off may have thrown and has no end.
    pub fn iterations(&self) -> u64 {
        self.ended.max(self.threw)
    }

    /// Whether so many threw that its figures are not those of the script.
    pub fn is_script_failed(&self) -> bool {
        self.threw_share() > MOST_THREW
    }
}

impl ScriptReport {
    /// Keeps something k6 said.
    pub(super) fn say(&mut self, words: String) {
        if self.words.last() != Some(&words) {
            self.words.push(words);
        }
        let n_old = self.words.len().saturating_sub(WORDS_KEPT);
        self.words.drain(..n_old);
    }

    /// k6 ended before a window's end, or before any load.
    pub(super) fn end_short(&mut self, window: Option<(&str, Duration)>) {
        let when = match window {
            Some((name, before)) => format!(
                "k6 ended {} before the end of window `{name}`",
                format_duration(before)
            ),
            None => "k6 ended before any load".to_owned(),
        };
        self.cut_short = Some(format!("{when}: {}", self.ending()));
    }

    /// k6 ended when all windows had.
    pub(super) fn end(&mut self) {
        // 99 is said by the thresholds themselves.
        if !matches!(self.exit_code, 0 | 99) {
            self.ended_badly = Some(self.ending());
        }
    }

    /// The exit code with its meaning, and k6's last words.
    fn ending(&self) -> String {
        let mut text = format!("exit code {}, {}", self.exit_code, meaning(self.exit_code));
        if let Some(metrics) = &self.crossed {
            text.push_str("; thresholds crossed: ");
            text.push_str(metrics);
        }
        if !self.words.is_empty() {
            text.push_str("; it said: ");
            text.push_str(&self.words.join("; "));
        }
        text
    }
}

fn meaning(exit_code: i32) -> &'static str {
    match exit_code {
        0 => "all its iterations were done",
        99 => "a threshold was crossed",
        100 => "set-up took too long",
        101 => "tear-down took too long",
        104 => "an option of the script is wrong",
        105 => "it was stopped from outside",
        107 => "the script threw or could not be loaded",
        108 => "the script called test.abort()",
        109 => "k6 itself broke down",
        110 => "the script called test.fail()",
        255 => "k6 cannot work with the script's options",
        137 => "it was killed, perhaps for memory",
        _ => "see k6's documentation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_end_says_when_why_and_what_was_said() {
        let mut report = ScriptReport {
            exit_code: 99,
            crossed: Some("http_req_failed".to_owned()),
            ..ScriptReport::default()
        };
        report.say("stopping".to_owned());
        report.end_short(Some(("stress", Duration::from_secs(12))));
        insta::assert_snapshot!(report.cut_short.clone().unwrap(), @"k6 ended 12 s before the end of window `stress`: exit code 99, a threshold was crossed; thresholds crossed: http_req_failed; it said: stopping");
        report.exit_code = 107;
        report.crossed = None;
        report.end_short(None);
        insta::assert_snapshot!(report.cut_short.unwrap(), @"k6 ended before any load: exit code 107, the script threw or could not be loaded; it said: stopping");
    }

    #[test]
    fn an_end_after_the_windows_is_bad_by_its_code() {
        for (exit_code, is_bad) in [
            (0, false),
            (99, false),
            (107, true),
            (108, true),
            (255, true),
        ] {
            let mut report = ScriptReport {
                exit_code,
                ..ScriptReport::default()
            };
            report.end();
            assert_eq!(report.ended_badly.is_some(), is_bad, "{exit_code}");
        }
    }

    #[test]
    fn only_the_last_words_are_kept() {
        let mut report = ScriptReport::default();
        for n in 0..20 {
            report.say(format!("{}", n / 2));
        }
        assert_eq!(report.words, ["5", "6", "7", "8", "9"]);
    }
}
