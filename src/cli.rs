//! The command line: what can be typed, and nothing of what it does.
//!
//! `app` turns the values parsed here into work. The exit codes are part of
//! the contract and are listed in `--help`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cpus::CpuMode;
use crate::threshold::Threshold;
use crate::units::parse_duration;

const EXIT_CODES: &str = "\
Exit codes:
    0  success
    1  a bug in nightsweep
    2  the input is wrong (matrix, Compose, workload, flags)
    3  the environment is not fit (no engine, image missing, too few CPUs)
    4  the sweep ended, some trials failed
    5  a gate is broken (--threshold)
  130  interrupted";

/// Measures which settings a containerised service should run with.
#[derive(Debug, Parser)]
#[command(name = "nightsweep", version, about, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented matrix.toml and workload.toml beside your Compose file
    Init(InitArgs),
    /// Read everything, report every problem with its place, start nothing
    Check(CheckArgs),
    /// Show the cells, what was dropped and merged, the order, time and disk
    Plan(PlanArgs),
    /// Show the resolved stack of a cell, or of Compose files, as it would be launched
    Stack(StackArgs),
    /// Run the sweep: launch, load, measure, record, draw
    Run(RunArgs),
    /// Draw tables and charts again from a run's files; needs no Docker
    Report(ReportArgs),
    /// Launch one cell and keep it up, to look around in it
    Up(UpArgs),
    /// Take down what `up` launched
    Down(DownArgs),
    /// Run the load generator by itself
    Load(LoadArgs),
    /// Say whether this host is fit to measure on, and where the engine is
    Doctor(DoctorArgs),
    /// Remove what nightsweep created and no living run owns; nothing else
    Clean(CleanArgs),
    /// Work on volumes inside a container of nightsweep's own
    #[command(hide = true)]
    Helper(HelperArgs),
}

/// Which matrix, and values for its Compose files.
#[derive(Debug, Clone, Args)]
pub struct MatrixArgs {
    /// The sweep's matrix file
    #[arg(default_value = "matrix.toml")]
    pub matrix: PathBuf,
    /// A value for `${NAME}` of the Compose files, recorded as it is; values of
    /// the process environment and `.env` work too, but count as secrets
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
}

/// `init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder with the Compose file
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// The service to size (default: guessed from the file)
    #[arg(long)]
    pub subject: Option<String>,
}

/// `check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
}

/// `plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Only cells for which this is true, such as "cpus <= 2 && web > 1"
    #[arg(long, value_name = "EXPR")]
    pub only: Option<String>,
    /// How the subject's CPU limit is put into force: `quota` or `cpuset` (default: as the matrix says)
    #[arg(long, value_name = "MODE")]
    pub cpu_mode: Option<CpuMode>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `stack`
#[derive(Debug, Args)]
pub struct StackArgs {
    /// The sweep's matrix file
    #[arg(default_value = "matrix.toml", conflicts_with = "files")]
    pub matrix: PathBuf,
    /// The cell whose values are put in, as `plan` names it (default: the first)
    #[arg(long, value_name = "ID", conflicts_with = "files")]
    pub cell: Option<String>,
    /// A Compose file instead of a matrix; several are merged in order
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// With -f: a profile to turn on; `*` is all
    #[arg(long = "profile", value_name = "NAME", requires = "files")]
    pub profiles: Vec<String>,
    /// With -f: a path or volume that services may write to, as `shared` of a matrix
    #[arg(long, value_name = "PATH", requires = "files")]
    pub shared: Vec<String>,
    /// A value for `${NAME}` of the Compose files, shown as it is
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
    /// Say where each value came from: its place in a file and the variables in it
    #[arg(long)]
    pub explain: bool,
    /// Show values of the environment, `.env` and secrets instead of their digests
    #[arg(long)]
    pub show_secrets: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// Only cells for which this is true, such as "cpus <= 2 && web > 1"
    #[arg(long, value_name = "EXPR")]
    pub only: Option<String>,
    /// How the subject's CPU limit is put into force: `quota` or `cpuset` (default: as the matrix says)
    #[arg(long, value_name = "MODE")]
    pub cpu_mode: Option<CpuMode>,
    /// Run the tiers this host can hold; the others get `skipped` rows
    #[arg(long)]
    pub skip_too_large: bool,
    /// End the sweep at the first trial that has no measurement
    #[arg(long)]
    pub fail_fast: bool,
    /// Print one JSON event a line
    #[arg(long)]
    pub json: bool,
    /// Folder that holds results/ and charts/
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// `report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A run id, a run's folder, or `latest`
    #[arg(default_value = "latest")]
    pub run: String,
    /// Folder that holds results/ and charts/
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

/// `up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Which matrix.
    #[command(flatten)]
    pub matrix: MatrixArgs,
    /// The cell to launch, as `plan` names it
    #[arg(long, value_name = "ID")]
    pub cell: String,
    /// How the subject's CPU limit is put into force: `quota` or `cpuset` (default: as the matrix says)
    #[arg(long, value_name = "MODE")]
    pub cpu_mode: Option<CpuMode>,
    /// Come back at once and leave it running until `down`
    #[arg(long)]
    pub detach: bool,
}

/// `down`
#[derive(Debug, Args)]
pub struct DownArgs {}

/// `load`
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// A workload file, or a URL to get again and again
    pub workload: String,
    /// Where requests go, such as <http://localhost:8080>
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,
    /// Closed loop: this many virtual users, one connection each
    #[arg(long, value_name = "USERS", conflicts_with = "open")]
    pub closed: Option<u32>,
    /// Open loop: this many requests a second, timed from the due time
    #[arg(long, value_name = "RATE")]
    pub open: Option<f64>,
    /// How the arrivals of an open loop are spaced
    #[arg(long, value_enum, default_value_t = ArrivalsChoice::Uniform)]
    pub arrivals: ArrivalsChoice,
    /// Most journeys under way at once in an open loop
    #[arg(long, default_value_t = 1000)]
    pub max_in_flight: u32,
    /// What must hold of the window, such as `p95 < 500 ms`, `error_rate < 1 %`, `throughput > 100/s`;
    /// of one operation as `NAME: p95 < 500 ms`. Where it does not, the exit code is 5
    #[arg(long = "threshold", value_name = "RULE", value_parser = parse_threshold)]
    pub thresholds: Vec<Threshold>,
    /// End the load as soon as a threshold is crossed, this long into the window at the earliest
    #[arg(long, value_name = "DURATION", requires = "thresholds", value_parser = parse_cli_duration)]
    pub abort_after: Option<Duration>,
    /// Length of the measured window
    #[arg(long, default_value = "10s", value_parser = parse_cli_duration)]
    pub duration: Duration,
    /// Unmeasured load before the window
    #[arg(long, default_value = "0s", value_parser = parse_cli_duration)]
    pub warm_up: Duration,
    /// Longest wait for one answer
    #[arg(long, default_value = "30s", value_parser = parse_cli_duration)]
    pub timeout: Duration,
    /// Load threads (default: the host's cores, at most 2)
    #[arg(long)]
    pub threads: Option<usize>,
    /// Seed of random values
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How requests travel.
    #[command(flatten)]
    pub wire: WireArgs,
    /// A value for `${NAME}` of the workload
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,
    /// Send one journey and stop
    #[arg(long)]
    pub once: bool,
    /// With --once: show every request and answer in full
    #[arg(long, requires = "once")]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How requests of `load` travel.
#[derive(Debug, Clone, Default, Args)]
pub struct WireArgs {
    /// Speak HTTP/2, one connection a user; a server without TLS must know that it is coming
    #[arg(long)]
    pub http2: bool,
    /// Over TLS: trust these certificates (PEM) in the place of the host's own
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca: Option<PathBuf>,
    /// Over TLS: our own certificate (PEM), where the service asks for one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Over TLS: take any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Over TLS: the name the certificate is for, where it is not the target's
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
}

/// How the arrivals of an open loop are spaced.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ArrivalsChoice {
    /// Evenly
    Uniform,
    /// At random and independently of each other, from the seed
    Poisson,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// End with exit code 3 when anything warns
    #[arg(long)]
    pub strict: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `clean`
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// Only what this run created
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// Remove golden volumes too, unless a living run uses them, and the image
    /// they are cloned with
    #[arg(long, conflicts_with = "run")]
    pub golden: bool,
    /// Remove images that were built from `build` sections too, unless a run is alive
    #[arg(long, conflicts_with = "run")]
    pub images: bool,
    /// Say what would be removed, remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `helper`: what the tool asks its own container to do
#[derive(Debug, Args)]
pub struct HelperArgs {
    /// What to do.
    #[command(subcommand)]
    pub job: HelperJob,
}

/// The jobs of the container.
#[derive(Debug, Subcommand)]
pub enum HelperJob {
    /// Copy folders and read the copies
    Clone {
        /// Root of the originals
        #[arg(long)]
        from: PathBuf,
        /// Root of the copies
        #[arg(long)]
        to: PathBuf,
        /// How content is passed on
        #[arg(long, value_enum, default_value_t = HelperMode::Auto)]
        mode: HelperMode,
        /// Do not read the content of the copies
        #[arg(long)]
        shape: bool,
        /// Wait until everything is on the disk
        #[arg(long)]
        sync: bool,
        /// Folders below the roots
        names: Vec<String>,
    },
    /// Read folders
    Fingerprint {
        /// Root of the folders
        #[arg(long)]
        at: PathBuf,
        /// Do not read the content of files
        #[arg(long)]
        shape: bool,
        /// Folders below the root
        names: Vec<String>,
    },
    /// Make the folders that overlays write to
    Scratch {
        /// Root of the folders that are overlaid
        #[arg(long)]
        from: PathBuf,
        /// Root of the places to write to
        #[arg(long)]
        to: PathBuf,
        /// Folders below the roots
        names: Vec<String>,
    },
}

/// How content is passed on.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum HelperMode {
    /// Shared where the file system can, else copied
    Auto,
    /// Shared
    Reflink,
    /// Copied
    Copy,
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn parse_threshold(text: &str) -> Result<Threshold, String> {
    // The last colon: names of operations may hold some, rules hold none.
    let (operation, rule) = match text.rsplit_once(':') {
        Some((operation, rule)) => (Some(operation.trim().to_owned()), rule),
        None => (None, text),
    };
    let mut threshold = Threshold::parse(rule).map_err(|why| format!("it {why}"))?;
    threshold.operation = operation;
    Ok(threshold)
}

fn parse_cli_duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
