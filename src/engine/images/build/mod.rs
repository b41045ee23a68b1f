//! From a Compose `build` section to what the engine's builder takes.
//!
//! `context.rs` lists and archives the folder, `ignore.rs` leaves out what
//! `.dockerignore` says, `dockerfile.rs` finds what the steps start from.
//! **Invariant**: a build is found again by a key over all that goes into it, the
//! images it starts from included; where one of those cannot be told, it is built
//! anew (from the engine's own cache of layers, so that nothing is lost but a moment).

mod context;
mod dockerfile;
mod ignore;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexSet;
use sha2::{Digest, Sha256};

pub use self::context::BuildContext;
use self::context::add_text;
use crate::engine::cli_config::hex;
use crate::stack::Build;

/// Repository of the images that are built here; the tag is the key.
const REPOSITORY: &str = "nightsweep/build";

/// Meaning of the key: a new one when something else goes into it.
const KEY_VERSION: &str = "1";

/// Schemes of a context that the engine fetches by itself.
const FETCHED: [&str; 4] = ["http://", "https://", "git://", "github.com/"];

/// What the steps work on.
#[derive(Debug, Clone)]
pub enum BuildSource {
    /// A folder of this host.
    Folder(Arc<BuildContext>),
    /// An address that the engine fetches.
    Remote(String),
}

/// A build, read and found to be possible.
#[derive(Debug, Clone)]
pub(super) struct BuildPlan {
    pub(super) build: Build,
    pub(super) platform: Option<String>,
    pub(super) source: BuildSource,
    /// The steps' path in the context.
    pub(super) dockerfile: String,
    /// Images it starts from.
    pub(super) bases: IndexSet<String>,
    /// Whether it starts from something whose name cannot be told.
    pub(super) has_unknown_base: bool,
}

/// A build that cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BuildRefused {
    pub(super) said: String,
    pub(super) hint: String,
}

impl BuildRefused {
    fn new(said: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            said: said.into(),
            hint: hint.into(),
        }
    }
}

/// What of a build section the engine's classic builder cannot do, by name; `None` is all well.
pub(in crate::engine) fn refused_key(build: &Build) -> Option<String> {
    if !build.additional_contexts.is_empty() {
        return Some("additional_contexts: needs BuildKit".to_owned());
    }
    if build.platforms.len() > 1 {
        let n = build.platforms.len();
        return Some(format!(
            "platforms: {n} at once need BuildKit (allowed: one)"
        ));
    }
    let context = build.context.as_str();
    if !context.contains("://") && !context.starts_with("git@") {
        return None;
    }
    if !FETCHED.iter().any(|scheme| context.starts_with(scheme)) {
        return Some(format!(
            "context: `{context}` is fetched by nobody here (allowed: a folder, {})",
            FETCHED.join(", ")
        ));
    }
    build
        .dockerfile_inline
        .is_some()
        .then(|| "dockerfile_inline: the context is an address, which has its own".to_owned())
}

const BUILD_FIRST: &str =
    "build it with a tool that can (`docker buildx build --load`), and name it with `image:`";

impl BuildPlan {
    /// Reads context and steps; the platform is the service's where the build names none.
    ///
    /// Blocking: it lists a folder, which may be large.
    pub(super) fn read(build: &Build, platform: Option<&str>) -> Result<Self, BuildRefused> {
        if let Some(key) = refused_key(build) {
            return Err(BuildRefused::new(key, BUILD_FIRST));
        }
        let platform = build.platforms.first().map(String::as_str).or(platform);
        let mut plan = Self {
            build: build.clone(),
            platform: platform.map(str::to_owned),
            source: BuildSource::Remote(build.context.clone()),
            dockerfile: build
                .dockerfile
                .clone()
                .unwrap_or_else(|| "Dockerfile".to_owned()),
            bases: IndexSet::new(),
            has_unknown_base: true,
        };
        if !FETCHED
            .iter()
            .any(|scheme| build.context.starts_with(scheme))
        {
            plan.read_folder()?;
        }
        Ok(plan)
    }

    fn read_folder(&mut self) -> Result<(), BuildRefused> {
        let root = PathBuf::from(&self.build.context);
        let refused = |said: String| {
            BuildRefused::new(said, "check `context` and `dockerfile` in the Compose file")
        };
        if !root.is_dir() {
            return Err(refused(format!(
                "the context {} is no folder",
                root.display()
            )));
        }
        let inside = match &self.build.dockerfile_inline {
            Some(_) => None,
            None => path_inside(&root, &self.dockerfile),
        };
        let steps = match &self.build.dockerfile_inline {
            Some(steps) => steps.clone().into_bytes(),
            None => fs_err::read(root.join(&self.dockerfile))
                .map_err(|error| refused(error.to_string()))?,
        };
        let mut context = BuildContext::list(&root, inside.as_deref())
            .map_err(|error| refused(error.to_string()))?;
        if let Some(inside) = inside {
            self.dockerfile = inside;
        } else {
            let name = format!(".dockerfile.{}", short_hex(&Sha256::digest(&steps)));
            context
                .add_dockerfile(&name, &steps)
                .map_err(|error| refused(error.to_string()))?;
            self.dockerfile = name;
        }
        let found = dockerfile::read(&String::from_utf8_lossy(&steps), &self.build.args);
        if !found.beyond.is_empty() {
            let list = found.beyond.join("; ");
            return Err(BuildRefused::new(
                format!("the steps need BuildKit, which is not supported: {list}"),
                BUILD_FIRST,
            ));
        }
        self.bases = found.bases;
        self.has_unknown_base = found.has_unknown_base;
        self.source = BuildSource::Folder(Arc::new(context));
        Ok(())
    }

    /// Whether an image of the same key is the same image.
    pub(super) fn is_known_by_key(&self) -> bool {
        !self.has_unknown_base && !self.build.no_cache
    }

    /// The key over all that goes into it; `base_ids` in the order of `bases`. Blocking.
    pub(super) fn key(&self, base_ids: &[String]) -> std::io::Result<String> {
        let mut hasher = Sha256::new();
        add_text(&mut hasher, KEY_VERSION);
        let build = &self.build;
        let options = serde_json::json!({
            "dockerfile": self.dockerfile,
            "target": build.target,
            "args": build.args,
            "labels": build.labels,
            "network": build.network,
            "shm_size": build.shm_size,
            "extra_hosts": build.extra_hosts,
            "platform": self.platform,
            "bases": base_ids,
        });
        add_text(&mut hasher, &options.to_string());
        match &self.source {
            BuildSource::Folder(context) => context.digest(&mut hasher)?,
            BuildSource::Remote(address) => add_text(&mut hasher, address),
        }
        Ok(short_hex(&hasher.finalize()))
    }
}

/// The name of a built image.
pub(super) fn tag(key: &str) -> String {
    format!("{REPOSITORY}:{key}")
}

/// The key in the name of an image that is built here; `None` for all other images.
pub fn build_key_of(image: &str) -> Option<&str> {
    image.strip_prefix(REPOSITORY)?.strip_prefix(':')
}

/// A text with the keys of builds taken out: the builder says what it tagged.
pub fn without_build_keys(text: &str) -> String {
    let before_key = format!("{REPOSITORY}:");
    let mut parts = text.split(&before_key);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(REPOSITORY);
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    out
}

fn short_hex(digest: &[u8]) -> String {
    hex(&digest[..digest.len().min(8)])
}

/// The path of a file below a folder; `None` when it lies elsewhere.
fn path_inside(root: &Path, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    let relative = Path::new(file);
    let relative = relative.strip_prefix(root).unwrap_or(relative);
    for part in relative.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                parts.pop()?;
            }
            std::path::Component::Normal(part) => parts.push(part.to_str()?),
            std::path::Component::RootDir | std::path::Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;

    fn build_in(folder: &Path) -> Build {
        Build {
            context: folder.display().to_string(),
            ..Build::default()
        }
    }

    #[test]
    fn keys_are_read_from_names_and_taken_out_of_texts() {
        let name = tag("0123456789abcdef");
        assert_eq!(build_key_of(&name), Some("0123456789abcdef"));
        assert_eq!(build_key_of("postgres:17"), None);
        assert_eq!(
            without_build_keys(&format!("Successfully tagged {name}, {name}\n")),
            "Successfully tagged nightsweep/build, nightsweep/build\n"
        );
        assert_eq!(
            without_build_keys("no key: postgres:17"),
            "no key: postgres:17"
        );
    }

    fn key(build: &Build) -> String {
        let plan = BuildPlan::read(build, None).unwrap();
        plan.key(&["sha256:base".to_owned()]).unwrap()
    }

    #[test]
    fn the_key_follows_what_goes_in_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("Dockerfile"), "FROM scratch\n").unwrap();
        let plain = build_in(folder.path());
        let first = key(&plain);
        assert_eq!(first.len(), 16);
        let moved = Build {
            place: "elsewhere:1:1".to_owned(),
            cache_from: vec!["x".to_owned()],
            ..plain.clone()
        };
        assert_eq!(key(&moved), first);
        let with_argument = Build {
            args: IndexMap::from([("A".to_owned(), "1".to_owned())]),
            ..plain.clone()
        };
        assert_ne!(key(&with_argument), first);
        let read = BuildPlan::read(&plain, None).unwrap();
        assert_ne!(read.key(&["sha256:moved".to_owned()]).unwrap(), first);
        assert!(read.is_known_by_key());
        fs_err::write(folder.path().join("Dockerfile"), "FROM scratch\nUSER 1\n").unwrap();
        assert_ne!(key(&plain), first);
    }

    #[test]
    fn steps_are_found_inside_outside_and_in_the_compose_file() {
        let folder = tempfile::tempdir().unwrap();
        let context = folder.path().join("context");
        fs_err::create_dir(&context).unwrap();
        fs_err::write(folder.path().join("Outside"), "FROM far:1\n").unwrap();
        fs_err::write(context.join("Inside"), "FROM near:1\n").unwrap();
        let read = |change: &dyn Fn(&mut Build)| {
            let mut build = build_in(&context);
            change(&mut build);
            let plan = BuildPlan::read(&build, None).unwrap();
            (plan.dockerfile, plan.bases.into_iter().collect::<Vec<_>>())
        };
        let (name, bases) = read(&|build| build.dockerfile = Some("./Inside".to_owned()));
        assert_eq!((name.as_str(), bases[0].as_str()), ("Inside", "near:1"));
        let (name, bases) = read(&|build| build.dockerfile = Some("../Outside".to_owned()));
        assert!(name.starts_with(".dockerfile."), "{name}");
        assert_eq!(bases, ["far:1"]);
        let (name, bases) =
            read(&|build| build.dockerfile_inline = Some("FROM inline:1".to_owned()));
        assert!(name.starts_with(".dockerfile."), "{name}");
        assert_eq!(bases, ["inline:1"]);
    }

    #[test]
    fn what_the_builder_cannot_do_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(
            folder.path().join("Dockerfile"),
            "FROM a\nRUN --mount=type=ssh x\n",
        )
        .unwrap();
        let said = |change: &dyn Fn(&mut Build)| {
            let mut build = build_in(folder.path());
            change(&mut build);
            BuildPlan::read(&build, None).unwrap_err().said
        };
        let contexts = IndexMap::from([("a".to_owned(), "b".to_owned())]);
        assert_eq!(
            said(&|build| build.additional_contexts = contexts.clone()),
            "additional_contexts: needs BuildKit"
        );
        assert_eq!(
            said(&|build| build.platforms = vec!["a".into(), "b".into()]),
            "platforms: 2 at once need BuildKit (allowed: one)"
        );
        for context in [
            "git@github.com:a/b.git",
            "ssh://host/r.git",
            "docker-image://a",
        ] {
            let said = said(&|build| build.context = context.to_owned());
            assert!(said.starts_with(&format!("context: `{context}`")), "{said}");
        }
        assert_eq!(
            said(&|_| {}),
            "the steps need BuildKit, which is not supported: line 2: `RUN --mount`"
        );
        let said = said(&|build| build.context = "/nowhere".to_owned());
        assert_eq!(said, "the context /nowhere is no folder");
    }

    #[test]
    fn an_address_is_left_to_the_engine_and_never_found_by_key() {
        let build = Build {
            context: "https://example.com/r.git#v1".to_owned(),
            ..Build::default()
        };
        let plan = BuildPlan::read(&build, Some("linux/amd64")).unwrap();
        assert!(matches!(&plan.source, BuildSource::Remote(address) if *address == build.context));
        assert_eq!(plan.platform.as_deref(), Some("linux/amd64"));
        assert!(!plan.is_known_by_key());
    }
}
