//! What the containers of a trial wrote, kept when the trial is not valid.

use futures_util::future::join_all;

use super::trial::LABEL_SERVICE;
use super::{ContainerId, Engine, EngineError, Launched, LeftoverKind, TrialTag};
use crate::problem::chain;

/// Everything the containers of a launched stack wrote, by service.
///
/// A log that cannot be read becomes a text that says so: the others are kept.
/// The texts are as written: secrets are still in them.
pub async fn collect_logs<E: Engine>(engine: &E, launched: &Launched) -> Vec<(String, String)> {
    let reads = launched
        .containers
        .iter()
        .map(|(service, id)| read(engine, service, id));
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
        .map(|thing| {
            let service = thing
                .labels
                .get(LABEL_SERVICE)
                .unwrap_or(&thing.name)
                .clone();
            (service, ContainerId(thing.id))
        })
        .collect();
    containers.sort();
    let reads = containers
        .iter()
        .map(|(service, id)| read(engine, service, id));
    Ok(join_all(reads).await)
}

async fn read<E: Engine>(engine: &E, service: &str, id: &ContainerId) -> (String, String) {
    let text = match engine.logs(id, None).await {
        Ok(text) => text,
        Err(error) => format!("(the log could not be read: {})\n", chain(&error)),
    };
    (service.to_owned(), text)
}
