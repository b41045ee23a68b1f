//! How one request ended, as a value that counters and tags agree on.
//!
//! **Invariant**: classes are compared as values, never by their text.

use super::ErrorCounts;

/// How one request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Met the step's `expect`.
    Success,
    /// Busy by design.
    Refused,
    /// Failed.
    Error(ErrorClass),
    /// Still in flight when the drain was over.
    Abandoned,
    /// Due and never sent.
    Unsent,
}

impl Outcome {
    /// Every outcome, in the order of rows.
    pub const ALL: [Self; 11] = [
        Self::Success,
        Self::Refused,
        Self::Error(ErrorClass::Connect),
        Self::Error(ErrorClass::Reset),
        Self::Error(ErrorClass::Timeout),
        Self::Error(ErrorClass::Status),
        Self::Error(ErrorClass::Body),
        Self::Error(ErrorClass::Protocol),
        Self::Error(ErrorClass::Template),
        Self::Abandoned,
        Self::Unsent,
    ];

    /// The outcome of a code; `None` for other words.
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.code() == code)
    }

    /// The code in tags of interval logs: `success`, `error.status`, `unsent`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Refused => "refused",
            Self::Error(class) => class.tag(),
            Self::Abandoned => "abandoned",
            Self::Unsent => "unsent",
        }
    }
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorClass {
    /// The connection could not be made.
    Connect,
    /// The connection broke before the answer was whole.
    Reset,
    /// No whole answer within the time-out.
    Timeout,
    /// An answer whose status is not the expected one.
    Status,
    /// An answer whose body is not the expected one.
    Body,
    /// An answer that is not HTTP.
    Protocol,
    /// A `${}` of the request could not be filled.
    Template,
}

impl ErrorClass {
    fn tag(self) -> &'static str {
        match self {
            Self::Connect => "error.connect",
            Self::Reset => "error.reset",
            Self::Timeout => "error.timeout",
            Self::Status => "error.status",
            Self::Body => "error.body",
            Self::Protocol => "error.protocol",
            Self::Template => "error.template",
        }
    }

    /// The class alone: `status`.
    pub fn code(self) -> &'static str {
        &self.tag()["error.".len()..]
    }
}

impl ErrorCounts {
    /// Counts so many failures.
    pub fn add_n(&mut self, class: ErrorClass, n: u64) {
        let count = match class {
            ErrorClass::Connect => &mut self.connect,
            ErrorClass::Reset => &mut self.reset,
            ErrorClass::Timeout => &mut self.timeout,
            ErrorClass::Status => &mut self.status,
            ErrorClass::Body => &mut self.body,
            ErrorClass::Protocol => &mut self.protocol,
            ErrorClass::Template => &mut self.template,
        };
        *count += n;
    }
}
