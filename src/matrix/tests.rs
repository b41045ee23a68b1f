//! The whole way from text to plan, on matrices of every shape.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::scalar::Scalar;

/// The 80 published pairs: CPUs, web threads and pool per row, in nested order.
const PUBLISHED: &str = include_str!("testdata/game-of-pools-pools.csv");

const REFERENCE: &str = include_str!("../../matrix.toml");

fn names(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn sweep_of(text: &str) -> Sweep {
    read(Path::new("matrix.toml"), text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A matrix around the given axes and further sections.
fn matrix(axes: &str, more: &str) -> String {
    let mut text = format!(
        "format = 1\n[sweep]\nname = \"t\"\nstack = [\"c.yaml\"]\nsubject = \"app\"\ntier = \"cpus\"\n\
         [load]\nworkload = \"w.toml\"\ntarget = \"http://app:8080\"\n[axes]\n{axes}\n{more}\n"
    );
    if !more.contains("[[phase]]") {
        text.push_str(
            "[[phase]]\nname = \"stress\"\nwindow = true\nanswers = \"capacity\"\n\
             closed = { users = 64 }\nduration = \"10s\"\n",
        );
    }
    text
}

fn planned(axes: &str, more: &str, reached: &[&str]) -> Plan {
    plan(&sweep_of(&matrix(axes, more)), &names(reached))
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn refused(axes: &str, more: &str, reached: &[&str]) -> String {
    plan(&sweep_of(&matrix(axes, more)), &names(reached))
        .expect_err("the plan should be refused")
        .to_string()
}

fn reference() -> Plan {
    plan(
        &sweep_of(REFERENCE),
        &names(&["cpus", "web_threads", "db_pool"]),
    )
    .unwrap()
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.cells.iter().map(|cell| cell.id().as_str()).collect()
}

#[test]
fn the_reference_matrix_has_the_80_published_cells() {
    let plan = reference();
    assert_eq!(plan.cells.len(), 80);
    assert!(plan.dropped.is_empty());
    assert!(plan.cells.iter().all(|cell| cell.aliases().len() == 0));
    let mut pairs = String::from("cpus,web_threads,db_pool\n");
    for cell in &plan.cells {
        let value = |name| cell.value(name).unwrap();
        writeln!(
            pairs,
            "{},{},{}",
            value("cpus"),
            value("web_threads"),
            value("db_pool")
        )
        .unwrap();
    }
    assert_eq!(pairs, PUBLISHED);
}

#[test]
fn the_pool_comes_from_the_rounded_web_count() {
    let plan = reference();
    for (id, web_threads, db_pool) in [
        ("cpus-2__web-1.5__db-1.5", 3, 4),
        ("cpus-2__web-2.5__db-2.5", 5, 12),
        ("cpus-6__web-1.5__db-2.5", 9, 22),
        ("cpus-6__web-2.5__db-1.5", 15, 22),
    ] {
        let cell = plan.cell_by_id(id).expect(id);
        assert_eq!(
            cell.value("web_threads"),
            Some(&Scalar::Integer(web_threads)),
            "{id}"
        );
        assert_eq!(
            cell.value("db_pool"),
            Some(&Scalar::Integer(db_pool)),
            "{id}"
        );
    }
}

#[test]
fn the_reference_matrix_plans_without_a_warning() {
    let plan = reference();
    assert_eq!(plan.warnings, Vec::<String>::new());
    assert_eq!(plan.trials.len(), 240);
    // 20 + 45 + 45 s of load, 5 s of drain, 8 s of dead time.
    assert_eq!(plan.estimate.duration.as_secs(), 240 * 123);
}

#[test]
fn loads_of_the_reference_matrix_follow_the_tier_alone() {
    let plan = reference();
    for cell in &plan.cells {
        let Some(Scalar::Integer(cpus)) = cell.value("cpus") else {
            panic!("cpus is whole")
        };
        let phases = plan.phases(cell);
        assert_eq!(phases.len(), 3);
        assert!(phases.iter().all(|phase| !phase.load_tied_to_knob));
        assert_eq!(
            phases[1].model,
            CellLoad::Open {
                requests_per_second: 400.0 * *cpus as f64,
                max_in_flight: 1000
            }
        );
        assert_eq!(
            phases[2].model,
            CellLoad::Closed {
                users: u32::try_from(2 * 3 * cpus).unwrap()
            }
        );
        assert_eq!((phases[0].window, phases[2].window), (false, true));
    }
}

#[test]
fn variables_are_axes_then_derived_values_as_text() {
    let plan = reference();
    let cell = plan.cell_by_id("cpus-2__web-1.5__db-2").unwrap();
    let variables: Vec<_> = cell.variables().collect();
    let expected = [
        ("cpus", "2"),
        ("web", "1.5"),
        ("db", "2"),
        ("web_threads", "3"),
        ("db_pool", "6"),
    ];
    assert_eq!(
        variables,
        expected.map(|(name, value)| (name, value.to_owned()))
    );
}

#[test]
fn the_first_axis_changes_slowest() {
    let plan = planned(
        "cpus = [1, 2]\nmode = ['a', 'b']\non = [true, false]",
        "",
        &["cpus", "mode", "on"],
    );
    assert_eq!(
        ids(&plan),
        [
            "cpus-1__mode-a__on-true",
            "cpus-1__mode-a__on-false",
            "cpus-1__mode-b__on-true",
            "cpus-1__mode-b__on-false",
            "cpus-2__mode-a__on-true",
            "cpus-2__mode-a__on-false",
            "cpus-2__mode-b__on-true",
            "cpus-2__mode-b__on-false",
        ]
    );
}

#[test]
fn combinations_with_one_configuration_become_one_cell_with_aliases() {
    let plan = planned(
        "cpus = [1, 2]\nweb = [1, 1.2, 2]",
        "[derived]\nthreads = 'round(cpus * web)'",
        &["cpus", "threads"],
    );
    // 1, 1.2 -> 1 thread, 2 -> 2; 2, 2.4 -> 2, 4 -> 4.
    assert_eq!(
        ids(&plan),
        [
            "cpus-1__web-1",
            "cpus-1__web-2",
            "cpus-2__web-1",
            "cpus-2__web-2"
        ]
    );
    let aliases: Vec<_> = plan.cells[0].aliases().collect();
    assert_eq!(
        aliases,
        [vec![
            ("cpus", &Scalar::Integer(1)),
            ("web", &Scalar::Float(1.2))
        ]]
    );
    assert_eq!(plan.cells[1].aliases().len(), 0);
}

#[test]
fn equal_configurations_of_two_tiers_stay_two_cells() {
    // Only the threads reach the stack; the tier still tells the cells apart.
    let plan = planned(
        "cpus = [1, 2]\nweb = [2, 4]",
        "[derived]\nthreads = 'max(cpus, web)'",
        &["threads"],
    );
    assert_eq!(plan.cells.len(), 4);
}

#[test]
fn a_load_of_its_own_makes_a_configuration() {
    let phase = "[[phase]]\nname = 's'\nwindow = true\nanswers = 'capacity'\nduration = '1s'\n\
                 closed = { users = '10 * web' }";
    let plan = planned("cpus = [1]\nweb = [1, 2]", phase, &["cpus"]);
    assert_eq!(plan.cells.len(), 2);
    assert!(plan.phases(&plan.cells[0])[0].load_tied_to_knob);
    assert!(
        plan.warnings
            .iter()
            .any(|warning| warning.starts_with("load_tied_to_knob")),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn an_axis_that_reaches_nothing_is_a_mistake_at_its_place() {
    insta::assert_snapshot!(refused("cpus = [1, 2]\nweb = [1, 2]", "", &["cpus", "HOME"]), @"
    matrix.toml:12:1: axis `web` reaches neither the stack nor the load
      hint: use ${web}, or a value derived from it, in a Compose file, [override], the workload or a phase
    ");
}

#[test]
fn an_axis_reaches_through_derived_values_of_derived_values() {
    let plan = planned(
        "cpus = [1]\nweb = [1, 2]",
        "[derived]\na = 'web * 2'\nb = 'a + 1'",
        &["cpus", "b"],
    );
    assert_eq!(plan.cells.len(), 2);
    // A derived value that only feeds a constraint reaches nothing.
    let text = refused(
        "cpus = [1]\nweb = [1, 2]",
        "[derived]\na = 'web * 2'\n[constraints]\nc = 'a > 0'",
        &["cpus"],
    );
    assert!(text.contains("axis `web`"), "{text}");
}

#[test]
fn a_dropped_combination_names_every_constraint_it_breaks() {
    let plan = planned(
        "cpus = [1, 2]\nweb = [1, 2, 3]",
        "[constraints]\nsmall = 'web < 3'\n'not both' = '!(web == 3 && cpus == 1)'",
        &["cpus", "web"],
    );
    assert_eq!(plan.cells.len(), 4);
    let dropped: Vec<(Vec<_>, Vec<_>)> = plan
        .dropped
        .iter()
        .map(|dropped| {
            (
                dropped.axes().map(|(_, level)| level.to_string()).collect(),
                dropped.constraints().collect(),
            )
        })
        .collect();
    assert_eq!(
        dropped[0],
        (vec!["1".into(), "3".into()], vec!["small", "not both"])
    );
    assert_eq!(dropped[1], (vec!["2".into(), "3".into()], vec!["small"]));
}

#[test]
fn constraints_that_leave_nothing_are_a_mistake() {
    insta::assert_snapshot!(refused("cpus = [1, 2]", "[constraints]\nnever = 'cpus > 2'", &["cpus"]), @"matrix.toml:13:1: constraint `never` drops all 2 combinations: no cell is left");
    insta::assert_snapshot!(refused("cpus = [1, 2]", "[constraints]\na = 'cpus > 1'\nb = 'cpus < 2'", &["cpus"]), @"
    matrix.toml:13:1: the constraints together drop all 2 combinations: no cell is left
      hint: dropped by each: a 1, b 1
    ");
}

#[test]
fn an_empty_tier_is_a_warning() {
    let plan = planned(
        "cpus = [1, 2, 3]\nweb = [1, 2]",
        "[constraints]\nc = 'cpus != 2'",
        &["cpus", "web"],
    );
    assert_eq!(plan.cells.len(), 4);
    assert!(
        plan.warnings
            .contains(&"the constraints leave no cell of tier cpus = 2".to_owned()),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn failures_of_expressions_name_place_and_cell_once() {
    insta::assert_snapshot!(refused(
        "cpus = [1, 2]\nweb = [0, 1]\nmode = ['a', 'b']",
        "[derived]\nshare = \"cpus / web\"\n[constraints]\nc = 'mode == 1'\nd = 'cpus + 1'",
        &["cpus", "web", "mode"]), @"
    matrix.toml:15:15: `/` divides 1 by zero, in cell cpus-1__web-0__mode-a and 3 more
    matrix.toml:17:11: `==` cannot compare the text `a` with the number 1, in cell cpus-1__web-0__mode-a and 7 more
    matrix.toml:18:6: constraint `d` gives the number 2, not true or false, in cell cpus-1__web-0__mode-a and 7 more
    ");
}

#[test]
fn a_value_that_fails_in_a_dropped_combination_is_no_mistake() {
    let plan = planned(
        "cpus = [1]\nweb = [0, 1]",
        "[derived]\nshare = 'cpus / web'\nmore = 'share * 2'\n[constraints]\nsome = 'web > 0'\nless = 'more < 9'",
        &["cpus", "web", "share"],
    );
    assert_eq!(ids(&plan), ["cpus-1__web-1"]);
    assert_eq!(plan.dropped.len(), 1);
}

#[test]
fn loads_that_are_none_are_told_with_their_cell() {
    let phases = "[[phase]]\nname = 'a'\nopen = { requests_per_second = '100 * (web - 1)' }\nduration = '1s'\n\
                  [[phase]]\nname = 'b'\nwindow = true\nanswers = 'capacity'\nduration = '1s'\n\
                  closed = { users = '0.2 * web' }";
    insta::assert_snapshot!(refused("cpus = [1]\nweb = [1, 2, 4]", phases, &["cpus", "web"]), @"
    matrix.toml:15:32: in phase `a`, `requests_per_second` is 0 (allowed: above 0, up to 100000000), in cell cpus-1__web-1
    matrix.toml:22:20: in phase `b`, `users` is 0.2, which is no number of virtual users (allowed: 1 to 60000 after rounding), in cell cpus-1__web-1 and 1 more
    ");
}

#[test]
fn tier_max_is_the_largest_of_the_tiers_kept_cells() {
    let phase = "[[phase]]\nname = 's'\nwindow = true\nanswers = 'capacity'\nduration = '1s'\n\
                 closed = { users = '2 * tier_max(threads)' }";
    let plan = planned(
        "cpus = [2, 4]\nweb = [1, 2, 3]",
        &format!("[derived]\nthreads = 'cpus * web'\n[constraints]\nc = 'threads < 12'\n{phase}"),
        &["cpus", "threads"],
    );
    let users: Vec<_> = plan
        .cells
        .iter()
        .map(|cell| plan.phases(cell)[0].model)
        .collect();
    assert_eq!(users[..3], [CellLoad::Closed { users: 12 }; 3]);
    assert_eq!(
        users[3..],
        [CellLoad::Closed { users: 16 }; 2],
        "12 threads were dropped"
    );
    assert!(
        plan.cells
            .iter()
            .all(|cell| !plan.phases(cell)[0].load_tied_to_knob)
    );
}

#[test]
fn tier_max_of_a_word_is_a_mistake() {
    let phase = "[[phase]]\nname = 's'\nwindow = true\nanswers = 'capacity'\nduration = '1s'\n\
                 closed = { users = 'tier_max(mode)' }";
    let text = refused("cpus = [2]\nmode = ['a', 1]", phase, &["cpus", "mode"]);
    assert!(
        text.contains("`tier_max` needs a name that is a number in every cell"),
        "{text}"
    );
}

#[test]
fn blocks_are_shuffled_by_seed_and_listed_order_is_not() {
    let blocks = planned(
        "cpus = [1, 2, 3, 4, 5, 6]",
        "[trials]\nrepeats = 4",
        &["cpus"],
    );
    let order = |plan: &Plan, block| -> Vec<usize> {
        let of_block = plan.trials.iter().filter(|trial| trial.block == block);
        of_block.map(|trial| trial.cell).collect()
    };
    for block in 1..=4 {
        let mut cells = order(&blocks, block);
        assert_ne!(cells, [0, 1, 2, 3, 4, 5], "block {block} is shuffled");
        cells.sort_unstable();
        assert_eq!(
            cells,
            [0, 1, 2, 3, 4, 5],
            "block {block} holds every cell once"
        );
    }
    assert_ne!(order(&blocks, 1), order(&blocks, 2));
    let other = planned(
        "cpus = [1, 2, 3, 4, 5, 6]",
        "[trials]\nrepeats = 4\nseed = 2",
        &["cpus"],
    );
    assert_ne!(order(&blocks, 1), order(&other, 1));
    let listed = planned(
        "cpus = [1, 2]",
        "[trials]\nrepeats = 2\norder = 'listed'",
        &["cpus"],
    );
    let all: Vec<_> = listed
        .trials
        .iter()
        .map(|trial| (trial.index, trial.block, trial.cell))
        .collect();
    assert_eq!(all, [(1, 1, 0), (2, 1, 1), (3, 2, 0), (4, 2, 1)]);
}

#[test]
fn more_repeats_leave_the_earlier_blocks_as_they_were() {
    let short = planned("cpus = [1, 2, 3, 4]", "[trials]\nrepeats = 2", &["cpus"]);
    let long = planned("cpus = [1, 2, 3, 4]", "[trials]\nrepeats = 5", &["cpus"]);
    assert_eq!(short.trials[..], long.trials[..short.trials.len()]);
}

#[test]
fn a_selection_keeps_loads_and_order_of_the_rest() {
    let mut plan = reference();
    let whole = plan.clone();
    assert_eq!(plan.retain("--only", "cpus == 4 && web >= 2").unwrap(), 12);
    assert_eq!(plan.trials.len(), 36);
    let before: Vec<_> = whole
        .trials
        .iter()
        .map(|trial| whole.cells[trial.cell].id())
        .filter(|id| plan.cell_by_id(id.as_str()).is_some())
        .collect();
    let after: Vec<_> = plan
        .trials
        .iter()
        .map(|trial| plan.cells[trial.cell].id())
        .collect();
    assert_eq!(before, after);
    assert!(
        plan.trials
            .iter()
            .zip(1..)
            .all(|(trial, index)| trial.index == index)
    );
    for cell in &plan.cells {
        let same = whole.cell_by_id(cell.id().as_str()).unwrap();
        assert_eq!(plan.phases(cell), whole.phases(same));
    }
    assert_eq!(plan.estimate.duration.as_secs(), 36 * 123);
}

#[test]
fn a_wrong_selection_leaves_the_plan_as_it_was() {
    let mut plan = reference();
    let mut problem = |text: &str| plan.retain("--only", text).unwrap_err().to_string();
    insta::assert_snapshot!(problem("cpu == 4 || wep > 1"), @"
    --only:1:1: unknown name `cpu`
      hint: did you mean `cpus`?
    --only:1:13: unknown name `wep`
      hint: did you mean `web`?
    ");
    insta::assert_snapshot!(problem("cpus + 4"), @"--only:1:1: the selection gives the number 6, not true or false, in cell cpus-2__web-1__db-1.5");
    insta::assert_snapshot!(problem("cpus == \"4\""), @"--only:1:6: `==` cannot compare the number 2 with the text `4`, in cell cpus-2__web-1__db-1.5");
    insta::assert_snapshot!(problem("cpus > 8"), @"--only:1:1: `cpus > 8` selects none of 80 cells");
    assert_eq!(plan.cells.len(), 80);
    assert_eq!(plan.trials.len(), 240);
}

#[test]
fn the_json_of_a_plan_is_the_documented_one() {
    let plan = planned(
        "cpus = [1]\nweb = [1, 1.2, 2, 3]",
        "[derived]\nn = 'round(cpus * web)'\n[constraints]\nsmall = 'web < 3'\n[trials]\nrepeats = 1",
        &["cpus", "n"],
    );
    let mut written = Vec::new();
    plan.write_json(&mut written).unwrap();
    let text = String::from_utf8(written).unwrap();
    insta::assert_snapshot!(text.replace("],\"", "],\n\""), @r#"
    {"cells":[{"id":"cpus-1__web-1","axes":{"cpus":1,"web":1},"derived":{"n":1},"aliases":[{"cpus":1,"web":1.2}]},{"id":"cpus-1__web-2","axes":{"cpus":1,"web":2},"derived":{"n":2},"aliases":[]}],
    "dropped":[{"axes":{"cpus":1,"web":3},"constraint":"small","constraints":["small"]}],
    "trials":[{"index":1,"block":1,"cell":"cpus-1__web-2","role":"cell"},{"index":2,"block":1,"cell":"cpus-1__web-1","role":"cell"}],
    "estimate":{"seconds":46.0,"bytes":237568},"warnings":["every cell is launched once: without a second launch nobody can tell a difference from chance"]}
    "#);
}

#[test]
fn a_load_that_cannot_answer_its_window_is_told() {
    let phases = "[[phase]]\nname = 'cap'\nwindow = true\nanswers = 'capacity'\nduration = '1s'\nopen = { requests_per_second = 9 }\n\
                  [[phase]]\nname = 'burn'\nduration = '1s'\nclosed = { users = 3 }\n\
                  [[phase]]\nname = 'lat'\nwindow = true\nanswers = 'latency'\nduration = '1s'\nclosed = { users = 9 }";
    let plan = planned(
        "cpus = [1, 2]",
        &format!("[trials]\nrepeats = 1\n{phases}"),
        &["cpus"],
    );
    insta::assert_snapshot!(plan.warnings.join("\n"), @"
    there is one cell only in tier cpus = 1, 2: it has nothing to be compared with
    every cell is launched once: without a second launch nobody can tell a difference from chance
    window `cap` answers capacity under an open load, which never sends more than its rate: ask it of a closed load
    window `lat` answers latency under a closed load, whose latency is the number of users over the throughput: ask it of an open load
    window `lat` comes after phase `burn`, which saturates the service: faster cells will have written more and meet a larger database; put it before
    ");
}

#[test]
fn too_few_users_for_the_narrowest_pool_are_told() {
    let phase = |users: u32| {
        format!(
            "[derived]\nthreads = '4 * web'\n[[phase]]\nname = 's'\nwindow = true\nanswers = 'capacity'\nduration = '1s'\nclosed = {{ users = {users} }}"
        )
    };
    let warnings = |users, cost: &str| {
        let more = format!("{cost}\n{}", phase(users));
        planned(
            "cpus = [1, 2]\nweb = [1, 2, 4]",
            &more,
            &["cpus", "threads"],
        )
        .warnings
    };
    assert_eq!(warnings(32, ""), Vec::<String>::new());
    assert_eq!(
        warnings(31, ""),
        [
            "window `s` has 31 users, fewer than twice threads = 16 in cell cpus-1__web-4: the load may be what holds it back"
        ]
    );
    assert_eq!(warnings(31, "[cost]\norder = ['threads']").len(), 1);
    // The multiplier is the narrower 'pool' where the user names it so.
    assert_eq!(warnings(8, "[cost]\norder = ['web']"), Vec::<String>::new());
}

#[test]
fn a_derived_tier_groups_cells() {
    let text = matrix(
        "cpus = [1, 2, 3, 4]",
        "[derived]\nsize = 'if(cpus < 3, \"small\", \"large\")'",
    )
    .replace("tier = \"cpus\"", "tier = \"size\"");
    let plan = plan(&sweep_of(&text), &names(&["cpus"])).unwrap();
    let tiers: Vec<_> = (0..4).map(|cell| plan.tier_of(cell).to_string()).collect();
    assert_eq!(tiers, ["small", "small", "large", "large"]);
    assert_eq!(plan.tier(), "size");
}

#[test]
fn too_many_trials_are_refused_with_both_numbers() {
    let levels = (0..2000)
        .map(|level| level.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let text = refused(
        &format!("cpus = [{levels}]"),
        "[trials]\nrepeats = 600",
        &["cpus"],
    );
    assert!(
        text.contains("2000 cells, 600 times each, are 1200000 trials (allowed: 1000000)"),
        "{text}"
    );
}

/// 100,000 cells with expressions, constraints and collapsing.
fn large() -> Sweep {
    let levels = |n: u32| {
        (1..=n)
            .map(|level| level.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let axes = format!(
        "cpus = [{}]\nweb = [{}]\ndb = [{}]\nmode = ['a', 'b', 'c', 'd', 'e']",
        levels(20),
        levels(50),
        levels(20)
    );
    let more = "[derived]\nthreads = 'round(cpus * web / 2)'\npool = 'if(mode == \"a\", max(threads, db), threads + db)'\n\
                [constraints]\nc = 'pool > 0 && threads >= 0'\n[[phase]]\nname = 's'\nwindow = true\nanswers = 'capacity'\n\
                duration = '1s'\nclosed = { users = '2 * tier_max(threads) + 1' }";
    sweep_of(&matrix(&axes, more))
}

#[test]
fn a_hundred_thousand_cells_plan_whole() {
    let whole = plan(&large(), &names(&["cpus", "web", "db", "mode"])).unwrap();
    assert_eq!(whole.cells.len(), 100_000);
    assert_eq!(whole.trials.len(), 300_000);
    let unique: BTreeSet<_> = ids(&whole).into_iter().collect();
    assert_eq!(unique.len(), 100_000);
    let collapsed = plan(&large(), &names(&["threads", "pool"])).unwrap();
    let n_aliases: usize = collapsed
        .cells
        .iter()
        .map(|cell| cell.aliases().len())
        .sum();
    assert!(collapsed.cells.len() < 100_000);
    assert_eq!(collapsed.cells.len() + n_aliases, 100_000);
    let mut json = Vec::new();
    whole.write_json(&mut json).unwrap();
    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&json).is_ok());
}

#[test]
fn the_same_text_gives_the_same_plan() {
    let json = || {
        let mut written = Vec::new();
        reference().write_json(&mut written).unwrap();
        written
    };
    assert_eq!(json(), json());
}
