//! A sweep over the fake engine, and what came of it: what the tests beside share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::engine::fake::{Behaviour, FakeEngine};
use crate::engine::{Engine, Owner};
use crate::event::{Event, EventKind};
use crate::load::{LoadModel, PhasePlan, Workload};
use crate::results::{
    OperationsCsv, ProofsJsonl, RunsFolder, TrialColumns, TrialRow, TrialsCsv, read_trials,
};
use crate::scalar::Scalar;
use crate::secret::Secrets;
use crate::stack::{Attachment, Network, Service, Stack};
use crate::sweep::*;

const WINDOW: Duration = Duration::from_millis(300);

/// Answers every request with 200 and an empty body.
pub(super) async fn server() -> SocketAddr {
    server_at("127.0.0.1:0".parse().unwrap()).await
}

/// The same at an address of one's own.
pub(super) async fn server_at(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|n| n > 0) {
                    if stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}

pub(super) fn stack() -> Arc<Stack> {
    let app = Service {
        image: "app:1".to_owned(),
        cpus: Some(1.0),
        networks: IndexMap::from([("default".to_owned(), Attachment::default())]),
        ..Service::default()
    };
    Arc::new(Stack {
        services: IndexMap::from([("app".to_owned(), app)]),
        networks: IndexMap::from([("default".to_owned(), Network::default())]),
        ..Stack::default()
    })
}

pub(super) fn phase(name: &str, window: bool) -> JobPhase {
    JobPhase {
        plan: PhasePlan {
            name: name.to_owned(),
            window,
            ramp_from: None,
            beside: Vec::new(),
            model: LoadModel::Closed { users: 2 },
            duration: WINDOW,
            held: false,
            abort_on: Vec::new(),
        },
        answers: window.then_some("capacity"),
        step: None,
        thresholds: Vec::new(),
        load_tied_to_knob: false,
        hooks: Vec::new(),
    }
}

pub(super) fn job(trial: u32) -> Job {
    Job {
        trial,
        block: 1,
        role: "cell",
        cell_id: format!("web-{trial}"),
        axes: IndexMap::from([("web".to_owned(), Scalar::Integer(i64::from(trial)))]),
        derived: IndexMap::new(),
        variables: IndexMap::new(),
        stack: stack(),
        generator_cpus: None,
        asked: Vec::new(),
        knobs: Vec::new(),
        shares_cpus: false,
        script: None,
        phases: vec![
            phase("warm-up", false),
            phase("first", true),
            phase("second", true),
        ],
        golden: 0,
        skip: None,
    }
}

/// A sweep of `n` trials over the fake engine, and what came of it.
pub(super) struct Bench {
    pub(super) engine: Arc<FakeEngine>,
    /// Where its service answers.
    pub(super) address: SocketAddr,
    pub(super) plan: SweepPlan,
    pub(super) folder: tempfile::TempDir,
    pub(super) asked: watch::Sender<u32>,
    pub(super) secrets: Secrets,
    /// How the app behaves unless a test changes it.
    pub(super) app: Behaviour,
}

pub(super) struct Came {
    pub(super) rows: Vec<TrialRow>,
    pub(super) summary: SweepSummary,
    pub(super) events: Vec<Event>,
}

impl Bench {
    pub(super) async fn new(n: u32) -> Self {
        let address = server().await;
        let engine = FakeEngine::new();
        engine.behave("app", at(address));
        let settings = Settings {
            ready: Some(ReadySpec {
                path: "/".to_owned(),
                status: 200,
            }),
            ready_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(1),
            drain: Duration::from_millis(500),
            load_threads: 1,
            seed: 1,
            max_consecutive_failures: 0,
            fail_fast: false,
            slo: Vec::new(),
            assumed_dead_time: Duration::from_secs(1),
        };
        let plan = SweepPlan {
            run_id: "r".to_owned(),
            jobs: (1..=n).map(job).collect(),
            subject: "app".to_owned(),
            cpu_lines: Vec::new(),
            target: TargetSpec::Service {
                service: "app".to_owned(),
                port: address.port(),
                base_path: String::new(),
                wire: crate::tls::Wire::default(),
            },
            workload: Some(Arc::new(Workload::get("/"))),
            state: StatePlan::Fresh,
            settings,
        };
        Self {
            engine: Arc::new(engine),
            address,
            plan,
            folder: tempfile::tempdir().unwrap(),
            asked: watch::Sender::new(0),
            secrets: Secrets::new([0; 16]),
            app: at(address),
        }
    }

    /// Runs the sweep; `on_event` sees everything that happens, when it happens.
    pub(super) async fn run(&self, on_event: impl FnMut(&FakeEngine, &Event)) -> Came {
        let came = self.run_on(on_event).await;
        assert_eq!(
            self.engine.existing(),
            Vec::<String>::new(),
            "a trial leaves nothing behind"
        );
        came
    }

    /// The same where the engine may be in no state to be cleaned.
    pub(super) async fn run_on(&self, on_event: impl FnMut(&FakeEngine, &Event)) -> Came {
        self.try_run(on_event).await.unwrap()
    }

    /// The same where the sweep may end by an error.
    pub(super) async fn try_run(
        &self,
        mut on_event: impl FnMut(&FakeEngine, &Event),
    ) -> Result<Came, SweepError> {
        let folder = RunsFolder::under(self.folder.path()).create("r").unwrap();
        let columns = TrialColumns {
            axes: vec!["web".to_owned()],
            variables: Vec::new(),
            services: self.plan.jobs[0].stack.services.keys().cloned().collect(),
        };
        let mut sinks = Sinks {
            trials: TrialsCsv::open(&folder.trials_csv(), columns).unwrap(),
            operations: OperationsCsv::open(&folder.operations_csv()).unwrap(),
            proofs: ProofsJsonl::open(&folder.proofs()).unwrap(),
            secrets: self.secrets.clone(),
            folder: folder.clone(),
        };
        let clock = Clock::new(Instant::now(), "2026-11-30T00:00:00Z".parse().unwrap());
        let facts = self.engine.describe().await.unwrap();
        let owner = Owner::current().unwrap();
        let mut events = Vec::new();
        let mut emit = |event: Event| {
            on_event(&self.engine, &event);
            events.push(event);
        };
        let asked = self.asked.subscribe();
        let summary = run(
            &self.engine,
            &self.plan,
            (&facts, &owner),
            &mut sinks,
            clock,
            asked,
            &mut emit,
        )
        .await?;
        Ok(Came {
            rows: read_trials(&folder.trials_csv()).unwrap().rows,
            summary,
            events,
        })
    }

    /// The port of the target.
    pub(super) fn port(&self) -> u16 {
        match &self.plan.target {
            TargetSpec::Service { port, .. } => *port,
            TargetSpec::Remote { address, .. } => address.port(),
        }
    }

    pub(super) fn log_of(&self, trial: u32) -> Option<String> {
        let path = self
            .folder
            .path()
            .join(format!("results/r/logs/{trial:04}-1-app.log"));
        fs_err::read_to_string(path).ok()
    }
}

pub(super) fn at(address: SocketAddr) -> Behaviour {
    Behaviour {
        address: Some(address.ip()),
        log: "line of the app\n".to_owned(),
        ..Behaviour::default()
    }
}

pub(super) fn verdicts(rows: &[TrialRow]) -> Vec<(u32, &str, &str, Option<&str>)> {
    rows.iter()
        .map(|row| {
            (
                row.trial,
                row.window.as_str(),
                row.verdict.as_str(),
                row.reason.as_deref(),
            )
        })
        .collect()
}

pub(super) fn has_begun(event: &Event, phase: &str, trial: u32) -> bool {
    matches!(&event.kind, EventKind::PhaseStarted { phase: name, trial: at, .. } if name == phase && at.trial == trial)
}
