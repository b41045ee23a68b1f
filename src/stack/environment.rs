//! `environment` and `env_file`: the variables a process gets; and `label_file`,
//! which has the same form.
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
    variables.extend(of_key(service, root));
    variables
}

/// The labels that the files of `label_file` give.
pub(super) fn labels(
    service: &mut ServiceReader<'_>,
    root: &Field<'_>,
) -> IndexMap<String, String> {
    let mut labels = IndexMap::new();
    if let Some(files) = root.get("label_file") {
        for item in files.items_or_one(&mut service.notes) {
            if let Some(written) = item.filled_text(&mut service.notes) {
                let file = NamedFile {
                    field: &item,
                    written: &written,
                    is_required: true,
                    is_raw: false,
                };
                read_file(service, &file, &mut labels);
            }
        }
    }
    labels
}

/// The variables of the `environment` that stands below a service or a hook.
pub(super) fn of_key(
    service: &mut ServiceReader<'_>,
    root: &Field<'_>,
) -> IndexMap<String, String> {
    let mut variables = IndexMap::new();
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

/// A file of variables as a key names it.
struct NamedFile<'f> {
    field: &'f Field<'f>,
    written: &'f str,
    is_required: bool,
    /// Whether values are taken as they stand, quotes and dollars included.
    is_raw: bool,
}

fn read_env_file(
    service: &mut ServiceReader<'_>,
    field: &Field<'_>,
    variables: &mut IndexMap<String, String>,
) {
    let notes = &mut service.notes;
    let (mut path, mut is_required, mut is_raw) = (None, true, false);
    if field.node.as_map().is_none() {
        path = field.filled_text(notes);
    } else {
        field.check_keys(&["path", "required", "format"], notes);
        if let Some(format) = field.get("format") {
            is_raw = format.node.as_text() == Some("raw");
            if !is_raw {
                format.problem(notes, "must be `raw`, the one format with a name");
            }
        }
        let required = field.get("required");
        is_required = required.is_none_or(|field| field.boolean(notes) != Some(false));
        match field.get("path") {
            Some(given) => path = given.filled_text(notes),
            None => field.problem(notes, "has no `path`"),
        }
    }
    let Some(written) = path else { return };
    let file = NamedFile {
        field,
        written: &written,
        is_required,
        is_raw,
    };
    read_file(service, &file, variables);
}

fn read_file(
    service: &mut ServiceReader<'_>,
    file: &NamedFile<'_>,
    variables: &mut IndexMap<String, String>,
) {
    let field = file.field;
    let Some(path) = super::mounts::host_path(service, field, file.written) else {
        return;
    };
    let text = match fs_err::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !file.is_required => return,
        Err(error) => {
            field.problem(&mut service.notes, format_args!("cannot be read: {error}"));
            return;
        }
    };
    let values = if file.is_raw {
        raw_values(service, &text)
    } else {
        match DotEnv::parse(Path::new(&path), &text) {
            Ok(file) => {
                file.collect_names(&mut service.notes.referred);
                file.evaluate(service.variables, &mut service.notes)
            }
            Err(problems) => {
                service.notes.problems.extend(problems);
                return;
            }
        }
    };
    service.notes.secrets.extend(values.values().cloned());
    variables.extend(values);
}

/// `NAME=value` a line, the value as it stands; a name alone takes the project's.
fn raw_values(service: &mut ServiceReader<'_>, text: &str) -> IndexMap<String, String> {
    let mut values = IndexMap::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(str::trim_start);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((name, value)) = line.split_once('=') {
            values.insert(name.to_owned(), value.to_owned());
        } else {
            service.notes.referred.insert(line.to_owned());
            if let Some((value, _)) = service.variables.find(line) {
                values.insert(line.to_owned(), value.to_owned());
            }
        }
    }
    values
}
