//! Keys that few files use: what each becomes, and what is said of it.

use super::*;
use crate::stack::{Condition, DeviceRequest, Hook, VolumesFrom};

#[test]
fn a_quota_is_kept_in_its_own_form_and_is_a_limit_in_cores() {
    for (lines, quota, period, cores) in [
        ("cpu_quota: 50000", Some(50_000), None, Some(0.5)),
        (
            "cpu_quota: '25000'\ncpu_period: 10000",
            Some(25_000),
            Some(10_000),
            Some(2.5),
        ),
        (
            "cpu_quota: 50ms\ncpu_period: 20ms",
            Some(50_000),
            Some(20_000),
            Some(2.5),
        ),
        ("cpu_quota: -1", None, None, None),
        ("cpu_quota: 0\ncpus: 2", None, None, Some(2.0)),
        ("cpu_period: 20000", None, Some(20_000), None),
    ] {
        let service = Case::app(&format!("image: a\n{lines}")).service();
        assert_eq!(service.cpu_quota, quota, "{lines}");
        assert_eq!(service.cpu_period, period, "{lines}");
        assert_eq!(service.cpu_cores(), cores, "{lines}");
    }
    let stack = Case::app("image: a\ncpu_period: 20000").stack();
    assert_eq!(
        said(&stack, "cpu_period"),
        "a period without `cpu_quota` is no limit"
    );
}

#[test]
fn a_quota_that_no_engine_takes_is_refused() {
    for (lines, what) in [
        (
            "cpus: 1\ncpu_quota: 50000",
            "services.app.cpu_quota: cannot stand beside `cpus`",
        ),
        (
            "deploy: {resources: {limits: {cpus: '1'}}}\ncpu_period: 50000",
            "services.app.cpu_period: cannot stand beside `cpus`",
        ),
        ("cpu_quota: 999", "999 us are out of range"),
        (
            "cpu_period: 2s\ncpu_quota: 1s",
            "2000000 us are out of range (allowed: 1000 us to 1000000 us)",
        ),
        ("cpu_period: 1.5", "`1.5` is not a whole number"),
        (
            "cpu_rt_runtime: 2s\ncpu_rt_period: 1s",
            "is longer than `cpu_rt_period`",
        ),
    ] {
        let problems = Case::app(&format!("image: a\n{lines}")).problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
}

#[test]
fn an_override_replaces_a_quota() {
    let stack = Case::app("image: a\ncpu_quota: 50000")
        .compose(
            "b.yaml",
            "services:\n  app: {cpu_quota: !reset null, cpus: 2}\n",
        )
        .stack();
    assert_eq!(stack.services["app"].cpu_cores(), Some(2.0));
}

#[test]
fn real_time_limits_are_microseconds_or_durations() {
    let stack = Case::app("image: a\ncpu_rt_runtime: '400ms'\ncpu_rt_period: 1400000").stack();
    let service = &stack.services["app"];
    assert_eq!(
        (service.cpu_rt_runtime, service.cpu_rt_period),
        (Some(400_000), Some(1_400_000))
    );
    assert!(said(&stack, "cpu_rt_runtime").contains("real-time group scheduling"));
}

#[test]
fn block_devices_are_limited_by_path() {
    let stack = Case::app(
        "image: a\nblkio_config:\n  weight: 300\n  weight_device: [{path: /dev/sda, weight: 400}]\n  device_read_bps: [{path: /dev/sdb, rate: '12mb'}]\n  device_read_iops: [{path: /dev/sdb, rate: 120}]\n  device_write_bps: [{path: /dev/sdb, rate: '1024k'}]\n  device_write_iops: [{path: /dev/sdb, rate: 30}]",
    )
    .stack();
    let block_io = stack.services["app"].blkio_config.clone().unwrap();
    assert_eq!(block_io.weight, Some(300));
    assert_eq!(block_io.weight_device["/dev/sda"], 400);
    assert_eq!(block_io.device_read_bps["/dev/sdb"], 12 << 20);
    assert_eq!(block_io.device_write_bps["/dev/sdb"], 1 << 20);
    assert_eq!(block_io.device_read_iops["/dev/sdb"], 120);
    assert_eq!(block_io.device_write_iops["/dev/sdb"], 30);
    assert!(said(&stack, "blkio_config.weight").contains("scheduler"));
    // A later file adds devices and wins over the same one.
    let stack = Case::app(
        "image: a\nblkio_config: {device_read_iops: [{path: /dev/a, rate: 1}, {path: /dev/b, rate: 2}]}",
    )
    .compose(
        "b.yaml",
        "services: {app: {blkio_config: {weight: 10, device_read_iops: [{path: /dev/a, rate: 9}]}}}\n",
    )
    .stack();
    let block_io = stack.services["app"].blkio_config.clone().unwrap();
    assert_eq!(
        (
            block_io.device_read_iops["/dev/a"],
            block_io.device_read_iops["/dev/b"]
        ),
        (9, 2)
    );
    assert_eq!(block_io.weight, Some(10));
}

#[test]
fn block_devices_with_mistakes_are_refused() {
    for (config, what) in [
        ("{weight: 5}", "`5` is out of range (allowed: 10 to 1000)"),
        ("{weights: 5}", "did you mean `weight`?"),
        (
            "{device_read_bps: [{path: /dev/a}]}",
            "services.app.blkio_config.device_read_bps[0]: needs both `path` and `rate`",
        ),
        (
            "{device_read_iops: [{path: /dev/a, rate: 0}]}",
            "must be more than 0",
        ),
        (
            "{device_write_bps: [{path: /dev/a, rate: x}]}",
            "`x` is not a size",
        ),
    ] {
        let problems = Case::app(&format!("image: a\nblkio_config: {config}")).problems();
        assert_eq!(problems.len(), 1, "{config}: {problems:?}");
        assert!(problems[0].contains(what), "{config}: {problems:?}");
    }
}

#[test]
fn annotations_are_pairs_and_an_old_engine_is_warned_of() {
    for lines in ["[a=1, b]", "{a: 1, b: }"] {
        let stack = Case::app(&format!("image: a\nannotations: {lines}"))
            .compose("b.yaml", "services: {app: {annotations: {c: x}}}\n")
            .stack();
        let annotations = &stack.services["app"].annotations;
        assert_eq!(annotations["a"], "1");
        assert_eq!(annotations["b"], "");
        assert_eq!(annotations["c"], "x");
        assert_eq!(
            said(&stack, "annotations"),
            "an engine before version 24 (API 1.43) drops them"
        );
    }
}

#[test]
fn labels_of_files_come_first_and_later_files_win() {
    let case = Case::app("image: a\nlabel_file: [./one.env, ./two.env]\nlabels: {c: own}")
        .file("one.env", "a=1\nb=1\n")
        .file("two.env", "b=\"2 ${tag}\"\nc=2\n")
        .cell("tag", "t");
    let labels = case.service().labels;
    assert_eq!(
        (&*labels["a"], &*labels["b"], &*labels["c"]),
        ("1", "2 t", "own")
    );
    let service = Case::app("image: a\nlabel_file: one.env")
        .file("one.env", "a=1\n")
        .service();
    assert_eq!(service.labels["a"], "1");
    let problems = Case::app("image: a\nlabel_file: none.env").problems();
    assert!(problems[0].contains("services.app.label_file: cannot be read"));
    let problems = Case::app("image: a\nlabel_file: own.env")
        .file("own.env", "nightsweep.run=x\n")
        .problems();
    assert!(problems[0].contains("services.app.label_file: `nightsweep.run` is a name"));
}

#[test]
fn raw_files_of_variables_are_taken_as_they_stand() {
    let case = Case::app("image: a\nenv_file: [{path: raw.env, format: raw}]")
        .file(
            "raw.env",
            "# a comment\nQUOTED=\"x\"\n DOLLAR=$HOME ${x}\nEMPTY=\nOUTSIDE\nABSENT\n",
        )
        .environment("OUTSIDE", "there");
    let environment = case.service().environment;
    let pairs: Vec<String> = environment
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        pairs,
        [
            "QUOTED=\"x\"",
            "DOLLAR=$HOME ${x}",
            "EMPTY=",
            "OUTSIDE=there"
        ]
    );
    let problems = Case::app("image: a\nenv_file: [{path: raw.env, format: json}]")
        .file("raw.env", "")
        .problems();
    assert!(problems[0].contains("must be `raw`"), "{problems:?}");
}

#[test]
fn volumes_of_another_service_make_it_start_first() {
    let stack = Case::new(
        "services:\n  app: {image: a, volumes_from: [data, 'more:ro']}\n  data: {image: b, profiles: [off]}\n  more: {image: c}\n",
    )
    .roots(&["app"])
    .profiles(&["off"])
    .stack();
    let service = &stack.services["app"];
    let from = |service: &str, read_only| VolumesFrom {
        service: service.into(),
        read_only,
    };
    assert_eq!(
        service.volumes_from,
        [from("data", false), from("more", true)]
    );
    assert_eq!(
        service.depends_on["data"].condition,
        Condition::ServiceStarted
    );
    assert_eq!(stack.services.len(), 3);
    assert_eq!(service.shares_with().collect::<Vec<_>>(), ["data", "more"]);
    for (item, what) in [
        (
            "'container:pg'",
            "`container:pg` is a container outside the stack",
        ),
        ("'b:rx'", "`rx` is not a mode (allowed: ro, rw)"),
        (
            "none",
            "services.app.volumes_from.none: there is no such service",
        ),
    ] {
        let problems = Case::new(&format!(
            "services:\n  app: {{image: a, volumes_from: [{item}]}}\n  b: {{image: b}}\n"
        ))
        .problems();
        assert_eq!(problems.len(), 1, "{item}: {problems:?}");
        assert!(problems[0].contains(what), "{item}: {problems:?}");
    }
}

#[test]
fn a_circle_of_volumes_is_named() {
    let problems = Case::new(
        "services:\n  a: {image: a, volumes_from: [b]}\n  b: {image: b, volumes_from: ['a:ro']}\n",
    )
    .problems();
    assert_eq!(
        problems,
        ["compose.yaml:2:32: services wait for each other in a circle: a -> b -> a"]
    );
}

#[test]
fn hooks_after_the_start_are_kept_and_those_before_the_stop_are_dropped() {
    let stack = Case::app(
        "image: a\npost_start:\n  - {command: 'chown -R 1:1 /d', user: root, privileged: true}\n  - {command: [sh, -c, 'a && b'], working_dir: /w, environment: [A=1, B]}\npre_stop: [{command: flush}]",
    )
    .environment("B", "2")
    .stack();
    assert_eq!(
        stack.services["app"].post_start,
        [
            Hook {
                command: ["chown", "-R", "1:1", "/d"].map(str::to_owned).to_vec(),
                user: Some("root".into()),
                privileged: true,
                ..Hook::default()
            },
            Hook {
                command: ["sh", "-c", "a && b"].map(str::to_owned).to_vec(),
                working_dir: Some("/w".into()),
                environment: IndexMap::from([("A".into(), "1".into()), ("B".into(), "2".into())]),
                ..Hook::default()
            },
        ]
    );
    assert_eq!(
        said(&stack, "pre_stop"),
        "not run: a trial's containers are removed by force, and their data with them"
    );
    for (hook, what) in [
        (
            "{user: root}",
            "services.app.post_start[0]: has no `command`",
        ),
        (
            "{command: []}",
            "services.app.post_start[0].command: is empty",
        ),
        ("{command: a && b}", "`&` outside quotes needs a shell"),
        ("{command: a, cmd: b}", "did you mean `command`?"),
        ("x", "must be a map, not a single value"),
    ] {
        for key in ["post_start", "pre_stop"] {
            let problems = Case::app(&format!("image: a\n{key}: [{hook}]")).problems();
            assert_eq!(problems.len(), 1, "{key} {hook}: {problems:?}");
            let what = what.replace("post_start", key);
            assert!(problems[0].contains(&what), "{key} {hook}: {problems:?}");
        }
    }
}

#[test]
fn hooks_of_later_files_come_after_those_of_earlier_ones() {
    let service = Case::app("image: a\npost_start: [{command: one}]")
        .compose(
            "b.yaml",
            "services: {app: {post_start: [{command: two}]}}\n",
        )
        .service();
    let commands: Vec<&str> = service
        .post_start
        .iter()
        .map(|hook| &*hook.command[0])
        .collect();
    assert_eq!(commands, ["one", "two"]);
}

#[test]
fn gpus_and_reserved_devices_are_one_list() {
    let gpu = |driver: Option<&str>, count, ids: &[&str], capabilities: &[&str]| DeviceRequest {
        driver: driver.map(str::to_owned),
        count,
        device_ids: ids.iter().map(ToString::to_string).collect(),
        capabilities: capabilities.iter().map(ToString::to_string).collect(),
        options: IndexMap::new(),
    };
    for (lines, requests) in [
        ("gpus: all", vec![gpu(None, Some(-1), &[], &["gpu"])]),
        (
            "gpus: [{driver: nvidia, count: 2}, {device_ids: ['0', '3'], capabilities: [compute]}]",
            vec![
                gpu(Some("nvidia"), Some(2), &[], &["gpu"]),
                gpu(None, None, &["0", "3"], &["compute", "gpu"]),
            ],
        ),
        (
            "deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: all}]}}}",
            vec![gpu(None, Some(-1), &[], &["gpu"])],
        ),
        (
            "deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}",
            vec![gpu(Some("nvidia"), Some(-1), &[], &["gpu"])],
        ),
        (
            "devices: ['vendor.com/gpu=0', /dev/null]",
            vec![gpu(Some("cdi"), None, &["vendor.com/gpu=0"], &[])],
        ),
    ] {
        let service = Case::app(&format!("image: a\n{lines}")).service();
        assert_eq!(service.gpus, requests, "{lines}");
    }
    for (lines, what) in [
        (
            "gpus: [{count: 1, device_ids: ['0']}]",
            "services.app.gpus[0].count: cannot stand beside `device_ids`",
        ),
        ("gpus: [{count: -2}]", "`-2` is not a count"),
        ("gpus: [{cont: 1}]", "did you mean `count`?"),
        (
            "deploy: {resources: {reservations: {devices: [{count: 1}]}}}",
            "needs `capabilities`, such as [gpu], or a `driver`",
        ),
    ] {
        let problems = Case::app(&format!("image: a\n{lines}")).problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
    }
}

#[test]
fn keys_without_effect_here_are_said_and_those_without_a_launch_say_why() {
    let stack = Case::app(
        "image: a\nisolation: hyperv\ncredential_spec: {file: x}\npull_refresh_after: 1d\ncgroup_parent: bench\nattach: false\ndevelop: {watch: []}\nuse_api_socket: false\ndeploy: {resources: {reservations: {generic_resources: [{discrete_resource_spec: {kind: SSD, value: 1}}]}}}",
    )
    .stack();
    for key in ["isolation", "credential_spec"] {
        assert!(
            said(&stack, key).contains("Windows"),
            "{:?}",
            stack.warnings
        );
    }
    assert!(said(&stack, "pull_refresh_after").contains("stays the same"));
    assert!(said(&stack, "cgroup_parent").contains("fails the trial"));
    assert!(said(&stack, "develop").contains("no effect"));
    assert!(
        said(&stack, "deploy.resources.reservations.generic_resources").contains("only a swarm")
    );
    assert_eq!(
        stack.services["app"].cgroup_parent.as_deref(),
        Some("bench")
    );
    for (lines, what) in [
        (
            "external_links: ['redis_1:redis']",
            "leads to containers outside the stack, which no trial can launch or prove",
        ),
        ("models: [llm]", "a runner outside the engine"),
        ("use_api_socket: true", "would hand the engine"),
    ] {
        let problems = Case::app(&format!("image: a\n{lines}")).problems();
        assert_eq!(problems.len(), 1, "{lines}: {problems:?}");
        assert!(problems[0].contains(what), "{lines}: {problems:?}");
        assert!(problems[0].contains("\n  hint: "), "{lines}: {problems:?}");
    }
    // No image is wanted of what another program makes: one reason, not two.
    let problems = Case::app("provider: {type: cloud}").problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("is made by a program outside the engine"));
}

#[test]
fn the_top_level_models_matter_only_to_services_that_use_them() {
    let text = "services:\n  app: {image: a}\n  chat: {image: b, models: [llm]}\nmodels: {llm: {model: ai/x}}\n";
    let stack = Case::new(text).roots(&["app"]).stack();
    assert_eq!(stack.not_started, ["chat"]);
    assert!(Case::new(text).problems()[0].contains("services.chat.models: "));
}
