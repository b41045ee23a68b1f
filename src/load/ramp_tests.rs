use super::*;
use crate::load::test_load::{assert_adds_up, closed, ms, open, plan, run, run_aborted, workload};
use crate::load::test_server::{Reply, TestServer, ok};
use crate::load::{AbortRule, LoadPlan, PhasePlan, Workload};
use crate::threshold::Threshold;

fn clock(from: f64, to: u32) -> PhaseClock {
    let start = Instant::now();
    PhaseClock {
        index: 0,
        start,
        end: start + Duration::from_secs(10),
        model: closed(to),
        ramp_from: Some(from),
    }
}

fn n_wanted(clock: &PhaseClock, at_ms: u64) -> usize {
    let now = clock.start + ms(at_ms);
    (0..200)
        .filter(|user| stay_of(clock, *user, || now) == Stay::Wanted)
        .count()
}

#[test]
fn users_come_and_go_one_by_one() {
    let up = clock(10.0, 60);
    let counts = [0, 1, 2_500, 5_000, 9_999, 10_000, 20_000].map(|at| n_wanted(&up, at));
    assert_eq!(counts, [11, 11, 23, 36, 60, 60, 60]);
    let down = clock(60.0, 10);
    let counts = [0, 1, 2_500, 5_000, 9_999, 10_000, 20_000].map(|at| n_wanted(&down, at));
    assert_eq!(counts, [60, 60, 48, 35, 11, 10, 10]);
    let same = clock(7.0, 7);
    assert_eq!([0, 9_000].map(|at| n_wanted(&same, at)), [7, 7]);
    // The last user of all is let go at the very end, and none comes after it.
    assert_eq!(stay_of(&up, 60, || up.start), Stay::Over);
    assert!(matches!(stay_of(&up, 59, || up.start), Stay::From(turn) if turn < up.end));
}

/// Ramps over `ramp_ms` to each load and holds it for `hold_ms`; only holds are windows.
fn staged(mut plan: LoadPlan, ramp_ms: u64, hold_ms: u64) -> LoadPlan {
    let holds = std::mem::take(&mut plan.phases);
    let mut from = 0.0;
    for hold in holds {
        let to = match hold.model {
            LoadModel::Closed { users } => f64::from(users),
            LoadModel::Open {
                requests_per_second,
                ..
            } => requests_per_second,
            LoadModel::Script { .. } => panic!("a script has its own"),
        };
        plan.phases.push(PhasePlan {
            name: format!("ramp to {to}"),
            window: false,
            ramp_from: Some(from),
            duration: ms(ramp_ms),
            ..hold.clone()
        });
        plan.phases.push(PhasePlan {
            duration: ms(hold_ms),
            ..hold
        });
        from = to;
    }
    plan
}

#[test]
fn steps_of_users_hold_littles_law_with_and_without_thinking() {
    // 20 ms of service and 30 ms of thinking: a user makes 20 requests a second.
    let server = TestServer::start(|_| Reply::After(ms(20), Box::new(ok())));
    let text = "[[step]]\npath = \"/a\"\nthink = \"30ms\"\n";
    let steps = [(closed(4), 0), (closed(12), 0), (closed(3), 0)];
    let summaries = run(staged(
        plan(&server.target, workload(text), &steps),
        600,
        1_500,
    ));
    assert_eq!(summaries.len(), 6);
    for (summary, users) in summaries.iter().skip(1).step_by(2).zip([4.0, 12.0, 3.0]) {
        assert!((summary.in_flight - users).abs() < f64::EPSILON);
        assert_adds_up(summary);
        // X = N / (R + Z), Little's law with thinking.
        let response_s = summary.total.latency_ms.mean.unwrap() / 1e3;
        let expected = users / (response_s + 0.030);
        let rate = summary.total.throughput_rps;
        assert!(
            (rate / expected - 1.0).abs() < 0.1,
            "{users} users: {rate} of {expected}"
        );
        assert_eq!(summary.total.counts.successes, summary.total.counts.due);
    }
    let of_ramp = summaries[2].total.counts.successes as f64;
    let of_steps = [1, 3].map(|step: usize| summaries[step].total.throughput_rps * 0.6);
    assert!(
        of_steps[0] < of_ramp && of_ramp < of_steps[1],
        "{of_ramp} lies between {of_steps:?}"
    );
}

#[test]
fn a_user_that_was_let_go_comes_back_with_the_next_ramp() {
    let server = TestServer::start(|_| Reply::After(ms(10), Box::new(ok())));
    let steps = [(closed(6), 0), (closed(1), 0), (closed(6), 0)];
    let summaries = run(staged(
        plan(&server.target, Workload::get("/"), &steps),
        200,
        500,
    ));
    let rates = [1, 3, 5].map(|step: usize| summaries[step].total.throughput_rps);
    assert!(rates[1] < 0.4 * rates[0], "{rates:?}");
    assert!(rates[2] > 0.6 * rates[0], "{rates:?}");
    assert_eq!(
        server
            .seen
            .most_open
            .load(std::sync::atomic::Ordering::SeqCst),
        6,
        "connections live across steps"
    );
}

#[test]
fn steps_of_rates_hold_their_rates_and_ramps_lie_between() {
    let server = TestServer::start(|_| ok());
    let steps = [
        (open(100.0, 50), 0),
        (open(300.0, 50), 0),
        (open(50.0, 50), 0),
    ];
    let summaries = run(staged(
        plan(&server.target, Workload::get("/"), &steps),
        1_000,
        1_000,
    ));
    let due: Vec<u64> = summaries
        .iter()
        .map(|summary| summary.total.counts.due)
        .collect();
    assert_eq!(due, [50, 100, 200, 300, 175, 50]);
    for summary in summaries.iter().skip(1).step_by(2) {
        assert_eq!(summary.total.counts.successes, summary.total.counts.due);
        assert_adds_up(summary);
    }
}

fn abort_on(rule: &str, after_ms: u64) -> Vec<AbortRule> {
    vec![AbortRule {
        threshold: Threshold::parse(rule).unwrap(),
        after: ms(after_ms),
    }]
}

#[test]
fn a_crossed_threshold_ends_the_load_while_the_window_goes_on() {
    // Good for a second, then everything fails.
    let begun = Instant::now();
    let server = TestServer::start(move |_| {
        if begun.elapsed() < ms(1_500) {
            ok()
        } else {
            Reply::Answer(503, String::new())
        }
    });
    let phases = [(open(200.0, 50), 500), (open(200.0, 50), 30_000)];
    let mut plan = plan(&server.target, Workload::get("/"), &phases);
    for phase in &mut plan.phases {
        phase.abort_on = abort_on("error_rate < 20 %", 1_000);
    }
    let (summaries, aborted) = run_aborted(plan);
    assert_eq!(summaries.len(), 1, "a window cut short has no figures");
    assert_eq!(aborted, Some((1, "error_rate < 20 %".to_owned(), false)));
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_service_that_answers_nothing_is_ended_by_its_throughput() {
    let server = TestServer::start(|_| Reply::Never);
    let mut plan = plan(&server.target, Workload::get("/"), &[(closed(2), 30_000)]);
    plan.timeout = Duration::from_mins(1);
    plan.phases[0].abort_on = abort_on("throughput > 1/s", 1_000);
    let begun = Instant::now();
    let (summaries, aborted) = run_aborted(plan);
    assert_eq!(aborted, Some((0, "throughput > 1/s".to_owned(), false)));
    assert!(summaries.is_empty());
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_threshold_crossed_at_the_end_leaves_the_figures_and_ends_what_follows() {
    let server = TestServer::start(|_| Reply::After(ms(20), Box::new(ok())));
    let steps = [(closed(2), 0), (closed(3), 0), (closed(4), 0)];
    let mut plan = staged(plan(&server.target, Workload::get("/"), &steps), 100, 600);
    for phase in &mut plan.phases {
        // The first look would come after the end; a ramp has no figures to cross it with.
        phase.abort_on = abort_on("throughput < 110/s", 5_000);
    }
    let (summaries, aborted) = run_aborted(plan);
    // Two users make at most 100 requests a second, three up to 150.
    assert_eq!(aborted, Some((3, "throughput < 110/s".to_owned(), true)));
    assert_eq!(summaries.len(), 4, "two ramps and two steps");
}
