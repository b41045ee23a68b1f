//! One sample of a Prometheus text exposition: `name` or `name{label="value"}`.
//!
//! **Source**: the Prometheus text exposition format 0.0.4. Timestamps, comments and
//! exemplars are passed over; a line that is none is no sample and no error.

use std::fmt;

/// Which sample is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    text: String,
    name: String,
    /// Labels it must carry; it may carry more.
    labels: Vec<(String, String)>,
}

/// Series named in one message.
const SHOWN: usize = 3;

impl Series {
    /// Reads a name with or without labels; the error says what is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "`{text}` is not a series: {what} (allowed: `name` or `name{{label=\"value\"}}`)"
            )
        };
        let (name, rest) = split_name(text);
        if name.is_empty() {
            return Err(wrong("it has no name"));
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            None => (Vec::new(), rest),
            Some(inner) => {
                labels_of(inner).ok_or_else(|| wrong("its labels are not understood"))?
            }
        };
        if !rest.is_empty() {
            return Err(wrong("something follows it"));
        }
        Ok(Self {
            text: text.to_owned(),
            name: name.to_owned(),
            labels,
        })
    }

    /// The value of the one sample that matches; the error says why there is none.
    pub fn find(&self, body: &str) -> Result<String, String> {
        let samples = body.lines().filter_map(sample);
        let found: Vec<Sample<'_>> = samples.filter(|sample| self.matches(sample)).collect();
        match found.as_slice() {
            [] => Err(format!("has no series `{self}`")),
            [one] => Ok(one.value.to_owned()),
            several => {
                let shown: Vec<&str> = several.iter().take(SHOWN).map(|s| s.series).collect();
                let more = if several.len() > SHOWN { ", ..." } else { "" };
                Err(format!(
                    "has {} series that match `{self}`: {}{more}",
                    several.len(),
                    shown.join(", ")
                ))
            }
        }
    }

    fn matches(&self, sample: &Sample<'_>) -> bool {
        sample.name == self.name
            && self
                .labels
                .iter()
                .all(|label| sample.labels.contains(label))
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Sample<'a> {
    /// Name and labels as the line has them.
    series: &'a str,
    name: &'a str,
    labels: Vec<(String, String)>,
    value: &'a str,
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    let (name, rest) = split_name(line);
    if name.is_empty() {
        return None;
    }
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        None => (Vec::new(), rest),
        Some(inner) => labels_of(inner)?,
    };
    let series = line[..line.len() - rest.len()].trim_end();
    let value = rest.split_whitespace().next()?;
    Some(Sample {
        series,
        name,
        labels,
        value,
    })
}

fn split_name(text: &str) -> (&str, &str) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// Labels behind the opening brace, and what follows the closing one.
fn labels_of(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = split_name(rest);
        let quoted = after
            .trim_start()
            .strip_prefix('=')?
            .trim_start()
            .strip_prefix('"')?;
        let (value, after) = quoted_value(quoted)?;
        if name.is_empty() {
            return None;
        }
        labels.push((name.to_owned(), value));
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
}

/// A label's value up to its closing quote, and what follows.
fn quoted_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "\
# HELP db_pool_size Connections the pool is made of.
# TYPE db_pool_size gauge
db_pool_size 8
db_pool_size_max 9 1700000000000
pool{name=\"main\",kind=\"a b\"} 1.2e1
pool{kind = \"x\\\"}\\\\\", name=\"side\",} 3
  up{} 1
broken{a=1} 5
http_seconds_bucket{le=\"+Inf\"} 7 # {trace=\"x\"} 0.5
";

    fn find(series: &str) -> Result<String, String> {
        Series::parse(series).unwrap().find(BODY)
    }

    #[test]
    fn one_sample_is_found_by_name_and_labels() {
        for (series, value) in [
            ("db_pool_size", "8"),
            ("db_pool_size_max", "9"),
            ("pool{name=\"main\"}", "1.2e1"),
            ("pool{ name = \"main\" , kind=\"a b\" }", "1.2e1"),
            (r#"pool{kind="x\"}\\"}"#, "3"),
            ("up", "1"),
            ("http_seconds_bucket{le=\"+Inf\"}", "7"),
        ] {
            assert_eq!(find(series).as_deref(), Ok(value), "{series}");
        }
    }

    #[test]
    fn none_and_several_are_told_apart() {
        assert_eq!(
            find("db_pool_sise").unwrap_err(),
            "has no series `db_pool_sise`"
        );
        assert_eq!(
            find("pool{name=\"other\"}").unwrap_err(),
            "has no series `pool{name=\"other\"}`"
        );
        assert_eq!(find("broken").unwrap_err(), "has no series `broken`");
        insta::assert_snapshot!(find("pool").unwrap_err(), @r#"has 2 series that match `pool`: pool{name="main",kind="a b"}, pool{kind = "x\"}\\", name="side",}"#);
    }

    #[test]
    fn what_is_no_series_is_refused() {
        for text in [
            "",
            "{a=\"b\"}",
            "a b",
            "a{b}",
            "a{b=\"c\"",
            "a{b=\"c\"} 1",
            "a{b=c}",
            "a{=\"c\"}",
            "a-b",
        ] {
            assert!(Series::parse(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_it(series in ".{0,20}", body in "(?s).{0,200}") {
            if let Ok(series) = Series::parse(&series) {
                let _ = series.find(&body);
            }
        }
    }
}
