//! `init`: a commented matrix.toml and workload.toml beside the user's own Compose file.

use std::path::{Path, PathBuf};

use super::error::{AppError, Outcome};
use crate::cli::InitArgs;
use crate::matrix::{StarterInput, StarterService, starter};
use crate::report::Printer;
use crate::stack::sketch;

/// Names Compose looks for, in its order.
const COMPOSE_NAMES: [&str; 4] = [
    "compose.yaml",
    "compose.yml",
    "docker-compose.yaml",
    "docker-compose.yml",
];

/// Looks at the Compose file and writes both starters; never over an existing file.
pub(super) fn init(arguments: &InitArgs, printer: Printer) -> Result<Outcome, AppError> {
    let folder = &arguments.folder;
    let compose = compose_file(folder)?;
    let services: Vec<StarterService> = sketch(&compose)?
        .into_iter()
        .map(|service| StarterService {
            name: service.name,
            image: service.image,
            container_ports: service.container_ports,
            has_healthcheck: service.has_healthcheck,
            looks_like_database: service.looks_like_database,
        })
        .collect();
    if services.is_empty() {
        return Err(AppError::input(anyhow::anyhow!(
            "{} has no services",
            compose.display()
        )));
    }
    if let Some(subject) = arguments
        .subject
        .as_ref()
        .filter(|subject| services.iter().all(|service| service.name != **subject))
    {
        let names: Vec<&str> = services
            .iter()
            .map(|service| service.name.as_str())
            .collect();
        return Err(AppError::input(anyhow::anyhow!(
            "{} has no service `{subject}`",
            compose.display()
        ))
        .hint(format!("services: {}", names.join(", "))));
    }
    let input = StarterInput {
        project: project_name(folder),
        compose_files: vec![
            compose
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        ],
        subject: arguments.subject.clone(),
        target: None,
        services,
    };
    let files = starter(&input);
    let outputs = [
        (folder.join("matrix.toml"), files.matrix),
        (folder.join("workload.toml"), files.workload),
    ];
    for (path, _) in &outputs {
        if path.exists() {
            let error = anyhow::anyhow!("{} is already there; nothing was written", path.display());
            return Err(AppError::input(error)
                .hint("move it away first, or go on with it: `nightsweep check`"));
        }
    }
    for (path, text) in &outputs {
        fs_err::write(path, text).map_err(AppError::environment)?;
        printer.data(&path.display().to_string());
    }
    printer.note("edit the lines marked EDIT, then: nightsweep check, nightsweep plan");
    Ok(Outcome::Done)
}

fn compose_file(folder: &Path) -> Result<PathBuf, AppError> {
    COMPOSE_NAMES
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            AppError::input(anyhow::anyhow!(
                "no Compose file in {} (looked for {})",
                folder.display(),
                COMPOSE_NAMES.join(", ")
            ))
            .hint("run it in the folder of your Compose file: `nightsweep init DIR`")
        })
}

fn project_name(folder: &Path) -> String {
    let absolute = fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    absolute.file_name().map_or_else(
        || "sweep".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
