//! Sweeps of the real testbed and a real PostgreSQL on a real Docker Engine.
//!
//! One at a time where they measure, else beside each other. Each asserts that nothing of
//! ours is left.

mod debugging;
mod failures;
mod faults;
mod health;
mod images;
mod isolation;
mod journeys;
#[cfg(feature = "k6-tests")]
mod k6;
#[cfg(feature = "k6-tests")]
mod k6_bad_scripts;
#[cfg(feature = "k6-tests")]
mod k6_scripts;
mod launches;
mod proofs;
mod replicas;
mod state;
mod sweeps;

use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::support::{Ended, Sandbox, repository};

static TURNS: RwLock<()> = RwLock::new(());

/// Who else may be on the engine.
#[expect(dead_code, reason = "held, never looked into")]
enum Turn {
    Alone(RwLockWriteGuard<'static, ()>),
    Beside(RwLockReadGuard<'static, ()>),
}

/// A sweep of the testbed in a folder of its own.
pub(super) struct Testbed {
    pub(super) sandbox: Sandbox,
    turn: Turn,
    /// What others had left on the engine before.
    before: Vec<String>,
}

/// Containers, networks and volumes with a label, by name.
fn labelled(label: &str) -> Vec<String> {
    let lists = [
        ["ps", "-a", "--format", "{{.Names}}"].as_slice(),
        &["network", "ls", "--format", "{{.Name}}"],
        &["volume", "ls", "--format", "{{.Name}}"],
    ];
    let names = lists.map(|list| docker(&[list, &["--filter", label]].concat()));
    let names = names.iter().flat_map(|names| names.lines());
    names.map(str::to_owned).collect()
}

/// A test that fails half-way must not cost the next ones.
impl Drop for Testbed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What it started has ended or been killed, so its owner is dead.
            self.sandbox.run(&["clean"]);
        }
    }
}

/// The phases of a test's matrix, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Phases {
    pub(super) warm_up: u32,
    pub(super) latency: Option<u32>,
    pub(super) stress: u32,
}

impl Testbed {
    /// Waits until it is alone, and writes nothing yet.
    pub(super) fn new() -> Self {
        let turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        Self {
            sandbox: Sandbox::new(),
            turn: Turn::Alone(turn),
            before: labelled("label=nightsweep.run"),
        }
    }

    /// For a test to which neither figures matter nor what else is on the engine.
    pub(super) fn beside_others() -> Self {
        let turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Self {
            sandbox: Sandbox::new(),
            turn: Turn::Beside(turn),
            before: Vec::new(),
        }
    }

    /// A matrix over the bundled stack with these axes and phases; `more` is appended.
    pub(super) fn matrix(&self, axes: &str, phases: Phases, more: &str) {
        let stack = repository().join("compose/testbed");
        let mut text = format!(
            "format = 1\n\n[sweep]\nname = \"test\"\nstack = [\"{0}/compose.yaml\"]\nsubject = \"app\"\ntier = \"cpus\"\n\n\
             [axes]\n{axes}\n\n[derived]\nweb_threads = \"max(1, round(cpus * web))\"\ndb_pool = \"web_threads + 1\"\n\n\
             [trials]\nrepeats = 1\norder = \"listed\"\nready_timeout = \"60s\"\n\n\
             [load]\nworkload = \"{0}/workload.toml\"\ntarget = \"http://app:8080\"\n\
             ready = {{ path = \"/health\", status = 200 }}\n\n\
             [[phase]]\nname = \"warm-up\"\nclosed = {{ users = 2 }}\nduration = \"{1}s\"\n",
            stack.display(),
            phases.warm_up,
        );
        if let Some(seconds) = phases.latency {
            let _ = write!(
                text,
                "\n[[phase]]\nname = \"latency\"\nwindow = true\nanswers = \"latency\"\n\
                 open = {{ requests_per_second = 200 }}\nduration = \"{seconds}s\"\n"
            );
        }
        let _ = write!(
            text,
            "\n[[phase]]\nname = \"stress\"\nwindow = true\nanswers = \"capacity\"\nclosed = {{ users = 4 }}\nduration = \"{}s\"\n{more}",
            phases.stress
        );
        self.sandbox.write("matrix.toml", &text);
    }

    /// `nightsweep COMMAND ARGUMENTS`, with the PostgreSQL image that this host has.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let image = postgres_image();
        let mut command = self.sandbox.command(arguments);
        command.args(["--set", &format!("POSTGRES_IMAGE={image}")]);
        command
    }

    /// Runs it to its end.
    pub(super) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(&self.command(arguments).output().unwrap())
    }

    /// Starts it and lets the test go on.
    pub(super) fn start(&self, arguments: &[&str]) -> Running {
        let child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running::new(child)
    }

    /// The rows of the only run, as name to text.
    pub(super) fn rows(&self) -> Vec<Row> {
        let text = std::fs::read_to_string(self.run_folder().join("trials.csv")).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        reader
            .records()
            .map(|record| {
                let record = record.unwrap();
                Row(header
                    .iter()
                    .zip(record.iter())
                    .map(|(name, cell)| (name.to_owned(), cell.to_owned()))
                    .collect())
            })
            .collect()
    }

    /// Waits until the container of a service of the only run runs; its id.
    #[track_caller]
    pub(super) fn container_of(&self, service: &str) -> String {
        let mut id = String::new();
        wait_until(Duration::from_mins(1), || {
            id = self.running(service);
            !id.is_empty()
        });
        id
    }

    /// The container of a service of the only run, where it runs now; never another run's.
    pub(super) fn running(&self, service: &str) -> String {
        let Ok(mut runs) = std::fs::read_dir(self.sandbox.path().join("results")) else {
            return String::new();
        };
        let Some(run) = runs.next() else {
            return String::new();
        };
        let run = run.unwrap().file_name().to_string_lossy().into_owned();
        let filters = [
            format!("label=nightsweep.run={run}"),
            format!("label=nightsweep.service={service}"),
        ];
        docker(&["ps", "-q", "--filter", &filters[0], "--filter", &filters[1]])
    }

    /// Fails unless nothing of ours is left on the engine: of its own runs, where it is not alone.
    #[track_caller]
    pub(super) fn assert_nothing_left(&self) {
        let mut labels = vec!["label=nightsweep.run".to_owned()];
        if matches!(self.turn, Turn::Beside(_)) {
            let runs = std::fs::read_dir(self.sandbox.path().join("results"));
            labels = runs
                .into_iter()
                .flatten()
                .map(|run| run.unwrap().file_name().to_string_lossy().into_owned())
                .map(|run| format!("label=nightsweep.run={run}"))
                .collect();
        }
        for label in labels {
            let mut left = labelled(&label);
            left.retain(|name| !self.before.contains(name));
            assert_eq!(left, Vec::<String>::new(), "{label}");
        }
    }

    /// The folder of the only run.
    pub(super) fn run_folder(&self) -> std::path::PathBuf {
        let mut runs: Vec<_> = std::fs::read_dir(self.sandbox.path().join("results"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }
}

/// One row of trials.csv.
#[derive(Debug)]
pub(super) struct Row(std::collections::BTreeMap<String, String>);

impl Row {
    #[track_caller]
    pub(super) fn text(&self, column: &str) -> &str {
        self.0
            .get(column)
            .unwrap_or_else(|| panic!("no column {column}"))
    }

    #[track_caller]
    pub(super) fn number(&self, column: &str) -> f64 {
        self.text(column)
            .parse()
            .unwrap_or_else(|_| panic!("{column} is `{}` in {self:?}", self.text(column)))
    }
}

/// A command that is running.
pub(super) struct Running {
    child: Option<Child>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    pub(super) fn new(child: Child) -> Self {
        Self { child: Some(child) }
    }

    /// Its process id.
    pub(super) fn id(&self) -> String {
        self.child.as_ref().unwrap().id().to_string()
    }

    /// Sends a signal by name, as `INT`.
    pub(super) fn signal(&self, name: &str) {
        let child = self.child.as_ref().unwrap();
        let status = Command::new("kill")
            .args([&format!("-{name}"), &child.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Whether it has not ended yet.
    pub(super) fn is_running(&mut self) -> bool {
        let child = self.child.as_mut().unwrap();
        child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; kills it and fails when that takes too long.
    #[track_caller]
    pub(super) fn end(mut self, limit: Duration) -> Ended {
        let mut child = self.child.take().unwrap();
        let deadline = Instant::now() + limit;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                let output = child.wait_with_output().unwrap();
                panic!(
                    "still running after {limit:?}; stderr:\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            pause();
        }
        Ended::of(&child.wait_with_output().unwrap())
    }
}

/// The PostgreSQL image to test with.
pub(super) fn postgres_image() -> String {
    std::env::var("NIGHTSWEEP_TEST_POSTGRES_IMAGE")
        .unwrap_or_else(|_| "nightsweep/postgres:15-local".to_owned())
}

/// What `docker ARGUMENTS` prints.
#[track_caller]
pub(super) fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "docker {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Waits until something is so; fails after the limit.
#[track_caller]
pub(super) fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so within {limit:?}");
        pause();
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}
