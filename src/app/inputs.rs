//! Everything a command reads before it does anything: matrix, Compose files,
//! workload, and what they say of each other. All problems are collected.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;

use super::environment::Environment;
use super::error::AppError;
use super::jobs::check_reached;
use super::journeys::{check_beside, shared_rows};
use super::script::Scripts;
use super::state::{check_kept, check_names, check_stack_state, seed_workload};
use super::wire::tls_of;
use crate::cli::MatrixArgs;
use crate::load::Workload;
use crate::matrix::{self, Cell, LoadSource, Located, Plan, Sweep};
use crate::problem::{Location, Problem, Problems, nearest};
use crate::secret::Secrets;
use crate::stack::{ComposeFiles, Origins, ResolveRequest, Stack};
use crate::tls::TlsClient;

/// What was read and fits together.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) sweep: Sweep,
    pub(super) matrix_text: String,
    pub(super) compose: ComposeFiles,
    /// What our own generator sends; `None` where a k6 script makes the load.
    pub(super) workload: Option<Arc<Workload>>,
    /// What k6 runs, by cell.
    pub(super) scripts: Scripts,
    /// The workload or script and the files it names, as they were read.
    pub(super) workload_bytes: Vec<(PathBuf, Vec<u8>)>,
    /// What fills golden volumes, and its files as they were read.
    pub(super) seed_workload: Option<Arc<Workload>>,
    pub(super) seed_bytes: Vec<(PathBuf, Vec<u8>)>,
    pub(super) plan: Plan,
    /// Cells of the sweep that `--only` leaves out.
    unselected: Vec<Cell>,
    pub(super) secrets: Secrets,
    settings: IndexMap<String, String>,
    environment: BTreeMap<String, String>,
    roots: Vec<String>,
    profiles: Vec<String>,
    shared: Vec<String>,
    /// TLS for whatever is asked over it.
    pub(super) tls: Option<TlsClient>,
    /// Names that the services that are started read.
    reached_by_stack: BTreeSet<String>,
}

impl Inputs {
    /// Reads everything and plans; `only` keeps the cells for which it is true.
    ///
    /// **Errors**: every problem of every file.
    pub(super) fn read(
        arguments: &MatrixArgs,
        only: Option<&str>,
        environment: &Environment,
    ) -> Result<Self, AppError> {
        let path = &arguments.matrix;
        let matrix_text = read_matrix(path)?;
        let mut sweep = matrix::read(path, &matrix_text)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let settings: IndexMap<String, String> = arguments.settings.iter().cloned().collect();
        let (compose, workload) = read_files(&sweep, folder, environment, &settings)?;

        let mut problems = Vec::new();
        check_settings(&sweep, &settings, path, &mut problems);
        check_services(&sweep, &compose, &mut problems);
        if let Some((workload, _)) = &workload {
            check_workload_names(&sweep, workload, &settings, environment, &mut problems);
            check_operations(&sweep, workload, &mut problems);
            check_beside(&sweep, workload, &mut problems);
        }
        let mut scripts = Scripts::first(&mut sweep, &settings, environment, &mut problems)?;
        check_names(&sweep, &compose, folder, &mut problems);
        let seed_workload = seed_workload(&sweep, folder, &mut problems);
        if let Some(seed) = &seed_workload {
            check_workload_names(&sweep, seed, &settings, environment, &mut problems);
        }
        let sent = workload
            .iter()
            .flat_map(|(workload, _)| workload.variables());
        let by_load: BTreeSet<String> = sent
            .chain(seed_workload.iter().flat_map(|seed| seed.variables()))
            .map(|used| used.name.clone())
            .chain(sweep.used_names())
            .chain(scripts.names_read(&sweep))
            .collect();
        let anywhere = compose.variables().union(&by_load).cloned().collect();
        let plan = match matrix::plan(&sweep, &anywhere) {
            Ok(plan) => plan,
            Err(more) => {
                problems.extend(more.0);
                return Err(Problems(problems).into());
            }
        };
        let seed_path = sweep
            .seed
            .as_ref()
            .and_then(|seed| seed.workload.as_ref())
            .map(|path| folder.join(&path.value));
        let mut inputs = Self {
            roots: roots_of(&sweep, &compose),
            profiles: values(&sweep.profiles),
            shared: values(&sweep.trials.shared),
            secrets: Secrets::new(environment.salt()),
            environment: environment.variables().clone(),
            reached_by_stack: BTreeSet::new(),
            tls: tls_of(&sweep, folder, &mut problems),
            sweep,
            matrix_text,
            compose,
            workload_bytes: match &workload {
                Some((workload, path)) => bytes_of(path, workload)?,
                None => Vec::new(),
            },
            workload: workload.map(|(workload, _)| Arc::new(workload)),
            scripts: Scripts::default(),
            seed_bytes: seed_bytes(seed_path.as_deref(), seed_workload.as_deref())?,
            seed_workload,
            plan,
            unselected: Vec::new(),
            settings,
        };
        inputs.reveal_names_and_levels();
        inputs.hide_named_secrets(&scripts);
        inputs.try_first_cells(&mut problems);
        let reached: BTreeSet<String> = inputs.reached_by_stack.union(&by_load).cloned().collect();
        // An axis that only a service outside this stack reads changes nothing.
        if problems.is_empty() && reached != anywhere {
            inputs.plan = matrix::plan(&inputs.sweep, &reached)?;
        }
        problems.sort();
        problems.dedup();
        if !problems.is_empty() {
            return Err(Problems(problems).into());
        }
        if let Some(only) = only {
            let all = inputs.plan.cells.clone();
            inputs.plan.retain("--only", only)?;
            let is_left_out = |cell: &Cell| inputs.plan.cell_by_id(cell.id().as_str()).is_none();
            inputs.unselected = all.into_iter().filter(is_left_out).collect();
        }
        if let Some(workload) = &inputs.workload {
            let shared = shared_rows(&inputs.plan, workload);
            inputs.plan.warnings.extend(shared);
        }
        scripts.read_cells(&inputs.sweep, &mut inputs.plan, &inputs.settings)?;
        inputs.workload_bytes.extend(scripts.files(inputs.folder()));
        inputs.scripts = scripts;
        Ok(inputs)
    }

    /// Resolves one cell of each tier, which shows nearly every problem of the Compose files.
    fn try_first_cells(&mut self, problems: &mut Vec<Problem>) {
        let mut seen = BTreeSet::new();
        for cell in 0..self.plan.cells.len() {
            if !seen.insert(self.plan.tier_of(cell).to_string()) {
                continue;
            }
            match self.resolve(cell) {
                Ok(stack) => {
                    check_stack_state(&self.sweep, &stack, problems);
                    check_reached(&self.sweep, &stack, problems);
                }
                Err(more) => problems.extend(more.0),
            }
        }
    }

    /// The folder that paths of the matrix start in.
    pub(super) fn folder(&self) -> &Path {
        self.sweep.file.parent().unwrap_or(Path::new(""))
    }

    /// The stack of a cell; secrets met on the way are hidden from then on.
    ///
    /// **Errors**: every problem of what would be started.
    pub(super) fn resolve(&mut self, cell: usize) -> Result<Stack, Problems> {
        self.resolve_with(cell, &[])
    }

    /// The same with services that trials do not start.
    pub(super) fn resolve_with(&mut self, cell: usize, more: &[String]) -> Result<Stack, Problems> {
        let cell = self.plan.cells[cell].clone();
        self.resolve_cell(&cell, more)
    }

    /// The stacks of cells that `--only` leaves out, where they can be resolved.
    pub(super) fn unselected_stacks(&mut self, more: &[String]) -> Vec<Stack> {
        let cells = self.unselected.clone();
        let stacks = cells.iter().map(|cell| self.resolve_cell(cell, more));
        stacks.filter_map(Result::ok).collect()
    }

    fn resolve_cell(&mut self, cell: &Cell, more: &[String]) -> Result<Stack, Problems> {
        let variables = self.compose_variables(cell);
        let roots: Vec<String> = self.roots.iter().chain(more).cloned().collect();
        let request = ResolveRequest {
            roots: &roots,
            ..self.request(&variables)
        };
        let resolution = self.compose.resolve(&request)?;
        for secret in &resolution.secrets {
            self.secrets.hide(secret);
        }
        // Derived values are results as well.
        for value in variables.values() {
            self.secrets.reveal(value);
        }
        self.reached_by_stack.extend(resolution.variables);
        Ok(resolution.stack)
    }

    /// Where the values of a cell's stack came from.
    pub(super) fn explain(&self, cell: usize, stack: &Stack) -> Origins {
        let variables = self.compose_variables(&self.plan.cells[cell]);
        self.compose.explain(&self.request(&variables), stack)
    }

    /// What a cell puts into the Compose files, with what `--set` gives.
    fn compose_variables(&self, cell: &Cell) -> IndexMap<String, String> {
        let mut variables = self.settings.clone();
        variables.extend(Self::variables_of(cell));
        variables
    }

    fn request<'a>(&'a self, variables: &'a IndexMap<String, String>) -> ResolveRequest<'a> {
        ResolveRequest {
            cell: variables,
            environment: &self.environment,
            roots: &self.roots,
            profiles: &self.profiles,
            shared: &self.shared,
        }
    }

    /// The stacks of all cells, in the order of the plan.
    ///
    /// **Errors**: every problem of any cell, each once.
    pub(super) fn resolve_all(&mut self) -> Result<Vec<Arc<Stack>>, Problems> {
        let mut stacks = Vec::new();
        let mut problems = Vec::new();
        for cell in 0..self.plan.cells.len() {
            match self.resolve(cell) {
                Ok(stack) => stacks.push(Arc::new(stack)),
                Err(more) => problems.extend(more.0),
            }
        }
        check_kept(&self.sweep, &stacks, &mut problems);
        problems.sort();
        problems.dedup();
        if problems.is_empty() {
            Ok(stacks)
        } else {
            Err(Problems(problems))
        }
    }

    /// Axes and derived values of a cell as text, by name.
    pub(super) fn variables_of(cell: &Cell) -> IndexMap<String, String> {
        cell.variables()
            .map(|(name, text)| (name.to_owned(), text))
            .collect()
    }

    /// What the workload may name for a cell: its values, `--set`, and `env.X`.
    pub(super) fn workload_variables(&self, cell: &Cell) -> IndexMap<String, String> {
        let mut variables = self.settings.clone();
        variables.extend(Self::variables_of(cell));
        let seed = self
            .seed_workload
            .iter()
            .flat_map(|seed| seed.environment());
        let sent = self.workload.iter().flat_map(|sent| sent.environment());
        for used in sent.chain(seed) {
            if let Some(value) = self.environment.get(&used.name) {
                variables.insert(format!("env.{}", used.name), value.clone());
            }
        }
        variables
    }

    /// What `--set` gave, plain by choice.
    pub(super) fn settings(&self) -> &IndexMap<String, String> {
        &self.settings
    }

    /// Whether load goes to a service of the stack.
    pub(super) fn target_is_service(&self) -> bool {
        let host = &self.sweep.load.target.value.host;
        self.compose.service_names().iter().any(|name| name == host)
    }

    /// Services that nightsweep itself must reach: the target, and those of `[[prove]]`.
    pub(super) fn asked_services(&self) -> Vec<String> {
        let target = &self.sweep.load.target.value.host;
        let proving = self.sweep.proves.iter().map(|prove| &prove.url.value.host);
        let names = self.compose.service_names();
        let asked = std::iter::once(target).chain(proving);
        asked.filter(|name| names.contains(name)).cloned().collect()
    }

    /// Names and levels are what results are told by; `--set` is plain by choice.
    fn reveal_names_and_levels(&mut self) {
        let sweep = &self.sweep;
        let levels = sweep
            .axes
            .iter()
            .flat_map(|axis| &axis.levels)
            .map(ToString::to_string);
        let names = sweep.names().iter().cloned().chain([sweep.name.clone()]);
        let services = self.compose.service_names();
        let plain = levels
            .chain(names)
            .chain(services)
            .chain(self.settings.values().cloned());
        for text in plain.collect::<Vec<_>>() {
            self.secrets.reveal(&text);
        }
    }

    fn hide_named_secrets(&mut self, scripts: &Scripts) {
        let named = self.sweep.secrets.iter().map(|name| &name.value);
        let seed = self
            .seed_workload
            .iter()
            .flat_map(|seed| seed.environment());
        let sent = self.workload.iter().flat_map(|sent| sent.environment());
        let used = sent.chain(seed).map(|used| used.name.as_str());
        let named = named.map(String::as_str);
        for name in named.chain(used).chain(scripts.environment_names()) {
            if let Some(value) = self.environment.get(name) {
                self.secrets.hide(value);
            }
        }
    }
}

fn values(located: &[Located<String>]) -> Vec<String> {
    located
        .iter()
        .map(|located| located.value.clone())
        .collect()
}

fn seed_bytes(
    path: Option<&Path>,
    workload: Option<&Workload>,
) -> Result<Vec<(PathBuf, Vec<u8>)>, AppError> {
    match (path, workload) {
        (Some(path), Some(workload)) => bytes_of(path, workload),
        _ => Ok(Vec::new()),
    }
}

fn bytes_of(path: &Path, workload: &Workload) -> Result<Vec<(PathBuf, Vec<u8>)>, AppError> {
    let files = std::iter::once(path).chain(workload.files().iter().map(PathBuf::as_path));
    files
        .map(|file| {
            Ok((
                file.to_owned(),
                fs_err::read(file).map_err(AppError::input)?,
            ))
        })
        .collect()
}

fn read_matrix(path: &Path) -> Result<String, AppError> {
    match fs_err::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => {
            let not_found = error.kind() == std::io::ErrorKind::NotFound;
            let error = AppError::input(anyhow::Error::new(error).context("read the matrix"));
            Err(if not_found {
                error.hint("name the matrix file, or let `nightsweep init` write one beside your Compose file")
            } else {
                error
            })
        }
    }
}

/// The files the matrix names; problems of both kinds together.
fn read_files(
    sweep: &Sweep,
    folder: &Path,
    environment: &Environment,
    settings: &IndexMap<String, String>,
) -> Result<(ComposeFiles, Option<(Workload, PathBuf)>), Problems> {
    let mut problems = Vec::new();
    let paths: Vec<PathBuf> = sweep
        .stack
        .iter()
        .map(|file| folder.join(&file.value))
        .collect();
    let missing = |path: &Path| !path.exists();
    for (file, path) in sweep
        .stack
        .iter()
        .zip(&paths)
        .filter(|(_, path)| missing(path))
    {
        let message = format!("there is no Compose file `{}`", path.display());
        let hint = "paths are relative to the matrix file".to_owned();
        problems.push(Problem::new(file.location.clone(), message).with_hint(hint));
    }
    let (what, named) = match &sweep.load.source {
        LoadSource::Workload(workload) => ("workload file", workload),
        LoadSource::K6(k6) => ("k6 script", &k6.script),
    };
    let sent_path = folder.join(&named.value);
    let is_sent_missing = missing(&sent_path);
    if is_sent_missing {
        let message = format!("there is no {what} `{}`", sent_path.display());
        let hint = "paths are relative to the matrix file".to_owned();
        problems.push(Problem::new(named.location.clone(), message).with_hint(hint));
    }
    let compose = if problems
        .iter()
        .any(|problem| problem.message.contains("Compose"))
    {
        None
    } else {
        let read = ComposeFiles::read_in(&paths, environment.variables(), settings);
        let read = read.and_then(|files| match &sweep.overrides {
            Some(tree) => files.with_override(tree),
            None => Ok(files),
        });
        read.map_err(|more| problems.extend(more.0)).ok()
    };
    let is_workload = matches!(sweep.load.source, LoadSource::Workload(_));
    let mut workload = None;
    if is_workload && !is_sent_missing {
        match Workload::read(&sent_path) {
            Ok(read) => workload = Some((read, sent_path)),
            Err(more) => problems.extend(more.0),
        }
    }
    match compose {
        Some(compose) if problems.is_empty() => Ok((compose, workload)),
        _ => Err(Problems(problems)),
    }
}

fn check_settings(
    sweep: &Sweep,
    settings: &IndexMap<String, String>,
    path: &Path,
    problems: &mut Vec<Problem>,
) {
    for name in settings.keys().filter(|name| sweep.names().contains(name)) {
        let message = format!("`--set {name}=...` names an axis or derived value of the matrix");
        problems.push(
            Problem::new(Location::start_of(path), message)
                .with_hint("the matrix decides its value"),
        );
    }
}

fn check_services(sweep: &Sweep, compose: &ComposeFiles, problems: &mut Vec<Problem>) {
    let names = compose.service_names();
    let known = || names.join(", ");
    let mut unknown = |what: &str, name: &str, location: &Location| {
        if !names.iter().any(|known| known == name) {
            let near = nearest(name, names.iter().map(String::as_str));
            let hint = near.map_or_else(
                || format!("services: {}", known()),
                |near| format!("did you mean `{near}`?"),
            );
            let message = format!("{what} `{name}` is not a service of the Compose files");
            problems.push(Problem::new(location.clone(), message).with_hint(hint));
        }
    };
    unknown("subject", &sweep.subject.value, &sweep.subject.location);
    for service in &sweep.services {
        unknown("service", &service.value, &service.location);
    }
    for prove in &sweep.proves {
        unknown("service", &prove.url.value.host, &prove.url.location);
    }
    // A host name with a dot or a colon, and this host, are addresses outside the stack.
    let target = &sweep.load.target;
    let host = &target.value.host;
    if !host.contains(['.', ':']) && host != "localhost" {
        unknown("target", host, &target.location);
    }
}

fn check_workload_names(
    sweep: &Sweep,
    workload: &Workload,
    settings: &IndexMap<String, String>,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) {
    for used in workload.variables() {
        if sweep.names().contains(&used.name) || settings.contains_key(&used.name) {
            continue;
        }
        let near = nearest(&used.name, sweep.names().iter().map(String::as_str));
        let hint = match near.or(used.similar.as_deref()) {
            Some(near) => format!("did you mean `${{{near}}}`?"),
            None => format!("axes and derived values are {}", sweep.names().join(", ")),
        };
        let message = format!(
            "`${{{}}}` is no axis, derived value, capture or table field",
            used.name
        );
        problems.push(Problem::new(used.location.clone(), message).with_hint(hint));
    }
    for used in workload.environment() {
        if !environment.variables().contains_key(&used.name) {
            let message = format!(
                "`${{env.{0}}}`: the environment variable {0} is not set",
                used.name
            );
            let hint = format!(
                "set it before the command: `{}=... nightsweep ...`",
                used.name
            );
            problems.push(Problem::new(used.location.clone(), message).with_hint(hint));
        }
    }
}

/// A threshold of an operation that is never sent would always hold, a service level of it
/// never be met.
fn check_operations(sweep: &Sweep, workload: &Workload, problems: &mut Vec<Problem>) {
    let names = workload.operation_names();
    // Those that hold values of a cell are known per cell only.
    if names.iter().any(|name| name.contains("${")) {
        return;
    }
    let of_thresholds = sweep.thresholds.iter().filter_map(|rule| {
        let operation = rule.threshold.operation.as_ref()?;
        Some((rule.operation.as_ref()?, operation))
    });
    let of_levels = sweep.slo.operations.iter();
    let of_levels = of_levels.map(|slo| (&slo.operation.location, &slo.operation.value));
    for (location, operation) in of_thresholds.chain(of_levels) {
        if !names.contains(operation) {
            let near = nearest(operation, names.iter().map(String::as_str));
            let hint = near.map_or_else(
                || format!("the workload's operations are {}", names.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            let message = format!("the workload has no operation `{operation}`");
            problems.push(Problem::new(location.clone(), message).with_hint(hint));
        }
    }
}

/// Subject, target and what the matrix asks for besides.
fn roots_of(sweep: &Sweep, compose: &ComposeFiles) -> Vec<String> {
    let names = compose.service_names();
    let mut roots = Vec::new();
    let subject = &sweep.subject.value;
    let target = &sweep.load.target.value.host;
    let more = sweep.services.iter().map(|service| &service.value);
    let proving = sweep.proves.iter().map(|prove| &prove.url.value.host);
    let more = more.chain(proving);
    // A name that is no service has been noted and must not hide other problems.
    let wanted = [subject, target].into_iter().chain(more);
    for name in wanted {
        if names.contains(name) && !roots.contains(name) {
            roots.push(name.clone());
        }
    }
    roots
}
