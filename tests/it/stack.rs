//! `stack`: the resolved stack, as text and as JSON, without an engine.

use serde_json::Value;

use crate::support::Sandbox;

const COMPOSE: &str = "\
name: shop
services:
  app:
    image: app:${TAG:-1}
    cpus: ${cpus:-2}
    environment:
      THREADS: ${threads:-4}
      PASSWORD: ${PASSWORD}
    depends_on:
      db: {condition: service_healthy}
    ports: ['8080:8080']
  db:
    image: postgres:17
    healthcheck: {test: pg_isready}
    volumes: ['data:/var/lib/postgresql/data']
  tool:
    build: ./tool
    profiles: [tools]
volumes: {data: }
";

const WORKLOAD: &str = r#"
[[step]]
name = "home"
method = "GET"
path = "/"
"#;

const MATRIX: &str = r#"format = 1
[sweep]
name = "s"
stack = ["compose.yaml"]
subject = "app"
tier = "cpus"
[axes]
cpus = [0.5, 1]
[derived]
threads = "round(cpus * 4)"
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
    sandbox.write(".env", "PASSWORD=correct-horse-battery\n");
    sandbox
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_stack_is_printed_as_it_would_be_launched() {
    let ended = sandbox()
        .run(&["stack", "-f", "compose.yaml", "--show-secrets"])
        .exits(0);
    insta::assert_snapshot!(ended.stdout.trim(), @r#"
    services:
      app:
        image: app:1
        environment:
          THREADS: "4"
          PASSWORD: correct-horse-battery
        cpus: 2.0
        depends_on:
          db:
            condition: service_healthy
            required: true
        networks:
          default:
            aliases: ["app"]
      db:
        image: postgres:17
        healthcheck:
          test: ["CMD-SHELL", "pg_isready"]
        mounts:
          - target: /var/lib/postgresql/data
            type: volume
            source: data
        networks:
          default:
            aliases: ["db"]
    networks:
      default:
    volumes:
      data:
    # not started: tool
    # warning: services.app.ports: not published on the host: the load reaches the service on its own address
    "#);
}

#[test]
fn values_of_the_environment_are_digests_unless_asked_for() {
    let hidden = sandbox()
        .run(&["stack", "-f", "compose.yaml", "--json"])
        .exits(0);
    assert!(!hidden.stdout.contains("battery"), "{}", hidden.stdout);
    let password = &json(&hidden.stdout)["services"]["app"]["environment"]["PASSWORD"];
    assert!(password.as_str().unwrap().starts_with("secret:"));
    let shown = sandbox()
        .run(&["stack", "-f", "compose.yaml", "--json", "--show-secrets"])
        .exits(0);
    assert!(shown.stdout.contains("correct-horse-battery"));
    let set = sandbox()
        .run(&[
            "stack",
            "-f",
            "compose.yaml",
            "--set",
            "PASSWORD=correct-horse-battery",
        ])
        .exits(0);
    assert!(set.stdout.contains("PASSWORD: correct-horse-battery"));
}

#[test]
fn places_and_what_cannot_be_launched_are_said() {
    let ended = sandbox()
        .run(&[
            "stack",
            "-f",
            "compose.yaml",
            "--profile",
            "tools",
            "--explain",
        ])
        .exits(0);
    for words in [
        "cpus: 2.0  # compose.yaml:5:11 with cpus (default)",
        "# compose.yaml:8:17 with PASSWORD (.env)",
        "- target: /var/lib/postgresql/data  # compose.yaml:15:15",
        "image: shop-tool",
        "# warning: services.app.ports: not published",
    ] {
        assert!(ended.stdout.contains(words), "{words}\n{}", ended.stdout);
    }
}

#[test]
fn later_files_win_and_problems_end_with_code_2() {
    let sandbox = sandbox();
    sandbox.write(
        "more.yaml",
        "services:\n  app: {cpus: 0.5, mem_limit: 1g}\n",
    );
    let ended = sandbox
        .run(&[
            "stack",
            "-f",
            "compose.yaml",
            "-f",
            "more.yaml",
            "--json",
            "--explain",
        ])
        .exits(0);
    let stack = json(&ended.stdout);
    assert_eq!(stack["services"]["app"]["cpus"], 0.5);
    assert_eq!(stack["services"]["app"]["mem_limit"], 1_u64 << 30);
    assert_eq!(stack["not_started"], serde_json::json!(["tool"]));
    assert_eq!(stack["origins"]["services.app.cpus"], "more.yaml:2:15");
    sandbox.write(
        "more.yaml",
        "services:\n  app: {cpu: 0.5, volumes: ['./:/x']}\n",
    );
    let arguments = ["stack", "-f", "compose.yaml", "-f", "more.yaml"];
    let ended = sandbox.run(&arguments).exits(2);
    assert!(
        ended
            .stderr
            .contains("more.yaml:2:9: services.app.cpu: there is no such key"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("writable_mount"), "{}", ended.stderr);
    sandbox.write("more.yaml", "services:\n  app: {volumes: ['./:/x']}\n");
    let mut arguments = arguments.to_vec();
    arguments.extend(["--shared", "./"]);
    sandbox.run(&arguments).exits(0);
}

#[test]
fn check_refuses_what_no_launch_can_do_and_stack_only_says_it() {
    let sandbox = sandbox();
    sandbox.write(
        "more.yaml",
        "services: {app: {deploy: {replicas: 3}, network_mode: host}}\n",
    );
    sandbox.write("workload.toml", WORKLOAD);
    sandbox.write(
        "matrix.toml",
        &MATRIX.replace("\"compose.yaml\"", "\"compose.yaml\", \"more.yaml\""),
    );
    let ended = sandbox.run(&["check"]).exits(2);
    assert!(
        ended
            .stderr
            .contains("services.app.network_mode: `host` gives 3 containers the same ports"),
        "{}",
        ended.stderr
    );
    let ended = sandbox.run(&["stack"]).exits(0);
    assert!(ended.stdout.contains("replicas: 3"), "{}", ended.stdout);
    assert!(
        ended
            .stdout
            .contains("# cannot be launched: services.app.network_mode")
    );
}

#[test]
fn a_cell_of_a_matrix_brings_its_values() {
    let sandbox = sandbox();
    sandbox.write("workload.toml", WORKLOAD);
    sandbox.write("matrix.toml", MATRIX);
    let ended = sandbox
        .run(&["stack", "--cell", "cpus-1", "--explain"])
        .exits(0);
    assert!(
        ended
            .stdout
            .contains("cpus: 1.0  # compose.yaml:5:11 with cpus (set)"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("THREADS: \"4\""), "{}", ended.stdout);
    assert!(
        ended.stdout.contains("# not started: tool"),
        "{}",
        ended.stdout
    );
    let ended = sandbox.run(&["stack", "--cell", "cpus-2"]).exits(2);
    assert!(ended.stderr.contains("did you mean"), "{}", ended.stderr);
    sandbox
        .run(&["stack", "--cell", "cpus-1", "-f", "compose.yaml"])
        .exits(2);
}
