//! One connection of HTTP/2, over TLS or not, and one exchange on it.
//!
//! hyper speaks the protocol. A user has one connection here too and one request on it
//! at a time, so a user is no cheaper than over HTTP/1.1 and figures can be compared;
//! what a browser does beside that, several requests at once, is several users.
//!
//! The request comes as bytes of HTTP/1.1, as every other connection takes it, and is taken apart again:
//! next to the rest of HTTP/2 that costs nothing, and there is one way to build requests.
//!
//! **Source**: RFC 9113: 8.2.2 says which headers it does not have, 8.3.1 what stands in their place.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::answer::{Answer, Keep, MOST_HEAD_BYTES};
use super::client::{ClientError, ExchangeError, connect};
use super::request::Outgoing;
use super::tls_connection::Tls;
use crate::measure::ErrorClass;
use crate::problem::chain;

/// Most headers of a request; a workload's own rarely are more than ten.
const MOST_REQUEST_HEADERS: usize = 512;

/// How connections are made.
#[derive(Debug)]
pub(super) struct Http2 {
    /// `None`: the server is known to speak HTTP/2 without being asked (`h2c`).
    pub(super) tls: Option<Tls>,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: SendRequest<Full<Bytes>>,
    end: End,
    answer: Answer,
    scheme: &'static str,
    is_new: bool,
}

impl Http2Connection {
    pub(super) async fn open(http2: &Http2, address: SocketAddr) -> Result<Self, ClientError> {
        let greeted = match &http2.tls {
            None => greet(connect(address).await?).await,
            Some(tls) => {
                let stream = tls.connect(address).await?;
                // Who knows nothing of the choice of protocols speaks HTTP/1.1.
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    let words = "TLS: the server does not offer HTTP/2";
                    return Err(ClientError::new(ErrorClass::Connect, words));
                }
                greet(stream).await
            }
        };
        let (sender, end) = greeted.map_err(|error| {
            ClientError::new(ErrorClass::Connect, format!("HTTP/2: {}", chain(&error)))
        })?;
        Ok(Self {
            sender,
            end,
            answer: Answer::default(),
            scheme: if http2.tls.is_some() { "https" } else { "http" },
            is_new: true,
        })
    }

    pub(super) fn answer(&self) -> &Answer {
        &self.answer
    }

    pub(super) fn is_reusable(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(super) async fn exchange(
        &mut self,
        request: &Outgoing<'_>,
        keep: Keep,
    ) -> Result<(), ExchangeError> {
        let is_first = std::mem::take(&mut self.is_new);
        let message = message_of(request.bytes(), self.scheme)
            .map_err(|why| ExchangeError::Failed(ClientError::new(ErrorClass::Template, why)))?;
        self.answer.clear();
        if self.sender.ready().await.is_err() && !is_first {
            return Err(ExchangeError::Stale);
        }
        let answer = match self.sender.try_send_request(message).await {
            Ok(answer) => answer,
            Err(mut error) => {
                // It comes back when nothing of it was sent.
                let is_unsent = error.take_message().is_some();
                return Err(if is_unsent && !is_first {
                    ExchangeError::Stale
                } else {
                    // Where the connection ended before, its own error says why.
                    let error = error.into_error();
                    let cause = self.end.get().filter(|_| error.is_canceled());
                    ExchangeError::Failed(failed(cause.unwrap_or(&error), is_first))
                });
            }
        };
        self.read(answer, keep).await.map_err(ExchangeError::Failed)
    }

    async fn read(
        &mut self,
        answer: http::Response<Incoming>,
        keep: Keep,
    ) -> Result<(), ClientError> {
        self.answer
            .begin(answer.status().as_u16(), answer.headers());
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            // Trailers say nothing that a step could look at.
            if let Ok(bytes) = frame.map_err(|error| failed(&error, false))?.into_data() {
                self.answer.store(&bytes, keep)?;
            }
        }
        Ok(())
    }
}

/// What ended a connection. A request that is under way is told it, too; one that comes
/// later only that it was cancelled.
type End = Arc<OnceLock<hyper::Error>>;

/// Begins to speak HTTP/2 on a stream. A task drives the connection until it is dropped.
///
/// Neither a keep-alive interval nor an adaptive window is set: both make hyper ask for a
/// timer, and the runtime of a load thread has none.
async fn greet<S>(stream: S) -> hyper::Result<(SendRequest<Full<Bytes>>, End)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.max_header_list_size(u32::try_from(MOST_HEAD_BYTES).unwrap_or(u32::MAX));
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let end = End::default();
    let told = Arc::clone(&end);
    drop(tokio::spawn(async move {
        if let Err(error) = connection.await {
            // Ended once, here.
            let _ = told.set(error);
        }
    }));
    Ok((sender, end))
}

/// A request of HTTP/1.1 as HTTP/2 has it.
///
/// **Errors**: more headers than are taken, in words.
fn message_of(bytes: &[u8], scheme: &str) -> Result<Request<Full<Bytes>>, String> {
    let mut headers = vec![httparse::EMPTY_HEADER; MOST_REQUEST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err("the request has no end".to_owned()),
        Err(error) => return Err(format!("the request cannot be sent as HTTP/2 ({error})")),
    };
    let wrong = |error: http::Error| format!("the request cannot be sent as HTTP/2 ({error})");
    let method = Method::from_bytes(parsed.method.unwrap_or("GET").as_bytes());
    let mut message = Request::new(Full::new(Bytes::copy_from_slice(&bytes[length..])));
    *message.method_mut() = method.map_err(|error| wrong(error.into()))?;
    let mut authority = None;
    for header in &*parsed.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|error| wrong(error.into()))?;
        let value = HeaderValue::from_bytes(header.value);
        let value = value.map_err(|error| wrong(error.into()))?;
        if name == HOST {
            authority = Some(value);
        } else if !is_of_connection(&name) {
            message.headers_mut().append(name, value);
        }
    }
    let authority = authority.ok_or("the request names no host")?;
    *message.uri_mut() = Uri::builder()
        .scheme(scheme)
        .authority(authority.as_bytes())
        .path_and_query(parsed.path.unwrap_or("/"))
        .build()
        .map_err(wrong)?;
    Ok(message)
}

/// Headers that speak of the connection, which HTTP/2 does itself.
fn is_of_connection(name: &HeaderName) -> bool {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE].contains(name)
        || ["keep-alive", "proxy-connection"].contains(&name.as_str())
}

/// `is_first`: nothing was answered on the connection; what TLS refuses then is refused at the
/// door. All that is left of an error of TLS by then is its kind and its words.
fn failed(error: &hyper::Error, is_first: bool) -> ClientError {
    let below = cause_of::<io::Error>(error);
    if let Some(below) = below.filter(|below| below.kind() == io::ErrorKind::InvalidData) {
        let class = if is_first {
            ErrorClass::Connect
        } else {
            ErrorClass::Protocol
        };
        return ClientError::new(class, format!("TLS: {below}"));
    }
    let class = match cause_of::<h2::Error>(error) {
        // The server's own word, or the end of the connection.
        Some(error) if error.is_remote() || error.is_io() => ErrorClass::Reset,
        Some(_) => ErrorClass::Protocol,
        None if error.is_parse() || error.is_user() => ErrorClass::Protocol,
        None => ErrorClass::Reset,
    };
    ClientError::new(class, format!("HTTP/2: {}", chain(error)))
}

fn cause_of<E: std::error::Error + 'static>(error: &hyper::Error) -> Option<&E> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref::<E>() {
            return Some(found);
        }
        cause = inner.source();
    }
    None
}
