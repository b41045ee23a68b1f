//! What the report says of figures that are known.

use super::*;
use crate::bench_load::peer::Said;
use crate::bench_load::{Found, Network, Options};

/// A run of 10 s whose requests took `cost_us` each.
fn run(case: Case, round: u32, peer: Peer, cost_us: f64) -> Run {
    Run {
        case,
        round,
        peer,
        said: Said {
            rps: 10_000.0,
            p50_ms: 1.0,
            p99_ms: 2.0,
            failed: 0.0,
            cpu_s: (peer == Peer::Ours).then_some(0.9 * cost_us / 10.0),
        },
        served: 100_000,
        wall_s: 10.0,
        cpu_s: cost_us / 10.0,
        peak_kib: 10_000,
        server_cpu_s: 5.0,
        others_cpu_s: 0.25,
        stolen_s: 0.0,
    }
}

fn results(runs: Vec<Run>, memory: Option<Memory>) -> Results {
    let found = |peer: Peer| Found {
        peer,
        version: (peer != Peer::Oha).then(|| "1.0".to_owned()),
    };
    Results {
        options: Options {
            rounds: 2,
            seconds: 10,
            only: None,
            binary: None,
            network: Network::Own,
        },
        found: Peer::ALL.into_iter().map(found).collect(),
        runs,
        memory,
        about: String::new(),
        load_before: "0.1".to_owned(),
        load_after: "0.2".to_owned(),
    }
}

fn memory(peak_kib: u64, connected: u64, failed: f64) -> Memory {
    Memory::Measured {
        peak_kib,
        connected,
        seconds: 10,
        requests: 10_000.0,
        failed,
        cpu_s: 1.0,
    }
}

#[test]
fn ratios_are_judged_by_their_median_and_what_is_missing_is_not_judged() {
    let kept = vec![
        run(Case::Get, 1, Peer::Ours, 9.0),
        run(Case::Get, 1, Peer::Wrk, 10.0),
        run(Case::Get, 2, Peer::Ours, 22.0),
        run(Case::Get, 2, Peer::Wrk, 20.0),
    ];
    let mut broken = kept.clone();
    broken.push(run(Case::Crud, 1, Peer::Ours, 12.0));
    broken.push(run(Case::Crud, 1, Peer::K6, 100.0));
    let kept = results(kept, None);
    assert_eq!(missed(&kept), Vec::<String>::new());
    let text = text(&kept);
    assert!(text.contains("1.000 | 0.900 to 1.100 |"), "{text}");
    assert!(
        text.contains("oha: **missing**; cargo install oha"),
        "{text}"
    );
    assert!(text.contains("not to be quoted"), "{text}");
    assert!(text.contains("90.0 % |"), "{text}");
    let line = |what: &str| {
        let line = text.lines().find(|line| line.contains(what));
        line.unwrap_or_default().to_owned()
    };
    assert!(line("by oha").contains("not measured"), "{text}");
    assert_eq!(
        missed(&results(broken, None)),
        ["the CRUD journey, by k6: 0.12, at most 0.1"]
    );
}

#[test]
fn a_host_that_did_something_else_is_said_to_be_noisy() {
    let quiet = vec![run(Case::Get, 1, Peer::Wrk, 10.0)];
    let mut noisy = quiet.clone();
    noisy[0].others_cpu_s = 1.5;
    noisy[0].stolen_s = 0.5;
    let words = noise(&results(noisy, None));
    assert!(
        words.contains("10.0 % of 2 CPUs in the median run"),
        "{words}"
    );
    assert!(
        words.contains("(get, wrk, round 1): **a noisy run"),
        "{words}"
    );
    assert!(!noise(&results(quiet, None)).contains("noisy"));
    assert_eq!(noise(&results(Vec::new(), None)), "");
}

#[test]
fn memory_counts_only_with_every_user_there_and_no_failure() {
    let holds = |memory: Memory| missed(&results(Vec::new(), Some(memory))).is_empty();
    assert!(holds(memory(290_000, 10_000, 0.0)));
    assert!(!holds(memory(LIMIT_KIB, 10_000, 0.0)));
    assert!(!holds(memory(290_000, 9_999, 0.0)));
    assert!(!holds(memory(290_000, 10_000, 1.0)));
    let not_run = Memory::NotRun("too few files".to_owned());
    let results = results(Vec::new(), Some(not_run));
    assert!(missed(&results).is_empty());
    assert!(text(&results).contains("Not run: too few files."));
}

#[test]
fn a_whole_run_without_a_peer_keeps_no_promise_about_it() {
    let mut whole = results(Vec::new(), None);
    whole.options.rounds = 5;
    assert!(whole.options.is_whole());
    let missed = missed(&whole);
    assert_eq!(missed.len(), BOUNDS.len() + 1, "{missed:?}");
    assert!(
        missed.iter().all(|what| what.ends_with(": not measured")),
        "{missed:?}"
    );
}
