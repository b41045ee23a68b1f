//! The state trials begin with, on a real PostgreSQL: golden volumes, kept ones, hooks.

use std::time::Duration;

use super::{Testbed, docker, postgres_image, wait_until};
use crate::support::{Ended, repository};

/// Trials of the long proof; `cargo xtask prove golden` asks for ten.
fn n_trials() -> u32 {
    std::env::var("NIGHTSWEEP_TEST_GOLDEN_TRIALS").map_or(3, |n| n.parse().unwrap())
}

/// Rows that the seeding service writes: with them the cluster is above 200 MB.
const BULK_ROWS: u32 = 500_000;

/// Three services, a database among them, a one-shot migration, and a service that
/// fills the database once.
fn compose(rows: u32) -> String {
    let image = postgres_image();
    let psql = |name: &str, sql: &str, after: &str| {
        format!(
            "  {name}:\n    image: {image}\n    entrypoint: [psql, -v, ON_ERROR_STOP=1, -h, db, -U, app, -d, app, -c]\n    \
             command: [\"{sql}\"]\n    environment: {{ PGPASSWORD: app }}\n    depends_on: {{ {after} }}\n"
        )
    };
    let healthy = "db: { condition: service_healthy }";
    let migrate = psql(
        "migrate",
        "create table if not exists bulk (id bigint primary key, payload text)",
        healthy,
    );
    let seed = psql(
        "seed",
        &format!(
            "insert into bulk select i, repeat(md5(i::text), 4) from generate_series(1, {rows}) i"
        ),
        &format!("{healthy}, migrate: {{ condition: service_completed_successfully }}"),
    );
    let text = std::fs::read_to_string(repository().join("compose/testbed/compose.yaml")).unwrap();
    let text = text.replace(
        "      db:\n        condition: service_healthy\n",
        "      db:\n        condition: service_healthy\n      migrate:\n        condition: service_completed_successfully\n",
    );
    text.replace(
        "\nvolumes:\n  pgdata:",
        &format!("\n{migrate}{seed}    profiles: [seed]\n\nvolumes:\n  pgdata:"),
    )
}

/// What stands in the database, asked before the window.
const COUNT: &str = "[[hook]]\nbefore = \"stress\"\nservice = \"db\"\n\
    exec = [\"env\", \"PGPASSWORD=app\", \"psql\", \"-At\", \"-h\", \"127.0.0.1\", \"-U\", \"app\", \"-d\", \"app\", \"-c\", \"select 'bulk=' || count(*) from bulk\"]\n\
    [[hook]]\nbefore = \"warm-up\"\nservice = \"db\"\n\
    exec = [\"env\", \"PGPASSWORD=app\", \"psql\", \"-At\", \"-h\", \"127.0.0.1\", \"-U\", \"app\", \"-d\", \"app\", \"-c\", \"select 'found=' || count(*) from pg_stat_user_tables where relname = 'left_behind'; create table if not exists left_behind (x int)\"]\n";

/// A sweep of one cell over that stack.
fn matrix(testbed: &Testbed, repeats: u32, state: &str, more: &str) {
    let workload = repository().join("compose/testbed/workload.toml");
    testbed.sandbox.write(
        "matrix.toml",
        &format!(
            "format = 1\n[sweep]\nname = \"state\"\nstack = [\"compose.yaml\"]\nsubject = \"app\"\ntier = \"cpus\"\n\
             [axes]\ncpus = [1]\n\
             [trials]\nrepeats = {repeats}\nready_timeout = \"60s\"\nstate = \"{state}\"\n\
             [load]\nworkload = \"{}\"\ntarget = \"http://app:8080\"\nready = {{ path = \"/health\", status = 200 }}\n\
             [[phase]]\nname = \"warm-up\"\nclosed = {{ users = 2 }}\nduration = \"1s\"\n\
             [[phase]]\nname = \"stress\"\nwindow = true\nanswers = \"capacity\"\nclosed = {{ users = 2 }}\nduration = \"1s\"\n{more}",
            workload.display()
        ),
    );
}

const GOLDEN: &str = "[golden]\nvolumes = [\"pgdata\"]\n[seed]\nservice = \"seed\"\n";

/// Golden volumes on the engine, seals and data.
fn goldens() -> Vec<String> {
    let list = docker(&["volume", "ls", "-q", "--filter", "label=nightsweep.golden"]);
    list.lines().map(str::to_owned).collect()
}

/// What the hooks of each trial wrote, in the order of the trials.
fn hook_texts(testbed: &Testbed, hook: &str) -> Vec<String> {
    let mut logs: Vec<_> = std::fs::read_dir(testbed.run_folder().join("logs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(hook))
        .collect();
    logs.sort();
    logs.iter()
        .map(|path| std::fs::read_to_string(path).unwrap().trim().to_owned())
        .collect()
}

fn forget_results(testbed: &Testbed) {
    std::fs::remove_dir_all(testbed.sandbox.path().join("results")).unwrap();
}

/// The only event of a name among the lines of `run --json`.
fn event(ended: &Ended, name: &str) -> serde_json::Value {
    let lines = ended.stdout.lines();
    let mut found = lines
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["event"] == name);
    let event = found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {}", ended.stdout));
    assert!(found.next().is_none());
    event
}

/// For the proof, which keeps such lines.
#[expect(clippy::print_stdout, reason = "`cargo xtask prove golden` reads it")]
fn say(line: &str) {
    println!("{line}");
}

/// The goldens of a test go with it, also when it fails.
struct CleanGoldens<'a>(&'a Testbed);

impl<'a> CleanGoldens<'a> {
    /// Begins without any, so that they can be counted.
    fn new(testbed: &'a Testbed) -> Self {
        testbed.sandbox.run(&["clean", "--golden"]).exits(0);
        assert_eq!(goldens(), Vec::<String>::new());
        Self(testbed)
    }
}

impl Drop for CleanGoldens<'_> {
    fn drop(&mut self) {
        self.0.sandbox.run(&["clean", "--golden"]);
    }
}

#[test]
fn every_trial_begins_with_the_same_200_mb_and_sees_no_write_of_another() {
    let testbed = Testbed::new();
    let _clean = CleanGoldens::new(&testbed);
    let n = n_trials();
    testbed.sandbox.write("compose.yaml", &compose(BULK_ROWS));
    matrix(&testbed, n, "golden", &format!("{GOLDEN}{COUNT}"));
    let plan = testbed.run(&["plan"]).exits(0).stdout;
    assert!(
        plan.contains("golden: pgdata from prepare, cloned for every trial (auto)"),
        "{plan}"
    );
    assert!(
        plan.contains("plus preparing once; unknown until then"),
        "{plan}"
    );

    let ended = testbed.run(&["run", "--json"]).exits(0);
    testbed.assert_nothing_left();
    let ready = event(&ended, "state_ready");
    assert!(ready["bytes"].as_u64().unwrap() > 200_000_000, "{ready}");
    assert_eq!(
        (&ready["reused"], &ready["clones"]),
        (&false.into(), &n.into())
    );
    let rows = testbed.rows();
    assert_eq!(rows.len(), n as usize);
    for row in &rows {
        assert_eq!(row.text("verdict"), "valid", "{row:?}");
        assert_eq!(row.text("state"), "golden");
        assert_eq!(
            row.text("state_fingerprint"),
            ready["fingerprint"].as_str().unwrap()
        );
        assert!(row.number("clone_s") > 0.0);
        assert!(["copy", "reflink"].contains(&row.text("clone_method")));
        assert!(row.number("dead_time_s") > row.number("clone_s"));
    }
    let seconds: Vec<&str> = rows.iter().map(|row| row.text("clone_s")).collect();
    say(&format!(
        "prepared in {} s; {} bytes in {} files; fingerprint {} in every row; cloned by {} in {} s",
        ready["prepared_s"],
        ready["bytes"],
        ready["files"],
        ready["fingerprint"],
        rows[0].text("clone_method"),
        seconds.join(", ")
    ));
    // Every trial writes a table and resources of its own, and none finds those of another.
    let found = hook_texts(&testbed, "warm-up");
    assert_eq!(found.len(), n as usize);
    for text in found {
        assert!(text.starts_with("found=0"), "{text}");
    }
    for text in hook_texts(&testbed, "stress") {
        assert_eq!(text, format!("bulk={BULK_ROWS}"));
    }
    let manifest = std::fs::read_to_string(testbed.run_folder().join("run.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["state"]["goldens"][0]["key"], ready["key"]);

    used_again_kept_and_removed(&testbed, &ready);
}

/// The next run finds the golden; `clean` leaves it, also `clean --golden` while it is used.
fn used_again_kept_and_removed(testbed: &Testbed, first: &serde_json::Value) {
    forget_results(testbed);
    testbed.sandbox.run(&["clean"]).exits(0);
    assert_eq!(goldens().len(), 2, "data and seal");
    matrix(
        testbed,
        1,
        "golden",
        &format!("{GOLDEN}clone = \"overlay\"\n{COUNT}").replace(
            "[seed]\nservice = \"seed\"\nclone = \"overlay\"\n",
            "clone = \"overlay\"\n[seed]\nservice = \"seed\"\n",
        ),
    );
    let plan = testbed.run(&["plan", "--json"]).exits(0).stdout;
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["state"]["cloned_bytes"], first["bytes"]);
    assert_eq!(plan["state"]["prepared"], true);
    assert!(plan["state"]["clone_seconds"].as_f64().unwrap() > 0.0);
    assert!(plan["estimate"]["bytes"].as_u64() > first["bytes"].as_u64());

    let running = testbed.start(&["run", "--json"]);
    testbed.container_of("app");
    let cleaned = testbed.sandbox.run(&["clean", "--golden"]).exits(0).stdout;
    assert!(cleaned.contains("uses it"), "{cleaned}");
    let ended = running.end(Duration::from_mins(2)).exits(0);
    testbed.assert_nothing_left();
    let again = event(&ended, "state_ready");
    assert_eq!(again["reused"], true);
    for key in ["fingerprint", "bytes", "made_at"] {
        assert_eq!(again[key], first[key]);
    }
    let row = testbed.rows().remove(0);
    assert_eq!(row.text("verdict"), "valid");
    assert_eq!(row.text("clone_method"), "overlay");
    assert_eq!(
        row.text("state_fingerprint"),
        first["fingerprint"].as_str().unwrap()
    );
    assert!(row.text("flags").contains("overlay_clone"));
    say(&format!("cloned by overlay in {} s", row.text("clone_s")));

    testbed.sandbox.run(&["clean", "--golden"]).exits(0);
    assert_eq!(goldens(), Vec::<String>::new());
    let images = docker(&["images", "-q", "--filter", "label=nightsweep.helper"]);
    assert_eq!(images, "");
}

#[test]
fn kept_volumes_pass_on_what_trials_write_and_go_with_the_run() {
    let testbed = Testbed::new();
    testbed.sandbox.write("compose.yaml", &compose(10));
    matrix(&testbed, 2, "keep", COUNT);
    testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    let found = hook_texts(&testbed, "warm-up");
    assert!(found[0].starts_with("found=0"), "{found:?}");
    assert!(
        found[1].contains("found=1"),
        "the second trial sees the first's write: {found:?}"
    );
    for row in testbed.rows() {
        assert_eq!(
            (row.text("state"), row.text("state_fingerprint")),
            ("keep", "")
        );
    }

    forget_results(&testbed);
    let running = testbed.start(&["run"]);
    testbed.container_of("app");
    running.signal("KILL");
    assert_ne!(running.end(Duration::from_mins(1)).code, 0);
    testbed.sandbox.run(&["clean"]).exits(0);
    testbed.assert_nothing_left();
}

#[test]
fn a_kill_while_preparing_leaves_nothing_that_is_ever_used() {
    let testbed = Testbed::new();
    let _clean = CleanGoldens::new(&testbed);
    let slow = compose(10).replace("insert into bulk", "select pg_sleep(3); insert into bulk");
    testbed.sandbox.write("compose.yaml", &slow);
    matrix(&testbed, 1, "golden", GOLDEN);
    let running = testbed.start(&["run"]);
    testbed.container_of("seed");
    running.signal("KILL");
    assert_ne!(running.end(Duration::from_mins(1)).code, 0);
    let claimed = goldens();
    assert_eq!(claimed.len(), 1, "data without a seal");

    forget_results(&testbed);
    let ended = testbed.run(&["run", "--json"]).exits(0);
    assert_eq!(event(&ended, "state_ready")["reused"], false);
    assert!(
        !goldens().contains(&claimed[0]),
        "half-made data is thrown away"
    );
    assert_eq!(goldens().len(), 2);
    testbed.sandbox.run(&["clean"]).exits(0);
    testbed.assert_nothing_left();
    assert_eq!(goldens().len(), 2, "a whole one stays");
}

#[test]
fn two_runs_at_once_share_one_golden_seeded_by_requests() {
    let testbed = Testbed::new();
    let _clean = CleanGoldens::new(&testbed);
    let workload = repository().join("compose/testbed/workload.toml");
    let seed = format!(
        "[golden]\nvolumes = [\"pgdata\"]\n[seed]\nworkload = \"{}\"\nusers = 2\njourneys = 20\n",
        workload.display()
    );
    testbed.sandbox.write("compose.yaml", &compose(10));
    matrix(&testbed, 1, "golden", &seed);
    let runs = ["one", "two"].map(|folder| testbed.start(&["run", "--json", "--out", folder]));
    let ready = runs.map(|run| event(&run.end(Duration::from_mins(3)).exits(0), "state_ready"));
    testbed.assert_nothing_left();
    assert_eq!(ready[0]["fingerprint"], ready[1]["fingerprint"]);
    let n_reused = ready.iter().filter(|ready| ready["reused"] == true).count();
    assert!(n_reused <= 1, "{ready:?}");
    assert_eq!(goldens().len(), 2, "one golden, whoever was first");
}

/// A volume with a cluster in it that nightsweep knows nothing of.
struct Source {
    name: String,
}

impl Source {
    fn new() -> Self {
        let name = format!("nightsweep-test-source-{}", std::process::id());
        let volume = format!("{name}:/var/lib/postgresql/data");
        docker(&[
            "run",
            "-d",
            "--name",
            &name,
            "-e",
            "POSTGRES_USER=app",
            "-e",
            "POSTGRES_PASSWORD=app",
            "-e",
            "POSTGRES_DB=app",
            "-v",
            &volume,
            &postgres_image(),
        ]);
        let source = Self { name };
        wait_until(Duration::from_mins(1), || {
            let mut ready = std::process::Command::new("docker");
            let asked = [
                "exec",
                &source.name,
                "pg_isready",
                "-q",
                "-h",
                "127.0.0.1",
                "-U",
                "app",
            ];
            ready.args(asked).output().unwrap().status.success()
        });
        source
    }

    fn stop(&self) {
        docker(&["stop", "-t", "30", &self.name]);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        for arguments in [["rm", "-fv", &self.name], ["volume", "rm", &self.name]] {
            let _ = std::process::Command::new("docker")
                .args(arguments)
                .output();
        }
    }
}

#[test]
fn a_volume_and_a_folder_are_only_read() {
    let testbed = Testbed::new();
    let _clean = CleanGoldens::new(&testbed);
    let source = Source::new();
    testbed.sandbox.write("compose.yaml", &compose(10));
    let from = |from: &str| format!("[golden]\nvolumes = [\"pgdata\"]\nfrom = \"{from}\"\n");
    matrix(
        &testbed,
        1,
        "golden",
        &from(&format!("volume:{}", source.name)),
    );
    let refused = testbed.run(&["run"]).exits(4);
    assert!(
        refused.stderr.contains("is in use by"),
        "{}",
        refused.stderr
    );
    source.stop();
    forget_results(&testbed);
    let first = event(&testbed.run(&["run", "--json"]).exits(0), "state_ready");
    assert_eq!(first["reused"], false);
    // Keyed by content: a second run finds the same key only when nothing was written.
    forget_results(&testbed);
    let second = event(&testbed.run(&["run", "--json"]).exits(0), "state_ready");
    assert_eq!(
        (&second["reused"], &second["made_at"]),
        (&true.into(), &first["made_at"])
    );

    let folder = testbed.sandbox.path().join("copy");
    docker(&[
        "cp",
        "-a",
        &format!("{}:/var/lib/postgresql/data", source.name),
        &folder.to_string_lossy(),
    ]);
    let read = || {
        let at = testbed.sandbox.path().to_string_lossy().into_owned();
        let ended = testbed
            .sandbox
            .run(&["helper", "fingerprint", "--at", &at, "copy"])
            .exits(0);
        let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        answer["trees"]["copy"]["content"].clone()
    };
    let before = read();
    forget_results(&testbed);
    matrix(&testbed, 1, "golden", &from("dir:copy"));
    let third = event(&testbed.run(&["run", "--json"]).exits(0), "state_ready");
    testbed.assert_nothing_left();
    assert_eq!(third["files"], first["files"]);
    assert_eq!(read(), before);
}
