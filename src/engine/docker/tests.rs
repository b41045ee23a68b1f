//! Requests as the engine gets them, and answers as it gives them.

use indexmap::IndexMap;
use serde_json::Value;

use super::{answers, requests};
use crate::engine::{ContainerId, ContainerRequest, Labels};
use crate::stack::{
    AddressRange, Attachment, BlockIo, Device, DeviceRequest, Healthcheck, Mount, MountSource,
    Network, PullPolicy, Service, Volume, VolumesFrom,
};
use std::time::Duration;

/// The same text for the same request: maps of the client library have no order.
fn json(value: &impl serde::Serialize) -> String {
    fn sort(value: Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.into_iter().filter(|(_, v)| !v.is_null()).collect();
                entries.sort_by(|a, b| a.0.cmp(&b.0));
                Value::Object(entries.into_iter().map(|(k, v)| (k, sort(v))).collect())
            }
            Value::Array(items) => Value::Array(items.into_iter().map(sort).collect()),
            other => other,
        }
    }
    serde_json::to_string_pretty(&sort(serde_json::to_value(value).unwrap())).unwrap()
}

fn map(pairs: &[(&str, &str)]) -> IndexMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn mount(target: &str, source: MountSource, read_only: bool) -> Mount {
    Mount {
        target: target.to_owned(),
        source,
        read_only,
    }
}

/// A service that sets every field the model has: a new field does not compile until it is here.
#[expect(clippy::too_many_lines, reason = "one value")]
fn full_service() -> Service {
    Service {
        image: "postgres:17".to_owned(),
        image_id: Some("sha256:0123".to_owned()),
        // Done before anything is launched: it has no place in the request.
        pull_policy: Some(PullPolicy::Always),
        command: Some(words(&["postgres", "-c", "fsync=off"])),
        entrypoint: Some(words(&["/entry"])),
        environment: map(&[("A", "1"), ("EMPTY", "")]),
        cpus: Some(0.29),
        cpu_quota: None,
        cpu_period: None,
        cpu_rt_runtime: Some(400_000),
        cpu_rt_period: Some(1_000_000),
        blkio_config: Some(BlockIo {
            weight: Some(300),
            weight_device: IndexMap::from([("/dev/sda".to_owned(), 400)]),
            device_read_bps: IndexMap::from([("/dev/sda".to_owned(), 1 << 20)]),
            device_write_bps: IndexMap::from([("/dev/sda".to_owned(), 2 << 20)]),
            device_read_iops: IndexMap::from([("/dev/sda".to_owned(), 100)]),
            device_write_iops: IndexMap::from([("/dev/sda".to_owned(), 200)]),
        }),
        cgroup_parent: Some("/bench".to_owned()),
        volumes_from: vec![VolumesFrom {
            service: "web".to_owned(),
            read_only: true,
        }],
        gpus: vec![DeviceRequest {
            driver: Some("nvidia".to_owned()),
            count: Some(-1),
            device_ids: Vec::new(),
            capabilities: words(&["gpu", "compute"]),
            options: map(&[("virtualization", "false")]),
        }],
        annotations: map(&[("com.example.a", "b")]),
        // Run once the container was started.
        post_start: Vec::new(),
        cpuset: Some("0-1".to_owned()),
        mem_limit: Some(256 << 20),
        pids_limit: Some(200),
        healthcheck: Some(Healthcheck {
            test: words(&["CMD-SHELL", "pg_isready"]),
            interval: Some(Duration::from_millis(500)),
            timeout: Some(Duration::from_secs(2)),
            start_period: Some(Duration::from_secs(1)),
            start_interval: Some(Duration::from_millis(100)),
            retries: Some(7),
        }),
        mounts: vec![
            mount(
                "/data",
                MountSource::Volume {
                    source: "pgdata".to_owned(),
                    nocopy: true,
                },
                false,
            ),
            mount("/scratch", MountSource::Anonymous, false),
            mount(
                "/etc/x.conf",
                MountSource::Bind {
                    source: "/srv/x.conf".into(),
                },
                true,
            ),
            mount(
                "/tmp",
                MountSource::Tmpfs {
                    size: Some(1 << 20),
                    mode: Some(0o1777),
                    options: Vec::new(),
                },
                false,
            ),
            mount(
                "/run",
                MountSource::Tmpfs {
                    size: Some(1 << 20),
                    mode: Some(0o1777),
                    options: words(&["exec", "uid=70"]),
                },
                false,
            ),
        ],
        networks: IndexMap::from([
            (
                "back".to_owned(),
                Attachment {
                    aliases: words(&["db", "old-name"]),
                    ipv4_address: Some("10.9.0.5".to_owned()),
                    ipv6_address: Some("fd00::5".to_owned()),
                    mac_address: Some("02:42:0a:09:00:05".to_owned()),
                    link_local_ips: words(&["169.254.1.5"]),
                    driver_opts: map(&[("com.docker.network.endpoint.ifname", "db0")]),
                },
            ),
            (
                "front".to_owned(),
                Attachment {
                    aliases: words(&["db"]),
                    ..Attachment::default()
                },
            ),
        ]),
        user: Some("70:70".to_owned()),
        working_dir: Some("/data".to_owned()),
        hostname: Some("db-host".to_owned()),
        shm_size: Some(128 << 20),
        ulimits: IndexMap::from([("nofile".to_owned(), (1024, 4096))]),
        sysctls: map(&[("net.core.somaxconn", "1024")]),
        extra_hosts: words(&["other:10.0.0.1"]),
        cap_add: words(&["SYS_NICE"]),
        cap_drop: words(&["NET_RAW"]),
        labels: map(&[
            ("team", "a"),
            ("nightsweep.run", "forged"),
            ("nightsweep.golden", "forged"),
        ]),
        init: Some(true),
        read_only: true,
        privileged: true,
        tty: true,
        stdin_open: true,
        stop_signal: Some("SIGINT".to_owned()),
        stop_grace_period: Some(Duration::from_millis(1_500)),
        cpu_shares: Some(512),
        memswap_limit: Some(-1),
        mem_swappiness: Some(10),
        mem_reservation: Some(128 << 20),
        oom_kill_disable: Some(true),
        oom_score_adj: Some(-500),
        ipc: Some("shareable".to_owned()),
        pid: Some("host".to_owned()),
        uts: Some("host".to_owned()),
        userns_mode: Some("host".to_owned()),
        cgroup: Some("private".to_owned()),
        domainname: Some("example".to_owned()),
        runtime: Some("runc".to_owned()),
        devices: vec![Device {
            source: "/dev/null".to_owned(),
            target: "/dev/nothing".to_owned(),
            permissions: "r".to_owned(),
        }],
        device_cgroup_rules: words(&["c 1:3 mr"]),
        storage_opt: map(&[("size", "1G")]),
        security_opt: words(&["no-new-privileges:true"]),
        group_add: words(&["docker"]),
        dns: words(&["10.0.0.53"]),
        dns_search: words(&["example"]),
        dns_opt: words(&["ndots:1"]),
        // What the service needs of others, how it was made and who is asked for it
        // is not said to the engine in this body, or is refused by `check_stack`.
        depends_on: IndexMap::new(),
        build: None,
        replicas: None,
        network_mode: None,
        platform: None,
    }
}

fn creation(service: &Service, publish_port: Option<u16>) -> requests::Creation {
    try_creation(service, publish_port).unwrap()
}

fn try_creation(
    service: &Service,
    publish_port: Option<u16>,
) -> Result<requests::Creation, requests::RequestError> {
    let labels: Labels = map(&[("nightsweep.run", "r1"), ("nightsweep.trial", "3")]);
    requests::container(&ContainerRequest {
        name: "ns-ab-3-db".to_owned(),
        service,
        networks: &map(&[("back", "ns-ab-3-back"), ("front", "ns-ab-3-front")]),
        volumes: &map(&[("pgdata", "ns-ab-3-pgdata")]),
        containers: &IndexMap::from([("web".to_owned(), vec![ContainerId("c0ffee".to_owned())])]),
        image_volumes: &[],
        labels: &labels,
        publish_ports: publish_port.into_iter().collect(),
    })
}

#[test]
fn everything_a_service_says_reaches_the_engine() {
    let creation = creation(&full_service(), Some(5432));
    insta::assert_snapshot!(json(&creation.body));
    let later: Vec<&str> = creation
        .join_later
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(later, ["ns-ab-3-front"]);
    insta::assert_snapshot!("join_later", json(&creation.join_later[0].1));
}

#[test]
fn a_service_that_says_nothing_gets_nothing_but_our_labels() {
    let service = Service {
        image: "a".to_owned(),
        network_mode: Some("none".to_owned()),
        ..Service::default()
    };
    insta::assert_snapshot!(json(&creation(&service, None).body), @r#"
    {
      "Env": [],
      "HostConfig": {
        "CapAdd": [],
        "CapDrop": [],
        "Dns": [],
        "DnsOptions": [],
        "DnsSearch": [],
        "ExtraHosts": [],
        "GroupAdd": [],
        "Mounts": [],
        "NetworkMode": "none",
        "Privileged": false,
        "ReadonlyRootfs": false,
        "RestartPolicy": {
          "Name": "no"
        },
        "SecurityOpt": [],
        "Sysctls": {},
        "Ulimits": []
      },
      "Image": "a",
      "Labels": {
        "nightsweep.run": "r1",
        "nightsweep.trial": "3"
      },
      "OpenStdin": false,
      "Tty": false
    }
    "#);
}

#[test]
fn an_empty_entrypoint_clears_the_images_and_an_empty_command_is_refused() {
    let mut service = Service {
        entrypoint: Some(Vec::new()),
        command: Some(words(&["x"])),
        ..Service::default()
    };
    assert_eq!(creation(&service, None).body.entrypoint, Some(words(&[""])));
    service.entrypoint = None;
    service.command = Some(Vec::new());
    assert_eq!(
        try_creation(&service, None).unwrap_err(),
        requests::RequestError::EmptyCommand
    );
}

#[test]
fn a_volume_or_network_that_was_not_made_is_an_error() {
    let mut service = full_service();
    service
        .networks
        .insert("else".to_owned(), Attachment::default());
    let error = try_creation(&service, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the network `else` is used and was not made for this trial"
    );
    let mut service = full_service();
    service.mounts[0].source = MountSource::Volume {
        source: "else".to_owned(),
        nocopy: false,
    };
    let error = try_creation(&service, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the volume `else` is used and was not made for this trial"
    );
}

#[test]
fn networks_and_volumes_carry_labels_and_options() {
    let labels = map(&[("nightsweep.run", "r1")]);
    let network = Network {
        internal: true,
        enable_ipv6: true,
        ipam: vec![AddressRange {
            subnet: Some("10.9.0.0/24".to_owned()),
            gateway: Some("10.9.0.254".to_owned()),
            ..AddressRange::default()
        }],
        driver_opts: map(&[("com.docker.network.driver.mtu", "1400")]),
        external: None,
    };
    insta::assert_snapshot!(json(&requests::network("ns-n", &network, &labels)), @r#"
    {
      "Driver": "bridge",
      "EnableIPv6": true,
      "IPAM": {
        "Config": [
          {
            "Gateway": "10.9.0.254",
            "Subnet": "10.9.0.0/24"
          }
        ]
      },
      "Internal": true,
      "Labels": {
        "nightsweep.run": "r1"
      },
      "Name": "ns-n",
      "Options": {
        "com.docker.network.driver.mtu": "1400"
      }
    }
    "#);
    let volume = Volume {
        driver_opts: map(&[("type", "tmpfs"), ("device", "tmpfs")]),
        ..Volume::default()
    };
    insta::assert_snapshot!(json(&requests::volume("ns-v", &volume, &labels)), @r#"
    {
      "Driver": "local",
      "DriverOpts": {
        "device": "tmpfs",
        "type": "tmpfs"
      },
      "Labels": {
        "nightsweep.run": "r1"
      },
      "Name": "ns-v"
    }
    "#);
}

#[test]
fn volumes_that_an_image_declares_carry_our_labels_unless_something_is_there() {
    let text = r#"{"Config":{"Volumes":{"/var/lib/data":{},"/cache/":{},"/mem":{}}}}"#;
    let facts = answers::image(serde_json::from_str(text).unwrap());
    assert_eq!(facts.volumes, ["/cache/", "/mem", "/var/lib/data"]);
    let memory = MountSource::Tmpfs {
        size: None,
        mode: None,
        options: vec!["exec".to_owned()],
    };
    let mut service = Service {
        image: "a".to_owned(),
        mounts: vec![
            mount("/cache", MountSource::Anonymous, true),
            mount("/mem", memory, false),
        ],
        ..Service::default()
    };
    let labels = Labels::from([("nightsweep.run".to_owned(), "r".to_owned())]);
    let made = |service: &Service| {
        let request = ContainerRequest {
            name: "ns-ab-3-db".to_owned(),
            service,
            networks: &IndexMap::new(),
            volumes: &IndexMap::new(),
            containers: &IndexMap::from([(
                "db".to_owned(),
                vec![ContainerId("c0ffee".to_owned())],
            )]),
            image_volumes: &facts.volumes,
            labels: &labels,
            publish_ports: Vec::new(),
        };
        let body = requests::container(&request).unwrap().body;
        let mounts = body.host_config.unwrap().mounts.unwrap();
        let labelled = mounts.into_iter().map(|mount| {
            let labels = mount.volume_options.and_then(|options| options.labels);
            (
                mount.target.unwrap(),
                labels.unwrap()["nightsweep.run"].clone(),
            )
        });
        labelled.collect::<Vec<_>>()
    };
    let named = |folders: &[&str]| -> Vec<(String, String)> {
        let pair = |folder: &&str| ((*folder).to_owned(), "r".to_owned());
        folders.iter().map(pair).collect()
    };
    assert_eq!(made(&service), named(&["/cache", "/var/lib/data"]));
    service.volumes_from = vec![VolumesFrom {
        service: "db".to_owned(),
        read_only: false,
    }];
    assert_eq!(made(&service), named(&["/cache"]));
}

#[test]
fn a_quota_is_passed_on_in_the_form_it_has() {
    let mut service = full_service();
    service.cpus = None;
    service.cpu_quota = Some(50_000);
    service.cpu_period = Some(20_000);
    let host = creation(&service, None).body.host_config.unwrap();
    assert_eq!(
        (host.nano_cpus, host.cpu_quota, host.cpu_period),
        (None, Some(50_000), Some(20_000))
    );
}

#[test]
fn modes_that_name_a_service_name_its_container() {
    let service = Service {
        network_mode: Some("service:web".to_owned()),
        ipc: Some("service:web".to_owned()),
        pid: Some("service:web".to_owned()),
        ..full_service()
    };
    let host = creation(&service, None).body.host_config.unwrap();
    let shared = Some("container:c0ffee".to_owned());
    assert_eq!(host.network_mode, shared);
    assert_eq!((&host.ipc_mode, &host.pid_mode), (&shared, &shared));
    let service = Service {
        pid: Some("service:none".to_owned()),
        ..full_service()
    };
    assert_eq!(
        try_creation(&service, None).unwrap_err().to_string(),
        "the container of the service `none` is used and was not made for this trial"
    );
}

#[test]
fn files_of_the_stacks_own_go_in_by_the_folder_they_can_be_written_to() {
    let content = |target: &str, text: &str| {
        mount(
            target,
            MountSource::Content {
                content: text.to_owned(),
                mode: Some(0o440),
                uid: Some("7".to_owned()),
                gid: None,
            },
            true,
        )
    };
    let service = Service {
        image: "a".to_owned(),
        read_only: true,
        mounts: vec![
            mount("/data", MountSource::Anonymous, false),
            content("/run/secrets/key", "s3cret"),
            content("/data/a/b.conf", "text"),
            content("/run/secrets/other", ""),
        ],
        ..Service::default()
    };
    let creation = creation(&service, None);
    let mut found = Vec::new();
    for (folder, archive) in &creation.files {
        for entry in tar::Archive::new(&archive[..]).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            found.push(format!(
                "{folder} {} {:o} {} {} {}",
                entry.path().unwrap().display(),
                header.mode().unwrap(),
                header.uid().unwrap(),
                header.gid().unwrap(),
                header.size().unwrap()
            ));
        }
    }
    assert_eq!(
        found,
        [
            "/run/secrets key 440 7 0 6",
            "/run/secrets other 440 7 0 0",
            "/data a/b.conf 440 7 0 4",
        ]
    );
    let mounts = creation.body.host_config.unwrap().mounts.unwrap();
    let targets: Vec<_> = mounts
        .iter()
        .filter_map(|mount| mount.target.as_deref())
        .collect();
    assert_eq!(targets, ["/data", "/run/secrets"]);
}
