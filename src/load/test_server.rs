//! An HTTP server for tests, plain or over TLS: counts what it gets and answers as scripted.
//! `test_http2` has its other half.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::plan::Target;
use super::test_http2::serve_http2;
use crate::tls::Wire;

/// One request as the server read it.
#[derive(Debug, Clone)]
pub(super) struct Got {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) head: String,
    /// Bytes that are no text are replaced.
    pub(super) body: String,
    pub(super) bytes: Vec<u8>,
    /// Requests before it, on all connections.
    pub(super) index: u64,
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// Answers with a status and a body.
    Answer(u16, String),
    /// Waits, then does something else.
    After(Duration, Box<Reply>),
    /// Sends these bytes, keeps the connection.
    Raw(String),
    /// The same for bytes that are no text.
    Bytes(Vec<u8>),
    /// Sends these bytes, then closes.
    RawThenClose(String),
    /// The same without a goodbye: over TLS the stream ends, and TLS has not said so.
    RawThenGone(String),
    /// Sends the parts with a wait between.
    Slow(Vec<String>, Duration),
    /// Answers, then closes without having said so.
    AnswerThenClose(u16, String),
    /// Sends these bytes, then resets the connection.
    Reset(String),
    /// Reads on and never answers.
    Never,
}

pub(super) fn ok() -> Reply {
    Reply::Answer(200, "ok".into())
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) requests: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicUsize,
    pub(super) most_open: AtomicUsize,
    pub(super) log: Mutex<Vec<(Instant, Got)>>,
}

#[derive(Debug)]
pub(super) struct TestServer {
    pub(super) target: Target,
    pub(super) seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub(super) type Script = dyn Fn(&Got) -> Reply + Send + Sync;

/// What the server speaks.
#[derive(Debug, Clone)]
pub(super) enum Over {
    Plain,
    Tls(Arc<ServerConfig>),
    /// Waits before it shakes hands.
    LateTls(Arc<ServerConfig>, Duration),
    Http2,
    Http2Tls(Arc<ServerConfig>),
}

/// A stream, and the connection below it.
trait Stream: AsyncRead + AsyncWrite + Unpin {
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

impl TestServer {
    pub(super) fn start(script: impl Fn(&Got) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_over(Over::Plain, script)
    }

    pub(super) fn start_over(
        over: Over,
        script: impl Fn(&Got) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel();
        let script: Arc<Script> = Arc::new(script);
        let server_seen = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        stream.set_nodelay(true).unwrap();
                        let (seen, script) = (Arc::clone(&server_seen), Arc::clone(&script));
                        let over = over.clone();
                        tokio::spawn(async move {
                            seen.connections.fetch_add(1, Ordering::SeqCst);
                            let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
                            seen.most_open.fetch_max(open, Ordering::SeqCst);
                            let _ = serve_over(over, stream, &seen, &script).await;
                            seen.open.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                };
                tokio::select! { () = accept => {}, _ = stopped => {} }
            });
        });
        Self {
            target: Target {
                addresses: vec![address],
                host: address.to_string(),
                base_path: String::new(),
                wire: Wire::default(),
            },
            seen,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(super) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::SeqCst)
    }

    pub(super) fn log(&self) -> Vec<(Instant, Got)> {
        self.seen.log.lock().unwrap().clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        let _ = self.thread.take().unwrap().join();
    }
}

async fn serve_over(
    over: Over,
    stream: TcpStream,
    seen: &Arc<Seen>,
    script: &Arc<Script>,
) -> std::io::Result<()> {
    match over {
        Over::Plain => serve(stream, seen, script.as_ref()).await,
        Over::Http2 => serve_http2(stream, seen, script).await,
        Over::Tls(config) => serve(secure(config, stream).await?, seen, script.as_ref()).await,
        Over::Http2Tls(config) => serve_http2(secure(config, stream).await?, seen, script).await,
        Over::LateTls(config, wait) => {
            tokio::time::sleep(wait).await;
            serve(secure(config, stream).await?, seen, script.as_ref()).await
        }
    }
}

async fn secure(
    config: Arc<ServerConfig>,
    stream: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    TlsAcceptor::from(config).accept(stream).await
}

/// Ends a connection as it should be: over TLS by its own word, too.
async fn close(mut stream: impl Stream) -> std::io::Result<()> {
    stream.shutdown().await
}

async fn serve(mut stream: impl Stream, seen: &Seen, script: &Script) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(mut got) = read_request(&mut stream, &mut buffer).await? {
        got.index = seen.requests.fetch_add(1, Ordering::SeqCst);
        let mut reply = script(&got);
        seen.log.lock().unwrap().push((Instant::now(), got));
        while let Reply::After(wait, then) = reply {
            tokio::time::sleep(wait).await;
            reply = *then;
        }
        match reply {
            Reply::Answer(status, body) => write(&mut stream, &answer(status, &body)).await?,
            Reply::AnswerThenClose(status, body) => {
                write(&mut stream, &answer(status, &body)).await?;
                return close(stream).await;
            }
            Reply::Raw(text) => write(&mut stream, text.as_bytes()).await?,
            Reply::RawThenClose(text) => {
                write(&mut stream, text.as_bytes()).await?;
                return close(stream).await;
            }
            Reply::RawThenGone(text) => return write(&mut stream, text.as_bytes()).await,
            Reply::Bytes(bytes) => write(&mut stream, &bytes).await?,
            Reply::Reset(text) => {
                write(&mut stream, text.as_bytes()).await?;
                return stream.tcp().set_zero_linger();
            }
            Reply::Slow(parts, wait) => {
                for part in parts {
                    write(&mut stream, part.as_bytes()).await?;
                    tokio::time::sleep(wait).await;
                }
            }
            Reply::Never => {
                while stream.read_buf(&mut buffer).await? > 0 {}
                return Ok(());
            }
            Reply::After(..) => unreachable!("unpacked above"),
        }
    }
    Ok(())
}

async fn write(stream: &mut impl Stream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

pub(super) fn answer(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

async fn read_request(
    stream: &mut impl Stream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<Got>> {
    loop {
        let head_end = buffer.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head_end) = head_end {
            let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
            let length: usize = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, value)| value.trim().parse().unwrap());
            let body = head_end + 4;
            if buffer.len() >= body + length {
                let mut first = head.split(' ');
                let method = first.next().unwrap().to_owned();
                let path = first.next().unwrap().to_owned();
                let bytes = buffer[body..body + length].to_vec();
                buffer.drain(..body + length);
                return Ok(Some(Got {
                    method,
                    path,
                    body: String::from_utf8_lossy(&bytes).into_owned(),
                    bytes,
                    head,
                    index: 0,
                }));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}
