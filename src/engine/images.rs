//! Getting the images of a stack before anything is launched.

use indexmap::IndexMap;

use super::{Engine, EngineError, EngineErrorKind, ImageFacts};

/// Facts of every image, pulled where the engine does not hold it.
///
/// **Shape**: in the order given, each image once.
/// **Errors**: the first image that cannot be had (`ImageMissing`).
pub async fn ensure_images<E: Engine>(
    engine: &E,
    images: impl IntoIterator<Item = &str>,
) -> Result<IndexMap<String, ImageFacts>, EngineError> {
    let mut facts = IndexMap::new();
    for image in images {
        if facts.contains_key(image) {
            continue;
        }
        let mut found = engine.find_image(image).await?;
        if found.is_none() {
            engine.pull_image(image).await?;
            found = engine.find_image(image).await?;
        }
        let found = found.ok_or_else(|| {
            EngineError::new(
                "find image",
                image,
                EngineErrorKind::ImageMissing,
                "it was pulled and is not there",
            )
        })?;
        facts.insert(image.to_owned(), found);
    }
    Ok(facts)
}
