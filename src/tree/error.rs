//! Why a tree could not be read or copied.

use std::io;
use std::path::{Path, PathBuf};

/// A step of reading or copying a tree that failed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The file system refused.
    #[error("{what} {}", path.display())]
    Io {
        /// What was tried, as `read`.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The place to copy to holds something already.
    #[error("{} is not empty", path.display())]
    NotEmpty {
        /// The place.
        path: PathBuf,
    },
    /// A file that is no file, folder, link, pipe or socket.
    #[error("{} is a device, which cannot be copied", path.display())]
    Device {
        /// The device.
        path: PathBuf,
    },
    /// A file that changed while it was read.
    #[error("{} became shorter while it was read: something writes to it", path.display())]
    Changing {
        /// The file.
        path: PathBuf,
    },
    /// The file system cannot share the content of files.
    #[error("{} cannot be cloned by reflink: its file system, or the one to clone to, does not share content between files", path.display())]
    NoReflink {
        /// The first file that could not be shared.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl TreeError {
    /// For `map_err`: what was tried, on what.
    pub(super) fn io<E: Into<io::Error>>(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            what,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
