//! `cargo xtask bench-load`: what a request costs the generator, beside every peer at hand.
//!
//! Generators take turns on CPU 0 against nginx on CPU 1, in rounds whose order rotates, so that
//! whatever else the host does meets all of them. All are measured by the same means from outside: CPU
//! time as the kernel gives it to the parent, requests as nginx counts them. Ratios are of the runs of one
//! round; their spread says how far to trust the one in the middle. A whole run is written to
//! `docs/proofs/`, anything shorter to `target/bench-load.md`.
//!
//! Read `peer.rs` for the command lines, `pinned.rs` for the measurement, `server.rs` for the target.

mod host;
mod memory;
mod network;
mod numbers;
mod peer;
mod pinned;
mod report;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

use self::host::HostCpu;
use self::memory::Memory;
use self::network::Network;
pub(crate) use self::numbers::median;
use self::peer::{Case, Peer, Places, Said};
use self::pinned::Watch;
use self::server::Server;
use crate::steps::{StepError, Steps, cargo, program};

/// What a run needs at least to be more than a trial.
const LEAST_ROUNDS: u32 = 5;
/// **Units**: seconds.
const LEAST_SECONDS: u32 = 10;

/// What was asked for.
#[derive(Debug, Clone)]
struct Options {
    rounds: u32,
    /// Length of one run. **Units**: seconds.
    seconds: u32,
    /// `get`, `post`, `crud`, `tls` or `memory`; all without it.
    only: Option<String>,
    binary: Option<PathBuf>,
    network: Network,
}

impl Options {
    fn parsed(words: &[&str]) -> Result<Self, StepError> {
        let mut options = Self {
            rounds: LEAST_ROUNDS,
            seconds: LEAST_SECONDS,
            only: None,
            binary: std::env::var_os("NIGHTSWEEP_PROVE_BINARY").map(Into::into),
            network: Network::Own,
        };
        let usage = |what: String| {
            StepError::new(what).hint(
                "usage: cargo xtask bench-load [--rounds N] [--seconds N] [--only get|post|crud|tls|memory] [--network own|host] [--binary PATH]",
            )
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(value) = words.next() else {
                return Err(usage(format!("`{word}` is no option, or has no value")));
            };
            let count = || match value.parse() {
                Ok(count @ 1..=1000) => Ok(count),
                _ => Err(usage(format!("{word}: `{value}` is no count of 1 to 1000"))),
            };
            match *word {
                "--rounds" => options.rounds = count()?,
                "--seconds" => options.seconds = count()?,
                "--only" if is_part(value) => options.only = Some((*value).to_owned()),
                "--only" => return Err(usage(format!("no part is called `{value}`"))),
                "--network" => {
                    let unknown = || usage(format!("no network is called `{value}`"));
                    options.network = Network::parsed(value).ok_or_else(unknown)?;
                }
                "--binary" => options.binary = Some(value.into()),
                _ => return Err(usage(format!("`{word}` is no option"))),
            }
        }
        Ok(options)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }

    /// Whether the figures may be quoted.
    fn is_whole(&self) -> bool {
        self.network == Network::Own
            && self.only.is_none()
            && self.rounds >= LEAST_ROUNDS
            && self.seconds >= LEAST_SECONDS
    }
}

fn is_part(word: &str) -> bool {
    word == "memory" || Case::ALL.iter().any(|case| case.name() == word)
}

/// One generator, once.
#[derive(Debug, Clone)]
struct Run {
    case: Case,
    /// From 1.
    round: u32,
    peer: Peer,
    said: Said,
    /// Requests as the server counted them.
    served: u64,
    wall_s: f64,
    cpu_s: f64,
    peak_kib: u64,
    server_cpu_s: f64,
    /// CPU time of all else on the host.
    others_cpu_s: f64,
    stolen_s: f64,
}

impl Run {
    /// CPU time for each request. **Units**: microseconds.
    fn cost_us(&self) -> f64 {
        self.cpu_s * 1e6 / self.served as f64
    }
}

/// A peer that is not installed, or what one that is says of its version.
#[derive(Debug, Clone)]
struct Found {
    peer: Peer,
    version: Option<String>,
}

/// All that was measured, for the report.
#[derive(Debug)]
struct Results {
    options: Options,
    found: Vec<Found>,
    runs: Vec<Run>,
    memory: Option<Memory>,
    about: String,
    load_before: String,
    load_after: String,
}

/// Measures, prints, writes; an error where a bound is missed.
pub(crate) fn bench_load(steps: &mut Steps, words: &[&str]) -> Result<(), StepError> {
    let mut options = Options::parsed(words)?;
    for (name, package) in [("nginx", "nginx-light"), ("taskset", "util-linux")] {
        let mut asked = program(name, &["-V"]);
        if asked.output().is_err() {
            return Err(
                StepError::new(format!("`{name}` does not start")).hint(format!(
                    "apt-get install {package}; it must be on PATH, as /usr/sbin is for root"
                )),
            );
        }
    }
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        return Err(StepError::new(
            "generator and server need a CPU each, and there is one",
        ));
    }
    if !network::is_inside() {
        // A namespace has no way to a registry.
        build(steps, &options)?;
        if options.network == Network::Own {
            if network::can_be_made(steps) {
                return network::run_inside(words);
            }
            eprintln!(
                "==> no network namespace can be made here (are you root?): the host's network is used"
            );
            options.network = Network::Host;
        }
    }
    let scratch = std::env::temp_dir().join(format!("nightsweep-bench-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let measured = measured(steps, options, &scratch);
    fs::remove_dir_all(&scratch)?;
    let results = measured?;
    let text = report::text(&results);
    let path = target_of(steps, &results.options)?;
    let date = steps
        .ask(&mut program("date", &["-u", "+%Y-%m-%d %H:%M UTC"]))
        .unwrap_or_default();
    fs::write(&path, format!("# bench-load, {date}\n\n{text}"))?;
    eprint!("\n{}", report::summary(&results));
    eprintln!("==> bench-load: {}", path.display());
    match report::missed(&results) {
        missed if missed.is_empty() => Ok(()),
        missed => Err(StepError::new(format!(
            "not as it must be: {}",
            missed.join("; ")
        ))),
    }
}

fn target_of(steps: &Steps, options: &Options) -> Result<PathBuf, StepError> {
    if !options.is_whole() {
        let folder = steps.root().join("target");
        fs::create_dir_all(&folder)?;
        return Ok(folder.join("bench-load.md"));
    }
    let date = steps
        .ask(&mut program("date", &["-u", "+%Y-%m-%d"]))
        .ok_or_else(|| StepError::new("`date` does not say the date"))?;
    let folder = steps.root().join("docs/proofs");
    fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{date}-bench-load.md")))
}

fn measured(steps: &Steps, options: Options, scratch: &Path) -> Result<Results, StepError> {
    let places = places(steps, &options, scratch)?;
    let found = found(steps);
    let server = Server::start(scratch, &places.root.join("compose/testbed/bodies"))?;
    let about = host::about(steps);
    let load_before = host::load_average();
    let mut runs = Vec::new();
    for case in Case::ALL {
        if options.wants(case.name()) {
            runs.extend(rounds(case, &options, &found, &places, &server)?);
        }
    }
    let memory = options
        .wants("memory")
        .then(|| memory::memory(&places, &server, options.seconds))
        .transpose()?;
    Ok(Results {
        options,
        found,
        runs,
        memory,
        about,
        load_before,
        load_after: host::load_average(),
    })
}

/// Builds what is ours.
fn build(steps: &mut Steps, options: &Options) -> Result<(), StepError> {
    let build = |package: &str| cargo(&["build", "--locked", "--release", "--package", package]);
    steps.run("build", &mut build("bare-loops"))?;
    if options.binary.is_none() {
        steps.run("build", &mut build("nightsweep"))?;
    }
    Ok(())
}

/// Writes what the command lines name.
fn places(steps: &Steps, options: &Options, scratch: &Path) -> Result<Places, StepError> {
    let root = steps.root().to_owned();
    let built = || root.join("target/release/nightsweep");
    let binary = options.binary.clone().unwrap_or_else(built);
    fs::write(peer::body_in(scratch), body())?;
    fs::copy(
        root.join("xtask/bench/post.toml"),
        scratch.join("post.toml"),
    )?;
    Ok(Places {
        binary,
        loops: root.join("target/release/bare-loops"),
        root,
        scratch: scratch.to_owned(),
    })
}

/// JSON of exactly 1024 bytes.
fn body() -> String {
    const LENGTH: usize = 1024;
    let mut text = "{\"kind\":\"order\",\"lines\":[".to_owned();
    let end = |note: usize| format!("],\"note\":\"{}\"}}", "n".repeat(note));
    let overhead = end(0).len();
    for line in 1.. {
        let next = format!(
            "{{\"article\":{},\"count\":{line},\"price\":9.95}},",
            4000 + line
        );
        if text.len() + next.len() + overhead > LENGTH {
            break;
        }
        text.push_str(&next);
    }
    text.pop();
    let note = LENGTH - text.len() - overhead;
    text + &end(note)
}

fn found(steps: &Steps) -> Vec<Found> {
    let version = |peer: Peer| match peer.foreign() {
        None => Some(String::new()),
        Some((words, _)) => {
            let output = program(words[0], &words[1..])
                .current_dir(steps.root())
                .output()
                .ok()?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            let line = said.lines().find(|line| {
                line.contains('.') && line.contains(|letter: char| letter.is_ascii_digit())
            });
            // hey has no version to say.
            Some(match line {
                Some(line) if peer != Peer::Hey => line.trim().to_owned(),
                _ => "says no version".to_owned(),
            })
        }
    };
    Peer::ALL
        .into_iter()
        .map(|peer| Found {
            peer,
            version: version(peer),
        })
        .collect()
}

/// All rounds of a case; the peers in turn, each round beginning with another.
fn rounds(
    case: Case,
    options: &Options,
    found: &[Found],
    places: &Places,
    server: &Server,
) -> Result<Vec<Run>, StepError> {
    let mut peers: Vec<Peer> = found
        .iter()
        .filter(|found| found.version.is_some() && found.peer.does(case))
        .map(|found| found.peer)
        .collect();
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        for peer in &peers {
            let run = run(case, round, *peer, options.seconds, places, server)?;
            eprintln!(
                "==> {} {round}/{}: {}: {:.2} us of CPU a request",
                case.name(),
                options.rounds,
                peer.name(),
                run.cost_us()
            );
            runs.push(run);
        }
        peers.rotate_left(1);
    }
    Ok(runs)
}

fn run(
    case: Case,
    round: u32,
    peer: Peer,
    seconds: u32,
    places: &Places,
    server: &Server,
) -> Result<Run, StepError> {
    let words = peer.words(case, &server.url(peer.wire()), seconds, places);
    let watch = Watch {
        every: Duration::from_millis(250),
        limit: Duration::from_secs(u64::from(seconds) * 2 + 60),
    };
    let (counts, server_cpu_s, host) = (server.counts()?, server.cpu_s()?, HostCpu::now()?);
    let taken = pinned::run(&words, &places.scratch, watch, || Ok(()))?;
    let host = HostCpu::now()?.since(host);
    let server_cpu_s = server.cpu_s()? - server_cpu_s;
    // The second look at the counts is a request, too.
    let n_requests = server.counts()?.requests - counts.requests - 1;
    let table = fs::read_to_string(places.table()).unwrap_or_default();
    let said = peer.read(&taken.said, &table).ok_or_else(|| {
        StepError::new(format!(
            "`{}` printed what is not understood:\n{}",
            words.join(" "),
            taken.said
        ))
    })?;
    if said.failed > 0.0 || n_requests == 0 {
        return Err(StepError::new(format!(
            "`{}`: {n_requests} requests reached nginx, {} were no success:\n{}",
            words.join(" "),
            said.failed,
            taken.said
        )));
    }
    Ok(Run {
        case,
        round,
        peer,
        said,
        served: n_requests,
        wall_s: taken.wall_s,
        cpu_s: taken.cpu_s,
        peak_kib: taken.peak_kib,
        server_cpu_s,
        others_cpu_s: (host.busy_s - server_cpu_s - taken.cpu_s).max(0.0),
        stolen_s: host.stolen_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_posted_body_is_1_kb_of_json() {
        let body = body();
        assert_eq!(body.len(), 1024);
        assert!(
            body.starts_with("{\"kind\"") && body.ends_with("n\"}"),
            "{body}"
        );
        assert!(body.contains("9.95}],\"note\""), "{body}");
    }

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let options = Options::parsed(&["--rounds", "2", "--only", "memory"]).expect("options");
        assert_eq!((options.rounds, options.seconds), (2, LEAST_SECONDS));
        assert!(options.wants("memory") && !options.wants("get") && !options.is_whole());
        assert!(Options::parsed(&[]).expect("none").is_whole());
        let host = Options::parsed(&["--network", "host"]).expect("options");
        assert!(!host.is_whole());
        for (words, problem) in [
            (&["--rounds"][..], "no value"),
            (&["--rounds", "0"], "no count"),
            (&["--only", "put"], "no part is called `put`"),
            (&["--network", "none"], "no network is called `none`"),
            (&["--fast", "1"], "`--fast` is no option"),
        ] {
            let error = Options::parsed(words).expect_err(problem);
            assert!(error.message.contains(problem), "{}", error.message);
        }
    }
}
