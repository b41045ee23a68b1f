//! What can go wrong when results are written or found.

use std::io;
use std::path::{Path, PathBuf};

/// Why results could not be written or found.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The file system said no: disk full, no permission, path gone.
    #[error("{operation} `{}`", path.display())]
    File {
        /// What was being done, as `append to`.
        operation: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An existing file has other columns than this run writes.
    #[error(
        "append to `{}`: its header is not this run's (first difference: column {column} is `{found}`, expected `{expected}`)",
        path.display()
    )]
    HeaderDiffers {
        /// The file.
        path: PathBuf,
        /// Where they part, from 1.
        column: usize,
        /// What this run writes there; empty past the end.
        expected: String,
        /// What the file has there; empty past the end.
        found: String,
    },
    /// A row has an axis, variable or service that the file's columns lack.
    #[error("append to `{}`: the row of trial {trial} has `{column}`, which is not a column of the file", path.display())]
    ColumnUnknown {
        /// The file.
        path: PathBuf,
        /// Trial of the row.
        trial: u32,
        /// The column that is not there.
        column: String,
    },
    /// The run's folder is there already; nothing is ever written over.
    #[error("create run folder `{}`: it already exists", path.display())]
    RunExists {
        /// The folder.
        path: PathBuf,
    },
    /// There is nothing to take the latest of.
    #[error("find the latest run: no run in `{}` (a run is a folder that holds trials.csv or run.json)", folder.display())]
    NoRuns {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// No run of that name.
    #[error("find run `{run}`: neither a folder with results nor a run id in `{}`{}", folder.display(), known(near))]
    RunUnknown {
        /// What was asked for.
        run: String,
        /// Where ids were looked for.
        folder: PathBuf,
        /// Runs that are there, newest first; at most five.
        near: Vec<String>,
    },
    /// A histogram could not be encoded.
    #[error("encode histogram {index} (tag `{tag}`) of `{}`", path.display())]
    Histogram {
        /// The log.
        path: PathBuf,
        /// Which one, from 0.
        index: usize,
        /// Its tag.
        tag: String,
        /// What hdrhistogram said.
        #[source]
        source: io::Error,
    },
}

impl ResultsError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { path, source, .. } => hint_for(path, source.kind()),
            Self::HeaderDiffers { .. }
            | Self::ColumnUnknown { .. }
            | Self::RunExists { .. }
            | Self::NoRuns { .. }
            | Self::RunUnknown { .. }
            | Self::Histogram { .. } => None,
        }
    }

    /// For `map_err`: an I/O error with what was being done to what.
    pub(super) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            operation,
            path,
            source,
        }
    }
}

fn hint_for(path: &Path, kind: io::ErrorKind) -> Option<String> {
    const ELSEWHERE: &str = "choose another folder with `--out`";
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.display();
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(format!(
            "free space on the disk of `{folder}`, or {ELSEWHERE}"
        )),
        io::ErrorKind::ReadOnlyFilesystem => Some(format!(
            "the disk of `{folder}` can only be read: {ELSEWHERE}"
        )),
        io::ErrorKind::PermissionDenied => Some(format!(
            "give this user the right to write to `{folder}`, or {ELSEWHERE}"
        )),
        io::ErrorKind::NotADirectory => Some(format!(
            "`{folder}` is, or leads through, a file: {ELSEWHERE}"
        )),
        _ => None,
    }
}

fn known(near: &[String]) -> String {
    if near.is_empty() {
        String::new()
    } else {
        format!(" (newest there: {})", near.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_takes_nothing_has_a_next_step() {
        let path = Path::new("out/results/r/trials.csv");
        for (kind, hint) in [
            (
                io::ErrorKind::StorageFull,
                Some(
                    "free space on the disk of `out/results/r`, or choose another folder with `--out`",
                ),
            ),
            (
                io::ErrorKind::ReadOnlyFilesystem,
                Some(
                    "the disk of `out/results/r` can only be read: choose another folder with `--out`",
                ),
            ),
            (io::ErrorKind::NotFound, None),
        ] {
            let error = ResultsError::file("append to", path)(io::Error::from(kind));
            assert_eq!(error.hint().as_deref(), hint);
        }
    }
}
