//! The asynchronous side, kept thin: sockets, HTTP, and handing over.
//!
//! Invariant: one thread, no work of a request; that is done on [`crate::web_pool`] by
//! [`crate::routes`]. `/health` and `/metrics` are answered here, so that they answer while
//! the pools are saturated. Every request under `/fhir` is counted once, here or on its
//! web thread, at the moment its answer is made.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::{any, get};
use axum::serve::ListenerExt;
use axum::{Router, serve};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::config::{Config, Faults};
use crate::db::{self, Pool};
use crate::health::Health;
use crate::log;
use crate::metrics::{Metrics, method_label};
use crate::routes::{self, Answer, Request, Shared};
use crate::web_pool::WebPool;

/// Requests in flight get this long after SIGTERM; the process is gone within a second.
const GRACE: Duration = Duration::from_millis(700);

struct Service {
    web: WebPool,
    pool: OnceLock<Pool>,
    health: Arc<Health>,
    metrics: Metrics,
}

/// Why the service stops.
enum End {
    Signal(&'static str),
    NoDatabase(String),
    FaultExit,
}

/// Runs until told to stop. The exit code: 0 after a signal, 1 when the database or a
/// socket could not be had, 3 for the fault `EXIT_AFTER_MS`.
pub(crate) fn run(config: Config) -> ExitCode {
    match serve_until_end(config) {
        Ok(End::Signal(name)) => {
            log(&format!("stopped by {name}"));
            ExitCode::SUCCESS
        }
        Ok(End::NoDatabase(text)) | Err(text) => {
            log(&text);
            ExitCode::from(1)
        }
        Ok(End::FaultExit) => {
            log("EXIT_AFTER_MS has passed");
            ExitCode::from(3)
        }
    }
}

fn serve_until_end(config: Config) -> Result<End, String> {
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the event loop cannot be started: {error}"))?;
    let service = Arc::new(Service {
        web: WebPool::start(config.web_threads, config.web_queue)
            .map_err(|error| format!("WEB_THREADS: a thread cannot be started: {error}"))?,
        pool: OnceLock::new(),
        health: Arc::new(Health::new(started, config.faults)),
        metrics: Metrics::new(Timestamp::now().as_duration().as_secs_f64()),
    });
    let end = runtime.block_on(serve_with(config, service));
    // Web threads may still be waiting for the database; the process does not wait for them.
    runtime.shutdown_background();
    end
}

async fn serve_with(config: Config, service: Arc<Service>) -> Result<End, String> {
    // Before anyone is told that it listens: a signal that comes earlier would end the process by
    // itself, and as process 1 of a container would be lost.
    let signals = Signals::listen()?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, config.port))
        .await
        .map_err(|error| format!("PORT: {} cannot be listened on: {error}", config.port))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    log(&format!(
        "listening on {address}, {} web threads, {} connections",
        config.web_threads, config.db.pool
    ));
    // Small answers must not wait for the peer's acknowledgement of the one before.
    let listener = listener.tap_io(|socket| {
        let _ = socket.set_nodelay(true);
    });
    let router = Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/fhir/{*path}", any(fhir))
        .layer(DefaultBodyLimit::max(config.max_body_bytes))
        .with_state(Arc::clone(&service));

    let faults = config.faults;
    let (no_database, database_failed) = oneshot::channel();
    std::thread::Builder::new()
        .name("db-start".to_owned())
        .spawn(move || match db::start(&config.db, &service.health) {
            Ok(pool) => {
                let _ = service.pool.set(pool);
                service.health.set(None);
            }
            Err(text) => {
                let _ = no_database.send(text);
            }
        })
        .map_err(|error| format!("a thread cannot be started: {error}"))?;

    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        serve(listener, router)
            .with_graceful_shutdown(async {
                let _ = stopped.await;
            })
            .await
    });
    let end = wait_for_end(signals, faults, database_failed).await;
    let _ = stop.send(());
    if matches!(end, End::Signal(_)) && tokio::time::timeout(GRACE, server).await.is_err() {
        log("some requests were still in flight");
    }
    Ok(end)
}

/// The signals that stop it, handled from the moment this exists.
struct Signals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, String> {
        let listen =
            |kind| signal(kind).map_err(|error| format!("signals cannot be received: {error}"));
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }
}

async fn wait_for_end(
    mut signals: Signals,
    faults: Faults,
    database_failed: oneshot::Receiver<String>,
) -> End {
    let fault_exit = async {
        match faults.exit_after {
            Some(after) => tokio::time::sleep(after).await,
            None => std::future::pending().await,
        }
    };
    let no_database = async {
        match database_failed.await {
            Ok(text) => text,
            // The sender is dropped once the database is there.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = signals.term.recv() => End::Signal("SIGTERM"),
        _ = signals.interrupt.recv() => End::Signal("SIGINT"),
        text = no_database => End::NoDatabase(text),
        () = fault_exit => End::FaultExit,
    }
}

async fn health(State(service): State<Arc<Service>>) -> Response {
    let (status, body) = match service.health.check() {
        Ok(()) => (StatusCode::OK, serde_json::json!({ "status": "ok" })),
        Err(reason) => (
            StatusCode::SERVICE_UNAVAILABLE,
            serde_json::json!({ "status": "unavailable", "reason": reason }),
        ),
    };
    response(status, "application/json", body.to_string())
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    let db = service.pool.get().map(Pool::gauges).unwrap_or_default();
    let text = service.metrics.render(service.web.gauges(), db);
    response(StatusCode::OK, "text/plain; version=0.0.4", text)
}

async fn fhir(State(service): State<Arc<Service>>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_start_matches("/fhir/").to_owned();
    let method = parts.method.as_str().to_owned();
    let (label, interaction) = (method_label(&method), routes::interaction(&method, &path));
    let refuse = |status, code, text: &str| {
        service.metrics.count(label, interaction, status);
        to_response(Answer::refusal(status, code, text))
    };
    let text_of = |text: Option<&header::HeaderValue>| {
        text.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let if_match = text_of(parts.headers.get(header::IF_MATCH));
    let query = parts.uri.query().map(str::to_owned);
    let body = match read_body(parts, body).await {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return refuse(413, "too-long", "the body is larger than MAX_BODY_BYTES");
        }
        Err(_) => return refuse(400, "invalid", "the body could not be read"),
    };

    let request = Request {
        method,
        path,
        query,
        if_match,
        body,
    };
    let (reply, replied) = oneshot::channel();
    let for_job = Arc::clone(&service);
    let job = move || {
        let Service {
            pool,
            health,
            metrics,
            ..
        } = &*for_job;
        let answer = routes::answer(
            &Shared {
                pool: pool.get(),
                health,
                metrics,
            },
            &request,
        );
        metrics.count(label, interaction, answer.status);
        let _ = reply.send(answer);
    };
    match service.web.submit(job) {
        Err(full) => refuse(503, "throttled", &full.to_string()),
        Ok(()) => match replied.await {
            Ok(answer) => to_response(answer),
            // The job panicked before it could count.
            Err(_) => refuse(500, "exception", "the request's work ended abruptly"),
        },
    }
}

async fn read_body(parts: axum::http::request::Parts, body: Body) -> Result<Bytes, BytesRejection> {
    Bytes::from_request(HttpRequest::from_parts(parts, body), &()).await
}

fn to_response(answer: Answer) -> Response {
    let status =
        StatusCode::from_u16(answer.status).expect("statuses are written in routes, all valid");
    let mut response = response(status, "application/fhir+json", answer.body);
    let headers = response.headers_mut();
    if status == StatusCode::NO_CONTENT {
        headers.remove(header::CONTENT_TYPE);
    }
    let texts = [
        (
            header::ETAG,
            answer.version.map(|version| format!("W/\"{version}\"")),
        ),
        (header::LOCATION, answer.location),
    ];
    for (name, text) in texts {
        if let Some(value) = text.and_then(|text| text.try_into().ok()) {
            headers.insert(name, value);
        }
    }
    response
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    response
}
