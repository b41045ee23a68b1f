//! `stack`: the resolved stack exactly as it would be launched.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::Value;

use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::inputs::Inputs;
use super::up::unknown_cell;
use crate::cli::{MatrixArgs, StackArgs};
use crate::engine::check_stack;
use crate::report::{Printer, stack_text};
use crate::secret::Secrets;
use crate::stack::{ComposeFiles, Origins, ResolveRequest, Stack};

/// A stack with what is told about it.
struct Shown {
    stack: Stack,
    origins: Origins,
    secrets: Secrets,
}

/// Resolves one cell of a matrix, or Compose files by themselves, and prints the stack.
pub(super) fn stack(
    arguments: &StackArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let shown = if arguments.files.is_empty() {
        of_matrix(arguments, environment)?
    } else {
        of_files(arguments, environment)?
    };
    let mut value = serde_json::to_value(&shown.stack).map_err(AppError::bug)?;
    if !arguments.show_secrets {
        hide(&mut value, &shown.secrets);
    }
    let origins = if arguments.explain {
        shown.origins
    } else {
        Origins::new()
    };
    // A key that is understood may still be beyond what a launch can do.
    let refused = check_stack(&shown.stack)
        .err()
        .map_or_else(Vec::new, |e| e.0);
    if !arguments.json {
        let origins: IndexMap<String, String> = origins
            .iter()
            .map(|(path, origin)| (path.clone(), origin.to_string()))
            .collect();
        printer.data(&stack_text(&value, &origins, &refused));
        return Ok(Outcome::Done);
    }
    if let Value::Object(sections) = &mut value {
        sections.insert("refused".to_owned(), refused.into());
        if arguments.explain {
            let origins = serde_json::to_value(&origins).map_err(AppError::bug)?;
            sections.insert("origins".to_owned(), origins);
        }
    }
    let text = serde_json::to_string_pretty(&value).map_err(AppError::bug)?;
    printer.data(&text);
    Ok(Outcome::Done)
}

fn of_matrix(arguments: &StackArgs, environment: &Environment) -> Result<Shown, AppError> {
    let matrix = MatrixArgs {
        matrix: arguments.matrix.clone(),
        settings: arguments.settings.clone(),
    };
    let mut inputs = Inputs::read(&matrix, None, environment)?;
    let cell = match &arguments.cell {
        None => 0,
        Some(id) => inputs
            .plan
            .cell_index(id)
            .ok_or_else(|| unknown_cell(&inputs.plan, id))?,
    };
    let stack = inputs.resolve(cell)?;
    let origins = inputs.explain(cell, &stack);
    Ok(Shown {
        stack,
        origins,
        secrets: inputs.secrets,
    })
}

fn of_files(arguments: &StackArgs, environment: &Environment) -> Result<Shown, AppError> {
    let settings: IndexMap<String, String> = arguments.settings.iter().cloned().collect();
    let files = ComposeFiles::read_in(&arguments.files, environment.variables(), &settings)?;
    let variables: &BTreeMap<String, String> = environment.variables();
    let request = ResolveRequest {
        cell: &settings,
        environment: variables,
        roots: &[],
        profiles: &arguments.profiles,
        shared: &arguments.shared,
    };
    let resolution = files.resolve(&request)?;
    let mut secrets = Secrets::new(environment.salt());
    for secret in &resolution.secrets {
        secrets.hide(secret);
    }
    // What `--set` gives is plain by choice.
    for value in settings.values() {
        secrets.reveal(value);
    }
    let origins = files.explain(&request, &resolution.stack);
    Ok(Shown {
        stack: resolution.stack,
        origins,
        secrets,
    })
}

/// Replaces secrets in every text of a value.
fn hide(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.redact(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, secrets)),
        Value::Object(entries) => entries.values_mut().for_each(|value| hide(value, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
