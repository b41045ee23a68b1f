//! What a plain YAML scalar means: null, truth, number, text.
//!
//! YAML 1.2 core schema: `no`, `yes` and `on` are texts. Three spellings that
//! Docker Compose still reads the old way (`0755`, `0b11`, `1_000`) get the
//! value they have there, since a trial must run what `docker compose up` runs.
//! Pure.

/// Whether a plain scalar is null.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A truth value as YAML 1.2 spells it.
pub(super) fn as_boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// A truth value as Compose takes it where its schema wants one.
pub(super) fn as_lenient_boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "y" | "yes" | "on" | "1" => Some(true),
        "false" | "n" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// An integer in decimal, `0x` or `0o`, or one of the old spellings.
pub(super) fn as_integer(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let joined;
    let digits = if digits.contains('_') && is_underscored(digits) {
        joined = digits.replace('_', "");
        &joined
    } else {
        digits
    };
    let (radix, body) = if let Some(hex) = digits.strip_prefix("0x") {
        (16, hex)
    } else if let Some(octal) = digits.strip_prefix("0o") {
        (8, octal)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        (2, binary)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    // `from_str_radix` takes a sign of its own, which would let `--1` through.
    if body.is_empty() || !body.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = i128::from_str_radix(body, radix).ok()?;
    i64::try_from(if is_negative { -magnitude } else { magnitude }).ok()
}

/// A number of any spelling, infinities and not-a-number excluded.
pub(super) fn as_number(text: &str) -> Option<f64> {
    if let Some(integer) = as_integer(text) {
        return Some(integer as f64);
    }
    if !is_float_shape(text) {
        return None;
    }
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Whether a spelling is read differently by YAML 1.2 and by Docker Compose.
pub(super) fn is_old_spelling(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    let is_old = digits.starts_with("0b")
        || digits.contains('_')
        || (digits.len() > 1
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits.starts_with('0'));
    is_old && as_integer(text).is_some_and(|value| value.to_string() != text)
}

/// How Compose writes a plain scalar where a text is wanted, as in `environment`.
///
/// `True` becomes `true`, `0x10` becomes `16` and `1.10` becomes `1.1`: the
/// value is read as what it is before it becomes a text.
pub(super) fn canonical(text: &str) -> String {
    if let Some(truth) = as_boolean(text) {
        return truth.to_string();
    }
    if let Some(integer) = as_integer(text) {
        return integer.to_string();
    }
    match as_number(text) {
        Some(number) => go_float(number),
        None => text.to_owned(),
    }
}

/// A float as Go's `%v` writes it: shortest form, exponent below 1e-4 and from 1e6.
fn go_float(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        format!("{mantissa}e{sign}{digits:0>2}")
    } else {
        number.to_string()
    }
}

/// `1_000` and `0x_ff`, but not `_1`, `1_` or words.
fn is_underscored(digits: &str) -> bool {
    digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.ends_with('_')
}

/// `[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?`
fn is_float_shape(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => all_digits(fraction),
        Some((whole, "")) => all_digits(whole),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => all_digits(mantissa),
    };
    let exponent_fits = exponent
        .is_none_or(|exponent| all_digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)));
    mantissa_fits && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_become_the_text_that_compose_gives_them() {
        for (plain, text) in [
            ("no", "no"),
            ("yes", "yes"),
            ("on", "on"),
            ("True", "true"),
            ("FALSE", "false"),
            ("12", "12"),
            ("+12", "12"),
            ("-7", "-7"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("022", "18"),
            ("08", "8"),
            ("0b101", "5"),
            ("1_000", "1000"),
            ("1_", "1_"),
            ("_1", "_1"),
            ("1.0", "1"),
            ("1.10", "1.1"),
            (".5", "0.5"),
            ("1e3", "1000"),
            ("1e21", "1e+21"),
            ("0.00001", "1e-05"),
            ("-0.25", "-0.25"),
            ("1.2.3", "1.2.3"),
            ("2024-01-02", "2024-01-02"),
            ("12:30", "12:30"),
            ("1e", "1e"),
            ("--1", "--1"),
            ("+", "+"),
            (".", "."),
            ("inf", "inf"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("999999.5", "999999.5"),
            ("1000000.5", "1.0000005e+06"),
        ] {
            assert_eq!(canonical(plain), text, "{plain}");
        }
    }

    #[test]
    fn only_spellings_that_change_value_are_called_old() {
        for text in ["022", "0b11", "1_000", "-010"] {
            assert!(is_old_spelling(text), "{text}");
        }
        for text in ["0", "10", "0x10", "0o7", "1_", "a_b", "0.5", "08x", ""] {
            assert!(!is_old_spelling(text), "{text}");
        }
    }

    #[test]
    fn switches_are_lenient_only_where_a_switch_is_wanted() {
        assert_eq!(as_boolean("yes"), None);
        assert_eq!(as_lenient_boolean("Yes"), Some(true));
        assert_eq!(as_lenient_boolean("off"), Some(false));
        assert_eq!(as_lenient_boolean("perhaps"), None);
        assert!(is_null("~") && is_null("") && !is_null("nil"));
    }
}
