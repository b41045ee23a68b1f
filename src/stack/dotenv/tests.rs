//! The dialect of `.env`, line by line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

struct Outside(BTreeMap<&'static str, &'static str>);

impl Lookup for Outside {
    fn find(&self, name: &str) -> Option<(&str, Origin)> {
        Some((self.0.get(name)?, Origin::Environment))
    }
}

fn values(text: &str) -> Result<Vec<(String, String)>, Vec<String>> {
    let outside = Outside(BTreeMap::from([("HOST", "h"), ("B", "outer")]));
    let file = DotEnv::parse(Path::new(".env"), text)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let mut notes = Notes::default();
    let values = file.evaluate(&outside, &mut notes);
    Ok(values.into_iter().collect())
}

#[test]
fn lines_are_read_as_compose_reads_them() {
    for (text, expected) in [
        ("A=1", vec![("A", "1")]),
        ("A=1\r\nC=2\r\n", vec![("A", "1"), ("C", "2")]),
        ("export A=1", vec![("A", "1")]),
        ("# no\n\n  A = x y  # why\n", vec![("A", "x y")]),
        ("A=x#y", vec![("A", "x#y")]),
        ("A=", vec![("A", "")]),
        ("A=#", vec![("A", "")]),
        ("A: 1", vec![("A", "1")]),
        ("A=b=c", vec![("A", "b=c")]),
        ("A='$X # \"q\"' # c", vec![("A", "$X # \"q\"")]),
        ("A=\"x\\n\\\"y\\\" \\$Z\"", vec![("A", "x\n\"y\" $Z")]),
        ("A='one\ntwo'\nC=3", vec![("A", "one\ntwo"), ("C", "3")]),
        ("A=1\nC=${A}2", vec![("A", "1"), ("C", "12")]),
        ("A=$HOST:$$x", vec![("A", "h:$x")]),
        ("B=inner\nC=$B", vec![("B", "inner"), ("C", "outer")]),
        ("HOST\nNOWHERE\nA=1", vec![("HOST", "h"), ("A", "1")]),
        ("A=1\nA=2", vec![("A", "2")]),
        ("A=${X:-d}", vec![("A", "d")]),
        ("my.key-1=v", vec![("my.key-1", "v")]),
        ("\u{feff}A=1", vec![("A", "1")]),
        ("", vec![]),
    ] {
        let expected: Vec<(String, String)> = expected
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(values(text), Ok(expected), "{text:?}");
    }
}

#[test]
fn every_bad_line_is_named() {
    let problems = values("A=1\n=2\nB='x\n").unwrap_err();
    assert_eq!(
        problems,
        [
            ".env:2:1: a line must be NAME=value, a comment or empty",
            ".env:3:3: the quote ' is not closed",
        ]
    );
    for text in ["A B", "A=\"x\" y", "A=${", "?"] {
        assert!(
            values(text).unwrap_err()[0].starts_with(".env:1:"),
            "{text}"
        );
    }
}

#[test]
fn doubling_values_do_not_fill_memory() {
    let mut text = "A0=xxxxxxxxxxxxxxxx\n".to_owned();
    for level in 1..60 {
        writeln!(text, "A{level}=$A{0}$A{0}", level - 1).unwrap();
    }
    let file = DotEnv::parse(Path::new(".env"), &text).unwrap();
    let mut notes = Notes::default();
    file.evaluate(&Outside(BTreeMap::new()), &mut notes);
    assert!(notes.problems[0].message.contains("grows beyond"));
}

#[test]
fn names_behind_a_name_are_those_of_its_value() {
    let file = DotEnv::parse(Path::new(".env"), "A=$X${Y:-$Z}\nB=$W\nC").unwrap();
    let names: String = file.names_behind("A").into_iter().collect();
    assert_eq!(names, "XYZ");
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\PC|[ \n='\"$\\{\\}#\\\\]){0,80}") {
        let _ = values(&text);
    }
}
