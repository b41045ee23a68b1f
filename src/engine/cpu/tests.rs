use std::collections::HashMap;
use std::fmt::Write as _;

use indexmap::IndexMap;

use super::*;
use crate::cpus::{CpuMode, CpuSet};
use crate::stack::{Service, Stack};

/// Files of a host as `path: text` lines; `cpu*` names are short for their topology folder.
pub(super) fn host(layout: &str, engine_cpus: Option<u32>) -> Topology {
    let mut files = HashMap::new();
    for line in layout.lines().filter(|line| !line.trim().is_empty()) {
        let (path, text) = line.trim().split_once(": ").unwrap();
        let path = match path.split_once(' ') {
            Some((cpu, file)) => format!("/sys/devices/system/cpu/{cpu}/topology/{file}"),
            None => path.to_owned(),
        };
        files.insert(path, text.to_owned());
    }
    Topology::parse(&|path| files.get(path).cloned(), engine_cpus).unwrap()
}

pub(super) const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The virtual machine this was written on: two CPUs, no siblings.
pub(super) fn two_cores() -> Topology {
    host(
        "/sys/devices/system/cpu/online: 0-1
         cpu0 thread_siblings_list: 0
         cpu0 physical_package_id: 0
         cpu1 thread_siblings_list: 1
         cpu1 physical_package_id: 0
         /sys/devices/system/node/online: 0
         /sys/devices/system/node/node0/cpulist: 0-1",
        Some(2),
    )
}

/// A desktop: siblings are n and n + 8.
pub(super) fn eight_cores_sixteen_threads() -> Topology {
    let mut text = format!("{ONLINE}: 0-15\n");
    for cpu in 0..16 {
        let _ = writeln!(
            text,
            "cpu{cpu} thread_siblings_list: {},{}",
            cpu % 8,
            cpu % 8 + 8
        );
        let _ = writeln!(text, "cpu{cpu} physical_package_id: 0");
    }
    host(&text, Some(16))
}

/// A server: even CPUs in package 0, odd ones in package 1, as many BIOSes number them.
pub(super) fn two_sockets() -> Topology {
    let mut text = format!("{ONLINE}: 0-15\n/sys/devices/system/node/online: 0-1\n");
    text.push_str("/sys/devices/system/node/node0/cpulist: 0,2,4,6,8,10,12,14\n");
    text.push_str("/sys/devices/system/node/node1/cpulist: 1,3,5,7,9,11,13,15\n");
    for cpu in 0..16 {
        let _ = writeln!(text, "cpu{cpu} core_cpus_list: {cpu}");
        let _ = writeln!(text, "cpu{cpu} physical_package_id: {}", cpu % 2);
    }
    host(&text, Some(16))
}

fn service(cpus: Option<f64>) -> Service {
    Service {
        cpus,
        ..Service::default()
    }
}

fn stack(app: Service, others: &[(&str, Service)]) -> Stack {
    let mut services = IndexMap::from([("app".to_owned(), app)]);
    for (name, service) in others {
        services.insert((*name).to_owned(), service.clone());
    }
    Stack {
        services,
        ..Stack::default()
    }
}

fn app_and_db(cpus: f64) -> Stack {
    stack(service(Some(cpus)), &[("db", service(None))])
}

struct Asked {
    topology: Topology,
    mode: CpuMode,
    reserve_cpus: Option<u32>,
    load_threads: usize,
    has_cpusets: bool,
}

fn on(topology: Topology) -> Asked {
    Asked {
        topology,
        mode: CpuMode::Quota,
        reserve_cpus: None,
        load_threads: 2,
        has_cpusets: true,
    }
}

impl Asked {
    fn cpuset(mut self) -> Self {
        self.mode = CpuMode::Cpuset;
        self
    }

    fn try_plan(&self, tiers: &[(&str, Vec<Stack>)]) -> Result<CpuPlan, CpuProblem> {
        plan_cpus(&CpuRequest {
            topology: self.topology.clone(),
            mode: self.mode,
            reserve_cpus: self.reserve_cpus,
            load_threads: self.load_threads,
            subject: "app",
            has_cpusets: self.has_cpusets,
            tiers: tiers
                .iter()
                .map(|(tier, stacks)| TierStacks {
                    tier: (*tier).to_owned(),
                    stacks: stacks.iter().collect(),
                })
                .collect(),
        })
    }

    /// A tier for each limit, with a database without one.
    fn plan(&self, limits: &[f64]) -> CpuPlan {
        let tiers: Vec<(String, Vec<Stack>)> = limits
            .iter()
            .map(|cpus| (cpus.to_string(), vec![app_and_db(*cpus)]))
            .collect();
        let tiers: Vec<(&str, Vec<Stack>)> = tiers
            .iter()
            .map(|(tier, stacks)| (tier.as_str(), stacks.clone()))
            .collect();
        self.try_plan(&tiers).unwrap()
    }
}

fn lines(plan: &CpuPlan) -> String {
    plan.lines("cpus").join("\n")
}

#[test]
fn on_two_cores_a_quota_confines_nobody_and_a_cpuset_is_what_was_asked_for() {
    // To press database and generator onto CPU 0 took 40 % of the throughput.
    let plan = on(two_cores()).plan(&[0.5, 1.0, 2.0]);
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-1 of this host in 2 cores
    cpu_mode quota: the subject's limit is a quota per period
    cpus = 0.5, 1: subject anywhere, other services anywhere, generator on CPUs 0-1
      shared: the subject shares CPUs 0-1 with the generator and other services; the cores are too few to keep them apart
    cpus = 2: subject anywhere, other services anywhere, generator on CPUs 0-1
      shared: the subject shares CPUs 0-1 with the generator and other services; its limit leaves no CPU to anybody else
    ");
    for cpus in [0.5, 1.0, 2.0] {
        let tier = cpus.to_string();
        assert!(plan.is_shared(&tier));
        assert_eq!(plan.apply(&tier, &app_and_db(cpus)), app_and_db(cpus));
    }

    let plan = on(two_cores()).cpuset().plan(&[1.0, 2.0]);
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-1 of this host in 2 cores
    cpu_mode cpuset: the subject gets as many CPUs as its limit says, and no quota
    cpus = 1: subject on CPU 1, other services on CPU 0, generator on CPU 0
      shared: the generator shares CPU 0 with other services
    cpus = 2: subject on CPUs 0-1, other services anywhere, generator on CPUs 0-1
      shared: the subject shares CPUs 0-1 with the generator and other services
      shared: the generator shares CPUs 0-1 with other services
    ");
    assert!(plan.is_shared("1") && plan.is_shared("2"));
    assert!(!plan.tiers["1"].subject_shares);
    assert_eq!(plan.generator_of("1").unwrap().to_string(), "0");
    // The threads that were pinned for tier 1 are let go for tier 2.
    assert_eq!(plan.generator_of("2").unwrap().to_string(), "0-1");
    let applied = plan.apply("1", &app_and_db(1.0));
    assert_eq!(applied.services["app"].cpuset.as_deref(), Some("1"));
    assert_eq!(applied.services["app"].cpus, None);
    assert_eq!(applied.services["db"].cpuset.as_deref(), Some("0"));
}

#[test]
fn a_tier_too_large_to_be_apart_does_not_take_it_from_the_smaller_ones() {
    let plan = on(host(&format!("{ONLINE}: 0-3"), Some(4))).plan(&[1.0, 2.0, 3.0]);
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-3 of this host in 4 cores
    cpu_mode quota: the subject's limit is a quota per period
    cpus = 1: subject on CPUs 2-3, other services on CPU 0, generator on CPU 1
    cpus = 2: subject on CPUs 2-3, other services on CPU 0, generator on CPU 1
      note: the subject may run on no more CPUs than its limit, so its quota hardly ever stops it
    cpus = 3: subject anywhere, other services anywhere, generator on CPUs 0-3
      shared: the subject shares CPUs 0-3 with the generator and other services; the cores are too few to keep them apart
    ");
    // Without a database two cores are enough.
    let alone = stack(service(Some(0.5)), &[]);
    let plan = on(two_cores()).try_plan(&[("0.5", vec![alone])]).unwrap();
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-1 of this host in 2 cores
    cpu_mode quota: the subject's limit is a quota per period
    cpus = 0.5: subject on CPU 1, generator on CPU 0
    ");
}

#[test]
fn whole_cores_are_handed_out_and_all_three_are_apart_where_there_are_enough() {
    let plan = on(eight_cores_sixteen_threads()).plan(&[2.0, 3.0, 8.0]);
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-15 of this host in 8 cores with siblings
    cpu_mode quota: the subject's limit is a quota per period
    cpus = 2, 3: subject on CPUs 4-7,12-15, other services on CPUs 0-2,8-10, generator on CPUs 3,11
    cpus = 8: subject on CPUs 4-7,12-15, other services on CPUs 0-2,8-10, generator on CPUs 3,11
      note: the subject may run on no more CPUs than its limit, so its quota hardly ever stops it
    ");
    let plan = on(eight_cores_sixteen_threads())
        .cpuset()
        .plan(&[2.0, 3.0, 8.0]);
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-15 of this host in 8 cores with siblings
    cpu_mode cpuset: the subject gets as many CPUs as its limit says, and no quota
    cpus = 2: subject on CPUs 7,15, other services on CPUs 0-2,8-10, generator on CPUs 3,11
    cpus = 3: subject on CPUs 7,14-15, other services on CPUs 0-2,8-10, generator on CPUs 3,11
    cpus = 8: subject on CPUs 4-7,12-15, other services on CPUs 0-2,8-10, generator on CPUs 3,11
    ");
    let applied = plan.apply("3", &app_and_db(3.0));
    assert_eq!(applied.services["app"].cpuset.as_deref(), Some("7,14-15"));
    assert_eq!(
        applied.services["app"].cpus, None,
        "no quota beside the CPUs"
    );
}

#[test]
fn a_subject_stays_in_one_socket_where_it_fits() {
    let plan = on(two_sockets()).plan(&[8.0]);
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-15 of this host in 16 cores, 2 packages, 2 NUMA nodes
    cpu_mode quota: the subject's limit is a quota per period
    cpus = 8: subject on CPUs 1,3,5,7,9,11,13,15, other services on CPUs 0,2,4,6,8,10, generator on CPUs 12,14
      note: the subject may run on no more CPUs than its limit, so its quota hardly ever stops it
    ");
}

#[test]
fn a_core_is_only_halved_where_there_is_no_other_and_that_is_said() {
    let one_core = host(
        "/sys/devices/system/cpu/online: 0-1
         cpu0 thread_siblings_list: 0-1
         cpu1 thread_siblings_list: 0-1",
        Some(2),
    );
    let plan = on(one_core).cpuset().plan(&[1.0]);
    assert!(plan.is_shared("1"));
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-1 of this host in 1 core with siblings
    cpu_mode cpuset: the subject gets as many CPUs as its limit says, and no quota
    cpus = 1: subject on CPU 1, other services on CPU 0, generator on CPU 0
      shared: the subject shares a core with the generator or other services, who run on its sibling 0
      shared: the generator shares CPU 0 with other services
    ");
}

#[test]
fn cpusets_of_the_file_are_kept_and_taken_from_nobody_else() {
    let own = |set: &str, cpus| Service {
        cpuset: Some(set.to_owned()),
        ..service(cpus)
    };
    let stack = stack(
        service(Some(2.0)),
        &[("db", own("6-7", None)), ("cache", service(Some(1.0)))],
    );
    let eight = host(&format!("{ONLINE}: 0-7"), Some(8));
    let plan = on(eight.clone())
        .try_plan(&[("2", vec![stack.clone()])])
        .unwrap();
    let applied = plan.apply("2", &stack);
    let sets: Vec<_> = applied
        .services
        .values()
        .map(|s| s.cpuset.clone().unwrap())
        .collect();
    assert_eq!(sets, ["4-5", "6-7", "0-1"]);
    assert_eq!(plan.generator.as_ref().unwrap().to_string(), "2-3");
    assert!(!plan.is_shared("2"));

    // The subject's own: it stays on it, in mode cpuset with its quota too.
    for mode in [CpuMode::Quota, CpuMode::Cpuset] {
        let stack = self::stack(own("0-3", Some(2.5)), &[("db", service(None))]);
        let asked = Asked {
            mode,
            ..on(eight.clone())
        };
        let plan = asked.try_plan(&[("x", vec![stack.clone()])]).unwrap();
        let applied = plan.apply("x", &stack);
        assert_eq!(applied.services["app"], stack.services["app"]);
        assert_eq!(applied.services["db"].cpuset.as_deref(), Some("4-5"));
        assert!(!plan.is_shared("x"));
    }

    // A file that puts the database on the subject's CPUs is obeyed, and it is said.
    let stack = self::stack(own("0-3", Some(2.0)), &[("db", own("3-4", None))]);
    let plan = on(eight).try_plan(&[("x", vec![stack])]).unwrap();
    assert_eq!(
        plan.tiers["x"].shared,
        ["the subject shares CPU 3 with other services"]
    );
}

#[test]
fn a_subject_without_a_limit_is_not_confined_and_that_is_said() {
    let free = stack(service(None), &[("db", service(Some(1.0)))]);
    let plan = on(two_cores())
        .try_plan(&[("x", vec![free.clone()])])
        .unwrap();
    assert_eq!(plan.apply("x", &free), free);
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-1 of this host in 2 cores
    cpu_mode quota: the subject's limit is a quota per period
    cpus = x: subject anywhere, other services anywhere, generator on CPUs 0-1
      shared: the subject shares CPUs 0-1 with the generator and other services; it has no CPU limit, so it can use all
    ");
}

#[test]
fn cpuset_mode_takes_whole_limits_and_needs_one() {
    let asked = on(two_cores()).cpuset();
    let error = asked.try_plan(&[("1", vec![app_and_db(1.0)]), ("1.5", vec![app_and_db(1.5)])]);
    let error = error.unwrap_err();
    insta::assert_snapshot!(format!("{error}\n{}", error.hint()), @r#"
    cpu_mode = cpuset gives whole CPUs, and service `app` is limited to 1.5 in tier 1.5
    sweep whole numbers of CPUs, or use cpu_mode = "quota"
    "#);
    let error = asked
        .try_plan(&[("x", vec![stack(service(None), &[])])])
        .unwrap_err();
    insta::assert_snapshot!(format!("{error}\n{}", error.hint()), @"
    cpu_mode = cpuset gives as many CPUs as the limit says, and service `app` has no `cpus`
    limit it: `cpus: ${cpus}` in the Compose file or an override
    ");
    let cannot = Asked {
        has_cpusets: false,
        ..on(two_cores()).cpuset()
    };
    let error = cannot
        .try_plan(&[("1", vec![app_and_db(1.0)])])
        .unwrap_err();
    insta::assert_snapshot!(format!("{error}\n{}", error.hint()), @r#"
    cpu_mode = cpuset: the engine cannot confine a container to CPUs
    use cpu_mode = "quota", or an engine on a host that can
    "#);
    // As many as there are: the number is kept, and everybody is on them.
    let plan = asked.plan(&[2.0]);
    let applied = plan.apply("2", &app_and_db(2.0));
    assert_eq!(applied.services["app"].cpuset.as_deref(), Some("0-1"));
    assert_eq!(
        (applied.services["app"].cpus, plan.is_shared("2")),
        (None, true)
    );
}

#[test]
fn an_engine_that_cannot_confine_is_said_and_changes_nothing() {
    let asked = Asked {
        has_cpusets: false,
        ..on(two_cores())
    };
    let plan = asked.plan(&[1.0]);
    assert_eq!(plan.apply("1", &app_and_db(1.0)), app_and_db(1.0));
    assert_eq!(
        (plan.generator.clone(), plan.generator_of("1")),
        (None, None)
    );
    insta::assert_snapshot!(lines(&plan), @"
    CPUs 0-1 of this host in 2 cores
    cpu_mode quota: the subject's limit is a quota per period
    cpus = 1: subject anywhere, other services anywhere, generator anywhere
      shared: the subject shares CPUs 0-1 with the generator and other services
    nothing is kept on CPUs of its own: the engine cannot confine a container to CPUs
    ");
}

#[test]
fn an_engine_elsewhere_has_no_generator_beside_it() {
    let plan = on(Topology::of_count(4)).plan(&[1.0, 3.0]);
    insta::assert_snapshot!(lines(&plan), @"
    4 CPUs of an engine whose topology is not known
    cpu_mode quota: the subject's limit is a quota per period
    cpus = 1: subject on CPUs 1-3, other services on CPU 0, generator on another kernel
    cpus = 3: subject on CPUs 1-3, other services on CPU 0, generator on another kernel
      note: the subject may run on no more CPUs than its limit, so its quota hardly ever stops it
    ");
    assert_eq!(plan.generator_of("1"), None);
}

#[test]
fn reserved_cpus_are_kept_for_the_generator_and_a_wish_too_large_is_said() {
    let sixteen = || host(&format!("{ONLINE}: 0-15"), Some(16));
    let mut asked = on(sixteen());
    asked.reserve_cpus = Some(4);
    let plan = asked.plan(&[4.0]);
    assert_eq!(plan.generator.as_ref().unwrap().to_string(), "8-11");
    assert_eq!(plan.tiers["4"].others.as_ref().unwrap().to_string(), "0-7");
    assert!(plan.notes.is_empty());
    asked.reserve_cpus = Some(32);
    let plan = asked.plan(&[4.0]);
    assert_eq!(
        plan.notes,
        [
            "reserve_cpus = 32, and the generator gets none of its own: the host has too few CPUs for that"
        ]
    );
    // Generator first: what is left is too little for a database of its own.
    asked.topology = host(&format!("{ONLINE}: 0-3"), Some(4));
    asked.reserve_cpus = Some(2);
    let plan = asked.plan(&[2.0]);
    assert_eq!(
        plan.notes,
        [
            "reserve_cpus = 2, and the generator gets none of its own: the host has too few CPUs for that"
        ]
    );
}

#[test]
fn limits_of_other_services_are_left_room_for() {
    let tier = |cpus: f64| {
        stack(
            service(Some(cpus)),
            &[("db", service(Some(2.5))), ("cache", service(Some(1.0)))],
        )
    };
    let plan = on(host(&format!("{ONLINE}: 0-7"), Some(8)))
        .try_plan(&[("2", vec![tier(2.0)]), ("3", vec![tier(3.0)])])
        .unwrap();
    // 8 - 3 = 5; database and cache want 4, so the generator has one for its two threads.
    let cpus = &plan.tiers["2"];
    assert_eq!(cpus.others.as_ref().unwrap().to_string(), "0-3");
    assert_eq!(cpus.generator.as_ref().unwrap().to_string(), "4");
    assert_eq!(cpus.subject.as_ref().unwrap().to_string(), "5-7");
    assert_eq!(plan.tiers["3"].others, cpus.others, "the same in all tiers");
}

#[test]
fn cells_of_a_tier_share_one_plan_and_in_cpuset_mode_each_has_its_number() {
    let tier = vec![app_and_db(1.0), app_and_db(4.0)];
    let eight = host(&format!("{ONLINE}: 0-7"), Some(8));
    let set = |asked: Asked, cpus: f64| {
        let plan = asked.try_plan(&[("x", tier.clone())]).unwrap();
        plan.apply("x", &app_and_db(cpus)).services["app"]
            .cpuset
            .clone()
            .unwrap()
    };
    assert_eq!(
        [set(on(eight.clone()), 1.0), set(on(eight.clone()), 4.0)],
        ["4-7", "4-7"]
    );
    assert_eq!(
        [
            set(on(eight.clone()).cpuset(), 1.0),
            set(on(eight).cpuset(), 4.0)
        ],
        ["7", "4-7"]
    );
}

#[test]
fn the_generator_goes_where_this_process_may_run() {
    let text = format!("{ONLINE}: 0-7\n/proc/self/status: Cpus_allowed_list:\t6-7");
    let plan = on(host(&text, Some(8))).plan(&[4.0]);
    assert_eq!(plan.generator.as_ref().unwrap().to_string(), "6-7");
    assert_eq!(plan.tiers["4"].subject.as_ref().unwrap().to_string(), "2-5");
    assert_eq!(plan.tiers["4"].others.as_ref().unwrap().to_string(), "0-1");
    assert!(!plan.is_shared("4"));
}

proptest::proptest! {
    /// Whatever is asked: nobody gets a CPU that is not there, and what is not said is apart.
    #[test]
    fn nobody_gets_what_is_not_there_and_what_is_not_said_is_apart(
        n_cores in 1_u32..12,
        threads_per_core in 1_u32..3,
        limits in proptest::collection::vec(1_u32..40, 1..4),
        reserve in proptest::option::of(1_u32..6),
        is_cpuset in proptest::bool::ANY,
        db in proptest::option::of(1_u32..5),
    ) {
        let n = n_cores * threads_per_core;
        let mut text = format!("{ONLINE}: 0-{}\n", n - 1);
        for cpu in 0..n {
            let core: CpuSet = (0..threads_per_core).map(|t| cpu % n_cores + t * n_cores).collect();
            let _ = writeln!(text, "cpu{cpu} thread_siblings_list: {core}");
        }
        let topology = host(&text, Some(n));
        let step = if is_cpuset { 1.0 } else { 0.5 };
        let limits: Vec<f64> = limits.iter().map(|n| f64::from(*n) * step).collect();
        let asked = Asked {
            mode: if is_cpuset { CpuMode::Cpuset } else { CpuMode::Quota },
            reserve_cpus: reserve,
            ..on(topology.clone())
        };
        let stacks: Vec<Stack> = limits
            .iter()
            .map(|cpus| stack(service(Some(*cpus)), &[("db", service(db.map(f64::from)))]))
            .collect();
        let names: Vec<String> = (0..stacks.len()).map(|n| n.to_string()).collect();
        let tiers: Vec<(&str, Vec<Stack>)> = names
            .iter()
            .zip(&stacks)
            .map(|(name, stack)| (name.as_str(), vec![stack.clone()]))
            .collect();
        let plan = asked.try_plan(&tiers).unwrap();
        for (name, (stack, limit)) in names.iter().zip(stacks.iter().zip(&limits)) {
            let applied = plan.apply(name, stack);
            let set = |service: &str| applied.services[service].cpuset.as_ref().map(|text| text.parse::<CpuSet>().unwrap());
            let (app, db) = (set("app"), set("db"));
            for set in [&app, &db].into_iter().flatten().chain(plan.generator_of(name)) {
                proptest::prop_assert!(!set.is_empty() && set.without(&topology.cpus).is_empty(), "{set}");
            }
            if let Some(app) = &app {
                proptest::prop_assert!(app.len() as f64 >= *limit);
                proptest::prop_assert!(!is_cpuset || app.len() == *limit as usize);
            }
            let generator = plan.generator_of(name).unwrap();
            let app = app.unwrap_or_else(|| topology.cpus.clone());
            let db = db.unwrap_or_else(|| topology.cpus.clone());
            let is_apart = app.common(&db).is_empty() && app.common(generator).is_empty();
            proptest::prop_assert!(is_apart || plan.is_shared(name), "{}", lines(&plan));
            let is_apart_too = is_apart && db.common(generator).is_empty();
            if is_cpuset {
                // Where the host has a CPU more than the subject, the subject is alone.
                proptest::prop_assert!(is_apart || *limit > f64::from(n) - 1.0, "{}", lines(&plan));
            } else {
                let all = topology.cpus.len();
                let is_free = [&app, &db, generator].iter().all(|set| set.len() == all);
                proptest::prop_assert!(is_apart_too || is_free, "{}", lines(&plan));
            }
        }
    }
}

/// Two containers of two CPUs each.
fn two_of_two() -> Stack {
    let mut stack = stack(service(Some(2.0)), &[("db", service(Some(1.0)))]);
    stack.services["app"].replicas = Some(2);
    stack
}

#[test]
fn limits_that_add_up_to_more_than_there_is_are_said_of_the_whole_stack() {
    let tiers = [
        ("1", vec![app_and_db(1.0)]),
        ("4", vec![app_and_db(1.0), two_of_two()]),
    ];
    let plan = on(two_cores()).try_plan(&tiers).unwrap();
    let told = plan.warnings("cpus");
    assert!(told.contains(&"cpus = 4: limits of the stack add up to 5 of 2 CPUs".to_owned()));
}

#[test]
fn containers_whose_cpus_of_their_own_are_too_few_are_owed_them_and_a_quota_is_no_substitute() {
    let tiers = [("2", vec![app_and_db(2.0)]), ("4", vec![two_of_two()])];
    for (asked, owed) in [
        (on(two_cores()).cpuset(), [false, true]),
        (on(two_cores()), [false, false]),
    ] {
        let plan = asked.try_plan(&tiers).unwrap();
        let is_owed = tiers.iter().map(|(tier, stacks)| {
            let launched = plan.apply(tier, &stacks[0]);
            plan.owes_cpus_to("app", &launched.services["app"])
        });
        assert_eq!(is_owed.collect::<Vec<_>>(), owed);
    }
}
