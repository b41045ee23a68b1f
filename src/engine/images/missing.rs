//! All images that cannot be had, in one error.

use std::fmt;

use super::reference::registry_host;

/// An image that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageMissing {
    /// Its name, or what is built.
    pub image: String,
    /// Services that need it; empty for an image that another is built from.
    pub services: Vec<String>,
    /// What the registry, the engine or the builder said.
    pub said: String,
    /// What to do.
    pub hint: String,
    /// Whether the user's files are at fault, not the engine's host or a registry.
    pub is_input: bool,
}

/// Every image that cannot be had; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ImagesMissing(pub Vec<ImageMissing>);

impl ImagesMissing {
    /// Whether some would be missing whatever the engine and the registries did.
    pub fn is_input(&self) -> bool {
        self.0.iter().any(|missing| missing.is_input)
    }
}

impl fmt::Display for ImagesMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.len();
        let plural = if n == 1 { "" } else { "s" };
        write!(f, "{n} image{plural} cannot be had; nothing was started")?;
        for missing in &self.0 {
            write!(f, "\n  {}", missing.image)?;
            let services: Vec<String> = missing
                .services
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            match services.len() {
                0 => {}
                1 => write!(f, " (service {})", services[0])?,
                _ => write!(f, " (services {})", services.join(", "))?,
            }
            let said = missing.said.trim_end().replace('\n', "\n    ");
            write!(f, ": {said}\n    hint: {}", missing.hint)?;
        }
        Ok(())
    }
}

/// The next step after a registry's answer.
pub(super) fn pull_hint(image: &str, said: &str) -> String {
    let said = said.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let host = registry_host(image);
    if says(&["credential helper"]) {
        return "mend the helper that the Docker CLI's config.json names, or `docker login` without it".to_owned();
    }
    // Docker Hub answers so for a name that does not exist, too.
    if says(&[
        "unauthorized",
        "no basic auth",
        "denied",
        "authentication required",
        "forbidden",
    ]) {
        let login = host.map_or_else(
            || "docker login".to_owned(),
            |host| format!("docker login {host}"),
        );
        return format!("check the name, then `{login}` with an account that may read it");
    }
    if image.starts_with("nightsweep/") {
        return "make it here: compose/testbed/image.sh and compose/postgres/image.sh build ours"
            .to_owned();
    }
    if says(&["not found", "manifest unknown", "does not exist"]) {
        return format!("check name and tag: `docker pull {image}` must work");
    }
    if says(&[
        "no such host",
        "connection refused",
        "timeout",
        "unreachable",
        "dial tcp",
        "proxy",
    ]) {
        return format!(
            "the engine's host cannot reach the registry: `docker load` the image there, or name \
             one it holds; `docker pull {image}` shows when it works"
        );
    }
    format!("`docker pull {image}` must work on the engine's host")
}
