//! One readiness request: a plain HTTP GET with a time limit.
//!
//! It says what came back and judges nothing but the status. It knows an address
//! and a path, no container. Read `launch/ready.rs` next, which repeats it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::error::chain_text;

/// Enough of a body to recognise an error page by, short enough for one line.
const BODY_HEAD_CHARS: usize = 200;

/// How to ask a service whether it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyProbe {
    /// Path and query, starting with `/`.
    pub path: String,
    /// Status that means ready.
    pub status: u16,
    /// `Host` header, as `app:8080`.
    pub host: String,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Status of the answer.
    pub status: u16,
    /// Start of its body, on one line.
    pub body_head: String,
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeFailure {
    /// The host answers at that address, nobody listens on the port yet.
    #[error("connection refused")]
    Refused,
    /// There is no way from here to the address.
    #[error("no route to the address ({0})")]
    Unreachable(String),
    /// Nothing within the limit.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection broke, or the answer was not HTTP.
    #[error("{0}")]
    Broken(String),
}

/// Sends the request once, on a connection of its own.
pub(super) async fn get(
    address: SocketAddr,
    probe: &ReadyProbe,
    limit: Duration,
) -> Result<ProbeAnswer, ProbeFailure> {
    tokio::time::timeout(limit, exchange(address, probe))
        .await
        .unwrap_or(Err(ProbeFailure::TimedOut(limit)))
}

async fn exchange(address: SocketAddr, probe: &ReadyProbe) -> Result<ProbeAnswer, ProbeFailure> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => ProbeFailure::Refused,
            std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable => {
                ProbeFailure::Unreachable(error.to_string())
            }
            _ => ProbeFailure::Broken(error.to_string()),
        })?;
    let broken = |error: hyper::Error| ProbeFailure::Broken(chain_text(&error));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let request = Request::get(&probe.path)
        .header(HOST, &probe.host)
        .header("connection", "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| ProbeFailure::Broken(error.to_string()))?;
    // The connection must be driven beside the request; it ends with this future.
    let driven = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let mut body = answer.into_body();
        let mut head = Vec::new();
        while head.len() < BODY_HEAD_CHARS * 4 {
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        head.extend_from_slice(data);
                    }
                }
                // The status is what counts; a body that breaks off is shown as far as it came.
                Some(Err(_)) | None => break,
            }
        }
        Ok(ProbeAnswer {
            status,
            body_head: one_line(&String::from_utf8_lossy(&head)),
        })
    };
    let mut driven = std::pin::pin!(driven);
    tokio::select! {
        biased;
        answer = &mut driven => answer,
        // What it had received is still handed out; else the request reports its end.
        _ = connection => driven.await,
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(BODY_HEAD_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn probe() -> ReadyProbe {
        ReadyProbe {
            path: "/health?deep=1".to_owned(),
            status: 200,
            host: "app:8080".to_owned(),
        }
    }

    async fn answer_once(answer: &'static [u8]) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let n_read = stream.read(&mut request).await.unwrap();
            stream.write_all(answer).await.unwrap();
            String::from_utf8_lossy(&request[..n_read]).into_owned()
        });
        (address, served)
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn status_and_start_of_the_body_come_back() {
        let (address, served) = answer_once(
            b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n5\r\nnot\nr\r\n4\r\neady\r\n0\r\n\r\n",
        )
        .await;
        let answer = get(address, &probe(), LIMIT).await.unwrap();
        assert_eq!(
            answer,
            ProbeAnswer {
                status: 503,
                body_head: "not ready".to_owned()
            }
        );
        let request = served.await.unwrap();
        assert!(
            request.starts_with("GET /health?deep=1 HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains("host: app:8080\r\n"), "{request}");
    }

    #[tokio::test]
    async fn a_port_nobody_listens_on_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(
            get(address, &probe(), LIMIT).await,
            Err(ProbeFailure::Refused)
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_not_http_or_missing_is_broken_and_says_how() {
        for bytes in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b""] {
            let (address, served) = answer_once(bytes).await;
            let failure = get(address, &probe(), LIMIT).await.unwrap_err();
            assert!(
                matches!(&failure, ProbeFailure::Broken(text) if !text.is_empty()),
                "{failure:?}"
            );
            served.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_service_that_accepts_and_stays_silent_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let limit = Duration::from_millis(50);
        let failure = get(listener.local_addr().unwrap(), &probe(), limit).await;
        assert_eq!(failure, Err(ProbeFailure::TimedOut(limit)));
    }
}
