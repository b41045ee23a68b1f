//! What a resolved stack asks for that no launch can do yet.
//!
//! **Invariant**: every field of the stack's model is either passed on when a
//! container, network or volume is created, or named here, before anything is.
//! Pure. Read `docker/requests.rs` next, which passes the rest on.

use super::images::build::refused_key;
use crate::stack::{Build, MountSource, PullPolicy, Service, Stack, is_image_reference};

/// Keys that are understood and cannot be launched yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Unsupported(pub Vec<String>);

/// Checks that every key of the stack can be launched.
///
/// **Errors**: all that cannot, one line each, by their Compose path.
pub fn check_stack(stack: &Stack) -> Result<(), Unsupported> {
    let mut found = Vec::new();
    for (name, service) in &stack.services {
        if !is_image_reference(&service.image) {
            let image = &service.image;
            found.push(format!(
                "services.{name}.image: `{image}` is not an image reference such as postgres:17"
            ));
        }
        let mut refuse = |key: &str, what: &str| {
            found.push(format!(
                "services.{name}.{key}: {what} is not yet supported"
            ));
        };
        check_service(service, &mut refuse);
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(Unsupported(found))
    }
}

fn check_service(service: &Service, refuse: &mut dyn FnMut(&str, &str)) {
    // A build that may not be needed is looked at when it is.
    let is_built =
        |build: &&Build| build.names_no_image || service.pull_policy == Some(PullPolicy::Build);
    if let Some(what) = service
        .build
        .as_ref()
        .filter(is_built)
        .and_then(refused_key)
    {
        let (key, what) = what.split_once(": ").unwrap_or(("", &what));
        refuse(&format!("build.{key}"), what);
    }
    if let Some(count) = service.replicas.filter(|count| *count != 1) {
        refuse("replicas", &format!("{count} replicas (allowed: 1)"));
    }
    if let Some(mode) = service
        .network_mode
        .as_deref()
        .filter(|mode| *mode != "none")
    {
        refuse("network_mode", &format!("`{mode}` (allowed: none)"));
    }
    for (key, mode) in [("ipc", &service.ipc), ("pid", &service.pid)] {
        if let Some(mode) = mode.as_deref().filter(|mode| mode.starts_with("service:")) {
            refuse(key, &format!("`{mode}`"));
        }
    }
    for mount in &service.mounts {
        if let MountSource::Content { .. } = mount.source {
            let what = format!(
                "the config or secret at `{}`, which is in no file,",
                mount.target
            );
            refuse("configs", &what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Mount;

    fn refused(change: impl FnOnce(&mut Service)) -> Vec<String> {
        let mut service = Service {
            image: "app:1".to_owned(),
            ..Service::default()
        };
        change(&mut service);
        let mut stack = Stack::default();
        stack.services.insert("app".to_owned(), service);
        check_stack(&stack)
            .err()
            .map_or_else(Vec::new, |error| error.0)
    }

    #[test]
    fn what_cannot_be_launched_is_named_before_anything_is_created() {
        let content = Mount {
            target: "/etc/c".to_owned(),
            source: MountSource::Content {
                content: "x".to_owned(),
                mode: None,
                uid: None,
                gid: None,
            },
            read_only: true,
        };
        let lines = refused(|service| {
            service.image = "app:|1|".to_owned();
            service.build = Some(Build {
                names_no_image: true,
                context: "git@host:r.git".to_owned(),
                ..Build::default()
            });
            service.replicas = Some(8);
            service.network_mode = Some("host".to_owned());
            service.ipc = Some("service:db".to_owned());
            service.pid = Some("host".to_owned());
            service.mounts.push(content);
        });
        let keys: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split(": ").next())
            .collect();
        assert_eq!(
            keys,
            [
                "services.app.image",
                "services.app.build.context",
                "services.app.replicas",
                "services.app.network_mode",
                "services.app.ipc",
                "services.app.configs",
            ]
        );
    }

    #[test]
    fn what_can_be_launched_is_not_refused() {
        let lines = refused(|service| {
            service.build = Some(Build {
                names_no_image: true,
                ..Build::default()
            });
            service.replicas = Some(1);
            service.network_mode = Some("none".to_owned());
            service.ipc = Some("host".to_owned());
        });
        assert!(lines.is_empty(), "{lines:?}");
    }
}
