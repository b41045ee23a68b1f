//! The content of one file, copied or shared.

use std::io;
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::TreeError;

/// How content gets from one file to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloneMode {
    /// Shared where the file system can, else copied.
    Auto,
    /// Both files share their blocks until one is written to.
    Reflink,
    /// Every byte is copied; holes stay holes.
    Copy,
}

impl CloneMode {
    /// As reports and rows spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Reflink => "reflink",
            Self::Copy => "copy",
        }
    }
}

/// Copied by hand where the kernel will not do it itself.
const BUFFER_BYTES: usize = 1 << 20;

/// What the kernel says where content cannot be shared.
pub(super) fn is_no_reflink(error: Errno) -> bool {
    [
        Errno::OPNOTSUPP,
        Errno::XDEV,
        Errno::INVAL,
        Errno::NOTTY,
        Errno::NOSYS,
        Errno::PERM,
    ]
    .contains(&error)
}

/// How it is really done, once that has been found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Share,
    /// The kernel copies: the fastest.
    KernelCopy,
    /// Read and written here: where files can share blocks, the kernel's copy would do that.
    OwnCopy,
}

/// Gives a new file the content of another.
pub(super) fn fill(from: &Path, to: &Path, size: u64, method: Method) -> Result<(), TreeError> {
    let source = fs_err::File::open(from).map_err(TreeError::io("open", from))?;
    let target = fs_err::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(to)
        .map_err(TreeError::io("create", to))?;
    if size == 0 {
        return Ok(());
    }
    let copied = match method {
        Method::Share => return share(&target, &source, from),
        Method::KernelCopy => copy(source.file(), target.file(), size, copy_range),
        Method::OwnCopy => copy(source.file(), target.file(), size, copy_by_hand),
    };
    copied.map_err(TreeError::io("copy to", to))
}

/// Whether the content of a file can be shared with a new file at `to`.
pub(super) fn can_share(from: &Path, to: &Path) -> Result<bool, TreeError> {
    let source = fs_err::File::open(from).map_err(TreeError::io("open", from))?;
    let target = fs_err::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(to)
        .map_err(TreeError::io("create", to))?;
    let shared = share(&target, &source, from);
    fs_err::remove_file(to).map_err(TreeError::io("remove", to))?;
    match shared {
        Ok(()) => Ok(true),
        Err(TreeError::NoReflink { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn share(target: &fs_err::File, source: &fs_err::File, from: &Path) -> Result<(), TreeError> {
    ioctl_ficlone(target.file(), source.file()).map_err(|error| {
        if is_no_reflink(error) {
            TreeError::NoReflink {
                path: from.to_owned(),
                source: error.into(),
            }
        } else {
            TreeError::io("share the content of", from)(error)
        }
    })
}

/// Copies what is there and leaves the holes out.
fn copy(
    source: &std::fs::File,
    target: &std::fs::File,
    size: u64,
    range: fn(&std::fs::File, &std::fs::File, u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    // Makes the hole at the end, and every other one, by not writing there.
    target.set_len(size)?;
    let mut at = 0;
    while at < size {
        let data = match seek(source, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            // A file system that does not know its holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let end = match seek(source, SeekFrom::Hole(data)) {
            Ok(hole) => hole.min(size),
            Err(_) => size,
        };
        range(source, target, data, end)?;
        at = end;
    }
    Ok(())
}

fn copy_range(
    source: &std::fs::File,
    target: &std::fs::File,
    from: u64,
    end: u64,
) -> io::Result<()> {
    let (mut read_at, mut write_at) = (from, from);
    while read_at < end {
        let wanted = usize::try_from(end - read_at).unwrap_or(usize::MAX);
        let copied = copy_file_range(
            source,
            Some(&mut read_at),
            target,
            Some(&mut write_at),
            wanted,
        );
        match copied {
            // Some file systems copy nothing instead of refusing.
            Ok(0)
            | Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM) => {
                return copy_by_hand(source, target, read_at, end);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(
    source: &std::fs::File,
    target: &std::fs::File,
    from: u64,
    end: u64,
) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = from;
    while at < end {
        let wanted = BUFFER_BYTES.min(usize::try_from(end - at).unwrap_or(BUFFER_BYTES));
        let n = source.read_at(&mut buffer[..wanted], at)?;
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was read: something writes to it",
            ));
        }
        target.write_all_at(&buffer[..n], at)?;
        at += n as u64;
    }
    Ok(())
}
