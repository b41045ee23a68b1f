//! Dates in headers of answers.
//!
//! Pure. **Source**: RFC 6265, section 5.1.1: what browsers read, which takes all forms of
//! RFC 9110, 5.6.7, and what servers make of them.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

const MONTHS: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];

/// Seconds since 1970; `None` when it is no date.
pub(super) fn seconds_of(text: &[u8]) -> Option<i64> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b':';
    for part in text.split(|byte| !is_part(byte)) {
        let number = || str::from_utf8(part).ok()?.parse::<i16>().ok();
        if time.is_none() && part.contains(&b':') {
            time = time_of(part);
        } else if day.is_none() && (1..=2).contains(&part.len()) && number().is_some() {
            day = number();
        } else if let (None, Some(known)) = (month, month_of(part)) {
            month = Some(known);
        } else if year.is_none() && matches!(part.len(), 2 | 4) && number().is_some() {
            year = number().map(|year| match year {
                0..70 => year + 2000,
                70..100 => year + 1900,
                _ => year,
            });
        }
    }
    let date = Date::new(year?, month?, i8::try_from(day?).ok()?).ok()?;
    let moment = TimeZone::UTC.to_timestamp(date.to_datetime(time?));
    Some(moment.ok()?.as_second())
}

fn month_of(part: &[u8]) -> Option<i8> {
    let start = part.get(..3)?.to_ascii_lowercase();
    let index = MONTHS.iter().position(|month| *month == start)?;
    i8::try_from(index + 1).ok()
}

fn time_of(part: &[u8]) -> Option<Time> {
    let mut numbers = str::from_utf8(part).ok()?.splitn(3, ':');
    let mut next = || numbers.next()?.parse::<i8>().ok();
    Time::new(next()?, next()?, next()?, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_date_is_read_and_nothing_else() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "sun, 6-NOVEMBER-1994 8:49:37",
        ] {
            assert_eq!(seconds_of(text.as_bytes()), Some(784_111_777), "{text}");
        }
        let epoch = seconds_of(b"Thu, 01-Jan-70 00:00:00 GMT");
        assert_eq!(epoch, Some(0));
        for text in [
            "",
            "0",
            "yesterday",
            "Sun, 06 Nov 1994",
            "Sun, 31 Feb 2024 00:00:00 GMT",
            "Sun, 06 Nov 1994 25:00:00 GMT",
            "Sun, 06 Nov 1994 8:49 GMT",
            "06 Nov é994 08:49:37",
        ] {
            assert_eq!(seconds_of(text.as_bytes()), None, "{text}");
        }
    }
}
