//! `secrets` and `configs` of a service: files it may read.
//!
//! One that stands in a file is mounted read only; one whose content is in the
//! Compose file or in a variable becomes a file of the trial's own. What a
//! secret says is noted, to be hidden. Reads the files of secrets.

use std::path::PathBuf;
use std::sync::Arc;

use super::field::Field;
use super::mounts::{host_path, is_external};
use super::node::Node;
use super::notes::Notes;
use super::service::ServiceReader;
use super::surroundings::{Mount, MountSource};
use super::template::Lookup;

const NAME_RULE: &str = "only a swarm uses this; it has no effect here";

const OWNER_RULE: &str = "the file keeps its own owner and mode";

/// One item of the two keys.
struct Grant {
    source: String,
    target: Option<String>,
    mode: Option<u32>,
    uid: Option<String>,
    gid: Option<String>,
}

/// Where the content is.
enum Content {
    File(PathBuf),
    Text(String),
}

/// Reads both keys, adding to the service's mounts.
pub(super) fn read(reader: &mut ServiceReader<'_>, root: &Field<'_>, mounts: &mut Vec<Mount>) {
    for section in ["secrets", "configs"] {
        let Some(field) = root.get(section) else {
            continue;
        };
        for item in field.items(&mut reader.notes) {
            mounts.extend(mount(reader, section, &item));
        }
    }
}

fn mount(reader: &mut ServiceReader<'_>, section: &str, field: &Field<'_>) -> Option<Mount> {
    let grant = grant(field, &mut reader.notes)?;
    let Some(node) = reader.grant(section, &grant.source) else {
        field.problem_with_hint(
            &mut reader.notes,
            format_args!("`{}` is not declared", grant.source),
            format!("declare it under the top-level `{section}`"),
        );
        return None;
    };
    let content = content(reader, section, &grant.source, &node)?;
    let target = match (grant.target, section) {
        (Some(target), _) if target.starts_with('/') => target,
        (target, "secrets") => format!("/run/secrets/{}", target.unwrap_or(grant.source)),
        (target, _) => format!("/{}", target.unwrap_or(grant.source)),
    };
    let source = match content {
        Content::Text(content) => {
            for key in ["uid", "gid"] {
                check_number(field, key, &mut reader.notes);
            }
            MountSource::Content {
                content,
                mode: grant.mode,
                uid: grant.uid,
                gid: grant.gid,
            }
        }
        Content::File(source) => {
            let owners = ["uid", "gid", "mode"];
            for owner in owners.iter().filter_map(|key| field.get(key)) {
                reader.notes.rule(OWNER_RULE, owner.to_string());
            }
            MountSource::Bind { source }
        }
    };
    Some(Mount {
        target,
        source,
        read_only: true,
    })
}

/// A file of the trial's own is given to a number: names are the image's to know.
fn check_number(field: &Field<'_>, key: &str, notes: &mut Notes) {
    if let Some(owner) = field.get(key)
        && let Some(text) = owner.text(notes)
        && text.parse::<u32>().is_err()
    {
        owner.problem(notes, format_args!("`{text}` is not a number such as 1000"));
    }
}

/// Which secret or config it is, where it is to be seen, and whose it is there.
fn grant(field: &Field<'_>, notes: &mut Notes) -> Option<Grant> {
    let mut grant = Grant {
        source: String::new(),
        target: None,
        mode: None,
        uid: None,
        gid: None,
    };
    if field.node.as_map().is_none() {
        grant.source = field.filled_text(notes)?;
        return Some(grant);
    }
    field.check_keys(&["source", "target", "uid", "gid", "mode"], notes);
    let mut text = |key| {
        field
            .get(key)
            .and_then(|field: Field<'_>| field.filled_text(notes))
    };
    grant.target = text("target");
    grant.uid = text("uid");
    grant.gid = text("gid");
    grant.mode = field.get("mode").and_then(|field| {
        let bits = field.integer(notes)?;
        let mode = u32::try_from(bits).ok().filter(|mode| *mode <= 0o7777);
        if mode.is_none() {
            field.problem(notes, "is not a file mode such as 0440");
        }
        mode
    });
    let Some(source) = field.get("source") else {
        field.problem(notes, "has no `source`");
        return None;
    };
    grant.source = source.filled_text(notes)?;
    Some(grant)
}

/// What is behind a secret or config: exactly one of a file, a text and a variable.
fn content(
    reader: &mut ServiceReader<'_>,
    section: &str,
    source: &str,
    node: &Arc<Node>,
) -> Option<Content> {
    let top = Field::root(section, node);
    let definition = Field::child(&top, source, &node.mark, node);
    let known = [
        "file",
        "name",
        "external",
        "environment",
        "content",
        "labels",
        "driver",
        "driver_opts",
        "template_driver",
    ];
    definition.check_keys(&known, &mut reader.notes);
    if is_external(&definition) {
        definition.problem_with_hint(
            &mut reader.notes,
            "is external, which only a swarm can serve",
            "give it a `file`, or another definition in an override",
        );
        return None;
    }
    for key in ["name", "labels"] {
        if let Some(field) = definition.get(key) {
            reader.notes.rule(NAME_RULE, field.to_string());
        }
    }
    for key in ["driver", "driver_opts", "template_driver"] {
        if let Some(field) = definition.get(key) {
            field.problem(
                &mut reader.notes,
                "belongs to a swarm, which no trial runs in",
            );
        }
    }
    let given: Vec<Field<'_>> = ["file", "environment", "content"]
        .iter()
        .filter_map(|key| definition.get(key))
        .collect();
    let [only] = given.as_slice() else {
        definition.problem(
            &mut reader.notes,
            "needs exactly one of `file`, `environment` and `content`",
        );
        return None;
    };
    let written = only.text(&mut reader.notes)?;
    match only.key() {
        "file" => file(reader, section, only, &written).map(Content::File),
        "content" => {
            if section == "secrets" {
                reader.notes.secrets.insert(written.trim().to_owned());
            }
            Some(Content::Text(written))
        }
        _ => variable(reader, section, only, &written).map(Content::Text),
    }
}

fn variable(
    reader: &mut ServiceReader<'_>,
    section: &str,
    field: &Field<'_>,
    name: &str,
) -> Option<String> {
    reader.notes.referred.insert(name.to_owned());
    let Some((value, origin)) = reader.variables.find(name) else {
        field.problem_with_hint(
            &mut reader.notes,
            format_args!("required variable `{name}` has no value"),
            format!("set `{name}` in the environment or in .env"),
        );
        return None;
    };
    let value = value.to_owned();
    reader.notes.took(&value, origin);
    if section == "secrets" {
        reader.notes.secrets.insert(value.trim().to_owned());
    }
    Some(value)
}

fn file(
    reader: &mut ServiceReader<'_>,
    section: &str,
    field: &Field<'_>,
    written: &str,
) -> Option<PathBuf> {
    if written.trim().is_empty() {
        field.problem(&mut reader.notes, "is empty");
        return None;
    }
    let path = host_path(reader, field, written)?;
    // A device would be read without end.
    if !path.is_file() {
        let message = format!("`{}` is not a file of this host", path.display());
        field.problem(&mut reader.notes, message);
        return None;
    }
    match fs_err::read(&path) {
        Ok(content) if section == "secrets" => {
            let text = String::from_utf8_lossy(&content).trim().to_owned();
            reader.notes.secrets.insert(text);
        }
        Ok(_) => {}
        Err(error) => field.problem(&mut reader.notes, format_args!("cannot be read: {error}")),
    }
    Some(path)
}
