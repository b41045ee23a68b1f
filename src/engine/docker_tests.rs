//! The whole of this module against a real Docker Engine.
//!
//! With the feature on and no engine they fail; with it off they do not exist.
//! They need no image registry: the image is one static busybox, made once from
//! a Debian package. Every test removes what it made, also when it fails.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, ContainerUpdateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, KillContainerOptions, RemoveContainerOptions,
    StartContainerOptions,
};
use futures_util::StreamExt;
use indexmap::IndexMap;
use tokio::sync::OnceCell;

use super::teardown::remove_matching;
use super::{CleanRequest, CpuQuota, KernelLimit};
use super::{
    DockerEngine, Engine, EngineErrorKind, HostFacts, LABEL_RUN, Launch, LaunchError, LaunchTarget,
    Launched, Lease, LeftoverKind, Owner, Proof, ProofError, ReadyProbe, RunState, TargetPath,
    TrialTag, check_limits, clean, collect_logs, collect_trial_logs, differences, ensure_images,
    launch, read_kernel_limits, snapshot, watch_exits,
};
use crate::stack::{
    Attachment, Condition, Dependency, Healthcheck, Mount, MountSource, Network, Service, Stack,
    Volume,
};

const IMAGE: &str = "nightsweep/test-busybox:local";

async fn engine() -> Arc<DockerEngine> {
    static IMAGE_MADE: OnceCell<()> = OnceCell::const_new();
    let endpoint = std::env::var("DOCKER_HOST").ok();
    let engine = DockerEngine::connect(endpoint.as_deref())
        .await
        .expect("these tests need Docker");
    IMAGE_MADE.get_or_init(|| make_image(&engine)).await;
    Arc::new(engine)
}

/// A static busybox and nothing else, as an image.
async fn make_image(engine: &DockerEngine) {
    if engine.find_image(IMAGE).await.unwrap().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "apt-get download -q busybox-static && dpkg-deb -x busybox-static_*.deb root \
        && mkdir -p image/bin image/tmp && cp root/bin/busybox image/bin/ \
        && ln -s busybox image/bin/sh && tar -C image -cf image.tar .";
    let made = Command::new("sh")
        .args(["-c", script])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let archive = fs_err::read(folder.path().join("image.tar")).unwrap();
    let (repo, tag) = IMAGE.split_once(':').unwrap();
    let options = CreateImageOptions {
        from_src: Some("-".to_owned()),
        repo: Some(repo.to_owned()),
        tag: Some(tag.to_owned()),
        ..CreateImageOptions::default()
    };
    let body = bollard::body_full(archive.into());
    let steps: Vec<_> = engine
        .docker
        .create_image(Some(options), Some(body), None)
        .collect()
        .await;
    for step in steps {
        step.unwrap();
    }
}

/// A lease whose trial is removed at the end of the test, however that comes.
struct Trial {
    lease: Option<Lease<DockerEngine>>,
    run_id: String,
}

impl Trial {
    fn new(engine: &Arc<DockerEngine>, trial: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let run_id = format!("engine-test-{}-{n}", std::process::id());
        let tag = TrialTag {
            run_id: run_id.clone(),
            trial: trial.to_owned(),
            cell_id: "cell".to_owned(),
            owner: Owner::current().unwrap(),
        };
        Self {
            lease: Some(Lease::take(Arc::clone(engine), tag)),
            run_id,
        }
    }

    fn lease(&self) -> &Lease<DockerEngine> {
        self.lease.as_ref().unwrap()
    }

    fn filter(&self) -> Vec<String> {
        vec![format!("{LABEL_RUN}={}", self.run_id)]
    }

    /// Releases and sees for itself that nothing is left.
    async fn finish(mut self, engine: &DockerEngine) {
        let report = self.lease.take().unwrap().release().await;
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(engine.list_ours(&self.filter()).await.unwrap(), []);
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let filter = self.filter();
        // A failed test has lost its runtime: a new one, on a thread of its own.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                remove_matching(&**lease.engine(), &filter, true).await;
                lease.release().await
            })
        });
        let _ = removal.join();
    }
}

fn shell(script: &str) -> Service {
    Service {
        image: IMAGE.to_owned(),
        command: Some(["/bin/sh", "-c", script].map(str::to_owned).to_vec()),
        networks: IndexMap::from([("default".to_owned(), attachment(&[]))]),
        environment: IndexMap::from([("PATH".to_owned(), "/bin".to_owned())]),
        ..Service::default()
    }
}

fn attachment(aliases: &[&str]) -> Attachment {
    Attachment {
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        ipv4_address: None,
    }
}

fn after(mut service: Service, name: &str, condition: Condition) -> Service {
    let dependency = Dependency {
        condition,
        required: true,
    };
    service.depends_on.insert(name.to_owned(), dependency);
    service
}

/// A web service with limits, and a database with a healthcheck and a one-shot before it.
fn stack() -> Stack {
    let web = "busybox mkdir -p /www; echo ok > /www/health; exec busybox httpd -f -p 8080 -h /www";
    let mut app = after(shell(web), "db", Condition::ServiceHealthy);
    app.networks["default"].aliases = vec!["app".to_owned()];
    app = after(app, "migrate", Condition::ServiceCompletedSuccessfully);
    app.cpus = Some(0.5);
    app.cpuset = Some("0".to_owned());
    app.mem_limit = Some(64 << 20);
    app.pids_limit = Some(50);
    let mut db =
        shell("echo db up; busybox sleep 0.2; echo x > /tmp/ready; exec busybox sleep 1000");
    db.networks["default"].aliases = vec!["db".to_owned(), "old-db".to_owned()];
    db.healthcheck = Some(Healthcheck {
        test: vec![
            "CMD-SHELL".to_owned(),
            "busybox test -f /tmp/ready".to_owned(),
        ],
        interval: Some(Duration::from_millis(200)),
        timeout: Some(Duration::from_secs(5)),
        start_period: None,
        retries: Some(20),
    });
    db.mounts.push(Mount {
        target: "/data".to_owned(),
        source: MountSource::Volume {
            source: "data".to_owned(),
        },
        read_only: false,
    });
    let migrate = after(shell("echo migrated"), "db", Condition::ServiceHealthy);
    Stack {
        services: [("app", app), ("db", db), ("migrate", migrate)]
            .into_iter()
            .map(|(name, service)| (name.to_owned(), service))
            .collect(),
        networks: IndexMap::from([("default".to_owned(), Network::default())]),
        volumes: IndexMap::from([("data".to_owned(), Volume::default())]),
        ..Stack::default()
    }
}

async fn try_launch(
    trial: &Trial,
    stack: &Stack,
    facts: &HostFacts,
) -> Result<Launched, LaunchError> {
    let target = LaunchTarget {
        service: "app".to_owned(),
        port: 8080,
    };
    let ready = ReadyProbe {
        path: "/health".to_owned(),
        status: 200,
        host: "app:8080".to_owned(),
    };
    let request = Launch {
        stack,
        subject: "app",
        target: Some(&target),
        ready: Some(&ready),
        deadline: Duration::from_secs(30),
        facts,
    };
    launch(trial.lease(), &request).await
}

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
    let launched = try_launch(&trial, &stack(), &facts).await.unwrap();
    println!(
        "created after {:?}, ready after {:?}, proved after {:?}",
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

    let app = &launched.containers["app"];
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
    let used = differences(&before, &after)["app"];
    assert!(used.cpu_ns > 200_000_000, "{used:?}");
    assert!(used.periods > 0 && used.throttled_ns > 0, "{used:?}");
    assert!(used.memory_bytes > 0, "{used:?}");

    let logs = collect_logs(&*engine, &launched).await;
    assert!(
        logs.contains(&("migrate".to_owned(), "migrated\n".to_owned())),
        "{logs:?}"
    );

    let kill = engine
        .docker
        .kill_container(&app.0, None::<KillContainerOptions>);
    let (exit, killed) = tokio::join!(watch_exits(&*engine, &launched), kill);
    killed.unwrap();
    let exit = exit.unwrap();
    assert_eq!((exit.service.as_str(), exit.exit_code), ("app", Some(137)));

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
    let app = &launched.containers["app"];
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
    assert_ne!(first.target, second.target);
    one.finish(&engine).await;
    let seen = engine.inspect(&second.containers["app"]).await.unwrap();
    assert_eq!(seen.state, RunState::Running);
    two.finish(&engine).await;
}

#[tokio::test]
async fn a_target_is_reached_through_an_ephemeral_port_where_its_address_is_not() {
    let engine = engine().await;
    let mut facts = engine.describe().await.unwrap();
    facts.direct = false;
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.services["app"].depends_on.clear();
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let address = launched.target.unwrap();
    assert!(
        address.ip().is_loopback() && address.port() != 8080,
        "{address}"
    );
    trial.finish(&engine).await;
}

#[tokio::test]
async fn what_goes_wrong_inside_a_container_is_said_with_its_code_and_words() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let cases = [
        (
            "app",
            "echo no licence; exit 3",
            "exited",
            "exited with code 3; it last wrote: no licence",
        ),
        (
            "migrate",
            "echo no table; exit 2",
            "dependency_failed",
            "`migrate` exited with code 2; it last wrote: no table",
        ),
        ("app", "exec /bin/nothing", "exited", "exited with code 127"),
    ];
    for (service, script, reason, words) in cases {
        let trial = Trial::new(&engine, "1");
        let mut stack = stack();
        stack.services[service].command = shell(script).command;
        let begun = Instant::now();
        let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "no waiting for the deadline"
        );
        let logs = collect_trial_logs(&*engine, trial.lease().tag())
            .await
            .unwrap();
        assert!(logs.iter().any(|(name, _)| name == service), "{logs:?}");
        trial.finish(&engine).await;
    }
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_a_failed_start_and_a_missing_image_is_named() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.services["app"].depends_on.clear();
    stack.services["app"].command = Some(vec!["/no/such/program".to_owned()]);
    let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
    assert_eq!(error.reason(), "start_failed", "{error}");

    stack.services["app"].image = "nightsweep/no-such-image:local".to_owned();
    let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
    assert_eq!(error.reason(), "image_missing", "{error}");
    assert!(error.is_environment());
    trial.finish(&engine).await;

    // Nobody listens there: the pull fails at once, whatever registries can be reached.
    let error = ensure_images(&*engine, ["127.0.0.1:9/no/such:1"])
        .await
        .unwrap_err();
    assert_eq!(error.kind, EngineErrorKind::ImageMissing, "{error:?}");
}

#[tokio::test]
async fn a_launch_that_is_cut_off_at_any_moment_leaves_nothing() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    for cut_after_ms in [20, 150, 400, 900] {
        let trial = Trial::new(&engine, "1");
        let limit = Duration::from_millis(cut_after_ms);
        let stack = stack();
        let _ = tokio::time::timeout(limit, try_launch(&trial, &stack, &facts)).await;
        trial.finish(&engine).await;
    }
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
        },
        read_only: false,
    });
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
    let app = &launched.containers["app"];
    let script = "busybox hostname; busybox pwd; echo $LEVEL; ulimit -n; \
        busybox cat /proc/sys/net/core/somaxconn; busybox grep -c somewhere /etc/hosts; \
        busybox grep -o 'shm .*' /proc/mounts; busybox grep ' /mem ' /proc/mounts; \
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

    let app = &launched.containers["app"];
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

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

/// A stranger's container: it carries none of our labels.
struct Bystander {
    name: String,
}

impl Bystander {
    async fn start(engine: &DockerEngine) -> Self {
        let name = format!("engine-test-bystander-{}", std::process::id());
        let body = ContainerCreateBody {
            image: Some(IMAGE.to_owned()),
            // It goes by itself, should the test fail before its end.
            cmd: Some(words("/bin/busybox sleep 60")),
            host_config: Some(HostConfig {
                auto_remove: Some(true),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptions {
            name: Some(name.clone()),
            ..CreateContainerOptions::default()
        };
        engine
            .docker
            .create_container(Some(options), body)
            .await
            .unwrap();
        engine
            .docker
            .start_container(&name, None::<StartContainerOptions>)
            .await
            .unwrap();
        Self { name }
    }

    async fn still_runs_and_goes(self, engine: &DockerEngine) {
        let seen = engine
            .inspect(&super::ContainerId(self.name.clone()))
            .await
            .unwrap();
        assert_eq!(seen.state, RunState::Running);
        let options = RemoveContainerOptions {
            force: true,
            ..RemoveContainerOptions::default()
        };
        engine
            .docker
            .remove_container(&self.name, Some(options))
            .await
            .unwrap();
    }
}
