//! What the matrix says of the state of trials, checked against the Compose files and
//! put into the sweep's plan.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::json;

use super::contents::Contents;
use super::error::AppError;
use super::inputs::Inputs;
use super::jobs::resolve;
use crate::engine::CloneWay;
use crate::load::Workload;
use crate::matrix::{self, Cell, Golden, GoldenFrom, HookBefore, Located, Seed, State, Sweep};
use crate::problem::{Location, Problem, Problems, nearest};
use crate::stack::{ComposeFiles, Stack};
use crate::sweep::{
    Filling, GoldenPlan, GoldenSource, GoldenSpec, Hook, LeftOut, SeedLoad, SeedSpec, StatePlan,
    TargetSpec, definition,
};
use crate::tree::CloneMode;

/// The seeding workload of a matrix, read; problems are noted.
pub(super) fn seed_workload(
    sweep: &Sweep,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Arc<Workload>> {
    let named = sweep.seed.as_ref()?.workload.as_ref()?;
    let path = folder.join(&named.value);
    if !path.exists() {
        let message = format!("there is no workload file `{}`", path.display());
        problems.push(
            Problem::new(named.location.clone(), message)
                .with_hint("paths are relative to the matrix file"),
        );
        return None;
    }
    Workload::read(&path)
        .map_err(|more| problems.extend(more.0))
        .ok()
        .map(Arc::new)
}

/// Names of services and folders that the state of trials hangs on.
pub(super) fn check_names(
    sweep: &Sweep,
    compose: &ComposeFiles,
    folder: &Path,
    problems: &mut Vec<Problem>,
) {
    let names = compose.service_names();
    let mut check = |what: &str, name: &str, location: &Location| {
        if names.iter().any(|known| known == name) {
            return;
        }
        let near = nearest(name, names.iter().map(String::as_str));
        let hint = near.map_or_else(
            || format!("services: {}", names.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        let message = format!("{what} `{name}` is not a service of the Compose files");
        problems.push(Problem::new(location.clone(), message).with_hint(hint));
    };
    if let Some(seed) = &sweep.seed {
        if let Some(service) = &seed.service {
            check("`service` in [seed]", &service.value, &service.location);
        }
        // A host name with a dot or a colon, and this host, are addresses outside the stack.
        if let Some(target) = &seed.target {
            let host = &target.value.host;
            if !host.contains(['.', ':']) && host != "localhost" {
                check("`target` in [seed]", host, &target.location);
            }
        }
    }
    for hook in &sweep.hooks {
        check(
            "`service` in [[hook]]",
            &hook.service.value,
            &hook.service.location,
        );
    }
    if let Some(golden) = &sweep.golden
        && let GoldenFrom::Folder(path) = &golden.from.value
        && !folder.join(path).is_dir()
    {
        let message = format!("there is no folder `{}`", folder.join(path).display());
        problems.push(
            Problem::new(golden.from.location.clone(), message)
                .with_hint("paths are relative to the matrix file"),
        );
    }
}

/// What can be known of a cell's resolved stack alone.
pub(super) fn check_stack_state(sweep: &Sweep, stack: &Stack, problems: &mut Vec<Problem>) {
    let hooks = sweep.hooks.iter().map(|hook| &hook.service);
    for service in hooks.filter(|service| stack.not_started.contains(&service.value)) {
        let message = format!("`service` in [[hook]] `{}` is not started", service.value);
        problems.push(
            Problem::new(service.location.clone(), message)
                .with_hint("name it in `services` of [sweep], or run the hook in another service"),
        );
    }
    if let Some(service) = sweep.seed.as_ref().and_then(|seed| seed.service.as_ref())
        && stack.services.contains_key(&service.value)
    {
        let message = format!(
            "`service` in [seed] `{}` would be started in every trial: what is measured depends on it",
            service.value
        );
        problems.push(Problem::new(service.location.clone(), message).with_hint(
            "let nothing that is measured depend on it; it is run once, before the first trial",
        ));
    }
    if sweep.trials.state == State::Keep
        && !stack
            .volumes
            .values()
            .any(|volume| volume.external.is_none())
    {
        let message = "`state = \"keep\"` in [trials] keeps named volumes, and no service that is started has one";
        problems.push(
            Problem::new(sweep.stack[0].location.clone(), message)
                .with_hint("mount a named volume where the data lies, or use state = \"fresh\""),
        );
    }
    let Some(golden) = &sweep.golden else {
        return;
    };
    for volume in &golden.volumes {
        let message = match stack.volumes.get(&volume.value) {
            None => format!(
                "`volumes` in [golden] names `{}`, which is no named volume of the services that are started",
                volume.value
            ),
            Some(known) if known.external.is_some() => format!(
                "`volumes` in [golden] names `{}`, which is shared with everybody by [trials] shared",
                volume.value
            ),
            Some(known) if !known.driver_opts.is_empty() => format!(
                "`volumes` in [golden] names `{}`, which has driver_opts: what is cloned into it could be lost or go elsewhere",
                volume.value
            ),
            Some(_) => continue,
        };
        let names: Vec<&str> = stack.volumes.keys().map(String::as_str).collect();
        let hint = nearest(&volume.value, names.iter().copied())
            .filter(|near| *near != volume.value)
            .map_or_else(
                || format!("named volumes: {}", names.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
        problems.push(Problem::new(volume.location.clone(), message).with_hint(hint));
    }
}

/// Kept volumes are one for all cells: none may be what two cells say differently of it.
pub(super) fn check_kept(sweep: &Sweep, stacks: &[Arc<Stack>], problems: &mut Vec<Problem>) {
    let Some((first, others)) = stacks.split_first() else {
        return;
    };
    if sweep.trials.state != State::Keep {
        return;
    }
    for (name, volume) in &first.volumes {
        let mut of_others = others.iter().filter_map(|stack| stack.volumes.get(name));
        if of_others.any(|other| other != volume) {
            let message = format!(
                "`state = \"keep\"` in [trials] keeps one volume `{name}` for all cells, and they define it differently"
            );
            problems.push(
                Problem::new(sweep.stack[0].location.clone(), message).with_hint(
                    "define it without axes and derived values, or use state = \"fresh\"",
                ),
            );
        }
    }
}

/// The hooks before a phase of a cell.
pub(super) fn hooks_of(sweep: &Sweep, cell: &Cell, phase: &str, is_window: bool) -> Vec<Hook> {
    let is_before = |hook: &&matrix::Hook| match &hook.before {
        HookBefore::Windows => is_window,
        HookBefore::Phase(name) => name == phase,
    };
    let hook = |hook: &matrix::Hook| Hook {
        service: hook.service.value.clone(),
        exec: hook.exec.iter().map(|word| word.of(cell)).collect(),
        timeout: hook.timeout,
    };
    sweep.hooks.iter().filter(is_before).map(hook).collect()
}

/// The state of the sweep's trials, and for each cell which golden it is cloned from.
///
/// Cells for which `is_run` says no have none made for them.
///
/// **Errors**: problems of the seeding service's stack; a seed target without an address.
pub(super) async fn state_plan(
    inputs: &mut Inputs,
    stacks: &[Arc<Stack>],
    is_run: impl Fn(usize) -> bool,
) -> Result<(StatePlan, Vec<usize>), AppError> {
    let zeros = vec![0; stacks.len()];
    let golden = match (inputs.sweep.trials.state, inputs.sweep.golden.clone()) {
        (State::Fresh, _) => return Ok((StatePlan::Fresh, zeros)),
        (State::Keep, _) => return Ok((StatePlan::Keep, zeros)),
        (State::Golden, Some(golden)) => golden,
        (State::Golden, None) => {
            return Err(AppError::bug(anyhow::anyhow!(
                "a golden state without [golden]"
            )));
        }
    };
    let way = match golden.clone {
        matrix::CloneWay::Auto => CloneWay::Files(CloneMode::Auto),
        matrix::CloneWay::Reflink => CloneWay::Files(CloneMode::Reflink),
        matrix::CloneWay::Copy => CloneWay::Files(CloneMode::Copy),
        matrix::CloneWay::Overlay => CloneWay::Overlay,
    };
    let seed = inputs.sweep.seed.clone();
    let source = match &golden.from.value {
        GoldenFrom::Prepare => {
            GoldenSource::Prepare(seed_spec(inputs, seed.as_ref()).await?.map(Box::new))
        }
        GoldenFrom::Volume(name) => GoldenSource::Volume(name.clone()),
        GoldenFrom::Folder(path) => {
            let path = inputs.folder().join(path);
            GoldenSource::Folder(fs_err::canonicalize(path).map_err(AppError::input)?)
        }
    };
    let volumes: Vec<String> = golden
        .volumes
        .iter()
        .map(|name| name.value.clone())
        .collect();
    let cells = match &source {
        GoldenSource::Prepare(_) => {
            definitions(inputs, stacks, seed.as_ref(), &volumes, &golden).await?
        }
        // What is copied does not depend on the cell.
        GoldenSource::Volume(_) | GoldenSource::Folder(_) => {
            let same = |stack: &Arc<Stack>| (Arc::clone(stack), source.words());
            stacks.iter().map(same).collect()
        }
    };
    let mut specs: Vec<GoldenSpec> = Vec::new();
    let mut of_cell = Vec::new();
    for (index, (stack, definition)) in cells.into_iter().enumerate() {
        if !is_run(index) {
            of_cell.push(0);
            continue;
        }
        let cell = &inputs.plan.cells[index];
        let known = specs
            .iter()
            .position(|known| known.definition == definition);
        of_cell.push(known.unwrap_or(specs.len()));
        if known.is_none() {
            specs.push(GoldenSpec {
                cell_id: cell.id().to_string(),
                stack,
                variables: inputs.workload_variables(cell),
                volumes: volumes.clone(),
                source: source.clone(),
                definition,
            });
        }
    }
    if specs.len() > 1 {
        let message = format!(
            "{} sets of golden volumes are prepared, since what fills them differs between cells: trials of different cells then begin with different data",
            specs.len()
        );
        inputs.plan.warnings.push(message);
    }
    Ok((StatePlan::Golden(GoldenPlan { way, specs }), of_cell))
}

/// By cell: what is launched to prepare its golden, and what that depends on.
///
/// **Errors**: problems of the seeding service's stack; what is mounted and cannot be read.
async fn definitions(
    inputs: &mut Inputs,
    stacks: &[Arc<Stack>],
    seed: Option<&Seed>,
    volumes: &[String],
    golden: &Golden,
) -> Result<Vec<(Arc<Stack>, String)>, AppError> {
    let service = seed.and_then(|seed| seed.service.as_ref());
    let service = service.map(|service| service.value.clone());
    let more: Vec<String> = service.iter().cloned().collect();
    let mut seeded = stacks.to_vec();
    if service.is_some() {
        for (cell, stack) in seeded.iter_mut().enumerate() {
            *stack = Arc::new(inputs.resolve_with(cell, &more)?);
        }
    }
    let filling = Filling {
        volumes,
        seed_service: service.as_deref(),
    };
    // Over all cells of the sweep, so that `--only` finds the golden of the whole.
    let mut left_out = LeftOut::default();
    let unselected = inputs.unselected_stacks(&more);
    for stack in seeded.iter().map(|stack| &**stack).chain(&unselected) {
        left_out.compare(stack, filling);
    }
    let mut binds: IndexMap<PathBuf, bool> = IndexMap::new();
    for (path, is_writers) in seeded.iter().flat_map(|stack| filling.binds(stack)) {
        *binds.entry(path).or_insert(false) |= is_writers;
    }
    let contents = Contents::read(binds).await;
    refuse_unreadable(&contents, &golden.from.location)?;
    let passed_over = contents.passed_over.iter();
    let passed_over = passed_over.map(|path| format!("the content of {}", path.display()));
    let words: Vec<String> = left_out.words().into_iter().chain(passed_over).collect();
    if !words.is_empty() {
        inputs.plan.warnings.push(format!(
            "the golden does not depend on: {}; where one of these shapes the data, prepare it with `service` in [seed]",
            words.join(", ")
        ));
    }
    let content_of = |path: &Path| contents.of(path);
    let defined = seeded
        .into_iter()
        .zip(&inputs.plan.cells)
        .map(|(stack, cell)| {
            let seed = seed_words(inputs, seed, &inputs.workload_variables(cell));
            let definition = definition(&stack, filling, &seed, &left_out, &content_of);
            (stack, definition)
        });
    Ok(defined.collect())
}

/// **Errors**: everything that is mounted and cannot be read: a change of it would go unseen.
fn refuse_unreadable(contents: &Contents, place: &Location) -> Result<(), Problems> {
    if contents.unreadable.is_empty() {
        return Ok(());
    }
    let problem = |words: &String| {
        Problem::new(place.clone(), words.clone())
            .with_hint("let it be read by whoever runs nightsweep, or do not mount it")
    };
    Err(Problems(contents.unreadable.iter().map(problem).collect()))
}

/// What is known of the seed: its files, and the values its workload uses.
fn seed_words(
    inputs: &Inputs,
    seed: Option<&Seed>,
    variables: &IndexMap<String, String>,
) -> serde_json::Value {
    let digests: Vec<String> = inputs
        .seed_bytes
        .iter()
        .map(|(_, bytes)| crate::tree::hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes)))
        .collect();
    let used: IndexMap<&String, Option<&String>> = inputs
        .seed_workload
        .iter()
        .flat_map(|workload| workload.variables())
        .map(|used| (&used.name, variables.get(&used.name)))
        .collect();
    json!(seed.map(|seed| {
        json!({
            "files": digests,
            "variables": used,
            "journeys": seed.journeys,
            "target": seed.target.as_ref().map(|target| &target.value.text),
        })
    }))
}

async fn seed_spec(inputs: &Inputs, seed: Option<&Seed>) -> Result<Option<SeedSpec>, AppError> {
    let Some(seed) = seed else {
        return Ok(None);
    };
    let workload = match &inputs.seed_workload {
        None => None,
        Some(workload) => Some(SeedLoad {
            workload: Arc::clone(workload),
            target: match &seed.target {
                None => None,
                Some(Located { value, .. })
                    if inputs.compose.service_names().contains(&value.host) =>
                {
                    Some(TargetSpec::Service {
                        service: value.host.clone(),
                        port: value.port,
                        base_path: value.base_path.clone(),
                        wire: inputs.wire_to(value),
                    })
                }
                Some(Located { value, .. }) => Some(TargetSpec::Remote {
                    address: resolve(&value.host, value.port).await?,
                    host: format!("{}:{}", value.host, value.port),
                    base_path: value.base_path.clone(),
                    wire: inputs.wire_to(value),
                }),
            },
            users: seed.users,
            journeys: seed.journeys,
        }),
    };
    Ok(Some(SeedSpec {
        service: seed.service.as_ref().map(|service| service.value.clone()),
        workload,
        timeout: seed.timeout,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_mounted_file_that_cannot_be_read_is_a_problem_with_its_path_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app.conf");
        fs_err::write(&file, "a = 1").unwrap();
        let place = Location {
            file: "m.toml".into(),
            line: 13,
            column: 2,
        };
        let good = Contents::read([(file.clone(), true)].into()).await;
        assert!(refuse_unreadable(&good, &place).is_ok());
        // Below a file nothing can be read, whoever asks.
        let below = file.join("below");
        let wrong = Contents::read([(below.clone(), false)].into()).await;
        let said = refuse_unreadable(&wrong, &place).unwrap_err().to_string();
        assert!(said.starts_with("m.toml:13:2: "), "{said}");
        assert!(
            said.contains(&format!("{} is mounted", below.display())),
            "{said}"
        );
        assert!(said.contains("Not a directory"), "{said}");
    }
}
