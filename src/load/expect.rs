//! What makes an answer a success, and whether one is.
//!
//! One type for three ages of the same rules: as the file has them, resolved for one
//! row of a loop, and with the values of a cell. Rules over the body see it decoded;
//! `size` counts it as it came, so that nothing has to be kept or decoded for it.
//!
//! **Invariant**: what is not asked for is not looked at. A body is kept for the rules
//! that read it alone.

use http::header::HeaderName;
use serde_json::Value;

use super::answer::{Answer, EXCERPT_BYTES};
use super::request::missing;
use super::template::{Dynamic, JsonTemplate, Pieces, plain};
use crate::reported::JsonPath;
use crate::units::{format_bytes, shortened};

/// A pattern; its search takes time linear in the text, whatever it says.
pub(super) type Pattern = regex::bytes::Regex;

/// What makes an answer a success; `T` is what a text is.
#[derive(Debug, Clone)]
pub(super) struct Expect<T> {
    /// Allowed statuses; when empty, 200 to 299.
    pub(super) statuses: Vec<u16>,
    /// A header that came more than once needs one value that is right.
    pub(super) headers: Vec<(HeaderName, HeaderRule<T>)>,
    pub(super) size: Option<Size>,
    pub(super) texts: Vec<TextRule<T>>,
    pub(super) json: Vec<(JsonPath, JsonRule<T>)>,
}

/// A rule over one header.
#[derive(Debug, Clone)]
pub(super) enum HeaderRule<T> {
    Equals(T),
    Matches(Pattern),
}

/// A rule over the body as text.
#[derive(Debug, Clone)]
pub(super) enum TextRule<T> {
    Contains(T),
    Lacks(T),
    Matches(Pattern),
}

/// A rule over one value of a JSON body.
#[derive(Debug, Clone)]
pub(super) enum JsonRule<T> {
    Equals(JsonTemplate<T>),
    /// Over a text as it is, over all else as JSON prints it.
    Matches(Pattern),
    /// Be it null.
    Exists,
    Absent,
}

/// Bounds of the body's length as it came, both allowed. **Units**: bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl<T> Default for Expect<T> {
    fn default() -> Self {
        Self {
            statuses: Vec::new(),
            headers: Vec::new(),
            size: None,
            texts: Vec::new(),
            json: Vec::new(),
        }
    }
}

impl<T> Expect<T> {
    /// The same rules with every text turned into something else.
    pub(super) fn try_map<U, E>(
        &self,
        map: &mut impl FnMut(&T) -> Result<U, E>,
    ) -> Result<Expect<U>, E> {
        let mut mapped = Expect {
            statuses: self.statuses.clone(),
            size: self.size,
            ..Expect::default()
        };
        for (name, rule) in &self.headers {
            let rule = match rule {
                HeaderRule::Equals(text) => HeaderRule::Equals(map(text)?),
                HeaderRule::Matches(pattern) => HeaderRule::Matches(pattern.clone()),
            };
            mapped.headers.push((name.clone(), rule));
        }
        for rule in &self.texts {
            mapped.texts.push(match rule {
                TextRule::Contains(text) => TextRule::Contains(map(text)?),
                TextRule::Lacks(text) => TextRule::Lacks(map(text)?),
                TextRule::Matches(pattern) => TextRule::Matches(pattern.clone()),
            });
        }
        for (path, rule) in &self.json {
            let rule = match rule {
                JsonRule::Equals(value) => JsonRule::Equals(value.try_map(map)?),
                JsonRule::Matches(pattern) => JsonRule::Matches(pattern.clone()),
                JsonRule::Exists => JsonRule::Exists,
                JsonRule::Absent => JsonRule::Absent,
            };
            mapped.json.push((path.clone(), rule));
        }
        Ok(mapped)
    }
}

impl Expect<Pieces> {
    /// Whether a status is a success.
    pub(super) fn allows(&self, status: u16) -> bool {
        if self.statuses.is_empty() {
            (200..300).contains(&status)
        } else {
            self.statuses.contains(&status)
        }
    }

    /// Statuses that are a success, in words.
    pub(super) fn allowed(&self) -> String {
        if self.statuses.is_empty() {
            return "200 to 299".to_owned();
        }
        let statuses: Vec<String> = self.statuses.iter().map(u16::to_string).collect();
        statuses.join(" or ")
    }

    /// Checks what is known without the body's content. `names`: those of captures.
    ///
    /// **Errors**: the first rule that does not hold, in words.
    pub(super) fn check_frame(
        &self,
        answer: &Answer,
        names: &[String],
        dynamic: &mut Dynamic<'_>,
    ) -> Result<(), String> {
        if let Some(size) = self.size
            && !(size.least..=size.most).contains(&answer.body_bytes())
        {
            let size = size.describe();
            let found = answer.body_bytes();
            return Err(format!(
                "the body is {found} bytes long where {size} was expected"
            ));
        }
        for (name, rule) in &self.headers {
            rule.check(name, answer, names, dynamic)?;
        }
        Ok(())
    }

    /// Checks the body as text.
    ///
    /// **Errors**: the first rule that does not hold, in words.
    pub(super) fn check_texts(
        &self,
        body: &[u8],
        names: &[String],
        dynamic: &mut Dynamic<'_>,
    ) -> Result<(), String> {
        for rule in &self.texts {
            let (is_met, words) = match rule {
                TextRule::Contains(text) => {
                    let text = rendered(text, names, dynamic)?;
                    (
                        is_in(&text, body),
                        format!("does not contain \"{}\"", shortened(&text)),
                    )
                }
                TextRule::Lacks(text) => {
                    let text = rendered(text, names, dynamic)?;
                    (
                        !is_in(&text, body),
                        format!("contains \"{}\"", shortened(&text)),
                    )
                }
                TextRule::Matches(pattern) => (
                    pattern.is_match(body),
                    format!("does not match `{}`", pattern.as_str()),
                ),
            };
            if !is_met {
                return Err(format!("the body {words}{}", excerpt(body)));
            }
        }
        Ok(())
    }

    /// Checks what the paths of `json` led to, in their order.
    ///
    /// **Errors**: the first rule that does not hold, in words.
    pub(super) fn check_json(
        &self,
        found: &mut impl Iterator<Item = Option<Value>>,
        body: &[u8],
        names: &[String],
        dynamic: &mut Dynamic<'_>,
    ) -> Result<(), String> {
        let known = dynamic.captures;
        for (path, rule) in &self.json {
            let found = found.next().flatten();
            let path = path.as_str();
            let is_met = match (rule, &found) {
                (JsonRule::Equals(expected), found) => {
                    let expected = expected
                        .value(dynamic)
                        .map_err(|slot| missing(names, known, slot))?;
                    if found
                        .as_ref()
                        .is_some_and(|found| is_same(found, &expected))
                    {
                        continue;
                    }
                    let found = found.as_ref().map_or_else(|| "nothing".to_owned(), shown);
                    return Err(format!("`{path}` is {found} where {expected} was expected"));
                }
                (JsonRule::Absent, None) | (JsonRule::Exists, Some(_)) => true,
                (JsonRule::Matches(pattern), Some(found)) => match found {
                    Value::String(text) => pattern.is_match(text.as_bytes()),
                    other => pattern.is_match(other.to_string().as_bytes()),
                },
                (JsonRule::Absent, Some(_)) | (JsonRule::Exists | JsonRule::Matches(_), None) => {
                    false
                }
            };
            if is_met {
                continue;
            }
            return Err(match (rule, found) {
                (JsonRule::Matches(pattern), Some(found)) => {
                    let pattern = pattern.as_str();
                    format!(
                        "`{path}` is {}, which does not match `{pattern}`",
                        shown(&found)
                    )
                }
                (_, Some(found)) => {
                    format!("`{path}` is {} where nothing was expected", shown(&found))
                }
                (_, None) => format!("the body has no `{path}`{}", excerpt(body)),
            });
        }
        Ok(())
    }
}

impl HeaderRule<Pieces> {
    fn check(
        &self,
        name: &HeaderName,
        answer: &Answer,
        names: &[String],
        dynamic: &mut Dynamic<'_>,
    ) -> Result<(), String> {
        let expected = match self {
            Self::Equals(text) => Some(rendered(text, names, dynamic)?),
            Self::Matches(_) => None,
        };
        let mut first = None;
        for value in answer.headers_named(name.as_str()) {
            let is_met = match (self, &expected) {
                (Self::Matches(pattern), _) => pattern.is_match(value),
                (Self::Equals(_), expected) => {
                    expected.as_ref().map(String::as_bytes) == Some(value)
                }
            };
            if is_met {
                return Ok(());
            }
            first = first.or(Some(value));
        }
        let Some(value) = first else {
            return Err(format!("the answer has no header `{name}`"));
        };
        let value = String::from_utf8_lossy(value);
        let value = shortened(&value);
        Err(match self {
            Self::Equals(_) => format!(
                "the header `{name}` is \"{value}\" where \"{}\" was expected",
                expected.unwrap_or_default()
            ),
            Self::Matches(pattern) => format!(
                "the header `{name}` is \"{value}\", which does not match `{}`",
                pattern.as_str()
            ),
        })
    }
}

impl Size {
    fn describe(self) -> String {
        let bytes = |bytes: u64| {
            if bytes < 1024 {
                format!("{bytes}")
            } else {
                format!("{bytes} ({})", format_bytes(bytes))
            }
        };
        match (self.least, self.most) {
            (least, most) if least == most => bytes(least),
            (least, u64::MAX) => format!("at least {}", bytes(least)),
            (0, most) => format!("at most {}", bytes(most)),
            (least, most) => format!("{} to {}", bytes(least), bytes(most)),
        }
    }
}

fn rendered(text: &Pieces, names: &[String], dynamic: &mut Dynamic<'_>) -> Result<String, String> {
    let mut out = String::new();
    let known = dynamic.captures;
    text.render_text(&mut out, dynamic)
        .map_err(|slot| missing(names, known, slot))?;
    Ok(out)
}

fn is_in(text: &str, body: &[u8]) -> bool {
    let needle = text.as_bytes();
    let mut windows = body.windows(needle.len().max(1));
    needle.is_empty() || windows.any(|window| window == needle)
}

/// Equal values; a text and a number or truth value are equal when they read the
/// same, since a template cannot always know the type the service uses.
fn is_same(found: &Value, expected: &Value) -> bool {
    if found.is_f64() || expected.is_f64() {
        // 1 and 1.0 are one number. Whole numbers are not compared this way:
        // long ids that differ in the last digit are the same float.
        if let (Some(found), Some(expected)) = (found.as_f64(), expected.as_f64()) {
            return found.total_cmp(&expected).is_eq();
        }
    }
    let is_single = |value: &Value| !value.is_array() && !value.is_object() && !value.is_null();
    found == expected
        || (is_single(found) && is_single(expected) && plain(found) == plain(expected))
}

/// A value of an answer as messages show it.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(EXCERPT_BYTES) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// `: ` and the first characters of a body on one line, or nothing.
pub(super) fn excerpt(body: &[u8]) -> String {
    let shown = &body[..body.len().min(EXCERPT_BYTES)];
    let text: String = String::from_utf8_lossy(shown)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let text = text.trim();
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}
