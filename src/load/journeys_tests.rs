//! Several journeys, data files and steps that repeat, against real sockets.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::test_load::{assert_adds_up, closed, ms, open, plan, run_one, workload};
use super::test_server::{Got, Reply, TestServer, ok};
use super::{Beside, LoadModel, RunningLoad, Workload};
use crate::measure::{Figures, Flag, Pacing, WindowSummary, judge};

const READERS_AND_EDITORS: &str = r#"
[[journey]]
name = "reader"
weight = 3
[[journey.step]]
name = "read"
path = "/read/${user}"
[[journey]]
name = "editor"
[[journey.step]]
name = "open"
path = "/open/${user}"
[[journey.step]]
name = "save"
path = "/save/${user}"
[[journey.step]]
name = "close"
path = "/close/${user}"
"#;

fn slow() -> TestServer {
    TestServer::start(|_| Reply::After(ms(2), Box::new(ok())))
}

fn operation<'a>(summary: &'a WindowSummary, name: &str) -> &'a Figures {
    let mut operations = summary.operations.iter();
    let found = operations.find(|(known, _)| known == name);
    &found.unwrap_or_else(|| panic!("no {name}")).1
}

fn by_name(summary: &WindowSummary) -> HashMap<String, u64> {
    let journeys = summary.journeys_by_name.iter();
    journeys
        .map(|(name, figures)| (name.clone(), figures.counts.successes))
        .collect()
}

/// What each user began, in order: the first letters of `/read/3` and `/open/3`.
fn sequences(server: &TestServer) -> BTreeMap<String, String> {
    let mut sequences: BTreeMap<String, String> = BTreeMap::new();
    for (_, got) in server.log() {
        let mut parts = got.path.split('/').skip(1);
        let (what, user) = (parts.next().unwrap(), parts.next().unwrap());
        if what == "read" || what == "open" {
            let sequence = sequences.entry(user.to_owned()).or_default();
            sequence.push_str(&what[..1]);
        }
    }
    sequences
}

#[test]
fn users_draw_their_journeys_by_weight_whatever_the_number_of_threads() {
    let mut first: Option<BTreeMap<String, String>> = None;
    for threads in [1, 3] {
        let server = slow();
        let workload = workload(READERS_AND_EDITORS);
        let mut plan = plan(&server.target, workload, &[(closed(6), 700)]);
        plan.threads = threads;
        let summary = run_one(plan);
        assert_adds_up(&summary);
        let counts = by_name(&summary);
        let (readers, editors) = (counts["reader"], counts["editor"]);
        assert_eq!(readers + editors, summary.journeys.counts.successes);
        let share = readers as f64 / (readers + editors) as f64;
        assert!((share - 0.75).abs() < 0.12, "{readers} and {editors}");
        // A journey belongs to where it ended, a request to where it was sent.
        let n_read = operation(&summary, "read").counts.successes;
        assert!(n_read.abs_diff(readers) <= 6, "{n_read} {readers}");
        let sequences = sequences(&server);
        assert_eq!(sequences.len(), 6);
        match &first {
            None => first = Some(sequences),
            Some(first) => {
                for (user, sequence) in sequences {
                    let n = sequence.len().min(first[&user].len());
                    assert!(n >= 10, "{n}");
                    assert_eq!(sequence[..n], first[&user][..n], "user {user}");
                }
            }
        }
    }
}

#[test]
fn users_keep_to_one_journey_where_weights_are_shares_of_users() {
    let server = slow();
    let text = format!("weight_of = \"users\"\n{READERS_AND_EDITORS}");
    let summary = run_one(plan(&server.target, workload(&text), &[(closed(8), 300)]));
    let sequences = sequences(&server);
    assert_eq!(sequences.len(), 8);
    let is_one = |sequence: &String, what: char| sequence.chars().all(|letter| letter == what);
    let n_readers = sequences.values().filter(|all| is_one(all, 'r')).count();
    let n_editors = sequences.values().filter(|all| is_one(all, 'o')).count();
    assert_eq!((n_readers, n_editors), (6, 2));
    assert_adds_up(&summary);
}

#[test]
fn arrivals_are_drawn_by_weight_and_the_rate_counts_requests() {
    let mut first: Option<Vec<u64>> = None;
    for threads in [1, 2, 3] {
        let server = slow();
        // 3 parts of 1 request and 1 part of 3: 1.5 requests a journey.
        let workload = workload(READERS_AND_EDITORS);
        let mut plan = plan(&server.target, workload, &[(open(300.0, 200), 500)]);
        plan.threads = threads;
        let summary = run_one(plan);
        assert_eq!(summary.arrivals, 100, "200 journeys a second");
        assert_adds_up(&summary);
        let due: Vec<u64> = ["read", "open"]
            .map(|name| operation(&summary, name).counts.due)
            .into();
        assert_eq!(due.iter().sum::<u64>(), 100);
        assert!(
            due[0].abs_diff(75) <= 17,
            "{due:?}: four standard deviations"
        );
        assert_eq!(first.get_or_insert(due.clone()), &due, "{threads} threads");
    }
}

#[test]
fn what_never_left_is_shared_out_and_adds_up() {
    let server = TestServer::start(|_| Reply::Never);
    let workload = workload(READERS_AND_EDITORS);
    let mut plan = plan(&server.target, workload, &[(open(600.0, 2), 300)]);
    plan.drain = ms(100);
    let summary = run_one(plan);
    let counts = summary.total.counts;
    assert_eq!(summary.arrivals, 120);
    assert_eq!(counts.due, 120);
    assert_eq!((counts.abandoned, counts.unsent), (2, 118));
    let of_first_steps = ["read", "open"].map(|name| operation(&summary, name).counts.due);
    assert_eq!(of_first_steps.iter().sum::<u64>(), 120);
    assert!(of_first_steps[0] > of_first_steps[1], "{of_first_steps:?}");
}

#[test]
fn each_journey_has_its_own_rule_for_failures_and_its_own_captures() {
    let server = TestServer::start(|got: &Got| match got.path.as_str() {
        "/bad" => Reply::After(ms(2), Box::new(Reply::Answer(500, String::new()))),
        _ => Reply::Answer(200, "{\"id\": 5}".into()),
    });
    let text = r#"
[[journey]]
name = "strict"
step = [{ name = "a", path = "/bad" }, { name = "b", path = "/b" }]
[[journey]]
name = "lenient"
on_failure = "continue"
step = [
    { name = "c", path = "/bad" },
    { name = "d", path = "/d", capture = { id = "$.id" } },
    { name = "e", path = "/e/${id}" },
]
"#;
    let summary = run_one(plan(&server.target, workload(text), &[(closed(4), 400)]));
    assert_eq!(operation(&summary, "b").counts.due, 0);
    assert!(operation(&summary, "e").counts.successes > 0);
    let n_strict = operation(&summary, "a").counts.requests;
    assert_eq!(summary.not_attempted, n_strict, "the lenient one goes on");
    assert!(server.log().iter().any(|(_, got)| got.path == "/e/5"));
}

fn with_files(files: &[(&str, &str)], text: &str) -> (tempfile::TempDir, Workload) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs_err::write(folder.path().join(name), text).unwrap();
    }
    let workload = Workload::parse(&folder.path().join("w.toml"), text)
        .unwrap_or_else(|problems| panic!("{problems}"));
    (folder, workload)
}

#[test]
fn rows_go_to_users_to_journeys_in_order_and_to_journeys_by_chance() {
    const TEXT: &str = r#"
[data.user]
file = "users.csv"
pick = "per_user"
[data.next]
file = "next.json"
pick = "next"
[data.any]
file = "any.csv"
pick = "random"
[[step]]
method = "POST"
path = "/${user}/${data.user.name}/${data.next.id}/${data.any.x}"
json = { n = "${data.next.n}", again = "${data.next.id}", pass = "${data.user.pass}" }
"#;
    let rows: Vec<String> = (0..500)
        .map(|n| format!("{{\"id\": \"r{n}\", \"n\": {n}}}"))
        .collect();
    let any: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let files = [
        (
            "users.csv",
            "name,pass\nanna,007\nbert,\"q\"\"q\"\ncleo,c\n",
        ),
        ("next.json", &format!("[{}]", rows.join(","))),
        ("any.csv", &format!("x\n{}", any.join("\n"))),
    ];
    let mut by_chance: Option<Vec<Vec<String>>> = None;
    for threads in [1, 2] {
        let (_folder, workload) = with_files(&files, TEXT);
        assert_eq!(workload.files().len(), 3);
        let server = slow();
        let mut plan = plan(&server.target, workload, &[(closed(4), 250)]);
        plan.threads = threads;
        run_one(plan);
        let mut next = Vec::new();
        let mut any = vec![Vec::new(); 4];
        for (_, got) in server.log() {
            let parts: Vec<&str> = got.path.split('/').skip(1).collect();
            let user: usize = parts[0].parse().unwrap();
            assert_eq!(parts[1], ["anna", "bert", "cleo", "anna"][user]);
            let id: usize = parts[2][1..].parse().unwrap();
            next.push(id);
            any[user].push(parts[3].to_owned());
            // One row for all of a journey; types as in the file.
            let pass = ["007", "q\\\"q", "c", "007"][user];
            assert_eq!(
                got.body,
                format!("{{\"n\":{id},\"again\":\"r{id}\",\"pass\":\"{pass}\"}}")
            );
        }
        assert!(next.len() >= 40, "{}", next.len());
        next.sort_unstable();
        let n = next.len();
        let in_order: Vec<usize> = (0..n).map(|index| index % 500).collect();
        let mut in_order = in_order;
        in_order.sort_unstable();
        assert_eq!(next, in_order, "each row once before one is used twice");
        for drawn in &mut any {
            drawn.truncate(8);
        }
        assert_ne!(any[0], any[1]);
        assert_eq!(by_chance.get_or_insert(any.clone()), &any);
    }
}

#[test]
fn a_journey_runs_beside_others_at_its_own_rate_and_in_no_total() {
    let server = slow();
    let text = format!(
        "{READERS_AND_EDITORS}\n[[journey]]\nname = \"poll\"\nweight = 0\n\
         step = [{{ name = \"ask\", path = \"/ask\" }}, {{ name = \"get\", path = \"/get\" }}]"
    );
    let beside = Beside {
        journey: "poll".to_owned(),
        requests_per_second: 40.0,
        arrivals: super::Arrivals::Uniform,
        max_in_flight: 10,
    };
    for model in [closed(3), open(200.0, 50)] {
        let mut plan = plan(
            &server.target,
            workload(&text),
            &[(model, 1_000), (model, 300)],
        );
        plan.phases[0].beside = vec![beside.clone()];
        let mut summaries = super::test_load::run(plan);
        let alone = summaries.pop().unwrap();
        let summary = summaries.pop().unwrap();
        assert_adds_up(&summary);
        let polls = &summary.beside[0];
        assert_eq!(
            (polls.journey.as_str(), polls.planned_rate_rps),
            ("poll", 40.0)
        );
        assert_eq!(polls.requests.counts.due, 40);
        assert_eq!(polls.requests.counts.successes, 40);
        assert_eq!(operation(&summary, "ask").counts.due, 20);
        assert_eq!(by_name(&summary)["poll"], 20);
        let own = ["read", "open", "save", "close"];
        let own: u64 = own
            .map(|name| operation(&summary, name).counts.due)
            .iter()
            .sum();
        assert_eq!(summary.total.counts.due, own, "its own load alone");
        if let LoadModel::Open { .. } = model {
            assert_eq!(summary.arrivals, 134, "133.3 journeys a second");
        }
        assert_eq!(operation(&alone, "ask").counts.due, 0);
        assert!(alone.beside.is_empty());
    }
}

#[test]
fn a_journey_beside_that_cannot_hold_its_rate_is_said() {
    let server = TestServer::start(|got: &Got| match got.path.as_str() {
        "/ask" => Reply::Never,
        _ => Reply::After(ms(2), Box::new(ok())),
    });
    let text = format!(
        "{READERS_AND_EDITORS}\n[[journey]]\nname = \"poll\"\nweight = 0\n\
         step = [{{ name = \"ask\", path = \"/ask\" }}]"
    );
    let mut plan = plan(&server.target, workload(&text), &[(closed(2), 300)]);
    plan.drain = ms(50);
    plan.phases[0].beside = vec![Beside {
        journey: "poll".to_owned(),
        requests_per_second: 50.0,
        arrivals: super::Arrivals::Uniform,
        max_in_flight: 1,
    }];
    let summary = run_one(plan);
    let counts = summary.beside[0].requests.counts;
    assert_eq!((counts.due, counts.abandoned, counts.unsent), (15, 1, 14));
    let verdict = judge(&summary, Pacing::Closed);
    assert!(verdict.flags.contains(&Flag::Overloaded), "{verdict:?}");
    assert_eq!(summary.total.counts.unsent, 0);
}

#[test]
fn nonsense_beside_a_phase_is_refused_by_name() {
    let server = slow();
    let refused = |names: &[&str], text: &str| {
        let mut plan = plan(&server.target, workload(text), &[(closed(1), 100)]);
        let beside = names.iter().map(|name| Beside {
            journey: (*name).to_owned(),
            requests_per_second: 1.0,
            arrivals: super::Arrivals::Uniform,
            max_in_flight: 1,
        });
        plan.phases[0].beside = beside.collect();
        RunningLoad::start(plan).unwrap_err().to_string()
    };
    let all = READERS_AND_EDITORS;
    assert!(refused(&["reeder"], all).contains("`reeder` beside it, which the workload"));
    assert!(refused(&["reader", "reader"], all).contains("`reader` beside it twice"));
    assert!(refused(&["reader", "editor"], all).contains("no journey of its own"));
    let alike = all.replace("\"open\"", "\"read\"");
    assert!(refused(&["reader"], &alike).contains("shares the operation `read` with `editor`"));
}

#[test]
fn a_step_repeats_until_its_answer_says_so_and_the_last_attempt_decides() {
    // Done at the third request; a job named `never` is not.
    let server = TestServer::start(|got: &Got| match got.path.as_str() {
        "/never" => Reply::Answer(200, "{\"status\": \"running\"}".into()),
        "/broken" => Reply::Answer(500, String::new()),
        _ if got.index % 3 == 2 => {
            Reply::Answer(200, "{\"status\": \"done\", \"result\": 7}".into())
        }
        _ => Reply::Answer(200, "{\"status\": \"running\"}".into()),
    });
    let poll = |path: &str| {
        format!(
            "[[step]]\nname = \"poll\"\npath = \"/{path}\"\ncapture = {{ result = \"$.result\" }}\n\
             repeat = {{ until = {{ json = {{ \"$.status\" = \"done\" }} }}, every = \"2ms\", at_most = 4 }}\n"
        )
    };
    let summary = run_one(plan(
        &server.target,
        workload(&poll("job")),
        &[(closed(1), 200)],
    ));
    let counts = operation(&summary, "poll").counts;
    assert_eq!(
        counts.successes, counts.requests,
        "every attempt met `expect`"
    );
    let journeys = summary.journeys.counts.successes;
    assert!(
        journeys > 3 && counts.requests.abs_diff(journeys * 3) <= 3,
        "{counts:?}"
    );
    assert_adds_up(&summary);

    let summary = run_one(plan(
        &server.target,
        workload(&poll("never")),
        &[(closed(1), 250)],
    ));
    let counts = operation(&summary, "poll").counts;
    assert!(counts.errors.body >= 1, "{counts:?}");
    assert!(
        counts.successes.abs_diff(counts.errors.body * 3) <= 3,
        "{counts:?}"
    );
    assert_eq!(summary.journeys.counts.successes, 0);
    let why = &summary.failures[0];
    assert!(
        why.contains("not done after 4 attempts: `$.status` is \"running\" where \"done\""),
        "{why}"
    );

    let summary = run_one(plan(
        &server.target,
        workload(&poll("broken")),
        &[(closed(1), 50)],
    ));
    let counts = operation(&summary, "poll").counts;
    assert_eq!(
        counts.errors.status, counts.requests,
        "no second attempt: {counts:?}"
    );
}

#[test]
fn what_is_wrong_with_journeys_set_ups_and_data_is_told_at_its_place() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("users.csv"), "name,age\nanna\n").unwrap();
    fs_err::write(folder.path().join("good.csv"), "name\nanna\n").unwrap();
    let text = r#"weight_of = "people"
[data.users]
file = "users.csv"
pick = "per_user"
[data.good]
file = "good.csv"
pick = "each"
[data."a.b"]
file = "good.csv"
pick = "next"
[data.odd]
file = "users.txt"
pick = "next"
[data.fine]
file = "good.csv"
pick = "next"
[[step]]
path = "/"
[[setup]]
scope = "trial"
renew = "1m"
step = [{ path = "/login", capture = { token = "$.t" } }]
[[setup]]
step = [{ path = "/x" }]
[[journey]]
name = "a"
weight = -1
step = [{ path = "/${token}/${data.fine.nam}/${data.fin.name}", capture = { own = "$.x" } }]
[[journey]]
name = "a"
weight = 0
step = [{ path = "/${own}", repeat = { until = {}, every = "0s", at_most = 1 } }]
[[journey]]
weight = 0
"#;
    let file = folder.path().join("w.toml");
    let problems = Workload::parse(&file, text).unwrap_err();
    let root = format!("{}/", folder.path().display());
    insta::assert_snapshot!(problems.to_string().replace(&root, ""), @r#"
    w.toml:1:13: `weight_of` in the workload must be "journeys" or "users", not the text "people"
    w.toml:7:8: `pick` in [data.good] must be "per_user", "random" or "next", not the text "each"
    w.toml:8:7: a data file cannot be called `a.b` (allowed: a name without dots, dollars and braces)
    w.toml:12:8: `file` in [data.odd] must end in .csv or .json, which say what it is
    w.toml:17:3: the file has both [[step]] and [[journey]]: top-level steps are the one journey
      hint: write the steps of each journey as [[journey.step]] below its [[journey]]
    w.toml:21:1: `renew` in [[setup]] number 1 is for set-ups of users
      hint: write scope = "user": what is done once per load is not done again
    w.toml:23:1: [[setup]] number 2 has no `scope`
      hint: add a line such as: scope = "user"
    w.toml:27:10: `weight` in [[journey]] "a" must be a number that is 0 or more, not the number -1
    w.toml:28:29: `${data.fine.nam}`: the data file `fine` has no column `nam` (it has: name)
    w.toml:29:1: two journeys are named `a`: names tell figures apart
    w.toml:32:20: `${own}` is captured in another journey, and a journey knows its own captures and those of set-ups alone
    w.toml:32:60: `every` in `repeat` of [[journey.step]] number 1 must be longer than 0
    w.toml:32:76: `at_most` in `repeat` of [[journey.step]] number 1 must be a whole number from 2 to 100000, not the number 1
    w.toml:33:1: [[journey]] number 3 has no `name`
      hint: add a line such as: name = "editor"
    w.toml:33:1: [[journey]] number 3 has no `step`
      hint: add a line such as: [[journey.step]]
    users.csv:2:1: the row has 1 values, and the file has 2 columns
    "#);
    let unused = Workload::parse(
        Path::new("w.toml"),
        "weight_of = \"users\"\n[[step]]\npath = \"/\"",
    );
    assert!(
        unused
            .unwrap_err()
            .to_string()
            .contains("and there is none")
    );
}

#[test]
fn random_values_come_from_the_seed_and_counters_never_meet() {
    let text = "[[step]]\npath = \"/${user}/${random(1, 1000000)}/${uuid}/${counter}\"";
    let drawn = |seed: u64, users: u32, threads: usize| -> Vec<String> {
        let server = slow();
        let mut plan = plan(&server.target, workload(text), &[(closed(users), 150)]);
        (plan.seed, plan.threads) = (seed, threads);
        run_one(plan);
        let log = server.log();
        log.into_iter().map(|(_, got)| got.path).collect()
    };
    let (first, again, other) = (drawn(1, 1, 1), drawn(1, 1, 1), drawn(2, 1, 1));
    let n = first.len().min(again.len());
    assert!(n >= 5, "{n}");
    assert_eq!(first[..n], again[..n]);
    let random = |path: &String| path.split('/').nth(2).map(str::to_owned);
    assert_ne!(random(&first[0]), random(&other[0]));
    let of_three = drawn(1, 5, 3);
    let numbers: std::collections::HashSet<&str> = of_three
        .iter()
        .filter_map(|path| path.rsplit('/').next())
        .collect();
    assert_eq!(numbers.len(), of_three.len());
}
