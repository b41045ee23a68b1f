//! Configuration: environment variables in, one checked value out.
//!
//! Every problem is collected before giving up, each with the variable's name. The
//! environment is read through a function, so tests never touch the process. README.md
//! lists the variables. Next: [`crate::server`].

use std::str::FromStr;
use std::time::Duration;

use postgres::config::Host;

/// Everything the service can be told.
#[derive(Debug)]
pub(crate) struct Config {
    /// TCP port; 0 takes a free one, which is then logged.
    pub(crate) port: u16,
    /// Threads that do the work of requests.
    pub(crate) web_threads: usize,
    /// Requests that may wait for a thread.
    pub(crate) web_queue: usize,
    /// Largest request body in bytes.
    pub(crate) max_body_bytes: usize,
    /// Where PostgreSQL is and how the connections are shared.
    pub(crate) db: DbConfig,
    /// Deliberate faults, for tests of whoever launches this.
    pub(crate) faults: Faults,
}

/// The database side.
#[derive(Debug, Clone)]
pub(crate) struct DbConfig {
    /// Connection parameters with exactly one host.
    pub(crate) server: postgres::Config,
    /// Connections, all opened at start.
    pub(crate) pool: u32,
    /// Of those, how many are held by background work for good.
    pub(crate) background: u32,
    /// Pause between two queries of a background connection.
    pub(crate) background_period: Duration,
    /// How long a request waits for a connection.
    pub(crate) acquire_timeout: Duration,
    /// How long PostgreSQL may take to come up.
    pub(crate) start_timeout: Duration,
}

/// Deliberate faults; all off by default.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// `/health` says 503 until this long after the start.
    pub(crate) ready_delay: Duration,
    /// `/health` never says 200.
    pub(crate) never_ready: bool,
    /// The process ends with status 3 after this long.
    pub(crate) exit_after: Option<Duration>,
}

/// One thing wrong with the environment.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {problem}")]
pub(crate) struct Problem {
    name: &'static str,
    problem: String,
}

/// Reads a variable; `None` when it is unset.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Config {
    /// Reads and checks every variable. **Errors**: all problems at once.
    pub(crate) fn from_lookup(lookup: Lookup<'_>) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader {
            lookup,
            problems: Vec::new(),
        };
        let port = reader.number("PORT", 8080, 0, u64::from(u16::MAX));
        let web_threads = reader.number("WEB_THREADS", 4, 1, 4096);
        let web_queue = reader.number("WEB_QUEUE", 1024, 1, 1_000_000);
        let max_body_bytes = reader.number("MAX_BODY_BYTES", 1 << 20, 1, 1 << 30);
        let pool = reader.number("DB_POOL", 8, 1, 4096);
        let background = reader.number("BACKGROUND_CONNECTIONS", 0, 0, 4096);
        let background_period = reader.millis("BACKGROUND_PERIOD_MS", 1000);
        let acquire_timeout = reader.millis("DB_ACQUIRE_TIMEOUT_MS", 2000);
        let start_timeout = reader.number("DB_START_TIMEOUT_S", 60, 1, 86_400);
        let ready_delay = reader.number("READY_DELAY_MS", 0, 0, 86_400_000);
        let never_ready = reader.flag("NEVER_READY");
        let exit_after = reader.number("EXIT_AFTER_MS", 0, 0, 86_400_000);
        if background >= pool {
            reader.wrong(
                "BACKGROUND_CONNECTIONS",
                format!("{background} of the {pool} connections of DB_POOL would be held by background work and none would be left for requests; it must be smaller than DB_POOL"),
            );
        }
        let server = reader.database();
        match server {
            Some(server) if reader.problems.is_empty() => Ok(Self {
                port: narrow(port),
                web_threads: narrow(web_threads),
                web_queue: narrow(web_queue),
                max_body_bytes: narrow(max_body_bytes),
                db: DbConfig {
                    server,
                    pool: narrow(pool),
                    background: narrow(background),
                    background_period,
                    acquire_timeout,
                    start_timeout: Duration::from_secs(start_timeout),
                },
                faults: Faults {
                    ready_delay: Duration::from_millis(ready_delay),
                    never_ready,
                    exit_after: (exit_after > 0).then(|| Duration::from_millis(exit_after)),
                },
            }),
            _ => Err(reader.problems),
        }
    }
}

/// The port alone, for the health probe, which needs no database.
pub(crate) fn port(lookup: Lookup<'_>) -> Result<u16, Problem> {
    let mut reader = Reader {
        lookup,
        problems: Vec::new(),
    };
    let port = reader.number("PORT", 8080, 1, u64::from(u16::MAX));
    match reader.problems.pop() {
        Some(problem) => Err(problem),
        None => Ok(narrow(port)),
    }
}

fn narrow<T: TryFrom<u64>>(number: u64) -> T {
    T::try_from(number)
        .ok()
        .expect("the range was checked when it was read")
}

struct Reader<'a> {
    lookup: Lookup<'a>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn wrong(&mut self, name: &'static str, problem: String) {
        self.problems.push(Problem { name, problem });
    }

    /// An unset or empty variable takes the default; a wrong one too, after the complaint.
    fn number(&mut self, name: &'static str, default: u64, least: u64, most: u64) -> u64 {
        let Some(text) = self.text(name) else {
            return default;
        };
        match text.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                self.wrong(
                    name,
                    format!("'{text}' is not a whole number from {least} to {most}"),
                );
                default
            }
        }
    }

    fn millis(&mut self, name: &'static str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default, 1, 86_400_000))
    }

    fn flag(&mut self, name: &'static str) -> bool {
        match self.text(name).as_deref() {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(other) => {
                let problem = format!("'{other}' is neither true nor false");
                self.wrong(name, problem);
                false
            }
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|text| !text.is_empty())
    }

    fn database(&mut self) -> Option<postgres::Config> {
        let mut server = if let Some(url) = self.text("DATABASE_URL") {
            match postgres::Config::from_str(&url) {
                Ok(server) => server,
                // The text may hold a password, so only the parser's words are repeated.
                Err(error) => {
                    self.wrong("DATABASE_URL", format!("not a PostgreSQL address: {error}"));
                    return None;
                }
            }
        } else {
            let mut server = postgres::Config::new();
            server.host(
                &self
                    .text("PGHOST")
                    .unwrap_or_else(|| "localhost".to_owned()),
            );
            server.port(narrow(self.number("PGPORT", 5432, 1, u64::from(u16::MAX))));
            let user = self.text("PGUSER").unwrap_or_else(|| "postgres".to_owned());
            server.dbname(&self.text("PGDATABASE").unwrap_or_else(|| user.clone()));
            server.user(&user);
            if let Some(password) = self.text("PGPASSWORD") {
                server.password(password);
            }
            server
        };
        let name = if self.text("DATABASE_URL").is_some() {
            "DATABASE_URL"
        } else {
            "PGHOST"
        };
        match server.get_hosts() {
            [Host::Tcp(_) | Host::Unix(_)] => {}
            hosts => {
                let problem = format!("exactly one host is needed, found {}", hosts.len());
                self.wrong(name, problem);
                return None;
            }
        }
        server.application_name("testbed");
        server.connect_timeout(Duration::from_secs(5));
        Some(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, Vec<Problem>> {
        Config::from_lookup(&|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let config = read(&[]).unwrap();
        assert_eq!(
            (config.port, config.web_threads, config.web_queue),
            (8080, 4, 1024)
        );
        assert_eq!((config.db.pool, config.db.background), (8, 0));
        assert_eq!(config.db.acquire_timeout, Duration::from_secs(2));
        assert_eq!(config.faults.exit_after, None);
        assert_eq!(config.db.server.get_dbname(), Some("postgres"));
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_name() {
        let problems = read(&[
            ("PORT", "http"),
            ("WEB_THREADS", "0"),
            ("DB_POOL", "2"),
            ("BACKGROUND_CONNECTIONS", "2"),
            ("NEVER_READY", "maybe"),
            ("DATABASE_URL", "postgres://u:secret@[::1"),
        ])
        .unwrap_err();
        let names: Vec<_> = problems.iter().map(|problem| problem.name).collect();
        assert_eq!(
            names,
            [
                "PORT",
                "WEB_THREADS",
                "NEVER_READY",
                "BACKGROUND_CONNECTIONS",
                "DATABASE_URL"
            ]
        );
        assert_eq!(
            problems[0].to_string(),
            "PORT: 'http' is not a whole number from 0 to 65535"
        );
        assert!(
            problems
                .iter()
                .all(|problem| !problem.to_string().contains("secret"))
        );
    }

    #[test]
    fn a_url_wins_over_single_variables() {
        let config = read(&[
            ("DATABASE_URL", "postgres://u:p@db:6000/x"),
            ("PGHOST", "other"),
        ])
        .unwrap();
        assert_eq!(config.db.server.get_hosts(), [Host::Tcp("db".to_owned())]);
        assert_eq!(config.db.server.get_ports(), [6000]);
    }

    #[test]
    fn two_hosts_are_refused() {
        let problems = read(&[("DATABASE_URL", "postgres://u@a,b/x")]).unwrap_err();
        assert_eq!(
            problems[0].to_string(),
            "DATABASE_URL: exactly one host is needed, found 2"
        );
    }
}
