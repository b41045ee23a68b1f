//! Control groups as files of a folder.

use super::*;

const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:5 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const V2_MOUNTS: &str =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

fn id() -> ContainerId {
    ContainerId("41e38747".to_owned())
}

#[test]
fn version_1_has_a_folder_per_controller() {
    let membership = "9:name=systemd:/docker/41e38747\n4:memory:/docker/41e38747\n\
        3:cpuset:/docker/41e38747\n2:cpu,cpuacct:/docker/41e38747\n0::/docker/41e38747\n";
    assert_eq!(
        locate(membership, V1_MOUNTS, &id()),
        Some(Cgroup::V1 {
            cpu: "/sys/fs/cgroup/cpu,cpuacct/docker/41e38747".into(),
            cpuacct: "/sys/fs/cgroup/cpu,cpuacct/docker/41e38747".into(),
            cpuset: Some("/sys/fs/cgroup/cpuset/docker/41e38747".into()),
            memory: Some("/sys/fs/cgroup/memory/docker/41e38747".into()),
            pids: None,
        })
    );
}

#[test]
fn version_2_has_one_folder_and_a_mount_may_show_a_part_of_the_tree() {
    let membership = "0::/system.slice/docker-41e38747.scope\n";
    let found = |mounts| locate(membership, mounts, &id());
    assert_eq!(
        found(V2_MOUNTS),
        Some(Cgroup::V2 {
            unified: "/sys/fs/cgroup/system.slice/docker-41e38747.scope".into()
        })
    );
    let part = "30 23 0:26 /system.slice /cg rw - cgroup2 cgroup2 rw\n";
    assert_eq!(
        found(part),
        Some(Cgroup::V2 {
            unified: "/cg/docker-41e38747.scope".into()
        })
    );
    let other_part = "30 23 0:26 /user.slice /cg rw - cgroup2 cgroup2 rw\n";
    assert_eq!(found(other_part), None);
}

#[test]
fn a_process_of_another_container_or_host_is_never_read() {
    assert_eq!(locate("0::/init.scope\n", V2_MOUNTS, &id()), None);
    assert_eq!(locate("0::/docker/ffff\n", V2_MOUNTS, &id()), None);
    assert_eq!(
        locate("0::/docker/ffff\n", V2_MOUNTS, &ContainerId(String::new())),
        None
    );
    assert_eq!(
        read_kernel_limits(i64::from(std::process::id()), &id()),
        None
    );
    assert_eq!(read_kernel_limits(0, &id()), None);
}

fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs_err::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn v1(folder: &tempfile::TempDir) -> Cgroup {
    let path = folder.path().to_owned();
    Cgroup::V1 {
        cpu: path.clone(),
        cpuacct: path.clone(),
        cpuset: Some(path.clone()),
        memory: Some(path.clone()),
        pids: Some(path),
    }
}

#[test]
fn version_1_files_are_read_with_their_units() {
    let folder = files(&[
        ("cpu.cfs_quota_us", "50000\n"),
        ("cpu.cfs_period_us", "100000\n"),
        ("cpuset.cpus", "0-1\n"),
        ("memory.limit_in_bytes", "67108864\n"),
        ("pids.max", "max\n"),
        (
            "cpu.stat",
            "nr_periods 10\nnr_throttled 4\nthrottled_time 123456789\n",
        ),
        ("cpuacct.usage", "987654321\n"),
        ("memory.usage_in_bytes", "5000\n"),
        ("memory.max_usage_in_bytes", "9000\n"),
        (
            "memory.stat",
            "cache 3\ninactive_file 1\ntotal_inactive_file 1000\n",
        ),
    ]);
    let cgroup = v1(&folder);
    assert_eq!(
        cgroup.limits(),
        KernelLimits {
            cpu: KernelLimit::At(CpuQuota {
                quota_us: 50_000,
                period_us: 100_000
            }),
            outer_cpu: None,
            cpuset: Some("0-1".to_owned()),
            memory_bytes: KernelLimit::At(67_108_864),
            pids: KernelLimit::Unlimited,
        }
    );
    assert_eq!(
        cgroup.counters(),
        Some(Counters {
            cpu_ns: 987_654_321,
            periods: 10,
            throttled_periods: 4,
            throttled_ns: 123_456_789,
            memory_bytes: 4_000,
            memory_peak_bytes: Some(9_000),
        })
    );
}

#[test]
fn version_2_microseconds_become_nanoseconds() {
    let folder = files(&[
        ("cpu.max", "150000 100000\n"),
        ("cpuset.cpus.effective", "0,2\n"),
        ("memory.max", "max\n"),
        ("pids.max", "512\n"),
        (
            "cpu.stat",
            "usage_usec 2500\nuser_usec 1\nnr_periods 7\nnr_throttled 2\nthrottled_usec 33\n",
        ),
        ("memory.current", "8000\n"),
        ("memory.stat", "anon 1\ninactive_file 3000\n"),
    ]);
    let cgroup = Cgroup::V2 {
        unified: folder.path().to_owned(),
    };
    assert_eq!(
        cgroup.limits(),
        KernelLimits {
            cpu: KernelLimit::At(CpuQuota {
                quota_us: 150_000,
                period_us: 100_000
            }),
            outer_cpu: None,
            cpuset: Some("0,2".to_owned()),
            memory_bytes: KernelLimit::Unlimited,
            pids: KernelLimit::At(512),
        }
    );
    assert_eq!(
        cgroup.counters(),
        Some(Counters {
            cpu_ns: 2_500_000,
            periods: 7,
            throttled_periods: 2,
            throttled_ns: 33_000,
            memory_bytes: 5_000,
            memory_peak_bytes: None,
        })
    );
}

#[test]
fn the_smallest_quota_of_the_groups_around_is_found() {
    let folder = files(&[("cpu.max", "300000 100000\n")]);
    let unified = folder.path().join("kubepods/pod/docker-41e38747.scope");
    fs_err::create_dir_all(&unified).unwrap();
    let write = |dir: &str, text: &str| {
        fs_err::write(folder.path().join(dir).join("cpu.max"), text).unwrap();
    };
    write("kubepods", "max 100000\n");
    write("kubepods/pod", "75000 50000\n");
    write("kubepods/pod/docker-41e38747.scope", "200000 100000\n");
    let limits = Cgroup::V2 { unified }.limits();
    let pod = CpuQuota {
        quota_us: 75_000,
        period_us: 50_000,
    };
    assert_eq!(limits.outer_cpu, Some(pod));
}

#[test]
fn no_limit_and_not_readable_are_two_things() {
    let folder = files(&[
        ("cpu.cfs_quota_us", "-1\n"),
        ("cpu.cfs_period_us", "100000\n"),
        ("memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    let limits = v1(&folder).limits();
    assert_eq!(limits.cpu, KernelLimit::Unlimited);
    assert_eq!(limits.memory_bytes, KernelLimit::Unlimited);
    assert_eq!(limits.pids, KernelLimit::Unreadable);
    assert_eq!(v1(&folder).counters(), None);
}
