//! What `clean` takes and what it leaves, over the fake engine, in paused time.

use indexmap::IndexMap;

use super::fake::*;
use super::tests::*;
use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

/// One thing of each kind of owner, a stranger's and a golden volume.
fn littered() -> FakeEngine {
    let engine = FakeEngine::new();
    let (dead, living) = (
        dead_owner().to_string(),
        Owner::current().unwrap().to_string(),
    );
    let owned = |run: &str, owner: &str| {
        labels(&[(LABEL_RUN, run), (LABEL_TRIAL, "1"), (LABEL_OWNER, owner)])
    };
    engine.add_existing(LeftoverKind::Container, "dead", owned("r1", &dead));
    engine.add_existing(LeftoverKind::Network, "dead-net", owned("r1", &dead));
    engine.add_existing(LeftoverKind::Container, "living", owned("r2", &living));
    engine.add_existing(
        LeftoverKind::Volume,
        "elsewhere",
        owned("r3", "other:4026531836/1/2"),
    );
    engine.add_existing(
        LeftoverKind::Volume,
        "unowned",
        labels(&[(LABEL_RUN, "r4")]),
    );
    engine.add_existing(
        LeftoverKind::Container,
        "stranger",
        labels(&[("com.docker.compose.project", "x")]),
    );
    let golden = [
        (LABEL_RUN, "r1"),
        (LABEL_OWNER, dead.as_str()),
        (LABEL_GOLDEN, "g"),
    ];
    engine.add_existing(LeftoverKind::Volume, "golden", labels(&golden));
    engine
}

#[tokio::test(start_paused = true)]
async fn clean_takes_only_what_a_dead_owner_left() {
    let engine = littered();
    let dry = CleanRequest {
        run_id: None,
        golden: false,
        images: false,
        is_dry_run: true,
    };
    let report = clean(&engine, &dry).await.unwrap();
    let names = |things: &[Leftover]| -> Vec<String> {
        things.iter().map(|thing| thing.name.clone()).collect()
    };
    assert_eq!(names(&report.removed), ["dead", "dead-net"]);
    assert_eq!(engine.existing().len(), 7, "a dry run removes nothing");

    let report = clean(&engine, &CleanRequest::default()).await.unwrap();
    assert_eq!(names(&report.removed), ["dead", "dead-net"]);
    let kept: Vec<(&str, &str)> = report
        .kept
        .iter()
        .map(|(thing, why)| (thing.name.as_str(), why.as_str()))
        .collect();
    assert_eq!(kept.len(), 3);
    assert!(
        kept[0].0 == "living" && kept[0].1.contains("still runs"),
        "{kept:?}"
    );
    assert!(
        kept[1].0 == "elsewhere" && kept[1].1.contains("ran on other:4026531836"),
        "{kept:?}"
    );
    assert!(
        kept[2].0 == "unowned" && kept[2].1.contains("does not say who owns it"),
        "{kept:?}"
    );
    assert_eq!(
        engine.existing(),
        ["living", "elsewhere", "unowned", "stranger", "golden"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_named_run_is_cleaned_unless_its_owner_lives() {
    let named = |run: &str| CleanRequest {
        run_id: Some(run.to_owned()),
        golden: false,
        images: false,
        is_dry_run: false,
    };
    let engine = littered();
    for run in ["r2", "r3", "r4"] {
        clean(&engine, &named(run)).await.unwrap();
    }
    assert_eq!(
        engine.existing(),
        ["dead", "dead-net", "living", "stranger", "golden"]
    );
    clean(&engine, &named("r1")).await.unwrap();
    assert_eq!(engine.existing(), ["living", "stranger", "golden"]);
}

#[tokio::test(start_paused = true)]
async fn clean_tries_again_and_says_what_stays() {
    let engine = littered();
    engine.fault(
        FakeCall::Remove,
        1,
        FakeFault::Fail(EngineErrorKind::Conflict),
    );
    let report = clean(&engine, &CleanRequest::default()).await.unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert_eq!(report.removed.len(), 2);

    let engine = littered();
    engine.fault_always(FakeCall::Remove, FakeFault::Fail(EngineErrorKind::Conflict));
    let report = clean(&engine, &CleanRequest::default()).await.unwrap();
    assert_eq!(report.failed.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn golden_volumes_are_cleaned_when_asked_for_and_nobody_living_uses_them() {
    use super::{GoldenFacts, GoldenKey, TrialTag, claim, find_golden, register_use, seal};
    let engine = FakeEngine::new();
    let living = Owner::current().unwrap();
    let dead: Owner = format!("{}/{}/1", living.host(), living.pid())
        .parse()
        .unwrap();
    let tag = |run: &str, owner: &Owner| TrialTag {
        run_id: run.to_owned(),
        trial: "run".to_owned(),
        cell_id: "run".to_owned(),
        owner: owner.clone(),
    };
    let facts = GoldenFacts {
        source: "prepare".to_owned(),
        made_at: "2026-11-30T00:00:00Z".to_owned(),
        prepared_s: 1.0,
        trees: IndexMap::new(),
        clone_s: None,
    };
    let (whole, used, half) = (
        GoldenKey::of("whole"),
        GoldenKey::of("used"),
        GoldenKey::of("half"),
    );
    for key in [&whole, &used] {
        let data = claim(&engine, key, &tag("r1", &dead)).await.unwrap();
        let sealed = seal(&engine, key, &data, &facts).await.unwrap();
        assert_eq!(find_golden(&engine, key).await.unwrap(), Some(sealed));
    }
    register_use(&engine, &used, &tag("r2", &living))
        .await
        .unwrap();
    let orphan = claim(&engine, &half, &tag("r1", &dead)).await.unwrap();
    let busy = claim(&engine, &half, &tag("r2", &living)).await.unwrap();
    assert_eq!(
        find_golden(&engine, &half).await.unwrap(),
        None,
        "half-made is not there"
    );

    let plain = CleanRequest::default();
    let report = clean(&engine, &plain).await.unwrap();
    let removed: Vec<&str> = report
        .removed
        .iter()
        .map(|thing| thing.name.as_str())
        .collect();
    assert_eq!(removed, [orphan.as_str()]);

    let all = CleanRequest {
        golden: true,
        images: false,
        ..CleanRequest::default()
    };
    let report = clean(&engine, &all).await.unwrap();
    assert_eq!(report.removed.len(), 2, "{report:?}");
    assert_eq!(find_golden(&engine, &whole).await.unwrap(), None);
    assert!(find_golden(&engine, &used).await.unwrap().is_some());
    let why: Vec<&str> = report.kept.iter().map(|(_, why)| why.as_str()).collect();
    assert!(why.contains(&"run r2 uses it"), "{why:?}");
    assert!(engine.existing().contains(&busy), "somebody is at it");
}

#[tokio::test(start_paused = true)]
async fn built_images_go_when_asked_for_and_no_run_lives() {
    let engine = FakeEngine::new();
    let built = Labels::from([("nightsweep.build".to_owned(), "k".to_owned())]);
    engine.add_existing(LeftoverKind::Image, "nightsweep/build:k", built);
    engine.add_existing(LeftoverKind::Image, "theirs:1", Labels::new());
    let owned = |owner: &str| {
        Labels::from([
            (LABEL_RUN.to_owned(), "r1".to_owned()),
            (LABEL_OWNER.to_owned(), owner.to_owned()),
        ])
    };
    let asked = CleanRequest {
        images: true,
        ..CleanRequest::default()
    };
    let plain = clean(&engine, &CleanRequest::default()).await.unwrap();
    assert!(plain.removed.is_empty(), "{plain:?}");

    let alive = Owner::current().unwrap().to_string();
    engine.add_existing(LeftoverKind::Network, "alive", owned(&alive));
    let report = clean(&engine, &asked).await.unwrap();
    assert!(report.removed.is_empty(), "{report:?}");
    let why: Vec<&str> = report.kept.iter().map(|(_, why)| why.as_str()).collect();
    assert!(why.contains(&"run r1 may use it"), "{why:?}");

    let engine = FakeEngine::new();
    let built = Labels::from([("nightsweep.build".to_owned(), "k".to_owned())]);
    engine.add_existing(LeftoverKind::Image, "nightsweep/build:k", built);
    engine.add_existing(LeftoverKind::Image, "theirs:1", Labels::new());
    let report = clean(&engine, &asked).await.unwrap();
    assert_eq!(report.removed.len(), 1);
    assert_eq!(engine.existing(), ["theirs:1"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_that_prepare_the_same_the_first_seal_stands() {
    use super::{GoldenFacts, GoldenKey, TrialTag, claim, find_golden_of_source, seal};
    let engine = FakeEngine::new();
    let key = GoldenKey::of("same");
    let tag = |run: &str| TrialTag {
        run_id: run.to_owned(),
        trial: "golden-1".to_owned(),
        cell_id: "c".to_owned(),
        owner: Owner::current().unwrap(),
    };
    let facts = GoldenFacts {
        source: "prepare".to_owned(),
        made_at: "2026-11-30T00:00:00Z".to_owned(),
        prepared_s: 1.0,
        trees: IndexMap::new(),
        clone_s: None,
    };
    let first = claim(&engine, &key, &tag("r1")).await.unwrap();
    let second = claim(&engine, &key, &tag("r2")).await.unwrap();
    let sealed = seal(&engine, &key, &first, &facts).await.unwrap();
    let source = |name: &'static str| find_golden_of_source(&engine, name);
    assert_eq!(source("prepare").await.unwrap(), Some(sealed.clone()));
    assert_eq!(source("volume:other").await.unwrap(), None);
    let other = seal(&engine, &key, &second, &facts).await.unwrap();
    assert_eq!((sealed.data.as_str(), &other), (first.as_str(), &sealed));
    assert!(
        !engine.existing().contains(&second),
        "its data is thrown away"
    );
}
