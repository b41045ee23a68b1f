//! Files that are not TOML, not quite, or far too much of it.

use proptest::prelude::*;

use super::*;

const REFERENCE: &str = include_str!("../../../../matrix.toml");

#[test]
fn a_syntax_error_does_not_hide_other_mistakes() {
    insta::assert_snapshot!(wrong(&LEAST.replace("subject = \"app\"", "subject = \"app\n").replace("users = 16", "usrs = 16")), @r#"
    m.toml:5:15: this is not TOML: invalid basic string, expected `"`
    m.toml:17:12: unknown key `usrs` in `closed` of [[phase]] "stress"
      hint: did you mean `users`?
    "#);
    insta::assert_snapshot!(wrong(&LEAST.replace("subject = \"app\"", "subject \"app\"").replace("45s", "45 s")), @r#"
    m.toml:5:9: this is not TOML: key with no value, expected `=`
    m.toml:17:12: `duration` in [[phase]] "stress": `45 s` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    "#);
    insta::assert_snapshot!(wrong(&LEAST.replace("cpus = [1, 2]", "cpus = [1, 2\n[derived]\nn = 'cpus + 1'").replace("45s", "45 s")), @r#"
    m.toml:8:8: this is not TOML: unclosed bracket, the next line begins something new
    m.toml:19:12: `duration` in [[phase]] "stress": `45 s` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    "#);
    insta::assert_snapshot!(wrong(&LEAST.replace("[load]", "[load").replace("45s", "45 s")), @r#"
    m.toml:9:6: this is not TOML: unclosed table, expected `]`
    m.toml:17:12: `duration` in [[phase]] "stress": `45 s` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    "#);
    insta::assert_snapshot!(wrong(&LEAST.replace("subject =", "name = 'again'\nsubject =").replace("45s", "45 s")), @r#"
    m.toml:5:1: this is not TOML: duplicate key
    m.toml:18:12: `duration` in [[phase]] "stress": `45 s` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    "#);
    insta::assert_snapshot!(wrong(&LEAST.replace("users = 16", "users = ").replace("45s", "45 s")), @r#"
    m.toml:16:21: this is not TOML: invalid literal string, expected `'`
    m.toml:17:12: `duration` in [[phase]] "stress": `45 s` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
    "#);
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let sweep = good(&format!("\u{feff}{}", LEAST.replace('\n', "\r\n")));
    assert_eq!(sweep.axes[0].location.to_string(), "m.toml:8:1");
    let text = LEAST
        .replace("users = 16", "users = 'cpu'")
        .replace('\n', "\r\n");
    assert!(
        wrong(&text).starts_with("m.toml:16:21: unknown name"),
        "{}",
        wrong(&text)
    );
}

#[test]
fn a_mistake_made_a_hundred_thousand_times_is_told_in_bounds() {
    let levels = vec!["1"; 100_000].join(", ");
    let text = LEAST.replace("cpus = [1, 2]", &format!("cpus = [{levels}]"));
    let problems = read(Path::new("m.toml"), &text).unwrap_err();
    assert_eq!(problems.0.len(), 501);
    let last = problems.0.last().unwrap().to_string();
    assert!(
        last.ends_with("there are more problems than the 500 told here"),
        "{last}"
    );
}

proptest! {
    // Each case parses a whole file; a hundred damaged ones a run are enough.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_damaged_file_is_refused_or_read_and_never_breaks_the_reader(
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..12, "[\\[\\]{}=\"'a-z0-9,.\n-]{0,3}"), 1..5),
    ) {
        let mut text = REFERENCE.to_owned();
        for (place, length, insert) in cuts {
            let letters: Vec<char> = text.chars().collect();
            let start = place.index(letters.len());
            let end = (start + length).min(letters.len());
            let (before, after) = (&letters[..start], &letters[end..]);
            text = before.iter().chain(&insert.chars().collect::<Vec<_>>()).chain(after).collect();
        }
        if let Err(problems) = read(Path::new("m.toml"), &text) {
            prop_assert!(!problems.0.is_empty());
            let n_lines = text.lines().count() + 1;
            for problem in &problems.0 {
                prop_assert!((1..=n_lines).contains(&problem.location.line), "{}", problem);
            }
        }
    }
}
