//! What is started, in which files it is found, and what may be broken.

use std::fmt::Write as _;

use super::*;
use crate::stack::Condition;

const CHAIN: &str = "
services:
  app: {image: a, depends_on: {db: {condition: service_healthy}, init: {condition: service_completed_successfully}}}
  db: {image: b, healthcheck: {test: x}}
  init: {image: c, depends_on: [db]}
  idle: {image: d}
  debug: {image: e, profiles: [debug], depends_on: [idle]}
";

fn names(stack: &Stack) -> Vec<&str> {
    stack.services.keys().map(String::as_str).collect()
}

#[test]
fn roots_are_started_with_what_they_depend_on_in_file_order() {
    let stack = Case::new(CHAIN).roots(&["app"]).stack();
    assert_eq!(names(&stack), ["app", "db", "init"]);
    assert_eq!(stack.not_started, ["idle", "debug"]);
    let dependencies = &stack.services["app"].depends_on;
    assert_eq!(dependencies["db"].condition, Condition::ServiceHealthy);
    assert_eq!(
        dependencies["init"].condition,
        Condition::ServiceCompletedSuccessfully
    );
    assert!(dependencies["db"].required);
}

#[test]
fn no_roots_are_what_compose_up_starts() {
    let stack = Case::new(CHAIN).stack();
    assert_eq!(names(&stack), ["app", "db", "init", "idle"]);
}

#[test]
fn a_profile_or_a_name_turns_a_service_on() {
    for case in [
        Case::new(CHAIN).roots(&["db"]).profiles(&["debug"]),
        Case::new(CHAIN).roots(&["db"]).profiles(&["*"]),
        Case::new(CHAIN).roots(&["db", "debug"]),
    ] {
        assert_eq!(names(&case.stack()), ["db", "idle", "debug"]);
    }
}

#[test]
fn a_dependency_that_is_off_is_an_error_unless_it_is_not_required() {
    let text = "services:\n  app:\n    image: a\n    depends_on:\n      off: {condition: service_started, required: REQ}\n      gone: {condition: service_started, required: REQ}\n  off: {image: b, profiles: [p]}\n";
    let problems = Case::new(&text.replace("REQ", "true"))
        .roots(&["app"])
        .problems();
    assert_eq!(
        problems,
        [
            "compose.yaml:5:7: services.app.depends_on.off: its profile is not on\n  hint: turn on one of its profiles (p) or set `required: false`",
            "compose.yaml:6:7: services.app.depends_on.gone: there is no such service\n  hint: the services are: app, off",
        ]
    );
    let stack = Case::new(&text.replace("REQ", "false"))
        .roots(&["app"])
        .stack();
    assert_eq!(names(&stack), ["app"]);
    assert!(stack.services["app"].depends_on.is_empty());
    assert_eq!(stack.warnings.len(), 2);
}

#[test]
fn a_link_to_nothing_is_named_as_a_link() {
    assert_eq!(
        Case::app("image: a\ndepends_on: []\nlinks: ['b:c']").problems(),
        [
            "compose.yaml:5:13: services.app.links.b: there is no such service\n  hint: the services are: app"
        ]
    );
}

#[test]
fn names_that_no_container_can_have_are_refused() {
    let problems = Case::new("services:\n  'a b': {image: x}\n").problems();
    assert!(
        problems[0].contains("services.a b: the name may have letters"),
        "{problems:?}"
    );
}

#[test]
fn a_circle_is_named() {
    let case = Case::new(
        "services:\n  x: {image: a, depends_on: [a]}\n  a: {image: a, depends_on: [b]}\n  b: {image: a, depends_on: [c]}\n  c: {image: a, links: [a]}\n",
    );
    assert_eq!(
        case.problems(),
        ["compose.yaml:3:30: services wait for each other in a circle: a -> b -> c -> a"]
    );
    let case = Case::app("image: a\ndepends_on: [app]");
    assert_eq!(
        case.problems(),
        ["compose.yaml:4:18: services wait for each other in a circle: app -> app"]
    );
}

#[test]
fn a_long_chain_of_services_is_no_danger() {
    let mut text = "services:\n  s0: {image: a}\n".to_owned();
    for index in 1..2_000 {
        writeln!(
            text,
            "  s{index}: {{image: a, depends_on: [s{}]}}",
            index - 1
        )
        .unwrap();
    }
    let stack = Case::new(&text).roots(&["s1999"]).stack();
    assert_eq!(stack.services.len(), 2_000);
}

#[test]
fn a_broken_service_matters_only_where_it_is_started() {
    let text = "services:\n  app: {image: a}\n  broken: {images: x, cpus: -1, gpus: some}\n";
    let stack = Case::new(text).roots(&["app"]).stack();
    assert_eq!(stack.not_started, ["broken"]);
    assert_eq!(stack.warnings.len(), 1);
    assert!(stack.warnings[0].contains("the service `broken` is not started; it could not be: "));
    assert!(stack.warnings[0].ends_with("(and 3 more)"));
    assert_eq!(Case::new(text).problems().len(), 4);
}

#[test]
fn roots_that_do_not_exist_are_named_with_the_nearest() {
    assert_eq!(
        Case::app("image: a").roots(&["ap"]).problems(),
        [
            "compose.yaml:1:1: there is no service `ap` in the Compose files\n  hint: did you mean `app`?"
        ]
    );
}

#[test]
fn waiting_for_a_healthcheck_that_is_off_is_refused() {
    let case = Case::new(
        "services:\n  app: {image: a, depends_on: {db: {condition: service_healthy}}}\n  db: {image: b, healthcheck: {disable: true}}\n",
    );
    assert_eq!(
        case.problems(),
        [
            "compose.yaml:2:32: services.app.depends_on.db: waits for a healthcheck that is turned off"
        ]
    );
}

#[test]
fn files_are_merged_in_order() {
    let case = Case::new("services:\n  app: {image: a, cpus: 1}\n  gone: {image: x}\nnetworks: {n: {internal: true}}\n")
        .compose("b.yaml", "services:\n  app: {cpus: 2, networks: [n]}\n  gone: !reset null\n  more: {image: b}\nnetworks: {n: {driver: bridge}}\n");
    let stack = case.stack();
    assert_eq!(names(&stack), ["app", "more"]);
    assert_eq!(stack.services["app"].cpus, Some(2.0));
    assert!(stack.networks["n"].internal);
}

#[test]
fn a_service_extends_one_of_its_own_or_another_file() {
    let case = Case::new(
        "services:\n  base: {image: a, environment: {A: 1, B: 1}, cpus: 1}\n  app:\n    extends: base\n    environment: {B: 2}\n  far:\n    extends: {file: lib/base.yaml, service: far}\n    cpus: 3\n",
    )
    .file("lib/base.yaml", "services:\n  far:\n    extends: nearer\n    volumes: ['./data:/data:ro']\n  nearer: {image: 'n:${tag}'}\n")
    .file("lib/data/x", "")
    .cell("tag", "1");
    let stack = case.stack();
    let app = &stack.services["app"];
    assert_eq!((app.image.as_str(), app.cpus), ("a", Some(1.0)));
    assert_eq!(
        (app.environment["A"].as_str(), app.environment["B"].as_str()),
        ("1", "2")
    );
    let far = &stack.services["far"];
    assert_eq!((far.image.as_str(), far.cpus), ("n:1", Some(3.0)));
    let crate::stack::MountSource::Bind { source } = &far.mounts[0].source else {
        panic!()
    };
    assert!(
        source.ends_with("lib/data"),
        "paths start at the file they stand in"
    );
    assert!(case.files().variables().contains("tag"));
    assert_eq!(case.files().texts().count(), 2);
}

#[test]
fn extending_in_a_circle_or_nothing_is_refused() {
    let case = Case::new(
        "services:\n  a: {extends: b}\n  b: {extends: a}\n  c: {extends: {service: none}}\n",
    );
    let problems = case.problems().join("\n");
    assert!(problems.contains("leads back to itself"), "{problems}");
    assert!(
        problems.contains("there is no service `none`"),
        "{problems}"
    );
}

#[test]
fn included_files_bring_their_services_folder_and_dotenv() {
    let case = Case::new(
        "include:\n  - sub/compose.yaml\nservices:\n  app: {image: a, depends_on: [db]}\n",
    )
    .file(
        "sub/compose.yaml",
        "services:\n  db: {image: 'db:${TAG}', env_file: v.env}\n",
    )
    .file("sub/.env", "TAG=7\n")
    .file("sub/v.env", "A=1\n");
    let stack = case.stack();
    assert_eq!(stack.services["db"].image, "db:7");
    assert_eq!(stack.services["db"].environment["A"], "1");
    let case = Case::new("include: [b.yaml]\nservices:\n  app: {image: a}\n")
        .file("b.yaml", "services:\n  app: {image: b}\n");
    assert!(case.problems()[0].contains("an included file has this service too"));
    let case = Case::new("include: [compose.yaml]\nservices:\n  app: {image: a}\n");
    assert!(case.problems()[0].contains("include each other without end"));
    let case = Case::new("include: [compose.yaml, compose.yaml]\nservices:\n  app: {image: a}\n");
    assert!(case.problems()[0].contains("include each other without end"));
}

#[test]
fn mistakes_at_the_top_are_found_when_the_files_are_read() {
    let problems =
        Case::new("servises:\n  app: {image: a}\nnetworks: [a]\nx-own: 1\nversion: '3'\n")
            .problems();
    assert_eq!(
        problems,
        [
            "compose.yaml:1:1: servises: there is no such key\n  hint: did you mean `services`?",
            "compose.yaml:3:1: networks: must be a map, not a list",
        ]
    );
    assert_eq!(
        Case::new("- a").problems(),
        ["compose.yaml:1:1: a Compose file must be a map, not a list"]
    );
    assert_eq!(
        Case::new("services: {}").problems(),
        ["compose.yaml:1:1: no service would be started"]
    );
    assert!(ComposeFiles::read(&[]).is_err());
    let missing = ComposeFiles::read(&["/nowhere/compose.yaml".into()]).unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("/nowhere/compose.yaml:1:1: the Compose file cannot be read")
    );
}

#[test]
fn a_service_with_0_replicas_is_not_started_nor_waited_for() {
    let text = "services:
  app: {image: a, depends_on: {cache: {condition: service_healthy}, db: {condition: service_started}}}
  cache: {image: b, scale: 0, depends_on: [feeder]}
  feeder: {image: c, profiles: [x]}
  db: {image: d}
";
    for case in [Case::new(text).roots(&["app"]), Case::new(text)] {
        let stack = case.stack();
        assert_eq!(names(&stack), ["app", "db"]);
        assert_eq!(stack.not_started, ["cache", "feeder"]);
        let waits: Vec<_> = stack.services["app"].depends_on.keys().collect();
        assert_eq!(waits, ["db"]);
        let said = "services.app.depends_on.cache: `cache` has 0 replicas, so it is neither started nor waited for";
        assert!(
            stack.warnings.iter().any(|one| one == said),
            "{:?}",
            stack.warnings
        );
    }
    let problems = Case::new(text).roots(&["app", "cache"]).problems();
    assert_eq!(
        problems,
        [
            "compose.yaml:3:28: services.cache.replicas: 0 containers, and the sweep needs this service"
        ]
    );
    let text = "services:
  app: {image: a, network_mode: 'service:vpn'}
  vpn: {image: b, deploy: {replicas: 0}}
";
    let problems = Case::new(text).roots(&["app"]).problems();
    assert_eq!(
        problems,
        ["compose.yaml:2:33: services.app.network_mode: `vpn` has 0 replicas"]
    );
}
