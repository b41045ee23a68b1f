//! The connections that a load can have: plain, over TLS, HTTP/2.
//!
//! Which one is decided when the workload is prepared, by the target alone; a connection is
//! one of them for as long as it lives. Whatever it is, one virtual user or journey has it
//! for itself and sends one request at a time, so that figures mean the same.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_rustls::TlsConnector;

use super::answer::{Answer, Keep};
use super::client::{self, ClientError, ExchangeError};
use super::http2::{Http2, Http2Connection};
use super::plan::Target;
use super::request::Outgoing;
use super::tls_connection::{Tls, TlsConnection};

/// How connections to the target are made.
#[derive(Debug)]
pub(super) enum Dialer {
    Plain,
    Tls(Tls),
    Http2(Http2),
}

impl Dialer {
    /// **Errors**: a host that no certificate can be for, in words.
    pub(super) fn new(target: &Target) -> Result<Self, String> {
        let wire = &target.wire;
        let protocol = if wire.http2 { "h2" } else { "http/1.1" };
        let tls = match &wire.tls {
            None => None,
            Some(client) => Some(Tls {
                connector: TlsConnector::from(Arc::new(client.config(protocol))),
                name: client
                    .name(&target.host)
                    .map_err(|error| error.to_string())?,
            }),
        };
        Ok(match tls {
            tls if wire.http2 => Self::Http2(Http2 { tls }),
            Some(tls) => Self::Tls(tls),
            None => Self::Plain,
        })
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) enum Connection {
    Plain(client::Connection),
    Tls(Box<TlsConnection>),
    Http2(Box<Http2Connection>),
}

impl Connection {
    /// Connects; what TLS and HTTP/2 say to each other first is a part of it.
    pub(super) async fn open(dialer: &Dialer, address: SocketAddr) -> Result<Self, ClientError> {
        Ok(match dialer {
            Dialer::Plain => Self::Plain(client::Connection::open(address).await?),
            // Boxed: their state is large, and would be a part of every plain connection's.
            Dialer::Tls(tls) => {
                Self::Tls(Box::new(Box::pin(TlsConnection::open(tls, address)).await?))
            }
            Dialer::Http2(http2) => Self::Http2(Box::new(
                Box::pin(Http2Connection::open(http2, address)).await?,
            )),
        })
    }

    /// The last answer.
    pub(super) fn answer(&self) -> &Answer {
        match self {
            Self::Plain(open) => open.answer(),
            Self::Tls(open) => open.answer(),
            Self::Http2(open) => open.answer(),
        }
    }

    /// Whether another request may be sent.
    pub(super) fn is_reusable(&self) -> bool {
        match self {
            Self::Plain(open) => open.is_reusable(),
            Self::Tls(open) => open.is_reusable(),
            Self::Http2(open) => open.is_reusable(),
        }
    }

    /// Sends one request and reads its whole answer, which is then [`Connection::answer`].
    ///
    /// **Errors**: the connection cannot be used again.
    /// **Cancel**: dropping the future leaves the connection unusable; drop it too.
    pub(super) async fn exchange(
        &mut self,
        request: &Outgoing<'_>,
        keep: Keep,
    ) -> Result<(), ExchangeError> {
        match self {
            Self::Plain(open) => open.exchange(request, keep).await,
            // Boxed, as above.
            Self::Tls(open) => Box::pin(open.exchange(request, keep)).await,
            Self::Http2(open) => Box::pin(open.exchange(request, keep)).await,
        }
    }
}
