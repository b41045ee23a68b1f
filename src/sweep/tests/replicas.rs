//! A subject with several containers.

use std::sync::Arc;

use super::bench::*;
use crate::engine::Limits;
use crate::engine::fake::{Behaviour, FakeExit};
use crate::stack::Stack;

/// A bench whose app has so many containers, each with a server of its own.
pub(super) async fn bench(n_trials: u32, replicas: u32) -> Bench {
    let mut bench = Bench::new(n_trials).await;
    let port = bench.port();
    for number in 1..=replicas {
        let address = format!("127.0.0.{number}:{port}").parse().unwrap();
        if number > 1 {
            server_at(address).await;
        }
        bench.engine.behave(&format!("app#{number}"), at(address));
    }
    for job in &mut bench.plan.jobs {
        job.stack = with_replicas(&job.stack, replicas);
    }
    bench
}

fn with_replicas(stack: &Stack, replicas: u32) -> Arc<Stack> {
    let mut stack = stack.clone();
    stack.services["app"].replicas = Some(replicas);
    Arc::new(stack)
}

#[tokio::test]
async fn the_columns_of_the_subject_are_those_of_all_its_replicas() {
    let mut bench = bench(2, 3).await;
    bench.plan.jobs[1].stack = with_replicas(&stack(), 2);
    let busy = |number, cpu_cores| Behaviour {
        cpu_cores,
        ..at(format!("127.0.0.{number}:1").parse().unwrap())
    };
    bench.engine.behave("app#1", busy(1, 0.4));
    bench.engine.behave("app#2", busy(2, 0.4));
    bench.engine.behave("app#3", busy(3, 1.0));
    let came = bench.run(|_, _| {}).await;
    assert_eq!(came.summary.valid, 2, "{:?}", verdicts(&came.rows));
    let (three, two) = (&came.rows[0], &came.rows[2]);
    assert_eq!((three.replicas, two.replicas), (Some(3), Some(2)));
    assert_eq!(three.subject_cpu_limit_cores, Some(3.0));
    assert_eq!(two.subject_cpu_limit_cores, Some(2.0));
    let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 0.2;
    assert!(close(three.subject_cpu_cores, 1.8), "{three:?}");
    assert!(close(three.service_cpu_cores["app"], 1.8), "{three:?}");
    assert!(close(two.subject_cpu_cores, 0.8), "{two:?}");
    // The busiest uses 1 core and the mean is 0.6.
    assert!(close(three.replica_imbalance, 1.67), "{three:?}");
    assert!(close(two.replica_imbalance, 1.0), "{two:?}");
    assert!(three.flags.contains(&"imbalanced".to_owned()), "{three:?}");
    assert!(!two.flags.contains(&"imbalanced".to_owned()), "{two:?}");
    // 2 MiB each.
    assert_eq!(three.subject_memory_peak_bytes, Some(6 << 20));
}

#[tokio::test]
async fn a_replica_that_exits_in_a_window_fails_the_trial_and_is_named() {
    let bench = bench(1, 2).await;
    let killed = FakeExit {
        code: 137,
        oom_killed: true,
    };
    let came = bench
        .run(|engine, event| {
            if has_begun(event, "second", 1) {
                engine.end("app#2", killed);
            }
        })
        .await;
    assert_eq!(
        verdicts(&came.rows),
        [
            (1, "first", "valid", None),
            (1, "second", "failed", Some("exited"))
        ]
    );
    let lost = &came.rows[1];
    assert_eq!(
        lost.detail.as_deref(),
        Some(
            "service `app#2` exited with code 137, killed by the kernel for memory, while it was measured"
        )
    );
    assert_eq!((lost.oom_killed, lost.replicas), (Some(true), Some(2)));
    for number in 1..=2 {
        let name = format!("results/r/logs/0001-1-app#{number}.log");
        let log = fs_err::read_to_string(bench.folder.path().join(name)).unwrap();
        assert_eq!(log, "line of the app\n");
    }
}

#[tokio::test]
async fn limits_are_proved_for_every_replica() {
    let bench = bench(1, 2).await;
    let came = bench
        .run(|engine, event| {
            if has_begun(event, "first", 1) {
                engine.update_limits("app#2", &Limits::default());
            }
        })
        .await;
    let lost = &came.rows[0];
    assert_eq!(lost.reason.as_deref(), Some("limits_not_applied"));
    assert!(
        lost.detail.as_ref().unwrap().contains("`app#2`"),
        "{lost:?}"
    );
}
