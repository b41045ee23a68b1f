//! What a resolved stack asks for that no launch can do yet.
//!
//! **Invariant**: every field of the stack's model is either passed on when a
//! container, network or volume is created, or named here, before anything is.
//! Pure. Read `docker/requests.rs` next, which passes the rest on.

use crate::stack::{MountSource, Service, Stack, is_image_reference};

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
        check_replicas(name, service, stack, &mut found);
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(Unsupported(found))
    }
}

fn check_service(service: &Service, refuse: &mut dyn FnMut(&str, &str)) {
    if service
        .build
        .as_ref()
        .is_some_and(|build| build.names_no_image)
    {
        refuse(
            "build",
            "building an image (build it first, and name it with `image:` here or in an override)",
        );
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

/// What cannot be had by several containers of one service, as under Compose.
fn check_replicas(name: &str, service: &Service, stack: &Stack, found: &mut Vec<String>) {
    let count = service.replicas.unwrap_or(1);
    if count == 0 {
        found.push(format!(
            "services.{name}.replicas: a service without a container cannot be launched"
        ));
    }
    for (key, mode) in sharing(service) {
        let other = mode.strip_prefix("service:").unwrap_or_default();
        let of_other = stack
            .services
            .get(other)
            .map_or(1, |other| other.replicas.unwrap_or(1));
        if count > 1 || of_other > 1 {
            let (who, n) = if count > 1 {
                (name, count)
            } else {
                (other, of_other)
            };
            found.push(format!(
                "services.{name}.{key}: `{mode}` shares with one container, and `{who}` has {n} \
                 (let both have one: `replicas: 1`)"
            ));
        }
    }
    if count < 2 {
        return;
    }
    for (network, attachment) in &service.networks {
        for (key, address) in [
            ("ipv4_address", &attachment.ipv4_address),
            ("ipv6_address", &attachment.ipv6_address),
        ] {
            if let Some(address) = address {
                found.push(format!(
                    "services.{name}.networks.{network}.{key}: `{address}` is one address for \
                     {count} containers (leave it out, or let the service have one: `replicas: 1`)"
                ));
            }
        }
    }
}

/// What of another service's container this one shares.
fn sharing(service: &Service) -> impl Iterator<Item = (&'static str, &str)> {
    [
        ("network_mode", &service.network_mode),
        ("ipc", &service.ipc),
        ("pid", &service.pid),
    ]
    .into_iter()
    .filter_map(|(key, mode)| Some((key, mode.as_deref()?)))
    .filter(|(_, mode)| mode.starts_with("service:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Attachment, Build, Mount};

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
                ..Build::default()
            });
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
                "services.app.build",
                "services.app.network_mode",
                "services.app.ipc",
                "services.app.configs",
            ]
        );
    }

    #[test]
    fn one_address_or_shared_space_is_not_for_several_containers() {
        let app = |replicas| Service {
            image: "app:1".to_owned(),
            replicas: Some(replicas),
            ..Service::default()
        };
        let mut fixed = app(3);
        let attachment = Attachment {
            ipv4_address: Some("10.9.0.7".to_owned()),
            ..Attachment::default()
        };
        fixed.networks.insert("back".to_owned(), attachment);
        let beside = Service {
            pid: Some("service:fixed".to_owned()),
            ..app(1)
        };
        let mut stack = Stack::default();
        stack.services.insert("fixed".to_owned(), fixed);
        stack.services.insert("beside".to_owned(), beside);
        stack.services.insert("none".to_owned(), app(0));
        let found = check_stack(&stack).unwrap_err().0;
        for line in [
            "services.fixed.networks.back.ipv4_address: `10.9.0.7` is one address for 3 containers",
            "services.beside.pid: `service:fixed` shares with one container, and `fixed` has 3",
            "services.none.replicas: a service without a container cannot be launched",
        ] {
            assert!(
                found.iter().any(|one| one.starts_with(line)),
                "{line} not in {found:#?}"
            );
        }
        stack.services["fixed"].replicas = None;
        let found = check_stack(&stack).unwrap_err().0;
        assert!(
            !found.iter().any(|line| line.contains("one address")),
            "{found:#?}"
        );
    }

    #[test]
    fn what_can_be_launched_is_not_refused() {
        let lines = refused(|service| {
            service.build = Some(Build::default());
            service.replicas = Some(8);
            service.network_mode = Some("none".to_owned());
            service.ipc = Some("host".to_owned());
        });
        assert!(lines.is_empty(), "{lines:?}");
    }
}
