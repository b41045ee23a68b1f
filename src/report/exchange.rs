//! One request and its answer, for whoever is writing a workload.

use std::fmt::Write as _;

use super::table::latency_ms;
use crate::load::Exchange;

/// A line per exchange; in full with headers and bodies.
pub fn exchange_text(index: usize, n: usize, exchange: &Exchange, in_full: bool) -> String {
    let status = exchange.answer.as_ref().map_or_else(
        || "no answer".to_owned(),
        |answer| format!("HTTP {}", answer.status),
    );
    let request = exchange.request.as_ref().map_or_else(
        || "not sent".to_owned(),
        |request| format!("{} {}", request.method, request.path),
    );
    let mut text = format!(
        "[{index}/{n}] {}: {request} -> {status} in {} ms",
        exchange.operation,
        latency_ms(exchange.latency.as_secs_f64() * 1e3)
    );
    if let Some(why) = &exchange.why {
        let _ = write!(text, "\n  FAILED: {why}");
    }
    if in_full {
        if let Some(request) = &exchange.request {
            text.push_str(&part('>', &request.headers, &request.body));
        }
        if let Some(answer) = &exchange.answer {
            text.push_str(&part('<', &answer.headers, &answer.body));
        }
        text.push('\n');
    }
    text
}

/// Headers, an empty line and the body, each line marked with its direction.
fn part(mark: char, headers: &[(String, String)], body: &str) -> String {
    let headers = headers
        .iter()
        .map(|(name, value)| format!("\n  {mark} {name}: {value}"));
    let body = body.lines().map(|line| format!("\n  {mark} {line}"));
    let separator = format!("\n  {mark}");
    headers.chain([separator]).chain(body).collect()
}
