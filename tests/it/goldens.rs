//! What `plan` says of golden volumes; nothing is started.

use crate::support::Sandbox;

const COMPOSE: &str = "\
services:
  app:
    image: app:1
    depends_on: [db]
    environment:
      THREADS: ${threads}
    volumes: [\"./app.conf:/etc/app.conf:ro\"]
  db:
    image: db:1
    volumes: [\"data:/data\"]
volumes:
  data: {}
";

const MATRIX: &str = r#"format = 1
[sweep]
name = "small"
stack = ["compose.yaml"]
subject = "app"
tier = "cpus"
[axes]
cpus = [1, 2]
web = [1, 2]
[derived]
threads = "cpus * web"
[trials]
state = "golden"
[golden]
volumes = ["data"]
[load]
workload = "workload.toml"
target = "http://app:8080"
[[phase]]
name = "stress"
window = true
answers = "capacity"
closed = { users = 4 }
duration = "5s"
"#;

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("compose.yaml", COMPOSE);
    sandbox.write("app.conf", "a = 1\n");
    sandbox.write("workload.toml", "[[step]]\nname = \"home\"\npath = \"/\"\n");
    sandbox.write("matrix.toml", MATRIX);
    sandbox
}

#[test]
fn what_a_golden_does_not_depend_on_is_said_also_of_a_part_of_the_sweep() {
    let sandbox = sandbox();
    // Of the one cell that is left nothing differs; of the sweep it does.
    for only in [None, Some("cpus == 1 && web == 1")] {
        let mut arguments = vec!["plan"];
        arguments.extend(only.iter().flat_map(|only| ["--only", only]));
        let said = sandbox.run(&arguments).exits(0).stdout;
        let wanted = "the golden does not depend on: app THREADS; ";
        assert!(said.contains(wanted), "{said}");
        assert!(
            said.contains("plus preparing once; unknown until then"),
            "{said}"
        );
    }
}

#[test]
fn kept_volumes_are_named_and_the_same_for_every_cell() {
    let keep = MATRIX
        .replace("state = \"golden\"", "state = \"keep\"")
        .replace("[golden]\nvolumes = [\"data\"]\n", "");
    let sandbox = sandbox();
    sandbox.write("matrix.toml", &keep);
    sandbox.run(&["check"]).exits(0);

    // Its image may declare a volume: that one is new in every trial.
    let unnamed = COMPOSE.replace("\"data:/data\"", "\"/data\"");
    let unnamed = unnamed.replace("volumes:\n  data: {}\n", "");
    sandbox.write("compose.yaml", &unnamed);
    let said = sandbox.run(&["check"]).exits(2).stderr;
    assert!(
        said.contains("matrix.toml:4:10: `state = \"keep\"` in [trials] keeps named volumes"),
        "{said}"
    );

    let differing = COMPOSE.replace("data: {}", "data: {driver_opts: {o: \"size=${web}m\"}}");
    sandbox.write("compose.yaml", &differing);
    let said = sandbox.run(&["check"]).exits(2).stderr;
    assert!(
        said.contains("keeps one volume `data` for all cells"),
        "{said}"
    );
}
