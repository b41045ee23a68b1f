//! Pulling with credentials, moved tags and builds, on a real engine and a real registry.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use jiff::Timestamp;

use super::registry::{PASSWORD, Registry, Removed, docker};
use super::support::{Trial, engine};
use crate::engine::{
    CliConfig, ContainerRequest, DockerEngine, Engine, ImageOrigin, ImageProgress, Keyring,
    PrepareError, PreparedImages, prepare_images,
};
use crate::stack::{Build, PullPolicy, Service, Stack};

fn named(image: &str, pull_policy: Option<PullPolicy>) -> Service {
    Service {
        image: image.to_owned(),
        pull_policy,
        ..Service::default()
    }
}

fn stack(service: Service) -> Arc<Stack> {
    Arc::new(Stack {
        services: IndexMap::from([("app".to_owned(), service)]),
        ..Stack::default()
    })
}

fn keyring(folder: &Path) -> Keyring {
    let folder = folder.display().to_string();
    let variables = BTreeMap::from([("DOCKER_CONFIG".to_owned(), folder)]);
    Keyring::new(CliConfig::read(&variables))
}

async fn prepare(
    engine: &DockerEngine,
    keyring: &Keyring,
    service: Service,
) -> Result<PreparedImages, PrepareError> {
    let stacks = [stack(service)];
    prepare_images(engine, &stacks, keyring, Timestamp::now(), &|_| {}).await
}

async fn words(engine: &DockerEngine, keyring: &Keyring, service: Service) -> String {
    match prepare(engine, keyring, service).await {
        Err(PrepareError::Missing(missing)) => missing.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_image_is_pulled_with_the_docker_cli_s_credentials_and_known_by_both_digests() {
    let engine = engine().await;
    let registry = Registry::start().await;
    let image = registry.image("night/app:1");
    let _removed = Removed(vec![image.clone()]);
    registry.publish("night/app:1", "first");

    let nobody = tempfile::tempdir().unwrap();
    let said = words(&engine, &keyring(nobody.path()), named(&image, None)).await;
    assert!(said.contains("no basic auth credentials"), "{said}");
    assert!(
        said.contains(&format!("docker login {}", registry.host)),
        "{said}"
    );
    let wrong = keyring(&registry.cli_config("wrong-wrong"));
    let said = words(&engine, &wrong, named(&image, None)).await;
    assert!(said.contains("unauthorized"), "{said}");
    assert!(!said.contains("wrong-wrong"), "{said}");

    let seen = Mutex::new(Vec::new());
    let right = keyring(&registry.cli_config(PASSWORD));
    let stacks = [stack(named(&image, None))];
    let tell = |step: ImageProgress<'_>| {
        if let ImageProgress::Pulled { is_new, .. } = step {
            seen.lock().unwrap().push(is_new);
        }
    };
    let prepared = prepare_images(&*engine, &stacks, &right, Timestamp::now(), &tell)
        .await
        .unwrap();
    let always = [stack(named(&image, Some(PullPolicy::Always)))];
    prepare_images(&*engine, &always, &right, Timestamp::now(), &tell)
        .await
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), [true, false]);
    let facts = &prepared.facts[&image];
    assert_eq!(facts.origin, ImageOrigin::Pulled);
    let repo_digest = docker(
        nobody.path(),
        &[
            "image",
            "inspect",
            "--format",
            "{{index .RepoDigests 0}}",
            &image,
        ],
    );
    assert_eq!(facts.repo_digests, [repo_digest]);
    assert!(facts.digest.starts_with("sha256:"));
    assert_eq!(
        prepared.stacks[0].services["app"].launched_image(),
        facts.digest
    );
}

#[tokio::test]
async fn a_moved_tag_is_followed_by_policy_alone_and_what_is_launched_stays() {
    let engine = engine().await;
    let registry = Registry::start().await;
    let image = registry.image("night/moving:1");
    let mut removed = Removed(vec![image.clone()]);
    // A helper gives the credentials this time; it is asked for this registry alone.
    let helper = format!(
        "#!/bin/sh\nread host\n[ \"$1 $host\" = \"get {}\" ] || {{ echo unexpected; exit 1; }}\n\
         echo '{{\"ServerURL\":\"x\",\"Username\":\"night\",\"Secret\":\"{PASSWORD}\"}}'\n",
        registry.host
    );
    let bin = registry.write("bin", "docker-credential-test", &helper);
    let executable = PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(bin.join("docker-credential-test"), executable).unwrap();
    let config = format!(r#"{{"credHelpers": {{"{}": "test"}}}}"#, registry.host);
    let config = registry.write("helped", "config.json", &config);
    let variables = [
        ("DOCKER_CONFIG", config.display().to_string()),
        ("PATH", format!("{}:/usr/bin:/bin", bin.display())),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let keyring = Keyring::new(CliConfig::read(&variables.into()));

    registry.publish("night/moving:1", "first");
    let with = |policy| named(&image, Some(policy));
    let first = prepare(&engine, &keyring, with(PullPolicy::Always))
        .await
        .unwrap();
    let first_id = first.facts[&image].digest.clone();
    removed.0.push(first_id.clone());
    registry.publish("night/moving:1", "second");
    let held = prepare(&engine, &keyring, with(PullPolicy::Missing))
        .await
        .unwrap();
    assert_eq!(held.facts[&image].digest, first_id);
    let second = prepare(&engine, &keyring, with(PullPolicy::Always))
        .await
        .unwrap();
    assert_ne!(second.facts[&image].digest, first_id);
    assert_ne!(
        second.facts[&image].repo_digests,
        first.facts[&image].repo_digests
    );

    // A trial planned before the tag moved launches what was planned.
    let trial = Trial::new(&engine, "1");
    let mut service = first.stacks[0].services["app"].clone();
    service.command = Some(vec!["/what".to_owned()]);
    let request = ContainerRequest {
        name: trial.lease().tag().name("app"),
        service: &service,
        networks: &IndexMap::new(),
        volumes: &IndexMap::new(),
        containers: &IndexMap::new(),
        labels: &trial.lease().tag().labels(),
        image_volumes: &[],
        publish_ports: Vec::new(),
    };
    let id = engine.create_container(request).await.unwrap();
    assert_eq!(engine.inspect(&id).await.unwrap().image_digest, first_id);
    trial.finish(&engine).await;
}

#[tokio::test]
async fn no_registry_and_no_helper_are_told_each_by_its_name() {
    let engine = engine().await;
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(
        folder.path().join("config.json"),
        r#"{"credsStore": "of-no-such-name"}"#,
    )
    .unwrap();
    // Nobody listens there: the pull fails at once, whatever registries can be reached.
    let said = words(
        &engine,
        &keyring(folder.path()),
        named("127.0.0.1:9/no/such:1", None),
    )
    .await;
    assert!(said.contains("connection refused"), "{said}");
    assert!(said.contains("docker-credential-of-no-such-name"), "{said}");
}

/// Paths and contents of an image's files.
fn files(image: &str) -> IndexMap<String, String> {
    let nowhere = Path::new("/nonexistent");
    let id = docker(nowhere, &["create", image, "/none"]);
    let export = Command::new("docker")
        .args(["export", &id])
        .output()
        .unwrap();
    docker(nowhere, &["rm", &id]);
    let mut archive = tar::Archive::new(export.stdout.as_slice());
    let mut files = IndexMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        if path.starts_with("app/") && !path.ends_with('/') {
            files.insert(path, content);
        }
    }
    files
}

fn built(folder: &Path, argument: &str) -> Service {
    Service {
        image: "shop-app".to_owned(),
        build: Some(Build {
            context: folder.display().to_string(),
            names_no_image: true,
            args: IndexMap::from([("COLOUR".to_owned(), argument.to_owned())]),
            labels: IndexMap::from([("team".to_owned(), "night".to_owned())]),
            extra_hosts: vec!["one:10.0.0.1".to_owned(), "two:10.0.0.2".to_owned()],
            shm_size: Some(5 << 30),
            place: "compose.yaml:4:5".to_owned(),
            ..Build::default()
        }),
        ..Service::default()
    }
}

#[tokio::test]
async fn an_image_is_built_from_what_dockerignore_leaves_and_found_again() {
    let engine = engine().await;
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    };
    let salt = format!("{}", std::process::id());
    write(
        ".dockerignore",
        "**/*.log\nsecret\n!keep.log\nDockerfile\n.dockerignore\n",
    );
    write(
        "Dockerfile",
        "FROM scratch AS first\nARG COLOUR\nLABEL colour=$COLOUR\nCOPY . /app/\n",
    );
    write("a.log", "x");
    write("deep/b.log", "x");
    write("keep.log", "kept");
    write("secret/key", "x");
    write(&format!("{}/name", "long/".repeat(30)), &salt);
    std::os::unix::fs::symlink("keep.log", folder.path().join("link")).unwrap();

    let nobody = keyring(folder.path());
    let first = prepare(&engine, &nobody, built(folder.path(), "red"))
        .await
        .unwrap();
    let image = first.stacks[0].services["app"].image.clone();
    let mut removed = Removed(vec![image.clone()]);
    let found = files(&image);
    let long = format!("app/{}name", "long/".repeat(30));
    assert_eq!(found["app/keep.log"], "kept");
    assert_eq!(found[&long], salt);
    assert_eq!(found.len(), 3, "{found:?}");
    let label = |name: &str| {
        let format = format!("{{{{index .Config.Labels \"{name}\"}}}}");
        docker(
            folder.path(),
            &["image", "inspect", "--format", &format, &image],
        )
    };
    assert_eq!(
        (label("colour"), label("team")),
        ("red".into(), "night".into())
    );
    assert!(image.ends_with(&label("nightsweep.build")), "{image}");

    // Found again: were it built, the engine would have been told of it.
    let told = Mutex::new(0);
    let stacks = [
        stack(built(folder.path(), "red")),
        stack(built(folder.path(), "blue")),
    ];
    let tell = |step: ImageProgress<'_>| {
        if let ImageProgress::Built { .. } = step {
            *told.lock().unwrap() += 1;
        }
    };
    let second = prepare_images(&*engine, &stacks, &nobody, Timestamp::now(), &tell)
        .await
        .unwrap();
    removed
        .0
        .push(second.stacks[1].services["app"].image.clone());
    assert_eq!(*told.lock().unwrap(), 1);
    assert_eq!(second.stacks[0], first.stacks[0]);
    assert_ne!(
        second.stacks[1].services["app"].image_id,
        first.stacks[0].services["app"].image_id
    );
}

#[tokio::test]
async fn a_step_that_fails_is_told_with_its_log_and_leaves_nothing() {
    let engine = engine().await;
    let folder = tempfile::tempdir().unwrap();
    // The classic builder runs steps with /bin/sh, which this image has.
    let steps = format!(
        "FROM {}\nENV PATH=/bin\nRUN echo before\nRUN echo on the way; echo no such thing >&2; exit 7\n",
        super::support::IMAGE
    );
    fs_err::write(folder.path().join("Dockerfile"), steps).unwrap();
    let said = words(
        &engine,
        &keyring(folder.path()),
        built(folder.path(), "red"),
    )
    .await;
    for part in [
        "compose.yaml:4:5: the build of `app`",
        "Step 4/6 : RUN echo on the way",
        "returned a non-zero code: 7",
        // Output and errors of a step come in either order.
        "\n    | on the way\n",
        "\n    | no such thing\n",
        "\n    hint: `docker build` of the same folder",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("| before"), "{said}");
}
