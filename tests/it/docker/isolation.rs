//! Whose CPUs are whose, seen where it counts: in the threads' own affinity.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::{Phases, Running, Testbed, docker, wait_until};

const SHORT: Phases = Phases {
    warm_up: 1,
    latency: None,
    stress: 5,
};

/// `Cpus_allowed_list` of all threads of a process, by their names.
fn threads_of(pid: &str) -> Vec<(String, String)> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .filter_map(|task| {
            let task = task.ok()?.path();
            let name = std::fs::read_to_string(task.join("comm"))
                .ok()?
                .trim()
                .to_owned();
            let status = std::fs::read_to_string(task.join("status")).ok()?;
            let list = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some((name, list.trim().to_owned()))
        })
        .collect()
}

fn cpus_of(list: &str) -> BTreeSet<u32> {
    list.split(',')
        .flat_map(|part| {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            low.parse::<u32>().unwrap()..=high.parse().unwrap()
        })
        .collect()
}

fn json_of(testbed: &Testbed, file: &str) -> String {
    std::fs::read_to_string(testbed.run_folder().join(file)).unwrap()
}

fn proofs_of(testbed: &Testbed) -> Vec<Value> {
    json_of(testbed, "proofs.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Lists of the subject's threads, the database's and ours, while a window is open.
fn seen_under_load(testbed: &Testbed, run: &[&str]) -> [Vec<(String, String)>; 3] {
    let mut command = testbed.command(run);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let own_pid = child.id().to_string();
    let running = Running::new(child);
    // Not those of the generator's self-test, which come before any container.
    wait_until(Duration::from_mins(1), || {
        !testbed.running("app").is_empty()
            && threads_of(&own_pid)
                .iter()
                .any(|(name, _)| name == "load-conductor")
    });
    std::thread::sleep(Duration::from_secs(2));
    let ours = threads_of(&own_pid);
    let pid_of =
        |service: &str| docker(&["inspect", "-f", "{{.State.Pid}}", &testbed.running(service)]);
    let seen = [threads_of(&pid_of("app")), threads_of(&pid_of("db")), ours];
    running.end(Duration::from_mins(1)).exits(0);
    testbed.assert_nothing_left();
    seen
}

#[test]
pub(super) fn threads_of_subject_and_generator_are_where_the_plan_says() {
    let n_cpus = std::thread::available_parallelism().unwrap().get();
    assert!(n_cpus > 1, "needs a CPU beside the subject's");
    // Subject, database and generator: with fewer, a quota confines nobody, and a cpuset
    // leaves the other two on what the subject does not have.
    let has_enough = n_cpus > 2;
    for mode in ["quota", "cpuset"] {
        let testbed = Testbed::new();
        testbed.matrix("cpus = [1]\nweb = [4]", SHORT, "");
        let [subject, db, ours] = seen_under_load(&testbed, &["run", "--cpu-mode", mode]);
        println!("{mode}: subject {subject:?}\ndatabase {db:?}\nours {ours:?}");
        assert!(
            subject.len() > 1 && ours.iter().any(|(name, _)| name == "load-0"),
            "{ours:?}"
        );
        let only = |threads: &[(String, String)]| -> BTreeSet<u32> {
            let lists: BTreeSet<&String> = threads.iter().map(|(_, list)| list).collect();
            assert_eq!(lists.len(), 1, "{threads:?}");
            cpus_of(lists.first().unwrap())
        };
        let (subject, ours) = (only(&subject), only(&ours));
        let is_apart = has_enough || mode == "cpuset";
        if is_apart {
            assert!(subject.is_disjoint(&ours), "{subject:?} {ours:?}");
            assert!(subject.is_disjoint(&only(&db)));
            assert!(!subject.contains(&0), "CPU 0 serves interrupts");
        } else {
            assert_eq!([subject.len(), only(&db).len(), ours.len()], [n_cpus; 3]);
        }

        let manifest: Value = serde_json::from_str(&json_of(&testbed, "run.json")).unwrap();
        let isolation = &manifest["isolation"];
        assert_eq!(isolation["mode"], mode);
        assert_eq!(isolation["tiers"]["1"]["subject_shares"], !is_apart);
        let planned = &isolation["tiers"]["1"]["subject"];
        assert_eq!(planned.is_string(), is_apart);
        assert!(!is_apart || cpus_of(planned.as_str().unwrap()) == subject);
        let app = &manifest["cells"][0]["stack"]["services"]["app"];
        assert_eq!(&app["cpuset"], planned);
        for row in testbed.rows() {
            let is_said = row.text("flags").contains("shared_cpus");
            assert_eq!(is_said, !has_enough, "{row:?}");
            assert_eq!(row.text("proof"), "kernel");
            assert_eq!(row.number("subject_cpu_limit_cores"), 1.0);
        }
        for line in proofs_of(&testbed) {
            let app = &line["services"]["app"];
            if is_apart {
                assert_eq!(&app["kernel"]["cpuset"], planned, "{line}");
                assert_eq!(&app["inspect"]["limits"]["cpuset"], planned);
            }
            let quota = if mode == "quota" { 1_000_000_000 } else { 0 };
            assert_eq!(app["inspect"]["limits"]["nano_cpus"], quota);
            assert_eq!(app["planned"]["cpus"].is_null(), mode == "cpuset");
        }
    }
}

#[test]
fn a_subject_that_leaves_no_cpu_shares_them_and_every_place_says_so() {
    let n_cpus = std::thread::available_parallelism().unwrap().get();
    let testbed = Testbed::new();
    testbed.matrix(&format!("cpus = [{n_cpus}]\nweb = [1]"), SHORT, "");
    let plan = testbed.run(&["plan", "--json"]).exits(0);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    let warned = plan["warnings"].as_array().unwrap().iter();
    assert!(
        warned
            .clone()
            .any(|w| w.as_str().unwrap().starts_with("shared CPUs")),
        "{plan}"
    );
    assert_eq!(
        plan["isolation"]["tiers"][n_cpus.to_string()]["subject_shares"],
        true
    );
    let plan = testbed.run(&["plan"]).exits(0);
    assert!(
        plan.stdout.contains("shared: the subject shares"),
        "{}",
        plan.stdout
    );

    let ended = testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    assert!(
        ended.stderr.contains("shared: the subject shares"),
        "{}",
        ended.stderr
    );
    for row in testbed.rows() {
        assert!(row.text("flags").contains("shared_cpus"), "{row:?}");
    }
    let manifest: Value = serde_json::from_str(&json_of(&testbed, "run.json")).unwrap();
    assert_eq!(
        manifest["isolation"]["tiers"][n_cpus.to_string()]["subject_shares"],
        true
    );
}

#[test]
fn a_fraction_of_a_cpu_has_no_cpuset() {
    let testbed = Testbed::new();
    testbed.matrix(
        "cpus = [0.5]\nweb = [4]",
        SHORT,
        "\n[host]\ncpu_mode = \"cpuset\"\n",
    );
    for command in ["check", "plan", "run"] {
        let ended = testbed.run(&[command]).exits(2);
        assert!(
            ended.stderr.contains("is limited to 0.5 in tier 0.5"),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("matrix.toml:"), "{}", ended.stderr);
    }
    // The flag wins.
    testbed.run(&["plan", "--cpu-mode", "quota"]).exits(0);
}
