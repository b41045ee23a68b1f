//! What a resolved stack asks for that no launch can do, from its keys alone.
//!
//! **Invariant**: every field of the stack's model is either passed on when a
//! container, network or volume is created, or named here, before anything is.
//! Pure. Read `docker/requests.rs` next, which passes the rest on.

use super::docker::rehearse;
use super::images::build::refused_key;
use crate::stack::{Build, PullPolicy, Service, Stack, is_image_reference};

/// Keys that are understood and cannot be launched.
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
        check_build(name, service, &mut found);
        check_replicas(name, service, stack, &mut found);
    }
    let unsayable = rehearse(stack).into_iter();
    found.extend(unsayable.map(|(name, why)| format!("services.{name}: {why}")));
    if found.is_empty() {
        Ok(())
    } else {
        Err(Unsupported(found))
    }
}

/// What of a build no builder of the engine does.
fn check_build(name: &str, service: &Service, found: &mut Vec<String>) {
    // A build that may not be needed is looked at when it is.
    let is_built =
        |build: &&Build| build.names_no_image || service.pull_policy == Some(PullPolicy::Build);
    let what = service
        .build
        .as_ref()
        .filter(is_built)
        .and_then(refused_key);
    if let Some(what) = what {
        found.push(format!("services.{name}.build.{what}"));
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
    if service.network_mode.as_deref() == Some("host") {
        found.push(format!(
            "services.{name}.network_mode: `host` gives {count} containers the same ports (let the \
             service have one: `replicas: 1`)"
        ));
    }
    for (network, attachment) in &service.networks {
        for (key, address) in [
            ("ipv4_address", &attachment.ipv4_address),
            ("ipv6_address", &attachment.ipv6_address),
            ("mac_address", &attachment.mac_address),
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
    use crate::stack::{Attachment, Mount, MountSource};

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

    fn content(target: &str) -> Mount {
        Mount {
            target: target.to_owned(),
            source: MountSource::Content {
                content: "x".to_owned(),
                mode: None,
                uid: None,
                gid: None,
            },
            read_only: true,
        }
    }

    #[test]
    fn what_cannot_be_launched_is_named_before_anything_is_created() {
        let lines = refused(|service| {
            service.image = "app:|1|".to_owned();
            service.build = Some(Build {
                names_no_image: true,
                context: "git@host:r.git".to_owned(),
                ..Build::default()
            });
            service.read_only = true;
            service.mounts.push(content("/etc/c"));
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
                "services.app",
            ]
        );
        assert_eq!(
            lines[1],
            "services.app.build.context: `git@host:r.git` is fetched by nobody here (allowed: a \
             folder, http://, https://, git://, github.com/)"
        );
        assert_eq!(
            lines[2],
            "services.app: the config or secret at `/etc/c` has its content in the Compose file, \
             and the root file system is read only (`read_only: true`)"
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
        for (key, mode) in [
            ("network_mode", "none"),
            ("network_mode", "host"),
            ("network_mode", "bridge"),
            ("network_mode", "service:app"),
            ("ipc", "host"),
            ("ipc", "service:app"),
            ("pid", "service:app"),
        ] {
            let lines = refused(|service| {
                service.build = Some(Build::default());
                service.replicas = Some(1);
                service.mounts.push(content("/etc/c"));
                let mode = Some(mode.to_owned());
                match key {
                    "network_mode" => service.network_mode = mode,
                    "ipc" => service.ipc = mode,
                    _ => service.pid = mode,
                }
            });
            assert!(lines.is_empty(), "{key}: {mode}: {lines:?}");
        }
    }

    #[test]
    fn an_empty_command_is_found_before_the_launch() {
        let lines = refused(|service| service.command = Some(Vec::new()));
        assert_eq!(
            lines,
            [
                "services.app: `command` is empty and there is no `entrypoint`: the engine cannot \
              express it, give the command to run"
            ]
        );
    }

    #[test]
    fn secrets_reach_read_only_services_and_files_under_memory_are_refused() {
        let tmpfs = |target: &str| Mount {
            target: target.to_owned(),
            source: MountSource::Tmpfs {
                size: None,
                mode: None,
                options: Vec::new(),
            },
            read_only: false,
        };
        let lines = refused(|service| {
            service.read_only = true;
            service.mounts = vec![tmpfs("/run"), content("/run/secrets/key")];
        });
        assert!(lines.is_empty(), "{lines:?}");
        for (mount, why) in [
            (
                tmpfs("/etc"),
                "a tmpfs that is empty at the start covers it",
            ),
            (
                Mount {
                    target: "/etc".to_owned(),
                    source: MountSource::Bind {
                        source: "/srv".into(),
                    },
                    read_only: false,
                },
                "it would be written into a folder of this host",
            ),
            (
                Mount {
                    target: "/etc".to_owned(),
                    source: MountSource::Anonymous,
                    read_only: true,
                },
                "a read-only volume covers it",
            ),
        ] {
            let lines = refused(|service| service.mounts = vec![mount, content("/etc/c")]);
            assert!(lines[0].ends_with(why), "{lines:?}");
        }
    }
}
