use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::load::Workload;
use crate::load::arrivals::tests::{ONE_IN_1_000, distance_from_exponential, gaps_s};
use crate::load::plan::Arrivals;
use crate::load::test_load::{
    assert_adds_up, closed, ms, open, plan, poisson, run, run_one, seen_within, workload,
};
use crate::load::test_server::{Got, Reply, TestServer, ok};
use crate::measure::{Flag, Pacing, Reason, judge};

#[test]
fn shares_add_up_and_differ_by_one_at_most() {
    for (total, n) in [(1_000, 3), (7, 7), (5, 2), (1, 1)] {
        let shares: Vec<u32> = (0..n).map(|index| share(total, index, n)).collect();
        assert_eq!(shares.iter().sum::<u32>(), total);
        assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
    }
}

#[test]
fn an_open_loop_holds_its_rate() {
    for (rate, length_ms) in [(200.0, 3_000), (2_000.0, 2_000)] {
        let server = TestServer::start(|_| ok());
        let phases = [(open(rate, 100), 300), (open(rate, 100), length_ms)];
        let summary = run(plan(&server.target, Workload::get("/"), &phases))
            .pop()
            .unwrap();
        let counts = summary.total.counts;
        let planned = rate * length_ms as f64 / 1e3;
        assert!(
            (counts.requests as f64 / planned - 1.0).abs() < 0.005,
            "{counts:?}"
        );
        assert_eq!(counts.unsent, 0);
        assert_eq!(summary.arrivals, counts.due);
        assert_eq!(counts.successes, counts.due);
        let seen = seen_within(&server, &summary);
        // What was on its way at an edge; more where the machine is busy.
        assert!(
            seen.abs_diff(counts.requests) <= counts.due / 20,
            "{seen} {counts:?}"
        );
        assert_adds_up(&summary);
    }
}

#[test]
fn a_frozen_server_shows_in_latency_from_due_and_nothing_is_left_out() {
    // One worker that stands still for a second: what was due meanwhile waits.
    let frozen_until = Arc::new(Mutex::new(None::<Instant>));
    let server = TestServer::start(move |got: &Got| {
        let mut until = frozen_until.lock().unwrap();
        if got.index == 100 {
            *until = Some(Instant::now() + Duration::from_secs(1));
        }
        let wait = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        Reply::After(wait, Box::new(ok()))
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(open(200.0, 20), 2_500)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.due, 500);
    assert_eq!(counts.successes, 500, "{counts:?}");
    assert!(summary.held_back > 100, "twenty at once, the rest waits");
    let p99 = summary.total.p99_due_ms.unwrap();
    assert!((900.0..2_000.0).contains(&p99), "{p99}");
    // About 200 of 500 were due in the second; their mean wait is half of it.
    let mean = summary.total.latency_ms.mean.unwrap();
    assert!((120.0..600.0).contains(&mean), "{mean}");
    let lag = summary.total.send_lag_ms.p99.unwrap();
    assert!(lag > 700.0, "waiting for a connection is lag: {lag}");
    let own = summary.generator_lag_ms.p99.unwrap();
    assert!(own < 300.0, "but not the generator's: {own}");
    assert_adds_up(&summary);
}

#[test]
fn arrivals_that_never_leave_are_unsent_and_the_rest_abandoned() {
    let server = TestServer::start(|_| Reply::Never);
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(open(100.0, 10), 500), (closed(1), 100)],
    );
    plan.drain = ms(200);
    plan.timeout = Duration::from_secs(20);
    let summaries = run(plan);
    let counts = summaries[0].total.counts;
    assert_eq!(
        (counts.due, counts.requests, counts.abandoned, counts.unsent),
        (50, 10, 10, 40)
    );
    assert_eq!(summaries[0].held_back, 40);
    assert_eq!(summaries[0].arrivals, 50);
    assert_eq!(summaries[0].total.p99_due_ms, Some(f64::INFINITY));
    let tags: Vec<&str> = summaries[0]
        .intervals
        .iter()
        .map(|interval| interval.tag.as_str())
        .collect();
    assert_eq!(tags, ["GET%20%2F|abandoned", "GET%20%2F|unsent"]);
}

#[test]
fn a_server_that_never_answers_is_overloaded_and_the_generator_is_not_to_blame() {
    let server = TestServer::start(|_| Reply::Never);
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(open(40.0, 50), 3_000)],
    );
    plan.drain = ms(200);
    plan.timeout = Duration::from_secs(20);
    let summary = run_one(plan);
    let verdict = judge(&summary, Pacing::Open);
    let lag = summary.generator_lag_ms.p99;
    assert_eq!(verdict.reasons, [Reason::NoSuccess], "lag {lag:?}");
    assert!(verdict.flags.contains(&Flag::Overloaded), "{verdict:?}");
}

#[test]
fn throughput_is_what_was_sent_in_the_window_not_what_the_drain_made_up_for() {
    // Ten at once for 20 ms each: at most 500/s, whatever is asked for.
    let server = TestServer::start(|_| Reply::After(ms(20), Box::new(ok())));
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(open(2_000.0, 10), 1_000)],
    );
    plan.drain = ms(1_500);
    let summary = run_one(plan);
    let total = &summary.total;
    assert_eq!(total.counts.due, 2_000);
    assert!(total.throughput_rps <= 520.0, "{}", total.throughput_rps);
    assert!(total.throughput_rps > 100.0, "{}", total.throughput_rps);
    assert!(total.achieved_rate_rps <= 520.0, "{total:?}");
    assert!(
        total.counts.successes as f64 > 1.3 * total.throughput_rps,
        "those of the drain are counted: {total:?}"
    );
    let of_operation = summary.operations[0].1.throughput_rps;
    assert!((of_operation - total.throughput_rps).abs() < 1e-9);
    let verdict = judge(&summary, Pacing::Open);
    assert!(verdict.flags.contains(&Flag::Overloaded), "{verdict:?}");
}

#[test]
fn what_was_passed_over_is_counted_in_the_second_it_was_due() {
    let start = Instant::now();
    let phase = PhaseClock {
        index: 0,
        start,
        end: start + ms(2_500),
        model: open(10_000.0, 1),
        ramp_from: None,
    };
    let pacer = Pacer {
        start,
        seed: 1,
        sequence: RefCell::new(ArrivalSequence::new(
            Arrivals::Uniform,
            Rate::constant(10_000.0),
            1,
            1,
            2,
        )),
        stops_at: Cell::new(None),
    };
    assert_eq!(
        pacer.skip_to_end_of(&phase),
        [(0, 5_000), (1, 5_000), (2, 2_500)]
    );
    assert_eq!(pacer.skip_to_end_of(&phase), []);
    assert!(pacer.next_due().is_some_and(|due| due >= phase.end));
}

#[test]
fn poisson_arrivals_reach_the_server_as_they_were_drawn_on_any_number_of_threads() {
    let (rate, drawn_from, length) = (80.0, 11, Duration::from_secs(6));
    let mut drawn = ArrivalSequence::new(Arrivals::Poisson, Rate::constant(rate), drawn_from, 0, 1);
    let mut due = Vec::new();
    while drawn.due() < length {
        due.push(drawn.due());
        drawn.advance();
    }
    // The level is one of the moments due, which are the same in every run.
    let distance = distance_from_exponential(&gaps_s(&due), rate);
    assert!(distance < ONE_IN_1_000, "{distance}");
    for threads in [1, 3] {
        let server = TestServer::start(|_| ok());
        let phases = [(poisson(rate, 200), 6_000)];
        let mut plan = plan(&server.target, Workload::get("/"), &phases);
        (plan.threads, plan.seed) = (threads, drawn_from);
        let summary = run_one(plan);
        let counts = summary.total.counts;
        assert_eq!(counts.successes, due.len() as u64, "{counts:?}");
        assert_eq!(summary.arrivals, counts.due);
        let mut seen: Vec<Duration> = server
            .log()
            .iter()
            .map(|(at, _)| at.saturating_duration_since(summary.started))
            .filter(|at| *at < length + ms(500))
            .collect();
        seen.sort_unstable();
        seen.truncate(due.len());
        let mut lags: Vec<Duration> = seen
            .iter()
            .zip(&due)
            .map(|(seen, due)| {
                assert!(seen >= due, "{seen:?} is before {due:?}");
                seen.saturating_sub(*due)
            })
            .collect();
        lags.sort_unstable();
        assert!(lags[lags.len() / 2] < ms(10), "{lags:?}");
        let distance = distance_from_exponential(&gaps_s(&seen), rate);
        // Lags of a busy machine take a part of the short gaps; evenly spaced arrivals are at
        // 13 for all that.
        assert!(distance < 4.0, "{threads} threads: {distance}");
        let mut recorded = [0; 6];
        for interval in &summary.intervals {
            recorded[interval.second as usize] += interval.n_requests();
        }
        let mut expected = [0; 6];
        for due in &due {
            expected[usize::try_from(due.as_secs()).unwrap()] += 1;
        }
        assert_eq!(recorded, expected, "{threads} threads");
    }
}

#[test]
fn the_drain_ends_although_the_pacing_is_far_behind() {
    // A million a second for a second took 26 s.
    let server = TestServer::start(|_| ok());
    let rate = 20_000_000.0;
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(open(rate, 50), 1_000), (open(100.0, 50), 500)],
    );
    plan.drain = ms(200);
    let begun = Instant::now();
    let summaries = run(plan);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    let first = &summaries[0];
    assert_eq!(first.total.counts.due, 20_000_000);
    assert_eq!(first.arrivals, 20_000_000);
    assert!(first.total.counts.unsent > 10_000_000);
    assert!(first.total.counts.successes > 0);
    let in_intervals: u64 = first
        .intervals
        .iter()
        .map(|interval| interval.histogram().len())
        .sum();
    assert_eq!(in_intervals, first.total.counts.due);
    let reasons = judge(first, Pacing::Open).reasons;
    assert!(reasons.contains(&Reason::GeneratorSaturated), "{reasons:?}");
    assert_eq!(summaries[1].arrivals, 50, "it does not reach into the next");
}

#[test]
fn fewer_places_than_threads_leave_no_arrival_waiting_for_ever() {
    let server = TestServer::start(|_| ok());
    let mut plan = plan(&server.target, Workload::get("/"), &[(open(100.0, 1), 500)]);
    plan.threads = 3;
    let summary = run_one(plan);
    assert_eq!(
        summary.total.counts.successes, 50,
        "{:?}",
        summary.total.counts
    );
    assert_eq!(summary.threads, 1);
}

#[test]
fn journeys_under_way_at_an_edge_go_on_into_the_next_window() {
    // Four requests over 150 ms: if the edge cut them, the second window would
    // begin with first steps alone and be short of 20 requests.
    let server = TestServer::start(|_| ok());
    let step =
        |path: &str, think: &str| format!("[[step]]\npath = \"{path}\"\nthink = \"{think}\"\n");
    let text: String = ["/a", "/b", "/c", "/d"]
        .map(|path| step(path, "50ms"))
        .concat();
    let phases = [(open(200.0, 50), 500), (open(200.0, 50), 500)];
    let summaries = run(plan(&server.target, workload(&text), &phases));
    assert_eq!(summaries[1].arrivals, 25);
    let due = summaries[1].total.counts.due;
    assert!((92..=108).contains(&due), "{due}");
    assert!(
        summaries[0].total.counts.due < 92,
        "the first one begins with nothing under way"
    );
    for summary in &summaries {
        assert_eq!(summary.total.counts.successes, summary.total.counts.due);
        assert_adds_up(summary);
    }
}
