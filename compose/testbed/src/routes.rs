//! One request under `/fhir`, start to end, on a web thread.
//!
//! Invariant: blocking and plain: bytes in, [`Answer`] out; it neither knows axum nor counts.
//! A connection is taken as late and given back as early as it can be: after the body has
//! been parsed, before the answer is put together. Next: [`crate::resource`], [`crate::store`].

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;

use crate::db::{Pool, Taken, chain};
use crate::health::Health;
use crate::metrics::{Interaction, Metrics};
use crate::resource::{self, Resource};
use crate::store::{self, Key, StoreError};

/// What is needed of an HTTP request.
#[derive(Debug)]
pub(crate) struct Request {
    /// The method, in capitals.
    pub(crate) method: String,
    /// The path after `/fhir/`.
    pub(crate) path: String,
    /// The query without its question mark.
    pub(crate) query: Option<String>,
    /// The header of that name.
    pub(crate) if_match: Option<String>,
    /// The whole body.
    pub(crate) body: Bytes,
}

/// What becomes an HTTP response.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// JSON, or nothing.
    pub(crate) body: String,
    /// The version, for `ETag`.
    pub(crate) version: Option<i64>,
    /// Path of the version just written.
    pub(crate) location: Option<String>,
}

impl Answer {
    /// An `OperationOutcome` with one issue.
    pub(crate) fn refusal(status: u16, code: &str, text: &str) -> Self {
        let body = json!({
            "resourceType": "OperationOutcome",
            "issue": [{ "severity": "error", "code": code, "diagnostics": text }],
        });
        Self {
            status,
            body: body.to_string(),
            ..Self::default()
        }
    }
}

/// What requests share.
pub(crate) struct Shared<'a> {
    /// The connections, once they are open.
    pub(crate) pool: Option<&'a Pool>,
    /// Told of every answer of the database.
    pub(crate) health: &'a Health,
    /// Told of every wait for a connection.
    pub(crate) metrics: &'a Metrics,
}

/// What a method on a path asks for.
pub(crate) fn interaction(method: &str, path: &str) -> Interaction {
    match (method, path.contains('/')) {
        ("POST", false) => Interaction::Create,
        ("GET", true) => Interaction::Read,
        ("PUT", true) => Interaction::Update,
        ("DELETE", true) => Interaction::Delete,
        ("GET", false) => Interaction::Search,
        _ => Interaction::Other,
    }
}

/// Does the work of one request.
pub(crate) fn answer(shared: &Shared<'_>, request: &Request) -> Answer {
    run(shared, request).unwrap_or_else(|refusal| refusal)
}

fn run(shared: &Shared<'_>, request: &Request) -> Result<Answer, Answer> {
    let (kind, id) = match request.path.split_once('/') {
        Some((kind, id)) => (kind, Some(id)),
        None => (request.path.as_str(), None),
    };
    if !resource::is_type(kind) {
        return Err(Answer::refusal(
            404,
            "not-found",
            &format!("'{kind}' is not a resource type"),
        ));
    }
    if id.is_some_and(|id| !resource::is_id(id)) {
        return Err(Answer::refusal(
            404,
            "not-found",
            "the path after the type is not an id",
        ));
    }
    match (request.method.as_str(), id) {
        ("POST", None) => create(shared, kind, request),
        ("GET", Some(id)) => read(shared, Key { kind, id }),
        ("PUT", Some(id)) => update(shared, Key { kind, id }, request),
        ("DELETE", Some(id)) => delete(shared, Key { kind, id }, request),
        ("GET", None) => search(shared, kind, request.query.as_deref().unwrap_or_default()),
        (method, _) => {
            let text = format!("{method} is not possible on /fhir/{}", request.path);
            Err(Answer::refusal(405, "not-supported", &text))
        }
    }
}

fn create(shared: &Shared<'_>, kind: &str, request: &Request) -> Result<Answer, Answer> {
    let resource = parsed(kind, None, &request.body)?;
    let id = resource::new_id();
    let key = Key { kind, id: &id };
    let now = Timestamp::now().to_string();
    let written = with_connection(shared, |taken| store::create(taken, key, &resource, &now))?;
    Ok(Answer {
        status: 201,
        location: Some(location(key, written.version)),
        version: Some(written.version),
        body: written.body,
    })
}

fn read(shared: &Shared<'_>, key: Key<'_>) -> Result<Answer, Answer> {
    let (version, body) = with_connection(shared, |taken| store::read(taken, key))?;
    Ok(Answer {
        status: 200,
        body,
        version: Some(version),
        location: None,
    })
}

fn update(shared: &Shared<'_>, key: Key<'_>, request: &Request) -> Result<Answer, Answer> {
    let resource = parsed(key.kind, Some(key.id), &request.body)?;
    let if_match = if_match(request)?;
    let now = Timestamp::now().to_string();
    let written = with_connection(shared, |taken| {
        store::update(taken, key, if_match, &resource, &now)
    })?;
    Ok(Answer {
        status: if written.is_new { 201 } else { 200 },
        location: Some(location(key, written.version)),
        version: Some(written.version),
        body: written.body,
    })
}

fn delete(shared: &Shared<'_>, key: Key<'_>, request: &Request) -> Result<Answer, Answer> {
    let if_match = if_match(request)?;
    let now = Timestamp::now().to_string();
    let written = with_connection(shared, |taken| store::delete(taken, key, if_match, &now))?;
    Ok(Answer {
        status: 204,
        version: Some(written.version),
        ..Answer::default()
    })
}

fn search(shared: &Shared<'_>, kind: &str, query: &str) -> Result<Answer, Answer> {
    let refused = |text: &str| Answer::refusal(400, "invalid", text);
    let known = || resource::SEARCH_PARAMETERS.join(", ");
    let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
    let (Some(pair), None) = (pairs.next(), pairs.next()) else {
        return Err(refused(&format!(
            "a search names exactly one of: {}",
            known()
        )));
    };
    let (parameter, value) = pair.split_once('=').unwrap_or((pair, ""));
    let Some(parameter) = resource::SEARCH_PARAMETERS
        .into_iter()
        .find(|name| *name == parameter)
    else {
        let text = format!(
            "the parameter '{parameter}' is not known; known are: {}",
            known()
        );
        return Err(refused(&text));
    };
    let value =
        percent_decoded(value).ok_or_else(|| refused("the value is not percent-encoded UTF-8"))?;
    let value = resource::search_key(parameter, &value);
    let (total, bodies) = with_connection(shared, |taken| {
        store::search(taken, kind, parameter, &value)
    })?;
    // Bodies are JSON already: parsing them only to write them again would be for show.
    let entries: Vec<String> = bodies
        .iter()
        .map(|body| format!(r#"{{"resource":{body},"search":{{"mode":"match"}}}}"#))
        .collect();
    let body = format!(
        r#"{{"resourceType":"Bundle","type":"searchset","total":{total},"entry":[{}]}}"#,
        entries.join(",")
    );
    Ok(Answer {
        status: 200,
        body,
        ..Answer::default()
    })
}

fn parsed(kind: &str, id: Option<&str>, body: &[u8]) -> Result<Resource, Answer> {
    Resource::parse(body, kind, id)
        .map_err(|error| Answer::refusal(400, "invalid", &error.to_string()))
}

fn location(key: Key<'_>, version: i64) -> String {
    format!("/fhir/{}/{}/_history/{version}", key.kind, key.id)
}

/// The version of `If-Match: W/"3"`; quotes and the weak mark may be left out.
fn if_match(request: &Request) -> Result<Option<i64>, Answer> {
    let Some(text) = &request.if_match else {
        return Ok(None);
    };
    let text = text.trim();
    let number = text.strip_prefix("W/").unwrap_or(text).trim_matches('"');
    match number.parse() {
        Ok(version) => Ok(Some(version)),
        Err(_) => Err(Answer::refusal(
            400,
            "invalid",
            "If-Match must look like W/\"1\"",
        )),
    }
}

/// Takes a connection, uses it, gives it back; turns what went wrong into an answer.
fn with_connection<T>(
    shared: &Shared<'_>,
    work: impl FnOnce(&mut Taken) -> Result<T, StoreError>,
) -> Result<T, Answer> {
    let Some(pool) = shared.pool else {
        return Err(Answer::refusal(503, "transient", "the service is starting"));
    };
    let asked = std::time::Instant::now();
    let taken = pool.take();
    shared.metrics.acquired(asked.elapsed());
    let mut taken = taken.map_err(|error| Answer::refusal(503, "throttled", &error.to_string()))?;
    let result = work(&mut taken);
    match &result {
        Err(StoreError::Database(_)) => pool.note(&taken),
        _ => shared.health.answered(),
    }
    drop(taken);
    result.map_err(|error| {
        let text = chain(&error);
        match error {
            StoreError::Unknown => Answer::refusal(404, "not-found", &text),
            StoreError::Gone { version } => Answer {
                version: Some(version),
                ..Answer::refusal(410, "deleted", &text)
            },
            StoreError::VersionMismatch { .. } => Answer::refusal(412, "conflict", &text),
            StoreError::Conflict => Answer::refusal(409, "conflict", &text),
            StoreError::Unstorable(_) => Answer::refusal(400, "invalid", &text),
            StoreError::Damaged(_) => Answer::refusal(500, "exception", &text),
            // Lost, shutting down, out of resources: all of them may pass.
            StoreError::Database(_) => Answer::refusal(503, "transient", &text),
        }
    })
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = (bytes.next()?, bytes.next()?);
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(high)? * 16 + digit(low)?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::config::Faults;

    fn ask(method: &str, path: &str, query: &str, body: &str) -> (u16, String) {
        let health = Health::new(Instant::now(), Faults::default());
        let metrics = Metrics::new(0.0);
        let shared = Shared {
            pool: None,
            health: &health,
            metrics: &metrics,
        };
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Some(query.to_owned()),
            if_match: None,
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        let answer = answer(&shared, &request);
        (answer.status, answer.body)
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said_before_a_connection_is_taken() {
        for (method, path, query, body, status) in [
            ("POST", "patient", "", "{}", 404),
            ("GET", "Patient/a/b", "", "", 404),
            ("PATCH", "Patient/a", "", "", 405),
            ("PUT", "Patient", "", "", 405),
            ("POST", "Patient", "", "{", 400),
            ("POST", "Patient", "", r#"{"resourceType":"Claim"}"#, 400),
            ("GET", "Patient", "", "", 400),
            ("GET", "Patient", "colour=red", "", 400),
            ("GET", "Patient", "name=a&status=b", "", 400),
            ("GET", "Patient", "name=%zz", "", 400),
            ("GET", "Patient", "name=a", "", 503),
            ("GET", "Patient/a", "", "", 503),
        ] {
            let (got, text) = ask(method, path, query, body);
            assert_eq!(got, status, "{method} {path}?{query}: {text}");
            assert!(text.contains("OperationOutcome"), "{text}");
        }
    }

    #[test]
    fn query_values_are_decoded() {
        assert_eq!(
            percent_decoded("urn%3Ax%7C7+b").as_deref(),
            Some("urn:x|7 b")
        );
        assert_eq!(percent_decoded("%e4%f6"), None);
        assert_eq!(percent_decoded("%4"), None);
    }

    #[test]
    fn interactions_follow_method_and_path() {
        assert_eq!(interaction("POST", "Patient"), Interaction::Create);
        assert_eq!(interaction("GET", "Patient/1"), Interaction::Read);
        assert_eq!(interaction("GET", "Patient"), Interaction::Search);
        assert_eq!(interaction("DELETE", "Patient"), Interaction::Other);
    }
}
