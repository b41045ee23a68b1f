//! `environment` and `env_file`: the variables a process gets.
//!
//! Later files win over earlier ones, `environment` wins over all. A name
//! without a value takes the project's, and is absent where that has none.

use std::path::Path;

use indexmap::IndexMap;

use super::dotenv::DotEnv;
use super::field::Field;
use super::merge;
use super::notes::Notes;
use super::service::ServiceReader;
use super::template::Lookup;

/// Reads both keys.
pub(super) fn read(service: &mut ServiceReader<'_>, root: &Field<'_>) -> IndexMap<String, String> {
    let mut variables = IndexMap::new();
    if let Some(files) = root.get("env_file") {
        for item in files.items_or_one(&mut service.notes) {
            read_env_file(service, &item, &mut variables);
        }
    }
    let Some(environment) = root.get("environment") else {
        return variables;
    };
    let pairs = merge::pairs_of(environment.node);
    let environment = Field::child(root, "environment", &environment.node.mark, &pairs);
    for field in environment.entries(&mut service.notes) {
        let name = field.key();
        if !check_name(&field, name, &mut service.notes) {
            continue;
        }
        match field.canonical_text(&mut service.notes) {
            Some(Some(value)) => {
                variables.insert(name.to_owned(), value);
            }
            Some(None) => inherit(service, &field, &mut variables),
            None => {}
        }
    }
    variables
}

/// Takes the value of a bare name from the project's variables.
fn inherit(
    service: &mut ServiceReader<'_>,
    field: &Field<'_>,
    variables: &mut IndexMap<String, String>,
) {
    let name = field.key();
    service.notes.referred.insert(name.to_owned());
    if let Some((value, origin)) = service.variables.find(name) {
        service.notes.took(value, origin);
        variables.insert(name.to_owned(), value.to_owned());
    }
}

fn check_name(field: &Field<'_>, name: &str, notes: &mut Notes) -> bool {
    let is_usable = !name.trim().is_empty() && !name.contains(['=', '\0']);
    if !is_usable {
        field.problem(
            notes,
            format_args!("`{name}` cannot be the name of a variable"),
        );
    }
    is_usable
}

fn read_env_file(
    service: &mut ServiceReader<'_>,
    field: &Field<'_>,
    variables: &mut IndexMap<String, String>,
) {
    let (path, is_required) = match field.node.as_map() {
        Some(_) => {
            field.check_keys(&["path", "required", "format"], &mut service.notes);
            if let Some(format) = field.get("format") {
                format.not_yet(&mut service.notes, "a format of its own");
            }
            let required = field.get("required");
            let is_required =
                required.is_none_or(|field| field.boolean(&mut service.notes) != Some(false));
            let Some(path) = field.get("path") else {
                field.problem(&mut service.notes, "has no `path`");
                return;
            };
            (path.filled_text(&mut service.notes), is_required)
        }
        None => (field.filled_text(&mut service.notes), true),
    };
    let Some(written) = path else { return };
    let Some(path) = super::mounts::host_path(service, field, &written) else {
        return;
    };
    let text = match fs_err::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_required => return,
        Err(error) => {
            field.problem(&mut service.notes, format_args!("cannot be read: {error}"));
            return;
        }
    };
    match DotEnv::parse(Path::new(&path), &text) {
        Ok(file) => {
            file.collect_names(&mut service.notes.referred);
            let values = file.evaluate(service.variables, &mut service.notes);
            service.notes.secrets.extend(values.values().cloned());
            variables.extend(values);
        }
        Err(problems) => service.notes.problems.extend(problems),
    }
}
