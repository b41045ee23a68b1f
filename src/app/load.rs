//! `load`: the generator by itself, against any address.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, Method};
use indexmap::IndexMap;
use serde_json::Value;

use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::interrupt::Interrupts;
use super::jobs::{default_load_threads, resolve};
use super::load_plan::{Planned, planned};
use super::self_test::{refuse_too_fast, test_generator};
use super::wire::wire_of;
use crate::cli::LoadArgs;
use crate::load::{LoadModel, LoadPlan, LoadSignal, RunningLoad, Target, Workload, once};
use crate::matrix::TargetUrl;
use crate::measure::{Judgement, Pacing, crossed, judge};
use crate::report::{
    AbortedLoad, HeldLoad, LiveBlock, LoadProgress, LoadReport, Printer, exchange_text,
    exchanges_json,
};
use crate::secret::Secrets;
use crate::threshold::Threshold;

/// Longest wait for the window's last answers.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs one window, or one journey, and says what came of it.
pub(super) async fn load(
    arguments: &LoadArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let (workload, url) = what_and_where(arguments)?;
    let what = what(arguments, &workload);
    let target_text = url.text.clone();
    let address = resolve(&url.host, url.port).await?;
    let target = Target {
        addresses: vec![address],
        host: format!("{}:{}", url.host, url.port),
        wire: wire_of(&arguments.wire, &url)?,
        base_path: url.base_path,
    };
    let mut secrets = Secrets::new(environment.salt());
    if let Some(basic) = &arguments.basic {
        secrets.hide(&basic.1);
        // A short password is not looked for in base64, where chance has it as well.
        secrets.hide(&credentials(basic));
    }
    let variables = variables(arguments, &workload, environment, &mut secrets);
    if arguments.once {
        return send_once(arguments, &target, &workload, &variables, &secrets, printer).await;
    }
    check_operations(&arguments.thresholds, &workload, &variables)?;
    let planned = planned(arguments)?;
    let requests_per_journey = workload.requests_once();
    let plan = LoadPlan {
        cpus: None,
        target,
        workload: Arc::new(workload),
        variables,
        phases: planned.iter().map(|own| own.phase.clone()).collect(),
        threads: arguments.threads.unwrap_or_else(default_load_threads),
        timeout: arguments.timeout,
        drain: DRAIN,
        seed: arguments.seed,
    };
    if is_open(&planned) {
        let tested = test_generator(None).await?;
        let warning = refuse_too_fast(tested.as_ref(), plan.threads, None, &plan.phases)?;
        if let Some(warning) = warning {
            printer.note(&format!("warning: {warning}"));
        }
    }
    let told = Told {
        arguments,
        environment,
        secrets: &secrets,
        printer,
    };
    let mut report = LoadReport {
        target: target_text,
        what,
        requests_per_journey,
        warm_up: arguments.warm_up,
        seed: arguments.seed,
        thresholds: arguments.thresholds.clone(),
        held: Vec::new(),
        aborted: None,
    };
    let mut interrupts = Interrupts::listen()?;
    let mut load = RunningLoad::start(plan).map_err(AppError::input)?;
    let mut watch = Watch::new(&planned, &told);
    loop {
        tokio::select! {
            biased;
            () = interrupts.wait() => {
                // Half a window is no measurement.
                let _ = load.stop().await;
                watch.interrupted();
                return Ok(Outcome::Interrupted);
            }
            signal = load.next() => match signal {
                Some(signal) => {
                    watch.hears(&signal);
                    note(signal, &planned, &mut report);
                }
                None => break,
            },
        }
    }
    watch.clear();
    load.stop().await.map_err(AppError::environment)?;
    if report.held.is_empty() && report.aborted.is_none() {
        let missing = anyhow::anyhow!("the load ended without its window");
        return Err(AppError::bug(missing));
    }
    told.report(&report);
    Ok(if report.aborted.is_some() {
        Outcome::GateBroken
    } else if report.judgement() == Judgement::Failed {
        Outcome::SomeFailed
    } else if report.is_crossed() {
        Outcome::GateBroken
    } else {
        Outcome::Done
    })
}

fn is_open(planned: &[Planned]) -> bool {
    let mut models = planned.iter().map(|own| own.phase.model);
    models.any(|model| matches!(model, LoadModel::Open { .. }))
}

/// Who is told, and what must not be.
struct Told<'a> {
    arguments: &'a LoadArgs,
    environment: &'a Environment,
    secrets: &'a Secrets,
    printer: Printer,
}

impl Told<'_> {
    fn report(&self, report: &LoadReport) {
        let text = if self.arguments.json {
            redacted(report.json(), self.secrets).to_string()
        } else {
            self.secrets.redact(&report.text(self.environment.page()))
        };
        self.printer.data(&text);
    }
}

/// Whoever watches the load: a block at a terminal, a line now and then in a log.
struct Watch<'a> {
    told: &'a Told<'a>,
    progress: LoadProgress,
    block: LiveBlock,
}

impl<'a> Watch<'a> {
    fn new(planned: &[Planned], told: &'a Told<'a>) -> Self {
        Self {
            told,
            progress: LoadProgress::new(planned.iter().map(Planned::stretch).collect()),
            block: LiveBlock::new(told.printer),
        }
    }

    fn hears(&mut self, signal: &LoadSignal) {
        match signal {
            LoadSignal::PhaseStarted { phase, .. } => self.progress.started(*phase),
            LoadSignal::PhaseEnded { .. } => self.progress.ended(),
            LoadSignal::Tick(tick) => self.progress.ticked(tick),
            LoadSignal::PhaseHeld { .. }
            | LoadSignal::PhaseSummed { .. }
            | LoadSignal::ScriptEnded(_)
            | LoadSignal::Aborted { .. } => return,
        }
        if self.told.arguments.quiet {
            return;
        }
        let printer = self.told.printer;
        if printer.is_interactive() {
            let screen = self.told.environment.progress_screen();
            self.block.draw(&self.progress.lines(screen), screen);
        } else if let LoadSignal::Tick(_) = signal
            && let Some(line) = self.progress.plain_line()
        {
            printer.note(&line);
        }
    }

    fn clear(&mut self) {
        self.block.clear();
    }

    fn interrupted(&mut self) {
        self.clear();
        self.told.printer.note(&self.progress.interrupted());
    }
}

/// Notes what is to be reported.
fn note(signal: LoadSignal, planned: &[Planned], report: &mut LoadReport) {
    match signal {
        LoadSignal::PhaseSummed { phase, summary } if planned[phase].phase.window => {
            let Planned { phase, step, .. } = &planned[phase];
            let pacing = match phase.model {
                LoadModel::Closed { .. } | LoadModel::Script { .. } => Pacing::Closed,
                LoadModel::Open { .. } => Pacing::Open,
            };
            report.held.push(HeldLoad {
                step: *step,
                model: phase.model,
                verdict: judge(&summary, pacing),
                crossed: crossed(&summary, &report.thresholds),
                summary,
            });
        }
        LoadSignal::Aborted {
            phase,
            after,
            crossed,
            is_whole,
        } => {
            report.aborted = Some(AbortedLoad {
                step: planned[phase].step,
                after,
                crossed: *crossed,
                is_whole,
            });
        }
        _ => {}
    }
}

/// A threshold of an operation that is never sent would always hold.
fn check_operations(
    thresholds: &[Threshold],
    workload: &Workload,
    variables: &IndexMap<String, String>,
) -> Result<(), AppError> {
    let names = workload.operation_names_with(variables);
    let mut operations = (thresholds.iter()).filter_map(|rule| rule.operation.as_ref());
    let unknown = operations.find(|operation| !names.contains(operation));
    match unknown {
        Some(operation) => Err(AppError::input(anyhow::anyhow!(
            "--threshold names the operation `{operation}`, which the workload does not have"
        ))
        .hint(format!("its operations are {}", names.join(", ")))),
        None => Ok(()),
    }
}

/// The workload and the base of its paths, from a file and `--target`, or from one URL.
fn what_and_where(arguments: &LoadArgs) -> Result<(Workload, TargetUrl), AppError> {
    let parse = |text: &str| {
        TargetUrl::parse(text).map_err(|why| AppError::input(anyhow::anyhow!("`{text}`: {why}")))
    };
    if arguments.workload.contains("://") {
        let (base, path) = split_url(&arguments.workload);
        let base = arguments.target.as_deref().unwrap_or(base);
        return Ok((single(arguments, path)?, parse(base)?));
    }
    let is_of_url = arguments.method.is_some()
        || arguments.body.is_some()
        || !arguments.headers.is_empty()
        || arguments.basic.is_some()
        || arguments.redirects.is_some();
    if is_of_url {
        return Err(AppError::input(anyhow::anyhow!(
            "-m, -d, -H, -a and --redirects belong to a URL: the steps of a workload file have their own"
        ))
        .hint("a URL begins with http://"));
    }
    let workload = Workload::read(Path::new(&arguments.workload))?;
    let target = arguments.target.as_ref().ok_or_else(|| {
        AppError::input(anyhow::anyhow!("a workload file needs --target")).hint(
            "such as --target http://localhost:8080; `nightsweep up --cell ID` prints an address",
        )
    })?;
    Ok((workload, parse(target)?))
}

/// The one request that the flags say.
fn single(arguments: &LoadArgs, path: &str) -> Result<Workload, AppError> {
    let body = match arguments.body.as_deref() {
        Some(text) => Some(match text.strip_prefix('@') {
            Some(file) => fs_err::read(file).map_err(AppError::input)?,
            None => text.as_bytes().to_vec(),
        }),
        None => None,
    };
    let default = match body {
        Some(_) => Method::POST,
        None => Method::GET,
    };
    let method = arguments.method.clone().unwrap_or(default);
    let mut headers = arguments.headers.clone();
    // A bare number or word is JSON as well, and hardly meant as such.
    let is_json = |bytes: &Vec<u8>| {
        matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['))
            && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
    };
    let has = |headers: &[(HeaderName, String)], name| headers.iter().any(|(own, _)| *own == name);
    if let Some(basic) = &arguments.basic {
        if has(&headers, AUTHORIZATION) {
            return Err(AppError::input(anyhow::anyhow!(
                "-a sets the header `authorization`, and -H has one too"
            ))
            .hint("keep one of them"));
        }
        headers.push((AUTHORIZATION, format!("Basic {}", credentials(basic))));
    }
    if !has(&headers, CONTENT_TYPE) && body.as_ref().is_some_and(is_json) {
        headers.push((CONTENT_TYPE, "application/json".to_owned()));
    }
    let redirects = arguments.redirects.unwrap_or_default();
    Ok(Workload::single(method, path, &headers, body, redirects))
}

/// User and password as basic authentication sends them. **Source**: RFC 7617, section 2.
fn credentials((user, password): &(String, String)) -> String {
    BASE64_STANDARD.encode(format!("{user}:{password}"))
}

/// What is sent, in a few words.
fn what(arguments: &LoadArgs, workload: &Workload) -> String {
    match workload.operation_names().as_slice() {
        [only] => only.clone(),
        _ => format!(
            "{} ({} requests a journey)",
            arguments.workload,
            workload.requests_once()
        ),
    }
}

/// Scheme and host of a URL, and its path with the query.
fn split_url(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    match url[host..].find(['/', '?']) {
        Some(path) => url.split_at(host + path),
        None => (url, "/"),
    }
}

fn variables(
    arguments: &LoadArgs,
    workload: &Workload,
    environment: &Environment,
    secrets: &mut Secrets,
) -> IndexMap<String, String> {
    let mut variables: IndexMap<String, String> = arguments.settings.iter().cloned().collect();
    for used in workload.environment() {
        if let Some(value) = environment.variables().get(&used.name) {
            secrets.hide(value);
            variables.insert(format!("env.{}", used.name), value.clone());
        }
    }
    variables
}

async fn send_once(
    arguments: &LoadArgs,
    target: &Target,
    workload: &Workload,
    variables: &IndexMap<String, String>,
    secrets: &Secrets,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let exchanges = once(target, workload, variables, arguments.timeout)
        .await
        .map_err(AppError::input)?;
    let is_success = exchanges.iter().all(|exchange| exchange.why.is_none());
    if arguments.json {
        let exchanges = redacted(exchanges_json(&exchanges), secrets);
        printer.data(&exchanges.to_string());
    }
    let in_words = exchanges.iter().filter(|_| !arguments.json);
    for (index, exchange) in in_words.enumerate() {
        let text = exchange_text(
            index + 1,
            workload.requests_once(),
            exchange,
            arguments.verbose,
        );
        printer.data(&secrets.redact(&text));
    }
    let left = workload.requests_once() - exchanges.len();
    if left > 0 {
        printer.note(&format!(
            "{left} steps were not attempted: the journey ended at its first failure"
        ));
    }
    if is_success {
        return Ok(Outcome::Done);
    }
    if !arguments.verbose && !arguments.json {
        printer.note("--verbose shows requests and answers in full");
    }
    Ok(Outcome::SomeFailed)
}

/// The same with every secret in its texts and names replaced.
///
/// Failures quote answers, and a service may answer with what it was sent. Numbers
/// stay: one that equals a secret by chance would make the JSON unreadable.
fn redacted(value: Value, secrets: &Secrets) -> Value {
    match value {
        Value::String(text) => Value::String(secrets.redact(&text)),
        Value::Array(items) => items
            .into_iter()
            .map(|item| redacted(item, secrets))
            .collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (secrets.redact(&name), redacted(value, secrets)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{redacted, split_url};
    use crate::secret::Secrets;

    #[test]
    fn secrets_are_taken_out_of_texts_and_never_out_of_numbers() {
        let mut secrets = Secrets::new([7; 16]);
        secrets.hide("31415926");
        let report = json!({
            "requests": 31_415_926,
            "failures": ["read: status 500: token 31415926"],
            "operations": {"GET /31415926": {"due": 1}},
        });
        let digest = secrets.digest("31415926");
        assert_eq!(
            redacted(report, &secrets),
            json!({
                "requests": 31_415_926,
                "failures": [format!("read: status 500: token {digest}")],
                "operations": {format!("GET /{digest}"): {"due": 1}},
            })
        );
    }

    #[test]
    fn a_url_is_split_before_its_path() {
        for (url, base, path) in [
            ("http://h:1/a?b=c", "http://h:1", "/a?b=c"),
            ("http://h?x=1", "http://h", "?x=1"),
            ("http://h", "http://h", "/"),
        ] {
            assert_eq!(split_url(url), (base, path));
        }
    }
}
