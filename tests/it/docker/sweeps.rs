//! Sweeps that go well, and what they leave in their folder.

use std::path::Path;

use super::{Phases, Row, Testbed, docker};

const SHORT: Phases = Phases {
    warm_up: 2,
    latency: Some(4),
    stress: 4,
};

#[test]
fn a_sweep_measures_every_cell_and_leaves_evidence_and_charts() {
    let testbed = Testbed::new();
    testbed.matrix("cpus = [0.25, 1]\nweb = [4]", SHORT, "");
    let ended = testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();

    let rows = testbed.rows();
    assert_eq!(rows.len(), 4, "two cells, two windows");
    for row in &rows {
        assert_eq!(row.text("verdict"), "valid", "{row:?}");
        assert!(
            row.text("flags").contains("too_few"),
            "short windows say so: {row:?}"
        );
        assert_eq!(row.text("proof"), "kernel");
        assert_eq!(row.text("target_path"), "direct");
        assert_eq!(row.number("errors"), 0.0);
        assert!(row.number("successes") > 100.0);
        assert!(row.number("dead_time_s") > 0.0);
        assert!(row.number("subject_cpu_cores") > 0.0);
        // A quota is enforced per period; an eighth more is slack for edges read late.
        assert!(
            row.number("subject_cpu_cores") <= 1.125 * row.number("subject_cpu_limit_cores"),
            "{row:?}"
        );
        assert!(row.number("svc_db_cpu_cores") > 0.0);
        assert!(row.number("p50_ms") <= row.number("p99_ms"));
    }
    let capacity = |cpus: &str| {
        let is_it = |row: &&Row| row.text("axis_cpus") == cpus && row.text("answers") == "capacity";
        rows.iter().find(is_it).unwrap()
    };
    let (small, large) = (capacity("0.25"), capacity("1"));
    // Where its CPU is the limit, more of it is more; a slow disk may be the limit instead.
    let is_limited = small.number("subject_cpu_cores") > 0.8 * 0.25;
    let gain = large.number("throughput_rps") / small.number("throughput_rps");
    assert!(!is_limited || gain > 1.2, "{gain}: {small:?} {large:?}");
    let more_cpu = large.number("subject_cpu_cores") / small.number("subject_cpu_cores");
    assert!(more_cpu > 1.2 || !is_limited, "{small:?} {large:?}");

    let folder = testbed.run_folder();
    let manifest: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("run.json")).unwrap()).unwrap();
    assert!(
        manifest["versions"]["db"]
            .as_str()
            .unwrap()
            .contains("PostgreSQL"),
        "{}",
        manifest["versions"]
    );
    assert!(
        manifest["images"]["nightsweep/testbed:local"]["digest"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
    assert_eq!(
        std::fs::read_dir(folder.join("histograms"))
            .unwrap()
            .count(),
        4
    );
    assert_eq!(
        std::fs::read_dir(folder.join("logs")).unwrap().count(),
        0,
        "valid trials keep no logs"
    );
    assert!(ended.stdout.contains("best measured"), "{}", ended.stdout);

    redrawn_charts_are_the_same(&testbed, &folder);
}

/// `report` needs the files alone: no engine, and the same bytes come out.
fn redrawn_charts_are_the_same(testbed: &Testbed, folder: &Path) {
    let charts = testbed
        .sandbox
        .path()
        .join("charts")
        .join(folder.file_name().unwrap());
    let read = |charts: &Path| {
        let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(charts)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                (
                    path.file_name().unwrap().to_string_lossy().into_owned(),
                    std::fs::read(&path).unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    };
    let first = read(&charts);
    assert!(
        first
            .iter()
            .any(|(name, _)| name == "heatmap-throughput.png")
    );
    std::fs::remove_dir_all(&charts).unwrap();
    let output = testbed
        .sandbox
        .command(&["report", "latest"])
        .env("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        .output()
        .unwrap();
    crate::support::Ended::of(&output).exits(0);
    assert!(first == read(&charts), "redrawn charts differ");
}

#[test]
fn secrets_of_the_environment_are_in_no_file() {
    let testbed = Testbed::beside_others();
    let stack = "[override.services.app.environment]\nAPI_TOKEN = \"${NIGHTSWEEP_TEST_TOKEN}\"\nLEAK = \"${NIGHTSWEEP_TEST_TOKEN}-in-a-word\"\n";
    // A trial that fails keeps logs and says words, so every kind of file is there.
    let never = "NEVER_READY = \"true\"\n";
    testbed.matrix(
        "cpus = [1]\nweb = [2]",
        Phases {
            warm_up: 1,
            latency: None,
            stress: 2,
        },
        &format!("\n{stack}{never}"),
    );
    let text = std::fs::read_to_string(testbed.sandbox.path().join("matrix.toml")).unwrap();
    testbed.sandbox.write(
        "matrix.toml",
        &text.replace("ready_timeout = \"60s\"", "ready_timeout = \"8s\""),
    );
    let secret = "xK9-tell-nobody";
    let output = testbed
        .command(&["run"])
        .env("NIGHTSWEEP_TEST_TOKEN", secret)
        .output()
        .unwrap();
    let ended = crate::support::Ended::of(&output).exits(4);
    testbed.assert_nothing_left();
    assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret));

    let manifest = std::fs::read_to_string(testbed.run_folder().join("run.json")).unwrap();
    assert!(
        manifest.contains("secret:"),
        "the manifest says that a value was there"
    );
    let mut files = vec![
        testbed.sandbox.path().join("results"),
        testbed.sandbox.path().join("charts"),
    ];
    let mut n_files = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.exists() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                !bytes
                    .windows(secret.len())
                    .any(|window| window == secret.as_bytes()),
                "{}",
                path.display()
            );
            n_files += 1;
        }
    }
    assert!(n_files > 4);
}

/// What a user's file fixes for the whole host: a container's name, a port, names of a
/// network and a volume.
const NAMED: &str = r#"
services:
  app:
    container_name: nightsweep-test-named
    ports: ["127.0.0.1:18413:8080"]
  db:
    container_name: nightsweep-test-named-db
volumes:
  pgdata:
    name: nightsweep-test-named
networks:
  default:
    name: nightsweep-test-named
"#;

/// Somebody's own container, network and volume, by the very names that the file fixes.
struct Bystander {
    before: [String; 3],
}

impl Bystander {
    fn new() -> Self {
        let name = "nightsweep-test-named";
        docker(&["volume", "create", name]);
        docker(&["network", "create", name]);
        let image = super::postgres_image();
        let mount = format!("{name}:/data");
        docker(&[
            "run",
            "--detach",
            "--name",
            name,
            "--network",
            name,
            "--volume",
            &mount,
            "--publish",
            "127.0.0.1:18413:8080",
            "--entrypoint",
            "sleep",
            &image,
            "600",
        ]);
        docker(&["exec", name, "sh", "-c", "echo theirs > /data/file"]);
        Self {
            before: Self::seen(),
        }
    }

    /// Identity and start of the container, the network, and what is in the volume.
    fn seen() -> [String; 3] {
        let name = "nightsweep-test-named";
        let container = "{{.Id}} {{.State.Running}} {{.State.StartedAt}} {{.State.Pid}}";
        [
            docker(&["container", "inspect", "--format", container, name]),
            docker(&[
                "network",
                "inspect",
                "--format",
                "{{.Id}} {{len .Containers}}",
                name,
            ]),
            docker(&["exec", name, "sh", "-c", "ls /data; cat /data/file"]),
        ]
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let name = "nightsweep-test-named";
        for arguments in [
            ["rm", "--force", "--volumes", name].as_slice(),
            &["network", "rm", name],
            &["volume", "rm", name],
        ] {
            let _ = std::process::Command::new("docker")
                .args(arguments)
                .output();
        }
    }
}

#[test]
fn two_sweeps_of_fixed_names_and_ports_and_a_bystander_do_not_disturb_each_other() {
    let testbed = Testbed::new();
    testbed.matrix(
        "cpus = [0.5]\nweb = [2, 3]",
        Phases {
            warm_up: 1,
            latency: None,
            stress: 2,
        },
        "",
    );
    let path = testbed.sandbox.path().join("matrix.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("compose.yaml\"]", "compose.yaml\", \"named.yaml\"]");
    let bystander = Bystander::new();
    let other = crate::support::Sandbox::new();
    for sandbox in [&testbed.sandbox, &other] {
        sandbox.write("matrix.toml", &text);
        sandbox.write("named.yaml", NAMED);
    }
    let image = format!("POSTGRES_IMAGE={}", super::postgres_image());
    let second = other
        .command(&["run", "--set", &image])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let second = super::Running::new(second);
    let first = testbed.start(&["run"]);
    // Both are up side by side, each with names and networks of its own.
    super::wait_until(std::time::Duration::from_mins(1), || {
        let format = "{{.Label \"nightsweep.run\"}}";
        let service = "label=nightsweep.service=app";
        let mut runs: Vec<String> = docker(&["ps", "--filter", service, "--format", format])
            .lines()
            .map(str::to_owned)
            .collect();
        runs.sort();
        runs.dedup();
        runs.len() == 2
    });
    let limit = std::time::Duration::from_mins(3);
    for running in [first, second] {
        let ended = running.end(limit).exits(0);
        assert!(
            ended.stderr.contains("container_name") || ended.stdout.contains("container_name"),
            "what was changed is said: {}",
            ended.stderr
        );
    }
    // What a clean-up by hand finds now belongs to nobody of ours.
    testbed.sandbox.run(&["clean"]).exits(0);
    testbed.assert_nothing_left();
    assert_eq!(
        Bystander::seen(),
        bystander.before,
        "the bystander is as it was"
    );
}
