//! What was measured, as text.

use std::fmt::Write as _;

use super::memory::{LIMIT_KIB, Memory, N_USERS};
use super::numbers::{Ratio, median, table};
use super::peer::{Case, Peer};
use super::{Results, Run};

/// A promise: the cost of one peer, at most so many times that of another.
struct Bound {
    what: &'static str,
    case: Case,
    peer: Peer,
    other: Peer,
    limit: f64,
}

const BOUNDS: [Bound; 5] = [
    Bound {
        what: "plain GET, by wrk",
        case: Case::Get,
        peer: Peer::Ours,
        other: Peer::Wrk,
        limit: 1.0,
    },
    Bound {
        what: "plain GET, by oha",
        case: Case::Get,
        peer: Peer::Ours,
        other: Peer::Oha,
        limit: 0.75,
    },
    Bound {
        what: "plain GET, by reqwest in a bare loop",
        case: Case::Get,
        peer: Peer::Ours,
        other: Peer::Reqwest,
        limit: 0.5,
    },
    Bound {
        what: "GET with body check, capture and operations, by plain wrk",
        case: Case::Get,
        peer: Peer::OursChecked,
        other: Peer::Wrk,
        limit: 1.3,
    },
    Bound {
        what: "the CRUD journey, by k6",
        case: Case::Crud,
        peer: Peer::Ours,
        other: Peer::K6,
        limit: 0.1,
    },
];

/// The generator's and the server's.
const N_CPUS: u32 = 2;
/// What all else may take of them in the median run. Above it, generator and server are pushed off their
/// CPUs often enough to change what a request costs.
const QUIET: f64 = 0.05;

/// Runs of one peer in one case, in the order of rounds.
fn of(results: &Results, case: Case, peer: Peer) -> Vec<&Run> {
    let runs = results.runs.iter();
    runs.filter(|run| run.case == case && run.peer == peer)
        .collect()
}

fn costs(results: &Results, case: Case, peer: Peer) -> Vec<f64> {
    of(results, case, peer)
        .iter()
        .map(|run| run.cost_us())
        .collect()
}

fn ratio(results: &Results, case: Case, peer: Peer, other: Peer) -> Option<Ratio> {
    Ratio::paired(&costs(results, case, peer), &costs(results, case, other))
}

fn ratio_of(results: &Results, bound: &Bound) -> Option<Ratio> {
    ratio(results, bound.case, bound.peer, bound.other)
}

fn mb(kib: f64) -> f64 {
    kib * 1024.0 / 1e6
}

/// Which promises are not kept; of a whole run those that were not measured are among them.
pub(super) fn missed(results: &Results) -> Vec<String> {
    let is_whole = results.options.is_whole();
    let mut missed: Vec<String> = BOUNDS
        .iter()
        .filter_map(|bound| match ratio_of(results, bound) {
            Some(ratio) => (ratio.median > bound.limit).then(|| {
                format!(
                    "{}: {:.2}, at most {}",
                    bound.what, ratio.median, bound.limit
                )
            }),
            None => is_whole.then(|| format!("{}: not measured", bound.what)),
        })
        .collect();
    let memory = results.memory.as_ref();
    match memory.and_then(Memory::holds) {
        Some(false) => missed.push(format!("{N_USERS} users who wait")),
        None if is_whole => missed.push(format!("{N_USERS} users who wait: not measured")),
        Some(true) | None => {}
    }
    missed
}

/// The promises and each case, for the terminal and for the top of the file.
pub(super) fn summary(results: &Results) -> String {
    let mut text = bounds(results);
    for case in Case::ALL {
        if results.runs.iter().any(|run| run.case == case) {
            let _ = write!(text, "\n## {}\n\n{}", case.title(), peers(results, case));
        }
    }
    if let Some(memory) = &results.memory {
        let _ = write!(
            text,
            "\n## {N_USERS} users connected at once, 30 s of think time\n\n{}",
            words_of(memory)
        );
    }
    text
}

fn bounds(results: &Results) -> String {
    let mut rows: Vec<Vec<String>> = BOUNDS
        .iter()
        .filter(|bound| results.options.wants(bound.case.name()))
        .map(|bound| {
            let (ratio, spread, verdict) = match ratio_of(results, bound) {
                None => ("-".to_owned(), "-".to_owned(), "not measured"),
                Some(ratio) => (
                    format!("{:.3}", ratio.median),
                    spread(ratio),
                    verdict(ratio.median <= bound.limit),
                ),
            };
            let limit = bound.limit.to_string();
            vec![
                bound.what.to_owned(),
                ratio,
                spread,
                limit,
                verdict.to_owned(),
            ]
        })
        .collect();
    if let Some(memory) = &results.memory {
        let (peak, verdict) = match (memory, memory.holds()) {
            (Memory::Measured { peak_kib, .. }, Some(holds)) => {
                (format!("{:.0} MB", mb(*peak_kib as f64)), verdict(holds))
            }
            _ => ("-".to_owned(), "not measured"),
        };
        rows.push(vec![
            format!("peak memory of {N_USERS} users"),
            peak,
            String::new(),
            format!("{:.0} MB", mb(LIMIT_KIB as f64)),
            verdict.to_owned(),
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    table(
        &[
            "CPU per request of nightsweep",
            "ratio",
            "min to max",
            "at most",
            "holds",
        ],
        &rows,
    )
}

fn verdict(holds: bool) -> &'static str {
    if holds { "yes" } else { "NO" }
}

fn spread(ratio: Ratio) -> String {
    format!("{:.3} to {:.3}", ratio.min, ratio.max)
}

fn peers(results: &Results, case: Case) -> String {
    // Where wrk cannot do it, k6 is what the others are measured by; what TLS and HTTP/2 cost,
    // the plain request is.
    let by = match case {
        Case::Secure => Peer::Ours,
        Case::Crud => Peer::K6,
        Case::Get | Case::Post => Peer::Wrk,
    };
    let rows: Vec<Vec<String>> = Peer::ALL
        .into_iter()
        .filter_map(|peer| {
            let runs = of(results, case, peer);
            if runs.is_empty() {
                return None;
            }
            let middle = |value: &dyn Fn(&Run) -> f64| median(runs.iter().map(|run| value(run)));
            let (ratio, spread) = ratio(results, case, peer, by)
                .map_or(("-".to_owned(), "-".to_owned()), |ratio| {
                    (format!("{:.3}", ratio.median), spread(ratio))
                });
            let own = runs
                .iter()
                .map(|run| Some(run.said.cpu_s? / run.cpu_s))
                .collect::<Option<Vec<f64>>>();
            Some(vec![
                peer.name().to_owned(),
                format!("{:.2}", middle(&Run::cost_us)),
                ratio,
                spread,
                format!("{:.0}", middle(&|run| run.said.rps)),
                format!("{:.2}", middle(&|run| run.said.p50_ms)),
                format!("{:.2}", middle(&|run| run.said.p99_ms)),
                format!("{:.0} %", 100.0 * middle(&|run| run.cpu_s / run.wall_s)),
                format!(
                    "{:.0} %",
                    100.0 * middle(&|run| run.server_cpu_s / run.wall_s)
                ),
                format!(
                    "{:.0} %",
                    100.0 / f64::from(N_CPUS) * middle(&|run| run.others_cpu_s / run.wall_s)
                ),
                format!("{:.0}", mb(middle(&|run| run.peak_kib as f64))),
                own.map_or("-".to_owned(), |own| {
                    format!("{:.1} %", 100.0 * median(own))
                }),
            ])
        })
        .collect();
    let by = format!("by {}", by.name());
    let header = [
        "medians",
        "us of CPU a request",
        &by,
        "min to max",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "CPU 0",
        "nginx on CPU 1",
        "others on both",
        "peak MB",
        "own word of CPU",
    ];
    table(&header, &rows)
}

fn words_of(memory: &Memory) -> String {
    match memory {
        Memory::NotRun(why) => format!("Not run: {why}.\n"),
        Memory::Measured {
            peak_kib,
            connected,
            seconds,
            requests,
            failed,
            cpu_s,
        } => format!(
            "Peak resident memory {:.1} MB ({:.1} KB a user). The server had {connected} connections open at once; \
             {requests:.0} requests in {seconds} s, {failed:.0} of them no success, {cpu_s:.2} s of CPU from start to end.\n",
            mb(*peak_kib as f64),
            mb(*peak_kib as f64) * 1000.0 / f64::from(N_USERS)
        ),
    }
}

/// The whole file but its title.
pub(super) fn text(results: &Results) -> String {
    let options = &results.options;
    let mut text = results.about.clone();
    if let Some(binary) = &results.options.binary {
        let _ = writeln!(
            text,
            "- nightsweep: {}, as it was given, whatever the commit is",
            binary.display()
        );
    }
    let _ = write!(
        text,
        "- network: {}\n- load average at the start {}, at the end {}\n- {} rounds of {} s{}\n",
        options.network.words(),
        results.load_before,
        results.load_after,
        options.rounds,
        options.seconds,
        if options.is_whole() {
            ""
        } else {
            "; **a trial, not to be quoted**"
        }
    );
    text.push_str(&noise(results));
    for found in &results.found {
        let name = found.peer.name();
        match (found.peer.foreign(), &found.version) {
            (Some(_), Some(version)) => {
                let _ = writeln!(text, "- {name}: {version}");
            }
            (Some((_, install)), None) => {
                let _ = writeln!(text, "- {name}: **missing**; {install}");
            }
            (None, _) => {}
        }
    }
    text.push_str(METHOD);
    text.push_str(&summary(results));
    text.push_str("\n## Every run\n\n");
    text.push_str(&every_run(results));
    text
}

/// How much else the host did, in words.
fn noise(results: &Results) -> String {
    let share = |run: &Run| (run.others_cpu_s + run.stolen_s) / (run.wall_s * f64::from(N_CPUS));
    let middle = median(results.runs.iter().map(share));
    let most = results
        .runs
        .iter()
        .max_by(|one, other| share(one).total_cmp(&share(other)));
    let Some(most) = most else {
        return String::new();
    };
    format!(
        "- everything else on the host, and its hypervisor, took {:.1} % of {N_CPUS} CPUs in the median run, {:.1} % at most ({}, {}, round {}){}\n",
        middle * 100.0,
        share(most) * 100.0,
        most.case.name(),
        most.peer.name(),
        most.round,
        if middle > QUIET {
            ": **a noisy run, not to be quoted**"
        } else {
            ""
        }
    )
}

const METHOD: &str = "
Generators take turns on CPU 0, each round beginning with another, against nginx (one process) on CPU 1. CPU time is user
and system time of the whole process from start to end, as the kernel gives it to the parent; requests are counted by nginx.
Ratios are of the runs of one round: the median, and the lowest and highest. Requests a second and percentiles are each
generator's own word (hey rounds to 0.1 ms); `own word of CPU` is the CPU time that a generator says of its window, as a part of
what was measured from outside, which has its start and end, too. `others` is CPU time of everything but the generator and nginx
while it ran, on both CPUs, and `stolen` is what the hypervisor kept back: a round with much of either is noisy.
nginx answers the CRUD journey without remembering anything, with bodies as large as those of a real server; k6 runs
xtask/bench/crud.js, which makes the same requests and checks and is written to be quick.

";

fn every_run(results: &Results) -> String {
    let rows: Vec<Vec<String>> = results
        .runs
        .iter()
        .map(|run| {
            let said = run.said.rps * f64::from(results.options.seconds) / run.served as f64;
            vec![
                run.peer.name().to_owned(),
                run.case.name().to_owned(),
                run.round.to_string(),
                run.served.to_string(),
                format!("{:.1} %", said * 100.0),
                format!("{:.3}", run.cpu_s),
                format!("{:.2}", run.cost_us()),
                format!("{:.0}", run.said.rps),
                format!("{:.3}", run.said.p50_ms),
                format!("{:.3}", run.said.p99_ms),
                format!("{:.2}", run.wall_s),
                format!("{:.2}", run.server_cpu_s),
                format!("{:.2}", run.others_cpu_s),
                format!("{:.2}", run.stolen_s),
            ]
        })
        .collect();
    table(
        &[
            "in the order they were run",
            "case",
            "round",
            "requests",
            "its own count",
            "CPU s",
            "us a request",
            "requests/s",
            "p50 ms",
            "p99 ms",
            "wall s",
            "nginx CPU s",
            "others CPU s",
            "stolen s",
        ],
        &rows,
    )
}

#[cfg(test)]
mod tests;
