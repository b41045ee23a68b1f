//! Scripts in the style that teams use, unchanged.

use std::time::Duration;

use super::run::{assert_same, cut, read, run, server, try_run_on};
use crate::cpus::CpuSet;
use crate::load::crowd::Crowd;
use crate::load::k6::Cut;
use crate::measure::{Flag, Pacing, Reason, judge};

#[test]
fn constant_users_with_groups_and_checks() {
    let server = server();
    let ran = run(
        "constant-groups.js",
        &server.target,
        &[cut(500, Some(2_000))],
    );
    assert_eq!(ran.report.cut_short, None);
    let steps = ["began", "ended"];
    let edges: Vec<_> = (0..3)
        .flat_map(|phase| steps.map(|step| (phase, step)))
        .collect();
    assert_eq!(ran.edges, edges);
    for summary in &ran.summaries {
        assert_same(&ran, summary, None);
    }
    let window = &ran.summaries[1];
    let names: Vec<&str> = window
        .operations
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    for name in ["GET /", "get item", "GET /missing"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let counts = &window.total.counts;
    assert_eq!(
        counts.errors.total(),
        counts.errors.status,
        "only what is missing fails"
    );
    assert!(counts.errors.status > 0 && counts.successes > 3 * counts.errors.status);
    // The failed check of the request that failed anyway is no second failure.
    assert_eq!(
        window.journeys.counts.successes, 0,
        "every journey has a missing item"
    );
    assert!(window.generator_cpu > Duration::ZERO && window.threads > 0);
    let in_flight = window.in_flight;
    assert!(
        (in_flight - 3.0).abs() < 0.3,
        "three users all the time, not {in_flight}"
    );
}

#[test]
fn ramping_stages_with_thresholds() {
    let server = server();
    let ran = run(
        "ramping-thresholds.js",
        &server.target,
        &[cut(1_000, Some(2_000))],
    );
    for summary in &ran.summaries {
        assert_same(&ran, summary, None);
    }
    assert_eq!(ran.report.exit_code, 99);
    assert_eq!(ran.report.crossed.as_deref(), Some("http_req_duration"));
    assert_eq!(ran.report.unjudged, ["http_req_duration{name:nobody}"]);
    assert_eq!((ran.report.cut_short, ran.report.ended_badly), (None, None));
    // A slice of all requests: warm-up, hold and ramp down are told apart.
    let all: u64 = ran
        .summaries
        .iter()
        .map(|one| one.total.counts.requests)
        .sum();
    assert!(ran.summaries[1].total.counts.requests < all);
}

#[test]
fn arrivals_at_a_rate() {
    let server = server();
    let ran = run("arrival-rate.js", &server.target, &[cut(0, None)]);
    let [window] = &ran.summaries[..] else {
        panic!("one window is the whole run: {:?}", ran.edges)
    };
    assert_same(&ran, window, None);
    let counts = &window.total.counts;
    assert_eq!(counts.errors.total(), 0, "{:?}", window.failures);
    // 40 a second for three seconds; k6 may send one at either edge.
    assert!(
        (119..=121).contains(&window.arrivals),
        "{}",
        window.arrivals
    );
    let mut names: Vec<&str> = window
        .operations
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    // k6 does not write its samples in the order of their requests.
    names.sort_unstable();
    assert_eq!(names, ["GET /orders/${}", "POST /orders"]);
}

#[test]
fn several_scenarios_and_a_window_of_one() {
    let server = server();
    let writers = Cut {
        scenario: Some("writers".to_owned()),
        ..Cut::default()
    };
    let ran = run("scenarios.js", &server.target, &[writers]);
    let [before, window, after] = &ran.summaries[..] else {
        panic!("{:?}", ran.edges)
    };
    assert_same(&ran, before, None);
    assert_same(&ran, window, Some("writers"));
    assert_same(&ran, after, None);
    let names: Vec<&str> = window
        .operations
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["PUT /items/1"]);
    assert_eq!(
        (window.started - before.started, window.length),
        (Duration::from_secs(1), Duration::from_secs(2))
    );
    let script = read("scenarios.js", &[]).unwrap();
    let files: Vec<&str> = script
        .files()
        .iter()
        .filter_map(|(path, _)| path.file_name()?.to_str())
        .collect();
    assert!(
        files.contains(&"scenarios.js") && files.contains(&"pause.js"),
        "{files:?}"
    );
}

#[test]
fn set_up_and_tear_down_are_never_in_a_window() {
    let server = server();
    let ran = run("setup-token.js", &server.target, &[cut(0, None)]);
    let [window] = &ran.summaries[..] else {
        panic!("{:?}", ran.edges)
    };
    assert_same(&ran, window, None);
    let all = ran.points("http_reqs").len() as u64;
    let around = server
        .log()
        .iter()
        .filter(|(_, got)| got.path.starts_with("/log"))
        .count();
    assert_eq!(around, 21, "twenty in set-up, one in tear-down");
    let counts = &window.total.counts;
    let late = all - 21 - counts.requests;
    assert!(late <= 2, "{late} requests of users that were still at it");
    assert_eq!(counts.successes, counts.requests, "{:?}", window.failures);
    assert_eq!(
        window.length,
        Duration::from_secs(2),
        "neither is their time"
    );
    assert_eq!(ran.report.crossed, None);
}

#[test]
fn batches_redirects_and_statuses_that_the_script_expects() {
    let server = server();
    // It ends by its iterations: 3 users, 10 each, of at least 50 ms.
    let ran = run("batch.js", &server.target, &[cut(0, Some(400))]);
    let window = &ran.summaries[0];
    assert_same(&ran, window, None);
    let counts = &window.total.counts;
    assert_eq!(
        counts.errors.total() + counts.refused,
        0,
        "{:?}",
        window.failures
    );
    // Each redirect is a request of its own: five in all, ten times for each of three users.
    assert_eq!(ran.truth(None).len(), 150);
    let figures = |name: &str| {
        let found = window.operations.iter().find(|(known, _)| known == name);
        found.map_or(0, |(_, figures)| figures.counts.successes)
    };
    assert!(figures("icon") > 0 && figures("GET /hop") > 0 && figures("GET /style.css") > 0);
    assert_eq!(ran.report.exit_code, 0);
}

#[test]
fn every_redirect_on_the_way_is_a_request() {
    let server = server();
    let ran = run("redirects.js", &server.target, &[cut(0, Some(300))]);
    let window = &ran.summaries[0];
    assert_same(&ran, window, None);
    // Ten iterations of three redirects and an answer.
    assert_eq!((ran.truth(None).len(), server.requests()), (40, 40));
    assert_eq!(window.total.counts.successes, window.total.counts.requests);
}

#[test]
fn a_base_url_that_is_written_in_reaches_the_target() {
    let server = server();
    let ran = run("localhost.js", &server.target, &[cut(0, None)]);
    assert_same(&ran, &ran.summaries[0], None);
    let counts = &ran.summaries[0].total.counts;
    assert_eq!(
        counts.successes, counts.requests,
        "{:?}",
        ran.summaries[0].failures
    );
    assert_eq!(server.requests(), ran.truth(None).len() as u64);
    assert!(
        server
            .log()
            .iter()
            .all(|(_, got)| got.path.starts_with("/api/items"))
    );
    assert!(
        server
            .log()
            .iter()
            .all(|(_, got)| got.head.contains("localhost:8080"))
    );
}

#[test]
fn the_target_is_named_as_in_the_matrix_or_by_address_where_k6_knows_no_such_name() {
    let server = server();
    let host_of = |host: &str| {
        let script = read("bad/by-cell.js", &[]).unwrap();
        let mut plan = super::run::plan(script, &server.target, &[cut(0, None)]);
        plan.target.host = host.to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut load = crate::load::RunningLoad::start_script(plan).unwrap();
            while load.next().await.is_some() {}
            load.stop().await.unwrap();
        });
        let (_, last) = server.log().pop().unwrap();
        let line = last
            .head
            .lines()
            .find(|line| line.starts_with("Host:"))
            .unwrap()
            .to_owned();
        line["Host: ".len()..].to_owned()
    };
    assert_eq!(host_of("app:8080"), "app:8080");
    assert_eq!(
        host_of("my_app:8080"),
        server.target.addresses[0].to_string()
    );
}

#[test]
fn a_k6_that_waits_for_its_cpu_is_told_from_one_that_has_it() {
    let server = server();
    let cpu: CpuSet = "0".parse().unwrap();
    let window = || {
        let cuts = [cut(0, None)];
        let ran = try_run_on(Some(cpu.clone()), "localhost.js", &server.target, &cuts);
        ran.unwrap().summaries.remove(0)
    };
    let is_bound = |window| {
        let verdict = judge(window, Pacing::Closed);
        verdict.flags.contains(&Flag::GeneratorBound)
    };
    let crowded = {
        let _crowd = Crowd::on(&cpu, 6);
        window()
    };
    let waited = crowded.generator_wait.expect("this kernel tells");
    assert!(waited > crowded.length / 20, "{waited:?}");
    assert!(is_bound(&crowded), "{waited:?}");
    // The latencies hold the waits, so they are no measurement either.
    let verdict = judge(&crowded, Pacing::Open);
    assert_eq!(
        verdict.reasons,
        [Reason::GeneratorSaturated],
        "{waited:?}, {:?}",
        crowded.total.latency_ms
    );
    let alone = window();
    let less = alone.generator_wait.expect("this kernel tells");
    assert!(less < waited / 2, "{less:?} alone, {waited:?} in a crowd");
}
