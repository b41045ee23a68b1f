//! What the containers of a trial wrote, kept when the trial is not valid.

use futures_util::future::join_all;

use super::trial::{LABEL_REPLICA, LABEL_SERVICE};
use super::{ContainerId, Engine, EngineError, Launched, Leftover, LeftoverKind, TrialTag};
use crate::problem::chain;

/// Everything the containers of a launched stack wrote, each by its name
/// ([`Replica::name`](super::Replica::name)).
///
/// A log that cannot be read becomes a text that says so: the others are kept.
/// The texts are as written: secrets are still in them.
pub async fn collect_logs<E: Engine>(engine: &E, launched: &Launched) -> Vec<(String, String)> {
    let reads = launched
        .replicas()
        .map(|replica| read(engine, replica.name(), replica.id));
    join_all(reads).await
}

/// The same for a trial whose launch came to nothing, from its labels.
///
/// **Errors**: the engine cannot say which containers there are.
pub async fn collect_trial_logs<E: Engine>(
    engine: &E,
    tag: &TrialTag,
) -> Result<Vec<(String, String)>, EngineError> {
    let found = engine.list_ours(&tag.filter()).await?;
    let mut containers: Vec<(String, ContainerId)> = found
        .into_iter()
        .filter(|thing| thing.kind == LeftoverKind::Container)
        .map(|thing| (name_of(&thing), ContainerId(thing.id)))
        .collect();
    containers.sort();
    let reads = containers
        .iter()
        .map(|(name, id)| read(engine, name.clone(), id));
    Ok(join_all(reads).await)
}

/// As a launched stack names it.
fn name_of(thing: &Leftover) -> String {
    let service = thing.labels.get(LABEL_SERVICE).unwrap_or(&thing.name);
    match thing.labels.get(LABEL_REPLICA) {
        Some(number) => format!("{service}#{number}"),
        None => service.clone(),
    }
}

async fn read<E: Engine>(engine: &E, name: String, id: &ContainerId) -> (String, String) {
    let text = match engine.logs(id, None).await {
        Ok(text) => text,
        Err(error) => format!("(the log could not be read: {})\n", chain(&error)),
    };
    (name, text)
}
