//! Tables for a terminal: columns as wide as they need, numbers to the right.

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a header.
#[derive(Debug, Clone)]
pub struct Table {
    header: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows.
    pub fn new(header: &[(&str, Align)]) -> Self {
        Self {
            header: header
                .iter()
                .map(|(title, align)| ((*title).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a column at the end; rows added before it stay empty there.
    pub fn add_column(&mut self, title: &str, align: Align) {
        self.header.push((title.to_owned(), align));
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, header first, without trailing blanks.
    pub fn lines(&self) -> Vec<String> {
        let width = |column: usize| {
            let title = self.header[column].0.chars().count();
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            cells.chain([title]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &dyn Fn(usize) -> String| {
            let mut text = String::new();
            for (column, (_, align)) in self.header.iter().enumerate() {
                if column > 0 {
                    text.push_str("  ");
                }
                let cell = cells(column);
                let padding = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                match align {
                    Align::Left => text.extend([cell, padding]),
                    Align::Right => text.extend([padding, cell]),
                }
            }
            text.trim_end().to_owned()
        };
        let header = line(&|column| self.header[column].0.clone());
        let rule = line(&|column| "─".repeat(widths[column]));
        let rows = self
            .rows
            .iter()
            .map(|row| line(&|column| row.get(column).cloned().unwrap_or_default()));
        [header, rule].into_iter().chain(rows).collect()
    }
}

/// A rate for people: three significant digits at least, thousands separated.
pub fn rate(value: f64) -> String {
    let text = if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    thousands(&text)
}

/// A count for people: thousands separated.
pub fn count(value: u64) -> String {
    thousands(&value.to_string())
}

/// A latency in milliseconds for people; `inf` where there is no bound.
pub fn latency_ms(value: f64) -> String {
    if value.is_infinite() {
        "inf".to_owned()
    } else {
        rate(value)
    }
}

fn thousands(text: &str) -> String {
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let (sign, digits) = whole
        .strip_prefix('-')
        .map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{sign}{grouped}.{fraction}"),
        None => format!("{sign}{grouped}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_whatever_their_content() {
        let mut table = Table::new(&[("cell", Align::Left), ("p99 ms", Align::Right)]);
        table.row(vec!["cpus-2".into(), "1,234".into()]);
        table.row(vec!["µ".into(), "5.60".into()]);
        insta::assert_snapshot!(table.lines().join("\n"), @"
        cell    p99 ms
        ──────  ──────
        cpus-2   1,234
        µ         5.60
        ");
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (1_234_567.8, "1,234,568"),
            (999.6, "1000"),
            (45.67, "45.7"),
            (0.123, "0.12"),
            (-1234.0, "-1,234"),
        ] {
            let expected = if text == "1000" { "1,000" } else { text };
            assert_eq!(rate(value), expected);
        }
        assert_eq!(latency_ms(f64::INFINITY), "inf");
    }
}
