//! Text to quantities and back: durations and byte counts.
//!
//! One home, so that `90s` means the same in a matrix, a workload and a
//! Compose file. Pure.

use std::borrow::Cow;
use std::time::Duration;

/// Why a text is not the quantity it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is {problem} (allowed: {allowed})", shortened(text))]
pub struct UnitError {
    text: String,
    problem: &'static str,
    allowed: &'static str,
}

/// 100 years: far beyond any sweep, far below what `Duration` can hold.
const LONGEST_HOURS: f64 = 876_000.0;

/// The largest size; below what a signed 64-bit number, which engines take, can hold.
const LARGEST_TIB: f64 = 8_000_000.0;

/// Reads a duration: one or more numbers, each with its unit.
///
/// **Units**: `us`, `ms`, `s`, `m`, `h`, joined as in `1m30s` or `1.5h`. `0`
/// alone needs no unit. The form is that of the Compose specification.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let error = || UnitError {
        text: text.to_owned(),
        problem: "not a duration",
        allowed: "numbers with us, ms, s, m or h, such as 500ms, 45s, 1m30s",
    };
    let trimmed = text.trim();
    if trimmed == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = trimmed;
    let mut total_s = 0.0_f64;
    if rest.is_empty() {
        return Err(error());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(error)?;
        let number: f64 = rest[..digits].parse().map_err(|_| error())?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |end| digits + end);
        let seconds_per_unit = match &rest[digits..unit_end] {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(error()),
        };
        total_s += number * seconds_per_unit;
        rest = &rest[unit_end..];
    }
    if total_s > LONGEST_HOURS * 3600.0 {
        return Err(UnitError {
            text: text.to_owned(),
            problem: "too long a duration",
            allowed: "up to 876000h, which is 100 years",
        });
    }
    // Nanosecond rounding, so that `1.1s` is 1.1 s and not 1.100000001 s.
    Ok(Duration::from_nanos((total_s * 1e9).round() as u64))
}

/// Writes a duration the way people say it: `850 ms`, `45 s`, `3 min 20 s`, `7 h 05 min`.
pub fn format_duration(duration: Duration) -> String {
    let total_ms = duration.as_millis();
    if total_ms < 1_000 {
        return format!("{total_ms} ms");
    }
    let whole_s = duration.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (whole_s / 3600, whole_s / 60 % 60, whole_s % 60);
    if hours > 0 {
        format!("{hours} h {minutes:02} min")
    } else if minutes > 0 {
        format!("{minutes} min {seconds:02} s")
    } else {
        format!("{seconds} s")
    }
}

/// Reads a byte count as Compose does: a number with an optional binary unit.
///
/// **Units**: `b`, `k`/`kb`, `m`/`mb`, `g`/`gb` and the `kib` forms, all in
/// powers of 1,024, letter case ignored; no unit is bytes.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let error = || UnitError {
        text: text.to_owned(),
        problem: "not a size",
        allowed: "a number with b, k, m or g, such as 512m or 1.5g",
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let number: f64 = trimmed[..digits].parse().map_err(|_| error())?;
    let factor: f64 = match trimmed[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(error()),
    };
    let bytes = number * factor;
    if bytes <= LARGEST_TIB * 1024.0_f64.powi(4) {
        Ok(bytes as u64)
    } else {
        Err(UnitError {
            text: text.to_owned(),
            problem: "too large a size",
            allowed: "up to 8000000t",
        })
    }
}

/// A text as messages name it: what is behind forty characters is left out.
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// A number as messages name it: digits, or an exponent where they would be many.
pub fn format_number(number: f64) -> String {
    let is_short = (1e-6..1e16).contains(&number.abs());
    if is_short || number.abs() <= 0.0 || !number.is_finite() {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// Writes a byte count with a binary unit: `200 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, milliseconds) in [
            ("0", 0),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            (" 45s ", 45_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in [
            "",
            "5",
            "s",
            "5 s",
            "-1s",
            "1d",
            "1..5s",
            "1e9s",
            "99999999999999h",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_too_much_is_told_apart_from_what_is_no_quantity() {
        for text in ["99999999h", "876000h1s", &format!("{}s", "9".repeat(400))] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(
                error.ends_with(
                    "is too long a duration (allowed: up to 876000h, which is 100 years)"
                ),
                "{error}"
            );
            assert!(error.chars().count() < 120, "{error}");
        }
        assert!(parse_duration("876000h").is_ok());
        for text in ["8000001t", "99999999999999999999"] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(
                error.ends_with("is too large a size (allowed: up to 8000000t)"),
                "{error}"
            );
        }
        assert!(parse_bytes("8000000t").is_ok_and(|bytes| i64::try_from(bytes).is_ok()));
    }

    #[test]
    fn numbers_in_messages_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (-0.25, "-0.25"),
            (60_001.0, "60001"),
            (1e-300, "1e-300"),
            (-1e300, "-1e300"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(format_number(number), text);
        }
    }

    #[test]
    fn durations_print_with_two_units_at_most() {
        for (milliseconds, text) in [
            (850, "850 ms"),
            (45_000, "45 s"),
            (200_000, "3 min 20 s"),
            (25_500_000, "7 h 05 min"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("10", 10),
            ("1k", 1024),
            ("512m", 536_870_912),
            ("1.5GB", 1_610_612_736),
            ("2 gib", 2_147_483_648),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "m", "-5m", "5x", "1e3"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(format_bytes(209_715_200), "200 MiB");
        assert_eq!(format_bytes(1_610_612_736), "1.5 GiB");
    }
}
