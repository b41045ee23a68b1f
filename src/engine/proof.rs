//! Whether the limits that were planned are the limits in force.
//!
//! Each limit is compared with what the engine holds (`inspect`) and, where its
//! files can be read, with what the kernel enforces (`kernel`). A limit that is
//! there and was not planned is as wrong as one that is missing. Comparison is
//! pure; [`check_limits`] looks and compares. Read `telemetry.rs` next.

use std::collections::BTreeSet;
use std::fmt;

use futures_util::future::try_join_all;

use super::cgroup::{CpuQuota, KernelLimit, KernelLimits};
use super::{Engine, EngineError, Launched, Limits};
use crate::stack::{Service, Stack};

/// The kernel's default period of a quota. **Units**: microseconds. **Source**: CFS bandwidth control.
const DEFAULT_PERIOD_US: i64 = 100_000;
/// The kernel keeps memory limits in whole pages, 64 KiB on some machines.
const LARGEST_PAGE_BYTES: u64 = 64 * 1024;

/// What the limits were read back from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// The engine's own record of each container.
    Inspect,
    /// The files of the kernel too, for every running container.
    Kernel,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inspect => "inspect",
            Self::Kernel => "kernel",
        })
    }
}

/// A limit in force that is not the one planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "service `{service}` should have {which} {planned} and has {found} (read from {source_of})"
)]
pub struct LimitsNotApplied {
    /// The service.
    pub service: String,
    /// The Compose key: `cpus`, `cpuset`, `mem_limit` or `pids_limit`.
    pub which: &'static str,
    /// What the stack asks for.
    pub planned: String,
    /// What is in force.
    pub found: String,
    /// Where that was seen.
    pub source_of: Proof,
}

/// Why limits could not be proved.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// One is wrong.
    #[error(transparent)]
    NotApplied(#[from] LimitsNotApplied),
    /// The stack is not the one that was launched.
    #[error("service `{service}` was not launched")]
    NotLaunched {
        /// The service.
        service: String,
    },
    /// A container could not be looked at.
    #[error("read back the limits of service `{service}`")]
    Engine {
        /// The service.
        service: String,
        /// Why.
        #[source]
        source: EngineError,
    },
}

/// Billionths of a core, as the engine counts them; rounded, since 0.29 has no exact binary form.
pub fn nano_cpus(cpus: f64) -> i64 {
    (cpus * 1e9).round() as i64
}

/// Compares every service's limits with those in force; the weakest proof counts.
///
/// **Errors**: the first wrong limit in the order of the services; a container
/// that cannot be looked at.
pub async fn check_limits<E: Engine>(
    engine: &E,
    launched: &Launched,
    stack: &Stack,
) -> Result<Proof, ProofError> {
    let checks = stack.services.iter().map(|(name, service)| async move {
        let id = launched
            .containers
            .get(name)
            .ok_or_else(|| ProofError::NotLaunched {
                service: name.clone(),
            })?;
        let seen = engine
            .inspect(id)
            .await
            .map_err(|source| ProofError::Engine {
                service: name.clone(),
                source,
            })?;
        compare_inspection(name, service, &seen.limits)?;
        if launched.completed.contains(name) {
            // It uses nothing any more, and its control group is gone.
            return Ok(Proof::Kernel);
        }
        match engine.kernel_limits(id, &seen) {
            Some(limits) => compare_kernel(name, service, &limits).map_err(ProofError::from),
            None => Ok(Proof::Inspect),
        }
    });
    let proofs = try_join_all(checks).await?;
    Ok(proofs.into_iter().min().unwrap_or(Proof::Inspect))
}

fn mismatch(
    service: &str,
    which: &'static str,
    planned: Option<String>,
    found: Option<String>,
    source_of: Proof,
) -> LimitsNotApplied {
    let words = |limit: Option<String>| limit.unwrap_or_else(|| "no limit".to_owned());
    LimitsNotApplied {
        service: service.to_owned(),
        which,
        planned: words(planned),
        found: words(found),
        source_of,
    }
}

/// Compares with the engine's record.
///
/// **Errors**: the first limit that is not the planned one.
pub fn compare_inspection(
    name: &str,
    service: &Service,
    limits: &Limits,
) -> Result<(), LimitsNotApplied> {
    let fail = |which, planned, found| Err(mismatch(name, which, planned, found, Proof::Inspect));
    let planned_cpu = planned_nano_cpus(service);
    if !is_same_cpu(planned_cpu, inspected_cpu(limits)) {
        return fail(
            "cpus",
            planned_cpu.map(cores),
            inspected_cpu(limits).map(Cpu::words),
        );
    }
    let planned_cpuset = service.cpuset.as_deref().filter(|text| !text.is_empty());
    let found_cpuset = Some(limits.cpuset.as_str()).filter(|text| !text.is_empty());
    if planned_cpuset.map(cpu_list) != found_cpuset.map(cpu_list) {
        return fail("cpuset", owned(planned_cpuset), owned(found_cpuset));
    }
    let planned_memory = planned_memory(service);
    let found_memory = u64::try_from(limits.memory_bytes)
        .ok()
        .filter(|bytes| *bytes > 0);
    if planned_memory != found_memory {
        return fail(
            "mem_limit",
            planned_memory.map(bytes),
            found_memory.map(bytes),
        );
    }
    let planned_pids = service.pids_limit.filter(|pids| *pids > 0);
    let found_pids = Some(limits.pids).filter(|pids| *pids > 0);
    if planned_pids != found_pids {
        return fail("pids_limit", planned_pids.map(text), found_pids.map(text));
    }
    Ok(())
}

/// Compares with what the kernel enforces.
///
/// `Kernel` when every limit that was planned could be read; else `Inspect`.
/// **Errors**: the first limit that is not the planned one.
pub fn compare_kernel(
    name: &str,
    service: &Service,
    limits: &KernelLimits,
) -> Result<Proof, LimitsNotApplied> {
    let fail = |which, planned, found| Err(mismatch(name, which, planned, found, Proof::Kernel));
    let mut proof = Proof::Kernel;
    let planned_cpu = planned_nano_cpus(service);
    let found_cpu = match limits.cpu {
        KernelLimit::At(quota) => Some(Cpu::Quota(quota)),
        KernelLimit::Unlimited | KernelLimit::Unreadable => None,
    };
    if limits.cpu == KernelLimit::Unreadable {
        proof = Proof::Inspect;
    } else if !is_same_cpu(planned_cpu, found_cpu) {
        return fail("cpus", planned_cpu.map(cores), found_cpu.map(Cpu::words));
    }
    // Without a plan the kernel shows the parent's CPUs, which say nothing of this container.
    if let Some(planned) = service.cpuset.as_deref().filter(|text| !text.is_empty()) {
        match limits.cpuset.as_deref() {
            Some(found) if cpu_list(found) != cpu_list(planned) => {
                return fail("cpuset", owned(Some(planned)), owned(Some(found)));
            }
            Some(_) => {}
            None => proof = Proof::Inspect,
        }
    }
    let planned_memory = planned_memory(service);
    match (planned_memory, limits.memory_bytes) {
        (Some(planned), KernelLimit::At(found))
            if found <= planned && planned - found < LARGEST_PAGE_BYTES => {}
        (None, KernelLimit::Unlimited | KernelLimit::Unreadable) => {}
        (Some(_), KernelLimit::Unreadable) => proof = Proof::Inspect,
        (planned, KernelLimit::At(found)) => {
            return fail("mem_limit", planned.map(bytes), Some(bytes(found)));
        }
        (planned, KernelLimit::Unlimited) => {
            return fail("mem_limit", planned.map(bytes), None);
        }
    }
    let planned_pids = service.pids_limit.filter(|pids| *pids > 0);
    match (planned_pids, limits.pids) {
        (Some(planned), KernelLimit::At(found)) if planned == found => {}
        (None, KernelLimit::Unlimited | KernelLimit::Unreadable) => {}
        (Some(_), KernelLimit::Unreadable) => proof = Proof::Inspect,
        (planned, KernelLimit::At(found)) => {
            return fail("pids_limit", planned.map(text), Some(text(found)));
        }
        (planned, KernelLimit::Unlimited) => return fail("pids_limit", planned.map(text), None),
    }
    Ok(proof)
}

/// A CPU limit in one of its two forms.
#[derive(Clone, Copy)]
enum Cpu {
    Nano(i64),
    Quota(CpuQuota),
}

impl Cpu {
    fn words(self) -> String {
        match self {
            Self::Nano(nano) => cores(nano),
            Self::Quota(CpuQuota {
                quota_us,
                period_us,
            }) => format!(
                "{} ({quota_us} us in each {period_us} us)",
                quota_us as f64 / period_us as f64
            ),
        }
    }
}

fn planned_nano_cpus(service: &Service) -> Option<i64> {
    service.cpus.map(nano_cpus).filter(|nano| *nano > 0)
}

fn planned_memory(service: &Service) -> Option<u64> {
    service.mem_limit.filter(|bytes| *bytes > 0)
}

fn inspected_cpu(limits: &Limits) -> Option<Cpu> {
    if limits.nano_cpus > 0 {
        return Some(Cpu::Nano(limits.nano_cpus));
    }
    (limits.cpu_quota_us > 0).then_some({
        Cpu::Quota(CpuQuota {
            quota_us: limits.cpu_quota_us,
            period_us: if limits.cpu_period_us > 0 {
                limits.cpu_period_us
            } else {
                DEFAULT_PERIOD_US
            },
        })
    })
}

fn is_same_cpu(planned_nano: Option<i64>, found: Option<Cpu>) -> bool {
    match (planned_nano, found) {
        (None, None) => true,
        (Some(planned), Some(Cpu::Nano(found))) => planned == found,
        (Some(planned), Some(Cpu::Quota(quota))) => {
            // The engine cuts the quota to whole microseconds; others round it.
            let exact = i128::from(planned) * i128::from(quota.period_us);
            let found = i128::from(quota.quota_us) * 1_000_000_000;
            (exact - found).abs() < 1_000_000_000
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// The CPUs of a list such as `0-2,5`; a text of another form stands for itself.
fn cpu_list(text: &str) -> Result<BTreeSet<u32>, String> {
    let mut cpus = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<u32>()) else {
            return Err(text.to_owned());
        };
        // A range that no kernel has must not cost our memory.
        if last > 1 << 16 {
            return Err(text.to_owned());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

fn cores(nano: i64) -> String {
    format!("{}", nano as f64 / 1e9)
}

fn bytes(bytes: u64) -> String {
    format!("{bytes} bytes")
}

fn text(number: i64) -> String {
    number.to_string()
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limited() -> Service {
        Service {
            cpus: Some(0.5),
            cpuset: Some("0-1,3".to_owned()),
            mem_limit: Some(64 << 20),
            pids_limit: Some(100),
            ..Service::default()
        }
    }

    fn held() -> Limits {
        Limits {
            nano_cpus: 500_000_000,
            cpuset: "0,1,3".to_owned(),
            memory_bytes: 64 << 20,
            pids: 100,
            ..Limits::default()
        }
    }

    fn enforced() -> KernelLimits {
        KernelLimits {
            cpu: KernelLimit::At(CpuQuota {
                quota_us: 50_000,
                period_us: 100_000,
            }),
            cpuset: Some("0-1,3".to_owned()),
            memory_bytes: KernelLimit::At(64 << 20),
            pids: KernelLimit::At(100),
        }
    }

    #[test]
    fn limits_as_planned_are_proved_by_both() {
        assert_eq!(compare_inspection("app", &limited(), &held()), Ok(()));
        assert_eq!(
            compare_kernel("app", &limited(), &enforced()),
            Ok(Proof::Kernel)
        );
        let none = KernelLimits {
            cpu: KernelLimit::Unlimited,
            cpuset: Some("0-1".to_owned()),
            memory_bytes: KernelLimit::Unlimited,
            pids: KernelLimit::Unlimited,
        };
        assert_eq!(
            compare_kernel("app", &Service::default(), &none),
            Ok(Proof::Kernel)
        );
        assert_eq!(
            compare_inspection(
                "app",
                &Service::default(),
                &Limits {
                    pids: -1,
                    ..Limits::default()
                }
            ),
            Ok(())
        );
    }

    #[test]
    fn each_changed_limit_is_found_in_the_engines_record() {
        let cases: [(&str, Limits); 5] = [
            (
                "cpus",
                Limits {
                    nano_cpus: 600_000_000,
                    ..held()
                },
            ),
            (
                "cpus",
                Limits {
                    nano_cpus: 0,
                    ..held()
                },
            ),
            (
                "cpuset",
                Limits {
                    cpuset: "0".to_owned(),
                    ..held()
                },
            ),
            (
                "mem_limit",
                Limits {
                    memory_bytes: 0,
                    ..held()
                },
            ),
            ("pids_limit", Limits { pids: 99, ..held() }),
        ];
        for (which, limits) in cases {
            let error = compare_inspection("app", &limited(), &limits).unwrap_err();
            assert_eq!(error.which, which, "{limits:?}");
        }
    }

    #[test]
    fn a_limit_nobody_planned_is_as_wrong_as_a_missing_one() {
        let bare = Service::default();
        let cases: [(&str, Limits); 5] = [
            (
                "cpus",
                Limits {
                    nano_cpus: 1,
                    ..Limits::default()
                },
            ),
            (
                "cpus",
                Limits {
                    cpu_quota_us: 1_000,
                    ..Limits::default()
                },
            ),
            (
                "cpuset",
                Limits {
                    cpuset: "0".to_owned(),
                    ..Limits::default()
                },
            ),
            (
                "mem_limit",
                Limits {
                    memory_bytes: 1,
                    ..Limits::default()
                },
            ),
            (
                "pids_limit",
                Limits {
                    pids: 1,
                    ..Limits::default()
                },
            ),
        ];
        for (which, limits) in cases {
            let error = compare_inspection("app", &bare, &limits).unwrap_err();
            assert_eq!((error.which, error.planned.as_str()), (which, "no limit"));
        }
        let none = KernelLimits {
            cpu: KernelLimit::Unlimited,
            cpuset: None,
            memory_bytes: KernelLimit::Unlimited,
            pids: KernelLimit::Unlimited,
        };
        let cases = [
            (
                "cpus",
                KernelLimits {
                    cpu: enforced().cpu,
                    ..none.clone()
                },
            ),
            (
                "mem_limit",
                KernelLimits {
                    memory_bytes: KernelLimit::At(1),
                    ..none.clone()
                },
            ),
            (
                "pids_limit",
                KernelLimits {
                    pids: KernelLimit::At(1),
                    ..none
                },
            ),
        ];
        for (which, limits) in cases {
            assert_eq!(
                compare_kernel("app", &bare, &limits).unwrap_err().which,
                which
            );
        }
    }

    #[test]
    fn each_changed_limit_is_found_in_the_kernel() {
        let cases = [
            (
                "cpus",
                KernelLimits {
                    cpu: KernelLimit::Unlimited,
                    ..enforced()
                },
            ),
            (
                "cpuset",
                KernelLimits {
                    cpuset: Some("0-2".to_owned()),
                    ..enforced()
                },
            ),
            (
                "mem_limit",
                KernelLimits {
                    memory_bytes: KernelLimit::Unlimited,
                    ..enforced()
                },
            ),
            (
                "mem_limit",
                KernelLimits {
                    memory_bytes: KernelLimit::At((64 << 20) + 1),
                    ..enforced()
                },
            ),
            (
                "pids_limit",
                KernelLimits {
                    pids: KernelLimit::Unlimited,
                    ..enforced()
                },
            ),
        ];
        for (which, limits) in cases {
            assert_eq!(
                compare_kernel("app", &limited(), &limits)
                    .unwrap_err()
                    .which,
                which
            );
        }
    }

    #[test]
    fn what_could_not_be_read_weakens_the_proof_and_fails_nothing() {
        for limits in [
            KernelLimits {
                cpu: KernelLimit::Unreadable,
                ..enforced()
            },
            KernelLimits {
                cpuset: None,
                ..enforced()
            },
            KernelLimits {
                memory_bytes: KernelLimit::Unreadable,
                ..enforced()
            },
            KernelLimits {
                pids: KernelLimit::Unreadable,
                ..enforced()
            },
        ] {
            assert_eq!(
                compare_kernel("app", &limited(), &limits),
                Ok(Proof::Inspect)
            );
        }
    }

    #[test]
    fn a_quota_may_stand_as_a_pair_and_memory_may_be_cut_to_pages() {
        let pair = Limits {
            nano_cpus: 0,
            cpu_quota_us: 25_000,
            cpu_period_us: 50_000,
            ..held()
        };
        assert_eq!(compare_inspection("app", &limited(), &pair), Ok(()));
        let odd = Service {
            mem_limit: Some((64 << 20) + 1_000),
            ..limited()
        };
        assert_eq!(compare_kernel("app", &odd, &enforced()), Ok(Proof::Kernel));
    }

    #[test]
    fn the_message_names_both_values() {
        let limits = Limits {
            nano_cpus: 1_500_000_000,
            ..held()
        };
        let error = compare_inspection("app", &limited(), &limits).unwrap_err();
        insta::assert_snapshot!(
            error.to_string(),
            @"service `app` should have cpus 0.5 and has 1.5 (read from inspect)"
        );
    }

    proptest! {
        /// The engine cuts the quota to whole microseconds of its period.
        #[test]
        fn every_cpu_limit_meets_its_own_quota_and_no_other(milli in 10_u32..64_000, period in prop::sample::select(vec![10_000_i64, 100_000])) {
            let cpus = f64::from(milli) / 1000.0;
            let nano = nano_cpus(cpus);
            prop_assert_eq!(nano, i64::from(milli) * 1_000_000);
            let quota_us = nano * period / 1_000_000_000;
            let found = |quota_us| Some(Cpu::Quota(CpuQuota { quota_us, period_us: period }));
            prop_assert!(is_same_cpu(Some(nano), found(quota_us)));
            prop_assert!(!is_same_cpu(Some(nano), found(quota_us + 2)));
        }

        #[test]
        fn a_list_of_cpus_means_the_same_in_any_form(cpus in prop::collection::btree_set(0_u32..64, 1..20)) {
            let listed = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let ranges = cpus.iter().rev().map(|cpu| format!("{cpu}-{cpu}")).collect::<Vec<_>>().join(", ");
            prop_assert_eq!(cpu_list(&listed), Ok(cpus.clone()));
            prop_assert_eq!(cpu_list(&ranges), Ok(cpus));
        }
    }
}
