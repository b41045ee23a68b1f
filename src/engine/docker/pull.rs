//! Pulling an image, its progress added up over the layers.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use bollard::Docker;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptions;
use futures_util::StreamExt;

use super::DockerEngine;
use super::connection::{PULL_LIMIT, call};
use crate::engine::{
    Credentials, EngineError, EngineErrorKind, ImageProgress, ProgressSink, PullRequest,
};

impl DockerEngine {
    /// Pulls an image; whatever the registry said against it is `ImageMissing`.
    pub(super) async fn pull(
        &self,
        request: PullRequest<'_>,
        progress: ProgressSink<'_>,
    ) -> Result<(), EngineError> {
        let image = request.image;
        let options = CreateImageOptions {
            from_image: Some(with_tag(image)),
            platform: request.platform.unwrap_or_default().to_owned(),
            ..CreateImageOptions::default()
        };
        let mut layers = Layers::default();
        let docker = match request.credentials {
            Some(credentials) => with_credentials(&self.docker, credentials),
            None => self.docker.clone(),
        };
        // A registry that is slow to begin is no engine that hangs.
        let docker = docker.with_timeout(PULL_LIMIT);
        let pull = async {
            let mut steps = Box::pin(docker.create_image(Some(options), None, None));
            // A failure may come in the middle of an answer that began well.
            while let Some(step) = steps.next().await {
                let step = step?;
                if layers.take(&step) {
                    progress(ImageProgress::Pulling {
                        image,
                        done_bytes: layers.done_bytes(),
                        total_bytes: layers.total_bytes(),
                    });
                }
            }
            Ok(())
        };
        call("pull image", image, PULL_LIMIT, pull)
            .await
            .map_err(|error| match error.kind {
                // Whatever the registry said, what it means here is one thing.
                EngineErrorKind::NotFound | EngineErrorKind::Other | EngineErrorKind::Denied => {
                    EngineError::new(
                        "pull image",
                        image,
                        EngineErrorKind::ImageMissing,
                        error.source,
                    )
                }
                _ => error,
            })?;
        progress(ImageProgress::Pulled {
            image,
            is_new: !layers.is_up_to_date,
            fetched_bytes: layers.done_bytes(),
        });
        Ok(())
    }
}

/// The layers of an image on their way. Pure.
#[derive(Debug, Default)]
struct Layers {
    /// Done and total by layer. **Units**: bytes.
    by_id: HashMap<String, (u64, u64)>,
    /// Whether the engine said that there was nothing to do.
    is_up_to_date: bool,
}

impl Layers {
    /// Takes a step in; whether it moved anything.
    fn take(&mut self, step: &CreateImageInfo) -> bool {
        let Some(id) = &step.id else {
            let said = step.status.as_deref().unwrap_or_default();
            self.is_up_to_date |= said.starts_with("Status: Image is up to date");
            return false;
        };
        let detail = step.progress_detail.as_ref();
        let number = |value: Option<i64>| value.and_then(|n| u64::try_from(n).ok());
        let current = detail.and_then(|detail| number(detail.current));
        let total = detail.and_then(|detail| number(detail.total));
        match step.status.as_deref() {
            Some("Downloading") => {
                let layer = self.by_id.entry(id.clone()).or_default();
                layer.0 = current.unwrap_or(layer.0);
                layer.1 = total.unwrap_or(layer.1).max(layer.0);
                true
            }
            Some("Download complete") => {
                let layer = self.by_id.entry(id.clone()).or_default();
                layer.0 = layer.1;
                true
            }
            // Unpacking counts again from 0, and is no more on its way.
            _ => false,
        }
    }

    fn done_bytes(&self) -> u64 {
        self.by_id.values().map(|(done, _)| done).sum()
    }

    fn total_bytes(&self) -> u64 {
        self.by_id.values().map(|(_, total)| total).sum()
    }
}

/// What the engine passes on to the registry.
pub(super) fn credentials_json(credentials: &Credentials) -> serde_json::Value {
    serde_json::json!({
        "username": credentials.username,
        "password": credentials.password,
        "identitytoken": credentials.identity_token,
        "serveraddress": credentials.server,
    })
}

/// Credentials as a header carries them.
///
/// The client library writes them in plain base64, and the engine reads the kind
/// for addresses: some passwords would be dropped without a word.
pub(super) fn encoded(json: &serde_json::Value) -> String {
    URL_SAFE.encode(json.to_string())
}

fn with_credentials(docker: &Docker, credentials: &Credentials) -> Docker {
    let value = encoded(&credentials_json(credentials));
    docker.clone().with_request_modifier(move |mut request| {
        // Base64 is always a valid header.
        if let Ok(value) = value.parse() {
            request.headers_mut().insert("X-Registry-Auth", value);
        }
        request
    })
}

/// An image without a tag means `latest`; without one the API would pull every tag there is.
fn with_tag(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    if name.contains(':') || name.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_added_up_from_recorded_answers() {
        let steps = [
            r#"{"status":"Pulling from app","id":"1"}"#,
            r#"{"status":"Pulling fs layer","progressDetail":{},"id":"aa"}"#,
            r#"{"status":"Downloading","progressDetail":{"current":10,"total":100},"id":"aa"}"#,
            r#"{"status":"Downloading","progressDetail":{"current":5},"id":"bb"}"#,
            r#"{"status":"Verifying Checksum","progressDetail":{},"id":"aa"}"#,
            r#"{"status":"Download complete","progressDetail":{},"id":"aa"}"#,
            r#"{"status":"Extracting","progressDetail":{"current":1,"total":100},"id":"aa"}"#,
            r#"{"status":"Already exists","progressDetail":{},"id":"cc"}"#,
            r#"{"status":"Digest: sha256:0"}"#,
        ];
        let mut layers = Layers::default();
        let seen: Vec<_> = steps
            .iter()
            .filter(|step| layers.take(&serde_json::from_str(step).unwrap()))
            .map(|_| ())
            .collect();
        assert_eq!(seen.len(), 3);
        assert_eq!((layers.done_bytes(), layers.total_bytes()), (105, 105));
    }

    #[test]
    fn a_name_without_a_tag_means_latest() {
        for (image, full) in [
            ("app", "app:latest"),
            ("app:1", "app:1"),
            ("host:5000/app", "host:5000/app:latest"),
            ("app@sha256:00", "app@sha256:00"),
        ] {
            assert_eq!(with_tag(image), full);
        }
    }
}
