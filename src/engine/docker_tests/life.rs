//! From launch to removal.

use std::pin::pin;
use std::time::{Duration, Instant};

use bollard::models::ContainerUpdateBody;
use bollard::query_parameters::KillContainerOptions;
use futures_util::StreamExt;

use super::support::{Bystander, Trial, attachment, engine, stack, try_launch, words};
use crate::engine::{
    CleanRequest, CpuQuota, Engine, EngineErrorKind, KernelLimit, LeftoverKind, Owner, Proof,
    ProofError, RunState, TargetPath, Unhealthy, check_limits, clean, collect_logs, differences,
    read_kernel_limits, snapshot, watch_exits,
};
use crate::stack::{Device, Mount, MountSource, Network};

#[tokio::test]
async fn a_stack_is_launched_proved_watched_and_removed_and_a_bystander_stays() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    assert!(
        facts.cpus >= 1 && facts.memory_bytes > 0 && !facts.api_version.is_empty(),
        "{facts:?}"
    );
    // Where containers can be reached is not up to their number: twice the same answer.
    assert_eq!(engine.describe().await.unwrap().direct, facts.direct);
    let bystander = Bystander::start(&engine).await;
    let trial = Trial::new(&engine, "1");
    let begun = Instant::now();
    // So small that it is throttled on a busy host too.
    let mut stack = stack();
    stack.services["app"].cpus = Some(0.1);
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    println!(
        "target {:?} ({:?}), proof {}, created after {:?}, ready after {:?}, proved after {:?}",
        launched.targets,
        launched.target_path,
        launched.proof,
        launched.created_after,
        launched.ready_after,
        begun.elapsed()
    );
    assert_eq!(launched.completed.iter().collect::<Vec<_>>(), ["migrate"]);
    let expected_path = if facts.direct {
        TargetPath::Direct
    } else {
        TargetPath::Published
    };
    assert_eq!(launched.target_path, Some(expected_path));
    assert!(launched.images["app"].digest.starts_with("sha256:"));

    let app = &launched.containers["app"][0];
    let (code, answer) = engine
        .exec(
            app,
            &words("busybox wget -q -O - http://app:8080/health"),
            Duration::from_secs(10),
        )
        .await
        .unwrap();
    assert_eq!((code, answer.trim()), (0, "ok"));
    let (code, _) = engine
        .exec(
            app,
            &words("busybox nslookup old-db"),
            Duration::from_secs(10),
        )
        .await
        .unwrap();
    assert_eq!(code, 0, "aliases of other services are known");

    let before = snapshot(&*engine, &launched).await.unwrap();
    let spin = "busybox timeout 1 /bin/sh -c 'while :; do :; done'";
    let run = ["/bin/sh", "-c", spin].map(str::to_owned);
    engine
        .exec(app, &run, Duration::from_secs(20))
        .await
        .unwrap();
    let reading = Instant::now();
    let after = snapshot(&*engine, &launched).await.unwrap();
    println!("counters of two containers read in {:?}", reading.elapsed());
    let used = &differences(&before, &after)["app"];
    assert!(used.total.cpu_ns > 50_000_000, "{used:?}");
    assert!(
        used.total.periods > 0 && used.total.throttled_ns > 0,
        "{used:?}"
    );
    assert!(used.total.memory_bytes > 0, "{used:?}");

    let logs = collect_logs(&*engine, &launched).await;
    assert!(
        logs.contains(&("migrate".to_owned(), "migrated\n".to_owned())),
        "{logs:?}"
    );

    let kill = engine
        .docker
        .kill_container(&app.0, None::<KillContainerOptions>);
    let unhealthy = Unhealthy::default();
    let (exit, killed) = tokio::join!(watch_exits(&*engine, &launched, &unhealthy), kill);
    killed.unwrap();
    let exit = exit.unwrap();
    assert_eq!((exit.name.as_str(), exit.exit_code), ("app", Some(137)));

    let removing = Instant::now();
    trial.finish(&engine).await;
    println!("removed and seen to be gone in {:?}", removing.elapsed());
    bystander.still_runs_and_goes(&engine).await;
}

#[tokio::test]
async fn limits_are_read_back_from_engine_and_kernel_and_a_change_is_caught() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let stack = stack();
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let app = &launched.containers["app"][0];
    let seen = engine.inspect(app).await.unwrap();
    assert_eq!(seen.limits.nano_cpus, 500_000_000);
    if let Some(kernel) = read_kernel_limits(seen.pid, app) {
        assert_eq!(launched.proof, Proof::Kernel);
        let quota = CpuQuota {
            quota_us: 50_000,
            period_us: 100_000,
        };
        assert_eq!(kernel.cpu, KernelLimit::At(quota));
        assert_eq!(kernel.cpuset.as_deref(), Some("0"));
        assert_eq!(kernel.memory_bytes, KernelLimit::At(64 << 20));
        assert_eq!(kernel.pids, KernelLimit::At(50));
        // Both ways of reading counters must tell the same story.
        let by_kernel = engine.counters(app).await.unwrap();
        let by_engine = engine.counters_by_api(app).await.unwrap();
        assert!(
            by_engine.cpu_ns >= by_kernel.cpu_ns,
            "{by_kernel:?} {by_engine:?}"
        );
        assert!(
            by_engine.cpu_ns - by_kernel.cpu_ns < 500_000_000,
            "{by_kernel:?} {by_engine:?}"
        );
        let memory = by_engine.memory_bytes.abs_diff(by_kernel.memory_bytes);
        assert!(memory < 8 << 20, "{by_kernel:?} {by_engine:?}");
    } else {
        assert_eq!(launched.proof, Proof::Inspect);
    }
    let update = ContainerUpdateBody {
        nano_cpus: Some(700_000_000),
        ..ContainerUpdateBody::default()
    };
    engine
        .docker
        .update_container(&app.0, update)
        .await
        .unwrap();
    let error = check_limits(&*engine, &launched, &stack).await.unwrap_err();
    let ProofError::NotApplied(mismatch) = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (
            mismatch.service.as_str(),
            mismatch.which,
            mismatch.planned.as_str(),
            mismatch.found.as_str()
        ),
        ("app", "cpus", "0.5", "0.7")
    );
    trial.finish(&engine).await;
}

#[tokio::test]
async fn two_launches_of_one_stack_run_side_by_side_and_each_removes_its_own() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let (one, two) = (Trial::new(&engine, "1"), Trial::new(&engine, "1"));
    let stack = stack();
    let (first, second) = tokio::join!(
        try_launch(&one, &stack, &facts),
        try_launch(&two, &stack, &facts)
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_ne!(first.targets, second.targets);
    one.finish(&engine).await;
    let seen = engine.inspect(&second.containers["app"][0]).await.unwrap();
    assert_eq!(seen.state, RunState::Running);
    two.finish(&engine).await;
}

#[tokio::test]
async fn a_container_gets_what_its_service_says() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.networks.insert(
        "back".to_owned(),
        Network {
            internal: true,
            ..Network::default()
        },
    );
    let app = &mut stack.services["app"];
    app.depends_on.clear();
    app.networks
        .insert("back".to_owned(), attachment(&["app", "in-back"]));
    app.hostname = Some("box".to_owned());
    app.working_dir = Some("/tmp".to_owned());
    app.shm_size = Some(32 << 20);
    app.ulimits.insert("nofile".to_owned(), (333, 444));
    app.sysctls
        .insert("net.core.somaxconn".to_owned(), "321".to_owned());
    app.extra_hosts.push("somewhere:10.1.2.3".to_owned());
    app.environment
        .insert("LEVEL".to_owned(), "7 of 9".to_owned());
    app.init = Some(true);
    app.mounts.push(Mount {
        target: "/mem".to_owned(),
        source: MountSource::Tmpfs {
            size: Some(1 << 20),
            mode: Some(0o700),
            options: Vec::new(),
        },
        read_only: false,
    });
    app.mounts.push(Mount {
        target: "/runnable".to_owned(),
        source: MountSource::Tmpfs {
            size: Some(2 << 20),
            mode: None,
            options: vec!["exec".to_owned()],
        },
        read_only: false,
    });
    app.devices.push(Device {
        source: "/dev/zero".to_owned(),
        target: "/dev/nought".to_owned(),
        permissions: "r".to_owned(),
    });
    app.domainname = Some("example".to_owned());
    app.oom_score_adj = Some(77);
    app.mounts.push(Mount {
        target: "/scratch".to_owned(),
        source: MountSource::Anonymous,
        read_only: false,
    });
    app.mounts.push(Mount {
        target: "/host-hosts".to_owned(),
        source: MountSource::Bind {
            source: "/etc/hosts".into(),
        },
        read_only: true,
    });
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let app = &launched.containers["app"][0];
    let script = "busybox hostname; busybox pwd; echo $LEVEL; ulimit -n; \
        busybox cat /proc/sys/net/core/somaxconn; busybox grep -c somewhere /etc/hosts; \
        busybox grep -o 'shm .*' /proc/mounts; busybox grep ' /mem ' /proc/mounts; \
        busybox cp /bin/busybox /runnable/; /runnable/busybox echo runs; \
        busybox head -c 1 /dev/nought | busybox wc -c; busybox cat /proc/1/oom_score_adj; \
        busybox cat /proc/sys/kernel/domainname; \
        echo x > /host-hosts || echo read-only; busybox cat /proc/1/comm; \
        busybox nslookup in-back >/dev/null && echo alias";
    let command = ["/bin/sh", "-c", script].map(str::to_owned);
    let (_, said) = engine
        .exec(app, &command, Duration::from_secs(10))
        .await
        .unwrap();
    for expected in [
        "box\n/tmp\n7 of 9\n333\n321\n1\n",
        "size=32768k",
        "size=1024k,mode=700",
        "runs\n1\n77\nexample\n",
        "read-only\n",
        "docker-init\n",
        "alias\n",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
    }
    let found = engine.list_ours(&trial.filter()).await.unwrap();
    let n_volumes = found
        .iter()
        .filter(|thing| thing.kind == LeftoverKind::Volume)
        .count();
    assert_eq!(
        n_volumes, 2,
        "the named one and the one without a name: {found:?}"
    );
    trial.finish(&engine).await;
}

#[tokio::test]
async fn the_engine_tells_of_a_change_of_health_and_of_an_end() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let stack = stack();
    let mut news = engine.news(&trial.filter());
    let mut told = Vec::new();
    let launched = {
        let mut launching = pin!(try_launch(&trial, &stack, &facts));
        loop {
            tokio::select! {
                launched = &mut launching => break launched.unwrap(),
                id = news.next() => told.push(id.expect("the engine goes on telling")),
            }
        }
    };
    let is_told = |service: &str| told.contains(&launched.containers[service][0]);
    assert!(is_told("db") && is_told("migrate"), "{told:?}");
    assert!(!is_told("app"), "it has no healthcheck and runs");
    drop(news);
    trial.finish(&engine).await;
}

#[tokio::test]
async fn clean_leaves_a_living_run_alone_and_a_slow_command_is_given_up() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.services["app"].depends_on.clear();
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let request = CleanRequest {
        run_id: Some(trial.run_id.clone()),
        golden: false,
        images: false,
        is_dry_run: false,
    };
    let report = clean(&*engine, &request).await.unwrap();
    assert!(
        report.removed.is_empty() && report.failed.is_empty(),
        "{report:?}"
    );
    assert_eq!(
        report.kept.len(),
        3,
        "container, network, volume: {report:?}"
    );

    // The same made by a process that is no more: all of it goes, and nothing else.
    let living = Owner::current().unwrap();
    let dead = format!("{}/{}/1", living.host(), living.pid())
        .parse()
        .unwrap();
    let orphan = Trial::owned_by(&engine, "1", dead);
    try_launch(&orphan, &stack, &facts).await.unwrap();
    let request = CleanRequest {
        run_id: Some(orphan.run_id.clone()),
        golden: false,
        images: false,
        is_dry_run: false,
    };
    let report = clean(&*engine, &request).await.unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert_eq!(report.removed.len(), 3, "{report:?}");
    orphan.finish(&engine).await;

    let app = &launched.containers["app"][0];
    let limit = Duration::from_millis(300);
    let error = engine
        .exec(app, &words("busybox sleep 20"), limit)
        .await
        .unwrap_err();
    assert_eq!(error.kind, EngineErrorKind::Timeout);
    let (code, _) = engine
        .exec(app, &words("/bin/busybox false"), Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(code, 1);

    engine.stop_container(app, Duration::ZERO).await.unwrap();
    let error = engine.counters(app).await.unwrap_err();
    assert_eq!(
        error.kind,
        EngineErrorKind::Conflict,
        "no zeros for a stopped container"
    );
    engine.wait_for_exit(app).await.unwrap();
    trial.finish(&engine).await;
    let error = engine.inspect(app).await.unwrap_err();
    assert_eq!(error.kind, EngineErrorKind::NotFound);
}
