//! Every limit, changed in every place it can be read from.

use proptest::prelude::*;

use super::compare::{Cpu, cpu_list, is_same_cpu};
use super::{
    Proof, changed_variables, compare_environment, compare_image, compare_inspection,
    compare_kernel, compare_kernel_cpu, nano_cpus,
};
use crate::cpus::CpuSet;
use crate::engine::{CpuQuota, KernelCpu, KernelLimit, KernelLimits, Limits};
use crate::stack::Service;

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
        outer_cpu: None,
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
        outer_cpu: None,
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
        outer_cpu: None,
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
fn a_quota_around_the_container_binds_a_plan_above_it_and_no_other() {
    let around = |quota_us| KernelLimits {
        outer_cpu: Some(CpuQuota {
            quota_us,
            period_us: 100_000,
        }),
        ..enforced()
    };
    assert_eq!(
        compare_kernel("app", &limited(), &around(50_000)),
        Ok(Proof::Kernel)
    );
    let error = compare_kernel("app", &limited(), &around(40_000)).unwrap_err();
    assert_eq!(
        error.found,
        "0.4 (40000 us in each 100000 us), set on a group around it"
    );
    let free = Service::default();
    let none = KernelLimits {
        cpu: KernelLimit::Unlimited,
        memory_bytes: KernelLimit::Unlimited,
        pids: KernelLimit::Unlimited,
        cpuset: None,
        ..around(40_000)
    };
    assert_eq!(compare_kernel("db", &free, &none), Ok(Proof::Kernel));
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

fn pairs(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    variables.iter().map(owned).collect()
}

fn with_variables() -> Service {
    Service {
        environment: pairs(&[("WEB_THREADS", "4"), ("EMPTY", "")])
            .into_iter()
            .collect(),
        ..Service::default()
    }
}

#[test]
fn a_variable_the_container_was_not_made_with_is_wrong_and_the_images_own_are_not() {
    let service = with_variables();
    let found = pairs(&[("PATH", "/bin"), ("EMPTY", ""), ("WEB_THREADS", "4")]);
    assert_eq!(compare_environment("app", &service, &found), Ok(()));
    let said = |found: &[(&str, &str)]| {
        compare_environment("app", &service, &pairs(found))
            .unwrap_err()
            .to_string()
    };
    insta::assert_snapshot!(said(&[("EMPTY", ""), ("WEB_THREADS", "8")]), @"service `app` should have environment WEB_THREADS=4 and has WEB_THREADS=8 (read from inspect)");
    insta::assert_snapshot!(said(&[("WEB_THREADS", "4"), ("WEB_THREADZ", "4")]), @"service `app` should have environment EMPTY= and has no EMPTY (read from inspect)");
}

#[test]
fn a_variable_the_process_has_otherwise_is_told_unless_its_memory_was_written_over() {
    let service = with_variables();
    let changed = |found: &[(&str, &str)]| {
        let changed = changed_variables(&service, &pairs(found));
        changed.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(
        changed(&[("WEB_THREADS", "4"), ("EMPTY", "")]),
        Some(vec![])
    );
    assert_eq!(
        changed(&[("WEB_THREADS", "2")]).unwrap(),
        ["WEB_THREADS", "EMPTY"]
    );
    // PostgreSQL and nginx show their state where their variables stood.
    assert_eq!(changed(&[("ostgres: checkpointer ", "")]), None);
    assert_eq!(changed_variables(&Service::default(), &[]), Some(vec![]));
}

#[test]
fn another_image_is_wrong() {
    assert_eq!(compare_image("app", "sha256:a", "sha256:a"), Ok(()));
    let error = compare_image("app", "sha256:a", "sha256:b").unwrap_err();
    insta::assert_snapshot!(error, @"service `app` should have image sha256:a and has sha256:b (read from inspect)");
}

#[test]
fn quota_and_cpus_alone_are_compared_while_a_window_is_open() {
    let now = |quota_us, cpuset: &str| KernelCpu {
        quota: KernelLimit::At(CpuQuota {
            quota_us,
            period_us: 100_000,
        }),
        cpuset: Some(cpuset.to_owned()),
    };
    let compare = |cpu: &KernelCpu| compare_kernel_cpu("app", &limited(), cpu);
    assert_eq!(compare(&now(50_000, "0-1,3")), Ok(true));
    assert_eq!(
        compare(&KernelCpu::default()),
        Ok(false),
        "what cannot be read is not judged"
    );
    assert_eq!(compare(&now(60_000, "0-1,3")).unwrap_err().which, "cpus");
    assert_eq!(compare(&now(50_000, "0-3")).unwrap_err().which, "cpuset");
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
        let set: CpuSet = cpus.into_iter().collect();
        prop_assert_eq!(cpu_list(&listed), Ok(set.clone()));
        prop_assert_eq!(cpu_list(&ranges), Ok(set));
    }
}
