//! A tree copied as it is: content, permission bits, owners, times, links, holes,
//! extended attributes.
//!
//! **Invariant**: the source is only read. The copy is made in an empty place; a copy
//! that fails half-way is the caller's to throw away.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    lgetxattr, llistxattr, lsetxattr, mknodat, utimensat,
};
use rustix::io::Errno;

use super::TreeError;
use super::content::{CloneMode, Method, can_share, fill};
use super::fingerprint::in_parallel;
use super::walk::{Entry, Kind, at_root, walk};

/// What a clone came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cloned {
    /// How content was passed on: `Reflink` or `Copy`.
    pub method: CloneMode,
    /// Extended attributes that the target would not take, by name, each once.
    pub lost_attributes: Vec<String>,
}

/// Copies the tree below `from` to `to`, which is made where it is not there.
///
/// **Errors**: a target that holds something; devices; `Reflink` where the file
/// system cannot; whatever the file system refuses.
pub fn clone_tree(from: &Path, to: &Path, mode: CloneMode) -> Result<Cloned, TreeError> {
    let entries = walk(from)?;
    if let Some(device) = entries.iter().find(|entry| entry.kind == Kind::Device) {
        return Err(TreeError::Device {
            path: from.join(&device.path),
        });
    }
    fs_err::create_dir_all(to).map_err(TreeError::io("create", to))?;
    let mut there = fs_err::read_dir(to).map_err(TreeError::io("list", to))?;
    if there.next().is_some() {
        return Err(TreeError::NotEmpty {
            path: to.to_owned(),
        });
    }
    let method = decide(from, to, mode, &entries)?;
    make_folders(to, &entries)?;

    // One name of each file makes it; its other names are links to that one.
    let mut first_names: HashMap<(u64, u64), &Path> = HashMap::new();
    let mut files = Vec::new();
    let mut links: Vec<(&Path, &Path)> = Vec::new();
    for entry in &entries {
        let first = entry.shared.map_or(entry.path.as_path(), |of| {
            first_names.entry(of).or_insert(&entry.path)
        });
        if first != entry.path {
            links.push((first, &entry.path));
        } else if entry.kind == Kind::File {
            files.push(entry);
        } else {
            make_special(from, to, entry)?;
        }
    }
    // The largest begin first, so that no thread is left alone with one at the end.
    files.sort_by_key(|entry| std::cmp::Reverse(entry.size));
    in_parallel(files.len(), |index| {
        let entry = files[index];
        fill(
            &from.join(&entry.path),
            &to.join(&entry.path),
            entry.size,
            method,
        )
    })?;
    for (first, other) in links {
        let other = to.join(other);
        fs_err::hard_link(to.join(first), &other).map_err(TreeError::io("link", &other))?;
    }
    // Deepest first: what is made inside a folder changes the folder's time.
    let mut lost_attributes = Vec::new();
    for entry in entries.iter().rev() {
        dress(from, to, entry, &mut lost_attributes)?;
    }
    lost_attributes.sort();
    lost_attributes.dedup();
    Ok(Cloned {
        method: match method {
            Method::Share => CloneMode::Reflink,
            Method::KernelCopy | Method::OwnCopy => CloneMode::Copy,
        },
        lost_attributes,
    })
}

/// How content will be passed on; tried with a real file where it must be found out.
fn decide(from: &Path, to: &Path, mode: CloneMode, entries: &[Entry]) -> Result<Method, TreeError> {
    let tried = entries
        .iter()
        .find(|entry| entry.kind == Kind::File && entry.size > 0);
    let entry = match (mode, tried) {
        (CloneMode::Reflink, _) => return Ok(Method::Share),
        // Nothing has content.
        (_, None) => return Ok(Method::KernelCopy),
        (_, Some(entry)) => entry,
    };
    let trial = to.join(".nightsweep-reflink");
    let can = can_share(&from.join(&entry.path), &trial)?;
    Ok(match (mode, can) {
        (CloneMode::Auto | CloneMode::Reflink, true) => Method::Share,
        (CloneMode::Copy, true) => Method::OwnCopy,
        (_, false) => Method::KernelCopy,
    })
}

fn make_folders(to: &Path, entries: &[Entry]) -> Result<(), TreeError> {
    let inside = |entry: &&Entry| entry.kind == Kind::Folder && !entry.path.as_os_str().is_empty();
    for entry in entries.iter().filter(inside) {
        let at = to.join(&entry.path);
        fs_err::create_dir(&at).map_err(TreeError::io("create", &at))?;
    }
    Ok(())
}

/// Links, pipes and sockets.
fn make_special(from: &Path, to: &Path, entry: &Entry) -> Result<(), TreeError> {
    let at = to.join(&entry.path);
    let node = |kind| {
        mknodat(CWD, &at, kind, Mode::from_raw_mode(0o600), 0).map_err(TreeError::io("create", &at))
    };
    match entry.kind {
        Kind::Link => {
            let source = from.join(&entry.path);
            let target = fs_err::read_link(&source).map_err(TreeError::io("read", &source))?;
            fs_err::os::unix::fs::symlink(target, &at).map_err(TreeError::io("create", &at))
        }
        Kind::Pipe => node(FileType::Fifo),
        Kind::Socket => node(FileType::Socket),
        Kind::Folder | Kind::File | Kind::Device => Ok(()),
    }
}

/// Makes one folder look like another.
pub(super) fn dress_root(from: &Path, to: &Path) -> Result<(), TreeError> {
    let root = super::walk::entry(from, PathBuf::new())?;
    dress(from, to, &root, &mut Vec::new())
}

/// Owner, attributes, permission bits and times, in the order in which one does not undo another.
fn dress(
    from: &Path,
    to: &Path,
    entry: &Entry,
    lost_attributes: &mut Vec<String>,
) -> Result<(), TreeError> {
    let at = at_root(to, &entry.path);
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    chownat(CWD, &at, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(TreeError::io("give its owner to", &at))?;
    pass_attributes(&at_root(from, &entry.path), &at, lost_attributes)?;
    if entry.kind != Kind::Link {
        chmodat(CWD, &at, Mode::from_raw_mode(entry.mode), AtFlags::empty())
            .map_err(TreeError::io("set the permissions of", &at))?;
    }
    let [access, change] = entry
        .times
        .map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
    let times = Timestamps {
        last_access: access,
        last_modification: change,
    };
    utimensat(CWD, &at, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(TreeError::io("set the times of", &at))
}

/// Extended attributes, access lists among them, as far as both sides have them.
fn pass_attributes(from: &Path, to: &Path, lost: &mut Vec<String>) -> Result<(), TreeError> {
    let mut names = vec![0_u8; 64 << 10];
    let n = match llistxattr(from, &mut names[..]) {
        Ok(n) => n,
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => 0,
        Err(error) => return Err(TreeError::io("read the attributes of", from)(error)),
    };
    for name in names[..n].split(|byte| *byte == 0) {
        // The kernel's own label of each file; it makes one for the copy by itself.
        if name.is_empty() || name == b"security.selinux" {
            continue;
        }
        let mut value = vec![0_u8; 64 << 10];
        let name = OsStr::from_bytes(name);
        let passed = lgetxattr(from, name, &mut value[..])
            .and_then(|n| lsetxattr(to, name, &value[..n], XattrFlags::empty()));
        match passed {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::NODATA) => {
                lost.push(name.to_string_lossy().into_owned());
            }
            Err(error) => return Err(TreeError::io("set the attributes of", to)(error)),
        }
    }
    Ok(())
}
