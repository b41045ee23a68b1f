//! Where values come from and how they are typed.

use super::*;
use crate::placed::{PlacedNode, PlacedValue};
use crate::problem::Location;
use crate::scalar::Scalar;
use crate::secret::Secrets;

#[test]
fn the_cell_wins_over_the_environment_over_dotenv() {
    let case = Case::app("image: a\nenvironment:\n  A: ${A}\n  B: ${B}\n  C: ${C}\n  D: ${D:-d}")
        .file(".env", "A=dotenv\nB=dotenv\nC=from-dotenv\n")
        .environment("A", "environment")
        .environment("B", "from-environment")
        .cell("A", "from-cell");
    let resolution = case.resolution();
    let environment = &resolution.stack.services["app"].environment;
    let values: Vec<&str> = environment.values().map(String::as_str).collect();
    assert_eq!(
        values,
        ["from-cell", "from-environment", "from-dotenv", "d"]
    );
    assert_eq!(resolution.secrets, ["from-dotenv", "from-environment"]);
    let variables: Vec<String> = resolution.variables.into_iter().collect();
    assert_eq!(variables, ["A", "B", "C", "D"]);
}

#[test]
fn a_word_that_a_short_secret_became_a_part_of_is_secret_too() {
    let case = Case::app(
        "image: postgres:${TAG}\nenvironment: {S: 'pre${SHORT}post', U: 'user_${SHORT}', D: 'x${NONE:-app}y', C: 'x${cpus}y', N: 'x${TWO}y'}\ncommand: serve --p=a\"${SHORT}\"b plain\nlabels: ['l=${SHORT}${cpus}']\nhealthcheck: {test: ['CMD', 'h${NONE:-${SHORT}}']}",
    )
    .file(".env", "SHORT=abc123\nTAG=17.2\nTWO=17\n")
    .cell("cpus", "4cores");
    let secrets = case.resolution().secrets;
    for hidden in ["preabc123post", "aabc123b", "abc1234cores", "habc123"] {
        assert!(
            secrets.iter().any(|secret| secret == hidden),
            "{hidden}: {secrets:?}"
        );
    }
    // `17` is no secret, nor is a default or a level; words beside a secret are none either.
    let mut hider = Secrets::new([0; 16]);
    for secret in &secrets {
        hider.hide(secret);
    }
    for shown in [
        "serve", "plain", "postgres", "xappy", "x4coresy", "x17y", "--p=",
    ] {
        assert_eq!(hider.redact(shown), shown);
    }
    let written = format!("{:?}", case.resolution().stack);
    assert!(written.contains("user_abc123"));
    assert!(!hider.redact(&written).contains("abc123"));
}

#[test]
fn numbers_and_switches_may_be_quoted_or_interpolated() {
    for lines in [
        "image: a\ncpus: 1.5\ninit: true\nmem_limit: 256m",
        "image: a\ncpus: \"1.5\"\ninit: 'yes'\nmem_limit: '268435456'",
        "image: a\ncpus: ${cpus}\ninit: ${on}\nmem_limit: ${mem}",
        "image: a\ncpus: \"${cpus}\"\ninit: \"${on}\"\nmem_limit: 262144k",
    ] {
        let case = Case::app(lines)
            .cell("cpus", "1.5")
            .cell("on", "true")
            .cell("mem", "256m");
        let service = case.service();
        assert_eq!(service.cpus, Some(1.5), "{lines}");
        assert_eq!(service.init, Some(true), "{lines}");
        assert_eq!(service.mem_limit, Some(256 << 20), "{lines}");
    }
}

#[test]
fn environment_values_become_the_texts_that_compose_makes() {
    let case = Case::app(
        "image: a\nenvironment:\n  N: 5\n  F: 1.10\n  T: True\n  Y: yes\n  Q: '0x10'\n  H: 0x10\n  O: 022\n  E: ''\n  D: $$x",
    );
    let resolution = case.resolution();
    let environment: Vec<String> = resolution.stack.services["app"]
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        environment,
        [
            "N=5", "F=1.1", "T=true", "Y=yes", "Q=0x10", "H=16", "O=18", "E=", "D=$x"
        ]
    );
    assert_eq!(resolution.stack.warnings.len(), 1);
    assert!(resolution.stack.warnings[0].contains("`022` is read as 18"));
}

#[test]
fn bare_names_take_the_projects_value_or_are_absent() {
    for lines in [
        "image: a\nenvironment: [KEY, NONE, OTHER=x]",
        "image: a\nenvironment:\n  KEY:\n  NONE: null\n  OTHER: x",
    ] {
        let case = Case::app(lines).environment("KEY", "sesame");
        let resolution = case.resolution();
        let environment = &resolution.stack.services["app"].environment;
        assert_eq!(environment.get("KEY").map(String::as_str), Some("sesame"));
        assert_eq!(environment.get("NONE"), None);
        assert_eq!(resolution.secrets, ["sesame"]);
        assert!(case.files().variables().contains("KEY"));
        assert!(resolution.variables.contains("NONE"));
    }
}

#[test]
fn env_files_are_overlaid_in_order_and_by_environment() {
    let case = Case::app(
        "image: a\nenv_file:\n  - a.env\n  - {path: b.env, required: true}\n  - {path: none.env, required: false}\nenvironment:\n  C: own",
    )
    .file("a.env", "A=1\nB=2\nC=3\n")
    .file("b.env", "B=two-${axis}\n")
    .cell("axis", "x");
    let resolution = case.resolution();
    let environment = &resolution.stack.services["app"].environment;
    assert_eq!(environment["A"], "1");
    assert_eq!(environment["B"], "two-x");
    assert_eq!(environment["C"], "own");
    assert!(resolution.secrets.contains(&"two-x".to_owned()));
    assert!(case.files().variables().contains("axis"));
    assert!(resolution.variables.contains("axis"));
}

#[test]
fn an_axis_behind_a_dotenv_value_is_a_variable_of_the_files() {
    let case = Case::app("image: a\nenvironment: {J: $OPTS}")
        .file(".env", "OPTS=-Xmx${heap}\nUNUSED=$nothing\n")
        .cell("heap", "2g");
    assert_eq!(case.service().environment["J"], "-Xmx2g");
    let names: Vec<String> = case.files().variables().into_iter().collect();
    assert_eq!(names, ["OPTS", "heap"]);
}

#[test]
fn an_unset_name_is_said_once_and_only_where_it_matters() {
    let case = Case::new(
        "services:\n  app:\n    image: a\n    environment: {A: $NONE, B: $NONE}\n  idle:\n    image: b\n    environment: {C: $OTHER}\n",
    )
    .roots(&["app"]);
    let warnings = case.stack().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].ends_with("compose.yaml:4:22: `NONE` has no value and is taken as empty"));
}

#[test]
fn one_mistake_that_services_share_is_said_once() {
    let case = Case::new(
        "x-env: &env {A: '${A:?needed}', B: [1]}\nservices:\n  app: {image: a, environment: *env}\n  db: {image: b, environment: *env}\n",
    );
    let problems = case.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("compose.yaml:1:17: services.app.environment.A: required"));
    assert!(problems[1].starts_with("compose.yaml:1:36: services.app.environment.B: must be"));
}

#[test]
fn faulty_variables_are_said_once_with_their_place() {
    let case = Case::app("image: ${TAG?which}\ncpus: ${cpus\ncommand: \"a ${}\"");
    assert_eq!(
        case.problems(),
        [
            "compose.yaml:3:12: services.app.image: required variable `TAG` has no value: which\n  hint: set `TAG` in the environment or in .env, or make it an axis or a derived value",
            "compose.yaml:4:11: services.app.cpus: `${` without its `}`\n  hint: write `$$` for a dollar that is meant as one",
            "compose.yaml:5:17: services.app.command: `${` must be followed by a name of letters, digits and `_`\n  hint: write `$$` for a dollar that is meant as one",
        ]
    );
}

#[test]
fn keys_are_not_interpolated() {
    let case = Case::app("image: a\nlabels:\n  $A: x").cell("A", "b");
    assert_eq!(case.service().labels["$A"], "x");
}

#[test]
fn the_project_name_is_there_without_being_a_secret() {
    let case =
        Case::new("name: My-Project\nservices:\n  app:\n    image: a:${COMPOSE_PROJECT_NAME}\n");
    let resolution = case.resolution();
    assert_eq!(resolution.stack.services["app"].image, "a:my-project");
    assert_eq!(resolution.secrets, Vec::<String>::new());
}

fn at(line: usize) -> Location {
    Location {
        file: "matrix.toml".into(),
        line,
        column: 1,
    }
}

/// An inline override of one service from keys and values.
fn inline(service: &str, pairs: &[(&str, PlacedValue)]) -> PlacedNode {
    let node = |value: PlacedValue, line| PlacedNode {
        location: at(line),
        value,
    };
    let map = |key: &str, below: PlacedNode| PlacedValue::Map(vec![(key.into(), at(1), below)]);
    let keys = pairs.iter().enumerate().map(|(index, (key, value))| {
        (
            (*key).to_owned(),
            at(index + 2),
            node(value.clone(), index + 2),
        )
    });
    let service_node = node(PlacedValue::Map(keys.collect()), 1);
    let services = node(map(service, service_node), 1);
    node(map("services", services), 1)
}

#[test]
fn an_inline_override_is_merged_last_and_clears_the_twin_of_its_limit() {
    let case = Case::app(
        "image: a\ncpus: 1\nmem_limit: 1g\ndeploy:\n  resources:\n    limits: {pids: 100, memory: 1g}",
    )
    .cell("cpus", "2");
    let tree = inline(
        "app",
        &[
            ("cpus", PlacedValue::Scalar(Scalar::Text("${cpus}".into()))),
            ("pids_limit", PlacedValue::Scalar(Scalar::Integer(50))),
        ],
    );
    let files = case.files().with_override(&tree).unwrap();
    assert!(files.variables().contains("cpus"));
    let stack = case.resolve_files(&files).unwrap().stack;
    let service = &stack.services["app"];
    assert_eq!((service.cpus, service.pids_limit), (Some(2.0), Some(50)));
    assert_eq!(service.mem_limit, Some(1 << 30));
    assert_eq!(
        stack.warnings,
        ["services.app.deploy.resources.limits.pids: replaced by what the override sets"]
    );
}

/// `deploy` with one value at a path below it.
fn below_deploy(path: &[&str], value: Scalar) -> (&'static str, PlacedValue) {
    let node = |value| PlacedNode {
        location: at(9),
        value,
    };
    let value = path
        .iter()
        .rev()
        .fold(PlacedValue::Scalar(value), |value, key| {
            PlacedValue::Map(vec![((*key).to_owned(), at(9), node(value))])
        });
    ("deploy", value)
}

#[test]
fn every_form_of_a_setting_gives_way_to_what_an_inline_override_says() {
    type Value = fn(&Service) -> Option<i64>;

    let integer = |n: i64| PlacedValue::Scalar(Scalar::Integer(n));
    let limits = |key, n| below_deploy(&["resources", "limits", key], Scalar::Integer(n));
    let reserved = below_deploy(
        &["resources", "reservations", "memory"],
        Scalar::Integer(9 << 20),
    );
    let cpus: Value = |service| service.cpus.map(|cpus| cpus as i64);
    let quota: Value = |service| service.cpu_quota;
    let memory: Value = |service| service.mem_reservation.and_then(|n| n.try_into().ok());
    let replicas: Value = |service| service.replicas.map(i64::from);
    let deploy = |lines: &str| format!("deploy: {lines}");
    for (lines, pair, value, expected) in [
        (
            "cpu_quota: 50000\ncpu_period: 100000".to_owned(),
            ("cpus", integer(2)),
            cpus,
            2,
        ),
        ("cpu_quota: 50000".to_owned(), limits("cpus", 3), cpus, 3),
        (
            "cpus: 2".to_owned(),
            ("cpu_quota", integer(70_000)),
            quota,
            70_000,
        ),
        (
            deploy("{resources: {limits: {cpus: 2}}}"),
            ("cpu_quota", integer(70_000)),
            quota,
            70_000,
        ),
        ("cpus: 1".to_owned(), limits("cpus", 3), cpus, 3),
        (
            deploy("{resources: {reservations: {memory: 7m}}}"),
            ("mem_reservation", integer(8 << 20)),
            memory,
            8 << 20,
        ),
        ("mem_reservation: 7m".to_owned(), reserved, memory, 9 << 20),
        (
            "scale: 2".to_owned(),
            below_deploy(&["replicas"], Scalar::Integer(4)),
            replicas,
            4,
        ),
        (deploy("{replicas: 2}"), ("scale", integer(3)), replicas, 3),
    ] {
        let case = Case::app(&format!("image: a\n{lines}"));
        let files = case.files().with_override(&inline("app", &[pair])).unwrap();
        let stack = case.resolve_files(&files);
        let stack = stack
            .unwrap_or_else(|problems| panic!("{lines}: {problems}"))
            .stack;
        assert_eq!(value(&stack.services["app"]), Some(expected), "{lines}");
        assert!(
            stack.warnings[0].contains("replaced by what the override sets"),
            "{lines}"
        );
    }
}

#[test]
fn a_part_of_the_same_form_stays_beside_an_inline_override() {
    let case = Case::app("image: a\ncpu_quota: 50000\ncpu_period: 100000");
    let period = PlacedValue::Scalar(Scalar::Integer(200_000));
    let files = case
        .files()
        .with_override(&inline("app", &[("cpu_period", period)]));
    let stack = case.resolve_files(&files.unwrap()).unwrap().stack;
    let service = &stack.services["app"];
    assert_eq!(
        (service.cpu_quota, service.cpu_period),
        (Some(50_000), Some(200_000))
    );
    assert!(stack.warnings.is_empty(), "{:?}", stack.warnings);
}

#[test]
fn no_hint_tells_a_matrix_to_write_a_tag() {
    let two = [
        ("cpus", PlacedValue::Scalar(Scalar::Integer(2))),
        ("cpu_quota", PlacedValue::Scalar(Scalar::Integer(50_000))),
    ];
    let other_form = [("cpus", PlacedValue::Map(Vec::new()))];
    let case = Case::app("image: a\ncpus: 1");
    for (pairs, said) in [
        (
            &two[..],
            "matrix.toml:3:1: services.app.cpu_quota: cannot stand beside `cpus`: the engine takes \
             one form of the limit\n  hint: keep one of them",
        ),
        (
            &other_form,
            "matrix.toml:2:1: cpus: a map cannot be merged with a single value at compose.yaml:4:11\n  \
             hint: write both in the same form",
        ),
    ] {
        let files = case.files().with_override(&inline("app", pairs)).unwrap();
        let problems = case.resolve_files(&files).unwrap_err();
        let folder = format!("{}/", case.path().display());
        assert_eq!(problems.0[0].to_string().replace(&folder, ""), said);
    }
}

#[test]
fn an_inline_override_is_checked_at_its_own_place() {
    let case = Case::app("image: a");
    let tree = inline("ap", &[("cpus", PlacedValue::Scalar(Scalar::Integer(1)))]);
    let problems = case.files().with_override(&tree).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "matrix.toml:1:1: services.ap: no Compose file has this service\n  hint: did you mean `app`?"
    );
    let tree = inline("app", &[("cpus", PlacedValue::Scalar(Scalar::Integer(-1)))]);
    let files = case.files().with_override(&tree).unwrap();
    let problems = case.resolve_files(&files).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "matrix.toml:2:1: services.app.cpus: `-1` is less than 0.01 cores"
    );
}
