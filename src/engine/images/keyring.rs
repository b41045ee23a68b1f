//! Credentials of registries, found as the Docker CLI finds them.
//!
//! A helper named for the registry, else the helper that keeps all, else what
//! stands in `config.json`. **Invariant**: no credential is printed: debug forms
//! are bare, and [`Keyring::texts`] names every text that must be hidden.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use super::reference::{host_of, registry_key};
use crate::engine::cli_config::{CliConfig, StoredAuth};

/// Helpers ask a key store of the desktop; one that asks the user hangs.
const HELPER_LIMIT: Duration = Duration::from_secs(30);

/// The user name by which helpers say that the secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// What a registry is told about who asks.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The registry's key, as the Docker CLI keeps it.
    pub server: String,
    /// User; empty with a token.
    pub username: String,
    /// Password; empty with a token.
    pub password: String,
    /// Token in place of both.
    pub identity_token: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials for {}", self.server)
    }
}

/// A credential helper that did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("credential helper `{program}`: {said}")]
pub struct HelperError {
    program: String,
    said: String,
}

type Answer = Result<Option<Credentials>, HelperError>;

/// Credentials by registry, each asked for once.
#[derive(Debug)]
pub struct Keyring {
    config: CliConfig,
    found: Mutex<BTreeMap<String, Answer>>,
}

impl Keyring {
    /// A keyring over the Docker CLI's configuration.
    pub fn new(config: CliConfig) -> Self {
        Self {
            config,
            found: Mutex::default(),
        }
    }

    /// Why the configuration could not be read, where that is so.
    pub fn problem(&self) -> Option<&str> {
        self.config.problem.as_deref()
    }

    /// Credentials for the registry of an image; `None` is to ask without.
    ///
    /// **Errors**: a helper is named that cannot be run, fails or hangs.
    pub async fn find(&self, image: &str) -> Answer {
        self.find_key(registry_key(image)).await
    }

    /// Credentials for every registry that the configuration names; what fails is left out.
    pub async fn all(&self) -> Vec<Credentials> {
        let file = &self.config.file;
        let keys: BTreeSet<&String> = file.auths.keys().chain(file.cred_helpers.keys()).collect();
        let mut found = Vec::new();
        for key in keys {
            found.extend(self.find_key(key).await.ok().flatten());
        }
        found
    }

    async fn find_key(&self, key: &str) -> Answer {
        if let Some(known) = self.lock().get(key) {
            return known.clone();
        }
        let file = &self.config.file;
        let by_host = file
            .cred_helpers
            .iter()
            .find(|(named, _)| is_same(named, key));
        let helper = by_host
            .map(|(_, helper)| helper.as_str())
            .or(Some(file.creds_store.as_str()))
            .filter(|helper| !helper.is_empty());
        let answer = match helper {
            Some(helper) => ask_helper(helper, key, self.config.search_path.as_deref()).await,
            None => Ok(file
                .auths
                .iter()
                .find(|(named, _)| *named == key)
                .or_else(|| file.auths.iter().find(|(named, _)| is_same(named, key)))
                .and_then(|(_, stored)| decode(key, stored))),
        };
        self.lock().insert(key.to_owned(), answer.clone());
        answer
    }

    /// Every text that must appear in no file and no message.
    pub fn texts(&self) -> Vec<String> {
        let stored = self.config.file.auths.values().flat_map(|stored| {
            let decoded = decode("", stored).unwrap_or_default();
            [
                stored.auth.clone(),
                stored.password.clone(),
                decoded.password,
                decoded.identity_token,
            ]
        });
        let found = self.lock();
        let given = found
            .values()
            .filter_map(|answer| answer.as_ref().ok()?.as_ref());
        let given = given.flat_map(|found| [found.password.clone(), found.identity_token.clone()]);
        stored
            .chain(given)
            .filter(|text| !text.is_empty())
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Answer>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(named: &str, key: &str) -> bool {
    named == key || host_of(named) == host_of(key)
}

/// What stands in the file; `None` where it holds neither password nor token.
fn decode(server: &str, stored: &StoredAuth) -> Option<Credentials> {
    let mut credentials = Credentials {
        server: server.to_owned(),
        username: stored.username.clone(),
        password: stored.password.clone(),
        identity_token: stored.identity_token.clone(),
    };
    if !stored.auth.is_empty() {
        let bytes = STANDARD.decode(&stored.auth).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (username, password) = text.split_once(':')?;
        username.clone_into(&mut credentials.username);
        // The Docker CLI of old padded it with zeros.
        password
            .trim_end_matches('\0')
            .clone_into(&mut credentials.password);
    }
    let is_empty = credentials.password.is_empty() && credentials.identity_token.is_empty();
    (!is_empty).then_some(credentials)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Runs `docker-credential-NAME get`, the registry on its standard input.
///
/// **Source**: docker-credential-helpers: an answer in JSON, or a message on
/// standard output and another exit code than 0.
async fn ask_helper(helper: &str, key: &str, search_path: Option<&str>) -> Answer {
    let program = format!("docker-credential-{helper}");
    let failed = |said: String| HelperError {
        program: program.clone(),
        said,
    };
    let mut command = tokio::process::Command::new(&program);
    if let Some(search_path) = search_path {
        command.env("PATH", search_path);
    }
    let mut child = command
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("cannot be run: {error}")))?;
    let mut input = child.stdin.take();
    let exchange = async {
        if let Some(input) = &mut input {
            // One that knows its answer without reading has closed it; that is no failure.
            let _ = input.write_all(format!("{key}\n").as_bytes()).await;
        }
        drop(input);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(HELPER_LIMIT, exchange)
        .await
        .map_err(|_| {
            failed(format!(
                "no answer within {HELPER_LIMIT:?}; it may be waiting for a prompt to be answered: \
                 unlock its store, then try again"
            ))
        })?
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = text.trim();
        if said.contains("credentials not found") {
            return Ok(None);
        }
        let code = output.status.code().unwrap_or(-1);
        return Err(failed(format!("ended with {code}: {}", first_line(said))));
    }
    // The parser's words could quote the answer.
    let answer: HelperAnswer = serde_json::from_str(&text)
        .map_err(|_| failed("its answer is not what a credential helper says".to_owned()))?;
    let server = key.to_owned();
    Ok(Some(if answer.username == TOKEN_USER {
        Credentials {
            server,
            identity_token: answer.secret,
            ..Credentials::default()
        }
    } else {
        Credentials {
            server,
            username: answer.username,
            password: answer.secret,
            ..Credentials::default()
        }
    }))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("nothing said")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn find(file: &str, image: &str) -> Answer {
        let config = CliConfig {
            file: serde_json::from_str(file).unwrap(),
            ..CliConfig::default()
        };
        Keyring::new(config).find(image).await
    }

    #[tokio::test]
    async fn stored_credentials_are_found_by_host_however_the_key_is_written() {
        // `u:p:w` and zeros; `hub:pw`.
        let file = r#"{"auths": {
            "https://127.0.0.1:5000/v2/": {"auth": "dTpwOncAAA=="},
            "https://index.docker.io/v1/": {"auth": "aHViOnB3"},
            "ghcr.io": {"identitytoken": "tok"},
            "quay.io": {}}}"#;
        let found = find(file, "127.0.0.1:5000/app:1").await.unwrap().unwrap();
        assert_eq!((&*found.username, &*found.password), ("u", "p:w"));
        let found = find(file, "postgres").await.unwrap().unwrap();
        assert_eq!(found.username, "hub");
        assert_eq!(found.server, "https://index.docker.io/v1/");
        let found = find(file, "ghcr.io/a/b").await.unwrap().unwrap();
        assert_eq!(found.identity_token, "tok");
        assert_eq!(find(file, "quay.io/a").await, Ok(None));
        assert_eq!(find(file, "elsewhere.example/a").await, Ok(None));
    }

    #[tokio::test]
    async fn a_helper_that_is_not_there_is_named() {
        let error = find(r#"{"credsStore": "of-no-such-name"}"#, "postgres")
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(
                "credential helper `docker-credential-of-no-such-name`: cannot be run"
            ),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_helper_that_waits_for_somebody_says_so() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("docker-credential-waits");
        fs_err::write(&program, "#!/bin/sh\nexec /bin/sleep 100\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(&program, mode).unwrap();
        let config = CliConfig {
            file: serde_json::from_str(r#"{"credsStore": "waits"}"#).unwrap(),
            search_path: Some(folder.path().display().to_string()),
            ..CliConfig::default()
        };
        let error = Keyring::new(config).find("postgres").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "credential helper `docker-credential-waits`: no answer within 30s; it may be waiting \
             for a prompt to be answered: unlock its store, then try again"
        );
    }

    #[tokio::test]
    async fn all_credentials_are_those_of_every_registry_that_is_named() {
        let config = CliConfig {
            file: serde_json::from_str(
                r#"{"auths": {"a.example": {"auth": "dTpw"}, "b.example": {}},
                    "credHelpers": {"c.example": "of-no-such-name"}}"#,
            )
            .unwrap(),
            ..CliConfig::default()
        };
        let servers: Vec<String> = Keyring::new(config)
            .all()
            .await
            .into_iter()
            .map(|found| found.server)
            .collect();
        assert_eq!(servers, ["a.example"]);
    }

    #[tokio::test]
    async fn every_stored_text_is_named_so_that_it_can_be_hidden() {
        let config = CliConfig {
            file: serde_json::from_str(
                r#"{"auths": {"a": {"auth": "dTpodW50ZXIy"}, "b": {"identitytoken": "tok"}}}"#,
            )
            .unwrap(),
            ..CliConfig::default()
        };
        let keyring = Keyring::new(config);
        let texts = keyring.texts();
        for secret in ["dTpodW50ZXIy", "hunter2", "tok"] {
            assert!(texts.iter().any(|text| text == secret), "{secret}");
        }
        keyring.find("a/b").await.unwrap();
        assert!(!format!("{keyring:?}").contains("hunter2"));
    }
}
