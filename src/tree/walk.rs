//! What is in a tree: every entry below a root, and the root itself.
//!
//! **Invariant**: links are never followed, and entries come in the order of
//! their paths as bytes, the root first.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::TreeError;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File,
    Link,
    Pipe,
    Socket,
    Device,
}

/// One entry of a tree.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// From the root; empty for the root itself.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// Permission bits with set-user-id and the like.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Of a file. **Units**: bytes.
    pub(super) size: u64,
    /// Room a file takes on its disk. **Units**: bytes.
    pub(super) allocated: u64,
    /// Device and number, where several names share one file.
    pub(super) shared: Option<(u64, u64)>,
    /// Seconds and nanoseconds of the last access and the last change.
    pub(super) times: [(i64, i64); 2],
}

/// All entries below a root, the root included.
pub(super) fn walk(root: &Path) -> Result<Vec<Entry>, TreeError> {
    let entries = walk_up_to(root, usize::MAX)?;
    Ok(entries.unwrap_or_default())
}

/// The same; `None` where there are more than so many.
pub(super) fn walk_up_to(root: &Path, most: usize) -> Result<Option<Vec<Entry>>, TreeError> {
    let mut entries = vec![entry(root, PathBuf::new())?];
    let mut next = 0;
    while next < entries.len() {
        if entries[next].kind == Kind::Folder {
            let folder = root.join(&entries[next].path);
            let listed = fs_err::read_dir(&folder).map_err(TreeError::io("list", &folder))?;
            for child in listed {
                let child = child.map_err(TreeError::io("list", &folder))?;
                let path = entries[next].path.join(child.file_name());
                entries.push(entry(root, path)?);
                if entries.len() > most {
                    return Ok(None);
                }
            }
        }
        next += 1;
    }
    entries.sort_by(|a, b| {
        a.path
            .as_os_str()
            .as_bytes()
            .cmp(b.path.as_os_str().as_bytes())
    });
    Ok(Some(entries))
}

pub(super) fn entry(root: &Path, path: PathBuf) -> Result<Entry, TreeError> {
    let at = at_root(root, &path);
    let seen = fs_err::symlink_metadata(&at).map_err(TreeError::io("look at", &at))?;
    let of_type = seen.file_type();
    let kind = if of_type.is_dir() {
        Kind::Folder
    } else if of_type.is_file() {
        Kind::File
    } else if of_type.is_symlink() {
        Kind::Link
    } else if of_type.is_fifo() {
        Kind::Pipe
    } else if of_type.is_socket() {
        Kind::Socket
    } else {
        Kind::Device
    };
    let is_file = kind == Kind::File;
    Ok(Entry {
        path,
        kind,
        mode: seen.mode() & 0o7777,
        uid: seen.uid(),
        gid: seen.gid(),
        size: if is_file { seen.size() } else { 0 },
        // stat counts in blocks of 512 bytes, whatever the file system's own are.
        allocated: if is_file { seen.blocks() * 512 } else { 0 },
        shared: (kind != Kind::Folder && seen.nlink() > 1).then(|| (seen.dev(), seen.ino())),
        times: [
            (seen.atime(), seen.atime_nsec()),
            (seen.mtime(), seen.mtime_nsec()),
        ],
    })
}

/// Joining an empty path would put a slash at the end, which a file does not bear.
pub(super) fn at_root(root: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        root.to_owned()
    } else {
        root.join(path)
    }
}
