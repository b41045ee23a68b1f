//! Many launches in a row, while somebody kills containers, or nightsweep itself.
//!
//! `cargo xtask prove launches` runs the same test for longer: `NIGHTSWEEP_TEST_LAUNCHES`
//! launches, `NIGHTSWEEP_TEST_SEED`, and a report to the file `NIGHTSWEEP_TEST_REPORT`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Running, Testbed, docker, wait_until};

/// Longest time for one trial, its deadlines included: beyond it something hangs.
const LONGEST_TRIAL: Duration = Duration::from_mins(1);

/// A subject, a neighbour with a volume, and a one-shot before both; nothing that boots slowly.
const STACK: &str = r#"
services:
  app:
    image: ${TESTBED_IMAGE:-nightsweep/testbed:local}
    cpus: ${cpus}
    environment: { PGHOST: 127.0.0.1, DB_START_TIMEOUT_S: "3600" }
    depends_on:
      init: { condition: service_completed_successfully }
      side: { condition: service_started }
  side:
    image: ${TESTBED_IMAGE:-nightsweep/testbed:local}
    environment: { PGHOST: 127.0.0.1, DB_START_TIMEOUT_S: "3600" }
    volumes: ["data:/data"]
  init:
    image: ${POSTGRES_IMAGE}
    entrypoint: ["pg_isready", "--version"]
volumes:
  data:
"#;

fn matrix(repeats: u32) -> String {
    format!(
        "format = 1\n\n[sweep]\nname = \"launches\"\nstack = [\"compose.yaml\"]\nsubject = \"app\"\ntier = \"cpus\"\n\n\
         [axes]\ncpus = [1]\n\n[trials]\nrepeats = {repeats}\norder = \"listed\"\nready_timeout = \"10s\"\nmax_consecutive_failures = 0\n\n\
         [load]\nworkload = \"workload.toml\"\ntarget = \"http://app:8080\"\n\
         ready = {{ path = \"/metrics\", status = 200 }}\ntimeout = \"2s\"\ndrain = \"1s\"\n\n\
         [[phase]]\nname = \"stress\"\nwindow = true\nanswers = \"capacity\"\nclosed = {{ users = 2 }}\nduration = \"1s\"\n"
    )
}

const WORKLOAD: &str = "[[step]]\nname = \"metrics\"\nmethod = \"GET\"\npath = \"/metrics\"\nexpect = { status = 200 }\n";

/// Numbers that look random and come again with the seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn pause_ms(&mut self, from: u64, to: u64) {
        let pause = Duration::from_millis(from + self.below(to - from));
        std::thread::sleep(pause);
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn seed() -> u64 {
    setting("NIGHTSWEEP_TEST_SEED", 1)
}

fn write_sweep(testbed: &Testbed, repeats: u32) {
    testbed.sandbox.write("compose.yaml", STACK);
    testbed.sandbox.write("workload.toml", WORKLOAD);
    testbed.sandbox.write("matrix.toml", &matrix(repeats));
}

/// `docker ARGUMENTS` for what may be gone by the time it is asked for.
fn try_docker(arguments: &[&str]) -> Option<String> {
    let output = Command::new("docker").args(arguments).output().unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Does something to a random container of a run; what, when there was one and it worked.
fn disturb(dice: &mut Dice, run: &str) -> Option<String> {
    let filter = format!("label=nightsweep.run={run}");
    let all = try_docker(&["ps", "-aq", "--filter", &filter])?;
    let ids: Vec<&str> = all.lines().collect();
    if ids.is_empty() {
        return None;
    }
    let id = ids[usize::try_from(dice.below(ids.len() as u64)).unwrap()];
    let format = "{{index .Config.Labels \"nightsweep.service\"}} {{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}";
    let seen = try_docker(&["inspect", "--format", format, id])?;
    let (service, network) = seen.split_once(' ').unwrap_or((&seen, ""));
    let (what, arguments) = match dice.below(6) {
        0 | 1 => ("kill", vec!["kill", id]),
        2 => ("rm -f", vec!["rm", "-f", id]),
        3 => ("pause", vec!["pause", id]),
        4 => (
            "disconnect",
            vec!["network", "disconnect", "-f", network, id],
        ),
        _ => ("restart", vec!["restart", "-t", "0", id]),
    };
    try_docker(&arguments).map(|_| format!("{what} {service}"))
}

/// Something of somebody else, which is still there at the end: a container and its volume.
struct Bystander {
    name: &'static str,
}

impl Bystander {
    fn new() -> Self {
        let name = "nightsweep-launches-bystander";
        docker(&["volume", "create", name]);
        let mount = format!("{name}:/data");
        let image = "nightsweep/testbed:local";
        docker(&["create", "--name", name, "--volume", &mount, image]);
        Self { name }
    }

    #[track_caller]
    fn assert_there(&self) {
        docker(&["container", "inspect", self.name]);
        docker(&["volume", "inspect", self.name]);
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        try_docker(&["rm", "--force", self.name]);
        try_docker(&["volume", "rm", self.name]);
    }
}

fn tally(words: impl IntoIterator<Item = String>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

fn table(title: &str, counts: &BTreeMap<String, u32>) -> String {
    let mut text = format!("| {title} | times |\n| --- | ---: |\n");
    for (what, times) in counts {
        let _ = writeln!(text, "| {what} | {times} |");
    }
    text
}

fn run_ids(testbed: &Testbed) -> Vec<String> {
    let Ok(runs) = std::fs::read_dir(testbed.sandbox.path().join("results")) else {
        return Vec::new();
    };
    runs.map(|run| run.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn launches_under_random_kills_leave_nothing_and_every_trial_has_a_row() {
    let testbed = Testbed::new();
    let n_launches = u32::try_from(setting("NIGHTSWEEP_TEST_LAUNCHES", 15)).unwrap();
    write_sweep(&testbed, n_launches);
    let bystander = Bystander::new();
    let mut dice = Dice(seed());
    let begun = Instant::now();
    let events = std::fs::File::create(testbed.sandbox.path().join("events.jsonl")).unwrap();
    let child = testbed
        .command(&["run", "--json"])
        .stdout(events)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running::new(child);
    wait_until(Duration::from_mins(1), || !run_ids(&testbed).is_empty());
    let run = run_ids(&testbed).remove(0);
    let mut done = Vec::new();
    while running.is_running() {
        assert!(
            begun.elapsed() < LONGEST_TRIAL * n_launches,
            "the sweep hangs"
        );
        // A trial takes about two seconds, of which one is its window.
        dice.pause_ms(200, 5_000);
        done.extend(disturb(&mut dice, &run));
    }
    let took = begun.elapsed();
    running.end(LONGEST_TRIAL).exits(4);
    testbed.assert_nothing_left();
    bystander.assert_there();

    let rows = testbed.rows();
    let trials: Vec<u32> = rows
        .iter()
        .map(|row| row.text("trial").parse().unwrap())
        .collect();
    assert_eq!(
        trials,
        (1..=n_launches).collect::<Vec<_>>(),
        "a row for every trial"
    );
    for row in &rows {
        assert_ne!(
            row.text("verdict"),
            "skipped",
            "every trial is launched: {row:?}"
        );
        let is_valid = row.text("verdict") == "valid";
        assert!(is_valid || !row.text("reason").is_empty(), "{row:?}");
        assert_eq!(is_valid, !row.text("throughput_rps").is_empty(), "{row:?}");
    }
    let strange: Vec<&str> = rows
        .iter()
        .filter(|row| row.text("reason") == "engine_error")
        .map(|row| row.text("detail"))
        .collect();
    let reasons = tally(rows.iter().map(|row| match row.text("reason") {
        "" => row.text("verdict").to_owned(),
        reason => format!("{} ({reason})", row.text("verdict")),
    }));
    assert!(reasons.len() > 1, "somebody was killed: {done:?}");

    let longest = longest_trial_s(&testbed);
    assert!(longest < LONGEST_TRIAL.as_secs_f64(), "{longest} s");
    let report = format!(
        "{n_launches} launches in a row of three services (subject, neighbour with a volume, one-shot), seed {}, \
         {} things done to random containers at random moments, {:.0} s.\n\
         Exit code 4, a row for every trial, nothing labelled left, a bystander's container and volume untouched; \
         longest trial {longest:.1} s.\n\n{}\n{}",
        seed(),
        done.len(),
        took.as_secs_f64(),
        table("what was done", &tally(done)),
        table("verdict (reason)", &reasons),
    );
    write_report(&report);
    for detail in strange {
        write_report(&format!("- engine_error: {detail}"));
    }
}

/// From a trial's start to its end, by the sweep's own events. **Units**: seconds.
fn longest_trial_s(testbed: &Testbed) -> f64 {
    let text = std::fs::read_to_string(testbed.sandbox.path().join("events.jsonl")).unwrap();
    let mut started = 0.0;
    let mut longest: f64 = 0.0;
    for line in text.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let at = event["elapsed_s"].as_f64().unwrap();
        match event["event"].as_str() {
            Some("trial_started") => started = at,
            Some("trial_finished") => longest = longest.max(at - started),
            _ => {}
        }
    }
    assert!(longest > 0.0);
    longest
}

fn write_report(text: &str) {
    if let Ok(path) = std::env::var("NIGHTSWEEP_TEST_REPORT") {
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, format!("{before}{text}\n")).unwrap();
    }
}

#[test]
fn a_sweep_killed_at_any_moment_is_cleaned_by_its_labels() {
    let testbed = Testbed::new();
    write_sweep(&testbed, 50);
    let bystander = Bystander::new();
    let mut dice = Dice(seed());
    let n_kills = (setting("NIGHTSWEEP_TEST_LAUNCHES", 15) / 20).max(3);
    let mut left = Vec::new();
    for _ in 0..n_kills {
        let n_before = run_ids(&testbed).len();
        let running = testbed.start(&["run"]);
        wait_until(Duration::from_mins(1), || {
            run_ids(&testbed).len() > n_before
        });
        dice.pause_ms(0, 7_000);
        running.signal("KILL");
        assert_eq!(running.end(LONGEST_TRIAL).code, -1);
        // A call that was under way may still create something.
        std::thread::sleep(Duration::from_secs(1));
        let filter = ["--filter", "label=nightsweep.run"];
        let n_containers = docker(&[&["ps", "-aq"][..], &filter].concat())
            .lines()
            .count();
        left.push(format!("{n_containers} containers left by the kill"));
        testbed.sandbox.run(&["clean"]).exits(0);
        testbed.assert_nothing_left();
    }
    bystander.assert_there();
    let report = format!(
        "{n_kills} sweeps killed (SIGKILL) at random moments, each followed by `nightsweep clean`: \
         nothing labelled left, the bystander untouched.\n\n{}",
        table("found by `clean`", &tally(left))
    );
    write_report(&report);
}

/// The engine's events of a run, as they come: seconds since 1970, what, of which trial.
struct EngineEvents {
    child: std::process::Child,
    path: std::path::PathBuf,
}

impl EngineEvents {
    fn listen(testbed: &Testbed) -> Self {
        let path = testbed.sandbox.path().join("engine.txt");
        let file = std::fs::File::create(&path).unwrap();
        let format = "{{.TimeNano}} {{.Action}} {{index .Actor.Attributes \"nightsweep.trial\"}}";
        let child = Command::new("docker")
            .args([
                "events",
                "--filter",
                "type=container",
                "--filter",
                "label=nightsweep.run",
            ])
            .args(["--format", format])
            .stdout(file)
            .spawn()
            .unwrap();
        // The engine answers long before the first trial has measured anything.
        Self { child, path }
    }

    /// Times of what was done to the containers of a trial, in order.
    fn times(&self, action: &str, trial: &str) -> Vec<f64> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines
            .filter(|parts| parts[1] == action && parts.last() == Some(&trial))
            .map(|parts| parts[0].parse::<f64>().unwrap() / 1e9)
            .collect()
    }
}

impl Drop for EngineEvents {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_next_trial_is_created_when_nothing_is_measured_and_started_when_nothing_runs() {
    let testbed = Testbed::new();
    write_sweep(&testbed, 3);
    let engine = EngineEvents::listen(&testbed);
    let ended = testbed.run(&["run", "--json"]).exits(0);
    testbed.assert_nothing_left();
    let events: Vec<serde_json::Value> = ended
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let when = |name: &str, trial: u32| {
        let found = events.iter().find(|event| {
            event["event"] == name && event["trial"].as_u64() == Some(u64::from(trial))
        });
        let at = found.unwrap()["at"].as_str().unwrap();
        at.parse::<jiff::Timestamp>()
            .unwrap()
            .as_duration()
            .as_secs_f64()
    };
    wait_until(Duration::from_secs(10), || {
        engine.times("destroy", "3").len() == 3
    });
    for trial in [1_u32, 2] {
        let (this, next) = (trial.to_string(), (trial + 1).to_string());
        let created = engine.times("create", &next);
        let started = engine.times("start", &next);
        assert_eq!((created.len(), started.len()), (3, 3));
        // Events of the sweep are told in whole milliseconds.
        let measured = when("window_measured", trial) - 0.001;
        assert!(
            created.iter().all(|at| *at >= measured),
            "{created:?}, measured at {measured}"
        );
        let gone = engine.times("destroy", &this);
        let last = gone.iter().copied().fold(0.0, f64::max);
        assert_eq!(gone.len(), 3);
        assert!(
            started.iter().all(|at| *at >= last),
            "{started:?}, gone at {last}"
        );
        assert!(created.iter().all(|at| *at < started[0]));
        let row = &testbed.rows()[usize::try_from(trial).unwrap()];
        assert!(row.number("dead_time_s") > 0.0);
    }
}
