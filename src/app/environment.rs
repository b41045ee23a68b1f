//! What the process is given by its surroundings, read once.
//!
//! The only module that reads environment variables, the clock and random bytes;
//! everything below gets them as values.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::time::Instant;

use jiff::Timestamp;

use super::error::AppError;
use crate::report::{Printer, Screen};
use crate::sweep::Clock;

/// A report narrower than this has no room for its bars.
const NARROWEST_PAGE: usize = 60;
/// And lines longer than this are hard to follow.
const WIDEST_PAGE: usize = 120;

/// The process's surroundings.
#[derive(Debug)]
pub(super) struct Environment {
    variables: BTreeMap<String, String>,
    random: [u8; 18],
    clock: Clock,
    now: Timestamp,
}

impl Environment {
    /// Reads variables, clock and sixteen random bytes for the salt of secrets.
    pub(super) fn read() -> Result<Self, AppError> {
        let mut random = [0; 18];
        fs_err::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut random))
            .map_err(AppError::environment)?;
        let now = Timestamp::now();
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Ok(Self {
            variables,
            random,
            clock: Clock::new(Instant::now(), now),
            now,
        })
    }

    /// Environment variables whose names and values are text.
    pub(super) fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// One variable; an empty one counts as unset.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Salt of secrets: new for every process.
    pub(super) fn salt(&self) -> [u8; 16] {
        let mut salt = [0; 16];
        salt.copy_from_slice(&self.random[..16]);
        salt
    }

    /// Random part of run ids.
    pub(super) fn random_id(&self) -> u16 {
        u16::from_le_bytes([self.random[16], self.random[17]])
    }

    /// The clock of this process.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// When the process began.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// How to print. A log of CI, or a terminal that cannot move its cursor, is not redrawn.
    pub(super) fn printer(&self) -> Printer {
        Printer::new(self.variable("CI").is_some() || self.is_dumb())
    }

    /// What the terminal behind stdout shows; a page where there is none.
    pub(super) fn page(&self) -> Screen {
        let stdout = io::stdout();
        let columns = self.columns(columns_of(&stdout));
        Screen {
            columns: columns.clamp(NARROWEST_PAGE, WIDEST_PAGE),
            is_unicode: self.is_unicode(),
            has_colour: stdout.is_terminal()
                && !self.is_dumb()
                && self.variable("NO_COLOR").is_none(),
        }
    }

    /// What the terminal behind stderr shows now: it may be resized while a command runs.
    pub(super) fn progress_screen(&self) -> Screen {
        Screen {
            columns: self.columns(columns_of(&io::stderr())),
            is_unicode: self.is_unicode(),
            has_colour: false,
        }
    }

    fn columns(&self, of_terminal: Option<usize>) -> usize {
        let wanted = self.variable("COLUMNS").and_then(|text| text.parse().ok());
        wanted
            .filter(|columns| *columns > 0)
            .or(of_terminal)
            .unwrap_or(Screen::PAGE.columns)
    }

    fn is_dumb(&self) -> bool {
        self.variable("TERM") == Some("dumb")
    }

    /// **Source**: POSIX, 8.2: the first of these that is set and not empty decides. Where
    /// none is, nothing says that the terminal is an old one.
    fn is_unicode(&self) -> bool {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| self.variable(name));
        takes_unicode(locale)
    }
}

/// The width of a terminal; `None` where it is none.
fn columns_of(stream: &impl rustix::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn takes_unicode(locale: Option<&str>) -> bool {
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_without_utf_8_gets_ascii() {
        for (locale, takes) in [
            (None, true),
            (Some("C.UTF-8"), true),
            (Some("de_CH.utf8"), true),
            (Some("C"), false),
            (Some("POSIX"), false),
            (Some("en_US.ISO-8859-1"), false),
        ] {
            assert_eq!(takes_unicode(locale), takes, "{locale:?}");
        }
    }
}
