//! One readiness request: an HTTP GET with a time limit.
//!
//! It says what came back and judges nothing but the status. It knows an address
//! and a path, no container. Over TLS and in HTTP/2 it is sent by `secure_probe`. Read
//! `launch/ready.rs` next, which repeats it.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{CONNECTION, HOST};

use super::secure_probe;
use crate::problem::chain;
use crate::tls::Wire;

/// Enough of a body to recognise an error page by, short enough for one line.
const BODY_HEAD_CHARS: usize = 200;

/// Far more than any page of metrics; a service that streams must not fill our memory.
const MOST_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// How to ask a service whether it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyProbe {
    /// Path and query, starting with `/`.
    pub path: String,
    /// Status that means ready.
    pub status: u16,
    /// `Host` header, as `app:8080`.
    pub host: String,
    /// What stands between us and the service.
    pub wire: Wire,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Status of the answer.
    pub status: u16,
    /// Start of its body, on one line.
    pub body_head: String,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Status of the answer.
    pub status: u16,
    /// Its body, up to 8 MiB.
    pub body: String,
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
    let exchange = exchange(address, probe, BODY_HEAD_CHARS * 4, false);
    let answer = tokio::time::timeout(limit, exchange)
        .await
        .unwrap_or(Err(ProbeFailure::TimedOut(limit)))?;
    Ok(ProbeAnswer {
        status: answer.status,
        body_head: one_line(&answer.body),
    })
}

/// Gets a whole answer, on a connection of its own.
pub(super) async fn fetch(
    address: SocketAddr,
    probe: &ReadyProbe,
    limit: Duration,
) -> Result<Page, ProbeFailure> {
    tokio::time::timeout(limit, exchange(address, probe, MOST_PAGE_BYTES, true))
        .await
        .unwrap_or(Err(ProbeFailure::TimedOut(limit)))
}

/// Never through a proxy, never on to another address, never on a kept connection:
/// the answer is this service's, now.
fn client() -> Result<&'static reqwest::Client, ProbeFailure> {
    static CLIENT: OnceLock<Result<reqwest::Client, String>> = OnceLock::new();
    CLIENT
        .get_or_init(|| {
            reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .pool_max_idle_per_host(0)
                .http1_only()
                .build()
                .map_err(|error| chain(&error))
        })
        .as_ref()
        .map_err(|error| ProbeFailure::Broken(error.clone()))
}

/// `is_whole`: a body that breaks off is a failure; else it is taken as far as it came,
/// since the status is what counts.
async fn exchange(
    address: SocketAddr,
    probe: &ReadyProbe,
    most_bytes: usize,
    is_whole: bool,
) -> Result<Page, ProbeFailure> {
    if probe.wire != Wire::default() {
        return secure_probe::exchange(address, probe, most_bytes, is_whole).await;
    }
    let mut answer = client()?
        .get(format!("http://{address}{}", probe.path))
        .header(HOST, &probe.host)
        .header(CONNECTION, "close")
        .send()
        .await
        .map_err(|error| failure_of(&error))?;
    let mut body = Vec::new();
    while body.len() < most_bytes {
        match answer.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) if is_whole => return Err(failure_of(&error)),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(Page {
        status: answer.status().as_u16(),
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// What the system said, found below what the client says of it.
pub(super) fn failure_of(error: &(dyn Error + 'static)) -> ProbeFailure {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(system) = inner.downcast_ref::<io::Error>() {
            match system.kind() {
                io::ErrorKind::ConnectionRefused => return ProbeFailure::Refused,
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    return ProbeFailure::Unreachable(system.to_string());
                }
                _ => {}
            }
        }
        cause = inner.source();
    }
    ProbeFailure::Broken(chain(error))
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
            wire: Wire::default(),
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
