//! What expressions mean, and what is said about those that mean nothing.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::toml_file::Content;

const NAMES: [&str; 4] = ["cpus", "web", "mode", "on"];

fn parse(text: &str) -> Result<Expression, String> {
    let names = NAMES.map(str::to_owned);
    let known = Known {
        names: &names,
        visible: names.len(),
        is_load: true,
    };
    let name = Path::new("e");
    Expression::parse(text, &Content::Plain { name }, known).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })
}

/// The value with cpus = 3, web = 2.5, mode = "fast", on = true; `tier_max(web)` is 9.
fn value(text: &str) -> Result<Value, String> {
    let values = [
        Value::Number(3.0),
        Value::Number(2.5),
        Value::Text("fast".into()),
        Value::Boolean(true),
    ];
    parse(text)?
        .evaluate(&values, &[None, Some(9.0), None, None])
        .map_err(|failure| format!("{}: {}", failure.location, failure.message))
}

fn number(text: &str) -> f64 {
    match value(text) {
        Ok(Value::Number(number)) => number,
        other => panic!("{text}: {other:?}"),
    }
}

fn said(text: &str) -> String {
    match value(text) {
        Ok(value) => format!("{value}"),
        Err(message) => message,
    }
}

#[test]
fn numbers_are_floats_everywhere() {
    for (text, expected) in [
        ("5 / 2", 2.5_f64),
        ("7 % 4", 3.0),
        ("-7 % 4", -3.0),
        ("2 ** 10", 1024.0),
        ("2 ** 3 ** 2", 512.0),
        ("2 ** -1", 0.5),
        ("9 ** 0.5", 3.0),
        ("1 - 2 - 3", -4.0),
        ("2 + 3 * 4", 14.0),
        ("-cpus - 1", -4.0),
        ("+cpus", 3.0),
        ("0x10 + 1_000", 1016.0),
        ("1e3", 1000.0),
        ("cpus / 2 * 2", 3.0),
    ] {
        assert_eq!(number(text).to_bits(), expected.to_bits(), "{text}");
    }
}

#[test]
fn rounding_is_half_to_even_unless_asked_for() {
    for (text, expected) in [
        ("round(0.5)", 0.0),
        ("round(1.5)", 2.0),
        ("round(2.5)", 2.0),
        ("round(4.5)", 4.0),
        ("round(-2.5)", -2.0),
        ("round(2.6)", 3.0),
        ("round_half_up(0.5)", 1.0),
        ("round_half_up(2.5)", 3.0),
        ("round_half_up(-2.5)", -2.0),
        ("round_half_up(2.4)", 2.0),
        ("round_half_up(0.49999999999999994)", 0.0),
        ("ceil(2.1)", 3.0),
        ("floor(-2.1)", -3.0),
        ("abs(-2)", 2.0),
        ("min(3, 1, 2)", 1.0),
        ("max(3, 1, cpus * 2)", 6.0),
    ] {
        assert!((number(text) - expected).abs() < f64::EPSILON, "{text}");
    }
}

#[test]
fn texts_and_truth_values_are_values_too() {
    for (text, expected) in [
        ("mode == \"fast\"", true),
        ("mode != 'f'", true),
        ("mode < \"g\"", true),
        ("on", true),
        ("!on", false),
        ("on == false", false),
        ("cpus >= 3 && web < 3", true),
        ("cpus > 3 || !(web > 3)", true),
        ("false && 1 / 0 == 1", false),
        ("true || 1 / 0 == 1", true),
    ] {
        assert_eq!(value(text), Ok(Value::Boolean(expected)), "{text}");
    }
    assert_eq!(value("if(on, \"a\", \"b\")"), Ok(Value::Text("a".into())));
}

#[test]
fn comparisons_have_no_tolerance() {
    assert_eq!(value("0.1 + 0.2 == 0.3"), Ok(Value::Boolean(false)));
    assert_eq!(value("1e-300 > 0"), Ok(Value::Boolean(true)));
    assert_eq!(value("1 + 2e-16 > 1"), Ok(Value::Boolean(true)));
    assert_eq!(value("0 == -0"), Ok(Value::Boolean(true)));
}

#[test]
fn the_other_side_of_an_if_is_not_computed() {
    assert!((number("if(web > 0, 10 / web, 1 / 0)") - 4.0).abs() < f64::EPSILON);
    assert!((number("if(on, if(cpus == 2, 1, 2), 3) + 1") - 3.0).abs() < f64::EPSILON);
    assert!((number("-if(on, 1, 2)") + 1.0).abs() < f64::EPSILON);
}

#[test]
fn values_of_different_kinds_are_never_compared() {
    insta::assert_snapshot!(
        [
            "cpus == mode", "cpus != \"3\"", "mode < 3", "on == 1", "on < false", "1 < 2 < 3",
            "cpus && on", "on || cpus", "false || cpus", "!cpus", "-mode", "+on", "mode + \"x\"", "on * 2",
            "round(mode)", "max(1, on)", "if(cpus, 1, 2)", "tier_max(cpus)",
        ]
        .map(said)
        .join("\n"),
        @"
    e:1:6: `==` cannot compare the number 3 with the text `fast`
    e:1:6: `!=` cannot compare the number 3 with the text `3`
    e:1:6: `<` cannot compare the text `fast` with the number 3
    e:1:4: `==` cannot compare the truth value true with the number 1
    e:1:4: `<` cannot compare the truth value true with the truth value false
    e:1:7: `<` cannot compare the truth value true with the number 3
    e:1:1: `&&` needs true or false, not the number 3
    the truth value true
    e:1:10: `||` needs true or false, not the number 3
    e:1:1: `!` needs true or false, not the number 3
    e:1:1: a sign needs a number, not the text `fast`
    e:1:1: a sign needs a number, not the truth value true
    e:1:6: `+` needs two numbers, not the text `fast` and the text `x`
    e:1:4: `*` needs two numbers, not the truth value true and the number 2
    e:1:7: `round` needs a number, not the text `fast`
    e:1:8: `max` needs a number, not the truth value true
    e:1:4: `if` needs true or false, not the number 3
    e:1:1: `tier_max` needs a name that is a number in every cell
    "
    );
}

#[test]
fn no_operator_gives_an_infinity() {
    insta::assert_snapshot!(
        ["1 / 0", "cpus % 0", "0 / 0", "10 ** 400", "1e308 * 10", "(0 - 8) ** 0.5", "0 ** -1"].map(said).join("\n"),
        @"
    e:1:3: `/` divides 1 by zero
    e:1:6: `%` divides 3 by zero
    e:1:3: `/` divides 0 by zero
    e:1:4: `**` gives inf, which is no knob's value
    e:1:7: `*` gives inf, which is no knob's value
    e:1:9: `**` gives NaN, which is no knob's value
    e:1:3: `**` gives inf, which is no knob's value
    "
    );
}

#[test]
fn only_expressions_are_accepted() {
    insta::assert_snapshot!(
        [
            "let x = 3", "cpus = 3", "cpus += 1", "cpus; web", "while true { }", "loop { }", "for", "fn f() { 1 }",
            "return 1", "{ 1 }", "switch cpus { 3 => 1 }", "if cpus > 2 { 1 } else { 2 }", "[1, 2]", "#{a: 1}", "cpus[0]", "mode.len", "mode.len()",
            "|x| x", "`a${cpus}`", "cpus ?? 1", "1..3", "cpus in mode", "cpus & 1", "cpus | 1", "cpus ^ 1", "cpus << 1",
            "()", "this", "eval(\"1\")", "print(1)", "type_of(1)", "Fn(\"x\")", "call(1)", "import \"x\"", "round!(1)", "round::x(1)",
            "cpus ? 1 : 2", "not on", "on and on", "on or on", "${cpus}", "'fast' == mode", "5.", ".5", "1.5.2", "cpus === 3", "\u{40}", "cpus web",
        ]
        .map(|text| format!("{text:30} {}", said(text).replace("\n  hint: ", " // ")))
        .join("\n"),
        @r#"
    let x = 3                      e:1:1: `let` cannot be used here
    cpus = 3                       e:1:6: `=` cannot be used here // to compare, write `==`
    cpus += 1                      e:1:6: `+=` cannot be used here
    cpus; web                      e:1:5: `;` cannot be used here
    while true { }                 e:1:1: `while` cannot be used here
    loop { }                       e:1:1: `loop` cannot be used here
    for                            e:1:1: `for` cannot be used here
    fn f() { 1 }                   e:1:1: `fn` cannot be used here
    return 1                       e:1:1: `return` cannot be used here
    { 1 }                          e:1:1: `{` cannot be used here
    switch cpus { 3 => 1 }         e:1:1: a statement cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    if cpus > 2 { 1 } else { 2 }   e:1:4: `if` takes a condition and two values: `if(cpus > 2, 10, 5)`
    [1, 2]                         e:1:1: `[` cannot be used here
    #{a: 1}                        e:1:1: `#` cannot be used here
    cpus[0]                        e:1:5: `[` cannot be used here
    mode.len                       e:1:5: `.` cannot be used here // a number has digits on both sides of its point
    mode.len()                     e:1:5: `.` cannot be used here // a number has digits on both sides of its point
    |x| x                          e:1:1: `|` cannot be used here
    `a${cpus}`                     e:1:1: a template between backticks cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    cpus ?? 1                      e:1:6: `??` cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    1..3                           e:1:2: `..` cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    cpus in mode                   e:1:6: `in` cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    cpus & 1                       e:1:6: `&` (write `&&`) cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    cpus | 1                       e:1:6: `|` (write `||`) cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    cpus ^ 1                       e:1:6: `^` cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    cpus << 1                      e:1:6: `<<` cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    ()                             e:1:1: `()` cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    this                           e:1:1: `this` cannot be used here
    eval("1")                      e:1:1: unknown function `eval` // the functions are round, round_half_up, ceil, floor, abs, min, max, if
    print(1)                       e:1:1: unknown function `print` // the functions are round, round_half_up, ceil, floor, abs, min, max, if
    type_of(1)                     e:1:1: unknown function `type_of` // the functions are round, round_half_up, ceil, floor, abs, min, max, if
    Fn("x")                        e:1:1: unknown function `Fn` // the functions are round, round_half_up, ceil, floor, abs, min, max, if
    call(1)                        e:1:1: unknown function `call` // the functions are round, round_half_up, ceil, floor, abs, min, max, if
    import "x"                     e:1:1: `import` cannot be used here
    round!(1)                      e:1:1: `!` behind a name cannot be used in an expression (allowed: numbers, "texts", true, false, names, operators, functions)
    round::x(1)                    e:1:6: `:` cannot be used here
    cpus ? 1 : 2                   e:1:6: `?` cannot be used here // write `if(condition, a, b)`
    not on                         e:1:5: `on` cannot be used here
    on and on                      e:1:4: `and` cannot be used here // write `&&`
    on or on                       e:1:4: `or` cannot be used here // write `||`
    ${cpus}                        e:1:1: `$` cannot be used here // names stand alone here: write `cpus`, not `${cpus}`
    'fast' == mode                 e:1:1: a text in an expression stands between double quotes // in TOML: mode = 'kind == "fast"'
    5.                             e:1:2: `.` cannot be used here // a number has digits on both sides of its point
    .5                             e:1:1: `.` cannot be used here // a number has digits on both sides of its point
    1.5.2                          e:1:4: `.` cannot be used here // a number has digits on both sides of its point
    cpus === 3                     e:1:6: `===` cannot be used here
    @                              e:1:1: `@` cannot be used here
    cpus web                       e:1:6: `web` cannot be used here
    "#
    );
}

#[test]
fn unknown_names_are_all_told_with_what_there_is() {
    insta::assert_snapshot!(parse("roung(cpu) + wbe * nix(1) + min(1) + abs(1, 2) + round() + max + tier_max + tier_max(1) + tier_max(x) + tier_capacity").unwrap_err(), @"
    e:1:1: unknown function `roung`
      hint: did you mean `round`?
    e:1:7: unknown name `cpu`
      hint: did you mean `cpus`?
    e:1:14: unknown name `wbe`
      hint: did you mean `web`?
    e:1:20: unknown function `nix`
      hint: the functions are round, round_half_up, ceil, floor, abs, min, max, if
    e:1:29: `min` takes two values or more, not 1
    e:1:38: `abs` takes one value, not 2
    e:1:50: `round` takes one value, not 0
    e:1:60: `max` is a function: write `max(...)`
    e:1:66: `tier_max` is a function: write `tier_max(...)`
    e:1:77: `tier_max` takes one name, such as `tier_max(web_threads)`
    e:1:100: unknown name `x`
      hint: the names here are cpus, web, mode, on
    e:1:105: `tier_capacity` is not yet supported (allowed: a number or an expression over axes, derived values and tier_max)
    ");
}

#[test]
fn a_sign_before_a_power_is_refused_because_people_read_it_in_two_ways() {
    for text in ["-2 ** 2", "-cpus ** 2", "(-2) ** 2", "-1.5 ** 2"] {
        assert!(said(text).contains("can be read in two ways"), "{text}");
    }
    assert!((number("0 - 2 ** 2") + 4.0).abs() < f64::EPSILON);
}

#[test]
fn hostile_texts_end_in_a_message() {
    let deep =
        |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    assert!(said(&deep("(", ")", 900)).contains("nested too deeply"));
    assert!(said(&deep("round(", ")", 250)).contains("nested too deeply"));
    assert!(said(&deep("- ", "", 900)).contains("nested too deeply"));
    assert!(said(&deep("if(on, ", ", 1)", 100)).contains("nested too deeply"));
    assert!(said(&"1".repeat(2_001)).contains("too long"));
    // Operators in a row lean on one another like brackets.
    assert!((number(&format!("1{}", "+1".repeat(59))) - 60.0).abs() < f64::EPSILON);
    assert!(said(&format!("1{}", "+1".repeat(999))).contains("nested too deeply"));
    assert!(said(&format!("1{}", "**1".repeat(600))).contains("nested too deeply"));
}

#[test]
fn names_are_what_both_languages_take() {
    for word in ["cpus", "_x", "webThreads", "web_threads2", "exit", "global"] {
        assert!(is_usable_name(word), "{word}");
        assert!(
            parse(word).is_ok() || parse(word).unwrap_err().contains("unknown name"),
            "{word}"
        );
    }
    for word in [
        "",
        "2x",
        "a-b",
        "a.b",
        "a b",
        "\u{fc}",
        "if",
        "else",
        "for",
        "in",
        "true",
        "this",
        "new",
        "round",
        "min",
        "tier_max",
        "tier_capacity",
        "a // b",
        "Fn",
        "print",
    ] {
        assert!(!is_usable_name(word), "{word}");
    }
}

#[test]
fn the_names_an_expression_reads_are_known() {
    let expression = parse("if(cpus > 1, web, 2) + tier_max(web)").unwrap();
    assert_eq!(
        expression.slots().iter().copied().collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(
        expression
            .tier_max_slots()
            .iter()
            .copied()
            .collect::<Vec<_>>(),
        [1]
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[-a-z0-9 .,+*/%()<>=!&|\"'{};_\\[\\]$#@?:`\\\\\n]{0,40}") {
        let _ = value(&text);
    }

    #[test]
    fn arithmetic_is_that_of_the_machine(a in -1e6_f64..1e6, b in -1e6_f64..1e6) {
        let text = format!("({a:?}) * ({b:?}) + ({a:?}) - ({b:?}) / 3");
        prop_assert_eq!(number(&text).to_bits(), (a * b + a - b / 3.0).to_bits());
    }

    #[test]
    fn rounding_is_never_more_than_half_away(number_ in -1e9_f64..1e9) {
        let even = number(&format!("round({number_:?})"));
        let up = number(&format!("round_half_up({number_:?})"));
        prop_assert!((even - number_).abs() <= 0.5);
        prop_assert!((up - number_).abs() <= 0.5 && up >= even - 1.0);
    }
}
