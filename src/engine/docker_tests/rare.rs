//! What few stacks ask for: namespaces and networks that are not their own, files with
//! content of the stack's, limits in their lower-level form, hooks.

use std::time::Duration;

use bollard::models::NetworkCreateRequest;
use indexmap::IndexMap;

use super::support::{Trial, attachment, engine, shell, stack, try_launch, words};
use crate::engine::{ContainerId, CpuQuota, DockerEngine, Engine, KernelLimit, Proof, RunState};
use crate::stack::{
    BlockIo, DeviceRequest, Hook, Mount, MountSource, Network, Service, Stack, VolumesFrom,
};

const WEB: &str = "busybox mkdir -p /tmp/www; echo ok > /tmp/www/health; \
    exec busybox httpd -f -p 8080 -h /tmp/www";

/// The app alone, and what else the test gives it.
fn alone(change: impl FnOnce(&mut Service)) -> Stack {
    let mut stack = stack();
    stack.services.retain(|name, _| name == "app");
    stack.volumes.clear();
    let app = &mut stack.services["app"];
    app.depends_on.clear();
    app.command = shell(WEB).command;
    change(app);
    stack
}

async fn said(engine: &DockerEngine, id: &ContainerId, script: &str) -> String {
    let command = ["/bin/sh", "-c", script].map(str::to_owned);
    let (_, text) = engine
        .exec(id, &command, Duration::from_secs(10))
        .await
        .unwrap();
    text
}

fn content(target: &str, text: &str, mode: Option<u32>, owner: Option<&str>) -> Mount {
    Mount {
        target: target.to_owned(),
        source: MountSource::Content {
            content: text.to_owned(),
            mode,
            uid: owner.map(str::to_owned),
            gid: owner.map(str::to_owned),
        },
        read_only: true,
    }
}

#[tokio::test]
async fn a_target_on_the_hosts_network_is_measured_there_and_its_limits_are_proved() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let mut stack = alone(|app| {
        app.networks.clear();
        app.network_mode = Some("host".to_owned());
        app.command = shell(&WEB.replace("8080", "18080")).command;
    });
    stack.networks.clear();
    let trial = Trial::new(&engine, "1");
    let target = crate::engine::LaunchTarget {
        service: "app".to_owned(),
        port: 18080,
    };
    let ready = crate::engine::ReadyProbe {
        path: "/health".to_owned(),
        status: 200,
        host: "app:18080".to_owned(),
        wire: crate::tls::Wire::default(),
    };
    let request = crate::engine::Launch {
        asked: &[],
        stack: &stack,
        subject: "app",
        target: Some(&target),
        ready: Some(&ready),
        deadline: Duration::from_secs(30),
        facts: &facts,
        state: None,
    };
    let launched = crate::engine::launch(trial.lease(), &request).await;
    if !facts.direct {
        let error = launched.unwrap_err().to_string();
        assert!(error.contains("not reached from here"), "{error}");
        return trial.finish(&engine).await;
    }
    let launched = launched.unwrap();
    assert_eq!(launched.targets[0].to_string(), "127.0.0.1:18080");
    println!("host network: proof {}", launched.proof);
    let seen = engine
        .inspect(&launched.containers["app"][0])
        .await
        .unwrap();
    assert_eq!(seen.limits.nano_cpus, 500_000_000);

    // The same port again: refused before anything is started.
    let other = Trial::new(&engine, "2");
    let error = crate::engine::launch(other.lease(), &request)
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("something else already listens on port 18080"),
        "{error}"
    );
    // Made, and never started.
    assert_eq!(engine.list_ours(&other.filter()).await.unwrap().len(), 1);
    other.finish(&engine).await;
    trial.finish(&engine).await;
}

#[tokio::test]
async fn a_target_on_the_engines_bridge_is_reached() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let mut stack = alone(|app| {
        app.networks.clear();
        app.network_mode = Some("bridge".to_owned());
    });
    stack.networks.clear();
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    assert_eq!(launched.targets.len(), 1);
    trial.finish(&engine).await;
}

#[tokio::test]
async fn services_share_networks_processes_communication_and_volumes_of_others() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let mut stack = stack();
    stack.services.shift_remove("migrate");
    let mut app = shell(WEB);
    app.networks.clear();
    app.network_mode = Some("service:db".to_owned());
    app.pid = Some("service:db".to_owned());
    app.ipc = Some("service:db".to_owned());
    app.volumes_from = vec![VolumesFrom {
        service: "db".to_owned(),
        read_only: true,
    }];
    app.cpus = Some(0.5);
    // As the resolver adds it: namespaces are of a process that runs.
    app.depends_on = stack.services["app"].depends_on.clone();
    app.depends_on.retain(|name, _| name == "db");
    // First in the file and last to be made.
    stack.services["app"] = app;
    let db = &mut stack.services["db"];
    db.ipc = Some("shareable".to_owned());
    db.command = shell("echo x > /tmp/ready; echo kept > /data/f; exec busybox sleep 1000").command;
    for published in [false, true] {
        let trial = Trial::new(&engine, "1");
        let mut facts = facts.clone();
        facts.direct &= !published;
        let launched = try_launch(&trial, &stack, &facts).await.unwrap();
        assert_eq!(
            launched.containers.keys().collect::<Vec<_>>(),
            ["app", "db"]
        );
        let (app, db) = (
            &launched.containers["app"][0],
            &launched.containers["db"][0],
        );
        let namespaces = "for n in net pid ipc; do busybox readlink /proc/self/ns/$n; done";
        assert_eq!(
            said(&engine, app, namespaces).await,
            said(&engine, db, namespaces).await
        );
        assert_eq!(said(&engine, app, "busybox cat /data/f").await, "kept\n");
        let refused = said(&engine, app, "echo y > /data/f 2>&1 || echo refused").await;
        assert!(refused.contains("refused"), "{refused}");
        trial.finish(&engine).await;
    }
}

#[tokio::test]
async fn files_with_content_of_the_stacks_own_are_there_from_the_start() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let long = format!("/etc/{}file.conf", "deep/".repeat(30));
    let stack = alone(|app| {
        app.mounts = vec![
            content("/etc/app/app.conf", "port 80\n", None, None),
            content("/run/secrets/key", "s3cret", Some(0o400), Some("1234")),
            content(&long, "deep", None, None),
            content("/top", "", None, None),
        ];
        // What the process itself sees when it begins, and not only what comes later.
        let script = format!("busybox cp /etc/app/app.conf /tmp/seen && {WEB}");
        app.command = shell(&script).command;
    });
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let app = &launched.containers["app"][0];
    let listed = said(
        &engine,
        app,
        &format!(
            "busybox cat /tmp/seen; busybox stat -c '%a %u %g %s' /etc/app/app.conf \
             /run/secrets/key /top; busybox cat /run/secrets/key {long}; busybox stat -c ' %a' /tmp"
        ),
    )
    .await;
    assert_eq!(
        listed,
        "port 80\n444 0 0 8\n400 1234 1234 6\n444 0 0 0\ns3cretdeep 755\n"
    );
    trial.finish(&engine).await;
}

#[tokio::test]
async fn secrets_reach_a_service_whose_root_is_read_only() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let tmpfs = |target: &str| Mount {
        target: target.to_owned(),
        source: MountSource::Tmpfs {
            size: None,
            mode: None,
            options: Vec::new(),
        },
        read_only: false,
    };
    for mounts in [vec![tmpfs("/tmp")], vec![tmpfs("/tmp"), tmpfs("/run")]] {
        let stack = alone(|app| {
            app.read_only = true;
            app.mounts = mounts;
            let key = content("/run/secrets/key", "s3cret", Some(0o440), None);
            app.mounts.push(key);
            let volume = Mount {
                target: "/data".to_owned(),
                source: MountSource::Anonymous,
                read_only: false,
            };
            let inside = content("/data/conf/x", "in a volume", None, None);
            app.mounts.extend([volume, inside]);
        });
        let trial = Trial::new(&engine, "1");
        let launched = try_launch(&trial, &stack, &facts).await.unwrap();
        let app = &launched.containers["app"][0];
        let script = "busybox cat /run/secrets/key; busybox stat -c ' %a' /run/secrets/key; \
            busybox touch /x 2>/dev/null || echo read-only; busybox cat /data/conf/x";
        assert_eq!(
            said(&engine, app, script).await,
            "s3cret 440\nread-only\nin a volume"
        );
        trial.finish(&engine).await;
    }
}

#[tokio::test]
async fn a_quota_in_its_lower_level_form_is_applied_and_proved() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let stack = alone(|app| {
        app.cpus = None;
        app.cpu_quota = Some(15_000);
        app.cpu_period = Some(20_000);
        app.cgroup_parent = Some(format!("/nightsweep-test-{}", std::process::id()));
    });
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack, &facts).await;
    // An engine that leaves control groups to systemd takes slices only.
    let launched = match launched {
        Err(error) if format!("{error:?}").contains("slice") => {
            return trial.finish(&engine).await;
        }
        other => other.unwrap(),
    };
    let app = &launched.containers["app"][0];
    let seen = engine.inspect(app).await.unwrap();
    assert_eq!(
        (
            seen.limits.nano_cpus,
            seen.limits.cpu_quota_us,
            seen.limits.cpu_period_us
        ),
        (0, 15_000, 20_000)
    );
    println!("quota: proof {}", launched.proof);
    if launched.proof == Proof::Kernel {
        let kernel = engine.kernel_limits(app, &seen).unwrap();
        let quota = CpuQuota {
            quota_us: 15_000,
            period_us: 20_000,
        };
        assert_eq!(kernel.cpu, KernelLimit::At(quota));
    }
    trial.finish(&engine).await;
}

#[tokio::test]
async fn hooks_run_with_their_own_user_folder_and_variables_before_readiness_is_asked_for() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let hook = |script: &str| Hook {
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        ..Hook::default()
    };
    let mut stack = alone(|app| {
        app.user = Some("1000:1000".to_owned());
        let mut first =
            hook("busybox id -u > /first; busybox pwd >> /first; echo $LEVEL >> /first");
        first.user = Some("0".to_owned());
        first.working_dir = Some("/bin".to_owned());
        first.environment = IndexMap::from([("LEVEL".to_owned(), "7".to_owned())]);
        app.post_start = vec![first, hook("busybox cat /first > /web/second")];
        app.command = shell(&WEB.replace("/tmp/www", "/web/www")).command;
    });
    // A folder of its own: over one of the image's, some runtimes keep that one's mode.
    stack.services["app"].mounts = vec![Mount {
        target: "/web".to_owned(),
        source: MountSource::Tmpfs {
            size: None,
            mode: Some(0o1777),
            options: Vec::new(),
        },
        read_only: false,
    }];
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let app = &launched.containers["app"][0];
    assert_eq!(
        said(&engine, app, "busybox cat /web/second").await,
        "0\n/bin\n7\n"
    );
    trial.finish(&engine).await;

    stack.services["app"].post_start = vec![hook("echo no table; exit 3")];
    let trial = Trial::new(&engine, "1");
    let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
    assert_eq!(error.reason(), "hook_failed");
    assert!(
        error
            .to_string()
            .ends_with("exited with code 3; it last wrote: no table"),
        "{error}"
    );
    trial.finish(&engine).await;
}

#[tokio::test]
async fn a_network_of_the_users_is_joined_and_stays() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let name = format!("engine-test-shared-{}", std::process::id());
    let body = NetworkCreateRequest {
        name: name.clone(),
        ..NetworkCreateRequest::default()
    };
    engine.docker.create_network(body).await.unwrap();
    let mut stack = alone(|app| {
        app.networks
            .insert("proxy".to_owned(), attachment(&["app"]));
    });
    stack.networks.insert(
        "proxy".to_owned(),
        Network {
            external: Some(name.clone()),
            ..Network::default()
        },
    );
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack, &facts).await;
    let seen = match &launched {
        Ok(launched) => engine.inspect(&launched.containers["app"][0]).await.ok(),
        Err(_) => None,
    };
    trial.finish(&engine).await;
    let removed = engine.docker.remove_network(&name).await;
    launched.unwrap();
    assert!(seen.unwrap().addresses.contains_key(&name));
    removed.unwrap();
}

#[tokio::test]
async fn block_devices_annotations_and_addresses_are_taken_and_a_missing_gpu_is_said() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let stack = alone(|app| {
        app.annotations = IndexMap::from([("com.example.a".to_owned(), "b".to_owned())]);
        let attachment = &mut app.networks["default"];
        attachment.mac_address = Some("02:42:0a:09:00:05".to_owned());
        attachment.link_local_ips = vec!["169.254.9.5".to_owned()];
        app.blkio_config = Some(BlockIo {
            weight: Some(300),
            ..BlockIo::default()
        });
    });
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack, &facts).await.unwrap();
    let app = &launched.containers["app"][0];
    let seen = engine.inspect(app).await.unwrap();
    assert_eq!(seen.state, RunState::Running);
    let addresses = said(&engine, app, "busybox ip addr").await;
    println!("with a hardware address: {addresses}");
    assert!(addresses.contains("169.254.9.5"), "{addresses}");
    trial.finish(&engine).await;

    let stack = alone(|app| {
        app.gpus = vec![DeviceRequest {
            driver: Some("no-such-driver".to_owned()),
            count: Some(-1),
            capabilities: words("gpu"),
            ..DeviceRequest::default()
        }];
    });
    let trial = Trial::new(&engine, "1");
    let error = try_launch(&trial, &stack, &facts).await.unwrap_err();
    assert_eq!(error.reason(), "start_failed", "{error}");
    let words = crate::problem::chain(&error);
    assert!(words.contains("could not select device driver"), "{words}");
    trial.finish(&engine).await;
}
