//! Scripts and servers that k6 calls fine, and that are no good result.

use std::time::{Duration, Instant};

use super::run::{cut, plan, read, run, server, try_run, turn};
use crate::load::k6::{K6Error, Script};
use crate::load::{LoadError, LoadSignal, RunningLoad, Target};
use crate::measure::{Flag, Judgement, Pacing, judge};
use crate::tls::Wire;

#[test]
fn a_server_that_refuses_everything_has_no_success() {
    let _turn = turn();
    // Nobody listens there.
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let target = Target {
        addresses: vec![address],
        host: String::new(),
        base_path: String::new(),
        wire: Wire::default(),
    };
    let ran = run("bad/by-cell.js", &target, &[cut(0, None)]);
    // k6 itself is content, and the summary that would fail is not asked for.
    assert_eq!(ran.report.exit_code, 0);
    let words = &ran.report.words;
    assert!(
        !words.iter().any(|words| words.contains("no summary today")),
        "{words:?}"
    );
    let window = &ran.summaries[0];
    let counts = &window.total.counts;
    assert!(counts.requests > 0);
    assert_eq!(
        (counts.successes, counts.errors.connect),
        (0, counts.requests)
    );
    assert_eq!(
        window.total.latency_ms.p99, None,
        "the speed of refusals is no latency"
    );
    assert_eq!(judge(window, Pacing::Closed).judgement, Judgement::Failed);
}

#[test]
fn a_run_that_throws_at_every_turn_is_told() {
    let server = server();
    let ran = run("bad/throws.js", &server.target, &[cut(0, None)]);
    assert_eq!(ran.report.exit_code, 0, "k6 is content");
    let window = &ran.summaries[0];
    let notes = ran.report.windows[0];
    assert!(notes.threw > 10, "{:?}", ran.report);
    assert_eq!(notes.threw, notes.ended, "each iteration, to the edges");
    // Its requests alone would make it a good one.
    assert_eq!(judge(window, Pacing::Closed).judgement, Judgement::Valid);
    assert!(notes.is_script_failed());
    assert_eq!(
        window.journeys.counts.successes, 0,
        "{:?}",
        window.journeys.counts
    );
    assert!(
        window
            .failures
            .iter()
            .any(|words| words.contains("threw: TypeError")),
        "{:?}",
        window.failures
    );
}

#[test]
fn iterations_that_are_dropped_are_unsent_and_the_window_is_overloaded() {
    let server = server();
    let ran = run("bad/drops.js", &server.target, &[cut(0, None)]);
    assert_eq!(ran.report.exit_code, 0, "k6 is content");
    let window = &ran.summaries[0];
    let dropped: f64 = ran
        .points("dropped_iterations")
        .iter()
        .map(|line| line["data"]["value"].as_f64().unwrap())
        .sum();
    let counts = &window.total.counts;
    assert!(dropped > 200.0);
    assert!(
        counts.unsent.abs_diff(dropped as u64) <= 1,
        "{} of {dropped}",
        counts.unsent
    );
    assert_eq!(window.total.p99_due_ms, Some(f64::INFINITY));
    let verdict = judge(window, Pacing::Open);
    assert!(verdict.flags.contains(&Flag::Overloaded), "{verdict:?}");
    assert_eq!(
        verdict.judgement,
        Judgement::Valid,
        "the service is slow, k6 is not"
    );
}

#[test]
fn a_run_without_any_sample_is_no_result() {
    let server = server();
    let ran = run("bad/cut-off.js", &server.target, &[cut(0, None)]);
    assert_eq!(ran.report.exit_code, 0, "k6 is content");
    assert_eq!(ran.report.interrupted, 2);
    assert_eq!(ran.points("http_reqs").len(), 0);
    let verdict = judge(&ran.summaries[0], Pacing::Closed);
    assert_eq!(verdict.judgement, Judgement::Failed);
}

#[test]
fn an_end_before_the_windows_end_leaves_it_without_figures() {
    let server = server();
    let early = |name: &str| {
        let ran = run(name, &server.target, &[cut(0, None)]);
        (
            ran.report.cut_short.unwrap_or_default(),
            ran.edges,
            ran.summaries.len(),
            ran.report.exit_code,
        )
    };
    let (words, edges, n_summaries, code) = early("bad/aborts.js");
    assert!(
        words.contains("test.abort") && words.contains("enough"),
        "{words}"
    );
    assert_eq!((edges, n_summaries, code), (vec![(0, "began")], 0, 108));
    let (words, _, n_summaries, code) = early("bad/threshold-aborts.js");
    assert!(
        words.contains("thresholds crossed: http_req_duration"),
        "{words}"
    );
    assert_eq!((n_summaries, code), (0, 99));
    let (words, edges, _, code) = early("bad/set-up-throws.js");
    assert!(
        words.starts_with("k6 ended before any load") && words.contains("no fixtures"),
        "{words}"
    );
    assert_eq!((edges, code), (vec![], 107));
}

#[test]
fn a_scripts_own_metrics_do_not_reach_the_figures() {
    let server = server();
    let ran = run("bad/own-metrics.js", &server.target, &[cut(0, None)]);
    let window = &ran.summaries[0];
    let counts = &window.total.counts;
    assert_eq!(counts.successes, counts.requests);
    super::run::assert_same(&ran, window, None);
    assert!(window.total.latency_ms.max.unwrap() < 2_000.0);
}

#[test]
fn what_k6_refuses_is_refused_before_anything_starts_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str| -> (i32, String, Option<String>) {
        let path = folder.path().join("script.js");
        fs_err::write(&path, text).unwrap();
        let read = Script::read(
            &super::run::binary(),
            &path,
            &indexmap::IndexMap::new(),
            "http://a",
        );
        match read.unwrap_err() {
            error @ K6Error::Refused { code, .. } => (code, error.to_string(), error.hint()),
            other => panic!("{other}"),
        }
    };
    let (code, words, _) = refused("export const options = { vus: 'x' }; export default () => {}");
    assert_eq!(code, 104, "{words}");
    let (code, words, hint) = refused("export function other() {}");
    assert_eq!(code, 104, "{words}");
    assert!(hint.unwrap().contains("export default function"));
    let (code, words, _) = refused("export default function () {");
    assert!(
        code == 107 && words.contains("Unexpected end of input"),
        "{words}"
    );
    let (code, _, hint) = refused("import x from './nope.js'; export default () => {}");
    assert!(code == 107 && hint.unwrap().contains("relative to the script"));
    let (code, _, hint) = refused("import x from 'k6/x/sql'; export default () => {}");
    assert!(code == 107 && hint.unwrap().contains("xk6"));
    let (code, _, hint) =
        refused("import x from 'https://127.0.0.1:9/x.js'; export default () => {}");
    assert!(code == 107 && hint.unwrap().contains("network"));
    let (code, words, _) =
        refused("export const options = { vus: 1, duration: NaN }; export default () => {}");
    assert!(code == 255 && words.contains("NaN"), "{code} {words}");
}

#[test]
fn options_follow_the_cell() {
    let load = |users: &str| read("bad/by-cell.js", &[("users", users)]).unwrap();
    let (two, three) = (load("2"), load("3"));
    assert!(two.reads("users") && !two.reads("web") && two.reads("BASE_URL"));
    assert!(!two.is_same_load(&three) && two.is_same_load(&load("2")));
}

#[test]
fn a_script_that_changed_since_is_not_run() {
    let server = server();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.js");
    fs_err::copy(super::run::fixture("localhost.js"), &path).unwrap();
    let read = Script::read(
        &super::run::binary(),
        &path,
        &indexmap::IndexMap::new(),
        "http://a",
    );
    let plan = plan(read.unwrap(), &server.target, &[cut(0, None)]);
    fs_err::write(&path, "export default () => {}").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = runtime.block_on(async {
        let mut load = RunningLoad::start_script(plan).unwrap();
        assert!(load.next().await.is_none());
        load.stop().await.unwrap_err()
    });
    assert!(
        matches!(&error, LoadError::BadPlan(words) if words.contains("script.js")),
        "{error}"
    );
}

#[test]
fn several_addresses_are_more_than_a_script_can_reach() {
    let server = server();
    let mut target = server.target.clone();
    target.addresses.push(target.addresses[0]);
    let error = try_run("localhost.js", &target, &[cut(0, None)]).unwrap_err();
    assert!(error.to_string().contains("the target has 2"), "{error}");
}

#[test]
fn a_load_that_is_stopped_leaves_nothing_running() {
    let server = server();
    let script = read("bad/aborts.js", &[]).unwrap();
    let plan = plan(script, &server.target, &[cut(0, None)]);
    let own = std::process::id();
    let children = || -> Vec<String> {
        let all = fs_err::read_dir("/proc").unwrap().flatten();
        let stats = all.filter_map(|entry| fs_err::read_to_string(entry.path().join("stat")).ok());
        let is_ours = |stat: &String| {
            let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
            stat.contains("(k6)") && after.split_whitespace().nth(1) == Some(&own.to_string())
        };
        let ours = stats.filter(is_ours);
        ours.map(|stat| stat.split(' ').next().unwrap().to_owned())
            .collect()
    };
    let before = children();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mine = runtime.block_on(async {
        let mut load = RunningLoad::start_script(plan).unwrap();
        let begun = tokio::time::timeout(Duration::from_secs(20), load.next())
            .await
            .unwrap();
        assert!(
            matches!(begun, Some(LoadSignal::PhaseStarted { .. })),
            "{begun:?}"
        );
        let mine: Vec<String> = children()
            .into_iter()
            .filter(|pid| !before.contains(pid))
            .collect();
        assert!(!mine.is_empty());
        let asked = Instant::now();
        load.stop().await.unwrap();
        assert!(
            asked.elapsed() < Duration::from_secs(4),
            "{:?}",
            asked.elapsed()
        );
        mine
    });
    // Other tests have a k6 of their own: at least one of those seen is gone.
    let left = children();
    assert!(
        mine.iter().any(|pid| !left.contains(pid)),
        "{mine:?} {left:?}"
    );
    let n = server.requests();
    let silence = std::sync::mpsc::channel::<()>();
    let _ = silence.1.recv_timeout(Duration::from_millis(400));
    assert_eq!(server.requests(), n, "nothing is sent any more");
}
