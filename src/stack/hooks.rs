//! `post_start` and `pre_stop`: commands run inside a container beside its own.
//!
//! Pure.

use super::environment;
use super::field::Field;
use super::model::Hook;
use super::process;
use super::service::ServiceReader;

const STOP_RULE: &str =
    "not run: a trial's containers are removed by force, and their data with them";

/// Reads both keys.
pub(super) fn read(reader: &mut ServiceReader<'_>, root: &Field<'_>) -> Vec<Hook> {
    if let Some(field) = root.get("pre_stop") {
        // Read for its mistakes: a file that Compose refuses is refused here too.
        hooks(reader, &field);
        reader.notes.rule(STOP_RULE, field.to_string());
    }
    root.get("post_start")
        .map_or_else(Vec::new, |field| hooks(reader, &field))
}

fn hooks(reader: &mut ServiceReader<'_>, field: &Field<'_>) -> Vec<Hook> {
    let items = field.items(&mut reader.notes);
    items.iter().filter_map(|item| hook(reader, item)).collect()
}

fn hook(reader: &mut ServiceReader<'_>, field: &Field<'_>) -> Option<Hook> {
    let known = [
        "command",
        "user",
        "privileged",
        "working_dir",
        "environment",
    ];
    field.check_keys(&known, &mut reader.notes);
    field.node.as_map()?;
    let Some(command) = field.get("command") else {
        field.problem(&mut reader.notes, "has no `command`");
        return None;
    };
    let words = process::command(&command, &mut reader.notes)?;
    if words.is_empty() {
        command.problem(&mut reader.notes, "is empty");
        return None;
    }
    let mut text = |key| {
        field
            .get(key)
            .and_then(|field: Field<'_>| field.filled_text(&mut reader.notes))
    };
    let (user, working_dir) = (text("user"), text("working_dir"));
    let privileged = field
        .get("privileged")
        .and_then(|field| field.boolean(&mut reader.notes))
        .unwrap_or(false);
    Some(Hook {
        command: words,
        user,
        privileged,
        working_dir,
        environment: environment::of_key(reader, field),
    })
}
