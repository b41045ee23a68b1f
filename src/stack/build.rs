//! `image` and `build`: what a container is made from, and how that is made.
//!
//! Nothing is built here and no folder is opened. Until it is built, an image
//! without a name has the one that Compose would give it. Pure but for paths made absolute.

use std::time::Duration;

use indexmap::IndexMap;

use super::field::Field;
use super::merge;
use super::model::{Build, PullPolicy};
use super::mounts::host_path;
use super::notes::Notes;
use super::process;
use super::service::ServiceReader;
use super::template::Lookup;

const NOT_BUILT_RULE: &str = "built only where the engine holds no image of that name, or where cells build it \
     differently; `pull_policy: build` builds it anyway";

const PROCEDURE_RULE: &str =
    "says how an image is built, stored or named, not what is in it; it has no effect here";

/// Schemes and forms of a context that is no folder of this host.
const REMOTE_CONTEXTS: [&str; 6] = [
    "http://",
    "https://",
    "git://",
    "ssh://",
    "git@",
    "github.com/",
];

/// Reads both keys: the image's name, and how it is made where the file says so.
pub(super) fn read(reader: &mut ServiceReader<'_>, root: &Field<'_>) -> (String, Option<Build>) {
    let image = root.get("image");
    let Some(field) = root.get("build") else {
        // What is made by a `provider` was refused as that.
        let is_said = root.get("provider").is_some()
            || root.node.get("image").is_some_and(|node| node.is_null());
        if image.is_none() && !is_said {
            root.problem_with_hint(
                &mut reader.notes,
                "has neither `image` nor `build`",
                "name the image that the container is made from",
            );
        }
        let name = image.and_then(|field| image_name(&field, &mut reader.notes));
        return (name.unwrap_or_default(), None);
    };
    let mut build = build(reader, &field);
    let name = if let Some(image) = image {
        if root.node.get("pull_policy").and_then(|node| node.as_text()) != Some("build") {
            reader.notes.rule(NOT_BUILT_RULE, field.to_string());
        }
        image_name(&image, &mut reader.notes).unwrap_or_default()
    } else {
        build.names_no_image = true;
        let project = &reader.variables.project;
        let separator = if project.is_empty() { "" } else { "-" };
        format!("{project}{separator}{}", reader.name).to_lowercase()
    };
    (name, Some(build))
}

fn image_name(field: &Field<'_>, notes: &mut Notes) -> Option<String> {
    let image = field.filled_text(notes)?;
    if is_image_reference(&image) {
        return Some(image);
    }
    let message = format!("`{image}` is not an image reference such as postgres:17");
    let unset = field.unset_names();
    if unset.is_empty() {
        // Compose takes any text here; the engine will say that there is no such image.
        notes.warn(format!("{}: {field}: {message}", field.place()));
        return Some(image);
    }
    let hint = format!("give {unset} a value");
    field.problem_with_hint(notes, message, hint);
    None
}

fn build(reader: &mut ServiceReader<'_>, field: &Field<'_>) -> Build {
    let named = merge::build_map(field.node);
    let root = field.with(&named);
    let mut build = Build {
        place: field.key_place().to_string(),
        ..Build::default()
    };
    let mut has_context = false;
    for item in root.entries(&mut reader.notes) {
        let key = item.key();
        if item.node.is_null() {
            if !key.starts_with("x-") {
                item.no_value(&mut reader.notes);
            }
            continue;
        }
        let notes = &mut reader.notes;
        match key {
            "context" => {
                has_context = true;
                build.context = context(reader, &item).unwrap_or_default();
            }
            "dockerfile" => build.dockerfile = item.filled_text(notes),
            "dockerfile_inline" => build.dockerfile_inline = item.filled_text(notes),
            "target" => build.target = item.filled_text(notes),
            "network" => build.network = item.filled_text(notes),
            "shm_size" => build.shm_size = item.bytes(notes),
            "platforms" => build.platforms = item.texts(notes),
            "extra_hosts" => build.extra_hosts = process::hosts(&item, notes),
            "labels" => build.labels = process::pairs(&root, "labels", notes),
            "args" => build.args = arguments(reader, &item),
            "additional_contexts" => {
                build.additional_contexts = process::pairs(&root, key, notes);
            }
            "cache_from" => build.cache_from = item.texts(notes),
            "no_cache" => build.no_cache = item.boolean(notes).unwrap_or_default(),
            "pull" => build.pull = item.boolean(notes).unwrap_or_default(),
            "cache_to" | "tags" | "provenance" | "sbom" | "no_cache_filter" | "isolation" => {
                notes.rule(PROCEDURE_RULE, item.to_string());
            }
            "ssh" | "secrets" | "entitlements" | "privileged" | "ulimits" => {
                item.problem_with_hint(
                    notes,
                    "needs a builder that the Engine API alone does not offer",
                    "build the image beforehand (`docker compose build`) and clear `build` in an override",
                );
            }
            key if key.starts_with("x-") => {}
            _ => item.unknown(
                &[
                    "context",
                    "dockerfile",
                    "dockerfile_inline",
                    "target",
                    "args",
                    "labels",
                    "network",
                    "platforms",
                    "additional_contexts",
                ],
                notes,
            ),
        }
    }
    if !has_context {
        // The folder of the file, as Compose takes it.
        build.context = root.node.mark.folder().display().to_string();
    }
    if let (Some(_), Some(_)) = (&build.dockerfile, &build.dockerfile_inline) {
        root.problem(
            &mut reader.notes,
            "`dockerfile` and `dockerfile_inline` exclude each other",
        );
    }
    build
}

fn context(reader: &mut ServiceReader<'_>, field: &Field<'_>) -> Option<String> {
    let written = field.filled_text(&mut reader.notes)?;
    let is_remote = REMOTE_CONTEXTS
        .iter()
        .any(|start| written.starts_with(start))
        || written.contains("://");
    if is_remote {
        return Some(written);
    }
    Some(host_path(reader, field, &written)?.display().to_string())
}

/// `pull_policy`: when the image is fetched.
pub(super) fn pull_policy(root: &Field<'_>, notes: &mut Notes) -> Option<PullPolicy> {
    let field = root
        .get("pull_policy")
        .filter(|field| !field.node.is_null())?;
    let text = field.filled_text(notes)?;
    let policy = parse_pull_policy(&text);
    if policy.is_none() {
        let allowed = "always, missing, if_not_present, never, build, daily, weekly, every_<time> such as every_12h";
        field.problem(
            notes,
            format!("`{text}` is not a policy (allowed: {allowed})"),
        );
    }
    policy
}

fn parse_pull_policy(text: &str) -> Option<PullPolicy> {
    const DAY: u64 = 24 * 60 * 60;
    Some(match text {
        "always" => PullPolicy::Always,
        "missing" | "if_not_present" => PullPolicy::Missing,
        "never" => PullPolicy::Never,
        "build" => PullPolicy::Build,
        "daily" => PullPolicy::Every(Duration::from_secs(DAY)),
        "weekly" => PullPolicy::Every(Duration::from_secs(7 * DAY)),
        _ => {
            // Largest unit first, each at most once, as Compose takes it.
            let mut rest = text
                .strip_prefix("every_")
                .filter(|rest| !rest.is_empty())?;
            let mut seconds = 0_u64;
            for (unit, length) in [('w', 7 * DAY), ('d', DAY), ('h', 3600), ('m', 60), ('s', 1)] {
                let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                if n_digits > 0
                    && let Some(after) = rest[n_digits..].strip_prefix(unit)
                {
                    let count: u64 = rest[..n_digits].parse().ok()?;
                    seconds = seconds.checked_add(count.checked_mul(length)?)?;
                    rest = after;
                }
            }
            if !rest.is_empty() {
                return None;
            }
            PullPolicy::Every(Duration::from_secs(seconds))
        }
    })
}

/// Arguments by name; a bare name takes the project's value and is absent without one.
fn arguments(reader: &mut ServiceReader<'_>, field: &Field<'_>) -> IndexMap<String, String> {
    let named = merge::pairs_of(field.node);
    let field = field.with(&named);
    let mut arguments = IndexMap::new();
    for item in field.entries(&mut reader.notes) {
        match item.canonical_text(&mut reader.notes) {
            Some(Some(value)) => {
                arguments.insert(item.key().to_owned(), value);
            }
            Some(None) => {
                let name = item.key();
                reader.notes.referred.insert(name.to_owned());
                if let Some((value, origin)) = reader.variables.find(name) {
                    let value = value.to_owned();
                    reader.notes.took(&value, origin);
                    arguments.insert(name.to_owned(), value);
                }
            }
            None => {}
        }
    }
    arguments
}

/// Whether a text is `[host[:port]/]path[:tag][@digest]`, as far as a slip would show.
pub fn is_image_reference(text: &str) -> bool {
    let (named, digest) = match text.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (text, None),
    };
    let name_start = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[name_start..].split_once(':') {
        Some((_, tag)) => (&named[..named.len() - tag.len() - 1], Some(tag)),
        None => (named, None),
    };
    let path_fits = name.split('/').enumerate().all(|(index, part)| {
        let is_host = index == 0 && name.contains('/');
        let fits = |c: char| {
            c.is_ascii_lowercase()
                || c.is_ascii_digit()
                || matches!(c, '.' | '_' | '-')
                || (is_host && (c == ':' || c.is_ascii_uppercase()))
        };
        !part.is_empty()
            && part.chars().all(fits)
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    });
    let tag_fits = tag.is_none_or(|tag| {
        (1..=128).contains(&tag.len())
            && !tag.starts_with(['.', '-'])
            && tag
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    });
    let digest_fits = digest.is_none_or(|digest| {
        digest
            .split_once(':')
            .is_some_and(|(_, hex)| hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit()))
    });
    path_fits && tag_fits && digest_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_compose_s_own_words() {
        let every = |seconds| Some(PullPolicy::Every(Duration::from_secs(seconds)));
        for (text, policy) in [
            ("always", Some(PullPolicy::Always)),
            ("if_not_present", Some(PullPolicy::Missing)),
            ("build", Some(PullPolicy::Build)),
            ("daily", every(86_400)),
            ("weekly", every(604_800)),
            ("every_1w2d3h", every(604_800 + 2 * 86_400 + 3 * 3600)),
            ("every_90m", every(5_400)),
            ("every_", None),
            ("every_3", None),
            ("every_1h1d", None),
            ("every_99999999999999999999w", None),
            ("sometimes", None),
        ] {
            assert_eq!(parse_pull_policy(text), policy, "{text}");
        }
    }
}
