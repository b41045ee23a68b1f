//! A few lines at the foot of a terminal that are drawn over and over.

use std::fmt::Write as _;

use super::{Printer, Screen};

/// Lines that are redrawn in place.
///
/// Each is cut to the width of the terminal: a line that wraps could not be drawn over.
#[derive(Debug)]
pub struct LiveBlock {
    printer: Printer,
    n_drawn: usize,
}

impl LiveBlock {
    /// A block that is not there yet.
    pub fn new(printer: Printer) -> Self {
        Self {
            printer,
            n_drawn: 0,
        }
    }

    /// Draws the lines where those before stood.
    pub fn draw(&mut self, lines: &[String], screen: Screen) {
        let lines: Vec<String> = lines
            .iter()
            .map(|line| screen.shown(&screen.cut(line)))
            .collect();
        self.printer.raw(&redrawn(self.n_drawn, &lines));
        self.n_drawn = lines.len();
    }

    /// Takes the block away.
    pub fn clear(&mut self) {
        if self.n_drawn > 0 {
            self.printer.raw(&redrawn(self.n_drawn, &[]));
            self.n_drawn = 0;
        }
    }
}

/// One write for everything: up to the first line, over each, and away with what is below.
///
/// **Source**: ECMA-48: CUU goes up, EL clears the rest of a line, ED that of the screen.
fn redrawn(n_before: usize, lines: &[String]) -> String {
    let mut text = String::from("\r");
    if n_before > 1 {
        // Writing to a String cannot fail.
        let _ = write!(text, "\x1b[{}A", n_before - 1);
    }
    let drawn: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
    text.push_str(&drawn.join("\n"));
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_drawn_over_the_one_before() {
        let lines = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(redrawn(0, &lines(&["a", "b"])), "\ra\x1b[K\nb\x1b[K\x1b[J");
        assert_eq!(redrawn(2, &lines(&["c"])), "\r\x1b[1Ac\x1b[K\x1b[J");
        assert_eq!(redrawn(3, &[]), "\r\x1b[2A\x1b[J");
    }
}
