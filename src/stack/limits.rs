//! CPU, memory and process limits, in both places where Compose has them.
//!
//! A limit that is not what the user meant makes every number of a sweep wrong,
//! so each is checked against what an engine accepts. Pure.

use super::devices;
use super::field::Field;
use super::model::Service;
use super::notes::Notes;

/// Smallest CPU limit an engine takes. **Source**: Docker Engine, "range of CPUs is from 0.01".
const LEAST_CPUS: f64 = 0.01;

/// Smallest memory limit an engine takes. **Source**: Docker Engine, 6 MiB since 20.10.
const LEAST_MEMORY_BYTES: u64 = 6 << 20;

/// What an engine and the kernel take for a period. **Source**: Docker Engine, 1 ms to 1 s.
const PERIOD_US: (i64, i64) = (1_000, 1_000_000);

/// A quota has no upper bound: it is cores times the period.
const QUOTA_US: (i64, i64) = (1_000, i64::MAX);

const REAL_TIME_RULE: &str =
    "needs a kernel with real-time group scheduling; without it the engine refuses the container";

/// Far beyond what one host holds; a slip of the keys is caught.
const MOST_REPLICAS: i64 = 1000;

/// As under Compose; said, since who sweeps a limit hardly means none.
const ZERO_RULE: &str =
    "0 sets no limit: the service may use all that the host has (remove the key if that is meant)";

const SWARM_RULE: &str = "only a swarm uses this; it has no effect here";

/// Reads `cpus`, `mem_limit`, `pids_limit`, `cpuset`, `scale` and `deploy`.
pub(super) fn read(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    service.cpus = root.get("cpus").and_then(|field| cpus(&field, notes));
    service.mem_limit = root
        .get("mem_limit")
        .and_then(|field| memory(&field, notes));
    service.pids_limit = root.get("pids_limit").and_then(|field| pids(&field, notes));
    service.cpuset = root.get("cpuset").and_then(|field| cpuset(&field, notes));
    service.mem_reservation = root
        .get("mem_reservation")
        .and_then(|field| field.bytes(notes));
    service.replicas = root.get("scale").and_then(|field| replicas(&field, notes));
    read_quota(root, service, notes);
    read_memory(root, service, notes);
    let integer = |key, from, to, notes: &mut Notes| {
        root.get(key)
            .and_then(|field: Field<'_>| bounded(&field, from, to, notes))
    };
    service.cpu_shares = integer("cpu_shares", 0, 262_144, notes);
    service.oom_score_adj = integer("oom_score_adj", -1000, 1000, notes);
    service.mem_swappiness = integer("mem_swappiness", 0, 100, notes);
    if let Some(deploy) = root.get("deploy") {
        read_deploy(root, &deploy, service, notes);
    }
    if let (Some(limit), Some(reserved)) = (service.mem_limit, service.mem_reservation)
        && reserved > limit
    {
        root.problem(notes, "the memory reservation is larger than the limit");
    }
    check_quota(root, service, notes);
    check_swap(root, service, notes);
    // One container is what a service has anyway.
    service.replicas = service.replicas.filter(|count| *count != 1);
}

/// The lower-level forms of a CPU limit.
fn read_quota(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    let mut time = |key, (least, most): (i64, i64)| {
        let field: Field<'_> = root.get(key)?;
        let us = microseconds(&field, notes)?;
        // 0, and for a quota -1, are how files say that there is none.
        let is_none = us == 0 || (us == -1 && key == "cpu_quota");
        if !is_none && !(least..=most).contains(&us) {
            field.problem(
                notes,
                format_args!("{us} us are out of range (allowed: {least} us to {most} us)"),
            );
        }
        (!is_none).then_some(us)
    };
    service.cpu_quota = time("cpu_quota", QUOTA_US);
    service.cpu_period = time("cpu_period", PERIOD_US);
    service.cpu_rt_runtime = time("cpu_rt_runtime", (1, i64::MAX));
    service.cpu_rt_period = time("cpu_rt_period", (1, i64::MAX));
    for key in ["cpu_rt_runtime", "cpu_rt_period"] {
        if let Some(field) = root.get(key) {
            notes.rule(REAL_TIME_RULE, field.to_string());
        }
    }
}

/// The engine takes a limit in one form only.
fn check_quota(root: &Field<'_>, service: &Service, notes: &mut Notes) {
    for (key, value) in [
        ("cpu_quota", service.cpu_quota),
        ("cpu_period", service.cpu_period),
    ] {
        if let (Some(field), Some(_), Some(_)) = (root.get(key), value, service.cpus) {
            field.problem_with_hint(
                notes,
                "cannot stand beside `cpus`: the engine takes one form of the limit",
                keep_one(&field),
            );
        }
    }
    if let (Some(field), None, Some(_)) = (
        root.get("cpu_period"),
        service.cpu_quota,
        service.cpu_period,
    ) {
        notes.rule(
            "a period without `cpu_quota` is no limit",
            field.to_string(),
        );
    }
    if let (Some(field), Some(runtime), Some(period)) = (
        root.get("cpu_rt_runtime"),
        service.cpu_rt_runtime,
        service.cpu_rt_period,
    ) && runtime > period
    {
        field.problem(notes, "is longer than `cpu_rt_period`");
    }
}

/// A number of microseconds, or a duration. **Units**: microseconds.
fn microseconds(field: &Field<'_>, notes: &mut Notes) -> Option<i64> {
    let is_duration = field
        .node
        .as_text()
        .is_some_and(|text| text.trim().ends_with(|c: char| c.is_ascii_alphabetic()));
    if is_duration {
        return i64::try_from(field.duration(notes)?.as_micros()).ok();
    }
    field.integer(notes)
}

/// Memory and swap together; -1 is no limit.
fn read_memory(root: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    service.memswap_limit = root.get("memswap_limit").and_then(|field| {
        if field.node.as_text() == Some("-1") {
            return Some(-1);
        }
        i64::try_from(field.bytes(notes)?).ok()
    });
}

/// The engine refuses a limit of both that is no limit of memory, or below it.
fn check_swap(root: &Field<'_>, service: &Service, notes: &mut Notes) {
    let (Some(field), Some(both)) = (root.get("memswap_limit"), service.memswap_limit) else {
        return;
    };
    match service.mem_limit {
        None if both > 0 => field.problem(notes, "needs `mem_limit` beside it"),
        Some(memory) if both > 0 && u64::try_from(both).is_ok_and(|both| both < memory) => {
            field.problem(
                notes,
                "is memory and swap together, and less than `mem_limit`",
            );
        }
        _ => {}
    }
}

fn bounded(field: &Field<'_>, from: i64, to: i64, notes: &mut Notes) -> Option<i64> {
    let value = field.integer(notes)?;
    if !(from..=to).contains(&value) {
        field.problem(
            notes,
            format_args!("`{value}` is out of range (allowed: {from} to {to})"),
        );
        return None;
    }
    Some(value)
}

fn read_deploy(root: &Field<'_>, deploy: &Field<'_>, service: &mut Service, notes: &mut Notes) {
    for field in deploy.entries(notes) {
        if field.node.is_null() {
            continue;
        }
        match field.key() {
            "replicas" => {
                let value = replicas(&field, notes);
                service.replicas = agreed(root, "scale", service.replicas, &field, value, notes);
            }
            "resources" => read_resources(root, &field, service, notes),
            "mode" if field.node.as_text() == Some("replicated") => {}
            // One host: one container, which is what a service has anyway.
            "mode" if field.node.as_text() == Some("global") => {
                notes.rule(SWARM_RULE, field.to_string());
            }
            "mode" => field.problem(
                notes,
                "must be `replicated` or `global`: jobs belong to a swarm",
            ),
            "restart_policy" => notes.rule(super::service::RESTART_RULE, field.to_string()),
            "labels" | "placement" | "update_config" | "rollback_config" | "endpoint_mode" => {
                notes.rule(SWARM_RULE, field.to_string());
            }
            key if key.starts_with("x-") => {}
            _ => field.unknown(
                &[
                    "replicas",
                    "resources",
                    "mode",
                    "restart_policy",
                    "labels",
                    "placement",
                ],
                notes,
            ),
        }
    }
}

fn read_resources(
    root: &Field<'_>,
    resources: &Field<'_>,
    service: &mut Service,
    notes: &mut Notes,
) {
    resources.check_keys(&["limits", "reservations"], notes);
    if let Some(limits) = resources.get("limits") {
        limits.check_keys(&["cpus", "memory", "pids"], notes);
        if let Some(field) = limits.get("cpus") {
            let value = cpus(&field, notes);
            service.cpus = agreed(root, "cpus", service.cpus, &field, value, notes);
        }
        if let Some(field) = limits.get("memory") {
            let value = memory(&field, notes);
            service.mem_limit = agreed(root, "mem_limit", service.mem_limit, &field, value, notes);
        }
        if let Some(field) = limits.get("pids") {
            let value = pids(&field, notes);
            service.pids_limit =
                agreed(root, "pids_limit", service.pids_limit, &field, value, notes);
        }
    }
    let Some(reservations) = resources.get("reservations") else {
        return;
    };
    for field in reservations.entries(notes) {
        match field.key() {
            "memory" => {
                let value = field.bytes(notes);
                let known = service.mem_reservation;
                service.mem_reservation =
                    agreed(root, "mem_reservation", known, &field, value, notes);
            }
            "devices" => service.gpus.extend(devices::reserved(&field, notes)),
            "cpus" | "generic_resources" => notes.rule(SWARM_RULE, field.to_string()),
            _ => field.unknown(&["cpus", "memory", "devices"], notes),
        }
    }
}

/// The value of the two places, which must not differ.
fn agreed<'f, T: PartialEq + Copy>(
    root: &'f Field<'f>,
    plain_key: &'f str,
    plain: Option<T>,
    nested_field: &Field<'_>,
    nested: Option<T>,
    notes: &mut Notes,
) -> Option<T> {
    if let (Some(first), Some(second)) = (plain, nested)
        && first != second
    {
        let place = root.get(plain_key).map(|field| field.place().to_string());
        nested_field.problem_with_hint(
            notes,
            format_args!(
                "differs from `{plain_key}` at {}",
                place.unwrap_or_default()
            ),
            keep_one(nested_field),
        );
    }
    nested.or(plain)
}

/// What to do about two values of one setting.
fn keep_one(field: &Field<'_>) -> &'static str {
    if field.node.mark.is_inline() {
        "keep one of them"
    } else {
        "keep one of them; in a later file `!reset null` takes the other away"
    }
}

fn replicas(field: &Field<'_>, notes: &mut Notes) -> Option<u32> {
    bounded(field, 0, MOST_REPLICAS, notes).and_then(|count| u32::try_from(count).ok())
}

fn cpus(field: &Field<'_>, notes: &mut Notes) -> Option<f64> {
    let cores = field.number(notes)?;
    if cores == 0.0 {
        notes.rule(ZERO_RULE, field.to_string());
        return None;
    }
    if cores < LEAST_CPUS {
        field.problem(
            notes,
            format_args!("`{cores}` is less than {LEAST_CPUS} cores"),
        );
        return None;
    }
    Some(cores)
}

fn memory(field: &Field<'_>, notes: &mut Notes) -> Option<u64> {
    let bytes = field.bytes(notes)?;
    if bytes == 0 {
        notes.rule(ZERO_RULE, field.to_string());
        return None;
    }
    if bytes < LEAST_MEMORY_BYTES {
        field.problem(
            notes,
            format_args!("{bytes} bytes are less than the 6 MiB an engine needs"),
        );
        return None;
    }
    Some(bytes)
}

/// `-1` and `0` are no limit.
fn pids(field: &Field<'_>, notes: &mut Notes) -> Option<i64> {
    let count = field.integer(notes)?;
    if count < -1 {
        field.problem(
            notes,
            format_args!("`{count}` is not a count (allowed: 1 or more, 0 or -1 for no limit)"),
        );
        return None;
    }
    if count == 0 {
        notes.rule(ZERO_RULE, field.to_string());
    }
    (count > 0).then_some(count)
}

/// `0-3,5`
fn cpuset(field: &Field<'_>, notes: &mut Notes) -> Option<String> {
    let text = field.filled_text(notes)?;
    let is_number = |part: &str| part.parse::<u16>().ok();
    let fits = text
        .split(',')
        .all(|part| match part.trim().split_once('-') {
            Some((first, last)) => {
                matches!((is_number(first), is_number(last)), (Some(a), Some(b)) if a <= b)
            }
            None => is_number(part.trim()).is_some(),
        });
    if !fits {
        field.problem(
            notes,
            format_args!("`{text}` is not a list of CPUs such as 0-3,5"),
        );
        return None;
    }
    Some(text)
}
