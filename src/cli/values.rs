//! Values of the command line that have a form of their own.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::units::parse_duration;

/// A load that is gone to evenly, then held: `50 users, ramp 10s, hold 30s`.
#[derive(Debug, Clone, PartialEq)]
pub struct StageArg {
    /// How much.
    pub amount: StageAmount,
    /// How long the load takes to get there; zero jumps.
    pub ramp: Duration,
    /// How long it is held.
    pub hold: Duration,
}

/// How much load a stage is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StageAmount {
    /// Virtual users of a closed loop.
    Users(f64),
    /// Requests per second of an open one.
    RequestsPerSecond(f64),
}

const EXAMPLE: &str = "write it as '50 users, ramp 10s, hold 30s' or '200/s, hold 30s'";

pub(super) fn parse_stage(text: &str) -> Result<StageArg, String> {
    let (mut amount, mut ramp, mut hold) = (None, None, None);
    let number = |text: &str| {
        let number = text.trim().parse::<f64>().ok();
        number.filter(|number| number.is_finite()).ok_or_else(|| {
            format!(
                "`{}` is not a number of users or requests; {EXAMPLE}",
                text.trim()
            )
        })
    };
    for part in text.split(',').map(str::trim) {
        let length = |text: &str| {
            let joined: String = text.split_whitespace().collect();
            parse_duration(&joined).map_err(|error| error.to_string())
        };
        let is_known = if let Some(rest) = part.strip_prefix("ramp ") {
            ramp.replace(length(rest)?).is_some()
        } else if let Some(rest) = part.strip_prefix("hold ") {
            hold.replace(length(rest)?).is_some()
        } else if let Some(users) = part.strip_suffix("users").or(part.strip_suffix("user")) {
            amount.replace(StageAmount::Users(number(users)?)).is_some()
        } else if let Some(rate) = part.strip_suffix("/s") {
            let rate = number(rate.trim_end().trim_end_matches("requests"))?;
            amount
                .replace(StageAmount::RequestsPerSecond(rate))
                .is_some()
        } else {
            return Err(format!("`{part}` is no part of a stage; {EXAMPLE}"));
        };
        if is_known {
            return Err(format!("`{part}` says something a second time; {EXAMPLE}"));
        }
    }
    let (ramp, hold) = (ramp.unwrap_or_default(), hold.unwrap_or_default());
    if ramp.is_zero() && hold.is_zero() {
        return Err(format!(
            "it has neither ramp nor hold and takes no time; {EXAMPLE}"
        ));
    }
    Ok(StageArg {
        amount: amount.ok_or_else(|| format!("it has no load; {EXAMPLE}"))?,
        ramp,
        hold,
    })
}

/// Headers that say where a message ends or what becomes of its connection.
const OURS: [&str; 4] = [
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
];

/// User and password of basic authentication.
///
/// **Source**: RFC 7617, section 2: the first colon ends the user.
pub(super) fn parse_basic(text: &str) -> Result<(String, String), String> {
    let (user, password) = text
        .split_once(':')
        .ok_or("write USER:PASSWORD, such as loadtest:secret")?;
    Ok((user.to_owned(), password.to_owned()))
}

pub(super) fn parse_header(text: &str) -> Result<(HeaderName, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("write 'NAME: VALUE', such as 'accept: text/html'")?;
    let header: HeaderName =
        (name.trim().parse()).map_err(|_| format!("`{name}` is not the name of a header"))?;
    if OURS.contains(&header.as_str()) {
        return Err(format!("the header `{header}` is set by the load itself"));
    }
    let value = value.trim();
    HeaderValue::from_str(value)
        .map_err(|_| format!("the value of `{header}` holds a control character"))?;
    Ok((header, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_in_any_order_with_and_without_blanks() {
        let stage = |amount, ramp_s, hold_s| StageArg {
            amount,
            ramp: Duration::from_secs(ramp_s),
            hold: Duration::from_secs(hold_s),
        };
        for (text, expected) in [
            (
                "50 users, ramp 10s, hold 30s",
                stage(StageAmount::Users(50.0), 10, 30),
            ),
            ("hold 1m,1 user", stage(StageAmount::Users(1.0), 0, 60)),
            (
                "200/s, ramp 5 s",
                stage(StageAmount::RequestsPerSecond(200.0), 5, 0),
            ),
            (
                "1.5 requests/s, hold 2s",
                stage(StageAmount::RequestsPerSecond(1.5), 0, 2),
            ),
        ] {
            assert_eq!(parse_stage(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn stages_and_headers_that_cannot_be_meant_are_told() {
        let stages = [
            "",
            "50 users",
            "hold 30s",
            "many users, hold 3s",
            "50 users, hold 3",
            "5 users, 5/s, hold 3s",
            "50 users, for 3s",
        ];
        let headers = ["accept", "a b: c", "Content-Length: 3", "x: a\u{1}"];
        let told: Vec<String> = (stages.iter().map(|text| parse_stage(text).unwrap_err()))
            .chain(headers.iter().map(|text| parse_header(text).unwrap_err()))
            .collect();
        insta::assert_snapshot!(told.join("\n"), @"
        `` is no part of a stage; write it as '50 users, ramp 10s, hold 30s' or '200/s, hold 30s'
        it has neither ramp nor hold and takes no time; write it as '50 users, ramp 10s, hold 30s' or '200/s, hold 30s'
        it has no load; write it as '50 users, ramp 10s, hold 30s' or '200/s, hold 30s'
        `many` is not a number of users or requests; write it as '50 users, ramp 10s, hold 30s' or '200/s, hold 30s'
        `3` is not a duration (allowed: numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s)
        `5/s` says something a second time; write it as '50 users, ramp 10s, hold 30s' or '200/s, hold 30s'
        `for 3s` is no part of a stage; write it as '50 users, ramp 10s, hold 30s' or '200/s, hold 30s'
        write 'NAME: VALUE', such as 'accept: text/html'
        `a b` is not the name of a header
        the header `content-length` is set by the load itself
        the value of `x` holds a control character
        ");
        let header = parse_header("Accept:  text/html ").unwrap();
        assert_eq!(
            (header.0.as_str(), header.1.as_str()),
            ("accept", "text/html")
        );
    }
}
