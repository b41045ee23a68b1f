//! A service with several containers on the real engine.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bollard::query_parameters::KillContainerOptions;

use super::support::{Trial, engine, shell, stack, try_launch, words};
use crate::engine::{
    DockerEngine, Engine, HostFacts, Launched, TargetPath, Unhealthy, collect_logs, differences,
    snapshot, watch_exits,
};
use crate::stack::{Mount, MountSource, Stack};

/// The app says which container answered, in a volume of its own and one that all share.
fn stack_of(replicas: u32) -> Stack {
    let mut stack = stack();
    let app = shell(
        "busybox mkdir -p /www; busybox hostname > /www/health; busybox hostname > /own/name; \
         busybox hostname >> /shared/names; busybox hostname; exec busybox httpd -f -p 8080 -h /www",
    );
    let old = std::mem::replace(&mut stack.services["app"], app);
    let app = &mut stack.services["app"];
    app.depends_on = old.depends_on;
    app.networks = old.networks;
    app.cpus = Some(0.2);
    app.replicas = Some(replicas);
    app.mounts = vec![
        Mount {
            target: "/own".to_owned(),
            source: MountSource::Anonymous,
            read_only: false,
        },
        Mount {
            target: "/shared".to_owned(),
            source: MountSource::Volume {
                source: "data".to_owned(),
                nocopy: false,
            },
            read_only: false,
        },
    ];
    stack
}

async fn answers(engine: &DockerEngine, launched: &Launched) -> Vec<String> {
    let probe = crate::engine::ReadyProbe {
        path: "/health".to_owned(),
        status: 200,
        host: "app:8080".to_owned(),
        wire: crate::tls::Wire::default(),
    };
    let mut answers = Vec::new();
    for address in &launched.targets {
        let answer = engine.probe(*address, &probe, Duration::from_secs(5)).await;
        answers.push(answer.unwrap().body_head);
    }
    answers
}

async fn said(engine: &DockerEngine, launched: &Launched, index: usize, command: &str) -> String {
    let id = &launched.containers["app"][index];
    let (code, output) = engine
        .exec(id, &words(command), Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!(code, 0, "{command}: {output}");
    output
}

#[tokio::test]
async fn replicas_have_an_address_each_and_one_name_for_all() {
    let engine = engine().await;
    let facts = engine.describe().await.unwrap();
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack_of(3), &facts).await.unwrap();
    let hosts = answers(&engine, &launched).await;
    let different: BTreeSet<&String> = hosts.iter().collect();
    assert_eq!(different.len(), 3, "{hosts:?}");

    // Other services reach all of them by the service's name.
    let db = &launched.containers["db"][0];
    let command = words("busybox nslookup app");
    let (_, found) = engine
        .exec(db, &command, Duration::from_secs(10))
        .await
        .unwrap();
    for replica in launched.replicas().filter(|one| one.service == "app") {
        let seen = engine.inspect(replica.id).await.unwrap();
        for address in seen.addresses.values() {
            assert!(found.contains(&address.to_string()), "{address}: {found}");
        }
    }

    // An anonymous volume is each container's own, a named one is all of theirs.
    for (index, host) in hosts.iter().enumerate() {
        let own = said(&engine, &launched, index, "busybox cat /own/name").await;
        assert_eq!(own.trim(), host);
    }
    let shared = said(&engine, &launched, 0, "busybox cat /shared/names").await;
    assert_eq!(shared.lines().count(), 3, "{shared}");
    let logs = collect_logs(&*engine, &launched).await;
    assert_eq!(logs[1], ("app#2".to_owned(), format!("{}\n", hosts[1])));

    let before = snapshot(&*engine, &launched).await.unwrap();
    let spin = "busybox timeout 1 /bin/sh -c 'while :; do :; done'";
    let run = ["/bin/sh", "-c", spin].map(str::to_owned);
    let busy = &launched.containers["app"][1];
    engine
        .exec(busy, &run, Duration::from_secs(20))
        .await
        .unwrap();
    let after = snapshot(&*engine, &launched).await.unwrap();
    let used = &differences(&before, &after)["app"];
    assert_eq!(used.replicas.len(), 3);
    println!("imbalance {:?}", used.imbalance());
    // One of three did all the work: three times the mean.
    assert!(used.imbalance() > Some(2.5), "{used:?}");
    assert!(used.is_imbalanced());

    let kill = engine.docker.kill_container(
        &launched.containers["app"][2].0,
        None::<KillContainerOptions>,
    );
    let unhealthy = Unhealthy::default();
    let (exit, killed) = tokio::join!(watch_exits(&*engine, &launched, &unhealthy), kill);
    killed.unwrap();
    let exit = exit.unwrap();
    assert_eq!((exit.name.as_str(), exit.exit_code), ("app#3", Some(137)));
    trial.finish(&engine).await;
}

#[tokio::test]
async fn every_replica_has_a_published_port_where_addresses_cannot_be_reached() {
    let engine = engine().await;
    let facts = HostFacts {
        direct: false,
        ..engine.describe().await.unwrap()
    };
    let trial = Trial::new(&engine, "1");
    let launched = try_launch(&trial, &stack_of(2), &facts).await.unwrap();
    assert_eq!(launched.target_path, Some(TargetPath::Published));
    let ports: BTreeSet<u16> = launched.targets.iter().map(SocketAddr::port).collect();
    assert_eq!(ports.len(), 2, "{:?}", launched.targets);
    let hosts: BTreeSet<String> = answers(&engine, &launched).await.into_iter().collect();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    trial.finish(&engine).await;
}
