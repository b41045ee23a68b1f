use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::load::plan::Target;
use crate::load::prepare::prepare;
use crate::tls::Wire;

fn parse_text(text: &str) -> Result<Workload, Problems> {
    Workload::parse(Path::new("w.toml"), text)
}

fn problems(text: &str) -> Vec<String> {
    match parse_text(text) {
        Ok(workload) => panic!("accepted: {workload:?}"),
        Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
    }
}

fn wrong(text: &str) -> String {
    problems(text).join("\n")
}

fn target() -> Target {
    Target {
        addresses: vec!["127.0.0.1:1".parse().unwrap()],
        host: "app:8080".into(),
        base_path: String::new(),
        wire: Wire::default(),
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
    assert_eq!(workload.requests_once(), 36);
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
pick = "next"
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
body = "a"
json = {}
[[step]]
each = "resource"
path = "/${resource.id}/${id"
"#;
    insta::assert_snapshot!(wrong(text), @r#"
    w.toml:1:14: `on_failure` in the workload must be "abort" or "continue", not the text "stop"
    w.toml:2:17: `refused` in the workload must be an HTTP status from 100 to 599 or a list of them, not the number 42
    w.toml:4:8: the data file users.csv cannot be read: entity not found
      hint: data files are UTF-8 and relative to the workload file
    w.toml:9:1: unknown key `metod` in [[step]] number 1
      hint: did you mean `method`?
    w.toml:10:8: the path "fhir" does not start with `/`
      hint: the server's address comes from the target, a step has the path alone
    w.toml:11:8: `each` in [[step]] number 1 names the table `resorce`, which is not there
      hint: did you mean `resource`?
    w.toml:13:11: a path cannot hold ' '
      hint: write it percent-encoded, as `%20` for a space
    w.toml:14:9: `think` in [[step]] number 2: `5` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    w.toml:15:21: `status` in `expect` of [[step]] number 2 must be an HTTP status from 100 to 599 or a list of them, not the number 1000
    w.toml:15:36: `id` is not a JSON path: it does not start with `$` (allowed: `$.name`, `$['a name']`, `$[0]`)
    w.toml:17:10: `method` in [[step]] number 3 must be "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD" or "OPTIONS", not the text "post"
    w.toml:18:10: `${resource.type}` is a field of the table `resource`, and this step has no `each = "resource"`
    w.toml:20:1: [[step]] number 3 has both `body` and `json` (allowed: one body)
    w.toml:23:25: `${` without its `}`
    "#);
}

#[test]
fn keys_of_later_versions_are_refused_by_name() {
    for (text, key) in [
        ("[[teardown]]\n[[step]]\npath = \"/\"", "[[teardown]]"),
        (
            "[[step]]\nweight = 2\npath = \"/\"",
            "`weight` in [[step]] number 1",
        ),
    ] {
        let problems = problems(text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].ends_with(&format!("{key} is not yet supported")),
            "{problems:?}"
        );
    }
}

#[test]
fn an_empty_or_broken_file_says_so() {
    let mut shown = String::new();
    for text in [
        "",
        "[[step]\npath = 1",
        "[[step]]\npath = 1",
        "[[step]]\n",
        "step = []",
        "[step]\npath = \"/\"",
        "table.a = []\n[[step]]\neach = \"a\"\npath = \"/\"",
    ] {
        let _ = writeln!(shown, "{}", wrong(text));
    }
    insta::assert_snapshot!(shown, @r#"
    w.toml:1:1: the workload has no [[step]]
      hint: add a line such as: [[step]]
    w.toml:1:8: this is not TOML: unclosed array table, expected `]`
    w.toml:2:8: `path` in [[step]] number 1 must be a text in quotes, not the number 1
    w.toml:1:1: [[step]] number 1 has no `path`
      hint: add a line such as: path = "/health"
    w.toml:1:1: the journey makes no request
      hint: write at least one [[step]] that does not loop over an empty table
    w.toml:1:2: `step` is written [[step]], one block each, not as a table
    w.toml:2:3: the journey makes no request
      hint: write at least one [[step]] that does not loop over an empty table
    "#);
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
            ("cpus", "w.toml:3:10".to_owned(), None),
            ("patient_ld", "w.toml:6:10".to_owned(), Some("patient_id")),
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
        rows: crate::load::data::Rows::default(),
    };
    let mut buffer = crate::load::request::RequestBuffer::default();
    let template = &prepared.operations[0].request;
    let request = template.build(&[], &mut dynamic, &mut buffer).unwrap();
    let text = str::from_utf8(request.bytes()).unwrap();
    let expected = r#"{"a":0.5,"b":"007","c":"12","d":[1,true,{"e":"x0.5"}],"f":1.5}"#;
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_syntax_error_does_not_hide_other_mistakes_and_blames_nobody_else() {
    let text = r#"[[table.resource]
type = "Patient"
[[table.place]]
type "Room"
[[step]]
each = "resource"
path = "/${resource.type}/${id.${resource.type}}/${place.type}"
name = "${resource.type}"
body_file = "${resource.body}"
[[step]]
metod = "POST"
path "/b"
capture = { "a.${resource.type}" = "$.id", b = "$.c", n = 7 }
[[step]]
each = "place"
path = "/${later}/${place.type}"
[[step]]
capture = { later = "$.x"
think = "5"
"#;
    insta::assert_snapshot!(wrong(text), @"
    w.toml:1:18: this is not TOML: unclosed array table, expected `]`
    w.toml:4:6: this is not TOML: key with no value, expected `=`
    w.toml:11:1: unknown key `metod` in [[step]] number 2
      hint: did you mean `method`?
    w.toml:12:6: this is not TOML: key with no value, expected `=`
    w.toml:13:59: `n` in `capture` of [[step]] number 2 must be a text in quotes, not the number 7
    w.toml:18:11: this is not TOML: unclosed bracket, the next line begins something new
    w.toml:19:9: `think` in [[step]] number 4: `5` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    ");
}

#[test]
fn an_open_body_is_told_where_it_begins() {
    let begin = "[[step]]\npath = \"/\"\nbody = '''\n{ \"a\": [\n  \"b = c\"\n] }\n";
    let rest =
        "\n[[step]]\npath = \"x\"\nbody = '''\n{}\n'''\n\n[[step]]\nmetod = 1\npath = \"/\"\n";
    insta::assert_snapshot!(wrong(&format!("{begin}{rest}")), @r#"
    w.toml:3:8: this is not TOML: multi-line string without its closing quotes
    w.toml:9:8: the path "x" does not start with `/`
      hint: the server's address comes from the target, a step has the path alone
    w.toml:15:1: unknown key `metod` in [[step]] number 3
      hint: did you mean `method`?
    "#);
    insta::assert_snapshot!(wrong(begin), @"w.toml:3:8: this is not TOML: multi-line string without its closing quotes");
    insta::assert_snapshot!(wrong(&format!("{begin}{rest}").replace("'''", "\"\"\"")), @r#"
    w.toml:3:8: this is not TOML: multi-line string without its closing quotes
    w.toml:9:8: the path "x" does not start with `/`
      hint: the server's address comes from the target, a step has the path alone
    w.toml:15:1: unknown key `metod` in [[step]] number 3
      hint: did you mean `method`?
    "#);
}

#[test]
fn problems_inside_a_text_have_their_place_there() {
    let text = r#"[[table.t]]
a = 1
[[step]]
path = "/\u0041/${uuid}/${random(2, 1)}"
headers = { x = 'é ${data.a}', "y" = "${" }
json = { deep = ["${uuid}", "b ${t.c}"] }
capture = { "id.${t.x}" = "$.id" }
[[step]]
each = "t"
path = "/"
body = """
{
  "a": "\t${t.a}",
  "b": "${t.b}"
}"""
expect = { contains = "a ${}" }
[[step]]
name = "\u0041 ${t.a} ${uuid}"
each = "t"
path = "/$${a b}"
body_file = "${t.a}${cpus}"
"#;
    insta::assert_snapshot!(wrong(text), @r#"
    w.toml:4:25: `random(2, 1)` is not `random(LOW, HIGH)` with two whole numbers, low first
    w.toml:5:20: `${data.a}`: there is no [data.a]
    w.toml:5:39: `${` without its `}`
    w.toml:6:32: `${t.c}` is a field of the table `t`, and this step has no `each = "t"`
    w.toml:7:17: `${t.x}` is not a field of the step's table
    w.toml:14:9: a row of the table `t` has no field `b` (it has: a)
    w.toml:16:26: `${}` without a name
    w.toml:18:23: the name of a step cannot change from request to request or hold `${env.}`
      hint: figures are kept by name: use table fields and cell values only
    w.toml:20:14: a path cannot hold ' '
      hint: write it percent-encoded, as `%20` for a space
    w.toml:21:20: `${cpus}` is not a field of the step's table, and `body_file` may use nothing else
    "#);
}

#[test]
fn a_mistake_of_many_rows_and_many_mistakes_are_told_in_bounds() {
    let mut text = "[[table.t]]\n".repeat(9_000);
    text.push_str("[[step]]\neach = \"t\"\npath = \"/a/${t.b}\"\n");
    assert_eq!(problems(&text).len(), 1, "once, not once a row");
    let problems = problems(&"[[step]]\npath = \"x\"\n".repeat(2_000));
    assert_eq!(problems.len(), 501);
    assert_eq!(
        problems[500],
        "w.toml:4001:1: there are more problems than the 500 told here"
    );
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

proptest::proptest! {
    // Each case reads a whole file; a hundred damaged ones a run are enough.
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(100))]

    #[test]
    fn a_damaged_workload_is_refused_or_read_and_never_breaks_the_reader(
        cuts in proptest::collection::vec(
            (proptest::prelude::any::<proptest::sample::Index>(), 0_usize..12, "[\\[\\]{}=\"'$\\\\a-z0-9,.\n-]{0,3}"),
            1..5,
        ),
        which in 0_usize..3,
    ) {
        let (name, text) = [
            ("workload.toml", include_str!("../../compose/testbed/workload.toml")),
            ("workloads/editors.toml", include_str!("../../compose/testbed/workloads/editors.toml")),
            ("workloads/decision.toml", include_str!("../../compose/testbed/workloads/decision.toml")),
        ][which];
        let mut letters: Vec<char> = text.chars().collect();
        for (place, length, insert) in cuts {
            let start = place.index(letters.len());
            let end = (start + length).min(letters.len());
            letters.splice(start..end, insert.chars());
        }
        let text: String = letters.into_iter().collect();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("compose/testbed");
        let file = folder.join(name);
        if let Err(problems) = Workload::parse(&file, &text) {
            proptest::prop_assert!(!problems.0.is_empty());
        }
    }
}
