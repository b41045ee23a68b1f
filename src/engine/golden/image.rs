//! The image that holds this very program, made without a registry.
//!
//! The running executable and the shared libraries it has mapped are all there is to
//! it: no shell, no distribution. It is started through its own dynamic loader with
//! the folder of its libraries, so it does not matter where the host keeps them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::engine::trial::LABEL_HELPER;
use crate::engine::{Engine, EngineError};

/// Repository of the image; its tag is a digest of its content.
const REPOSITORY: &str = "nightsweep/helper";
/// The program inside the image.
const PROGRAM: &str = "/nightsweep";
/// Its libraries inside the image.
const LIBRARIES: &str = "/lib";

/// An image that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperImage {
    /// Name and tag.
    pub name: String,
    /// How the program in it is started; its arguments follow.
    pub command: Vec<String>,
}

/// The image cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HelperImageError {
    /// The program cannot read itself.
    #[error("pack this program into an image")]
    Pack {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The engine runs another kind of processor.
    #[error(
        "this program is made for {ours} and the engine runs {theirs}: it cannot copy volumes there"
    )]
    Architecture {
        /// Of this program.
        ours: String,
        /// Of the engine.
        theirs: String,
    },
    /// The engine refused.
    #[error(transparent)]
    Engine(EngineError),
}

/// The content of the image and how it is run.
#[derive(Debug)]
pub struct HelperArchive {
    /// A tar archive.
    pub bytes: Vec<u8>,
    /// The image it makes.
    pub image: HelperImage,
}

/// Packs the running program.
///
/// **Errors**: it, or one of its libraries, cannot be read.
pub fn helper_archive() -> std::io::Result<HelperArchive> {
    let maps = fs_err::read_to_string("/proc/self/maps")?;
    let program = fs_err::read("/proc/self/exe")?;
    let program_path = fs_err::read_link("/proc/self/exe")?;
    let mut tar = Tar::default();
    tar.file(PROGRAM, &program);
    let mut loader = None;
    for library in mapped_files(&maps) {
        if library == program_path {
            continue;
        }
        let bytes = fs_err::read(&library)?;
        if !bytes.starts_with(b"\x7fELF") {
            continue;
        }
        for name in names_of(&library)? {
            let inside = format!("{LIBRARIES}/{name}");
            if is_loader(&name) {
                loader.get_or_insert_with(|| inside.clone());
            }
            tar.file(&inside, &bytes);
        }
    }
    let bytes = tar.finish();
    let digest = crate::tree::hex(&Sha256::digest(&bytes));
    let command = match loader {
        Some(loader) => vec![
            loader,
            "--library-path".to_owned(),
            LIBRARIES.to_owned(),
            PROGRAM.to_owned(),
        ],
        // Linked statically.
        None => vec![PROGRAM.to_owned()],
    };
    Ok(HelperArchive {
        bytes,
        image: HelperImage {
            name: format!("{REPOSITORY}:{}", &digest[..12]),
            command,
        },
    })
}

/// Makes sure that the engine has the image; architectures as engines spell them.
///
/// **Errors**: the program cannot be packed, would not run there, or the engine refuses.
pub async fn ensure_helper_image<E: Engine>(
    engine: &E,
    engine_architecture: &str,
) -> Result<HelperImage, HelperImageError> {
    let ours = std::env::consts::ARCH;
    if !engine_architecture.is_empty() && engine_architecture != ours {
        return Err(HelperImageError::Architecture {
            ours: ours.to_owned(),
            theirs: engine_architecture.to_owned(),
        });
    }
    let archive = tokio::task::spawn_blocking(helper_archive)
        .await
        .map_err(std::io::Error::other)
        .and_then(|packed| packed)
        .map_err(|source| HelperImageError::Pack { source })?;
    let name = &archive.image.name;
    let known = engine.find_image(name).await;
    if known.map_err(HelperImageError::Engine)?.is_none() {
        let label = format!("LABEL {LABEL_HELPER}=1");
        engine
            .import_image(name, archive.bytes, &[label])
            .await
            .map_err(HelperImageError::Engine)?;
    }
    Ok(archive.image)
}

/// Files that a process has mapped, each once.
fn mapped_files(maps: &str) -> BTreeSet<PathBuf> {
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .filter(|path| !path.ends_with(" (deleted)"))
        .map(PathBuf::from)
        .filter(|path| path.is_file() && !path.starts_with("/dev"))
        .collect()
}

/// The names a library may be asked for by: its own, and links beside it that lead to it.
fn names_of(library: &Path) -> std::io::Result<Vec<String>> {
    let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    let mut names: Vec<String> = name(library).into_iter().collect();
    let Some(folder) = library.parent() else {
        return Ok(names);
    };
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if is_link && fs_err::canonicalize(entry.path()).is_ok_and(|to| to == library) {
            names.extend(name(&entry.path()));
        }
    }
    names.sort();
    Ok(names)
}

/// `ld-linux-x86-64.so.2`, `ld-musl-x86_64.so.1`, `ld-2.31.so`.
fn is_loader(name: &str) -> bool {
    name.starts_with("ld-") && name.contains(".so")
}

/// A tar archive of executable files owned by root, without times: the same
/// program makes the same archive.
#[derive(Debug, Default)]
struct Tar {
    bytes: Vec<u8>,
}

/// Everything in an archive is filled up to whole blocks of so many bytes.
const BLOCK: usize = 512;

impl Tar {
    /// **Source**: POSIX.1-2001, ustar: numbers in octal, the checksum over the header
    /// with eight spaces in its own place.
    fn file(&mut self, path: &str, content: &[u8]) {
        let mut header = [0_u8; BLOCK];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, path.trim_start_matches('/'));
        put(100, "0000755");
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", content.len()));
        put(136, "00000000000");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar");
        put(263, "00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.bytes.extend(header);
        self.bytes.extend(content);
        let filled = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(filled, 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.extend([0; 2 * BLOCK]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_one_that_tar_reads() {
        let mut tar = Tar::default();
        tar.file("/nightsweep", b"#!program");
        tar.file("/lib/libc.so.6", &[1; 1000]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        fs_err::write(&path, tar.finish()).unwrap();
        let listed = std::process::Command::new("tar")
            .args(["--numeric-owner", "-tvf"])
            .arg(&path)
            .env("TZ", "UTC")
            .output()
            .unwrap();
        insta::assert_snapshot!(String::from_utf8_lossy(&listed.stdout), @r"
        -rwxr-xr-x 0/0               9 1970-01-01 00:00 nightsweep
        -rwxr-xr-x 0/0            1000 1970-01-01 00:00 lib/libc.so.6
        ");
    }

    #[test]
    fn this_program_packs_itself_with_what_it_maps_and_always_alike() {
        let first = helper_archive().unwrap();
        assert_eq!(first.image, helper_archive().unwrap().image);
        assert!(first.image.name.starts_with("nightsweep/helper:"));
        assert_eq!(first.image.command.last().unwrap(), PROGRAM);
        if let [loader, flag, folder, _] = &first.image.command[..] {
            assert!(loader.starts_with("/lib/ld-"), "{loader}");
            assert_eq!((flag.as_str(), folder.as_str()), ("--library-path", "/lib"));
        }
    }

    #[test]
    fn only_files_that_are_still_there_count_as_mapped() {
        let maps = "55d0-55d1 r-xp 00000000 fe:00 1    /proc/self/exe\n\
            7f00-7f01 r--p 00000000 00:00 0 \n\
            7f01-7f02 r--p 00000000 fe:00 2    /etc/passwd\n\
            7f02-7f03 r--p 00000000 fe:00 3    /lib/gone.so (deleted)\n\
            7ffd-7ffe rw-p 00000000 00:00 0    [stack]\n";
        let found: Vec<_> = mapped_files(maps).into_iter().collect();
        assert_eq!(found.last().unwrap(), Path::new("/proc/self/exe"));
        assert!(found.contains(&PathBuf::from("/etc/passwd")));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn loaders_are_told_from_other_libraries() {
        for name in ["ld-linux-x86-64.so.2", "ld-musl-x86_64.so.1", "ld-2.31.so"] {
            assert!(is_loader(name), "{name}");
        }
        for name in ["libc.so.6", "libld-x.so", "ld-notes.txt"] {
            assert!(!is_loader(name), "{name}");
        }
    }
}
