//! What is proved of a trial, what fails it, and what is kept of it.

use std::collections::HashMap;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::Value;

use super::bench::{Bench, Came, at, has_begun, stack, verdicts};
use crate::engine::fake::Behaviour;
use crate::engine::{CpuQuota, KernelLimit, KernelLimits, LaunchTarget};
use crate::reported::{JsonPath, Reported, Series};
use crate::scalar::Scalar;
use crate::secret::Secrets;
use crate::sweep::Knob;

/// What the kernel enforces for the bench's stack of one CPU.
fn kernel(quota_us: i64) -> KernelLimits {
    KernelLimits {
        cpu: KernelLimit::At(CpuQuota {
            quota_us,
            period_us: 100_000,
        }),
        memory_bytes: KernelLimit::Unlimited,
        pids: KernelLimit::Unlimited,
        ..KernelLimits::default()
    }
}

pub(super) fn lines(bench: &Bench) -> Vec<Value> {
    let path = bench.folder.path().join("results/r/proofs.jsonl");
    let text = fs_err::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn details(came: &Came) -> Vec<String> {
    came.rows
        .iter()
        .filter_map(|row| row.detail.clone())
        .collect()
}

/// A bench whose service has these variables; the cell's value is 4.
async fn with_variables(variables: &[(&str, &str)]) -> Bench {
    let mut bench = Bench::new(1).await;
    let mut stack = (*stack()).clone();
    for (name, value) in variables {
        stack.services["app"]
            .environment
            .insert((*name).to_owned(), (*value).to_owned());
    }
    bench.plan.jobs[0].stack = stack.into();
    bench.plan.jobs[0].axes = IndexMap::from([("web".to_owned(), Scalar::Integer(4))]);
    bench
}

#[tokio::test]
async fn every_edge_of_every_window_is_kept_without_a_value_in_the_clear() {
    let mut bench =
        with_variables(&[("WEB_THREADS", "4"), ("PGPASSWORD", "hunter2-hunter2")]).await;
    bench.secrets = Secrets::new([7; 16]);
    let came = bench.run(|_, _| {}).await;
    assert!(
        came.rows.iter().all(|row| row.verdict.as_str() != "failed"),
        "{:?}",
        came.rows
    );
    let lines = lines(&bench);
    let edges: Vec<String> = lines
        .iter()
        .map(|line| {
            format!(
                "{} {}",
                line["window"].as_str().unwrap(),
                line["edge"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        edges,
        ["first start", "first end", "second start", "second end"]
    );
    let app = &lines[0]["services"]["app"];
    assert_eq!(lines[0]["proof"], "inspect");
    assert_eq!(app["planned"]["cpus"], 1.0);
    assert_eq!(app["inspect"]["limits"]["nano_cpus"], 1_000_000_000);
    assert_eq!(app["image"]["inspect"], "sha256:app:1");
    assert_eq!(app["environment"]["WEB_THREADS"]["inspect"], "4");
    let digest = bench.secrets.digest("hunter2-hunter2");
    assert_eq!(app["environment"]["PGPASSWORD"]["planned"], digest.as_str());
    assert!(
        !lines
            .iter()
            .any(|line| line.to_string().contains("hunter2"))
    );
}

#[tokio::test]
async fn a_variable_the_container_was_not_made_with_fails_the_trial_with_both_values() {
    let bench = with_variables(&[("WEB_THREADS", "4")]).await;
    let address = bench.address;
    let came = bench
        .run(|engine, event| {
            if has_begun(event, "second", 1) {
                let environment = Some(vec![("WEB_THREADS".to_owned(), "8".to_owned())]);
                engine.behave(
                    "app",
                    Behaviour {
                        environment,
                        ..at(address)
                    },
                );
            }
        })
        .await;
    let verdicts = verdicts(&came.rows);
    assert_eq!(verdicts[1].3, Some("limits_not_applied"), "{verdicts:?}");
    let detail = came.rows[1].detail.clone().unwrap();
    // 4 is the cell's own value; 8 could be anything of the user's.
    let found = format!("WEB_THREADS={}", bench.secrets.digest("8"));
    assert!(
        detail.contains("WEB_THREADS=4") && detail.contains(&found),
        "{detail}"
    );
    let wrong = lines(&bench).pop().unwrap();
    for wrong in [&wrong["services"]["app"]["wrong"], &wrong["wrong"]] {
        let words = wrong.as_str().unwrap();
        assert!(
            words.contains("WEB_THREADS=4") && words.contains(&found),
            "{words}"
        );
    }
}

#[tokio::test]
async fn a_wrong_variable_is_told_without_its_values_at_launch_and_at_edges() {
    for breaks_at_launch in [true, false] {
        let bench = with_variables(&[("PGPASSWORD", "plan=ned-word")]).await;
        let environment = Some(vec![("PGPASSWORD".to_owned(), "found=word".to_owned())]);
        let behaviour = Behaviour {
            environment,
            ..at(bench.address)
        };
        if breaks_at_launch {
            bench.engine.behave("app", behaviour.clone());
        }
        let came = bench
            .run(|engine, event| {
                if has_begun(event, "second", 1) {
                    engine.behave("app", behaviour.clone());
                }
            })
            .await;
        let text = format!("{:?} {:?} {:?}", lines(&bench), came.rows, came.events);
        assert!(text.contains("limits_not_applied"), "{text}");
        for (value, planned) in [
            ("plan=ned-word", "PGPASSWORD"),
            ("found=word", "PGPASSWORD"),
        ] {
            assert!(!text.contains(value), "{text}");
            let digest = format!("{planned}={}", bench.secrets.digest(value));
            assert!(text.contains(&digest), "{digest} in {text}");
        }
    }
}

#[tokio::test]
async fn a_variable_that_only_the_process_has_otherwise_is_a_flag() {
    let bench = with_variables(&[("WEB_THREADS", "4"), ("A", "b")]).await;
    let process = [("WEB_THREADS", "2"), ("A", "b")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    let process_environment = Some(process.to_vec());
    bench.engine.behave(
        "app",
        Behaviour {
            process_environment,
            ..at(bench.address)
        },
    );
    let came = bench.run(|_, _| {}).await;
    for row in &came.rows {
        assert!(
            row.flags.iter().any(|flag| flag == "environment_changed"),
            "{row:?}"
        );
    }
    assert_eq!(
        lines(&bench)[0]["services"]["app"]["environment_changed"][0],
        "WEB_THREADS"
    );
}

#[tokio::test]
async fn a_container_made_of_another_image_fails_the_trial() {
    let bench = Bench::new(1).await;
    let made_of = Behaviour {
        made_of: Some("sha256:another".to_owned()),
        ..at(bench.address)
    };
    bench.engine.behave("app", made_of);
    let came = bench.run(|_, _| {}).await;
    assert_eq!(verdicts(&came.rows)[0].3, Some("limits_not_applied"));
    let detail = &details(&came)[0];
    assert!(
        detail.contains("image sha256:app:1") && detail.contains("sha256:another"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_quota_changed_and_changed_back_inside_a_window_is_seen() {
    let mut bench = Bench::new(1).await;
    let address = bench.address;
    let held = |quota_us| Behaviour {
        kernel_limits: Some(kernel(quota_us)),
        ..at(address)
    };
    bench.engine.behave("app", held(100_000));
    // Two seconds hold one look at least; both edges would see the planned quota.
    bench.plan.jobs[0].phases[1].plan.duration = Duration::from_secs(4);
    let came = bench
        .run(|engine, event| {
            use crate::event::EventKind;
            if let EventKind::Ticked { second, .. } = event.kind {
                engine.behave(
                    "app",
                    held(if (1..=2).contains(&second) {
                        200_000
                    } else {
                        100_000
                    }),
                );
            }
        })
        .await;
    assert_eq!(verdicts(&came.rows)[0].3, Some("limits_not_applied"));
    insta::assert_snapshot!(details(&came)[0], @"while the window was open, service `app` should have cpus 1 and has 2 (200000 us in each 100000 us) (read from kernel)");
    let last = lines(&bench).pop().unwrap();
    assert_eq!(last["edge"], "inside");
}

pub(super) fn knob(port: u16, reported: Reported, expected: &str) -> Knob {
    Knob {
        url: format!("http://app:{port}/metrics"),
        place: LaunchTarget {
            service: "app".to_owned(),
            port,
        },
        path: "/metrics".to_owned(),
        wire: crate::tls::Wire::default(),
        reported,
        expected: expected.to_owned(),
    }
}

pub(super) fn series(name: &str) -> Reported {
    Reported::Series(Series::parse(name).unwrap())
}

pub(super) fn page(address: std::net::SocketAddr, body: &str) -> Behaviour {
    Behaviour {
        pages: HashMap::from([("/metrics".to_owned(), body.to_owned())]),
        ..at(address)
    }
}

#[tokio::test]
async fn a_knob_as_the_service_reports_it_is_asked_when_ready_and_at_the_end() {
    let mut bench = Bench::new(1).await;
    bench.plan.jobs[0].knobs = vec![knob(8080, series("db_pool_size"), "8")];
    let json = Reported::Json(JsonPath::parse("$.threads").unwrap());
    let mut other = knob(8080, json, "4");
    other.path = "/info".to_owned();
    bench.plan.jobs[0].knobs.push(other);
    let mut behaviour = page(bench.address, "db_pool_size 8.0\n");
    let info = ("/info".to_owned(), r#"{"threads": 4}"#.to_owned());
    behaviour.pages.extend([info]);
    bench.engine.behave("app", behaviour);
    let came = bench.run(|_, _| {}).await;
    assert!(
        came.rows.iter().all(|row| row.reason.is_none()),
        "{:?}",
        came.rows
    );
    let asked: Vec<Value> = lines(&bench)
        .into_iter()
        .filter(|line| line.get("knobs").is_some())
        .collect();
    assert_eq!(asked.len(), 2);
    assert_eq!(
        (&asked[0]["edge"], &asked[1]["edge"]),
        (&"ready".into(), &"end".into())
    );
    assert_eq!(asked[0]["knobs"][0]["found"], "8.0");
    assert_eq!(asked[1]["knobs"][1]["found"], "4");
}

#[tokio::test]
async fn a_knob_that_is_not_applied_fails_before_any_load_with_both_values_and_the_url() {
    let mut bench = Bench::new(1).await;
    bench.plan.jobs[0].knobs = vec![knob(8080, series("db_pool_size"), "12")];
    bench
        .engine
        .behave("app", page(bench.address, "db_pool_size 8\n"));
    let came = bench.run(|_, _| {}).await;
    assert!(
        came.rows
            .iter()
            .all(|row| row.reason.as_deref() == Some("knob_not_applied"))
    );
    insta::assert_snapshot!(details(&came)[0], @"`db_pool_size` at http://app:8080/metrics should be 12 and it is 8 (asked for 3 s)");
    let loaded = came
        .events
        .iter()
        .any(|event| has_begun(event, "warm-up", 1));
    assert!(!loaded, "no load was sent");
}

#[tokio::test]
async fn a_knob_that_is_gone_or_another_at_the_end_takes_the_windows_with_it() {
    for (body, words) in [
        ("db_pool_size 9\n", "and it is 9"),
        ("", "the answer has no series `db_pool_size`"),
    ] {
        let mut bench = Bench::new(1).await;
        bench.plan.jobs[0].knobs = vec![knob(8080, series("db_pool_size"), "8")];
        let address = bench.address;
        bench
            .engine
            .behave("app", page(address, "db_pool_size 8\n"));
        let came = bench
            .run(|engine, event| {
                if has_begun(event, "second", 1) {
                    engine.behave("app", page(address, body));
                }
            })
            .await;
        assert!(
            came.rows
                .iter()
                .all(|row| row.reason.as_deref() == Some("knob_not_applied")),
            "{:?}",
            came.rows
        );
        assert!(details(&came)[0].contains(words), "{:?}", details(&came));
    }
}
