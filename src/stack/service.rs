//! One merged service to a [`Service`]: every key is supported, changed by a
//! stated rule, or refused by name.
//!
//! Larger keys have their own modules: [`super::limits`], [`super::mounts`],
//! [`super::networks`], [`super::environment`], [`super::process`].

use std::path::Path;
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use super::assemble::Element;
use super::field::Field;
use super::file_reader::absolute;
use super::model::{Dependency, Service};
use super::node::Node;
use super::notes::Notes;
use super::resolve::Elements;
use super::variables::Variables;
use super::{
    block_io, build, dependencies, devices, environment, grants, hooks, limits, mounts, namespaces,
    networks, ports, process,
};

/// Said of everything that would heal a crash.
pub(super) const RESTART_RULE: &str =
    "not restarted: a crash during a trial must be seen, not healed";

const WINDOWS_RULE: &str = "an engine takes it on Windows only; `cpus` is the limit here";

const WINDOWS_ONLY_RULE: &str = "only an engine on Windows uses this; it has no effect here";

/// Keys that a module below reads.
const READ: &[&str] = &[
    "image",
    "build",
    "pull_policy",
    "command",
    "entrypoint",
    "environment",
    "env_file",
    "depends_on",
    "links",
    "healthcheck",
    "volumes",
    "tmpfs",
    "networks",
    "network_mode",
    "container_name",
    "cpus",
    "mem_limit",
    "mem_reservation",
    "pids_limit",
    "cpuset",
    "scale",
    "deploy",
    "user",
    "working_dir",
    "hostname",
    "shm_size",
    "ulimits",
    "sysctls",
    "extra_hosts",
    "cap_add",
    "cap_drop",
    "security_opt",
    "group_add",
    "dns",
    "dns_search",
    "dns_opt",
    "labels",
    "init",
    "read_only",
    "privileged",
    "tty",
    "stdin_open",
    "stop_signal",
    "stop_grace_period",
    "profiles",
    "platform",
    "secrets",
    "configs",
    "cgroup",
    "cpu_shares",
    "device_cgroup_rules",
    "devices",
    "domainname",
    "ipc",
    "mem_swappiness",
    "memswap_limit",
    "oom_kill_disable",
    "oom_score_adj",
    "pid",
    "runtime",
    "storage_opt",
    "userns_mode",
    "uts",
    "annotations",
    "blkio_config",
    "cgroup_parent",
    "cpu_period",
    "cpu_quota",
    "cpu_rt_period",
    "cpu_rt_runtime",
    "gpus",
    "label_file",
    "mac_address",
    "post_start",
    "pre_stop",
    "volumes_from",
];

/// Keys that may stand without a value: they are lists, maps, or clear the image's own.
const NULLABLE: &[&str] = &[
    "command",
    "entrypoint",
    "environment",
    "env_file",
    "depends_on",
    "links",
    "healthcheck",
    "volumes",
    "networks",
    "deploy",
    "labels",
    "label_file",
    "build",
];

/// Keys with a stated rule. An empty rule needs no words: nothing changes by it.
const RULED: &[(&str, &str)] = &[
    (
        "ports",
        "not published on the host: the load reaches the service on its own address",
    ),
    ("restart", RESTART_RULE),
    (
        "logging",
        "the engine's own log is kept instead, so that a failed trial can show it",
    ),
    ("cpu_count", WINDOWS_RULE),
    ("cpu_percent", WINDOWS_RULE),
    ("expose", ""),
    ("attach", ""),
    ("develop", "only for development; it has no effect here"),
    ("isolation", WINDOWS_ONLY_RULE),
    ("credential_spec", WINDOWS_ONLY_RULE),
    (
        "pull_refresh_after",
        "an image is pulled where it is missing and then stays the same for the whole sweep",
    ),
];

/// Keys that exist and cannot be served: why, and what to do instead.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "external_links",
        "leads to containers outside the stack, which no trial can launch or prove",
        "make them services of the stack, or join their network and list it in `[trials] shared`",
    ),
    (
        "models",
        "a model is served by a runner outside the engine, which no trial can launch or limit",
        "run the model's server as a service of its own",
    ),
    (
        "provider",
        "is made by a program outside the engine, which no trial can launch or limit",
        "give the service an `image` in an override, or leave it out by `services`",
    ),
    (
        "use_api_socket",
        "would hand the engine and the user's registry credentials to the service",
        "mount the engine's socket read only under `volumes` if that is meant",
    ),
];

/// What reading one service needs and finds.
#[derive(Debug)]
pub(super) struct ServiceReader<'a> {
    /// Name of the service.
    pub(super) name: &'a str,
    /// Variables of its project.
    pub(super) variables: &'a Variables<'a>,
    /// What was found.
    pub(super) notes: Notes,
    /// Networks and volumes it uses.
    pub(super) used: Used,
    elements: &'a Elements<'a>,
    shared: &'a [String],
    folder: &'a Path,
}

/// Elements of the files that a service uses.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Keys of `networks`.
    pub(super) networks: IndexSet<String>,
    /// Keys of `volumes`.
    pub(super) volumes: IndexSet<String>,
}

impl<'a> ServiceReader<'a> {
    /// A reader with the notes of putting the service together.
    pub(super) fn new(
        name: &'a str,
        variables: &'a Variables<'a>,
        elements: &'a Elements<'a>,
        shared: &'a [String],
        folder: &'a Path,
    ) -> Self {
        Self {
            name,
            variables,
            notes: Notes::default(),
            used: Used::default(),
            elements,
            shared,
            folder,
        }
    }

    /// The user's home folder, where the environment has one.
    pub(super) fn home(&self) -> Option<&'a str> {
        self.variables.environment.get("HOME").map(String::as_str)
    }

    /// Whether the user listed this text as shared.
    pub(super) fn is_shared(&self, written: &str) -> bool {
        self.shared.iter().any(|shared| shared == written)
    }

    /// Whether the user listed this path as shared, or a folder above it.
    pub(super) fn is_shared_path(&self, path: &Path) -> bool {
        self.shared.iter().any(|shared| {
            let listed = match (shared.strip_prefix("~/"), self.home()) {
                (Some(below_home), Some(home)) => Path::new(home).join(below_home),
                // A bare word is the name of a volume.
                _ if !shared.contains('/') && !shared.starts_with('.') => return false,
                _ => self.folder.join(shared),
            };
            path.starts_with(absolute(&listed))
        })
    }

    /// Marks a network as used; whether the files have it.
    pub(super) fn use_network(&mut self, name: &str) -> bool {
        let exists = name == networks::DEFAULT || self.elements.networks.contains_key(name);
        if exists {
            self.used.networks.insert(name.to_owned());
        }
        exists
    }

    /// Marks a volume as used and hands out its definition.
    pub(super) fn use_volume(&mut self, name: &str) -> Option<Arc<Node>> {
        let (node, _) = self.elements.volumes.get(name)?;
        self.used.volumes.insert(name.to_owned());
        Some(Arc::clone(node))
    }

    /// The definition of a secret or config.
    pub(super) fn grant(&self, section: &str, name: &str) -> Option<Arc<Node>> {
        let elements = match section {
            "secrets" => &self.elements.secrets,
            _ => &self.elements.configs,
        };
        elements.get(name).map(|(node, _)| Arc::clone(node))
    }

    /// Reads everything. What is wrong is in the notes.
    pub(super) fn read(&mut self, element: &Element<'_, '_>) -> Service {
        let services = Field::root("services", &element.node);
        let root = Field::child(&services, self.name, &element.node.mark, &element.node);
        self.check_all_keys(&root);
        if !is_usable_name(self.name) {
            root.problem(
                &mut self.notes,
                "the name may have letters, digits, `.`, `_` and `-` only",
            );
        }
        let depends_on: IndexMap<String, Dependency> = dependencies::read(&root, &mut self.notes);
        let (image, build) = build::read(self, &root);
        let mut service = Service {
            image,
            build,
            pull_policy: build::pull_policy(&root, &mut self.notes),
            environment: environment::read(self, &root),
            mounts: mounts::read(self, &root),
            devices: devices::read(&root, &mut self.notes),
            gpus: devices::requests(&root, &mut self.notes),
            blkio_config: block_io::read(&root, &mut self.notes),
            labels: environment::labels(self, &root),
            post_start: hooks::read(self, &root),
            depends_on,
            ..Service::default()
        };
        (service.networks, service.network_mode) = networks::read(self, &root);
        limits::read(&root, &mut service, &mut self.notes);
        process::read(&root, &mut service, &mut self.notes);
        namespaces::read(&root, &mut service, &mut self.notes);
        ports::check(&root, &mut self.notes);
        grants::read(self, &root, &mut service.mounts);
        service
    }

    /// Nothing is ignored silently: each key has its rule or is a problem.
    fn check_all_keys(&mut self, root: &Field<'_>) {
        for field in root.entries(&mut self.notes) {
            let key = field.key();
            if key.starts_with("x-") {
                continue;
            }
            if READ.contains(&key) {
                if field.node.is_null() && !NULLABLE.contains(&key) {
                    field.no_value(&mut self.notes);
                }
                continue;
            }
            if let Some((_, rule)) = RULED.iter().find(|(ruled, _)| *ruled == key) {
                let is_idle = field.node.is_null()
                    || (key == "restart" && field.node.as_text() == Some("no"))
                    || (key == "isolation" && field.node.as_text() == Some("default"));
                if !rule.is_empty() && !is_idle {
                    self.notes.rule(rule, field.to_string());
                }
            } else if let Some((_, why, hint)) = REFUSED.iter().find(|(known, ..)| *known == key) {
                let is_off = field.node.is_null() || field.node.as_text() == Some("false");
                if !is_off {
                    let message = format!("{field}: {why}");
                    let notes = &mut self.notes;
                    notes.problem_with_hint(field.key_place(), message, *hint);
                }
            } else {
                let known: Vec<&str> = READ
                    .iter()
                    .copied()
                    .chain(RULED.iter().map(|(key, _)| *key))
                    .chain(["extends"])
                    .collect();
                field.unknown(&known, &mut self.notes);
            }
        }
    }
}

/// Whether a service can have this name: it becomes part of container names and hosts.
fn is_usable_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fits)
}
