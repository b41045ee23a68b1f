//! The test server's HTTP/2, and certificates for its TLS.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use h2::server::SendResponse;
use http::{Request, Response};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};

use super::test_server::{Got, Reply, Script, Seen};

/// A file of the test certificates; make.sh beside them says how they were made.
pub(super) fn certificate_file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/certificates");
    PathBuf::from(folder).join(name)
}

/// A server with one of the test certificates that speaks one protocol, and may want to know
/// who asks.
pub(super) fn server_config(
    certificate: &str,
    protocol: &str,
    asks_for_certificate: bool,
) -> Arc<ServerConfig> {
    let read = |name: &str| CertificateDer::from_pem_file(certificate_file(name)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if asks_for_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(read("ca.pem")).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_file(certificate_file(&format!("{certificate}.key")));
    let chain = vec![read(&format!("{certificate}.pem"))];
    let mut config = builder.with_single_cert(chain, key.unwrap()).unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

pub(super) async fn serve_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: &Arc<Seen>,
    script: &Arc<Script>,
) -> io::Result<()> {
    let mut connection = h2::server::handshake(stream)
        .await
        .map_err(io::Error::other)?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.map_err(io::Error::other)?;
        let (mut got, body) = got(request);
        got.index = seen.requests.fetch_add(1, Ordering::SeqCst);
        let reply = script(&got);
        if matches!(reply, Reply::AnswerThenClose(..)) {
            connection.graceful_shutdown();
        }
        let seen = Arc::clone(seen);
        tokio::spawn(async move {
            got.body = read(body).await;
            seen.log.lock().unwrap().push((Instant::now(), got));
            reply_with(reply, respond).await;
        });
    }
    Ok(())
}

fn got(request: Request<h2::RecvStream>) -> (Got, h2::RecvStream) {
    let (parts, body) = request.into_parts();
    let headers = parts.headers.iter();
    let lines: Vec<String> = headers
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()))
        .collect();
    let head = format!("{} {}\n{}", parts.method, parts.uri, lines.concat());
    let got = Got {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().unwrap().to_string(),
        head,
        body: String::new(),
        bytes: Vec::new(),
        index: 0,
    };
    (got, body)
}

async fn read(mut body: h2::RecvStream) -> String {
    let mut text = Vec::new();
    while let Some(Ok(bytes)) = body.data().await {
        let _ = body.flow_control().release_capacity(bytes.len());
        text.extend_from_slice(&bytes);
    }
    String::from_utf8(text).unwrap()
}

async fn reply_with(mut reply: Reply, mut respond: SendResponse<Bytes>) {
    while let Reply::After(wait, then) = reply {
        tokio::time::sleep(wait).await;
        reply = *then;
    }
    match reply {
        Reply::Answer(status, body) | Reply::AnswerThenClose(status, body) => {
            let answer = Response::builder().status(status).header("etag", "v7");
            let sent = respond.send_response(answer.body(()).unwrap(), false);
            // The client may have gone.
            if let Ok(mut stream) = sent {
                let _ = stream.send_data(body.into(), true);
            }
        }
        Reply::Never => std::future::pending().await,
        _ => respond.send_reset(h2::Reason::INTERNAL_ERROR),
    }
}
