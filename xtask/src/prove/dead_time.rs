//! Proof: dead time of a trial, beside `docker-compose` of the same stack.
//!
//! Rounds in turn, in alternating order, so that whatever else the host does meets
//! both. What the stack itself takes from start to healthy is taken off both, by the
//! engine's own events. Everything is counted against nightsweep and for the other:
//! the first trial of a sweep, which finds nothing prepared, is one of the trials,
//! and of `docker-compose` the wait for health ends within 20 ms of the event.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::bench_load::median;
use crate::images;
use crate::steps::{StepError, Steps, cargo, program};

/// Rounds of each.
const N_ROUNDS: usize = 7;
/// Trials of one sweep: one with nothing prepared, one in the middle, one with none after it.
const N_TRIALS: usize = 3;
/// Highest dead time, as a share of the other's.
const HIGHEST_RATIO: f64 = 0.5;
/// The services of the testbed's stack; the second starts when the first is healthy.
const SERVICES: [&str; 2] = ["db", "app"];
/// Longest wait for an event that must come.
const EVENT_LIMIT: Duration = Duration::from_mins(1);

/// What the rounds are run with.
struct Bench<'a> {
    root: &'a Path,
    scratch: &'a Path,
    binary: std::path::PathBuf,
    postgres: &'static str,
}

/// Runs the rounds; the proof as text.
pub(super) fn dead_time(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    let binary = binary(steps)?;
    let postgres = images::images_at_hand(steps)?;
    if steps
        .ask(&mut program("docker-compose", &["version", "--short"]))
        .is_none()
    {
        return Err(StepError::new("`docker-compose` does not run")
            .hint("this proof compares with docker-compose 1.29: install it"));
    }
    let root = steps.root().to_owned();
    let bench = Bench {
        root: &root,
        scratch,
        binary,
        postgres,
    };
    write_matrix(&bench)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..N_ROUNDS {
        let mut sides = ["nightsweep", "docker-compose"];
        if round % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            eprintln!("==> round {} of {N_ROUNDS}: {side}", round + 1);
            if side == "nightsweep" {
                ours.push(sweep(&bench, round)?);
            } else {
                theirs.push(compose(&bench, round)?);
            }
        }
    }
    let proof = text(steps, &ours, &theirs);
    fs::remove_dir_all(scratch)?;
    let ratio = ratio(&ours, &theirs);
    if ratio <= HIGHEST_RATIO {
        Ok(proof)
    } else {
        Err(StepError::new(format!(
            "dead time is {ratio:.2} of the other's:\n{proof}"
        )))
    }
}

/// The binary that users get, or the one that is named.
fn binary(steps: &mut Steps) -> Result<std::path::PathBuf, StepError> {
    if let Some(path) = std::env::var_os("NIGHTSWEEP_PROVE_BINARY") {
        return Ok(path.into());
    }
    steps.run(
        "build",
        &mut cargo(&["build", "--locked", "--release", "--package", "nightsweep"]),
    )?;
    Ok(steps.root().join("target/release/nightsweep"))
}

fn write_matrix(bench: &Bench<'_>) -> Result<(), StepError> {
    let stack = bench.root.join("compose/testbed");
    let text = format!(
        "format = 1\n\n[sweep]\nname = \"dead-time\"\nstack = [\"{0}/compose.yaml\"]\nsubject = \"app\"\ntier = \"cpus\"\n\n\
         [axes]\ncpus = [2]\n\n[trials]\nrepeats = {N_TRIALS}\norder = \"listed\"\nready_timeout = \"60s\"\n\n\
         [load]\nworkload = \"{0}/workload.toml\"\ntarget = \"http://app:8080\"\n\
         ready = {{ path = \"/health\", status = 200 }}\n\n\
         [[phase]]\nname = \"stress\"\nwindow = true\nanswers = \"capacity\"\nclosed = {{ users = 1 }}\nduration = \"1s\"\n",
        stack.display()
    );
    fs::write(bench.scratch.join("matrix.toml"), text)?;
    Ok(())
}

/// Start and first health of each service. **Units**: seconds since 1970.
type Boots = BTreeMap<String, (f64, f64)>;

/// The engine's events while something runs, one a line.
struct Events {
    child: Child,
    path: std::path::PathBuf,
}

impl Events {
    /// `trial`: the label that tells trials apart; `service`: the one that names services.
    fn listen(path: std::path::PathBuf, trial: &str, service: &str) -> Result<Self, StepError> {
        let file = fs::File::create(&path)?;
        let format = format!(
            "{{{{.TimeNano}}}}\t{{{{.Action}}}}\t{{{{index .Actor.Attributes \"{trial}\"}}}}\t{{{{index .Actor.Attributes \"{service}\"}}}}"
        );
        let label = format!("label={service}");
        let child = Command::new("docker")
            .args(["events", "--filter", "type=container", "--filter", &label])
            .args(["--filter", "event=start", "--filter", "event=health_status"])
            .args(["--format", &format])
            .stdin(Stdio::null())
            .stdout(file.into_parts().0)
            .spawn()
            .map_err(|error| StepError::new(format!("cannot start docker events: {error}")))?;
        Ok(Self { child, path })
    }

    /// Start and first health of each trial's services. **Units**: seconds since 1970.
    fn boots(&self) -> Result<BTreeMap<String, Boots>, StepError> {
        let mut starts: BTreeMap<(String, String), f64> = BTreeMap::new();
        let mut boots: BTreeMap<String, Boots> = BTreeMap::new();
        for line in fs::read_to_string(&self.path)?.lines() {
            let parts: Vec<&str> = line.split('\t').collect();
            let [time, action, trial, service] = parts[..] else {
                continue;
            };
            let Ok(nanos) = time.parse::<f64>() else {
                continue;
            };
            let at_s = nanos / 1e9;
            let key = (trial.to_owned(), service.to_owned());
            if action == "start" {
                starts.insert(key, at_s);
            } else if action == "health_status: healthy"
                && let Some(start) = starts.get(&key)
            {
                let of_trial = boots.entry(key.0).or_default();
                of_trial.entry(key.1).or_insert((*start, at_s));
            }
        }
        Ok(boots)
    }

    /// The same once everything of the last trial has become healthy.
    fn complete(&self, n_trials: usize) -> Result<Vec<Boots>, StepError> {
        let begun = Instant::now();
        loop {
            let boots = self.boots()?;
            let whole = boots.values().filter(|boots| boots.len() == SERVICES.len());
            if whole.clone().count() >= n_trials {
                return Ok(whole.cloned().collect());
            }
            if begun.elapsed() > EVENT_LIMIT {
                return Err(StepError::new(format!(
                    "the engine told of {boots:?} and nothing more"
                )));
            }
            pause(Duration::from_millis(20))?;
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something that tells of itself in a file only.
fn pause(time: Duration) -> Result<(), StepError> {
    let seconds = format!("{:.3}", time.as_secs_f64());
    let status = Command::new("sleep").arg(seconds).status();
    status
        .map(drop)
        .map_err(|error| StepError::new(format!("cannot start sleep: {error}")))
}

/// From start to healthy, one service after the other.
fn boot_s(boots: &Boots) -> f64 {
    boots.values().map(|(start, healthy)| healthy - start).sum()
}

/// One measurement: all of it, and what the stack itself took. **Units**: seconds.
#[derive(Clone, Copy)]
struct Measured {
    all_s: f64,
    boot_s: f64,
}

impl Measured {
    fn dead_s(self) -> f64 {
        self.all_s - self.boot_s
    }
}

/// A sweep; what each of its trials took beside its load, by its rows.
fn sweep(bench: &Bench<'_>, round: usize) -> Result<Vec<Measured>, StepError> {
    let path = bench.scratch.join(format!("events-sweep-{round}"));
    let events = Events::listen(path, "nightsweep.trial", "nightsweep.service")?;
    pause(Duration::from_millis(500))?;
    let out = bench.scratch.join(format!("results-{round}"));
    let output = Command::new(&bench.binary)
        .args(["run", "matrix.toml", "--out"])
        .arg(&out)
        .args(["--set", &format!("POSTGRES_IMAGE={}", bench.postgres)])
        .current_dir(bench.scratch)
        .output()
        .map_err(|error| StepError::new(format!("cannot start the sweep: {error}")))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(StepError::new(format!(
            "the sweep ended with {}: {words}",
            output.status
        )));
    }
    let dead_times = dead_times(&out)?;
    let boots = events.complete(N_TRIALS)?;
    Ok(dead_times
        .into_iter()
        .zip(&boots)
        .map(|(all_s, boots)| Measured {
            all_s,
            boot_s: boot_s(boots),
        })
        .collect())
}

/// `dead_time_s` of every trial of the one run in the folder.
fn dead_times(out: &Path) -> Result<Vec<f64>, StepError> {
    let run = fs::read_dir(out.join("results"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("trials.csv"))
        .find(|path| path.exists())
        .ok_or_else(|| StepError::new("the sweep left no rows"))?;
    let text = fs::read_to_string(run)?;
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap_or_default();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let (Some(dead), Some(verdict)) = (column("dead_time_s"), column("verdict")) else {
        return Err(StepError::new("the rows have no dead_time_s"));
    };
    let times: Vec<f64> = lines
        .filter(|row| row.get(verdict) == Some(&"valid"))
        .filter_map(|row| row.get(dead)?.parse().ok())
        .collect();
    if times.len() == N_TRIALS {
        Ok(times)
    } else {
        Err(StepError::new(format!("not every trial is valid:\n{text}")))
    }
}

/// `up -d`, the wait for health, `down -v`.
fn compose(bench: &Bench<'_>, round: usize) -> Result<Measured, StepError> {
    let path = bench.scratch.join(format!("events-compose-{round}"));
    let events = Events::listen(
        path,
        "com.docker.compose.project",
        "com.docker.compose.service",
    )?;
    pause(Duration::from_millis(500))?;
    let project = format!("nsproof{}x{round}", std::process::id());
    let begun = Instant::now();
    let up = docker_compose(bench, &project, &["up", "-d"]);
    let up_s = begun.elapsed().as_secs_f64();
    // Nobody's clock but the engine's: the wait is from the last start to its health.
    let boots = up.and_then(|()| events.complete(1));
    let waited = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    docker_compose(bench, &project, &["down", "-v"])?;
    let down_s = begun.elapsed().as_secs_f64();
    let boots = boots?.remove(0);
    Ok(Measured {
        all_s: waited.max(up_s) + down_s,
        boot_s: boot_s(&boots),
    })
}

fn docker_compose(bench: &Bench<'_>, project: &str, words: &[&str]) -> Result<(), StepError> {
    let output = Command::new("docker-compose")
        .args(["--project-name", project, "--file"])
        .arg(bench.root.join("compose/testbed/compose.yaml"))
        .args(words)
        .env("TESTBED_IMAGE", "nightsweep/testbed:local")
        .env("POSTGRES_IMAGE", bench.postgres)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| StepError::new(format!("cannot start docker-compose: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(StepError::new(format!("docker-compose {words:?}: {said}")))
}

/// Median over all trials by the median over all rounds.
fn ratio(ours: &[Vec<Measured>], theirs: &[Measured]) -> f64 {
    median(ours.iter().flatten().map(|one| one.dead_s()))
        / median(theirs.iter().map(|one| one.dead_s()))
}

fn text(steps: &Steps, ours: &[Vec<Measured>], theirs: &[Measured]) -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let version = steps
        .ask(&mut program("docker-compose", &["version", "--short"]))
        .unwrap_or_default();
    let mut text = format!(
        "The bundled stack (compose/testbed/compose.yaml: PostgreSQL, then the service once it is healthy), \
         {N_ROUNDS} rounds in alternating order: a sweep of {N_TRIALS} trials with a window of 1 s, and \
         docker-compose {version} `up -d`, wait for health, `down -v`. In seconds; `all` is `dead_time_s` of the \
         rows, or the wall time of the other; `stack` is what its services took from start to first healthy by \
         the engine's events, which is taken off both. Load average at the end: {}.\n\n\
         | round | nightsweep: all - stack = dead, for each trial | docker-compose |\n| --- | --- | --- |\n",
        load.trim()
    );
    let of = |one: &Measured| {
        format!(
            "{:.2} - {:.2} = **{:.2}**",
            one.all_s,
            one.boot_s,
            one.dead_s()
        )
    };
    for (round, (trials, other)) in ours.iter().zip(theirs).enumerate() {
        let trials: Vec<String> = trials.iter().map(of).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            round + 1,
            trials.join("; "),
            of(other)
        );
    }
    let first = median(ours.iter().map(|trials| trials[0].dead_s()));
    let later = median(
        ours.iter()
            .flat_map(|trials| &trials[1..])
            .map(|one| one.dead_s()),
    );
    let all = median(ours.iter().flatten().map(|one| one.dead_s()));
    let other = median(theirs.iter().map(|one| one.dead_s()));
    let _ = write!(
        text,
        "\n| median | s |\n| --- | ---: |\n| nightsweep, all trials | {all:.2} |\n\
         | nightsweep, first of a sweep: nothing prepared, versions asked | {first:.2} |\n\
         | nightsweep, the others | {later:.2} |\n| docker-compose | {other:.2} |\n\
         | ratio (must be at most {HIGHEST_RATIO}) | {:.2} |\n",
        ratio(ours, theirs)
    );
    text
}
