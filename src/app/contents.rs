//! The content of files and folders that services see, as digests.
//!
//! Read on a thread of its own that nobody waits for at the end: a large folder may take
//! minutes, and whoever asked may have a time limit or be interrupted.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indexmap::IndexMap;

use crate::problem::chain;
use crate::tree::{Depth, TreeError, fingerprint, fingerprint_up_to};

/// Of what only reads the volumes, configuration is looked at and no bulk data: a folder of
/// pictures in front of an app would be read before every sweep.
const MOST_ENTRIES: usize = 10_000;
/// The same by size. **Units**: bytes.
const MOST_BYTES: u64 = 64 << 20;
/// The host's own state, which is another one at every look.
const HOST_FOLDERS: [&str; 6] = [
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/var/lib/docker",
];

/// What was read of every path that was asked for.
#[derive(Debug, Default)]
pub(super) struct Contents {
    digests: IndexMap<PathBuf, String>,
    /// Paths that are too large to be read, or change all the time.
    pub(super) passed_over: Vec<PathBuf>,
    /// What cannot be read, and why: one sentence each.
    pub(super) unreadable: Vec<String>,
}

impl Contents {
    /// Reads each path once; those with `true` in full, whatever their size.
    pub(super) async fn read(paths: IndexMap<PathBuf, bool>) -> Self {
        let read = on_a_thread(move |is_wanted| {
            let mut contents = Self::default();
            for (path, is_whole) in paths {
                if is_wanted() {
                    contents.add(path, is_whole);
                }
            }
            contents
        });
        // Nothing read must not look like nothing there.
        read.await.unwrap_or_else(|| Self {
            unreadable: vec!["reading what services mount broke down".to_owned()],
            ..Self::default()
        })
    }

    /// The digest of a path; `None` for one that was passed over.
    pub(super) fn of(&self, path: &Path) -> Option<String> {
        self.digests.get(path).cloned()
    }

    fn add(&mut self, path: PathBuf, is_whole: bool) {
        match digest_of(&path, is_whole) {
            Ok(Some(digest)) => drop(self.digests.insert(path, digest)),
            Ok(None) => self.passed_over.push(path),
            Err(error) => self.unreadable.push(format!(
                "{} is mounted, and what golden volumes hold may depend on it: {}",
                path.display(),
                chain(&error)
            )),
        }
    }
}

/// Sizes of all files of a folder; `None` where it cannot be read, or not within so long.
///
/// **Units**: bytes.
pub(super) async fn size_of(folder: PathBuf, limit: Duration) -> Option<u64> {
    let read = on_a_thread(move |_| fingerprint(&folder, Depth::Shape).ok());
    let read = tokio::time::timeout(limit, read).await;
    read.ok().flatten().flatten().map(|read| read.bytes)
}

/// Runs what waits for disks on a thread that the program's end does not wait for.
///
/// `work` is given a question: whether its answer is still wanted.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Option<T> {
    let (done, read) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let answer = work(&|| !done.is_closed());
        // Whoever asked may be gone by now.
        drop(done.send(answer));
    });
    read.await.ok()
}

fn digest_of(path: &Path, is_whole: bool) -> Result<Option<String>, TreeError> {
    // The engine mounts what a link leads to.
    let real = match fs_err::canonicalize(path) {
        Ok(real) => real,
        // The launch says so, if it needs it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some("nothing".to_owned()));
        }
        Err(source) => {
            return Err(TreeError::Io {
                what: "find",
                path: path.to_owned(),
                source,
            });
        }
    };
    if is_whole {
        return Ok(fingerprint(&real, Depth::Content)?.content);
    }
    let is_hosts = |folder: &&str| real.starts_with(folder);
    if real == Path::new("/") || HOST_FOLDERS.iter().any(is_hosts) {
        return Ok(None);
    }
    let found = fingerprint_up_to(&real, MOST_ENTRIES, MOST_BYTES)?;
    Ok(found.and_then(|found| found.content))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(paths: &[(&Path, bool)]) -> Contents {
        let paths = paths
            .iter()
            .map(|(path, is_whole)| ((*path).to_owned(), *is_whole));
        Contents::read(paths.collect()).await
    }

    #[tokio::test]
    async fn content_counts_through_links_and_what_is_missing_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("link"));
        fs_err::write(&file, "one").unwrap();
        fs_err::os::unix::fs::symlink(&file, &link).unwrap();
        let missing = folder.path().join("missing");
        let paths = [(&*link, false), (&*file, true), (&*missing, true)];
        let before = read(&paths).await;
        assert_eq!(before.of(&link), before.of(&file));
        assert_eq!(before.of(&missing).unwrap(), "nothing");
        fs_err::write(&file, "two").unwrap();
        let after = read(&paths).await;
        assert_ne!(after.of(&link), before.of(&link));
        assert!(after.unreadable.is_empty());
    }

    #[tokio::test]
    async fn bulk_data_and_the_hosts_own_state_are_passed_over_unless_a_writer_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let large = fs_err::File::create(folder.path().join("large")).unwrap();
        large.file().set_len(MOST_BYTES + 1).unwrap();
        let paths = [(folder.path(), false), (Path::new("/proc"), false)];
        let contents = read(&paths).await;
        assert_eq!(contents.passed_over.len(), 2);
        assert_eq!(contents.of(folder.path()), None);
        let whole = read(&[(folder.path(), true)]).await;
        assert!(whole.of(folder.path()).is_some());
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs_err::write(&file, "x").unwrap();
        // A path below a file cannot be looked at, whoever asks.
        let below = file.join("below");
        let contents = read(&[(&*below, true)]).await;
        assert_eq!(contents.of(&below), None);
        let words = contents.unreadable.join("\n");
        assert!(words.contains(&below.display().to_string()), "{words}");
        assert!(words.contains("Not a directory"), "{words}");
    }
}
