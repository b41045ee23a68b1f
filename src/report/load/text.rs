//! The report of a load, for people.

use std::fmt::Write as _;

use super::held::{AbortedLoad, HeldLoad, LoadReport, code};
use super::words::{self, fine_ms};
use super::{latency, outcomes, over_time, steps};
use crate::measure::Judgement;
use crate::report::screen::{Ink, Screen};
use crate::report::table::{count, rate};
use crate::units::{format_bytes, format_duration};

/// From so many times the measured p99 on what waiting users hid is worth a word.
const HIDDEN_FACTOR: f64 = 2.0;
/// Columns of the labels on the left.
const LABEL: usize = 16;

impl LoadReport {
    /// The report, as wide as the screen.
    pub fn text(&self, screen: Screen) -> String {
        let mut lines =
            vec![screen.paint(Ink::Strong, &format!("{} on {}", self.what, self.target))];
        let is_ladder = self.held.iter().any(|held| held.step.is_some());
        if is_ladder {
            lines.extend(steps::table(self, screen));
        } else {
            for held in &self.held {
                lines.extend(self.window_text(held, screen));
            }
        }
        if let Some(aborted) = &self.aborted {
            lines.push(String::new());
            lines.push(aborted.words());
        }
        let text: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        screen.shown(&text.join("\n"))
    }

    fn window_text(&self, held: &HeldLoad, screen: Screen) -> Vec<String> {
        let mut lines = vec![self.model(held), String::new()];
        lines.extend(summary(held, screen));
        let is_journey = self.requests_per_journey > 1;
        let mut section = |title: &str, content: Vec<String>| {
            if !content.is_empty() {
                lines.push(String::new());
                lines.push(screen.paint(Ink::Strong, title));
                lines.extend(content.into_iter().map(|line| format!("  {line}")));
            }
        };
        section("how long successes took", latency::points(held, is_journey));
        section(
            "their distribution, on a logarithmic scale",
            latency::histogram(held, screen),
        );
        section("successes/s over time", over_time::chart(held, screen));
        section("operations", outcomes::operations(held));
        section("what did not succeed", outcomes::failures(held, screen));
        section("hint", hints(held));
        lines
    }

    fn model(&self, held: &HeldLoad) -> String {
        let loop_kind = if held.is_open() {
            "open loop"
        } else {
            "closed loop"
        };
        let mut line = format!(
            "{loop_kind}, {}, for {}",
            words::load(held.model),
            format_duration(held.summary.length)
        );
        if !self.warm_up.is_zero() {
            line.push_str(" after a warm-up of ");
            line.push_str(&format_duration(self.warm_up));
        }
        line
    }
}

impl AbortedLoad {
    /// Why there is nothing more.
    fn words(&self) -> String {
        let step = self
            .step
            .map_or_else(String::new, |step| format!(" in step {step}"));
        let figures = if self.is_whole {
            ""
        } else {
            "; a window cut short has no figures"
        };
        format!(
            "the load was ended{step} after {}: {} was crossed{figures}",
            format_duration(self.after),
            self.crossed.words()
        )
    }
}

/// What comes first: can it be trusted, how much, how many.
fn summary(held: &HeldLoad, screen: Screen) -> Vec<String> {
    let window = &held.summary;
    let counts = &window.total.counts;
    let ink = match held.verdict.judgement {
        Judgement::Valid => Ink::Good,
        Judgement::Suspect | Judgement::Failed => Ink::Bad,
    };
    let verdict = screen.paint(ink, code(held.verdict.judgement));
    let mut lines = vec![format!("{:<LABEL$}{verdict}", "verdict")];
    let evidence = held.evidence();
    let judged = |code: &str, words: &str| {
        let own = evidence.iter().find(|own| own.code == code);
        let by = own.map_or_else(String::new, |own| format!(" ({})", own.words));
        format!("{code}: {words}{by}")
    };
    let mut say = |name: &str, text: &str| lines.extend(label(name, text, screen));
    for reason in &held.verdict.reasons {
        say("reason", &judged(reason.code(), words::reason(*reason)));
    }
    for flag in &held.verdict.flags {
        say("flag", &judged(flag.code(), &words::flag(*flag, held)));
    }
    for crossed in &held.crossed {
        say("crossed", &crossed.words());
    }
    let throughput = format!("{} successes/s", rate(window.total.throughput_rps));
    say("throughput", &throughput);
    say("requests", &ended(held));
    if let Some(received) = received(held) {
        say("received", &received);
    }
    if counts.failed() > 0 {
        let p99 = match window.total.p99_due_ms {
            Some(p99) if p99.is_infinite() => {
                "endless: more than 1 % of what was due failed or never left".to_owned()
            }
            p99 => format!(
                "{} ms, where what failed or never left counts as endless",
                fine_ms(p99)
            ),
        };
        say("p99 of all due", &p99);
    }
    let threads = match window.threads {
        1 => "1 load thread".to_owned(),
        n => format!("{n} load threads"),
    };
    let each = held.cpu_us_per_request().map_or_else(String::new, |us| {
        format!(", {} µs of CPU a request", rate(us))
    });
    let generator = format!("{:.2} cores on {threads}{each}", held.generator_cores());
    say("generator", &generator);
    lines
}

fn ended(held: &HeldLoad) -> String {
    let counts = &held.summary.total.counts;
    // Writing to a String cannot fail.
    let mut text = format!("{} successes", count(counts.successes));
    let others = [
        (counts.refused, "refused"),
        (counts.errors.total(), "errors"),
        (counts.abandoned, "abandoned"),
        (counts.unsent, "unsent"),
    ];
    for (n, what) in others {
        // Refusals and errors are looked for even where there are none.
        if n > 0 || ["refused", "errors"].contains(&what) {
            let _ = write!(text, " · {} {what}", count(n));
        }
    }
    let not_attempted = held.summary.not_attempted;
    if not_attempted > 0 {
        let _ = write!(text, " · {} steps not attempted", count(not_attempted));
    }
    text
}

/// What came back, without heads; `None` where nothing did or nobody knows.
fn received(held: &HeldLoad) -> Option<String> {
    let summary = &held.summary;
    let bytes = summary.body_bytes.filter(|bytes| *bytes > 0)?;
    let per_second = (bytes as f64 / summary.length.as_secs_f64()) as u64;
    Some(format!(
        "{} of bodies, {}/s",
        format_bytes(bytes),
        format_bytes(per_second)
    ))
}

/// A text behind its label, broken between words where the line is full.
fn label(name: &str, text: &str, screen: Screen) -> Vec<String> {
    let mut lines = vec![format!("{name:<LABEL$}")];
    let mut columns = LABEL;
    for word in text.split(' ') {
        let width = word.chars().count();
        if columns > LABEL && columns + 1 + width > screen.columns {
            lines.push(" ".repeat(LABEL));
            columns = LABEL;
        }
        let line = lines.last_mut().expect("there is always one");
        if columns > LABEL {
            line.push(' ');
            columns += 1;
        }
        line.push_str(word);
        columns += width;
    }
    lines
}

/// What to try next.
fn hints(held: &HeldLoad) -> Vec<String> {
    let window = &held.summary;
    let measured = window.total.latency_ms.p99;
    let hidden = window.p99_if_open_ms().filter(|_| !held.is_open());
    match (measured, hidden) {
        (Some(measured), Some(hidden)) if hidden >= HIDDEN_FACTOR * measured => vec![
            "users that wait for an answer send nothing, and what they would have sent is in no figure:".to_owned(),
            format!(
                "at an even {} requests/s the p99 would be about {} ms, not {} ms",
                rate(window.total.achieved_rate_rps),
                fine_ms(Some(hidden)),
                fine_ms(Some(measured))
            ),
            format!(
                "measure it with --open RATE, such as --open {:.0}",
                (0.6 * window.total.achieved_rate_rps).max(1.0)
            ),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
