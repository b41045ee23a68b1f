//! `testbed healthcheck`: one GET of `/health`, for images without a shell.
//!
//! Invariant: ends within [`LIMIT`], whatever the other side does.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for the connection, and for each read.
const LIMIT: Duration = Duration::from_secs(2);

/// Why the service is not healthy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// Nobody answered.
    #[error("no answer on port {port}: {source}")]
    NoAnswer {
        /// Where it was asked.
        port: u16,
        /// What the socket said.
        source: std::io::Error,
    },
    /// An answer other than 200.
    #[error("{0}")]
    Unhealthy(String),
}

/// Asks the service on this host.
pub(crate) fn health(port: u16) -> Result<(), ProbeError> {
    let text = ask(port).map_err(|source| ProbeError::NoAnswer { port, source })?;
    if text.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    let body = text
        .split_once("\r\n\r\n")
        .map_or(text.as_str(), |(_, body)| body);
    Err(ProbeError::Unhealthy(body.to_owned()))
}

fn ask(port: u16) -> std::io::Result<String> {
    let mut stream =
        TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
