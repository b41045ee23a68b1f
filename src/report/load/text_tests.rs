use std::time::Duration;

use super::*;
use crate::load::{Arrivals, LoadModel};
use crate::measure::{
    Crossed, ErrorClass, Figures, Interval, LatencyFigures, LatencyFrom, Outcome, Pacing, Recorder,
    Sample, WindowSummary, judge,
};
use crate::threshold::Threshold;

const MS: u64 = 1_000_000;

/// Two operations over so many seconds; every tenth of the second kind fails.
fn held(model: LoadModel, seconds: u32, step: Option<u32>) -> HeldLoad {
    let is_open = matches!(model, LoadModel::Open { .. });
    let from = if is_open {
        LatencyFrom::Due
    } else {
        LatencyFrom::Send
    };
    let mut recorder = Recorder::new(vec!["read".into(), "create".into()], from);
    for second in 0..seconds {
        for index in 0..200_u32 {
            let is_failed = index % 20 == 19;
            let outcome = match (is_failed, second) {
                (false, _) => Outcome::Success,
                (true, 0) => Outcome::Error(ErrorClass::Timeout),
                (true, _) => Outcome::Error(ErrorClass::Status),
            };
            // From 1 ms on, with a slow second.
            let slow = if second == 2 { 20 } else { 1 };
            let latency_ns = slow * (MS + u64::from(index) * MS / 100);
            recorder.record(&Sample {
                operation: index % 2,
                outcome,
                second,
                sent_second: second,
                latency_ns,
                service_ns: latency_ns / 2,
                lag_ns: latency_ns / 2,
                generator_lag_ns: 50_000,
                is_sent_inside: true,
            });
        }
    }
    let length = Duration::from_secs(u64::from(seconds));
    let total = recorder.total(length);
    let summary = WindowSummary {
        operations: recorder.operations(length),
        journeys: Figures {
            latency_ms: LatencyFigures {
                mean: Some(4.5),
                p50: Some(4.0),
                ..LatencyFigures::default()
            },
            ..Figures::default()
        },
        arrivals: 100,
        not_attempted: 3,
        body_bytes: Some(2_400_000),
        generator_cpu: Duration::from_millis(u64::from(seconds) * 120),
        threads: 2,
        generator_lag_ms: recorder.generator_lag_ms(),
        intervals: recorder.into_intervals(),
        first_failures: vec![(
            Outcome::Error(ErrorClass::Status),
            "create: status 500, expected 201:\nboom".to_owned(),
        )],
        ..WindowSummary::quiet(total, length)
    };
    let pacing = if is_open {
        Pacing::Open
    } else {
        Pacing::Closed
    };
    HeldLoad {
        step,
        model,
        verdict: judge(&summary, pacing),
        crossed: Vec::new(),
        summary: Box::new(summary),
    }
}

fn report(held: Vec<HeldLoad>) -> LoadReport {
    LoadReport {
        target: "http://127.0.0.1:8080".to_owned(),
        what: "crud.toml (2 requests a journey)".to_owned(),
        requests_per_journey: 2,
        warm_up: Duration::from_secs(2),
        seed: 7,
        thresholds: vec![Threshold::parse("p95 < 5 ms").unwrap()],
        held,
        aborted: None,
    }
}

const OPEN: LoadModel = LoadModel::Open {
    requests_per_second: 200.0,
    arrivals: Arrivals::Poisson,
    max_in_flight: 1_000,
};

#[test]
fn an_open_loop_says_how_long_how_many_when_and_what_failed() {
    let text = report(vec![held(OPEN, 5, None)]).text(Screen::PAGE);
    insta::assert_snapshot!(text, @"
    crud.toml (2 requests a journey) on http://127.0.0.1:8080
    open loop, 200 requests/s (Poisson arrivals), for 5 s after a warm-up of 2 s

    verdict         valid
    flag            overloaded: the service did not carry the rate: some requests were late, failed or
                    never left (200 of 200 requests/s due were sent in time, p99 of all due endless)
    flag            errors: more than 1 % of the requests failed
    flag            too_few: 950 successes leave fewer than 100 beyond the p99, so that chance moves it
    throughput      190 successes/s
    requests        950 successes · 0 refused · 50 errors · 3 steps not attempted
    received        2.3 MiB of bodies, 469 KiB/s
    p99 of all due  endless: more than 1 % of what was due failed or never left
    generator       0.12 cores on 2 load threads, 600 µs of CPU a request

    how long successes took
      ms                          mean   p50   p90   p95   p99  p99.9   max
      ──────────────────────────  ────  ────  ────  ────  ────  ─────  ────
      latency, from due           9.55  2.24  39.6  49.8  57.8   59.6  59.6
      service time, from send     4.78  1.12  19.8  24.9  28.9   29.8  29.8
      send lag, from due to send  4.79  1.12  19.9  24.9  28.9   29.8  29.9
      whole journeys              4.50  4.00     –     –     –      –     –

    their distribution, on a logarithmic scale
        from      to  successes   share    up to
      ──────  ──────  ─────────  ──────  ───────
      900 µs    1 ms          4  0.42 %   0.42 %  ▋
        1 ms  1.6 ms        228  24.0 %   24.4 %  ███████████████████████████████████▊
      1.6 ms  2.5 ms        344  36.2 %   60.6 %  ██████████████████████████████████████████████████████
      2.5 ms    4 ms        184  19.4 %   80.0 %  ████████████████████████████▉
        4 ms  6.3 ms          0     0 %   80.0 %
      6.3 ms   10 ms          0     0 %   80.0 %
       10 ms   16 ms          0     0 %   80.0 %
       16 ms   25 ms         25   2.6 %   82.6 %  ███▉
       25 ms   40 ms         71   7.5 %   90.1 %  ███████████▏
       40 ms   63 ms         94   9.9 %  100.0 %  ██████████████▊

    successes/s over time
             190 ┤████████████████████
                 │████████████████████
                 │████████████████████
                 │████████████████████
                 │████████████████████
               0 └────────────────────
                  0 s              5 s
        failed/s  ████████████████████  up to 10.0
             p99  ▁▁▁▁▁▁▁▁████▁▁▁▁▁▁▁▁  up to 59.4 ms

    operations
      operation  successes  refused  failed  successes/s  mean ms  p50 ms  p95 ms  p99 ms  max ms
      ─────────  ─────────  ───────  ──────  ───────────  ───────  ──────  ──────  ──────  ──────
      read             500        0       0          100     9.55    2.24    49.6    57.6    59.6
      create           450        0      50         90.0     9.55    2.25    49.8    57.8    59.4
      all              950        0      50          190     9.55    2.24    49.8    57.8    59.6

    what did not succeed
      outcome        requests  share  the first of them
      ─────────────  ────────  ─────  ──────────────────────────────────────
      error.timeout        10  1.0 %
      error.status         40  4.0 %  create: status 500, expected 201: boom
    ");
}

#[test]
fn a_closed_loop_says_where_it_misleads() {
    let mut frozen = held(LoadModel::Closed { users: 1 }, 5, None);
    // It stood still for two seconds, five times: 5 of 1,005 answers.
    let stalls = Interval::new(4, "read|success".to_owned(), vec![(2_000 * MS, 5)]);
    frozen.summary.intervals.push(stalls);
    let text = report(vec![frozen]).text(Screen::PAGE);
    let hint = text.split("\nhint\n").nth(1).unwrap();
    insta::assert_snapshot!(hint, @"
    users that wait for an answer send nothing, and what they would have sent is in no figure:
    at an even 200 requests/s the p99 would be about 1,960 ms, not 57.8 ms
    measure it with --open RATE, such as --open 120
    ");
}

#[test]
fn without_unicode_the_report_is_ascii() {
    let ascii = Screen {
        is_unicode: false,
        columns: 60,
        ..Screen::PAGE
    };
    let text = report(vec![held(OPEN, 70, None)]).text(ascii);
    assert!(text.is_ascii(), "{text}");
    let widest = text.lines().map(str::len).max().unwrap();
    assert!(widest > 60, "tables are never cut");
}

#[test]
fn steps_stand_below_each_other_with_what_changed() {
    let mut second = held(LoadModel::Closed { users: 100 }, 4, Some(2));
    second.summary.total.throughput_rps = 250.0;
    second.crossed = vec![Crossed {
        threshold: Threshold::parse("p95 < 5 ms").unwrap(),
        value: 61.2,
    }];
    let mut ladder = report(vec![
        held(LoadModel::Closed { users: 50 }, 5, Some(1)),
        second,
    ]);
    ladder.aborted = Some(AbortedLoad {
        step: Some(2),
        after: Duration::from_secs(4),
        crossed: ladder.held[1].crossed[0].clone(),
        is_whole: true,
    });
    insta::assert_snapshot!(ladder.text(Screen::PAGE), @"
    crud.toml (2 requests a journey) on http://127.0.0.1:8080

    step  load       held  successes/s  change  p50 ms  p99 ms  change  failed  µs CPU/request  verdict
    ────  ─────────  ────  ───────────  ──────  ──────  ──────  ──────  ──────  ──────────────  ──────────────────────────────────────
       1  50 users    5 s          190            2.24    57.8           5.0 %             600  valid errors too_few
       2  100 users   4 s          250   +32 %    2.32    58.2    +1 %   5.0 %             600  valid errors too_few threshold_crossed

    step 1: error.status: create: status 500, expected 201: boom
    step 2: crossed: p95 < 5 ms (61.2 ms)
    step 2: error.status: create: status 500, expected 201: boom

    the load was ended in step 2 after 4 s: p95 < 5 ms (61.2 ms) was crossed
    ");
    let json = ladder.json();
    assert_eq!(json["steps"][1]["load"]["users"], 100);
    assert_eq!(json["steps"][1]["step"], 2);
    assert_eq!(json["due"], 1_800, "counts are summed");
    assert!(json["throughput_rps"].is_null() && json["latency_ms"]["p99"].is_null());
    assert_eq!(json["aborted_in_step"], 2);
    assert_eq!(json["verdict"], "valid", "what was held to its end stands");
    assert_eq!(json["thresholds"][0]["crossed"], true);
}

#[test]
fn scripts_get_every_key_of_the_contract_and_the_evidence() {
    let json = report(vec![held(OPEN, 5, None)]).json();
    for key in [
        "due",
        "requests",
        "successes",
        "refused",
        "errors",
        "abandoned",
        "unsent",
        "duration_s",
        "throughput_rps",
        "latency_ms",
        "service_ms",
        "send_lag_ms",
        "generator_cpu_s",
        "operations",
        "verdict",
        "reasons",
        "flags",
        "achieved_rate_rps",
        "in_flight",
        "in_flight_recorded",
        "held_back",
    ] {
        assert!(!json[key].is_null(), "{key}");
    }
    for point in ["mean", "p50", "p90", "p95", "p99", "p999", "max"] {
        assert!(json["latency_ms"][point].is_f64(), "{point}");
    }
    let sum = |list: &serde_json::Value, key: &str| -> u64 {
        let items = list.as_array().unwrap();
        items.iter().map(|item| item[key].as_u64().unwrap()).sum()
    };
    assert_eq!(json["seconds"].as_array().unwrap().len(), 5);
    assert_eq!(sum(&json["seconds"], "successes"), json["successes"]);
    assert_eq!(sum(&json["seconds"], "errors"), json["errors"]);
    assert_eq!(sum(&json["histogram"], "count"), json["successes"]);
    assert_eq!(json["first_failures"][0]["outcome"], "error.status");
    assert_eq!(json["load"]["arrivals"], "poisson");
    assert_eq!(json["p99_due_ms"], "inf");
    assert_eq!(json["seed"], 7);
    assert!(json["generator_lag_ms"]["p99"].is_f64());
    assert_eq!(
        json["evidence"],
        serde_json::json!([{
            "rule": "overloaded",
            "words": "200 of 200 requests/s due were sent in time, p99 of all due endless",
        }])
    );
}

#[test]
fn a_reason_is_told_with_the_numbers_that_it_rests_on() {
    let mut late = held(OPEN, 5, None);
    late.summary.generator_lag_ms.p99 = Some(40.0);
    late.summary.generator_wait = Some(Duration::from_secs(1));
    late.verdict = judge(&late.summary, Pacing::Open);
    let text = report(vec![late]).text(Screen::PAGE);
    let reason = text.split("\nreason").nth(1).unwrap();
    let reason = reason.split("\nflag").next().unwrap();
    let words: Vec<&str> = reason.split_whitespace().collect();
    assert_eq!(
        words.join(" "),
        "generator_saturated: the generator itself was late or out of CPU: its waits are in the \
         figures; lower the rate, or raise --threads (p99 of the generator's own lag 40 ms against \
         a p99 latency of 57.8 ms (10 % of it allowed), load threads waited 10 % of the time for a CPU)"
    );
}

#[test]
fn steps_of_an_open_loop_show_the_p99_of_all_due_beside_that_of_successes() {
    let mut second = held(OPEN, 5, Some(2));
    second.summary.total.p99_due_ms = Some(70.0);
    let mut first = held(OPEN, 5, Some(1));
    first.summary.total.p99_due_ms = Some(56.0);
    let failing = held(OPEN, 5, Some(3));
    let text = report(vec![first, second, failing]).text(Screen::PAGE);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    let header = rows
        .iter()
        .find(|row| row.first() == Some(&"step"))
        .unwrap();
    let place = header
        .iter()
        .position(|cell| *cell == "p99 due ms")
        .unwrap();
    assert_eq!(
        header[place - 2..=place + 1],
        ["p99 ms", "change", "p99 due ms", "change"]
    );
    let of_step = |step: &str| rows.iter().find(|row| row.first() == Some(&step)).unwrap();
    // The first has no changes.
    assert_eq!(of_step("1")[5..7], ["57.8", "56.0"]);
    let second = of_step("2");
    assert!(
        second.windows(2).any(|pair| pair == ["70.0", "+25 %"]),
        "{second:?}"
    );
    assert!(of_step("3").contains(&"inf"), "{text}");
    assert!(
        text.contains("step 3: overloaded: 200 of 200 requests/s due"),
        "{text}"
    );
}
