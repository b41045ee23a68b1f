//! Runs a script as a trial would, and keeps k6's own samples beside it.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::Value;

use crate::cpus::CpuSet;
use crate::load::k6::{Binary, Cut, K6Error, Script, ScriptPlan, ScriptReport, stretches};
use crate::load::test_server::{Got, Reply, TestServer};
use crate::load::{LoadError, LoadSignal, RunningLoad, Target};
use crate::measure::WindowSummary;

/// A script may take so long.
const LIMIT: Duration = Duration::from_mins(1);

/// The k6 of the tests. Without it they fail.
pub(super) fn binary() -> Binary {
    let named = std::env::var_os("NIGHTSWEEP_TEST_K6").map(PathBuf::from);
    let search = std::env::var_os("PATH");
    Binary::find(named.as_deref(), search.as_deref())
        .unwrap_or_else(|error| panic!("{error} (NIGHTSWEEP_TEST_K6 names one)"))
}

pub(super) fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/k6");
    folder.join(name)
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Waits for its turn: k6 takes CPU from any other.
pub(super) fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A small shop, and a turn to visit it.
pub(super) struct Shop {
    server: TestServer,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Shop {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

pub(super) fn server() -> Shop {
    let turn = turn();
    let server = TestServer::start(|got: &Got| {
        let ok = |ms, body: &str| {
            Reply::After(
                Duration::from_millis(ms),
                Box::new(Reply::Answer(200, body.into())),
            )
        };
        let path = got.path.split('?').next().unwrap();
        match path {
            "/missing" => Reply::Answer(404, "none".into()),
            "/busy" => Reply::Answer(429, String::new()),
            "/hop" => {
                Reply::Raw("HTTP/1.1 302 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".into())
            }
            "/chain/3" | "/chain/2" | "/chain/1" => {
                let left: u32 = path["/chain/".len()..].parse().unwrap();
                let next = left - 1;
                Reply::Raw(format!(
                    "HTTP/1.1 302 X\r\nLocation: /chain/{next}\r\nContent-Length: 0\r\n\r\n"
                ))
            }
            "/login" => ok(1, r#"{"token":"abc"}"#),
            "/secure" if !got.head.contains("Bearer abc") => Reply::Answer(401, String::new()),
            "/slow" => ok(200, "slow"),
            "/very-slow" => ok(10_000, "very slow"),
            // Answers of different length in time, so that a percentile says something.
            _ => ok(1 + got.index % 7, r#"{"ok":true}"#),
        }
    });
    Shop {
        server,
        _turn: turn,
    }
}

/// What a run gave.
#[derive(Debug)]
pub(super) struct Ran {
    /// The last figures of every phase.
    pub(super) summaries: Vec<WindowSummary>,
    /// Phases that began and ended, in order.
    pub(super) edges: Vec<(usize, &'static str)>,
    pub(super) report: ScriptReport,
    /// Lines of k6's own output.
    pub(super) samples: Vec<Value>,
}

/// One request as k6 wrote it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    pub(super) sent_ns: i128,
    pub(super) ms: f64,
    pub(super) is_expected: bool,
}

/// Reads a script for a target.
pub(super) fn read(name: &str, values: &[(&str, &str)]) -> Result<Script, K6Error> {
    let values: IndexMap<String, String> = values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Script::read(&binary(), &fixture(name), &values, "http://app:8080")
}

/// A k6 that also writes its samples into a file.
fn with_own_output(real: &Binary, folder: &Path) -> Binary {
    let path = folder.join("k6");
    let text = format!(
        "#!/bin/sh\nexec {} \"$@\" --out json={}\n",
        real.path.display(),
        folder.join("own.json").display()
    );
    fs_err::write(&path, text).unwrap();
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Binary {
        path,
        version: real.version.clone(),
    }
}

pub(super) fn plan(script: Script, target: &Target, cuts: &[Cut]) -> ScriptPlan {
    let phases = stretches(cuts, &script.options).unwrap();
    let phases = phases.into_iter().enumerate();
    ScriptPlan {
        script: Arc::new(script),
        target: Target {
            // A certificate is for a name.
            host: match &target.wire.tls {
                None => "app:8080".to_owned(),
                Some(_) => target.host.clone(),
            },
            ..target.clone()
        },
        hosts: vec!["localhost:8080".to_owned()],
        phases: phases.map(|(n, one)| (format!("phase {n}"), one)).collect(),
        drain: Duration::from_secs(1),
        cpus: None,
    }
}

/// A window over a part of the run.
pub(super) fn cut(from_ms: u64, ms: Option<u64>) -> Cut {
    Cut {
        scenario: None,
        from: Some(Duration::from_millis(from_ms)),
        duration: ms.map(Duration::from_millis),
    }
}

/// Runs a script to its end.
pub(super) fn run(name: &str, target: &Target, cuts: &[Cut]) -> Ran {
    try_run(name, target, cuts).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

pub(super) fn try_run(name: &str, target: &Target, cuts: &[Cut]) -> Result<Ran, LoadError> {
    try_run_on(None, name, target, cuts)
}

/// The same, where k6 may use these CPUs only.
pub(super) fn try_run_on(
    cpus: Option<CpuSet>,
    name: &str,
    target: &Target,
    cuts: &[Cut],
) -> Result<Ran, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let mut script = read(name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
    script.binary = with_own_output(&script.binary, folder.path());
    let plan = ScriptPlan {
        cpus,
        ..plan(script, target, cuts)
    };
    let mut summaries: HashMap<usize, WindowSummary> = HashMap::new();
    let (mut edges, mut report) = (Vec::new(), None);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut load = RunningLoad::start_script(plan)?;
        let next = async |load: &mut RunningLoad| {
            let next = tokio::time::timeout(LIMIT, load.next()).await;
            next.expect("a script ends")
        };
        while let Some(signal) = next(&mut load).await {
            match signal {
                LoadSignal::PhaseStarted { phase, .. } => edges.push((phase, "began")),
                LoadSignal::PhaseEnded { phase, .. } => edges.push((phase, "ended")),
                LoadSignal::PhaseSummed { phase, summary } => {
                    summaries.insert(phase, *summary);
                }
                LoadSignal::ScriptEnded(ended) => report = Some(*ended),
                LoadSignal::Tick(_) => {}
                LoadSignal::PhaseHeld { .. } => panic!("a script is never held"),
                LoadSignal::Aborted { .. } => panic!("thresholds of a script are k6's own"),
            }
        }
        load.stop().await
    })?;
    let own = fs_err::read_to_string(folder.path().join("own.json")).unwrap_or_default();
    let mut summaries: Vec<(usize, WindowSummary)> = summaries.into_iter().collect();
    summaries.sort_by_key(|(phase, _)| *phase);
    Ok(Ran {
        summaries: summaries.into_iter().map(|(_, summary)| summary).collect(),
        edges,
        report: report.expect("a script that ended says how"),
        samples: own
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    })
}

impl Ran {
    /// Samples of a metric.
    pub(super) fn points(&self, metric: &str) -> Vec<&Value> {
        let is_point = |line: &&Value| line["type"] == "Point" && line["metric"] == metric;
        self.samples.iter().filter(is_point).collect()
    }

    /// All requests of scenarios, counted from k6's own output in another way.
    pub(super) fn truth(&self, scenario: Option<&str>) -> Vec<Truth> {
        self.points("http_req_duration")
            .into_iter()
            .filter(|line| line["data"]["tags"]["method"].is_string())
            .filter(|line| match (&line["data"]["tags"]["scenario"], scenario) {
                (Value::Null, _) => false,
                (_, None) => true,
                (name, Some(wanted)) => name == wanted,
            })
            .map(|line| {
                let data = &line["data"];
                let at: jiff::Timestamp = data["time"].as_str().unwrap().parse().unwrap();
                let ms = data["value"].as_f64().unwrap();
                Truth {
                    sent_ns: at.as_nanosecond() - (ms * 1e6).round() as i128,
                    ms,
                    is_expected: data["tags"]["expected_response"] == "true",
                }
            })
            .collect()
    }

    /// Those that were sent in a window: for sure, and those at its very edges, which may be on
    /// either side: the wall clock and the other are read one after the other, some
    /// microseconds apart.
    fn truth_in(
        &self,
        summary: &WindowSummary,
        scenario: Option<&str>,
    ) -> (Vec<Truth>, Vec<Truth>) {
        const NEAR_NS: u128 = 200_000;
        let wall: jiff::Timestamp = jiff::Timestamp::now();
        let ns = |time: Duration| time.as_nanos().cast_signed();
        let from = wall.as_nanosecond() - ns(summary.started.elapsed());
        let to = from + ns(summary.length);
        let is_near = |one: &Truth| {
            one.sent_ns.abs_diff(from) < NEAR_NS || one.sent_ns.abs_diff(to) < NEAR_NS
        };
        let (near, sure): (Vec<Truth>, Vec<Truth>) =
            self.truth(scenario).into_iter().partition(is_near);
        let inside = sure
            .into_iter()
            .filter(|one| from <= one.sent_ns && one.sent_ns < to);
        (inside.collect(), near)
    }

    /// Every request of k6's own samples is in exactly one phase, or outside of all.
    fn assert_each_is_somewhere(&self) {
        let report = &self.report;
        let inside: u64 = report.windows.iter().map(|notes| notes.requests).sum();
        assert_eq!(
            inside + report.outside,
            self.truth(None).len() as u64,
            "{report:?}"
        );
        for (summary, notes) in self.summaries.iter().zip(&report.windows) {
            assert_eq!(summary.total.counts.requests, notes.requests, "{notes:?}");
        }
    }
}

/// The figures of a window are those of k6's own samples, to the last request; only what is at
/// its very edges may be on either side.
pub(super) fn assert_same(ran: &Ran, summary: &WindowSummary, scenario: Option<&str>) {
    ran.assert_each_is_somewhere();
    let (sure, near) = ran.truth_in(summary, scenario);
    let n = |of: &[Truth], is_expected: bool| {
        let such = of.iter().filter(|one| one.is_expected == is_expected);
        such.count() as u64
    };
    let counts = &summary.total.counts;
    let by_answer = counts.errors.total() - counts.errors.body + counts.refused;
    for (found, is_expected) in [(counts.requests - by_answer, true), (by_answer, false)] {
        let least = n(&sure, is_expected);
        let most = least + n(&near, is_expected);
        assert!(
            (least..=most).contains(&found),
            "{found} requests whose answer was expected: {is_expected}, of k6's samples {least} to {most}"
        );
    }
    let mut in_intervals = 0;
    for interval in &summary.intervals {
        if !interval.tag.ends_with("|unsent") {
            in_intervals += interval.n_requests();
        }
        assert!(u64::from(interval.second) < summary.length.as_secs().max(1));
    }
    assert_eq!(in_intervals, counts.requests, "histograms by second");
    assert_percentile(summary, &sure, &near);
}

/// The p99 of expected answers is in the bucket of the nearest rank (0.1 %, or 512 ns), for
/// some choice of those at the edges.
fn assert_percentile(summary: &WindowSummary, sure: &[Truth], near: &[Truth]) {
    let ms_of = |of: &[Truth]| -> Vec<f64> {
        let good = of.iter().filter(|one| one.is_expected);
        good.map(|one| one.ms).collect()
    };
    let (sure, near) = (ms_of(sure), ms_of(near));
    // A check that failed does not make an answer another one.
    let mut found: Vec<(u64, u32)> = summary
        .intervals
        .iter()
        .filter(|one| one.tag.ends_with("|success") || one.tag.ends_with("|error.body"))
        .flat_map(|one| one.values().iter().copied())
        .collect();
    found.sort_unstable();
    let n: usize = found.iter().map(|(_, n)| *n as usize).sum();
    let rank = (n * 99).div_ceil(100);
    let mut below = 0;
    let at_rank = found.iter().find(|(_, n)| {
        below += *n as usize;
        below >= rank
    });
    let p99 = at_rank
        .expect("a window without a request proves nothing")
        .0 as f64
        / 1e6;
    if summary.total.counts.errors.body == 0 {
        let theirs = summary.total.latency_ms.p99.unwrap();
        assert!(
            (theirs - p99).abs() <= p99 * 0.001 + 0.000_512,
            "{theirs}, {p99}"
        );
    }
    assert!(near.len() < 12, "{} requests at the edges", near.len());
    let mut truths = Vec::new();
    for choice in 0..1_usize << near.len() {
        let is_chosen = |index: &usize| choice >> index & 1 == 1;
        let chosen = (0..near.len()).filter(is_chosen).map(|index| near[index]);
        let mut ms: Vec<f64> = sure.iter().copied().chain(chosen).collect();
        if ms.len() == n {
            ms.sort_by(f64::total_cmp);
            truths.push(ms[rank - 1]);
        }
    }
    let is_it = |truth: &f64| (p99 - truth).abs() <= truth * 0.001 + 0.000_512;
    assert!(
        truths.iter().any(is_it),
        "p99 {p99} of {n}, of k6's samples {truths:?}"
    );
}
