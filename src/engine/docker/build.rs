//! Building an image with the engine's classic builder.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use bollard::models::BuildInfo;
use bollard::query_parameters::BuildImageOptions;
use bollard::{Docker, body_full, body_try_stream};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::DockerEngine;
use super::connection::{BUILD_LIMIT, call};
use super::pull::{credentials_json, encoded};
use crate::engine::{
    BuildContext, BuildRequest, BuildSource, EngineError, EngineErrorKind, ImageProgress,
    ProgressSink,
};

/// Lines of a failed step that are told.
const LOG_TAIL_LINES: usize = 20;

/// Pieces of the archive that wait to be sent, and how large they are.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 128 * 1024;

impl DockerEngine {
    /// Builds an image and tags it; a step that failed is `Other` with its log's end.
    pub(super) async fn build(
        &self,
        request: BuildRequest<'_>,
        progress: ProgressSink<'_>,
    ) -> Result<(), EngineError> {
        let options = options_of(&request);
        // The answer begins when the whole context has been taken in.
        let docker = connection_for(&self.docker, &request).with_timeout(BUILD_LIMIT);
        let mut log = BuildLog::default();
        let (body, mut sent, total_bytes) = match request.source {
            BuildSource::Folder(context) => {
                let (archive, sent) = send(Arc::clone(context));
                (body_try_stream(archive), Some(sent), context.size_bytes())
            }
            BuildSource::Remote(_) => (body_full(Bytes::new()), None, 0),
        };
        let image = request.words;
        let exchange = async {
            let mut steps = Box::pin(docker.build_image(options, None, Some(body)));
            loop {
                let counted = async {
                    match &mut sent {
                        Some(sent) => sent.recv().await,
                        None => None,
                    }
                };
                tokio::select! {
                    biased;
                    Some(sent_bytes) = counted => {
                        progress(ImageProgress::Sending { image, sent_bytes, total_bytes });
                    }
                    step = steps.next() => match step {
                        None => return Ok(()),
                        Some(step) => {
                            for line in log.take(&step?) {
                                progress(ImageProgress::Building { image, line: &line });
                            }
                        }
                    },
                }
            }
        };
        let built = call("build image", image, BUILD_LIMIT, exchange).await;
        built.map_err(|error| match error.kind {
            EngineErrorKind::NoDaemon | EngineErrorKind::Timeout | EngineErrorKind::DiskFull => {
                error
            }
            _ => {
                let said = log.failure(&error.source.to_string());
                EngineError::new("build image", image, EngineErrorKind::Other, said)
            }
        })
    }
}

fn options_of(request: &BuildRequest<'_>) -> BuildImageOptions {
    let build = request.build;
    let owned = |map: &indexmap::IndexMap<String, String>| -> HashMap<String, String> {
        map.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    BuildImageOptions {
        dockerfile: request.dockerfile.to_owned(),
        t: Some(request.tag.to_owned()),
        remote: match request.source {
            BuildSource::Folder(_) => None,
            BuildSource::Remote(address) => Some(address.clone()),
        },
        nocache: build.no_cache,
        cachefrom: (!build.cache_from.is_empty()).then(|| build.cache_from.clone()),
        rm: true,
        // Containers of a failed step are of no use, and nobody would remove them.
        forcerm: true,
        buildargs: Some(owned(&build.args)),
        labels: Some(owned(request.labels)),
        networkmode: build.network.clone(),
        platform: request.platform.unwrap_or_default().to_owned(),
        target: build.target.clone().unwrap_or_default(),
        ..BuildImageOptions::default()
    }
}

/// The connection with what the client library's options cannot say.
fn connection_for(docker: &Docker, request: &BuildRequest<'_>) -> Docker {
    let mut more = String::new();
    for host in &request.build.extra_hosts {
        more.push_str("&extrahosts=");
        more.push_str(&percent_encoded(host));
    }
    if let Some(bytes) = request.build.shm_size {
        more.push_str("&shmsize=");
        more.push_str(&bytes.to_string());
    }
    let registries: serde_json::Map<String, serde_json::Value> = request
        .credentials
        .iter()
        .map(|found| (found.server.clone(), credentials_json(found)))
        .collect();
    let value = encoded(&serde_json::Value::Object(registries));
    docker.clone().with_request_modifier(move |mut request| {
        if let Ok(value) = value.parse() {
            request.headers_mut().insert("X-Registry-Config", value);
        }
        if let Ok(uri) = format!("{}{more}", request.uri()).parse() {
            *request.uri_mut() = uri;
        }
        request
    })
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// The archive in pieces, and the count of bytes sent as they go.
fn send(
    context: Arc<BuildContext>,
) -> (
    impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    mpsc::UnboundedReceiver<u64>,
) {
    let (pieces, mut received) = mpsc::channel(PIECES);
    let (count, counted) = mpsc::unbounded_channel();
    tokio::task::spawn_blocking(move || {
        let mut out = Pieces {
            sender: pieces.clone(),
            piece: Vec::with_capacity(PIECE_BYTES),
            sent_bytes: 0,
            count,
        };
        if let Err(error) = context.write_archive(&mut out) {
            // The engine must not take half an archive for a whole one. Where
            // nobody receives any more, the build has failed already.
            let _ = pieces.blocking_send(Err(error));
        }
    });
    let stream = futures_util::stream::poll_fn(move |task| received.poll_recv(task));
    (stream, counted)
}

/// A writer whose bytes are sent in pieces to another task.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
    sent_bytes: u64,
    count: mpsc::UnboundedSender<u64>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        if piece.is_empty() {
            return Ok(());
        }
        self.sent_bytes += piece.len() as u64;
        self.sender
            .blocking_send(Ok(piece.into()))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        // Nobody counting is no reason to stop.
        let _ = self.count.send(self.sent_bytes);
        Ok(())
    }
}

/// What the builder said. Pure.
#[derive(Debug, Default)]
struct BuildLog {
    /// The step under way, as `Step 3/5 : RUN make`.
    step: String,
    /// The last lines of that step.
    tail: VecDeque<String>,
    /// A line that has not ended yet.
    begun: String,
}

impl BuildLog {
    /// Takes an answer in; the lines that ended with it.
    fn take(&mut self, step: &BuildInfo) -> Vec<String> {
        if let Some(status) = &step.status {
            return vec![status.clone()];
        }
        let Some(text) = &step.stream else {
            return Vec::new();
        };
        self.begun.push_str(text);
        let mut lines = Vec::new();
        while let Some(end) = self.begun.find('\n') {
            let line = plain(&self.begun[..end]);
            self.begun.drain(..=end);
            if !line.is_empty() {
                self.keep(&line);
                lines.push(line);
            }
        }
        lines
    }

    fn keep(&mut self, line: &str) {
        if line.starts_with("Step ") && line.contains(" : ") {
            line.clone_into(&mut self.step);
            self.tail.clear();
        // How layers and containers are called says nothing of why a step failed.
        } else if !line.starts_with(" ---> ") && !line.starts_with("Removing intermediate") {
            if self.tail.len() == LOG_TAIL_LINES {
                self.tail.pop_front();
            }
            self.tail.push_back(line.to_owned());
        }
    }

    /// The step, why it failed, and the end of what it wrote.
    fn failure(&mut self, why: &str) -> String {
        let rest = plain(&std::mem::take(&mut self.begun));
        if !rest.is_empty() {
            self.keep(&rest);
        }
        let mut said = if self.step.is_empty() {
            why.to_owned()
        } else {
            format!("{}: {why}", self.step)
        };
        for line in &self.tail {
            said.push_str("\n| ");
            said.push_str(line);
        }
        said
    }
}

/// A line without what colours it and without what a progress bar overwrote.
fn plain(line: &str) -> String {
    let line = line.trim_end().rsplit('\r').next().unwrap_or_default();
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // An escape sequence ends with a letter.
            let _ = chars.by_ref().find(char::is_ascii_alphabetic);
        } else if !c.is_control() || c == '\t' {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_told_with_the_end_of_its_own_log() {
        let mut log = BuildLog::default();
        let mut lines = Vec::new();
        for text in [
            r#"{"stream":"Step 1/2 : FROM app"}"#,
            r#"{"stream":"\n"}"#,
            r#"{"stream":" ---> 0123\n"}"#,
            r#"{"stream":"Step 2/2 : RUN make"}"#,
            r#"{"stream":"\n"}"#,
            r#"{"stream":"\u001b[91mone\ntwo"}"#,
            r#"{"stream":" 10%\rtwo 100%\u001b[0m\nthree"}"#,
        ] {
            lines.extend(log.take(&serde_json::from_str(text).unwrap()));
        }
        assert_eq!(
            lines,
            [
                "Step 1/2 : FROM app",
                " ---> 0123",
                "Step 2/2 : RUN make",
                "one",
                "two 100%"
            ]
        );
        assert_eq!(
            log.failure("it returned a non-zero code: 2"),
            "Step 2/2 : RUN make: it returned a non-zero code: 2\n| one\n| two 100%\n| three"
        );
    }

    #[test]
    fn of_a_long_log_the_end_is_told() {
        let mut log = BuildLog::default();
        for n in 0..100 {
            let info = BuildInfo {
                stream: Some(format!("line {n}\n")),
                ..BuildInfo::default()
            };
            log.take(&info);
        }
        let said = log.failure("x");
        assert_eq!(said.lines().count(), 1 + LOG_TAIL_LINES);
        assert!(said.ends_with("| line 99"), "{said}");
    }
}
