//! The binary from outside: its settings, its end, and (feature `docker-tests`) its answers
//! on a real PostgreSQL.
//!
//! Everything runs on free ports and under deadlines. `POSTGRES_IMAGE` names the image,
//! `nightsweep/postgres:15-local` unless set.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "docker-tests")]
mod database;
mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use support::{App, TESTBED, get};

#[test]
fn wrong_settings_are_all_named_and_end_with_2() {
    let output = Command::new(TESTBED)
        .env_clear()
        .envs([
            ("WEB_THREADS", "many"),
            ("DB_POOL", "2"),
            ("BACKGROUND_CONNECTIONS", "2"),
        ])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("WEB_THREADS: 'many'"), "{text}");
    assert!(
        text.contains("BACKGROUND_CONNECTIONS: 2 of the 2 connections"),
        "{text}"
    );
}

#[test]
fn without_a_database_it_waits_says_why_and_gives_up() {
    let app = App::start(&[
        ("PGHOST", "127.0.0.1"),
        ("PGPORT", "1"),
        ("DB_START_TIMEOUT_S", "2"),
    ]);
    let answer = get(app.port, "/health");
    assert_eq!(answer.status, 503);
    assert!(
        answer.body.contains("\"status\":\"unavailable\""),
        "{}",
        answer.body
    );
    assert_eq!(get(app.port, "/fhir/Patient/a").status, 503);
    assert_eq!(app.healthcheck(), Some(1));
    let (code, log) = app.wait(Duration::from_secs(20));
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("DB_START_TIMEOUT_S is 2"), "{log}");
    assert!(log.contains("refused"), "{log}");
}

#[test]
fn sigterm_ends_it_at_once_even_while_it_waits_for_the_database() {
    let app = App::start(&[("PGHOST", "127.0.0.1"), ("PGPORT", "1")]);
    let asked = Instant::now();
    app.signal("TERM");
    let (code, log) = app.wait(Duration::from_secs(20));
    assert_eq!(code, Some(0), "{log}");
    assert!(asked.elapsed() < Duration::from_secs(10), "{log}");
}

#[test]
fn the_fault_exit_is_status_3() {
    let app = App::start(&[
        ("PGHOST", "127.0.0.1"),
        ("PGPORT", "1"),
        ("EXIT_AFTER_MS", "50"),
    ]);
    assert_eq!(app.wait(Duration::from_secs(20)).0, Some(3));
}
