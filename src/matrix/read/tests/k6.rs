//! `[load] k6` and the phases that cut windows out of a script.

use std::path::Path;

use super::{LEAST, good, wrong};
use crate::matrix::{LoadSource, PhaseLoad};

const WORKLOAD: &str = "workload = \"workload.toml\"";
const PHASE: &str = "closed = { users = 16 }\nduration = \"45s\"";

/// The least matrix with a script.
fn script(load: &str, phase: &str) -> String {
    assert!(LEAST.contains(WORKLOAD) && LEAST.contains(PHASE));
    LEAST.replacen(WORKLOAD, load, 1).replacen(PHASE, phase, 1)
}

#[test]
fn a_script_is_a_path_or_a_table_and_its_windows_are_cuts() {
    let sweep = good(&script("k6 = 'load.js'", "scenario = 'peak'"));
    let LoadSource::K6(k6) = &sweep.load.source else {
        panic!("{:?}", sweep.load.source)
    };
    assert_eq!(k6.script.value, Path::new("load.js"));
    assert!(k6.binary.is_none() && k6.env.is_empty() && k6.hosts.is_empty());
    let PhaseLoad::Script {
        scenario,
        from,
        duration,
        ..
    } = &sweep.phases[0].stages[0].load
    else {
        panic!("{:?}", sweep.phases)
    };
    assert_eq!(scenario.as_ref().unwrap().value, "peak");
    assert_eq!((*from, *duration), (None, None));

    let table = "k6 = { script = 'load.js', hosts = ['localhost:3000'], env = { API = '${target}/v1', USERS = '${cpus}', N = 3, ON = true } }\nk6_binary = 'bin/k6'";
    let sweep = good(&script(table, "from = '10s'\nduration = '1m'"));
    let LoadSource::K6(k6) = &sweep.load.source else {
        panic!("{:?}", sweep.load.source)
    };
    assert_eq!(k6.binary.as_ref().unwrap().value, Path::new("bin/k6"));
    let env: Vec<_> = k6
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        env,
        [
            ("API", "${target}/v1"),
            ("USERS", "${cpus}"),
            ("N", "3"),
            ("ON", "true")
        ]
    );
    assert_eq!(k6.hosts[0].value, "localhost:3000");
    assert!(sweep.used_names().contains("cpus") && !sweep.used_names().contains("target"));
}

#[test]
fn what_the_script_decides_is_refused_in_the_matrix_at_its_place() {
    let all = script(
        "k6 = 'load.js'\nworkload = 'w.toml'\nthreads = 2\ntimeout = '3s'",
        "closed = { users = 16 }\nopen = { requests_per_second = 3 }\nduration = \"45s\"\n[[phase]]\nname = 'warm-up'\nduration = '3s'",
    );
    insta::assert_snapshot!(wrong(&all), @r#"
    m.toml:11:1: [load] has both `k6` and `workload` (a script is the workload)
    m.toml:12:1: [load] has both `k6` and `threads` (k6 has threads of its own)
    m.toml:13:1: [load] has both `k6` and `timeout` (the script says how long it waits for an answer)
    m.toml:19:1: `closed` of [[phase]] "stress": a k6 script says itself how much load there is
      hint: change the script's options, or take `k6` out of [load]
    m.toml:20:1: `open` of [[phase]] "stress": a k6 script says itself how much load there is
      hint: change the script's options, or take `k6` out of [load]
    m.toml:22:1: [[phase]] "warm-up" is no window: with `k6` a phase only cuts a window out of the script
      hint: write window = true, or leave the phase out: what lies before a window warms up
    "#);
}

#[test]
fn of_tls_k6_takes_whom_to_trust_and_nothing_else() {
    let https = |tls: &str| {
        let text = script(&format!("k6 = 'load.js'\ntls = {tls}"), "");
        assert!(text.contains("http://"));
        text.replace("\"http://", "\"https://")
    };
    let sweep = good(&https("{ ca = 'ca.pem' }"));
    assert!(sweep.load.tls.unwrap().value.ca.is_some());
    assert!(
        good(&https("{ insecure = true }"))
            .load
            .tls
            .unwrap()
            .value
            .insecure
    );
    for tls in [
        "{ cert = 'c.pem', key = 'c.key' }",
        "{ server_name = 'app' }",
    ] {
        let problems = wrong(&https(tls));
        assert!(
            problems.contains("are not k6's (allowed: ca, insecure)"),
            "{problems}"
        );
    }
}

#[test]
fn what_is_wrong_with_the_script_s_own_keys_is_told_at_once() {
    let all = script(
        "k6 = { script = 3, env = { 'a b' = 'x', B = '${nope}', C = [1] }, hosts = ['my_app:80', 'app'], args = [] }\nk6_binary = 7",
        "from = 'soon'\nscenario = 3\nduration = '0s'",
    );
    insta::assert_snapshot!(wrong(&all), @r#"
    m.toml:10:17: `script` in `k6` of [load] must be a text in quotes, not the number 3
    m.toml:10:28: `a b` in `env` of `k6` is no name of a variable (allowed: letters, digits and `_`)
    m.toml:10:46: `${nope}` in `env` of `k6` is no axis or derived value
      hint: axes and derived values are cpus, target
    m.toml:10:60: `C` in `env` of `k6` must be a text, a number or a boolean, not a list
    m.toml:10:76: `my_app:80` in `hosts` of `k6` is no host and port (allowed: letters, digits, `.` and `-`, such as localhost:8080)
      hint: k6 leads a host with `_` nowhere else: let the script take it from __ENV.BASE_URL
    m.toml:10:89: `app` in `hosts` of `k6` is no host and port (allowed: letters, digits, `.` and `-`, such as localhost:8080)
      hint: k6 leads a host with `_` nowhere else: let the script take it from __ENV.BASE_URL
    m.toml:10:97: `args` in `k6` of [load] is not yet supported
    m.toml:11:13: `k6_binary` in [load] must be a text in quotes, not the number 7
    m.toml:17:8: `from` in [[phase]] "stress": `soon` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    m.toml:18:12: `scenario` in [[phase]] "stress" must be a text in quotes, not the number 3
    m.toml:19:12: `duration` in [[phase]] "stress" must be longer than 0
    "#);
    insta::assert_snapshot!(wrong(&script("k6 = 3", "duration = '1s'")), @r#"
    m.toml:10:6: `k6` in [load] must be a path or a table, not the number 3
      hint: k6 = "script.js"
    "#);
    insta::assert_snapshot!(wrong(&LEAST.replacen(WORKLOAD, "workload = 'w.toml'\nk6_binary = 'k6'", 1)), @"m.toml:11:1: `k6_binary` in [load] belongs to `k6`, which is not there");
    insta::assert_snapshot!(wrong(&LEAST.replacen(PHASE, "closed = { users = 16 }\nduration = '45s'\nfrom = '3s'", 1)), @r#"
    m.toml:18:1: unknown key `from` in [[phase]] "stress"
      hint: allowed here: name, window, answers, profile, beside, stages, open, closed, duration
    "#);
}

#[test]
fn a_threshold_that_would_end_a_script_is_refused_and_one_that_judges_is_not() {
    let text = script("k6 = 'load.js'", "duration = '1m'");
    let rule = "[[threshold]]\nrule = 'p95 < 5 ms'\noperation = 'GET /'\n";
    insta::assert_snapshot!(wrong(&format!("{text}{rule}abort = true\nafter = '5s'\n")), @r#"
    m.toml:20:1: `abort` in [[threshold]] number 1: only k6 ends a k6 script
      hint: leave it out, and write in the script's options thresholds: { http_req_duration: [{ threshold: "p(95)<500", abortOnFail: true }] }
    "#);
    let sweep = good(&format!("{text}{rule}abort = false\n"));
    assert!(!sweep.thresholds[0].abort);
}
