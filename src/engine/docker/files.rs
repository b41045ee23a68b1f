//! Files that the stack itself has the content of, put into a container before its start.
//!
//! Pure: it makes archives; `calls.rs` sends them. **Invariant**: a file that would not
//! be seen inside is refused before anything is made, never left out.

use std::path::{Component, Path};

use indexmap::IndexMap;

use super::requests::RequestError;
use crate::stack::{Mount, MountSource, Service};

/// Where Compose shows secrets that name no place of their own.
const SECRETS_FOLDER: &str = "/run/secrets";

/// Bits of a file that names none. **Source**: the Compose specification.
const DEFAULT_MODE: u32 = 0o444;

/// Archives of a service's files, each with the folder that its paths start from.
///
/// A file inside a volume goes in by that volume: the engine writes to it even where
/// the root file system is read only.
pub(super) fn archives(service: &Service) -> Result<Vec<(String, Vec<u8>)>, RequestError> {
    let mut builders: IndexMap<String, tar::Builder<Vec<u8>>> = IndexMap::new();
    let has_volume = needs_secrets_volume(service);
    for mount in contents(service) {
        let MountSource::Content {
            content,
            mode,
            uid,
            gid,
        } = &mount.source
        else {
            continue;
        };
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(content.len() as u64);
        header.set_mode(mode.unwrap_or(DEFAULT_MODE));
        header.set_uid(owner(uid.as_deref()));
        header.set_gid(owner(gid.as_deref()));
        header.set_mtime(0);
        let target = Path::new(&mount.target);
        let folder = if has_volume && target.starts_with(SECRETS_FOLDER) {
            SECRETS_FOLDER
        } else {
            cover(service, &mount.target).map_or("/", |over| &over.target)
        };
        let path = target.strip_prefix(folder).unwrap_or(target);
        let archive = builders.entry(folder.to_owned());
        archive
            .or_insert_with(|| tar::Builder::new(Vec::new()))
            .append_data(&mut header, path, content.as_bytes())
            .map_err(|_| cannot(&mount.target, "its path cannot be put into an archive"))?;
    }
    let finish = |(folder, builder): (String, tar::Builder<Vec<u8>>)| {
        let bytes = builder.into_inner();
        bytes
            .map(|bytes| (folder.clone(), bytes))
            .map_err(|_| cannot(&folder, "the archive cannot be made"))
    };
    builders.into_iter().map(finish).collect()
}

/// Whether a volume of the container's own takes the place of the secrets' folder.
///
/// The engine writes neither to a read-only root nor to a file system in memory
/// that is not mounted yet; it does write to a volume.
pub(super) fn needs_secrets_volume(service: &Service) -> bool {
    let is_below = |mount: &Mount| Path::new(&mount.target).starts_with(SECRETS_FOLDER);
    let is_taken = service
        .mounts
        .iter()
        .any(|mount| mount.target.trim_end_matches('/') == SECRETS_FOLDER);
    !is_taken
        && contents(service).any(is_below)
        && (service.read_only || cover(service, SECRETS_FOLDER).is_some_and(is_memory))
}

/// Where that volume is seen.
pub(super) fn secrets_folder() -> String {
    SECRETS_FOLDER.to_owned()
}

/// Refuses files that could not be put where they are to be seen.
pub(super) fn check(service: &Service) -> Result<(), RequestError> {
    let has_volume = needs_secrets_volume(service);
    for mount in contents(service) {
        let target = &mount.target;
        if Path::new(target)
            .components()
            .any(|part| part == Component::ParentDir)
        {
            return Err(cannot(target, "its path leads upwards"));
        }
        if has_volume && Path::new(target).starts_with(SECRETS_FOLDER) {
            continue;
        }
        match cover(service, target) {
            Some(over) if is_memory(over) => {
                return Err(cannot(
                    target,
                    "a tmpfs that is empty at the start covers it",
                ));
            }
            Some(over) if matches!(over.source, MountSource::Bind { .. }) => {
                return Err(cannot(
                    target,
                    "it would be written into a folder of this host",
                ));
            }
            Some(over) if over.read_only => {
                return Err(cannot(target, "a read-only volume covers it"));
            }
            None if service.read_only => {
                return Err(cannot(
                    target,
                    "the root file system is read only (`read_only: true`)",
                ));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn contents(service: &Service) -> impl Iterator<Item = &Mount> {
    service
        .mounts
        .iter()
        .filter(|mount| matches!(mount.source, MountSource::Content { .. }))
}

/// The mount that a path lies in: the deepest one above it.
fn cover<'s>(service: &'s Service, path: &str) -> Option<&'s Mount> {
    service
        .mounts
        .iter()
        .filter(|mount| !matches!(mount.source, MountSource::Content { .. }))
        .filter(|mount| Path::new(path).starts_with(&mount.target))
        .max_by_key(|mount| Path::new(&mount.target).components().count())
}

fn is_memory(mount: &Mount) -> bool {
    matches!(mount.source, MountSource::Tmpfs { .. })
}

/// Checked when the file was read; root where nothing is said.
fn owner(number: Option<&str>) -> u64 {
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn cannot(target: &str, why: &'static str) -> RequestError {
    RequestError::FileOutOfReach {
        target: target.to_owned(),
        why,
    }
}
