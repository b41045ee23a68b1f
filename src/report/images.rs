//! Images on their way: one live line on a terminal, plain lines elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Printer;
use crate::units::format_bytes;

/// Off a terminal a pull is told each time this share of it is done. **Units**: percent.
const PLAIN_STEP_PERCENT: u64 = 25;

/// Terminals narrower than this are rare, and a line cut here still says what goes on.
const LIVE_LINE_COLUMNS: usize = 100;

/// Prints how images come.
#[derive(Debug)]
pub struct ImageLines {
    printer: Printer,
    /// What was last told: the image, and how much of it. **Units**: percent.
    told: Mutex<(String, u64)>,
}

impl ImageLines {
    /// Nothing told yet.
    pub fn new(printer: Printer) -> Self {
        Self {
            printer,
            told: Mutex::default(),
        }
    }

    /// Layers are on the way. **Units**: bytes.
    pub fn pulling(&self, image: &str, done_bytes: u64, total_bytes: u64) {
        let words = pulling_words(image, done_bytes, total_bytes);
        let percent = (done_bytes * 100).checked_div(total_bytes).unwrap_or(0);
        self.tell(image, percent, &words);
    }

    /// It is there.
    pub fn pulled(&self, image: &str, is_new: bool, fetched_bytes: u64) {
        self.last(&pulled_words(image, is_new, fetched_bytes));
    }

    /// A build context is on the way. **Units**: bytes.
    pub fn sending(&self, image: &str, sent_bytes: u64, total_bytes: u64) {
        if self.printer.is_interactive() {
            self.live(&format!(
                "{image}: sending context, {} of {}",
                format_bytes(sent_bytes.min(total_bytes)),
                format_bytes(total_bytes)
            ));
        }
    }

    /// The builder said a line; off a terminal its steps alone are told.
    pub fn building(&self, image: &str, line: &str) {
        if self.printer.is_interactive() {
            self.live(&format!("{image}: {line}"));
        } else if line.starts_with("Step ") {
            self.printer.note(&format!("{image}: {line}"));
        }
    }

    /// It is built.
    pub fn built(&self, image: &str, took: Duration) {
        self.last(&built_words(image, took));
    }

    /// It was built by an earlier run.
    pub fn built_before(&self, image: &str) {
        self.last(&built_before_words(image));
    }

    fn tell(&self, image: &str, percent: u64, words: &str) {
        if self.printer.is_interactive() {
            self.live(words);
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if is_news(&told, image, percent) {
            *told = (image.to_owned(), percent);
            self.printer.note(words);
        }
    }

    fn live(&self, text: &str) {
        let cut: String = text.chars().take(LIVE_LINE_COLUMNS).collect();
        self.printer.progress(&cut);
    }

    fn last(&self, text: &str) {
        self.printer.clear_progress();
        self.printer.note(text);
    }
}

/// Whether so much more is done that a plain line is due.
fn is_news(told: &(String, u64), image: &str, percent: u64) -> bool {
    told.0 != image || percent >= told.1 + PLAIN_STEP_PERCENT
}

fn pulling_words(image: &str, done_bytes: u64, total_bytes: u64) -> String {
    format!(
        "pulling {image}: {} of {}",
        format_bytes(done_bytes),
        format_bytes(total_bytes)
    )
}

fn pulled_words(image: &str, is_new: bool, fetched_bytes: u64) -> String {
    match (is_new, fetched_bytes) {
        (false, _) => format!("image {image} is up to date"),
        (true, 0) => format!("pulled {image}"),
        (true, bytes) => format!("pulled {image}: {}", format_bytes(bytes)),
    }
}

fn built_words(image: &str, took: Duration) -> String {
    format!("{image} is done after {:.1} s", took.as_secs_f64())
}

fn built_before_words(image: &str) -> String {
    format!("{image} was done before and is used again: nothing that goes into it has changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_a_terminal_a_pull_is_told_at_its_start_and_by_quarters() {
        let mut told = (String::new(), 0);
        let mut lines = Vec::new();
        for (image, percent) in [
            ("a", 0),
            ("a", 10),
            ("a", 25),
            ("a", 49),
            ("a", 80),
            ("b", 3),
        ] {
            if is_news(&told, image, percent) {
                told = (image.to_owned(), percent);
                lines.push(told.clone());
            }
        }
        let lines: Vec<(&str, u64)> = lines.iter().map(|(i, p)| (i.as_str(), *p)).collect();
        assert_eq!(lines, [("a", 0), ("a", 25), ("a", 80), ("b", 3)]);
    }

    #[test]
    fn the_words_have_units() {
        assert_eq!(
            pulling_words("a:1", 1 << 20, 3 << 20),
            "pulling a:1: 1.0 MiB of 3.0 MiB"
        );
        assert_eq!(pulled_words("a:1", false, 0), "image a:1 is up to date");
        assert_eq!(
            built_words("the build of `app`", Duration::from_millis(12_340)),
            "the build of `app` is done after 12.3 s"
        );
        assert_eq!(
            built_before_words("the build of `app`"),
            "the build of `app` was done before and is used again: nothing that goes into it has \
             changed"
        );
        assert_eq!(pulled_words("a:1", true, 0), "pulled a:1");
        assert_eq!(pulled_words("a:1", true, 1 << 10), "pulled a:1: 1.0 KiB");
    }
}
