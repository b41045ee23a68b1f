//! A checked workload: one journey as a list of operations.
//!
//! Loops are expanded and table fields put in when the file is read, so the
//! reference journey of four looping steps is 36 operations here. What is left
//! open is known when the load starts (cell values, environment) or per request
//! (captures, random values). Made by `workload_file`, made ready by `prepare`.
//!
//! What a `${}` becomes depends on where it stands. In `json` a text that is one
//! `${}` takes the value's type, and all else is escaped. In `body` and `body_file`
//! values stand as they are, except inside the string literals of a body whose
//! `content-type` contains `json`: there they are escaped, so that a captured `a"b`
//! neither breaks the document nor changes what it says. `"id": ${id}` without
//! quotes puts in a number, or a whole captured object, as JSON. The fields of a `form`
//! are percent-encoded. Other bodies, paths, headers and `contains` are never escaped. A
//! `body_file` that is no text (UTF-8) is sent byte for byte, whatever stands in it.
//!
//! **Invariant**: every `${}` of an operation is one of these; a workload that
//! exists has been checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::HeaderName;

use super::expect::Expect;
use super::template::{JsonTemplate, Pieces};
use super::workload_file;
use crate::problem::{Location, Problem, Problems};
use crate::reported::JsonPath;

/// A checked workload file.
#[derive(Debug)]
pub struct Workload {
    pub(super) operations: Vec<Operation>,
    /// Names of captures; a capture is known by its index here.
    pub(super) captures: Vec<String>,
    pub(super) refused: Vec<u16>,
    pub(super) on_failure: OnFailure,
    pub(super) cookies: Cookies,
    pub(super) variables: Vec<VariableUse>,
    pub(super) environment: Vec<VariableUse>,
    pub(super) files: Vec<PathBuf>,
}

/// A name the workload uses and does not define, and where it first does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableUse {
    /// The name, as in `${name}`; for the environment without `env.`.
    pub name: String,
    /// Its first use.
    pub location: Location,
    /// A name the workload does define and that reads much like this one.
    pub similar: Option<String>,
}

/// What a failed step does to its journey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OnFailure {
    /// The journey ends; its later steps are not attempted.
    #[default]
    Abort,
    /// The journey goes on.
    Continue,
}

/// Whether virtual users keep the cookies they are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Cookies {
    /// They do not.
    #[default]
    Off,
    /// Each user has some of its own, for as long as it is there.
    User,
    /// Each journey begins with none.
    Journey,
}

/// One request of the journey, loops expanded.
#[derive(Debug, Clone, Default)]
pub(super) struct Operation {
    pub(super) name: Pieces,
    pub(super) method: Method,
    pub(super) path: Pieces,
    pub(super) headers: Vec<(HeaderName, Pieces)>,
    pub(super) body: Body,
    pub(super) expect: Expect<Pieces>,
    pub(super) captures: Vec<Capture>,
    pub(super) think: Duration,
    /// Instead of the load's own.
    pub(super) timeout: Option<Duration>,
    /// Refused beside the workload's own.
    pub(super) refused: Vec<u16>,
    /// Most redirects that are followed.
    pub(super) redirects: u8,
}

/// What is sent after the headers.
#[derive(Debug, Clone, Default)]
pub(super) enum Body {
    /// Nothing.
    #[default]
    None,
    /// Text, from `body`, `body_file` or `form`.
    Text(Pieces),
    /// The bytes of a file that is no text.
    Bytes(Arc<[u8]>),
    /// A JSON value.
    Json(JsonTemplate<Pieces>),
}

/// One value kept for later steps.
#[derive(Debug, Clone)]
pub(super) struct Capture {
    pub(super) slot: usize,
    pub(super) source: CaptureSource,
}

/// Where a captured value comes from.
#[derive(Debug, Clone)]
pub(super) enum CaptureSource {
    /// A value in the answer's JSON.
    Json(JsonPath),
    /// A header of the answer.
    Header(HeaderName),
}

impl Workload {
    /// Reads and checks a workload file and the body files it names.
    ///
    /// **Errors**: every problem found, each with its place.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let text = fs_err::read_to_string(path).map_err(|error| {
            Problems(vec![
                Problem::new(
                    Location::start_of(path),
                    format!("the workload file cannot be read: {}", error.kind()),
                )
                .with_hint("paths in a matrix are relative to the matrix file"),
            ])
        })?;
        Self::parse(path, &text)
    }

    /// Checks the text of a workload file; body files are read relative to it.
    ///
    /// **Errors**: every problem found, each with its place.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Problems> {
        workload_file::parse(file, text)
    }

    /// A workload of one plain GET; any status from 200 to 299 is a success.
    ///
    /// The path is taken as it is: a dollar in it is a dollar.
    pub fn get(path: &str) -> Self {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Self {
            operations: vec![Operation {
                name: Pieces::text(format!("GET {path}")),
                method: Method::GET,
                path: Pieces::text(path),
                ..Operation::default()
            }],
            captures: Vec::new(),
            refused: vec![429],
            on_failure: OnFailure::Abort,
            cookies: Cookies::Off,
            variables: Vec::new(),
            environment: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Names it uses and does not define: they must be axes or derived values.
    ///
    /// **Shape**: each name once, in the order of first use; `env.` names are
    /// in [`Workload::environment`] instead.
    pub fn variables(&self) -> &[VariableUse] {
        &self.variables
    }

    /// Names of environment variables it uses, each once, without `env.`.
    pub fn environment(&self) -> &[VariableUse] {
        &self.environment
    }

    /// The body files it has read, each once.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Requests of one whole journey; at least 1.
    pub fn requests_per_journey(&self) -> usize {
        self.operations.len()
    }

    /// Names of the operations in journey order, each once.
    ///
    /// A part that only the cell decides is shown as `${name}`.
    pub fn operation_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for operation in &self.operations {
            let name = operation.name.describe(&self.captures);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}
