//! What the content of golden volumes depends on, spelled out. Pure.
//!
//! Every service that runs while they are prepared can shape them, be it by a request to the
//! database, so the definition of each counts. How much CPU or memory they get changes how long
//! preparing takes and not what comes of it. What differs between the cells of the sweep counts
//! for the **writers** alone (services that mount the volumes, the seeding service, and those that
//! others wait for to complete): counted for all, each cell would have a golden of its own. What
//! is left out that way is said.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use super::GoldenSpec;
use super::golden_plan::mounts_any;
use crate::engine::GoldenKey;
use crate::stack::{Condition, MountSource, Service, Stack};

/// Fields of a service that shape no content: limits, the order of starting, and what only
/// the engine and the user read. Those of the image are known by its digest.
const SHAPES_NOTHING: [&str; 34] = [
    "annotations",
    "blkio_config",
    "build",
    "cgroup",
    "cgroup_parent",
    "cpu_period",
    "cpu_quota",
    "cpu_rt_period",
    "cpu_rt_runtime",
    "cpu_shares",
    "cpus",
    "cpuset",
    "depends_on",
    "healthcheck",
    "image_id",
    "init",
    "labels",
    "mem_limit",
    "mem_reservation",
    "mem_swappiness",
    "memswap_limit",
    "oom_kill_disable",
    "oom_score_adj",
    "pids_limit",
    "pull_policy",
    "replicas",
    "security_opt",
    "shm_size",
    "stdin_open",
    "stop_grace_period",
    "stop_signal",
    "sysctls",
    "tty",
    "ulimits",
];

/// Which services fill the volumes of a sweep.
#[derive(Debug, Clone, Copy)]
pub struct Filling<'a> {
    /// The golden volumes.
    pub volumes: &'a [String],
    /// The service that seeds them.
    pub seed_service: Option<&'a str>,
}

impl Filling<'_> {
    /// Whether all of a service counts, also what differs between cells.
    fn is_writer(&self, stack: &Stack, name: &str, service: &Service) -> bool {
        let completes = || {
            stack.services.values().any(|other| {
                other.depends_on.get(name).is_some_and(|dependency| {
                    dependency.condition == Condition::ServiceCompletedSuccessfully
                })
            })
        };
        let borrows = || {
            service.volumes_from.iter().any(|from| {
                let lender = stack.services.get(&from.service);
                lender.is_some_and(|lender| mounts_any(lender, self.volumes))
            })
        };
        self.seed_service == Some(name)
            || mounts_any(service, self.volumes)
            || borrows()
            || completes()
    }

    /// Files and folders of the host that services see, each with whether a writer does.
    pub fn binds(&self, stack: &Stack) -> IndexMap<PathBuf, bool> {
        let mut binds = IndexMap::new();
        for (name, service) in &stack.services {
            for mount in &service.mounts {
                if let MountSource::Bind { source } = &mount.source {
                    *binds.entry(source.clone()).or_insert(false) |=
                        self.is_writer(stack, name, service);
                }
            }
        }
        binds
    }
}

/// Parts of services that do not count, since they differ between cells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Service, and where in its definition.
    places: BTreeSet<(String, Vec<String>)>,
    /// What every other cell is compared with, by service.
    first: IndexMap<String, Value>,
}

impl LeftOut {
    /// Compares one more cell with the first.
    pub fn compare(&mut self, stack: &Stack, filling: Filling<'_>) {
        for (name, service) in &stack.services {
            if filling.is_writer(stack, name, service) {
                continue;
            }
            let shaping = shaping(service, &|_| None);
            match self.first.get(name) {
                None => drop(self.first.insert(name.clone(), shaping)),
                Some(first) => {
                    let mut found = Vec::new();
                    differences(first, &shaping, &mut Vec::new(), &mut found);
                    let places = found.into_iter().map(|place| (name.clone(), place));
                    self.places.extend(places);
                }
            }
        }
    }

    /// As a reader finds them: `app WEB_THREADS`, `app command`.
    pub fn words(&self) -> Vec<String> {
        let word = |(service, place): &(String, Vec<String>)| match place.as_slice() {
            [field, name, ..] if field == "environment" => format!("{service} {name}"),
            [field, ..] => format!("{service} {field}"),
            [] => service.clone(),
        };
        let words: BTreeSet<String> = self.places.iter().map(word).collect();
        words.into_iter().collect()
    }

    fn take_out(&self, name: &str, shaping: &mut Value) {
        for (service, place) in &self.places {
            if service == name {
                take_out(shaping, place);
            }
        }
    }
}

/// Everything that shapes the content of golden volumes but the images' digests, as text.
///
/// `seed` is what the caller knows of the seed's files; `content_of` tells the content of a
/// file or folder that is mounted, where it counts.
pub fn definition(
    stack: &Stack,
    filling: Filling<'_>,
    seed: &Value,
    left_out: &LeftOut,
    content_of: &dyn Fn(&Path) -> Option<String>,
) -> String {
    let mut services: Vec<(&String, Value)> = stack
        .services
        .iter()
        .map(|(name, service)| {
            let mut shaping = shaping(service, content_of);
            if !filling.is_writer(stack, name, service) {
                left_out.take_out(name, &mut shaping);
            }
            (name, shaping)
        })
        .collect();
    services.sort_by(|a, b| a.0.cmp(b.0));
    let services: IndexMap<&String, Value> = services.into_iter().collect();
    json!({ "format": 2, "volumes": filling.volumes, "services": services, "seed": seed })
        .to_string()
}

/// The key of a golden that is prepared; digests by service, of all that run then.
pub(super) fn key_of_prepared(spec: &GoldenSpec, digests: &IndexMap<String, String>) -> GoldenKey {
    let mut digests: Vec<_> = digests.iter().collect();
    digests.sort();
    GoldenKey::of(&json!({ "definition": spec.definition, "images": digests }).to_string())
}

fn shaping(service: &Service, content_of: &dyn Fn(&Path) -> Option<String>) -> Value {
    let mut fields = match serde_json::to_value(service) {
        Ok(Value::Object(fields)) => fields,
        // A service is a struct of plain fields: it is always an object.
        _ => Map::new(),
    };
    fields.retain(|name, _| !SHAPES_NOTHING.contains(&name.as_str()));
    let mut contents = Map::new();
    for mount in &service.mounts {
        if let MountSource::Bind { source } = &mount.source {
            contents.insert(mount.target.clone(), content_of(source).into());
        }
    }
    fields.insert("content".to_owned(), contents.into());
    // The order of variables in the file is none of the process's.
    if let Some(Value::Object(variables)) = fields.get_mut("environment") {
        variables.sort_keys();
    }
    fields.into()
}

/// The places where two values differ, as deep as both have the same form.
fn differences(a: &Value, b: &Value, at: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let mut inside = |key: String, a: &Value, b: &Value| {
        at.push(key);
        differences(a, b, at, found);
        at.pop();
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let (a, b) = (a.get(key), b.get(key));
                // What one of them has not is no value that another one could have.
                match (a, b) {
                    (Some(a), Some(b)) => inside(key.clone(), a, b),
                    _ => inside(key.clone(), &json!(a.is_some()), &json!(b.is_some())),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                inside(index.to_string(), a, b);
            }
        }
        _ if a != b => found.push(at.clone()),
        _ => {}
    }
}

/// Takes the value at a place away; a word of a list leaves its place empty.
fn take_out(value: &mut Value, place: &[String]) {
    let Some((key, rest)) = place.split_first() else {
        *value = Value::Null;
        return;
    };
    match value {
        Value::Object(fields) if rest.is_empty() => drop(fields.shift_remove(key)),
        Value::Object(fields) => {
            if let Some(inner) = fields.get_mut(key) {
                take_out(inner, rest);
            }
        }
        Value::Array(items) => {
            let item = key
                .parse()
                .ok()
                .and_then(|index: usize| items.get_mut(index));
            if let Some(item) = item {
                take_out(item, rest);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::stack::{Dependency, Mount};
    use crate::sweep::GoldenSource;

    fn stack() -> Stack {
        let mut db = Service {
            image: "postgres:17".to_owned(),
            ..Service::default()
        };
        db.mounts.push(Mount {
            target: "/data".to_owned(),
            source: MountSource::Volume {
                source: "pgdata".to_owned(),
                nocopy: false,
            },
            read_only: false,
        });
        db.mounts.push(bind("/init.sql", "/srv/init.sql"));
        let mut app = Service::default();
        app.mounts.push(bind("/app.toml", "/srv/app.toml"));
        app.command = Some(vec!["serve".into(), "--threads=4".into()]);
        app.environment.insert("DEMO".into(), "1".into());
        app.environment.insert("WEB_THREADS".into(), "4".into());
        app.depends_on.insert(
            "migrate".to_owned(),
            Dependency {
                condition: Condition::ServiceCompletedSuccessfully,
                required: true,
            },
        );
        Stack {
            services: [
                ("app", app),
                ("db", db),
                ("migrate", Service::default()),
                ("seed", Service::default()),
            ]
            .into_iter()
            .map(|(name, service)| (name.to_owned(), service))
            .collect(),
            ..Stack::default()
        }
    }

    fn bind(target: &str, source: &str) -> Mount {
        Mount {
            target: target.to_owned(),
            source: MountSource::Bind {
                source: source.into(),
            },
            read_only: true,
        }
    }

    fn changed(change: impl FnOnce(&mut Stack)) -> Stack {
        let mut stack = stack();
        change(&mut stack);
        stack
    }

    fn threads(n: &str) -> Stack {
        changed(|stack| {
            let app = &mut stack.services["app"];
            app.environment.insert("WEB_THREADS".into(), n.into());
            app.command = Some(vec!["serve".into(), format!("--threads={n}")]);
        })
    }

    /// The definitions of the cells of one sweep, and what is left out of them.
    fn sweep(cells: &[Stack]) -> (Vec<String>, Vec<String>) {
        let volumes = ["pgdata".to_owned()];
        let filling = Filling {
            volumes: &volumes,
            seed_service: Some("seed"),
        };
        let mut left_out = LeftOut::default();
        for cell in cells {
            left_out.compare(cell, filling);
        }
        let of = |cell| {
            definition(cell, filling, &json!(null), &left_out, &|_| {
                Some("x".into())
            })
        };
        (cells.iter().map(of).collect(), left_out.words())
    }

    fn defined(change: impl FnOnce(&mut Stack)) -> String {
        sweep(&[changed(change)]).0.remove(0)
    }

    #[test]
    fn whatever_runs_while_preparing_counts_and_limits_do_not() {
        let plain = defined(|_| {});
        let same: [fn(&mut Stack); 4] = [
            |stack| stack.services["db"].cpus = Some(4.0),
            |stack| stack.services["app"].cpuset = Some("0-3".into()),
            |stack| stack.services["db"].mem_limit = Some(1 << 30),
            |stack| stack.services["app"].replicas = Some(3),
        ];
        for change in same {
            assert_eq!(defined(change), plain);
        }
        let other: [fn(&mut Stack); 8] = [
            |stack| stack.services["db"].command = Some(vec!["-c".into(), "x=1".into()]),
            |stack| stack.services["migrate"].command = Some(vec!["v2".into()]),
            |stack| stack.services["seed"].image = "seed:2".into(),
            |stack| stack.services["db"].user = Some("7".into()),
            // An app that migrates at its start writes over the network.
            |stack| stack.services["app"].environment["DEMO"] = "2".into(),
            |stack| stack.services["app"].entrypoint = Some(vec!["/migrate-and-serve".into()]),
            |stack| stack.services["app"].mounts = vec![bind("/more", "/srv/more")],
            |stack| stack.services["app"].hostname = Some("other".into()),
        ];
        for (index, change) in other.into_iter().enumerate() {
            assert_ne!(defined(change), plain, "change {index}");
        }
    }

    #[test]
    fn the_content_of_a_file_counts_whoever_mounts_it() {
        let volumes = ["pgdata".to_owned()];
        let filling = Filling {
            volumes: &volumes,
            seed_service: None,
        };
        let of = |changed: &str| {
            let content = |path: &Path| {
                let is_changed = path == Path::new(changed);
                Some(if is_changed { "new" } else { "old" }.to_owned())
            };
            let left_out = LeftOut::default();
            definition(&stack(), filling, &json!(null), &left_out, &content)
        };
        let definitions = BTreeSet::from(["", "/srv/app.toml", "/srv/init.sql"].map(of));
        assert_eq!(definitions.len(), 3);
        let binds = filling.binds(&stack());
        assert_eq!(
            binds.into_iter().collect::<Vec<_>>(),
            [
                (PathBuf::from("/srv/app.toml"), false),
                (PathBuf::from("/srv/init.sql"), true)
            ]
        );
    }

    #[test]
    fn cells_that_differ_in_what_only_uses_the_database_share_a_golden_and_it_is_said() {
        let (definitions, words) = sweep(&[threads("4"), threads("8")]);
        assert_eq!(definitions[0], definitions[1]);
        assert_eq!(words, ["app WEB_THREADS", "app command"]);
        // What is the same in all cells still counts.
        let other = |n| {
            let mut stack = threads(n);
            let app = &mut stack.services["app"];
            app.environment.insert("DEMO".into(), "2".into());
            stack
        };
        let (others, _) = sweep(&[other("4"), other("8")]);
        assert_ne!(others[0], definitions[0]);
        let (more_words, _) = sweep(&[threads("4"), threads("8"), {
            let mut stack = threads("8");
            stack.services["app"]
                .command
                .as_mut()
                .unwrap()
                .push("-v".into());
            stack
        }]);
        assert_eq!(more_words[1], more_words[2]);
        assert!(!more_words[0].contains("serve"), "{}", more_words[0]);
    }

    #[test]
    fn cells_that_differ_in_what_mounts_the_volumes_have_goldens_of_their_own() {
        let db = |n: &str| {
            changed(|stack| stack.services["db"].command = Some(vec![format!("-c x={n}")]))
        };
        let (definitions, words) = sweep(&[db("1"), db("2")]);
        assert_ne!(definitions[0], definitions[1]);
        assert!(words.is_empty(), "{words:?}");
        // A service that sees the volumes through another one writes as well.
        let borrower = |n: &str| {
            let mut stack = stack();
            let mut service = Service {
                command: Some(vec![n.to_owned()]),
                ..Service::default()
            };
            service.volumes_from.push(crate::stack::VolumesFrom {
                service: "db".to_owned(),
                read_only: false,
            });
            stack.services.insert("backup".to_owned(), service);
            stack
        };
        let (definitions, _) = sweep(&[borrower("1"), borrower("2")]);
        assert_ne!(definitions[0], definitions[1]);
    }

    #[test]
    fn a_variable_that_only_some_cells_have_is_left_out_of_all() {
        let without = changed(|stack| {
            stack.services["app"]
                .environment
                .shift_remove("WEB_THREADS");
        });
        let (definitions, words) = sweep(&[stack(), without]);
        assert_eq!(definitions[0], definitions[1]);
        assert_eq!(words, ["app WEB_THREADS"]);
    }

    #[test]
    fn another_image_behind_the_same_name_is_another_key() {
        let spec = GoldenSpec {
            cell_id: "c".to_owned(),
            stack: Arc::new(stack()),
            variables: IndexMap::new(),
            volumes: vec!["pgdata".to_owned()],
            source: GoldenSource::Prepare(None),
            definition: defined(|_| {}),
        };
        let key = |digest: &str| {
            let digests = IndexMap::from([("postgres:17".to_owned(), digest.to_owned())]);
            key_of_prepared(&spec, &digests)
        };
        assert_eq!(key("sha256:1"), key("sha256:1"));
        assert_ne!(key("sha256:1"), key("sha256:2"));
        assert_eq!(key("sha256:1").as_str().len(), 16);
    }
}
