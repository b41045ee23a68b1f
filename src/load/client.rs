//! One HTTP/1.1 connection and one exchange on it.
//!
//! The only module of the generator that knows hyper's connection API. It is
//! narrow on purpose: open, exchange, and an error with a class.
//!
//! **Invariant**: a request that may have reached the server is never sent a
//! second time; one that certainly has not is given back.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::measure::ErrorClass;

/// Most bytes of an answer that are kept. **Units**: bytes.
///
/// Far above what a step can want to look into, far below the host's memory.
const MOST_BODY_BYTES: usize = 64 << 20;
/// So much of an unexpected answer is kept to say what it was. **Units**: bytes.
pub(super) const EXCERPT_BYTES: usize = 200;

/// A request ready to be sent.
pub(super) type Outgoing = Request<Full<Bytes>>;

/// How much of an answer's body is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The first bytes alone; the rest is read and dropped.
    Excerpt,
    /// All of it.
    All,
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// As much of the body as was asked for.
    pub(super) body: Bytes,
}

/// Why there is no whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientError {
    pub(super) class: ErrorClass,
    pub(super) message: String,
}

impl ClientError {
    fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }
}

/// How an exchange went wrong.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The connection was closed before; nothing was sent.
    Stale(Box<Outgoing>),
    /// Something was sent.
    Failed(ClientError),
}

/// An open connection.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Reads and writes the socket whenever an exchange is polled: no task of
    /// its own, so no hand-over between tasks per request.
    driver: Driver,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("is_open", &self.driver.connection.is_some())
            .finish_non_exhaustive()
    }
}

type HttpConnection = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

struct Driver {
    /// Gone once it has ended: it holds the queue of requests, and one that got
    /// in there at the last moment is only given back when the queue is dropped.
    connection: Option<Pin<Box<HttpConnection>>>,
    /// hyper tells the waiting request of a broken connection only in part.
    error: Option<hyper::Error>,
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && let Poll::Ready(result) = connection.as_mut().poll(cx)
        {
            self.connection = None;
            self.error = result.err();
        }
    }

    /// Runs a future of this connection together with the connection itself.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            self.poll(cx);
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            // The future may have asked for the body just now: a second look
            // spares one trip through the event loop.
            self.poll(cx);
            future.as_mut().poll(cx)
        })
        .await
    }
}

impl Connection {
    /// Connects, with `TCP_NODELAY`: no request may wait for the last one's ACK.
    pub(super) async fn open(address: SocketAddr) -> Result<Self, ClientError> {
        let connect_error =
            |error: &io::Error| ClientError::new(ErrorClass::Connect, format!("connect: {error}"));
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| connect_error(&error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| connect_error(&error))?;
        let (sender, connection) = http1::Builder::new()
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ClientError::new(ErrorClass::Connect, error.to_string()))?;
        Ok(Self {
            sender,
            driver: Driver {
                connection: Some(Box::pin(connection)),
                error: None,
            },
        })
    }

    /// Sends one request and reads its whole answer.
    ///
    /// **Cancel**: dropping the future leaves the connection unusable; drop it too.
    pub(super) async fn exchange(
        &mut self,
        request: Outgoing,
        keep: Keep,
    ) -> Result<Answer, ExchangeError> {
        let Self { sender, driver } = self;
        let is_ready = driver
            .drive(std::future::poll_fn(|cx| sender.poll_ready(cx)))
            .await
            .is_ok();
        if !is_ready {
            return Err(ExchangeError::Stale(Box::new(request)));
        }
        let response = sender.try_send_request(request);
        let whole = async {
            let response = response.await.map_err(|mut error| {
                error.take_message().map_or_else(
                    || ExchangeError::Failed(classify(error.error())),
                    |request| ExchangeError::Stale(Box::new(request)),
                )
            })?;
            read(response, keep).await.map_err(ExchangeError::Failed)
        };
        let result = driver.drive(whole).await;
        match (result, &driver.error) {
            // What broke the connection says more than 'canceled'.
            (Err(ExchangeError::Failed(_)), Some(error)) => {
                Err(ExchangeError::Failed(classify(error)))
            }
            (result, _) => result,
        }
    }
}

async fn read(
    response: Response<hyper::body::Incoming>,
    keep: Keep,
) -> Result<Answer, ClientError> {
    let (head, mut incoming) = response.into_parts();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut kept = 0;
    let most = match keep {
        Keep::Excerpt => EXCERPT_BYTES,
        Keep::All => MOST_BODY_BYTES,
    };
    while let Some(frame) = incoming.frame().await {
        let Ok(mut data) = frame.map_err(|error| classify(&error))?.into_data() else {
            continue;
        };
        if keep == Keep::All && kept + data.len() > most {
            return Err(ClientError::new(
                ErrorClass::Body,
                format!("the answer is longer than {MOST_BODY_BYTES} bytes"),
            ));
        }
        data.truncate(most - kept);
        kept += data.len();
        // Most answers come in one piece, which is then kept without a copy.
        if first.is_empty() {
            first = data;
        } else if !data.is_empty() {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body: if rest.is_empty() {
            first
        } else {
            rest.freeze()
        },
    })
}

/// The class of a hyper error, by what it says of itself and by its cause.
fn classify(error: &hyper::Error) -> ClientError {
    let cause = error.source();
    let io_kind = cause
        .and_then(|cause| cause.downcast_ref::<io::Error>())
        .map(io::Error::kind);
    let is_protocol = error.is_parse()
        || matches!(
            io_kind,
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
        );
    let class = if is_protocol {
        ErrorClass::Protocol
    } else {
        ErrorClass::Reset
    };
    let message = match cause {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    ClientError { class, message }
}
