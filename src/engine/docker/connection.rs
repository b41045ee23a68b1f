//! Reaching the engine, and turning its failures into ours.
//!
//! Every call goes through one helper here, which sets a deadline over the whole
//! exchange (the client library's own ends with the head of the answer).
//! Read `engine.rs` next.

use std::future::Future;
use std::time::Duration;

use bollard::errors::Error as ApiError;
use bollard::{API_DEFAULT_VERSION, Docker};

use super::endpoint::TlsFiles;
use crate::engine::{EngineError, EngineErrorKind};
use crate::problem::chain;

/// Answers come in milliseconds; on a host under full load in a second or two.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Creating, starting and removing wait for disks and for the container runtime.
pub(super) const SLOW_CALL_LIMIT: Duration = Duration::from_mins(2);

/// Images are large and registries far; nothing else waits this long.
pub(super) const PULL_LIMIT: Duration = Duration::from_hours(1);

#[cfg(test)]
thread_local! {
    /// Lets a test of a hanging engine, on its own thread, see the deadlines pass sooner.
    pub(in crate::engine) static LIMIT_DIVISOR: std::cell::Cell<u32> = const { std::cell::Cell::new(1) };
}
/// A build compiles whole projects; an hour more than a pull.
pub(super) const BUILD_LIMIT: Duration = Duration::from_hours(2);

/// How the endpoint is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// A socket on this host.
    Socket,
    /// TCP to a loopback address.
    Loopback,
    /// TCP to elsewhere.
    Remote,
}

/// Opens the endpoint without a call: `unix://PATH`, `tcp://` or `http://HOST:PORT`,
/// the same with TLS, or `ssh://[USER@]HOST[:PORT]`.
pub(super) fn open(endpoint: &str, tls: Option<&TlsFiles>) -> Result<(Docker, Reach), EngineError> {
    let refuse = |kind, source: String| EngineError::new("connect to", endpoint, kind, source);
    let limit_s = SLOW_CALL_LIMIT.as_secs();
    if let Some(path) = endpoint.strip_prefix("unix://") {
        // Looked at first: the client library calls a socket that may not be seen a missing one.
        match fs_err::metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let words = "the socket does not exist".to_owned();
                return Err(refuse(EngineErrorKind::NoDaemon, words));
            }
            Err(error) => return Err(refuse(EngineErrorKind::Denied, error.to_string())),
        }
        let docker = Docker::connect_with_unix(path, limit_s, API_DEFAULT_VERSION);
        return docker
            .map(|docker| (docker, Reach::Socket))
            .map_err(|error| failure("connect to", endpoint, error));
    }
    if let Some(host) = endpoint.strip_prefix("ssh://") {
        return open_ssh(endpoint, host.trim_end_matches('/'));
    }
    let schemes = ["tcp://", "http://", "https://"];
    if let Some(address) = schemes
        .iter()
        .find_map(|scheme| endpoint.strip_prefix(scheme))
    {
        let address = address.trim_end_matches('/');
        let reach = if is_loopback(address) {
            Reach::Loopback
        } else {
            Reach::Remote
        };
        let address = if endpoint.starts_with("tcp://") {
            with_port(address, tls.is_some())
        } else {
            address.to_owned()
        };
        let docker = match tls {
            Some(tls) => open_tls(endpoint, &address, tls)?,
            None if endpoint.starts_with("https://") => {
                let words = "TLS needs certificates: set DOCKER_TLS_VERIFY and DOCKER_CERT_PATH";
                return Err(refuse(EngineErrorKind::Other, words.to_owned()));
            }
            None => Docker::connect_with_http(&address, limit_s, API_DEFAULT_VERSION)
                .map_err(|error| failure("connect to", endpoint, error))?,
        };
        return Ok((docker, reach));
    }
    Err(refuse(
        EngineErrorKind::Other,
        "this kind of address is not supported (allowed: unix://PATH, tcp://HOST:PORT, ssh://HOST)"
            .to_owned(),
    ))
}

fn open_tls(endpoint: &str, address: &str, tls: &TlsFiles) -> Result<Docker, EngineError> {
    // Looked at first: the client library names a missing file only once it connects.
    // An engine that asks for no certificate of ours needs neither of the other two.
    let is_known = tls.cert.exists() || tls.key.exists();
    let ours = [&tls.cert, &tls.key].into_iter().filter(|_| is_known);
    for file in std::iter::once(&tls.ca).chain(ours) {
        fs_err::File::open(file).map_err(|error| {
            let mut error = EngineError::new("connect to", endpoint, EngineErrorKind::Other, error);
            error.hint = Some(
                "TLS needs ca.pem, and where the engine asks who we are cert.pem and key.pem, in \
                 DOCKER_CERT_PATH or in the context"
                    .to_owned(),
            );
            error
        })?;
    }
    let limit_s = SLOW_CALL_LIMIT.as_secs();
    Docker::connect_with_ssl(
        address,
        &tls.key,
        &tls.cert,
        &tls.ca,
        limit_s,
        API_DEFAULT_VERSION,
    )
    .map_err(|error| failure("connect to", endpoint, error))
}

fn open_ssh(endpoint: &str, host: &str) -> Result<(Docker, Reach), EngineError> {
    let refused = if host.contains('/') {
        Some("a socket's path behind the host is not supported: name the host alone")
    } else if host.contains(':') {
        // The client library hands it to ssh as a part of the name.
        Some("a port is not supported: give the host a name with `Port` in ~/.ssh/config")
    } else {
        None
    };
    if let Some(words) = refused {
        return Err(EngineError::new(
            "connect to",
            endpoint,
            EngineErrorKind::Other,
            words,
        ));
    }
    let limit_s = SLOW_CALL_LIMIT.as_secs();
    Docker::connect_with_ssh(host, limit_s, API_DEFAULT_VERSION, None)
        .map(|docker| (docker, Reach::Remote))
        .map_err(|error| failure("connect to", endpoint, error))
}

/// Host and port; an address of version 6 has colons of its own, and stands in brackets.
fn split_port(address: &str) -> (&str, Option<&str>) {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (address, None),
    }
}

/// The address with what the Docker CLI puts in the place of what is missing.
///
/// **Source**: docker/cli, `opts.ParseTCPAddr`: localhost, port 2375, with TLS 2376.
fn with_port(address: &str, is_tls: bool) -> String {
    let (host, port) = split_port(address);
    let host = if host.is_empty() { "localhost" } else { host };
    match port.filter(|port| !port.is_empty()) {
        Some(port) => format!("{host}:{port}"),
        None if is_tls => format!("{host}:2376"),
        None => format!("{host}:2375"),
    }
}

fn is_loopback(address: &str) -> bool {
    let (host, _) = split_port(address);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.is_empty()
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

/// Makes one call: with its deadline, and with its failure in our words.
pub(super) async fn call<T>(
    operation: &'static str,
    object: &str,
    limit: Duration,
    exchange: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, EngineError> {
    #[cfg(test)]
    let limit = limit / LIMIT_DIVISOR.get();
    match tokio::time::timeout(limit, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failure(operation, object, error)),
        Err(_) => Err(EngineError::timed_out(operation, object, limit)),
    }
}

/// The engine's own words, without the client library's around them.
#[derive(Debug, thiserror::Error)]
#[error("{message} (status {status})")]
struct EngineAnswer {
    message: String,
    status: u16,
}

/// A failure of the client library as ours.
pub(super) fn failure(operation: &'static str, object: &str, error: ApiError) -> EngineError {
    match error {
        ApiError::DockerResponseServerError {
            status_code,
            message,
        } => {
            let kind = kind_of_answer(status_code, &message);
            let answer = EngineAnswer {
                message: message.trim().to_owned(),
                status: status_code,
            };
            EngineError::new(operation, object, kind, answer)
        }
        ApiError::RequestTimeoutError => EngineError::timed_out(operation, object, SLOW_CALL_LIMIT),
        ApiError::DockerStreamError { error } => {
            let kind = kind_of_answer(500, &error);
            EngineError::new(operation, object, kind, error)
        }
        other => {
            let io_kind = deepest_io(&other);
            let kind = match io_kind {
                Some(
                    std::io::ErrorKind::NotFound
                    | std::io::ErrorKind::ConnectionRefused
                    | std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::BrokenPipe
                    | std::io::ErrorKind::HostUnreachable
                    | std::io::ErrorKind::NetworkUnreachable,
                ) => EngineErrorKind::NoDaemon,
                Some(std::io::ErrorKind::PermissionDenied) => EngineErrorKind::Denied,
                Some(std::io::ErrorKind::TimedOut) => EngineErrorKind::Timeout,
                _ => EngineErrorKind::Other,
            };
            // The library both chains its causes and prints them; one of the two is enough.
            let text = match deepest(&other) {
                Some(cause) if io_kind.is_some() => cause,
                _ => chain(&other),
            };
            EngineError::new(operation, object, kind, text)
        }
    }
}

fn kind_of_answer(status: u16, message: &str) -> EngineErrorKind {
    let message = message.to_ascii_lowercase();
    if message.contains("no space left on device") {
        return EngineErrorKind::DiskFull;
    }
    match status {
        404 if message.contains("no such image") => EngineErrorKind::ImageMissing,
        404 => EngineErrorKind::NotFound,
        409 => EngineErrorKind::Conflict,
        // Removing a network answers 403 while a container is still attached.
        403 if message.contains("active endpoints") => EngineErrorKind::Conflict,
        401 | 403 => EngineErrorKind::Denied,
        _ => EngineErrorKind::Other,
    }
}

fn deepest_io(error: &(dyn std::error::Error + 'static)) -> Option<std::io::ErrorKind> {
    let mut found = None;
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            found = Some(io.kind());
        }
        cause = inner.source();
    }
    found
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = error.source()?;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    Some(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_socket_says_how_to_get_one() {
        let error = open("unix:///nowhere/docker.sock", None).unwrap_err();
        assert_eq!(error.kind, EngineErrorKind::NoDaemon);
        assert_eq!(
            chain(&error),
            "connect to unix:///nowhere/docker.sock: the socket does not exist"
        );
        assert!(error.hint().unwrap().contains("DOCKER_HOST"));
        assert!(error.is_environment());
    }

    #[test]
    fn an_address_of_another_kind_is_refused_by_name() {
        for endpoint in [
            "ssh://host/run/docker.sock",
            "ssh://user@host:22",
            "npipe:////./pipe/docker",
            "/var/run/docker.sock",
        ] {
            let error = open(endpoint, None).unwrap_err();
            assert!(chain(&error).contains("not supported"), "{endpoint}");
        }
    }

    #[test]
    fn tls_without_its_files_names_the_one_that_is_missing() {
        let tls = TlsFiles {
            ca: "/nowhere/ca.pem".into(),
            cert: "/nowhere/cert.pem".into(),
            key: "/nowhere/key.pem".into(),
        };
        let error = open("tcp://127.0.0.1:2376", Some(&tls)).unwrap_err();
        assert!(chain(&error).contains("/nowhere/ca.pem"), "{error:?}");
        assert!(error.hint().unwrap().contains("DOCKER_CERT_PATH"));
        let error = open("https://127.0.0.1:2376", None).unwrap_err();
        assert!(chain(&error).contains("DOCKER_TLS_VERIFY"), "{error:?}");
    }

    #[test]
    fn loopback_is_told_from_elsewhere() {
        for (endpoint, reach) in [
            ("tcp://127.0.0.1:2375", Reach::Loopback),
            ("tcp://localhost:2375/", Reach::Loopback),
            ("tcp://[::1]:2375", Reach::Loopback),
            ("tcp://[::1]", Reach::Loopback),
            ("tcp://[::1]/", Reach::Loopback),
            ("tcp://127.0.0.1", Reach::Loopback),
            ("tcp://localhost", Reach::Loopback),
            ("tcp://:2375", Reach::Loopback),
            ("tcp://[fd00::1]", Reach::Remote),
            ("tcp://docker", Reach::Remote),
            ("http://10.0.0.4:2375", Reach::Remote),
            ("tcp://docker:2375", Reach::Remote),
        ] {
            assert_eq!(open(endpoint, None).unwrap().1, reach, "{endpoint}");
        }
    }

    #[test]
    fn what_an_address_leaves_out_is_the_docker_cli_s() {
        for (address, plain, tls) in [
            ("far", "far:2375", "far:2376"),
            ("far:", "far:2375", "far:2376"),
            ("far:1", "far:1", "far:1"),
            ("[::1]", "[::1]:2375", "[::1]:2376"),
            ("[::1]:9", "[::1]:9", "[::1]:9"),
            (":9", "localhost:9", "localhost:9"),
            ("", "localhost:2375", "localhost:2376"),
        ] {
            assert_eq!(with_port(address, false), plain, "{address}");
            assert_eq!(with_port(address, true), tls, "{address}");
        }
    }

    #[test]
    fn an_engine_may_be_trusted_without_our_own_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let tls = TlsFiles {
            ca: folder.path().join("ca.pem"),
            cert: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
        };
        fs_err::write(&tls.ca, "").unwrap();
        assert!(open("tcp://far", Some(&tls)).is_ok());
        // Half of a pair is a slip.
        fs_err::write(&tls.cert, "").unwrap();
        let error = open("tcp://far", Some(&tls)).unwrap_err();
        assert!(chain(&error).contains("key.pem"), "{error:?}");
        fs_err::write(&tls.key, "").unwrap();
        assert!(open("tcp://far", Some(&tls)).is_ok());
        fs_err::remove_file(&tls.ca).unwrap();
        let error = open("tcp://far", Some(&tls)).unwrap_err();
        assert!(error.hint().unwrap().contains("TLS needs ca.pem"));
    }

    #[test]
    fn answers_are_told_apart_by_status_and_words() {
        for (status, message, kind) in [
            (404, "No such image: a:b", EngineErrorKind::ImageMissing),
            (404, "No such container: x", EngineErrorKind::NotFound),
            (409, "volume is in use", EngineErrorKind::Conflict),
            (
                403,
                "error while removing network: network n id 1 has active endpoints",
                EngineErrorKind::Conflict,
            ),
            (403, "denied by plugin", EngineErrorKind::Denied),
            (
                500,
                "write /var/lib/x: no space left on device",
                EngineErrorKind::DiskFull,
            ),
            (500, "boom", EngineErrorKind::Other),
        ] {
            assert_eq!(kind_of_answer(status, message), kind, "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_ends_at_its_deadline() {
        let error = call(
            "inspect",
            "x",
            CALL_LIMIT,
            std::future::pending::<Result<(), _>>(),
        )
        .await
        .unwrap_err();
        assert_eq!(error.kind, EngineErrorKind::Timeout);
        assert_eq!(chain(&error), "inspect x: no answer within 30s");
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_no_daemon() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        drop(listener);
        let (docker, _) = open(&endpoint, None).unwrap();
        let error = call("ask", "version", CALL_LIMIT, docker.version())
            .await
            .unwrap_err();
        assert_eq!(error.kind, EngineErrorKind::NoDaemon, "{error:?}");
        assert_eq!(
            chain(&error),
            "ask version: Connection refused (os error 111)"
        );
    }
}
