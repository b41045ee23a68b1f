//! Set-ups of users and of whole loads, against real sockets.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::test_load::{assert_adds_up, closed, ms, open, plan, run, run_one, workload};
use super::test_server::{Got, Reply, TestServer, ok};
use super::{LoadError, LoadPlan, RunningLoad, once};

const LOGIN: &str = r#"
[[setup]]
scope = "user"
step = [{ name = "log in", method = "POST", path = "/login/${user}", capture = { token = "$.token" } }]
[[step]]
name = "get"
path = "/get/${user}"
headers = { authorization = "Bearer ${token}" }
"#;

/// Gives each login a new token and wants the user's last one.
fn with_logins() -> TestServer {
    let tokens: Mutex<HashMap<String, String>> = Mutex::default();
    let n_logins = AtomicU64::new(0);
    TestServer::start(move |got: &Got| {
        let (what, user) = got.path[1..].split_once('/').unwrap();
        let mut tokens = tokens.lock().unwrap();
        if what == "login" {
            let token = format!("t{}", n_logins.fetch_add(1, Ordering::SeqCst));
            let body = format!("{{\"token\": \"{token}\"}}");
            tokens.insert(user.to_owned(), token);
            return Reply::After(ms(3), Box::new(Reply::Answer(200, body)));
        }
        let wanted = tokens.get(user).cloned().unwrap_or_default();
        if got
            .head
            .contains(&format!("authorization: Bearer {wanted}\r\n"))
            || got.head.ends_with(&format!("Bearer {wanted}"))
        {
            Reply::After(ms(2), Box::new(ok()))
        } else {
            Reply::Answer(401, got.head.clone())
        }
    })
}

fn logins(server: &TestServer) -> HashMap<String, usize> {
    let mut logins = HashMap::new();
    for (_, got) in server.log() {
        if let Some(user) = got.path.strip_prefix("/login/") {
            *logins.entry(user.to_owned()).or_default() += 1;
        }
    }
    logins
}

/// What ended a load that must not end well.
fn error_of(plan: LoadPlan) -> LoadError {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut load = RunningLoad::start(plan).unwrap();
        while load.next().await.is_some() {}
        load.stop().await.unwrap_err()
    })
}

#[test]
fn every_user_logs_in_once_and_nothing_of_it_is_counted() {
    let server = with_logins();
    let phases = [(closed(3), 200), (closed(5), 300)];
    let summaries = run(plan(&server.target, workload(LOGIN), &phases));
    for summary in &summaries {
        let counts = summary.total.counts;
        assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
        assert!(counts.successes > 10);
        assert_eq!(summary.operations.len(), 1, "{:?}", summary.operations);
    }
    let logins = logins(&server);
    assert_eq!(logins.len(), 5);
    assert!(logins.values().all(|n| *n == 1), "{logins:?}");
}

#[test]
fn a_login_is_renewed_between_journeys() {
    let server = with_logins();
    let text = LOGIN.replace("scope = \"user\"", "scope = \"user\"\nrenew = \"60ms\"");
    for model in [closed(3), open(150.0, 20)] {
        let before = logins(&server).values().sum::<usize>();
        let summary = run_one(plan(&server.target, workload(&text), &[(model, 500)]));
        let counts = summary.total.counts;
        assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
        let n_logins = logins(&server).values().sum::<usize>() - before;
        assert!(n_logins >= 6, "{n_logins}");
        // No request carries a token much older than that: a journey is one request of 2 ms.
        let mut logged_in = HashMap::new();
        for (at, got) in server.log() {
            let (what, user) = got.path[1..].split_once('/').unwrap();
            if what == "login" {
                logged_in.insert(user.to_owned(), at);
            } else {
                let age = at.saturating_duration_since(logged_in[user]);
                assert!(age < ms(60 + 200), "{age:?}");
            }
        }
    }
}

/// All waits of a set-up are timed on a load thread, whose runtime has no timer of its own.
#[test]
fn a_users_set_up_thinks_repeats_and_is_limited() {
    let server = TestServer::start(|got: &Got| match got.path.as_str() {
        "/ready" if got.index % 2 == 1 => Reply::Answer(200, "{\"ready\": false}".into()),
        "/ready" => Reply::Answer(200, "{\"ready\": true}".into()),
        "/slow" if got.index < 10 => Reply::After(ms(400), Box::new(ok())),
        _ => Reply::After(ms(2), Box::new(ok())),
    });
    let text = r#"
[[setup]]
scope = "user"
step = [
  { path = "/first", think = "20ms" },
  { path = "/ready", repeat = { until = { json = { "$.ready" = true } }, every = "20ms", at_most = 20 } },
  { path = "/slow", timeout = "200ms" },
]
[[step]]
path = "/"
"#;
    let summary = run_one(plan(&server.target, workload(text), &[(closed(1), 2_000)]));
    let counts = summary.total.counts;
    assert!(counts.successes > 10, "{:?}", summary.failures);
    assert_eq!(counts.successes, counts.due, "{:?}", summary.failures);
    let log = server.log();
    let at = |path: &str| log.iter().find(|(_, got)| got.path == path).unwrap().0;
    assert!(at("/ready") >= at("/first") + ms(20));
    assert!(at("/slow") >= at("/ready") + ms(20), "asked twice");
    let n_slow = log.iter().filter(|(_, got)| got.path == "/slow").count();
    assert!(n_slow > 1, "the first one was given up");
}

#[test]
fn in_an_open_loop_every_place_logs_in_before_its_first_journey() {
    let server = with_logins();
    let phases = [(open(300.0, 40), 300), (open(300.0, 40), 500)];
    let mut summaries = run(plan(&server.target, workload(LOGIN), &phases));
    let window = summaries.pop().unwrap();
    let counts = window.total.counts;
    assert_eq!(
        (counts.due, counts.successes),
        (150, 150),
        "{:?}",
        window.failures
    );
    assert_adds_up(&window);
    let logins = logins(&server);
    assert!(logins.values().all(|n| *n == 1), "{logins:?}");
    let n_users = logins.len() as u64;
    assert!((1..=40).contains(&n_users), "{n_users}");
    let lag_ms = window.generator_lag_ms.p50.unwrap();
    assert!(
        lag_ms < 50.0,
        "waiting for a place is not the generator's: {lag_ms}"
    );
}

#[test]
fn a_set_up_that_fails_at_first_is_tried_again_and_said() {
    let n_tries = AtomicU64::new(0);
    let server = TestServer::start(move |got: &Got| {
        if got.path.starts_with("/login") && n_tries.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply::Answer(503, "starting".into());
        }
        Reply::After(ms(1), Box::new(Reply::Answer(200, "{\"token\": 1}".into())))
    });
    for model in [closed(1), open(50.0, 1)] {
        let summary = run_one(plan(&server.target, workload(LOGIN), &[(model, 600)]));
        assert!(summary.total.counts.successes > 5);
        assert_eq!(summary.total.counts.errors.total(), 0);
        if model == closed(1) {
            let why = &summary.failures[0];
            assert!(
                why.starts_with("set-up of user 0: log in: status 503"),
                "{why}"
            );
            // A sixth of the window was no load, and Little's law shows it.
            assert!(
                summary.in_flight_recorded < 0.9,
                "{}",
                summary.in_flight_recorded
            );
        }
    }
}

#[test]
fn a_load_whose_users_are_never_ready_fails_and_says_why() {
    let server = TestServer::start(|_| Reply::Answer(401, "who?".into()));
    for model in [closed(4), open(100.0, 10)] {
        let plan = plan(
            &server.target,
            workload(LOGIN),
            &[(model, 300), (model, 60_000)],
        );
        let words = error_of(plan).to_string();
        assert!(
            words.starts_with("the set-up failed: no virtual user was ever ready, "),
            "{words}"
        );
        assert!(words.contains("log in: status 401"), "{words}");
    }
    // They try ever more seldom: 100, 200, 400 ms.
    assert!(server.requests() < 200, "{}", server.requests());
}

const OF_TRIAL: &str = r#"
[[setup]]
scope = "user"
step = [{ path = "/user/${user}/${project}", capture = { key = "$.id" } }]
[[setup]]
scope = "trial"
step = [{ method = "POST", path = "/project/${counter}", capture = { project = "$.id" } }]
[[step]]
path = "/get/${project}/${key}/${counter}"
"#;

#[test]
fn what_is_set_up_once_is_known_to_every_user_and_journey() {
    let server = TestServer::start(|got: &Got| {
        let id = if got.path.starts_with("/project") {
            7
        } else {
            8
        };
        Reply::After(
            ms(1),
            Box::new(Reply::Answer(200, format!("{{\"id\": {id}}}"))),
        )
    });
    let mut plan = plan(
        &server.target,
        workload(OF_TRIAL),
        &[(closed(3), 100), (closed(3), 100)],
    );
    plan.threads = 2;
    run(plan);
    let log = server.log();
    let n_of = |start: &str| {
        log.iter()
            .filter(|(_, got)| got.path.starts_with(start))
            .count()
    };
    assert_eq!((n_of("/project/"), n_of("/user/")), (1, 3));
    assert_eq!(n_of("/user/") + n_of("/get/7/8/") + 1, log.len());
    assert!(log[0].1.path.starts_with("/project/"), "before everything");
    let numbers: Vec<&str> = log
        .iter()
        .filter(|(_, got)| !got.path.starts_with("/user"))
        .filter_map(|(_, got)| got.path.rsplit('/').next())
        .collect();
    let different: std::collections::HashSet<&&str> = numbers.iter().collect();
    assert_eq!(different.len(), numbers.len(), "no number twice");
}

#[test]
fn a_set_up_of_the_load_that_fails_ends_it_before_its_first_phase() {
    let server = TestServer::start(|_| Reply::Answer(500, "no".into()));
    let plan = plan(&server.target, workload(OF_TRIAL), &[(closed(1), 60_000)]);
    let words = error_of(plan).to_string();
    assert_eq!(
        words,
        "the set-up failed: POST /project/${counter}: status 500 where 200 to 299 was expected: no (3 tries)"
    );
    assert_eq!(server.requests(), 3);
}

#[test]
fn a_set_up_that_hangs_can_be_stopped() {
    let server = TestServer::start(|_| Reply::Never);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut plan = plan(&server.target, workload(OF_TRIAL), &[(closed(1), 60_000)]);
    plan.timeout = ms(600_000);
    runtime.block_on(async {
        let load = RunningLoad::start(plan).unwrap();
        let stopping = tokio::time::timeout(ms(20_000), load.stop());
        stopping.await.expect("it ends at once").unwrap();
    });
}

#[test]
fn once_shows_set_ups_and_every_journey() {
    let server = with_logins();
    let text = LOGIN.replace("[[step]]", "[[journey]]\nname = \"a\"\n[[journey.step]]");
    let text = format!(
        "{text}[[journey]]\nname = \"b\"\nstep = [{{ name = \"bad\", path = \"/bad/x\", expect = {{ status = 201 }} }}]"
    );
    let workload = workload(&text);
    assert_eq!(workload.requests_once(), 3);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let variables = indexmap::IndexMap::new();
    let once = once(&server.target, &workload, &variables, ms(2_000));
    let exchanges = runtime.block_on(once).unwrap();
    let shown: Vec<(&str, bool)> = exchanges
        .iter()
        .map(|exchange| (exchange.operation.as_str(), exchange.why.is_none()))
        .collect();
    assert_eq!(shown, [("log in", true), ("get", true), ("bad", false)]);
}
