//! Numbers out of what programs print, and what is made of them.

/// The first number after a text, whatever spaces, colons or quotes stand between.
pub(super) fn number_after(text: &str, key: &str) -> Option<f64> {
    let (_, rest) = text.split_once(key)?;
    digits(rest.trim_start_matches(between)).map(|(number, _)| number)
}

/// The same with a unit; without one it is seconds. **Units**: milliseconds.
pub(super) fn duration_ms_after(text: &str, key: &str) -> Option<f64> {
    let (_, rest) = text.split_once(key)?;
    let (number, rest) = digits(rest.trim_start_matches(between))?;
    let unit: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
    let factor = match unit.as_str() {
        "us" => 0.001,
        "ms" => 1.0,
        "m" => 60_000.0,
        "s" | "" => 1000.0,
        _ => return None,
    };
    Some(number * factor)
}

fn between(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, ':' | '"' | ']')
}

fn digits(text: &str) -> Option<(f64, &str)> {
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | 'e' | '-' | '+');
    let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    Some((number.parse().ok()?, rest))
}

/// Of an even number the mean of the two in the middle; of none, no number.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// Ratios of pairs: the one in the middle, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Ratio {
    /// Each value by the other of the same round; nothing where there are no pairs.
    pub(super) fn paired(values: &[f64], others: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = values
            .iter()
            .zip(others)
            .map(|(value, other)| value / other)
            .collect();
        if ratios.is_empty() {
            return None;
        }
        Some(Self {
            median: median(ratios.iter().copied()),
            min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            max: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// A table in Markdown whose columns stand below each other; the first is text, the others numbers.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .chain([header[column].chars().count(), 4])
            .max()
            .unwrap_or(4)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| match column {
            0 => "-".repeat(*width),
            _ => format!("{}:", "-".repeat(width - 1)),
        })
        .collect();
    let mut text = line(header);
    text.push_str(&line(&rule.iter().map(String::as_str).collect::<Vec<_>>()));
    for row in rows {
        text.push_str(&line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_colons_spaces_and_quotes() {
        assert_eq!(
            number_after(r#"{"a":{"rps": 12.5}}"#, "\"rps\""),
            Some(12.5)
        );
        assert_eq!(
            number_after("Requests/sec:\t9688.8\n", "Requests/sec:"),
            Some(9688.8)
        );
        assert_eq!(number_after("x: 1e3,", "x"), Some(1000.0));
        assert_eq!(number_after("p99: null", "p99"), None);
        assert_eq!(number_after("nothing", "p99"), None);
    }

    #[test]
    fn durations_come_in_every_unit_of_wrk() {
        let ms = |text: &str| duration_ms_after(text, "99%");
        assert_eq!(ms("99%  512.00us\n"), Some(0.512));
        assert_eq!(ms("99%    1.25ms"), Some(1.25));
        assert_eq!(ms("99%    2.00s"), Some(2000.0));
        assert_eq!(ms("99%    1.50m"), Some(90_000.0));
        assert_eq!(ms("99% 3 weeks"), Some(3000.0));
        assert_eq!(ms("99% 3weeks"), None);
    }

    #[test]
    fn ratios_are_of_pairs_and_not_of_medians() {
        // The third round was slow for both: paired, it says the same as the others.
        let ratio = Ratio::paired(&[1.0, 2.0, 30.0], &[2.0, 4.0, 50.0]).expect("pairs");
        assert_eq!(
            ratio,
            Ratio {
                median: 0.5,
                min: 0.5,
                max: 0.6
            }
        );
        assert_eq!(Ratio::paired(&[], &[1.0]), None);
        assert!(median([]).is_nan());
        assert!((median([4.0, 1.0]) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = vec![
            vec!["wrk".to_owned(), "9.50".to_owned()],
            vec!["nightsweep".to_owned(), "10.25".to_owned()],
        ];
        assert_eq!(
            table(&["peer", "us"], &rows),
            "| peer       |    us |\n| ---------- | ----: |\n| wrk        |  9.50 |\n| nightsweep | 10.25 |\n"
        );
    }
}
