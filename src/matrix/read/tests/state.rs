//! `[trials] state`, `[golden]`, `[seed]` and `[[hook]]`.

use super::*;
use crate::matrix::{CloneWay, GoldenFrom, HookBefore, ValueText};

const GOLDEN: &str = "[trials]\nstate = 'golden'\n";

fn with_golden(more: &str) -> String {
    with(&format!("{GOLDEN}{more}"))
}

#[test]
fn every_key_is_read() {
    let sweep = good(&format!(
        "{LEAST}{GOLDEN}[golden]\nfrom = 'prepare'\nvolumes = ['pgdata', 'files']\nclone = 'overlay'\n\
         [seed]\nservice = 'seed'\nworkload = 'seed.toml'\ntarget = 'http://app:9090'\nusers = 4\njourneys = 1000\ntimeout = '1h'\n\
         [[hook]]\nbefore = 'window'\nservice = 'db'\nexec = ['psql', '-c', '', '-c', 'SET a = ${{cpus}} $$1']\ntimeout = '9s'\n\
         [[hook]]\nbefore = 'stress'\nservice = 'db'\nexec = ['true']\n"
    ));
    assert_eq!(sweep.trials.state, State::Golden);
    let golden = sweep.golden.unwrap();
    assert_eq!(golden.from.value, GoldenFrom::Prepare);
    assert_eq!(golden.volumes[1].value, "files");
    assert_eq!(golden.clone, CloneWay::Overlay);
    let seed = sweep.seed.unwrap();
    assert_eq!((seed.users, seed.journeys), (4, 1_000));
    assert_eq!(seed.timeout, Duration::from_hours(1));
    assert_eq!(seed.target.unwrap().value.port, 9_090);
    assert_eq!(sweep.hooks[0].before, HookBefore::Windows);
    let words = sweep.hooks[0].exec.iter().map(ValueText::as_str);
    assert!(words.eq(["psql", "-c", "", "-c", "SET a = ${cpus} $$1"]));
    assert_eq!(sweep.hooks[0].timeout, Duration::from_secs(9));
    assert_eq!(
        sweep.hooks[1].before,
        HookBefore::Phase("stress".to_owned())
    );
    assert_eq!(sweep.hooks[1].timeout, Duration::from_mins(1));
}

#[test]
fn golden_takes_its_defaults_and_other_sources() {
    let golden = |from: &str| {
        let text = format!("{LEAST}{GOLDEN}[golden]\nvolumes = ['pgdata']\n{from}");
        good(&text).golden.unwrap()
    };
    let plain = golden("");
    assert_eq!(
        (plain.from.value, plain.clone),
        (GoldenFrom::Prepare, CloneWay::Auto)
    );
    assert_eq!(
        golden("from = 'volume:my db'").from.value,
        GoldenFrom::Volume("my db".into())
    );
    assert_eq!(
        golden("from = 'dir:../data'").from.value,
        GoldenFrom::Folder("../data".into())
    );
    assert_eq!(
        good(&format!("{LEAST}[trials]\nstate = 'keep'"))
            .trials
            .state,
        State::Keep
    );
}

#[test]
fn sections_that_do_not_go_together_are_named() {
    insta::assert_snapshot!(with("[golden]\nvolumes = ['d']\n[seed]\nservice = 's'"), @r#"
    m.toml:18:2: [golden] is given and `state` in [trials] is "fresh"
      hint: write state = "golden" in [trials], or take the section away
    m.toml:20:2: [seed] fills golden volumes while they are prepared, and none are
      hint: write state = "golden" in [trials] and from = "prepare" in [golden], or take the section away
    "#);
    insta::assert_snapshot!(with_golden(""), @r#"
    m.toml:1:1: `state = "golden"` in [trials] needs a section [golden]
      hint: add: [golden] with volumes = ["pgdata"]
    "#);
    insta::assert_snapshot!(with_golden("[golden]\nfrom = 'volume:x'\nvolumes = ['a', 'b']\n[seed]\nservice = 's'"), @r#"
    m.toml:22:11: `from` in [golden] names one source and `volumes` 2 volumes (allowed: one, or from = "prepare")
    m.toml:23:2: [seed] fills golden volumes while they are prepared, and none are
      hint: write state = "golden" in [trials] and from = "prepare" in [golden], or take the section away
    "#);
}

#[test]
fn wrong_values_are_all_named_at_once() {
    insta::assert_snapshot!(with_golden(
        "[golden]\nfrom = 'volume:'\nvolumes = []\nclone = 'hardlink'\n[seed]\nusers = 0\njourneys = 1.5\n\
         [[hook]]\nbefore = 'windw'\nservice = 'db'\nexec = 'psql'\n[[hook]]\nexec = ['a ${cpu}', '$HOME', '${cpus}']\n"
    ), @r#"
    m.toml:21:8: `from` in [golden] cannot be `volume:` (allowed: "prepare", "volume:NAME", "dir:PATH")
    m.toml:22:11: `volumes` in [golden] names no volume
    m.toml:23:9: `clone` in [golden] must be "auto", "reflink", "overlay" or "copy", not the text "hardlink"
    m.toml:24:2: [seed] has neither `workload` nor `service`
      hint: add workload = "seed.toml", or service = "NAME" for a service of the Compose file that fills the database and ends
    m.toml:25:1: `users` in [seed] belongs to `workload`, which is not there
    m.toml:25:9: `users` in [seed] must be a whole number from 1 to 1000, not the number 0
    m.toml:26:1: `journeys` in [seed] belongs to `workload`, which is not there
    m.toml:26:12: `journeys` in [seed] must be a whole number, 1 or more, not the number 1.5
    m.toml:28:10: `before` in [[hook]] is `windw`, which is neither "window" nor a phase
      hint: did you mean `window`?
    m.toml:30:8: `exec` in [[hook]] number 1 must be a list of texts, the command and its arguments, not the text "psql"
    m.toml:31:1: [[hook]] number 2 has no `before`
      hint: add a line such as: before = "window"
    m.toml:31:1: [[hook]] number 2 has no `service`
      hint: add a line such as: service = "db"
    m.toml:32:12: `${cpu}` in `exec` of [[hook]] number 2 is no axis or derived value
      hint: did you mean `${cpus}`?
    m.toml:32:22: in `exec` of [[hook]] number 2, a `$` stands alone (`$$` is a dollar)
    "#);
}
