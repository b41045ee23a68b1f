//! Everything the stacks of a sweep ask for, each once. Pure.
//!
//! A name alone is no image: one name may be asked for on two platforms, and what
//! the engine holds under it changes. Read `prepare.rs` next.

use std::sync::Arc;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};

use crate::stack::{Build, PullPolicy, Service, Stack};

/// An image's name and the platform that is asked for.
pub(super) type ImageKey = (String, Option<String>);

/// What is asked for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) references: IndexMap<ImageKey, Reference>,
    pub(super) builds: Vec<BuildWant>,
    /// Where the image of each stack's service comes from.
    pub(super) sources: IndexMap<(usize, String), Source>,
}

/// An image that is asked for by its name.
#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) services: Vec<String>,
    pub(super) policy: Option<PullPolicy>,
    /// The service whose policy that is.
    pub(super) policy_of: String,
    /// Services that want it never to be pulled.
    pub(super) never: Vec<String>,
    /// What is built in its place where it cannot be had.
    pub(super) builds: IndexSet<usize>,
}

/// An image that is built.
#[derive(Debug, PartialEq)]
pub(super) struct BuildWant {
    pub(super) service: String,
    pub(super) build: Build,
    pub(super) platform: Option<String>,
}

/// Where a service's image comes from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The image of its name; the build is done where that cannot be had.
    Named { build: Option<usize> },
    /// The build, whatever is held.
    Build(usize),
}

impl Wanted {
    pub(super) fn of(stacks: &[Arc<Stack>]) -> Self {
        let mut wanted = Self::default();
        // A name whose builds differ between cells cannot be the name of one image.
        let mut builds_of: IndexMap<&str, IndexSet<usize>> = IndexMap::new();
        let mut build_in: IndexMap<(usize, &str), (usize, bool)> = IndexMap::new();
        for (index, stack) in stacks.iter().enumerate() {
            for (name, service) in &stack.services {
                let Some(build) = &service.build else {
                    continue;
                };
                let number = wanted.build_number(name, service, build);
                let is_forced =
                    build.names_no_image || service.pull_policy == Some(PullPolicy::Build);
                builds_of.entry(&service.image).or_default().insert(number);
                let entry = build_in
                    .entry((index, &service.image))
                    .or_insert((number, false));
                entry.1 |= is_forced;
            }
        }
        for (index, stack) in stacks.iter().enumerate() {
            for (name, service) in &stack.services {
                let image = service.image.as_str();
                // A service that names what another one builds means the same image.
                let source = match build_in.get(&(index, image)) {
                    Some((number, is_forced)) if *is_forced || builds_of[image].len() > 1 => {
                        let own = service.build.as_ref();
                        let own = own.map(|build| wanted.build_number(name, service, build));
                        Source::Build(own.unwrap_or(*number))
                    }
                    found => Source::Named {
                        build: found.map(|(number, _)| *number),
                    },
                };
                if let Source::Named { build } = &source {
                    wanted.reference(name, service, *build);
                }
                wanted.sources.insert((index, name.clone()), source);
            }
        }
        wanted
    }

    /// The builds that are done whatever is held.
    pub(super) fn forced_builds(&self) -> IndexSet<usize> {
        let numbers = self.sources.values().filter_map(|source| match source {
            Source::Build(index) => Some(*index),
            Source::Named { .. } => None,
        });
        numbers.collect()
    }

    fn build_number(&mut self, name: &str, service: &Service, build: &Build) -> usize {
        let is_same = |want: &BuildWant| want.build == *build && want.platform == service.platform;
        if let Some(number) = self.builds.iter().position(is_same) {
            return number;
        }
        self.builds.push(BuildWant {
            service: name.to_owned(),
            build: build.clone(),
            platform: service.platform.clone(),
        });
        self.builds.len() - 1
    }

    fn reference(&mut self, name: &str, service: &Service, build: Option<usize>) {
        let key = (service.image.clone(), service.platform.clone());
        let reference = self.references.entry(key).or_default();
        if !reference.services.iter().any(|known| known == name) {
            reference.services.push(name.to_owned());
        }
        // With a build and no word, Compose never asks a registry.
        let policy = match (service.pull_policy, build) {
            (None, Some(_)) => PullPolicy::Never,
            (policy, _) => policy.unwrap_or_default(),
        };
        if service.pull_policy == Some(PullPolicy::Never) {
            reference.never.push(name.to_owned());
        }
        let is_fresher = |known| freshness(policy) > freshness(known);
        if reference.policy.is_none_or(is_fresher) {
            reference.policy = Some(policy);
            name.clone_into(&mut reference.policy_of);
        }
        reference.builds.extend(build);
    }
}

/// Which of two policies for one image asks for more.
fn freshness(policy: PullPolicy) -> (u8, std::cmp::Reverse<Duration>) {
    let rank = match policy {
        PullPolicy::Build | PullPolicy::Never => 0,
        PullPolicy::Missing => 1,
        PullPolicy::Every(age) => return (2, std::cmp::Reverse(age)),
        PullPolicy::Always => 3,
    };
    (rank, std::cmp::Reverse(Duration::ZERO))
}

impl BuildWant {
    /// What it is called in messages.
    pub(super) fn words(&self) -> String {
        if self.build.place.is_empty() {
            format!("the build of `{}`", self.service)
        } else {
            format!("{}: the build of `{}`", self.build.place, self.service)
        }
    }
}
