use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::*;
use crate::load::test_load::{
    assert_adds_up, closed, ms, open, plan, run, run_one, seen_within, workload,
};
use crate::load::test_server::{Got, Reply, TestServer, ok};
use crate::load::{Target, Workload};
use crate::measure::{Flag, Judgement, Pacing, judge};
use crate::tls::Wire;

#[test]
fn a_closed_loop_counts_what_the_server_counts() {
    let server = TestServer::start(|_| Reply::After(ms(2), Box::new(ok())));
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(5), 600)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.successes, counts.due);
    assert!(counts.successes > 50, "{counts:?}");
    // Sent in the window and seen by the server differ by what was on its way.
    let seen = seen_within(&server, &summary);
    assert!(counts.requests.abs_diff(seen) <= 5, "{counts:?} {seen}");
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 5);
    assert_eq!(server.seen.most_open.load(Ordering::SeqCst), 5);
    let p50 = summary.total.latency_ms.p50.unwrap();
    assert!((2.0..200.0).contains(&p50), "{p50}");
    assert_eq!(summary.total.send_lag_ms.p99, None);
    let in_intervals: u64 = summary
        .intervals
        .iter()
        .map(|interval| interval.histogram().len())
        .sum();
    assert_eq!(in_intervals, counts.due);
    assert_adds_up(&summary);
}

#[test]
fn every_request_of_all_phases_is_in_one_window_or_none() {
    let server = TestServer::start(|_| Reply::After(ms(1), Box::new(ok())));
    let phases = [(closed(4), 300), (closed(2), 300), (closed(6), 300)];
    let summaries = run(plan(&server.target, Workload::get("/"), &phases));
    let recorded: u64 = summaries
        .iter()
        .map(|summary| summary.total.counts.requests)
        .sum();
    let total = server.requests();
    // Between the windows load goes on unrecorded: some, but not much.
    assert!(
        recorded < total && recorded * 2 > total,
        "{recorded} of {total}"
    );
    for (summary, users) in summaries.iter().zip([4.0, 2.0, 6.0]) {
        let seen = seen_within(&server, summary);
        assert!(summary.total.counts.requests.abs_diff(seen) <= 6);
        assert!((summary.in_flight - users).abs() < f64::EPSILON);
        assert_adds_up(summary);
    }
    assert_eq!(
        server.seen.connections.load(Ordering::SeqCst),
        6,
        "connections live across phases"
    );
}

#[test]
fn threads_with_different_errors_add_up() {
    for threads in [1, 2, 3] {
        let server = TestServer::start(|got: &Got| {
            let reply = match got.index % 5 {
                0 => Reply::Answer(500, "broken".into()),
                1 => Reply::Answer(429, String::new()),
                2 => Reply::RawThenClose("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".into()),
                3 => Reply::Raw("nonsense\r\n\r\n".into()),
                _ => ok(),
            };
            Reply::After(ms(1), Box::new(reply))
        });
        let mut plan = plan(
            &server.target,
            workload("on_failure = \"continue\"\n[[step]]\npath = \"/\""),
            &[(closed(6), 400)],
        );
        plan.threads = threads;
        let summary = run_one(plan);
        let counts = summary.total.counts;
        let seen = seen_within(&server, &summary);
        assert!(counts.requests.abs_diff(seen) <= 6, "{counts:?} {seen}");
        let fifth = counts.requests as f64 / 5.0;
        for (what, n) in [
            ("status", counts.errors.status),
            ("refused", counts.refused),
            ("reset", counts.errors.reset),
            ("protocol", counts.errors.protocol),
            ("successes", counts.successes),
        ] {
            assert!((n as f64 - fifth).abs() <= 8.0, "{what}: {counts:?}");
        }
        assert_eq!(
            counts.errors.total() + counts.refused + counts.successes,
            counts.due
        );
        assert!(!summary.failures.is_empty() && summary.failures.len() <= 10);
        assert!(
            summary
                .failures
                .iter()
                .all(|line| line.starts_with("GET /: "))
        );
    }
}

#[test]
fn surplus_bytes_after_an_answer_never_become_the_next_one() {
    let server = TestServer::start(|_| {
        Reply::Raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n".into())
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(2), 200)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.errors.status, 0, "{counts:?} {:?}", summary.failures);
    assert!(counts.successes > 0);
    assert_eq!(counts.due, counts.successes + counts.errors.total());
}

#[test]
fn a_connection_that_the_server_closes_is_opened_again() {
    let server = TestServer::start(|got: &Got| {
        let then = if got.index.is_multiple_of(3) {
            Reply::Raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into())
        } else {
            ok()
        };
        Reply::After(ms(1), Box::new(then))
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(3), 400)],
    ));
    let counts = summary.total.counts;
    assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
    assert!(server.seen.connections.load(Ordering::SeqCst) > 5);

    // Without a word before: what was sent into the closing connection is lost
    // and counted, never sent twice.
    let server = TestServer::start(|got: &Got| {
        if got.index.is_multiple_of(4) {
            Reply::AnswerThenClose(200, "bye".into())
        } else {
            Reply::After(ms(1), Box::new(ok()))
        }
    });
    let summary = run_one(plan(
        &server.target,
        Workload::get("/"),
        &[(closed(3), 400)],
    ));
    let counts = summary.total.counts;
    assert_eq!(
        counts.due,
        counts.successes + counts.errors.reset,
        "{:?}",
        summary.failures
    );
    assert!(seen_within(&server, &summary) <= counts.requests + 3);
}

#[test]
fn a_refused_connection_does_not_spin() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = Target {
        addresses: vec![unused],
        host: unused.to_string(),
        base_path: String::new(),
        wire: Wire::default(),
    };
    for on_failure in ["abort", "continue"] {
        let text = format!("on_failure = \"{on_failure}\"\n[[step]]\npath = \"/\"");
        let summary = run_one(plan(&target, workload(&text), &[(closed(4), 500)]));
        let counts = summary.total.counts;
        assert_eq!(counts.errors.connect, counts.due);
        assert!(
            (8..=24).contains(&counts.due),
            "a try per 100 ms and user: {counts:?}"
        );
        assert_eq!(summary.total.p99_due_ms, Some(f64::INFINITY));
        let verdict = judge(&summary, Pacing::Closed);
        assert_eq!(verdict.judgement, Judgement::Failed);
        assert!(
            summary.failures[0].contains("refused"),
            "{:?}",
            summary.failures
        );
    }
}

#[test]
fn a_journey_whose_steps_cannot_be_sent_does_not_spin() {
    let server = TestServer::start(|_| Reply::Answer(500, "down".into()));
    let text = "on_failure = \"continue\"\n\
                [[step]]\npath = \"/\"\ncapture = { x = \"$.x\" }\n\
                [[step]]\npath = \"/${x}\"\n[[step]]\npath = \"/b/${x}\"";
    let summary = run_one(plan(&server.target, workload(text), &[(closed(2), 500)]));
    let counts = summary.total.counts;
    // Each unset `${}` is an error of its request, as the journey goes on.
    assert_eq!(counts.errors.template, 2 * counts.errors.status);
    assert_eq!(counts.due, 3 * counts.errors.status);
    assert!(
        (2..=12).contains(&counts.errors.status),
        "a journey per 100 ms and user: {counts:?}"
    );
    assert!(server.requests() <= 14, "{}", server.requests());
    assert_adds_up(&summary);
}

#[test]
fn timeouts_are_counted_and_the_next_request_uses_a_new_connection() {
    let server = TestServer::start(|got: &Got| {
        if got.index == 0 {
            Reply::Never
        } else {
            Reply::After(ms(5), Box::new(ok()))
        }
    });
    let mut plan = plan(&server.target, Workload::get("/"), &[(closed(1), 700)]);
    plan.timeout = ms(200);
    let summary = run_one(plan);
    let counts = summary.total.counts;
    assert_eq!(counts.errors.timeout, 1, "{counts:?}");
    assert!(counts.successes > 5, "{counts:?}");
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 2);
    assert!(summary.failures[0].contains("no whole answer within 200ms"));
}

#[test]
fn requests_in_flight_after_the_drain_are_abandoned_not_lost() {
    // The first window's last requests never end; the next window is healthy.
    let server = TestServer::start(|got: &Got| {
        if (20..24).contains(&got.index) {
            Reply::Never
        } else {
            Reply::After(ms(5), Box::new(ok()))
        }
    });
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(closed(4), 400), (closed(4), 300)],
    );
    plan.drain = ms(200);
    plan.timeout = Duration::from_secs(20);
    let begun = Instant::now();
    let summaries = run(plan);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "the drain bounds the wait"
    );
    let first = summaries[0].total.counts;
    assert_eq!((first.due, first.successes, first.abandoned), (24, 20, 4));
    assert_eq!(summaries[0].total.p99_due_ms, Some(f64::INFINITY));
    // At most one line from each thread at a time.
    let failures = &summaries[0].failures;
    assert!(
        failures
            .iter()
            .all(|line| line == "GET /: no answer when the drain was over")
            && !failures.is_empty(),
        "{failures:?}"
    );
    let flags = judge(&summaries[0], Pacing::Closed).flags;
    assert!(flags.contains(&Flag::Stalled), "{flags:?}");
    let second = summaries[1].total.counts;
    assert_eq!(second.successes, second.due);
    assert!(second.successes > 20, "all users are back: {second:?}");
    for summary in &summaries {
        assert_adds_up(summary);
    }
}

#[test]
fn users_that_a_phase_does_not_want_end_after_their_request() {
    let server = TestServer::start(|got: &Got| {
        let wait = if got.path == "/b" { 30 } else { 1 };
        Reply::After(ms(wait), Box::new(ok()))
    });
    let text = "[[step]]\npath = \"/a\"\n[[step]]\npath = \"/b\"\n[[step]]\npath = \"/c\"";
    let phases = [(closed(6), 200), (closed(1), 300), (open(100.0, 10), 300)];
    let summaries = run(plan(&server.target, workload(text), &phases));
    let second = &summaries[1];
    assert_adds_up(second);
    assert_eq!(second.not_attempted, 0);
    assert!(second.total.counts.due < 60);
    assert_eq!(second.total.counts.errors.total(), 0);
    // The open phase carries its own rate and nothing of the user before it.
    assert!(
        (15..=35).contains(&summaries[2].total.counts.due),
        "{:?}",
        summaries[2].total.counts
    );
}

#[test]
fn a_failed_step_ends_its_journey_or_not_as_the_workload_says() {
    let script = |got: &Got| match got.path.as_str() {
        "/a" => Reply::Answer(500, "down".into()),
        _ => Reply::After(ms(2), Box::new(ok())),
    };
    let steps = "[[step]]\npath = \"/first\"\n[[step]]\npath = \"/a\"\ncapture = { x = \"$.x\" }\n\
                 [[step]]\npath = \"/${x}\"\n[[step]]\npath = \"/last\"";
    let server = TestServer::start(script);
    let summary = run_one(plan(&server.target, workload(steps), &[(closed(2), 500)]));
    let counts = summary.total.counts;
    assert!(counts.errors.status.abs_diff(counts.successes) <= 2);
    assert_eq!(summary.not_attempted, counts.errors.status * 2);
    assert!(
        counts.due < 30,
        "100 ms after each aborted journey: {counts:?}"
    );
    assert_adds_up(&summary);
    assert_eq!(summary.journeys.counts.successes, 0);
    assert!(summary.journeys.counts.errors.status > 0);

    let server = TestServer::start(script);
    let text = format!("on_failure = \"continue\"\n{steps}");
    let summary = run_one(plan(&server.target, workload(&text), &[(closed(2), 300)]));
    let counts = summary.total.counts;
    assert_eq!(summary.not_attempted, 0);
    assert!(
        counts.errors.template.abs_diff(counts.errors.status) <= 2,
        "{counts:?}"
    );
    assert!(counts.successes > 10);
    assert!(
        summary
            .failures
            .iter()
            .any(|line| line.ends_with("`${x}` was not captured")
                || line.contains("status 500 where 200 to 299 was expected: down")),
        "{:?}",
        summary.failures
    );
    let seen = seen_within(&server, &summary);
    assert!((counts.requests - counts.errors.template).abs_diff(seen) <= 2);
}

#[test]
fn thinking_is_part_of_the_loop_and_of_littles_law() {
    let server = TestServer::start(|_| ok());
    let text = "[[step]]\npath = \"/a\"\nthink = \"20ms\"\n[[step]]\npath = \"/b\"";
    let phases = [(closed(10), 600), (open(200.0, 50), 600)];
    let summaries = run(plan(&server.target, workload(text), &phases));
    let per_user = summaries[0].total.counts.requests as f64 / 10.0;
    // Two requests per 20 ms and a little.
    assert!((20.0..=60.0).contains(&per_user), "{per_user}");
    assert_adds_up(&summaries[0]);
    // A later step is due at the last answer plus think: its latency holds no think time.
    let open = &summaries[1];
    assert!(open.total.latency_ms.p50.unwrap() < 19.0);
    assert_adds_up(open);
    let journey_p50 = open.journeys.latency_ms.p50.unwrap();
    assert!((20.0..200.0).contains(&journey_p50), "{journey_p50}");
}

#[test]
fn stopping_and_dropping_end_the_load_at_once() {
    let server = TestServer::start(|_| Reply::After(ms(1), Box::new(ok())));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let long = || plan(&server.target, Workload::get("/"), &[(closed(4), 60_000)]);
    let begun = Instant::now();
    runtime.block_on(async {
        let mut load = RunningLoad::start(long()).unwrap();
        assert!(matches!(
            load.next().await,
            Some(LoadSignal::PhaseStarted { .. })
        ));
        assert!(
            matches!(load.next().await, Some(LoadSignal::Tick(tick)) if tick.counts.successes > 0)
        );
        load.stop().await.unwrap();
        let after_stop = server.requests();
        drop(RunningLoad::start(long()).unwrap());
        assert!(server.requests() < after_stop + 1_000);
    });
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(server.seen.most_open.load(Ordering::SeqCst), 4);
}

#[test]
fn a_held_phase_waits_while_load_goes_on_unrecorded() {
    let server = TestServer::start(|_| Reply::After(ms(1), Box::new(ok())));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(closed(2), 100), (closed(2), 100)],
    );
    plan.phases[1].held = true;
    runtime.block_on(async {
        let mut load = RunningLoad::start(plan).unwrap();
        while !matches!(load.next().await, Some(LoadSignal::PhaseHeld { phase: 1 })) {}
        let at_hold = server.requests();
        while server.requests() < at_hold + 20 {
            tokio::time::sleep(ms(5)).await;
        }
        load.go_on();
        assert!(matches!(
            load.next().await,
            Some(LoadSignal::PhaseStarted { phase: 1, .. })
        ));
        let mut summed = None;
        while let Some(signal) = load.next().await {
            if let LoadSignal::PhaseSummed { summary, .. } = signal {
                summed = Some(summary);
            }
        }
        load.stop().await.unwrap();
        let summary = summed.expect("the held phase was measured");
        let counts = summary.total.counts;
        assert_eq!(counts.requests, counts.successes);
        assert!(counts.requests.abs_diff(seen_within(&server, &summary)) <= 2);
    });
}

#[test]
fn a_held_phase_that_is_never_let_go_can_be_stopped() {
    let server = TestServer::start(|_| ok());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut plan = plan(&server.target, Workload::get("/"), &[(closed(1), 100)]);
    plan.phases[0].held = true;
    runtime.block_on(async {
        let mut load = RunningLoad::start(plan).unwrap();
        assert!(matches!(
            load.next().await,
            Some(LoadSignal::PhaseHeld { phase: 0 })
        ));
        load.stop().await.unwrap();
    });
    assert_eq!(
        server.requests(),
        0,
        "before the first phase there is no load"
    );
}

#[test]
fn a_task_that_panics_becomes_an_error() {
    let (reports, inbox) = mpsc::channel();
    let server = TestServer::start(|_| ok());
    let plan = plan(&server.target, Workload::get("/"), &[(closed(1), 100)]);
    let prepared = prepare(&plan.workload, &plan.target, &plan.variables).unwrap();
    let thread_plan = Arc::new(ThreadPlan::new(&plan, prepared, 1).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    let (_commands, command_inbox) = signals::unbounded_channel();
    runtime.block_on(async {
        let thread = Thread::new(0, thread_plan, reports).unwrap();
        thread.spawn(async { panic!("as a test") });
        // Ends by itself although nobody tells it to stop.
        thread.run(command_inbox).await;
    });
    assert!(matches!(
        inbox.recv_timeout(Duration::from_secs(5)),
        Ok(Report::Broken { thread: 0, .. })
    ));
}

#[test]
fn no_more_threads_are_started_than_have_something_to_do() {
    let server = TestServer::start(|_| Reply::After(ms(1), Box::new(ok())));
    let mut plan = plan(
        &server.target,
        Workload::get("/"),
        &[(closed(3), 100), (open(50.0, 2), 100)],
    );
    plan.threads = 1_024;
    assert_eq!(n_threads(&plan), 3);
    let summaries = run(plan);
    assert_eq!((summaries[0].threads, summaries[1].threads), (3, 2));
    assert!(summaries[0].total.counts.successes > 0);
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_before_anything_starts() {
    let target = TestServer::start(|_| ok()).target.clone();
    let refused = |change: fn(&mut LoadPlan)| {
        let mut plan = plan(&target, Workload::get("/"), &[(closed(1), 100)]);
        change(&mut plan);
        RunningLoad::start(plan).unwrap_err().to_string()
    };
    assert!(refused(|plan| plan.phases.clear()).contains("no phase"));
    assert!(refused(|plan| plan.threads = 0).contains("no load thread"));
    assert!(refused(|plan| plan.phases[0].model = closed(0)).contains("no users"));
    assert!(refused(|plan| plan.phases[0].model = open(0.0, 1)).contains("the rate 0"));
    assert!(refused(|plan| plan.phases[0].model = open(f64::NAN, 1)).contains("the rate NaN"));
    assert!(refused(|plan| plan.phases[0].model = open(1.0, 0)).contains("in flight"));
    assert!(refused(|plan| plan.phases[0].duration = Duration::ZERO).contains("no duration"));
    // What the matrix refuses: 100,000 threads ended in a panic.
    assert!(refused(|plan| plan.threads = 100_000).contains("100000 load threads"));
    assert!(refused(|plan| plan.phases[0].model = closed(60_001)).contains("60001 users"));
    assert!(refused(|plan| plan.phases[0].model = open(1.0, 60_001)).contains("60001 journeys"));
    for rate in [1.1e8, f64::INFINITY, -1.0] {
        let plan = plan(&target, Workload::get("/"), &[(open(rate, 1), 100)]);
        let why = RunningLoad::start(plan).unwrap_err().to_string();
        assert!(why.contains("the rate"), "{why}");
    }
    let unset = refused(|plan| {
        let text = "[[step]]\npath = \"/${cpus}/${web}\"\nheaders = { a = \"${env.TOKEN}\" }";
        plan.workload = Arc::new(workload(text));
    });
    assert_eq!(
        unset,
        "the workload uses values that are not set: cpus, web, env.TOKEN"
    );
}
