//! A socket between us and the real engine that can stop answering, as an engine does.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// What the proxy does with the requests that its text is found in.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Mode {
    /// Everything goes through.
    #[default]
    Forward,
    /// Requests whose first line has this text get no answer, and never reach the engine.
    Swallow(&'static str),
    /// These reach the engine, and its answer never comes back.
    Mute(&'static str),
    /// Every connection is cut and new ones are closed at once: the engine is being restarted.
    Down,
}

/// The proxy; it ends with the runtime of its test.
pub(super) struct Proxy {
    pub(super) endpoint: String,
    mode: Arc<watch::Sender<Mode>>,
    _folder: tempfile::TempDir,
}

impl Proxy {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docker.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mode = Arc::new(watch::Sender::new(Mode::default()));
        let shared = Arc::clone(&mode);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *shared.borrow() == Mode::Down {
                    continue;
                }
                let mut changes = shared.subscribe();
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    tokio::select! {
                        () = carry(client, &shared) => {}
                        _ = changes.wait_for(|mode| *mode == Mode::Down) => {}
                    }
                });
            }
        });
        Self {
            endpoint: format!("unix://{}", path.display()),
            mode,
            _folder: folder,
        }
    }

    pub(super) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

/// Whether a request's first line has every part of a text that `*` divides.
fn has(line: &str, text: &str) -> bool {
    text.split('*').all(|part| line.contains(part))
}

fn engine_socket() -> PathBuf {
    let endpoint = std::env::var("DOCKER_HOST").unwrap_or_default();
    let path = endpoint.strip_prefix("unix://");
    PathBuf::from(path.unwrap_or("/var/run/docker.sock"))
}

/// Carries one connection until either end closes it; a swallowed one stays open.
async fn carry(client: UnixStream, mode: &watch::Sender<Mode>) {
    let Ok(engine) = UnixStream::connect(engine_socket()).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_engine, mut to_engine) = engine.into_split();
    let muted = watch::Sender::new(false);
    let up = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Ok(n @ 1..) = from_client.read(&mut buffer).await else {
                return;
            };
            // Our requests are small: each begins with a read of its own.
            let first = String::from_utf8_lossy(&buffer[..n]);
            let first = first.lines().next().unwrap_or_default().to_owned();
            let now = mode.borrow().clone();
            match now {
                Mode::Swallow(text) if has(&first, text) => std::future::pending().await,
                Mode::Mute(text) if has(&first, text) => {
                    muted.send_replace(true);
                }
                _ => {}
            }
            if to_engine.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let Ok(n @ 1..) = from_engine.read(&mut buffer).await else {
                return;
            };
            if *muted.borrow() {
                continue;
            }
            if to_client.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = up => {}, () = down => {} }
}
