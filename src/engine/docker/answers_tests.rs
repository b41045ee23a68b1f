//! Answers as the engine gives them.

use super::answers;
use crate::engine::{Health, RunState};

fn inspect(text: &str) -> crate::engine::Inspection {
    answers::inspection(serde_json::from_str(text).unwrap())
}

#[test]
fn an_inspection_reads_state_health_limits_and_addresses() {
    let seen = inspect(
        r#"{"Id":"c","Image":"sha256:ab","RestartCount":2,
        "State":{"Status":"running","Pid":77,"ExitCode":0,"OOMKilled":false,
          "Health":{"Status":"starting","Log":[{"ExitCode":1,"Output":"old"},{"ExitCode":2,"Output":"no route\n"}]}},
        "HostConfig":{"NanoCpus":500000000,"CpuQuota":0,"CpuPeriod":0,"CpusetCpus":"0","Memory":1048576,"PidsLimit":9},
        "NetworkSettings":{"Ports":{"80/tcp":null,"8080/tcp":[{"HostIp":"127.0.0.1","HostPort":"49153"}]},
          "Networks":{"b":{"IPAddress":"172.18.0.3"},"a":{"IPAddress":""}}}}"#,
    );
    assert_eq!(seen.state, RunState::Running);
    assert_eq!(seen.exit_code, None, "a running container has none");
    assert_eq!(
        seen.health,
        Health::Starting("exit code 2: no route".to_owned())
    );
    assert_eq!(seen.limits.nano_cpus, 500_000_000);
    assert_eq!((seen.limits.memory_bytes, seen.limits.pids), (1_048_576, 9));
    assert_eq!(seen.addresses.len(), 1);
    assert_eq!(seen.published[&8080].to_string(), "127.0.0.1:49153");
    assert_eq!((seen.pid, seen.restarts), (77, 2));
}

#[test]
fn an_ended_container_has_its_exit_code_and_a_dead_one_does_not_run() {
    let seen = inspect(r#"{"State":{"Status":"exited","ExitCode":137,"OOMKilled":true}}"#);
    assert_eq!(seen.exit_code, Some(137));
    assert!(seen.oom_killed);
    assert_eq!(
        inspect(r#"{"State":{"Status":"dead"}}"#).state,
        RunState::Exited
    );
    assert_eq!(
        inspect(r#"{"State":{"Status":"created"}}"#).state,
        RunState::Created
    );
}

#[test]
fn zeros_of_a_stopped_container_are_not_counters() {
    let parse = |text: &str| answers::counters(&serde_json::from_str(text).unwrap());
    assert_eq!(
        parse(r#"{"cpu_stats":{"cpu_usage":{"total_usage":0}},"memory_stats":{}}"#),
        None
    );
    let counters = parse(
        r#"{"cpu_stats":{"cpu_usage":{"total_usage":5},"throttling_data":{"periods":4,"throttled_periods":3,"throttled_time":2}},
        "memory_stats":{"usage":100,"max_usage":150,"stats":{"total_inactive_file":30,"inactive_file":1}}}"#,
    )
    .unwrap();
    assert_eq!((counters.cpu_ns, counters.memory_bytes), (5, 70));
    assert_eq!(
        (
            counters.periods,
            counters.throttled_periods,
            counters.throttled_ns
        ),
        (4, 3, 2)
    );
    assert_eq!(counters.memory_peak_bytes, Some(150));
}

#[test]
fn an_image_with_a_switched_off_healthcheck_has_none() {
    let parse = |text: &str| answers::image(serde_json::from_str(text).unwrap()).has_healthcheck;
    assert!(parse(r#"{"Config":{"Healthcheck":{"Test":["CMD","x"]}}}"#));
    assert!(!parse(r#"{"Config":{"Healthcheck":{"Test":["NONE"]}}}"#));
    assert!(!parse(r#"{"Config":{}}"#));
}

#[test]
fn a_bridge_that_does_not_say_its_address_has_the_first_of_its_range() {
    let gateway = |text: &str| answers::gateway(&serde_json::from_str(text).unwrap());
    let address = |text: &str| Some(text.parse().unwrap());
    assert_eq!(
        gateway(r#"{"Subnet":"172.17.0.0/16","Gateway":"172.17.0.9"}"#),
        address("172.17.0.9")
    );
    assert_eq!(
        gateway(r#"{"Subnet":"172.17.0.0/16"}"#),
        address("172.17.0.1")
    );
    assert_eq!(gateway(r#"{"Subnet":"fd00::/64"}"#), None);
    assert_eq!(gateway("{}"), None);
}

#[test]
fn an_engine_on_another_kernel_or_without_root_is_not_native() {
    let is_native =
        |text: &str| answers::is_native(&serde_json::from_str(text).unwrap(), "6.1.0-9");
    assert!(is_native(
        r#"{"KernelVersion":"6.1.0-9","SecurityOptions":["name=seccomp"]}"#
    ));
    assert!(!is_native(r#"{"KernelVersion":"6.6.12-linuxkit"}"#));
    assert!(!is_native(
        r#"{"KernelVersion":"6.1.0-9","SecurityOptions":["name=rootless"]}"#
    ));
    assert!(!answers::is_native(
        &serde_json::from_str("{}").unwrap(),
        ""
    ));
}
