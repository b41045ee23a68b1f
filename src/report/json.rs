//! JSON lines: one event a line on stdout, the last one is the summary.

use serde::Serialize;

use super::{Printer, Reporter};
use crate::event::{Event, EventKind};

/// Writes each event as one line of JSON.
#[derive(Debug)]
pub struct JsonReporter {
    printer: Printer,
}

impl JsonReporter {
    /// A reporter that writes to stdout.
    pub fn new(printer: Printer) -> Self {
        Self { printer }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    at: &'a str,
    elapsed_s: f64,
    #[serde(flatten)]
    kind: &'a EventKind,
}

impl Reporter for JsonReporter {
    fn event(&mut self, event: &Event) {
        let elapsed_s = (event.elapsed.as_secs_f64() * 1e3).round() / 1e3;
        let line = Line {
            at: &event.at,
            elapsed_s,
            kind: &event.kind,
        };
        if let Ok(text) = serde_json::to_string(&line) {
            self.printer.data(&text);
        }
    }
}
