//! On a real PostgreSQL, in a container of our own behind a small forwarder, so that the
//! database can go away and come back under the same address.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use crate::support::{App, eventually, get, request};

const LIMIT: Duration = Duration::from_mins(1);
const PATIENT: &str = r#"{"resourceType":"Patient","name":[{"family":"Chalmers"}]}"#;

/// A PostgreSQL of one test; removed when dropped.
struct Database {
    container: String,
    port: u16,
    target: Arc<Mutex<SocketAddr>>,
}

impl Database {
    fn start() -> Self {
        let image =
            std::env::var("POSTGRES_IMAGE").unwrap_or("nightsweep/postgres:15-local".to_owned());
        let label = format!("nightsweep.testbed-test={}", std::process::id());
        let container = docker(&[
            "run",
            "-d",
            "--label",
            &label,
            "--tmpfs",
            "/var/lib/postgresql/data",
            "-e",
            "POSTGRES_USER=app",
            "-e",
            "POSTGRES_PASSWORD=app",
            &image,
            "postgres",
            "-c",
            "max_connections=50",
        ]);
        let target = Arc::new(Mutex::new(address(&container)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let current = Arc::clone(&target);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = *current.lock().unwrap();
                thread::spawn(move || forward(client, server));
            }
        });
        Self {
            container,
            port,
            target,
        }
    }

    fn app(&self, env: &[(&str, &str)]) -> App {
        let url = format!("postgres://app:app@localhost:{}/app", self.port);
        let mut all = vec![("DATABASE_URL", url.as_str())];
        all.extend(env);
        let app = App::start(&all);
        eventually("the service is healthy", LIMIT, || {
            get(app.port, "/health").status == 200
        });
        app
    }

    fn client(&self) -> Client {
        let mut config = postgres::Config::new();
        config
            .host("127.0.0.1")
            .port(self.port)
            .user("app")
            .password("app")
            .dbname("app");
        config.connect(NoTls).unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        docker(&["rm", "-f", "-v", &self.container]);
    }
}

fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().unwrap();
    assert!(
        output.status.success(),
        "docker {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn address(container: &str) -> SocketAddr {
    let ip = docker(&[
        "inspect",
        "-f",
        "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}",
        container,
    ]);
    SocketAddr::new(ip.parse().unwrap(), 5432)
}

fn forward(client: TcpStream, server: SocketAddr) {
    let Ok(server) = TcpStream::connect_timeout(&server, Duration::from_secs(1)) else {
        return;
    };
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    };
    let (back_from, back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || copy(back_from, back_to));
    copy(client, server);
}

fn metric(port: u16, series: &str) -> u64 {
    let text = get(port, "/metrics").body;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

fn field(body: &str, pointer: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(body).unwrap();
    let found = value
        .pointer(pointer)
        .unwrap_or_else(|| panic!("no {pointer} in {body}"));
    found
        .as_str()
        .map_or_else(|| found.to_string(), str::to_owned)
}

#[test]
fn a_resource_lives_as_fhir_has_it() {
    let database = Database::start();
    let app = database.app(&[("MAX_BODY_BYTES", "2000")]);
    let port = app.port;
    assert_eq!(app.healthcheck(), Some(0));

    let created = request(port, "POST", "/fhir/Patient", "", PATIENT);
    assert_eq!(created.status, 201, "{}", created.body);
    let path = format!("/fhir/Patient/{}", field(&created.body, "/id"));
    assert!(created.head.contains("etag: w/\"1\""), "{}", created.head);
    assert!(
        created
            .head
            .contains(&format!("location: {}/_history/1", path.to_lowercase())),
        "{}",
        created.head
    );
    assert_eq!(field(&created.body, "/meta/versionId"), "1");

    let read = get(port, &path);
    assert_eq!((read.status, &read.body), (200, &created.body));
    let found = get(port, "/fhir/Patient?name=chalmers");
    assert_eq!(
        (
            field(&found.body, "/total"),
            field(&found.body, "/entry/0/resource/resourceType")
        ),
        ("1".into(), "Patient".into())
    );

    let renamed = PATIENT.replace("Chalmers", "Windsor");
    assert_eq!(
        request(port, "PUT", &path, "If-Match: W/\"7\"\r\n", &renamed).status,
        412
    );
    let updated = request(port, "PUT", &path, "If-Match: W/\"1\"\r\n", &renamed);
    assert_eq!(
        (updated.status, field(&updated.body, "/meta/versionId")),
        (200, "2".into())
    );
    assert_eq!(
        field(&get(port, "/fhir/Patient?name=chalmers").body, "/total"),
        "0"
    );
    assert_eq!(
        field(&get(port, "/fhir/Patient?name=WINDSOR").body, "/total"),
        "1"
    );

    assert_eq!(request(port, "DELETE", &path, "", "").status, 204);
    assert_eq!(request(port, "DELETE", &path, "", "").status, 204);
    assert_eq!(get(port, &path).status, 410);
    assert_eq!(
        field(&get(port, "/fhir/Patient?name=windsor").body, "/total"),
        "0"
    );
    assert_eq!(request(port, "PUT", &path, "", PATIENT).status, 201);
    assert_eq!(get(port, "/fhir/Patient/unknown").status, 404);
    assert_eq!(
        request(port, "DELETE", "/fhir/Patient/unknown", "", "").status,
        404
    );
    assert_eq!(
        request(port, "POST", "/fhir/Patient", "", &" ".repeat(2001)).status,
        413
    );
    let nul = r#"{"resourceType":"Patient","status":"\u0000"}"#;
    assert_eq!(request(port, "POST", "/fhir/Patient", "", nul).status, 400);

    let mut client = database.client();
    let rows = client
        .query("SELECT version, method, body IS NULL FROM resource_history WHERE type = 'Patient' ORDER BY version", &[])
        .unwrap();
    let rows: Vec<(i64, String, bool)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let expected = [
        (1, "POST", false),
        (2, "PUT", false),
        (3, "DELETE", true),
        (4, "PUT", false),
    ];
    assert_eq!(
        rows,
        expected.map(|(version, method, is_null)| (version, method.to_owned(), is_null))
    );
}

#[test]
fn both_pools_are_exactly_as_large_as_configured() {
    let database = Database::start();
    let app = database.app(&[
        ("WEB_THREADS", "3"),
        ("DB_POOL", "7"),
        ("BACKGROUND_CONNECTIONS", "2"),
    ]);
    let web = |threads: &[String]| {
        threads
            .iter()
            .filter(|name| name.starts_with("web-"))
            .count()
    };
    assert_eq!(web(&app.threads()), 3);
    eventually("background work holds its connections", LIMIT, || {
        metric(app.port, "db_pool_in_use") == 2
    });
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let connections: i64 = database.client().query_one(sql, &[]).unwrap().get(0);
    assert_eq!(connections, 7);
    assert_eq!(metric(app.port, "web_threads"), 3);
    assert_eq!(metric(app.port, "db_pool_size"), 7);
    assert_eq!(metric(app.port, "db_pool_open"), 7);
}

#[test]
fn a_full_queue_answers_503_at_once_and_every_answer_is_counted_once() {
    let database = Database::start();
    let app = database.app(&[("WEB_THREADS", "1"), ("WEB_QUEUE", "2"), ("DB_POOL", "2")]);
    let port = app.port;
    let mut client = database.client();
    let mut lock = client.transaction().unwrap();
    lock.batch_execute("LOCK TABLE resource IN ACCESS EXCLUSIVE MODE")
        .unwrap();

    let create =
        || thread::spawn(move || request(port, "POST", "/fhir/Patient", "", PATIENT).status);
    // The first must be off the queue before the others come: three at once are one
    // too many for it, and the third is rightly refused.
    let mut waiting = vec![create()];
    eventually("the thread is busy", LIMIT, || {
        metric(port, "web_threads_busy") == 1 && metric(port, "web_queue_length") == 0
    });
    waiting.extend([create(), create()]);
    eventually("the queue is full", LIMIT, || {
        metric(port, "web_queue_length") == 2
    });
    for _ in 0..5 {
        let refused = request(port, "POST", "/fhir/Patient", "", PATIENT);
        assert_eq!(
            (refused.status, field(&refused.body, "/resourceType")),
            (503, "OperationOutcome".into())
        );
    }
    assert_eq!(get(port, "/health").status, 200);
    lock.commit().unwrap();
    for answer in waiting {
        assert_eq!(answer.join().unwrap(), 201);
    }
    let count = |status: u16| {
        metric(
            port,
            &format!(
                "http_requests_total{{method=\"POST\",interaction=\"create\",status=\"{status}\"}}"
            ),
        )
    };
    assert_eq!((count(201), count(503)), (3, 5));
}

#[test]
fn no_free_connection_is_answered_503_after_the_acquire_timeout() {
    let database = Database::start();
    let app = database.app(&[
        ("WEB_THREADS", "2"),
        ("DB_POOL", "1"),
        ("DB_ACQUIRE_TIMEOUT_MS", "150"),
    ]);
    let port = app.port;
    let mut client = database.client();
    let mut lock = client.transaction().unwrap();
    lock.batch_execute("LOCK TABLE resource IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    let first = thread::spawn(move || request(port, "POST", "/fhir/Patient", "", PATIENT).status);
    eventually("the connection is taken", LIMIT, || {
        metric(port, "web_threads_busy") == 1
    });
    let asked = Instant::now();
    let refused = get(port, "/fhir/Patient/a");
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("within 150 ms"), "{}", refused.body);
    assert!(asked.elapsed() >= Duration::from_millis(150));
    lock.commit().unwrap();
    assert_eq!(first.join().unwrap(), 201);
}

#[test]
fn a_killed_database_gives_503_and_comes_back() {
    let database = Database::start();
    let app = database.app(&[
        ("DB_POOL", "6"),
        ("DB_ACQUIRE_TIMEOUT_MS", "300"),
        ("BACKGROUND_CONNECTIONS", "1"),
    ]);
    let port = app.port;
    assert_eq!(
        request(port, "PUT", "/fhir/Patient/a", "", PATIENT).status,
        201
    );

    docker(&["kill", &database.container]);
    eventually("health has noticed", LIMIT, || {
        get(port, "/health").status == 503
    });
    assert_eq!(get(port, "/fhir/Patient/a").status, 503);

    // Its data were in memory, so this is a new, empty cluster: not ready, and it says why.
    docker(&["start", &database.container]);
    *database.target.lock().unwrap() = address(&database.container);
    eventually("health names the schema", LIMIT, || {
        get(port, "/health").body.contains("schema")
    });

    // With the tables back, so is the service, all connections new.
    let fresh = database.app(&[("DB_POOL", "1")]);
    eventually("health is back", LIMIT, || {
        get(port, "/health").status == 200
    });
    eventually("the pool is whole", LIMIT, || {
        metric(port, "db_pool_open") == 6
    });
    for _ in 0..20 {
        assert_eq!(
            request(port, "PUT", "/fhir/Patient/b", "", PATIENT).status / 100,
            2
        );
    }
    drop(fresh);
}

#[test]
fn a_database_that_hangs_shows_in_health() {
    let database = Database::start();
    let app = database.app(&[]);
    docker(&["pause", &database.container]);
    eventually("health has noticed", LIMIT, || {
        get(app.port, "/health").body.contains("has not answered")
    });
    docker(&["unpause", &database.container]);
    eventually("health is back", LIMIT, || {
        get(app.port, "/health").status == 200
    });
}

#[test]
fn sigterm_with_open_connections_ends_it_cleanly() {
    let database = Database::start();
    let app = database.app(&[]);
    let _idle = TcpStream::connect(("127.0.0.1", app.port)).unwrap();
    let asked = Instant::now();
    app.signal("TERM");
    let (code, log) = app.wait(LIMIT);
    assert_eq!(code, Some(0), "{log}");
    // A second by contract; the rest is room for a busy host.
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?} {log}",
        asked.elapsed()
    );
}
