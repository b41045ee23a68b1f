//! Healthchecks that come with an image, and what becomes of one that fails under load.

use std::time::Duration;

use super::{Testbed, docker, postgres_image, wait_until};

/// A subject that begins when its neighbour is healthy, by a healthcheck that only the image has.
const STACK: &str = r#"
services:
  app:
    image: nightsweep/testbed:local
    cpus: ${cpus}
    environment: { PGHOST: 127.0.0.1, DB_START_TIMEOUT_S: "3600" }
    depends_on:
      side: { condition: service_healthy }
  side:
    build: image
    entrypoint: ["sleep", "600"]
"#;

/// Below `FROM` and the image's name.
const DOCKERFILE: &str = "
LABEL team=nightsweep-test-health
HEALTHCHECK --interval=1s --timeout=2s --retries=1 CMD test ! -e /tmp/ill || { echo out of sorts; exit 1; }
";

const MATRIX: &str = r#"
format = 1

[sweep]
name = "health"
stack = ["compose.yaml"]
subject = "app"
tier = "cpus"

[axes]
cpus = [1]

[trials]
repeats = 1
order = "listed"
ready_timeout = "30s"

[load]
workload = "workload.toml"
target = "http://app:8080"
ready = { path = "/metrics", status = 200 }

[[phase]]
name = "before"
window = true
answers = "capacity"
closed = { users = 2 }
duration = "3s"

[[phase]]
name = "after"
window = true
answers = "capacity"
closed = { users = 2 }
duration = "12s"
"#;

const WORKLOAD: &str = "[[step]]\nname = \"metrics\"\nmethod = \"GET\"\npath = \"/metrics\"\nexpect = { status = 200 }\n";

/// Takes the image away, however the test ends.
struct Built;

impl Drop for Built {
    fn drop(&mut self) {
        let filter = "label=team=nightsweep-test-health";
        for id in docker(&["image", "ls", "--quiet", "--filter", filter]).lines() {
            docker(&["image", "rm", "--force", id]);
        }
    }
}

#[test]
fn an_images_healthcheck_is_waited_for_and_one_that_fails_in_a_window_is_a_flag() {
    let testbed = Testbed::new();
    let _built = Built;
    let dockerfile = format!("FROM {}{DOCKERFILE}", postgres_image());
    testbed.sandbox.write("image/Dockerfile", &dockerfile);
    testbed.sandbox.write("compose.yaml", STACK);
    testbed.sandbox.write("matrix.toml", MATRIX);
    testbed.sandbox.write("workload.toml", WORKLOAD);
    let running = testbed.start(&["run"]);
    let app = testbed.container_of("app");
    // The subject is not begun before the image's healthcheck passed.
    let side = testbed.running("side");
    let status = |id: &str| docker(&["inspect", "-f", "{{.State.Health.Status}}", id]);
    assert_eq!(status(&side), "healthy");
    let begun = |id: &str| docker(&["inspect", "-f", "{{.State.StartedAt}}", id]);
    let passed = docker(&[
        "inspect",
        "-f",
        "{{(index .State.Health.Log 0).End}}",
        &side,
    ]);
    let passed = passed.split_whitespace().collect::<Vec<_>>()[..2].join("T");
    assert!(begun(&app) > passed, "{} {passed}", begun(&app));
    // Well inside the second window.
    std::thread::sleep(Duration::from_secs(6));
    docker(&["exec", &side, "touch", "/tmp/ill"]);
    wait_until(Duration::from_secs(6), || status(&side) == "unhealthy");
    running.end(Duration::from_mins(1)).exits(0);
    let rows = testbed.rows();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row.text("verdict"), "valid", "{row:?}");
        assert!(row.number("throughput_rps") > 0.0);
        let is_after = row.text("window") == "after";
        assert_eq!(row.text("flags").contains("unhealthy"), is_after, "{row:?}");
        assert_eq!(
            row.text("detail").contains("out of sorts"),
            is_after,
            "{row:?}"
        );
    }
    testbed.assert_nothing_left();
}
