//! Where every image comes from: held, pulled by policy, or built.

use std::sync::Arc;
use std::time::Duration;

use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;

use super::build::{self, BuildPlan};
use super::keyring::Keyring;
use super::missing::{ImageMissing, ImagesMissing, pull_hint};
use super::progress::{ImageProgress, ProgressSink};
use crate::engine::{
    BuildRequest, Engine, EngineError, EngineErrorKind, ImageFacts, ImageOrigin, LABEL_BUILD,
    Labels, PullRequest,
};
use crate::problem::chain;
use crate::stack::{Build, PullPolicy, Service, Stack};

/// The images of a sweep.
#[derive(Debug, Clone, Default)]
pub struct PreparedImages {
    /// The stacks in the order given, each service with its image's name and content.
    pub stacks: Vec<Arc<Stack>>,
    /// Facts by the name that the stacks hold.
    pub facts: IndexMap<String, ImageFacts>,
}

/// Why a sweep has not all of its images.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Some cannot be had, whatever is tried.
    #[error(transparent)]
    Missing(#[from] ImagesMissing),
    /// The engine itself failed.
    #[error("get the images")]
    Engine(#[source] EngineError),
}

/// Gets every image of the stacks, each once.
///
/// What cannot be had is collected and told at once, before anything is built.
/// `now` is the time by which an image is old enough to be pulled again.
///
/// **Errors**: [`PrepareError::Missing`] names every image, what was said and what to do.
/// **Cancel**: a pull or build that is under way goes on in the engine.
pub async fn prepare_images<E: Engine>(
    engine: &E,
    stacks: &[Arc<Stack>],
    keyring: &Keyring,
    now: Timestamp,
    progress: ProgressSink<'_>,
) -> Result<PreparedImages, PrepareError> {
    let mut work = Work {
        engine,
        keyring,
        now,
        progress,
        facts: IndexMap::new(),
        missing: Vec::new(),
    };
    let wanted = Wanted::of(stacks);
    let mut built: Vec<Option<String>> = vec![None; wanted.builds.len()];
    let mut to_build: IndexSet<usize> = wanted
        .sources
        .iter()
        .filter_map(|((_, _), source)| match source {
            Source::Build(index) => Some(*index),
            Source::Named { .. } => None,
        })
        .collect();
    for (image, reference) in &wanted.references {
        let said = work.get(image, reference).await?;
        match (said, reference.builds.is_empty()) {
            (None, _) => {}
            (Some(_), false) => to_build.extend(&reference.builds),
            (Some(said), true) => work.lack(image, &reference.services, said),
        }
    }
    let plans = work.plan_builds(&wanted, &to_build).await?;
    work.stop_if_missing()?;
    for (index, plan) in plans {
        built[index] = work.build(&wanted.builds[index], &plan).await?;
    }
    work.stop_if_missing()?;
    Ok(work.finish(stacks, &wanted, &built))
}

/// Everything the stacks ask for, each once. Pure.
#[derive(Debug, Default)]
struct Wanted {
    references: IndexMap<String, Reference>,
    builds: Vec<BuildWant>,
    /// Where the image of each stack's service comes from.
    sources: IndexMap<(usize, String), Source>,
}

#[derive(Debug, Default)]
struct Reference {
    services: Vec<String>,
    policy: Option<PullPolicy>,
    platform: Option<String>,
    /// What is built in its place where it cannot be had.
    builds: IndexSet<usize>,
}

#[derive(Debug, PartialEq)]
struct BuildWant {
    service: String,
    build: Build,
    platform: Option<String>,
}

#[derive(Debug, Clone)]
enum Source {
    /// The image of its name; the build is done where that cannot be had.
    Named { build: Option<usize> },
    /// The build, whatever is held.
    Build(usize),
}

impl Wanted {
    fn of(stacks: &[Arc<Stack>]) -> Self {
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
        let reference = self.references.entry(service.image.clone()).or_default();
        if !reference.services.iter().any(|known| known == name) {
            reference.services.push(name.to_owned());
        }
        // With a build and no word, Compose never asks a registry.
        let policy = match (service.pull_policy, build) {
            (None, Some(_)) => PullPolicy::Never,
            (policy, _) => policy.unwrap_or_default(),
        };
        reference.policy = Some(match reference.policy {
            Some(known) if freshness(known) >= freshness(policy) => known,
            _ => policy,
        });
        if reference.platform.is_none() {
            reference.platform.clone_from(&service.platform);
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

struct Work<'a, E> {
    engine: &'a E,
    keyring: &'a Keyring,
    now: Timestamp,
    progress: ProgressSink<'a>,
    facts: IndexMap<String, ImageFacts>,
    missing: Vec<ImageMissing>,
}

impl<E: Engine> Work<'_, E> {
    /// Gets one image by its policy; what was said where it cannot be had.
    async fn get(
        &mut self,
        image: &str,
        reference: &Reference,
    ) -> Result<Option<String>, PrepareError> {
        let policy = reference.policy.unwrap_or_default();
        let held = self.find(image).await?;
        if let Some(facts) = held.filter(|facts| !self.is_due(policy, facts)) {
            self.facts.insert(image.to_owned(), facts);
            return Ok(None);
        }
        if matches!(policy, PullPolicy::Never | PullPolicy::Build) {
            return Ok(Some(format!(
                "the engine does not hold it, and the policy is `{}`",
                if policy == PullPolicy::Never {
                    "never"
                } else {
                    "build"
                }
            )));
        }
        self.pull(image, reference.platform.as_deref()).await
    }

    /// Whether an image that is held is pulled all the same.
    fn is_due(&self, policy: PullPolicy, facts: &ImageFacts) -> bool {
        match policy {
            PullPolicy::Always => true,
            PullPolicy::Never | PullPolicy::Missing | PullPolicy::Build => false,
            PullPolicy::Every(age) => {
                let tagged: Option<Timestamp> =
                    facts.tagged_at.as_deref().and_then(|at| at.parse().ok());
                // An image whose age nobody knows is not fresh.
                tagged.is_none_or(|at| {
                    let passed = self.now.as_second().saturating_sub(at.as_second());
                    u64::try_from(passed).is_ok_and(|passed| passed >= age.as_secs())
                })
            }
        }
    }

    async fn find(&self, image: &str) -> Result<Option<ImageFacts>, PrepareError> {
        self.engine
            .find_image(image)
            .await
            .map_err(PrepareError::Engine)
    }

    /// Pulls; what the registry said where that fails.
    async fn pull(
        &mut self,
        image: &str,
        platform: Option<&str>,
    ) -> Result<Option<String>, PrepareError> {
        let (credentials, trouble) = match self.keyring.find(image).await {
            Ok(credentials) => (credentials, None),
            // Many images need none: it matters only where the pull then fails.
            Err(error) => (None, Some(error.to_string())),
        };
        let request = PullRequest {
            image,
            platform,
            credentials: credentials.as_ref(),
        };
        match self.engine.pull_image(request, self.progress).await {
            Ok(()) => {}
            Err(error) if error.kind == EngineErrorKind::ImageMissing => {
                let notes = trouble
                    .iter()
                    .map(String::as_str)
                    .chain(self.keyring.problem());
                let mut said = chain(&*error.source);
                for note in notes {
                    said = format!("{said} ({note})");
                }
                return Ok(Some(said));
            }
            Err(error) => return Err(PrepareError::Engine(error)),
        }
        match self.find(image).await? {
            Some(mut facts) => {
                facts.origin = ImageOrigin::Pulled;
                self.facts.insert(image.to_owned(), facts);
                Ok(None)
            }
            None => Ok(Some("it was pulled and is not there".to_owned())),
        }
    }

    fn lack(&mut self, image: &str, services: &[String], said: String) {
        let hint = if said.contains("the policy is") {
            format!("`docker pull {image}`, or another `pull_policy`")
        } else {
            pull_hint(image, &said)
        };
        self.missing.push(ImageMissing {
            image: image.to_owned(),
            services: services.to_vec(),
            said,
            hint,
        });
    }

    fn stop_if_missing(&mut self) -> Result<(), PrepareError> {
        if self.missing.is_empty() {
            return Ok(());
        }
        Err(ImagesMissing(std::mem::take(&mut self.missing)).into())
    }

    /// Reads contexts and steps, and gets what the builds start from.
    async fn plan_builds(
        &mut self,
        wanted: &Wanted,
        to_build: &IndexSet<usize>,
    ) -> Result<Vec<(usize, BuildPlan)>, PrepareError> {
        let mut plans = Vec::new();
        for index in to_build {
            let want = &wanted.builds[*index];
            let (build, platform) = (want.build.clone(), want.platform.clone());
            let read = blocking(move || BuildPlan::read(&build, platform.as_deref())).await;
            let plan = match read {
                Ok(plan) => plan,
                Err(refused) => {
                    self.missing.push(ImageMissing {
                        image: want.words(),
                        services: vec![want.service.clone()],
                        said: refused.said,
                        hint: refused.hint,
                    });
                    continue;
                }
            };
            for base in &plan.bases {
                let known = self.missing.iter().any(|missing| missing.image == *base);
                if known || (self.facts.contains_key(base) && !plan.build.pull) {
                    continue;
                }
                let reference = Reference {
                    policy: plan.build.pull.then_some(PullPolicy::Always),
                    platform: plan.platform.clone(),
                    ..Reference::default()
                };
                if let Some(said) = self.get(base, &reference).await? {
                    self.lack(
                        base,
                        &[],
                        format!("{} starts from it: {said}", want.words()),
                    );
                }
            }
            plans.push((*index, plan));
        }
        Ok(plans)
    }

    /// Builds, or finds what was built before; the image's name.
    async fn build(
        &mut self,
        want: &BuildWant,
        plan: &BuildPlan,
    ) -> Result<Option<String>, PrepareError> {
        let words = want.words();
        let base_ids: Vec<String> = plan
            .bases
            .iter()
            .map(|base| self.facts[base].digest.clone())
            .collect();
        let keyed = plan.clone();
        let key = match blocking(move || keyed.key(&base_ids)).await {
            Ok(key) => key,
            Err(error) => {
                self.lack_build(want, error.to_string());
                return Ok(None);
            }
        };
        let tag = build::tag(&key);
        if plan.is_known_by_key()
            && let Some(mut facts) = self.find(&tag).await?
        {
            facts.origin = ImageOrigin::Built;
            self.facts.insert(tag.clone(), facts);
            return Ok(Some(tag));
        }
        let mut labels: Labels = plan.build.labels.clone();
        labels.insert(LABEL_BUILD.to_owned(), key);
        let mut credentials = Vec::new();
        for base in &plan.bases {
            // A helper's failure was told when the image was pulled, if it mattered.
            credentials.extend(self.keyring.find(base).await.ok().flatten());
        }
        let request = BuildRequest {
            words: &words,
            tag: &tag,
            build: &plan.build,
            platform: plan.platform.as_deref(),
            dockerfile: &plan.dockerfile,
            source: &plan.source,
            labels: &labels,
            credentials: &credentials,
        };
        match self.engine.build_image(request, self.progress).await {
            Ok(()) => {}
            Err(error) if error.kind == EngineErrorKind::Other => {
                self.lack_build(want, chain(&*error.source));
                return Ok(None);
            }
            Err(error) => return Err(PrepareError::Engine(error)),
        }
        let Some(mut facts) = self.find(&tag).await? else {
            self.lack_build(want, "it was built and is not there".to_owned());
            return Ok(None);
        };
        (self.progress)(ImageProgress::Built { image: &words });
        facts.origin = ImageOrigin::Built;
        self.facts.insert(tag.clone(), facts);
        Ok(Some(tag))
    }

    fn lack_build(&mut self, want: &BuildWant, said: String) {
        self.missing.push(ImageMissing {
            image: want.words(),
            services: vec![want.service.clone()],
            said,
            hint: "`docker build` of the same folder shows the whole log".to_owned(),
        });
    }

    /// The stacks with each image's name and content in it.
    fn finish(
        mut self,
        stacks: &[Arc<Stack>],
        wanted: &Wanted,
        built: &[Option<String>],
    ) -> PreparedImages {
        let mut used = IndexSet::new();
        let pinned = stacks.iter().enumerate().map(|(index, stack)| {
            let mut stack = Stack::clone(stack);
            for (name, service) in &mut stack.services {
                let source = wanted.sources.get(&(index, name.clone()));
                let tag = match source {
                    Some(Source::Build(number)) => built[*number].clone(),
                    Some(Source::Named {
                        build: Some(number),
                    }) if !self.facts.contains_key(&service.image) => built[*number].clone(),
                    _ => None,
                };
                if let Some(tag) = tag {
                    service.image = tag;
                }
                let facts = self.facts.get(&service.image);
                service.image_id = facts
                    .map(|facts| facts.digest.clone())
                    .filter(|id| !id.is_empty());
                used.insert(service.image.clone());
            }
            Arc::new(stack)
        });
        let stacks = pinned.collect();
        self.facts.retain(|image, _| used.contains(image));
        PreparedImages {
            stacks,
            facts: self.facts,
        }
    }
}

impl BuildWant {
    /// What it is called in messages.
    fn words(&self) -> String {
        if self.build.place.is_empty() {
            format!("the build of `{}`", self.service)
        } else {
            format!("{}: the build of `{}`", self.build.place, self.service)
        }
    }
}

/// Runs what waits for disks on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Tasks of this kind are never cancelled while they run; the runtime is ending.
            Err(_) => std::future::pending().await,
        },
    }
}
