//! One request and its answer, for whoever is writing a workload.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::table::latency_ms;
use crate::load::{Exchange, SentRequest};
use crate::measure::Outcome;

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
    for redirect in &exchange.redirects {
        let _ = write!(
            text,
            "\n  followed: {} to {} as {} {}",
            redirect.status,
            redirect.location.escape_debug(),
            redirect.request.method,
            redirect.request.path
        );
    }
    if let Some(why) = &exchange.why {
        let _ = write!(text, "\n  FAILED: {why}");
    }
    if in_full {
        if let Some(request) = &exchange.request {
            text.push_str(&part('>', &request.headers, &request.body));
        }
        for redirect in &exchange.redirects {
            let request = &redirect.request;
            let _ = write!(text, "\n  > {} {}", request.method, request.path);
            text.push_str(&part('>', &request.headers, &request.body));
        }
        if let Some(answer) = &exchange.answer {
            text.push_str(&part('<', &answer.headers, &answer.body));
        }
        text.push('\n');
    }
    text
}

/// The exchanges as an array, in full and in order: for scripts.
///
/// **Shape**: `request` and `answer` are null where there was none; `redirects` are those
/// that were followed, each with the request that came of it; headers are
/// pairs, since a name may come twice; `why` is null for a success.
pub fn exchanges_json(exchanges: &[Exchange]) -> Value {
    exchanges
        .iter()
        .map(|exchange| {
            json!({
                "operation": exchange.operation,
                "request": exchange.request.as_ref().map(request_json),
                "redirects": exchange.redirects.iter().map(|redirect| json!({
                    "status": redirect.status,
                    "location": redirect.location,
                    "request": request_json(&redirect.request),
                })).collect::<Vec<_>>(),
                "answer": exchange.answer.as_ref().map(|answer| json!({
                    "status": answer.status,
                    "headers": answer.headers,
                    "body": answer.body,
                })),
                "outcome": exchange.outcome.code(),
                "is_success": exchange.outcome == Outcome::Success,
                "why": exchange.why,
                "latency_ms": exchange.latency.as_secs_f64() * 1e3,
            })
        })
        .collect()
}

fn request_json(request: &SentRequest) -> Value {
    json!({
        "method": request.method,
        "path": request.path,
        "headers": request.headers,
        "body": request.body,
    })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::{ReceivedAnswer, Redirect};
    use crate::measure::ErrorClass;

    fn request(path: &str) -> SentRequest {
        SentRequest {
            method: "GET".into(),
            path: path.into(),
            headers: vec![("host".into(), "app".into())],
            body: String::new(),
        }
    }

    #[test]
    fn redirects_that_were_followed_are_shown_one_by_one() {
        let exchange = Exchange {
            operation: "home".into(),
            request: Some(request("/")),
            redirects: vec![Redirect {
                status: 302,
                location: "home\u{7}".into(),
                request: request("/home"),
            }],
            answer: None,
            outcome: Outcome::Error(ErrorClass::Reset),
            why: Some("closed".into()),
            latency: Duration::from_millis(2),
        };
        insta::assert_snapshot!(exchange_text(1, 1, &exchange, true), @r"
        [1/1] home: GET / -> no answer in 2.00 ms
          followed: 302 to home\u{7} as GET /home
          FAILED: closed
          > host: app
          >
          > GET /home
          > host: app
          >
        ");
        let array = exchanges_json(&[exchange]);
        assert_eq!(array[0]["redirects"][0]["status"], 302);
        assert_eq!(array[0]["redirects"][0]["request"]["path"], "/home");
    }

    #[test]
    fn exchanges_become_an_array_with_nulls_for_what_was_not_there() {
        let answered = Exchange {
            operation: "create".into(),
            request: Some(SentRequest {
                method: "POST".into(),
                path: "/a".into(),
                headers: vec![("x".into(), "1".into()), ("x".into(), "2".into())],
                body: "{}".into(),
            }),
            redirects: Vec::new(),
            answer: Some(ReceivedAnswer {
                status: 201,
                headers: Vec::new(),
                body: "ok".into(),
            }),
            outcome: Outcome::Success,
            why: None,
            latency: Duration::from_micros(1_500),
        };
        let unsent = Exchange {
            operation: "read".into(),
            request: None,
            redirects: Vec::new(),
            answer: None,
            outcome: Outcome::Error(ErrorClass::Template),
            why: Some("`${id}` was not captured".into()),
            latency: Duration::ZERO,
        };
        let array = exchanges_json(&[answered, unsent]);
        assert_eq!(array.as_array().map(Vec::len), Some(2));
        assert_eq!(
            array[0]["request"]["headers"],
            json!([["x", "1"], ["x", "2"]])
        );
        assert_eq!(array[0]["answer"]["status"], 201);
        assert_eq!(array[0]["latency_ms"], 1.5);
        assert_eq!(
            (&array[0]["is_success"], &array[0]["why"]),
            (&json!(true), &Value::Null)
        );
        assert_eq!(
            (&array[1]["request"], &array[1]["answer"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(array[1]["outcome"], "error.template");
        assert_eq!(exchanges_json(&[]), json!([]));
    }
}
