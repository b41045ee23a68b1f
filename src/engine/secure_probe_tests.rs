use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::engine::ProbeAnswer;
use crate::tls::{TlsClient, TlsSettings, Wire};

const LIMIT: Duration = Duration::from_secs(10);

fn file(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/certificates");
    PathBuf::from(folder).join(name)
}

fn acceptor(certificate: &str, protocol: &str) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_file(file(&format!("{certificate}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(file(&format!("{certificate}.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn probe(http2: bool) -> ReadyProbe {
    let settings = TlsSettings {
        ca: Some(file("ca.pem")),
        ..TlsSettings::default()
    };
    ReadyProbe {
        path: "/health?deep=1".to_owned(),
        status: 200,
        host: "app.test:8443".to_owned(),
        wire: Wire {
            tls: Some(TlsClient::new(settings).unwrap()),
            http2,
        },
    }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn a_service_is_asked_over_tls() {
    let (listener, address) = listener().await;
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor("server", "http/1.1").accept(stream).await.unwrap();
        let mut request = vec![0; 4096];
        let n_read = stream.read(&mut request).await.unwrap();
        let answer = b"HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\nnot\nready";
        stream.write_all(answer).await.unwrap();
        stream.shutdown().await.unwrap();
        String::from_utf8_lossy(&request[..n_read]).into_owned()
    });
    let answer = crate::engine::probe::get(address, &probe(false), LIMIT).await;
    let expected = ProbeAnswer {
        status: 503,
        body_head: "not ready".to_owned(),
    };
    assert_eq!(answer, Ok(expected));
    let request = served.await.unwrap();
    assert!(
        request.starts_with("GET /health?deep=1 HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("host: app.test:8443\r\n"), "{request}");
}

#[tokio::test]
async fn a_service_is_asked_in_http2_with_and_without_tls() {
    for is_secured in [true, false] {
        let (listener, address) = listener().await;
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            if is_secured {
                let stream = acceptor("server", "h2").accept(stream).await.unwrap();
                answer_http2(stream).await
            } else {
                answer_http2(stream).await
            }
        });
        let mut probe = probe(true);
        if !is_secured {
            probe.wire.tls = None;
        }
        let page = crate::engine::probe::fetch(address, &probe, LIMIT).await;
        let expected = Page {
            status: 200,
            body: "yes".to_owned(),
        };
        assert_eq!(page, Ok(expected));
        let scheme = probe.wire.scheme();
        assert_eq!(
            served.await.unwrap(),
            format!("{scheme}://app.test:8443/health?deep=1")
        );
    }
}

async fn answer_http2(stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let (request, mut respond) = connection.accept().await.unwrap().unwrap();
    let mut body = respond
        .send_response(http::Response::new(()), false)
        .unwrap();
    body.send_data("yes".into(), true).unwrap();
    // Until the client has gone.
    while connection.accept().await.is_some_and(|more| more.is_ok()) {}
    request.uri().to_string()
}

#[tokio::test]
async fn a_certificate_that_is_not_to_be_trusted_is_told_in_words() {
    let (listener, address) = listener().await;
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor("expired", "http/1.1").accept(stream).await.is_ok()
    });
    let failure = crate::engine::probe::get(address, &probe(false), LIMIT).await;
    let words = "TLS: the server's certificate has expired".to_owned();
    assert_eq!(failure, Err(ProbeFailure::Broken(words)));
    assert!(!served.await.unwrap());
}

#[tokio::test]
async fn a_port_nobody_listens_on_is_refused_over_tls_too() {
    let (listener, address) = listener().await;
    drop(listener);
    let failure = crate::engine::probe::get(address, &probe(false), LIMIT).await;
    assert_eq!(failure, Err(ProbeFailure::Refused));
}
