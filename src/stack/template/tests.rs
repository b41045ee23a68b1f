//! Tables of interpolation, worked out by hand from the Compose specification.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Default)]
struct Seen {
    unset: Vec<String>,
    used: Vec<(String, String)>,
}

impl Witness for Seen {
    fn unset(&mut self, name: &str) {
        self.unset.push(name.to_owned());
    }

    fn used(&mut self, name: &str, value: &str, _origin: Origin) {
        self.used.push((name.to_owned(), value.to_owned()));
    }
}

impl Lookup for BTreeMap<&str, &str> {
    fn find(&self, name: &str) -> Option<(&str, Origin)> {
        Some((self.get(name)?, Origin::Environment))
    }
}

fn values() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("A", "a"),
        ("B", "b"),
        ("EMPTY", ""),
        ("_x1", "under"),
        ("D", "$A"),
    ])
}

fn evaluate(text: &str) -> (Result<String, TemplateError>, Seen) {
    let template = Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let mut seen = Seen::default();
    (template.evaluate(&values(), &mut seen), seen)
}

#[test]
fn every_form_gives_what_compose_gives() {
    for (text, expected) in [
        ("plain", "plain"),
        ("", ""),
        ("$A", "a"),
        ("${A}", "a"),
        ("x$A.y", "xa.y"),
        ("$A$B", "ab"),
        ("${A}${B}", "ab"),
        ("$_x1", "under"),
        ("$Ab", ""),
        ("${A}b", "ab"),
        ("$$", "$"),
        ("$$A", "$A"),
        ("$$$A", "$a"),
        ("$$$$", "$$"),
        ("$${A}", "${A}"),
        ("$(cmd)", "$(cmd)"),
        ("a$", "a$"),
        ("$ A", "$ A"),
        ("$1", "$1"),
        ("$-", "$-"),
        ("^x$|y", "^x$|y"),
        ("${NONE}", ""),
        ("${NONE:-d}", "d"),
        ("${NONE-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY-d}", ""),
        ("${A:-d}", "a"),
        ("${A-d}", "a"),
        ("${NONE:-}", ""),
        ("${NONE-}", ""),
        ("${A:+x}", "x"),
        ("${A+x}", "x"),
        ("${EMPTY:+x}", ""),
        ("${EMPTY+x}", "x"),
        ("${NONE:+x}", ""),
        ("${NONE+x}", ""),
        ("${A:?m}", "a"),
        ("${EMPTY?m}", ""),
        ("${NONE:-$B}", "b"),
        ("${NONE:-${B}}", "b"),
        ("${NONE:-${NONE:-${B}}}", "b"),
        ("${NONE:-${NONE:-x}y}z", "xyz"),
        ("${NONE:-https://${A:-h}:${B}}", "https://a:b"),
        ("${A:+${B}}", "b"),
        ("${NONE:-a:-b}", "a:-b"),
        ("${NONE-a:?b}", "a:?b"),
        ("${NONE:-$$host}", "$host"),
        ("${NONE:-$${x}}", "${x}"),
        (r"${NONE:-^(\d{4})$}", r"^(\d{4})$"),
        ("${NONE:-{}}", "{}"),
        ("${A:-}}", "a}"),
        ("}${A}{", "}a{"),
        ("${D}", "$A"),
        ("ü${A}µ", "üaµ"),
        ("${NONE:-ü}", "ü"),
        ("${NONE:- a b }", " a b "),
    ] {
        assert_eq!(evaluate(text).0, Ok(expected.to_owned()), "{text}");
    }
}

#[test]
fn a_required_value_that_is_missing_carries_the_files_own_words() {
    for (text, message) in [
        (
            "${NONE:?set it}",
            "required variable `NONE` has no value: set it",
        ),
        (
            "${NONE?set $A}",
            "required variable `NONE` has no value: set a",
        ),
        ("${EMPTY:?}", "required variable `EMPTY` has no value"),
        (
            "${NONE:-${EMPTY:?deep}}",
            "required variable `EMPTY` has no value: deep",
        ),
    ] {
        let error = evaluate(text).0.expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn malformed_braces_are_found_with_their_place() {
    for (text, offset) in [
        ("${", 0),
        ("ab${A", 2),
        ("${}", 0),
        ("${ A}", 0),
        ("${1}", 0),
        ("${A!b}", 0),
        ("${A:b}", 0),
        ("${A b}", 0),
        ("ü ${A:-${}}", 7),
        ("$A ${B:-x${C;}}", 9),
    ] {
        let error = Template::parse(text).expect_err(text);
        assert_eq!(error.offset, offset, "{text}");
    }
}

#[test]
fn only_the_branch_that_is_taken_is_witnessed() {
    let (_, seen) = evaluate("${A:-$NONE} ${NONE:-$B} $MISSING ${OTHER:+$B}");
    assert_eq!(seen.unset, ["MISSING"]);
    let used = [("A", "a"), ("B", "b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(seen.used, used);
}

#[test]
fn all_names_are_known_without_values() {
    let mut names = BTreeSet::new();
    Template::parse("$A ${B:-${C-$D}} ${E:?$F} $$G")
        .unwrap()
        .collect_names(&mut names);
    assert_eq!(names.into_iter().collect::<String>(), "ABCDEF");
}

#[test]
fn endless_nesting_and_growth_are_refused() {
    let deep = format!("{}x{}", "${A:-".repeat(1_000), "}".repeat(1_000));
    assert_eq!(
        Template::parse(&deep).unwrap_err().reason,
        "defaults nest too deep"
    );
    let large = "x".repeat(1_000);
    let lookup = BTreeMap::from([("L", large.as_str())]);
    let template = Template::parse(&"$L".repeat(2_000)).unwrap();
    let outcome = template.evaluate(&lookup, &mut Seen::default());
    assert_eq!(outcome, Err(TemplateError::TooLong));
}

proptest! {
    #[test]
    fn no_text_panics(text in "[ -~ü$\\{\\}:?+-]{0,60}") {
        if let Ok(template) = Template::parse(&text) {
            let _ = template.evaluate(&values(), &mut Seen::default());
        }
    }

    #[test]
    fn a_text_with_doubled_dollars_is_itself(text in ".{0,40}") {
        let template = Template::parse(&text.replace('$', "$$")).unwrap();
        prop_assert_eq!(template.evaluate(&values(), &mut Seen::default()), Ok(text));
    }
}
