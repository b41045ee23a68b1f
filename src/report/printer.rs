//! The one place that writes to stdout and stderr.

use std::io::{self, IsTerminal, Write};

/// Writes data to stdout and progress to stderr.
///
/// A closed pipe never stops a sweep: what cannot be written is dropped.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    interactive: bool,
}

impl Printer {
    /// A printer for this process's own streams; no redrawing in CI.
    pub fn new(in_ci: bool) -> Self {
        Self {
            interactive: io::stderr().is_terminal() && !in_ci,
        }
    }

    /// Whether a progress line can be redrawn in place.
    pub fn is_interactive(self) -> bool {
        self.interactive
    }

    /// Writes data, a line feed after it.
    pub fn data(self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// Writes a line of progress or diagnosis.
    pub fn note(self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Redraws the progress line; only where [`Self::is_interactive`].
    pub fn progress(self, text: &str) {
        if self.interactive {
            let mut err = io::stderr().lock();
            let _ = write!(err, "\r\x1b[2K{text}").and_then(|()| err.flush());
        }
    }

    /// Writes what moves the cursor; only where [`Self::is_interactive`].
    pub(super) fn raw(self, text: &str) {
        if self.interactive {
            let mut err = io::stderr().lock();
            let _ = write!(err, "{text}").and_then(|()| err.flush());
        }
    }

    /// Takes the progress line away, so that a whole line can be written.
    pub fn clear_progress(self) {
        self.progress("");
    }
}
