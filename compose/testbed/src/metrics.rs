//! Counters and their Prometheus text.
//!
//! Invariant: every request under `/fhir` is counted exactly once, when its answer is made,
//! refusals included; `/health` and `/metrics` are never counted. Labels come from closed
//! sets, so the number of series is bounded. Next: [`crate::server`], which counts refusals.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::db::DbGauges;
use crate::web_pool::WebGauges;

/// Upper bounds in seconds of the wait for a connection: 100 us (an idle pool) to beyond
/// the default acquire timeout of 2 s.
const ACQUIRE_BOUNDS_S: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];

/// What a request asks for, in FHIR's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Interaction {
    /// POST to a type.
    Create,
    /// GET of a type and id.
    Read,
    /// PUT to a type and id.
    Update,
    /// DELETE of a type and id.
    Delete,
    /// GET of a type.
    Search,
    /// Anything else under `/fhir`.
    Other,
}

impl Interaction {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Search => "search",
            Self::Other => "other",
        }
    }
}

/// The counters of one process.
#[derive(Debug)]
pub(crate) struct Metrics {
    start_seconds: f64,
    requests: Mutex<BTreeMap<(&'static str, Interaction, u16), u64>>,
    acquire_buckets: [AtomicU64; ACQUIRE_BOUNDS_S.len() + 1],
    acquire_sum_ns: AtomicU64,
}

impl Metrics {
    /// `start_seconds` is the process start in Unix time.
    pub(crate) fn new(start_seconds: f64) -> Self {
        Self {
            start_seconds,
            requests: Mutex::default(),
            acquire_buckets: Default::default(),
            acquire_sum_ns: AtomicU64::new(0),
        }
    }

    /// Counts one answer. `method` comes from [`method_label`].
    pub(crate) fn count(&self, method: &'static str, interaction: Interaction, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((method, interaction, status)).or_insert(0) += 1;
    }

    /// Records how long a request waited for a connection, whether or not it got one.
    pub(crate) fn acquired(&self, wait: Duration) {
        let seconds = wait.as_secs_f64();
        let bucket = ACQUIRE_BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.acquire_buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.acquire_sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The Prometheus exposition text.
    pub(crate) fn render(&self, web: WebGauges, db: DbGauges) -> String {
        let mut out = String::with_capacity(4096);
        let gauges: [(&str, &str, &dyn Display); 8] = [
            (
                "web_threads",
                "Threads that do the work of requests.",
                &web.threads,
            ),
            ("web_threads_busy", "Threads with a request.", &web.busy),
            (
                "web_queue_length",
                "Requests waiting for a thread.",
                &web.queued,
            ),
            (
                "web_queue_capacity",
                "Requests that may wait for a thread.",
                &web.capacity,
            ),
            ("db_pool_size", "Connections the pool is made of.", &db.size),
            (
                "db_pool_open",
                "Connections open now; fewer than db_pool_size while the database is away.",
                &db.open,
            ),
            (
                "db_pool_in_use",
                "Connections taken out of the pool, background work included.",
                &db.in_use,
            ),
            (
                "db_pool_background",
                "Connections that background work is to hold.",
                &db.background,
            ),
        ];
        for (name, help, value) in gauges {
            head(&mut out, name, help, "gauge");
            let _ = writeln!(out, "{name} {value}");
        }
        head(
            &mut out,
            "process_start_time_seconds",
            "Start of the process, Unix time.",
            "gauge",
        );
        let _ = writeln!(out, "process_start_time_seconds {:.3}", self.start_seconds);

        let name = "db_pool_acquire_seconds";
        head(
            &mut out,
            name,
            "Wait of a request for a connection, timeouts included.",
            "histogram",
        );
        let mut total = 0;
        for (bound, bucket) in ACQUIRE_BOUNDS_S.iter().zip(&self.acquire_buckets) {
            total += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        total += self.acquire_buckets[ACQUIRE_BOUNDS_S.len()].load(Ordering::Relaxed);
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {total}");
        let sum = Duration::from_nanos(self.acquire_sum_ns.load(Ordering::Relaxed));
        let _ = writeln!(
            out,
            "{name}_sum {}\n{name}_count {total}",
            sum.as_secs_f64()
        );

        let name = "http_requests_total";
        head(&mut out, name, "Answers made under /fhir.", "counter");
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((method, interaction, status), count) in requests.iter() {
            let interaction = interaction.as_str();
            let _ = writeln!(
                out,
                "{name}{{method=\"{method}\",interaction=\"{interaction}\",status=\"{status}\"}} {count}"
            );
        }
        out
    }
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// The method as a label out of a closed set.
pub(crate) fn method_label(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(metrics: &Metrics) -> String {
        metrics.render(
            WebGauges {
                threads: 2,
                busy: 1,
                queued: 5,
                capacity: 9,
            },
            DbGauges {
                size: 4,
                open: 3,
                in_use: 1,
                background: 0,
            },
        )
    }

    #[test]
    fn answers_are_counted_by_method_interaction_and_status() {
        let metrics = Metrics::new(1.0);
        metrics.count("GET", Interaction::Read, 200);
        metrics.count("GET", Interaction::Read, 200);
        metrics.count("POST", Interaction::Create, 503);
        let text = rendered(&metrics);
        assert!(text.contains(
            "http_requests_total{method=\"GET\",interaction=\"read\",status=\"200\"} 2\n"
        ));
        assert!(text.contains(
            "http_requests_total{method=\"POST\",interaction=\"create\",status=\"503\"} 1\n"
        ));
        assert!(text.contains("\nweb_queue_length 5\n"));
        assert!(text.contains("\ndb_pool_size 4\n"));
    }

    #[test]
    fn histogram_buckets_are_cumulative_and_bounds_inclusive() {
        let metrics = Metrics::new(1.0);
        metrics.acquired(Duration::from_micros(100));
        metrics.acquired(Duration::from_millis(1));
        metrics.acquired(Duration::from_secs(9));
        let text = rendered(&metrics);
        assert!(text.contains("db_pool_acquire_seconds_bucket{le=\"0.0001\"} 1\n"));
        assert!(text.contains("db_pool_acquire_seconds_bucket{le=\"2.5\"} 2\n"));
        assert!(text.contains("db_pool_acquire_seconds_bucket{le=\"+Inf\"} 3\n"));
        assert!(text.contains("db_pool_acquire_seconds_sum 9.0011\n"));
    }
}
