//! Names of images: which registry holds them. Pure.

/// Key of Docker Hub's credentials: its address of old, which every tool keeps.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// The key under which the Docker CLI keeps the credentials for an image's registry.
pub(super) fn registry_key(image: &str) -> &str {
    match registry_host(image) {
        None | Some("docker.io" | "index.docker.io") => HUB_KEY,
        Some(host) => host,
    }
}

/// The registry as one types it after `docker login`; `None` is Docker Hub.
pub(super) fn registry_host(image: &str) -> Option<&str> {
    let (first, _) = image.split_once('/')?;
    let is_host = first == "localhost"
        || first.contains(['.', ':'])
        || first.chars().any(|c| c.is_ascii_uppercase());
    is_host.then_some(first)
}

/// The host of an address that may have a scheme and a path: how stored keys are compared.
pub(super) fn host_of(address: &str) -> &str {
    let bare = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"))
        .unwrap_or(address);
    bare.split('/').next().unwrap_or(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_the_first_part_where_that_looks_like_a_host() {
        for (image, key) in [
            ("postgres:17", HUB_KEY),
            ("library/postgres", HUB_KEY),
            ("docker.io/library/postgres", HUB_KEY),
            ("index.docker.io/x/y", HUB_KEY),
            ("ghcr.io/a/b:1", "ghcr.io"),
            ("127.0.0.1:5000/app", "127.0.0.1:5000"),
            ("localhost/app", "localhost"),
            ("Host/app", "Host"),
        ] {
            assert_eq!(registry_key(image), key, "{image}");
        }
        assert_eq!(host_of("https://ghcr.io/v1/"), "ghcr.io");
        assert_eq!(host_of("ghcr.io"), "ghcr.io");
    }
}
