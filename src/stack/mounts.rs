//! `volumes` and `tmpfs` of a service, and the user's data kept safe.
//!
//! **Invariant**: nothing that outlives a trial is writable from inside it,
//! unless the user listed it as shared. Looks at the host's files, opens none.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::field::Field;
use super::file_reader::absolute;
use super::node::Node;
use super::notes::Notes;
use super::service::ServiceReader;
use super::surroundings::{Mount, MountSource};
use super::typing;
use crate::units;

/// Mode words that change nothing for a trial on Linux.
const IDLE_MODES: [&str; 4] = ["cached", "delegated", "consistent", "rprivate"];

const SELINUX_RULE: &str =
    "the SELinux label is not set, because that would write to the user's files";
const PROPAGATION_RULE: &str =
    "mount propagation is not passed on; later mounts of the host stay out";
/// Said of labels that the user gave to something that trials make and throw away.
pub(super) const LABELS_RULE: &str = "labels of the user's are kept on containers only";

const IDLE_RULE: &str = "has no effect on Linux";

/// A mount as it was read, before it is checked against the host.
struct Draft {
    target: String,
    source: Source,
    read_only: bool,
    nocopy: bool,
}

enum Source {
    /// A path as written.
    Bind(String),
    /// A key of the top-level `volumes`.
    Named(String),
    Other(MountSource),
}

/// Where a volume in short form is seen: the second part, or the only one.
pub(super) fn target_of_short(text: &str) -> &str {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    parts.next().unwrap_or(first).trim_end_matches('/')
}

/// Reads `volumes` and `tmpfs`.
pub(super) fn read(service: &mut ServiceReader<'_>, root: &Field<'_>) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    if let Some(volumes) = root.get("volumes") {
        for item in volumes.items(&mut service.notes) {
            let draft = match item.node.as_map() {
                Some(_) => long(&item, &mut service.notes),
                None => short(&item, &mut service.notes),
            };
            if let Some(mount) = draft.and_then(|draft| checked(service, &item, draft)) {
                add(&mut mounts, mount, &item, &mut service.notes);
            }
        }
    }
    if let Some(tmpfs) = root.get("tmpfs") {
        for item in tmpfs.items_or_one(&mut service.notes) {
            if let Some(mount) = tmpfs_short(&item, &mut service.notes) {
                add(&mut mounts, mount, &item, &mut service.notes);
            }
        }
    }
    mounts
}

fn add(mounts: &mut Vec<Mount>, mount: Mount, field: &Field<'_>, notes: &mut Notes) {
    let same =
        |other: &Mount| other.target.trim_end_matches('/') == mount.target.trim_end_matches('/');
    if mounts.iter().any(same) {
        field.problem(notes, format_args!("`{}` is mounted twice", mount.target));
    } else {
        mounts.push(mount);
    }
}

/// `[source:]target[:mode]`
fn short(field: &Field<'_>, notes: &mut Notes) -> Option<Draft> {
    let text = field.filled_text(notes)?;
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, modes) = match parts.as_slice() {
        [target] => (None, *target, ""),
        [source, target] => (Some(*source), *target, ""),
        [source, target, modes] => (Some(*source), *target, *modes),
        _ => {
            field.problem(notes, format_args!("`{text}` is not source:target:mode"));
            return None;
        }
    };
    let source = match source {
        None => Source::Other(MountSource::Anonymous),
        Some("") => {
            field.problem_with_hint(
                notes,
                format_args!("`{text}` has an empty source{}", field.unset_reason()),
                "write `source:target`, or the target alone",
            );
            return None;
        }
        Some(path) if path.starts_with(['.', '/', '~']) => Source::Bind(path.to_owned()),
        Some(name) => Source::Named(name.to_owned()),
    };
    let mut draft = Draft {
        target: target.to_owned(),
        source,
        read_only: false,
        nocopy: false,
    };
    for mode in modes.split(',').filter(|mode| !mode.is_empty()) {
        match mode {
            "ro" => draft.read_only = true,
            "rw" => {}
            "z" | "Z" => notes.rule(SELINUX_RULE, field.to_string()),
            "rshared" | "rslave" | "shared" | "slave" | "private" | "rro" => {
                draft.read_only |= mode == "rro";
                notes.rule(PROPAGATION_RULE, field.to_string());
            }
            idle if IDLE_MODES.contains(&idle) => {
                notes.rule(IDLE_RULE, format!("{field} `{idle}`"));
            }
            "nocopy" => draft.nocopy = true,
            other => field.problem(
                notes,
                format_args!("`{other}` is not a mode (allowed: ro, rw)"),
            ),
        }
    }
    Some(draft)
}

/// `{type, source, target, read_only, ...}`
fn long(field: &Field<'_>, notes: &mut Notes) -> Option<Draft> {
    let allowed = [
        "type",
        "source",
        "target",
        "read_only",
        "consistency",
        "bind",
        "volume",
        "tmpfs",
    ];
    field.check_keys(&allowed, notes);
    let target = text_of(field, "target", notes);
    let source = text_of(field, "source", notes);
    let read_only = field
        .get("read_only")
        .and_then(|field| field.boolean(notes))
        .unwrap_or(false);
    if let Some(consistency) = field.get("consistency") {
        notes.rule(IDLE_RULE, consistency.to_string());
    }
    if let Some(bind) = field.get("bind") {
        let known = ["propagation", "create_host_path", "selinux", "recursive"];
        bind.check_keys(&known, notes);
        if let Some(recursive) = bind.get("recursive")
            && recursive.node.as_text() != Some("enabled")
        {
            notes.rule(PROPAGATION_RULE, recursive.to_string());
        }
        if let Some(propagation) = bind.get("propagation") {
            notes.rule(PROPAGATION_RULE, propagation.to_string());
        }
        if let Some(selinux) = bind.get("selinux") {
            notes.rule(SELINUX_RULE, selinux.to_string());
        }
    }
    let nocopy = volume_options(field, notes);
    let Some(target) = target else {
        field.problem(notes, "has no `target`");
        return None;
    };
    let kind = text_of(field, "type", notes).unwrap_or_else(|| "volume".to_owned());
    for section in ["bind", "volume", "tmpfs"] {
        if let (Some(options), true) = (field.get(section), section != kind) {
            options.problem(notes, format_args!("says nothing of the type `{kind}`"));
        }
    }
    let source = match (kind.as_str(), source) {
        ("bind", Some(path)) => Source::Bind(path),
        ("bind", None) => {
            field.problem(notes, "a bind mount needs a `source`");
            return None;
        }
        ("volume", Some(name)) => Source::Named(name),
        ("volume", None) => Source::Other(MountSource::Anonymous),
        ("tmpfs", None) => Source::Other(tmpfs_long(field, notes)),
        ("tmpfs", Some(_)) => {
            field.problem(notes, "a tmpfs has no `source`");
            return None;
        }
        ("image", _) => {
            field.problem_with_hint(
                notes,
                "an engine before version 28 cannot mount an image",
                "copy what is needed to a folder, and mount that read only",
            );
            return None;
        }
        (other, _) => {
            field.problem(
                notes,
                format_args!("`{other}` is not a type that an engine on Linux mounts (allowed: volume, bind, tmpfs)"),
            );
            return None;
        }
    };
    Some(Draft {
        target,
        source,
        read_only,
        nocopy,
    })
}

/// The options of a volume in long form: whether `nocopy` is set.
fn volume_options(field: &Field<'_>, notes: &mut Notes) -> bool {
    let mut nocopy = false;
    let Some(volume) = field.get("volume") else {
        return nocopy;
    };
    for option in volume.entries(notes) {
        match option.key() {
            "nocopy" => nocopy = option.boolean(notes).unwrap_or(false),
            "labels" => notes.rule(LABELS_RULE, option.to_string()),
            "subpath" => option.problem_with_hint(
                notes,
                "cannot be relied on: an engine before version 26 would show the whole volume without a word",
                "give the part a volume of its own",
            ),
            _ => option.unknown(&["nocopy", "labels"], notes),
        }
    }
    nocopy
}

fn text_of<'a>(field: &'a Field<'a>, key: &'a str, notes: &mut Notes) -> Option<String> {
    field.get(key).and_then(|field| field.filled_text(notes))
}

fn tmpfs_long(field: &Field<'_>, notes: &mut Notes) -> MountSource {
    let (mut size, mut mode) = (None, None);
    if let Some(tmpfs) = field.get("tmpfs") {
        tmpfs.check_keys(&["size", "mode"], notes);
        size = tmpfs.get("size").and_then(|field| field.bytes(notes));
        mode = tmpfs
            .get("mode")
            .and_then(|field| field.integer(notes))
            .and_then(|mode| u32::try_from(mode).ok());
    }
    MountSource::Tmpfs {
        size,
        mode,
        options: Vec::new(),
    }
}

/// `target[:option,option]`
fn tmpfs_short(field: &Field<'_>, notes: &mut Notes) -> Option<Mount> {
    let text = field.filled_text(notes)?;
    let (target, options) = text.split_once(':').unwrap_or((&text, ""));
    let (mut size, mut mode, mut read_only) = (None, None, false);
    let mut further = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=').unwrap_or((option, "")) {
            // These are what the engine gives every tmpfs.
            ("rw" | "noexec" | "nosuid" | "nodev", "") => {}
            ("ro", "") => read_only = true,
            ("size", value) => match units::parse_bytes(value) {
                Ok(bytes) => size = Some(bytes),
                Err(error) => field.problem(notes, error),
            },
            ("mode", value) => match u32::from_str_radix(value, 8) {
                Ok(bits) => mode = Some(bits),
                Err(_) => field.problem(notes, format_args!("the mode `{value}` is not octal")),
            },
            (
                "exec" | "suid" | "dev" | "noatime" | "nodiratime" | "relatime" | "strictatime",
                "",
            )
            | ("uid" | "gid" | "nr_inodes" | "nr_blocks" | "mpol" | "huge", _) => {
                further.push(option.to_owned());
            }
            (other, _) => field.problem(
                notes,
                format_args!("`{other}` is not an option of a tmpfs (such as size=64m or exec)"),
            ),
        }
    }
    if !is_absolute(target, field, notes) {
        return None;
    }
    Some(Mount {
        target: target.to_owned(),
        source: MountSource::Tmpfs {
            size,
            mode,
            options: further,
        },
        read_only,
    })
}

fn is_absolute(target: &str, field: &Field<'_>, notes: &mut Notes) -> bool {
    let is_absolute = target.starts_with('/');
    if !is_absolute {
        field.problem(
            notes,
            format_args!("the target `{target}` must be an absolute path"),
        );
    }
    is_absolute
}

/// The mount, checked against the host, the stack's volumes and what is shared.
fn checked(service: &mut ServiceReader<'_>, field: &Field<'_>, draft: Draft) -> Option<Mount> {
    if !is_absolute(&draft.target, field, &mut service.notes) {
        return None;
    }
    if draft.nocopy && !matches!(draft.source, Source::Named(_)) {
        field.problem(&mut service.notes, "`nocopy` is for named volumes only");
    }
    let source = match draft.source {
        Source::Other(source) => source,
        Source::Bind(ref written) => {
            let path = host_path(service, field, written)?;
            check_bind(service, field, &draft, written, &path);
            MountSource::Bind { source: path }
        }
        Source::Named(ref name) => {
            check_volume(service, field, &draft, name)?;
            MountSource::Volume {
                source: name.clone(),
                nocopy: draft.nocopy,
            }
        }
    };
    Some(Mount {
        target: draft.target,
        source,
        read_only: draft.read_only,
    })
}

/// The absolute path of what was written, `~` being the user's home.
pub(super) fn host_path(
    service: &mut ServiceReader<'_>,
    field: &Field<'_>,
    written: &str,
) -> Option<PathBuf> {
    if let Some(rest) = written.strip_prefix('~') {
        if !rest.is_empty() && !rest.starts_with('/') {
            field.problem(
                &mut service.notes,
                "`~name` is not supported; write the path",
            );
            return None;
        }
        let Some(home) = service.home() else {
            field.problem(&mut service.notes, "`~` needs HOME in the environment");
            return None;
        };
        return Some(absolute(
            &Path::new(home).join(rest.trim_start_matches('/')),
        ));
    }
    Some(absolute(&field.node.mark.folder().join(written)))
}

fn check_bind(
    service: &mut ServiceReader<'_>,
    field: &Field<'_>,
    draft: &Draft,
    written: &str,
    path: &Path,
) {
    let is_shared = service.is_shared(written) || service.is_shared_path(path);
    let target = &draft.target;
    if !draft.read_only && !is_shared {
        let message = format!(
            "writable_mount: service `{}` could write to `{}` through `{target}`",
            service.name,
            path.display()
        );
        refuse_writable(service, field, message);
    }
    match fs_err::metadata(path) {
        Ok(facts) if facts.file_type().is_socket() && draft.read_only => service.notes.warn(format!(
            "{}: {field}: `{written}` is a socket; read only does not stop the service from using it",
            field.place()
        )),
        Ok(_) => {}
        Err(_) => field.problem_with_hint(
            &mut service.notes,
            format_args!("`{}` does not exist on this host{}", path.display(), field.unset_reason()),
            "Compose would create it as an empty folder of root's; create it yourself or correct the path",
        ),
    }
}

fn refuse_writable(service: &mut ServiceReader<'_>, field: &Field<'_>, message: String) {
    service.notes.problem_with_hint(
        field.place(),
        message,
        "make it read only (`:ro`), use a named volume, or list it in `[trials] shared`",
    );
}

/// Checks that the volume exists, and that writing to it harms nobody.
fn check_volume(
    service: &mut ServiceReader<'_>,
    field: &Field<'_>,
    draft: &Draft,
    name: &str,
) -> Option<()> {
    let Some(volume) = service.use_volume(name) else {
        field.problem_with_hint(
            &mut service.notes,
            format_args!("the volume `{name}` is not declared"),
            "declare it under the top-level `volumes`, or start a path with `./`",
        );
        return None;
    };
    let root = Field::root(name, &volume);
    let outside = outside_name(&root, name);
    let Some(outside) = outside else {
        return Some(());
    };
    let is_shared = service.is_shared(name)
        || service.is_shared(&outside)
        || service.is_shared_path(Path::new(&outside));
    if !draft.read_only && !is_shared {
        let message = format!(
            "writable_mount: service `{}` could write to `{outside}`, which the volume `{name}` stands for, through `{}`",
            service.name, draft.target
        );
        refuse_writable(service, field, message);
    }
    Some(())
}

/// What a volume stands for outside the stack: an external name, or the device
/// of driver options that mount something of the host's or the network's.
pub(super) fn outside_name(volume: &Field<'_>, name: &str) -> Option<String> {
    let text = |node: &Arc<Node>| node.as_text().map(str::to_owned);
    if is_external(volume) {
        let in_old_form = volume.node.get("external").and_then(|old| old.get("name"));
        let given = volume.node.get("name").or(in_old_form);
        return Some(given.and_then(text).unwrap_or_else(|| name.to_owned()));
    }
    let options = volume.node.get("driver_opts")?;
    let is_memory = options.get("type").and_then(text).as_deref() == Some("tmpfs");
    let device = options.get("device").and_then(text)?;
    (!is_memory).then_some(device)
}

/// `external: true`, or the old map form.
pub(super) fn is_external(element: &Field<'_>) -> bool {
    element.get("external").is_some_and(|field| {
        field.node.as_map().is_some()
            || field.node.as_text().and_then(typing::as_lenient_boolean) == Some(true)
    })
}
