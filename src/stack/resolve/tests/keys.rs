//! Key by key: what each becomes, and what is refused.

use proptest::prelude::*;

use super::*;

#[test]
fn a_stack_is_written_with_the_names_of_the_specification() {
    let case = Case::new(
        r#"
services:
  app:
    image: app:${tag:-1}
    command: serve --port 8080 "a b"
    environment: {WEB_THREADS: "${web}"}
    cpus: ${cpus}
    depends_on: {db: {condition: service_healthy}}
    container_name: my-app
    ports: ["8080:8080"]
    restart: always
    networks: {front: {aliases: [api]}, back: }
    stop_grace_period: 1m30s
  db:
    image: postgres:17
    shm_size: 128m
    networks: [back]
    volumes: ["data:/var/lib/postgresql/data"]
    healthcheck: {test: pg_isready, interval: 500ms, retries: 3}
volumes: {data: }
networks:
  front:
  back: {internal: true}
"#,
    )
    .cell("cpus", "0.5")
    .cell("web", "4");
    let json = serde_json::to_value(case.stack()).unwrap();
    // One service, network and volume a line; what is empty or false is left out.
    let mut lines = Vec::new();
    for (section, elements) in json.as_object().unwrap() {
        for (name, element) in elements.as_object().into_iter().flatten() {
            let mut element = element.clone();
            element.as_object_mut().unwrap().retain(|_, value| {
                *value != false
                    && *value != serde_json::json!({})
                    && *value != serde_json::json!([])
            });
            lines.push(format!("{section}.{name} {element}"));
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    services.app {"image":"app:1","command":["serve","--port","8080","a b"],"environment":{"WEB_THREADS":"4"},"cpus":0.5,"depends_on":{"db":{"condition":"service_healthy","required":true}},"networks":{"front":{"aliases":["app","my-app","api"]},"back":{"aliases":["app","my-app"]}},"stop_grace_period":"90s"}
    services.db {"image":"postgres:17","healthcheck":{"test":["CMD-SHELL","pg_isready"],"interval":"0.5s","retries":3},"mounts":[{"target":"/var/lib/postgresql/data","type":"volume","source":"data","read_only":false}],"networks":{"back":{"aliases":["db"]}},"shm_size":134217728}
    networks.front {}
    networks.back {"internal":true}
    volumes.data {}
    "#);
}

#[test]
fn commands_are_words_or_lists() {
    let service = Case::app("image: a\ncommand: sh -c 'x && y'\nentrypoint: []").service();
    assert_eq!(service.command.unwrap(), ["sh", "-c", "x && y"]);
    assert_eq!(service.entrypoint.unwrap(), Vec::<String>::new());
    let service = Case::app("image: a\ncommand: [--port, 8080]\nentrypoint: null").service();
    assert_eq!(service.command.unwrap(), ["--port", "8080"]);
    assert_eq!(service.entrypoint, None);
    assert_eq!(
        Case::app("image: a\ncommand: x && y").problems(),
        [
            "compose.yaml:4:14: services.app.command: `&` outside quotes needs a shell, and none runs here\n  hint: write a list, such as [\"sh\", \"-c\", \"...\"]"
        ]
    );
}

#[test]
fn healthchecks_have_four_forms() {
    for (yaml, test) in [
        ("{test: curl x}", vec!["CMD-SHELL", "curl x"]),
        ("{test: [CMD, a, b]}", vec!["CMD", "a", "b"]),
        ("{test: [CMD-SHELL, a b]}", vec!["CMD-SHELL", "a b"]),
        ("{test: [NONE]}", vec!["NONE"]),
        ("{disable: true}", vec!["NONE"]),
        ("{disable: false, interval: 1s}", vec![]),
    ] {
        let service = Case::app(&format!("image: a\nhealthcheck: {yaml}")).service();
        assert_eq!(service.healthcheck.unwrap().test, test, "{yaml}");
    }
    for yaml in [
        "{test: [a, b]}",
        "{test: []}",
        "{test: ''}",
        "{interval: 5}",
        "{retries: -1}",
        "{tests: a}",
        "[a]",
    ] {
        assert_eq!(
            Case::app(&format!("image: a\nhealthcheck: {yaml}"))
                .problems()
                .len(),
            1,
            "{yaml}"
        );
    }
}

#[test]
fn limits_of_both_places_agree_or_are_refused() {
    let deploy = "deploy: {resources: {limits: {cpus: '2', memory: 512M, pids: 10}, reservations: {memory: 256M}}}";
    let service = Case::app(&format!("image: a\n{deploy}")).service();
    assert_eq!(
        (service.cpus, service.mem_limit, service.pids_limit),
        (Some(2.0), Some(512 << 20), Some(10))
    );
    assert_eq!(service.mem_reservation, Some(256 << 20));
    let service = Case::app(&format!("image: a\ncpus: 2.0\n{deploy}")).service();
    assert_eq!(service.cpus, Some(2.0));
    assert_eq!(
        Case::app(&format!("image: a\ncpus: 1\n{deploy}")).problems(),
        [
            "compose.yaml:5:41: services.app.deploy.resources.limits.cpus: differs from `cpus` at compose.yaml:4:11\n  hint: keep one of them; in a later file `!reset null` takes the other away"
        ]
    );
}

#[test]
fn limits_that_no_engine_takes_are_refused() {
    for (line, what) in [
        ("cpus: -1", "`-1` is less than 0.01 cores"),
        ("cpus: .inf", "`.inf` is not a number"),
        ("cpus: two", "`two` is not a number"),
        ("cpus: ''", "`` is not a number"),
        ("cpus:", "services.app.cpus: has no value"),
        (
            "deploy: {resources: {limits: {memory: }}}",
            "limits.memory: has no value",
        ),
        ("cpus: [1]", "must be a number, not a list"),
        (
            "mem_limit: 1",
            "1 bytes are less than the 6 MiB an engine needs",
        ),
        ("mem_limit: -5m", "`-5m` is not a size"),
        (
            "mem_limit: 512",
            "512 bytes are less than the 6 MiB an engine needs",
        ),
        ("pids_limit: -2", "`-2` is not a count"),
        ("cpuset: a-b", "`a-b` is not a list of CPUs"),
        ("cpuset: 3-1", "`3-1` is not a list of CPUs"),
        ("scale: -1", "`-1` is out of range (allowed: 0 to 1000)"),
        ("deploy: {replicas: two}", "`two` is not a whole number"),
        (
            "deploy: {mode: replicated-job}",
            "must be `replicated` or `global`: jobs belong to a swarm",
        ),
        (
            "healthcheck: {test: x, interval: 999us}",
            "is less than 1ms, which no engine takes",
        ),
        ("mem_swappiness: 101", "out of range (allowed: 0 to 100)"),
        ("memswap_limit: 64m", "needs `mem_limit` beside it"),
    ] {
        let problems = Case::app(&format!("image: a\n{line}")).problems();
        assert!(problems[0].contains(what), "{line}: {problems:?}");
        assert!(
            problems[0].starts_with("compose.yaml:4:"),
            "{line}: {problems:?}"
        );
    }
    let service = Case::app("image: a\npids_limit: -1\ncpuset: 0-1,3\nscale: 1").service();
    assert_eq!(
        (service.pids_limit, service.cpuset.as_deref()),
        (None, Some("0-1,3"))
    );
}

#[test]
fn nothing_is_ignored_without_a_word() {
    assert_eq!(
        Case::app(
            "image: a\nuse_api_socket: true\ndepends: [b]\nimagee: x\nx-own: 1\nnetwork_mode: odd"
        )
        .problems(),
        [
            "compose.yaml:4:5: services.app.use_api_socket: would hand the engine and the user's registry credentials to the service\n  hint: mount the engine's socket read only under `volumes` if that is meant",
            "compose.yaml:5:5: services.app.depends: there is no such key\n  hint: did you mean `depends_on`?",
            "compose.yaml:6:5: services.app.imagee: there is no such key\n  hint: did you mean `image`?",
            "compose.yaml:8:19: services.app.network_mode: `odd` is not a mode (allowed: none, host, bridge, service:NAME)",
        ]
    );
    let stack = Case::app("image: a\nbuild: .\nports: ['1:1']\nrestart: always\nlogging: {driver: x}\nexpose: [1]\npull_policy: always\ncontainer_name: c\ndeploy: {restart_policy: {condition: any}}").stack();
    let said: Vec<&str> = stack
        .warnings
        .iter()
        .map(|text| text.split(':').next().unwrap())
        .collect();
    assert_eq!(
        said,
        [
            "services.app.ports",
            "services.app.restart, services.app.deploy.restart_policy",
            "services.app.logging",
            "services.app.build",
            "services.app.container_name",
        ]
    );
    assert!(
        Case::app("image: a\nrestart: no\npull_policy: missing\ninit: true")
            .stack()
            .warnings
            .is_empty()
    );
}

#[test]
fn networks_carry_the_names_a_service_answers_to() {
    let case = Case::new(
        "services:\n  app: {image: a, links: ['db:database', cache]}\n  db: {image: b, container_name: pg}\n  cache: {image: c, networks: {default: {ipv4_address: 10.9.0.5, aliases: [redis]}}}\n  alone: {image: d, network_mode: none}\nnetworks: {default: {ipam: {config: [{subnet: 10.9.0.0/24}]}}}\n",
    );
    let stack = case.stack();
    let aliases = |service: &str| {
        stack.services[service].networks["default"]
            .aliases
            .join(" ")
    };
    assert_eq!(aliases("db"), "db pg database");
    assert_eq!(aliases("cache"), "cache redis");
    assert_eq!(
        stack.services["cache"].networks["default"]
            .ipv4_address
            .as_deref(),
        Some("10.9.0.5")
    );
    assert_eq!(
        stack.networks["default"].ipam[0].subnet.as_deref(),
        Some("10.9.0.0/24")
    );
    assert!(stack.services["app"].depends_on.contains_key("db"));
    let alone = &stack.services["alone"];
    assert!(alone.networks.is_empty() && alone.network_mode.as_deref() == Some("none"));
}

#[test]
fn networks_that_cannot_be_are_refused() {
    for (lines, what) in [
        ("networks: [x]", "networks.x: this network is not declared"),
        (
            "network_mode: 'container:db'",
            "`container:db` is a container outside the stack",
        ),
        (
            "network_mode: 'service:dbb'",
            "services.app.network_mode.dbb: there is no such service",
        ),
        ("network_mode: odd", "`odd` is not a mode"),
        (
            "network_mode: none\nnetworks: [default]",
            "cannot stand beside `network_mode`",
        ),
        (
            "networks: {default: {ipv4_address: 1.2.3}}",
            "`1.2.3` is not an IPv4 address",
        ),
        (
            "networks: {default: {alias: [x]}}",
            "did you mean `aliases`?",
        ),
        ("links: ['db:app']", "would name two services"),
        (
            "links: [db]\nnetwork_mode: none",
            "`db` is on none of the networks of `app`",
        ),
    ] {
        let indented = indented(lines);
        let problems = Case::new(&format!(
            "services:\n  db: {{image: b}}\n  app:\n    image: a\n{indented}"
        ))
        .problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
}

#[test]
fn what_a_process_may_do_is_passed_on() {
    let service = Case::app(
        "image: a\nuser: '1000:1000'\nworking_dir: /w\nhostname: h\nprivileged: true\nread_only: yes\ntty: true\nstdin_open: 'true'\nstop_signal: SIGQUIT\nulimits: {nofile: {soft: 1, hard: 2}, memlock: -1}\nsysctls: [net.core.somaxconn=1024]\nextra_hosts: ['a:1.2.3.4', 'b=::1', 'c:host-gateway', 'd:[::2]']\ncap_add: [NET_ADMIN]\ncap_drop: [ALL]\nsecurity_opt: ['no-new-privileges:true']\nlabels: [a=1, b]\ndns: 1.1.1.1\nplatform: linux/amd64",
    )
    .service();
    assert_eq!(service.user.as_deref(), Some("1000:1000"));
    assert!(service.privileged && service.read_only && service.tty && service.stdin_open);
    assert_eq!(service.ulimits["nofile"], (1, 2));
    assert_eq!(service.ulimits["memlock"], (-1, -1));
    assert_eq!(service.sysctls["net.core.somaxconn"], "1024");
    assert_eq!(
        service.extra_hosts,
        ["a:1.2.3.4", "b:::1", "c:host-gateway", "d:::2"]
    );
    assert_eq!(service.labels["b"], "");
    assert_eq!(service.security_opt, ["no-new-privileges:true"]);
    assert_eq!(
        (service.dns, service.platform.as_deref()),
        (vec!["1.1.1.1".to_owned()], Some("linux/amd64"))
    );
    assert!(
        Case::app("image: a\nlabels: {nightsweep.run: x}").problems()[0]
            .contains("keeps for itself")
    );
}

#[test]
fn images_are_references() {
    for image in [
        "a",
        "a:1.2-b",
        "r.io:5000/Ns/a",
        "host/a/b:t",
        "a@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ] {
        let stack = Case::app(&format!("image: {image}")).stack();
        assert_eq!(stack.services["app"].image, image);
        assert_eq!(stack.warnings.len(), usize::from(image.contains("/Ns/")));
    }
    // Compose takes them; whoever launches them will not.
    for image in ["'a:'", "':1'", "'a b'", "A", "a//b", "'a:|1|'"] {
        let stack = Case::app(&format!("image: {image}")).stack();
        assert!(
            stack.warnings[0].contains("is not an image reference"),
            "{image}"
        );
    }
    for image in ["{$IMAGE}", "''", "'a:${NONE}'", "'${NONE}'", ""] {
        let problems = Case::app(&format!("image: {image}")).problems();
        assert_eq!(problems.len(), 1, "{image}: {problems:?}");
    }
    assert_eq!(
        Case::app("image: a:${TAG}").problems(),
        [
            "compose.yaml:3:12: services.app.image: `a:` is not an image reference such as postgres:17\n  hint: give `TAG` a value"
        ]
    );
    assert!(
        Case::app("cpus: 1").problems()[0]
            .contains("services.app: has neither `image` nor `build`")
    );
}

#[test]
fn secrets_and_configs_from_files_are_mounted_read_only_and_hidden() {
    let case = Case::new(
        "services:\n  app:\n    image: a\n    secrets: [pw, {source: pw, target: other}]\n    configs: [{source: conf, target: /etc/c}]\nsecrets: {pw: {file: ./pw.txt}}\nconfigs: {conf: {file: c}}\n",
    )
    .file("pw.txt", "hunter2\n")
    .file("c", "x");
    let resolution = case.resolution();
    let targets: Vec<&str> = resolution.stack.services["app"]
        .mounts
        .iter()
        .map(|mount| mount.target.as_str())
        .collect();
    assert_eq!(targets, ["/run/secrets/pw", "/run/secrets/other", "/etc/c"]);
    assert_eq!(resolution.secrets, ["hunter2"]);
    assert!(Case::app("image: a\nsecrets: [x]").problems()[0].contains("`x` is not declared"));
}

#[test]
fn resolving_a_thousand_cells_reads_the_compose_files_once() {
    let case = Case::app("image: a\ncpus: ${cpus}\nenvironment: {W: '${web}'}");
    let files = case.files();
    fs_err::remove_file(case.path().join("compose.yaml")).unwrap();
    for web in 1..1_000 {
        let case = Case::app("")
            .cell("cpus", "2")
            .cell("web", &web.to_string());
        let stack = case.resolve_files(&files).unwrap().stack;
        assert_eq!(stack.services["app"].environment["W"], web.to_string());
    }
}

const SEED: &str = "x-base: &base\n  restart: no\nservices:\n  app:\n    <<: *base\n    image: a:${tag:-1}\n    command: [a, 'b c']\n    environment: [A=1, B]\n    cpus: ${cpus}\n    depends_on: {db: {condition: service_healthy}}\n    volumes: ['data:/d', '/x']\n    healthcheck: {test: x, interval: 1s}\n    deploy: {resources: {limits: {memory: 64m}}}\n  db:\n    image: b\n    extends: {service: app}\n    networks: {n: {aliases: [x]}}\nvolumes: {data: {driver_opts: {type: tmpfs}}}\nnetworks: {n: {ipam: {config: [{subnet: 10.0.0.0/8}]}}}\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_mutation_of_a_file_panics(
        edits in prop::collection::vec((0..SEED.len(), 0_usize..6, "[ -~\n]{0,3}"), 1..6)
    ) {
        let mut bytes = SEED.to_owned();
        for (at, cut, insert) in edits {
            let start = at.min(bytes.len());
            let end = (start + cut).min(bytes.len());
            bytes.replace_range(start..end, &insert);
        }
        let case = Case::new(&bytes).cell("cpus", "1");
        if let Ok(files) = ComposeFiles::read(&case.compose) {
            let _ = files.variables();
            let _ = case.resolve_files(&files);
        }
    }
}

#[test]
fn a_limit_of_0_is_none_and_said() {
    let said = "0 sets no limit: the service may use all that the host has (remove the key if that \
                is meant)";
    for (lines, keys) in [
        ("cpus: 0", "services.app.cpus"),
        ("mem_limit: 0", "services.app.mem_limit"),
        ("mem_limit: 0b", "services.app.mem_limit"),
        ("pids_limit: 0", "services.app.pids_limit"),
        (
            "deploy: {resources: {limits: {cpus: '0', memory: 0m, pids: 0}}}",
            "services.app.deploy.resources.limits.cpus, services.app.deploy.resources.limits.memory, \
             services.app.deploy.resources.limits.pids",
        ),
    ] {
        let stack = Case::app(&format!("image: a\n{lines}")).stack();
        let service = &stack.services["app"];
        let limits = (service.cpus, service.mem_limit, service.pids_limit);
        assert_eq!(limits, (None, None, None), "{lines}");
        assert_eq!(stack.warnings, [format!("{keys}: {said}")], "{lines}");
    }
}

#[test]
fn hosts_of_a_list_and_of_a_map_meet() {
    for (earlier, later, expected) in [
        (
            "['a:1.2.3.4', 'b=::1']",
            "{c: 5.6.7.8}",
            ["a:1.2.3.4", "b:::1", "c:5.6.7.8"],
        ),
        (
            "{a: 1.2.3.4, b: '::1'}",
            "['c:5.6.7.8']",
            ["a:1.2.3.4", "b:::1", "c:5.6.7.8"],
        ),
        (
            "['a:1.1.1.1', 'b:[::1]']",
            "{a: [1.2.3.4, '::2']}",
            ["a:1.2.3.4", "a:::2", "b:::1"],
        ),
    ] {
        for build in [false, true] {
            let text = |hosts: &str| {
                if build {
                    format!("image: a\nbuild: {{context: ., extra_hosts: {hosts}}}")
                } else {
                    format!("image: a\nextra_hosts: {hosts}")
                }
            };
            let second = format!("services:\n  app:\n{}", indented(&text(later)));
            let service = Case::app(&text(earlier))
                .compose("b.yaml", &second)
                .service();
            let hosts = match service.build {
                Some(build) => build.extra_hosts,
                None => service.extra_hosts,
            };
            assert_eq!(hosts, expected, "{earlier} + {later}");
        }
    }
    let problems = Case::app("image: a\nextra_hosts: [a]")
        .compose("b.yaml", "services:\n  app: {extra_hosts: {b: '1', c: }}\n")
        .problems();
    assert_eq!(
        problems,
        [
            "compose.yaml:4:19: services.app.extra_hosts.a[0]: `a:` is not name:address",
            "b.yaml:2:31: services.app.extra_hosts.c: `c:` is not name:address",
        ]
    );
}
