//! Rows of data files: `[data.NAME]`, and which of them a journey gets.
//!
//! A file is read and checked once, with the workload. In CSV every value is a text; in
//! JSON, a list of objects, it keeps its type. A journey (and a set-up) has one row of
//! each file at a time, so that `${data.users.name}` and `${data.users.password}` fit
//! together: `per_user` is the virtual user's own, row u mod n for user u; `random` is
//! drawn from the seed for each journey; `next` is handed out in order over all load
//! threads, so that each row is used once before one is used twice.
//!
//! **Invariant**: a data set has at least one row and one column, and every row has a
//! value for every column. Drawn rows do not depend on the number of load threads; which
//! journey gets the `next` row depends on which comes first, the rows that are used do not.

use std::path::Path;

use serde_json::Value;

use crate::problem::{Location, Problem};

/// Most rows of a file: beyond it the texts alone are gigabytes.
const MOST_ROWS: usize = 10_000_000;

/// Which row a journey gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    /// The virtual user's own.
    PerUser,
    /// Any, by the seed.
    Random,
    /// The one after the last that was handed out.
    Next,
}

/// One data file, read.
#[derive(Debug)]
pub(super) struct DataSet {
    pub(super) name: String,
    pub(super) pick: Pick,
    pub(super) columns: Vec<String>,
    /// Row after row, each with a value for every column.
    values: Vec<Value>,
}

impl DataSet {
    pub(super) fn new(name: &str, pick: Pick, content: Content) -> Self {
        Self {
            name: name.to_owned(),
            pick,
            columns: content.columns,
            values: content.values,
        }
    }

    /// At least 1.
    pub(super) fn n_rows(&self) -> usize {
        self.values.len() / self.columns.len()
    }

    fn value(&self, row: usize, column: usize) -> &Value {
        &self.values[row * self.columns.len() + column]
    }
}

/// The rows under way, one of each data set.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rows<'a> {
    pub(super) sets: &'a [DataSet],
    /// By data set; those that nobody asks for may be missing.
    pub(super) picked: &'a [usize],
}

impl<'a> Rows<'a> {
    /// A value of the row that was picked; the first row's where none was.
    pub(super) fn value(&self, set: usize, column: usize) -> &'a Value {
        let row = self.picked.get(set).copied().unwrap_or_default();
        self.sets[set].value(row, column)
    }
}

/// What a file holds.
#[derive(Debug, PartialEq)]
pub(super) struct Content {
    pub(super) columns: Vec<String>,
    pub(super) values: Vec<Value>,
}

/// Reads the text of a data file; what it is, its name's ending says.
///
/// **Errors**: every problem found, each with its place in the file.
pub(super) fn read(path: &Path, text: &str) -> Result<Content, Vec<Problem>> {
    let is_json = path
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    let content = if is_json {
        read_json(path, text)?
    } else {
        read_csv(path, text)?
    };
    if content.values.is_empty() {
        return Err(vec![Problem::new(
            Location::start_of(path),
            "the data file has no row",
        )]);
    }
    Ok(content)
}

/// **Source**: RFC 4180: the first line names the columns; a value in quotes may hold
/// commas, line ends and doubled quotes.
fn read_csv(path: &Path, text: &str) -> Result<Content, Vec<Problem>> {
    let mut problems = Vec::new();
    let at = |offset| Location::of_offset(path, text, offset);
    let mut records = Records::new(text);
    let columns: Vec<String> = match records.next() {
        Some(Ok((_, columns))) => columns,
        Some(Err(offset)) => return Err(vec![Problem::new(at(offset), OPEN_QUOTE)]),
        None => Vec::new(),
    };
    for (index, column) in columns.iter().enumerate() {
        if column.is_empty() || columns[..index].contains(column) {
            let what = if column.is_empty() {
                format!("column {} has no name", index + 1)
            } else {
                format!("two columns are named `{column}`")
            };
            problems.push(
                Problem::new(Location::start_of(path), what)
                    .with_hint("the first line of a CSV file names its columns"),
            );
        }
    }
    let mut values = Vec::new();
    for record in records {
        match record {
            Ok((offset, fields)) if fields.len() != columns.len() => problems.push(Problem::new(
                at(offset),
                format!(
                    "the row has {} values, and the file has {} columns",
                    fields.len(),
                    columns.len()
                ),
            )),
            Ok((_, fields)) => values.extend(fields.into_iter().map(Value::String)),
            Err(offset) => problems.push(Problem::new(at(offset), OPEN_QUOTE)),
        }
        if values.len() / columns.len().max(1) > MOST_ROWS {
            problems.push(too_many(path));
        }
        // A file of another kind would tell the same of every line.
        if problems.len() >= MOST_PROBLEMS {
            break;
        }
    }
    if problems.is_empty() {
        Ok(Content { columns, values })
    } else {
        Err(problems)
    }
}

const OPEN_QUOTE: &str = "a value in quotes that does not end, or has text behind its end";
const MOST_PROBLEMS: usize = 10;

fn too_many(path: &Path) -> Problem {
    let message = format!("the data file has more than {MOST_ROWS} rows");
    Problem::new(Location::start_of(path), message)
}

/// The records of a CSV text that are not empty lines, each with its byte offset; the
/// error is the offset of a value that does not end.
struct Records<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Records<'t> {
    fn new(text: &'t str) -> Self {
        // Spreadsheets put a byte-order mark before UTF-8.
        let position = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Self { text, position }
    }

    /// One value and whether another follows in the record.
    fn field(&mut self) -> Result<(String, bool), usize> {
        let begin = self.position;
        let rest = &self.text[begin..];
        let value = if let Some(quoted) = rest.strip_prefix('"') {
            let (value, length) = unquoted(quoted).ok_or(begin)?;
            self.position += length + 1;
            value
        } else {
            let end = rest.find([',', '\n']).unwrap_or(rest.len());
            self.position += end;
            rest[..end].trim_end_matches('\r').to_owned()
        };
        let rest = &self.text[self.position..];
        let (end, has_more) = match rest.as_bytes() {
            [b',', ..] => (1, true),
            [b'\n', ..] => (1, false),
            [b'\r', b'\n', ..] => (2, false),
            [] => (0, false),
            _ => return Err(begin),
        };
        self.position += end;
        Ok((value, has_more))
    }
}

/// A value up to its closing quote, and how many bytes it took with the quote.
fn unquoted(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut from = 0;
    loop {
        let quote = from + text[from..].find('"')?;
        value.push_str(&text[from..quote]);
        if !text[quote + 1..].starts_with('"') {
            return Some((value, quote + 1));
        }
        value.push('"');
        from = quote + 2;
    }
}

impl Iterator for Records<'_> {
    type Item = Result<(usize, Vec<String>), usize>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let begin = self.position;
            if begin >= self.text.len() {
                return None;
            }
            let mut fields = Vec::new();
            loop {
                match self.field() {
                    Ok((value, has_more)) => {
                        fields.push(value);
                        if !has_more {
                            break;
                        }
                    }
                    Err(offset) => {
                        self.position = self.text.len();
                        return Some(Err(offset));
                    }
                }
            }
            let is_blank = self.text[begin..self.position].trim().is_empty();
            if !is_blank {
                return Some(Ok((begin, fields)));
            }
        }
    }
}

fn read_json(path: &Path, text: &str) -> Result<Content, Vec<Problem>> {
    let start = |message: String| Problem::new(Location::start_of(path), message);
    let rows: Vec<serde_json::Map<String, Value>> =
        serde_json::from_str(text).map_err(|error| {
            let location = Location {
                file: path.to_owned(),
                line: error.line().max(1),
                column: error.column().max(1),
            };
            vec![
                Problem::new(location, format!("this is no list of rows: {error}"))
                    .with_hint("such as [{ \"name\": \"a\" }, { \"name\": \"b\" }]"),
            ]
        })?;
    if rows.len() > MOST_ROWS {
        return Err(vec![too_many(path)]);
    }
    let columns: Vec<String> = rows
        .first()
        .map(|row| row.keys().cloned().collect())
        .unwrap_or_default();
    let mut problems = Vec::new();
    let mut values = Vec::with_capacity(rows.len() * columns.len());
    for (index, mut row) in rows.into_iter().enumerate() {
        let number = index + 1;
        for column in &columns {
            match row.remove(column) {
                Some(Value::Null) => {
                    problems.push(start(format!("`{column}` of row {number} is null")));
                }
                Some(value) => values.push(value),
                None => problems.push(start(format!("row {number} has no `{column}`"))),
            }
        }
        if let Some(more) = row.keys().next() {
            problems.push(start(format!(
                "row {number} has `{more}`, which the first row has not"
            )));
        }
        if problems.len() >= MOST_PROBLEMS {
            break;
        }
    }
    if problems.is_empty() {
        Ok(Content { columns, values })
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(name: &str, text: &str) -> Result<Content, String> {
        read(Path::new(name), text).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })
    }

    #[test]
    fn a_csv_file_has_texts_whatever_they_look_like() {
        let text = "\u{feff}name,note\r\nanna,\"a, \"\"b\"\"\nc\"\r\n\r\n007,\n";
        let read = content("users.csv", text).unwrap();
        assert_eq!(read.columns, ["name", "note"]);
        assert_eq!(read.values, ["anna", "a, \"b\"\nc", "007", ""]);
        let set = DataSet::new("users", Pick::Next, read);
        assert_eq!(set.n_rows(), 2);
        let rows = Rows {
            sets: &[set],
            picked: &[1],
        };
        assert_eq!(rows.value(0, 0), "007");
    }

    #[test]
    fn a_json_file_keeps_types() {
        let read = content(
            "a.json",
            r#"[{"n": 7, "o": {"x": [1]}}, {"o": 1, "n": "7"}]"#,
        );
        let read = read.unwrap();
        let values: Vec<String> = read.values.iter().map(Value::to_string).collect();
        assert_eq!(read.columns, ["n", "o"]);
        assert_eq!(values, ["7", r#"{"x":[1]}"#, "\"7\"", "1"]);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_place() {
        let shown: Vec<String> = [
            ("a.csv", ""),
            ("a.csv", "name,name,\n"),
            ("a.csv", "a,b\n1\n1,2\n1,2,3\n"),
            ("a.csv", "a,b\n1,\"x\n"),
            ("a.csv", "a,b\n1,\"x\"y\n"),
            ("a.json", "{}"),
            ("a.json", "[]"),
            ("a.json", "[{\"a\": 1}, {\"b\": null}, {\"a\": null}]"),
            ("a.json", "[1"),
        ]
        .map(|(name, text)| content(name, text).unwrap_err())
        .into();
        insta::assert_snapshot!(shown.join("\n--\n"), @r#"
        a.csv:1:1: the data file has no row
        --
        a.csv:1:1: two columns are named `name`
          hint: the first line of a CSV file names its columns
        a.csv:1:1: column 3 has no name
          hint: the first line of a CSV file names its columns
        --
        a.csv:2:1: the row has 1 values, and the file has 2 columns
        a.csv:4:1: the row has 3 values, and the file has 2 columns
        --
        a.csv:2:3: a value in quotes that does not end, or has text behind its end
        --
        a.csv:2:3: a value in quotes that does not end, or has text behind its end
        --
        a.json:1:1: this is no list of rows: invalid type: map, expected a sequence at line 1 column 0
          hint: such as [{ "name": "a" }, { "name": "b" }]
        --
        a.json:1:1: the data file has no row
        --
        a.json:1:1: row 2 has no `a`
        a.json:1:1: row 2 has `b`, which the first row has not
        a.json:1:1: `a` of row 3 is null
        --
        a.json:1:2: this is no list of rows: invalid type: integer `1`, expected a map at line 1 column 2
          hint: such as [{ "name": "a" }, { "name": "b" }]
        "#);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a\",\r\n é]{0,40}") {
            if let Ok(read) = content("a.csv", &text) {
                proptest::prop_assert_eq!(read.values.len() % read.columns.len(), 0);
            }
        }
    }
}
