//! The readiness request over TLS or in HTTP/2.
//!
//! The target is asked as the load will ask it, by the same trust and the same version of
//! HTTP: a service that is ready for somebody else is not ready for the load. Read `probe` first.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::probe::failure_of;
use super::{Page, ProbeFailure, ReadyProbe};
use crate::tls::words_of;

/// Gets an answer on a connection of its own, up to so many bytes of its body.
///
/// `is_whole`: a body that breaks off is a failure; else it is taken as far as it came.
pub(super) async fn exchange(
    address: SocketAddr,
    probe: &ReadyProbe,
    most_bytes: usize,
    is_whole: bool,
) -> Result<Page, ProbeFailure> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| failure_of(&error))?;
    let answer = match &probe.wire.tls {
        None => ask(stream, probe).await?,
        Some(tls) => {
            let broken = |words: String| ProbeFailure::Broken(format!("TLS: {words}"));
            let name = tls
                .name(&probe.host)
                .map_err(|error| broken(error.to_string()))?;
            let protocol = if probe.wire.http2 { "h2" } else { "http/1.1" };
            let secured = TlsConnector::from(Arc::new(tls.config(protocol)))
                .connect(name, stream)
                .await
                .map_err(|error| broken(words_of(&error).unwrap_or_else(|| error.to_string())))?;
            ask(secured, probe).await?
        }
    };
    let status = answer.status().as_u16();
    let mut body = answer.into_body();
    let mut bytes = Vec::new();
    while bytes.len() < most_bytes {
        match body.frame().await {
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Some(Err(error)) if is_whole => return Err(failure_of(&error)),
            None | Some(Err(_)) => break,
        }
    }
    Ok(Page {
        status,
        body: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

async fn ask<S>(stream: S, probe: &ReadyProbe) -> Result<http::Response<Incoming>, ProbeFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error: http::Error| ProbeFailure::Broken(error.to_string());
    let stream = TokioIo::new(stream);
    let request = Request::get(probe.path.as_str());
    // A task drives each connection until the answer is dropped.
    let answer = if probe.wire.http2 {
        let (scheme, path) = (probe.wire.scheme(), &probe.path);
        let request = Request::get(format!("{scheme}://{}{path}", probe.host))
            .body(Empty::<Bytes>::new())
            .map_err(broken)?;
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .map_err(|error| failure_of(&error))?;
        drop(tokio::spawn(async move { drop(connection.await) }));
        sender.send_request(request).await
    } else {
        let request = request
            .header(HOST, &probe.host)
            .header(http::header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(broken)?;
        let (mut sender, connection) = http1::handshake(stream)
            .await
            .map_err(|error| failure_of(&error))?;
        drop(tokio::spawn(async move { drop(connection.await) }));
        sender.send_request(request).await
    };
    answer.map_err(|error| failure_of(&error))
}

#[cfg(test)]
#[path = "secure_probe_tests.rs"]
mod tests;
