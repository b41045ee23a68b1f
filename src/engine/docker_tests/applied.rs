//! What a service asks for reaches its container; and what looking at it costs.

use std::time::{Duration, Instant};

use bollard::query_parameters::InspectContainerOptions;

use super::support::{Trial, engine, shell, stack, try_launch, words};
use crate::engine::{Engine, changed_variables, read_proof, sample_cpu};

/// What a command in the container of `app` prints.
async fn inside(engine: &impl Engine, id: &crate::engine::ContainerId, script: &str) -> String {
    let command = ["/bin/sh", "-c", script].map(str::to_owned);
    let (code, output) = engine
        .exec(id, &command, Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(code, 0, "{script}: {output}");
    output.trim().to_owned()
}

#[tokio::test]
async fn memory_processes_ulimits_shared_memory_sysctls_and_shares_are_as_asked() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    let app = &mut stack.services["app"];
    app.mem_limit = Some(96 << 20);
    app.memswap_limit = Some(128 << 20);
    app.pids_limit = Some(60);
    app.ulimits.insert("nofile".to_owned(), (1_111, 2_222));
    app.shm_size = Some(20 << 20);
    app.sysctls
        .insert("net.core.somaxconn".to_owned(), "777".to_owned());
    app.cpu_shares = Some(512);
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let id = &launched.containers["app"][0];

    let limits = inside(&*engine, id, "busybox grep 'open files' /proc/1/limits").await;
    let numbers: Vec<&str> = limits
        .split_whitespace()
        .filter(|word| word.parse::<u32>().is_ok())
        .collect();
    assert_eq!(numbers, ["1111", "2222"], "{limits}");
    let backlog = inside(&*engine, id, "busybox cat /proc/sys/net/core/somaxconn").await;
    assert_eq!(backlog, "777");
    let shm = inside(&*engine, id, "busybox df -k /dev/shm | busybox tail -n 1").await;
    assert_eq!(shm.split_whitespace().nth(1), Some("20480"), "{shm}");

    // The kernel's own files, as the container sees them: version 1 or 2.
    let read = |v1: &str, v2: &str| {
        format!("busybox cat /sys/fs/cgroup/{v1} 2>/dev/null || busybox cat /sys/fs/cgroup/{v2}")
    };
    let memory = inside(
        &*engine,
        id,
        &read("memory/memory.limit_in_bytes", "memory.max"),
    )
    .await;
    assert_eq!(memory, (96 << 20).to_string());
    let pids = inside(&*engine, id, &read("pids/pids.max", "pids.max")).await;
    assert_eq!(pids, "60");
    let shares = inside(&*engine, id, &read("cpu/cpu.shares", "cpu.weight")).await;
    // 512 of 1024 shares are a weight of 20 in version 2: 1 + (512 - 2) * 9999 / 262142.
    assert!(shares == "512" || shares == "20", "{shares}");

    let inspect = engine
        .docker
        .inspect_container(&id.0, None::<InspectContainerOptions>);
    let host = inspect.await.unwrap().host_config.unwrap();
    let swap = host.memory_swap;
    // Kernels that do not count swap have the engine say that it dropped the limit.
    assert!(swap == Some(128 << 20) || swap == Some(-1), "{swap:?}");
    if facts.cgroup_version == "1" && swap == Some(128 << 20) {
        let both = inside(
            &*engine,
            id,
            "busybox cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes || echo off",
        )
        .await;
        assert!(
            both == (128 << 20).to_string() || both.ends_with("off"),
            "{both}"
        );
    }
    trial.finish(&engine).await;
}

#[tokio::test]
async fn variables_are_read_as_the_process_was_given_them_and_an_entrypoint_may_change_them() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    stack.services["app"]
        .environment
        .insert("THREADS".to_owned(), "4".to_owned());
    stack.services["app"]
        .environment
        .insert("EMPTY".to_owned(), String::new());
    // Like an image's entrypoint: it changes one and drops another before it becomes the service.
    let mut changes = shell("export THREADS=2; unset SECRET; exec busybox sleep 1000");
    changes
        .environment
        .insert("THREADS".to_owned(), "4".to_owned());
    changes
        .environment
        .insert("SECRET".to_owned(), "x".to_owned());
    stack.services.insert("changes".to_owned(), changes);
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let reading = read_proof(&*engine, &launched, &stack).await;
    assert!(reading.outcome.is_ok(), "{:?}", reading.outcome);
    let of = |name: &str| {
        reading
            .services
            .iter()
            .find(|read| read.service == name)
            .unwrap()
    };
    assert_eq!(of("app").image_planned, of("app").image);
    if of("app").is_process_read {
        assert_eq!(of("app").changed_variables().count(), 0, "{:?}", of("app"));
        let names: Vec<&str> = of("changes").changed_variables().collect();
        assert_eq!(names, ["THREADS", "SECRET"]);
        let seen = engine
            .inspect(&launched.containers["app"][0])
            .await
            .unwrap();
        let process = engine
            .process_environment(&launched.containers["app"][0], &seen)
            .unwrap();
        assert_eq!(
            changed_variables(&stack.services["app"], &process),
            Some(vec![])
        );
    } else {
        assert!(
            !facts.direct,
            "a native engine's processes are on this host"
        );
    }
    trial.finish(&engine).await;
}

#[tokio::test]
async fn a_look_at_the_cpu_limits_costs_next_to_nothing_and_sees_a_change() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let stack = stack();
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    sample_cpu(&*engine, &launched, &stack).unwrap();
    let n = 2_000_u32;
    let begun = Instant::now();
    for _ in 0..n {
        sample_cpu(&*engine, &launched, &stack).unwrap();
    }
    println!(
        "a look at the CPU files of two containers takes {:?}",
        begun.elapsed() / n
    );
    let app = &launched.containers["app"][0];
    if engine.kernel_cpu(app).is_some() {
        let update = bollard::models::ContainerUpdateBody {
            nano_cpus: Some(700_000_000),
            ..bollard::models::ContainerUpdateBody::default()
        };
        engine
            .docker
            .update_container(&app.0, update)
            .await
            .unwrap();
        let wrong = sample_cpu(&*engine, &launched, &stack).unwrap_err();
        assert_eq!((wrong.which, wrong.planned.as_str()), ("cpus", "0.5"));
    }
    let (code, _) = engine
        .exec(app, &words("busybox true"), Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(code, 0);
    trial.finish(&engine).await;
}
