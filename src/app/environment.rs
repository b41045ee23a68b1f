//! What the process is given by its surroundings, read once.
//!
//! The only module that reads environment variables, the clock and random bytes;
//! everything below gets them as values.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Instant;

use jiff::Timestamp;

use super::error::AppError;
use crate::report::Printer;
use crate::sweep::Clock;

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

    /// How to print; nothing is coloured, so `NO_COLOR` has nothing to take away.
    pub(super) fn printer(&self) -> Printer {
        Printer::new(self.variable("CI").is_some())
    }
}
