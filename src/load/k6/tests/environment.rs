//! What of the process' environment reaches a script, and what of it changes k6.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::run::{cut, plan, read, server, turn};
use crate::load::{LoadSignal, RunningLoad};

/// Set in the process that has the user's settings.
const INSIDE: &str = "NIGHTSWEEP_TEST_SEEN";

/// A configuration as a user may have one, where k6 looks for it.
fn configuration(folder: &Path) {
    for place in ["k6", "loadimpact/k6", ".config/k6", ".config/loadimpact/k6"] {
        let place = folder.join(place);
        fs_err::create_dir_all(&place).unwrap();
        let text = r#"{ "vus": 30, "iterations": 30, "userAgent": "theirs" }"#;
        fs_err::write(place.join("config.json"), text).unwrap();
    }
}

#[test]
fn the_users_own_settings_of_k6_change_nothing_and_the_rest_reaches_the_script() {
    if std::env::var_os(INSIDE).is_some() {
        return run_inside();
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    configuration(folder.path());
    // A process of its own: an environment cannot be changed safely beside other tests.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("load::k6::tests::environment::the_users_own_settings_of_k6_change_nothing_and_the_rest_reaches_the_script")
        .env(INSIDE, "process")
        .env("shadowed", "process")
        .env("BASE_URL", "http://127.0.0.1:9")
        .env("HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path())
        .env("K6_CONFIG", folder.path().join("k6/config.json"))
        .env("K6_TEST_SEEN", "process")
        .env("K6_VUS", "40")
        .env("K6_ITERATIONS", "40")
        .env("K6_DURATION", "9s")
        .env("K6_STAGES", "5s:30")
        .env("K6_USER_AGENT", "theirs")
        .env("K6_OUT", format!("json={}", folder.path().join("out").display()))
        .env("K6_SYSTEM_TAGS", "proto")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!folder.path().join("out").exists(), "K6_OUT was heard");
}

fn run_inside() {
    // Some of these settings take the place of options alone, others of scenarios, too.
    for script in ["environment.js", "environment-scenarios.js"] {
        run_one(script);
    }
}

fn run_one(script: &str) {
    let server = server();
    let script = read(script, &[("shadowed", "cell")]).unwrap();
    assert_eq!(script.options.end(), Duration::from_secs(1));
    let plan = plan(script, &server.target, &[cut(0, None)]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut counted = None;
    runtime.block_on(async {
        let mut load = RunningLoad::start_script(plan).unwrap();
        while let Some(signal) = load.next().await {
            match signal {
                LoadSignal::PhaseSummed { summary, .. } => {
                    counted = Some(summary.total.counts.successes);
                }
                LoadSignal::ScriptEnded(report) => assert_eq!(report.exit_code, 0, "{report:?}"),
                _ => {}
            }
        }
        load.stop().await.unwrap();
    });
    // One user for a second with pauses of 50 ms.
    let n = counted.unwrap();
    assert!((2..=20).contains(&n), "{n} requests");
    for (_, got) in server.log() {
        assert_eq!(got.path, "/seen?process--cell");
        assert!(!got.head.contains("theirs"), "{}", got.head);
    }
}
