//! The folder a build starts from: what of it is sent, and its content's digest.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::ignore::{Counting, Ignore};

/// What of a folder is sent to the builder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildContext {
    root: PathBuf,
    entries: Vec<Entry>,
    /// Files that are sent and lie elsewhere or nowhere, by their path in the context.
    extra: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Relative, `/` between its parts.
    path: String,
    kind: Kind,
    mode: u32,
    modified_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Folder,
    File { bytes: u64 },
    Link { target: PathBuf },
}

/// What of a folder could not be read or sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContextError {
    /// The file system said no; the message names the path.
    #[error("{0}")]
    File(#[from] io::Error),
    /// A name that is no text.
    #[error("the name of `{0}` is not UTF-8, which a build context of ours must be")]
    Name(PathBuf),
    /// `.dockerignore` holds something else than patterns.
    #[error("{file}: {problem}")]
    Ignore {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

impl BuildContext {
    /// Lists what is sent of a folder.
    ///
    /// `dockerfile` is its path in the folder where it lies there; it and the
    /// patterns' own file are always sent, since the engine needs both.
    pub(super) fn list(root: &Path, dockerfile: Option<&str>) -> Result<Self, ContextError> {
        let own = dockerfile.map(|name| format!("{name}.dockerignore"));
        let mut ignore = Ignore::default();
        for file in own.iter().map(String::as_str).chain([".dockerignore"]) {
            match fs_err::read(root.join(file)) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    ignore = Ignore::parse(&text).map_err(|problem| ContextError::Ignore {
                        file: root.join(file).display().to_string(),
                        problem,
                    })?;
                    ignore.keep(file);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(dockerfile) = dockerfile {
            ignore.keep(dockerfile);
        }
        let mut context = Self {
            root: root.to_owned(),
            entries: Vec::new(),
            extra: Vec::new(),
        };
        context.walk("", &ignore, &Counting::default())?;
        Ok(context)
    }

    fn walk(
        &mut self,
        folder: &str,
        ignore: &Ignore,
        above: &Counting,
    ) -> Result<(), ContextError> {
        let mut found = fs_err::read_dir(self.root.join(folder))?.collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(fs_err::DirEntry::file_name);
        for entry in found {
            let name = entry.file_name();
            let name = name
                .to_str()
                .ok_or_else(|| ContextError::Name(entry.path()))?;
            let path = if folder.is_empty() {
                name.to_owned()
            } else {
                format!("{folder}/{name}")
            };
            let metadata = fs_err::symlink_metadata(entry.path())?;
            let (is_out, counting) = ignore.leaves_out(&path, above);
            if is_out && !(metadata.is_dir() && ignore.enters(&path)) {
                continue;
            }
            let kind = if metadata.is_dir() {
                Kind::Folder
            } else if metadata.is_symlink() {
                let target = fs_err::read_link(entry.path())?;
                Kind::Link { target }
            } else if metadata.is_file() {
                Kind::File {
                    bytes: metadata.len(),
                }
            } else {
                // Sockets and the like are nothing that an image could hold.
                continue;
            };
            let is_folder = kind == Kind::Folder;
            if !is_out {
                self.entries.push(Entry {
                    path: path.clone(),
                    kind,
                    mode: metadata.mode() & 0o7777,
                    modified_s: u64::try_from(metadata.mtime()).unwrap_or(0),
                });
            }
            if is_folder {
                self.walk(&path, ignore, &counting)?;
            }
        }
        Ok(())
    }

    /// Adds the steps as a file that the image must not see.
    ///
    /// The engine takes out of the context what `.dockerignore` names once it
    /// has read the steps: so the Docker CLI does it, too.
    pub(super) fn add_dockerfile(&mut self, name: &str, steps: &[u8]) -> Result<(), ContextError> {
        let mut patterns = match fs_err::read(self.root.join(".dockerignore")) {
            Ok(bytes) => bytes,
            // Where there was none, the image must not see this one either.
            Err(error) if error.kind() == io::ErrorKind::NotFound => b".dockerignore".to_vec(),
            Err(error) => return Err(error.into()),
        };
        patterns.extend_from_slice(format!("\n{name}\n").as_bytes());
        self.entries.retain(|entry| entry.path != ".dockerignore");
        self.extra.push((".dockerignore".to_owned(), patterns));
        self.extra.push((name.to_owned(), steps.to_owned()));
        Ok(())
    }

    /// What is sent. **Units**: bytes, without the archive's own.
    pub(in crate::engine) fn size_bytes(&self) -> u64 {
        let files = self.entries.iter().map(|entry| match entry.kind {
            Kind::File { bytes } => bytes,
            Kind::Folder | Kind::Link { .. } => 0,
        });
        files.sum::<u64>()
            + self
                .extra
                .iter()
                .map(|(_, bytes)| bytes.len() as u64)
                .sum::<u64>()
    }

    /// Adds names, kinds, modes and contents to a digest; times of day do not count.
    pub(super) fn digest(&self, hasher: &mut Sha256) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        for entry in &self.entries {
            add_text(hasher, &entry.path);
            hasher.update(entry.mode.to_le_bytes());
            match &entry.kind {
                Kind::Folder => hasher.update([0]),
                Kind::Link { target } => {
                    hasher.update([1]);
                    add_text(hasher, &target.to_string_lossy());
                }
                Kind::File { .. } => {
                    hasher.update([2]);
                    let mut inner = Sha256::new();
                    let mut file = fs_err::File::open(self.root.join(&entry.path))?;
                    loop {
                        match file.read(&mut buffer)? {
                            0 => break,
                            n => inner.update(&buffer[..n]),
                        }
                    }
                    hasher.update(inner.finalize());
                }
            }
        }
        for (path, bytes) in &self.extra {
            add_text(hasher, path);
            hasher.update(Sha256::digest(bytes));
        }
        Ok(())
    }

    /// Writes the archive. Everything belongs to root, as the Docker CLI sends it.
    pub(in crate::engine) fn write_archive(&self, out: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(out);
        for entry in &self.entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_mtime(entry.modified_s);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            match &entry.kind {
                Kind::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    archive.append_data(&mut header, format!("{}/", entry.path), io::empty())?;
                }
                Kind::Link { target } => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    archive.append_link(&mut header, &entry.path, target)?;
                }
                Kind::File { bytes } => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_size(*bytes);
                    let file = fs_err::File::open(self.root.join(&entry.path))?;
                    // An archive whose entry is shorter than its header would be read as garbage.
                    let file = Exactly {
                        file,
                        left: *bytes,
                        path: &entry.path,
                    };
                    archive.append_data(&mut header, &entry.path, file)?;
                }
            }
        }
        for (path, bytes) in &self.extra {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o600);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, bytes.as_slice())?;
        }
        archive.into_inner()?.flush()
    }
}

/// A file that must have the size it had when it was listed.
struct Exactly<'a> {
    file: fs_err::File,
    left: u64,
    path: &'a str,
}

impl Read for Exactly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        match self.file.read(&mut buffer[..most])? {
            0 => Err(io::Error::other(format!(
                "`{}` became shorter while it was sent",
                self.path
            ))),
            n => {
                self.left -= n as u64;
                Ok(n)
            }
        }
    }
}

/// Adds a text so that two texts in a row cannot be taken for one.
pub(super) fn add_text(hasher: &mut Sha256, text: &str) {
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        }
        folder
    }

    fn paths(context: &BuildContext) -> Vec<String> {
        let mut bytes = Vec::new();
        context.write_archive(&mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect()
    }

    fn digest(context: &BuildContext) -> String {
        let mut hasher = Sha256::new();
        context.digest(&mut hasher).unwrap();
        format!("{:?}", hasher.finalize())
    }

    #[test]
    fn what_is_left_out_is_not_sent_and_what_the_engine_needs_always_is() {
        let folder = folder(&[
            (".dockerignore", "*\n!src/a\nsrc/a/*.tmp\n"),
            ("Dockerfile", "FROM scratch"),
            ("secret", "x"),
            ("src/a/keep", "1"),
            ("src/a/x.tmp", "2"),
            ("src/b", "3"),
        ]);
        let context = BuildContext::list(folder.path(), Some("Dockerfile")).unwrap();
        assert_eq!(
            paths(&context),
            [".dockerignore", "Dockerfile", "src/a/", "src/a/keep"]
        );
        assert_eq!(context.size_bytes(), 21 + 12 + 1);
    }

    #[test]
    fn the_dockerfile_s_own_patterns_come_first() {
        let folder = folder(&[
            (".dockerignore", "a"),
            ("deep/D.dockerignore", "b"),
            ("deep/D", ""),
            ("a", ""),
            ("b", ""),
        ]);
        let context = BuildContext::list(folder.path(), Some("deep/D")).unwrap();
        assert_eq!(
            paths(&context),
            [
                ".dockerignore",
                "a",
                "deep/",
                "deep/D",
                "deep/D.dockerignore"
            ]
        );
    }

    #[test]
    fn the_digest_follows_contents_names_modes_and_links_and_no_times() {
        let folder = folder(&[
            ("a", "1"),
            ("long/".repeat(40).as_str().trim_end_matches('/'), "x"),
        ]);
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        let list = || BuildContext::list(folder.path(), None).unwrap();
        let first = digest(&list());
        assert_eq!(paths(&list()).len(), 42);
        fs_err::write(folder.path().join("a"), "1").unwrap();
        assert_eq!(digest(&list()), first);
        fs_err::write(folder.path().join("a"), "2").unwrap();
        let second = digest(&list());
        assert_ne!(second, first);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs_err::set_permissions(folder.path().join("a"), mode).unwrap();
        assert_ne!(digest(&list()), second);
    }

    #[test]
    fn steps_from_elsewhere_are_sent_and_hidden_from_the_image() {
        let folder = folder(&[("a", "1")]);
        let mut context = BuildContext::list(folder.path(), None).unwrap();
        context
            .add_dockerfile(".dockerfile.x", b"FROM scratch")
            .unwrap();
        assert_eq!(paths(&context), ["a", ".dockerignore", ".dockerfile.x"]);
        assert_eq!(context.extra[0].1, b".dockerignore\n.dockerfile.x\n");
    }

    #[test]
    fn a_file_that_shrinks_on_the_way_is_an_error_and_no_garbage() {
        let folder = folder(&[("a", "12345")]);
        let context = BuildContext::list(folder.path(), None).unwrap();
        fs_err::write(folder.path().join("a"), "1").unwrap();
        let error = context.write_archive(Vec::new()).unwrap_err();
        assert!(error.to_string().contains("became shorter"), "{error}");
    }
}
