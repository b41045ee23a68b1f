//! The command line: what can be typed, and nothing of what it does.
//!
//! `app` turns the values parsed here into work. The exit codes are part of
//! the contract and are listed in `--help`.

mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use http::{HeaderName, Method};

pub use self::values::{StageAmount, StageArg};
use self::values::{parse_basic, parse_header, parse_stage};
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
    Load(Box<LoadArgs>),
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
    /// Print figures of a part of each window instead, which begins this far into it
    /// (whole seconds, such as 10s)
    #[arg(long, value_name = "DURATION", value_parser = parse_whole_seconds)]
    pub from: Option<u32>,
    /// And ends this far into it (default: with the window)
    #[arg(long, value_name = "DURATION", value_parser = parse_whole_seconds)]
    pub to: Option<u32>,
    /// With --from or --to: print JSON, with every operation
    #[arg(long)]
    pub json: bool,
    /// With --from or --to: print CSV, with every operation
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
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

const LOAD_EXAMPLES: &str = "\
Examples:
  nightsweep load http://127.0.0.1:8080/x -c 50 -z 30s      50 users for 30 s: how much can be had?
  nightsweep load http://127.0.0.1:8080/x -q 2000 -z 1m     2,000 requests/s: how long do they take?
  nightsweep load http://127.0.0.1:8080/x -q 100 -n 500     500 requests, evenly over 5 s
  nightsweep load http://127.0.0.1:8080/x -d '{\"a\":1}' -H 'x-key: 7'
  nightsweep load http://127.0.0.1:8080/x --stage '50 users, ramp 10s, hold 30s' \\
                                          --stage '100 users, ramp 10s, hold 30s'
  nightsweep load workload.toml --target http://127.0.0.1:8080 --profile stress -c 100
  nightsweep load workload.toml --target http://127.0.0.1:8080 --once --verbose

In a closed loop (-c) a user sends when its last answer is in: it finds the most that can be had,
and hides how long others would have waited. In an open loop (-q) requests are due whatever the
service does, and are timed from when they were due. -c, -z, -m, -H and -t are as in oha, apart
from what they are unless given. -q goes without -c: --max-in-flight bounds the connections of an
open loop. -n goes with -q alone. -d makes it a POST unless -m says otherwise; @FILE is oha's -D.";

/// `load`
#[derive(Debug, Args)]
#[command(after_help = LOAD_EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag that stands on the command line or does not"
)]
pub struct LoadArgs {
    /// A workload file, or a URL to ask again and again
    pub workload: String,
    /// Where the requests of a workload file go, such as <http://localhost:8080>
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,
    /// Of a URL: its method (default: GET, with -d POST)
    #[arg(short = 'm', long, value_name = "METHOD", value_parser = parse_method)]
    pub method: Option<Method>,
    /// Of a URL: a header, such as 'accept: text/html'
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    pub headers: Vec<(HeaderName, String)>,
    /// Of a URL: what is sent, or `@FILE` for what is in a file. One that is JSON is sent
    /// as `application/json` unless -H says otherwise
    #[arg(short = 'd', long, value_name = "BODY")]
    pub body: Option<String>,
    /// Of a URL: user and password, sent as basic authentication
    #[arg(short = 'a', long, value_name = "USER:PASSWORD", value_parser = parse_basic)]
    pub basic: Option<(String, String)>,
    /// Of a URL: follow at most so many redirects; each answer must come from the same server
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    pub redirects: Option<u8>,
    /// Closed loop: this many virtual users, one connection each (default: 10)
    #[arg(short = 'c', long, value_name = "USERS", conflicts_with = "open")]
    pub closed: Option<u32>,
    /// Open loop: this many requests a second, timed from the due time
    #[arg(short = 'q', long, value_name = "RATE")]
    pub open: Option<f64>,
    /// With --open: so many requests in all, in place of a duration
    #[arg(short = 'n', long, value_name = "N", conflicts_with_all = ["duration", "stages", "profile"], value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// A load that is gone to evenly, then held: '50 users, ramp 10s, hold 30s' or
    /// '200/s, hold 30s'. Several follow each other; each that is held makes a row
    #[arg(long = "stage", value_name = "STAGE", conflicts_with_all = ["closed", "open", "duration"], value_parser = parse_stage)]
    pub stages: Vec<StageArg>,
    /// A shape with a name, in shares of --closed or --open, such as `stress`: 50, 100, 150, 200 %
    #[arg(long, value_enum, conflicts_with_all = ["stages", "duration"])]
    pub profile: Option<ProfileChoice>,
    /// With --profile: how long each ramp takes, in place of its own
    #[arg(long, value_name = "DURATION", requires = "profile", value_parser = parse_cli_duration)]
    pub ramp: Option<Duration>,
    /// With --profile: how long each load is held, in place of its own
    #[arg(long, value_name = "DURATION", requires = "profile", value_parser = parse_cli_duration)]
    pub hold: Option<Duration>,
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
    #[arg(short = 'z', long, default_value = "10s", value_parser = parse_some_time)]
    pub duration: Duration,
    /// Unmeasured load before the window
    #[arg(long, default_value = "0s", value_parser = parse_cli_duration)]
    pub warm_up: Duration,
    /// Longest wait for one answer
    #[arg(short = 't', long, default_value = "30s", value_parser = parse_some_time)]
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
    /// Say nothing while the load runs
    #[arg(long)]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A shape of load with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProfileChoice {
    /// 5 % of the load for 30 s
    Smoke,
    /// A ramp of 30 s, the load for 5 minutes
    Load,
    /// 50, 100, 150 and 200 %, each 2 minutes after a ramp of 30 s
    Stress,
    /// The load, for a minute five times the load, the load again
    Spike,
    /// A ramp of a minute, the load for an hour
    Soak,
    /// 25 % more with each of 20 steps of 30 s, until a threshold ends it
    Breakpoint,
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

fn parse_method(text: &str) -> Result<Method, String> {
    const ALLOWED: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
    let text = text.to_ascii_uppercase();
    let method = ALLOWED.iter().find(|allowed| **allowed == text);
    method
        .and_then(|method| method.parse().ok())
        .ok_or_else(|| format!("allowed: {}", ALLOWED.join(", ")))
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

fn parse_some_time(text: &str) -> Result<Duration, String> {
    match parse_cli_duration(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        length => Ok(length),
    }
}

/// Interval logs have one entry a second: nothing finer can be cut out of them.
fn parse_whole_seconds(text: &str) -> Result<u32, String> {
    let length = parse_cli_duration(text)?;
    let seconds = length.as_secs();
    if length.subsec_nanos() > 0 {
        return Err(format!(
            "windows are cut at whole seconds, as they were recorded; write {seconds}s or {}s",
            seconds + 1
        ));
    }
    u32::try_from(seconds).map_err(|_| "no window is that long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn parts_of_windows_are_cut_at_whole_seconds() {
        let parse = parse_whole_seconds;
        assert_eq!(parse("10s"), Ok(10));
        assert_eq!(parse("1m30s"), Ok(90));
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(
            parse("1500ms").unwrap_err(),
            "windows are cut at whole seconds, as they were recorded; write 1s or 2s"
        );
        assert!(parse("10").unwrap_err().contains("not a duration"));
        assert!(parse("876000h").is_ok() && parse("99h99").is_err());
    }

    #[test]
    fn a_load_of_no_time_is_refused_by_the_option_that_asks_for_it() {
        for (option, long) in [("-z", "--duration"), ("-t", "--timeout")] {
            let words = ["nightsweep", "load", "http://a/", option, "0ms"];
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(long), "{error}");
            assert!(error.contains("longer than nothing"), "{error}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
