//! What a user types wrong, and what comes back; nothing is started.

use crate::support::{Ended, Sandbox, repository};

const COMPOSE: &str = "\
services:
  app:
    image: app:1
    cpus: ${cpus:-2}
    environment:
      THREADS: ${threads}
";

const WORKLOAD: &str = r#"
[[step]]
name = "home"
method = "GET"
path = "/"
"#;

const MATRIX: &str = r#"format = 1

[sweep]
name = "small"
stack = ["compose.yaml"]
subject = "app"
tier = "cpus"

[axes]
cpus = [0.5, 1]
web = [1, 2]

[derived]
threads = "max(1, round(cpus * web))"

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

fn sandbox(matrix: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("compose.yaml", COMPOSE);
    sandbox.write("workload.toml", WORKLOAD);
    sandbox.write("matrix.toml", matrix);
    sandbox
}

#[test]
fn a_sound_sweep_has_no_problems() {
    let ended = sandbox(MATRIX).run(&["check"]).exits(0);
    insta::assert_snapshot!(ended.stdout.trim(), @"matrix.toml: 3 cells, 1 service, 1 request a journey, no problems");
}

#[test]
fn eight_mistakes_get_eight_messages_with_their_places() {
    let wrong = MATRIX
        .replace("format = 1", "format = 9")
        .replace("subject = \"app\"", "subjct = \"app\"")
        .replace("tier = \"cpus\"", "tier = \"cpu\"")
        .replace("web = [1, 2]", "web = []")
        .replace("round(cpus * web)", "rond(cpus * wb)")
        .replace("http://app:8080", "ftp://app:8080")
        .replace("users = 4", "users = 0")
        .replace("\"5s\"", "\"5 parsecs\"");
    let ended = sandbox(&wrong).run(&["check"]).exits(2);
    let problems: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("matrix.toml:"))
        .collect();
    assert!(problems.len() >= 8, "{}", ended.stderr);
    for problem in &problems {
        let mut parts = problem.split(':');
        assert_eq!(parts.next(), Some("matrix.toml"));
        for part in [parts.next(), parts.next()] {
            assert!(
                part.is_some_and(|number| number.parse::<u32>().is_ok()),
                "{problem}"
            );
        }
    }
    insta::assert_snapshot!(ended.stderr.trim(), @r#"
    matrix.toml:1:10: this version of nightsweep reads `format = 1` only
      hint: use the version of nightsweep that the file was written for
    matrix.toml:6:1: unknown key `subjct` in [sweep]
      hint: did you mean `subject`?
    matrix.toml:7:8: `tier` in [sweep] is `cpu`, which is neither an axis nor a derived value
      hint: did you mean `cpus`?
    matrix.toml:11:7: axis `web` has no level
    matrix.toml:14:19: unknown function `rond`
      hint: did you mean `round`?
    matrix.toml:14:31: unknown name `wb`
      hint: did you mean `web`?
    matrix.toml:18:10: `target` in [load] must start with http:// or https://, not be `ftp://app:8080` (allowed: such as http://app:8080)
    matrix.toml:24:20: in `closed` of [[phase]] "stress", `users` is 0, which is no number of virtual users (allowed: 1 to 60000 after rounding)
    matrix.toml:25:12: `duration` in [[phase]] "stress": `5 parsecs` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    9 problems
    "#);
}

#[test]
fn files_of_tls_are_read_before_anything_starts() {
    let wrong = MATRIX.replace(
        "target = \"http://app:8080\"",
        "target = \"https://app:8443\"\ntls = { ca = \"none.pem\" }",
    );
    let ended = sandbox(&wrong).run(&["check"]).exits(2);
    let problem = ended.stderr.lines().next().unwrap_or_default();
    assert!(
        problem.starts_with("matrix.toml:19:7: read certificates from "),
        "{}",
        ended.stderr
    );
    let insecure = wrong.replace("ca = \"none.pem\"", "insecure = true");
    sandbox(&insecure).run(&["check"]).exits(0);
}

#[test]
fn problems_between_files_name_both_sides() {
    let sandbox = sandbox(
        &MATRIX
            .replace("subject = \"app\"", "subject = \"ap\"")
            .replace("http://app", "http://web"),
    );
    sandbox.write(
        "workload.toml",
        &WORKLOAD.replace(
            "path = \"/\"",
            "path = \"/${thread}/${env.NIGHTSWEEP_NOT_SET}\"",
        ),
    );
    let ended = sandbox.run(&["check"]).exits(2);
    insta::assert_snapshot!(ended.stderr.trim(), @"
    matrix.toml:6:11: subject `ap` is not a service of the Compose files
      hint: did you mean `app`?
    matrix.toml:18:10: target `web` is not a service of the Compose files
      hint: services: app
    workload.toml:5:10: `${thread}` is no axis, derived value, capture or table field
      hint: did you mean `${threads}`?
    workload.toml:5:20: `${env.NIGHTSWEEP_NOT_SET}`: the environment variable NIGHTSWEEP_NOT_SET is not set
      hint: set it before the command: `NIGHTSWEEP_NOT_SET=... nightsweep ...`
    4 problems
    ");
}

#[test]
fn an_axis_that_reaches_nothing_is_an_error() {
    let ended = sandbox(&MATRIX.replace("round(cpus * web)", "round(cpus * 2)"))
        .run(&["plan"])
        .exits(2);
    insta::assert_snapshot!(ended.stderr.trim(), @"
    matrix.toml:11:1: axis `web` reaches neither the stack nor the load
      hint: use ${web}, or a value derived from it, in a Compose file, [override], the workload or a phase
    1 problem
    ");
}

#[test]
fn a_writable_bind_mount_is_refused_by_name_wherever_it_stands() {
    let sandbox = sandbox(MATRIX);
    sandbox.write("data/keep.txt", "the user's own");
    sandbox.write(
        "compose.yaml",
        &format!("{COMPOSE}    volumes:\n      - ./data:/var/lib/data\n"),
    );
    for command in ["check", "plan", "run"] {
        let ended = sandbox.run(&[command]).exits(2);
        assert!(ended.stderr.contains("compose.yaml:8:"), "{}", ended.stderr);
        assert!(ended.stderr.contains("writable_mount"), "{}", ended.stderr);
    }
    sandbox.write(
        "compose.yaml",
        &format!("{COMPOSE}    volumes:\n      - ./data:/var/lib/data:ro\n"),
    );
    sandbox.run(&["check"]).exits(0);
}

#[test]
fn what_is_asked_and_joins_no_network_is_a_problem_before_anything_starts() {
    let prove = "\n[[prove]]\nurl = \"http://quiet:9000/metrics\"\nseries = \"threads\"\nequals = \"${threads}\"\n";
    let sandbox = sandbox(&format!("{MATRIX}{prove}"));
    let quiet = "  quiet:\n    image: app:1\n    network_mode: none\n";
    let compose = format!("{COMPOSE}    depends_on: [quiet]\n{quiet}");
    sandbox.write("compose.yaml", &compose);
    let ended = sandbox.run(&["check"]).exits(2);
    assert!(
        ended
            .stderr
            .contains("`url` in [[prove]]: service `quiet` joins no network"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_missing_matrix_says_what_to_do() {
    let ended = Sandbox::new().run(&["plan"]).exits(2);
    insta::assert_snapshot!(ended.stderr.trim(), @"
    error: read the matrix: failed to open file `matrix.toml`: No such file or directory (os error 2)
      hint: name the matrix file, or let `nightsweep init` write one beside your Compose file
    ");
}

#[test]
fn a_missing_socket_is_an_environment_error_with_a_hint() {
    let sandbox = sandbox(MATRIX);
    let output = sandbox
        .command(&["run"])
        .env("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        .output()
        .unwrap();
    let ended = Ended::of(&output).exits(3);
    assert!(
        ended.stderr.contains("/nonexistent/docker.sock"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("hint:"), "{}", ended.stderr);
    assert!(
        !sandbox.path().join("results").exists(),
        "nothing may be written before the engine answers"
    );
}

#[test]
fn the_reference_matrix_has_its_eighty_cells() {
    let sandbox = Sandbox::new();
    let matrix = repository().join("matrix.toml");
    let ended = sandbox
        .run(&["plan", matrix.to_str().unwrap(), "--json"])
        .exits(0);
    let plan: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let cells = plan["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 80);
    for (cpus, web, db, threads, pool) in [
        (2.0, 1.5, 1.5, 3, 4),
        (2.0, 2.5, 2.5, 5, 12),
        (6.0, 1.5, 2.5, 9, 22),
        (6.0, 2.5, 1.5, 15, 22),
    ] {
        let cell = cells
            .iter()
            .find(|cell| {
                let axis = |name: &str| cell["axes"][name].as_f64().unwrap();
                axis("cpus") == cpus && axis("web") == web && axis("db") == db
            })
            .unwrap();
        assert_eq!(cell["derived"]["web_threads"], threads);
        assert_eq!(cell["derived"]["db_pool"], pool);
    }
}

#[test]
fn the_vendor_stack_passes_its_check() {
    let sandbox = Sandbox::new();
    let matrix = repository().join("compose/aidbox/matrix.toml");
    let output = sandbox
        .command(&["check", matrix.to_str().unwrap()])
        .env("AIDBOX_LICENSE", "not-a-licence")
        .env("AIDBOX_ROOT_SECRET", "not-a-secret")
        .env("AIDBOX_AUTHORIZATION", "Basic bm90OmE=")
        .output()
        .unwrap();
    Ended::of(&output).exits(0);
}

#[test]
fn the_demo_passes_its_check() {
    let matrix = repository().join("compose/testbed/demo.toml");
    Sandbox::new()
        .run(&["check", matrix.to_str().unwrap()])
        .exits(0);
}

#[test]
fn every_worked_example_can_be_planned() {
    let folder = repository().join("compose/testbed/workloads");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut matrices: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with("-matrix.toml"))
        .collect();
    matrices.sort();
    let mut said = Vec::new();
    for matrix in &matrices {
        let ended = Sandbox::new().run(&["plan", matrix.to_str().unwrap()]);
        let ended = ended.exits(0);
        let mut phases = ended
            .stdout
            .lines()
            .filter(|line| line.starts_with("phase "));
        said.push(phases.next_back().unwrap().to_owned());
        let check = Sandbox::new().run(&["check", matrix.to_str().unwrap()]);
        let check = check.exits(0);
        let words = check.stdout.rsplit_once("services, ").unwrap().1;
        said.push(words.trim().to_owned());
    }
    assert_eq!(
        said,
        [
            "phase         users, step 4, for 20 s after a ramp of 5 s, 200 virtual users, answers ladder",
            "3 requests a journey, no problems",
            "phase         users, step 2, for 10 s after a ramp of 2 s, 20 virtual users, answers ladder",
            "journeys `editor` 60 % (4 requests), `reader` 20 % (1 request), `worker` 20 % (2 requests), no problems",
            "phase         rates, step 3, for 15 s after a ramp of 5 s, 400 requests/s (Poisson arrivals) beside 5.00 requests/s of journey watch, answers ladder",
            "journeys `fast` 80 % (1 request), `slow` 15 % (1 request), `heavy` 5 % (1 request), `watch` 0 % (1 request), no problems",
        ]
    );
}

#[test]
fn a_journey_beside_a_phase_must_be_one_of_the_workload() {
    let sandbox = Sandbox::new();
    let folder = repository().join("compose/testbed/workloads");
    let text = std::fs::read_to_string(folder.join("endpoints-matrix.toml")).unwrap();
    let text = text
        .replace(
            "\"../compose.yaml\"",
            &format!("\"{}/../compose.yaml\"", folder.display()),
        )
        .replace(
            "\"endpoints.toml\"",
            &format!("\"{}/endpoints.toml\"", folder.display()),
        )
        .replace("journey = \"watch\"", "journey = \"watsh\"");
    sandbox.write("matrix.toml", &text);
    let ended = sandbox.run(&["plan"]).exits(2);
    assert!(
        ended.stderr.contains("the workload has no journey `watsh`")
            && ended.stderr.contains("did you mean `watch`?"),
        "{}",
        ended.stderr
    );
}

#[test]
fn init_writes_a_starter_that_passes_its_own_check() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "compose.yaml",
        "services:\n  web:\n    image: web:1\n    ports: ['8080:80']\n    depends_on: [db]\n  db:\n    image: postgres:17\n",
    );
    let ended = sandbox.run(&["init"]).exits(0);
    assert_eq!(ended.stdout.lines().count(), 2);
    sandbox.run(&["check"]).exits(0);
    let again = sandbox.run(&["init"]).exits(2);
    assert!(
        again.stderr.contains("nothing was written"),
        "{}",
        again.stderr
    );
}

#[test]
fn builds_that_cannot_be_read_are_found_by_check() {
    let sandbox = sandbox(MATRIX);
    let built = COMPOSE.replace("image: app:1", "build: ./nowhere");
    sandbox.write("compose.yaml", &built);
    let ended = sandbox.run(&["check"]).exits(2);
    let said = "compose.yaml:3:5: the build of `app`: the context ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("nowhere is no folder"),
        "{}",
        ended.stderr
    );
    sandbox.write(
        "nowhere/Dockerfile",
        "FROM scratch\nRUN --mount=type=ssh x\n",
    );
    let ended = sandbox.run(&["check"]).exits(2);
    assert!(
        ended.stderr.contains("the steps need BuildKit"),
        "{}",
        ended.stderr
    );
    sandbox.write("nowhere/Dockerfile", "FROM scratch\n");
    sandbox.run(&["check"]).exits(0);
}

#[test]
fn a_value_given_by_set_may_name_a_compose_file_and_an_axis_may_not() {
    let sandbox = sandbox(MATRIX);
    let including = format!("include: ['${{more}}.yaml']\n{COMPOSE}");
    sandbox.write("compose.yaml", &including);
    sandbox.write("db.yaml", "services:\n  db: {image: db:1}\n");
    sandbox.run(&["check", "--set", "more=db"]).exits(0);
    sandbox.write("compose.yaml", &including.replace("more", "web:-db"));
    let ended = sandbox.run(&["check"]).exits(2);
    let said = "`web` differs from cell to cell";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
}

/// An engine that tells its version and fails at all else.
fn half_an_engine() -> std::net::SocketAddr {
    use std::io::{Read as _, Write as _};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 2048];
            let n = stream.read(&mut head).unwrap_or(0);
            let line = String::from_utf8_lossy(&head[..n]).into_owned();
            let (status, body) = if line.starts_with("GET /version") {
                ("200 OK", r#"{"ApiVersion":"1.41","Version":"20.10"}"#)
            } else {
                (
                    "500 Internal Server Error",
                    r#"{"message":"the store is broken"}"#,
                )
            };
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: \
                 {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

#[test]
fn doctor_tells_of_the_host_though_the_engine_fails() {
    let address = half_an_engine();
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["doctor"]);
    command.env("DOCKER_HOST", format!("tcp://{address}"));
    let ended = Ended::of(&command.output().unwrap()).exits(3);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("FAIL  engine"), "{}", ended.stdout);
    assert!(lines[0].contains("the store is broken"), "{}", ended.stdout);
    // The checks of this host are below it all the same.
    let n_checks = lines.iter().filter(|line| line.contains("    ")).count();
    assert!(n_checks > 3, "{}", ended.stdout);
}
