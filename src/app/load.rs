//! `load`: the generator by itself, against any address.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::environment::Environment;
use super::error::{AppError, Outcome};
use super::interrupt::Interrupts;
use super::jobs::{default_load_threads, resolve};
use super::wire::wire_of;
use crate::cli::{ArrivalsChoice, LoadArgs};
use crate::load::{
    AbortRule, Arrivals, LoadModel, LoadPlan, LoadSignal, PhasePlan, RunningLoad, Target, Tick,
    Workload, once,
};
use crate::matrix::TargetUrl;
use crate::measure::{
    Crossed, Figures, Judgement, LatencyFigures, Pacing, WindowSummary, crossed, judge,
};
use crate::report::{
    Align, Printer, Table, count, exchange_text, exchanges_json, latency_ms, rate,
};
use crate::secret::Secrets;
use crate::threshold::Threshold;
use crate::units::format_duration;

/// Users of a closed loop when nobody says how many.
const DEFAULT_USERS: u32 = 10;
/// Longest wait for the window's last answers.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs one window, or one journey, and says what came of it.
pub(super) async fn load(
    arguments: &LoadArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let (workload, url) = what_and_where(arguments)?;
    let address = resolve(&url.host, url.port).await?;
    let target = Target {
        addresses: vec![address],
        host: format!("{}:{}", url.host, url.port),
        wire: wire_of(&arguments.wire, &url)?,
        base_path: url.base_path,
    };
    let mut secrets = Secrets::new(environment.salt());
    let variables = variables(arguments, &workload, environment, &mut secrets);
    if arguments.once {
        return send_once(arguments, &target, &workload, &variables, &secrets, printer).await;
    }
    check_operations(&arguments.thresholds, &workload)?;
    let model = model(arguments);
    let phases = phases(arguments, model);
    let window = phases.len() - 1;
    let plan = LoadPlan {
        cpus: None,
        target,
        workload: Arc::new(workload),
        variables,
        phases,
        threads: arguments.threads.unwrap_or_else(default_load_threads),
        timeout: arguments.timeout,
        drain: DRAIN,
        seed: arguments.seed,
    };
    let mut interrupts = Interrupts::listen()?;
    let mut load = RunningLoad::start(plan).map_err(AppError::input)?;
    let mut measured = None;
    let mut aborted = None;
    loop {
        tokio::select! {
            biased;
            () = interrupts.wait() => {
                printer.clear_progress();
                // Half a window is no measurement.
                let _ = load.stop().await;
                return Ok(Outcome::Interrupted);
            }
            signal = load.next() => match signal {
                Some(LoadSignal::Tick(tick)) => printer.progress(&tick_line(&tick, arguments)),
                Some(LoadSignal::PhaseSummed { phase, summary }) if phase == window => measured = Some(summary),
                Some(LoadSignal::Aborted { after, crossed, .. }) => aborted = Some((after, crossed)),
                Some(_) => {}
                None => break,
            },
        }
    }
    printer.clear_progress();
    load.stop().await.map_err(AppError::environment)?;
    if let Some((after, crossed)) = aborted {
        return Ok(say_aborted(after, &crossed, arguments, &secrets, printer));
    }
    let summary = measured
        .ok_or_else(|| AppError::bug(anyhow::anyhow!("the load ended without its window")))?;
    let crossed = crossed(&summary, &arguments.thresholds);
    let report = report(&summary, model, &arguments.thresholds, &crossed);
    let text = if arguments.json {
        redacted(report.clone(), &secrets).to_string()
    } else {
        secrets.redact(&table(&summary, &report, &crossed))
    };
    printer.data(&text);
    Ok(if report["verdict"] == "failed" {
        Outcome::SomeFailed
    } else if crossed.is_empty() {
        Outcome::Done
    } else {
        Outcome::GateBroken
    })
}

/// The warm-up, where one is asked for, and the window.
fn phases(arguments: &LoadArgs, model: LoadModel) -> Vec<PhasePlan> {
    let rule = |threshold: &Threshold| {
        Some(AbortRule {
            threshold: threshold.clone(),
            after: arguments.abort_after?,
        })
    };
    let window = PhasePlan {
        name: "window".to_owned(),
        window: true,
        model,
        ramp_from: None,
        duration: arguments.duration,
        abort_on: arguments.thresholds.iter().filter_map(rule).collect(),
        held: false,
    };
    let warm_up = PhasePlan {
        name: "warm-up".to_owned(),
        window: false,
        duration: arguments.warm_up,
        abort_on: Vec::new(),
        ..window.clone()
    };
    let has_warm_up = !arguments.warm_up.is_zero();
    has_warm_up
        .then_some(warm_up)
        .into_iter()
        .chain([window])
        .collect()
}

/// A threshold of an operation that is never sent would always hold.
fn check_operations(thresholds: &[Threshold], workload: &Workload) -> Result<(), AppError> {
    let names = workload.operation_names();
    let unknown = thresholds.iter().find_map(|threshold| {
        let operation = threshold.operation.as_ref()?;
        // Names may hold values that are put in later.
        let may_become = names.iter().any(|name| name.contains("${"));
        (!may_become && !names.contains(operation)).then_some(operation)
    });
    match unknown {
        Some(operation) => Err(AppError::input(anyhow::anyhow!(
            "--threshold names the operation `{operation}`, which the workload does not have"
        ))
        .hint(format!("its operations are {}", names.join(", ")))),
        None => Ok(()),
    }
}

/// Says why a window was not held to its end: then it has no figures.
fn say_aborted(
    after: Duration,
    crossed: &Crossed,
    arguments: &LoadArgs,
    secrets: &Secrets,
    printer: Printer,
) -> Outcome {
    if arguments.json {
        let report = json!({
            "verdict": "failed",
            "reasons": ["threshold_crossed"],
            "flags": [],
            "aborted_after_s": after.as_secs_f64(),
            "thresholds": [threshold_json(&crossed.threshold, Some(crossed))],
        });
        printer.data(&redacted(report, secrets).to_string());
    } else {
        let words = format!(
            "the load was ended after {}: {} was crossed; a window cut short has no figures",
            format_duration(after),
            crossed.words()
        );
        printer.data(&secrets.redact(&words));
    }
    Outcome::GateBroken
}

fn threshold_json(threshold: &Threshold, crossed: Option<&Crossed>) -> Value {
    let number = |value: f64| {
        if value.is_finite() {
            json!(value)
        } else {
            json!("inf")
        }
    };
    json!({
        "rule": threshold.to_string(),
        "crossed": crossed.is_some(),
        "value": crossed.map(|crossed| number(crossed.value)),
    })
}

/// The workload and the base of its paths, from a file and `--target`, or from one URL.
fn what_and_where(arguments: &LoadArgs) -> Result<(Workload, TargetUrl), AppError> {
    let parse = |text: &str| {
        TargetUrl::parse(text).map_err(|why| AppError::input(anyhow::anyhow!("`{text}`: {why}")))
    };
    if arguments.workload.contains("://") {
        let (base, path) = split_url(&arguments.workload);
        let base = arguments.target.as_deref().unwrap_or(base);
        return Ok((Workload::get(path), parse(base)?));
    }
    let workload = Workload::read(Path::new(&arguments.workload))?;
    let target = arguments.target.as_ref().ok_or_else(|| {
        AppError::input(anyhow::anyhow!("a workload file needs --target")).hint(
            "such as --target http://localhost:8080; `nightsweep up --cell ID` prints an address",
        )
    })?;
    Ok((workload, parse(target)?))
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

fn model(arguments: &LoadArgs) -> LoadModel {
    match arguments.open {
        Some(requests_per_second) => LoadModel::Open {
            requests_per_second,
            arrivals: match arguments.arrivals {
                ArrivalsChoice::Uniform => Arrivals::Uniform,
                ArrivalsChoice::Poisson => Arrivals::Poisson,
            },
            max_in_flight: arguments.max_in_flight,
        },
        None => LoadModel::Closed {
            users: arguments.closed.unwrap_or(DEFAULT_USERS),
        },
    }
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
            workload.requests_per_journey(),
            exchange,
            arguments.verbose,
        );
        printer.data(&secrets.redact(&text));
    }
    let left = workload.requests_per_journey() - exchanges.len();
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

fn tick_line(tick: &Tick, arguments: &LoadArgs) -> String {
    let p99 = tick.p99_ms.map_or_else(|| "–".to_owned(), latency_ms);
    format!(
        "{} s of {} · {} successes/s · p99 {p99} ms · {} errors",
        tick.second,
        format_duration(arguments.duration),
        count(tick.counts.successes),
        tick.counts.errors.total()
    )
}

/// The report, as `--json` prints it.
fn report(
    summary: &WindowSummary,
    model: LoadModel,
    thresholds: &[Threshold],
    crossed: &[Crossed],
) -> Value {
    let pacing = match model {
        LoadModel::Closed { .. } | LoadModel::Script { .. } => Pacing::Closed,
        LoadModel::Open { .. } => Pacing::Open,
    };
    let verdict = judge(summary, pacing);
    let mut report = figures(&summary.total);
    let operations: IndexMap<&String, Value> = summary
        .operations
        .iter()
        .map(|(name, own)| (name, figures(own)))
        .collect();
    let mut flags: Vec<&str> = verdict.flags.iter().map(|flag| flag.code()).collect();
    if !crossed.is_empty() {
        flags.push("threshold_crossed");
    }
    let thresholds: Vec<Value> = thresholds
        .iter()
        .map(|threshold| {
            let by = crossed
                .iter()
                .find(|crossed| crossed.threshold == *threshold);
            threshold_json(threshold, by)
        })
        .collect();
    let more = json!({
        "duration_s": summary.length.as_secs_f64(),
        "arrivals": summary.arrivals,
        "not_attempted": summary.not_attempted,
        "outside_window": summary.outside,
        "generator_cpu_s": summary.generator_cpu.as_secs_f64(),
        "load_threads": summary.threads,
        "operations": operations,
        "failures": summary.failures,
        "verdict": match verdict.judgement {
            Judgement::Valid => "valid",
            Judgement::Suspect => "suspect",
            Judgement::Failed => "failed",
        },
        "reasons": verdict.reasons.iter().map(|reason| reason.code()).collect::<Vec<_>>(),
        "flags": flags,
        "thresholds": thresholds,
    });
    if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
        report.extend(more);
    }
    report
}

fn figures(figures: &Figures) -> Value {
    let counts = &figures.counts;
    json!({
        "due": counts.due,
        "requests": counts.requests,
        "successes": counts.successes,
        "refused": counts.refused,
        "errors": counts.errors.total(),
        "errors_by_class": counts.errors,
        "abandoned": counts.abandoned,
        "unsent": counts.unsent,
        "throughput_rps": figures.throughput_rps,
        "latency_ms": figures.latency_ms,
        "service_ms": figures.service_ms,
        "send_lag_ms": figures.send_lag_ms,
        // JSON has no infinity; the word is the one that rows use.
        "p99_due_ms": figures.p99_due_ms.map(|p99| if p99.is_finite() { json!(p99) } else { json!("inf") }),
    })
}

fn table(summary: &WindowSummary, report: &Value, crossed: &[Crossed]) -> String {
    let mut table = Table::new(&[
        ("operation", Align::Left),
        ("successes", Align::Right),
        ("failed", Align::Right),
        ("mean ms", Align::Right),
        ("p50 ms", Align::Right),
        ("p99 ms", Align::Right),
        ("max ms", Align::Right),
    ]);
    let all = ("all".to_owned(), summary.total.clone());
    let own = summary
        .operations
        .iter()
        .filter(|_| summary.operations.len() > 1);
    for (name, figures) in own.chain([&all]) {
        let counts = &figures.counts;
        let failed = counts.due - counts.successes;
        let mut row = vec![
            name.clone(),
            counts.successes.to_string(),
            failed.to_string(),
        ];
        let LatencyFigures {
            mean,
            p50,
            p99,
            max,
            ..
        } = figures.latency_ms;
        row.extend(
            [mean, p50, p99, max].map(|value| value.map_or_else(|| "–".to_owned(), latency_ms)),
        );
        table.row(row);
    }
    let mut lines = table.lines();
    let words = |key: &str| {
        let list = report[key]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        list.iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    lines.push(String::new());
    lines.push(format!(
        "{} successes/s over {}, generator {:.2} cores",
        rate(summary.total.throughput_rps),
        format_duration(summary.length),
        summary.generator_cpu.as_secs_f64() / summary.length.as_secs_f64().max(f64::MIN_POSITIVE)
    ));
    let mut verdict = format!(
        "verdict: {}",
        report["verdict"].as_str().unwrap_or_default()
    );
    for key in ["reasons", "flags"] {
        let words = words(key);
        if !words.is_empty() {
            let _ = write!(verdict, "; {key}: {words}");
        }
    }
    lines.push(verdict);
    for crossed in crossed {
        lines.push(format!("crossed: {}", crossed.words()));
    }
    for failure in summary.failures.iter().rev().take(3) {
        lines.push(format!("failed: {failure}"));
    }
    lines
        .iter()
        .map(|line| line.trim_end())
        .collect::<Vec<_>>()
        .join("\n")
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
