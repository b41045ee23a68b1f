//! Journeys at a rate of their own beside a phase's load.

use super::*;

fn beside(text: &str) -> String {
    LEAST.replace("duration = \"45s\"", &format!("duration = \"45s\"\n{text}"))
}

#[test]
fn a_journey_beside_has_its_own_rate_also_beside_stages() {
    let text = beside(
        "beside = [{ journey = \"poll\", open = { requests_per_second = 20 } }, { journey = \"watch\", open = { requests_per_second = 0.5, arrivals = \"poisson\", max_in_flight = 3 } }]",
    );
    let sweep = good(&text);
    let [poll, watch] = sweep.phases[0].beside.as_slice() else {
        panic!("two of them: {:?}", sweep.phases[0].beside)
    };
    assert_eq!(poll.journey.value, "poll");
    assert_eq!(
        (poll.requests_per_second, poll.max_in_flight),
        (20.0, 1_000)
    );
    assert_eq!(
        (watch.arrivals, watch.max_in_flight),
        (Arrivals::Poisson, 3)
    );
    let staged = text
        .replace("answers = \"capacity\"", "answers = \"ladder\"")
        .replace(
            "closed = { users = 16 }",
            "stages = [{ closed = { users = [1, 2] }, hold = \"1s\" }]",
        )
        .replace("duration = \"45s\"\n", "");
    assert_eq!(good(&staged).phases[0].beside.len(), 2);
}

#[test]
fn nonsense_beside_a_phase_is_told() {
    insta::assert_snapshot!(wrong(&beside("beside = [{ journey = \"a\", open = { requests_per_second = \"cpus\" } }, { journey = \"b\", closed = { users = 1 } }, 7, { journey = \"c\", open = { requests_per_second = 0 } }, { journey = \"d\", open = { requests_per_second = 1 } }, { journey = \"d\", open = { requests_per_second = \"1 + 1\" } }, { journey = \"e\", open = { requests_per_second = 1 } }, { journey = \"e\", open = { requests_per_second = 2 } }]")), @r#"
    m.toml:18:60: unknown name `cpus`
      hint: the names here are none
    m.toml:18:71: number 2 in `beside` of [[phase]] "stress" has no `open`
      hint: add a line such as: beside = [{ journey = "poll", open = { requests_per_second = 20 } }]
    m.toml:18:88: unknown key `closed` in number 2 in `beside` of [[phase]] "stress"
      hint: allowed here: journey, open
    m.toml:18:114: number 3 in `beside` of [[phase]] "stress" must be a table, not the number 7
    m.toml:18:165: in `open` of number 4 in `beside` of [[phase]] "stress", `requests_per_second` is 0 (allowed: above 0, up to 100000000)
    m.toml:18:227: `requests_per_second` of number 6 in `beside` of [[phase]] "stress" must be a number: it is the same for every cell
    m.toml:18:343: `beside` of [[phase]] "stress" names the journey `e` twice
    "#);
}
