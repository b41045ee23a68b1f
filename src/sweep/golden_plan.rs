//! What a sweep is told of golden volumes, and what their content depends on. Pure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::TargetSpec;
use crate::engine::{CloneWay, GoldenKey};
use crate::load::Workload;
use crate::stack::{Condition, MountSource, Service, Stack};

/// What trials find in the stack's volumes.
#[derive(Debug, Clone, Default)]
pub enum StatePlan {
    /// New ones for every trial.
    #[default]
    Fresh,
    /// The same ones for the whole run.
    Keep,
    /// Clones of golden ones.
    Golden(GoldenPlan),
}

impl StatePlan {
    /// As rows spell it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Keep => "keep",
            Self::Golden(_) => "golden",
        }
    }
}

/// The golden volumes of a sweep.
#[derive(Debug, Clone)]
pub struct GoldenPlan {
    /// How trials get their own.
    pub way: CloneWay,
    /// One for each definition of what fills them; most often one. **Shape**: at least one.
    pub specs: Vec<GoldenSpec>,
}

/// One golden: what it is made from.
#[derive(Debug, Clone)]
pub struct GoldenSpec {
    /// The first cell that uses it; its values prepare it.
    pub cell_id: String,
    /// What is launched to prepare it, seeding service included.
    pub stack: Arc<Stack>,
    /// What the seeding workload may name.
    pub variables: IndexMap<String, String>,
    /// Named volumes of the stack.
    pub volumes: Vec<String>,
    /// Where the content comes from.
    pub source: GoldenSource,
    /// Everything that shapes the content but the images' digests, see [`definition`].
    pub definition: String,
}

/// Where golden content comes from.
#[derive(Debug, Clone)]
pub enum GoldenSource {
    /// The stack, run once and seeded.
    Prepare(Option<SeedSpec>),
    /// A volume of the engine.
    Volume(String),
    /// A folder of the engine's host.
    Folder(PathBuf),
}

impl GoldenSource {
    /// As matrix files spell it.
    pub fn words(&self) -> String {
        match self {
            Self::Prepare(_) => "prepare".to_owned(),
            Self::Volume(name) => format!("volume:{name}"),
            Self::Folder(path) => format!("dir:{}", path.display()),
        }
    }
}

/// What fills golden volumes while the stack runs.
#[derive(Debug, Clone)]
pub struct SeedSpec {
    /// A service that runs to its end.
    pub service: Option<String>,
    /// Requests, every one of which must succeed.
    pub workload: Option<SeedLoad>,
    /// Longest time of each.
    pub timeout: Duration,
}

/// Seeding by requests.
#[derive(Debug, Clone)]
pub struct SeedLoad {
    /// What is sent.
    pub workload: Arc<Workload>,
    /// Where to; `None` is the load's target.
    pub target: Option<TargetSpec>,
    /// Users that send at once.
    pub users: u32,
    /// Journeys of all users together.
    pub journeys: u64,
}

/// Everything that shapes the content of golden volumes but the images' digests, as text.
///
/// That is what defines the services that write: those that mount the volumes, the seeding
/// service, and services that others wait for to complete. How much CPU or memory
/// they get changes how long preparing takes and not what comes of it, so cells that differ
/// in such limits alone share one golden. `seed` is what the caller knows of the seed's files;
/// `content_of` tells the content of a file or folder that is mounted, where it can.
pub fn definition(
    stack: &Stack,
    volumes: &[String],
    seed_service: Option<&str>,
    seed: &Value,
    content_of: &dyn Fn(&Path) -> Option<String>,
) -> String {
    let completes = |name: &str| {
        stack.services.values().any(|other| {
            other.depends_on.get(name).is_some_and(|dependency| {
                dependency.condition == Condition::ServiceCompletedSuccessfully
            })
        })
    };
    let mut writers: Vec<(&String, Value)> = stack
        .services
        .iter()
        .filter(|(name, service)| {
            mounts_any(service, volumes) || seed_service == Some(name) || completes(name)
        })
        .map(|(name, service)| (name, shaping(service, content_of)))
        .collect();
    writers.sort_by(|a, b| a.0.cmp(b.0));
    let writers: IndexMap<&String, Value> = writers.into_iter().collect();
    json!({ "format": 1, "volumes": volumes, "services": writers, "seed": seed }).to_string()
}

/// The key of a golden that is prepared; digests by service, of all that run then.
pub(super) fn key_of_prepared(spec: &GoldenSpec, digests: &IndexMap<String, String>) -> GoldenKey {
    let mut digests: Vec<_> = digests.iter().collect();
    digests.sort();
    GoldenKey::of(&json!({ "definition": spec.definition, "images": digests }).to_string())
}

/// Whether a service can write to any of the volumes.
pub(super) fn mounts_any(service: &Service, volumes: &[String]) -> bool {
    service.mounts.iter().any(|mount| {
        !mount.read_only
            && matches!(&mount.source, MountSource::Volume { source, .. } if volumes.contains(source))
    })
}

fn shaping(service: &Service, content_of: &dyn Fn(&Path) -> Option<String>) -> Value {
    let binds: IndexMap<&String, Option<String>> = service
        .mounts
        .iter()
        .filter_map(|mount| match &mount.source {
            MountSource::Bind { source } => Some((&mount.target, content_of(source))),
            _ => None,
        })
        .collect();
    json!({
        "image": service.image,
        "command": service.command,
        "entrypoint": service.entrypoint,
        "environment": service.environment,
        "user": service.user,
        "working_dir": service.working_dir,
        "mounts": service.mounts,
        "content": binds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Dependency, Mount};

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
        db.mounts.push(Mount {
            target: "/init.sql".to_owned(),
            source: MountSource::Bind {
                source: "/srv/init.sql".into(),
            },
            read_only: true,
        });
        let migrate = Service::default();
        let mut app = Service::default();
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
                ("migrate", migrate),
                ("seed", Service::default()),
            ]
            .into_iter()
            .map(|(name, service)| (name.to_owned(), service))
            .collect(),
            ..Stack::default()
        }
    }

    fn defined(change: impl FnOnce(&mut Stack)) -> String {
        let mut stack = stack();
        change(&mut stack);
        definition(
            &stack,
            &["pgdata".to_owned()],
            Some("seed"),
            &json!(null),
            &|_| Some("content".to_owned()),
        )
    }

    #[test]
    fn what_writes_counts_and_what_only_limits_does_not() {
        let plain = defined(|_| {});
        let same: [fn(&mut Stack); 3] = [
            |stack| stack.services["db"].cpus = Some(4.0),
            |stack| stack.services["db"].mem_limit = Some(1 << 30),
            |stack| {
                let threads = ("WEB_THREADS".to_owned(), "8".to_owned());
                stack.services["app"].environment.extend([threads]);
            },
        ];
        for change in same {
            assert_eq!(defined(change), plain);
        }
        let other: [fn(&mut Stack); 4] = [
            |stack| stack.services["db"].command = Some(vec!["-c".into(), "x=1".into()]),
            |stack| stack.services["migrate"].command = Some(vec!["v2".into()]),
            |stack| stack.services["seed"].image = "seed:2".into(),
            |stack| stack.services["db"].user = Some("7".into()),
        ];
        for change in other {
            assert_ne!(defined(change), plain);
        }
        let other_file = definition(
            &stack(),
            &["pgdata".to_owned()],
            Some("seed"),
            &json!(null),
            &|_| Some("other".to_owned()),
        );
        assert_ne!(other_file, plain, "a mounted script shapes the content too");
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
