use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::load::plan::Target;
use crate::load::prepare::prepare;

fn parse_text(text: &str) -> Result<Workload, Problems> {
    Workload::parse(Path::new("w.toml"), text)
}

fn problems(text: &str) -> Vec<String> {
    match parse_text(text) {
        Ok(workload) => panic!("accepted: {workload:?}"),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

fn target() -> Target {
    Target {
        address: "127.0.0.1:1".parse().unwrap(),
        host: "app:8080".into(),
        base_path: String::new(),
    }
}

/// The reference journey: nine types in dependency order, four looping steps.
const TYPES: [&str; 9] = [
    "Patient",
    "Location",
    "Organization",
    "Practitioner",
    "Encounter",
    "Observation",
    "MedicationRequest",
    "Claim",
    "ExplanationOfBenefit",
];

fn reference_journey(folder: &Path) -> String {
    let mut text = String::from("headers = { content-type = \"application/fhir+json\" }\n");
    for (index, name) in TYPES.iter().enumerate() {
        let before = index
            .checked_sub(1)
            .map_or(String::new(), |i| format!("{0}/${{id.{0}}}", TYPES[i]));
        let body =
            format!("{{\"resourceType\":\"{name}\",\"ref\":\"{before}\",\"n\":\"${{uuid}}\"}}");
        fs_err::write(folder.join(format!("{name}.json")), body).unwrap();
        let _ = write!(
            text,
            "[[table.resource]]\ntype = \"{name}\"\nbody = \"{name}.json\"\n"
        );
    }
    for (verb, method, rest) in [
        (
            "create",
            "POST",
            "capture = { \"id.${resource.type}\" = \"$.id\" }\nbody_file = \"${resource.body}\"\nexpect = { status = 201, json = { \"$.resourceType\" = \"${resource.type}\" } }",
        ),
        ("read", "GET", ""),
        ("update", "PUT", "body_file = \"${resource.body}\""),
        (
            "delete",
            "DELETE",
            "reverse = true\nexpect = { status = [200, 204] }",
        ),
    ] {
        let id = if verb == "create" {
            ""
        } else {
            "/${id.${resource.type}}"
        };
        let _ = write!(
            text,
            "[[step]]\nname = \"{verb} ${{resource.type}}\"\neach = \"resource\"\nmethod = \"{method}\"\n\
             path = \"/fhir/${{resource.type}}{id}\"\n{rest}\n"
        );
    }
    text
}

#[test]
fn the_reference_journey_is_36_operations_in_dependency_order() {
    let folder = tempfile::tempdir().unwrap();
    let text = reference_journey(folder.path());
    let file = folder.path().join("workload.toml");
    fs_err::write(&file, text).unwrap();
    let workload = Workload::read(&file).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(workload.requests_per_journey(), 36);
    let names = workload.operation_names();
    assert_eq!(names[0], "create Patient");
    assert_eq!(names[8], "create ExplanationOfBenefit");
    assert_eq!(names[9], "read Patient");
    assert_eq!(names[27], "delete ExplanationOfBenefit");
    assert_eq!(names[35], "delete Patient");
    assert_eq!(workload.files().len(), 9);
    assert_eq!(workload.variables(), []);
    let prepared = prepare(&workload, &target(), &IndexMap::new()).unwrap();
    assert_eq!(prepared.names, names);
}

#[test]
fn all_problems_are_found_at_once_each_in_its_place() {
    let text = r#"on_failure = "stop"
refused = [429, 42]
[data.users]
file = "users.csv"
[[table.resource]]
type = "Patient"
[[step]]
metod = "POST"
path = "fhir"
each = "resorce"
[[step]]
path = "/a b"
think = "5"
expect = { status = 1000, json = { "id" = 1 } }
[[step]]
method = "post"
path = "/${resource.type}"
form = { a = 1 }
body = "a"
json = {}
[[step]]
each = "resource"
path = "/${resource.id}/${id"
"#;
    let problems = problems(text);
    let expected = [
        "w.toml:1:14: `on_failure` is \"stop\", it must be \"abort\" or \"continue\"",
        "w.toml:2:17: `refused` is 42, it must be an HTTP status from 100 to 599 or a list of them",
        "w.toml:3:2: `data` in the workload is not yet supported",
        "w.toml:8:1: unknown key `metod` in a step\n  hint: did you mean `method`?",
        "w.toml:9:8: the path \"fhir\" does not start with `/`\n  hint: the server's address comes from the target, a step has the path alone",
        "w.toml:10:8: `each` names the table `resorce`, which is not there\n  hint: did you mean `resource`?",
        "w.toml:12:8: a path cannot hold ' '\n  hint: write it percent-encoded, as `%20` for a space",
        "w.toml:13:9: `think`: `5` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)",
        "w.toml:14:21: `status` is 1000, it must be an HTTP status from 100 to 599 or a list of them",
        "w.toml:14:36: `id` is not a JSON path: it does not start with `$` (allowed: `$.name`, `$['a name']`, `$[0]`)",
        "w.toml:16:10: `method` is \"post\"\n  hint: allowed: GET, POST, PUT, DELETE, PATCH, HEAD, OPTIONS",
        "w.toml:17:8: `${resource.type}` is a field of the table `resource`, and this step has no `each = \"resource\"`",
        "w.toml:18:1: `form` in a step is not yet supported",
        "w.toml:20:8: a step has one body, this one has body and json",
        "w.toml:23:8: `${` without its `}`",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn keys_of_later_versions_are_refused_by_name() {
    for (text, key) in [
        ("[[setup]]\nscope = \"user\"", "setup"),
        ("[[journey]]\nweight = 1", "journey"),
        ("cookies = true\n[[step]]\npath = \"/\"", "cookies"),
    ] {
        let problems = problems(text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(&format!("`{key}` in the workload is not yet supported")));
    }
    let problems = problems("[[step]]\npath = \"/${data.users.name}\"");
    assert_eq!(
        problems,
        ["w.toml:2:8: `${data.users.name}`: data files are not yet supported"]
    );
}

#[test]
fn an_empty_or_broken_file_says_so() {
    assert!(problems("")[0].starts_with("w.toml:1:1: the workload has no step"));
    assert!(problems("[[step]\npath = 1")[0].contains("w.toml:1:"));
    assert!(problems("[[step]]\npath = 1")[0].starts_with("w.toml:2:8: `path` is 1"));
    assert!(problems("[[step]]\n")[0].contains("a step has no `path`"));
    let missing = Workload::read(Path::new("/nowhere/w.toml")).unwrap_err();
    assert!(missing.0[0].message.contains("cannot be read"));
}

#[test]
fn a_capture_is_known_from_the_step_after_it_on() {
    let order =
        |first: &str, second: &str| parse_text(&format!("[[step]]\n{first}\n[[step]]\n{second}"));
    let make = "path = \"/\"\ncapture = { id = \"$.id\" }";
    let take = "path = \"/${id}\"";
    assert!(order(make, take).is_ok());
    let early = order(take, make).unwrap_err();
    assert_eq!(
        early.0[0].message,
        "`${id}` is used before the step that captures it has been answered"
    );
    let own = parse_text("[[step]]\npath = \"/${id}\"\ncapture = { id = \"$.id\" }");
    assert!(own.is_err(), "a step cannot use what its own answer brings");
}

#[test]
fn names_that_are_not_its_own_are_left_to_the_caller() {
    let text = "headers = { authorization = \"Bearer ${env.TOKEN}\" }\n\
        [[step]]\npath = \"/${cpus}?u=${user}&r=${random(1, 9)}\"\ncapture = { patient_id = \"$.id\" }\n\
        [[step]]\npath = \"/${patient_ld}/${cpus}\"\n";
    let workload = parse_text(text).unwrap_or_else(|problems| panic!("{problems}"));
    let names: Vec<_> = workload
        .variables()
        .iter()
        .map(|used| {
            (
                used.name.as_str(),
                used.location.to_string(),
                used.similar.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            ("cpus", "w.toml:3:8".to_owned(), None),
            ("patient_ld", "w.toml:6:8".to_owned(), Some("patient_id")),
        ]
    );
    assert_eq!(workload.environment().len(), 1);
    assert_eq!(workload.environment()[0].name, "TOKEN");
}

#[test]
fn problems_in_a_body_file_have_their_place_there() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("a.json"), "{\n  \"a\": \"${later}\"\n}").unwrap();
    let file = folder.path().join("w.toml");
    let text = "[[step]]\npath = \"/\"\nbody_file = \"a.json\"\n[[step]]\npath = \"/\"\nbody_file = \"b.json\"\ncapture = { later = \"$.x\" }\n";
    let problems = Workload::parse(&file, text).unwrap_err();
    let shown: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
    let root = folder.path().display();
    assert_eq!(
        shown,
        [
            format!(
                "{root}/w.toml:6:13: the body file {root}/b.json cannot be read: entity not found\n  hint: body files are relative to the workload file"
            ),
            format!(
                "{root}/a.json:2:9: `${{later}}` is used before the step that captures it has been answered"
            ),
        ]
    );
}

#[test]
fn names_of_steps_are_fixed_and_headers_are_checked() {
    let shown = problems(
        "headers = { content-length = \"5\", \"a b\" = \"x\" }\n\
         [[step]]\nname = \"n ${uuid}\"\npath = \"/\"\ncapture = { uuid = \"$.a\", \"x.${y}\" = \"$.b\", ok = \"header:a b\" }\nreverse = true",
    );
    assert_eq!(shown.len(), 7, "{shown:#?}");
    assert!(shown[0].contains("`content-length` is set by the load itself"));
    assert!(shown[1].contains("`a b` is not the name of a header"));
    assert!(
        shown
            .iter()
            .any(|line| line.contains("cannot change from request to request"))
    );
    assert!(
        shown
            .iter()
            .any(|line| line.contains("cannot be called `uuid`"))
    );
    assert!(
        shown
            .iter()
            .any(|line| line.contains("`reverse` turns a loop round"))
    );
}

#[test]
fn values_keep_their_type_and_texts_keep_their_zeros() {
    let text = "[[step]]\nmethod = \"POST\"\npath = \"/\"\n\
        json = { a = \"${cpus}\", b = \"${code}\", c = \"${env.N}\", d = [1, true, { e = \"x${cpus}\" }], f = 1.5 }";
    let workload = parse_text(text).unwrap_or_else(|problems| panic!("{problems}"));
    let variables = [("cpus", "0.5"), ("code", "007"), ("env.N", "12")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let prepared = prepare(&workload, &target(), &IndexMap::from(variables)).unwrap();
    let mut dynamic = crate::load::template::Dynamic {
        captures: &[],
        random: &mut fastrand::Rng::with_seed(1),
        counter: &mut crate::load::template::Counter::new(0, 1),
        user: 0,
    };
    let request = prepared.operations[0].request(&[], &mut dynamic).unwrap();
    let body = format!("{:?}", request.body());
    let expected = r#"{"a":0.5,"b":"007","c":"12","d":[1,true,{"e":"x0.5"}],"f":1.5}"#;
    assert!(body.contains(&expected.replace('"', "\\\"")), "{body}");
}

#[test]
fn requests_that_no_server_would_take_are_refused_when_the_load_starts() {
    let text = "[[step]]\npath = \"${p}\"\n[[step]]\npath = \"/\"\nheaders = { a = \"${p}\" }";
    let workload = parse_text(text).unwrap_or_else(|problems| panic!("{problems}"));
    let with = |value: &str| {
        let variables = IndexMap::from([("p".to_owned(), value.to_owned())]);
        prepare(&workload, &target(), &variables)
            .unwrap_err()
            .invalid
    };
    assert_eq!(with("http://other/").len(), 1);
    assert_eq!(with("/a b").len(), 1);
    assert_eq!(with("/a\nb").len(), 2);
}
