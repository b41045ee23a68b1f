//! One plain HTTP/1.1 connection and one exchange on it.
//!
//! An exchange of ordinary size is one send and one receive: the request is one piece of
//! memory, the answer is read into a buffer that all connections of the thread share and
//! parsed there (`answer`), and the event loop is asked only when there is nothing to read.
//!
//! What runs for every request is marked `#[inline]`, here and in the modules it passes through: the kernel's
//! part of a request leaves the caches cold, so that each function of its own costs 10 to 40 ns for being
//! called; together they were 3.5 % of a plain request.
//!
//! **Invariant**: a request that may have reached the server is never sent a
//! second time; one that certainly has not is told apart (`Stale`). RFC 9110, 9.2.2, lets a
//! client repeat what is idempotent when a kept connection breaks; a load generator that
//! did would send more than it counts, and hide what the server did. So a server that closes a
//! kept connection while a request is on its way has failed that request, whatever its method.
//!
//! **Limit**: bytes that a server sends behind the end of an answer are recognised until the
//! next request leaves. Later ones look like the beginning of the next answer, and no client of
//! HTTP/1.1 can tell.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::answer::{Answer, AnswerReader, Keep};
use super::request::Outgoing;
use crate::measure::ErrorClass;

/// So much is read at once. **Units**: bytes.
const SCRATCH_BYTES: usize = 64 << 10;

thread_local! {
    /// What is read stays here only until it is parsed, so one buffer serves all connections.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into());
}

/// Why there is no whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientError {
    pub(super) class: ErrorClass,
    pub(super) message: String,
}

impl ClientError {
    pub(super) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }

    pub(super) fn broken(what: &str, error: &io::Error) -> Self {
        Self::new(ErrorClass::Reset, format!("{what}: {error}"))
    }
}

/// How an exchange went wrong.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The connection was closed before; nothing was sent.
    Stale,
    /// Something was sent.
    Failed(ClientError),
}

/// How far the sending of a request came at once.
#[derive(Debug)]
pub(super) enum Begun {
    /// All of it went out.
    Whole,
    /// So many bytes of it.
    Partly(usize),
    /// Its first bytes were not taken.
    Refused(io::Error),
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    reader: AnswerReader,
    is_new: bool,
}

impl Connection {
    /// Connects.
    pub(super) async fn open(address: SocketAddr) -> Result<Self, ClientError> {
        Ok(Self {
            stream: connect(address).await?,
            reader: AnswerReader::default(),
            is_new: true,
        })
    }

    /// The last answer.
    pub(super) fn answer(&self) -> &Answer {
        self.reader.answer()
    }

    /// Whether another request may be sent.
    pub(super) fn is_reusable(&self) -> bool {
        self.reader.is_reusable()
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
        let begun = self.begin(request, keep).ok_or(ExchangeError::Stale)?;
        self.finish(begun, request).await
    }

    /// Begins an exchange: sends what goes out at once. `None` when the connection was closed
    /// before, and nothing was sent.
    ///
    /// **Cancel**: from here to the end of the answer the connection is unusable for anything else.
    #[inline]
    pub(super) fn begin(&mut self, request: &Outgoing<'_>, keep: Keep) -> Option<Begun> {
        // What a server says first on a new connection is its answer to what follows: a
        // greeting of another protocol is to be told as such.
        if !std::mem::take(&mut self.is_new) && self.has_been_closed() {
            return None;
        }
        self.reader.begin(keep, request.is_head());
        Some(match send(&self.stream, request.bytes()) {
            Ok(n) if n == request.bytes().len() => Begun::Whole,
            Ok(n) => Begun::Partly(n),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Begun::Partly(0),
            Err(error) => Begun::Refused(error),
        })
    }

    /// Does what is left of an exchange that was begun.
    ///
    /// **Errors**, **Cancel**: as of [`Connection::exchange`].
    pub(super) async fn finish(
        &mut self,
        begun: Begun,
        request: &Outgoing<'_>,
    ) -> Result<(), ExchangeError> {
        match begun {
            Begun::Whole => {}
            Begun::Partly(n) => self.send_rest(request.bytes(), n).await?,
            Begun::Refused(error) => self.send_failed(&error, false).await?,
        }
        let answered = std::future::poll_fn(|cx| self.poll_answer(cx)).await;
        answered.map_err(ExchangeError::Failed)
    }

    /// Reads until the answer is whole.
    ///
    /// **Errors**: the connection cannot be used again.
    #[inline]
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        while !self.reader.is_done() {
            ready!(self.poll_receive(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether something came while nothing was asked for: an end, or bytes that answer nothing.
    ///
    /// Costs no system call unless the event loop has seen something.
    #[inline]
    fn has_been_closed(&self) -> bool {
        let looked = self.stream.try_io(Interest::READABLE, || {
            let look = |scratch: &mut Box<[u8]>| receive_once(&self.stream, scratch);
            SCRATCH.with_borrow_mut(look)
        });
        !matches!(looked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends what is left of a request, or as much as the server wants of it before it answers.
    async fn send_rest(&mut self, request: &[u8], mut n_sent: usize) -> Result<(), ExchangeError> {
        while n_sent < request.len() {
            match send(&self.stream, &request[n_sent..]) {
                Ok(n) => n_sent += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_to_send().await?;
                    if self.reader.is_done() {
                        // Answered before it had all: what is left of the request would be
                        // taken for the next one.
                        self.reader.close();
                        return Ok(());
                    }
                }
                Err(error) => return self.send_failed(&error, n_sent > 0).await,
            }
        }
        Ok(())
    }

    /// Waits until more can be sent; reads what comes meanwhile.
    ///
    /// Both by the same poll: a server that floods and does not read would else keep the
    /// whole thread, once the runtime holds this task back.
    async fn wait_to_send(&mut self) -> Result<(), ExchangeError> {
        std::future::poll_fn(|cx| match self.poll_receive(cx) {
            Poll::Pending => {
                let ready = ready!(self.stream.poll_write_ready(cx));
                Poll::Ready(ready.map_err(|error| ClientError::broken("send", &error)))
            }
            received @ Poll::Ready(_) => received,
        })
        .await
        .map_err(ExchangeError::Failed)
    }

    /// A server that has said why it hangs up is heard all the same.
    async fn send_failed(
        &mut self,
        error: &io::Error,
        has_sent: bool,
    ) -> Result<(), ExchangeError> {
        while !self.reader.is_done() {
            let received = std::future::poll_fn(|cx| self.poll_receive(cx)).await;
            if received.is_err() {
                break;
            }
        }
        if self.reader.is_done() {
            self.reader.close();
            return Ok(());
        }
        if has_sent || !self.reader.is_untouched() {
            let failed = ClientError::broken("send", error);
            return Err(ExchangeError::Failed(failed));
        }
        // The very first bytes were refused: the server has seen nothing of it.
        Err(ExchangeError::Stale)
    }

    /// Reads once and parses what came.
    #[inline]
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        let Self { stream, reader, .. } = self;
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                let received = match ready!(stream.poll_read_ready(cx)) {
                    Ok(()) => receive(stream, scratch),
                    Err(error) => Err(error),
                };
                return Poll::Ready(match received {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => Err(ClientError::broken("receive", &error)),
                    Ok(0) => reader.end(),
                    Ok(n) => reader.feed(&scratch[..n]),
                });
            }
        })
    }
}

/// One system call, without the C library's: in a program of several threads that one
/// prepares for its cancellation before each call, which shows in CPU time per request.
#[inline]
fn send(stream: &TcpStream, request: &[u8]) -> io::Result<usize> {
    let sent = retry_on_intr(|| rustix::net::send(stream, request, SendFlags::NOSIGNAL));
    if sent == Err(rustix::io::Errno::WOULDBLOCK) {
        // The event loop thinks that there is room, and is told that there is not.
        return stream.try_io(Interest::WRITABLE, || Err(io::ErrorKind::WouldBlock.into()));
    }
    Ok(sent?)
}

/// One system call, whatever the event loop has seen.
#[inline]
fn receive_once(stream: &TcpStream, scratch: &mut [u8]) -> io::Result<usize> {
    let (n, _) = retry_on_intr(|| rustix::net::recv(stream, &mut *scratch, RecvFlags::empty()))?;
    Ok(n)
}

/// One system call; [`io::ErrorKind::WouldBlock`] where there was nothing.
#[inline]
fn receive(stream: &TcpStream, scratch: &mut [u8]) -> io::Result<usize> {
    let mut received = None;
    let tried = stream.try_io(Interest::READABLE, || {
        let n = receive_once(stream, scratch)?;
        received = Some(n);
        if (1..scratch.len()).contains(&n) {
            // After a short read there is no more, and the event loop says when there is:
            // that spares the call that would say so.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    });
    match received {
        Some(n) => Ok(n),
        None => tried.map(|()| 0),
    }
}

/// Connects, with `TCP_NODELAY`: no request may wait for the last one's ACK.
pub(super) async fn connect(address: SocketAddr) -> Result<TcpStream, ClientError> {
    let connect_error =
        |error: &io::Error| ClientError::new(ErrorClass::Connect, format!("connect: {error}"));
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| connect_error(&error))?;
    stream
        .set_nodelay(true)
        .map_err(|error| connect_error(&error))?;
    Ok(stream)
}

/// Reads once and hands on what came; nothing is the end.
///
/// Not `try_read`: after a short read a stream knows that there is no more, and spares
/// the call that would say so.
pub(super) fn read_into<S: AsyncRead + Unpin, T>(
    stream: &mut S,
    cx: &mut Context<'_>,
    take: impl FnOnce(io::Result<&[u8]>) -> T,
) -> Poll<T> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        let read = ready!(Pin::new(stream).poll_read(cx, &mut buffer));
        Poll::Ready(take(read.map(|()| buffer.filled())))
    })
}
