//! Windows of several loads: a row, a log and figures for each.

use super::bench::{Bench, phase};
use super::*;
use crate::load::{AbortRule, LoadModel};
use crate::threshold::Threshold;

/// A ramp and a hold for each number of users.
fn ladder(users: &[u32]) -> Vec<JobPhase> {
    let mut from = 0.0;
    let mut phases = Vec::new();
    for (step, users) in (1..).zip(users) {
        let mut hold = phase("ladder", true);
        hold.answers = Some("ladder");
        hold.step = Some(step);
        hold.plan.model = LoadModel::Closed { users: *users };
        let mut ramp = hold.clone();
        (ramp.answers, ramp.plan.window) = (None, false);
        ramp.plan.ramp_from = Some(from);
        phases.extend([ramp, hold]);
        from = f64::from(*users);
    }
    phases
}

#[tokio::test]
async fn every_step_has_a_row_a_log_and_operations_of_its_own() {
    let mut bench = Bench::new(1).await;
    bench.plan.jobs[0].phases = ladder(&[1, 4, 2]);
    let came = bench.run(|_, _| {}).await;
    let steps: Vec<_> = came
        .rows
        .iter()
        .map(|row| (row.window.as_str(), row.step, row.users, row.verdict))
        .collect();
    assert_eq!(
        steps,
        [(1, 1), (2, 4), (3, 2)].map(|(step, users)| (
            "ladder",
            Some(step),
            Some(users),
            Verdict::Valid
        ))
    );
    let sent: Vec<u64> = came.rows.iter().filter_map(|row| row.requests).collect();
    assert!(sent.iter().all(|sent| *sent > 0), "{sent:?}");
    let folder = bench.folder.path().join("results/r");
    for step in 1..=3 {
        let log = folder.join(format!("histograms/0001-1-ladder+{step}.hlog"));
        assert!(log.exists(), "{}", log.display());
    }
    let operations = fs_err::read_to_string(folder.join("operations.csv")).unwrap();
    let of_steps = [1, 2, 3].map(|step| operations.matches(&format!(",ladder,{step},")).count());
    assert_eq!(
        of_steps,
        [2, 2, 2],
        "an operation and the journey:\n{operations}"
    );
    let proofs = fs_err::read_to_string(folder.join("proofs.jsonl")).unwrap();
    assert!(proofs.contains("\"step\":3"), "{proofs}");
}

#[tokio::test]
async fn a_container_that_ends_in_a_step_leaves_the_steps_before_it() {
    let mut bench = Bench::new(1).await;
    bench.plan.jobs[0].phases = ladder(&[1, 2, 3]);
    let came = bench
        .run(|engine, event| {
            let is_second = matches!(
                &event.kind,
                EventKind::PhaseStarted {
                    window: true,
                    step: Some(2),
                    ..
                }
            );
            if is_second {
                let exit = FakeExit {
                    code: 1,
                    oom_killed: false,
                };
                engine.end("app", exit);
            }
        })
        .await;
    let told: Vec<_> = came
        .rows
        .iter()
        .map(|row| (row.step, row.verdict.as_str(), row.reason.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            (Some(1), "valid", None),
            (Some(2), "failed", Some("exited")),
            (Some(3), "failed", Some("exited")),
        ]
    );
}

fn told(rows: &[TrialRow]) -> Vec<(Option<u32>, &str, Option<&str>)> {
    rows.iter()
        .map(|row| (row.step, row.verdict.as_str(), row.reason.as_deref()))
        .collect()
}

#[tokio::test]
async fn a_crossed_threshold_is_a_flag_and_changes_no_verdict() {
    let mut bench = Bench::new(1).await;
    let mut phases = ladder(&[1, 2]);
    for phase in phases.iter_mut().filter(|phase| phase.plan.window) {
        phase.thresholds = ["throughput > 1000000/s", "error_rate < 1 %"]
            .map(|rule| Threshold::parse(rule).unwrap())
            .into();
    }
    bench.plan.jobs[0].phases = phases;
    let came = bench.run(|_, _| {}).await;
    assert_eq!(
        told(&came.rows),
        [(Some(1), "valid", None), (Some(2), "valid", None)]
    );
    for row in &came.rows {
        assert!(row.flags.contains(&"threshold_crossed".to_owned()));
        let crossed = row.thresholds_crossed.as_deref().unwrap();
        assert!(crossed.starts_with("throughput > 1000000/s ("), "{crossed}");
        assert!(!crossed.contains("error_rate"), "{crossed}");
    }
    assert_eq!(came.summary.valid, 1);
}

#[tokio::test]
async fn a_load_that_a_threshold_ends_leaves_what_was_held_and_is_no_failure_in_a_row() {
    let mut bench = Bench::new(3).await;
    bench.plan.settings.max_consecutive_failures = 1;
    bench.plan.settings.fail_fast = true;
    for job in &mut bench.plan.jobs {
        let mut phases = ladder(&[1, 2, 3]);
        for phase in phases.iter_mut().filter(|phase| phase.step == Some(2)) {
            phase.plan.abort_on = vec![AbortRule {
                threshold: Threshold::parse("throughput > 1000000/s").unwrap(),
                after: Duration::ZERO,
            }];
        }
        job.phases = phases;
    }
    // Looked at once a second, so this one is ended on its way.
    for phase in &mut bench.plan.jobs[1].phases {
        if phase.step == Some(2) && phase.plan.window {
            phase.plan.duration = Duration::from_secs(20);
        }
    }
    let came = bench.run(|_, _| {}).await;
    let skipped = Some("threshold_crossed");
    assert_eq!(
        told(&came.rows),
        [
            (Some(1), "valid", None),
            (Some(2), "valid", None),
            (Some(3), "skipped", skipped),
            (Some(1), "valid", None),
            (Some(2), "failed", skipped),
            (Some(3), "skipped", skipped),
            (Some(1), "valid", None),
            (Some(2), "valid", None),
            (Some(3), "skipped", skipped),
        ],
        "every trial was run"
    );
    let cut = &came.rows[4];
    assert_eq!((cut.requests, cut.throughput_rps), (None, None));
    let detail = cut.detail.as_deref().unwrap();
    assert!(
        detail.contains(
            "`ladder`, step 2, a threshold that ends the load was crossed: throughput > 1000000/s ("
        ),
        "{detail}"
    );
    assert_eq!((came.summary.valid, came.summary.failed), (2, 1));
}
