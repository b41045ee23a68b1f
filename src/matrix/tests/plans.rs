//! Order, selection, size and JSON of plans.

use std::time::Duration;

use super::*;

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
fn what_clones_take_is_part_of_the_estimate_once() {
    let golden = "[trials]\nrepeats = 2\nstate = 'golden'\n[golden]\nvolumes = ['d']";
    let mut plan = planned("cpus = [1, 2]", golden, &["cpus"]);
    let before = plan.estimate;
    let cost = |seconds| ClonesCost {
        golden_bytes: 300,
        bytes: 1_200,
        duration: Some(Duration::from_secs(seconds)),
        is_prepared: true,
    };
    plan.count_clones(cost(7));
    plan.count_clones(cost(8));
    assert_eq!(plan.estimate.bytes, before.bytes + 1_200);
    assert_eq!(
        plan.estimate.duration,
        before.duration + Duration::from_secs(8)
    );
    assert_eq!(plan.without_clones(), before);
    let mut written = Vec::new();
    plan.write_json(&mut written, &()).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&written).unwrap();
    insta::assert_snapshot!(written["state"], @r#"{"kind":"golden","from":"prepare","volumes":["d"],"clone":"auto","clones":4,"golden_bytes":300,"cloned_bytes":1200,"clone_seconds":8.0,"prepared":true}"#);
    assert_eq!(written["estimate"]["bytes"], plan.estimate.bytes);
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
    plan.write_json(&mut written, &()).unwrap();
    let text = String::from_utf8(written).unwrap();
    let (text, phases) = text.split_once("\"phases\":").unwrap();
    assert!(phases.ends_with("],\"isolation\":null}"), "{phases}");
    insta::assert_snapshot!(text.replace("],\"", "],\n\""), @r#"
    {"cells":[{"id":"cpus-1__web-1","axes":{"cpus":1,"web":1},"derived":{"n":1},"aliases":[{"cpus":1,"web":1.2}]},{"id":"cpus-1__web-2","axes":{"cpus":1,"web":2},"derived":{"n":2},"aliases":[]}],
    "dropped":[{"axes":{"cpus":1,"web":3},"constraint":"small","constraints":["small"]}],
    "trials":[{"index":1,"block":1,"cell":"cpus-1__web-2","role":"cell"},{"index":2,"block":1,"cell":"cpus-1__web-1","role":"cell"}],
    "estimate":{"seconds":46.0,"bytes":237568},"warnings":["every cell is launched once: without a second launch nobody can tell a difference from chance"],
    "state":{"kind":"fresh"},
    "#);
}

#[test]
fn the_json_has_the_phases_of_each_tier_once() {
    let plan = reference();
    let mut written = Vec::new();
    plan.write_json(&mut written, &()).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&written).unwrap();
    let groups = written["phases"].as_array().unwrap();
    let cells = |group: &serde_json::Value| group["cells"].as_array().unwrap().len();
    assert_eq!(groups.iter().map(cells).sum::<usize>(), 80);
    assert!(
        groups.len() <= 4,
        "cells of a tier have the same: {}",
        groups.len()
    );
    let phases: Vec<String> = groups[0]["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(phases.join("\n"), @r#"
    {"phase":"warm-up","step":null,"window":false,"answers":null,"ramp_from":null,"load":{"model":"open","requests_per_second":800.0,"arrivals":"uniform","max_in_flight":1000},"duration_s":20.0,"load_tied_to_knob":false}
    {"phase":"latency","step":null,"window":true,"answers":"latency","ramp_from":null,"load":{"model":"open","requests_per_second":800.0,"arrivals":"uniform","max_in_flight":1000},"duration_s":45.0,"load_tied_to_knob":false}
    {"phase":"stress","step":null,"window":true,"answers":"capacity","ramp_from":null,"load":{"model":"closed","users":12},"duration_s":45.0,"load_tied_to_knob":false}
    "#);
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
    whole.write_json(&mut json, &()).unwrap();
    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&json).is_ok());
}

#[test]
fn the_same_text_gives_the_same_plan() {
    let json = || {
        let mut written = Vec::new();
        reference().write_json(&mut written, &()).unwrap();
        written
    };
    assert_eq!(json(), json());
}

#[test]
fn stages_become_ramps_and_steps_with_the_load_before_them() {
    let more = "[[phase]]\nname = 'ladder'\nwindow = true\nanswers = 'ladder'\n\
        stages = [{ closed = { users = [10, '20 * cpus'] }, ramp = '5s', hold = '1m' }, { closed = { users = 1 }, ramp = '2s' }]\n\
        [[phase]]\nname = 'crowd'\nwindow = true\nanswers = 'ladder'\nprofile = 'spike'\n\
        open = { requests_per_second = 30 }\n";
    let plan = planned("cpus = [1, 2]", more, &["cpus"]);
    let told = |cell: usize| -> Vec<String> {
        plan.phases(&plan.cells[cell])
            .iter()
            .filter(|phase| phase.name == "ladder" || phase.name == "crowd")
            .map(|phase| {
                let load = match phase.model {
                    CellLoad::Closed { users } => f64::from(users),
                    CellLoad::Open {
                        requests_per_second,
                        ..
                    } => requests_per_second,
                    CellLoad::Script { .. } => panic!("there is no script"),
                };
                format!(
                    "{} {:?} {:?} {load} {}s {}{}",
                    phase.name,
                    phase.step,
                    phase.ramp_from,
                    phase.duration.as_secs(),
                    if phase.is_window() { "window" } else { "-" },
                    if phase.is_first { " first" } else { "" },
                )
            })
            .collect()
    };
    insta::assert_snapshot!(told(1).join("\n"), @"
    ladder Some(1) Some(0.0) 10 5s - first
    ladder Some(1) None 10 60s window
    ladder Some(2) Some(10.0) 40 5s -
    ladder Some(2) None 40 60s window
    ladder None Some(40.0) 1 2s -
    crowd Some(1) Some(0.0) 30 30s - first
    crowd Some(1) None 30 120s window
    crowd Some(2) Some(30.0) 150 5s -
    crowd Some(2) None 150 60s window
    crowd Some(3) Some(150.0) 30 5s -
    crowd Some(3) None 30 120s window
    ");
    assert_ne!(
        told(0),
        told(1),
        "a step's load may differ from cell to cell"
    );
    let tied = |cell: usize| {
        let of_cell = plan.phases(&plan.cells[cell]);
        of_cell
            .iter()
            .filter(|phase| phase.load_tied_to_knob)
            .count()
    };
    assert_eq!(
        (tied(0), tied(1)),
        (0, 0),
        "cells of different tiers are not compared"
    );
    // 10 + 120 + 2, then 30 + 120 + 5 + 60 + 5 + 120 s, and what every trial takes.
    let load = Duration::from_secs(132 + 340);
    assert!(plan.estimate.duration > load * 2 * 3);
    assert!(plan.estimate.duration < load * 2 * 3 + Duration::from_mins(3));
}
