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
    insta::assert_snapshot!(wrong(&beside("beside = [{ journey = \"a\", open = { requests_per_second = \"cpus\" } }, { journey = \"b\", closed = { users = 1 } }, 7, { journey = \"c\", open = { requests_per_second = 0 } }, { journey = \"d\", open = { requests_per_second = 1 } }, { journey = \"d\", open = { requests_per_second = \"1 + 1\" } }, { journey = \"e\", open = { requests_per_second = 1 } }, { journey = \"e\", open = { requests_per_second = 2 } }]")), @"");
}
