//! The k6 script of a matrix: read by k6 for every cell before anything starts.
//!
//! What a script is may depend on the values it is given. So it is read once for
//! the first cell, which shows the names it reads and cuts the windows out of it,
//! and once for every other set of these names' values.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::environment::Environment;
use super::error::AppError;
use crate::load::k6::{Binary, Cut, K6Error, Script, Stretch, TARGET, stretches};
use crate::matrix::{
    self, Cell, K6Load, LoadSource, Located, Phase, PhaseLoad, Plan, Stage, Sweep,
};
use crate::problem::{Location, Problem, Problems};
use crate::sweep::JobScript;

/// The script of each cell; empty where no script makes the load.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    /// The k6 that runs them.
    pub(super) binary: Option<Binary>,
    first: Option<Arc<Script>>,
    by_cell: Vec<Arc<Script>>,
    is_tied: Vec<bool>,
    stretches: Vec<Stretch>,
    hosts: Vec<String>,
}

/// Values of the names that a script reads.
type Seen = Vec<(String, String)>;

/// What a phase asks of the script, as it stands in the file.
fn cut_of(phase: &Phase) -> Cut {
    // A phase of a script is one stage.
    match phase.stages.first().map(|stage| &stage.load) {
        Some(PhaseLoad::Script {
            scenario,
            from,
            duration,
            ..
        }) => Cut {
            scenario: scenario.as_ref().map(|name| name.value.clone()),
            from: *from,
            duration: *duration,
        },
        Some(PhaseLoad::Closed { .. } | PhaseLoad::Open { .. }) | None => Cut::default(),
    }
}

impl Scripts {
    /// Reads the script for the first cell, and puts what it does into the sweep's phases.
    ///
    /// **Errors**: there is no k6 that can be used.
    pub(super) fn first(
        sweep: &mut Sweep,
        settings: &IndexMap<String, String>,
        environment: &Environment,
        problems: &mut Vec<Problem>,
    ) -> Result<Self, AppError> {
        let LoadSource::K6(k6) = sweep.load.source.clone() else {
            return Ok(Self::default());
        };
        for hook in &sweep.hooks {
            let message = "[[hook]] and a k6 script: a script does not wait for commands";
            let problem = Problem::new(hook.location.clone(), message);
            problems.push(problem.with_hint("run the command by a service of the stack"));
        }
        let binary = find(&k6, sweep, environment)?;
        let mut scripts = Self {
            hosts: hosts(&k6, sweep),
            binary: Some(binary),
            ..Self::default()
        };
        let all = sweep.names().iter().cloned().collect();
        // What is wrong with the matrix itself is told by whoever plans for good.
        let Ok(plan) = matrix::plan(sweep, &all) else {
            return Ok(scripts);
        };
        match scripts.read(&k6, sweep, &plan.cells[0], settings) {
            Ok(script) => scripts.cut(sweep, script, problems),
            Err(error) if error.is_environment() => return Err(environment_error(error)),
            Err(error) => problems.push(problem_of(&k6, &error)),
        }
        Ok(scripts)
    }

    /// Puts the whole run of the script in place of the windows that are cut out of it.
    fn cut(&mut self, sweep: &mut Sweep, script: Script, problems: &mut Vec<Problem>) {
        let cuts: Vec<Cut> = sweep.phases.iter().map(cut_of).collect();
        match stretches(&cuts, &script.options) {
            Ok(found) => {
                sweep.phases = phases(&sweep.phases, &found);
                self.stretches = found;
            }
            Err(wrong) => problems.extend(wrong.into_iter().map(|(index, words)| {
                let phase = &sweep.phases[index];
                let message = format!("window `{}` {words}", phase.name);
                Problem::new(phase.location.clone(), message)
            })),
        }
        self.first = Some(Arc::new(script));
    }

    /// Names of axes and derived values that the script reads.
    pub(super) fn names_read<'a>(&'a self, sweep: &'a Sweep) -> impl Iterator<Item = String> + 'a {
        let first = self.first.iter();
        first.flat_map(|script| {
            let names = sweep.names().iter();
            names.filter(|name| script.reads(name)).cloned()
        })
    }

    /// Environment variables that the script reads by name.
    pub(super) fn environment_names(&self) -> impl Iterator<Item = &str> {
        self.first.iter().flat_map(|script| script.names())
    }

    /// Reads the script for every cell of a plan.
    ///
    /// **Errors**: k6 refuses it for a cell, or its windows are elsewhere there.
    pub(super) fn read_cells(
        &mut self,
        sweep: &Sweep,
        plan: &mut Plan,
        settings: &IndexMap<String, String>,
    ) -> Result<(), AppError> {
        let (LoadSource::K6(k6), Some(first)) = (&sweep.load.source, self.first.clone()) else {
            return Ok(());
        };
        let mut known: Vec<(Seen, Arc<Script>)> = Vec::new();
        for cell in &plan.cells {
            let seen: Seen = values(k6, cell, settings)
                .into_iter()
                .filter(|(name, _)| first.reads(name))
                .collect();
            if let Some((_, script)) = known.iter().find(|(values, _)| *values == seen) {
                self.by_cell.push(Arc::clone(script));
                continue;
            }
            let script = self.read(k6, sweep, cell, settings).map_err(|error| {
                if error.is_environment() {
                    return environment_error(error);
                }
                let mut problem = problem_of(k6, &error);
                problem.message = format!("in cell {}, {}", cell.id(), problem.message);
                Problems(vec![problem]).into()
            })?;
            self.check_alike(sweep, k6, cell, &script)?;
            let script = Arc::new(script);
            known.push((seen, Arc::clone(&script)));
            self.by_cell.push(script);
        }
        self.find_tied(plan);
        Ok(())
    }

    /// Windows are the same for all cells, or they could not be compared.
    fn check_alike(
        &self,
        sweep: &Sweep,
        k6: &K6Load,
        cell: &Cell,
        script: &Script,
    ) -> Result<(), Problems> {
        let windows = sweep.phases.iter().zip(&self.stretches);
        let cuts: Vec<Cut> = windows
            .filter(|(_, stretch)| stretch.cut.is_some())
            .map(|(phase, _)| cut_of(phase))
            .collect();
        let edges = |all: &[Stretch]| -> Vec<_> {
            let windows = all.iter().filter(|one| one.cut.is_some());
            windows.map(|one| (one.from, one.to, one.is_open)).collect()
        };
        let found = stretches(&cuts, &script.options);
        if found.is_ok_and(|found| edges(&found) == edges(&self.stretches)) {
            return Ok(());
        }
        let message = format!(
            "in cell {} the script's scenarios begin or end at other times: windows must be the same in all cells",
            cell.id()
        );
        let problem = Problem::new(k6.script.location.clone(), message);
        Err(Problems(vec![problem.with_hint(
            "let values of a cell change how much load there is, not when",
        )]))
    }

    /// Finds cells whose load is not that of all others in their tier.
    fn find_tied(&mut self, plan: &mut Plan) {
        let mut tiers: IndexMap<String, Vec<usize>> = IndexMap::new();
        for cell in 0..plan.cells.len() {
            let tier = plan.tier_of(cell).to_string();
            tiers.entry(tier).or_default().push(cell);
        }
        self.is_tied = vec![false; plan.cells.len()];
        let mut tied = Vec::new();
        for (tier, cells) in &tiers {
            let first = &self.by_cell[cells[0]];
            if cells
                .iter()
                .any(|cell| !self.by_cell[*cell].is_same_load(first))
            {
                tied.push(tier.as_str());
                for cell in cells {
                    self.is_tied[*cell] = true;
                }
            }
        }
        if !tied.is_empty() {
            plan.warnings.push(format!(
                "load_tied_to_knob: the script's options differ between cells of tier {} = {}, so throughput and p99 move with the knob by themselves",
                plan.tier(),
                tied.join(", ")
            ));
        }
    }

    /// Whether the load of a cell differs from that of others in its tier.
    pub(super) fn is_tied(&self, cell: usize) -> bool {
        self.is_tied.get(cell).copied().unwrap_or(false)
    }

    /// The script of a cell as its trials run it.
    pub(super) fn of(&self, cell: usize) -> Option<JobScript> {
        let script = self.by_cell.get(cell)?;
        Some(JobScript {
            script: Arc::clone(script),
            hosts: self.hosts.clone(),
            stretches: self.stretches.clone(),
        })
    }

    /// The script and all files it is made of, for any cell; those below the matrix' folder
    /// as seen from it.
    pub(super) fn files(&self, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let real = std::path::absolute(folder.join("x"));
        let real = real.map(|inside| inside.with_file_name(""));
        let from_folder = |path: &Path| match &real {
            Ok(real) => path
                .strip_prefix(real)
                .ok()
                .map(|inside| folder.join(inside)),
            Err(_) => None,
        };
        let mut files: IndexMap<PathBuf, Vec<u8>> = IndexMap::new();
        for (path, bytes) in self.by_cell.iter().flat_map(|script| script.files()) {
            let path = from_folder(path).unwrap_or_else(|| path.clone());
            files.entry(path).or_insert_with(|| bytes.clone());
        }
        files.into_iter().collect()
    }

    /// What the manifest says of k6; null where it makes no load.
    pub(super) fn record(&self) -> Value {
        let (Some(binary), Some(script)) = (&self.binary, &self.first) else {
            return Value::Null;
        };
        let scenarios = script.options.scenarios.iter().map(|scenario| {
            json!({
                "name": scenario.name,
                "executor": scenario.executor,
                "start_s": scenario.start.as_secs_f64(),
                "duration_s": scenario.duration.as_secs_f64(),
            })
        });
        json!({
            "version": binary.version,
            "path": binary.path,
            "script": script.path,
            "hosts": self.hosts,
            "scenarios": scenarios.collect::<Vec<_>>(),
        })
    }

    fn read(
        &self,
        k6: &K6Load,
        sweep: &Sweep,
        cell: &Cell,
        settings: &IndexMap<String, String>,
    ) -> Result<Script, K6Error> {
        let Some(binary) = &self.binary else {
            let place = "PATH".to_owned();
            return Err(K6Error::Missing { place });
        };
        let path = in_folder(sweep, &k6.script);
        let target = &sweep.load.target.value.text;
        Script::read(binary, &path, &values(k6, cell, settings), target)
    }
}

/// What a script is given for a cell: `--set`, axes and derived values, and what the
/// matrix says.
fn values(
    k6: &K6Load,
    cell: &Cell,
    settings: &IndexMap<String, String>,
) -> IndexMap<String, String> {
    let mut values = settings.clone();
    values.extend(cell.variables().map(|(name, text)| (name.to_owned(), text)));
    for (name, text) in &k6.env {
        let text = text.with(cell, |name| (name == "target").then(|| TARGET.to_owned()));
        values.insert(name.clone(), text);
    }
    values
}

/// The target's port on this host, where scripts often look for it, and what the matrix says.
fn hosts(k6: &K6Load, sweep: &Sweep) -> Vec<String> {
    let port = sweep.load.target.value.port;
    let mut hosts = vec![format!("localhost:{port}"), format!("127.0.0.1:{port}")];
    for host in &k6.hosts {
        if !hosts.contains(&host.value) {
            hosts.push(host.value.clone());
        }
    }
    hosts
}

/// The phases of a run: the windows of the file, and what lies around them.
fn phases(windows: &[Phase], stretches: &[Stretch]) -> Vec<Phase> {
    let mut phases = Vec::new();
    let mut behind = None;
    let mut names: Vec<String> = windows.iter().map(|phase| phase.name.clone()).collect();
    for (index, stretch) in stretches.iter().enumerate() {
        let window = stretch.cut.map(|cut| &windows[cut]);
        let next = stretches[index + 1..].iter().find_map(|one| one.cut);
        let place = |words: &str, phase: &Phase| format!("{words} {}", phase.name);
        let (name, location) = match (window, next, behind) {
            (Some(window), ..) => (window.name.clone(), &window.location),
            (None, Some(next), _) => (place("before", &windows[next]), &windows[next].location),
            (None, None, Some(before)) => {
                let before: &Phase = before;
                (place("after", before), &before.location)
            }
            // There is a window, so one lies before or after.
            (None, None, None) => continue,
        };
        let name = match window {
            Some(_) => name,
            None => unused(name, &mut names),
        };
        behind = window.or(behind);
        phases.push(Phase {
            name,
            location: location.clone(),
            answers: window.and_then(|window| window.answers),
            breakpoint_at: None,
            beside: Vec::new(),
            stages: vec![Stage {
                load: script_load(window, stretch, location),
                share: 1.0,
                ramp: Duration::ZERO,
                hold: stretch.to.saturating_sub(stretch.from),
            }],
        });
    }
    phases
}

/// A name that no phase has yet.
fn unused(mut name: String, names: &mut Vec<String>) -> String {
    while names.contains(&name) {
        name.push('\'');
    }
    names.push(name.clone());
    name
}

fn script_load(window: Option<&Phase>, stretch: &Stretch, location: &Location) -> PhaseLoad {
    let cut = window.map(cut_of).unwrap_or_default();
    let scenario = cut.scenario.map(|value| Located {
        value,
        location: location.clone(),
    });
    PhaseLoad::Script {
        scenario,
        from: cut.from,
        duration: cut.duration,
        is_open: stretch.is_open,
    }
}

fn find(k6: &K6Load, sweep: &Sweep, environment: &Environment) -> Result<Binary, AppError> {
    let named = k6.binary.as_ref().map(|path| in_folder(sweep, path));
    let search = environment.variable("PATH").map(std::ffi::OsStr::new);
    Binary::find(named.as_deref(), search).map_err(environment_error)
}

fn in_folder(sweep: &Sweep, path: &Located<PathBuf>) -> PathBuf {
    let folder = sweep.file.parent().unwrap_or(Path::new(""));
    folder.join(&path.value)
}

fn environment_error(error: K6Error) -> AppError {
    let hint = error.hint();
    let error = AppError::environment(error);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn problem_of(k6: &K6Load, error: &K6Error) -> Problem {
    let problem = Problem::new(k6.script.location.clone(), error.to_string());
    match error.hint() {
        Some(hint) => problem.with_hint(hint),
        None => problem,
    }
}
