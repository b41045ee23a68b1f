//! A sweep whose load a k6 script makes, on the real testbed.

use std::time::Duration;

use super::Testbed;
use crate::support::repository;

/// A script as a team has it: its URL is the one of `docker compose up`.
const SCRIPT: &str = r"
import http from 'k6/http';
import { check, group } from 'k6';
const API = 'http://localhost:8080/fhir';
const params = { headers: { 'Content-Type': 'application/fhir+json' } };
export const options = {
  scenarios: {
    crud: { executor: 'constant-vus', vus: Number(__ENV.USERS), duration: '8s', gracefulStop: '5s' },
  },
  thresholds: { http_req_failed: ['rate<0.01'], http_req_duration: ['p(95)<0.001'] },
};
export function setup() {
  return { family: http.get('http://localhost:8080/health').status === 200 ? 'Load' : 'None' };
}
export default function (data) {
  let id;
  group('create', () => {
    const patient = { resourceType: 'Patient', name: [{ family: data.family }] };
    const res = http.post(`${API}/Patient`, JSON.stringify(patient), params);
    check(res, { created: (r) => r.status === 201 && r.json('id') !== undefined });
    id = res.json('id');
  });
  const read = http.get(`${API}/Patient/${id}`, { tags: { name: 'read' } });
  check(read, { 'is read': (r) => r.status === 200 });
}
";

impl Testbed {
    fn k6_matrix(&self, more: &str) {
        let binary = std::env::var("NIGHTSWEEP_TEST_K6");
        let binary = binary.map_or(String::new(), |path| format!("k6_binary = \"{path}\"\n"));
        let text = format!(
            "format = 1\n\n[sweep]\nname = \"test\"\nstack = [\"{0}/compose.yaml\"]\nsubject = \"app\"\ntier = \"cpus\"\n\n\
             [axes]\ncpus = [0.5, 1]\nweb = [4]\n\n[derived]\nweb_threads = \"max(1, round(cpus * web))\"\ndb_pool = \"web_threads + 1\"\n\n\
             [trials]\nrepeats = 1\norder = \"listed\"\nready_timeout = \"60s\"\n\n\
             [load]\nk6 = {{ script = \"crud.js\", env = {{ USERS = \"4\" }} }}\n{binary}target = \"http://app:8080\"\n\
             ready = {{ path = \"/health\", status = 200 }}\n\n{more}",
            repository().join("compose/testbed").display(),
        );
        self.sandbox.write("matrix.toml", &text);
        self.sandbox.write("crud.js", SCRIPT);
    }
}

#[test]
fn a_k6_script_runs_unchanged_in_every_cell() {
    let testbed = Testbed::new();
    testbed.k6_matrix(
        "[[phase]]\nname = \"first\"\nwindow = true\nanswers = \"capacity\"\nfrom = \"2s\"\nduration = \"2s\"\n\n\
         [[phase]]\nname = \"second\"\nwindow = true\nanswers = \"capacity\"\nscenario = \"crud\"\nfrom = \"4s\"\nduration = \"3s\"\n",
    );
    testbed.run(&["run"]).exits(0);
    testbed.assert_nothing_left();
    let rows = testbed.rows();
    assert_eq!(rows.len(), 4, "two cells, two windows");
    for row in &rows {
        assert_eq!(row.text("verdict"), "valid", "{row:?}");
        assert_eq!(
            (row.text("load_model"), row.text("latency_from")),
            ("script", "send")
        );
        assert_eq!(
            (row.number("errors"), row.number("unsent")),
            (0.0, 0.0),
            "{row:?}"
        );
        assert!(row.number("successes") > 50.0, "{row:?}");
        assert_eq!(row.number("successes"), row.number("requests"));
        assert!(row.number("generator_cpu_cores") > 0.01, "{row:?}");
        assert!(row.number("subject_cpu_cores") > 0.05, "{row:?}");
        assert_eq!(row.text("proof"), "kernel");
        let flags = row.text("flags");
        assert!(
            flags.contains("threshold_crossed") && flags.contains("too_few"),
            "{row:?}"
        );
        assert!(
            row.text("thresholds_crossed").contains("http_req_duration"),
            "{row:?}"
        );
    }
    assert_eq!(rows[0].number("warmup_s"), 2.0);
    let folder = testbed.run_folder();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&read("run.json")).unwrap();
    assert!(
        manifest["k6"]["version"]
            .as_str()
            .unwrap()
            .starts_with("1.")
    );
    assert_eq!(manifest["k6"]["scenarios"][0]["name"], "crud");
    assert_eq!(read("inputs/crud.js"), SCRIPT);
    let operations = read("operations.csv");
    assert!(
        operations.contains("POST /fhir/Patient") && operations.contains(",read,"),
        "{operations}"
    );
    assert!(!operations.contains("/health"), "set-up is in no window");
}

/// (process id, parent) of every k6 that makes load.
fn k6s() -> Vec<(String, String)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let k6s = stats.filter_map(|stat| {
        let (before, after) = stat.rsplit_once(')')?;
        let id = before.strip_suffix("(k6")?.trim().to_owned();
        let words = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        if !words.contains("\0run\0") {
            return None;
        }
        Some((id, after.split_whitespace().nth(1)?.to_owned()))
    });
    k6s.collect()
}

/// A sweep that is under way, and the process id of its k6.
fn start_with_k6(testbed: &Testbed) -> (super::Running, String) {
    testbed.k6_matrix(
        "[[phase]]\nname = \"steady\"\nwindow = true\nanswers = \"capacity\"\nfrom = \"1s\"\nduration = \"6s\"\n",
    );
    let running = testbed.start(&["run"]);
    let owner = running.id();
    let mut id = String::new();
    super::wait_until(Duration::from_secs(90), || {
        let found = k6s().into_iter().find(|(_, parent)| *parent == owner);
        id = found.map(|(id, _)| id).unwrap_or_default();
        !id.is_empty()
    });
    (running, id)
}

fn is_running(id: &str) -> bool {
    k6s().iter().any(|(running, _)| running == id)
}

#[test]
fn an_interrupted_sweep_leaves_no_k6_behind() {
    let testbed = Testbed::new();
    let (running, id) = start_with_k6(&testbed);
    running.signal("INT");
    running.end(Duration::from_mins(1)).exits(130);
    assert!(!is_running(&id), "{id}");
    testbed.assert_nothing_left();
    assert!(
        testbed
            .rows()
            .iter()
            .all(|row| row.text("verdict") != "valid")
    );
}

#[test]
fn k6_ends_with_a_sweep_that_is_killed() {
    let testbed = Testbed::new();
    let (running, id) = start_with_k6(&testbed);
    running.signal("KILL");
    running.end(Duration::from_mins(1));
    // Its script would go on for longer.
    super::wait_until(Duration::from_secs(4), || !is_running(&id));
    testbed.sandbox.run(&["clean"]).exits(0);
    testbed.assert_nothing_left();
}
