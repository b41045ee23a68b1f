//! Where every image comes from: held, pulled by policy, or built.
//!
//! `wanted.rs` says what is asked for; here it is got, each image once.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use jiff::Timestamp;
use tokio::time::Instant;

use super::build::{self, BuildPlan, refused_key};
use super::keyring::{Credentials, Keyring};
use super::missing::{ImageMissing, ImagesMissing, pull_hint};
use super::platform::fits;
use super::progress::{ImageProgress, ProgressSink};
use super::wanted::{BuildWant, ImageKey, Reference, Source, Wanted};
use crate::engine::{
    BuildRequest, Engine, EngineError, EngineErrorKind, ImageFacts, ImageOrigin, LABEL_BUILD,
    Labels, PullRequest,
};
use crate::problem::chain;
use crate::stack::{PullPolicy, Stack};

/// The images of a sweep.
#[derive(Debug, Clone, Default)]
pub struct PreparedImages {
    /// The stacks in the order given, each service with its image's name and content.
    pub stacks: Vec<Arc<Stack>>,
    /// Facts by the name that the stacks hold; where one name is used on two platforms,
    /// the second one's platform stands behind it.
    pub facts: IndexMap<String, ImageFacts>,
    /// What a reader should know, in words.
    pub warnings: Vec<String>,
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
        warnings: Vec::new(),
    };
    let wanted = Wanted::of(stacks);
    let mut built: Vec<Option<String>> = vec![None; wanted.builds.len()];
    let mut to_build = wanted.forced_builds();
    for (key, reference) in &wanted.references {
        let said = work.get(key, reference.policy).await?;
        match (said, reference.builds.is_empty()) {
            (None, _) => work.warn_of_never(key, reference),
            (Some(_), false) => to_build.extend(&reference.builds),
            (Some(said), true) => work.lack(key, &reference.services, said),
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

/// What is wrong with the builds that are done whatever is held, as far as the files say.
///
/// One line each, with its hint below. Blocking: it lists the folders of the contexts.
/// What [`crate::engine::check_stack`] refuses by its key is not said again.
pub fn check_builds(stacks: &[Arc<Stack>]) -> Vec<String> {
    let wanted = Wanted::of(stacks);
    let builds = wanted.forced_builds();
    let wants = builds.iter().map(|index| &wanted.builds[*index]);
    wants
        .filter(|want| refused_key(&want.build).is_none())
        .filter_map(|want| {
            let refused = BuildPlan::read(&want.build, want.platform.as_deref()).err()?;
            let (said, hint) = (refused.said, refused.hint);
            Some(format!("{}: {said}\n  hint: {hint}", want.words()))
        })
        .collect()
}

struct Work<'a, E> {
    engine: &'a E,
    keyring: &'a Keyring,
    now: Timestamp,
    progress: ProgressSink<'a>,
    facts: IndexMap<ImageKey, ImageFacts>,
    missing: Vec<ImageMissing>,
    warnings: Vec<String>,
}

impl<E: Engine> Work<'_, E> {
    /// Gets one image by its policy; what was said where it cannot be had.
    async fn get(
        &mut self,
        key: &ImageKey,
        policy: Option<PullPolicy>,
    ) -> Result<Option<String>, PrepareError> {
        let (image, platform) = key;
        let policy = policy.unwrap_or_default();
        let mut other_platform = None;
        if let Some(facts) = self.find(image).await? {
            if !fits(platform.as_deref(), &facts.platform) {
                other_platform = Some(facts.platform);
            } else if !self.is_due(policy, &facts) {
                self.facts.insert(key.clone(), facts);
                return Ok(None);
            }
        }
        if matches!(policy, PullPolicy::Never | PullPolicy::Build) {
            let policy = match policy {
                PullPolicy::Never => "never",
                _ => "build",
            };
            let held = match (other_platform, platform) {
                (Some(held), Some(asked)) => {
                    format!("the engine holds it for {held}, and {asked} is asked for")
                }
                _ => "the engine does not hold it".to_owned(),
            };
            return Ok(Some(format!("{held}, and the policy is `{policy}`")));
        }
        self.pull(key).await
    }

    /// Says that an image was pulled though a service wants it never to be.
    fn warn_of_never(&mut self, key: &ImageKey, reference: &Reference) {
        let is_pulled = self.facts[key].origin == ImageOrigin::Pulled;
        if let (true, Some(never)) = (is_pulled, reference.never.first()) {
            self.warnings.push(format!(
                "`{}` was pulled, as `{}` asks for, though `{never}` has `pull_policy: never`: both \
                 run the same image",
                key.0, reference.policy_of
            ));
        }
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
    async fn pull(&mut self, key: &ImageKey) -> Result<Option<String>, PrepareError> {
        let (image, platform) = (key.0.as_str(), key.1.as_deref());
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
            Some(facts) if !fits(platform, &facts.platform) => Ok(Some(format!(
                "it was pulled for {}, and is for {}",
                platform.unwrap_or_default(),
                facts.platform
            ))),
            Some(mut facts) => {
                facts.origin = ImageOrigin::Pulled;
                self.facts.insert(key.clone(), facts);
                Ok(None)
            }
            None => Ok(Some("it was pulled and is not there".to_owned())),
        }
    }

    fn lack(&mut self, key: &ImageKey, services: &[String], said: String) {
        let (image, platform) = key;
        let hint = if said.contains("the policy is") {
            let platform = platform.as_deref();
            let option = platform.map_or_else(String::new, |p| format!("--platform {p} "));
            format!("`docker pull {option}{image}`, or another `pull_policy`")
        } else if let (Some(platform), true) = (platform, said.starts_with("it was pulled for")) {
            format!("leave `platform` out, or name an image that exists for {platform}")
        } else {
            pull_hint(image, &said)
        };
        self.missing.push(ImageMissing {
            image: image.clone(),
            services: services.to_vec(),
            said,
            hint,
            is_input: false,
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
                        is_input: true,
                    });
                    continue;
                }
            };
            for base in &plan.bases {
                let known = self.missing.iter().any(|missing| missing.image == *base);
                let key = (base.clone(), plan.platform.clone());
                if known || (self.facts.contains_key(&key) && !plan.build.pull) {
                    continue;
                }
                let policy = plan.build.pull.then_some(PullPolicy::Always);
                if let Some(said) = self.get(&key, policy).await? {
                    self.lack(
                        &key,
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
            .map(|base| &self.facts[&(base.clone(), plan.platform.clone())])
            .map(|facts| facts.digest.clone())
            .collect();
        let keyed = plan.clone();
        let key = match blocking(move || keyed.key(&base_ids)).await {
            Ok(key) => key,
            Err(error) => {
                self.lack_build(want, error.to_string(), true);
                return Ok(None);
            }
        };
        let tag = build::tag(&key);
        if plan.is_known_by_key()
            && let Some(mut facts) = self.find(&tag).await?
        {
            (self.progress)(ImageProgress::BuiltBefore { image: &words });
            facts.origin = ImageOrigin::Built;
            self.facts.insert((tag.clone(), None), facts);
            return Ok(Some(tag));
        }
        let mut labels: Labels = plan.build.labels.clone();
        labels.insert(LABEL_BUILD.to_owned(), key);
        let credentials = self.credentials(plan).await;
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
        let begun = Instant::now();
        match self.engine.build_image(request, self.progress).await {
            Ok(()) => {}
            Err(error) if error.kind == EngineErrorKind::Other => {
                let said = chain(&*error.source);
                let is_input = says_that_steps_are_wrong(&said);
                self.lack_build(want, said, is_input);
                return Ok(None);
            }
            Err(error) => return Err(PrepareError::Engine(error)),
        }
        let Some(mut facts) = self.find(&tag).await? else {
            self.lack_build(want, "it was built and is not there".to_owned(), false);
            return Ok(None);
        };
        (self.progress)(ImageProgress::Built {
            image: &words,
            took: begun.elapsed(),
        });
        facts.origin = ImageOrigin::Built;
        self.facts.insert((tag.clone(), None), facts);
        Ok(Some(tag))
    }

    /// What the builder may need to fetch what the build starts from.
    async fn credentials(&self, plan: &BuildPlan) -> Vec<Credentials> {
        if plan.has_unknown_base {
            // Any registry may be meant, as for the Docker CLI.
            return self.keyring.all().await;
        }
        let mut credentials: Vec<Credentials> = Vec::new();
        for base in &plan.bases {
            // A helper's failure was told when the image was pulled, if it mattered.
            let found = self.keyring.find(base).await.ok().flatten();
            credentials.extend(found.filter(|found| !credentials.contains(found)));
        }
        credentials
    }

    fn lack_build(&mut self, want: &BuildWant, said: String, is_input: bool) {
        self.missing.push(ImageMissing {
            image: want.words(),
            services: vec![want.service.clone()],
            said,
            hint: "`docker build` of the same folder shows the whole log".to_owned(),
            is_input,
        });
    }

    /// The stacks with each image's name and content in it.
    fn finish(
        self,
        stacks: &[Arc<Stack>],
        wanted: &Wanted,
        built: &[Option<String>],
    ) -> PreparedImages {
        let mut used = IndexSet::new();
        let pinned = stacks.iter().enumerate().map(|(index, stack)| {
            let mut stack = Stack::clone(stack);
            for (name, service) in &mut stack.services {
                let source = wanted.sources.get(&(index, name.clone()));
                let mut key = (service.image.clone(), service.platform.clone());
                let tag = match source {
                    Some(Source::Build(number)) => built[*number].clone(),
                    Some(Source::Named {
                        build: Some(number),
                    }) if !self.facts.contains_key(&key) => built[*number].clone(),
                    _ => None,
                };
                if let Some(tag) = tag {
                    service.image.clone_from(&tag);
                    key = (tag, None);
                }
                let facts = self.facts.get(&key);
                service.image_id = facts
                    .map(|facts| facts.digest.clone())
                    .filter(|id| !id.is_empty());
                used.insert(key);
            }
            Arc::new(stack)
        });
        let stacks = pinned.collect();
        let mut by_name: IndexMap<String, ImageFacts> = IndexMap::new();
        for (key, facts) in self.facts {
            if !used.contains(&key) {
                continue;
            }
            let (mut name, platform) = key;
            let is_other = |known: &ImageFacts| known.digest != facts.digest;
            if by_name.get(&name).is_some_and(is_other) {
                let platform = platform.unwrap_or_else(|| facts.platform.clone());
                name = format!("{name} ({platform})");
            }
            by_name.insert(name, facts);
        }
        PreparedImages {
            stacks,
            facts: by_name,
            warnings: self.warnings,
        }
    }
}

/// Whether the builder could not even read the steps. **Source**: Docker Engine, its parser.
pub(super) fn says_that_steps_are_wrong(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    [
        "dockerfile parse error",
        "unknown instruction",
        "the dockerfile (",
        "failed to parse stage",
    ]
    .iter()
    .any(|words| said.contains(words))
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
