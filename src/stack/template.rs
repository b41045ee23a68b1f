//! Compose interpolation: `$NAME`, `${NAME:-default}` and their relatives.
//!
//! A text is parsed once into a [`Template`] and evaluated once per cell.
//! Nothing here knows files or YAML; where a value comes from is the caller's
//! [`Lookup`]. Read next: [`super::variables`], the sources of values.
//!
//! **Source**: Compose specification, chapter Interpolation, and the behaviour
//! of Compose v2 where the text is silent: braces are counted to find the end
//! of a default, and a `$` before anything but a name, `{` or `$` is literal.

use std::collections::BTreeSet;

/// Defaults may nest this deep; real files stop at three.
const DEEPEST_NESTING: usize = 32;

/// Longest value one text may grow to. Values that repeat each other double
/// with every line of an `.env` file; without a bound forty lines fill memory.
const LONGEST_VALUE_BYTES: usize = 1 << 20;

/// A text with variables in it, ready to be evaluated many times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable {
        name: String,
        operation: Option<(Operator, Template)>,
    },
}

/// What follows the name inside the braces. `empty_counts` is the colon: an
/// empty value is then treated like an unset one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Operator {
    kind: OperatorKind,
    empty_counts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperatorKind {
    /// `-`: the operand where the variable is unset.
    Default,
    /// `?`: an error where the variable is unset.
    Required,
    /// `+`: the operand where the variable is set.
    Alternative,
}

/// A `${` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    /// Where in the text. **Units**: characters from 0.
    pub(super) offset: usize,
    /// What is wrong, as a fragment.
    pub(super) reason: &'static str,
}

/// Where a value came from; the cell's values are results, the rest may be secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A level or derived value of the cell.
    Cell,
    /// The process environment.
    Environment,
    /// An `.env` file.
    DotEnv,
    /// Supplied by Compose itself.
    Builtin,
}

/// A source of values.
pub(super) trait Lookup {
    /// The value of a name and where it came from.
    fn find(&self, name: &str) -> Option<(&str, Origin)>;
}

/// What an evaluation met on its way.
pub(super) trait Witness {
    /// A name without a value and without a default was replaced by nothing.
    fn unset(&mut self, name: &str);
    /// A value was used.
    fn used(&mut self, name: &str, value: &str, origin: Origin);
    /// The value of a variable was put into the text at this byte.
    fn placed(&mut self, _start: usize, _value: &str, _origin: Origin) {}
    /// A name had no value and its default was taken. Nothing to do for most.
    fn defaulted(&mut self, _name: &str) {}
}

/// Why a template has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    /// `${NAME:?message}` and no value.
    #[error("required variable `{name}` has no value{}{message}", if message.is_empty() { "" } else { ": " })]
    Required {
        /// The variable.
        name: String,
        /// The file's own words, evaluated.
        message: String,
    },
    /// The value outgrew [`LONGEST_VALUE_BYTES`].
    #[error("the value grows beyond {LONGEST_VALUE_BYTES} bytes")]
    TooLong,
}

impl Template {
    /// Parses a text; `$$` is a dollar.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        parse(text, 0, 0)
    }

    /// Adds every name the template refers to, in any branch.
    pub(super) fn collect_names(&self, names: &mut BTreeSet<String>) {
        for part in &self.parts {
            if let Part::Variable { name, operation } = part {
                if !names.contains(name) {
                    names.insert(name.clone());
                }
                if let Some((_, operand)) = operation {
                    operand.collect_names(names);
                }
            }
        }
    }

    /// The text with its variables replaced.
    ///
    /// Only the branch that is taken is looked at, so an unset name in a default
    /// that is not needed is no matter.
    pub(super) fn evaluate(
        &self,
        lookup: &dyn Lookup,
        witness: &mut dyn Witness,
    ) -> Result<String, TemplateError> {
        let mut value = String::new();
        self.write(&mut value, lookup, witness)?;
        Ok(value)
    }

    fn write(
        &self,
        out: &mut String,
        lookup: &dyn Lookup,
        witness: &mut dyn Witness,
    ) -> Result<(), TemplateError> {
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Variable { name, operation } => {
                    write_variable(out, name, operation.as_ref(), lookup, witness)?;
                }
            }
            if out.len() > LONGEST_VALUE_BYTES {
                return Err(TemplateError::TooLong);
            }
        }
        Ok(())
    }
}

fn write_variable(
    out: &mut String,
    name: &str,
    operation: Option<&(Operator, Template)>,
    lookup: &dyn Lookup,
    witness: &mut dyn Witness,
) -> Result<(), TemplateError> {
    let found = lookup.find(name);
    let Some((operator, operand)) = operation else {
        match found {
            Some((value, origin)) => {
                witness.used(name, value, origin);
                witness.placed(out.len(), value, origin);
                out.push_str(value);
            }
            None => witness.unset(name),
        }
        return Ok(());
    };
    let usable = found.filter(|(value, _)| !(operator.empty_counts && value.is_empty()));
    match (operator.kind, usable) {
        (OperatorKind::Default | OperatorKind::Required, Some((value, origin))) => {
            witness.used(name, value, origin);
            witness.placed(out.len(), value, origin);
            out.push_str(value);
            Ok(())
        }
        (OperatorKind::Default, None) => {
            witness.defaulted(name);
            operand.write(out, lookup, witness)
        }
        (OperatorKind::Alternative, Some(_)) => operand.write(out, lookup, witness),
        (OperatorKind::Alternative, None) => Ok(()),
        (OperatorKind::Required, None) => Err(TemplateError::Required {
            name: name.to_owned(),
            message: operand.evaluate(lookup, witness)?,
        }),
    }
}

/// Parses `text`, whose first character is `offset` characters into the whole.
fn parse(text: &str, offset: usize, depth: usize) -> Result<Template, Malformed> {
    if depth > DEEPEST_NESTING {
        return Err(Malformed {
            offset,
            reason: "defaults nest too deep",
        });
    }
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        literal.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        let place = || offset + chars_before(text, rest) - 1;
        if let Some(after) = rest.strip_prefix('$') {
            literal.push('$');
            rest = after;
        } else if let Some(inside) = rest.strip_prefix('{') {
            let close = closing_brace(inside).ok_or_else(|| Malformed {
                offset: place(),
                reason: "`${` without its `}`",
            })?;
            flush(&mut literal, &mut parts);
            parts.push(parse_braced(&inside[..close], place() + 2, depth)?);
            rest = &inside[close + 1..];
        } else {
            let name = leading_name(rest);
            if name.is_empty() {
                literal.push('$');
            } else {
                flush(&mut literal, &mut parts);
                parts.push(Part::Variable {
                    name: name.to_owned(),
                    operation: None,
                });
                rest = &rest[name.len()..];
            }
        }
    }
    literal.push_str(rest);
    flush(&mut literal, &mut parts);
    Ok(Template { parts })
}

/// Parses what stands between `${` and its `}`.
fn parse_braced(inside: &str, offset: usize, depth: usize) -> Result<Part, Malformed> {
    let name = leading_name(inside);
    let malformed = |reason| Malformed {
        offset: offset.saturating_sub(2),
        reason,
    };
    if name.is_empty() {
        return Err(malformed(
            "`${` must be followed by a name of letters, digits and `_`",
        ));
    }
    let after_name = &inside[name.len()..];
    if after_name.is_empty() {
        return Ok(Part::Variable {
            name: name.to_owned(),
            operation: None,
        });
    }
    let (empty_counts, after_colon) = match after_name.strip_prefix(':') {
        Some(rest) => (true, rest),
        None => (false, after_name),
    };
    let kind = match after_colon.chars().next() {
        Some('-') => OperatorKind::Default,
        Some('?') => OperatorKind::Required,
        Some('+') => OperatorKind::Alternative,
        _ => {
            return Err(malformed(
                "after the name inside `${}` only `:-`, `-`, `:?`, `?`, `:+` or `+` may follow",
            ));
        }
    };
    let operand = &after_colon[1..];
    let operand_offset = offset + chars_before(inside, operand);
    Ok(Part::Variable {
        name: name.to_owned(),
        operation: Some((
            Operator { kind, empty_counts },
            parse(operand, operand_offset, depth + 1)?,
        )),
    })
}

/// Characters of `whole` before its suffix `rest`.
fn chars_before(whole: &str, rest: &str) -> usize {
    whole[..whole.len() - rest.len()].chars().count()
}

/// Byte offset of the `}` that closes a brace opened just before `text`.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// The longest variable name at the start of a text.
pub(super) fn leading_name(text: &str) -> &str {
    let end = text
        .char_indices()
        .find(|(index, c)| {
            !(c.is_ascii_alphabetic() || *c == '_' || (*index > 0 && c.is_ascii_digit()))
        })
        .map_or(text.len(), |(index, _)| index);
    &text[..end]
}

fn flush(literal: &mut String, parts: &mut Vec<Part>) {
    if !literal.is_empty() {
        parts.push(Part::Literal(std::mem::take(literal)));
    }
}

#[cfg(test)]
mod tests;
