//! Phases with several loads.

use super::*;
use crate::matrix::Stage;

/// The least matrix with its window's load and length replaced.
fn phase(lines: &str) -> String {
    LEAST
        .replace("answers = \"capacity\"\n", "answers = \"ladder\"\n")
        .replace("closed = { users = 16 }\nduration = \"45s\"\n", lines)
}

fn lengths(stage: &Stage) -> (u64, u64) {
    (stage.ramp.as_secs(), stage.hold.as_secs())
}

#[test]
fn a_ladder_is_one_line() {
    let sweep = good(&phase(
        "stages = [{ closed = { users = [50, '100', 150, 200] }, ramp = '10s', hold = '2m' }]",
    ));
    let stages = &sweep.phases[0].stages;
    assert_eq!(stages.len(), 4);
    assert!(stages.iter().all(|stage| lengths(stage) == (10, 120)));
    assert!(sweep.phases[0].is_ladder());
    assert_eq!(sweep.phases[0].duration(), Duration::from_secs(520));
    let rates = good(&phase(
        "stages = [{ open = { requests_per_second = [10, 20.5], arrivals = 'poisson', max_in_flight = 7 }, hold = '2m' }, { open = { requests_per_second = 5 }, ramp = '1m' }]",
    ));
    let stages = &rates.phases[0].stages;
    assert_eq!(
        stages.iter().map(lengths).collect::<Vec<_>>(),
        [(0, 120), (0, 120), (60, 0)]
    );
    let is_poisson = |stage: &Stage| {
        matches!(
            stage.load,
            PhaseLoad::Open {
                arrivals: Arrivals::Poisson,
                max_in_flight: 7,
                ..
            }
        )
    };
    assert!(stages[..2].iter().all(is_poisson));
}

#[test]
fn profiles_have_the_shapes_that_the_readme_documents() {
    let shape = |profile: &str| {
        let text = phase(&format!(
            "profile = '{profile}'\nclosed = {{ users = 40 }}\n"
        ));
        let stages = good(&text).phases.remove(0).stages;
        stages
            .iter()
            .map(|stage| format!("{} x {:?}", stage.share, lengths(stage)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    insta::assert_snapshot!(shape("smoke"), @"0.05 x (0, 30)");
    insta::assert_snapshot!(shape("load"), @"1 x (30, 300)");
    insta::assert_snapshot!(shape("stress"), @"0.5 x (30, 120), 1 x (30, 120), 1.5 x (30, 120), 2 x (30, 120)");
    insta::assert_snapshot!(shape("spike"), @"1 x (30, 120), 5 x (5, 60), 1 x (5, 120)");
    insta::assert_snapshot!(shape("soak"), @"1 x (60, 3600)");
    let short = phase("profile = 'stress'\nclosed = { users = 40 }\nramp = '0s'\nhold = '5s'\n");
    let stages = good(&short).phases.remove(0).stages;
    assert!(stages.iter().all(|stage| lengths(stage) == (0, 5)));
}

#[test]
fn stages_that_make_no_sense_are_told_all_at_once() {
    insta::assert_snapshot!(wrong(&phase("stages = []")), @r#"
    m.toml:16:10: `stages` of [[phase]] "stress" has no stage
      hint: such as stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]
    "#);
    insta::assert_snapshot!(wrong(&phase("stages = 4\nduration = '1s'\nopen = { requests_per_second = 1 }")), @r#"
    m.toml:16:10: `stages` of [[phase]] "stress" must be a list of stages, not the number 4
      hint: such as stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]
    m.toml:17:1: `duration` stands beside `stages` in [[phase]] "stress": each stage has its own
    m.toml:18:1: `open` stands beside `stages` in [[phase]] "stress": each stage has its own
    "#);
    insta::assert_snapshot!(wrong(&phase(
        "stages = [\n{ closed = { users = [10, 0] }, hold = '1s' },\n{ open = { requests_per_second = 9 }, hold = '1s' },\n{ closed = { users = [] }, hold = 5 },\n{ closed = { users = 3 } },\n{ hold = '1s', holt = '1s' },\n7 ]"
    )), @r#"
    m.toml:17:27: in `closed` of stage 1 in `stages` of [[phase]] "stress", `users` is 0, which is no number of virtual users (allowed: 1 to 60000 after rounding)
    m.toml:19:22: `users` in `closed` of stage 3 in `stages` of [[phase]] "stress" is an empty list
    m.toml:19:35: `hold` in stage 3 in `stages` of [[phase]] "stress" must be a duration such as "45s" or "1m30s", not the number 5
    m.toml:20:1: stage 4 in `stages` of [[phase]] "stress" has neither `ramp` nor `hold`, so it takes no time
      hint: add hold = "2m" to measure its load, or ramp = "10s" to go to it evenly
    m.toml:20:1: stage 4 in `stages` of [[phase]] "stress" is of another kind of load than the first
      hint: write two phases: there is no way to go evenly from `open` to `closed`
    m.toml:21:1: stage 5 in `stages` of [[phase]] "stress" has no load
      hint: add closed = { users = 16 } or open = { requests_per_second = 100 }
    m.toml:21:16: unknown key `holt` in stage 5 in `stages` of [[phase]] "stress"
      hint: did you mean `hold`?
    m.toml:22:1: stage 6 in `stages` of [[phase]] "stress" must be a table, not the number 7
    "#);
    insta::assert_snapshot!(wrong(&phase(
        "stages = [{ closed = { users = 3 }, hold = '1s' }, { open = { requests_per_second = 9 }, hold = '1s' }]"
    )), @r#"
    m.toml:16:52: stage 2 in `stages` of [[phase]] "stress" is of another kind of load than the first
      hint: write two phases: there is no way to go evenly from `open` to `closed`
    "#);
    insta::assert_snapshot!(wrong(&phase("stages = [{ closed = { users = 3 }, ramp = '1s' }]")), @r#"
    m.toml:12:1: [[phase]] "stress" is a window and holds no load: only holds are measured
      hint: add `hold` to a stage, such as hold = "2m"
    "#);
    insta::assert_snapshot!(wrong(&phase("stages = [{ closed = { users = 3 }, hold = '1s' }]\nprofile = 'load'")), @r#"m.toml:17:1: [[phase]] "stress" has both `stages` and `profile` (allowed: one of them)"#);
    insta::assert_snapshot!(wrong(&phase("profile = 'lode'\nduration = '3s'\nclosed = { users = [1, 2] }\nhold = '0s'")), @r#"
    m.toml:12:1: `hold` of [[phase]] "stress" is 0, so that it would hold no load
    m.toml:16:11: `profile` in [[phase]] "stress" must be "smoke", "load", "stress", "spike", "soak" or "breakpoint", not the text "lode"
    m.toml:17:1: `duration` stands beside `profile` in [[phase]] "stress"
      hint: a profile has its own lengths; `hold` and `ramp` set those of every stage
    m.toml:18:20: `users` in `closed` of [[phase]] "stress" must be a number or an expression in quotes, not a list
      hint: several loads are steps: stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]
    "#);
    insta::assert_snapshot!(wrong(&phase("profile = 'load'")), @r#"
    m.toml:12:1: [[phase]] "stress" has no load
      hint: add closed = { users = 16 } or open = { requests_per_second = 100 }
    "#);
}

#[test]
fn steps_are_asked_of_ladders_and_of_nothing_else() {
    let stages = "stages = [{ closed = { users = 3 }, hold = '1s' }]";
    let as_capacity = phase(stages).replace("\"ladder\"", "\"capacity\"");
    insta::assert_snapshot!(wrong(&as_capacity), @r#"
    m.toml:15:11: [[phase]] "stress" has several loads and answers one question
      hint: write answers = "ladder": every load that is held makes a row
    "#);
    let unsaid = phase(stages).replace("answers = \"ladder\"\n", "");
    insta::assert_snapshot!(wrong(&unsaid), @r#"
    m.toml:14:1: [[phase]] "stress" is a window and has no `answers`
      hint: write answers = "ladder": every load that is held makes a row
    "#);
    insta::assert_snapshot!(wrong(&phase("closed = { users = 3 }\nduration = '1s'")), @r#"
    m.toml:15:11: [[phase]] "stress" answers "ladder" and has no steps
      hint: add a line such as: stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]
    "#);
    insta::assert_snapshot!(replaced("users = 16", "users = [16, 32]"), @r#"
    m.toml:16:20: `users` in `closed` of [[phase]] "stress" must be a number or an expression in quotes, not a list
      hint: several loads are steps: stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]
    "#);
}
