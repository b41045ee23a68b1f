use std::path::Path;

use indexmap::IndexMap;
use proptest::prelude::*;

use super::*;
use crate::load::plan::Target;
use crate::load::prepare::prepare;
use crate::load::request::RequestBuffer;
use crate::load::template::{Counter, Dynamic};
use crate::load::workload::Workload;
use crate::tls::Wire;

const FHIR: &str = "application/fhir+json; charset=utf-8";

/// The body of the second step: table field `t.f`, capture `c`, cell value `v`.
fn sent(content_type: &str, body: &str, field: &str, capture: &Value, cell: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("body.json"), body).unwrap();
    let text = format!(
        "headers = {{ Content-Type = {content_type:?} }}\n\
         [[table.t]]\nf = {}\n\
         [[step]]\npath = \"/\"\ncapture = {{ c = \"$.c\" }}\n\
         [[step]]\neach = \"t\"\npath = \"/\"\nbody_file = \"body.json\"\n\
         [[step]]\neach = \"t\"\npath = \"/\"\nbody = {}\n",
        toml_text(field),
        toml_text(body),
    );
    let workload = Workload::parse(&folder.path().join("w.toml"), &text)
        .unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let target = Target {
        addresses: vec!["127.0.0.1:1".parse().unwrap()],
        host: "app".into(),
        base_path: String::new(),
        wire: Wire::default(),
    };
    let variables: IndexMap<String, String> = workload
        .variables()
        .iter()
        .map(|used| (used.name.clone(), cell.to_owned()))
        .collect();
    let prepared = prepare(&workload, &target, &variables).unwrap();
    let body_of = |step: usize| {
        let mut dynamic = Dynamic {
            captures: &[Some(capture.clone())],
            random: &mut fastrand::Rng::with_seed(1),
            counter: &mut Counter::new(0, 1),
            user: 0,
            rows: crate::load::data::Rows::default(),
        };
        let mut buffer = RequestBuffer::default();
        let request = prepared.operations[step]
            .request
            .build(&prepared.captures, &mut dynamic, &mut buffer)
            .unwrap();
        let text = str::from_utf8(request.bytes()).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let (from_file, inline) = (body_of(1), body_of(2));
    assert_eq!(from_file, inline, "one rule for both kinds of text");
    inline
}

/// A TOML basic string; JSON's escapes are TOML's as well, but for DEL.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[test]
fn a_quote_in_a_value_neither_breaks_nor_changes_a_json_body() {
    let capture = Value::from("x\", \"admin\": \"yes");
    let body =
        r#"{ "a": "<${c}>", "b": "${t.f}", "c": "${v}", "${t.f}": "\"${c}\\", "n": ${t.n} }"#
            .replace("${t.n}", "${counter}");
    let text = sent(FHIR, &body, "back\\slash\n", &capture, "\"cell\"");
    let found: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let expected = serde_json::json!({
        "a": "<x\", \"admin\": \"yes>",
        "b": "back\\slash\n",
        "c": "\"cell\"",
        "back\\slash\n": "\"x\", \"admin\": \"yes\\",
        "n": 1,
    });
    assert_eq!(found, expected);
}

#[test]
fn a_value_outside_of_strings_is_sent_as_it_is() {
    let capture = serde_json::json!({ "id": "a\"b" });
    let text = sent(
        FHIR,
        r#"{ "whole": ${c}, "text": "${c}", "n": ${v} }"#,
        "",
        &capture,
        "4",
    );
    assert_eq!(
        text,
        r#"{ "whole": {"id":"a\"b"}, "text": "{\"id\":\"a\\\"b\"}", "n": 4 }"#
    );
    assert_eq!(sent(FHIR, "${c}", "", &Value::from("\"x\""), ""), "\"x\"");
}

#[test]
fn bodies_that_are_not_json_stay_as_they_are() {
    let body = "\"${c}\", ${t.f}, '${v}'";
    for content_type in ["text/csv", "application/xml", ""] {
        let text = sent(content_type, body, "f\"", &Value::from("c\""), "v\"");
        assert_eq!(text, "\"c\"\", f\", 'v\"'", "{content_type}");
    }
    let text = sent("Application/JSON", body, "f\"", &Value::from("c\""), "v\"");
    assert_eq!(text, "\"c\\\"\", f\", 'v\"'");
}

#[test]
fn the_content_type_of_a_cell_or_of_a_step_decides() {
    let headers = |pieces: Pieces| vec![(CONTENT_TYPE, pieces)];
    assert!(is_json(&headers(Pieces::text("application/problem+JSON"))));
    assert!(!is_json(&headers(Pieces::text("text/plain"))));
    assert!(!is_json(&[]));
    let open = |names: [Piece; 2]| {
        let mut pieces = Pieces::default();
        for piece in names {
            pieces.push(piece);
        }
        headers(pieces)
    };
    let json = || Piece::Text("application/json; v=".into());
    assert!(is_json(&open([json(), Piece::Capture(0)])));
    assert!(!is_json(&open([
        Piece::Text("a/".into()),
        Piece::Capture(0)
    ])));
    assert!(is_json(&headers(
        open([
            Piece::Text("application/".into()),
            Piece::External("kind".into())
        ])[0]
            .1
            .fix(&|_| Some(Value::from("json")))
            .unwrap()
    )));

    let text = "headers = { content-type = \"application/json\" }\n\
        [[step]]\npath = \"/\"\nheaders = { content-type = \"text/plain\" }\nbody = \"\\\"${v}\\\"\"";
    let workload = Workload::parse(Path::new("w.toml"), text).unwrap();
    assert!(!is_json(&workload.operations[0].headers), "the step's own");
}

proptest! {
    #[test]
    fn whatever_is_captured_the_document_says_what_was_meant(
        capture in any::<String>(),
        cell in "[\"\\\\\n\ta-z0-9]{0,8}",
        before in any::<String>(),
    ) {
        let before = Value::from(before.replace('$', "")).to_string();
        let before = &before[1..before.len() - 1];
        let body = format!(r#"["{before}${{c}}{before}", "${{v}}", {{"${{c}}": "${{v}}${{c}}"}}, "{before}"]"#);
        let text = sent(FHIR, &body, "", &Value::from(capture.clone()), &cell);
        let found: Value = serde_json::from_str(&text).unwrap();
        let before: String = serde_json::from_str(&format!("\"{before}\"")).unwrap();
        let expected = serde_json::json!([
            format!("{before}{capture}{before}"), cell, { &capture: format!("{cell}{capture}") }, before
        ]);
        prop_assert_eq!(found, expected);
    }
}
