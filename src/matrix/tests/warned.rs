//! What a plan warns of, and when it does not.

use super::*;

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
