//! `depends_on` and `links`: what waits for what, and what has to be started.
//!
//! Pure. Read next: [`super::start`], which follows them.

use indexmap::IndexMap;

use super::field::Field;
use super::merge;
use super::model::{Condition, Dependency};
use super::namespaces::{SHARING, shared_service, volume_source};
use super::node::Value;
use super::notes::Notes;

/// Reads both keys; a link waits until the other service is started.
pub(super) fn read(root: &Field<'_>, notes: &mut Notes) -> IndexMap<String, Dependency> {
    let mut dependencies = IndexMap::new();
    if let Some(field) = root.get("depends_on") {
        let named = merge::dependencies_map(field.node);
        let field = Field::child(root, "depends_on", &field.node.mark, &named);
        for item in field.entries(notes) {
            if let Some(dependency) = dependency(&item, notes) {
                dependencies.insert(item.key().to_owned(), dependency);
            }
        }
    }
    for link in links(root, notes) {
        dependencies.entry(link.service).or_insert(Dependency {
            condition: Condition::ServiceStarted,
            required: true,
        });
    }
    // A service whose network or process ids are shared must be there first.
    for key in SHARING {
        let shared = root.node.get(key).and_then(|node| node.as_text());
        if let Some(other) = shared.and_then(shared_service) {
            dependencies.entry(other.to_owned()).or_insert(Dependency {
                condition: Condition::ServiceStarted,
                required: true,
            });
        }
    }
    if let Some(Value::List(items)) = root.node.get("volumes_from").map(|node| &node.value) {
        let sources = items
            .iter()
            .filter_map(|item| item.as_text().and_then(volume_source));
        for other in sources {
            dependencies.entry(other.to_owned()).or_insert(Dependency {
                condition: Condition::ServiceStarted,
                required: true,
            });
        }
    }
    dependencies
}

fn dependency(field: &Field<'_>, notes: &mut Notes) -> Option<Dependency> {
    if field.node.is_null() {
        field.problem(notes, "has no `condition`");
        return None;
    }
    field.check_keys(&["condition", "required", "restart"], notes);
    if let Some(restart) = field.get("restart")
        && restart.boolean(notes) == Some(true)
    {
        notes.rule(super::service::RESTART_RULE, restart.to_string());
    }
    let required = field
        .get("required")
        .and_then(|field| field.boolean(notes))
        .unwrap_or(true);
    let Some(wanted) = field.get("condition") else {
        // A map without a condition, as in `db: {required: false}`.
        return Some(Dependency {
            condition: Condition::ServiceStarted,
            required,
        });
    };
    let condition = match wanted.filled_text(notes)?.as_str() {
        "service_started" => Condition::ServiceStarted,
        "service_healthy" => Condition::ServiceHealthy,
        "service_completed_successfully" => Condition::ServiceCompletedSuccessfully,
        other => {
            wanted.problem(
                notes,
                format_args!(
                    "`{other}` is not a condition (allowed: service_started, service_healthy, service_completed_successfully)"
                ),
            );
            return None;
        }
    };
    Some(Dependency {
        condition,
        required,
    })
}

/// Another service and the name it is called by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    /// The service.
    pub(super) service: String,
    /// What the linking service calls it.
    pub(super) alias: String,
}

/// Reads `links`: `service` or `service:alias`.
pub(super) fn links(root: &Field<'_>, notes: &mut Notes) -> Vec<Link> {
    let Some(field) = root.get("links") else {
        return Vec::new();
    };
    let texts = field.texts(notes);
    let link = |text: String| {
        let (service, alias) = text.split_once(':').unwrap_or((&text, &text));
        Link {
            service: service.to_owned(),
            alias: alias.to_owned(),
        }
    };
    texts.into_iter().map(link).collect()
}
