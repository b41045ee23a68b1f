//! Policies, builds and their order, on the engine in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use jiff::Timestamp;

use super::{
    ImageProgress, ImagesMissing, Keyring, PrepareError, PreparedImages, check_builds,
    prepare_images,
};
use crate::engine::fake::{FakeCall, FakeEngine, FakeFault};
use crate::engine::{CliConfig, EngineErrorKind, ImageOrigin};
use crate::stack::{Build, PullPolicy, Service, Stack};

fn stack(services: Vec<(&str, Service)>) -> Arc<Stack> {
    Arc::new(Stack {
        services: services
            .into_iter()
            .map(|(name, service)| (name.to_owned(), service))
            .collect(),
        ..Stack::default()
    })
}

fn named(image: &str, pull_policy: Option<PullPolicy>) -> Service {
    Service {
        image: image.to_owned(),
        pull_policy,
        ..Service::default()
    }
}

/// A service that is built in `folder`, its argument `A` set.
fn built(folder: &Path, image: Option<&str>, argument: &str) -> Service {
    Service {
        image: image.unwrap_or("shop-app").to_owned(),
        build: Some(Build {
            context: folder.display().to_string(),
            names_no_image: image.is_none(),
            args: IndexMap::from([("A".to_owned(), argument.to_owned())]),
            place: "compose.yaml:4:12".to_owned(),
            ..Build::default()
        }),
        ..Service::default()
    }
}

fn folder(steps: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("Dockerfile"), steps).unwrap();
    folder
}

async fn prepare(
    engine: &FakeEngine,
    stacks: &[Arc<Stack>],
) -> Result<PreparedImages, PrepareError> {
    let keyring = Keyring::new(CliConfig::read(&BTreeMap::new()));
    let now: Timestamp = "2030-01-02T00:00:00Z".parse().unwrap();
    prepare_images(engine, stacks, &keyring, now, &|_| {}).await
}

async fn missing(engine: &FakeEngine, stacks: &[Arc<Stack>]) -> ImagesMissing {
    match prepare(engine, stacks).await {
        Err(PrepareError::Missing(missing)) => missing,
        other => panic!("{other:?}"),
    }
}

fn calls(engine: &FakeEngine, what: &str) -> Vec<String> {
    let mut calls = engine.calls();
    calls.retain(|call| call.starts_with(what));
    calls
}

#[tokio::test]
async fn an_image_is_pulled_where_it_is_missing_and_each_once() {
    let engine = FakeEngine::new();
    engine.add_pullable("db:2");
    let stacks = [
        stack(vec![
            ("app", named("app:1", None)),
            ("db", named("db:2", None)),
        ]),
        stack(vec![
            ("app", named("app:1", None)),
            ("db", named("db:2", None)),
        ]),
    ];
    let prepared = prepare(&engine, &stacks).await.unwrap();
    assert_eq!(calls(&engine, "pull"), ["pull_image db:2"]);
    assert_eq!(prepared.facts.keys().collect::<Vec<_>>(), ["app:1", "db:2"]);
    assert_eq!(prepared.facts["app:1"].origin, ImageOrigin::Held);
    assert_eq!(prepared.facts["db:2"].origin, ImageOrigin::Pulled);
    assert_eq!(prepared.facts["db:2"].repo_digests, ["db:2@sha256:db:2"]);
    for stack in prepared.stacks {
        let db = &stack.services["db"];
        assert_eq!((&*db.image, db.launched_image()), ("db:2", "sha256:db:2"));
    }
}

#[tokio::test]
async fn policies_decide_what_is_asked_of_the_registry() {
    let hours = |n: u64| Some(PullPolicy::Every(std::time::Duration::from_secs(n * 3600)));
    for (policy, is_pulled) in [
        (None, false),
        (Some(PullPolicy::Missing), false),
        (Some(PullPolicy::Never), false),
        (Some(PullPolicy::Always), true),
        (hours(23), true),
        (hours(24), true),
        (hours(25), false),
    ] {
        let engine = FakeEngine::new();
        engine.tagged_at("app:1", "2030-01-01T00:00:00.5Z");
        engine.move_tag("app:1", "sha256:new");
        let stacks = [stack(vec![("app", named("app:1", policy))])];
        let prepared = prepare(&engine, &stacks).await.unwrap();
        let digest = if is_pulled {
            "sha256:new"
        } else {
            "sha256:app:1"
        };
        assert_eq!(prepared.facts["app:1"].digest, digest, "{policy:?}");
    }
}

#[tokio::test]
async fn of_two_services_with_one_image_the_stricter_policy_holds() {
    let engine = FakeEngine::new();
    engine.move_tag("app:1", "sha256:new");
    let stacks = [stack(vec![
        ("a", named("app:1", Some(PullPolicy::Always))),
        ("b", named("app:1", Some(PullPolicy::Never))),
    ])];
    let prepared = prepare(&engine, &stacks).await.unwrap();
    for service in prepared.stacks[0].services.values() {
        assert_eq!(service.launched_image(), "sha256:new");
    }
}

#[tokio::test]
async fn all_that_cannot_be_had_is_one_error() {
    let engine = FakeEngine::new();
    let folder = folder("FROM gone/base:1\n");
    let stacks = [stack(vec![
        ("a", named("gone/app:1", None)),
        ("b", named("gone/app:1", None)),
        ("c", named("gone/other:1", Some(PullPolicy::Never))),
        ("d", built(folder.path(), None, "1")),
        ("e", built(Path::new("/nowhere"), None, "1")),
    ])];
    let missing = missing(&engine, &stacks).await;
    insta::assert_snapshot!(missing, @r"
    4 images cannot be had; nothing was started
      gone/app:1 (services `a`, `b`): no registry has it
        hint: `docker pull gone/app:1` must work on the engine's host
      gone/other:1 (service `c`): the engine does not hold it, and the policy is `never`
        hint: `docker pull gone/other:1`, or another `pull_policy`
      gone/base:1: compose.yaml:4:12: the build of `d` starts from it: no registry has it
        hint: `docker pull gone/base:1` must work on the engine's host
      compose.yaml:4:12: the build of `e` (service `e`): the context /nowhere is no folder
        hint: check `context` and `dockerfile` in the Compose file
    ");
    assert_eq!(calls(&engine, "build"), [""; 0]);
}

#[tokio::test]
async fn every_distinct_build_is_done_once_and_found_again_by_its_content() {
    let engine = FakeEngine::new();
    let folder = folder("FROM app:1\n");
    let stacks: Vec<_> = ["1", "2", "1"]
        .map(|argument| stack(vec![("app", built(folder.path(), None, argument))]))
        .into();
    let first = prepare(&engine, &stacks).await.unwrap();
    assert_eq!(calls(&engine, "build").len(), 2);
    let image =
        |prepared: &PreparedImages, n: usize| prepared.stacks[n].services["app"].image.clone();
    assert!(image(&first, 0).starts_with("nightsweep/build:"));
    assert_eq!(image(&first, 0), image(&first, 2));
    assert_ne!(image(&first, 0), image(&first, 1));
    assert_eq!(first.facts.len(), 2);
    assert_eq!(first.facts[&image(&first, 0)].origin, ImageOrigin::Built);

    let second = prepare(&engine, &stacks).await.unwrap();
    assert_eq!(calls(&engine, "build").len(), 2);
    assert_eq!(image(&second, 1), image(&first, 1));

    // The image it starts from has moved: another key, another build.
    engine.add_image_of("app:1", "sha256:moved");
    let third = prepare(&engine, &stacks[..1]).await.unwrap();
    assert_eq!(calls(&engine, "build").len(), 3);
    assert_ne!(image(&third, 0), image(&first, 0));
}

#[tokio::test]
async fn no_cache_and_bases_that_cannot_be_told_are_built_every_time() {
    let engine = FakeEngine::new();
    let unknown = folder("FROM $NOBODY_KNOWS\n");
    let known = folder("FROM scratch\n");
    let mut fresh = built(known.path(), None, "1");
    fresh.build.as_mut().unwrap().no_cache = true;
    let stacks = [stack(vec![
        ("a", built(unknown.path(), None, "1")),
        ("b", fresh),
    ])];
    prepare(&engine, &stacks).await.unwrap();
    prepare(&engine, &stacks).await.unwrap();
    assert_eq!(calls(&engine, "build").len(), 4);
}

#[tokio::test]
async fn a_build_that_has_a_name_gives_way_to_the_image_of_that_name() {
    let folder = folder("FROM scratch\n");
    let app = || built(folder.path(), Some("shop/app:1"), "1");
    let with = |policy| Service {
        pull_policy: policy,
        ..app()
    };
    // As Compose: held, it is used; never asked of a registry without a word.
    for (policy, is_held, is_pullable, expected) in [
        (None, true, true, "shop/app:1"),
        (None, false, true, "nightsweep/build"),
        (Some(PullPolicy::Missing), false, true, "shop/app:1"),
        (Some(PullPolicy::Missing), false, false, "nightsweep/build"),
        (Some(PullPolicy::Build), true, true, "nightsweep/build"),
    ] {
        let engine = FakeEngine::new();
        if is_held {
            engine.add_image("shop/app:1", false);
        }
        if is_pullable {
            engine.add_pullable("shop/app:1");
        }
        // `worker` names what `app` builds: the same image, whichever it is.
        let worker = named("shop/app:1", None);
        let stacks = [stack(vec![("worker", worker), ("app", with(policy))])];
        let prepared = prepare(&engine, &stacks).await.unwrap();
        for (name, service) in &prepared.stacks[0].services {
            let case = format!("{policy:?} {is_held} {is_pullable} {name}");
            assert!(
                service.image.starts_with(expected),
                "{case}: {}",
                service.image
            );
        }
    }
}

#[tokio::test]
async fn a_name_that_cells_build_differently_is_nobody_s() {
    let engine = FakeEngine::new();
    engine.add_image("shop/app:1", false);
    let folder = folder("FROM scratch\n");
    let stacks: Vec<_> = ["1", "2"]
        .map(|argument| {
            stack(vec![(
                "app",
                built(folder.path(), Some("shop/app:1"), argument),
            )])
        })
        .into();
    let prepared = prepare(&engine, &stacks).await.unwrap();
    assert_eq!(calls(&engine, "build").len(), 2);
    let images: Vec<_> = prepared
        .stacks
        .iter()
        .map(|stack| stack.services["app"].image.clone())
        .collect();
    assert_ne!(images[0], images[1]);
    assert!(!prepared.facts.contains_key("shop/app:1"));
}

#[tokio::test]
async fn a_build_that_fails_is_told_with_its_place_and_an_engine_that_is_gone_is_not_a_missing_image()
 {
    let folder = folder("FROM scratch\n");
    let stacks = [stack(vec![("app", built(folder.path(), None, "1"))])];
    let engine = FakeEngine::new();
    engine.fault(
        FakeCall::BuildImage,
        1,
        FakeFault::Fail(EngineErrorKind::Other),
    );
    let missing = missing(&engine, &stacks).await;
    let text = missing.to_string();
    assert!(
        text.contains("compose.yaml:4:12: the build of `app` (service `app`)"),
        "{text}"
    );

    engine.fault(
        FakeCall::BuildImage,
        2,
        FakeFault::Fail(EngineErrorKind::DiskFull),
    );
    match prepare(&engine, &stacks).await {
        Err(PrepareError::Engine(error)) => assert_eq!(error.kind, EngineErrorKind::DiskFull),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn with_pull_the_images_a_build_starts_from_are_fetched_anew() {
    let engine = FakeEngine::new();
    engine.move_tag("app:1", "sha256:new");
    let folder = folder("FROM app:1\n");
    let mut service = built(folder.path(), None, "1");
    service.build.as_mut().unwrap().pull = true;
    prepare(&engine, &[stack(vec![("app", service)])])
        .await
        .unwrap();
    let order: Vec<_> = engine.changes();
    assert_eq!(order[0], "pull_image app:1");
    assert!(order[1].starts_with("build_image"), "{order:?}");
}

fn on(platform: &str, image: &str, pull_policy: Option<PullPolicy>) -> Service {
    Service {
        platform: Some(platform.to_owned()),
        ..named(image, pull_policy)
    }
}

#[tokio::test]
async fn an_image_that_is_held_for_another_platform_is_pulled_for_the_one_asked() {
    let engine = FakeEngine::new();
    engine.set_platform("app:1", "linux/amd64");
    engine.add_pullable("app:1");
    let same = stack(vec![("app", on("linux/x86_64", "app:1", None))]);
    prepare(&engine, &[same]).await.unwrap();
    assert_eq!(calls(&engine, "pull"), [""; 0]);

    let other = stack(vec![("app", on("linux/arm64", "app:1", None))]);
    let prepared = prepare(&engine, &[other]).await.unwrap();
    assert_eq!(calls(&engine, "pull"), ["pull_image app:1"]);
    assert_eq!(prepared.facts["app:1"].platform, "linux/arm64");
}

#[tokio::test]
async fn one_name_on_two_platforms_is_two_images() {
    let engine = FakeEngine::new();
    engine.add_pullable("db:2");
    let stacks = [stack(vec![
        ("a", on("linux/amd64", "db:2", None)),
        ("b", on("linux/arm64", "db:2", None)),
    ])];
    let prepared = prepare(&engine, &stacks).await.unwrap();
    let launched = |name: &str| {
        prepared.stacks[0].services[name]
            .launched_image()
            .to_owned()
    };
    assert_eq!(launched("a"), "sha256:db:2-linux/amd64");
    assert_eq!(launched("b"), "sha256:db:2-linux/arm64");
    assert_eq!(
        prepared.facts.keys().collect::<Vec<_>>(),
        ["db:2", "db:2 (linux/arm64)"]
    );
}

#[tokio::test]
async fn an_image_that_exists_for_another_platform_alone_is_missing_with_both() {
    let engine = FakeEngine::new();
    engine.set_platform("app:1", "linux/amd64");
    engine.pullable_for("db:2", "linux/amd64");
    let stacks = [stack(vec![
        ("a", on("linux/arm64", "app:1", Some(PullPolicy::Never))),
        ("b", on("linux/arm64", "db:2", None)),
    ])];
    let missing = missing(&engine, &stacks).await;
    insta::assert_snapshot!(missing, @r"
    2 images cannot be had; nothing was started
      app:1 (service `a`): the engine holds it for linux/amd64, and linux/arm64 is asked for, and the policy is `never`
        hint: `docker pull --platform linux/arm64 app:1`, or another `pull_policy`
      db:2 (service `b`): it was pulled for linux/arm64, and is for linux/amd64
        hint: leave `platform` out, or name an image that exists for linux/arm64
    ");
    assert!(!missing.is_input());
}

#[tokio::test]
async fn a_never_that_another_service_overrides_is_said() {
    let never = || named("app:1", Some(PullPolicy::Never));
    for (other, is_pulled) in [
        (named("app:1", Some(PullPolicy::Always)), true),
        (named("app:1", None), false),
    ] {
        let engine = FakeEngine::new();
        engine.move_tag("app:1", "sha256:new");
        let stacks = [stack(vec![("a", never()), ("b", other)])];
        let warnings = prepare(&engine, &stacks).await.unwrap().warnings;
        let said = "`app:1` was pulled, as `b` asks for, though `a` has `pull_policy: never`: both \
                    run the same image";
        assert_eq!(warnings, [said][..usize::from(is_pulled)]);
    }
}

#[tokio::test]
async fn builds_that_cannot_be_read_are_the_users_fault_and_found_without_an_engine() {
    let steps = folder("FROM scratch\nRUN --mount=type=cache x\n");
    let no_steps = tempfile::tempdir().unwrap();
    let with_name = built(Path::new("/nowhere"), Some("app:1"), "1");
    let stacks = [
        stack(vec![
            ("buildkit", built(steps.path(), None, "1")),
            ("nowhere", built(Path::new("/nowhere"), None, "1")),
            ("no-steps", built(no_steps.path(), None, "1")),
            // Held or pulled, it is not built at all.
            ("named", with_name),
        ]),
        stack(vec![("nowhere", built(Path::new("/nowhere"), None, "1"))]),
    ];
    let lines = check_builds(&stacks);
    let folder = no_steps.path().display().to_string();
    let text = lines.join("\n").replace(&folder, "FOLDER");
    insta::assert_snapshot!(text, @r"
    compose.yaml:4:12: the build of `buildkit`: the steps need BuildKit, which is not supported: line 2: `RUN --mount`
      hint: build it with a tool that can (`docker buildx build --load`), and name it with `image:`
    compose.yaml:4:12: the build of `nowhere`: the context /nowhere is no folder
      hint: check `context` and `dockerfile` in the Compose file
    compose.yaml:4:12: the build of `no-steps`: failed to open file `FOLDER/Dockerfile`: No such file or directory (os error 2)
      hint: check `context` and `dockerfile` in the Compose file
    ");
    let missing = missing(&FakeEngine::new(), &stacks).await;
    assert!(missing.is_input());
}

#[tokio::test]
async fn what_a_builder_says_of_steps_it_cannot_read_is_the_users_fault() {
    for (said, is_input) in [
        (
            "dockerfile parse error line 2: unknown instruction: RUNN",
            true,
        ),
        ("the Dockerfile (Dockerfile) cannot be empty", true),
        (
            "The command '/bin/sh -c apt-get update' returned a non-zero code: 100",
            false,
        ),
    ] {
        assert_eq!(
            super::prepare::says_that_steps_are_wrong(said),
            is_input,
            "{said}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_build_says_how_long_it_took_and_later_that_it_is_used_again() {
    let folder = folder("FROM scratch\n");
    let engine = FakeEngine::new();
    let stacks = [stack(vec![("app", built(folder.path(), None, "1"))])];
    let keyring = Keyring::new(CliConfig::read(&BTreeMap::new()));
    for expected in ["built", "built before"] {
        let told = std::sync::Mutex::new(Vec::new());
        let tell = |step: ImageProgress<'_>| match step {
            ImageProgress::Built { .. } => told.lock().unwrap().push("built"),
            ImageProgress::BuiltBefore { .. } => told.lock().unwrap().push("built before"),
            _ => {}
        };
        prepare_images(&engine, &stacks, &keyring, Timestamp::UNIX_EPOCH, &tell)
            .await
            .unwrap();
        assert_eq!(*told.lock().unwrap(), [expected]);
    }
}

#[tokio::test]
async fn a_build_whose_bases_cannot_be_told_is_given_all_credentials() {
    // `u:p` and `hub:pw`.
    let file = r#"{"auths": {"a.example": {"auth": "dTpw"},
        "https://index.docker.io/v1/": {"auth": "aHViOnB3"}, "empty.example": {}}}"#;
    let home = tempfile::tempdir().unwrap();
    fs_err::write(home.path().join("config.json"), file).unwrap();
    let variables = BTreeMap::from([(
        "DOCKER_CONFIG".to_owned(),
        home.path().display().to_string(),
    )]);
    for (steps, expected) in [
        (
            "FROM $X\n",
            &["a.example", "https://index.docker.io/v1/"][..],
        ),
        ("FROM a.example/base\n", &["a.example"]),
        ("FROM scratch\n", &[]),
    ] {
        let engine = FakeEngine::new();
        engine.add_image("a.example/base", false);
        let folder = folder(steps);
        let stacks = [stack(vec![("app", built(folder.path(), None, "1"))])];
        let keyring = Keyring::new(CliConfig::read(&variables));
        prepare_images(&engine, &stacks, &keyring, Timestamp::UNIX_EPOCH, &|_| {})
            .await
            .unwrap();
        assert_eq!(engine.build_credentials(), expected, "{steps}");
    }
}
