//! One connection of HTTP/1.1 over TLS, and one exchange on it.
//!
//! What is sent and how answers are read is the plain connection's (`client`, `answer`); only the
//! bytes in between differ. So every outcome means the same on both, and what TLS
//! costs is encryption and no other client.
//!
//! **Invariant**: as in `client`, no request that may have reached the server is sent again.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::pki_types::ServerName;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::answer::{Answer, AnswerReader, Keep};
use super::client::{ClientError, ExchangeError, connect, read_into};
use super::request::Outgoing;
use crate::measure::ErrorClass;
use crate::tls::words_of;

/// Most bytes of one record of TLS, RFC 8446, 5.1: a part of it tells the server nothing.
const RECORD_BYTES: usize = 16 << 10;

/// How connections are secured.
pub(super) struct Tls {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Tls({})", self.name.to_str())
    }
}

impl Tls {
    /// Connects and shakes hands.
    pub(super) async fn connect(
        &self,
        address: SocketAddr,
    ) -> Result<TlsStream<TcpStream>, ClientError> {
        let stream = connect(address).await?;
        let secured = self.connector.connect(self.name.clone(), stream).await;
        secured.map_err(|error| {
            let words = words_of(&error).unwrap_or_else(|| error.to_string());
            ClientError::new(ErrorClass::Connect, format!("TLS: {words}"))
        })
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct TlsConnection {
    stream: TlsStream<TcpStream>,
    reader: AnswerReader,
    is_new: bool,
}

impl TlsConnection {
    pub(super) async fn open(tls: &Tls, address: SocketAddr) -> Result<Self, ClientError> {
        Ok(Self {
            stream: tls.connect(address).await?,
            reader: AnswerReader::default(),
            is_new: true,
        })
    }

    pub(super) fn answer(&self) -> &Answer {
        self.reader.answer()
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.reader.is_reusable()
    }

    pub(super) async fn exchange(
        &mut self,
        request: &Outgoing<'_>,
        keep: Keep,
    ) -> Result<(), ExchangeError> {
        let is_first = std::mem::take(&mut self.is_new);
        if !is_first && self.has_been_closed().await {
            return Err(ExchangeError::Stale);
        }
        self.reader.begin(keep, request.is_head());
        let bytes = request.bytes();
        let mut n_sent = 0;
        let sent = std::future::poll_fn(|cx| self.poll_send(cx, bytes, &mut n_sent)).await;
        if let Err(error) = sent {
            return self.send_failed(error, n_sent, bytes.len()).await;
        }
        while !self.reader.is_done() {
            std::future::poll_fn(|cx| self.poll_receive(cx))
                .await
                .map_err(|error| ExchangeError::Failed(error.into_client_error(is_first)))?;
        }
        Ok(())
    }

    /// Whether an end, or bytes that answer nothing, came while nothing was asked for.
    async fn has_been_closed(&mut self) -> bool {
        // A reader that waits for nothing takes whatever comes as surplus.
        std::future::poll_fn(|cx| Poll::Ready(self.poll_receive(cx).is_ready())).await
    }

    /// Sends the whole request, or as much as the server wants of it before it answers.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        n_sent: &mut usize,
    ) -> Poll<Result<(), Broken>> {
        loop {
            let stream = Pin::new(&mut self.stream);
            if *n_sent < bytes.len() {
                match stream.poll_write(cx, &bytes[*n_sent..]) {
                    Poll::Ready(Ok(n)) => {
                        *n_sent += n;
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::of("send", error))),
                    Poll::Pending => {}
                }
            } else if let Poll::Ready(flushed) = stream.poll_flush(cx) {
                return Poll::Ready(flushed.map_err(|error| Broken::of("send", error)));
            }
            ready!(self.poll_receive(cx))?;
            if self.reader.is_done() {
                // What is left of the request would be taken for the next one.
                self.reader.close();
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// A server that has said why it hangs up is heard all the same.
    async fn send_failed(
        &mut self,
        error: Broken,
        n_sent: usize,
        n_bytes: usize,
    ) -> Result<(), ExchangeError> {
        let mut why = error;
        while !self.reader.is_done() {
            if let Err(error) = std::future::poll_fn(|cx| self.poll_receive(cx)).await {
                // An alert says more than a broken pipe.
                if matches!(error, Broken::Tls(_)) {
                    why = error;
                }
                break;
            }
        }
        if self.reader.is_done() {
            self.reader.close();
            return Ok(());
        }
        let has_reached = n_sent > 0 || n_bytes > RECORD_BYTES || !self.reader.is_untouched();
        if has_reached || matches!(why, Broken::Tls(_)) {
            return Err(ExchangeError::Failed(why.into_client_error(false)));
        }
        Err(ExchangeError::Stale)
    }

    /// Reads once and parses what came.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let reader = &mut self.reader;
        read_into(&mut self.stream, cx, |read| match read {
            // Without TLS's own end anybody may have cut it off.
            Err(error)
                if error.kind() == io::ErrorKind::UnexpectedEof && !reader.ends_at_close() =>
            {
                reader.end().map_err(Broken::Http)
            }
            Err(error) => Err(Broken::of("receive", error)),
            Ok([]) => reader.end().map_err(Broken::Http),
            Ok(bytes) => reader.feed(bytes).map_err(Broken::Http),
        })
    }
}

/// What broke an exchange.
#[derive(Debug)]
enum Broken {
    /// The answer.
    Http(ClientError),
    /// TLS itself, in words.
    Tls(String),
    /// What is below it.
    Stream(&'static str, io::Error),
}

impl Broken {
    fn of(what: &'static str, error: io::Error) -> Self {
        match words_of(&error) {
            Some(words) => Self::Tls(words),
            None => Self::Stream(what, error),
        }
    }

    /// `is_first`: nothing was answered on the connection. What TLS refuses then is refused at
    /// the door, as in TLS 1.3, where a client is told after its handshake that it has no certificate.
    fn into_client_error(self, is_first: bool) -> ClientError {
        match self {
            Self::Http(error) => error,
            Self::Tls(words) if is_first => {
                ClientError::new(ErrorClass::Connect, format!("TLS: {words}"))
            }
            Self::Tls(words) => ClientError::new(ErrorClass::Protocol, format!("TLS: {words}")),
            Self::Stream(what, error) => ClientError::broken(what, &error),
        }
    }
}
