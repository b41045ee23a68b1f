//! Image, stack and clean-up of the tests.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, RemoveContainerOptions, StartContainerOptions,
};
use futures_util::StreamExt;
use indexmap::IndexMap;
use tokio::sync::OnceCell;

use crate::engine::teardown::remove_matching;
use crate::engine::{
    ContainerId, DockerEngine, Engine, HostFacts, LABEL_RUN, Launch, LaunchError, LaunchTarget,
    Launched, Lease, Owner, ReadyProbe, RunState, TrialTag, launch,
};
use crate::stack::{
    Attachment, Condition, Dependency, Healthcheck, Mount, MountSource, Network, Service, Stack,
    Volume,
};

pub(super) const IMAGE: &str = "nightsweep/test-busybox:local";

pub(super) async fn engine() -> Arc<DockerEngine> {
    static IMAGE_MADE: OnceCell<()> = OnceCell::const_new();
    let endpoint = std::env::var("DOCKER_HOST").ok();
    let engine = DockerEngine::connect(endpoint.as_deref())
        .await
        .expect("these tests need Docker");
    IMAGE_MADE.get_or_init(|| make_image(&engine)).await;
    Arc::new(engine)
}

/// A static busybox and nothing else, as an image.
pub(super) async fn make_image(engine: &DockerEngine) {
    if engine.find_image(IMAGE).await.unwrap().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    download("busybox-static", folder.path());
    let script = "mkdir -p image/bin image/tmp && cp root/bin/busybox image/bin/ \
        && ln -s busybox image/bin/sh && tar -C image -cf image.tar .";
    run_script(script, folder.path());
    let archive = fs_err::read(folder.path().join("image.tar")).unwrap();
    let (repo, tag) = IMAGE.split_once(':').unwrap();
    let options = CreateImageOptions {
        from_src: Some("-".to_owned()),
        repo: Some(repo.to_owned()),
        tag: Some(tag.to_owned()),
        ..CreateImageOptions::default()
    };
    let body = bollard::body_full(archive.into());
    let steps: Vec<_> = engine
        .docker
        .create_image(Some(options), Some(body), None)
        .collect()
        .await;
    for step in steps {
        step.unwrap();
    }
}

/// Downloads a Debian package and unpacks it below `root` in the folder.
pub(super) fn download(package: &str, folder: &Path) {
    // Lists of its own: this host's may never have been fetched, and need root to be.
    let script = format!(
        "mkdir -p state/lists/partial cache/archives/partial \
         && apt=\"apt-get -q -o Dir::State::lists=$PWD/state/lists -o Dir::Cache=$PWD/cache\" \
         && $apt update && $apt download {package} && dpkg-deb -x {package}_*.deb root"
    );
    run_script(&script, folder);
}

fn run_script(script: &str, folder: &Path) {
    let made = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// A lease whose trial is removed at the end of the test, however that comes.
pub(super) struct Trial {
    pub(super) lease: Option<Lease<DockerEngine>>,
    pub(super) run_id: String,
}

impl Trial {
    pub(super) fn new(engine: &Arc<DockerEngine>, trial: &str) -> Self {
        Self::owned_by(engine, trial, Owner::current().unwrap())
    }

    pub(super) fn owned_by(engine: &Arc<DockerEngine>, trial: &str, owner: Owner) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let run_id = format!("engine-test-{}-{n}", std::process::id());
        let tag = TrialTag {
            run_id: run_id.clone(),
            trial: trial.to_owned(),
            cell_id: "cell".to_owned(),
            owner,
        };
        Self {
            lease: Some(Lease::take(Arc::clone(engine), tag)),
            run_id,
        }
    }

    pub(super) fn lease(&self) -> &Lease<DockerEngine> {
        self.lease.as_ref().unwrap()
    }

    pub(super) fn filter(&self) -> Vec<String> {
        vec![format!("{LABEL_RUN}={}", self.run_id)]
    }

    /// Releases and sees for itself that nothing is left.
    pub(super) async fn finish(mut self, engine: &DockerEngine) {
        let report = self.lease.take().unwrap().release().await;
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(engine.list_ours(&self.filter()).await.unwrap(), []);
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let filter = self.filter();
        // A failed test has lost its runtime: a new one, on a thread of its own.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                remove_matching(&**lease.engine(), &filter, true).await;
                lease.release().await
            })
        });
        let _ = removal.join();
    }
}

pub(super) fn shell(script: &str) -> Service {
    Service {
        image: IMAGE.to_owned(),
        command: Some(["/bin/sh", "-c", script].map(str::to_owned).to_vec()),
        networks: IndexMap::from([("default".to_owned(), attachment(&[]))]),
        environment: IndexMap::from([("PATH".to_owned(), "/bin".to_owned())]),
        ..Service::default()
    }
}

pub(super) fn attachment(aliases: &[&str]) -> Attachment {
    Attachment {
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        ..Attachment::default()
    }
}

pub(super) fn after(mut service: Service, name: &str, condition: Condition) -> Service {
    let dependency = Dependency {
        condition,
        required: true,
    };
    service.depends_on.insert(name.to_owned(), dependency);
    service
}

/// A web service with limits, and a database with a healthcheck and a one-shot before it.
pub(super) fn stack() -> Stack {
    let web = "busybox mkdir -p /www; echo ok > /www/health; exec busybox httpd -f -p 8080 -h /www";
    let mut app = after(shell(web), "db", Condition::ServiceHealthy);
    app.networks["default"].aliases = vec!["app".to_owned()];
    app = after(app, "migrate", Condition::ServiceCompletedSuccessfully);
    app.cpus = Some(0.5);
    app.cpuset = Some("0".to_owned());
    app.mem_limit = Some(64 << 20);
    app.pids_limit = Some(50);
    let mut db =
        shell("echo db up; busybox sleep 0.2; echo x > /tmp/ready; exec busybox sleep 1000");
    db.networks["default"].aliases = vec!["db".to_owned(), "old-db".to_owned()];
    db.healthcheck = Some(Healthcheck {
        test: vec![
            "CMD-SHELL".to_owned(),
            "busybox test -f /tmp/ready".to_owned(),
        ],
        interval: Some(Duration::from_millis(200)),
        timeout: Some(Duration::from_secs(5)),
        start_period: None,
        start_interval: None,
        retries: Some(20),
    });
    db.mounts.push(Mount {
        target: "/data".to_owned(),
        source: MountSource::Volume {
            source: "data".to_owned(),
            nocopy: false,
        },
        read_only: false,
    });
    let migrate = after(shell("echo migrated"), "db", Condition::ServiceHealthy);
    Stack {
        services: [("app", app), ("db", db), ("migrate", migrate)]
            .into_iter()
            .map(|(name, service)| (name.to_owned(), service))
            .collect(),
        networks: IndexMap::from([("default".to_owned(), Network::default())]),
        volumes: IndexMap::from([("data".to_owned(), Volume::default())]),
        ..Stack::default()
    }
}

pub(super) async fn try_launch(
    trial: &Trial,
    stack: &Stack,
    facts: &HostFacts,
) -> Result<Launched, LaunchError> {
    let target = LaunchTarget {
        service: "app".to_owned(),
        port: 8080,
    };
    let ready = ReadyProbe {
        path: "/health".to_owned(),
        status: 200,
        host: "app:8080".to_owned(),
        wire: crate::tls::Wire::default(),
    };
    let request = Launch {
        asked: &[],
        stack,
        subject: "app",
        target: Some(&target),
        ready: Some(&ready),
        deadline: Duration::from_secs(30),
        facts,
        state: None,
    };
    launch(trial.lease(), &request).await
}

pub(super) fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

/// A stranger's container: it carries none of our labels.
pub(super) struct Bystander {
    pub(super) name: String,
}

impl Bystander {
    pub(super) async fn start(engine: &DockerEngine) -> Self {
        let name = format!("engine-test-bystander-{}", std::process::id());
        let body = ContainerCreateBody {
            image: Some(IMAGE.to_owned()),
            // It goes by itself, should the test fail before its end.
            cmd: Some(words("/bin/busybox sleep 60")),
            host_config: Some(HostConfig {
                auto_remove: Some(true),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptions {
            name: Some(name.clone()),
            ..CreateContainerOptions::default()
        };
        engine
            .docker
            .create_container(Some(options), body)
            .await
            .unwrap();
        engine
            .docker
            .start_container(&name, None::<StartContainerOptions>)
            .await
            .unwrap();
        Self { name }
    }

    pub(super) async fn still_runs_and_goes(self, engine: &DockerEngine) {
        let seen = engine
            .inspect(&ContainerId(self.name.clone()))
            .await
            .unwrap();
        assert_eq!(seen.state, RunState::Running);
        let options = RemoveContainerOptions {
            force: true,
            ..RemoveContainerOptions::default()
        };
        engine
            .docker
            .remove_container(&self.name, Some(options))
            .await
            .unwrap();
    }
}
