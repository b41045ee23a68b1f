//! Counters of all containers at the edges of a window, and what lies between.
//!
//! Differences are pure. **Invariant**: a counter that went backwards (a container
//! that was started again) gives no figure. Read `host.rs` next.

use futures_util::future::try_join_all;
use indexmap::IndexMap;
use tokio::time::Instant;

use super::{Counters, Engine, EngineError, EngineErrorKind, Launched};

/// Counters of one container and when they were read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// When.
    pub at: Instant,
    /// What.
    pub counters: Counters,
}

/// What one container used between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CounterDelta {
    /// CPU used on average. **Units**: cores.
    pub cpu_cores: f64,
    /// CPU time used. **Units**: nanoseconds.
    pub cpu_ns: u64,
    /// Quota periods that passed.
    pub periods: u64,
    /// Quota periods in which it was stopped.
    pub throttled_periods: u64,
    /// Share of quota periods in which it was stopped; `None` without a quota.
    pub throttled_ratio: Option<f64>,
    /// Time it stood still for the quota, summed over CPUs. **Units**: nanoseconds.
    pub throttled_ns: u64,
    /// Memory in use at the end. **Units**: bytes.
    pub memory_bytes: u64,
    /// Most memory in use since its start, file cache included, where the engine tells.
    /// **Units**: bytes.
    pub memory_peak_bytes: Option<u64>,
}

/// Reads the counters of every container that runs.
///
/// **Shape**: services in the order of the stack, without those that ran to their
/// end and those that may do so and have.
pub async fn snapshot<E: Engine>(
    engine: &E,
    launched: &Launched,
) -> Result<IndexMap<String, Reading>, EngineError> {
    let readings = launched.running().map(|(service, id)| async move {
        match engine.counters(id).await {
            Ok(counters) => {
                // The moment after the answer: the figures are newest there.
                let at = Instant::now();
                Ok(Some((service.to_owned(), Reading { at, counters })))
            }
            Err(error)
                if error.kind == EngineErrorKind::Conflict
                    && launched.may_complete.contains(service) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    });
    let readings = try_join_all(readings).await?;
    Ok(readings.into_iter().flatten().collect())
}

/// What a container used from one reading to a later one.
///
/// `None` when no time passed or a counter went backwards.
pub fn difference(before: &Reading, after: &Reading) -> Option<CounterDelta> {
    let elapsed = after.at.checked_duration_since(before.at)?;
    if elapsed.is_zero() {
        return None;
    }
    let (a, b) = (&before.counters, &after.counters);
    let cpu_ns = b.cpu_ns.checked_sub(a.cpu_ns)?;
    let periods = b.periods.checked_sub(a.periods)?;
    let throttled_periods = b.throttled_periods.checked_sub(a.throttled_periods)?;
    Some(CounterDelta {
        cpu_cores: cpu_ns as f64 / elapsed.as_nanos() as f64,
        cpu_ns,
        periods,
        throttled_periods,
        throttled_ratio: (periods > 0).then(|| throttled_periods as f64 / periods as f64),
        throttled_ns: b.throttled_ns.checked_sub(a.throttled_ns)?,
        memory_bytes: b.memory_bytes,
        memory_peak_bytes: b.memory_peak_bytes,
    })
}

/// Differences of all services that are in both readings and have one.
pub fn differences(
    before: &IndexMap<String, Reading>,
    after: &IndexMap<String, Reading>,
) -> IndexMap<String, CounterDelta> {
    after
        .iter()
        .filter_map(|(service, after)| {
            let delta = difference(before.get(service)?, after)?;
            Some((service.clone(), delta))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn readings(seconds: u64, counters: Counters) -> (Reading, Reading) {
        let at = Instant::now();
        let before = Reading {
            at,
            counters: Counters {
                cpu_ns: 1_000,
                periods: 10,
                throttled_periods: 2,
                throttled_ns: 500,
                memory_bytes: 1,
                memory_peak_bytes: Some(2),
            },
        };
        let after = Reading {
            at: at + Duration::from_secs(seconds),
            counters,
        };
        (before, after)
    }

    fn later() -> Counters {
        Counters {
            cpu_ns: 1_000 + 3_000_000_000,
            periods: 30,
            throttled_periods: 7,
            throttled_ns: 1_500,
            memory_bytes: 70,
            memory_peak_bytes: Some(90),
        }
    }

    #[test]
    fn three_cpu_seconds_in_two_are_one_and_a_half_cores() {
        let (before, after) = readings(2, later());
        let delta = difference(&before, &after).unwrap();
        assert!((delta.cpu_cores - 1.5).abs() < 1e-12);
        assert_eq!(delta.throttled_ratio, Some(0.25));
        assert_eq!((delta.periods, delta.throttled_ns), (20, 1_000));
        assert_eq!(delta.memory_peak_bytes, Some(90));
    }

    #[test]
    fn without_a_quota_there_is_no_ratio() {
        let (before, after) = readings(
            2,
            Counters {
                periods: 10,
                throttled_periods: 2,
                ..later()
            },
        );
        assert_eq!(difference(&before, &after).unwrap().throttled_ratio, None);
    }

    #[test]
    fn a_container_that_was_started_again_gives_no_figure() {
        let (before, after) = readings(2, Counters::default());
        assert_eq!(difference(&before, &after), None);
        let (before, after) = readings(0, later());
        assert_eq!(difference(&before, &after), None);
    }

    #[test]
    fn a_service_in_one_reading_only_is_left_out() {
        let (before, after) = readings(2, later());
        let one = |name: &str, reading| IndexMap::from([(name.to_owned(), reading)]);
        assert!(differences(&one("a", before), &one("b", after)).is_empty());
        assert_eq!(differences(&one("a", before), &one("a", after)).len(), 1);
    }
}
