//! What runs in a stack that came up: asked once per run, of the first one.
//!
//! A tag such as `postgres:17` says little in a year; what the server says of
//! itself does not age. Only programs that answer `--version` without touching
//! their data are asked.

use std::time::{Duration, Instant};

use indexmap::IndexMap;

use crate::engine::{Engine, Launched, Replica};
use crate::stack::Stack;

/// A word of the image's name, and the program that says its version.
const SERVERS: [(&str, &str); 12] = [
    ("postgres", "postgres"),
    ("postgis", "postgres"),
    ("timescale", "postgres"),
    ("pgvector", "postgres"),
    ("aidboxdb", "postgres"),
    ("mariadb", "mariadbd"),
    ("mysql", "mysqld"),
    ("redis", "redis-server"),
    ("valkey", "valkey-server"),
    ("mongo", "mongod"),
    ("nginx", "nginx"),
    ("rabbitmq", "rabbitmqctl"),
];
const ASK_LIMIT: Duration = Duration::from_secs(5);
const CONNECTS: usize = 11;
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// What each service says of its version, where it can be asked.
pub(super) async fn versions<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
) -> IndexMap<String, String> {
    let mut versions = IndexMap::new();
    // The containers of a service are alike: the first speaks for all.
    for Replica { service, id, .. } in launched.running().filter(|one| one.index == 0) {
        let Some(program) = stack
            .services
            .get(service)
            // An image that is built has no name of its own; its service's is what is left.
            .and_then(|known| program_of(&known.image).or_else(|| program_of(service)))
        else {
            continue;
        };
        let argument = if program == "nginx" {
            "-v"
        } else if program == "rabbitmqctl" {
            "version"
        } else {
            "--version"
        };
        let command = [program.to_owned(), argument.to_owned()];
        let Ok((0, output)) = engine.exec(id, &command, ASK_LIMIT).await else {
            continue;
        };
        if let Some(line) = output.lines().find(|line| !line.trim().is_empty()) {
            versions.insert(service.to_owned(), line.trim().to_owned());
        }
    }
    versions
}

/// Median time to open a connection to the idle target. **Units**: milliseconds.
pub(super) async fn idle_connect_ms(address: std::net::SocketAddr) -> Option<f64> {
    let mut times = Vec::with_capacity(CONNECTS);
    for _ in 0..CONNECTS {
        let begun = Instant::now();
        let connect = tokio::net::TcpStream::connect(address);
        tokio::time::timeout(CONNECT_LIMIT, connect)
            .await
            .ok()?
            .ok()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times.get(CONNECTS / 2).copied()
}

/// The program to ask in a container of an image: its name's last part decides.
fn program_of(image: &str) -> Option<&'static str> {
    let name = image.rsplit('/').next().unwrap_or(image);
    let name = name.split([':', '@']).next().unwrap_or(name);
    SERVERS
        .iter()
        .find(|(word, _)| name.contains(word))
        .map(|(_, program)| *program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_name_decides_whom_to_ask() {
        for (image, program) in [
            ("postgres:17", Some("postgres")),
            ("nightsweep/postgres:15-local", Some("postgres")),
            ("registry.example:5000/team/mysql@sha256:ab", Some("mysqld")),
            ("postgres-exporter-free/app:1", None),
            ("nightsweep/testbed:local", None),
        ] {
            assert_eq!(program_of(image), program, "{image}");
        }
    }
}
