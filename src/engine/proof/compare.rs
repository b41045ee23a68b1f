//! Comparing a service's limits with what was read. Pure.

use std::fmt;

use serde::Serialize;

use crate::cpus::CpuSet;
use crate::engine::{CpuQuota, KernelCpu, KernelLimit, KernelLimits, Limits};
use crate::stack::Service;

/// The kernel's default period of a quota. **Units**: microseconds. **Source**: CFS bandwidth control.
const DEFAULT_PERIOD_US: i64 = 100_000;
/// The kernel keeps memory limits in whole pages, 64 KiB on some machines.
const LARGEST_PAGE_BYTES: u64 = 64 * 1024;

/// What the limits were read back from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
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
    /// The Compose key: `cpus`, `cpuset`, `mem_limit`, `pids_limit`, `environment` or `image`.
    pub which: &'static str,
    /// What the stack asks for.
    pub planned: String,
    /// What is in force.
    pub found: String,
    /// Where that was seen.
    pub source_of: Proof,
}

impl LimitsNotApplied {
    /// The same with the values of variables said otherwise, such as by digests; limits stay.
    #[must_use]
    pub fn with_values(&self, say: impl Fn(&str) -> String) -> Self {
        let said = |text: &String| match text.split_once('=') {
            Some((name, value)) if self.which == ENVIRONMENT => format!("{name}={}", say(value)),
            _ => text.clone(),
        };
        Self {
            planned: said(&self.planned),
            found: said(&self.found),
            ..self.clone()
        }
    }
}

/// What of a container is wrong when a variable is.
const ENVIRONMENT: &str = "environment";

/// Billionths of a core, as the engine counts them; rounded, since 0.29 has no exact binary form.
pub fn nano_cpus(cpus: f64) -> i64 {
    (cpus * 1e9).round() as i64
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

/// Compares the variables of a container with those of the service; an image's own may come
/// on top.
///
/// **Errors**: the first variable that is missing or has another value.
pub fn compare_environment(
    name: &str,
    service: &Service,
    found: &[(String, String)],
) -> Result<(), LimitsNotApplied> {
    for (variable, value) in &service.environment {
        let has = value_of(found, variable);
        if has != Some(value.as_str()) {
            return Err(mismatch(
                name,
                ENVIRONMENT,
                Some(format!("{variable}={value}")),
                Some(has.map_or_else(
                    || format!("no {variable}"),
                    |value| format!("{variable}={value}"),
                )),
                Proof::Inspect,
            ));
        }
    }
    Ok(())
}

/// Variables of a service that its first process has with another value, or not at all.
///
/// This is no failure: an image's entrypoint may set and unset variables, and a process
/// may write over the place they are kept in. `None` when that has happened, which shows in
/// none of them being there.
pub fn changed_variables<'s>(
    service: &'s Service,
    process: &[(String, String)],
) -> Option<Vec<&'s str>> {
    let planned = &service.environment;
    let is_there = |name: &String| value_of(process, name).is_some();
    if !planned.is_empty() && !planned.keys().any(is_there) {
        return None;
    }
    let changed = planned
        .iter()
        .filter(|(name, value)| value_of(process, name) != Some(value.as_str()));
    Some(changed.map(|(name, _)| name.as_str()).collect())
}

/// As a process sees it: of a name that stands twice, the first.
pub(super) fn value_of<'v>(variables: &'v [(String, String)], name: &str) -> Option<&'v str> {
    let found = variables.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.as_str())
}

/// Compares a container's image with the one that was recorded.
///
/// **Errors**: another one.
pub fn compare_image(name: &str, recorded: &str, found: &str) -> Result<(), LimitsNotApplied> {
    if recorded == found {
        return Ok(());
    }
    let (planned, found) = (owned(Some(recorded)), owned(Some(found)));
    Err(mismatch(name, "image", planned, found, Proof::Inspect))
}

/// Compares quota and CPUs with what the kernel enforces at this moment.
///
/// Whether all that was planned could be read. **Errors**: the first that is not as planned.
pub fn compare_kernel_cpu(
    name: &str,
    service: &Service,
    cpu: &KernelCpu,
) -> Result<bool, LimitsNotApplied> {
    let fail = |which, planned, found| Err(mismatch(name, which, planned, found, Proof::Kernel));
    let mut is_whole = true;
    let planned_cpu = planned_nano_cpus(service);
    let found_cpu = match cpu.quota {
        KernelLimit::At(quota) => Some(Cpu::Quota(quota)),
        KernelLimit::Unlimited | KernelLimit::Unreadable => None,
    };
    if cpu.quota == KernelLimit::Unreadable {
        is_whole = false;
    } else if !is_same_cpu(planned_cpu, found_cpu) {
        return fail("cpus", planned_cpu.map(cores), found_cpu.map(Cpu::words));
    }
    // Without a plan the kernel shows the parent's CPUs, which say nothing of this container.
    if let Some(planned) = service.cpuset.as_deref().filter(|text| !text.is_empty()) {
        match cpu.cpuset.as_deref() {
            Some(found) if cpu_list(found) != cpu_list(planned) => {
                return fail("cpuset", owned(Some(planned)), owned(Some(found)));
            }
            Some(_) => {}
            None => is_whole = false,
        }
    }
    Ok(is_whole)
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
    let cpu = KernelCpu {
        quota: limits.cpu,
        cpuset: limits.cpuset.clone(),
    };
    if !compare_kernel_cpu(name, service, &cpu)? {
        proof = Proof::Inspect;
    }
    // Services without a limit share whatever their host leaves them; only a plan can be broken.
    if let (Some(planned), Some(outer)) = (planned_cpu, limits.outer_cpu)
        && outer.cores() * 1e9 < planned as f64
    {
        let found = format!("{}, set on a group around it", Cpu::Quota(outer).words());
        return fail("cpus", Some(cores(planned)), Some(found));
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
pub(super) enum Cpu {
    Nano(i64),
    Quota(CpuQuota),
}

impl Cpu {
    fn words(self) -> String {
        match self {
            Self::Nano(nano) => cores(nano),
            Self::Quota(quota) => format!(
                "{} ({} us in each {} us)",
                quota.cores(),
                quota.quota_us,
                quota.period_us
            ),
        }
    }
}

fn planned_nano_cpus(service: &Service) -> Option<i64> {
    service.cpu_cores().map(nano_cpus).filter(|nano| *nano > 0)
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

pub(super) fn is_same_cpu(planned_nano: Option<i64>, found: Option<Cpu>) -> bool {
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
pub(super) fn cpu_list(text: &str) -> Result<CpuSet, String> {
    text.parse().map_err(|_| text.to_owned())
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
