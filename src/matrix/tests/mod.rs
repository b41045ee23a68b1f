//! The whole way from text to cells, on matrices of every shape.

mod plans;
mod warned;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::scalar::Scalar;

/// The 80 published pairs: CPUs, web threads and pool per row, in nested order.
const PUBLISHED: &str = include_str!("../testdata/game-of-pools-pools.csv");

const REFERENCE: &str = include_str!("../../../matrix.toml");

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
                arrivals: Arrivals::Uniform,
                max_in_flight: 1000
            }
        );
        assert_eq!(
            phases[2].model,
            CellLoad::Closed {
                users: u32::try_from(2 * 3 * cpus).unwrap()
            }
        );
        assert_eq!(
            (phases[0].is_window(), phases[2].is_window()),
            (false, true)
        );
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
fn what_is_cheaper_is_a_number_in_every_cell() {
    insta::assert_snapshot!(refused(
        "cpus = [1, 2]",
        "[derived]\nsize = 'if(cpus == 1, 1, \"big\")'\n[cost]\norder = ['cpus', 'size']",
        &["cpus"]), @"matrix.toml:15:18: `order` in [cost] names `size`, which is the text `big` and no number, in cell cpus-2");
}

fn level() -> impl Strategy<Value = String> {
    prop_oneof![
        (-5_i32..50).prop_map(|number| number.to_string()),
        (0_i32..40).prop_map(|tenths| format!("{}.{}", tenths / 10, tenths % 10)),
        any::<bool>().prop_map(|truth| truth.to_string()),
        "[ -&(-~é€]{1,6}".prop_map(|text| format!("'{text}'")),
    ]
}

proptest! {
    #[test]
    fn expansion_is_whole_unique_and_in_nested_order(
        axes in proptest::collection::vec(proptest::collection::vec(level(), 1..5), 1..5),
    ) {
        let mut lines = String::new();
        let mut all = Vec::new();
        for (index, levels) in axes.iter().enumerate() {
            let name = if index == 0 { "cpus".to_owned() } else { format!("a{index}") };
            writeln!(lines, "{name} = [{}]", levels.join(", ")).unwrap();
            all.push(name);
        }
        let reached: BTreeSet<String> = all.into_iter().collect();
        // A level that comes twice is refused, and is no case of this property.
        if let Ok(sweep) = read(Path::new("m.toml"), &matrix(&lines, "")) {
            let plan = plan(&sweep, &reached).unwrap();
            let size: usize = axes.iter().map(Vec::len).product();
            prop_assert_eq!(plan.cells.len(), size);
            let unique: BTreeSet<_> = ids(&plan).into_iter().collect();
            prop_assert_eq!(unique.len(), size);
            for (index, cell) in plan.cells.iter().enumerate() {
                let mut rest = index;
                let values: Vec<_> = cell.axes().map(|(_, level)| level).collect();
                for (axis, value) in sweep.axes.iter().zip(values).rev() {
                    prop_assert_eq!(&axis.levels[rest % axis.levels.len()], value);
                    rest /= axis.levels.len();
                }
                let id = cell.id().as_str();
                let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
                prop_assert!(id.len() <= 180 && id.chars().all(is_safe), "{}", id);
            }
        }
    }

    #[test]
    fn kept_dropped_and_joined_combinations_are_all_there_are(
        web in proptest::collection::btree_set(1_u32..40, 1..8),
        db in proptest::collection::btree_set(1_u32..40, 1..8),
        limit in 1_u32..80,
        divisor in 1_u32..9,
    ) {
        let listed = |levels: &BTreeSet<u32>| levels.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let axes = format!("cpus = [1, 2]\nweb = [{}]\ndb = [{}]", listed(&web), listed(&db));
        let more = format!("[derived]\nn = 'round(web / {divisor}) + round(db / {divisor})'\n[constraints]\nc = 'web + db <= {limit}'");
        let sweep = sweep_of(&matrix(&axes, &more));
        let n_all = 2 * web.len() * db.len();
        let n_kept = 2 * web.iter().flat_map(|w| db.iter().map(move |d| w + d)).filter(|sum| *sum <= limit).count();
        match plan(&sweep, &names(&["cpus", "n"])) {
            Ok(plan) => {
                let n_joined: usize = plan.cells.iter().map(|cell| cell.aliases().len()).sum();
                prop_assert_eq!(plan.cells.len() + n_joined, n_kept);
                prop_assert_eq!(plan.dropped.len(), n_all - n_kept);
                let configurations: BTreeSet<_> = plan
                    .cells
                    .iter()
                    .map(|cell| (cell.tier().to_string(), cell.value("n").unwrap().to_string()))
                    .collect();
                prop_assert_eq!(configurations.len(), plan.cells.len());
            }
            Err(problems) => {
                prop_assert_eq!(n_kept, 0);
                prop_assert!(problems.to_string().contains("no cell is left"));
            }
        }
    }
}
