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

/// Above this the containers of a service did not share its work evenly: the busiest
/// used a quarter more CPU than the mean of all.
const MOST_IMBALANCE: f64 = 1.25;
/// And by at least so much: what idle containers use in passing says nothing.
/// **Units**: cores.
const LEAST_EXCESS: f64 = 0.01;

/// What all containers of a service used between two readings.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceUse {
    /// Their sum. The peak of memory is the sum of peaks that need not have been at
    /// one time; the throttled ratio is over the quota periods of all.
    pub total: CounterDelta,
    /// Each container that ran, in the order of its number; at least one.
    pub replicas: Vec<CounterDelta>,
}

impl ServiceUse {
    /// How unevenly several containers shared the work: the most CPU that one of them
    /// used over the mean of all. 1 is even; `None` for a single container, or an idle service.
    pub fn imbalance(&self) -> Option<f64> {
        let n = self.replicas.len();
        let mean = self.total.cpu_cores / n as f64;
        let cores = self.replicas.iter().map(|delta| delta.cpu_cores);
        (n > 1 && mean > 0.0).then(|| cores.fold(0.0, f64::max) / mean)
    }

    /// Whether that is more than a reader may take for even: above 1.25, and by more
    /// than a hundredth of a core.
    pub fn is_imbalanced(&self) -> bool {
        let mean = self.total.cpu_cores / self.replicas.len() as f64;
        self.imbalance()
            .is_some_and(|share| share > MOST_IMBALANCE && (share - 1.0) * mean > LEAST_EXCESS)
    }
}

/// Readings by service, each container's at its place; `None` for one that has ended
/// as it may.
pub type Readings = IndexMap<String, Vec<Option<Reading>>>;

/// Reads the counters of every container that runs.
///
/// **Shape**: services in the order of the stack, without those that ran to their end.
pub async fn snapshot<E: Engine>(engine: &E, launched: &Launched) -> Result<Readings, EngineError> {
    let readings = launched.running().map(|replica| async move {
        match engine.counters(replica.id).await {
            Ok(counters) => {
                // The moment after the answer: the figures are newest there.
                let at = Instant::now();
                Ok((replica.service, Some(Reading { at, counters })))
            }
            Err(error)
                if error.kind == EngineErrorKind::Conflict
                    && launched.may_complete.contains(replica.service) =>
            {
                Ok((replica.service, None))
            }
            Err(error) => Err(error),
        }
    });
    let mut by_service = Readings::new();
    for (service, reading) in try_join_all(readings).await? {
        by_service
            .entry(service.to_owned())
            .or_default()
            .push(reading);
    }
    Ok(by_service)
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
        throttled_ratio: ratio(throttled_periods, periods),
        throttled_ns: b.throttled_ns.checked_sub(a.throttled_ns)?,
        memory_bytes: b.memory_bytes,
        memory_peak_bytes: b.memory_peak_bytes,
    })
}

/// Differences of all services that are in both readings and have one.
///
/// **Invariant**: a service of which one container has no figure has none either: the
/// sum of the others would pass for the whole.
pub fn differences(before: &Readings, after: &Readings) -> IndexMap<String, ServiceUse> {
    after
        .iter()
        .filter_map(|(service, after)| {
            let used = service_use(before.get(service)?, after)?;
            Some((service.clone(), used))
        })
        .collect()
}

fn service_use(before: &[Option<Reading>], after: &[Option<Reading>]) -> Option<ServiceUse> {
    if before.len() != after.len() {
        return None;
    }
    let mut replicas = Vec::with_capacity(after.len());
    for pair in before.iter().zip(after) {
        match pair {
            (Some(before), Some(after)) => replicas.push(difference(before, after)?),
            // It had ended before: it used nothing.
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => return None,
        }
    }
    let total = sum(&replicas)?;
    Some(ServiceUse { total, replicas })
}

fn sum(deltas: &[CounterDelta]) -> Option<CounterDelta> {
    let (first, others) = deltas.split_first()?;
    let mut total = others.iter().fold(*first, |sum, one| CounterDelta {
        cpu_cores: sum.cpu_cores + one.cpu_cores,
        cpu_ns: sum.cpu_ns.saturating_add(one.cpu_ns),
        periods: sum.periods.saturating_add(one.periods),
        throttled_periods: sum.throttled_periods.saturating_add(one.throttled_periods),
        throttled_ratio: None,
        throttled_ns: sum.throttled_ns.saturating_add(one.throttled_ns),
        memory_bytes: sum.memory_bytes.saturating_add(one.memory_bytes),
        memory_peak_bytes: sum
            .memory_peak_bytes
            .zip(one.memory_peak_bytes)
            .map(|(a, b)| a.saturating_add(b)),
    });
    total.throttled_ratio = ratio(total.throttled_periods, total.periods);
    Some(total)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
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
        let one = |name: &str, reading| Readings::from([(name.to_owned(), vec![Some(reading)])]);
        assert!(differences(&one("a", before), &one("b", after)).is_empty());
        let found = differences(&one("a", before), &one("a", after));
        assert_eq!(found["a"].replicas, [found["a"].total]);
        assert_eq!(found["a"].imbalance(), None);
    }

    #[test]
    fn replicas_are_summed_and_the_busiest_is_set_against_the_mean() {
        let (before, busy) = readings(2, later());
        // 1 s of CPU in the same 2 s, in 20 periods of which 15 were cut short.
        let quiet = Reading {
            counters: Counters {
                cpu_ns: 1_000 + 1_000_000_000,
                throttled_periods: 17,
                ..later()
            },
            ..busy
        };
        let of =
            |readings: [Option<Reading>; 3]| Readings::from([("a".to_owned(), readings.to_vec())]);
        let found = differences(
            &of([Some(before), None, Some(before)]),
            &of([Some(busy), None, Some(quiet)]),
        );
        let used = &found["a"];
        assert_eq!(used.replicas.len(), 2);
        assert!((used.total.cpu_cores - 2.0).abs() < 1e-12);
        assert_eq!(used.total.cpu_ns, 4_000_000_000);
        // 5 + 15 of 20 + 20 periods.
        assert_eq!(used.total.throttled_ratio, Some(0.5));
        assert_eq!(
            (used.total.memory_bytes, used.total.memory_peak_bytes),
            (140, Some(180))
        );
        assert_eq!(used.imbalance(), Some(1.5));
        assert!(used.is_imbalanced());
        let mut idle = used.clone();
        idle.total.cpu_cores /= 1_000.0;
        for one in &mut idle.replicas {
            one.cpu_cores /= 1_000.0;
        }
        assert!(idle.imbalance() > Some(1.4) && !idle.is_imbalanced());

        // One of them ended, or began again: the sum would be short of its part.
        let ended = differences(&of([Some(before); 3]), &of([Some(busy), None, Some(quiet)]));
        assert!(ended.is_empty());
        let again = Reading {
            counters: Counters::default(),
            ..busy
        };
        let again = differences(
            &of([Some(before); 3]),
            &of([Some(busy), Some(again), Some(quiet)]),
        );
        assert!(again.is_empty());
    }
}
