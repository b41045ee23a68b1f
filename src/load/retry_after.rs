//! How long a service that is busy asks to be left alone.
//!
//! Noted, not obeyed: the load is what the plan says, and what a service refuses is counted.
//! Pure. **Source**: RFC 9110, 10.2.3: seconds or a date, the latter against the answer's own.

use std::time::Duration;

use super::answer::Answer;
use super::http_date;

/// The wait that an answer asks for; `None` where it asks for none that can be read.
pub(super) fn retry_after(answer: &Answer) -> Option<Duration> {
    let value = answer.header("retry-after")?;
    if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        let seconds = str::from_utf8(value).ok()?.parse().ok()?;
        return Some(Duration::from_secs(seconds));
    }
    let until = http_date::seconds_of(value)?;
    let now = answer.header("date").and_then(http_date::seconds_of)?;
    // What is over already is no wait at all.
    let seconds = u64::try_from(until.saturating_sub(now)).unwrap_or(0);
    Some(Duration::from_secs(seconds))
}
