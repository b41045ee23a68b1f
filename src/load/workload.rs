//! A checked workload: journeys as lists of operations.
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

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::HeaderName;
use indexmap::IndexMap;

use super::data::{DataSet, Pick};
use super::expect::Expect;
use super::prepare::typed;
use super::template::{JsonTemplate, Pieces};
use super::workload_file;
use crate::problem::{Location, Problem, Problems};
use crate::reported::JsonPath;

/// A checked workload file.
#[derive(Debug)]
pub struct Workload {
    /// Those of all journeys, in file order.
    pub(super) operations: Vec<Operation>,
    /// At least one.
    pub(super) journeys: Vec<Journey>,
    pub(super) weight_of: WeightOf,
    /// Those of the whole load before those of each user.
    pub(super) setups: Vec<Setup>,
    pub(super) data: Arc<[DataSet]>,
    /// Names of captures; a capture is known by its index here.
    pub(super) captures: Vec<String>,
    pub(super) refused: Vec<u16>,
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

/// One journey: what a user does from beginning to end.
#[derive(Debug, Clone)]
pub(super) struct Journey {
    /// Empty where the file has top-level steps.
    pub(super) name: String,
    /// Its share among the others; 0 where it is only ever run beside others.
    pub(super) weight: f64,
    pub(super) on_failure: OnFailure,
    /// Which of the operations are its own.
    pub(super) operations: Range<usize>,
    /// Data sets of which it takes a row.
    pub(super) data: Vec<usize>,
}

/// What the weights of journeys are shares of; see `mix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WeightOf {
    /// Of the journeys that are begun.
    #[default]
    Journeys,
    /// Of the users of a closed loop.
    Users,
}

/// Requests that come before the journeys and are in no figure.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) scope: SetupScope,
    /// After which time it is done again.
    pub(super) renew: Option<Duration>,
    pub(super) operations: Vec<Operation>,
    /// Data sets of which it takes a row.
    pub(super) data: Vec<usize>,
}

/// Whom a set-up is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetupScope {
    /// Each virtual user.
    User,
    /// All of a load.
    Trial,
}

/// A data file whose rows belong to users, for those who plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRows {
    /// Its name.
    pub name: String,
    /// How many it has.
    pub rows: usize,
}

/// A journey, for those who plan.
#[derive(Debug, Clone, PartialEq)]
pub struct JourneyShape {
    /// Its name; empty where the file has one journey without a name.
    pub name: String,
    /// Its share of all, from 0 to 1.
    pub share: f64,
    /// Requests of one.
    pub requests: usize,
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
    pub(super) repeat: Option<Box<RepeatUntil>>,
    /// Instead of the load's own.
    pub(super) timeout: Option<Duration>,
    /// Refused beside the workload's own.
    pub(super) refused: Vec<u16>,
    /// Most redirects that are followed.
    pub(super) redirects: u8,
}

/// Until when an operation is sent again; see `repeat`.
#[derive(Debug, Clone)]
pub(super) struct RepeatUntil {
    pub(super) until: Expect<Pieces>,
    pub(super) every: Duration,
    pub(super) at_most: u32,
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
        Self::single(Method::GET, path, &[], None, 0)
    }

    /// A workload of one plain request; any status from 200 to 299 is a success.
    ///
    /// Path, headers and body are taken as they are: a dollar in them is a dollar.
    pub fn single(
        method: Method,
        path: &str,
        headers: &[(HeaderName, String)],
        body: Option<Vec<u8>>,
        redirects: u8,
    ) -> Self {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Self {
            operations: vec![Operation {
                name: Pieces::text(format!("{method} {path}")),
                method,
                path: Pieces::text(path),
                headers: headers
                    .iter()
                    .map(|(name, value)| (name.clone(), Pieces::text(value.clone())))
                    .collect(),
                body: body.map_or(Body::None, |bytes| match String::from_utf8(bytes) {
                    Ok(text) => Body::Text(Pieces::text(text)),
                    Err(not_text) => Body::Bytes(not_text.into_bytes().into()),
                }),
                redirects,
                ..Operation::default()
            }],
            journeys: vec![Journey {
                name: String::new(),
                weight: 1.0,
                on_failure: OnFailure::Abort,
                operations: 0..1,
                data: Vec::new(),
            }],
            weight_of: WeightOf::default(),
            setups: Vec::new(),
            data: Arc::new([]),
            captures: Vec::new(),
            refused: vec![429],
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

    /// The body and data files it has read, each once.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Requests of its set-ups and of each journey once; at least 1.
    pub fn requests_once(&self) -> usize {
        let of_setups = self.setups.iter().map(|setup| setup.operations.len());
        self.operations.len() + of_setups.sum::<usize>()
    }

    /// Its journeys, in file order; at least one.
    pub fn journeys(&self) -> Vec<JourneyShape> {
        let sum: f64 = self.journeys.iter().map(|journey| journey.weight).sum();
        let shape = |journey: &Journey| JourneyShape {
            name: journey.name.clone(),
            share: journey.weight / sum,
            requests: journey.operations.len(),
        };
        self.journeys.iter().map(shape).collect()
    }

    /// Data files with a row for each user.
    pub fn user_rows(&self) -> Vec<UserRows> {
        let sets = self.data.iter().filter(|set| set.pick == Pick::PerUser);
        let rows = sets.map(|set| UserRows {
            name: set.name.clone(),
            rows: set.n_rows(),
        });
        rows.collect()
    }

    /// Names of the operations in the order of the journeys, each once; one name in two
    /// journeys is one operation.
    ///
    /// A part that only the cell decides is shown as `${name}`.
    pub fn operation_names(&self) -> Vec<String> {
        self.names(|name| name.describe(&self.captures))
    }

    /// The same with the values that a load has; what it has none for stays open.
    pub fn operation_names_with(&self, variables: &IndexMap<String, String>) -> Vec<String> {
        let value_of = |name: &str| variables.get(name).map(|text| typed(name, text));
        self.names(|name| {
            let fixed = name.fix(&value_of);
            fixed.as_ref().unwrap_or(name).describe(&self.captures)
        })
    }

    fn names(&self, name_of: impl Fn(&Pieces) -> String) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for operation in &self.operations {
            let name = name_of(&operation.name);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}
