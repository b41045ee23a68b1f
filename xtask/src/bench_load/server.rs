//! The server that load goes to: nginx, one process on a CPU of its own.
//!
//! It remembers nothing and answers everything at once: `/` with a small JSON body, and the
//! CRUD journey of `compose/testbed/workload.toml` with resources as large as the real ones, a
//! create with an id of its own, a read and an update with the id that was asked for. It counts requests
//! itself, so that what generators say of themselves is checked from outside.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fs_err as fs;

use super::host;
use super::peer::Wire;
use crate::steps::{StepError, program};

/// The CPU that answers are made on.
const SERVER_CPU: &str = "1";
/// Where a free port is looked for; below those the kernel hands out to clients.
const PORTS: std::ops::Range<u16> = 18_080..18_180;
/// Longest wait for the server's first answer.
const START_LIMIT: Duration = Duration::from_secs(10);
/// nginx reads no word of its configuration that is longer.
const LONGEST_WORD: usize = 4_000;

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    ports: Ports,
}

/// One for each [`Wire`].
#[derive(Debug, Clone, Copy)]
struct Ports {
    plain: u16,
    tls: u16,
    http2: u16,
}

/// What the server has counted since it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// Requests answered, those for counts among them.
    pub(super) requests: u64,
    /// Connections open now, that of the count among them.
    pub(super) connections: u64,
}

impl Server {
    /// Starts nginx with everything it writes in `folder`.
    pub(super) fn start(folder: &Path, bodies: &Path) -> Result<Self, StepError> {
        let mut free = PORTS.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        let mut next = || {
            free.next()
                .ok_or_else(|| StepError::new(format!("no three ports of {PORTS:?} are free")))
        };
        let ports = Ports {
            plain: next()?,
            tls: next()?,
            http2: next()?,
        };
        make_certificate(folder)?;
        let path = folder.join("nginx.conf");
        fs::write(&path, configuration(folder, ports, &resources(bodies)?)?)?;
        let log = fs::File::create(folder.join("nginx.log"))?;
        let child = Command::new("bash")
            .args(["-c", r#"ulimit -n "$(ulimit -Hn)"; exec "$@""#, "bash"])
            // Whatever ends this program ends nginx.
            .args(["setpriv", "--pdeathsig", "KILL"])
            .args(["taskset", "--cpu-list", SERVER_CPU])
            .args(["nginx", "-e", "stderr", "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.into_file())
            .spawn()
            .map_err(|error| StepError::new(format!("cannot start nginx: {error}")))?;
        let mut server = Self { child, ports };
        server.wait(folder)?;
        Ok(server)
    }

    fn wait(&mut self, folder: &Path) -> Result<(), StepError> {
        let begun = Instant::now();
        loop {
            let refused = match self.counts() {
                Ok(_) => return Ok(()),
                Err(error) => error.message,
            };
            let ended = self.child.try_wait()?;
            if ended.is_some() || begun.elapsed() > START_LIMIT {
                let log = fs::read_to_string(folder.join("nginx.log")).unwrap_or_default();
                return Err(StepError::new(format!(
                    "nginx does not answer ({refused}); it said: {}",
                    log.trim()
                )));
            }
            program("sleep", &["0.05"]).status()?;
        }
    }

    /// Where load goes, without a path.
    pub(super) fn url(&self, wire: Wire) -> String {
        let (scheme, port) = match wire {
            Wire::Plain => ("http", self.ports.plain),
            Wire::Tls => ("https", self.ports.tls),
            Wire::Http2 => ("http", self.ports.http2),
        };
        format!("{scheme}://127.0.0.1:{port}")
    }

    /// CPU time since it began. **Units**: seconds.
    pub(super) fn cpu_s(&self) -> Result<f64, StepError> {
        host::cpu_of(self.child.id())
    }

    /// Asks the server for its counts; this is one request more.
    pub(super) fn counts(&self) -> Result<Counts, StepError> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.plain))?;
        stream.set_read_timeout(Some(START_LIMIT))?;
        stream.write_all(b"GET /bench-status HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        counts_in(&text)
            .ok_or_else(|| StepError::new(format!("nginx does not say its counts: {text}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One process without workers: nothing of it stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn counts_in(text: &str) -> Option<Counts> {
    let (_, rest) = text.split_once("Active connections:")?;
    let connections = rest.split_whitespace().next()?.parse().ok()?;
    let (_, rest) = rest.split_once("requests\n")?;
    let requests = rest.split_whitespace().nth(2)?.parse().ok()?;
    Some(Counts {
        requests,
        connections,
    })
}

/// A resource type and the rest of its JSON, after the brace.
type Resource = (String, String);

/// The bodies of the journey as a server would give them back.
fn resources(folder: &Path) -> Result<Vec<Resource>, StepError> {
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let name: String = name.split('-').map(capitalised).collect();
        let rest = filled(&text)
            .trim()
            .strip_prefix('{')
            .map(str::to_owned)
            .ok_or_else(|| StepError::new(format!("{} is no JSON object", file.display())))?;
        found.push((name, rest));
    }
    Ok(found)
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect()
}

/// The text with a number for every template, which fits in and outside of quotes.
fn filled(text: &str) -> String {
    let mut pieces = text.split("${");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let after = piece.split_once('}').map_or(piece, |(_, after)| after);
        filled.push_str("10");
        filled.push_str(after);
    }
    filled
}

/// A word of nginx's configuration.
fn quoted(text: &str) -> Result<String, StepError> {
    if text.contains('$') || text.len() > LONGEST_WORD {
        return Err(StepError::new(
            "nginx cannot be told to answer with a body that is over 4000 bytes or has a dollar in it",
        ));
    }
    Ok(text.replace('\\', r"\\").replace('\'', r"\'"))
}

/// A certificate that nobody vouches for, and its key.
fn make_certificate(folder: &Path) -> Result<(), StepError> {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .arg("-keyout")
        .arg(folder.join("server.key"))
        .arg("-out")
        .arg(folder.join("server.pem"))
        .output();
    match made {
        Ok(made) if made.status.success() => Ok(()),
        Ok(made) => Err(StepError::new(format!(
            "openssl makes no certificate: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        ))),
        Err(error) => Err(StepError::new(format!("`openssl` does not start: {error}"))
            .hint("apt-get install openssl")),
    }
}

fn configuration(folder: &Path, ports: Ports, resources: &[Resource]) -> Result<String, StepError> {
    let mut map = String::new();
    for (name, rest) in resources {
        let _ = writeln!(map, "    {name} '{}';", quoted(rest)?);
    }
    let here = folder.display();
    let Ports { plain, tls, http2 } = ports;
    let mut temporary = String::new();
    for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(temporary, "  {what}_temp_path {here}/{what};");
    }
    // Whole requests of the journey fit into the first buffer, so each is one read.
    Ok(format!(
        r#"daemon off;
master_process off;
pid {here}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 15000; }}
http {{
  access_log off;
  server_tokens off;
  keepalive_requests 2000000000;
  keepalive_timeout 300s;
  client_header_buffer_size 16k;
{temporary}  map $resource $rest {{
    default '"resourceType":"unknown"}}';
{map}  }}
  server {{
    listen 127.0.0.1:{plain} backlog=16384;
    listen 127.0.0.1:{tls} ssl http2 backlog=16384;
    listen 127.0.0.1:{http2} http2 backlog=16384;
    ssl_certificate {here}/server.pem;
    ssl_certificate_key {here}/server.key;
    location = /bench-status {{ stub_status; }}
    location / {{
      default_type application/json;
      return 200 '{{"status":"ok","id":"7f3a","queue":0,"version":"1.4.2"}}';
    }}
    location ~ ^/fhir/(?<resource>[A-Za-z]+)$ {{
      default_type application/fhir+json;
      if ($request_method != POST) {{ return 405; }}
      return 201 '{{"id":"$request_id","meta":{{"versionId":"1"}},$rest';
    }}
    location ~ ^/fhir/(?<resource>[A-Za-z]+)/(?<id>[A-Za-z0-9-]+)$ {{
      default_type application/fhir+json;
      if ($request_method = GET) {{ return 200 '{{"id":"$id","meta":{{"versionId":"1"}},$rest'; }}
      if ($request_method = PUT) {{ return 200 '{{"id":"$id","meta":{{"versionId":"2"}},$rest'; }}
      if ($request_method = DELETE) {{ return 204; }}
      return 405;
    }}
  }}
}}
"#
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS_OF_TEST: Ports = Ports {
        plain: 1,
        tls: 2,
        http2: 3,
    };

    #[test]
    fn counts_are_read_from_the_status_page() {
        let page = "HTTP/1.1 200 OK\r\n\r\nActive connections: 33 \nserver accepts handled requests\n 150 149 87693 \nReading: 0 Writing: 1 Waiting: 32 \n";
        let counts = counts_in(page).expect("counts");
        assert_eq!((counts.requests, counts.connections), (87_693, 33));
        assert!(counts_in("HTTP/1.1 404 Not Found\r\n\r\n").is_none());
    }

    #[test]
    fn templates_become_numbers_and_names_become_types() {
        assert_eq!(
            filled(r#"{"a": ${random(1, 9)}, "b": "x-${id.Patient}"}"#),
            r#"{"a": 10, "b": "x-10"}"#
        );
        let name: String = "explanation-of-benefit"
            .split('-')
            .map(capitalised)
            .collect();
        assert_eq!(name, "ExplanationOfBenefit");
    }

    #[test]
    fn what_nginx_would_misread_is_escaped_or_refused() {
        assert_eq!(quoted(r"it's \n").expect("a word"), r"it\'s \\n");
        assert!(quoted("costs $5").is_err());
        assert!(quoted(&"a".repeat(5_000)).is_err());
    }

    #[test]
    fn the_nine_bodies_of_the_journey_fit() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compose/testbed/bodies");
        let resources = resources(&root).expect("the bodies");
        assert_eq!(resources.len(), 9);
        for (name, rest) in &resources {
            assert!(
                rest.contains(&format!(r#""resourceType": "{name}""#)),
                "{rest}"
            );
        }
        configuration(Path::new("/tmp"), PORTS_OF_TEST, &resources).expect("a configuration");
    }
}
