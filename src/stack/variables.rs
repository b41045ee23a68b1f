//! Where the values of variables come from.
//!
//! First wins: the cell, the process environment, the `.env` beside the first
//! file, then what Compose supplies itself. The environment is an argument;
//! nothing here reads it. Read next: [`super::dotenv`].

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use super::field::Field;
use super::node::{Entry, Map, Node, Replaced, Scalar, Value};
use super::notes::Notes;
use super::template::{Lookup, Origin, TemplateError};

/// The name that Compose gives every file: the project it belongs to.
const PROJECT_NAME: &str = "COMPOSE_PROJECT_NAME";

/// All sources of one resolving.
#[derive(Debug, Clone)]
pub(super) struct Variables<'a> {
    /// Levels and derived values of the cell.
    pub(super) cell: &'a IndexMap<String, String>,
    /// The process environment.
    pub(super) environment: &'a BTreeMap<String, String>,
    /// The evaluated `.env`.
    pub(super) dotenv: IndexMap<String, String>,
    /// Name of the project, as Compose would find it.
    pub(super) project: String,
}

impl Lookup for Variables<'_> {
    fn find(&self, name: &str) -> Option<(&str, Origin)> {
        if let Some(text) = self.cell.get(name) {
            Some((text, Origin::Cell))
        } else if let Some(text) = self.environment.get(name) {
            Some((text, Origin::Environment))
        } else if let Some(text) = self.dotenv.get(name) {
            Some((text, Origin::DotEnv))
        } else if name == PROJECT_NAME {
            Some((&self.project, Origin::Builtin))
        } else {
            None
        }
    }
}

/// The tree with every variable replaced; parts without variables are shared.
///
/// A text that had variables counts as quoted afterwards, as it does in Compose:
/// an empty result is an empty text, not null. A text whose variables cannot be
/// replaced keeps them, so that readers pass it over.
pub(super) fn interpolate(
    field: &Field<'_>,
    variables: &Variables<'_>,
    notes: &mut Notes,
) -> Arc<Node> {
    let node = field.node;
    if !node.has_template {
        return Arc::clone(node);
    }
    let value = match &node.value {
        Value::Scalar(scalar) => {
            let Some((text, replaced)) = scalar_text(field, scalar, variables, notes) else {
                return Arc::clone(node);
            };
            Value::Scalar(Scalar {
                text: text.into(),
                is_plain: false,
                template: None,
                quote: None,
                replaced: Some(Arc::new(replaced)),
            })
        }
        Value::List(items) => Value::List(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| interpolate(&field.item(index, item), variables, notes))
                .collect(),
        ),
        Value::Map(entries) => {
            let replaced = |(key, entry): (&Arc<str>, &Entry)| {
                let below = field.child(key, &entry.mark, &entry.node);
                let node = interpolate(&below, variables, notes);
                let mark = entry.mark.clone();
                (Arc::clone(key), Entry { mark, node })
            };
            Value::Map(entries.iter().map(replaced).collect::<Map>())
        }
    };
    Arc::new(Node::assembled(node.mark.clone(), node.tag, value))
}

fn scalar_text(
    field: &Field<'_>,
    scalar: &Scalar,
    variables: &Variables<'_>,
    notes: &mut Notes,
) -> Option<(String, Replaced)> {
    let place = field.node.mark.location();
    let template = match scalar.template.as_deref()? {
        Ok(template) => template,
        Err(malformed) => {
            notes.problem_with_hint(
                field.node.place_in_text(malformed.offset),
                format!("{field}: {}", malformed.reason),
                "write `$$` for a dollar that is meant as one",
            );
            return None;
        }
    };
    template.collect_names(&mut notes.referred);
    let mut replaced = Replaced::default();
    let outcome = template.evaluate(variables, &mut notes.witness(place.clone(), &mut replaced));
    match outcome {
        Ok(text) => {
            notes.hide_words(&text, &mut replaced);
            Some((text, replaced))
        }
        Err(error) => {
            let message = format!("{field}: {error}");
            match error {
                TemplateError::Required { name, .. } => notes.problem_with_hint(
                    place,
                    message,
                    format!("set `{name}` in the environment or in .env, or make it an axis or a derived value"),
                ),
                TemplateError::TooLong => notes.problem(place, message),
            }
            None
        }
    }
}
