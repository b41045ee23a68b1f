//! Connections to PostgreSQL: the pool, its watcher, and background work.
//!
//! Invariants: the pool is exactly `DB_POOL` connections, opened at start and replaced when
//! lost; nothing else of this process stays connected. Statements are prepared once per
//! connection. Taking a connection costs no round trip: when one is found dead, all that
//! are as old as it are replaced, so a restart of the database costs few requests.
//! The SQL is in [`crate::store`].

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use postgres::config::Host;
use postgres::{Client, NoTls};
use r2d2::{ManageConnection, PooledConnection};

use crate::config::DbConfig;
use crate::health::Health;
use crate::store::{self, Statements};

/// Pause between two looks at the database while it is coming up or being watched.
const WATCH_PERIOD: Duration = Duration::from_millis(500);
/// Pause between two attempts at the start: short, since it is part of every trial.
const START_PAUSE: Duration = Duration::from_millis(100);

/// One connection with its prepared statements.
pub(crate) struct Connection {
    /// The client, for statements and transactions.
    pub(crate) client: Client,
    /// Prepared on this connection.
    pub(crate) statements: Statements,
    generation: u64,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The host name has no address.
    #[error("the host '{host}' cannot be resolved")]
    Resolve {
        /// The name as configured.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// The server refused, or nobody listens.
    #[error("cannot connect to PostgreSQL")]
    Connect(#[source] postgres::Error),
    /// The connection works, its schema does not.
    #[error("the schema is not there")]
    Schema(#[source] postgres::Error),
    /// The connection was lost.
    #[error("the connection is closed")]
    Closed,
}

/// The pool, as requests see it.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: r2d2::Pool<Manager>,
    background: u32,
    acquire_timeout: Duration,
    generation: Arc<AtomicU64>,
    last_error: Arc<Mutex<Option<String>>>,
}

/// The pool's numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DbGauges {
    /// Connections the pool is made of.
    pub(crate) size: u32,
    /// Open now.
    pub(crate) open: u32,
    /// Taken now.
    pub(crate) in_use: u32,
    /// Meant for background work.
    pub(crate) background: u32,
}

/// No connection became free in time.
#[derive(Debug, thiserror::Error)]
#[error("no database connection became free within {} ms", .0.as_millis())]
pub(crate) struct AcquireTimeout(Duration);

struct Manager {
    server: postgres::Config,
    generation: Arc<AtomicU64>,
}

impl Manager {
    fn is_dead(&self, connection: &Connection) -> bool {
        connection.client.is_closed()
            || connection.generation != self.generation.load(Ordering::Relaxed)
    }
}

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = ConnectError;

    fn connect(&self) -> Result<Connection, ConnectError> {
        let generation = self.generation.load(Ordering::Relaxed);
        let mut client = connect(&self.server)?;
        let statements = Statements::prepare(&mut client).map_err(ConnectError::Schema)?;
        Ok(Connection {
            client,
            statements,
            generation,
        })
    }

    fn is_valid(&self, connection: &mut Connection) -> Result<(), ConnectError> {
        if self.is_dead(connection) {
            Err(ConnectError::Closed)
        } else {
            Ok(())
        }
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        self.is_dead(connection)
    }
}

/// Keeps the pool's last failure, to be shown by `/health`.
#[derive(Debug)]
struct KeepLast(Arc<Mutex<Option<String>>>);

impl r2d2::HandleError<ConnectError> for KeepLast {
    fn handle_error(&self, error: ConnectError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(chain(&error));
    }
}

impl Pool {
    /// Waits for a connection, up to the acquire timeout.
    pub(crate) fn take(&self) -> Result<Taken, AcquireTimeout> {
        match self.connections.get_timeout(self.acquire_timeout) {
            Ok(connection) => Ok(Taken(connection)),
            Err(_) => Err(AcquireTimeout(self.acquire_timeout)),
        }
    }

    /// Tells the pool what became of a statement: a lost connection ages all others.
    pub(crate) fn note(&self, taken: &Taken) {
        if taken.0.client.is_closed() {
            // Only the first of a generation to be found dead opens the next one.
            let age = taken.0.generation;
            let _ = self.generation.compare_exchange(
                age,
                age + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// The state at this moment.
    pub(crate) fn gauges(&self) -> DbGauges {
        let state = self.connections.state();
        DbGauges {
            size: self.connections.max_size(),
            open: state.connections,
            in_use: state.connections.saturating_sub(state.idle_connections),
            background: self.background,
        }
    }

    fn last_error(&self) -> String {
        let kept = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.clone()
            .unwrap_or_else(|| "no connection to the database".to_owned())
    }
}

/// A connection out of the pool; goes back when dropped.
pub(crate) struct Taken(PooledConnection<Manager>);

impl std::ops::Deref for Taken {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl std::ops::DerefMut for Taken {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0
    }
}

/// Brings the database side up: schema, full pool, background work, watcher.
///
/// Retries while PostgreSQL is coming up. **Errors**: the deadline passed; the text says
/// what was seen last.
pub(crate) fn start(config: &DbConfig, health: &Arc<Health>) -> Result<Pool, String> {
    let started = Instant::now();
    loop {
        match connect(&config.server)
            .and_then(|mut client| store::create_schema(&mut client).map_err(ConnectError::Schema))
        {
            Ok(()) => break,
            Err(error) => {
                let seen = chain(&error);
                health.set(Some(format!("waiting for the database: {seen}")));
                check_deadline(started, config.start_timeout, &seen)?;
            }
        }
        thread::park_timeout(START_PAUSE);
    }

    let generation = Arc::new(AtomicU64::new(0));
    let last_error = Arc::new(Mutex::new(None));
    let manager = Manager {
        server: config.server.clone(),
        generation: Arc::clone(&generation),
    };
    let pool = Pool {
        connections: r2d2::Pool::builder()
            .max_size(config.pool)
            .min_idle(Some(config.pool))
            .test_on_check_out(true)
            .idle_timeout(None)
            .max_lifetime(None)
            .connection_timeout(config.acquire_timeout)
            .error_handler(Box::new(KeepLast(Arc::clone(&last_error))))
            .build_unchecked(manager),
        background: config.background,
        acquire_timeout: config.acquire_timeout,
        generation,
        last_error,
    };
    while pool.gauges().open < config.pool {
        let seen = format!(
            "{} of {} connections are open; {}",
            pool.gauges().open,
            config.pool,
            pool.last_error()
        );
        check_deadline(started, config.start_timeout, &seen)?;
        thread::park_timeout(Duration::from_millis(5));
    }

    for index in 0..config.background {
        let (pool, health, period) = (pool.clone(), Arc::clone(health), config.background_period);
        spawn(&format!("background-{index}"), move || {
            background(&pool, &health, period);
        })?;
    }
    let (watched, watcher_health) = (pool.clone(), Arc::clone(health));
    health.answered();
    spawn("db-watch", move || {
        watch(&watched, &watcher_health);
    })?;
    Ok(pool)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    match thread::Builder::new().name(name.to_owned()).spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the thread '{name}' cannot be started: {error}")),
    }
}

fn check_deadline(started: Instant, limit: Duration, seen: &str) -> Result<(), String> {
    let elapsed = started.elapsed();
    if elapsed < limit {
        return Ok(());
    }
    Err(format!(
        "the database was not ready after {:.1} s (DB_START_TIMEOUT_S is {}); last seen: {seen}",
        elapsed.as_secs_f64(),
        limit.as_secs()
    ))
}

/// Opens one connection. The name is looked up here, on this thread, at every attempt:
/// a restarted container may have moved.
fn connect(server: &postgres::Config) -> Result<Client, ConnectError> {
    let mut server = server.clone();
    let host = match server.get_hosts() {
        [Host::Tcp(host)] if server.get_hostaddrs().is_empty() => Some(host.clone()),
        _ => None,
    };
    if let Some(host) = host {
        let port = server.get_ports().first().copied().unwrap_or(5432);
        let address =
            resolve(&host, port).map_err(|source| ConnectError::Resolve { host, source })?;
        server.hostaddr(address.ip());
    }
    server.connect(NoTls).map_err(ConnectError::Connect)
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

/// Holds a connection for good and asks something light on it now and then, as the job
/// queues and schedulers of real services do.
fn background(pool: &Pool, health: &Health, period: Duration) {
    loop {
        let Ok(mut taken) = pool.take() else { continue };
        while store::ping(&mut taken).is_ok() {
            health.answered();
            thread::park_timeout(period);
        }
        pool.note(&taken);
    }
}

/// Keeps the health flag true to the facts, at the price of a query only when the
/// service is otherwise silent. A database that hangs hangs this thread too; that shows in
/// the time since the last answer, which [`Health::check`] looks at.
fn watch(pool: &Pool, health: &Health) {
    loop {
        if health.since_answer() < WATCH_PERIOD {
            health.set(None);
        } else if let Some(connection) = pool.connections.try_get() {
            let mut taken = Taken(connection);
            match store::ping(&mut taken) {
                Ok(()) => {
                    health.answered();
                    health.set(None);
                }
                Err(error) => health.set(Some(format!(
                    "the database does not answer: {}",
                    chain(&error)
                ))),
            }
            pool.note(&taken);
        } else if pool.gauges().open == 0 {
            health.set(Some(format!("the database is away: {}", pool.last_error())));
        }
        thread::park_timeout(WATCH_PERIOD);
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some libraries repeat the cause in their own text.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
