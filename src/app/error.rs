//! Errors as the user meets them: a kind that decides the exit code, the chain
//! of causes, and the next step.

use std::process::ExitCode;

use crate::engine::EngineError;
use crate::problem::Problems;
use crate::results::{ReadError, ResultsError};

/// Whose business an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A bug in nightsweep.
    Bug,
    /// Matrix, Compose, workload or flags.
    Input,
    /// The engine, the host, the disk.
    Environment,
}

/// A command that failed.
#[derive(Debug)]
pub struct AppError {
    kind: Kind,
    error: anyhow::Error,
    hint: Option<String>,
}

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is as it should be.
    Done,
    /// The sweep ended, some trials failed.
    SomeFailed,
    /// Something that must hold of the figures does not.
    GateBroken,
    /// The engine was lost on the way; the rows so far stand.
    EngineLost,
    /// The host is not fit to measure on.
    Unfit,
    /// The user asked to stop.
    Interrupted,
}

impl Outcome {
    /// The process's exit code; part of the contract.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::EngineLost | Self::Unfit => 3,
            Self::SomeFailed => 4,
            Self::GateBroken => 5,
            Self::Interrupted => 130,
        })
    }
}

impl AppError {
    pub(super) fn input(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: Kind::Input,
            error: error.into(),
            hint: None,
        }
    }

    pub(super) fn environment(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: Kind::Environment,
            error: error.into(),
            hint: None,
        }
    }

    pub(super) fn bug(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: Kind::Bug,
            error: error.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The process's exit code; part of the contract.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Bug => 1,
            Kind::Input => 2,
            Kind::Environment => 3,
        })
    }

    /// What is shown: problems one a line, anything else as one chain, hints below.
    pub fn text(&self) -> String {
        let mut text = match self.error.downcast_ref::<Problems>() {
            Some(problems) => {
                let n = problems.0.len();
                format!("{problems}\n{n} problem{}", if n == 1 { "" } else { "s" })
            }
            None => format!("error: {:#}", self.error),
        };
        if let Some(hint) = &self.hint {
            text.push_str("\n  hint: ");
            text.push_str(hint);
        }
        text
    }
}

impl From<Problems> for AppError {
    fn from(problems: Problems) -> Self {
        Self::input(problems)
    }
}

impl From<EngineError> for AppError {
    fn from(error: EngineError) -> Self {
        let hint = error.hint().map(str::to_owned);
        let mut error = Self::environment(error);
        error.hint = hint;
        error
    }
}

impl From<ResultsError> for AppError {
    fn from(error: ResultsError) -> Self {
        let hint = error.hint();
        let mut error = match error {
            ResultsError::NoRuns { .. } | ResultsError::RunUnknown { .. } => Self::input(error),
            ResultsError::HeaderDiffers { .. }
            | ResultsError::ColumnUnknown { .. }
            | ResultsError::Histogram { .. } => Self::bug(error),
            ResultsError::File { .. } | ResultsError::RunExists { .. } => Self::environment(error),
        };
        error.hint = hint;
        error
    }
}

impl From<ReadError> for AppError {
    fn from(error: ReadError) -> Self {
        Self::input(error)
    }
}
