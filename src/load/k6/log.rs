//! What k6 says beside its samples: its log, and how many iterations it cut off. Pure.
//!
//! **Source**: k6 1.x with `--verbose --log-format json`, and the progress it
//! writes when its output is no terminal.

use serde::Deserialize;

use super::conductor::Heard;

/// Longest message that is kept. **Units**: characters.
const MAX_WORDS: usize = 500;

#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    scenario: Option<String>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

/// Understands one line of the log; `None` where it matters to nobody.
pub(super) fn read_log_line(text: &str) -> Option<Heard> {
    let Ok(line) = serde_json::from_str::<Line>(text) else {
        // Before its log is set up k6 writes plain text, and Go does when it panics.
        let is_news = !text.trim().is_empty() && !text.contains("level=debug");
        return is_news.then(|| Heard::Said(shortened(text)));
    };
    if line.level == "debug" {
        return (line.msg == "Start all executors...").then_some(Heard::Started);
    }
    if line.source == "console" || line.level == "info" {
        return None;
    }
    if line.source == "stacktrace"
        && let Some(scenario) = line.scenario
    {
        let words = shortened(&line.msg);
        return Some(Heard::Threw { scenario, words });
    }
    if let Some(metrics) = crossed(&line.msg) {
        return Some(Heard::Crossed(metrics));
    }
    let error = line.error.as_ref().and_then(serde_json::Value::as_str);
    if line.level == "warning" && line.msg == "Request Failed" {
        // It is a sample as well.
        return None;
    }
    Some(Heard::Said(match error {
        Some(error) => shortened(&format!("{}: {error}", line.msg)),
        None => shortened(&line.msg),
    }))
}

/// Understands one line of the progress: how many iterations were cut off so far.
pub(super) fn read_progress_line(text: &str) -> Option<Heard> {
    let (before, _) = text.split_once(" interrupted iterations")?;
    let n = before.rsplit(' ').next()?.parse().ok()?;
    Some(Heard::Interrupted(n))
}

/// The metrics in `thresholds on metrics 'a, b' have been crossed`.
fn crossed(message: &str) -> Option<String> {
    let rest = message.strip_prefix("thresholds on metrics '")?;
    let end = rest.rfind("' ")?;
    Some(rest[..end].to_owned())
}

fn shortened(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        format!("{:?}", read_log_line(text))
    }

    #[test]
    fn what_matters_is_taken_from_the_log() {
        assert_eq!(
            said(r#"{"level":"debug","msg":"Start all executors...","phase":"x"}"#),
            "Some(Started)"
        );
        assert_eq!(
            said(r#"{"level":"debug","msg":"Initialized VU #1"}"#),
            "None"
        );
        assert_eq!(
            said(
                r#"{"executor":"x","level":"error","msg":"Error: boom\n\tat f (file:///a.js:6:8(87))\n","scenario":"default","source":"stacktrace"}"#
            ),
            r#"Some(Threw { scenario: "default", words: "Error: boom at f (file:///a.js:6:8(87))" })"#
        );
        assert_eq!(
            said(
                r#"{"level":"error","msg":"thresholds on metrics 'a{b:c, d:e}, f' have been crossed"}"#
            ),
            r#"Some(Crossed("a{b:c, d:e}, f"))"#
        );
        assert_eq!(
            said(
                r#"{"level":"error","msg":"thresholds on metrics 'a' were crossed; at least one has abortOnFail enabled, stopping test prematurely"}"#
            ),
            r#"Some(Crossed("a"))"#
        );
        assert_eq!(
            said(r#"{"level":"error","msg":"mine","source":"console"}"#),
            "None"
        );
        assert_eq!(
            said(r#"{"level":"warning","msg":"Request Failed","error":"x"}"#),
            "None"
        );
        assert_eq!(
            said(r#"{"level":"warning","msg":"Insufficient VUs"}"#),
            r#"Some(Said("Insufficient VUs"))"#
        );
        assert_eq!(
            said("panic: runtime error"),
            r#"Some(Said("panic: runtime error"))"#
        );
        assert_eq!(said(r#"time="x" level=debug msg="y""#), "None");
        assert_eq!(said(""), "None");
        assert_eq!(said("[1]"), r#"Some(Said("[1]"))"#);
    }

    #[test]
    fn iterations_that_were_cut_off_are_counted_from_the_progress() {
        let read = |text: &str| format!("{:?}", read_progress_line(text));
        assert_eq!(
            read("running (03.2s), 0/4 VUs, 24 complete and 7 interrupted iterations"),
            "Some(Interrupted(7))"
        );
        assert_eq!(read("one \u{2713} [ 100% ] 2 VUs  2s"), "None");
        assert_eq!(read("x interrupted iterations"), "None");
    }
}
