//! Running programs one after the other, with names and times.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A step that failed.
#[derive(Debug)]
pub(crate) struct StepError {
    /// What failed.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) hint: Option<String>,
}

impl StepError {
    /// A failure without a hint.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// The same failure with a next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Of a file: the message names its path.
impl From<std::io::Error> for StepError {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// The steps run so far, for the summary at the end.
#[derive(Debug)]
pub(crate) struct Steps {
    root: PathBuf,
    begun: Instant,
    done: Vec<(String, f64)>,
}

impl Steps {
    /// Steps in the workspace this program was built from.
    pub(crate) fn new() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self {
            root: manifest.parent().unwrap_or(manifest).to_owned(),
            begun: Instant::now(),
            done: Vec::new(),
        }
    }

    /// The workspace's folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Runs a program to its end in the workspace's folder, its output shown.
    pub(crate) fn run(&mut self, name: &str, command: &mut Command) -> Result<(), StepError> {
        let status = self.run_any(name, command)?;
        if status == 0 {
            Ok(())
        } else {
            Err(StepError::new(format!(
                "{name}: `{}` ended with {status}",
                line_of(command)
            )))
        }
    }

    /// The same, where other exit codes than 0 are for the caller to judge.
    pub(crate) fn run_any(&mut self, name: &str, command: &mut Command) -> Result<i32, StepError> {
        eprintln!("==> {name}: {}", line_of(command));
        let start = Instant::now();
        let status = command
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .status()
            .map_err(|error| cannot_start(command, &error))?;
        self.done
            .push((name.to_owned(), start.elapsed().as_secs_f64()));
        Ok(status.code().unwrap_or(-1))
    }

    /// Runs a program quietly; its standard output where it ended well.
    pub(crate) fn ask(&self, command: &mut Command) -> Option<String> {
        let output = command
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Counts steps that ran beside these.
    pub(crate) fn add(&mut self, beside: Self) {
        self.done.extend(beside.done);
    }

    /// A table of the steps and their times.
    pub(crate) fn summary(&self) -> String {
        let width = self
            .done
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0)
            .max(5);
        let mut text = String::new();
        for (name, seconds) in &self.done {
            let _ = writeln!(text, "  {name:<width$}  {seconds:>7.1} s");
        }
        let _ = write!(
            text,
            "  {:<width$}  {:>7.1} s",
            "total",
            self.begun.elapsed().as_secs_f64()
        );
        text
    }
}

/// `cargo` as the one that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    // What cargo told this program of its own package: build scripts that look at it would
    // take it for a change, and a good part of the tree would be built twice.
    for (name, _) in std::env::vars_os() {
        let is_ours = |name: &str| name == "CARGO_MANIFEST_DIR" || name.starts_with("CARGO_PKG_");
        if name.to_str().is_some_and(is_ours) {
            command.env_remove(name);
        }
    }
    command
}

/// A program with arguments.
pub(crate) fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments);
    command
}

fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> StepError {
    StepError::new(format!("cannot start `{}`: {error}", line_of(command)))
        .hint("is it installed and on PATH?")
}
