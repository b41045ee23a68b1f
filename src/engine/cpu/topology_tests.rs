//! Which CPUs and cores there are, by the files of several machines.

use super::tests::{ONLINE, eight_cores_sixteen_threads, host, two_cores, two_sockets};
use super::*;

#[test]
fn layouts_are_read_as_whole_cores_in_the_order_of_the_machine() {
    let cores = |topology: &Topology| {
        let cores: Vec<String> = topology.cores.iter().map(ToString::to_string).collect();
        cores.join(" ")
    };
    let two = two_cores();
    assert_eq!(
        (cores(&two).as_str(), two.packages, two.nodes),
        ("0 1", 1, 1)
    );
    let desktop = eight_cores_sixteen_threads();
    assert_eq!(cores(&desktop), "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15");
    assert!(desktop.has_siblings());
    let server = two_sockets();
    assert_eq!(cores(&server), "0 2 4 6 8 10 12 14 1 3 5 7 9 11 13 15");
    assert_eq!((server.packages, server.nodes), (2, 2));
}

#[test]
fn cpus_that_are_off_are_nobodys_and_leave_their_sibling_alone() {
    // The kernel takes a CPU that is off out of its sibling's list; older ones do not.
    let topology = host(
        "/sys/devices/system/cpu/online: 0-2
         cpu0 thread_siblings_list: 0,2
         cpu1 thread_siblings_list: 1,3
         cpu2 thread_siblings_list: 0,2",
        Some(3),
    );
    assert_eq!(topology.cpus.to_string(), "0-2");
    let cores: Vec<String> = topology.cores.iter().map(ToString::to_string).collect();
    assert_eq!(cores, ["0,2", "1"]);
}

#[test]
fn a_cage_around_this_process_is_the_engines_only_when_their_counts_agree() {
    let text = format!("{ONLINE}: 0-7\n/proc/self/status: Cpus_allowed_list:\t4-5");
    // An engine in the same cage, such as Docker inside a container.
    let caged = host(&text, Some(2));
    assert_eq!(
        (caged.cpus.to_string(), caged.own.to_string()),
        ("4-5".into(), "4-5".into())
    );
    // `taskset` around this process alone: containers have all, the generator two.
    let own = host(&text, Some(8));
    assert_eq!(
        (own.cpus.to_string(), own.own.to_string()),
        ("0-7".into(), "4-5".into())
    );
    assert!(
        own.notes[0].contains("2 of the host's 8 CPUs (4-5)"),
        "{:?}",
        own.notes
    );
    // Two of eight, and nobody says which.
    let unknown = host(&format!("{ONLINE}: 0-7"), Some(2));
    assert_eq!(unknown.known, Known::Count);
    assert!(unknown.cores.is_empty());
    assert!(
        unknown.notes[0].contains("2 of this host's 8 CPUs"),
        "{:?}",
        unknown.notes
    );
}
