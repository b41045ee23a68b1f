//! What real files contain beyond the plain cases: sharing, building, files
//! without files, ranges of addresses, and the order of several files.

use super::*;
use crate::stack::{AddressRange, Build};

#[test]
fn an_image_that_is_built_is_named_as_compose_names_it() {
    let case = Case::new(
        "name: shop\nservices:\n  app:\n    build:\n      context: ./src\n      dockerfile: Dockerfile.prod\n      target: run\n      args: {LEVEL: 3, TOKEN: }\n      cache_from: [x]\n  web: {build: ./web, image: 'web:1'}\n  tool: {build: 'https://example.com/r.git#main'}\n",
    )
    .environment("TOKEN", "t0ken-from-outside");
    let resolution = case.resolution();
    let stack = resolution.stack;
    let app = &stack.services["app"];
    assert_eq!(app.image, "shop-app");
    assert_eq!(
        app.build,
        Some(Build {
            context: case.path().join("src").display().to_string(),
            names_no_image: true,
            dockerfile: Some("Dockerfile.prod".into()),
            target: Some("run".into()),
            args: IndexMap::from([
                ("LEVEL".into(), "3".into()),
                ("TOKEN".into(), "t0ken-from-outside".into()),
            ]),
            cache_from: vec!["x".into()],
            place: app.build.as_ref().unwrap().place.clone(),
            ..Build::default()
        })
    );
    assert!(
        resolution
            .secrets
            .contains(&"t0ken-from-outside".to_owned())
    );
    let web = &stack.services["web"];
    assert_eq!(web.image, "web:1");
    assert!(
        web.build
            .as_ref()
            .is_some_and(|build| !build.names_no_image)
    );
    let tool = stack.services["tool"].build.as_ref().unwrap();
    assert_eq!(tool.context, "https://example.com/r.git#main");
    let said = stack.warnings.join("\n");
    assert!(
        said.contains("services.web.build: built only where"),
        "{said}"
    );
    assert!(
        app.build
            .as_ref()
            .unwrap()
            .place
            .ends_with("compose.yaml:4:5"),
        "{app:?}"
    );
}

#[test]
fn build_keys_are_served_or_refused_by_name() {
    for (lines, what) in [
        ("build: {context: ., contxt: a}", "did you mean `context`?"),
        (
            "build: {context: ., ssh: [default]}",
            "services.app.build.ssh: needs a builder that the Engine API alone does not offer",
        ),
        (
            "build: {dockerfile: a, dockerfile_inline: b}",
            "exclude each other",
        ),
        (
            "build: {context: }",
            "services.app.build.context: has no value",
        ),
        ("build: [a]", "must be a map, not a list"),
    ] {
        let problems = Case::app(lines).problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
}

#[test]
fn an_extended_service_is_built_where_its_own_file_stands() {
    let case = Case::app("extends: {file: base/compose.yaml, service: php}\nbuild: {args: [V=8]}")
        .file(
            "base/compose.yaml",
            "services:\n  php:\n    build: {context: ., args: {V: 7, W: 1}}\n    volumes: ['./ini:/ini:ro']\n",
        )
        .file("base/ini", "");
    let service = case.service();
    let build = service.build.unwrap();
    assert_eq!(
        build.context,
        case.path().join("base").display().to_string()
    );
    assert_eq!((&*build.args["V"], &*build.args["W"]), ("8", "1"));
    assert_eq!(
        service.mounts[0].source,
        crate::stack::MountSource::Bind {
            source: case.path().join("base/ini")
        }
    );
}

#[test]
fn replicas_come_from_either_place_and_must_agree() {
    for (lines, replicas) in [
        ("scale: 3", Some(3)),
        ("deploy: {replicas: 8}", Some(8)),
        ("deploy: {replicas: '8'}", Some(8)),
        ("scale: 2\ndeploy: {replicas: 2}", Some(2)),
        ("deploy: {replicas: 1}", None),
        ("deploy: ", None),
        ("deploy: {mode: global}", None),
    ] {
        let service = Case::app(&format!("image: a\n{lines}")).service();
        assert_eq!(service.replicas, replicas, "{lines}");
    }
    assert_eq!(
        Case::app("image: a\nscale: 2\ndeploy: {replicas: 3}").problems(),
        [
            "compose.yaml:5:24: services.app.deploy.replicas: differs from `scale` at compose.yaml:4:12\n  hint: keep one of them; in a later file `!reset null` takes the other away"
        ]
    );
    let service = Case::app("image: a\ndeploy: {replicas: '${n}'}")
        .cell("n", "4")
        .service();
    assert_eq!(service.replicas, Some(4));
}

#[test]
fn what_is_shared_with_another_service_starts_after_it() {
    let case = Case::new(
        "services:\n  app: {image: a, network_mode: 'service:db', ipc: 'service:cache', pid: host}\n  db: {image: b, ipc: shareable}\n  cache: {image: c, ipc: shareable, cgroup: private, uts: host, userns_mode: host}\n  lone: {image: d, network_mode: host}\n",
    )
    .roots(&["app"]);
    let stack = case.stack();
    assert_eq!(stack.not_started, ["lone"]);
    let app = &stack.services["app"];
    assert_eq!(app.network_mode.as_deref(), Some("service:db"));
    assert!(app.networks.is_empty());
    assert_eq!(app.depends_on.keys().collect::<Vec<_>>(), ["db", "cache"]);
    assert_eq!(app.pid.as_deref(), Some("host"));
    for (lines, what) in [
        (
            "ipc: own",
            "`own` is not a mode (allowed: host, private, shareable, none, service:NAME)",
        ),
        ("pid: 'service:'", "`service:` is not a mode"),
        (
            "pid: 'service:none'",
            "services.app.pid.none: there is no such service",
        ),
        ("uts: x", "`x` is not a mode (allowed: host)"),
        ("network_mode: 'service:app'", "in a circle: app -> app"),
    ] {
        let problems = Case::app(&format!("image: a\n{lines}")).problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
}

#[test]
fn configs_and_secrets_may_stand_in_the_file_or_in_a_variable() {
    let case = Case::new(
        "services:\n  app:\n    image: a\n    configs: [{source: nginx, target: /etc/n.conf, mode: 0440, uid: '33'}]\n    secrets: [key]\nconfigs: {nginx: {content: \"port $${p} ${port}\\n\"}}\nsecrets: {key: {environment: KEY}}\n",
    )
    .cell("port", "80")
    .environment("KEY", "s3cret-key");
    let resolution = case.resolution();
    let mounts = &resolution.stack.services["app"].mounts;
    let json = serde_json::to_value(mounts).unwrap();
    assert_eq!(
        json,
        serde_json::json!([
            {"target": "/run/secrets/key", "type": "content", "content": "s3cret-key", "read_only": true},
            {"target": "/etc/n.conf", "type": "content", "content": "port ${p} 80\n", "mode": 0o440, "uid": "33", "read_only": true},
        ])
    );
    assert_eq!(resolution.secrets, ["s3cret-key"]);
    for (definition, what) in [
        (
            "{environment: NONE}",
            "required variable `NONE` has no value",
        ),
        (
            "{external: true}",
            "is external, which only a swarm can serve",
        ),
        (
            "{}",
            "needs exactly one of `file`, `environment` and `content`",
        ),
        ("{file: a, content: b}", "needs exactly one of"),
        ("{file: none}", "none` is not a file of this host"),
        (
            "{content: x, driver: d}",
            "secrets.s.driver: belongs to a swarm",
        ),
    ] {
        let text =
            format!("services:\n  app: {{image: a, secrets: [s]}}\nsecrets: {{s: {definition}}}\n");
        let problems = Case::new(&text).problems();
        assert_eq!(problems.len(), 1, "{definition}: {problems:?}");
        assert!(problems[0].contains(what), "{definition}: {problems:?}");
    }
}

#[test]
fn ranges_of_addresses_are_kept_and_checked() {
    let case = Case::new(
        "services:\n  app: {image: a, networks: {n: {ipv4_address: 10.9.0.5, ipv6_address: 'fd00::5'}}}\nnetworks:\n  n:\n    enable_ipv6: true\n    ipam:\n      driver: default\n      config:\n        - {subnet: 10.9.0.0/24, ip_range: 10.9.0.128/25, gateway: 10.9.0.254, aux_addresses: {host: 10.9.0.1}}\n        - {subnet: 'fd00::/64'}\n",
    );
    let stack = case.stack();
    let network = &stack.networks["n"];
    assert!(network.enable_ipv6);
    assert_eq!(
        network.ipam[0],
        AddressRange {
            subnet: Some("10.9.0.0/24".into()),
            ip_range: Some("10.9.0.128/25".into()),
            gateway: Some("10.9.0.254".into()),
            aux_addresses: IndexMap::from([("host".into(), "10.9.0.1".into())]),
        }
    );
    assert_eq!(
        stack.services["app"].networks["n"].ipv6_address.as_deref(),
        Some("fd00::5")
    );
    for (ipam, what) in [
        (
            "{config: [{subnet: 10.9.0.0}]}",
            "`10.9.0.0` is not a range in CIDR form",
        ),
        (
            "{config: [{subnet: 10.9.0.0/33}]}",
            "is not a range in CIDR form",
        ),
        ("{config: [{gateway: x}]}", "`x` is not an address"),
        ("{config: [{subnets: x}]}", "did you mean `subnet`?"),
        (
            "{driver: dhcp}",
            "networks.n.ipam.driver: must be `default`",
        ),
        (
            "{options: {a: b}}",
            "networks.n.ipam.options: is for address drivers other than `default`",
        ),
    ] {
        let text = format!(
            "services:\n  app: {{image: a, networks: [n]}}\nnetworks: {{n: {{ipam: {ipam}}}}}\n"
        );
        let problems = Case::new(&text).problems();
        assert_eq!(problems.len(), 1, "{ipam}: {problems:?}");
        assert!(problems[0].contains(what), "{ipam}: {problems:?}");
    }
}

#[test]
fn devices_and_options_of_memory_file_systems_are_kept() {
    let service = Case::app(
        "image: a\ndevices: ['/dev/null:/dev/n:r', /dev/zero, {source: /dev/full, target: /dev/f}]\ntmpfs: ['/run:exec,size=64m,mode=755', /tmp]\ncpu_shares: 512\nmem_limit: 64m\nmemswap_limit: -1\noom_score_adj: -500",
    )
    .service();
    let devices: Vec<String> = service
        .devices
        .iter()
        .map(|device| format!("{} {} {}", device.source, device.target, device.permissions))
        .collect();
    assert_eq!(
        devices,
        [
            "/dev/null /dev/n r",
            "/dev/zero /dev/zero rwm",
            "/dev/full /dev/f rwm"
        ]
    );
    let crate::stack::MountSource::Tmpfs {
        size,
        mode,
        options,
    } = &service.mounts[0].source
    else {
        panic!("{:?}", service.mounts[0]);
    };
    assert_eq!(
        (*size, *mode, &**options),
        (Some(64 << 20), Some(0o755), &["exec".to_owned()][..])
    );
    assert_eq!(
        (
            service.cpu_shares,
            service.memswap_limit,
            service.oom_score_adj
        ),
        (Some(512), Some(-1), Some(-500))
    );
}

#[test]
fn options_of_mounts_and_devices_are_kept_or_refused() {
    let text = "services:\n  app: {image: a, volumes: ['d:/d:nocopy', {type: volume, source: d, target: /e, volume: {nocopy: true}}]}\nvolumes: {d: }\n";
    let mounts = &Case::new(text).stack().services["app"].mounts;
    let nocopy = crate::stack::MountSource::Volume {
        source: "d".into(),
        nocopy: true,
    };
    assert!(mounts.iter().all(|mount| mount.source == nocopy));
    for (lines, what) in [
        (
            "volumes: [{type: volume, target: /d, volume: {nocopy: true}}]",
            "`nocopy` is for named volumes only",
        ),
        (
            "volumes: [{type: tmpfs, target: /d, bind: {propagation: rslave}}]",
            "services.app.volumes[0].bind: says nothing of the type `tmpfs`",
        ),
        (
            "devices: [/dev/no-such-device]",
            "does not exist on this host",
        ),
        ("devices: ['/dev/null:/dev/null:x']", "are not permissions"),
        (
            "devices: [gpu0]",
            "`gpu0` is neither a path nor the name of a device",
        ),
        (
            "gpus: some",
            "services.app.gpus: must be `all` or a list of requests",
        ),
        ("runtime: ", "services.app.runtime: has no value"),
    ] {
        let problems = Case::app(&format!("image: a\n{lines}")).problems();
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
}

#[test]
fn ports_are_dropped_but_must_be_ports() {
    for (lines, what) in [
        (
            "ports: ['80:http']",
            "services.app.ports[0]: `80:http`: `http` is not a port",
        ),
        ("ports: [{published: 80}]", "has no `target`"),
        (
            "ports: [{target: 80, protocol: x}]",
            "`x` is not a protocol",
        ),
        (
            "ports: [{target: 80, publish: 1}]",
            "did you mean `published`?",
        ),
        ("ports: ['${NONE}']", "services.app.ports[0]: is empty"),
        ("ports: ['80:${NONE}']", "hint: give `NONE` a value"),
        (
            "expose: [a]",
            "services.app.expose[0]: `a`: `a` is not a port",
        ),
    ] {
        let problems = Case::app(&format!("image: a\n{lines}")).problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
    let lines = "image: a\nports: [80, '81:81', ':82', {target: 83, published: '8000-8010', host_ip: 127.0.0.1, mode: host, name: web, app_protocol: http}]\nexpose: [80, '81/udp', '82-84']";
    assert_eq!(Case::app(lines).stack().warnings.len(), 1);
}

#[test]
fn rights_over_the_host_and_keys_of_windows_are_said() {
    let said = Case::app(
        "image: a\nprivileged: true\ncpu_count: 2\nhealthcheck: {test: x, start_interval: 1s}",
    )
    .stack()
    .warnings
    .join("\n");
    for words in [
        "services.app.privileged: has all rights",
        "services.app.cpu_count: an engine takes it on Windows only",
        "start_interval: an engine before version 25",
    ] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn every_value_can_be_traced_to_its_place() {
    let case = Case::new(
        "x-base: &base {restart: no}\nservices:\n  app:\n    <<: *base\n    image: app:${tag:-1}\n    environment: ['A=${cpus}', B]\n    env_file: a.env\n    deploy: {resources: {limits: {cpus: '${cpus}'}}}\n    volumes: ['d:/d']\n    healthcheck: {test: x}\nvolumes: {d: }\n",
    )
    .compose("later.yaml", "services:\n  app:\n    healthcheck: {interval: 1s}\n    mem_limit: ${MEM}\n")
    .file("a.env", "FROM_FILE=1\n")
    .file(".env", "MEM=64m\n")
    .cell("cpus", "2")
    .environment("B", "b");
    let files = case.files();
    let cell = IndexMap::from([("cpus".to_owned(), "2".to_owned())]);
    let environment = BTreeMap::from([("B".to_owned(), "b".to_owned())]);
    let request = ResolveRequest {
        cell: &cell,
        environment: &environment,
        roots: &[],
        profiles: &[],
        shared: &[],
    };
    let stack = files.resolve(&request).unwrap().stack;
    let origins = files.explain(&request, &stack);
    let folder = format!("{}/", case.path().display());
    for (path, expected) in [
        ("services.app.image", "compose.yaml:5:12 with tag (default)"),
        (
            "services.app.environment.A",
            "compose.yaml:6:19 with cpus (set)",
        ),
        (
            "services.app.environment.B",
            "compose.yaml:6:32 with B (environment)",
        ),
        ("services.app.environment.FROM_FILE", "compose.yaml:7:15"),
        ("services.app.cpus", "compose.yaml:8:41 with cpus (set)"),
        ("services.app.mounts./d", "compose.yaml:9:15"),
        ("services.app.healthcheck.test", "compose.yaml:10:25"),
        ("services.app.healthcheck.interval", "later.yaml:3:29"),
        ("services.app.mem_limit", "later.yaml:4:16 with MEM (.env)"),
    ] {
        let found = origins
            .get(path)
            .map(|origin| origin.to_string().replace(&folder, ""));
        assert_eq!(found.as_deref(), Some(expected), "{path}");
    }
}
