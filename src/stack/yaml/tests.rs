//! The tree: places, anchors, merge keys, tags, and the bounds.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Vec<Arc<Node>>, Vec<String>> {
    let source = Arc::new(Source {
        path: "c.yaml".into(),
        folder: "/".into(),
        is_inline: false,
    });
    parse(&source, text).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// A tree on one line; quoted texts are shown with quotes.
fn show(node: &Node) -> String {
    match &node.value {
        Value::Scalar(_) if node.is_null() => "~".to_owned(),
        Value::Scalar(scalar) if scalar.is_plain => scalar.text.to_string(),
        Value::Scalar(scalar) => format!("{:?}", scalar.text),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| show(item)).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Map(entries) => {
            let pairs: Vec<String> = entries
                .iter()
                .map(|(key, entry)| format!("{key}:{}", show(&entry.node)))
                .collect();
            format!("{{{}}}", pairs.join(" "))
        }
    }
}

fn shown(text: &str) -> String {
    match read(text) {
        Ok(documents) => documents
            .iter()
            .map(|node| show(node))
            .collect::<Vec<_>>()
            .join(" --- "),
        Err(problems) => problems.join("; "),
    }
}

#[test]
fn trees_are_read_as_compose_reads_them() {
    for (text, tree) in [
        ("a: 1", "{a:1}"),
        ("a: '1'\nb: \"2\"", r#"{a:"1" b:"2"}"#),
        ("a:\nb: ~\nc: null", "{a:~ b:~ c:~}"),
        ("a: [x, 'y', {z: 1}]", r#"{a:[x "y" {z:1}]}"#),
        ("a: |\n  one\n  two\n", r#"{a:"one\ntwo\n"}"#),
        ("a: &x {b: 1}\nc: *x", "{a:{b:1} c:{b:1}}"),
        ("a: &x 1\nb: &x 2\nc: *x", "{a:1 b:2 c:2}"),
        (
            "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3",
            "{x:{a:1 b:2} y:{b:3 a:1}}",
        ),
        (
            "x: &x {a: 1}\nz: &z {a: 2, c: 3}\ny: {<<: [*x, *z]}",
            "{x:{a:1} z:{a:2 c:3} y:{a:1 c:3}}",
        ),
        ("y:\n  b: 3\n  <<: {b: 4}", "{y:{b:3}}"),
        ("'<<': {a: 1}", "{<<:{a:1}}"),
        ("a: !!str 5", r#"{a:"5"}"#),
        ("a: {$IMAGE}", "{a:{$IMAGE:~}}"),
        ("\u{feff}a: 1", "{a:1}"),
        ("---\na: 1\n---\nb: 2", "{a:1} --- {b:2}"),
        ("a: [\n  x,\n]\nb: 1", "{a:[x] b:1}"),
        (
            "s:\n  a: [\n    x\n  ]\n  b: {\n    c: 1\n  }\n",
            "{s:{a:[x] b:{c:1}}}",
        ),
        ("", ""),
    ] {
        assert_eq!(shown(text), tree, "{text}");
    }
}

#[test]
fn mistakes_carry_their_places() {
    for (text, problem) in [
        (
            "a: 1\nb: 2\na: 3",
            "c.yaml:3:1: the key `a` is here twice; first at c.yaml:1:1\n  hint: keep one of them",
        ),
        (
            "? [1]\n: 2",
            "c.yaml:1:3: a key must be a single value, not a list",
        ),
        (
            "a:\n  <<: 5",
            "c.yaml:2:7: the merge key `<<` takes a map or a list of maps, not a single value",
        ),
        (
            "a: &x [*x]",
            "c.yaml:1:8: an alias inside the value it stands for",
        ),
        (
            "a: !secret b",
            "c.yaml:1:4: the tag `!secret` is not supported (allowed: !reset, !override)",
        ),
    ] {
        assert_eq!(shown(text), problem, "{text}");
    }
    for text in ["a: *x", "a: [1", "a: \"", "a: b: c", "%", "a: @x"] {
        assert!(
            shown(text).contains("not valid YAML"),
            "{text}: {}",
            shown(text)
        );
    }
}

#[test]
fn places_count_lines_and_characters_from_one() {
    let documents = read("ü: {a: 1}\nb:\n  - x\n").unwrap();
    let root = &documents[0];
    let place = |node: &Node| node.mark.location().to_string();
    assert_eq!(
        place(root.get("ü").unwrap().get("a").unwrap()),
        "c.yaml:1:8"
    );
    let Value::List(items) = &root.get("b").unwrap().value else {
        panic!()
    };
    assert_eq!(place(&items[0]), "c.yaml:3:5");
}

#[test]
fn a_moved_bracket_keeps_its_column() {
    let problems = read("s:\n  a: [\n    x\n  ] ]\n").unwrap_err();
    assert!(problems[0].starts_with("c.yaml:4:"), "{problems:?}");
    let column: usize = problems[0].split(':').nth(2).unwrap().parse().unwrap();
    assert!(column < 10, "{problems:?}");
}

#[test]
fn a_file_of_laughs_is_refused_at_once() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{items}]").unwrap();
    }
    assert!(
        shown(&text).contains("expand to more than"),
        "{}",
        shown(&text)
    );
}

#[test]
fn deep_nesting_is_refused_also_through_aliases() {
    assert!(shown(&"[".repeat(200)).contains("levels deep"));
    let mut text = "a0: &a0 x\n".to_owned();
    for level in 1..100 {
        writeln!(text, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
    }
    assert!(shown(&text).contains("levels deep"));
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\PC|[ \n:&*!<>|\\[\\]{},'\"#-]){0,80}") {
        let _ = read(&text);
    }
}
