//! What must hold of windows.

use super::*;
use crate::matrix::ThresholdRule;

#[test]
fn thresholds_are_for_all_windows_or_for_one() {
    let more = "[[phase]]\nname = 'warm-up'\nclosed = { users = 1 }\nduration = '1s'\n\
        [[threshold]]\nrule = 'p95 < 500 ms'\n\
        [[threshold]]\nrule = 'error_rate < 1 %'\noperation = 'create Patient'\nwindow = 'stress'\nabort = true\nafter = '5s'\n";
    let sweep = good(&format!("{LEAST}{more}"));
    let [all, one] = sweep.thresholds.as_slice() else {
        panic!("two of them: {:?}", sweep.thresholds)
    };
    assert_eq!(all.threshold.to_string(), "p95 < 500 ms");
    assert_eq!((all.abort, all.after), (false, Duration::from_secs(10)));
    assert_eq!(
        one.threshold.to_string(),
        "create Patient: error_rate < 1 %"
    );
    assert_eq!((one.abort, one.after), (true, Duration::from_secs(5)));
    let asked = |rule: &ThresholdRule| -> Vec<bool> {
        sweep
            .phases
            .iter()
            .map(|phase| rule.is_for(phase))
            .collect()
    };
    assert_eq!(asked(all), [true, false], "a warm-up has no figures");
    assert_eq!(asked(one), [true, false]);
}

#[test]
fn thresholds_that_make_no_sense_are_told() {
    insta::assert_snapshot!(with("[[threshold]]\nrule = 'p95 < 5'\nwindow = 'stres'\nafter = '1s'\n[[threshold]]\nrules = 'p95 < 5 ms'\nabort = 1\n[[threshold]]\nrule = 'p59 < 5 ms'\nabort = true\nafter = 3\n"), @r#"
    m.toml:19:8: `rule` in [[threshold]] number 1 has the limit `5` (allowed: a time such as 500 ms or 1.5s)
    m.toml:20:10: `window` in [[threshold]] number 1 is `stres`, which is no phase
      hint: did you mean `stress`?
    m.toml:21:1: [[threshold]] number 1 says when it is looked at first and ends no load
      hint: add abort = true, or leave `after` out: at its end every window is judged
    m.toml:23:1: unknown key `rules` in [[threshold]] number 2
      hint: did you mean `rule`?
    m.toml:24:9: `abort` in [[threshold]] number 2 must be true or false, not the number 1
    m.toml:26:8: `rule` in [[threshold]] number 3 looks at `p59`, which is no figure (did you mean p50?)
    m.toml:28:9: `after` in [[threshold]] number 3 must be a duration such as "45s" or "1m30s", not the number 3
    "#);
    insta::assert_snapshot!(with("[threshold]\nrule = 'p95 < 5 ms'\n"), @"m.toml:18:2: `threshold` is written [[threshold]], one block each, not as a table");
    insta::assert_snapshot!(with("[[phase]]\nname = 'w'\nclosed = { users = 1 }\nduration = '1s'\n[[threshold]]\nrule = 'p95 < 5 ms'\nwindow = 'w'\n"), @"
    m.toml:24:10: `window` in [[threshold]] number 1 is `w`, a phase that is not measured
      hint: write window = true in the phase
    ");
}

#[test]
fn a_breakpoint_needs_a_limit_that_ends_it() {
    let phase = "[[phase]]\nname = 'b'\nwindow = true\nanswers = 'ladder'\nprofile = 'breakpoint'\nopen = { requests_per_second = 100 }\n";
    insta::assert_snapshot!(with(phase), @r#"
    m.toml:22:11: phase `b` looks for a breakpoint and nothing says what one is
      hint: add a [[threshold]] with abort = true, such as rule = "p99_due < 1s"
    "#);
    insta::assert_snapshot!(with(&format!("{phase}[[threshold]]\nrule = 'p99 < 1s'\n")), @r#"
    m.toml:22:11: phase `b` looks for a breakpoint and nothing says what one is
      hint: add a [[threshold]] with abort = true, such as rule = "p99_due < 1s"
    "#);
    insta::assert_snapshot!(with(&format!("{phase}[[threshold]]\nrule = 'p99 < 1s'\nwindow = 'stress'\nabort = true\n")), @r#"
    m.toml:22:11: phase `b` looks for a breakpoint and nothing says what one is
      hint: add a [[threshold]] with abort = true, such as rule = "p99_due < 1s"
    "#);
    let unmeasured = phase.replace("window = true\nanswers = 'ladder'\n", "");
    insta::assert_snapshot!(with(&unmeasured), @r#"
    m.toml:20:11: phase `b` looks for a breakpoint and is no window
      hint: write window = true and answers = "ladder"
    "#);
    let sweep = good(&format!(
        "{LEAST}{phase}[[threshold]]\nrule = 'p99 < 1s'\nwindow = 'b'\nabort = true\n"
    ));
    let shares: Vec<f64> = sweep.phases[1]
        .stages
        .iter()
        .map(|stage| stage.share)
        .collect();
    assert_eq!((shares.len(), shares[0], shares[19]), (20, 0.25, 5.0));
}
