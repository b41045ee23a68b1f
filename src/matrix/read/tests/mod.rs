//! What is said about files that are wrong.

mod beside;
mod damaged;
mod host;
mod k6;
mod stages;
mod state;
mod thresholds;
mod wire;

use super::*;
use crate::matrix::{Answers, Arrivals, Order, PhaseLoad, State, TargetUrl};
use crate::placed::{PlacedNode, PlacedValue};
use crate::scalar::Scalar;
use std::time::Duration;

/// The least that is a matrix.
const LEAST: &str = r#"format = 1
[sweep]
name = "least"
stack = ["compose.yaml"]
subject = "app"
tier = "cpus"
[axes]
cpus = [1, 2]
[load]
workload = "workload.toml"
target = "http://app:8080"
[[phase]]
name = "stress"
window = true
answers = "capacity"
closed = { users = 16 }
duration = "45s"
"#;

fn good(text: &str) -> Sweep {
    read(Path::new("m.toml"), text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn wrong(text: &str) -> String {
    match read(Path::new("m.toml"), text) {
        Ok(_) => "nothing is wrong".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

/// What is said about the least matrix with one line replaced.
fn replaced(line: &str, by: &str) -> String {
    assert!(LEAST.contains(line), "{line}");
    wrong(&LEAST.replacen(line, by, 1))
}

/// What is said about the least matrix with a section behind it.
fn with(more: &str) -> String {
    wrong(&format!("{LEAST}{more}"))
}

#[test]
fn numbers_of_three_hundred_digits_are_named_shortly() {
    insta::assert_snapshot!(
        replaced("cpus = [1, 2]", "cpus = [1e-300, 1e-300]"),
        @"m.toml:8:17: axis `cpus` has the level 1e-300 twice"
    );
    let message = replaced("users = 16", "users = 1e-300");
    assert!(message.contains("`users` is 1e-300, which"), "{message}");
}

#[test]
fn the_least_matrix_takes_every_default() {
    let sweep = good(LEAST);
    assert_eq!(sweep.name, "least");
    assert_eq!(sweep.tier(), "cpus");
    assert_eq!(sweep.trials.repeats, 3);
    assert_eq!(sweep.trials.order, Order::Blocks);
    assert_eq!(sweep.trials.state, State::Fresh);
    assert_eq!(sweep.trials.ready_timeout, Duration::from_mins(2));
    assert_eq!(sweep.trials.max_consecutive_failures, Some(5));
    assert_eq!(sweep.load.timeout, Duration::from_secs(30));
    assert_eq!(sweep.load.drain, Duration::from_secs(5));
    assert_eq!(sweep.load.threads, None);
    assert_eq!(sweep.load.ready, None);
    assert_eq!(sweep.phases[0].answers, Some(Answers::Capacity));
    assert!(sweep.used_names().is_empty());
}

#[test]
fn every_supported_key_is_read() {
    let text = LEAST
        .replace("tier = \"cpus\"", "tier = \"cpus\"\nservices = ['db']\nprofiles = ['p']\nsecrets = ['LICENSE']")
        .replace(
            "target = \"http://app:8080\"",
            "target = \"http://app:8080/base/\"\nready = { path = '/health?x=1', status = 204 }\ntimeout = '2s'\ndrain = '0'\nthreads = 2",
        );
    let more = "[derived]\nn = 'cpus * 2'\n[constraints]\n'keeps small' = 'n < 9'\n[cost]\norder = ['n']\n\
        [trials]\nrepeats = 2\norder = 'listed'\nseed = 7\nstate = 'fresh'\nconfirm = 0\nready_timeout = '1m'\n\
        max_consecutive_failures = 0\nshared = ['./cache']\n[slo]\np99_ms = 12.5\nerror_rate = 0\n\
        [slo.operation.'create x']\np99_ms = 200\n[slo.operation.read]\nerror_rate = 0.5\n\
        [report]\ntitle = 'T'\nauthor = 'A'\nnotes = 'N'\n\
        [[phase]]\nname = 'slow'\nwindow = true\nanswers = 'latency'\nduration = '1s'\n\
        open = { requests_per_second = 'n + tier_max(cpus)', arrivals = 'poisson', max_in_flight = 5 }";
    let sweep = good(&format!("{text}{more}"));
    assert_eq!(sweep.services[0].value, "db");
    assert_eq!(sweep.secrets[0].location.to_string(), "m.toml:9:12");
    assert_eq!(
        sweep.load.target.value,
        TargetUrl {
            text: "http://app:8080/base/".into(),
            host: "app".into(),
            is_https: false,
            port: 8080,
            base_path: "/base".into()
        }
    );
    let ready = sweep.load.ready.as_ref().unwrap();
    assert_eq!((ready.path.as_str(), ready.status), ("/health?x=1", 204));
    assert_eq!(sweep.load.drain, Duration::ZERO);
    assert_eq!(sweep.load.threads, Some(2));
    assert_eq!(sweep.trials.order, Order::Listed);
    assert_eq!(sweep.trials.max_consecutive_failures, None);
    assert_eq!(sweep.trials.shared[0].value, "./cache");
    let total = sweep.slo.total;
    assert_eq!((total.p99_ms, total.error_rate), (Some(12.5), Some(0.0)));
    let of_operations: Vec<_> = sweep
        .slo
        .operations
        .iter()
        .map(|slo| (slo.operation.value.as_str(), slo.limits))
        .map(|(name, limits)| (name, limits.p99_ms, limits.error_rate))
        .collect();
    assert_eq!(
        of_operations,
        [("create x", Some(200.0), None), ("read", None, Some(0.5))]
    );
    assert_eq!(sweep.report.author.as_deref(), Some("A"));
    assert_eq!(sweep.cost[0].value, "n");
    assert!(matches!(
        sweep.phases[1].stages[0].load,
        PhaseLoad::Open {
            arrivals: Arrivals::Poisson,
            max_in_flight: 5,
            ..
        }
    ));
    let used: Vec<_> = sweep.used_names().into_iter().collect();
    assert_eq!(used, ["cpus", "n"]);
}

#[test]
fn eight_mistakes_are_eight_messages() {
    let text = r#"format = 1
[sweep]
name = "eight"
stack = "compose.yaml"
subject = "app"
teir = "cpus"
[axes]
cpus = [1, 2, 2.0]
[derived]
threads = "round(cpus * wbe)"
[trials]
repeats = 0
[load]
workload = "workload.toml"
target = "app:8080"
[[phase]]
name = "stress"
window = true
answers = "capacity"
closed = { users = "2 * threads +" }
duration = 45s
"#;
    let problems = read(Path::new("m.toml"), text).unwrap_err();
    insta::assert_snapshot!(problems, @r#"
    m.toml:4:9: `stack` in [sweep] must be a list of texts, not the text "compose.yaml"
    m.toml:6:1: unknown key `teir` in [sweep]
      hint: did you mean `tier`?
    m.toml:8:15: axis `cpus` has the level 2 twice
    m.toml:10:25: unknown name `wbe`
      hint: the names here are cpus
    m.toml:12:11: `repeats` in [trials] must be a whole number from 1 to 1000, not the number 0
    m.toml:15:10: `target` in [load] must start with http:// or https://, not be `app:8080` (allowed: such as http://app:8080)
    m.toml:20:34: the expression ends too early
    m.toml:21:12: this is not TOML: string values must be quoted, expected literal string
    "#);
    assert_eq!(problems.0.len(), 8);
}

#[test]
fn mistakes_of_every_section_are_told_at_once() {
    let text = r#"format = "1"
[sweep]
name = "many"
stack = []
subject = ""
tier = "cpu"
[axes]
cpus = [1, 2]
web = []
[derived]
threads = "rond(cpus * web, )"
[cost]
ordr = ["threads"]
[trials]
order = "random"
[lod]
workload = "workload.toml"
[[phase]]
name = "stress"
window = true
closed = { users = "2 * threads +" }
duration = 45
"#;
    insta::assert_snapshot!(wrong(text), @r#"
    m.toml:1:10: `format` in the file must be a whole number, 0 or more, not the text "1"
    m.toml:4:9: `stack` in [sweep] names no Compose file
    m.toml:5:11: `subject` in [sweep] must not be empty
    m.toml:6:8: `tier` in [sweep] is `cpu`, which is neither an axis nor a derived value
      hint: did you mean `cpus`?
    m.toml:9:7: axis `web` has no level
    m.toml:11:12: unknown function `rond`
      hint: did you mean `round`?
    m.toml:13:1: unknown key `ordr` in [cost]
      hint: did you mean `order`?
    m.toml:15:9: `order` in [trials] must be "blocks" or "listed", not the text "random"
    m.toml:16:2: unknown key `lod` in the file
      hint: did you mean `load`?
    m.toml:20:1: [[phase]] "stress" is a window and has no `answers`
      hint: write answers = "latency" (open load) or answers = "capacity" (closed load)
    m.toml:21:34: the expression ends too early
    m.toml:22:12: `duration` in [[phase]] "stress" must be a duration such as "45s" or "1m30s", not the number 45
    "#);
}

#[test]
fn an_empty_file_lacks_everything_it_needs() {
    insta::assert_snapshot!(wrong(""), @"
    m.toml:1:1: the file has no [[phase]]
      hint: add a line such as: [[phase]]
    m.toml:1:1: the file has no [axes]
      hint: add a line such as: [axes]
    m.toml:1:1: the file has no [load]
      hint: add a line such as: [load]
    m.toml:1:1: the file has no [sweep]
      hint: add a line such as: [sweep]
    m.toml:1:1: the file has no `format`
      hint: add a line such as: format = 1
    ");
}

#[test]
fn sections_without_their_keys_say_what_to_add() {
    insta::assert_snapshot!(wrong("format = 2\n[sweep]\n[axes]\n[load]\n[cost]\n[[phase]]\n[[phase]]\nname = 'x'\nanswers = 'latency'\nopen = {}\nclosed = {}"), @r#"
    m.toml:1:10: this version of nightsweep reads `format = 1` only
      hint: use the version of nightsweep that the file was written for
    m.toml:2:2: [sweep] has no `name`
      hint: add a line such as: name = "my-service"
    m.toml:2:2: [sweep] has no `stack`
      hint: add a line such as: stack = ["compose.yaml"]
    m.toml:2:2: [sweep] has no `subject`
      hint: add a line such as: subject = "app"
    m.toml:2:2: [sweep] has no `tier`
      hint: add a line such as: tier = "cpus"
    m.toml:3:2: [axes] names no knob
      hint: add a line such as: cpus = [1, 2, 4]
    m.toml:4:2: [load] has no `target`
      hint: add a line such as: target = "http://app:8080"
    m.toml:4:2: [load] has no `workload`
      hint: add a line such as: workload = "workload.toml"
    m.toml:5:2: [cost] has no `order`
      hint: add a line such as: order = ["web_threads"]
    m.toml:6:1: [[phase]] number 1 has no `duration`
      hint: add a line such as: duration = "45s"
    m.toml:6:1: [[phase]] number 1 has no `name`
      hint: add a line such as: name = "stress"
    m.toml:6:1: [[phase]] number 1 has no load
      hint: add closed = { users = 16 } or open = { requests_per_second = 100 }
    m.toml:6:3: no phase is a window: nothing would be measured
      hint: add to one [[phase]]: window = true and answers = "capacity"
    m.toml:7:1: [[phase]] "x" has no `duration`
      hint: add a line such as: duration = "45s"
    m.toml:9:1: [[phase]] "x" has `answers` and is no window
      hint: write window = true to measure it
    m.toml:11:1: [[phase]] "x" has both `open` and `closed` (allowed: one of them)
    "#);
}

#[test]
fn reserved_keys_are_refused_by_name() {
    let sections = "[baseline]\nweb = 2\n[[metric]]\n[postgres]\n[verdicts]\n[notify]\n\
        [trials]\nconfirm = 3\n";
    insta::assert_snapshot!(with(sections), @"
    m.toml:18:2: [baseline] is not yet supported
    m.toml:20:3: [[metric]] is not yet supported
    m.toml:21:2: [postgres] is not yet supported
    m.toml:22:2: [verdicts] is not yet supported
    m.toml:23:2: [notify] is not yet supported
    m.toml:25:11: `confirm` in [trials] other than 0 is not yet supported
    ");
    insta::assert_snapshot!(replaced("closed = { users = 16 }", "open = { requests_per_second = '0.6 * tier_capacity' }\nmin = '1s'\nmax = '2s'"), @r#"
    m.toml:16:39: `tier_capacity` is not yet supported (allowed: a number or an expression over axes, derived values and tier_max)
    m.toml:17:1: `min` in [[phase]] "stress" is not yet supported
    m.toml:18:1: `max` in [[phase]] "stress" is not yet supported
    "#);
    insta::assert_snapshot!(replaced("duration = \"45s\"", "[[phase]]\nname = 'l'\nwindow = true\nanswers = 'ladder'\nstages = []\n[[phase]]\nname = 'p'\nprofile = 'smoke'"), @r#"
    m.toml:12:1: [[phase]] "stress" has no `duration`
      hint: add a line such as: duration = "45s"
    m.toml:21:10: `stages` of [[phase]] "l" has no stage
      hint: such as stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]
    m.toml:22:1: [[phase]] "p" has no load
      hint: add closed = { users = 16 } or open = { requests_per_second = 100 }
    "#);
}

#[test]
fn levels_are_single_finite_and_written_once() {
    insta::assert_snapshot!(replaced("cpus = [1, 2]", "cpus = [1, inf, nan, [1], {a = 1}, 1979-05-27, '', 1.0, '1', 9007199254740993, \"a\\u0007\"]\nb = 3\nc = [true, 'true', -0.0, 0]"), @"
    m.toml:8:12: in axis `cpus`, the number inf is not finite
    m.toml:8:17: in axis `cpus`, the number nan is not finite
    m.toml:8:22: in axis `cpus`, a list is no single value (allowed: numbers, texts, true, false)
    m.toml:8:27: in axis `cpus`, a table is no single value (allowed: numbers, texts, true, false)
    m.toml:8:36: in axis `cpus`, the date 1979-05-27 is no single value (allowed: numbers, texts, true, false)
    m.toml:8:48: in axis `cpus`, a level is an empty text
    m.toml:8:52: axis `cpus` has the level 1 twice
    m.toml:8:57: axis `cpus` has the level 1 twice
    m.toml:8:62: in axis `cpus`, the number 9007199254740993 is too large (allowed: up to 9007199254740992)
    m.toml:8:80: in axis `cpus`, a level holds a control character
    m.toml:9:5: axis `b` must be a list of levels, not the number 3
      hint: a knob with one value is a list of one: cpus = [2]
    m.toml:10:12: axis `c` has the level true twice
    m.toml:10:26: axis `c` has the level 0 twice
    ");
    let long = format!("cpus = ['{}', '{}']", "x".repeat(100), "x".repeat(101));
    insta::assert_snapshot!(replaced("cpus = [1, 2]", &long), @"m.toml:8:113: in axis `cpus`, a level is too long (allowed: 100 characters)");
    let sweep = good(
        &LEAST
            .replace("cpus = [1, 2]", "cpus = [0x10, 1_000, +3, 1e3, 2.50]")
            .replace("1e3", "1e4"),
    );
    let levels: Vec<_> = sweep.axes[0]
        .levels
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(levels, ["16", "1000", "3", "10000", "2.5"]);
}

#[test]
fn names_are_usable_everywhere_and_used_once() {
    insta::assert_snapshot!(replaced(
        "cpus = [1, 2]",
        "cpus = [1]\n'web-threads' = [1]\n2x = [1]\nround = [1]\nif = [1]\nnew = [1]\nenv = [1]\n\u{fc} = [1]\n\"\" = [1]\n[derived]\ncpus = '1'\ntier_max = '1'\n"), @"
    m.toml:9:1: `web-threads` cannot name an axis (allowed: letters, digits and _, no digit first, no word of expressions)
      hint: the name becomes a Compose variable, `${name}`, and stands in expressions
    m.toml:10:1: `2x` cannot name an axis (allowed: letters, digits and _, no digit first, no word of expressions)
      hint: the name becomes a Compose variable, `${name}`, and stands in expressions
    m.toml:11:1: `round` cannot name an axis (allowed: letters, digits and _, no digit first, no word of expressions)
      hint: the name becomes a Compose variable, `${name}`, and stands in expressions
    m.toml:12:1: `if` cannot name an axis (allowed: letters, digits and _, no digit first, no word of expressions)
      hint: the name becomes a Compose variable, `${name}`, and stands in expressions
    m.toml:13:1: `new` cannot name an axis (allowed: letters, digits and _, no digit first, no word of expressions)
      hint: the name becomes a Compose variable, `${name}`, and stands in expressions
    m.toml:14:1: `env` cannot name an axis: workload files use it for something else
    m.toml:15:1: this is not TOML: invalid unquoted key, expected letters, numbers, `-`, `_`
    m.toml:16:1: `` cannot name an axis (allowed: letters, digits and _, no digit first, no word of expressions)
      hint: the name becomes a Compose variable, `${name}`, and stands in expressions
    m.toml:18:1: `cpus` in [derived] is an axis as well: name it differently
    m.toml:19:1: `tier_max` cannot name a derived value (allowed: letters, digits and _, no digit first, no word of expressions)
      hint: the name becomes a Compose variable, `${name}`, and stands in expressions
    ");
}

#[test]
fn derived_values_see_earlier_names_only() {
    insta::assert_snapshot!(with("[derived]\na = 'b + 1'\nb = 'b'\nc = 'cpus + tier_max(cpus)'\nd = 3\n"), @r#"
    m.toml:19:6: `b` has no value yet
      hint: derived values are computed in file order: move its line up
    m.toml:20:6: `b` has no value yet
      hint: derived values are computed in file order: move its line up
    m.toml:21:13: `tier_max` can be used in a phase's load only: a derived value or constraint belongs to one cell
    m.toml:22:5: `d` in [derived] must be an expression in quotes, not the number 3
      hint: such as: web_threads = "round(cpus * web)"
    "#);
}

#[test]
fn more_combinations_than_the_cap_are_refused() {
    let levels = |n: u32| {
        (0..n)
            .map(|level| level.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let axes = |n: u32| format!("cpus = [{}]\nb = [{}]", levels(400), levels(n));
    assert_eq!(replaced("cpus = [1, 2]", &axes(500)), "nothing is wrong");
    insta::assert_snapshot!(replaced("cpus = [1, 2]", &axes(501)), @"
    m.toml:8:1: [axes] make 200400 combinations (allowed: 200000)
      hint: sweep fewer levels, or derive one knob from another
    ");
}

#[test]
fn phases_are_whole() {
    insta::assert_snapshot!(wrong(&LEAST.replace("window = true\n", "")), @r#"
    m.toml:12:3: no phase is a window: nothing would be measured
      hint: add to one [[phase]]: window = true and answers = "capacity"
    m.toml:14:1: [[phase]] "stress" has `answers` and is no window
      hint: write window = true to measure it
    "#);
    insta::assert_snapshot!(wrong(&LEAST.replace("[[phase]]", "[phase]")), @"m.toml:12:2: `phase` is written [[phase]], one block each, not as a table");
    insta::assert_snapshot!(with("[[phase]]\nname = 'stress'\nduration = '0s'\nclosed = { users = 0 }\nopen = { requests_per_second = 1 }\n[[phase]]\nname = 'x'\nduration = '1s'\nopen = { requests_per_second = -1, max_in_flight = 0, arivals = 'uniform' }\n[[phase]]\nname = 'y'\nduration = '1s'\nclosed = { users = [1] }\n[[phase]]\nname = 'z'\nduration = '1s'"), @r#"
    m.toml:19:8: two phases are named `stress`: names tell rows apart
    m.toml:20:12: `duration` in [[phase]] "stress" must be longer than 0
    m.toml:21:1: [[phase]] "stress" has both `open` and `closed` (allowed: one of them)
    m.toml:26:32: in `open` of [[phase]] "x", `requests_per_second` is -1 (allowed: above 0, up to 100000000)
    m.toml:26:52: `max_in_flight` in `open` of [[phase]] "x" must be a whole number from 1 to 60000, not the number 0
    m.toml:26:55: unknown key `arivals` in `open` of [[phase]] "x"
      hint: did you mean `arrivals`?
    m.toml:30:20: `users` in `closed` of [[phase]] "y" must be a number or an expression in quotes, not a list
      hint: several loads are steps: stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]
    m.toml:31:1: [[phase]] "z" has no load
      hint: add closed = { users = 16 } or open = { requests_per_second = 100 }
    "#);
}

#[test]
fn names_of_phases_can_stand_in_file_names() {
    let said = |name: &str| replaced("name = \"stress\"", &format!("name = {name}"));
    for name in [
        "'a/b'",
        "'a\\b'",
        "\"a\\n\"",
        &format!("'{}'", "x".repeat(65)),
    ] {
        assert!(
            said(name).contains("stands in every row"),
            "{name}: {}",
            said(name)
        );
    }
    assert_eq!(said("'50 % \u{fc}'"), "nothing is wrong");
}

#[test]
fn targets_are_plain_http_addresses() {
    for (target, what) in [
        ("http://app", "nothing is wrong"),
        ("http://[::1]:80/x", "nothing is wrong"),
        ("http://127.0.0.1:65535", "nothing is wrong"),
        ("http://app:0", "has the port `0`"),
        ("http://app:65536", "has the port `65536`"),
        ("http://app:", "has the port ``"),
        ("http://app:+1", "behind its host"),
        ("http://", "has no usable host name"),
        ("http://a b", "holds the character ' '"),
        ("http://app/?q=1", "holds the character '?'"),
        ("http://u@app", "holds the character '@'"),
        ("http://[::1", "has no `]`"),
        ("http://[x]", "no IPv6 address"),
        ("http://${app}", "cannot hold a template"),
        ("https://u@app", "holds the character '@'"),
        ("ftp://app", "must start with http:// or https://"),
        ("app", "must start with http:// or https://"),
    ] {
        let said = replaced("http://app:8080", target);
        assert!(said.contains(what), "{target}: {said}");
    }
}

#[test]
fn cost_names_numbers() {
    insta::assert_snapshot!(wrong(&format!("{}[cost]\norder = ['cpu', 'mode', 'cpus']\n", LEAST.replace("cpus = [1, 2]", "cpus = [1, 2]\nmode = [1, 'x']"))), @"
    m.toml:20:10: `order` in [cost] names `cpu`, which is neither an axis nor a derived value
      hint: did you mean `cpus`?
    m.toml:20:17: `order` in [cost] names axis `mode`, whose level x is no number: it cannot be cheaper
    ");
}

#[test]
fn limits_of_numbers_are_told() {
    insta::assert_snapshot!(with("[slo.operation.'create x']\np99_ms = -1\nerror_rate = 2\np95_ms = 1\n[slo.operation.read]\n[slo.operation]\nlist = 3\n"), @r#"
    m.toml:19:10: `p99_ms` in [slo.operation."create x"] must be above 0
    m.toml:20:14: `error_rate` in [slo.operation."create x"] must be from 0 to 1, not 2
      hint: one request of a hundred is 0.01
    m.toml:21:1: unknown key `p95_ms` in [slo.operation."create x"]
      hint: did you mean `p99_ms`?
    m.toml:22:16: [slo.operation."read"] asks for nothing
      hint: write p99_ms = 200 or error_rate = 0.01
    m.toml:24:8: [slo.operation."list"] must be a table, not the number 3
    "#);
    insta::assert_snapshot!(with("[slo]\np99_ms = 0\nerror_rate = 1.5\n[trials]\nrepeats = 1001\nseed = -1\nready_timeout = '0'\nmax_consecutive_failures = 1.5\nshared = 'x'\n"), @r#"
    m.toml:19:10: `p99_ms` in [slo] must be above 0
    m.toml:20:14: `error_rate` in [slo] must be from 0 to 1, not 1.5
      hint: one request of a hundred is 0.01
    m.toml:22:11: `repeats` in [trials] must be a whole number from 1 to 1000, not the number 1001
    m.toml:23:8: `seed` in [trials] must be a whole number, 0 or more, not the number -1
    m.toml:24:17: `ready_timeout` in [trials] must be longer than 0
    m.toml:25:28: `max_consecutive_failures` in [trials] must be a whole number from 0 to 4294967294, not the number 1.5
    m.toml:26:10: `shared` in [trials] must be a list of texts, not the text "x"
    "#);
    insta::assert_snapshot!(replaced("target = ", "ready = { path = 'health', status = 99 }\ntimeout = 30\nthreads = 0\ndrain = '5 s'\ntarget = "), @r#"
    m.toml:11:18: `path` in `ready` of [load] must be a path that starts with /, not `health`
    m.toml:11:37: `status` in `ready` of [load] must be a whole number from 100 to 599, not the number 99
    m.toml:12:11: `timeout` in [load] must be a duration such as "45s" or "1m30s", not the number 30
    m.toml:13:11: `threads` in [load] must be a whole number from 1 to 1024, not the number 0
    m.toml:14:9: `drain` in [load]: `5 s` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    "#);
}

#[test]
fn an_override_is_kept_as_a_tree_with_places() {
    let text = format!(
        "{LEAST}[override.services.app]\ncpus = \"${{cpus}}\"\nports = [80, \"81:81\"]\nenvironment = {{ B = true, A = 1.5 }}\n"
    );
    let sweep = good(&text);
    let root = sweep.overrides.expect("there is one");
    let map = |node: &PlacedNode| match &node.value {
        PlacedValue::Map(entries) => entries.clone(),
        other => panic!("{other:?}"),
    };
    let (services, _, node) = &map(&root)[0];
    assert_eq!(services, "services");
    let app = &map(node)[0];
    assert_eq!(
        (app.0.as_str(), app.1.to_string()),
        ("app", "m.toml:18:20".into())
    );
    let keys = map(&app.2);
    let names: Vec<_> = keys
        .iter()
        .map(|(key, place, _)| (key.as_str(), place.line))
        .collect();
    assert_eq!(names, [("cpus", 19), ("ports", 20), ("environment", 21)]);
    assert_eq!(
        keys[0].2.value,
        PlacedValue::Scalar(Scalar::Text("${cpus}".into()))
    );
    assert_eq!(keys[0].2.location.to_string(), "m.toml:19:8");
    let environment: Vec<_> = map(&keys[2].2).into_iter().map(|(key, ..)| key).collect();
    assert_eq!(environment, ["B", "A"], "file order");
    insta::assert_snapshot!(wrong(&format!("override = 3\n{LEAST}")), @"m.toml:1:12: [override] must be a table, not the number 3");
    insta::assert_snapshot!(with("[override.services.app]\ncpus = nan\n"), @"m.toml:19:8: in [override], the number nan is not finite");
}

#[test]
fn a_place_is_found_inside_an_expression() {
    insta::assert_snapshot!(with("[derived]\na = \"\"\"\nround(cpus) +\n  max(cpuss, nothing, 1)\"\"\"\nb = \"if(cpus > 1, \\\"a\\\", zzz)\"\n"), @"
    m.toml:21:7: unknown name `cpuss`
      hint: did you mean `cpus`?
    m.toml:21:14: unknown name `nothing`
      hint: the names here are cpus
    m.toml:22:26: unknown name `zzz`
      hint: the names here are cpus, a
    ");
}
