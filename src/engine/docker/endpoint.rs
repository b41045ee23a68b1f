//! Where the engine is, by the rules of the Docker CLI, and why there.
//!
//! `DOCKER_HOST`, then the context (`DOCKER_CONTEXT`, else `currentContext` of
//! the CLI's configuration), then the sockets where engines listen: the first
//! that answers. **Invariant**: what a user named is used or is an error; only
//! where nobody named anything is a next place tried. Read `connection.rs` next.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::engine::cli_config::{CliConfig, hex};
use crate::engine::{EngineError, EngineErrorKind};

/// Files of an encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Whom to trust.
    pub(super) ca: PathBuf,
    /// Who we are; it and the key may be missing, together.
    pub(super) cert: PathBuf,
    /// Our key.
    pub(super) key: PathBuf,
}

impl TlsFiles {
    /// The three files by the names that every tool gives them.
    fn in_folder(folder: &Path) -> Self {
        Self {
            ca: folder.join("ca.pem"),
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        }
    }
}

/// A place where an engine may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// `unix://PATH`, `tcp://HOST:PORT`, `ssh://HOST`.
    pub(super) address: String,
    /// Which rule named it.
    pub(super) reason: String,
    pub(super) tls: Option<TlsFiles>,
}

/// The places to try, in order, and what named places were passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) passed_over: Vec<String>,
    /// Whether a user named the place, so that no other will do.
    pub(super) is_named: bool,
}

/// The places by the rules above.
///
/// **Errors**: a context that does not exist, cannot be read or has no address.
pub(super) fn candidates(
    variables: &BTreeMap<String, String>,
    config: &CliConfig,
) -> Result<Candidates, EngineError> {
    let set = |name: &str| {
        variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    };
    let of_file = (
        config.file.current_context.as_str(),
        "`currentContext` of the Docker CLI's config.json",
    );
    let context = set("DOCKER_CONTEXT")
        .map(|name| (name, "DOCKER_CONTEXT"))
        .or_else(|| Some(of_file).filter(|(name, _)| !name.is_empty()))
        // The name of no context at all.
        .filter(|(name, _)| *name != "default");
    if let Some(host) = set("DOCKER_HOST") {
        let passed_over = context
            .map(|(name, from)| format!("context `{name}` ({from}): DOCKER_HOST goes before it"));
        let folder = set("DOCKER_CERT_PATH")
            .map(PathBuf::from)
            .or(config.folder.clone());
        let is_tls = set("DOCKER_TLS_VERIFY").is_some() || set("DOCKER_TLS").is_some();
        let tls = is_tls.then_some(folder).flatten();
        return Ok(Candidates {
            endpoints: vec![Endpoint {
                address: host.to_owned(),
                reason: "DOCKER_HOST is set".to_owned(),
                tls: tls
                    .filter(|_| is_tcp(host))
                    .as_deref()
                    .map(TlsFiles::in_folder),
            }],
            passed_over: passed_over.into_iter().collect(),
            is_named: true,
        });
    }
    if let Some((name, from)) = context {
        let endpoint = read_context(name, from, config.folder.as_deref())?;
        return Ok(Candidates {
            endpoints: vec![endpoint],
            passed_over: Vec::new(),
            is_named: true,
        });
    }
    Ok(Candidates {
        endpoints: sockets(set("XDG_RUNTIME_DIR"), set("HOME")),
        ..Candidates::default()
    })
}

fn is_tcp(address: &str) -> bool {
    ["tcp://", "http://", "https://"]
        .iter()
        .any(|scheme| address.starts_with(scheme))
}

/// Where engines listen when nobody says otherwise.
fn sockets(runtime: Option<&str>, home: Option<&str>) -> Vec<Endpoint> {
    let mut places = vec![(
        "/var/run/docker.sock".to_owned(),
        "the usual socket of the Docker Engine",
    )];
    if let Some(runtime) = runtime {
        places.push((
            format!("{runtime}/docker.sock"),
            "the socket of Docker without root",
        ));
    }
    if let Some(home) = home {
        places.push((
            format!("{home}/.docker/run/docker.sock"),
            "the socket of Docker Desktop",
        ));
    }
    if let Some(runtime) = runtime {
        places.push((
            format!("{runtime}/podman/podman.sock"),
            "the socket of Podman without root",
        ));
    }
    places.push(("/run/podman/podman.sock".to_owned(), "the socket of Podman"));
    places
        .into_iter()
        .map(|(path, reason)| Endpoint {
            address: format!("unix://{path}"),
            reason: format!("{reason}, since neither DOCKER_HOST nor a context is set"),
            tls: None,
        })
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Meta {
    #[serde(default)]
    endpoints: MetaEndpoints,
}

#[derive(Default, Deserialize)]
struct MetaEndpoints {
    docker: Option<MetaEndpoint>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct MetaEndpoint {
    host: String,
    #[serde(rename = "SkipTLSVerify")]
    skip_tls_verify: bool,
}

/// Reads a context of the Docker CLI.
///
/// **Source**: docker/cli, context store: a folder named by the digest of the
/// context's name, with the TLS files in a tree beside it.
fn read_context(name: &str, from: &str, folder: Option<&Path>) -> Result<Endpoint, EngineError> {
    let object = format!("the context `{name}` ({from})");
    let refuse = |why: String| {
        let mut error = EngineError::new("use", &object, EngineErrorKind::Other, why);
        error.hint = Some(
            "`docker context ls` lists the contexts; DOCKER_HOST names an address instead"
                .to_owned(),
        );
        error
    };
    let contexts = folder
        .map(|folder| folder.join("contexts"))
        .ok_or_else(|| {
            refuse("neither DOCKER_CONFIG nor HOME says where contexts are".to_owned())
        })?;
    let id = hex(&Sha256::digest(name.as_bytes()));
    let path = contexts.join("meta").join(&id).join("meta.json");
    let text = fs_err::read(&path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            refuse("there is no such context".to_owned())
        } else {
            refuse(error.to_string())
        }
    })?;
    let meta: Meta = serde_json::from_slice(&text)
        .map_err(|error| refuse(format!("{}: {error}", path.display())))?;
    let docker = meta.endpoints.docker.unwrap_or_default();
    if docker.host.is_empty() {
        return Err(refuse(format!("{} names no host", path.display())));
    }
    let tls = contexts.join("tls").join(&id).join("docker");
    let has_tls = tls.is_dir();
    if docker.skip_tls_verify && is_tcp(&docker.host) {
        return Err(refuse(
            "it skips the check of the engine's certificate (SkipTLSVerify), which is not supported"
                .to_owned(),
        ));
    }
    Ok(Endpoint {
        tls: (has_tls && is_tcp(&docker.host)).then(|| TlsFiles::in_folder(&tls)),
        address: docker.host,
        reason: format!("context `{name}` ({from})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::chain;

    /// A configuration folder with a context `far`, and its variables.
    struct Case {
        folder: tempfile::TempDir,
        variables: BTreeMap<String, String>,
    }

    impl Case {
        fn new(meta: &str, current: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("contexts/meta").join(id_of("far"));
            fs_err::create_dir_all(&path).unwrap();
            if !meta.is_empty() {
                fs_err::write(path.join("meta.json"), meta).unwrap();
            }
            let config = format!(r#"{{"currentContext": "{current}"}}"#);
            fs_err::write(folder.path().join("config.json"), config).unwrap();
            let config = folder.path().display().to_string();
            Self {
                folder,
                variables: BTreeMap::from([("DOCKER_CONFIG".to_owned(), config)]),
            }
        }

        fn with(mut self, name: &str, value: &str) -> Self {
            self.variables.insert(name.to_owned(), value.to_owned());
            self
        }

        fn candidates(&self) -> Result<Candidates, EngineError> {
            candidates(&self.variables, &CliConfig::read(&self.variables))
        }

        fn only(&self) -> Endpoint {
            let found = self.candidates().unwrap();
            assert!(found.is_named);
            assert_eq!(found.endpoints.len(), 1);
            found.endpoints[0].clone()
        }
    }

    fn id_of(name: &str) -> String {
        hex(&Sha256::digest(name.as_bytes()))
    }

    const FAR: &str = r#"{"Name":"far","Metadata":{},"Endpoints":{"docker":{"Host":"tcp://far:2376","SkipTLSVerify":false}}}"#;

    #[test]
    fn the_order_is_the_docker_cli_s() {
        let case = Case::new(FAR, "far").with("DOCKER_HOST", "tcp://near:2375");
        let found = case.candidates().unwrap();
        assert_eq!(found.endpoints[0].address, "tcp://near:2375");
        assert_eq!(found.endpoints[0].reason, "DOCKER_HOST is set");
        assert_eq!(found.passed_over.len(), 1);
        assert!(found.passed_over[0].starts_with("context `far`"));

        let endpoint = Case::new(FAR, "far").only();
        assert_eq!(endpoint.address, "tcp://far:2376");
        assert_eq!(endpoint.tls, None);
        let endpoint = Case::new(FAR, "other").with("DOCKER_CONTEXT", "far").only();
        assert_eq!(endpoint.reason, "context `far` (DOCKER_CONTEXT)");
    }

    #[test]
    fn tls_files_come_from_the_context_or_from_the_variables() {
        let case = Case::new(FAR, "far");
        let tls = case
            .folder
            .path()
            .join("contexts/tls")
            .join(id_of("far"))
            .join("docker");
        fs_err::create_dir_all(&tls).unwrap();
        assert_eq!(case.only().tls.unwrap().ca, tls.join("ca.pem"));

        let case = Case::new(FAR, "").with("DOCKER_HOST", "tcp://a:1");
        assert_eq!(case.only().tls, None);
        let case = case.with("DOCKER_TLS_VERIFY", "1");
        assert_eq!(
            case.only().tls.unwrap().key,
            case.folder.path().join("key.pem")
        );
        let case = case.with("DOCKER_CERT_PATH", "/certs");
        assert_eq!(case.only().tls.unwrap().cert, Path::new("/certs/cert.pem"));
        let case = case.with("DOCKER_HOST", "unix:///x");
        assert_eq!(case.only().tls, None);
    }

    #[test]
    fn a_context_that_cannot_be_used_is_an_error_and_nothing_else_is_tried() {
        for (meta, said) in [
            ("", "there is no such context"),
            ("{}", "names no host"),
            ("{", "meta.json: "),
            (
                r#"{"Endpoints":{"docker":{"Host":"tcp://far:1","SkipTLSVerify":true}}}"#,
                "SkipTLSVerify",
            ),
        ] {
            let error = Case::new(meta, "far").candidates().unwrap_err();
            let text = chain(&error);
            assert!(text.starts_with("use the context `far` ("), "{text}");
            assert!(text.contains(said), "{said}: {text}");
            assert!(error.hint().unwrap().contains("docker context ls"));
        }
    }

    #[test]
    fn without_a_word_the_sockets_are_tried_in_order() {
        let case = Case::new(FAR, "default")
            .with("XDG_RUNTIME_DIR", "/run/user/7")
            .with("HOME", "/home/u");
        let found = case.candidates().unwrap();
        assert!(!found.is_named);
        let addresses: Vec<&str> = found.endpoints.iter().map(|e| e.address.as_str()).collect();
        assert_eq!(
            addresses,
            [
                "unix:///var/run/docker.sock",
                "unix:///run/user/7/docker.sock",
                "unix:///home/u/.docker/run/docker.sock",
                "unix:///run/user/7/podman/podman.sock",
                "unix:///run/podman/podman.sock",
            ]
        );
    }
}
