//! `cargo xtask prove [PART]`: proofs too long for every change.
//!
//! Each part writes `docs/proofs/<date>-<part>.md` with what was run, on what,
//! and what came out. A part that already has a file of today is not repeated,
//! so an interrupted `prove` goes on where it stopped.

mod corpus;
mod dead_time;
mod freeze;
mod fuzz;
mod launches;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fs_err as fs;

use crate::steps::{StepError, Steps, program};

/// A part: its name and what it does; the text is the proof.
type Part = (
    &'static str,
    fn(&mut Steps, &Path) -> Result<String, StepError>,
);

const PARTS: [Part; 8] = [
    ("cold-demo", cold_demo),
    ("golden", golden),
    ("dead-time", dead_time::dead_time),
    ("launches", launches::launches),
    ("freeze", freeze::freeze),
    ("fuzz", fuzz::compose),
    ("fuzz-answers", fuzz::answers),
    (corpus::NAME, corpus::corpus),
];

/// Trials of the proof of golden volumes.
const GOLDEN_TRIALS: u32 = 10;

/// The demo's promise to a newcomer.
const COLD_DEMO_LIMIT_MIN: f64 = 20.0;

/// Runs one part or all.
pub(crate) fn prove(steps: &mut Steps, part: Option<&str>) -> Result<(), StepError> {
    let chosen: Vec<&Part> = PARTS
        .iter()
        .filter(|(name, _)| part.is_none_or(|part| part == *name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
        return Err(
            StepError::new(format!("no proof is called `{}`", part.unwrap_or_default()))
                .hint(format!("proofs: {}", names.join(", "))),
        );
    }
    let date = steps
        .ask(&mut program("date", &["-u", "+%Y-%m-%d"]))
        .ok_or_else(|| StepError::new("`date` does not say the date"))?;
    let folder = steps.root().join("docs/proofs");
    fs::create_dir_all(&folder)?;
    for (name, work) in chosen {
        let path = folder.join(format!("{date}-{name}.md"));
        if path.exists() {
            eprintln!("==> {name}: done today, see {}", path.display());
            continue;
        }
        if part.is_none() && *name == corpus::NAME && !corpus::is_at_hand() {
            eprintln!("==> {name}: left out, {} is not set", corpus::VARIABLE);
            continue;
        }
        let text = work(steps, &scratch(name)?)?;
        let about = about(steps);
        fs::write(&path, format!("# {name}, {date}\n\n{about}\n{text}"))?;
        eprintln!("==> {name}: {}", path.display());
    }
    Ok(())
}

/// From a fresh clone, without a target folder or our images, to charts.
fn cold_demo(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    let clone = scratch.join("clone");
    let root = steps.root().display().to_string();
    let target = clone.display().to_string();
    steps.run(
        "clone",
        &mut program(
            "git",
            &["clone", "--quiet", "--no-hardlinks", &root, &target],
        ),
    )?;
    for image in ["nightsweep/testbed:local", "nightsweep/postgres:15-local"] {
        // An image that is not there is as cold as it gets.
        steps.run_any(
            "forget image",
            &mut program("docker", &["image", "rm", "--force", image]),
        )?;
    }
    let begun = Instant::now();
    let status = Command::new("cargo")
        .args(["xtask", "demo"])
        .current_dir(&clone)
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .map_err(|error| StepError::new(format!("cannot start the demo: {error}")))?;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    if !status.success() {
        return Err(StepError::new(format!(
            "the demo ended with {status} after {minutes:.1} min"
        )));
    }
    let rows = rows_of(&clone)?;
    let labelled = labelled(steps);
    let proof = format!(
        "`git clone`, both images removed, then `cargo xtask demo`.\n\n\
         | what | measured | must be |\n| --- | --- | --- |\n\
         | from cold to charts | {minutes:.1} min | under {COLD_DEMO_LIMIT_MIN} min |\n\
         | trials with only valid windows | {} of {} | all, at least 8 |\n\
         | labelled containers, networks, volumes left | {labelled} | 0 |\n\n\
         ```csv\n{}```\n",
        rows.valid_trials, rows.trials, rows.excerpt
    );
    let is_proven = minutes < COLD_DEMO_LIMIT_MIN
        && rows.valid_trials == rows.trials
        && rows.trials >= 8
        && labelled == 0;
    fs::remove_dir_all(scratch)?;
    if is_proven {
        Ok(proof)
    } else {
        Err(StepError::new(format!(
            "the demo is not as promised:\n{proof}"
        )))
    }
}

/// Ten trials on a golden volume of 200 MB of PostgreSQL data.
fn golden(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    const TEST: &str = "every_trial_begins_with_the_same_200_mb_and_sees_no_write_of_another";
    let begun = Instant::now();
    let output = Command::new("cargo")
        .args([
            "test",
            "--release",
            "--locked",
            "--features",
            "docker-tests",
        ])
        .args(["--test", "it", "--", "--nocapture", TEST])
        .current_dir(steps.root())
        .env("NIGHTSWEEP_TEST_GOLDEN_TRIALS", GOLDEN_TRIALS.to_string())
        .output()
        .map_err(|error| StepError::new(format!("cannot start the proof: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut facts = String::new();
    for line in text.lines().filter(|line| line.contains("cloned by")) {
        let _ = writeln!(facts, "- {line}");
    }
    if !output.status.success() || facts.is_empty() {
        return Err(StepError::new(format!(
            "the proof of golden volumes failed:\n{text}{}",
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    fs::remove_dir_all(scratch)?;
    Ok(format!(
        "A stack of three services with a one-shot migration and a service that seeds; {GOLDEN_TRIALS} trials, \
         then one more on an overlay. Every row has the golden's fingerprint; a table that each trial makes is \
         found by none; a second run uses the golden again; `clean` keeps it, `clean --golden` removes it, and \
         not while a run uses it. {:.0} s in all.\n\n{facts}",
        begun.elapsed().as_secs_f64()
    ))
}

struct Rows {
    trials: usize,
    valid_trials: usize,
    excerpt: String,
}

/// The demo's rows, cut to the columns that a reader of the proof looks for.
fn rows_of(clone: &Path) -> Result<Rows, StepError> {
    const SHOWN: [&str; 8] = [
        "trial",
        "cell_id",
        "window",
        "verdict",
        "flags",
        "throughput_rps",
        "p99_due_ms",
        "dead_time_s",
    ];
    let results = clone.join("results");
    let newest = fs::read_dir(&results)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("demo-"))
        })
        .max();
    let path = newest
        .ok_or_else(|| StepError::new("the demo left no run"))?
        .join("trials.csv");
    let text = fs::read_to_string(&path)?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let columns: Vec<usize> = SHOWN.iter().filter_map(|name| column(name)).collect();
    let mut excerpt = format!("{}\n", SHOWN.join(","));
    // Cells before `detail`, the last column, hold no commas.
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    for row in &rows {
        let cells: Vec<&str> = columns
            .iter()
            .filter_map(|index| row.get(*index).copied())
            .collect();
        let _ = writeln!(excerpt, "{}", cells.join(","));
    }
    let (trial, verdict) = (column("trial").unwrap_or(0), column("verdict").unwrap_or(0));
    let mut trials: Vec<&str> = rows
        .iter()
        .filter_map(|row| row.get(trial).copied())
        .collect();
    trials.dedup();
    let is_valid = |wanted: &&&str| {
        rows.iter()
            .filter(|row| row.get(trial) == Some(*wanted))
            .all(|row| row.get(verdict) == Some(&"valid"))
    };
    Ok(Rows {
        trials: trials.len(),
        valid_trials: trials.iter().filter(is_valid).count(),
        excerpt,
    })
}

fn labelled(steps: &Steps) -> usize {
    [
        &["ps", "-aq"][..],
        &["network", "ls", "-q"],
        &["volume", "ls", "-q"],
    ]
    .iter()
    .map(|list| {
        let mut arguments = list.to_vec();
        arguments.extend(["--filter", "label=nightsweep.run"]);
        steps
            .ask(&mut program("docker", &arguments))
            .map_or(usize::MAX / 4, |text| text.lines().count())
    })
    .sum()
}

/// Commit, host and tools, as a short list.
fn about(steps: &Steps) -> String {
    let commit = steps
        .ask(&mut program("git", &["rev-parse", "--short", "HEAD"]))
        .unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let engine = steps
        .ask(&mut program(
            "docker",
            &["version", "--format", "{{.Server.Version}}"],
        ))
        .unwrap_or_default();
    let model = fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            text.lines().find_map(|line| {
                line.strip_prefix("model name")
                    .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
            })
        })
        .unwrap_or_else(|| "unknown".to_owned());
    format!("- commit {commit}\n- {cores} cores, {model}\n- Docker Engine {engine}\n")
}

/// A folder of its own for a part.
fn scratch(name: &str) -> Result<PathBuf, StepError> {
    let path = std::env::temp_dir().join(format!("nightsweep-prove-{name}-{}", std::process::id()));
    fs::create_dir_all(&path)?;
    Ok(path)
}
