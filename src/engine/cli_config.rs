//! What the Docker CLI keeps in its configuration folder.
//!
//! Read once, for the credentials of registries (`images/keyring.rs`) and for
//! the current context (`docker/endpoint.rs`). **Invariant**: nothing read here is printed: a debug
//! form names registries and never what is stored for them.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The Docker CLI's `config.json`.
#[derive(Clone, Default)]
pub struct CliConfig {
    /// The folder; `None` when neither `DOCKER_CONFIG` nor `HOME` is set.
    pub folder: Option<PathBuf>,
    /// Why the file could not be read, where it is there.
    pub problem: Option<String>,
    /// Where helpers are looked for; `None` is this process's own.
    pub(super) search_path: Option<String>,
    pub(super) file: ConfigFile,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ConfigFile {
    pub(super) auths: BTreeMap<String, StoredAuth>,
    pub(super) creds_store: String,
    pub(super) cred_helpers: BTreeMap<String, String>,
    pub(super) current_context: String,
}

/// What is stored for one registry, where no helper keeps it.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StoredAuth {
    pub(super) auth: String,
    pub(super) username: String,
    pub(super) password: String,
    #[serde(rename = "identitytoken")]
    pub(super) identity_token: String,
}

impl CliConfig {
    /// Reads it: from `$DOCKER_CONFIG`, else from `.docker` in the home folder.
    ///
    /// A file that is not there is an empty one; one that cannot be read is too,
    /// as for the Docker CLI, and `problem` says so.
    pub fn read(variables: &BTreeMap<String, String>) -> Self {
        let set = |name: &str| variables.get(name).filter(|value| !value.is_empty());
        let folder = set("DOCKER_CONFIG")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(home).join(".docker")));
        let Some(folder) = folder else {
            return Self::default();
        };
        let path = folder.join("config.json");
        let (file, problem) = match fs_err::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(file) => (file, None),
                // The words of the parser may quote what stands there.
                Err(error) => {
                    let place = format!("line {}, column {}", error.line(), error.column());
                    let problem = format!("{} is not valid JSON ({place})", path.display());
                    (ConfigFile::default(), Some(problem))
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (ConfigFile::default(), None)
            }
            Err(error) => (ConfigFile::default(), Some(error.to_string())),
        };
        Self {
            folder: Some(folder),
            problem,
            search_path: set("PATH").cloned(),
            file,
        }
    }
}

/// Bytes as the hexadecimal digits that names are made of.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Debug for CliConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CliConfig")
            .field("folder", &self.folder)
            .field("problem", &self.problem)
            .field("registries", &self.file.auths.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> CliConfig {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("config.json"), text).unwrap();
        let folder = folder.path().display().to_string();
        CliConfig::read(&BTreeMap::from([("DOCKER_CONFIG".to_owned(), folder)]))
    }

    #[test]
    fn a_file_that_is_broken_counts_as_empty_and_is_not_quoted() {
        let config = read(r#"{"auths": {"r": {"auth": 5, "password": "hunter2-hunter2"}}}"#);
        let problem = config.problem.clone().unwrap();
        assert!(
            problem.contains("config.json is not valid JSON (line 1"),
            "{problem}"
        );
        assert!(!format!("{config:?}{problem}").contains("hunter2"));
        assert!(config.file.auths.is_empty());
    }

    #[test]
    fn what_is_not_known_is_passed_over_and_nothing_stored_is_printed() {
        let config = read(
            r#"{"auths": {"r": {"auth": "aHVudGVyMg==", "email": "x"}}, "psFormat": "t", "credsStore": "pass", "currentContext": "far"}"#,
        );
        assert_eq!(config.problem, None);
        assert_eq!(config.file.creds_store, "pass");
        assert_eq!(config.file.current_context, "far");
        assert!(!format!("{config:?}").contains("aHVud"));
    }

    #[test]
    fn no_folder_and_no_file_are_no_problem() {
        assert_eq!(CliConfig::read(&BTreeMap::new()).folder, None);
        let home = BTreeMap::from([("HOME".to_owned(), "/nowhere".to_owned())]);
        let config = CliConfig::read(&home);
        assert_eq!(
            config.folder.as_deref(),
            Some(Path::new("/nowhere/.docker"))
        );
        assert_eq!(config.problem, None);
    }
}
